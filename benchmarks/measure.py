# SPDX-License-Identifier: Apache-2.0
"""Measuring: medians, ratios of interleaved runs, peak memory, and what a figure has to say about its origin."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import torch

from picirc.native import kernels_for

ROOT = Path(__file__).parent.parent

# glibc maps every large block anew and gives it back at once; with these it keeps what it has. Which of the two a
# program runs under is not the library's choice, so every figure is measured under both.
_KEEP = str(2**32)
ALLOCATORS: dict[str, dict[str, str]] = {
    "default": {},
    "tuned": {"MALLOC_MMAP_THRESHOLD_": _KEEP, "MALLOC_TRIM_THRESHOLD_": _KEEP},
}

Run = Callable[[], object]


def cores() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def environment(allocator: str, threads: int) -> dict[str, str]:
    """The environment of a process that measures: the allocator's setting and the number of threads."""
    names = {name for setting in ALLOCATORS.values() for name in setting}
    kept = {name: value for name, value in os.environ.items() if name not in names}
    return {**kept, **ALLOCATORS[allocator], "OMP_NUM_THREADS": str(threads)}


@dataclass(frozen=True)
class Timing:
    """Medians of interleaved repetitions of a case and of what it is compared with.

    Attributes:
        seconds: The median time of the case.
        base: The median time of the comparison.
        ratio: The median over the repetitions of case / comparison, in which slow spells of the machine cancel.
        repetitions: How many there were.
    """

    seconds: float
    base: float
    ratio: float
    repetitions: int


def interleaved(
    case: Run, base: Run, budget: float, prepare: Run | None = None, warm_up: int = 2, fewest: int = 7
) -> Timing:
    """Run base, case, base, case, … for about ``budget`` seconds.

    Args:
        case: What is measured.
        base: What it is compared with.
        budget: The time to spend. Repetitions go on until it is over, though never fewer than ``fewest``; only when
            three have already taken five times the budget is that enough.
        prepare: What runs before each run of either and is not measured.
        warm_up: How often both run before anything counts.
        fewest: The number of repetitions that a median needs.
    """
    for _ in range(warm_up):
        seconds(base, prepare)
        seconds(case, prepare)
    pairs: list[tuple[float, float]] = []
    start = time.perf_counter()
    while True:
        pairs.append((seconds(base, prepare), seconds(case, prepare)))
        spent = time.perf_counter() - start
        if (len(pairs) >= fewest and spent > budget) or (len(pairs) >= min(3, fewest) and spent > 5 * budget):
            break
    bases, times = zip(*pairs, strict=True)
    return Timing(median(times), median(bases), median(t / b for b, t in pairs), len(pairs))


def seconds(run: Run, prepare: Run | None = None) -> float:
    """The time of one run."""
    if prepare:
        prepare()
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def peak(run: Run, times: int = 2) -> int:
    """The bytes by which the resident memory grows at most, beyond what it is now, while ``run`` runs.

    It runs more than once, because buffers that the first run keeps may add to what the second one takes.
    """
    _give_back()
    before, high = _start_watching()
    for _ in range(times):
        run()
    return max(0, high() - before)


def _give_back() -> None:
    """Return free memory to the system, or a run that fills it again would seem to need none."""
    gc.collect()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


def _start_watching() -> tuple[int, Callable[[], int]]:
    """The resident bytes now, and a function for the most there have been since."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts again from here
        return _status("VmRSS"), lambda: _status("VmHWM")
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024

        def largest() -> int:
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

        return largest(), largest


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


class Fresh:
    """Runs functions each in a new process that has imported the modules and done nothing else.

    The processes are copies of one that only imports: the start is quick, and no thread of another run is alive.

    Args:
        modules: What to import beforehand.
    """

    def __init__(self, *modules: str) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(modules))

    def __call__(self, function: Callable[..., Any], *arguments: Any, timeout: float | None = None) -> Any:
        """Call a module-level function there and return its result.

        Raises:
            RuntimeError: With the reason, when it fails, dies or takes longer than ``timeout`` seconds.
        """
        here, there = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_call, args=(there, function, arguments))
        process.start()
        there.close()  # or the end of the process would not show
        try:
            if not here.poll(timeout):
                raise RuntimeError(f"longer than {timeout:g} s")
            result, failure = here.recv()
        except EOFError:
            result, failure = None, "killed"
        finally:
            process.kill()
            process.join()
        if failure:
            raise RuntimeError(failure)
        return result


def _call(pipe: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        pipe.send((function(*arguments), None))
    except Exception as error:  # whatever it is, the other side reports it
        pipe.send((None, f"{type(error).__name__}: {error}".splitlines()[0]))


@dataclass(frozen=True)
class Origin:
    """Where figures come from."""

    command: str
    date: str
    revision: str
    torch: str
    python: str
    processor: str
    cores: int
    compiled: bool  # whether the library's compiled loops are there
    allocators: dict[str, dict[str, str]]


def origin() -> dict[str, object]:
    """The circumstances of this run."""
    found = Origin(
        command=" ".join(["python", *_relative(sys.argv)]),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        revision=revision(),
        torch=torch.__version__,
        python=platform.python_version(),
        processor=_processor(),
        cores=cores(),
        compiled=kernels_for(torch.empty(1)) is not None,
        allocators=ALLOCATORS,
    )
    return asdict(found)


def _relative(arguments: list[str]) -> list[str]:
    script = Path(arguments[0]).resolve()
    return [str(script.relative_to(ROOT)) if script.is_relative_to(ROOT) else script.name, *arguments[1:]]


def revision() -> str:
    """The commit that is checked out, and whether files differ from it."""

    def git(*arguments: str) -> str:
        result = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return result.stdout.strip()

    changed = " with changes" if git("status", "--porcelain", "--untracked-files=no") else ""
    return (git("rev-parse", "--short", "HEAD") or "unknown") + changed


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
