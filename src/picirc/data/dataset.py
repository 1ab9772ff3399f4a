"""What every reader returns: rows for training, validation and testing, and where they came from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from picirc.data.unpacked import sha256
from picirc.errors import ArgumentError

Rows = npt.NDArray[np.uint8]  # (row, variable)
Labels = npt.NDArray[np.uint8]  # (row,)
Indices = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Provenance:
    """Where a data set came from.

    Attributes:
        source: Its origin and terms, in words.
        files: The files that were read.
    """

    source: str
    files: tuple[Path, ...] = ()

    def sha256(self) -> dict[str, str]:
        """Return the SHA-256 of the unpacked content of every file, by the path of the file."""
        return {str(path): sha256(path) for path in self.files}


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A data set of discrete variables, all with the values 0, …, ``categories`` - 1.

    Attributes:
        name: What it was loaded as.
        train: Rows to learn from, (row, variable), as are ``valid`` and ``test``.
        valid: Rows to decide by: when to stop, which setting is better.
        test: Rows to report on.
        categories: The number of values of every variable.
        image_shape: Height and width if the rows are images, else None; rows are flattened line by line.
        train_labels: The class of every row of ``train`` as the source counts (EMNIST letters from 1), or None.
        valid_labels: The same for ``valid``.
        test_labels: The same for ``test``.
        symbols: The character of every category if the rows are text, else empty.
        provenance: Where it came from.
    """

    name: str
    train: Rows
    valid: Rows
    test: Rows
    categories: int
    provenance: Provenance
    image_shape: tuple[int, int] | None = None
    train_labels: Labels | None = None
    valid_labels: Labels | None = None
    test_labels: Labels | None = None
    symbols: str = ""

    def __repr__(self) -> str:
        parts = ", ".join(f"{part}={getattr(self, part).shape}" for part in ("train", "valid", "test"))
        return f"Dataset({self.name!r}, {parts}, categories={self.categories})"


def hold_out(rows: int, fraction: float, seed: int) -> tuple[Indices, Indices]:
    """Draw rows to hold out for validation, without replacement.

    Args:
        rows: The number of rows there are.
        fraction: The part to hold out, between 0 and 1, rounded to whole rows but at least one.
        seed: What the choice depends on, and nothing else: the same on every machine and version.

    Returns:
        The rows kept and the rows held out, both in ascending order.

    Example:
        >>> kept, held = hold_out(10, 0.2, seed=0)
        >>> kept, held
        (array([0, 1, 4, 5, 6, 7, 8, 9]), array([2, 3]))
    """
    if not 0 < fraction < 1:
        raise ArgumentError("valid_fraction", "a number between 0 and 1", fraction)
    if rows < 2:
        raise ArgumentError("rows", "at least two, one to keep and one to hold out", rows)
    if seed < 0:
        raise ArgumentError("seed", "an integer that is not negative", seed)
    count = min(max(round(fraction * rows), 1), rows - 1)
    # Of numpy's generators only the raw bits are promised to stay the same in later versions.
    order = np.argsort(np.random.PCG64(seed).random_raw(rows), kind="stable")
    return np.sort(order[count:]), np.sort(order[:count])
