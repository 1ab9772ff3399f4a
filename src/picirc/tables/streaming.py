# SPDX-License-Identifier: Apache-2.0
"""Learning from tables that do not fit into memory.

One pass over a table keeps a random sample of its rows, and with it the rows with the smallest and the largest number
of each column and one for each category. What the columns are follows from these. A second pass counts how often levels
of two columns occur together, and the tree follows from the counts. Training then reads the row groups in random order,
several at a time, through a buffer that is shuffled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor

from picirc.data.frames import Array, Frame, read_frame
from picirc.data.tables import CHUNK, Group, Stream, open_stream
from picirc.errors import ArgumentError
from picirc.learning.processes import Processes
from picirc.tables.column import Declared, Numbers
from picirc.tables.defaults import MOST_INTEGER_CATEGORIES
from picirc.tables.schema import Schema

# Tables of at most this many cells are read as a whole.
MOST_CELLS = 2**24
_SAMPLED_CELLS, _FEWEST_SAMPLED, _MOST_SAMPLED = 2**22, 10_000, 200_000
_MOST_CATEGORIES = 100_000  # of a column that are told apart
_SCANNED = 2**16  # rows of a chunk of the first two passes
_POOLED_CELLS, _FEWEST_POOLED = 2**22, 4096  # of the buffer that is shuffled
_OPEN = 8  # row groups that are read at the same time


@dataclass(frozen=True)
class TableData:
    """A table to learn from: all of it, or a sample and the way to the rest.

    Attributes:
        frame: The table or the sample.
        rows: The number of rows of the table.
        stream: The table in files, if it is streamed.
        indices: The numbers of the rows of the sample.
        missing: The number of missing cells of each column.
    """

    frame: Frame
    rows: int
    stream: Stream | None = None
    indices: Array = field(default_factory=lambda: np.empty(0, np.int64))
    missing: Mapping[str, int] = field(default_factory=dict)

    def schema(self, columns: Declared | Mapping[Any, Declared] | None, unseen: str, floor: float) -> Schema:
        """What the columns are."""
        found = Schema.infer(self.frame, columns, unseen=unseen, floor=floor)
        if self.stream is None:
            return found
        counted = tuple(replace(column, missing=self.missing[column.name]) for column in found.columns)
        return replace(found, columns=counted, rows=self.rows)

    def training(self, schema: Schema, rows: Numbers, kept: Array, held: Array, size: int, seed: int) -> Any:
        """What to train on: the rows of the table that are kept, or batches of all but those held out.

        Args:
            schema: What the columns are.
            rows: The encoded frame.
            kept: The rows to learn from.
            held: The rows held out.
            size: The rows of a batch.
            seed: Decides the order.
        """
        own = rows[kept].astype(np.float32)
        if self.stream is None:
            return own
        return StreamBatches(self.parts(schema, rows, held), own, size, seed)

    def parts(self, schema: Schema, rows: Numbers, held: Array) -> StreamRows:
        """All rows of a streamed table but those held out; the arguments are those of ``training``."""
        assert self.stream is not None
        return StreamRows(self.stream, schema.encode, np.sort(self.indices[held]), rows)


def read_data(table: Any, seed: int) -> TableData:
    """Read a table, or a sample of it if it is in Parquet files and large; what was read before stays as it is."""
    if isinstance(table, TableData):
        return table
    stream = open_stream(table)
    if stream is None:
        frame = read_frame(table)
        return TableData(frame, frame.rows)
    container = "mapping" if isinstance(table, Stream | str) or hasattr(table, "__fspath__") else "pyarrow"
    if stream.rows * len(stream.names) <= MOST_CELLS:
        frame = replace(read_frame(stream.read()), container=container)
        return TableData(frame, frame.rows)
    processes = Processes.current()
    scans = processes.gather(_scan(stream, stream.groups[processes.rank :: processes.count], seed))
    return _merged(scans, stream, container)


# The first pass


@dataclass
class _Scan:
    """What one pass keeps: rows by their numbers, and why each of them is kept beside the sample."""

    sample: list[tuple[Any, Any]] = field(default_factory=list)  # numbers and rows
    ends: dict[tuple[str, str], tuple[float, int, Any]] = field(default_factory=dict)  # value, number, row
    labels: dict[str, dict[Any, tuple[int, Any]]] = field(default_factory=dict)  # number and row of each category
    crowded: set[str] = field(default_factory=set)  # columns with too many different values to be categories
    missing: dict[str, int] = field(default_factory=dict)

    def add_end(self, name: str, end: str, value: float, number: int, row: Any) -> None:
        before = self.ends.get((name, end))
        if before is None or (value < before[0] if end == "low" else value > before[0]):
            self.ends[name, end] = value, number, row

    def add_label(self, name: str, label: Any, number: int, row: Any, most: int) -> None:
        own = self.labels.setdefault(name, {})
        if label not in own or number < own[label][0]:
            own[label] = number, row
        if len(own) > most:
            self.crowded.add(name)
            del self.labels[name]


def _scan(stream: Stream, groups: Sequence[Group], seed: int) -> _Scan:
    compute, found = import_module("pyarrow.compute"), _Scan()
    most = int(np.clip(_SAMPLED_CELLS // len(stream.names), _FEWEST_SAMPLED, _MOST_SAMPLED))
    source = np.random.default_rng([seed, 2])
    chosen = np.arange(stream.rows)
    if stream.rows > most:
        chosen = np.sort(source.choice(stream.rows, most, replace=False))
    for group in groups:
        start = group.start
        for chunk in stream.chunks(group, _SCANNED):
            own = chosen[slice(*np.searchsorted(chosen, [start, start + chunk.num_rows]))]
            if len(own):
                found.sample.append((own, chunk.take(own - start)))
            for name in stream.names:
                _look(found, compute, name, chunk, start)
            start += chunk.num_rows
    return found


def _look(found: _Scan, compute: Any, name: str, chunk: Any, start: int) -> None:
    """Keep the rows of a chunk with the ends and the new categories of a column, and count its missing cells."""
    types, column = import_module("pyarrow").types, chunk.column(name)
    gone = column.null_count
    numeric = types.is_integer(column.type) or types.is_floating(column.type) or types.is_temporal(column.type)
    if types.is_floating(column.type):
        gone += compute.sum(compute.is_nan(column)).as_py() or 0
    found.missing[name] = found.missing.get(name, 0) + int(gone)
    if numeric and gone < len(column):
        ends = compute.min_max(column)
        for end, key in (("low", "min"), ("high", "max")):
            value = ends[key]
            place = compute.index(column, value).as_py()
            found.add_end(name, end, value.as_py(), start + place, chunk.slice(place, 1))
    if name in found.crowded:
        return
    most = MOST_INTEGER_CATEGORIES + 1 if numeric else _MOST_CATEGORIES
    known = found.labels.get(name, {})
    for label in compute.unique(column).to_pylist():
        if label is not None and label == label and label not in known and name not in found.crowded:
            place = compute.index(column, label).as_py()
            found.add_label(name, label, start + place, chunk.slice(place, 1), most)


def _merged(scans: Sequence[_Scan], stream: Stream, container: str) -> TableData:
    """The rows that several passes over parts of a table kept, in their order, each once."""
    arrow, whole = import_module("pyarrow"), _Scan()
    for scan in scans:
        for (name, end), (value, number, row) in scan.ends.items():
            whole.add_end(name, end, value, number, row)
        for name, labels in scan.labels.items():
            for label, (number, row) in labels.items():
                if name not in whole.crowded:
                    whole.add_label(name, label, number, row, _MOST_CATEGORIES)
    missing = {name: sum(scan.missing.get(name, 0) for scan in scans) for name in stream.names}
    witnesses = {number: row for _, number, row in whole.ends.values()}
    witnesses |= {number: row for labels in whole.labels.values() for number, row in labels.values()}
    parts = [part for scan in scans for part in scan.sample] + [(np.array([n]), row) for n, row in witnesses.items()]
    numbers = np.concatenate([own for own, _ in parts])
    _, places = np.unique(numbers, return_index=True)
    table = arrow.concat_tables([rows for _, rows in parts]).take(places)
    frame = replace(read_frame(table), container=container)
    return TableData(frame, stream.rows, stream, numbers[places], missing)


# The second pass


class StreamRows:
    """Encoded rows of a table in files.

    Args:
        stream: The table.
        encode: Makes numbers of some of its rows.
        held: The numbers of rows to leave out, ascending.
        some: Encoded rows: a sample with the ends and the categories of all columns.
    """

    def __init__(self, stream: Stream, encode: Callable[[Any], Array], held: Array, some: Array) -> None:
        self.stream, self.some = stream, some
        self._encode, self._held = encode, held

    @property
    def count(self) -> int:
        """The number of rows."""
        return self.stream.rows - len(self._held)

    def of(self, group: Group, size: int = CHUNK, shard: int = 0, every: int = 1) -> Iterator[Array]:
        """The rows of a group in chunks, or those of one in so many chunks."""
        start = group.start
        for number, chunk in enumerate(self.stream.chunks(group, size)):
            stop = start + chunk.num_rows
            if number % every == shard:
                first, last = np.searchsorted(self._held, [start, stop])
                rows = self._encode(chunk)
                yield np.delete(rows, self._held[first:last] - start, 0) if last > first else rows
            start = stop

    def __iter__(self) -> Iterator[Array]:
        """The rows of this process's row groups."""
        processes = Processes.current()
        for group in self.stream.groups[processes.rank :: processes.count]:
            yield from self.of(group, _SCANNED)

    def add_up(self, sums: Sequence[Array]) -> None:
        """Add up sums over all processes in place."""
        Processes.current().add_up([torch.from_numpy(own) for own in sums])


# Training


class StreamBatches:
    """Batches of a table in files, shuffled through a buffer.

    The row groups are dealt out to shards, one for each process. A batch has rows from every shard, and the same number
    in every step, so that processes never wait for each other and none is left without rows.

    Args:
        rows: The rows of the table.
        some: Encoded rows for start values.
        size: The rows of a batch.
        seed: Decides the order.
        shards: The number of shards; by default that of the processes.
    """

    def __init__(self, rows: StreamRows, some: Array, size: int, seed: int, shards: int | None = None) -> None:
        self._rows, self._some = rows, some
        self._size, self._seed, self._shards = size, seed, shards or Processes.current().count
        self._readers: dict[int, _Reader] = {}
        self._next = 0

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self._rows.count

    def some(self) -> Tensor:
        """Rows of the sample."""
        return torch.from_numpy(self._some)

    def batch(self, step: int) -> Tensor:
        """The batch of a step, of all shards; steps must not go back."""
        return self.part(step, Processes(0, 1))[0]

    def part(self, step: int, processes: Processes) -> tuple[Tensor, int]:
        """The rows of this process's shards, and the number of rows of the whole batch."""
        if step < self._next:
            raise ArgumentError("step", f"a step from {self._next} on", step)
        while True:
            taken = [
                self._reader(shard).take(self._size * (shard + 1) // self._shards - self._size * shard // self._shards)
                for shard in range(processes.rank, self._shards, processes.count)
            ]
            self._next += 1
            if self._next > step:
                return torch.from_numpy(np.concatenate(taken)), self._size

    def _reader(self, shard: int) -> _Reader:
        if shard not in self._readers:
            rows_of, groups, columns = self._rows.of, self._rows.stream.groups, self._rows.some.shape[1]
            if len(groups) < self._shards:
                # All read the same groups, and take every so manieth chunk of them.
                rows_of = partial(rows_of, shard=shard, every=self._shards)
            else:
                groups = groups[shard :: self._shards]
            self._readers[shard] = _Reader(rows_of, groups, columns, [self._seed, shard])
        return self._readers[shard]


class _Reader:
    """Endless rows of some row groups in random order."""

    def __init__(
        self, rows_of: Callable[[Group], Iterator[Array]], groups: Sequence[Group], columns: int, seeds: list[int]
    ) -> None:
        self._rows_of, self._groups = rows_of, groups
        self._pool = max(_FEWEST_POOLED, _POOLED_CELLS // columns)
        self._source = self._shuffled(seeds)
        self._ready: Numbers = np.empty((0, columns), np.float32)
        self._used = 0

    def take(self, rows: int) -> Array:
        """The next rows."""
        parts = []
        while True:
            part = self._ready[self._used : self._used + rows]
            parts.append(part)
            self._used += len(part)
            rows -= len(part)
            if not rows:
                return np.concatenate(parts)
            self._ready, self._used = next(self._source), 0

    def _shuffled(self, seeds: list[int]) -> Iterator[Array]:
        """Rows in random order: half of a full buffer at a time, and at the end of an epoch the rest."""
        for epoch in count():
            source, pool, filled, seen = np.random.default_rng([*seeds, epoch, 3]), [], 0, 0
            for rows in self._interleaved(source):
                pool.append(rows)
                filled += len(rows)
                seen += len(rows)
                if filled >= 2 * self._pool:
                    mixed = source.permutation(np.concatenate(pool))
                    yield mixed[: self._pool]
                    pool, filled = [mixed[self._pool :].copy()], filled - self._pool
            if not seen:
                raise ArgumentError("table", "rows to learn from for each process", "none", "use fewer processes")
            yield source.permutation(np.concatenate(pool))

    def _interleaved(self, source: np.random.Generator) -> Iterator[Array]:
        """Chunks of several row groups by turns, so that neighbours in a file are not neighbours in a batch."""
        waiting = [self._groups[place] for place in source.permutation(len(self._groups))][::-1]
        opened: list[Iterator[Array]] = []
        while waiting or opened:
            while waiting and len(opened) < _OPEN:
                opened.append(self._rows_of(waiting.pop()))
            place = int(source.integers(len(opened)))
            rows = next(opened[place], None)
            if rows is None:
                del opened[place]
            else:
                yield rows.astype(np.float32)
