"""What a column of a table is: its family, and the way between its values and the numbers that the family takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from picirc.errors import ArgumentError
from picirc.inputs import Bernoulli, Binomial, Categorical, Family, Gaussian, Laplace, Poisson, StudentT
from picirc.inputs.location import LocationScale
from picirc.tables.frames import Array, Cells, Label, column_named

Numbers = npt.NDArray[np.float64]

KINDS: dict[type[Family], str] = {
    Gaussian: "gaussian",
    StudentT: "student",
    Laplace: "laplace",
    Categorical: "categorical",
    Bernoulli: "bernoulli",
    Poisson: "poisson",
    Binomial: "binomial",
}
EMPTY = "empty"

# Real families take nothing that is further from the centre than this, in units of the column's spread.
FARTHEST = 1e12
_MOST_SHOWN = 8


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: Its name.
        family: The family of its distribution. A column without any value has one that says nothing.
        dtype: The type of its values: ``"float"``, ``"integer"``, ``"boolean"`` or ``"text"``.
        categories: The values that the codes 0, 1, … stand for; empty for columns of numbers.
        location: The centre that is subtracted from real values: their median.
        scale: The spread that they are divided by then.
        low: The least value that was seen; None for categories.
        high: The largest value that was seen.
        missing: The number of rows without a value.
    """

    name: str
    family: Family
    dtype: str
    categories: tuple[Label, ...] = ()
    location: float = 0.0
    scale: float = 1.0
    low: float | None = None
    high: float | None = None
    missing: int = 0

    @property
    def kind(self) -> str:
        """The word for what it is: ``"gaussian"``, ``"categorical"`` and so on; ``"empty"`` without any value."""
        if self.coded and not self.categories:
            return EMPTY
        return KINDS.get(type(self.family), type(self.family).__name__)

    @property
    def coded(self) -> bool:
        """Whether values are names of categories, so that numbers stand for them."""
        return isinstance(self.family, Categorical | Bernoulli)

    @property
    def real(self) -> bool:
        """Whether values are standardised."""
        return isinstance(self.family, LocationScale)

    @property
    def log_scale(self) -> float:
        """What the logarithm of a density loses when its value goes back to the units of the table."""
        return math.log(self.scale) if self.real else 0.0

    def encode(self, cells: Cells, unseen: str = "error") -> Numbers:
        """The values as the family takes them, NaN where missing.

        Args:
            cells: The column of a table.
            unseen: ``"error"``, or ``"missing"`` to count a category that was not there before as missing.
        """
        if self.kind == EMPTY:
            return np.full(len(cells.values), np.nan)  # nothing is known about it
        if self.coded:
            return self._codes(cells, unseen)
        if cells.dtype == "text":
            raise ArgumentError(
                column_named(self.name), f"numbers for {self.family!r}", "texts", "convert the column to numbers"
            )
        values: Numbers = cells.values
        if self.real:
            return self._standardise(values)
        self.family.check(torch.as_tensor(values), repr(self.name))
        return values

    def decode(self, codes: Numbers) -> Array:
        """The values that the numbers of the family stand for.

        Whole numbers and truth values become floats, and texts objects, where something is missing (NaN).
        """
        gone = np.isnan(codes)
        if self.kind == EMPTY:
            return np.full(len(codes), None, object) if self.dtype == "text" else np.full(len(codes), np.nan)
        if self.coded:
            if not np.isin(codes[~gone], np.arange(len(self.categories))).all():
                raise ArgumentError(column_named(self.name), f"codes from 0 to {len(self.categories) - 1}", "others")
            labels = np.array([*self.categories, None], dtype=object)
            found = labels[np.where(gone, len(labels) - 1, codes).astype(np.intp)]
            return found if self.dtype == "text" else _typed(found.astype(np.float64), self.dtype)
        values = codes
        if self.real:
            with np.errstate(over="ignore"):
                values = self.location + self.scale * codes
            values = np.clip(values, -np.finfo(np.float64).max, np.finfo(np.float64).max)
        if self.family.discrete:
            values = np.rint(values)
        return _typed(values, self.dtype)

    def summary(self) -> tuple[str, str, str]:
        """Kind, values and the number of missing cells, in words."""
        kind = f"{self.kind} ({len(self.categories)})" if self.kind == "categorical" else self.kind
        if self.low is not None and self.high is not None:
            values = f"{self.low:g}" if self.low == self.high else f"{self.low:g} … {self.high:g}"
        else:
            values = few(self.categories)
        return kind, values, f"{self.missing:,}" if self.missing else ""

    def _standardise(self, values: Numbers) -> Numbers:
        with np.errstate(over="ignore"):
            found = (values - self.location) / self.scale
            # The difference of two huge numbers of opposite sign may be none.
            found = np.where(np.isinf(found), values / self.scale - self.location / self.scale, found)
        return np.clip(found, -FARTHEST, FARTHEST)

    def _codes(self, cells: Cells, unseen: str) -> Numbers:
        textual = isinstance(self.categories[0], str)
        missing = cells.missing
        if textual != (cells.dtype == "text") and not missing.all():
            expected, got = ("texts", "numbers") if textual else ("numbers", "texts")
            raise ArgumentError(column_named(self.name), f"{expected}, as when the model was fitted", got)
        number: dict[Any, int] = {label: code for code, label in enumerate(self.categories)}
        different, where = _distinct(cells.values[~missing])
        codes = np.array([number.get(label, math.nan) for label in different], dtype=np.float64)
        if unseen == "error" and np.isnan(codes).any():
            strange = different[int(np.flatnonzero(np.isnan(codes))[0])]
            row = int(np.flatnonzero(cells.values == strange)[0])
            raise self._unseen(strange, row)
        found = np.full(len(missing), np.nan)
        found[~missing] = codes[where]
        return found

    def _unseen(self, label: Any, row: int) -> ArgumentError:
        remedy = "fit with unseen='missing' to count such values as missing"
        if not isinstance(label, str):
            label = int(label) if label == math.floor(label) else float(label)
            remedy += f", or with columns={{{self.name!r}: 'gaussian'}} if they are quantities"
        expected = f"a category that was there when the model was fitted ({few(self.categories)})"
        return ArgumentError(column_named(self.name), expected, f"{label!r} in row {row}", remedy)


def few(labels: Sequence[Label]) -> str:
    """The first labels of a list, in a form that any terminal can show."""
    shown = ", ".join(plain(str(label)) for label in labels[:_MOST_SHOWN])
    return f"{shown}, …" if len(labels) > _MOST_SHOWN else shown


def plain(text: str, most: int = 40) -> str:
    """A text on one line, of a limited length, with escape sequences for what cannot be printed."""
    shown = text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def _typed(values: Numbers, dtype: str) -> Array:
    """Numbers in the type of a column, if it can hold them."""
    if dtype not in ("integer", "boolean"):
        return values
    if np.isnan(values).any():
        return np.rint(values)
    if dtype == "boolean":
        return np.asarray(values != 0)
    return np.rint(np.clip(values, -(2.0**62), 2.0**62)).astype(np.int64)


def _distinct(values: Array) -> tuple[list[Any], npt.NDArray[np.intp]]:
    """The different values, and the place of each value among them."""
    if values.dtype != object:
        found, where = np.unique(values, return_inverse=True)
        return found.tolist(), where
    order: dict[Any, int] = {}
    where = np.array([order.setdefault(value, len(order)) for value in values], dtype=np.intp)
    return list(order), where
