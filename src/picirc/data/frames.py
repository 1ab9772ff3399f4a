# SPDX-License-Identifier: Apache-2.0
"""Frames: named columns, read from a table of any kind and made into tables again.

Data frames are read through narwhals, so their libraries are only needed if the user has one.
"""

from __future__ import annotations

import datetime
import json
import numbers
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache, cached_property
from importlib import import_module
from importlib.util import find_spec
from os import PathLike
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import narwhals as nw
import numpy as np
import numpy.typing as npt

from picirc.errors import ArgumentError, printable

Array = npt.NDArray[Any]
Numbers = npt.NDArray[np.float64]

# Dates and times as numbers, days since 1970 in UTC, and back
#
# The *calendar* of a column describes its type: ``"date"``, ``"datetime[us]"`` with a unit, or
# ``"datetime[us, Europe/Paris]"`` with a time zone.

DATED = ("date", "datetime")  # the dtypes of such columns
CALENDAR = re.compile(r"date|datetime\[(s|ms|us|ns)(, [\w/+:-]{1,40})?\]")

_ISO = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}(:?\d{2})?)?)?")
_DAY, _SECOND = 86_400e6, 1e6  # microseconds
_FIRST, _LAST = -719_162, 2_932_896  # the days that Python's dates can hold: the years 1 to 9999


def is_date(cell: object) -> bool:
    """Whether a value is a date, or a date with a time."""
    return isinstance(cell, datetime.date | np.datetime64)


def is_iso(text: str) -> bool:
    """Whether a string is a date, or a date with a time, in the format of ISO 8601."""
    if not _ISO.fullmatch(text):
        return False
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def days_of(moments: Array) -> Numbers:
    """Days since 1970 of an array of datetime64; NaN for NaT."""
    found = moments.astype("datetime64[us]")
    return np.where(np.isnat(found), np.nan, found.astype(np.int64) / _DAY)


def moments_of(days: Numbers, dtype: str, seconds: bool = False) -> Array:
    """Dates (``datetime64[D]``) or times (``datetime64[us]``, rounded to seconds if asked) from days since 1970."""
    known = np.clip(np.nan_to_num(days), _FIRST, _LAST)
    step = _DAY if dtype == "date" else _SECOND if seconds else 1.0
    found = (np.rint(known * (_DAY / step)) * step).astype(np.int64).astype("datetime64[us]")
    found[np.isnan(days)] = np.datetime64("NaT")
    return found.astype("datetime64[D]") if dtype == "date" else found


def dtype_of(days: Numbers) -> str:
    """The dtype of a column: ``"date"`` if all values are whole days, else ``"datetime"``."""
    known = days[~np.isnan(days)]
    return "date" if bool((known == np.floor(known)).all()) else "datetime"


def read_dates(cells: Sequence[Any]) -> tuple[Numbers, str]:
    """Days since 1970, and the calendar, of dates, times, and strings in the format of ISO 8601; None is missing.

    Raises:
        ValueError: Some times have a time zone and others have none.
    """
    found = [_moment(cell) for cell in cells]
    present = [cell for cell in found if cell is not None]
    timed = [cell for cell in present if isinstance(cell, datetime.datetime)]
    aware = [cell for cell in timed if cell.tzinfo is not None]
    if aware and len(aware) < len(present):
        raise ValueError("times with a zone and without one")
    if not timed:
        return days_of(np.array(found, "datetime64[D]")), "date"
    if not aware:
        return days_of(np.array(found, "datetime64[us]")), "datetime[us]"
    utc = [
        cell.astimezone(datetime.UTC).replace(tzinfo=None) if isinstance(cell, datetime.datetime) else None
        for cell in found
    ]
    zone = getattr(aware[0].tzinfo, "key", None) or getattr(aware[0].tzinfo, "zone", None) or "UTC"
    return days_of(np.array(utc, "datetime64[us]")), f"datetime[us, {zone}]"


def zone_of(calendar: str) -> str:
    """The zone of a calendar; empty if it has none."""
    return calendar.partition(", ")[2].rstrip("]")


def unit_of(calendar: str) -> str:
    """The unit of a calendar; empty for dates."""
    return calendar.partition("[")[2].partition(",")[0].rstrip("]")


def objects_of(moments: Array, calendar: str) -> list[Any]:
    """Python dates and times, in the time zone of the calendar; None for NaT."""
    found: list[Any] = moments.astype("datetime64[D]" if calendar == "date" else "datetime64[us]").tolist()
    if not (zone := zone_of(calendar)):
        return found
    try:
        there: datetime.tzinfo = ZoneInfo(zone)
    except (KeyError, ValueError, OSError):  # this machine does not know the zone
        there = datetime.UTC
    return [None if cell is None else cell.replace(tzinfo=datetime.UTC).astimezone(there) for cell in found]


def _moment(cell: Any) -> datetime.date | None:
    if cell is None or isinstance(cell, datetime.date):
        return cell
    if isinstance(cell, str):
        timed = datetime.datetime.fromisoformat(cell.strip())
        return timed if len(cell.strip()) > len("2000-01-01") else timed.date()
    found: datetime.datetime = np.datetime64(cell, "us").tolist()
    return found if np.datetime_data(cell.dtype)[0] not in ("Y", "M", "W", "D") else found.date()


# Frames


Label = str | int | float | bool
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
    calendar: str = ""  # the type of dates in the table, see `picirc.data.frames`; empty for other columns

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
        table: A pandas, polars or pyarrow table, an array or nested lists, a mapping from names to columns, a list of
            rows that map names to values, the result of ``picirc.data.read``, or the path of a file.
    """
    if isinstance(table, Frame):
        return table
    if isinstance(table, list) and table and all(isinstance(row, Mapping) for row in table):
        names = dict.fromkeys(name for row in table for name in row)
        table = {name: [row.get(name) for row in table] for name in names}
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
        raise ArgumentError("table", "a unique name for every column", f"{twice!r} twice", "rename a column")
    if not names or not rows:
        raise ArgumentError("table", "at least one row and one column", "no rows" if names else "no columns")
    cached = cache(lambda name: read(name, named[name]))
    return Frame(names, rows, container, native, lambda name, _: cached(name))


def as_narwhals(table: Any) -> nw.DataFrame[Any] | None:
    """The narwhals data frame of a data frame of any library; None for everything else."""
    try:
        found = nw.from_native(table, eager_only=True, pass_through=True)
    except (TypeError, ValueError) as error:
        raise ArgumentError("table", "columns with unique names", str(error)) from error
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


# Tables of the user's own kind and types, made from columns


def fill(frame: Frame, new: Mapping[str, tuple[Cells, Array]]) -> Any:
    """Fill the missing cells of a table; observed cells stay the same, bit for bit.

    Args:
        frame: The table.
        new: The cells of some columns, and values for all their rows, as for ``assemble``.
    """
    gaps = {name: (np.flatnonzero(cells.missing), values) for name, (cells, values) in new.items()}
    gaps = {name: (rows, _listed(values[rows], new[name][0])) for name, (rows, values) in gaps.items() if len(rows)}
    if frame.container == "numpy":
        filled: Array = frame.native.copy()
        for name, (rows, values) in gaps.items():
            filled[rows, frame.names.index(name)] = values.tolist()
        return filled
    if frame.container == "table":
        return _fill_table(frame.native, gaps)
    if frame.written is not None:
        cells = {name: new[name][0] if name in new else frame.cells(name) for name in frame.names}
        return {name: _filled(cells[name].objects(), gaps.get(name)) for name in frame.names}
    if isinstance(frame.native, Mapping):
        return {name: _filled(frame.native[name], gaps.get(str(name))) for name in frame.native}
    native = as_narwhals(frame.native)
    assert native is not None
    columns = [
        _scattered(native.get_column(name), new[str(name)][0], *gaps[str(name)])
        for name in native.columns
        if str(name) in gaps
    ]
    return native.with_columns(*columns).to_native() if columns else native.clone().to_native()


def extended(table: Any, other: Any) -> Any:
    """Add the columns of another table of the same kind and length."""
    if isinstance(table, Mapping):
        return {**table, **other}
    if isinstance(table, Table):
        values = np.hstack([table.values, other.values])
        return Table((*table.columns, *other.columns), values, table.levels | other.levels)
    left, right = as_narwhals(table), as_narwhals(other)
    assert left is not None
    assert right is not None
    return left.with_columns(*(right.get_column(name) for name in right.columns)).to_native()


_SIZES = [f"{kind}{bits}" for kind in ("Int", "UInt") for bits in (8, 16, 32, 64)]
ORDERED = "category, ordered"
_MARKED = (*_SIZES, "Float32", "Float64", "boolean", "string")  # types that pandas marks in Parquet files
# The types of columns of data frames that are kept, besides the default types of NumPy.
NATIVE = {
    "pandas": (*_MARKED, *map(str.lower, _SIZES), "float32", "object", "category", ORDERED),
    "polars": (*_SIZES, "Float32", "Categorical", "Enum"),
}


def native_type(frame: Frame, name: str) -> str:
    """The name of the type of a column of a data frame or a Parquet file; empty for a default type."""
    if hasattr(frame.native, "schema") and hasattr(frame.native.schema, "pandas_metadata"):
        return _arrow_word(frame.native.schema, name)
    if frame.container not in NATIVE or not hasattr(frame.native, "columns"):
        return ""
    place = next(column for column in frame.native.columns if str(column) == name)
    dtype = frame.native[place].dtype
    word = ORDERED if getattr(dtype, "ordered", None) is True else str(dtype).partition("(")[0]
    return word if word in NATIVE[frame.container] else ""


def _arrow_word(schema: Any, name: str) -> str:
    """The name of the type of a column of pyarrow; the pandas type, if pandas wrote it."""
    for column in (schema.pandas_metadata or {}).get("columns", []):
        if column.get("name") == name and column.get("numpy_type") in _MARKED:
            return str(column["numpy_type"])
    kind = schema.field(name).type
    if hasattr(kind, "ordered"):
        return ORDERED if kind.ordered else "category"
    # The defaults for integers and strings are not kept.
    word = {"float": "float32", "int64": "", "string": ""}.get(str(kind), str(kind))
    return word if word in NATIVE["pandas"] else ""


def arrow_type(dtype: str, word: str = "") -> Any:
    """The pyarrow type of a column, from its dtype and the result of ``native_type`` or a calendar."""
    arrow = import_module("pyarrow")
    if dtype in DATED:
        unit, zone = unit_of(word) or "us", zone_of(word) or None
        return arrow.date32() if dtype == "date" and not unit_of(word) else arrow.timestamp(unit, zone)
    if word in (ORDERED, "category", "Categorical", "Enum") and dtype == "text":
        return arrow.dictionary(arrow.int32(), arrow.string(), word == ORDERED)
    usual = {"integer": "int64", "boolean": "bool_", "text": "string"}.get(dtype, "float64")
    own = {"integer": [size.lower() for size in _SIZES], "float": ["float32"]}.get(dtype, [])
    return getattr(arrow, word.lower() if word.lower() in own else usual)()


def arrow_array(values: Array, kind: Any, levels: Sequence[str] = ()) -> Any:
    """A pyarrow array of a type, or of another one if that type cannot hold the values."""
    arrow = import_module("pyarrow")
    if arrow.types.is_dictionary(kind):
        codes = arrow.array(codes_of(values, levels), kind.index_type, from_pandas=True)
        labels = arrow.array(list(levels), kind.value_type)
        return arrow.DictionaryArray.from_arrays(codes, labels, ordered=kind.ordered)
    if arrow.types.is_timestamp(kind):
        values = values.astype("datetime64[us]")
    try:
        return arrow.array(values, kind, from_pandas=True)
    except arrow.ArrowException:
        return arrow.array(values, from_pandas=True)


def arrow_table(columns: Mapping[str, Array], kinds: Mapping[str, tuple[str, str, Sequence[str]]]) -> Any:
    """A pyarrow table.

    Args:
        columns: The columns, as for ``assemble``.
        kinds: The dtype, the native type and the levels of each column. Types that only pandas has, such as integers
            with missing values, are noted in the metadata, so that pandas restores them when it reads a file.
    """
    arrow = import_module("pyarrow")
    made = {n: arrow_array(v, arrow_type(*kinds[n][:2]), kinds[n][2]) for n, v in columns.items()}
    entry = {"pandas_type": "unicode", "metadata": None}
    marked = [
        entry | {"name": n, "field_name": n, "numpy_type": kinds[n][1]} for n in columns if kinds[n][1] in _MARKED
    ]
    about = {"index_columns": [], "column_indexes": [], "columns": marked, "pandas_version": "2.0.0"}
    found = arrow.table(made)
    return found.replace_schema_metadata({"pandas": json.dumps(about)}) if marked else found


def _cast(made: Any, container: str, types: Mapping[str, str], levels: Mapping[str, tuple[str, ...]]) -> Any:
    """Convert columns of a data frame to the types of ``native_type``, where these can hold the values."""
    library = import_module(container)
    failures: tuple[type[Exception], ...] = (TypeError, ValueError, OverflowError)
    if container == "polars":
        failures += (library.exceptions.PolarsError,)
    for name, word in types.items():
        dtype: Any = word
        if name not in made.columns:
            continue
        if word.startswith("date"):
            made = _dated(made, container, name, word)
            continue
        if word not in NATIVE[container] or ("int" in word.lower() and not _whole(made[name])):
            continue
        if container == "pandas" and word in ("category", ORDERED):
            dtype = library.CategoricalDtype(levels.get(name), ordered=word == ORDERED)
        elif container == "polars":
            dtype = library.Enum(levels[name]) if word == "Enum" and name in levels else getattr(library, word)
        try:
            if container == "pandas":
                made[name] = made[name].astype(dtype)
            else:
                made = made.with_columns(library.col(name).cast(dtype))
        except failures:
            continue  # missing integers, or values outside the range of the type
    return made


def _dated(made: Any, container: str, name: str, calendar: str) -> Any:
    """Convert a column of datetime64 in UTC to the type of its calendar."""
    unit, zone = unit_of(calendar), zone_of(calendar)
    if container == "pandas":
        column = made[name].dt.date if not unit else made[name].astype(f"datetime64[{unit}]")
        if zone:
            column = column.dt.tz_localize("UTC").dt.tz_convert(zone)
        return made.assign(**{name: column})
    library = import_module(container)
    column = library.col(name).cast(library.Datetime(unit) if unit in ("ms", "us", "ns") else library.Date)
    if zone:
        column = column.dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
    return made.with_columns(column)


def _whole(series: Any) -> bool:
    """Whether all numbers of a column are integers."""
    values = np.asarray(series, np.float64)
    return bool((values == np.floor(values))[~np.isnan(values)].all())


def assemble(
    container: str,
    columns: Mapping[str, Array],
    levels: Mapping[str, tuple[str, ...]],
    like: Any = None,
    types: Mapping[str, str] | None = None,
) -> Any:
    """Make a table of a given kind from columns.

    Args:
        container: One of ``CONTAINERS``; if the library of a data frame is not installed, the result is a mapping.
        columns: Arrays of float64, int64, bool, datetime64, or objects (strings and None) by name.
        levels: The categories of columns of strings, for tables of codes.
        like: A data frame that has the column names, which need not be strings.
        types: The types of columns of a data frame, as from ``native_type``.
    """
    if container == "numpy":
        return _as_array(list(columns.values()))
    if container == "table":
        coded = [codes_of(values, levels[name]) if name in levels else values for name, values in columns.items()]
        known = {name: levels[name] for name in columns if name in levels}
        return Table(tuple(columns), np.column_stack([np.asarray(c, np.float64) for c in coded]), known)
    if container == "mapping" or find_spec(container) is None:
        return dict(columns)
    values = {name: column.tolist() if column.dtype == object else column for name, column in columns.items()}
    made = nw.from_dict(values, backend=container).to_native()  # type: ignore[arg-type]
    if types and container in NATIVE:
        made = _cast(made, container, types, levels)
    if container == "pandas" and like is not None and hasattr(like, "columns"):
        made.columns = like.columns
    return made


def _listed(values: Array, cells: Cells) -> Array:
    """New values as Python objects where they are dates, in the time zone of the column."""
    if values.dtype.kind != "M":
        return values
    found = np.empty(len(values), object)
    found[:] = objects_of(values, cells.calendar or ("date" if values.dtype == "datetime64[D]" else "datetime[us]"))
    return found


def _fill_table(table: Table, gaps: Mapping[str, tuple[Array, Array]]) -> Table:
    filled, levels = np.array(table.values, copy=True), dict(table.levels)
    for name, (rows, values) in gaps.items():
        if name in levels:
            levels[name] = tuple(dict.fromkeys([*levels[name], *(text for text in values if text is not None)]))
            values = codes_of(values, levels[name])
        filled[rows, table.columns.index(name)] = values
    return Table(table.columns, filled, levels)


def _filled(column: Any, gap: tuple[Array, Array] | None) -> Any:
    """A column of a mapping with its gap filled; an array stays an array, anything else becomes a list."""
    made = column.copy() if isinstance(column, np.ndarray) else list(column)
    for row, value in zip(*(part.tolist() for part in gap), strict=True) if gap is not None else ():
        made[row] = value
    return made


def _scattered(series: nw.Series[Any], cells: Cells, rows: Array, new: Array) -> nw.Series[Any]:
    """A column of a data frame with new values in some rows; its type stays if it can hold them."""
    backend = series.implementation
    if len(rows) == len(series) and not (series.dtype.is_numeric() and new.dtype.kind in "iuf"):
        return nw.new_series(series.name, new.tolist(), backend=backend)  # an empty column has no meaningful type
    if series.dtype.is_numeric():
        new = np.rint(new.astype(np.float64)) if series.dtype.is_integer() else new.astype(np.float64)
    if backend.is_pyarrow():
        return _scattered_arrow(series, cells.categories or (), rows, new)
    if series.dtype.is_numeric() or series.dtype.is_temporal():
        made = nw.new_series(series.name, new if series.dtype.is_numeric() else new.tolist(), backend=backend)
        return series.scatter(rows.tolist(), made.cast(series.dtype))
    if cells.categories is not None and not set(new) <= set(cells.categories):
        series = series.cast(nw.String())
    return series.scatter(rows.tolist(), new.tolist())


def _scattered_arrow(series: nw.Series[Any], labels: Sequence[Any], rows: Array, new: Array) -> nw.Series[Any]:
    """The same for pyarrow, whose columns are immutable."""
    arrow, whole = import_module("pyarrow"), series.dtype.is_integer()
    cells = series.to_list()
    for row, value in zip(rows.tolist(), new.tolist(), strict=True):
        cells[row] = int(value) if whole else value
    kind = series.to_native().type
    try:
        if arrow.types.is_dictionary(kind) and set(new.tolist()) <= set(labels):
            made = arrow.chunked_array([arrow_array(np.array(cells, dtype=object), kind, labels)])
        else:
            made = arrow.chunked_array([cells], type=kind)
    except arrow.ArrowException:  # the type cannot hold the new values, or cannot be built from a list
        made = arrow.chunked_array([cells])
    found: nw.Series[Any] = nw.from_native(made, series_only=True).alias(series.name)
    return found


def _as_array(columns: Sequence[Array]) -> Array:
    """An array of columns, in the narrowest type that holds them all."""
    kinds = {column.dtype.kind for column in columns}
    if kinds == {"M"}:
        return np.stack(columns, 1)
    dtype: Any = (
        object if kinds & {"O", "M"} else np.float64 if "f" in kinds else np.int64 if "i" in kinds else np.bool_
    )
    array = np.empty((len(columns[0]), len(columns)), dtype)
    for place, column in enumerate(columns):
        array[:, place] = column.tolist() if column.dtype.kind == "M" else column
    return array
