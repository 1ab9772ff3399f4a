# SPDX-License-Identifier: Apache-2.0
"""``score``, ``impute`` and ``classify`` for a folder of Parquet files."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from picirc.cli.files import model_and_table
from picirc.cli.options import FolderOptions, TableOptions, differing
from picirc.cli.use import find_model, say, tell
from picirc.errors import ArgumentError
from picirc.tables.mapping import mapper, plan_spread

_SECONDS_PER_LINE = 10.0


def map_folder(
    first: Path,
    second: Path | None,
    out: Path | None,
    files: FolderOptions,
    reading: TableOptions,
    task: str,
    refused: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """Map a folder of Parquet files to another one.

    Arguments are those of ``pc.mapper``, after the paths as ``model_and_table`` takes them and the options of the
    command; of the options in ``reading`` and ``refused`` none applies to Parquet files.
    """
    given = dict(refused or {}) | {f"--{name.replace('_', '-')}": value for name, value in differing(reading).items()}
    for name, value in given.items():
        if value is not None:
            raise ArgumentError(name, "a single table", "a folder of Parquet files", "omit it")
    if out is None:
        raise ArgumentError("--out", "a folder for the results", "none", "add -o and the name of a folder")
    path, source = model_and_table(first, second)
    if task != "impute" or options.get("how") != "sample":
        options.pop("seed", None)
    spread = plan_spread(
        mapper(find_model(path), task, **options), source, out,
        workers=files.workers, resume=files.resume, overwrite=files.overwrite,
    )  # fmt: skip
    rows, todo = (sum(each.rows for each in part) for part in (spread.fragments, spread.pending))
    left = f"of which {todo:,} rows in {len(spread.pending):,} files are to do"
    tell(f"{rows:,} rows in {len(spread.fragments):,} files, {left}")
    tell(f"{spread.workers} processes, with less than {spread.ceiling / 2**30:.1f} GiB of memory together")
    started = time.perf_counter()
    with _progress(todo) as progress:
        spread.run(progress)
    pace = todo / max(time.perf_counter() - started, 1e-9)
    say(f"{task}: {todo:,} rows, {pace:,.0f} rows per second; saved {out}")


@contextmanager
def _progress(rows: int, stream: TextIO | None = None) -> Iterator[Any]:
    """Show rows done and rows per second: a bar on a terminal, elsewhere a line every ten seconds."""
    stream = stream or sys.stderr
    started = time.perf_counter()
    if not stream.isatty():
        last = started

        def show(done: int) -> None:
            nonlocal last
            now = time.perf_counter()
            if now - last >= _SECONDS_PER_LINE:
                last = now
                print(f"{done:,} of {rows:,} rows, {done / (now - started):,.0f} rows per second", file=stream)

        yield show
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (MofNCompleteColumn(), TextColumn("rows"), BarColumn(), TextColumn("{task.fields[pace]} rows per second"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(file=stream)) as bar:
        task = bar.add_task("", total=rows, pace="…")
        yield lambda done: bar.update(task, completed=done, pace=f"{done / (time.perf_counter() - started):,.0f}")
