# SPDX-License-Identifier: Apache-2.0
"""Frames: named columns, read from a table of any kind.

Data frames are read through narwhals, so their libraries are only needed if the user has one.
"""

from __future__ import annotations

import datetime
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache, cached_property
from os import PathLike
from typing import Any, TypeVar

import narwhals as nw
import numpy as np
import numpy.typing as npt

from picirc.data.dates import DATED, days_of, dtype_of, is_date, moments_of, objects_of, read_dates
from picirc.errors import ArgumentError, printable

Label = str | int | float | bool
Array = npt.NDArray[Any]
Column = TypeVar("Column")

DTYPES = ("float", "integer", "boolean", "text", *DATED)
# The kinds of tables that a model can return; other data frames are returned as pandas data frames.
CONTAINERS = ("numpy", "mapping", "table", "pandas", "polars", "pyarrow")

_EXPECTED = "a table: a data frame, an array (rows, columns), a mapping from names to columns, or a file"
_MOST_SHOWN = 8


@dataclass(frozen=True, eq=False)
class Table:
    """A table of numbers with named columns.

    Attributes:
        columns: The names.
        values: (row, column), NaN where missing.
        levels: The strings that the values 0, 1, … of each categorical column stand for.
    """

    columns: tuple[str, ...]
    values: Array
    levels: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of a column."""

    name: str  # the name of the column
    dtype: str  # one of `DTYPES`
    # Numbers and booleans as float64, dates as days since 1970, NaN where missing; or strings, None where missing.
    values: Array
    categories: tuple[Label, ...] | None = None  # the categories that the table declares, if it does
    whole: bool = False  # whether floats may be integers: in NumPy integers become floats when some are missing
    calendar: str = ""  # the type of dates in the table, see `picirc.data.dates`; empty for other columns

    @cached_property
    def missing(self) -> npt.NDArray[np.bool_]:
        """Whether each cell is missing."""
        if self.dtype == "text":
            return np.fromiter((cell is None for cell in self.values), bool, len(self.values))
        return np.isnan(self.values)

    @property
    def array(self) -> Array:
        """The values, dates as datetime64."""
        return moments_of(self.values, self.dtype) if self.calendar else self.values

    def objects(self) -> list[Any]:
        """The cells as Python values of the column's type, None where missing."""
        if self.calendar:
            return objects_of(self.array, self.calendar)
        convert: Callable[[Any], Any] = {"integer": int, "boolean": bool}.get(self.dtype, lambda value: value)
        cells = zip(self.values.tolist(), self.missing.tolist(), strict=True)
        return [None if gone else convert(value) for value, gone in cells]


@dataclass(frozen=True, eq=False)
class Frame:
    """A table as named columns. Cells are read when they are needed."""

    names: tuple[str, ...]  # the names of the columns
    rows: int  # the number of rows
    container: str  # the kind of the table, one of `CONTAINERS`
    native: Any  # the table itself; None for a CSV file
    read: Callable[[str, str | None], Cells]  # reads a column, given its name and the expected type, or None
    written: Mapping[str, Sequence[str | None]] | None = None  # the strings in a CSV file by column, None where missing
    lines: Sequence[int] = ()  # the line of a CSV file on which each row begins

    @property
    def named(self) -> bool:
        """Whether columns are identified by name, not by position."""
        return self.container != "numpy"

    def cells(self, name: str, dtype: str | None = None) -> Cells:
        """The cells of a column; ``dtype`` is the type to read from a CSV file, or None to infer it."""
        return self.read(name, dtype)

    def select(self, names: Sequence[str]) -> Frame:
        """The frame with some of its columns."""
        return replace(self, names=tuple(names))

    def joined(self, cells: Cells) -> Frame:
        """The frame with one more column."""

        def read(name: str, dtype: str | None) -> Cells:
            return cells if name == cells.name else self.read(name, dtype)

        return replace(self, names=(*self.names, cells.name), read=read, native=None)


def read_frame(table: Any) -> Frame:
    """Read a table of any kind.

    Args:
        table: A pandas, polars or pyarrow table, an array or nested lists, a mapping from names to columns, the result
            of ``picirc.data.read``, or the path of a file.
    """
    if isinstance(table, Frame):
        return table
    if isinstance(table, str | PathLike):
        from picirc.data.tables import read_file

        return read_file(table)
    if isinstance(table, Table):
        return _read_table(table)
    if isinstance(table, Mapping):
        return _read_mapping(table)
    if isinstance(table, list | tuple | np.ndarray) or hasattr(table, "detach"):
        return _read_array(table)
    if (frame := as_narwhals(table)) is not None:
        container = str(frame.implementation).removeprefix("Implementation.")
        columns = [(str(name), frame.get_column(name)) for name in frame.columns]
        return make_frame(columns, len(frame), container if container in CONTAINERS else "pandas", table, _read_series)
    if hasattr(table, "toarray"):
        remedy = "write table.toarray(), as zeros are values here"
        raise ArgumentError("table", _EXPECTED, f"a sparse matrix ({type(table).__name__})", remedy)
    if hasattr(table, "__array__"):
        return _read_array(table)
    remedy = "write table.collect() for a lazy one" if hasattr(table, "collect") else ""
    raise ArgumentError("table", _EXPECTED, type(table).__name__, remedy)


def make_frame(
    columns: Sequence[tuple[str, Column]], rows: int, container: str, native: Any, read: Callable[[str, Column], Cells]
) -> Frame:
    """A frame of columns with names, which ``read`` reads when they are needed."""
    names, named = tuple(name for name, _ in columns), dict(columns)
    if len(named) < len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise ArgumentError("table", "a name of its own for every column", f"{twice!r} twice", "rename a column")
    if not names or not rows:
        raise ArgumentError("table", "at least one row and one column", "no rows" if names else "no columns")
    cached = cache(lambda name: read(name, named[name]))
    return Frame(names, rows, container, native, lambda name, _: cached(name))


def as_narwhals(table: Any) -> nw.DataFrame[Any] | None:
    """The narwhals data frame of a data frame of any library; None for everything else."""
    try:
        found = nw.from_native(table, eager_only=True, pass_through=True)
    except (TypeError, ValueError) as error:
        raise ArgumentError("table", "columns with names of their own", str(error)) from error
    return found if isinstance(found, nw.DataFrame) else None


def numbered(count: int) -> tuple[str, ...]:
    """The names x0, x1, … of columns without names."""
    return tuple(f"x{index}" for index in range(count))


def codes_of(values: Array, labels: Sequence[Any]) -> npt.NDArray[np.float64]:
    """The position of each value among the labels, or NaN.

    Example:
        >>> codes_of(np.array(["b", None, "a", "?"], dtype=object), ("a", "b"))
        array([ 1., nan,  0., nan])
    """
    places: dict[Any, float] = {label: float(code) for code, label in enumerate(labels)}
    if values.dtype == object:
        return np.array([places.get(value, np.nan) for value in values], dtype=np.float64)
    different, where = np.unique(values, return_inverse=True)
    return np.array([places.get(value, np.nan) for value in different.tolist()], dtype=np.float64)[where]


def few(labels: Sequence[Label]) -> str:
    """The first labels of many, separated by commas."""
    shown = ", ".join(plain(str(label)) for label in labels[:_MOST_SHOWN])
    return f"{shown}, …" if len(labels) > _MOST_SHOWN else shown


def plain(text: str, most: int = 40) -> str:
    """A string on one line, of limited length, with characters escaped that cannot be printed."""
    shown = printable(text).replace("\n", "\\n")
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def column_named(name: str) -> str:
    """The name of a column in error messages."""
    return f"column {name!r}"


def is_missing(cell: Any) -> bool:
    """Whether a cell is a missing value: None, NaN, NaT, NA."""
    if cell is None:
        return True
    try:
        return bool(cell != cell)
    except (TypeError, ValueError):
        return type(cell).__name__ == "NAType"  # pandas' NA is neither equal to itself nor different


# Reading


def _read_table(table: Table) -> Frame:
    """Read a table of numbers, in which codes stand for strings and integers are floats."""

    def read(name: str, place: int) -> Cells:
        values = np.asarray(table.values)[:, place].astype(np.float64)
        if name in table.levels:
            labels = np.array([*table.levels[name], None], dtype=object)
            strings = labels[np.where(np.isnan(values), len(labels) - 1, values).astype(np.intp)]
            return Cells(name, "text", strings, tuple(table.levels[name]))
        observed = values[~np.isnan(values)]
        whole = bool((observed == np.floor(observed)).all())
        return Cells(name, "integer" if whole else "float", _finite(name, values))

    return make_frame(
        [(name, place) for place, name in enumerate(table.columns)], len(table.values), "table", table, read
    )


def _read_mapping(table: Mapping[Any, Any]) -> Frame:
    columns = [(str(name), _one_dimensional(str(name), column)) for name, column in table.items()]
    lengths = {len(column) for _, column in columns}
    if len(lengths) > 1:
        raise ArgumentError("table", "columns of equal length", f"lengths {sorted(lengths)}")
    return make_frame(columns, max(lengths, default=0), "mapping", table, _read_objects)


def _read_array(table: Any) -> Frame:
    if hasattr(table, "detach"):  # a tensor of PyTorch, which is not imported here
        table = table.detach().cpu().numpy()
    if isinstance(table, np.ma.MaskedArray):
        numeric = table.dtype.kind in "biuf"
        table = np.ma.filled(table.astype(np.float64 if numeric else object), np.nan if numeric else None)
    try:
        array = np.asarray(table)
        if array.dtype.kind in "US" and not isinstance(table, np.ndarray):
            array = np.array(table, dtype=object)  # among strings NumPy would turn numbers into strings too
    except ValueError as error:
        raise ArgumentError("table", "rows of equal length", "rows of different lengths") from error
    if array.ndim != 2:
        remedy = "write table.reshape(1, -1) for a single row, table.reshape(-1, 1) for a single column"
        raise ArgumentError("table", "two dimensions, (rows, columns)", f"shape {array.shape}", remedy)
    columns = list(zip(numbered(array.shape[1]), array.T, strict=True))
    return make_frame(columns, len(array), "numpy", array, _read_objects)


def _one_dimensional(name: str, column: Any) -> Array:
    if isinstance(column, str) or not hasattr(column, "__len__"):
        raise ArgumentError(column_named(name), "a list or an array", column, "put single values into lists")
    array = column if isinstance(column, np.ndarray) else np.array(list(column), dtype=object)
    if array.ndim != 1:
        raise ArgumentError(column_named(name), "one value for each row", f"shape {array.shape}")
    return array


def _read_series(name: str, series: nw.Series[Any]) -> Cells:
    """A column of a data frame."""
    dtype = series.dtype
    if dtype.is_numeric():
        values = _floats(series)
        if isinstance(getattr(series.to_native(), "dtype", None), np.dtype):
            return read_numbers(name, values, dtype.is_integer())
        return Cells(name, "integer" if dtype.is_integer() else "float", _finite(name, values))
    if dtype in (nw.Date, nw.Datetime):
        return _read_temporal(name, series)
    if dtype.is_temporal():
        raise _unreadable(name, *_TIMES)
    cells = np.array([None] * len(series), dtype=object)
    present = np.flatnonzero(~series.is_null().to_numpy().astype(bool))
    cells[present] = [series[int(row)] for row in present] if dtype == nw.Object else series.drop_nulls().to_list()
    if len(present) and series.implementation.is_pyarrow() and dtype == nw.String:
        return Cells(name, "text", cells)  # such a column has nothing but strings
    return replace(_read_objects(name, cells), categories=_declared(series))


def _read_temporal(name: str, series: nw.Series[Any]) -> Cells:
    """A column of dates or times of a data frame."""
    calendar, times = "date", series
    if isinstance(series.dtype, nw.Datetime):
        zone = f", {series.dtype.time_zone}" if series.dtype.time_zone else ""
        calendar = f"datetime[{series.dtype.time_unit}{zone}]"
    else:
        times = series.cast(nw.Datetime("us"))
    micros = _floats(times.dt.timestamp("us"))
    values = np.where(series.is_null().to_numpy().astype(bool), np.nan, micros / 86_400e6)
    return Cells(name, dtype_of(values), values, calendar=calendar)


def _floats(series: nw.Series[Any]) -> Array:
    try:
        return series.cast(nw.Float64()).to_numpy().astype(np.float64)
    except ValueError:  # pyarrow does not round integers above 2⁵³
        return np.array([_number(cell) for cell in series.to_list()])


def _declared(series: nw.Series[Any]) -> tuple[Label, ...] | None:
    """The categories of a column of a categorical type, including those that do not occur."""
    if isinstance(series.dtype, nw.Enum):
        return tuple(series.dtype.categories)
    if series.dtype != nw.Categorical:
        return None
    native, labels = series.to_native(), None  # in polars it is unknown which categories do not occur
    if hasattr(native, "unify_dictionaries") and native.num_chunks:
        labels = native.unify_dictionaries().chunk(0).dictionary.to_pylist() or None
    elif hasattr(getattr(native, "cat", None), "categories"):
        labels = native.cat.categories.tolist()
    return tuple(labels) if labels is not None and all(isinstance(label, str) for label in labels) else None


def _read_objects(name: str, array: Array) -> Cells:
    """A one-dimensional array of any type."""
    kind = array.dtype.kind
    if kind in "iuf":
        return read_numbers(name, array.astype(np.float64), kind != "f")
    if kind == "b":
        return Cells(name, "boolean", array.astype(np.float64))
    if kind == "M":
        unit = np.datetime_data(array.dtype)[0]
        calendar = f"datetime[{unit}]" if unit in ("s", "ms", "us", "ns") else "date"
        days = days_of(array)
        return Cells(name, dtype_of(days), days, calendar=calendar)
    if kind == "m":
        raise _unreadable(name, *_TIMES)
    if kind not in "OUT":
        raise _unreadable(name, f"values of type {array.dtype}")
    cells = [None if is_missing(cell) else cell for cell in array.tolist()]
    present = [cell for cell in cells if cell is not None]
    if not present:
        return Cells(name, "float", np.full(len(cells), np.nan))
    dtype = _type_of(name, present)
    if dtype == "date":
        return _read_dates(name, cells)
    if dtype == "text":
        return Cells(name, "text", np.array([None if c is None else str(c) for c in cells], dtype=object))
    return Cells(name, dtype, _finite(name, np.array([_number(cell) for cell in cells])))


def _read_dates(name: str, cells: Sequence[Any]) -> Cells:
    try:
        days, calendar = read_dates(cells)
    except ValueError as error:
        remedy = "write them as 2024-01-31, or 2024-01-31 12:30:00"
        raise ArgumentError(column_named(name), "dates, with a zone each or none", str(error), remedy) from error
    return Cells(name, dtype_of(days), days, calendar=calendar)


def as_dates(cells: Cells) -> Cells:
    """Parse strings in the format of ISO 8601 as dates; other columns stay as they are."""
    return _read_dates(cells.name, cells.values.tolist()) if cells.dtype == "text" else cells


def read_numbers(name: str, values: Array, integer: bool) -> Cells:
    """A column whose type cannot represent missing integers."""
    gaps = np.isnan(values)
    whole = bool(gaps.any()) and bool((np.floor(values) == values)[~gaps].all())
    return Cells(name, "integer" if integer else "float", _finite(name, values), whole=whole)


def _type_of(name: str, cells: Sequence[Any]) -> str:
    """The common type of cells that are not missing."""
    types: tuple[tuple[str, Callable[[Any], bool]], ...] = (
        ("boolean", lambda c: isinstance(c, bool | np.bool_)),
        ("integer", lambda c: isinstance(c, numbers.Integral)),
        ("float", lambda c: isinstance(c, numbers.Real | Decimal)),
        ("text", lambda c: isinstance(c, str)),
        ("date", is_date),
        ("time", lambda c: isinstance(c, datetime.time | datetime.timedelta)),
    )
    found = {next((word for word, is_one in types if is_one(c)), type(c).__name__): c for c in cells}
    if "time" in found:
        raise _unreadable(name, *_TIMES)
    strange = sorted(set(found) - set(DTYPES))
    if strange:
        raise _unreadable(name, f"{repr(found[strange[0]])[:60]} of type {strange[0]}")
    for apart in ("text", "date"):
        if apart in found and len(found) > 1:
            other = next(cell for word, cell in found.items() if word != apart)
            got = f"{found[apart]!r} and {other!r}"
            remedy = "turn the numbers into strings, or the strings into numbers"
            raise ArgumentError(column_named(name), "values of one type", got, remedy if apart == "text" else "")
    return next(iter(found)) if len(found) == 1 else max(found, key=DTYPES[2::-1].index)


def _number(cell: Any) -> float:
    try:
        return float("nan") if cell is None else float(cell)
    except OverflowError:
        return float("inf")


def _finite(name: str, values: Array) -> Array:
    wrong = np.flatnonzero(np.isinf(values))
    if len(wrong):
        row = int(wrong[0])
        remedy = "put NaN where a value is missing"
        raise ArgumentError(column_named(name), "finite numbers", f"{values[row]} in row {row}", remedy)
    return values


_TIMES = ("times or durations", "convert it to a number, such as hours, or drop it")


def _unreadable(name: str, got: str, remedy: str = "convert the column, or drop it") -> ArgumentError:
    return ArgumentError(column_named(name), "numbers, booleans, strings or dates", got, remedy)
