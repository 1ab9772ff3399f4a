# SPDX-License-Identifier: Apache-2.0
"""Attacks on trainings of several processes."""

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
import torch

import picirc as pc
from count import Count

ROWS, TRIES, RESTARTS = 4000, 5, 3


def killed_ranks(seed: int, scale: float) -> Count:
    """A process of two is killed, up to three times: torchrun starts both again, and the model is always the same."""
    source, count, kills = random.Random(seed), Count(), 0
    with TemporaryDirectory() as name:
        folder = Path(name)
        _write_table(folder / "big")
        started = time.perf_counter()
        assert _run(folder, "whole").wait() == 0
        whole, expected = time.perf_counter() - started, pc.load(folder / "whole").state_dict()
        for number in range(int(TRIES * scale) or 1):
            with count.attempt(f"kill {number}"):
                process = _run(folder, f"out{number}")
                for _ in range(source.randint(1, RESTARTS)):
                    time.sleep((0.2 + 0.6 * source.random()) * whole)
                    kills += _kill_one(process.pid, source)
                count.check(process.wait() == 0, "the training did not end")
                found = pc.load(folder / f"out{number}").state_dict()
                same = all(torch.equal(value, expected[key]) for key, value in found.items())
                count.check(same, "another model after a restart")
    count.note = f"{kills} kills; a training takes {whole:.0f} s"
    return count


def _write_table(folder: Path) -> None:
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=ROWS)
    table = pa.table({"a": hidden, "b": hidden + rng.normal(size=ROWS), "c": np.where(hidden > 0, "x", "y")})
    folder.mkdir()
    pq.write_table(table, folder / "t.parquet", row_group_size=500)


def _run(folder: Path, out: str) -> subprocess.Popen[bytes]:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    fit = ["fit", str(folder / "big"), "--out", str(folder / out), "--resume", "--checkpoint-every", "10"]
    size = ["--steps", "400", "--points", "4", "--width", "8", "--threads", "1"]
    command = [*torchrun, "--max-restarts", str(RESTARTS), "-m", "picirc", *fit, *size]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _kill_one(parent: int, source: random.Random) -> int:
    """Kill one of the children of a process, and return how many were killed: none if there are none."""
    try:
        children = [int(child) for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
        os.kill(source.choice(children), signal.SIGKILL)
    except (OSError, IndexError):  # it has ended, or its children have
        return 0
    return 1
