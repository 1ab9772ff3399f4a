# SPDX-License-Identifier: Apache-2.0
"""What a training went through."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from picirc.errors import ArgumentError

Record = Mapping[str, float]
Callback = Callable[[Record], None]


@dataclass
class History:
    """Records of a training, one for every validation and at the end.

    Attributes:
        records: Each with ``step``, ``train`` and ``valid`` (mean log-likelihood a row), ``bits`` (valid, in bits per
            dimension), ``rate`` (the step size) and ``seconds``.
        stopped: Why the training ended.
        collapses: Each time that the likelihood collapsed and training went back, in words.
    """

    records: list[dict[str, float]] = field(default_factory=list)
    stopped: str = ""
    collapses: list[str] = field(default_factory=list)

    @property
    def best(self) -> dict[str, float]:
        """The record with the highest validation likelihood (training likelihood where there is no validation)."""
        if not self.records:
            raise ArgumentError("history", "at least one record", "a training that was interrupted before its first")
        return max(self.records, key=_score)

    def __repr__(self) -> str:
        if not self.records:
            return "History(empty)"
        last = self.records[-1]
        return f"History({int(last['step'])} steps, best bits {self.best['bits']:.4f}, stopped: {self.stopped})"


def _score(record: Record) -> float:
    """The validation likelihood, or else the training likelihood; what is not a number is worst."""
    score = record["train"] if math.isnan(record["valid"]) else record["valid"]
    return -math.inf if math.isnan(score) else score


def json_lines(path: str | Path) -> Callback:
    """A callback that appends every record to a file, one JSON object a line; what is not finite becomes null."""
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
