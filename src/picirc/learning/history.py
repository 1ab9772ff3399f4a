# SPDX-License-Identifier: Apache-2.0
"""The records of a training, and callbacks that show or write them."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from picirc.errors import ArgumentError

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID


Record = Mapping[str, float]
Callback = Callable[[Record], None]


@dataclass
class History:
    """Records of a training, one for every validation and one at the end.

    Attributes:
        records: Each has ``step``, ``train`` and ``valid`` (mean log-likelihood per row), ``bits`` (valid, in bits per
            dimension), ``rate`` (the step size) and ``seconds``.
        stopped: Why the training ended.
        collapses: A message for each time the likelihood collapsed and training went back.
    """

    records: list[dict[str, float]] = field(default_factory=list)
    stopped: str = ""
    collapses: list[str] = field(default_factory=list)

    @property
    def best(self) -> dict[str, float]:
        """The record with the highest validation likelihood, or training likelihood without validation data."""
        if not self.records:
            raise ArgumentError("history", "at least one record", "a training that was interrupted before its first")
        return max(self.records, key=_score)

    def __repr__(self) -> str:
        if not self.records:
            return "History(empty)"
        last = self.records[-1]
        return f"History({int(last['step'])} steps, best bits {self.best['bits']:.4f}, stopped: {self.stopped})"


def _score(record: Record) -> float:
    """The validation likelihood, or the training likelihood without one; NaN is worst."""
    score = record["train"] if math.isnan(record["valid"]) else record["valid"]
    return -math.inf if math.isnan(score) else score


def json_lines(path: str | Path) -> Callback:
    """A callback that appends every record to a file, one JSON object per line. Values that are not finite are null."""
    target = Path(path)

    def write(record: Record) -> None:
        with target.open("a") as file:
            plain = {name: value if math.isfinite(value) else None for name, value in record.items()}
            file.write(json.dumps(plain, allow_nan=False) + "\n")

    return write


def tensorboard(folder: str | Path) -> Callback:
    """A callback that writes every record for TensorBoard (the ``tracking`` extra)."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ImportError('TensorBoard is not installed: pip install "picirc[tracking]"') from error
    writer = SummaryWriter(str(folder))

    def write(record: Record) -> None:
        for name, value in record.items():
            if name != "step":
                writer.add_scalar(name, value, int(record["step"]))
        writer.flush()

    return write


def bits_per_dimension(log_likelihood: float, variables: int) -> float:
    """``−log₂ p / D``: the usual measure for images and text."""
    return -log_likelihood / variables / math.log(2)


class Progress:
    """A callback that shows the bits per dimension, the steps done and the time left.

    In a ``with`` statement on a terminal it is a progress bar; otherwise it prints a line for every record.

    Args:
        steps: The largest number of steps of the training.
        stream: Where to write, by default standard error, so that results can be piped.

    Example:
        >>> show = Progress(steps=1000, stream=sys.stdout)
        >>> show({"step": 250, "train": -9.0, "valid": -10.0, "bits": 1.8, "rate": 0.01, "seconds": 5.0})
        step 250 of 1000: 1.8000 bits per dimension, 0:00:15 left
    """

    def __init__(self, steps: int, stream: TextIO | None = None) -> None:
        self._steps, self._stream = steps, stream or sys.stderr
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._first: tuple[float, float] | None = None

    def __enter__(self) -> Self:
        if self._stream.isatty():
            self._bar = _bar(self._stream)
            self._task = self._bar.add_task("", total=self._steps, bits="", left="")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._bar = None

    def expect(self, seconds: float) -> None:
        """Announce roughly how long the training will take, before it begins."""
        about = f"about {_clock(seconds)}"
        if self._bar is None or self._task is None:
            print(f"{about} expected", file=self._stream, flush=True)
        else:
            self._bar.update(self._task, left=about)

    def __call__(self, record: Record) -> None:
        """Show a record."""
        left = _clock(self._left(record))
        bits = "" if math.isnan(record["bits"]) else f"{record['bits']:.4f} bits per dimension"
        if self._bar is None or self._task is None:
            parts = filter(None, (bits, f"{left} left"))
            print(f"step {int(record['step'])} of {self._steps}: {', '.join(parts)}", file=self._stream, flush=True)
        else:
            self._bar.update(self._task, completed=record["step"], bits=bits, left=left)

    def _left(self, record: Record) -> float:
        """The seconds left at the pace since the first record, because a resumed training may have had another."""
        step, seconds = record["step"], record["seconds"]
        if self._first is None:
            self._first = (step, seconds)
            pace = seconds / step
        else:
            pace = (seconds - self._first[1]) / max(1, step - self._first[0])
        return pace * (self._steps - step)


def _bar(stream: TextIO) -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        *(SpinnerColumn(), MofNCompleteColumn(), TextColumn("steps"), BarColumn(), TimeElapsedColumn()),
        *(TextColumn("{task.fields[bits]}"), TextColumn("{task.fields[left]} left")),
    )
    return Bar(*columns, console=Console(file=stream))


def _clock(seconds: float) -> str:
    """Hours, minutes and seconds."""
    whole = max(0, math.ceil(seconds))
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
