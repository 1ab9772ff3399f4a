"""Tables from files with the types that their columns have, for models of tables.

A column of a CSV file is of numbers if all its cells are, else of texts; one that has both is an error unless it is
declared, so that a slip of the pen in a number is not taken for a category.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from picirc.data.cells import check_names
from picirc.data.tables import MISSING, FilePath, read_cells, read_numpy, read_parquet_file
from picirc.errors import ArgumentError

Array = npt.NDArray[Any]
Content = Literal["numbers", "texts", "truths"]

ENDINGS = (".csv", ".csv.gz", ".tsv", ".parquet", ".npy", ".npz")

_WHOLE = re.compile(r"[+-]?[0-9]+")
_PADDED = re.compile(r"[+-]?0[0-9]+")  # the zeros in front would get lost in a number


@dataclass(frozen=True, eq=False)
class Columns:
    """A table as columns of their own types.

    Attributes:
        path: The file.
        values: For each name an array of numbers or truth values, or of objects: texts, or whole numbers or truth
            values of which some are missing. Missing is None, or NaN among floats.
        texts: The cells of a CSV file as they were written, None where missing; empty for other files.
        types: The pyarrow types of a Parquet file; empty for other files.
    """

    path: Path
    values: dict[str, Array]
    texts: dict[str, list[str | None]] = field(default_factory=dict)
    types: dict[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(next(iter(self.values.values())))


def read_columns(
    path: FilePath,
    contents: Mapping[str, Content] | None = None,
    *,
    delimiter: str | None = None,
    missing: Collection[str] = MISSING,
) -> Columns:
    """Read a table from a file; the ending tells the format: .csv, .csv.gz, .tsv, .parquet, .npy or .npz.

    Args:
        path: The file.
        contents: What columns of a CSV file hold where that is known: ``"numbers"``, ``"texts"``, or ``"truths"``, that
            is true and false, or 1 and 0.
        delimiter: What separates the cells of a CSV file; by default a comma, a tab in a ``.tsv`` file.
        missing: What stands for a missing value in a CSV file besides the empty cell.

    Raises:
        ArgumentError: The file is none of these, or a row or a cell of it is malformed; the error names the line.
    """
    path = Path(path)
    name = path.name.lower()
    if name.endswith(".parquet"):
        return _parquet(path)
    if name.endswith((".npy", ".npz")):
        table = read_numpy(path)
        return Columns(path, dict(zip(table.columns, table.values.T, strict=True)))
    if name.endswith((".csv", ".csv.gz", ".tsv")):
        usual = "\t" if name.endswith(".tsv") else ","
        return _csv(path, contents or {}, usual if delimiter is None else delimiter, {*missing, ""})
    raise ArgumentError(str(path), f"a file that ends in {', '.join(ENDINGS)}", path.suffix or "no ending")


def _csv(path: Path, contents: Mapping[str, Content], delimiter: str, missing: Collection[str]) -> Columns:
    lines, (header, *rows) = read_cells(path, delimiter)
    check_names(path, header, ())
    if not rows:
        raise ArgumentError(str(path), "at least one row", "a header alone")
    values, texts = {}, {}
    for index, name in enumerate(header):
        cells = [None if row[index] in missing else row[index] for row in rows]
        values[name] = _typed(path, name, cells, contents.get(name), lines[1:])
        texts[name] = cells
    return Columns(path, values, texts)


def _typed(path: Path, name: str, cells: Sequence[str | None], content: Content | None, lines: Sequence[int]) -> Array:
    """The cells of a column as numbers, as texts, or as truth values."""
    if content is None:
        content = _content(path, name, cells, lines)
    if content == "texts":
        return np.array(cells, dtype=object)
    if content == "truths":
        return _truths(path, name, cells, lines)
    for cell, line in zip(cells, lines, strict=True):
        if cell is not None and not _is_number(cell):
            remedy = "correct it, or declare that it stands for a missing value"
            raise ArgumentError(f"{path}, line {line}", f"a finite number in column {name}", cell, remedy)
    present = [cell for cell in cells if cell is not None]
    if not present or not all(map(_WHOLE.fullmatch, present)):
        return np.array([np.nan if cell is None else float(cell) for cell in cells])
    whole = np.array([None if cell is None else int(cell) for cell in cells], dtype=object)
    fits = len(present) == len(cells) and max(map(abs, whole)) < 2**63
    return whole.astype(np.int64) if fits else whole


def _content(path: Path, name: str, cells: Sequence[str | None], lines: Sequence[int]) -> Content:
    """What a column holds, by its cells."""
    kinds = [None if cell is None else _is_number(cell) for cell in cells]
    if False not in kinds:
        padded = any(cell is not None and _PADDED.fullmatch(cell) for cell in cells)
        return "texts" if padded else "numbers"
    if True not in kinds:
        return "texts"
    odd = kinds.index(kinds.count(True) < kinds.count(False))
    other = kinds.index(not kinds[odd])
    expected = f"{'a text' if kinds[odd] else 'a finite number'} in column {name} as in line {lines[other]}"
    remedy = "correct it, declare that it stands for a missing value, or declare the column categorical"
    raise ArgumentError(f"{path}, line {lines[odd]}", expected, str(cells[odd]), remedy)


def _truths(path: Path, name: str, cells: Sequence[str | None], lines: Sequence[int]) -> Array:
    known = {"true": True, "1": True, "false": False, "0": False}
    for row, cell in enumerate(cells):
        if cell is not None and cell.lower() not in known:
            raise ArgumentError(f"{path}, line {lines[row]}", f"true or false in column {name}", cell)
    return np.array([None if cell is None else known[cell.lower()] for cell in cells], dtype=object)


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell)) and "_" not in cell
    except ValueError:
        return False


def _parquet(path: Path) -> Columns:
    table = read_parquet_file(path)
    if not table.num_rows:
        raise ArgumentError(str(path), "at least one row", "none")
    check_names(path, table.column_names, ())
    values = {name: _array(column) for name, column in zip(table.column_names, table.columns, strict=True)}
    return Columns(path, values, types={column.name: column.type for column in table.schema})


def _array(column: Any) -> Array:
    """A column of a pyarrow table."""
    cells = column.to_pylist()
    plain = np.array(cells) if None not in cells else None
    if plain is not None and plain.ndim == 1 and plain.dtype.kind in "biuf":
        return plain
    if all(cell is None or isinstance(cell, float) for cell in cells):
        return np.array([np.nan if cell is None else cell for cell in cells])
    found = np.empty(len(cells), dtype=object)
    found[:] = cells
    return found
