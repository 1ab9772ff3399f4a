# SPDX-License-Identifier: Apache-2.0
"""A map over a folder of Parquet files, with a process for each core.

Every input file gives one output file of the same name, which is written whole or not at all. A manifest in the output
folder says what is computed from what. So a run that was killed can be continued: files that are there are complete,
and the others are made again from the beginning.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from importlib import import_module
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import Any

from picirc.atomic import remove_partial, replace_files, replacing
from picirc.checks import check_integer
from picirc.errors import ArgumentError
from picirc.tables.mapping import Mapper

MANIFEST = "manifest.json"
_ENDING = ".parquet"
_ROWS = 16_384  # read, mapped and written at a time
_BUFFER = 2**20  # bytes of a column that are read ahead
_LOOK = 0.2  # seconds between two looks at the progress
_SLACK = 1.25  # memory is allocated in blocks, and freed late


@dataclass(frozen=True)
class Fragment:
    """One file to map.

    Attributes:
        name: Its path below the folders of inputs and outputs.
        rows: Its number of rows.
        size: Its bytes.
        modified: When it was changed, in nanoseconds.
    """

    name: str
    rows: int
    size: int
    modified: int


@dataclass(frozen=True)
class Spread:
    """A map over a folder, checked and not yet begun.

    Attributes:
        mapper: The map.
        source: The folder of the inputs.
        out: The folder of the outputs.
        fragments: All files.
        pending: Those whose output is not there.
        workers: The number of processes.
        ceiling: The bytes of memory that all processes together stay below.
    """

    mapper: Mapper
    source: Path
    out: Path
    fragments: tuple[Fragment, ...]
    pending: tuple[Fragment, ...]
    workers: int
    ceiling: int

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
