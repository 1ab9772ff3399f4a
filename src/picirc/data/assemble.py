# SPDX-License-Identifier: Apache-2.0
"""Tables of the user's own kind and types, made from columns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import narwhals as nw
import numpy as np

from picirc.data.dates import DATED, objects_of, unit_of, zone_of
from picirc.data.frames import Array, Cells, Frame, Table, as_narwhals, codes_of


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
