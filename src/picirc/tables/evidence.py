# SPDX-License-Identifier: Apache-2.0
"""What is known about the columns of a table: values, ranges and sets, and whether cells are missing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from picirc.data.frames import column_named, is_date, is_iso, is_missing, read_dates, read_frame
from picirc.engine.evidence import Region
from picirc.errors import ArgumentError
from picirc.tables.column import EMPTY, Column, Numbers
from picirc.tables.schema import Schema


@dataclass(frozen=True)
class Between:
    """A range of a column of numbers or dates, ends included; ``between`` makes one."""

    low: Any
    high: Any


@dataclass(frozen=True)
class OneOf:
    """A set of values of a column; ``one_of`` makes one."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Presence:
    """Whether a cell has a value; ``missing`` and ``observed`` are the two cases."""

    word: str

    def __repr__(self) -> str:
        return self.word

    @property
    def code(self) -> float:
        """The value of the indicator."""
        return float(self == missing)


missing = Presence("missing")
"""Evidence that a cell is missing, for a model that was fitted with ``missingness=``."""
observed = Presence("observed")
"""Evidence that a cell has a value, whatever it is, for a model that was fitted with ``missingness=``."""


def between(low: Any = None, high: Any = None) -> Between:
    """Evidence that a value lies in a range, ends included.

    Args:
        low: The lower end: a number or a date, also as a string such as ``"2024-01-31"``; None for none.
        high: The upper end; None for none. A date without a time includes the whole day.

    Example:
        >>> between(50, None)
        Between(low=50, high=None)
        >>> between("2024-01-01", "2024-01-31")
        Between(low='2024-01-01', high='2024-01-31')
    """
    for name, end in (("low", low), ("high", high)):
        dated = is_date(end) or (isinstance(end, str) and is_iso(end))
        if end is not None and not dated and (isinstance(end, bool | str) or not np.isscalar(end) or end != end):
            raise ArgumentError(name, "a number or a date, or None for no bound", repr(end)[:80])
    counted = not any(end is None or isinstance(end, str) or is_date(end) for end in (low, high))
    if counted and low > high:  # dates are compared when it is known what they are dates of
        raise ArgumentError("low", f"at most high ({high})", low)
    return Between(low, high)


def one_of(values: Iterable[Any]) -> OneOf:
    """Evidence that a value is one of several.

    Args:
        values: The values.

    Example:
        >>> one_of(["red", "blue"])
        OneOf(values=('red', 'blue'))
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ArgumentError("values", "a list of values", repr(values)[:80], f"write one_of([{values!r}])")
    found = tuple(values.tolist() if isinstance(values, np.ndarray) else values)
    if not found or any(is_missing(value) for value in found):
        raise ArgumentError("values", "at least one value, and none missing", repr(found)[:80])
    return OneOf(found)


@dataclass(frozen=True, eq=False)
class Known:
    """Evidence as the circuit takes it."""

    rows: Numbers  # encoded values and indicators, `(rows, width)`; NaN is unknown
    originals: dict[str, Numbers]  # the values of real columns as they came, which codes do not keep bit for bit
    regions: dict[int, Region]  # what is known of columns by range and set, by place


def read_evidence(schema: Schema, given: Any) -> Known:
    """Read evidence: a mapping from some names to values, ranges and sets, a row, or a table with missing cells.

    A mapping speaks of the values themselves, whether or not they are on record: only ``missing`` and ``observed`` say
    something about that. The cells of a row or a table are on record if they have a value, and else missing.
    """
    regions: dict[int, Region] = {}
    presences: dict[int, float] = {}
    nothing = np.full((1, schema.width), np.nan)
    if given is None:
        return Known(nothing, {}, {})
    spoken = isinstance(given, Mapping)
    if getattr(given, "ndim", 0) == 1 and hasattr(given, "to_dict"):
        given = given.to_dict()  # a row of a data frame
    if isinstance(given, Mapping):
        regions = _regions(schema, given)
        presences = {schema.indicator(str(n)): k.code for n, k in given.items() if isinstance(k, Presence)}
        given = {name: _cells(str(name), known) for name, known in given.items() if not _is_region(known, Presence)}
        nothing[:, list(presences)] = list(presences.values())
        if not given:
            return Known(nothing, {}, regions)
    elif isinstance(given, np.ndarray | Tensor) and given.ndim == 1:
        given = given.reshape(1, -1)
    elif isinstance(given, list | tuple) and not any(isinstance(v, list | tuple | np.ndarray | Mapping) for v in given):
        given = [given]
    frame = read_frame(given)
    encoded = schema.encode(frame, absent=schema.names)
    if spoken:
        encoded[:, len(schema.columns) :] = nothing[:, len(schema.columns) :]
    names = schema.match(frame, schema.names)
    originals = {name: schema[name].in_calendar(frame.cells(names[name])).values for name in names if schema[name].real}
    return Known(encoded, originals, regions)


def read_event(schema: Schema, event: Any) -> dict[int, Region]:
    """Read what a probability is asked of: values, ranges and sets by name."""
    if not isinstance(event, Mapping) or not event:
        raise ArgumentError("event", "a mapping from names of columns to values, ranges or sets", repr(event)[:80])
    found = {}
    for name, known in event.items():
        if isinstance(known, Presence):
            found[schema.indicator(str(name))] = Region(((known.code, known.code),))
            continue
        region = region_of(schema[str(name)], known if _is_region(known) else one_of(_cells(str(name), known)))
        if region.points:
            remedy = "ask for a range with pc.between, or use log_density"
            raise ArgumentError(column_named(str(name)), "a range, as single values have a density", known, remedy)
        found[schema.index(str(name))] = region
    return found


def region_of(column: Column, known: Between | OneOf) -> Region:
    """A range or a set in the codes of a column."""
    if column.kind == EMPTY:
        raise ArgumentError(column_named(column.name), "a column with values", "one that takes no part in the model")
    if isinstance(known, OneOf):
        return column.region_of_values(list(known.values))
    if column.coded and any(isinstance(label, str) for label in column.categories):
        remedy = "write pc.one_of([...]) for a set"
        raise ArgumentError(column_named(column.name), "a column of numbers for pc.between", "strings", remedy)
    low = -math.inf if known.low is None else _number(column, known.low)
    high = math.inf if known.high is None else _number(column, known.high, last=True)
    if low > high:
        raise ArgumentError(column_named(column.name), "a range whose low end is at most the high one", repr(known))
    if low == high and column.real and not column.whole and not column.dated:
        return column.region_of_values([low])
    return column.region_between(low, high)


def _number(column: Column, end: Any, last: bool = False) -> float:
    """An end of a range as a number; the last one of times reaches to the end of the day if it has none itself."""
    dated = isinstance(end, str) or is_date(end)
    if dated != column.dated:
        expected, got = ("a date", "a number") if column.dated else ("a number", "a date")
        raise ArgumentError(column_named(column.name), f"{expected} for pc.between", f"{got}, {end!r}")
    if not dated:
        return float(end)
    days, calendar = read_dates([end])
    whole_day = last and calendar == "date" and column.dtype == "datetime"
    return float(days[0]) + whole_day


def _regions(schema: Schema, given: Mapping[Any, Any]) -> dict[int, Region]:
    chosen = {str(name): known for name, known in given.items() if _is_region(known)}
    unknown = [str(name) for name in given if str(name) not in schema.names]
    if unknown:
        raise ArgumentError("given", f"names of columns ({', '.join(schema.names[:8])})", unknown[0])
    return {schema.index(name): region_of(schema[name], known) for name, known in chosen.items()}


def _is_region(known: Any, *others: type) -> bool:
    return isinstance(known, (Between, OneOf, *others))


def check_cells(table: Mapping[Any, Any]) -> None:
    """Raise for a column of a table that is a pair of numbers, which may be meant as a range, or a range or a set."""
    for name, cells in table.items():
        pair = (
            isinstance(cells, tuple) and len(cells) == 2 and all(isinstance(end, int | float | None) for end in cells)
        )
        if pair or _is_region(cells, Presence):
            remedy = "ranges and sets are evidence, given={...: pc.between(low, high)}"
            raise ArgumentError(column_named(str(name)), "a value or a list of values", repr(cells)[:80], remedy)


def _cells(name: str, known: Any) -> Any:
    """The cells of a column of evidence: a single value as a list."""
    if isinstance(known, tuple | set | frozenset | range) or (isinstance(known, list) and len(known) != 1):
        remedy = "write pc.between(low, high) for a range, pc.one_of([...]) for a set; several rows are a data frame"
        raise ArgumentError(column_named(name), "a single value", repr(known)[:80], remedy)
    return [known] if isinstance(known, str) or not hasattr(known, "__len__") else known
