# SPDX-License-Identifier: Apache-2.0
"""The one form in which the library holds a table: a frame of named columns, read from any kind of table and back.

Data frames are read through narwhals, so none of their libraries is needed unless the user brings one.
"""

from __future__ import annotations

import datetime
import json
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache, cached_property
from importlib import import_module
from importlib.util import find_spec
from os import PathLike
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt

from picirc.data.dates import DATED, days_of, dtype_of, is_date, moments_of, objects_of, read_dates, unit_of, zone_of
from picirc.errors import ArgumentError

Label = str | int | float | bool
Array = npt.NDArray[Any]

DTYPES = ("float", "integer", "boolean", "text", *DATED)
# The kinds of tables that a model can return; other data frames come back as pandas ones.
CONTAINERS = ("numpy", "mapping", "table", "pandas", "polars", "pyarrow")

_EXPECTED = "a table: a data frame, an array (rows, columns), a mapping from names to columns, or a file"
_MOST_SHOWN = 8


@dataclass(frozen=True, eq=False)
class Table:
    """A table of numbers with named columns.

    Attributes:
        columns: The names.
        values: (row, column), NaN where missing.
        levels: For every categorical column the strings that its values 0, 1, … stand for.
    """

    columns: tuple[str, ...]
    values: Array
    levels: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of a column."""

    name: str  # the name of the column
    dtype: str  # `"float"`, `"integer"`, `"boolean"`, `"text"`, `"date"` or `"datetime"`
    # Numbers and booleans as float64, and dates as days since 1970, NaN where missing; strings as objects or None.
    values: Array
    categories: tuple[Label, ...] | None = None  # the categories that the table itself declares; None if it does not
    whole: bool = False  # whether floats may have been integers: NumPy integers become floats when some are missing
    calendar: str = ""  # what dates are in the table, as `picirc.data.dates` says it; empty for other columns

    @cached_property
    def missing(self) -> npt.NDArray[np.bool_]:
        """Where there is no value."""
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
    """A table as named columns, whose cells are read when they are needed."""

    names: tuple[str, ...]  # the names of the columns
    rows: int  # the number of rows
    container: str  # the kind of table that it was; one of `CONTAINERS`
    native: Any  # the table itself; None for a CSV file
    # Reads the cells of a column, given its name and the type that is expected, or None.
    read: Callable[[str, str | None], Cells]
    # The cells of a CSV file as they are written there, by column, None where missing.
    written: Mapping[str, Sequence[str | None]] | None = None
    lines: Sequence[int] = ()  # the line of a CSV file on which each row begins

    @property
    def named(self) -> bool:
        """Whether columns are identified by name, not by position."""
        return self.container != "numpy"

    def cells(self, name: str, dtype: str | None = None) -> Cells:
        """The cells of a column.

        Args:
            name: The name of the column.
            dtype: The type to read the cells of a CSV file as; other tables know their types. None to infer it.
        """
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
        table: A pandas, polars or pyarrow table, an array or nested lists, a mapping from names to columns, what
            ``picirc.data.read`` returns, or the path of a file.
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
    frame = as_narwhals(table)
    if frame is not None:
        places = {str(name): name for name in frame.columns}
        container = str(frame.implementation).removeprefix("Implementation.")
        kept = container if container in CONTAINERS else "pandas"
        names = [str(name) for name in frame.columns]
        return make_frame(
            names,
            [len(frame)] * len(names),
            kept,
            table,
            lambda name: _read_series(name, frame.get_column(places[name])),
        )
    if hasattr(table, "toarray"):
        remedy = "write table.toarray(), as zeros are values here"
        raise ArgumentError("table", _EXPECTED, f"a sparse matrix ({type(table).__name__})", remedy)
    if hasattr(table, "__array__"):
        return _read_array(table)
    remedy = "write table.collect() for a lazy one" if hasattr(table, "collect") else ""
    raise ArgumentError("table", _EXPECTED, type(table).__name__, remedy)


def extended(table: Any, other: Any) -> Any:
    """A table with the columns of another one of the same kind and length."""
    if isinstance(table, Mapping):
        return {**table, **other}
    if isinstance(table, Table):
        return Table((*table.columns, *other.columns), np.hstack([table.values, other.values]),
                     table.levels | other.levels)  # fmt: skip
    left, right = as_narwhals(table), as_narwhals(other)
    assert left is not None
    assert right is not None
    return left.with_columns(*(right.get_column(name) for name in right.columns)).to_native()


def make_frame(
    names: Sequence[str], lengths: Sequence[int], container: str, native: Any, read: Callable[[str], Cells]
) -> Frame:
    """A frame, after a check of its names and of the lengths of its columns."""
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise ArgumentError("table", "a name of its own for every column", f"{twice[0]!r} twice", "rename a column")
    if len(set(lengths)) > 1:
        raise ArgumentError("table", "columns of equal length", f"lengths {sorted(set(lengths))}")
    if not lengths or 0 in lengths:
        raise ArgumentError("table", "at least one row and one column", "no rows" if lengths else "no columns")
    cached = cache(read)
    return Frame(tuple(names), lengths[0], container, native, lambda name, _: cached(name))


def as_narwhals(table: Any) -> nw.DataFrame[Any] | None:
    """A data frame of any library in the one interface of narwhals; None for everything else."""
    try:
        found = nw.from_native(table, eager_only=True, pass_through=True)
    except (TypeError, ValueError) as error:
        raise ArgumentError("table", "columns with names of their own", str(error)) from error
    return found if isinstance(found, nw.DataFrame) else None


def numbered(count: int) -> tuple[str, ...]:
    """Names for columns that have none: x0, x1, …."""
    return tuple(f"x{index}" for index in range(count))


def codes_of(values: Array, labels: Sequence[Any]) -> npt.NDArray[np.float64]:
    """The position of each value among the labels, NaN where a value is missing or not among them.

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
    """The first of many labels, in a form that any terminal can show."""
    shown = ", ".join(plain(str(label)) for label in labels[:_MOST_SHOWN])
    return f"{shown}, …" if len(labels) > _MOST_SHOWN else shown


def plain(text: str, most: int = 40) -> str:
    """A string on one line, of limited length, with escape sequences for what cannot be printed."""
    shown = text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def column_named(name: str) -> str:
    """How errors refer to a column; what cannot be printed is escaped."""
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
    """A table read from a file: codes stand for strings, and integers are floats."""
    places = {name: place for place, name in enumerate(table.columns)}

    def read(name: str) -> Cells:
        values = np.asarray(table.values)[:, places[name]].astype(np.float64)
        if name in table.levels:
            labels = np.array([*table.levels[name], None], dtype=object)
            strings = labels[np.where(np.isnan(values), len(labels) - 1, values).astype(np.intp)]
            return Cells(name, "text", strings, tuple(table.levels[name]))
        observed = values[~np.isnan(values)]
        whole = bool((observed == np.floor(observed)).all())
        return Cells(name, "integer" if whole else "float", _finite(name, values))

    return make_frame(table.columns, [len(table.values)] * len(table.columns), "table", table, read)


def _read_mapping(table: Mapping[Any, Any]) -> Frame:
    names = [str(name) for name in table]
    columns = {str(name): _one_dimensional(name, table[name]) for name in table}
    lengths = [len(columns[name]) for name in names]
    return make_frame(names, lengths, "mapping", table, lambda name: _read_objects(name, columns[name]))


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
        raise ArgumentError("table", "rows of equal length", "others") from error
    if array.ndim != 2:
        remedy = "write table.reshape(1, -1) for a single row, table.reshape(-1, 1) for a single column"
        raise ArgumentError("table", "two dimensions, (rows, columns)", f"shape {array.shape}", remedy)
    rows, columns = array.shape
    return make_frame(
        numbered(columns), [rows] * columns, "numpy", array, lambda name: _read_objects(name, array[:, int(name[1:])])
    )


def _one_dimensional(name: Any, column: Any) -> Array:
    if isinstance(column, str) or not hasattr(column, "__len__"):
        raise ArgumentError(column_named(str(name)), "a list or an array", column, "put single values into lists")
    array = column if isinstance(column, np.ndarray) else np.array(list(column), dtype=object)
    if array.ndim != 1:
        raise ArgumentError(column_named(str(name)), "one value for each row", f"shape {array.shape}")
    return array


def _read_series(name: str, series: nw.Series[Any]) -> Cells:
    """A column of a data frame."""
    dtype = series.dtype
    if dtype.is_numeric():
        values = _floats(series)
        if isinstance(getattr(series.to_native(), "dtype", None), np.dtype):
            return _read_numbers(name, values, dtype.is_integer())
        return Cells(name, "integer" if dtype.is_integer() else "float", _finite(name, values))
    if dtype in (nw.Date, nw.Datetime):
        return _read_temporal(name, series)
    if dtype.is_temporal():
        raise _time(name)
    cells = np.array([None] * len(series), dtype=object)
    present = np.flatnonzero(~series.is_null().to_numpy().astype(bool))
    cells[present] = [series[int(row)] for row in present] if dtype == nw.Object else series.drop_nulls().to_list()
    if len(present) and series.implementation.is_pyarrow() and dtype == nw.String:
        return Cells(name, "text", cells)  # there is nothing else in such a column
    return replace(_read_objects(name, cells), categories=_declared(series))


def _read_temporal(name: str, series: nw.Series[Any]) -> Cells:
    """A column of dates or times of a data frame."""
    calendar, days = "date", series.cast(nw.Datetime("us")) if series.dtype == nw.Date else series
    if isinstance(series.dtype, nw.Datetime):
        zone = f", {series.dtype.time_zone}" if series.dtype.time_zone else ""
        calendar = f"datetime[{series.dtype.time_unit}{zone}]"
    micros = _floats(days.dt.timestamp("us"))
    values = np.where(series.is_null().to_numpy().astype(bool), np.nan, micros / 86_400e6)
    return Cells(name, dtype_of(values), values, calendar=calendar)


def _floats(series: nw.Series[Any]) -> Array:
    try:
        return series.cast(nw.Float64()).to_numpy().astype(np.float64)
    except ValueError:  # pyarrow does not round integers above 2⁵³
        return np.array([_number(cell) for cell in series.to_list()])


def _declared(series: nw.Series[Any]) -> tuple[Label, ...] | None:
    """The categories of a column of a categorical type, including those without a row."""
    if isinstance(series.dtype, nw.Enum):
        return tuple(series.dtype.categories)
    native = series.to_native()
    if hasattr(native, "unify_dictionaries") and series.dtype == nw.Categorical and native.num_chunks:
        labels = native.unify_dictionaries().chunk(0).dictionary.to_pylist()
        return tuple(labels) if labels and all(isinstance(label, str) for label in labels) else None
    if series.dtype != nw.Categorical or not hasattr(getattr(native, "cat", None), "categories"):
        return None  # polars does not know categories that do not occur
    labels = native.cat.categories.tolist()
    return tuple(labels) if all(isinstance(label, str) for label in labels) else None


def _read_objects(name: str, array: Array) -> Cells:
    """A one-dimensional array of any type."""
    kind = array.dtype.kind
    if kind in "iuf":
        return _read_numbers(name, array.astype(np.float64), kind != "f")
    if kind == "b":
        return Cells(name, "boolean", array.astype(np.float64))
    if kind == "M":
        unit = np.datetime_data(array.dtype)[0]
        calendar = f"datetime[{unit}]" if unit in ("s", "ms", "us", "ns") else "date"
        days = days_of(array)
        return Cells(name, dtype_of(days), days, calendar=calendar)
    if kind == "m":
        raise _time(name)
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
    """Strings in the format of ISO 8601 as dates; every other column as it is."""
    return _read_dates(cells.name, cells.values.tolist()) if cells.dtype == "text" else cells


def _read_numbers(name: str, values: Array, integer: bool) -> Cells:
    """A column of a NumPy type."""
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
        raise _time(name)
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


def _time(name: str) -> ArgumentError:
    remedy = "turn it into a number, such as hours, or drop it"
    return ArgumentError(column_named(name), "numbers, booleans, strings or dates", "times or durations", remedy)


def _unreadable(name: str, got: str) -> ArgumentError:
    return ArgumentError(column_named(name), "numbers, booleans or strings", got, "convert the column, or drop it")


# Back to tables of every kind


def fill(frame: Frame, new: Mapping[str, tuple[Cells, Array]]) -> Any:
    """The table with other values in its missing cells; observed cells stay as they are, bit for bit.

    Args:
        frame: The table.
        new: For some columns their cells, and values for all rows, as ``assemble`` takes them.
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


_SIZES = [f"{kind}{bits}" for kind in ("Int", "UInt") for bits in (8, 16, 32, 64)]
# The types of columns of data frames that come back as they went in, beyond what NumPy has by default.
ORDERED = "category, ordered"
_MARKED = (*_SIZES, "Float32", "Float64", "boolean", "string")  # types that pandas marks in Parquet files
NATIVE = {
    "pandas": (
        *_SIZES,
        *map(str.lower, _SIZES),
        "Float32",
        "Float64",
        "float32",
        "boolean",
        "category",
        ORDERED,
        "string",
    ),
    "polars": (*_SIZES, "Float32", "Categorical", "Enum"),
}


def native_type(frame: Frame, name: str) -> str:
    """The word for the type of a column of a data frame or of a Parquet file; empty where there is nothing to keep."""
    if hasattr(frame.native, "schema") and hasattr(frame.native.schema, "pandas_metadata"):
        return _arrow_word(frame.native.schema, name)
    if frame.container not in NATIVE or not hasattr(frame.native, "columns"):
        return ""
    place = next(column for column in frame.native.columns if str(column) == name)
    dtype = frame.native[place].dtype
    word = ORDERED if getattr(dtype, "ordered", None) is True else str(dtype).partition("(")[0]
    return word if word in NATIVE[frame.container] else ""


def _arrow_word(schema: Any, name: str) -> str:
    """The word for the type of a column of pyarrow: what pandas says that it was, if pandas wrote it."""
    said = {
        column.get("name"): column.get("numpy_type") for column in (schema.pandas_metadata or {}).get("columns", [])
    }
    if said.get(name) in _MARKED:
        return str(said[name])
    kind = schema.field(name).type
    if hasattr(kind, "ordered"):
        return ORDERED if kind.ordered else "category"
    # Integers and strings are of these types anyway.
    word = {"float": "float32", "int64": "", "string": ""}.get(str(kind), str(kind))
    return word if word in NATIVE["pandas"] else ""


def arrow_type(dtype: str, word: str = "") -> Any:
    """The type of pyarrow for the values of a column.

    Args:
        dtype: One of ``DTYPES``.
        word: What ``native_type`` said, or a calendar.
    """
    arrow = import_module("pyarrow")
    if dtype in DATED:
        unit, zone = unit_of(word) or "us", zone_of(word) or None
        return arrow.date32() if dtype == "date" and not unit_of(word) else arrow.timestamp(unit, zone)
    if word in (ORDERED, "category", "Categorical", "Enum") and dtype == "text":
        return arrow.dictionary(arrow.int32(), arrow.string(), word == ORDERED)
    usual = {"integer": "int64", "boolean": "bool_", "text": "string"}.get(dtype, "float64")
    fits = word.lower() in map(str.lower, _SIZES) if dtype == "integer" else word.lower() == "float32" == dtype + "32"
    return getattr(arrow, word.lower() if fits else usual)()


def arrow_array(values: Array, kind: Any, levels: Sequence[str] = ()) -> Any:
    """A column of pyarrow, categories in the order of their levels; in another type if that cannot hold the values."""
    arrow = import_module("pyarrow")
    if arrow.types.is_dictionary(kind):
        codes = codes_of(values, levels)
        coded = arrow.array(codes, kind.index_type, from_pandas=True)
        return arrow.DictionaryArray.from_arrays(
            coded, arrow.array(list(levels), kind.value_type), ordered=kind.ordered
        )
    if arrow.types.is_timestamp(kind):
        values = values.astype("datetime64[us]")
    try:
        return arrow.array(values, kind, from_pandas=True)
    except arrow.ArrowException:
        return arrow.array(values, from_pandas=True)


def arrow_table(columns: Mapping[str, Array], kinds: Mapping[str, tuple[str, str, Sequence[str]]]) -> Any:
    """A table of pyarrow.

    Args:
        columns: What ``assemble`` takes.
        kinds: For each column its dtype, its word and its levels. Types that only pandas has, such as integers with
            gaps, are noted as pandas itself does, and so come back when it reads a file of the table.
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
    """A data frame with columns of the types that ``native_type`` found, where they can hold the values."""
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
            continue  # integers with gaps, or values beyond the type
    return made


def _dated(made: Any, container: str, name: str, calendar: str) -> Any:
    """A data frame with the type of a column of dates, which is datetime64 in UTC before."""
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
    """A table of a given kind from columns.

    Args:
        container: One of ``CONTAINERS``; a data frame whose library is not installed becomes a mapping.
        columns: An array of float64, int64, bool, datetime64, or of objects (strings, or None) for each name.
        levels: The categories of the columns of strings, for tables that hold codes.
        like: A data frame whose column names (which need not be strings) are taken over.
        types: The types of some columns of a data frame, as ``native_type`` says them.
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
    """New values as cells of a column have them: dates as Python's, of the same zone."""
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
    """A column of a mapping: an array stays one, anything else becomes a list."""
    made = column.copy() if isinstance(column, np.ndarray) else list(column)
    for row, value in zip(*(part.tolist() for part in gap), strict=True) if gap is not None else ():
        made[row] = value
    return made


def _scattered(series: nw.Series[Any], cells: Cells, rows: Array, new: Array) -> nw.Series[Any]:
    """A column of a data frame with new values in some rows, in its own type if that can hold them."""
    backend = series.implementation
    if len(rows) == len(series) and not (series.dtype.is_numeric() and new.dtype.kind in "iuf"):
        return nw.new_series(series.name, new.tolist(), backend=backend)  # its type meant nothing
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
    """The same for pyarrow, whose columns cannot be changed."""
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
    """Columns side by side, in the narrowest type that holds them all."""
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
