# SPDX-License-Identifier: Apache-2.0
"""Sequences as users have them: lists of tables, or one long table with a column that tells them apart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import narwhals as nw
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from picirc.errors import ArgumentError
from picirc.inputs import Family
from picirc.tables import Schema

Array = npt.NDArray[Any]
Table = dict[str, Array]

_EXPECTED = "a table, a list of tables, or one table with by="
_LARGEST_GAP = 2**31
_ROUNDING = 0.2  # steps of a calendar differ by less from whole multiples of their median


@dataclass(frozen=True, eq=False)
class Sequences:
    """Sequences of rows, each in the order of time."""

    tables: tuple[Table, ...]  # the columns of each sequence, without those that tell sequences and times
    times: tuple[Array, ...] | None  # the times of the rows of each, as numbers; None if the data have none
    keys: tuple[Any, ...] | None  # what tells each sequence from the others; None without `by`
    rows: tuple[Array, ...]  # the places of the rows in the user's table
    container: str  # the kind of table: `"numpy"`, `"mapping"`, or the library of a data frame
    alone: bool  # whether the user gave one sequence and not a list
    dates: bool = False  # whether times were dates, which count in days

    def shaped(self, results: Sequence[Any]) -> Any:
        """One result for each sequence as the sequences came: alone, in a list, or by key."""
        if self.keys is not None:
            return dict(zip(self.keys, results, strict=True))
        return results[0] if self.alone else list(results)


def read_sequences(data: Any, by: str | None = None, time: str | None = None) -> Sequences:
    """Read sequences.

    Args:
        data: A table (a data frame, an array, a mapping from names to columns) or a list of tables.
        by: The column of one long table that tells the sequences apart.
        time: The column of the times, numbers or dates; rows are sorted by it.
    """
    if isinstance(data, list | tuple):
        if by is not None:
            raise ArgumentError(
                "by", "one table whose column tells sequences apart", "a list of tables", "leave it out"
            )
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
    """A table of any kind as columns, and its kind."""
    if isinstance(table, Tensor):
        table = table.detach().cpu().numpy()
    if isinstance(table, Mapping):
        return {str(name): np.asarray(values) for name, values in table.items()}, "mapping"
    native = nw.from_native(table, eager_only=True, allow_series=True, pass_through=True)
    if isinstance(native, nw.Series):
        native = native.to_frame()
    if isinstance(native, nw.DataFrame):
        columns = {str(name): native.get_column(name).to_numpy() for name in native.columns}
        return columns, str(native.implementation).removeprefix("Implementation.").lower()
    try:
        array = np.asarray(table)
    except ValueError as error:
        raise ArgumentError("data", _EXPECTED, "rows of different lengths") from error
    if array.ndim not in (1, 2) or array.size == 0:
        raise ArgumentError("data", _EXPECTED, f"{type(table).__name__} of shape {array.shape}")
    array = array.reshape(len(array), -1)
    return {name: array[:, i] for i, name in enumerate(numbered(array.shape[1]))}, "numpy"


def numbered(count: int) -> tuple[str, ...]:
    """Names for the columns of an array."""
    return ("x",) if count == 1 else tuple(f"x{i}" for i in range(count))


def step_length(times: Sequence[Array] | None) -> tuple[float, bool]:
    """The usual time between two rows, and whether others are no whole multiples of it."""
    steps = np.concatenate([np.diff(t) for t in times]) if times is not None else np.empty(0)
    if not len(steps):
        return 1.0, False
    unit = float(np.median(steps))
    multiples = steps / unit
    nearest = np.maximum(np.rint(multiples), 1)
    return unit, bool((np.abs(multiples - nearest) > _ROUNDING * nearest).any())


def gaps_of(sequences: Sequences, unit: float, timed: bool) -> list[Tensor]:
    """The time of each row since the row before, in units; whole numbers unless the model takes any length."""
    if sequences.times is None:
        return [torch.ones(_rows(table), dtype=torch.float64) for table in sequences.tables]
    found = []
    for times in sequences.times:
        with np.errstate(over="ignore"):
            gaps = np.diff(times) / unit
        if not (gaps < _LARGEST_GAP).all():
            raise ArgumentError("time", f"times less than {_LARGEST_GAP:,} steps of {unit:g} apart", f"{gaps.max():g}")
        gaps = gaps if timed else np.maximum(np.rint(gaps), 1)
        first = gaps[:1] if len(gaps) else np.ones(1)  # not used; the same as another to save a table
        found.append(torch.from_numpy(np.concatenate([first, gaps]).astype(np.float64)))
    return found


class Columns(Protocol):
    """The way between a table and the numbers that a chain takes."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""

    @property
    def families(self) -> tuple[Family, ...]:
        """The family of each column."""

    def encode(self, table: Table) -> Tensor:
        """Rows ``(T, C)``; NaN where missing."""

    def decode(self, rows: Array) -> Table:
        """The table that rows stand for."""

    def in_units(self, column: int, values: Array) -> Array:
        """Numbers of a column, such as means or quantiles, in the units of the user; whole ones are not rounded."""

    def labels(self, column: int) -> tuple[Any, ...]:
        """What the codes of a column of categories stand for; empty for numbers."""

    def log_slopes(self, rows: Tensor) -> Tensor:
        """What the logarithm of the density of each row loses on the way back to the units of the user, ``(T,)``."""


class SchemaColumns:
    """Columns of a table as ``pc.Schema`` reads them: standardised numbers, and codes for categories."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.names, self.families = schema.names, schema.families

    def encode(self, table: Table) -> Tensor:
        """Rows ``(T, C)``; NaN where missing, columns that are absent included."""
        return torch.from_numpy(self.schema.encode(dict(table), absent=self.names))

    def decode(self, rows: Array) -> Table:
        """The table that rows stand for."""
        return dict(self.schema.decode(rows, like={"x": [0.0]}))

    def in_units(self, column: int, values: Array) -> Array:
        """Numbers of a column in the units of the user."""
        known = self.schema.columns[column]
        return (
            np.asarray(replace(known, dtype="float").decode(values.ravel())).reshape(values.shape)
            if known.real
            else values
        )

    def labels(self, column: int) -> tuple[Any, ...]:
        """What the codes of a column of categories stand for."""
        known = self.schema.columns[column]
        return tuple(known.categories) if known.coded else ()

    def log_slopes(self, rows: Tensor) -> Tensor:
        """The sum over the cells that are there."""
        codes = rows.numpy()
        parts = [column.log_slope(codes[:, place]) for place, column in enumerate(self.schema.columns)]
        return torch.from_numpy(np.where(np.isnan(codes), 0.0, np.stack(parts, 1)).sum(1))


class PlainColumns:
    """Columns of numbers in the units of a known model."""

    def __init__(self, names: Sequence[str], families: Sequence[Family]) -> None:
        self.names, self.families = tuple(names), tuple(families)

    def encode(self, table: Table) -> Tensor:
        """Rows ``(T, C)``; NaN where missing."""
        if tuple(table) == numbered(len(self.names)):
            table = dict(zip(self.names, table.values(), strict=True))  # an array has no names
        if unknown := [name for name in table if name not in self.names]:
            raise ArgumentError("data", f"the columns {', '.join(self.names)}", repr(unknown[0]))
        rows = len(next(iter(table.values())))
        found = torch.full((rows, len(self.names)), math.nan, dtype=torch.float64)
        for place, (name, family) in enumerate(zip(self.names, self.families, strict=True)):
            if name in table:
                found[:, place] = torch.from_numpy(_floats(name, table[name]))
                family.check(found[:, place], repr(name))
        return found

    def decode(self, rows: Array) -> Table:
        """The columns by name."""
        return {name: rows[:, place] for place, name in enumerate(self.names)}

    def in_units(self, column: int, values: Array) -> Array:
        """The values themselves."""
        return values

    def labels(self, column: int) -> tuple[Any, ...]:
        """Categories are numbers here."""
        table = self.families[column].table(self.families[column].constrain(torch.zeros(1, self.families[column].size)))
        return () if table is None else tuple(range(table.shape[-1]))

    def log_slopes(self, rows: Tensor) -> Tensor:
        """Nothing is lost."""
        return torch.zeros(len(rows), dtype=torch.float64)


def assemble(table: Mapping[str, Array], container: str) -> Any:
    """A table of a kind from columns."""
    if container == "numpy":
        return np.stack([np.asarray(values) for values in table.values()], 1)
    if container == "mapping":
        return dict(table)
    plain = {name: values.tolist() if values.dtype == object else values for name, values in table.items()}
    return nw.from_dict(plain, backend=container).to_native()  # type: ignore[arg-type]


def as_times(values: Array, name: str = "time") -> tuple[Array, bool]:
    """Times as numbers, dates as days since 1970; and whether they were dates."""
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
    """The rows of each label, in the order in which labels first occur."""
    places: dict[Any, list[int]] = {}
    for place, label in enumerate(labels.tolist()):
        if label is None or label != label:
            raise ArgumentError("by", "a value in every row", f"a missing one in row {place}")
        places.setdefault(label, []).append(place)
    return [(label, np.array(rows)) for label, rows in places.items()]


def _timed(columns: Table, time: str | None, rows: Array) -> tuple[Table, Array, Array, bool]:
    """The rows of one sequence in the order of time."""
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
