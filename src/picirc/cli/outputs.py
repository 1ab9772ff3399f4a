"""Tables that a command writes, whole or not at all."""

from __future__ import annotations

import csv
import gzip
import io
import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from picirc.io.files import replace_files

Column = Sequence[Any]


def write_columns(
    out: Path, columns: Mapping[str, Column], types: Mapping[str, Any] | None = None, delimiter: str | None = None
) -> None:
    """Write a table; the ending tells the format.

    Args:
        out: The file.
        columns: The cells of each column, None or NaN where missing.
        types: The pyarrow types of columns of a Parquet file; by default what suits the cells.
        delimiter: What separates the cells of a CSV file; by default a comma, a tab in a ``.tsv`` file.
    """
    name = out.name.lower()
    if name.endswith(".parquet"):
        content = _parquet(columns, types or {})
    else:
        content = encode_csv(columns, delimiter or ("\t" if name.endswith(".tsv") else ","))
        if name.endswith(".gz"):
            content = gzip.compress(content, mtime=0)  # the same cells make the same file
    replace_files({out: content})


def text_of(cell: object) -> str:
    """A cell as it stands in a CSV file.

    Example:
        >>> [text_of(cell) for cell in (None, math.nan, 3, 0.1, "a b")]
        ['', '', '3', '0.1', 'a b']
    """
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    return repr(cell) if isinstance(cell, float) else str(cell)


def encode_csv(columns: Mapping[str, Column], delimiter: str = ",") -> bytes:
    """The bytes of a CSV file."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(map(text_of, _plain(cells)) for cells in columns.values()), strict=True))
    return text.getvalue().encode()


def _parquet(columns: Mapping[str, Column], types: Mapping[str, Any]) -> bytes:
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    arrays = {}
    for name, cells in columns.items():
        plain = [None if text_of(cell) == "" and not isinstance(cell, str) else cell for cell in _plain(cells)]
        try:
            arrays[name] = arrow.array(plain, types.get(name))
        except (arrow.ArrowInvalid, arrow.ArrowTypeError, arrow.ArrowNotImplementedError):
            arrays[name] = arrow.array(plain)  # a number of another type than the rest of the column
    content = io.BytesIO()
    parquet.write_table(arrow.table(arrays), content)
    return content.getvalue()


def _plain(cells: Column) -> list[Any]:
    """The cells as values of Python's own."""
    found: list[Any] = cells.tolist() if hasattr(cells, "tolist") else list(cells)
    return found
