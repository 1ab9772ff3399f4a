# SPDX-License-Identifier: Apache-2.0
"""Reading sequences: lists of tables, or one long table with a column that identifies the sequence of each row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from picirc.data.frames import Cells, Frame, numbered, read_frame
from picirc.errors import ArgumentError
from picirc.inputs import Family
from picirc.tables import Schema

Array = npt.NDArray[Any]
Table = dict[str, Array]

_EXPECTED = "a table, a list of tables, or one table with by="
_LARGEST_GAP = 2**31
_ROUNDING = 0.2  # steps of a calendar differ by less than this from whole multiples of their median


@dataclass(frozen=True, eq=False)
class Sequences:
    """Sequences of rows, each sorted by time."""

    tables: tuple[Table, ...]  # the columns of each sequence, without `by` and `time`
    times: tuple[Array, ...] | None  # the times of the rows of each, as numbers; None if the data have none
    keys: tuple[Any, ...] | None  # the value of `by` of each sequence; None without `by`
    rows: tuple[Array, ...]  # the positions of the rows in the user's table
    container: str  # the kind of table: `"numpy"`, `"mapping"`, or the library of a data frame
    alone: bool  # whether the user gave one sequence and not a list
    dates: bool = False  # whether times were dates, which are converted to days

    def shaped(self, results: Sequence[Any]) -> Any:
        """The results of the sequences in the form of the data: a single one, a list, or a mapping by key."""
        if self.keys is not None:
            return dict(zip(self.keys, results, strict=True))
        return results[0] if self.alone else list(results)


def read_sequences(data: Any, by: str | None = None, time: str | None = None) -> Sequences:
    """Read sequences.

    Args:
        data: A table (a data frame, an array, a mapping from names to columns) or a list of tables.
        by: The column of one long table that identifies the sequences.
        time: The column of the times, numbers or dates; rows are sorted by it.
    """
    if isinstance(data, list | tuple):
        if by is not None:
            raise ArgumentError("by", "one table with this column", "a list of tables", "leave it out")
        if not data:
            raise ArgumentError("data", _EXPECTED, "an empty list")
        parts = [columns_of(table) for table in data]
        found = [_timed(columns, time, np.arange(_rows(columns))) for columns, _ in parts]
        container, alone, keys = parts[0][1], False, None
        if unequal := [c for c, _ in parts if set(c) != set(parts[0][0])]:
            raise ArgumentError("data", f"tables with the columns {', '.join(parts[0][0])}", ", ".join(unequal[0]))
    else:
        columns, container = columns_of(data)
        if by is None:
            groups: list[tuple[Any, Array]] = [(None, np.arange(_rows(columns)))]
        else:
            groups = _groups(_take(columns, by, "by"))
            columns = {name: values for name, values in columns.items() if name != by}
        found = [_timed({n: v[rows] for n, v in columns.items()}, time, rows) for _, rows in groups]
        alone, keys = by is None, None if by is None else tuple(key for key, _ in groups)
    tables, times, rows, dates = zip(*found, strict=True)
    if not tables[0]:
        raise ArgumentError("data", "at least one column besides by= and time=", "none")
    return Sequences(tables, None if time is None else times, keys, rows, container, alone, any(dates))


def columns_of(table: Any) -> tuple[Table, str]:
    """The columns of a table of any kind, and its kind."""
    frame = frame_of(table)
    return {name: _values(frame.cells(name)) for name in frame.names}, frame.container


def frame_of(table: Any) -> Frame:
    """Read a table, or a single series of numbers, whose column is called ``x``."""
    if isinstance(table, Tensor):
        table = table.detach().cpu().numpy()
    series = nw.from_native(table, series_only=True, pass_through=True)
    if isinstance(series, nw.Series):
        return read_frame(series.to_frame().to_native())
    if isinstance(table, list | tuple) and not any(hasattr(cell, "__len__") for cell in table):
        table = np.array(table, dtype=object)
    if isinstance(table, np.ndarray) and table.ndim == 1:
        table = table[:, None]
    frame = read_frame(table)
    if frame.named or len(frame.names) > 1:
        return frame
    return replace(frame, names=("x",), read=lambda _, dtype: frame.read(frame.names[0], dtype))


def _values(cells: Cells) -> Array:
    whole = {"integer": np.int64, "boolean": np.bool_}.get(cells.dtype)
    return cells.array if whole is None or cells.missing.any() else cells.array.astype(whole)


def step_length(times: Sequence[Array] | None) -> tuple[float, bool]:
    """The median time between two rows, and whether any other is not a whole multiple of it."""
    steps = np.concatenate([np.diff(t) for t in times]) if times is not None else np.empty(0)
    if not len(steps):
        return 1.0, False
    unit = float(np.median(steps))
    multiples = steps / unit
    nearest = np.maximum(np.rint(multiples), 1)
    return unit, bool((np.abs(multiples - nearest) > _ROUNDING * nearest).any())


def gaps_of(sequences: Sequences, unit: float, timed: bool) -> list[Tensor]:
    """The time of each row since the row before, in units; rounded to integers unless ``timed``."""
    if sequences.times is None:
        return [torch.ones(_rows(table), dtype=torch.float64) for table in sequences.tables]
    found = []
    for times in sequences.times:
        with np.errstate(over="ignore"):
            gaps = np.diff(times) / unit
        if not (gaps < _LARGEST_GAP).all():
            raise ArgumentError("time", f"times less than {_LARGEST_GAP:,} steps of {unit:g} apart", f"{gaps.max():g}")
        gaps = gaps if timed else np.maximum(np.rint(gaps), 1)
        first = gaps[:1] if len(gaps) else np.ones(1)  # not used; a gap that occurs anyway needs no further table
        found.append(torch.from_numpy(np.concatenate([first, gaps]).astype(np.float64)))
    return found


class Columns:
    """The conversion between a table and the numbers that a chain takes: here columns of numbers in their own units."""

    def __init__(self, names: Sequence[str], families: Sequence[Family]) -> None:
        self.names, self.families = tuple(names), tuple(families)

    def encode(self, table: Table) -> Tensor:
        """Rows ``(T, C)``; NaN where missing, including columns that are absent."""
        if tuple(table) == (("x",) if len(self.names) == 1 else numbered(len(self.names))):
            table = dict(zip(self.names, table.values(), strict=True))  # an array has no names
        if unknown := [name for name in table if name not in self.names]:
            raise ArgumentError("data", f"the columns {', '.join(self.names)}", repr(unknown[0]))
        found = torch.full((_rows(table), len(self.names)), math.nan, dtype=torch.float64)
        for place, (name, family) in enumerate(zip(self.names, self.families, strict=True)):
            if name in table:
                found[:, place] = torch.from_numpy(_floats(name, table[name]))
                family.check(found[:, place], repr(name))
        return found

    def decode(self, rows: Array) -> Table:
        """The table that ``encode`` maps to these rows."""
        return {name: rows[:, place] for place, name in enumerate(self.names)}

    def in_units(self, column: int, values: Array) -> Array:
        """Numbers of a column, such as means or quantiles, in the units of the table; integers are not rounded."""
        return values

    def labels(self, column: int) -> tuple[Any, ...]:
        """The categories of a column, in the order of their codes; empty for numbers."""
        family = self.families[column]
        table = family.table(family.constrain(torch.zeros(1, family.size)))
        return () if table is None else tuple(range(table.shape[-1]))

    def log_slopes(self, rows: Tensor) -> Tensor:
        """Log of the derivative of ``decode``, ``(T,)``: log-densities of rows minus this are in the table's units."""
        return torch.zeros(len(rows), dtype=torch.float64)


class SchemaColumns(Columns):
    """Columns as ``pc.Schema`` encodes them: standardised numbers, and codes for categories."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema.names, schema.families)
        self.schema = schema

    def encode(self, table: Table) -> Tensor:
        """Rows ``(T, C)``; NaN where missing, including columns that are absent."""
        return torch.from_numpy(self.schema.encode(dict(table), absent=self.names))

    def decode(self, rows: Array) -> Table:
        """The table that ``encode`` maps to these rows."""
        return dict(self.schema.decode(rows, like={"x": [0.0]}))

    def in_units(self, column: int, values: Array) -> Array:
        """Numbers of a column in the units of the table."""
        known = self.schema.columns[column]
        if not known.real:
            return values
        return np.asarray(replace(known, dtype="float").decode(values.ravel())).reshape(values.shape)

    def labels(self, column: int) -> tuple[Any, ...]:
        """The categories of a column, in the order of their codes; empty for numbers."""
        known = self.schema.columns[column]
        return tuple(known.categories) if known.coded else ()

    def log_slopes(self, rows: Tensor) -> Tensor:
        """The sum over the observed cells of each row."""
        codes = rows.numpy()
        parts = [column.log_slope(codes[:, place]) for place, column in enumerate(self.schema.columns)]
        return torch.from_numpy(np.where(np.isnan(codes), 0.0, np.stack(parts, 1)).sum(1))


def as_times(values: Array, name: str = "time") -> tuple[Array, bool]:
    """Times as numbers, with dates as days since 1970, and whether they were dates."""
    if values.dtype == object:
        values = np.array([v if isinstance(v, int | float) else np.datetime64(v) for v in values])
    if values.dtype.kind == "M":
        found = values.astype("datetime64[ns]").astype(np.int64) / 86_400e9
        return np.where(np.isnat(values), np.nan, found), True
    return _floats(name, values), False


def _rows(table: Mapping[str, Array]) -> int:
    return len(next(iter(table.values()))) if table else 0


def _take(columns: Table, name: str, argument: str) -> Array:
    if name not in columns:
        raise ArgumentError(argument, f"one of the columns {', '.join(columns)}", repr(name))
    return columns[name]


def _groups(labels: Array) -> list[tuple[Any, Array]]:
    """The rows of each label, in the order of first occurrence."""
    places: dict[Any, list[int]] = {}
    for place, label in enumerate(labels.tolist()):
        if label is None or label != label:
            raise ArgumentError("by", "a value in every row", f"a missing one in row {place}")
        places.setdefault(label, []).append(place)
    return [(label, np.array(rows)) for label, rows in places.items()]


def _timed(columns: Table, time: str | None, rows: Array) -> tuple[Table, Array, Array, bool]:
    """The rows of one sequence sorted by time: columns, times, positions, and whether times are dates."""
    if time is None:
        return columns, np.arange(len(rows)), rows, False
    times, dates = as_times(_take(columns, time, "time"), time)
    if np.isnan(times).any():
        raise ArgumentError("time", "a time in every row", f"a missing one in row {int(np.isnan(times).argmax())}")
    order = np.argsort(times, kind="stable")
    times = times[order]
    if (np.diff(times) <= 0).any():
        twice = times[int((np.diff(times) <= 0).argmax())]
        raise ArgumentError("time", "different times within a sequence", f"{twice:g} twice", "give by=, or drop a row")
    return {n: v[order] for n, v in columns.items() if n != time}, times, rows[order], dates


def _floats(name: str, values: Array) -> Array:
    try:
        found = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"column {name!r}", "numbers", f"values of type {values.dtype}") from error
    if np.isinf(found).any():
        raise ArgumentError(f"column {name!r}", "finite numbers", "an infinite one", "mark missing values by NaN")
    return found
