# SPDX-License-Identifier: Apache-2.0
"""Schemas: what the columns of a table are, and the conversion between a table and an array of numbers."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from picirc.checks import check_choice
from picirc.data.dates import CALENDAR, DATED, moments_of, objects_of
from picirc.data.frames import (
    CONTAINERS,
    DTYPES,
    NATIVE,
    Array,
    Cells,
    Frame,
    Label,
    arrow_table,
    as_dates,
    assemble,
    codes_of,
    column_named,
    extended,
    few,
    fill,
    plain,
    read_frame,
)
from picirc.engine.regions import Region
from picirc.errors import ArgumentError
from picirc.inputs import Bernoulli, Binomial, Categorical, Family, Gaussian, Laplace, Poisson, Spiked, StudentT
from picirc.inputs.location import LocationScale
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
UNSEEN = ("error", "missing")

# Codes of real columns are clipped to this distance from the centre, in units of the column's spread.
FARTHEST = 1e12


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
            ``location`` and ``scale``; beyond them the first and the last piece go on. Empty for a linear column.
        spikes: The values of the atoms of a ``Spiked`` family.
        native: The type of the column in the data frame that it comes from, if that is to be kept; of dates their
            calendar.
        indicator: Whether the model has a variable that says if the cell is missing.
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

    def decode(self, codes: Numbers, exact: bool = False, means: bool = False) -> Array:
        """The values that the numbers of the family stand for.

        Integers and booleans become floats, and strings objects, where something is missing (NaN).

        Args:
            codes: The numbers.
            exact: Do not round numbers to integers; dates are days since 1970.
            means: The codes are those of means, which may lie between a spike and all other values.
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
            values = self._from_scores(codes, means)
        elif self.real:
            with np.errstate(over="ignore"):
                values = self.location + self.scale * codes
            values = np.clip(values, -np.finfo(np.float64).max, np.finfo(np.float64).max)
        if self.dated and not exact:
            return self.dates(values)
        return values if exact else _typed(np.rint(values) if self.family.discrete else values, self.dtype)

    def inside(self, values: Array) -> Array:
        """Decoded numbers, moved to the ends of the range seen where they are outside it."""
        if not self.real or self.low is None or self.high is None:
            return values
        ends = np.array([self.low, self.high])
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
        at, codes = (np.array(part) for part in zip(*self.knots, strict=True))
        place = np.clip(np.searchsorted(at, values, side="right") - 1, 0, len(at) - 2)
        with np.errstate(over="ignore", invalid="ignore"):
            found: Numbers = codes[place] + (values - at[place]) * (np.diff(codes) / np.diff(at))[place]
        found = np.asarray(np.clip(found, -FARTHEST, FARTHEST), np.float64)
        for spike, atom in zip(self.spikes, getattr(self.family, "atoms", ()), strict=True):
            found = np.where(values == spike, atom, found)
        return found

    def _from_scores(self, codes: Numbers, means: bool = False) -> Numbers:
        """The values of codes, inside the range seen: of the values that are no spikes, or for means of all."""
        at, known = (np.array(part) for part in zip(*self.knots, strict=True))
        found: Numbers = np.interp(codes, known, at)
        if means:  # the inverse of what `_scores` does outside the knots
            for end, step, beyond in ((0, 1, codes < known[0]), (-1, -2, codes > known[-1])):
                slope = (at[step] - at[end]) / (known[step] - known[end])
                found = np.where(beyond, at[end] + (codes - known[end]) * slope, found)
            found = np.clip(found, self.low, self.high)
        found[np.isnan(codes)] = np.nan
        for spike, atom in zip(self.spikes, getattr(self.family, "atoms", ()), strict=True):
            found = np.where(codes == atom, spike, found)
        return found

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
        at, known = (np.array(part) for part in zip(*self.knots, strict=True))
        place = np.clip(np.searchsorted(known, codes, side="right") - 1, 0, len(at) - 2)
        slopes = np.log(np.diff(at) / np.diff(known))[place]
        return np.where(np.isin(codes, getattr(self.family, "atoms", ())), 0.0, slopes)

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
        entry = {**defaults, "categories": [], "knots": [], "spikes": [], **entry}
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
        )
        column._check_labels()
        if len(column.spikes) != len(getattr(column.family, "atoms", ())) or (column.spikes and not column.knots):
            raise ArgumentError("spikes", f"a value for each atom of {column.family!r}", repr(column.spikes)[:80])
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


@dataclass(frozen=True)
class Schema:
    """What the columns of a table are.

    Real columns (Gaussian, Student-t, Laplace) are standardised by their median and their spread, or transformed to
    normal scores by a function that is linear between knots; values that occur often are atoms of their own. Integers
    with many different values are treated as real and rounded in answers; the knots lie between them, so that the
    density of an integer is about the probability of the unit interval around it. Columns of categories
    become the codes 0, 1, …; columns of counts stay as they are. Missing values (NaN, None, NaT, null) become NaN.

    Behind the columns an encoded row has an *indicator* for each column whose missingness is modelled: 1 if the cell
    is missing, 0 if it has a value, and NaN if nothing is known about it.

    Special cases:

    - A *category that did not occur* when the schema was inferred is an error; with ``unseen="missing"`` it is treated
      as missing. Its probability under the model would be zero, which helps nobody.
    - A *constant* column of numbers is Gaussian around its value with a spread of 1 (10⁻⁶ of a value above a million).
    - A column with *no value at all* is "empty": it takes no part in the model, whatever it holds later, and stays
      missing. So does a column of *identifiers or free text*: strings that nearly all differ. Declare it
      ``"categorical"`` to keep it.
    - *Huge* values do no harm to the arithmetic: up to the largest float64 they are standardised without overflow.
      Values further than 10¹² spreads from the centre are treated as that far away.
    - *Dates* and times are numbers of days since 1970 in the model, and dates in every answer. Times with a zone are
      counted in UTC. Samples of whole days are whole days, and of whole seconds whole seconds.
    - *Infinite* numbers, times without a date, and cells that are neither numbers nor strings are errors.

    Attributes:
        columns: The columns, in the order of the table.
        rows: The number of rows of the table that it was inferred from.
        container: The kind of that table: ``"numpy"``, ``"pandas"``, ``"polars"`` and so on.
        unseen: What to do with a category that did not occur: ``"error"`` or ``"missing"``.

    Example:
        >>> schema = Schema.infer({"pet": ["cat", "dog", None, "cat"], "weight": [4.0, 20.5, 11.0, 5.5]})
        >>> print(schema)
        4 rows, 2 columns
        name    type             values    missing
        pet     categorical (2)  cat, dog        1
        weight  gaussian         4 … 20.5
        >>> schema.encode({"pet": ["dog", None], "weight": [8.25, None]})
        array([[ 1.,  0.],
               [nan, nan]])
    """

    columns: tuple[Column, ...]
    rows: int = 0
    container: str = "mapping"
    unseen: str = "error"

    @classmethod
    def infer(
        cls,
        table: Any,
        columns: Declared | Mapping[Any, Declared] | None = None,
        *,
        unseen: str = "error",
        floor: float | None = None,
        linear: bool = False,
    ) -> Schema:
        """Infer a schema from a table.

        Args:
            table: A data frame (pandas, polars, pyarrow), an array, nested lists, a mapping from names to columns, a
                file, or what ``picirc.data.read`` returns.
            columns: What is known of some columns, by name (or by number for an array): ``"gaussian"``, ``"scores"``,
                ``"spiked"``, ``"student"``, ``"laplace"``, ``"categorical"``, ``"bernoulli"``, ``"poisson"``,
                ``"binomial"``, ``"auto"`` or a family such as ``pc.Gaussian(min_std=0.01)``, whose scale is in units of
                the column's spread. A single word or family holds for all columns.
            unseen: What to do later with categories that do not occur now: ``"error"`` or ``"missing"``.
            floor: The smallest scale of real columns in units of their spread; chosen by the number of rows by default.
            linear: Infer neither spikes nor normal scores, so that values outside the range seen keep their distance.

        Columns that are not declared are judged by their values: strings are categories; booleans, and numbers that are
        all 0 or 1, are Bernoulli; numbers of an integer type (and integers that are floats because some are missing)
        are categories if there are at most ten different ones, each in four rows on average. Of the other numbers, if
        there are enough, a column with values that occur often is spiked, a skewed or heavy-tailed one is transformed
        to normal scores, and all others, and constant ones, are Gaussian. An array that holds integers only is judged
        as a whole: its columns share their categories, or are all Gaussian.
        """
        from picirc.tables.inference import infer_columns

        check_choice("unseen", unseen, UNSEEN)
        frame = read_frame(table)
        return cls(infer_columns(frame, columns, floor, linear), frame.rows, frame.container, unseen)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def families(self) -> tuple[Family, ...]:
        """The family of each column, and of each indicator of missingness behind them."""
        return (*(column.family for column in self.columns), *(Bernoulli() for _ in self.indicators))

    @property
    def indicators(self) -> dict[str, int]:
        """The places in encoded rows of the indicators of missingness, by the names of their columns."""
        modelled = [column.name for column in self.columns if column.indicator]
        return {name: len(self.columns) + number for number, name in enumerate(modelled)}

    @property
    def width(self) -> int:
        """The number of entries of an encoded row: the columns and the indicators."""
        return len(self.columns) + sum(column.indicator for column in self.columns)

    def with_missingness(self, missingness: bool | Sequence[str]) -> Schema:
        """The schema with indicators of missingness for some columns, by name, or for all that have missing cells."""
        gaps = [column.name for column in self.columns if column.missing and column.kind != EMPTY]
        if isinstance(missingness, str):
            raise ArgumentError("missingness", "a list of names", missingness, f"write [{missingness!r}]")
        chosen = [str(name) for name in missingness] if not isinstance(missingness, bool) else gaps * missingness
        for name in chosen:
            if name not in gaps:
                got = f"{name!r}, which has none" if name in self.names else repr(name)
                raise ArgumentError("missingness", f"columns with missing cells ({few(gaps) or 'none'})", got)
        columns = tuple(replace(column, indicator=column.name in chosen) for column in self.columns)
        return replace(self, columns=columns)

    def indicator(self, name: str) -> int:
        """The place of the indicator of a column in encoded rows."""
        if not self[name].indicator:
            remedy = f"fit with missingness=[{name!r}], on rows in which some of its cells are missing"
            raise ArgumentError(column_named(name), "a column whose missingness is modelled", "another", remedy)
        return self.indicators[name]

    def index(self, name: str) -> int:
        """The position of a column."""
        if name not in self.names:
            raise ArgumentError("column", f"one of {', '.join(map(plain, self.names))}", name)
        return self.names.index(name)

    def __getitem__(self, name: str) -> Column:
        return self.columns[self.index(name)]

    def encode(self, table: Any, *, absent: Collection[str] = ()) -> Numbers:
        """The table as numbers, ``(rows, width)``: codes for categories, standardised reals, NaN where missing.

        Columns of data frames are matched by name, in any order; those of arrays by position. The indicators of
        missingness follow; those of columns that are absent are NaN.

        Args:
            table: A table of any kind.
            absent: The names of columns that may be absent altogether, and then are missing.
        """
        frame = read_frame(table)
        names = self.match(frame, absent)
        found, indicators = np.full((frame.rows, self.width), np.nan), self.indicators
        for place, column in enumerate(self.columns):
            if column.name in names and column.kind != EMPTY:
                cells = frame.cells(names[column.name], column.dtype)
                found[:, place] = column.encode(cells, self.unseen)
                if column.indicator:
                    found[:, indicators[column.name]] = cells.missing
        return found

    def decode(self, array: Any, like: Any = None) -> Any:
        """The table that numbers stand for, the inverse of ``encode``.

        Columns of integers get integers, also where the numbers come from a mean.

        Args:
            array: ``(rows, columns)``, with or without indicators; NaN stays missing.
            like: A table of the kind to return; by default the kind that the schema was inferred from, or a mapping
                from names to arrays where the library for that is not installed.
        """
        container = self.container if like is None else read_frame(like).container
        return self.assemble(self.decoded(array), container, like)

    def decoded(self, array: Any, means: bool = False) -> dict[str, Array]:
        """The columns of ``decode``, by name; see :meth:`Column.decode` for ``means``."""
        codes = np.asarray(array, np.float64)
        if codes.ndim != 2 or codes.shape[1] not in (len(self.columns), self.width):
            raise ArgumentError("array", f"shape (rows, {len(self.columns)})", f"shape {codes.shape}")
        return {column.name: column.decode(codes[:, place], means=means) for place, column in enumerate(self.columns)}

    def assemble(self, columns: Mapping[str, Array], container: str, like: Any = None) -> Any:
        """A table of a given kind from decoded columns."""
        levels = {c.name: c.categories for c in self.columns if c.categories and isinstance(c.categories[0], str)}
        if container == "pyarrow" and find_spec("pyarrow") is not None:
            return self.arrow(columns)
        types = {c.name: c.native for c in self.columns if c.native and (container == self.container or c.dated)}
        return assemble(container, columns, levels, like, types)  # type: ignore[arg-type]

    def arrow(self, columns: Mapping[str, Array]) -> Any:
        """A pyarrow table from decoded columns, in the types that the columns had, as far as it has them."""
        texts = {c.name: [label for label in c.categories if isinstance(label, str)] for c in self.columns}
        return arrow_table(columns, {c.name: (c.dtype, c.native, texts[c.name]) for c in self.columns})

    def objects(self, columns: Mapping[str, Array]) -> dict[str, list[Any]]:
        """Decoded columns as lists of Python values, None where missing: integers stay integers beside gaps."""
        found = {}
        for column in self.columns:
            values = columns[column.name]
            if column.dated and values.dtype.kind == "M":
                found[column.name] = objects_of(values, column.native)
                continue
            cells = Cells(column.name, column.dtype, values)
            found[column.name] = cells.objects() if column.dtype in ("integer", "boolean") else values.tolist()
        return found

    def fill(self, table: Any, array: Any, means: bool = False) -> Any:
        """The table with the values of an encoded array in its missing cells; they may be means.

        Observed cells stay as they are, bit for bit; empty columns stay empty. Columns that are absent are added.
        """
        frame = read_frame(table)
        names = self.match(frame, self.names if frame.named else ())
        values = self.decoded(array, means)
        kept = [column for column in self.columns if column.kind != EMPTY and column.name in names]
        filled = fill(frame, {names[c.name]: (frame.cells(names[c.name], c.dtype), values[c.name]) for c in kept})
        lacking = {name: own for name, own in values.items() if name not in names}
        return extended(filled, self.assemble(lacking, frame.container)) if lacking else filled

    def match(self, frame: Frame, absent: Collection[str] = ()) -> dict[str, str]:
        """For each column of the schema that the table has, what it is called there."""
        if not frame.named:
            wanted = self.names
            if len(frame.names) == len(wanted) - len(absent):
                wanted = tuple(name for name in wanted if name not in absent)
            if len(frame.names) != len(wanted):
                raise ArgumentError("table", f"{len(wanted)} columns ({few(wanted)})", f"{len(frame.names)}")
            return dict(zip(wanted, frame.names, strict=True))
        expected = f"the columns of the schema ({few(self.names)})"
        unknown = sorted(set(frame.names) - set(self.names), key=frame.names.index)
        if unknown:
            raise ArgumentError("table", expected, f"also {few(unknown)}", "drop columns that the model does not know")
        given = set(frame.names)
        lacking = [name for name in self.names if name not in given and name not in absent]
        if lacking:
            remedy = "add them with missing values if they are unknown"
            raise ArgumentError("table", expected, f"no {few(lacking)}", remedy)
        return {name: name for name in frame.names}

    def to_json(self) -> dict[str, Any]:
        """The schema as plain JSON values."""
        return {
            "columns": [column.to_json() for column in self.columns],
            "rows": self.rows,
            "container": self.container,
            "unseen": self.unseen,
        }

    @classmethod
    def from_json(cls, value: Any, families: Sequence[type[Family]] = ()) -> Schema:
        """The schema that ``to_json`` wrote.

        Args:
            value: Plain JSON values, from a file that may hold anything.
            families: The classes of the user's own families that the columns have.

        Raises:
            ArgumentError: The value is not a schema.
        """
        try:
            if not isinstance(value, Mapping):
                raise ArgumentError("schema", "an object", repr(value)[:80])
            only(value, {field.name for field in fields(cls)}, "schema")
            columns = tuple(Column.from_json(entry, families) for entry in take(value, "columns", list))
            if not columns or len({column.name for column in columns}) != len(columns):
                raise ArgumentError("columns", "objects with a name of its own each, at least one", "others")
            rows = take(value, "rows", int)
            if rows < 0:
                raise ArgumentError("rows", "a non-negative integer", rows)
            container = choice(value, "container", {name: name for name in CONTAINERS})
            return cls(columns, rows, container, check_choice("unseen", value.get("unseen"), UNSEEN))
        except ArgumentError:
            raise
        except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
            raise ArgumentError("schema", "the description of a table", str(error) or type(error).__name__) from error

    def __repr__(self) -> str:
        kinds = Counter(column.kind for column in self.columns)
        return f"Schema({', '.join(f'{count} {plain(kind)}' for kind, count in kinds.items())})"

    def __str__(self) -> str:
        lines = [("name", "type", "values", "missing")]
        lines += [(plain(column.name), *column.summary()) for column in self.columns]
        widths = [max(map(len, parts)) for parts in zip(*lines, strict=True)]
        shown = [
            f"{a:{widths[0]}}  {b:{widths[1]}}  {c:{widths[2]}}  {d:>{widths[3]}}".rstrip() for a, b, c, d in lines
        ]
        return "\n".join([f"{self.rows:,} rows, {len(self.columns):,} columns", *shown])


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
