# SPDX-License-Identifier: Apache-2.0
"""Data sets: rows for training, validation and testing, and where they came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from picirc.checks import check_integer
from picirc.data.files import sha256
from picirc.errors import ArgumentError

Rows = npt.NDArray[Any]  # (row, variable)
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
        """Return the SHA-256 of the decompressed content of every file, by its path."""
        return {str(path): sha256(path) for path in self.files}


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Rows for training, validation and testing.

    Attributes:
        name: What it was loaded as.
        train: Rows to learn from, (row, variable), like ``valid`` and ``test``.
        valid: Rows for decisions: when to stop, which setting is better.
        test: Rows to report on.
        categories: The number K of values 0, …, K - 1 of every variable; None for a table of numbers.
        image_shape: Height and width if the rows are images, else None; rows are flattened line by line.
        train_labels: The class of every row of ``train`` as the source counts (EMNIST letters from 1), or None.
        valid_labels: The same for ``valid``.
        test_labels: The same for ``test``.
        symbols: The character of every category if the rows are text, else empty.
        columns: The names of the variables of a table, else empty.
        levels: For every categorical column of a table the strings that its values stand for.
        provenance: Where it came from.
    """

    name: str
    train: Rows
    valid: Rows
    test: Rows
    categories: int | None
    provenance: Provenance
    image_shape: tuple[int, int] | None = None
    train_labels: Labels | None = None
    valid_labels: Labels | None = None
    test_labels: Labels | None = None
    symbols: str = ""
    columns: tuple[str, ...] = ()
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __repr__(self) -> str:
        parts = ", ".join(f"{part}={getattr(self, part).shape}" for part in ("train", "valid", "test"))
        return f"Dataset({self.name!r}, {parts}, categories={self.categories})"


def hold_out(rows: int, fraction: float, seed: int) -> tuple[Indices, Indices]:
    """Draw rows to hold out for validation, without replacement.

    Args:
        rows: The number of rows.
        fraction: The fraction to hold out, between 0 and 1, rounded to an integer of at least one.
        seed: Determines the choice, which is the same on every machine and in every version.

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
    check_integer("seed", seed, 0)
    count = min(max(round(fraction * rows), 1), rows - 1)
    # NumPy only guarantees the raw bits of its generators to stay the same in later versions.
    order = np.argsort(np.random.PCG64(seed).random_raw(rows), kind="stable")
    return np.sort(order[count:]), np.sort(order[:count])
