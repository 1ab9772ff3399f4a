# SPDX-License-Identifier: Apache-2.0
"""Jobs, their records, and the time that they may take.

An experiment is a list of jobs. A job that ends is one line of ``results.jsonl`` and is not run again, unless its
settings have changed since. A job that is interrupted, by hand or by the budget, leaves a checkpoint behind and goes
on from there the next time.
"""

from __future__ import annotations

import _thread
import hashlib
import json
import math
import platform
import shutil
import signal
import sys
import threading
import time
import tomllib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Protocol

import torch

import picirc as pc

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "benchmarks"))  # its way to measure memory is the one of the experiments too
from measure import origin, peak  # noqa: E402

Settings = Mapping[str, Any]
Figures = dict[str, Any]
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Context:
    """Where a job works.

    Attributes:
        quick: Whether this is a trial with little data.
        folder: The results and figures of the experiment.
        runs: What is worth keeping on this machine only: learned trees, checkpoints, models.
        checkpoints: The checkpoints of this job, which are deleted when it has ended.
    """

    quick: bool
    folder: Path
    runs: Path
    checkpoints: Path


@dataclass(frozen=True)
class Job:
    """A part of an experiment that is run, recorded and repeated on its own.

    Attributes:
        key: Its name.
        settings: Everything that its figures depend on, as plain JSON values.
        run: Makes the figures.
    """

    key: str
    settings: Settings
    run: Callable[[Settings, Context], Figures]

    @property
    def digest(self) -> str:
        """A short text that tells settings apart."""
        return hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()[:8]


class Experiment(Protocol):
    """What the module of an experiment offers."""

    PLACE: str  # where it is in the paper
    PAPER: str  # the paper's figures, in words

    def jobs(self, quick: bool) -> list[Job]:
        """What is run, in this order."""

    def draw(self, records: Sequence[Record], folder: Path) -> None:
        """Make the pictures."""

    def summary(self, records: Sequence[Record]) -> str:
        """Our figures, in a few words."""

    def rows(self, records: Sequence[Record]) -> list[list[str]]:
        """Our figures as a table, with its head."""


class Budget:
    """The time that is left; when it is over, the job in hand is interrupted as by Ctrl-C.

    A training notices that between two steps, and writes a checkpoint.

    Args:
        minutes: From now on.
    """

    def __init__(self, minutes: float = math.inf) -> None:
        self._end = time.monotonic() + 60 * minutes

    @property
    def left(self) -> float:
        """The seconds left."""
        return max(0.0, self._end - time.monotonic())

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """Raise ``KeyboardInterrupt`` in the main thread when the time is over, and not after leaving."""
        # A shell that starts a job in the background has interruptions ignored; ours must come through.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        timer = threading.Timer(min(self.left, threading.TIMEOUT_MAX), _thread.interrupt_main)
        timer.daemon = True
        try:
            if math.isfinite(self._end):
                timer.start()
            yield
        finally:
            timer.cancel()
            if timer.is_alive():
                timer.join()
            signal.signal(signal.SIGINT, before)


@dataclass(frozen=True)
class Runner:
    """Runs the jobs of one experiment.

    Attributes:
        name: The experiment.
        root: The folder with a folder for each experiment.
        quick: Whether this is a trial.
        budget: The time there is.
    """

    name: str
    root: Path
    quick: bool = False
    budget: Budget = field(default_factory=Budget)

    @property
    def folder(self) -> Path:
        """The results and figures of the experiment."""
        return self.root / self.name

    def records(self, jobs: Sequence[Job]) -> list[Record]:
        """The record of every job that has ended with its present settings, in the order of the jobs."""
        found = {(record["key"], record["digest"]): record for record in read_records(self.folder)}
        return [found[job.key, job.digest] for job in jobs if (job.key, job.digest) in found]

    def run(self, jobs: Sequence[Job]) -> bool:
        """Run what has not ended yet; False when a job failed.

        Raises:
            KeyboardInterrupt: The budget is over, or the user wants to stop.
        """
        about = circumstances()
        whole = True
        for number, job in enumerate(jobs, start=1):
            done = {(r["key"], r["digest"]) for r in read_records(self.folder)}
            if (job.key, job.digest) in done:
                continue
            if not self.budget.left:
                raise KeyboardInterrupt
            print(f"{self.name} {number} of {len(jobs)}: {job.key}", flush=True)
            try:
                self._run(job, about)
            except Exception:  # the next job may be luckier
                traceback.print_exc()
                whole = False
        return whole

    def _run(self, job: Job, about: Mapping[str, object]) -> None:
        runs = self.root / "runs"
        checkpoints = runs / self.name / f"{job.key}-{job.digest}"
        context = Context(self.quick, self.folder, runs, checkpoints)
        self.folder.mkdir(parents=True, exist_ok=True)
        figures: Figures = {}
        started, before = time.perf_counter(), _spent(checkpoints)
        try:
            with self.budget.enforced():
                memory = peak(lambda: figures.update(job.run(job.settings, context)), times=1)
        except KeyboardInterrupt:
            _spend(checkpoints, before + time.perf_counter() - started)
            raise
        record = {
            "key": job.key,
            "settings": job.settings,
            "digest": job.digest,
            "figures": figures,
            "seed": job.settings.get("seed"),
            "command": f"python experiments/reproduce.py {self.name}{' --quick' * self.quick} --only {job.key}",
            "seconds": round(before + time.perf_counter() - started, 2),
            "peak_bytes": figures.pop("peak_bytes", memory),  # a job may have measured in another process
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            **about,
        }
        append_record(self.folder, record)
        shutil.rmtree(checkpoints, ignore_errors=True)


def read_settings(module: str, quick: bool) -> dict[str, Any]:
    """The ``settings.toml`` beside a module; in a trial with the changes of its table ``quick``."""
    return _with_trial(Path(module).with_name("settings.toml"), quick)


def read_models(quick: bool) -> dict[str, dict[str, Any]]:
    """The settings of the models that the experiments compare, by name."""
    return _with_trial(HERE / "models.toml", quick)


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with changes, table by table."""
    found = dict(base)
    for name, value in changes.items():
        old = found.get(name)
        found[name] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return found


def read_records(folder: Path) -> list[Record]:
    """The results of an experiment so far."""
    path = folder / "results.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append_record(folder: Path, record: Record) -> None:
    """Add a result in one write, so that no line is ever half there and two processes may add to one file."""
    line = json.dumps(record, allow_nan=False) + "\n"
    with (folder / "results.jsonl").open("ab", buffering=0) as file:
        file.write(line.encode())


def chosen(jobs: Sequence[Job], patterns: Sequence[str]) -> list[Job]:
    """The jobs whose keys match one of the patterns, such as ``mnist-*-N16-*``; without patterns all."""
    return [job for job in jobs if not patterns or any(fnmatch(job.key, pattern) for pattern in patterns)]


def circumstances() -> dict[str, object]:
    """Under what the figures come about: read at the start, whatever happens to the files meanwhile."""
    found = origin()
    versions = {"picirc": pc.__version__, "torch": torch.__version__, "python": platform.python_version()}
    kept = {name: found[name] for name in ("revision", "processor", "cores")}
    return {**kept, "threads": torch.get_num_threads(), "versions": versions}


def _with_trial(path: Path, quick: bool) -> dict[str, Any]:
    found = tomllib.loads(path.read_text())
    changes = found.pop("quick", {})
    return merged(found, changes) if quick else found


def _spent(checkpoints: Path) -> float:
    """The seconds that a job took before it was interrupted."""
    path = checkpoints / "spent.json"
    return float(json.loads(path.read_text())["seconds"]) if path.exists() else 0.0


def _spend(checkpoints: Path, seconds: float) -> None:
    if checkpoints.exists():  # without a checkpoint the job starts anew, and so does its time
        (checkpoints / "spent.json").write_text(json.dumps({"seconds": seconds}))
