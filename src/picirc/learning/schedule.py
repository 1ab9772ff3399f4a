# SPDX-License-Identifier: Apache-2.0
"""Step sizes: cosine annealing with warm restarts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from picirc.errors import ArgumentError


@dataclass(frozen=True)
class Cosine:
    """``low + ½ (high − low) (1 + cos(π t / period))`` with ``t`` starting again at 0 after every period.

    During the warm-up the step size is that times ``(step + 1) / warmup``.

    Args:
        high: The step size at the start of a period.
        low: The step size that it falls to.
        period: The number of steps between restarts; None for one period over the whole training.
        warmup: The number of steps of the warm-up at the very start.

    Example:
        >>> schedule = Cosine(1e-2, 1e-4, period=500)
        >>> round(schedule(0, 1000), 4), round(schedule(250, 1000), 5), round(schedule(500, 1000), 4)
        (0.01, 0.00505, 0.01)
    """

    high: float = 1e-2
    low: float = 1e-4
    period: int | None = 500
    warmup: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high:
            raise ArgumentError("high, low", "step sizes with 0 < low ≤ high", (self.high, self.low))
        if self.period is not None and self.period < 1:
            raise ArgumentError("period", "a positive number of steps, or None", self.period)
        if self.warmup < 0:
            raise ArgumentError("warmup", "a number of steps, 0 for none", self.warmup)

    def __call__(self, step: int, steps: int) -> float:
        """The step size at a step of a training of ``steps`` steps."""
        period = self.period or max(1, steps)
        size = self.low + 0.5 * (self.high - self.low) * (1 + math.cos(math.pi * (step % period) / period))
        return size * min(1.0, (step + 1) / max(1, self.warmup))
