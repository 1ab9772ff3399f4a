# SPDX-License-Identifier: Apache-2.0
"""``score``, ``impute`` and ``classify`` for a folder of Parquet files."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from picirc.cli.options import FolderOptions, TableOptions, refuse
from picirc.cli.use import find_model, say, tell
from picirc.errors import ArgumentError
from picirc.tables.mapping import mapper, plan_spread

_SECONDS_PER_LINE = 10.0


def map_folder(
    model: Path,
    source: Path,
    out: Path | None,
    files: FolderOptions,
    reading: TableOptions,
    task: str,
    refused: Mapping[str, Any],
    **options: Any,
) -> None:
    """Map a folder of Parquet files to another one.

    ``task`` and ``options`` are arguments of ``pc.mapper``. Options in ``reading`` and ``refused`` do not apply to
    Parquet files, and raise an error if they are given.
    """
    got = "a folder of Parquet files"
    refuse((reading,), "a single table", got)
    for name, value in refused.items():
        if value not in (None, ()):
            raise ArgumentError(name, "a single table", got, "omit it")
    if out is None:
        raise ArgumentError("--out", "a folder for the results", "none", "add -o and the name of a folder")
    if options.get("how") != "sample":
        options.pop("seed", None)
    spread = plan_spread(
        mapper(find_model(model), task, **options), source, out,
        workers=files.workers, resume=files.resume, overwrite=files.overwrite,
    )  # fmt: skip
    rows, todo = (sum(each.rows for each in part) for part in (spread.fragments, spread.pending))
    tell(f"{rows:,} rows in {len(spread.fragments):,} files; to do: {todo:,} rows in {len(spread.pending):,} files")
    tell(f"{spread.workers} processes, which need less than {spread.ceiling / 2**30:.1f} GiB of memory together")
    started = time.perf_counter()
    with _progress(todo, sys.stderr) as progress:
        spread.run(progress)
    pace = todo / max(time.perf_counter() - started, 1e-9)
    say(f"{task}: {todo:,} rows, {pace:,.0f} rows per second; saved {out}")


@contextmanager
def _progress(rows: int, stream: TextIO) -> Iterator[Any]:
    """Show the progress and the speed: as a bar on a terminal, elsewhere as a line every ten seconds."""
    last = started = time.perf_counter()

    def pace(done: int) -> str:
        return f"{done / (time.perf_counter() - started):,.0f} rows per second"

    def show(done: int) -> None:
        nonlocal last
        if time.perf_counter() - last >= _SECONDS_PER_LINE:
            last = time.perf_counter()
            print(f"{done:,} of {rows:,} rows, {pace(done)}", file=stream)

    if not stream.isatty():
        yield show
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (MofNCompleteColumn(), TextColumn("rows"), BarColumn(), TextColumn("{task.fields[pace]}"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(file=stream)) as bar:
        task = bar.add_task("", total=rows, pace="…")
        yield lambda done: bar.update(task, completed=done, pace=pace(done))
