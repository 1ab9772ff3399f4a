# SPDX-License-Identifier: Apache-2.0
"""Models mapped over Arrow tables: one function for any engine, and files spread over processes."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from importlib import import_module
from multiprocessing.connection import wait as wait_for
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from picirc.atomic import remove_partial, replace_files, replacing
from picirc.checks import check_choice, check_integer
from picirc.data.frames import arrow_type, few
from picirc.data.tables import cell_text
from picirc.errors import ArgumentError
from picirc.tables.column import Column
from picirc.tables.model import HOW, TableModel

TASKS = ("score", "impute", "classify", "sample")
_OPTIONS = {"score": (), "impute": ("how", "seed"), "classify": ("column",), "sample": ("n", "seed")}
_LOADED = 8  # models that a process keeps
_turn = threading.Lock()  # engines may run several threads in a process; the circuit runs for one of them at a time


def mapper(
    model: str | PathLike[str],
    task: str,
    *,
    keep: Sequence[str] = (),
    column: str | None = None,
    how: str | None = None,
    n: int | None = None,
    seed: int | None = None,
) -> Mapper:
    """A callable from Arrow tables to Arrow tables that can be pickled and sent to other processes.

    The rows of a table are independent, so each of its parts can be mapped by itself, in any order and on any machine.
    A process loads the model when it is first called, and keeps it. The map runs on one thread, because engines start
    a process for each core. The same part always gives the same result, also where draws are random: these depend on
    the seed and on the content of the part. So a part that an engine repeats after a failure does not change.

    Args:
        model: The folder or file of a model of a table. All processes must reach it by this path.
        task: ``"score"``: the column ``log_density``. ``"impute"``: the table with its gaps filled. ``"classify"``: the
            most probable category of a column, and the probabilities of all as ``p(category)``. ``"sample"``: draws of
            all columns, given what each row knows.
        keep: Columns to pass on with the result of each row, such as an identifier; imputed tables have all columns.
        column: The column of categories to predict, for ``"classify"``.
        how: As in :meth:`TableModel.impute`, for ``"impute"``; by default ``"mean"``.
        n: The number of draws for each row, for ``"sample"``; by default 1.
        seed: Determines the draws of ``"impute"`` and ``"sample"``; by default 0.
    """
    check_choice("task", task, TASKS)
    given = {"column": column, "how": how, "n": n, "seed": seed}
    for name, value in given.items():
        if value is not None and name not in _OPTIONS[task]:
            owners = " or ".join(repr(other) for other in TASKS if name in _OPTIONS[other])
            raise ArgumentError(name, f"the task {owners}", repr(task), "omit it")
    check_choice("how", how or "mean", HOW)
    if isinstance(keep, str):
        raise ArgumentError("keep", "a sequence of names", keep, f"write [{keep!r}]")
    found = Mapper(
        str(Path(model).absolute()), task, tuple(keep), column, how or "mean", check_integer("n", n or 1),
        check_integer("seed", seed or 0, 0),
    )  # fmt: skip
    found.check()
    return found


@dataclass(frozen=True)
class Mapper:
    """What :func:`mapper` returns: call it with a ``pyarrow.Table`` or ``RecordBatch`` to get a ``Table``.

    Attributes:
        path: The model.
        task: What is computed.
        keep: Columns that are passed on.
        column: The column to predict.
        how: How gaps are filled.
        n: The number of draws for each row.
        seed: Determines the draws.
    """

    path: str
    task: str
    keep: tuple[str, ...] = ()
    column: str | None = None
    how: str = "mean"
    n: int = 1
    seed: int = 0

    def __call__(self, table: Any) -> Any:
        """Map one part of a table."""
        table = _as_arrow(table)
        self._check_columns(table.column_names)
        if not table.num_rows:
            return self.schema(table.schema).empty_table()
        with _turn, _one_thread():
            columns = getattr(self, f"_{self.task}")(self.model, table)
        if self.task != "impute":
            repeats = self.n if self.task == "sample" else 1
            columns = {name: _repeated(table.column(name), repeats) for name in self.keep} | columns
        arrow, schema = import_module("pyarrow"), self.schema(table.schema)
        return arrow.table([_typed(columns[field.name], field.type) for field in schema], schema=schema)

    def batches(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Map an iterator of record batches to another one, as Spark's ``mapInArrow`` asks for."""
        for batch in batches:
            yield from self(batch).to_batches()

    def schema(self, given: Any) -> Any:
        """The Arrow schema of the result for tables of a given Arrow schema."""
        arrow = import_module("pyarrow")
        if self.task == "impute":
            return given
        kept = [given.field(name) for name in self.keep]
        columns = self.model.schema
        if self.task == "score":
            own = [("log_density", arrow.float64())]
        elif self.task == "classify":
            target = columns[self.column or ""]
            own = [(target.name, _arrow_type(target)), *((name, arrow.float64()) for name in _chances(target))]
        else:
            own = [(column.name, _arrow_type(column)) for column in columns.columns]
        return arrow.schema([*kept, *(arrow.field(name, kind) for name, kind in own)])

    @property
    def model(self) -> TableModel:
        """The model, which a process loads once, and again when its file changes."""
        path = Path(self.path)
        file = path / "model.safetensors" if path.is_dir() else path
        if not file.exists():
            raise ArgumentError("model", "the folder or file of a model", self.path, "all processes must reach it")
        about = file.stat()
        return _load(self.path, about.st_mtime_ns, about.st_size)

    def check(self) -> None:
        """Raise if the model cannot do the task."""
        columns = self.model.schema
        if self.task == "classify":
            if self.column is None:
                raise ArgumentError("column", f"a name among {few(columns.names)}", "none")
            if not columns[self.column].categories:
                got = f"{self.column!r}, which is {columns[self.column].kind}"
                raise ArgumentError("column", "a column of categories", got)
        if self.task == "impute" and self.keep:
            raise ArgumentError("keep", "nothing for 'impute', which passes all columns on", list(self.keep), "omit it")
        made = set() if self.task == "impute" else {f.name for f in replace(self, keep=()).schema(None)}
        clash = [name for name in self.keep if name in made]
        if clash:
            raise ArgumentError("keep", "other names than those of the result", clash[0], "rename the column")

    def _check_columns(self, names: Sequence[str]) -> None:
        lacking = [name for name in self.keep if name not in names]
        if lacking:
            raise ArgumentError("table", f"the column {lacking[0]!r}, which is to be kept", f"only {few(names)}")
        if not set(names) & set(self.model.schema.names) and self.task in ("score", "impute"):
            raise ArgumentError("table", f"columns of the model ({few(self.model.schema.names)})", few(names))

    def _score(self, model: TableModel, table: Any) -> Mapping[str, Any]:
        return {"log_density": model.log_density(_known(model, table))}

    def _impute(self, model: TableModel, table: Any) -> Mapping[str, Any]:
        filled = model.impute(_known(model, table), self.how, self._seed_of(table))
        return {name: (filled if name in filled.column_names else table).column(name) for name in table.column_names}

    def _classify(self, model: TableModel, table: Any) -> Mapping[str, Any]:
        target = model.schema[self.column or ""]
        probabilities = model.predict(_known(model, table, target.name), target.name)
        labels = [target.categories[place] for place in probabilities.argmax(1).tolist()]
        return {target.name: labels} | dict(zip(_chances(target), probabilities.T, strict=True))

    def _sample(self, model: TableModel, table: Any) -> Mapping[str, Any]:
        drawn: Mapping[str, Any] = model.sample(self.n, _known(model, table), self._seed_of(table))
        return drawn

    def _seed_of(self, table: Any) -> int:
        """A seed that depends on the content of a part and not on where or when it is mapped."""
        content = hashlib.blake2b(digest_size=7, key=self.seed.to_bytes(8, "big"))
        for name in sorted(table.column_names):
            content.update(repr((name, table.column(name).to_pylist())).encode())
        return int.from_bytes(content.digest(), "big")


@lru_cache(_LOADED)
def _load(path: str, modified: int, size: int) -> TableModel:
    """The model, with answers that are mappings, whatever kind of table it was fitted to."""
    model = TableModel.load(path)
    return TableModel(replace(model.schema, container="mapping"), model.pic, model.points, model.summary)


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _as_arrow(table: Any) -> Any:
    arrow = import_module("pyarrow")
    if isinstance(table, arrow.RecordBatch):
        return arrow.Table.from_batches([table])
    if not isinstance(table, arrow.Table):
        remedy = "write pyarrow.Table.from_pandas(table), or table.to_arrow() for polars"
        raise ArgumentError("table", "a pyarrow.Table or RecordBatch", type(table).__name__, remedy)
    return table


def _known(model: TableModel, table: Any, *left_out: str) -> Any:
    """The columns that the model knows; a table that has none of them knows nothing about its rows."""
    names = [name for name in table.column_names if name in model.schema.names and name not in left_out]
    if names:
        return table.select(names)
    arrow = import_module("pyarrow")
    free = next((c.name for c in model.schema.columns if not c.indicator), model.schema.names[0])
    return arrow.table({free: arrow.nulls(table.num_rows)})


def _repeated(column: Any, times: int) -> Any:
    arrow = import_module("pyarrow")
    return column.take(arrow.array([row for row in range(len(column)) for _ in range(times)])) if times > 1 else column


def _typed(values: Any, kind: Any) -> Any:
    """Values as a column of an Arrow type, null where missing."""
    arrow = import_module("pyarrow")
    if isinstance(values, arrow.ChunkedArray | arrow.Array):
        return values if values.type == kind else values.cast(kind)
    return arrow.array(values, type=kind, from_pandas=True)


def _arrow_type(column: Column) -> Any:
    kind = arrow_type(column.dtype, column.native)
    return getattr(kind, "value_type", kind)  # every part would have a dictionary of its own


def _chances(column: Column) -> list[str]:
    return [f"p({cell_text(label)})" for label in column.categories]


# Folders of Parquet files, by several processes


MANIFEST = "manifest.json"
_ENDING = ".parquet"
_ROWS = 16_384  # read, mapped and written at a time
_BUFFER = 2**20  # bytes of a column that are read ahead
_LOOK = 0.2  # seconds between two looks at the progress
_SLACK = 1.25  # memory is allocated in blocks, and freed late


@dataclass(frozen=True)
class Fragment:
    """One file to map."""

    name: str  # its path below the folders of inputs and outputs
    rows: int  # its number of rows
    size: int  # its bytes
    modified: int  # when it was changed, in nanoseconds


@dataclass(frozen=True)
class Spread:
    """A map over a folder, checked and not yet begun."""

    mapper: Mapper  # the map
    source: Path  # the folder of the inputs
    out: Path  # the folder of the outputs
    fragments: tuple[Fragment, ...]  # all files
    pending: tuple[Fragment, ...]  # those whose output is not there
    workers: int  # the number of processes
    ceiling: int  # the bytes of memory that all processes together stay below

    def run(self, progress: Callable[[int], object] = lambda rows: None) -> None:
        """Map all files that are pending.

        Args:
            progress: Called from time to time with the number of rows done in this run.
        """
        if self.pending:
            self._run(progress)
        manifest = _read_manifest(self.out)
        replace_files({self.out / MANIFEST: _encoded(manifest | {"complete": True})})

    def _run(self, progress: Callable[[int], object]) -> None:
        context = multiprocessing.get_context("spawn")
        done = context.Value("q", 0)
        pool = ProcessPoolExecutor(self.workers, context, _begin, (done,))
        largest_first = sorted(self.pending, key=lambda fragment: -fragment.rows)
        try:
            work = [pool.submit(_map_file, self.mapper, *self._paths(fragment)) for fragment in largest_first]
            for finished in _finished(work, lambda: progress(done.value)):
                finished.result()
        except BaseException as error:
            for process in list(pool._processes.values()):  # what they have not finished is not there
                process.kill()
            pool.shutdown(cancel_futures=True)
            if isinstance(error, BrokenProcessPool):
                remedy = "free some memory or use fewer --workers; --resume continues"
                raise ArgumentError("workers", "processes that live", "one that was killed", remedy) from error
            raise
        pool.shutdown()
        progress(done.value)

    def _paths(self, fragment: Fragment) -> tuple[Path, Path]:
        return self.source / fragment.name, self.out / fragment.name


def plan_spread(
    mapper: Mapper,
    source: Path,
    out: Path,
    *,
    workers: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
) -> Spread:
    """Check a map over a folder, and write its manifest.

    Args:
        mapper: The map.
        source: A folder of Parquet files, in subfolders too.
        out: The folder for the outputs.
        workers: The number of processes; by default the number of cores.
        resume: Continue a run with the same map and the same inputs.
        overwrite: Replace the outputs of another run.
    """
    fragments = find_fragments(source)
    if out.resolve() == source.resolve():
        raise ArgumentError("--out", "another folder than that of the inputs", str(out))
    _check_types(mapper, source, fragments)
    manifest = {
        "task": {name: value for name, value in asdict(mapper).items() if name != "path"},
        "model": _digest(Path(mapper.path)),
        "files": [asdict(fragment) for fragment in fragments],
    }
    manifest = json.loads(_encoded(manifest))
    before = _read_manifest(out)
    if before and not resume and not overwrite:
        remedy = "--resume continues there, --overwrite starts again"
        raise ArgumentError("--out", "a folder without results", f"{out} with {MANIFEST}", remedy)
    if before and resume:
        changed = [name for name in manifest if before.get(name) != manifest[name]]
        if changed:
            got = f"another {changed[0] if changed[0] != 'files' else 'set of input files'}"
            raise ArgumentError("--resume", f"the map and inputs of {out / MANIFEST}", got, "--overwrite starts again")
    count = min(check_integer("--workers", workers or _cores()), len(fragments))
    pending = [each for each in fragments if not resume or not _is_done(mapper, out / each.name, each)]
    for each in pending:
        (out / each.name).parent.mkdir(parents=True, exist_ok=True)
        (out / each.name).unlink(missing_ok=True)
        remove_partial(out / each.name)
    replace_files({out / MANIFEST: _encoded(manifest | {"complete": False})})
    ceiling = _ceiling(mapper, [source / each.name for each in fragments], count)
    return Spread(mapper, source, out, tuple(fragments), tuple(pending), count, ceiling)


def find_fragments(source: Path) -> list[Fragment]:
    """The Parquet files in a folder and its subfolders, by name."""
    parquet, arrow = import_module("pyarrow.parquet"), import_module("pyarrow")
    found = []
    for path in sorted(source.rglob(f"*{_ENDING}")):
        name = path.relative_to(source)
        if not path.is_file() or any(part.startswith((".", "_")) for part in name.parts):
            continue  # as other readers of such folders do
        try:
            rows = parquet.read_metadata(path).num_rows
        except (OSError, arrow.ArrowException) as error:
            raise ArgumentError(str(path), "a Parquet file", f"none ({error})") from error
        about = path.stat()
        found.append(Fragment(name.as_posix(), rows, about.st_size, about.st_mtime_ns))
    if not found:
        raise ArgumentError(str(source), "a folder of Parquet files", "none there", "write the table as .parquet")
    return found


def _check_types(mapper: Mapper, source: Path, fragments: list[Fragment]) -> None:
    """Raise before any work if a file lacks a column, or has other columns than the first."""
    parquet = import_module("pyarrow.parquet")
    first = parquet.read_schema(source / fragments[0].name).remove_metadata()
    lacking = [n for n in mapper.model.schema.names if n not in first.names and n != mapper.column]
    if lacking:
        remedy = "add it with nulls if it is unknown"
        raise ArgumentError(fragments[0].name, f"the column {lacking[0]}", "none", remedy)
    for each in fragments[1:]:
        if parquet.read_schema(source / each.name).remove_metadata() != first:
            raise ArgumentError(each.name, f"the columns and types of {fragments[0].name}", "others")


def _map_file(mapper: Mapper, source: Path, target: Path) -> None:
    """Map one file, some rows at a time."""
    parquet = import_module("pyarrow.parquet")
    with (
        parquet.ParquetFile(source, buffer_size=_BUFFER) as file,
        replacing(target) as (partial,),
        parquet.ParquetWriter(partial, mapper.schema(file.schema_arrow)) as writer,
    ):
        for batch in file.iter_batches(_ROWS):
            writer.write_table(mapper(batch))
            with _done.get_lock():
                _done.value += batch.num_rows


# The workers


_done: Any = None  # the rows that all workers together have done


def _begin(done: Any) -> None:
    """Make this process a worker, which ends with its parent and leaves Ctrl-C to it."""
    global _done
    _done = done
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        wait_for([parent.sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _finished(work: Sequence[Future[None]], look: Callable[[], object]) -> Iterator[Future[None]]:
    left = set(work)
    while left:
        ended, left = wait(left, _LOOK, FIRST_COMPLETED)
        look()
        yield from ended


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# The manifest


def _read_manifest(out: Path) -> dict[str, Any]:
    path = out / MANIFEST
    if out.exists() and not out.is_dir():
        raise ArgumentError("--out", "a folder", f"the file {out}", "a folder of inputs gives a folder of outputs")
    if not path.exists():
        return {}
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ArgumentError("--out", "a folder with a readable manifest", f"{path}: {error}") from error
    return found


def _encoded(manifest: dict[str, Any]) -> bytes:
    return (json.dumps(manifest, indent=1) + "\n").encode()


def _is_done(mapper: Mapper, path: Path, fragment: Fragment) -> bool:
    parquet, arrow = import_module("pyarrow.parquet"), import_module("pyarrow")
    try:
        return bool(parquet.read_metadata(path).num_rows == fragment.rows * mapper.n)
    except (OSError, arrow.ArrowException):
        return False


def _digest(path: Path) -> str:
    file = path / "model.safetensors" if path.is_dir() else path
    return hashlib.sha256(file.read_bytes()).hexdigest()


# Memory


def _ceiling(mapper: Mapper, paths: list[Path], workers: int) -> int:
    """What this process has now with the model, once for each process, and what a worker reads and computes."""
    parquet = import_module("pyarrow.parquet")
    model = mapper.model
    values = 4 * 8 * 1024 * model.qpc.compiled.elements
    largest = 0
    for path in paths:
        about = parquet.read_metadata(path)
        width = max((about.row_group(i).total_byte_size for i in range(about.num_row_groups)), default=0)
        largest = max(largest, width)
    rows = 64 * _ROWS * len(model.schema.columns)
    return int(_SLACK * ((1 + workers) * resident() + workers * (2 * largest + values + rows)))


def resident() -> int:
    """The bytes of memory that this process has now, at most 1 GiB where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 2**30
