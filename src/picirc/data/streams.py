# SPDX-License-Identifier: Apache-2.0
"""Tables in Parquet files that are read in parts: a file, a folder of files, or a ``pyarrow.dataset``.

The unit of reading is a row group. Each can be read by itself, in any order and by any process. Within a row group
pages are read when they are needed; pyarrow's own scanner would read many row groups ahead, and need more memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

from picirc.data.tables import import_arrow
from picirc.errors import ArgumentError

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
