"""Tables of every kind as columns of cells.

Data frames are read through narwhals, so that none of their libraries is needed that the user does not have.
"""

from __future__ import annotations

import datetime
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt
import torch

from picirc.data.cells import Table, numbered
from picirc.errors import ArgumentError

Label = str | int | float | bool
Array = npt.NDArray[Any]

DTYPES = ("float", "integer", "boolean", "text")
# The kinds of tables that a model can give back; other data frames come back as pandas ones.
CONTAINERS = ("numpy", "mapping", "table", "pandas", "polars", "pyarrow")

_EXPECTED = "a table: a data frame, an array (rows, columns), or a mapping from names to columns"


@dataclass(frozen=True, eq=False)
class Cells:
    """A column of a table.

    Attributes:
        name: Its name.
        dtype: ``"float"``, ``"integer"``, ``"boolean"`` or ``"text"``.
        values: Numbers and truth values as float64, NaN where missing; texts as objects, None where missing.
        categories: The categories that the table itself declares; None if it does not.
        whole: Whether floats may have been integers: numpy has no other way to write missing ones among them.
    """

    name: str
    dtype: str
    values: Array
    categories: tuple[Label, ...] | None = None
    whole: bool = False

    @property
    def missing(self) -> npt.NDArray[np.bool_]:
        """Where there is no value."""
        if self.dtype == "text":
            return np.fromiter((cell is None for cell in self.values), bool, len(self.values))
        return np.isnan(self.values)


@dataclass(frozen=True, eq=False)
class Frame:
    """A table as columns.

    Attributes:
        columns: The columns.
        rows: The number of rows.
        container: The kind of table that it was.
        native: The table itself.
    """

    columns: tuple[Cells, ...]
    rows: int
    container: str
    native: Any

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def named(self) -> bool:
        """Whether columns are known by their names, and not by their places."""
        return self.container != "numpy"


def read_frame(table: Any) -> Frame:
    """Read a table of any kind.

    Args:
        table: A pandas, polars or pyarrow table, an array or nested lists, a mapping from names to columns, or what
            ``picirc.data.read`` returns.
    """
    if isinstance(table, Frame):
        return table
    if isinstance(table, Table):
        return _read_levels(table)
    if isinstance(table, Mapping):
        columns = tuple(_read_objects(text_of(name), _one_dimensional(name, table[name])) for name in table)
        return _checked(columns, "mapping", table)
    if isinstance(table, list | tuple | np.ndarray | torch.Tensor):
        return _read_array(table)
    frame = as_narwhals(table)
    if frame is not None:
        columns = tuple(_read_series(text_of(name), frame.get_column(name)) for name in frame.columns)
        return _checked(columns, str(frame.implementation).removeprefix("Implementation."), table)
    if hasattr(table, "toarray"):
        remedy = "write table.toarray(), as zeros are values here"
        raise ArgumentError("table", _EXPECTED, f"a sparse matrix ({type(table).__name__})", remedy)
    if hasattr(table, "__array__"):
        return _read_array(table)
    remedy = "write table.collect() for a lazy one" if hasattr(table, "collect") else ""
    raise ArgumentError("table", _EXPECTED, type(table).__name__, remedy)


def as_narwhals(table: Any) -> nw.DataFrame[Any] | None:
    """A data frame of any library in the one language of narwhals; None for everything else."""
    try:
        found = nw.from_native(table, eager_only=True, pass_through=True)
    except (TypeError, ValueError) as error:
        raise ArgumentError("table", "columns with names of their own", str(error)) from error
    return found if isinstance(found, nw.DataFrame) else None


def text_of(name: Any) -> str:
    """The name of a column, which in some data frames may be a number, as a text."""
    return name if isinstance(name, str) else str(name)


def _checked(columns: tuple[Cells, ...], container: str, native: Any) -> Frame:
    names = [column.name for column in columns]
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise ArgumentError("table", "a name of its own for every column", f"{twice[0]!r} twice", "rename a column")
    lengths = {len(column.values) for column in columns}
    if len(lengths) > 1:
        raise ArgumentError("table", "columns of equal length", f"lengths {sorted(lengths)}")
    if not lengths or 0 in lengths:
        got = "no rows" if lengths else "no columns"
        raise ArgumentError("table", "at least one row and one column", got)
    kept = container if container in CONTAINERS else "pandas"
    return Frame(columns, lengths.pop(), kept, native)


def _read_levels(table: Table) -> Frame:
    """A table that was read from a file: codes stand for texts, and whole numbers may be written as fractions."""
    columns = []
    for name, values in zip(table.columns, np.asarray(table.values).T, strict=True):
        numeric = values.astype(np.float64)
        if name in table.levels:
            levels = table.levels[name]
            texts = np.array([None if np.isnan(v) else levels[int(v)] for v in numeric], dtype=object)
            columns.append(Cells(name, "text", texts, tuple(levels)))
            continue
        observed = numeric[~np.isnan(numeric)]
        whole = bool((observed == np.floor(observed)).all())
        columns.append(Cells(name, "integer" if whole else "float", _finite(name, numeric)))
    return _checked(tuple(columns), "table", table)


def _read_array(table: Any) -> Frame:
    if isinstance(table, torch.Tensor):
        table = table.detach().cpu().numpy()
    if isinstance(table, np.ma.MaskedArray):
        numeric = table.dtype.kind in "biuf"
        table = np.ma.filled(table.astype(np.float64 if numeric else object), np.nan if numeric else None)
    try:
        array = np.asarray(table)
        if array.dtype.kind in "US" and not isinstance(table, np.ndarray):
            array = np.array(table, dtype=object)  # among texts numpy would turn numbers into texts too
    except ValueError as error:
        raise ArgumentError("table", "rows of equal length", "others") from error
    if array.ndim != 2:
        remedy = "write table.reshape(1, -1) for a single row, table.reshape(-1, 1) for a single column"
        raise ArgumentError("table", "two dimensions, (rows, columns)", f"shape {array.shape}", remedy)
    names = numbered(array.shape[1])
    columns = tuple(_read_objects(name, array[:, place]) for place, name in enumerate(names))
    return _checked(columns, "numpy", array)


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
        values = series.cast(nw.Float64()).to_numpy().astype(np.float64)
        if isinstance(getattr(series.to_native(), "dtype", None), np.dtype):
            return _read_numbers(name, values, dtype.is_integer())
        return Cells(name, "integer" if dtype.is_integer() else "float", _finite(name, values))
    if dtype.is_temporal():
        raise _date(name)
    cells = np.array([None] * len(series), dtype=object)
    present = np.flatnonzero(~series.is_null().to_numpy().astype(bool))
    cells[present] = [series[int(row)] for row in present] if dtype == nw.Object else series.drop_nulls().to_list()
    found = _read_objects(name, cells)
    return Cells(name, found.dtype, found.values, _declared(series))


def _declared(series: nw.Series[Any]) -> tuple[Label, ...] | None:
    """The categories of a column of a categorical type, those without a row included."""
    if isinstance(series.dtype, nw.Enum):
        return tuple(series.dtype.categories)
    native = series.to_native()
    if series.dtype != nw.Categorical or not hasattr(getattr(native, "cat", None), "categories"):
        return None  # others than pandas know only the categories that occur
    labels = native.cat.categories.tolist()
    return tuple(labels) if all(isinstance(label, str) for label in labels) else None


def _read_objects(name: str, array: Array) -> Cells:
    """A one-dimensional array of any type."""
    kind = array.dtype.kind
    if kind in "iuf":
        return _read_numbers(name, array.astype(np.float64), kind != "f")
    if kind == "b":
        return Cells(name, "boolean", array.astype(np.float64))
    if kind in "mM":
        raise _date(name)
    if kind not in "OUT":
        raise _unreadable(name, f"values of type {array.dtype}")
    cells = [None if is_missing(cell) else cell for cell in array.tolist()]
    present = [cell for cell in cells if cell is not None]
    if not present:
        return Cells(name, "float", np.full(len(cells), np.nan))
    dtype = _type_of(name, present)
    if dtype == "text":
        return Cells(name, "text", np.array([None if c is None else str(c) for c in cells], dtype=object))
    return Cells(name, dtype, _finite(name, np.array([_number(cell) for cell in cells])))


def _read_numbers(name: str, values: Array, integer: bool) -> Cells:
    """A column of a type of numpy."""
    gaps = np.isnan(values)
    whole = bool(gaps.any()) and bool((np.floor(values) == values)[~gaps].all())
    return Cells(name, "integer" if integer else "float", _finite(name, values), whole=whole)


def is_missing(cell: Any) -> bool:
    """Whether a cell stands for no value: None, NaN, NaT, NA."""
    if cell is None:
        return True
    try:
        return bool(cell != cell)
    except (TypeError, ValueError):
        return type(cell).__name__ == "NAType"  # pandas' NA is neither equal to itself nor different


def _type_of(name: str, cells: Sequence[Any]) -> str:
    """The common type of cells that are not missing."""
    types: tuple[tuple[str, Callable[[Any], bool]], ...] = (
        ("boolean", lambda c: isinstance(c, bool | np.bool_)),
        ("integer", lambda c: isinstance(c, numbers.Integral)),
        ("float", lambda c: isinstance(c, numbers.Real | Decimal)),
        ("text", lambda c: isinstance(c, str)),
        ("date", lambda c: isinstance(c, datetime.date | datetime.time | datetime.timedelta | np.datetime64)),
    )
    found = {next((word for word, is_one in types if is_one(c)), type(c).__name__): c for c in cells}
    if "date" in found:
        raise _date(name)
    strange = sorted(set(found) - set(DTYPES))
    if strange:
        raise _unreadable(name, f"{repr(found[strange[0]])[:60]} of type {strange[0]}")
    if "text" in found and len(found) > 1:
        other = next(cell for word, cell in found.items() if word != "text")
        remedy = "turn the numbers into texts, or the texts into numbers"
        raise ArgumentError(
            column_named(name), "texts alone or numbers alone", f"{found['text']!r} and {other!r}", remedy
        )
    return "text" if "text" in found else max(found, key=("boolean", "integer", "float").index)


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


def column_named(name: str) -> str:
    """How errors speak of a column; what cannot be printed is written as an escape sequence."""
    return f"column {name!r}"


def _date(name: str) -> ArgumentError:
    remedy = "turn it into a number, such as days since a date, or into parts, such as year and month; or drop it"
    return ArgumentError(column_named(name), "numbers, truth values or texts", "dates, times or durations", remedy)


def _unreadable(name: str, got: str) -> ArgumentError:
    return ArgumentError(column_named(name), "numbers, truth values or texts", got, "convert the column, or drop it")
