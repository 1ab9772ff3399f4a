# SPDX-License-Identifier: Apache-2.0
"""A column of a table: what it is, and the conversion between its values and numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from picirc.data.frames import (
    CALENDAR,
    DATED,
    DTYPES,
    NATIVE,
    Array,
    Cells,
    Label,
    as_dates,
    codes_of,
    column_named,
    few,
    moments_of,
    read_frame,
)
from picirc.engine.evidence import Region
from picirc.errors import ArgumentError
from picirc.inputs import Bernoulli, Binomial, Categorical, Family, Gaussian, Laplace, Poisson, Spiked, StudentT
from picirc.inputs.continuous import LocationScale
from picirc.io.describe import build_family, choice, describe_family, only, take

Numbers = npt.NDArray[np.float64]
Declared = str | Family  # what a user can say of a column

KINDS: dict[type[Family], str] = {
    Gaussian: "gaussian",
    Spiked: "spiked",
    StudentT: "student",
    Laplace: "laplace",
    Categorical: "categorical",
    Bernoulli: "bernoulli",
    Poisson: "poisson",
    Binomial: "binomial",
}
EMPTY = "empty"
SCORES = "scores"

# Codes of real columns are clipped to this distance from the centre, in units of the column's spread.
FARTHEST = 1e12
# Beyond its knots a transform is as steep as it is on average over so many units of its codes.
_OUTER = 1.0
_ROUNDING = 1e-5  # of codes in single precision


@dataclass(frozen=True)
class _Line:
    """A rising function from values to codes that is linear between knots and goes on beyond them.

    The first and the last piece between knots may be steep by chance, or on purpose, if a value at an end occurs often.
    The next value beyond would be all but impossible if they went on.

    Attributes:
        values: The values at the knots, ascending.
        codes: Their codes, ascending.
    """

    values: Numbers
    codes: Numbers

    @cached_property
    def slopes(self) -> Numbers:
        """The derivative of the value with respect to the code in each piece, of which the outer two are unbounded."""
        inner = np.diff(self.values) / np.diff(self.codes)
        low = max(int(np.searchsorted(self.codes, self.codes[-1] - _OUTER, "right")) - 1, 0)
        high = min(int(np.searchsorted(self.codes, self.codes[0] + _OUTER, "left")), len(self.codes) - 1)
        last, first = (
            (self.values[end] - self.values[start]) / (self.codes[end] - self.codes[start])
            for start, end in ((low, -1), (0, high))
        )
        return np.concatenate([[max(inner[0], first)], inner, [max(inner[-1], last)]])

    @cached_property
    def starts(self) -> npt.NDArray[np.intp]:
        """The knot from which each piece is measured."""
        return np.concatenate([[0], np.arange(len(self.values))])

    def pieces(self, knots: Numbers, points: Numbers) -> npt.NDArray[np.intp]:
        """The pieces that points are in; the end knots belong to the pieces within."""
        inside = np.clip(np.searchsorted(knots, points, side="right"), 1, len(knots) - 1)
        beyond = np.where(points > knots[-1], len(knots), inside)
        return np.where(points < knots[0], 0, beyond)

    def log_slopes(self, codes: Numbers) -> Numbers:
        """The logarithm of the slope at each code; one that rounding moved beyond an end is at the end."""
        ends = np.clip(codes, self.codes[0], self.codes[-1])
        at = np.where(np.abs(codes - ends) < _ROUNDING, ends, codes)
        return np.asarray(np.log(self.slopes)[self.pieces(self.codes, at)], np.float64)


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: Its name.
        family: The family of its distribution. A column without values has one with a single category.
        dtype: The type of its values: ``"float"``, ``"integer"``, ``"boolean"``, ``"text"``; ``"date"`` for whole days
            and ``"datetime"`` for times, which are numbers of days since 1970.
        categories: The values that the codes 0, 1, … stand for; empty for columns of numbers.
        location: The centre that is subtracted from real values: their median.
        scale: The spread that they are then divided by.
        low: The smallest value seen; None for categories.
        high: The largest value seen.
        missing: The number of rows without a value.
        knots: Values and their codes, both ascending, between which codes are interpolated linearly, in place of
            ``location`` and ``scale``; beyond them the line goes on. Empty for a linear column.
        spikes: The values of the atoms of a ``Spiked`` family.
        native: The type of the column in the data frame that it comes from, if that is to be kept; of dates their
            calendar.
        indicator: Whether the model has a variable that says if the cell is missing.
        step: The distance that all values are multiples of apart, such as 0.5 or 1000; 0 if there is none.
        levels: All values seen, ascending, if they are few and most multiples of the step between them do not occur.
        counted: Whether the name is an integer in the data frame that the column comes from.
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
    knots: tuple[tuple[float, float], ...] = ()
    spikes: tuple[float, ...] = ()
    native: str = ""
    indicator: bool = False
    step: float = 0.0
    levels: tuple[float, ...] = ()
    counted: bool = False

    @property
    def kind(self) -> str:
        """The word for what it is: ``"gaussian"``, ``"categorical"`` and so on; ``"empty"`` without any value."""
        if self.coded and not self.categories:
            return EMPTY
        if self.knots and isinstance(self.family, Gaussian):
            return SCORES
        return KINDS.get(type(self.family), type(self.family).__name__)

    @property
    def coded(self) -> bool:
        """Whether the values are categories, represented by codes."""
        return isinstance(self.family, Categorical | Bernoulli)

    @property
    def real(self) -> bool:
        """Whether the values are standardised."""
        return isinstance(self.family, LocationScale | Spiked)

    @property
    def left_out(self) -> bool:
        """Whether the column has values, but takes no part in the model: strings that name the rows, or free text."""
        return self.kind == EMPTY and self.dtype == "text"

    @property
    def dated(self) -> bool:
        """Whether the values are dates or times."""
        return self.dtype in DATED

    @property
    def whole(self) -> bool:
        """Whether the values are integers, or whole days."""
        return self.dtype in ("integer", "date")

    def encode(self, cells: Cells, unseen: str = "error") -> Numbers:
        """The values as the family takes them, NaN where missing.

        Args:
            cells: The cells of the column.
            unseen: ``"error"``, or ``"missing"`` to treat a category that the schema does not know as missing.
        """
        if self.kind == EMPTY:
            return np.full(len(cells.values), np.nan)  # nothing is known about it
        if self.coded:
            return self._codes(cells, unseen)
        cells = self.in_calendar(cells)
        if cells.dtype == "text":
            expected = f"numbers for {self.family!r}"
            raise ArgumentError(column_named(self.name), expected, "strings", "convert the column to numbers")
        values: Numbers = cells.values
        if self.real:
            return self._standardise(values)
        self.family.check(torch.as_tensor(values), repr(self.name))
        return values

    def in_calendar(self, cells: Cells) -> Cells:
        """The cells, strings as dates if the column has dates; raise where there are numbers in place of dates."""
        cells = as_dates(cells) if self.dated else cells
        if (cells.dtype in DATED) != self.dated and not cells.missing.all():
            wanted, got = ("dates", "others") if self.dated else ("numbers", "dates")
            raise ArgumentError(column_named(self.name), f"{wanted}, as when the model was fitted", got)
        return cells

    def dates(self, days: Numbers) -> Array:
        """Dates and times from days since 1970: whole seconds if those seen were."""
        ends = np.array([self.low or 0.0, self.high or 0.0]) * 86_400
        return moments_of(days, self.dtype, seconds=bool(np.abs(ends - np.rint(ends)).max() < 1e-5))

    def numbers(self, codes: Numbers) -> Numbers:
        """The same as ``decode`` for a column of numbers, with dates as days since 1970."""
        kept = replace(self, dtype={"date": "integer", "datetime": "float"}.get(self.dtype, self.dtype))
        return np.asarray(kept.decode(codes), np.float64)

    def decode(self, codes: Numbers, exact: bool = False, means: bool = False, beyond: bool = False) -> Array:
        """The values that the numbers of the family stand for.

        Integers and booleans become floats, and strings objects, where something is missing (NaN).

        Args:
            codes: The numbers.
            exact: Do not round numbers to integers; dates are days since 1970.
            means: The codes are those of means, which may lie between a spike and all other values.
            beyond: Normal scores may stand for values outside the range seen.
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
        if self.knots:
            ends = (self.low, self.high) if means else (self.knots[0][0], self.knots[-1][0])
            values = self._from_scores(codes, (None, None) if beyond else ends)
        elif self.real:
            with np.errstate(over="ignore"):
                values = self.location + self.scale * codes
            values = np.clip(values, -np.finfo(np.float64).max, np.finfo(np.float64).max)
        if self.dated and not exact:
            return self.dates(values)
        return values if exact else _typed(np.rint(values) if self.family.discrete else values, self.dtype)

    def like_seen(self, values: Array) -> Array:
        """Decoded draws, moved to values like the ones seen: in their range, and multiples of a step or levels."""
        if not self.real or self.low is None or self.high is None:
            return values
        if self.levels:
            levels = np.array(self.levels)
            between = (levels[1:] + levels[:-1]) / 2
            nearest: Array = levels[np.searchsorted(between, np.asarray(values, np.float64))].astype(values.dtype)
            return nearest
        ends = np.array([self.low, self.high])
        if self.step and not self.dated:
            steps = np.rint((np.asarray(values, np.float64) - self.low) / self.step)
            # 0.1 + 2 · 0.1 is not 0.3: as many digits as a step has, and some more.
            rounded = np.round(self.low + self.step * steps, max(0, 6 - math.floor(math.log10(self.step))))
            values = rounded.astype(values.dtype)
        found: Array = np.clip(values, *(self.dates(ends) if self.dated else ends).astype(values.dtype))
        return found

    @property
    def ordered(self) -> bool:
        """Whether the values are numbers, so that they have means and quantiles."""
        return not self.coded or (bool(self.categories) and not isinstance(self.categories[0], str))

    def expectation(self, family: Family, params: Tensor) -> Tensor:
        """The mean value in the units of the table of codes with some distributions, ``(..., P)`` to ``(...)``."""
        mean = family.mean(params)
        if not self.knots:
            return self.location + self.scale * mean if self.real else mean
        if not isinstance(family, Spiked):
            return self._mean_of_scores(params)
        shares = params[..., :-2].exp()
        spikes = torch.tensor(self.spikes, dtype=params.dtype, device=params.device)
        return shares[..., 0] * self._mean_of_scores(params[..., -2:]) + (shares[..., 1:] * spikes).sum(-1)

    def _mean_of_scores(self, params: Tensor) -> Tensor:
        """The mean value of Gaussian codes Z: the first one plus ``E[(Z − knot)⁺]`` for each change of slope."""
        values, codes = (torch.tensor(part, dtype=params.dtype) for part in zip(*self.knots, strict=True))
        slopes = values.diff() / codes.diff()
        rises = torch.cat((slopes[:1], slopes.diff(), -slopes[-1:]))
        mean, std = params[..., :1], params[..., 1:2]
        z = (mean - codes) / std
        density = torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi)
        found: Tensor = values[0] + (rises * std * (density + z * torch.special.ndtr(z))).sum(-1)
        return found

    def _scores(self, values: Numbers) -> Numbers:
        """The codes of values by interpolation between the knots."""
        line = self._line
        piece = line.pieces(line.values, values)
        start = line.starts[piece]
        with np.errstate(over="ignore", invalid="ignore"):
            found: Numbers = line.codes[start] + (values - line.values[start]) / line.slopes[piece]
        found = np.asarray(np.clip(found, -FARTHEST, FARTHEST), np.float64)
        for spike, atom in zip(self.spikes, getattr(self.family, "atoms", ()), strict=True):
            # Beyond its knots the line may pass the atom of a far spike, but codes keep the order of the values.
            apart = _ROUNDING * max(1.0, abs(atom))
            beside = np.where(values < spike, np.minimum(found, atom - apart), np.maximum(found, atom + apart))
            found = np.where(values == spike, atom, beside)
        return found

    def _from_scores(self, codes: Numbers, ends: tuple[float | None, float | None]) -> Numbers:
        """The values of codes, the inverse of ``_scores``, between two ends."""
        line = self._line
        piece = line.pieces(line.codes, codes)
        start = line.starts[piece]
        found: Numbers = line.values[start] + (codes - line.codes[start]) * line.slopes[piece]
        found = np.clip(found, *ends) if ends != (None, None) else found
        for spike, atom in zip(self.spikes, getattr(self.family, "atoms", ()), strict=True):
            found = np.where(codes == atom, spike, found)
        return found

    @cached_property
    def _line(self) -> _Line:
        return _Line(*(np.array(part) for part in zip(*self.knots, strict=True)))

    def nearest(self, values: Numbers) -> Numbers:
        """The codes of numbers, for categories those of the nearest ones."""
        if self.coded:
            labels = np.array(self.categories, np.float64)
            closest: Numbers = np.abs(values[:, None] - labels).argmin(1).astype(np.float64)
            return closest
        return self._standardise(values) if self.real else values

    def region_between(self, low: float, high: float) -> Region:
        """The codes of the values in a range; a number that is rounded to an integer of the range is in it."""
        if self.coded:
            inside = [code for code, label in enumerate(self.categories) if low <= float(label) <= high]
            return Region(tuple((float(code), float(code)) for code in inside))
        if not self.real:
            return Region(
                ((math.ceil(low) if low > -math.inf else low, math.floor(high) if high < math.inf else high),)
            )
        half = 0.5 if self.whole else 0.0
        ends = self._standardise(np.array([low - half, high + half]))
        finite = np.isfinite([low, high])
        return Region(((float(ends[0]) if finite[0] else -math.inf, float(ends[1]) if finite[1] else math.inf),))

    def region_of_values(self, values: Sequence[Any]) -> Region:
        """The codes of some values; those of a column of reals have a density and no probability."""
        cells = read_frame({self.name: list(values)}).cells(self.name)
        codes = list(dict.fromkeys(self.encode(cells).tolist()))
        if self.real and self.whole:
            seen = sorted(set(self.in_calendar(cells).values.tolist()))
            intervals = [self.region_between(value, value).intervals[0] for value in seen]
            return Region(tuple(intervals))
        if self.real:
            atoms = set(getattr(self.family, "atoms", ()))
            spikes = tuple((code, code) for code in codes if code in atoms)
            return Region(spikes, tuple(code for code in codes if code not in atoms))
        return Region(tuple((code, code) for code in sorted(codes)))

    def log_slope(self, codes: Numbers) -> Numbers:
        """The logarithm of the derivative of the value with respect to the code, at each code.

        The log-density in the units of the table is that of the codes minus this.
        """
        if not self.knots:
            return np.full(len(codes), math.log(self.scale) if self.real else 0.0)
        return np.where(np.isin(codes, getattr(self.family, "atoms", ())), 0.0, self._line.log_slopes(codes))

    def summary(self) -> tuple[str, str, str]:
        """Kind, values and the number of missing cells, in words."""
        kind = f"{self.kind} ({len(self.categories)})" if self.kind == "categorical" else self.kind
        if self.left_out:
            return "left out", "different strings", f"{self.missing:,}" if self.missing else ""
        if self.low is not None and self.high is not None:
            low, high = (
                str(self.dates(np.array([end])).tolist()[0]) if self.dated else f"{end:g}"
                for end in (self.low, self.high)
            )
            values = low if low == high else f"{low} … {high}"
        else:
            values = few(self.categories)
        if self.spikes:
            values += f", often {few([float(f'{spike:g}') for spike in self.spikes])}".replace(".0,", ",").removesuffix(
                ".0"
            )
        missing = f"{self.missing:,}" if self.missing else ""
        return kind, values, f"{missing} modelled".strip() if self.indicator else missing

    def to_json(self) -> dict[str, Any]:
        """The column as plain JSON values."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        lists = {
            "categories": list(self.categories),
            "spikes": list(self.spikes),
            "levels": list(self.levels),
            "knots": [list(k) for k in self.knots],
        }
        return found | lists | {"family": describe_family(self.family)}

    @classmethod
    def from_json(cls, entry: Any, families: Sequence[type[Family]] = ()) -> Column:
        """The column that ``to_json`` wrote; entries that an earlier version did not write have their defaults."""
        if not isinstance(entry, Mapping):
            raise ArgumentError("columns", "an object for each column", repr(entry)[:80])
        only(entry, {field.name for field in fields(cls)}, "columns")
        defaults = {field.name: field.default for field in fields(cls) if field.default is not MISSING}
        entry = {**defaults, "categories": [], "knots": [], "spikes": [], "levels": [], **entry}
        missing, scale = take(entry, "missing", int), _number(entry, "scale")
        if missing < 0 or not scale > 0:
            raise ArgumentError("columns", "a positive scale and a number of rows", f"{scale} and {missing}")
        low, high = (None if entry.get(name) is None else _number(entry, name) for name in ("low", "high"))
        column = cls(
            name=take(entry, "name", str),
            family=build_family(take(entry, "family", dict), families),
            dtype=choice(entry, "dtype", {name: name for name in DTYPES}),
            categories=tuple(take(entry, "categories", list)),
            location=_number(entry, "location"),
            scale=scale,
            low=low,
            high=high,
            missing=missing,
            knots=_pairs(entry),
            native=_checked_native(take(entry, "native", str)),
            spikes=tuple(_finite_numbers("spikes", take(entry, "spikes", list))),
            indicator=take(entry, "indicator", bool),
            step=max(0.0, _number(entry, "step")),
            levels=tuple(_finite_numbers("levels", take(entry, "levels", list))),
            counted=take(entry, "counted", bool) and take(entry, "name", str).removeprefix("-").isdecimal(),
        )
        column._check_labels()
        if len(column.spikes) != len(getattr(column.family, "atoms", ())) or (column.spikes and not column.knots):
            raise ArgumentError("spikes", f"a value for each atom of {column.family!r}", repr(column.spikes)[:80])
        if any(a >= b for a, b in itertools.pairwise(column.levels)):
            raise ArgumentError("levels", "ascending numbers", repr(column.levels)[:80])
        return column

    def _check_labels(self) -> None:
        """Raise unless there is a distinct label of the column's type for each code of the family."""
        labels = self.categories
        wanted = {"text": (str,), "boolean": (bool,)}.get(self.dtype, (int, float))
        if any(type(label) not in wanted for label in labels) or len(set(labels)) != len(labels):
            raise ArgumentError("categories", f"distinct values of type {self.dtype}", repr(labels)[:80])
        if any(not _is_finite(label) for label in labels if not isinstance(label, str)):
            raise ArgumentError("categories", "finite numbers", repr(labels)[:80])
        codes = self.family.categories if isinstance(self.family, Categorical) else 2 if self.coded else 0
        if len(labels) != codes and not (self.coded and not labels and codes == 1):
            raise ArgumentError("categories", f"{codes} labels for {self.family!r}", f"{len(labels)}")

    def _standardise(self, values: Numbers) -> Numbers:
        if self.knots:
            return self._scores(values)
        with np.errstate(over="ignore"):
            found = (values - self.location) / self.scale
            # The difference of two huge numbers of opposite sign may overflow.
            found = np.where(np.isinf(found), values / self.scale - self.location / self.scale, found)
        return np.clip(found, -FARTHEST, FARTHEST)

    def _codes(self, cells: Cells, unseen: str) -> Numbers:
        textual = isinstance(self.categories[0], str)
        if textual != (cells.dtype == "text") and not cells.missing.all():
            expected, got = ("strings", "numbers") if textual else ("numbers", "strings")
            raise ArgumentError(column_named(self.name), f"{expected}, as when the model was fitted", got)
        codes = codes_of(cells.values, self.categories)
        strange = np.flatnonzero(np.isnan(codes) & ~cells.missing)
        if unseen == "error" and len(strange):
            raise self._unseen(cells.values[strange[0]], int(strange[0]))
        return codes

    def _unseen(self, label: Any, row: int) -> ArgumentError:
        remedy = "fit with unseen='missing' to treat such values as missing"
        if not isinstance(label, str):
            label = int(label) if label == math.floor(label) else float(label)
            remedy += f", or with columns={{{self.name!r}: 'gaussian'}} if they are quantities"
        expected = f"a category that occurred when the model was fitted ({few(self.categories)})"
        return ArgumentError(column_named(self.name), expected, f"{label!r} in row {row}", remedy)


def _typed(values: Numbers, dtype: str) -> Array:
    """Numbers in the type of a column, if it can hold them."""
    if dtype not in ("integer", "boolean"):
        return values
    if np.isnan(values).any():
        return np.rint(values)
    if dtype == "boolean":
        return np.asarray(values != 0)
    return np.rint(np.clip(values, -(2.0**62), 2.0**62)).astype(np.int64)


def _number(entry: Mapping[str, Any], name: str) -> float:
    value = entry.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
        raise ArgumentError(name, "a finite number", repr(value)[:80])
    return float(value)


def _checked_native(word: str) -> str:
    if word not in ("", *NATIVE["pandas"], *NATIVE["polars"]) and not CALENDAR.fullmatch(word):
        raise ArgumentError("native", "the type of a column", repr(word)[:80])
    return word


def _finite_numbers(name: str, values: Sequence[Any]) -> list[float]:
    return [_number({name: value}, name) for value in values]


def _pairs(entry: Mapping[str, Any]) -> tuple[tuple[float, float], ...]:
    """The knots of a column, from a file that may hold anything."""
    knots = take(entry, "knots", list)
    if not all(isinstance(knot, list | tuple) and len(knot) == 2 for knot in knots) or len(knots) == 1:
        raise ArgumentError("knots", "pairs of numbers, two or none", repr(knots)[:80])
    pairs = tuple((value, code) for value, code in (_finite_numbers("knots", knot) for knot in knots))
    if any(a >= c or b >= d for (a, b), (c, d) in itertools.pairwise(pairs)):
        raise ArgumentError("knots", "ascending values and codes", repr(knots)[:80])
    return pairs


def _is_finite(value: Label) -> bool:
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False
