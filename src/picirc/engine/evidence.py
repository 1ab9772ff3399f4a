# SPDX-License-Identifier: Apache-2.0
"""Kinds of evidence for a batch of data points, and the values of the input distributions given each of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, Self

import torch
from torch import Tensor

from picirc.engine.inputs import chunks, fold
from picirc.inputs import Family
from picirc.inputs.correlated import Block
from picirc.inputs.discrete import look_up


class Evidence(Protocol):
    """What a pass up needs of any evidence."""

    @property
    def points(self) -> Points:
        """The values that are known exactly."""

    @property
    def batch(self) -> int:
        """The number of data points."""

    def part(self, start: int, stop: int) -> Evidence:
        """Return a part of the batch."""

    def write(self, family: Family, params: Tensor, columns: Tensor, out: Tensor) -> None:
        """Write the log-probability in every state to ``out``, ``(fold, states, batch)``."""

    def joint(self, block: Block, columns: Tensor) -> Tensor:
        """Return the log-probability of correlated columns, ``(states, batch)``."""


@dataclass(frozen=True)
class Points:
    """Observed values."""

    values: Tensor  # `(variables, batch)`; NaN where a value is missing
    missing: Tensor | None  # `(variables, batch)`; None if nothing is missing

    @property
    def points(self) -> Points:
        """These values."""
        return self

    @property
    def batch(self) -> int:
        """The number of data points."""
        return self.values.shape[1]

    def part(self, start: int, stop: int) -> Points:
        """Return a part of the batch."""
        missing = None if self.missing is None else self.missing[:, start:stop].contiguous()
        return Points(self.values[:, start:stop].contiguous(), missing)

    def write(self, family: Family, params: Tensor, columns: Tensor, out: Tensor) -> None:
        """Write the log-probabilities of the values to ``out``, ``(fold, states, batch)``; log 1 if missing.

        Parameters are ``(fold or 1, states, P)``, or ``(fold, states, batch, P)`` if they differ between data points.
        """
        x, missing = self.columns(family, columns)
        if params.ndim == 4:  # treat each data point as a variable of its own
            alone = params.transpose(1, 2).expand(-1, x.shape[1], -1, -1).flatten(0, 1)  # (fold * batch, states, P)
            out.copy_(family.log_prob(alone, x.reshape(-1, 1)).view(*x.shape, -1).mT)
        elif (table := family.table(params)) is not None:
            look_up(table, x.long(), out)
        else:
            for part in chunks(out):
                out[part] = family.log_prob(fold(params, part), x[part])
        if missing is not None:
            out.masked_fill_(missing.unsqueeze(1), 0.0)

    def joint(self, block: Block, columns: Tensor) -> Tensor:
        """Return the log-density of correlated columns, ``(states, batch)``."""
        return block.log_prob(self.values[columns])

    def conditionals(self, block: Block, columns: Tensor) -> Tensor:
        """Return the parameters of each correlated column given the values, ``(m, states, batch, 2)``."""
        return block.given(self.values[columns])

    def columns(self, family: Family, columns: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the values of some columns, neutral ones in place of missing ones, and a mask of the missing ones."""
        x = self.values.index_select(0, columns)
        if self.missing is None:
            return x, None
        missing = self.missing.index_select(0, columns)
        return x.masked_fill_(missing, family.neutral), missing


@dataclass(frozen=True)
class WithPoints:
    """Base class of evidence that consists of exact values and of something else."""

    points: Points

    @property
    def batch(self) -> int:
        """The number of data points."""
        return self.points.batch

    def part(self, start: int, stop: int) -> Self:
        """Return a part of the batch."""
        return replace(self, points=self.points.part(start, stop))

    def conditionals(self, block: Block, columns: Tensor) -> Tensor:
        """Return the parameters of each correlated column given the exact values, ``(m, states, batch, 2)``."""
        return self.points.conditionals(block, columns)


@dataclass(frozen=True)
class Intervals(WithPoints):
    """Exact values, and intervals for all variables. An exact value outside its interval has probability zero."""

    low: Tensor  # `(variables, batch)`; −inf where there is no lower bound
    high: Tensor  # `(variables, batch)`; +inf where there is no upper bound

    def part(self, start: int, stop: int) -> Intervals:
        """Return a part of the batch."""
        low, high = (bound[:, start:stop].contiguous() for bound in (self.low, self.high))
        return Intervals(self.points.part(start, stop), low, high)

    def write(self, family: Family, params: Tensor, columns: Tensor, out: Tensor) -> None:
        """Write the log-probabilities of values and intervals to ``out``, ``(fold, states, batch)``."""
        self.points.write(family, params, columns, out)
        low, high, x = (values.index_select(0, columns) for values in (self.low, self.high, self.points.values))
        outside = ((x < low) | (x > high)).unsqueeze(1)  # false where a value is missing
        certain = (~x.isnan() | (torch.isneginf(low) & torch.isposinf(high))).unsqueeze(1)
        for part in chunks(out):
            inside = family.log_interval(fold(params, part), low[part], high[part])
            out[part] += inside.masked_fill_(certain[part], 0.0)
        out.masked_fill_(outside, -torch.inf)

    def joint(self, block: Block, columns: Tensor) -> Tensor:
        """Return the log-probability of correlated columns, ``(states, batch)``, with at most one interval."""
        return block.log_interval(*(values[columns] for values in (self.points.values, self.low, self.high)))


@dataclass(frozen=True)
class Modes(WithPoints):
    """Exact values, and in place of a missing value the most probable one of each state."""

    def write(self, family: Family, params: Tensor, columns: Tensor, out: Tensor) -> None:
        """Write the log-probabilities to ``out``, ``(fold, states, batch)``."""
        self.points.write(family, params, columns, out)
        if self.points.missing is not None:
            missing = self.points.missing.index_select(0, columns).unsqueeze(1)
            best = family.mode_log_prob(params)
            best = best if best.ndim == 3 else best.unsqueeze(-1)  # (fold or 1, states, batch or 1)
            torch.where(missing, best, out, out=out)

    def joint(self, block: Block, columns: Tensor) -> Tensor:
        """Return the log-density of correlated columns, ``(states, batch)``."""
        return block.at_mode(self.points.values[columns])


@dataclass(frozen=True)
class Weighted(WithPoints):
    """Exact values, and for each data point one variable t that is weighted by the mean of its state.

    The value of the root is ``p(e) · E[X_t − c_t | e]`` with a constant ``c_t`` below the means of all states. The
    flows are those of the distribution proportional to ``p(x, e) (x_t − c_t)``.
    """

    variable: Tensor  # `(batch,)`: the variable t
    offset: Tensor  # `(variables,)`: the constants c

    def part(self, start: int, stop: int) -> Weighted:
        """Return a part of the batch."""
        return Weighted(self.points.part(start, stop), self.variable[start:stop], self.offset)

    def write(self, family: Family, params: Tensor, columns: Tensor, out: Tensor) -> None:
        """Write the log-probabilities plus the log-weights to ``out``, ``(fold, states, batch)``."""
        self.points.write(family, params, columns, out)
        tilt = (family.mean(params) - self.offset[columns].unsqueeze(1)).log()  # (fold, states)
        slots, rows = (columns.unsqueeze(1) == self.variable.unsqueeze(0)).nonzero(as_tuple=True)
        out[slots, :, rows] += tilt[slots]

    def joint(self, block: Block, columns: Tensor) -> Tensor:
        """Return the log-density of correlated columns plus the log-weights, ``(states, batch)``."""
        values = self.points.values[columns]
        mean = block.family.mean(block.given(values))  # (m, states, batch)
        tilt = (mean - self.offset[columns].view(-1, 1, 1)).log()
        tilted = (columns.unsqueeze(1) == self.variable).unsqueeze(1)  # (m, 1, batch)
        return block.log_prob(values) + torch.where(tilted, tilt, 0.0).sum(0)
