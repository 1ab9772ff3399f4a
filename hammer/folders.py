# SPDX-License-Identifier: Apache-2.0
"""Attacks on a map over a folder of files."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import picirc as pc
from count import Count

FILES, ROWS, KILLS = 12, 40_000, 20


def killed_mapping(seed: int, scale: float) -> Count:
    """Killed at any moment and resumed: the same files as without a kill, and none that was complete is made again."""
    source, count = random.Random(seed), Count()
    with TemporaryDirectory() as name:
        folder = Path(name)
        command = _prepare(folder, max(1000, int(ROWS * scale)))
        started = time.perf_counter()
        assert _run([*command, "-o", str(folder / "whole")]).wait() == 0
        whole, expected = time.perf_counter() - started, _contents(folder / "whole")
        for number in range(int(KILLS * scale) or 1):
            out = folder / f"out{number}"
            with count.attempt(f"kill {number}"):
                resumed = [*command, "-o", str(out)]
                _kill(resumed, source.random() * whole)
                before = _times(out)
                if (out / "manifest.json").exists():
                    resumed.append("--resume")
                count.check(_run(resumed).wait() == 0, "the resumed run failed")
                count.check(_contents(out) == expected, "other files than without a kill")
                after = _times(out)
                count.check(all(after[path] == at for path, at in before.items()), "a complete file was made again")
                count.check(not list(out.rglob("*.partial")), "something was left over")
    count.note = f"a run takes {whole:.0f} s"
    return count


def _prepare(folder: Path, rows: int) -> list[str]:
    """A model, a folder of files, and the command that scores them."""
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=rows)
    table = pa.table({"a": hidden, "b": hidden + rng.normal(size=rows), "c": rng.choice(["x", "y"], rows)})
    pc.fit_table(table.slice(0, 500), points=4, width=8, steps=5).save(folder / "model")
    (folder / "big").mkdir()
    for number in range(FILES):
        pq.write_table(table.slice(number * rows // FILES, rows // FILES), folder / "big" / f"{number}.parquet")
    return ["score", str(folder / "model"), str(folder / "big"), "--workers", "2"]


def _run(command: list[str]) -> subprocess.Popen[bytes]:
    quiet = subprocess.DEVNULL
    return subprocess.Popen([sys.executable, "-m", "picirc", *command], stdout=quiet, stderr=quiet)


def _kill(command: list[str], after: float) -> None:
    """Kill the parent, and wait until its workers have followed."""
    process = _run(command)
    time.sleep(after)
    children = _children(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 120  # a worker that is still importing notices only afterwards
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < deadline:
        time.sleep(0.02)
    left = [child for child in children if Path(f"/proc/{child}").exists()]
    if left:
        for child in left:
            os.kill(child, signal.SIGKILL)
        raise RuntimeError("workers outlived their parent")


def _children(parent: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    except OSError:
        return []


def _contents(out: Path) -> dict[str, bytes]:
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*.parquet")}


def _times(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
