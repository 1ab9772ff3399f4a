"""Columns of cells as tables of every kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import narwhals as nw
import numpy as np

from picirc.data.cells import Table
from picirc.tables.frames import Array, Cells, Frame, as_narwhals, text_of


def fill(frame: Frame, values: Mapping[str, Array]) -> Any:
    """The table with other values in its missing cells; observed cells stay as they are, bit for bit.

    Args:
        frame: The table.
        values: For each column that has a missing cell, values for all rows, as ``assemble`` takes them.
    """
    gaps = {cells.name: np.flatnonzero(cells.missing) for cells in frame.columns}
    gaps = {name: rows for name, rows in gaps.items() if len(rows) and name in values}
    if frame.container == "numpy":
        return _fill_array(frame, values, gaps)
    if frame.container == "table":
        return _fill_levels(frame.native, values, gaps)
    if frame.container == "mapping":
        keys = {name: text_of(name) for name in frame.native}
        return {name: _filled(frame.native[name], gaps.get(key), values.get(key)) for name, key in keys.items()}
    native = as_narwhals(frame.native)
    assert native is not None
    columns = {cells.name: cells for cells in frame.columns}
    filled = [
        _scattered(native.get_column(name), columns[text_of(name)], gaps[text_of(name)], values[text_of(name)])
        for name in native.columns
        if text_of(name) in gaps
    ]
    return native.with_columns(*filled).to_native() if filled else native.clone().to_native()


def assemble(
    container: str,
    columns: Mapping[str, Array],
    levels: Mapping[str, tuple[str, ...]],
    like: Any = None,
) -> Any:
    """A table of a kind from columns.

    Args:
        container: One of ``CONTAINERS``; a data frame whose library is not installed becomes a mapping.
        columns: An array of float64, int64, bool, or of objects (texts, or None) for each name.
        levels: The texts of the columns of categories, for tables that hold codes.
        like: A data frame whose names of columns (which need not be texts) are taken over.
    """
    if container == "numpy":
        return _as_array(list(columns.values()))
    if container == "table":
        coded = [_codes(values, levels[name]) if name in levels else values for name, values in columns.items()]
        known = {name: levels[name] for name in columns if name in levels}
        return Table(tuple(columns), np.column_stack([np.asarray(c, np.float64) for c in coded]), known)
    if container == "mapping" or find_spec(container) is None:
        return dict(columns)
    plain = {name: values.tolist() if values.dtype == object else values for name, values in columns.items()}
    made = nw.from_dict(plain, backend=container).to_native()  # type: ignore[arg-type]
    if container == "pandas" and like is not None and hasattr(like, "columns"):
        made.columns = like.columns
    return made


def _fill_array(frame: Frame, values: Mapping[str, Array], gaps: Mapping[str, Array]) -> Array:
    filled: Array = frame.native.copy()
    for place, name in enumerate(frame.names):
        if name in gaps:
            filled[gaps[name], place] = values[name][gaps[name]].tolist()
    return filled


def _fill_levels(table: Table, values: Mapping[str, Array], gaps: Mapping[str, Array]) -> Table:
    filled = np.array(table.values, copy=True)
    levels = dict(table.levels)
    for place, name in enumerate(table.columns):
        if name not in gaps:
            continue
        new = values[name][gaps[name]]
        if name in levels:
            levels[name] = tuple(dict.fromkeys([*levels[name], *(text for text in new if text is not None)]))
            new = _codes(new, levels[name])
        filled[gaps[name], place] = new
    return Table(table.columns, filled, levels)


def _filled(column: Any, rows: Array | None, values: Array | None) -> Any:
    """A column of a mapping: an array stays one, anything else becomes a list."""
    if isinstance(column, np.ndarray):
        made = column.copy()
        if rows is not None and values is not None:
            made[rows] = values[rows].tolist()
        return made
    cells = list(column)
    if rows is not None and values is not None:
        for row, value in zip(rows.tolist(), values[rows].tolist(), strict=True):
            cells[row] = value
    return cells


def _scattered(series: nw.Series[Any], cells: Cells, rows: Array, values: Array) -> nw.Series[Any]:
    """A column of a data frame with new values in some rows, in the type that it has if that can hold them."""
    backend, new = series.implementation, values[rows]
    if len(rows) == len(series) and not (series.dtype.is_numeric() and new.dtype.kind in "iuf"):
        return nw.new_series(series.name, new.tolist(), backend=backend)  # it had no type that means anything
    if series.dtype.is_numeric():
        new = np.rint(new.astype(np.float64)) if series.dtype.is_integer() else new.astype(np.float64)
    if backend.is_pyarrow():
        return _scattered_arrow(series, rows, new)
    if series.dtype.is_numeric():
        return series.scatter(rows.tolist(), nw.new_series(series.name, new, backend=backend).cast(series.dtype))
    if cells.categories is not None and not set(new) <= set(cells.categories):
        series = series.cast(nw.String())
    return series.scatter(rows.tolist(), new.tolist())


def _scattered_arrow(series: nw.Series[Any], rows: Array, new: Array) -> nw.Series[Any]:
    """The same for pyarrow, whose columns cannot be changed and whose types are many."""
    whole = series.dtype.is_integer()
    cells = series.to_list()
    for row, value in zip(rows.tolist(), new.tolist(), strict=True):
        cells[row] = int(value) if whole else value
    made = import_module("pyarrow").chunked_array([cells], type=series.to_native().type)
    found: nw.Series[Any] = nw.from_native(made, series_only=True).alias(series.name)
    return found


def _codes(texts: Array, levels: Sequence[str]) -> Array:
    number: dict[Any, float] = {level: float(code) for code, level in enumerate(levels)} | {None: np.nan}
    return np.array([number[text] for text in texts])


def _as_array(columns: Sequence[Array]) -> Array:
    """Columns side by side, in the narrowest type that holds them all."""
    kinds = {column.dtype.kind for column in columns}
    dtype: Any = object if "O" in kinds else np.float64 if "f" in kinds else np.int64 if "i" in kinds else np.bool_
    array = np.empty((len(columns[0]), len(columns)), dtype)
    for place, column in enumerate(columns):
        array[:, place] = column
    return array
