# SPDX-License-Identifier: Apache-2.0
"""Tables in CSV, Parquet and NumPy files: reading them as frames or as arrays of numbers, and writing them.

The cells of a CSV file are strings. A column has numbers if all its cells are numbers, else strings. A column that
mixes both is an error unless its type is known, so that a typing error in a number does not become a category.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from picirc.data.datasets import check_expansion, read_text
from picirc.data.frames import (
    DATED,
    Array,
    Cells,
    Frame,
    Table,
    as_dates,
    codes_of,
    few,
    is_iso,
    numbered,
    read_frame,
    read_numbers,
)
from picirc.errors import ArgumentError
from picirc.structure.information import as_matrix

FilePath = str | PathLike[str]
# The names of categorical columns, or a mapping from the names to their levels.
Categorical = Collection[str] | Mapping[str, Sequence[str]]

MISSING = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "?")
ENDINGS = (".csv", ".csv.gz", ".tsv", ".parquet", ".npy", ".npz")

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # a spreadsheet program evaluates cells that begin with these
_WHOLE = re.compile(r"[+-]?[0-9]+")
_PADDED = re.compile(r"[+-]?0[0-9]+")  # leading zeros would be lost in a number
_BOOLEANS = {"true": 1.0, "1": 1.0, "false": 0.0, "0": 0.0}
# What NumPy raises for a file that is damaged or of another format; the header is a Python expression.
_NOT_NUMPY = (
    *(OSError, EOFError, ValueError, TypeError, LookupError, SyntaxError, OverflowError, MemoryError, RecursionError),
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError, NotImplementedError, AttributeError),
)
_USUAL_NUMBERS = 2**30  # bytes to which any binary file may expand
_LARGEST_INTEGER = 2.0**53  # below, every integer is a float
_CORRECT = "correct it, declare it a missing value, or declare the column: categorical=[{!r}]"
_MOSTLY = 0.9  # a column of a CSV file with more dates than this is a column of dates with mistakes
_NUMBER_OF = "convert the column to numbers"
# Strings that are not meant as categories: a pattern, what it matches, and what to do about it.
_DISGUISED = (
    (
        r"\d{4}-\d{1,2}-\d{1,2}([T ]\d.*)?|\d{1,2}[/.]\d{1,2}[/.](\d{4}|\d{2})( \d.*)?|\d{4}/\d{1,2}/\d{1,2}",
        "dates",
        "turn them into dates (pandas.to_datetime; 2024-01-31 in a file), or drop the column",
    ),
    (r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?", "times", "turn them into numbers, such as hours, or drop the column"),
    (r"[+-]?\d+([.,]\d+)?\s*%", "percentages", f"remove the signs and {_NUMBER_OF}"),
    (r"[+-]?[$€£¥]\s*[+-]?\d[\d.,]*|[+-]?\d[\d.,]*\s*[$€£¥]", "amounts of money", f"remove the signs and {_NUMBER_OF}"),
    (r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?", "numbers with thousands separators", f"remove the commas and {_NUMBER_OF}"),
    (
        r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+",
        "numbers with decimal commas",
        f"write decimal points (pandas.read_csv has decimal=',') and {_NUMBER_OF}",
    ),
)


def read_file(
    path: FilePath,
    *,
    delimiter: str | None = None,
    missing: Collection[str] = MISSING,
    largest: int | None = None,
) -> Frame:
    """Read a table from a file that ends in .csv, .csv.gz, .tsv, .parquet, .npy or .npz.

    Args:
        path: The file.
        delimiter: The separator of the cells of a CSV file; by default a comma, or a tab in a ``.tsv`` file.
        missing: Strings that mean a missing value in a CSV file, besides the empty cell.
        largest: The bytes to which a compressed or binary file may expand; by default 20 times its size, and at least
            16 MiB for text and 1 GiB for numbers.

    Raises:
        ArgumentError: The file has another format, or is malformed; the error names the line. A malformed cell is
            reported when its column is read.
    """
    path = Path(path)
    name = path.name.lower()
    if not name.endswith(ENDINGS):
        raise ArgumentError(str(path), f"a file that ends in {', '.join(ENDINGS)}", path.suffix or "no ending")
    if name.endswith(".parquet"):
        return _parquet_frame(path, largest)
    if name.endswith((".npy", ".npz")):
        table = read_numpy(path, largest=largest)
        return read_frame(dict(zip(table.columns, table.values.T, strict=True)))
    usual = "\t" if name.endswith(".tsv") else ","
    return _csv_frame(path, usual if delimiter is None else delimiter, {*missing, ""}, largest=largest)


def read(path: FilePath, categorical: Categorical = ()) -> Table:
    """Read a table of numbers from a file that ends in .csv, .csv.gz, .tsv, .parquet, .npy or .npz.

    Args:
        path: The file.
        categorical: The categorical columns, as for :func:`read_csv`; a NumPy file has none.
    """
    if not Path(path).name.lower().endswith((".npy", ".npz")):
        return _as_table(path, read_file(path), categorical)
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
    """Read a table of numbers from a CSV file in UTF-8, compressed with gzip or not.

    Args:
        path: The file.
        categorical: The names of the categorical columns, whose levels are numbered in alphabetical order; or a mapping
            from the names to their levels. Read the test table with the ``levels`` of the training table.
        header: Whether the first line has the names; otherwise they are x0, x1, ….
        delimiter: The separator of the cells.
        missing: Strings that mean a missing value. White space around cells and empty lines are ignored.

    Raises:
        ArgumentError: The rows have different lengths, or a cell is neither a finite number nor a known level; the
            error names the line.
    """
    return _as_table(path, _csv_frame(Path(path), delimiter, missing, header), categorical)


def read_parquet(path: FilePath, categorical: Categorical = ()) -> Table:
    """Read a table of numbers from a Parquet file; needs pyarrow, the extra ``picirc[data]``.

    Args:
        path: The file.
        categorical: The categorical columns, as for :func:`read_csv`.

    Raises:
        ArgumentError: pyarrow is not installed, the file is not a Parquet file, or a column is neither declared
            categorical nor has only finite numbers.
    """
    return _as_table(path, _parquet_frame(Path(path)), categorical)


def read_numpy(path: FilePath, key: str | None = None, largest: int | None = None) -> Table:
    """Read an array (row, column) from an .npy or .npz file; the columns are x0, x1, ….

    Args:
        path: The file.
        key: The name of the array in an .npz file; not needed if there is only one.
        largest: The bytes to which an .npz file may expand, as for :func:`read_file`.

    Raises:
        ArgumentError: It is not a NumPy file, or there is no such array, or it is not a table of numbers.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"PK"
        if packed:
            with zipfile.ZipFile(path) as archive:
                check_expansion(path, sum(member.file_size for member in archive.infolist()), _USUAL_NUMBERS, largest)
            with np.load(path, allow_pickle=False) as loaded:
                chosen = loaded.files[0] if key is None and len(loaded.files) == 1 else key
                if chosen not in loaded.files:
                    raise ArgumentError("key", f"one of {', '.join(loaded.files)}, the arrays of {path}", key)
                array = loaded[chosen]
        else:  # mapped, so that no memory is allocated for a size that the header claims falsely
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        values = as_matrix(array)
    except ArgumentError as error:
        if error.argument in ("key", str(path)):
            raise
        raise ArgumentError(str(path), "a table of finite numbers, (row, column)", f"another ({error})") from error
    except _NOT_NUMPY as error:
        raise ArgumentError(str(path), "a whole NumPy file of plain numbers", f"none ({error})") from error
    return Table(numbered(values.shape[1]), values)


def encode_table(name: str, columns: Any, delimiter: str | None = None, safe: bool = False) -> bytes:
    """The content of a file of a table.

    Args:
        name: The name of the file, which ends in .csv, .csv.gz, .tsv or .parquet.
        columns: The cells of each column by name, None or NaN where missing; or a pyarrow table.
        delimiter: The separator of the cells of a CSV file; by default a comma, or a tab in a ``.tsv`` file.
        safe: Whether to write an apostrophe before strings in a CSV file that spreadsheet programs take for formulas.
    """
    name = name.lower()
    if name.endswith(".parquet"):
        return _encode_parquet(columns)
    if not isinstance(columns, Mapping):
        columns = columns.to_pydict()
    text, shown = io.StringIO(newline=""), spreadsheet_text if safe else cell_text
    writer = csv.writer(text, delimiter=delimiter or ("\t" if name.endswith(".tsv") else ","), lineterminator="\n")
    writer.writerow(map(shown, columns))
    writer.writerows(zip(*(map(shown, _as_list(cells)) for cells in columns.values()), strict=True))
    content = text.getvalue().encode()
    return gzip.compress(content, mtime=0) if name.endswith(".gz") else content  # the same cells give the same file


def dtype_for(kind: str) -> str | None:
    """The type of a column of a kind in a CSV file; None to infer it. Categories may look like numbers."""
    return {"auto": None, "bernoulli": None, "categorical": "text"}.get(kind, "float")


def disguised(texts: Sequence[str]) -> tuple[str, str] | None:
    """If strings are dates, times, percentages or numbers in another notation, say so, with a remedy.

    Example:
        >>> disguised(["1,234", "999"])
        ("numbers with thousands separators such as '1,234'", 'remove the commas and convert the column to numbers')
        >>> disguised(["red", "37%"])
    """
    for pattern, what, remedy in _DISGUISED:
        shown = next((text for text in texts if re.fullmatch(pattern, text.strip())), None)
        if shown is not None and all(re.fullmatch(pattern, text.strip()) or _is_number(text) for text in texts):
            return f"{what} such as {shown!r:.40}", remedy
    return None


def cell_text(cell: object) -> str:
    """A cell in a CSV file.

    Example:
        >>> [cell_text(cell) for cell in (None, math.nan, 3, 0.1, "a b")]
        ['', '', '3', '0.1', 'a b']
    """
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    return repr(cell) if isinstance(cell, float) else str(cell)


def spreadsheet_text(cell: object) -> str:
    """The same, with an apostrophe before a string that a spreadsheet program would take for a formula.

    Example:
        >>> [spreadsheet_text(cell) for cell in (-1.5, "-1.5", "=1+1", "@x", "a=b", None)]
        ['-1.5', '-1.5', "'=1+1", "'@x", 'a=b', '']
    """
    shown = cell_text(cell)
    formula = isinstance(cell, str) and shown.startswith(_FORMULA) and not _is_number(shown)
    return f"'{shown}" if formula else shown


def typed_cells(texts: Sequence[str | None]) -> list[Any]:
    """The cells of a CSV column of unknown type as integers, floats or strings.

    Example:
        >>> typed_cells(["1", None, "20"]), typed_cells(["1", "2.5"]), typed_cells(["01", "2"]), typed_cells(["1", "x"])
        ([1, None, 20], [1.0, 2.5], ['01', '2'], ['1', 'x'])
    """
    present = [text for text in texts if text is not None]
    if any(map(_PADDED.fullmatch, present)) or not all(map(_is_number, present)):
        return list(texts)
    convert = int if all(map(_WHOLE.fullmatch, present)) else float
    return [None if text is None else convert(text) for text in texts]


# CSV


def _csv_frame(
    path: Path, delimiter: str, missing: Collection[str], header: bool = True, largest: int | None = None
) -> Frame:
    lines, rows = _read_rows(path, delimiter, largest)
    names = tuple(rows[0]) if header else numbered(len(rows[0]))
    if header:
        lines, rows = lines[1:], rows[1:]
    if not rows:
        raise ArgumentError(str(path), "at least one row", "a header alone")
    _check_names(path, names)
    columns = zip(*rows, strict=True)
    written = {
        name: [None if cell in missing else cell for cell in cells] for name, cells in zip(names, columns, strict=True)
    }

    @cache
    def read(name: str, dtype: str | None) -> Cells:
        return _typed(path, name, written[name], dtype, lines)

    return Frame(names, len(rows), "mapping", None, read, written, lines)


def _read_rows(path: Path, delimiter: str, largest: int | None) -> tuple[list[int], list[list[str]]]:
    """The lines on which the rows begin, and their cells; all rows have the same length."""
    if len(delimiter) != 1:
        raise ArgumentError("delimiter", "one character", delimiter)
    text = io.StringIO(read_text(path, largest), newline="")
    reader = csv.reader(text, delimiter=delimiter, skipinitialspace=True, strict=True)
    lines: list[int] = []
    rows: list[list[str]] = []
    last = 0  # the line on which the previous row ended
    try:
        for row in reader:
            line, last = last + 1, reader.line_num
            if not row:
                continue
            if rows and len(row) != len(rows[0]):
                expected = f"{len(rows[0])} cells, as in line {lines[0]}"
                others = [sign for sign in ";\t|," if sign != delimiter and any(sign in cell for cell in rows[0])]
                remedy = f"set the delimiter to {others[0]!r} if it separates the cells" if others else ""
                raise ArgumentError(f"{path}, line {line}", expected, len(row), remedy)
            lines.append(line)
            rows.append([cell.strip() for cell in row])
    except csv.Error as error:
        raise ArgumentError(f"{path}, line {last + 1}", "a row of a CSV file", str(error)) from error
    if not rows:
        raise ArgumentError(str(path), "a CSV file", "an empty one")
    return lines, rows


def _check_names(path: Path, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if not name or name in seen:
            got = f"{name!r} twice" if name else f"none for column {index}"
            raise ArgumentError(str(path), "a unique name for every column", got)
        seen.add(name)


def _typed(path: Path, name: str, cells: Sequence[str | None], dtype: str | None, lines: Sequence[int]) -> Cells:
    """Parse the cells of a column."""
    present = [cell for cell in cells if cell is not None]
    if not present:
        return Cells(name, "float", np.full(len(cells), np.nan))
    if dtype is None:
        dtype = _inferred(path, name, cells, lines)
    if dtype == "float" and all(map(is_iso, present)):
        dtype = "date"
    if dtype == "text":
        return Cells(name, "text", np.array(cells, dtype=object))

    def check(fits: Callable[[str], object], expected: str, remedy: str = "") -> None:
        wrong = next((place for place, cell in enumerate(cells) if cell is not None and not fits(cell)), None)
        if wrong is not None:
            place = f"{path}, line {lines[wrong]}"
            raise ArgumentError(place, f"{expected} in column {name}", str(cells[wrong]), remedy)

    if dtype in DATED:
        check(is_iso, "a date such as 2024-01-31")
        return as_dates(Cells(name, "text", np.array(cells, dtype=object)))
    if dtype == "boolean":
        check(lambda cell: cell.lower() in _BOOLEANS, "true or false")
        return Cells(name, dtype, np.array([np.nan if c is None else _BOOLEANS[c.lower()] for c in cells]))
    check(_is_number, "a finite number", _CORRECT.format(name))
    values = np.array([np.nan if cell is None else float(cell) for cell in cells])
    return read_numbers(name, values, all(map(_WHOLE.fullmatch, present)))


def _inferred(path: Path, name: str, cells: Sequence[str | None], lines: Sequence[int]) -> str:
    """Infer the type of a column from its cells."""
    kinds = [None if cell is None else _is_number(cell) for cell in cells]
    if False not in kinds:
        padded = any(cell is not None and _PADDED.fullmatch(cell) for cell in cells)
        return "text" if padded else "float"
    if True not in kinds:
        dates = sum(cell is not None and is_iso(cell) for cell in cells)
        return "date" if dates > _MOSTLY * kinds.count(False) else "text"
    found = disguised([cell for cell in cells if cell is not None])
    if found is not None:
        place = next(place for place, kind in enumerate(kinds) if kind is False)
        raise ArgumentError(f"{path}, line {lines[place]}", f"a finite number in column {name}", found[0], found[1])
    odd = kinds.index(kinds.count(True) < kinds.count(False))
    other = kinds.index(not kinds[odd])
    expected = f"{'a string' if kinds[odd] else 'a finite number'} in column {name} as in line {lines[other]}"
    remedy = "correct it, declare it a missing value, or declare the column categorical"
    raise ArgumentError(f"{path}, line {lines[odd]}", expected, str(cells[odd]), remedy)


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell)) and "_" not in cell
    except ValueError:
        return False


def _as_list(cells: Any) -> list[Any]:
    """The cells as Python values."""
    found: list[Any] = cells.tolist() if hasattr(cells, "tolist") else list(cells)
    return found


# Parquet


def import_arrow(path: Path, *names: str) -> list[Any]:
    """Import modules of pyarrow, an optional dependency, to read a file."""
    try:
        return [import_module(name) for name in names]
    except ImportError as error:
        remedy = "install the extra picirc[data]"
        raise ArgumentError("path", "a file that can be read without pyarrow", str(path), remedy) from error


def _parquet_frame(path: Path, largest: int | None = None) -> Frame:
    arrow, parquet = import_arrow(path, "pyarrow", "pyarrow.parquet")
    if not path.is_file():
        raise ArgumentError(str(path), "a file", "none there")
    try:
        about = parquet.read_metadata(path)
        check_expansion(path, 8 * about.num_rows * about.num_columns, _USUAL_NUMBERS, largest)
        table = parquet.read_table(path)
    except (OSError, arrow.ArrowException, MemoryError, OverflowError) as error:
        raise ArgumentError(str(path), "a Parquet file", f"none ({error})") from error
    if not table.num_rows:
        raise ArgumentError(str(path), "at least one row", "none")
    _check_names(path, table.column_names)
    return replace(read_frame(table), container="mapping")  # a file does not determine the kind of table to return


def _encode_parquet(columns: Any) -> bytes:
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    if isinstance(columns, Mapping):
        cells = {
            name: [None if cell != cell else cell for cell in _as_list(column)] for name, column in columns.items()
        }
        columns = arrow.table(cells)
    content = io.BytesIO()
    parquet.write_table(columns, content)
    return content.getvalue()


# Numbers


def _as_table(path: FilePath, frame: Frame, categorical: Categorical) -> Table:
    """The frame as numbers. Columns of strings must be declared categorical."""
    if isinstance(categorical, str):
        raise ArgumentError("categorical", "a collection of names", categorical, f"write [{categorical!r}]")
    unknown = [name for name in categorical if name not in frame.names]
    if unknown:
        raise ArgumentError("categorical", f"names among {few(frame.names)}", unknown[0])
    values, levels = np.empty((frame.rows, len(frame.names))), {}
    for index, name in enumerate(frame.names):
        if name in categorical:
            known = categorical[name] if isinstance(categorical, Mapping) else None
            values[:, index], levels[name] = _coded(path, name, frame, known)
        else:
            values[:, index] = _numbers(path, name, frame)
    return Table(frame.names, values, levels)


def _numbers(path: FilePath, name: str, frame: Frame) -> Array:
    try:
        cells = frame.cells(name, "float")
    except ArgumentError as error:
        if frame.written is not None:  # the error names the line
            raise
        raise _not_numeric(str(path), name, f"another column ({error})") from error
    if cells.dtype in ("text", *DATED):
        raise _not_numeric(str(path), name, "strings" if cells.dtype == "text" else "dates")
    if frame.written is None and cells.dtype == "integer" and (np.abs(cells.values) >= _LARGEST_INTEGER).any():
        raise _not_numeric(str(path), name, "one that no float holds exactly")
    return cells.values


def _coded(path: FilePath, name: str, frame: Frame, known: Sequence[str] | None) -> tuple[Array, tuple[str, ...]]:
    """The codes of a categorical column and its levels."""
    cells = np.array([None if c is None else str(c) for c in frame.cells(name, "text").objects()], dtype=object)
    levels = tuple(sorted({cell for cell in cells if cell is not None}) if known is None else known)
    if not levels or len(set(levels)) < len(levels):
        raise ArgumentError("categorical", f"distinct levels for column {name}, at least one", levels)
    codes = codes_of(cells, levels)
    strange = [row for row, cell in enumerate(cells) if cell is not None and np.isnan(codes[row])]
    if strange:
        row = strange[0]
        place = f"{path}, line {frame.lines[row]}" if frame.lines else f"{path}, row {row}"
        raise ArgumentError(place, f"a known level of column {name} ({few(levels)})", cells[row])
    return codes, levels


def _not_numeric(place: str, name: str, got: str) -> ArgumentError:
    return ArgumentError(place, f"a finite number in column {name}", got, _CORRECT.format(name))


# Streams: Parquet files, folders of them, or a ``pyarrow.dataset``, that are read in parts
#
# The unit of reading is a row group. Each can be read by itself, in any order and by any process. Within a row group
# pages are read when they are needed; pyarrow's own scanner would read many row groups ahead, and need more memory.


_BUFFER = 2**20  # bytes of a column to read ahead
CHUNK = 8192  # rows to read at a time


@dataclass(frozen=True)
class Group:
    """A row group."""

    file: int  # the number of its file
    place: int  # its number in the file
    start: int  # the number of its first row in the whole table
    rows: int  # the number of rows


class Stream:
    """A table in Parquet files; only the footers are read at first.

    Args:
        dataset: A ``pyarrow.dataset`` of Parquet files.
        names: The columns to read; by default all.
    """

    def __init__(self, dataset: Any, names: Sequence[str] | None = None) -> None:
        self._dataset = dataset
        self._fragments = list(dataset.get_fragments())
        self.names: tuple[str, ...] = tuple(dataset.schema.names if names is None else names)
        groups, start = [], 0
        for file, fragment in enumerate(self._fragments):
            for place, group in enumerate(_row_groups(fragment)):
                if group.num_rows:
                    groups.append(Group(file, place, start, group.num_rows))
                    start += group.num_rows
        self.groups: tuple[Group, ...] = tuple(groups)
        self.rows = start
        if not start:
            raise ArgumentError("table", "at least one row", "none")

    def select(self, names: Sequence[str]) -> Stream:
        """The stream with some of its columns."""
        return Stream(self._dataset, names)

    def chunks(self, group: Group, size: int = CHUNK) -> Iterator[Any]:
        """The rows of a group in order, as Arrow tables of at most ``size`` rows."""
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
        fragment, schema = self._fragments[group.file], self._dataset.schema
        known = import_module("pyarrow.dataset").get_partition_keys(fragment.partition_expression)
        with fragment.open() as source, parquet.ParquetFile(source, buffer_size=_BUFFER, pre_buffer=False) as file:
            own = [name for name in self.names if name in file.schema_arrow.names]
            for batch in file.iter_batches(size, row_groups=[group.place], columns=own, use_threads=False):
                columns = {
                    name: batch.column(name).cast(schema.field(name).type)
                    if name in own
                    else arrow.array([known.get(name)] * batch.num_rows, schema.field(name).type)
                    for name in self.names
                }
                yield arrow.table(columns).replace_schema_metadata(schema.metadata)

    def read(self) -> Any:
        """The whole table."""
        return import_module("pyarrow").concat_tables(chunk for group in self.groups for chunk in self.chunks(group))


def open_stream(table: Any) -> Stream | None:
    """A stream of a Parquet file, a folder of them or a ``pyarrow.dataset``; None for everything else."""
    if isinstance(table, Stream):
        return table
    if isinstance(table, str | PathLike):
        path = Path(table)
        if not path.is_dir() and not path.name.lower().endswith(".parquet"):
            return None
        return Stream(_dataset_at(path))
    if type(table).__module__.startswith("pyarrow") and hasattr(table, "get_fragments"):
        return Stream(table)
    return None


def _dataset_at(path: Path) -> Any:
    arrow, datasets = import_arrow(path, "pyarrow", "pyarrow.dataset")
    if not path.exists():
        raise ArgumentError(str(path), "a file or a folder", "none there")
    files = [path]
    if path.is_dir():
        found = sorted(file for file in path.rglob("*.parquet") if file.is_file())
        hidden = [any(p.startswith((".", "_")) for p in file.relative_to(path).parts) for file in found]
        files = [file for file, skipped in zip(found, hidden, strict=True) if not skipped]
        if not files:
            raise ArgumentError(str(path), "a folder of Parquet files", "none there")
    try:
        return datasets.dataset([str(file) for file in files], format="parquet", partitioning="hive",
                                partition_base_dir=str(path if path.is_dir() else path.parent))  # fmt: skip
    except (OSError, arrow.ArrowException) as error:
        raise ArgumentError(str(path), "Parquet files with the same columns", f"others ({error})") from error


def _row_groups(fragment: Any) -> Any:
    if not hasattr(fragment, "row_groups"):
        raise ArgumentError("table", "a dataset of Parquet files", f"one of {fragment.format.default_extname} files")
    arrow = import_module("pyarrow")
    try:
        return fragment.row_groups
    except (OSError, arrow.ArrowException) as error:
        raise ArgumentError(str(fragment.path), "a Parquet file", f"none ({error})") from error
