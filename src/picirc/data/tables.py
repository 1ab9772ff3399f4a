"""Tables from files: CSV, Parquet and NumPy."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Collection, Sequence
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from picirc.data.cells import (
    Categorical,
    Table,
    check_names,
    check_values,
    codes,
    not_numeric,
    numbered,
    numbers,
)
from picirc.data.unpacked import read_text
from picirc.errors import ArgumentError

MISSING = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "?")

FilePath = str | PathLike[str]


def read(path: FilePath, categorical: Categorical = ()) -> Table:
    """Read a table from a file; the ending tells the format: .csv or .csv.gz, .parquet, .npy or .npz.

    Args:
        path: The file.
        categorical: The categorical columns, as for :func:`read_csv`; a NumPy file has none.
    """
    name = Path(path).name.lower()
    if name.endswith((".csv", ".csv.gz")):
        return read_csv(path, categorical)
    if name.endswith(".parquet"):
        return read_parquet(path, categorical)
    if not name.endswith((".npy", ".npz")):
        raise ArgumentError("path", "a file that ends in .csv, .csv.gz, .parquet, .npy or .npz", str(path))
    if categorical:
        raise ArgumentError("categorical", "none for a NumPy file, which holds numbers only", list(categorical))
    return read_numpy(path)


def read_csv(
    path: FilePath,
    categorical: Categorical = (),
    *,
    header: bool = True,
    delimiter: str = ",",
    missing: Collection[str] = MISSING,
) -> Table:
    """Read a CSV file in UTF-8, packed with gzip or not.

    Args:
        path: The file.
        categorical: The names of the categorical columns, whose levels are numbered in the order of their texts; or
            a mapping from the names to their levels. Read the test table with the ``levels`` of the training table.
        header: Whether the first line has the names; without it they are x0, x1, ….
        delimiter: What separates the cells.
        missing: What stands for a missing value. White space around a cell does not count; empty lines are skipped.

    Raises:
        ArgumentError: A row has another number of cells than the first line, or a cell is no finite number or
            no known level; the error names the file and the line.
    """
    path = Path(path)
    lines, rows = read_cells(path, delimiter)
    columns = tuple(rows[0]) if header else numbered(len(rows[0]))
    if header:
        lines, rows = lines[1:], rows[1:]
    if not rows:
        raise ArgumentError(str(path), "at least one row", "a header alone")
    check_names(path, columns, categorical)

    def place(row: int) -> str:
        return f"{path}, line {lines[row]}"

    values = np.empty((len(rows), len(columns)))
    levels = {}
    for index, name in enumerate(columns):
        cells = [None if row[index] in missing else row[index] for row in rows]
        if name in categorical:
            values[:, index], levels[name] = codes(name, cells, categorical, place)
        else:
            values[:, index] = numbers(name, cells, place)
    return Table(columns, values, levels)


def read_parquet(path: FilePath, categorical: Categorical = ()) -> Table:
    """Read a Parquet file, in which nulls are missing values; this needs pyarrow, the extra ``picirc[data]``.

    Args:
        path: The file.
        categorical: The categorical columns, as for :func:`read_csv`.

    Raises:
        ArgumentError: pyarrow is not installed, the file is none, or a column that is not declared categorical holds
            something else than finite numbers.
    """
    path = Path(path)
    table = read_parquet_file(path)
    arrow = import_module("pyarrow")
    columns = tuple(table.column_names)
    check_names(path, columns, categorical)
    kinds = arrow.types
    numeric = (kinds.is_integer, kinds.is_floating, kinds.is_boolean, kinds.is_decimal)
    values = np.empty((table.num_rows, len(columns)))
    levels = {}
    for index, (name, column) in enumerate(zip(columns, table.columns, strict=True)):
        if name in categorical:
            cells = [None if cell is None else str(cell) for cell in column.to_pylist()]
            values[:, index], levels[name] = codes(name, cells, categorical, lambda row: f"{path}, row {row}")
            continue
        if not any(is_kind(column.type) for is_kind in numeric):  # a cast would also read text as numbers
            raise not_numeric(str(path), name, str(column.type))
        try:
            values[:, index] = column.cast("float64").to_numpy()
        except arrow.ArrowInvalid as error:
            raise not_numeric(str(path), name, f"one that no float holds exactly ({error})") from error
    return Table(columns, check_values(path, values), levels)


def read_parquet_file(path: Path) -> Any:
    """Return the pyarrow table in a Parquet file."""
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        remedy = "install the extra picirc[data]"
        raise ArgumentError("path", "a file that can be read without pyarrow", str(path), remedy) from error
    if not path.is_file():
        raise ArgumentError(str(path), "a file", "none there")
    try:
        return parquet.read_table(path)
    except (OSError, arrow.ArrowException) as error:
        raise ArgumentError(str(path), "a Parquet file", f"none ({error})") from error


def read_numpy(path: FilePath, key: str | None = None) -> Table:
    """Read an array (row, column) from an .npy or .npz file; the columns are x0, x1, ….

    Args:
        path: The file.
        key: Which array of an .npz file; not needed if there is only one.

    Raises:
        ArgumentError: It is no NumPy file, or holds no such array, or one that is no table of numbers.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            array = loaded if isinstance(loaded, np.ndarray) else loaded[_chosen_key(path, loaded.files, key)]
    except ArgumentError:
        raise
    except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
        raise ArgumentError(str(path), "a whole NumPy file of plain numbers", f"none ({error})") from error
    values = check_values(path, array)
    return Table(numbered(values.shape[1]), values)


def read_cells(path: Path, delimiter: str) -> tuple[list[int], list[list[str]]]:
    """Return the cells of every row, all of the same number, and the lines on which the rows begin."""
    if len(delimiter) != 1:
        raise ArgumentError("delimiter", "one character", delimiter)
    text = io.StringIO(read_text(path), newline="")
    reader = csv.reader(text, delimiter=delimiter, skipinitialspace=True, strict=True)
    lines: list[int] = []
    rows: list[list[str]] = []
    last = 0  # the line on which the row before ended
    try:
        for row in reader:
            line, last = last + 1, reader.line_num
            if not row:
                continue
            if rows and len(row) != len(rows[0]):
                expected = f"{len(rows[0])} cells, as in line {lines[0]}"
                raise ArgumentError(f"{path}, line {line}", expected, len(row))
            lines.append(line)
            rows.append([cell.strip() for cell in row])
    except csv.Error as error:
        raise ArgumentError(f"{path}, line {last + 1}", "a row of a CSV file", str(error)) from error
    if not rows:
        raise ArgumentError(str(path), "a CSV file", "an empty one")
    return lines, rows


def _chosen_key(path: Path, keys: Sequence[str], key: str | None) -> str:
    if key is None and len(keys) == 1:
        return keys[0]
    if key is None or key not in keys:
        raise ArgumentError("key", f"one of {', '.join(keys)}, the arrays of {path}", key)
    return key
