# SPDX-License-Identifier: Apache-2.0
"""The evidence for a batch of data points, and the values of the input distributions given it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from picirc.engine.inputs import chunks, fold
from picirc.inputs import Family
from picirc.inputs.correlated import Block
from picirc.inputs.discrete import look_up


class Evidence(Protocol):
    """What a pass up through a circuit asks of evidence."""

    @property
    def batch(self) -> int:
        """The number of data points."""

    def part(self, start: int, stop: int) -> Evidence:
        """A part of the batch."""

    def write(self, family: Family, params: Tensor, columns: Tensor, out: Tensor) -> None:
        """Put log-probabilities in every state into ``out``, ``(fold, states, batch)``."""

    def joint(self, block: Block, columns: Tensor) -> Tensor:
        """The log-probability of correlated columns, ``(states, batch)``."""


@dataclass(frozen=True)
class Points:
    """Observed values."""

    values: Tensor  # `(variables, batch)`; where a value is missing it is NaN
    missing: Tensor | None  # `(variables, batch)`, or None when nothing is missing

    @property
    def batch(self) -> int:
        """The number of data points."""
        return self.values.shape[1]

    def detach(self) -> Points:
        """The same values, cut off from the graph that made them."""
        return Points(self.values.detach(), self.missing)

    def part(self, start: int, stop: int) -> Points:
        """A part of the batch."""
        missing = None if self.missing is None else self.missing[:, start:stop].contiguous()
        return Points(self.values[:, start:stop].contiguous(), missing)

    def write(self, family: Family, params: Tensor, columns: Tensor, out: Tensor) -> None:
        """Put the log-probabilities of the values into ``out``, ``(fold, states, batch)``; missing is log 1.

        Parameters are ``(fold or 1, states, P)``, or ``(fold, states, batch, P)`` if each data point has its own.
        """
        x, missing = self.columns(family, columns)
        if params.ndim == 4:  # each data point as if it were a variable of its own
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
        """The log-density of correlated columns, ``(states, batch)``."""
        return block.log_prob(self.values[columns])

    def conditionals(self, block: Block, columns: Tensor) -> Tensor:
        """Parameters of each of some correlated columns given the evidence, ``(m, states, batch, 2)``."""
        return block.given(self.values[columns])

    def columns(self, family: Family, columns: Tensor) -> tuple[Tensor, Tensor | None]:
        """The values of some columns with something harmless where they are missing, and where that is."""
        x = self.values.index_select(0, columns)
        if self.missing is None:
            return x, None
        missing = self.missing.index_select(0, columns)
        return x.masked_fill_(missing, family.neutral), missing


@dataclass(frozen=True)
class _WithPoints:
    """Evidence on other variables besides the values known exactly."""

    points: Points

    @property
    def batch(self) -> int:
        """The number of data points."""
        return self.points.batch


@dataclass(frozen=True)
class Intervals(_WithPoints):
    """Values known exactly, and values known to lie in intervals; a value known exactly lies inside or it does not.

    Attributes:
        points: The values known exactly.
        low: ``(variables, batch)``, −inf where there is no lower bound.
        high: ``(variables, batch)``, +inf where there is no upper bound.
    """

    low: Tensor
    high: Tensor

    def part(self, start: int, stop: int) -> Intervals:
        """A part of the batch."""
        low, high = (bound[:, start:stop].contiguous() for bound in (self.low, self.high))
        return Intervals(self.points.part(start, stop), low, high)

    def write(self, family: Family, params: Tensor, columns: Tensor, out: Tensor) -> None:
        """Put the log-probabilities of values and intervals into ``out``, ``(fold, states, batch)``."""
        self.points.write(family, params, columns, out)
        low, high, x = (values.index_select(0, columns) for values in (self.low, self.high, self.points.values))
        outside = ((x < low) | (x > high)).unsqueeze(1)  # false where a value is missing
        certain = (~x.isnan() | (torch.isneginf(low) & torch.isposinf(high))).unsqueeze(1)
        for part in chunks(out):
            inside = family.log_interval(fold(params, part), low[part], high[part])
            out[part] += inside.masked_fill_(certain[part], 0.0)
        out.masked_fill_(outside, -torch.inf)

    def joint(self, block: Block, columns: Tensor) -> Tensor:
        """The log-probability of correlated columns, ``(states, batch)``; an interval for one of them at most."""
        return block.log_interval(*(values[columns] for values in (self.points.values, self.low, self.high)))


@dataclass(frozen=True)
class Modes(_WithPoints):
    """Observed values; in place of a missing one each state puts its most probable value."""

    def part(self, start: int, stop: int) -> Modes:
        """A part of the batch."""
        return Modes(self.points.part(start, stop))

    def write(self, family: Family, params: Tensor, columns: Tensor, out: Tensor) -> None:
        """Put the log-probabilities into ``out``, ``(fold, states, batch)``."""
        self.points.write(family, params, columns, out)
        if self.points.missing is not None:
            missing = self.points.missing.index_select(0, columns).unsqueeze(1)
            best = family.mode_log_prob(params)
            best = best if best.ndim == 3 else best.unsqueeze(-1)  # (fold or 1, states, batch or 1)
            torch.where(missing, best, out, out=out)

    def joint(self, block: Block, columns: Tensor) -> Tensor:
        """The log-density of correlated columns, ``(states, batch)``."""
        return block.at_mode(self.points.values[columns])


@dataclass(frozen=True)
class Weighted(_WithPoints):
    """Observed values, with one variable of each data point weighted by the mean of its state.

    The root's value is then ``p(e) · E[X_t − c_t | e]`` with a constant ``c_t`` below all means of states, and the
    flows are those of the distribution proportional to ``p(x, e) (x_t − c_t)``.

    Attributes:
        points: The values known exactly.
        variable: ``(batch,)``, the variable t of each data point.
        offset: ``(variables,)``, the constants.
    """

    variable: Tensor
    offset: Tensor

    def part(self, start: int, stop: int) -> Weighted:
        """A part of the batch."""
        return Weighted(self.points.part(start, stop), self.variable[start:stop], self.offset)

    def write(self, family: Family, params: Tensor, columns: Tensor, out: Tensor) -> None:
        """Put the log-probabilities, and the logarithms of the weights, into ``out``, ``(fold, states, batch)``."""
        self.points.write(family, params, columns, out)
        tilt = (family.mean(params) - self.offset[columns].unsqueeze(1)).log()  # (fold, states)
        slots, rows = (columns.unsqueeze(1) == self.variable.unsqueeze(0)).nonzero(as_tuple=True)
        out[slots, :, rows] += tilt[slots]

    def joint(self, block: Block, columns: Tensor) -> Tensor:
        """The log-density of correlated columns with the logarithms of the weights, ``(states, batch)``."""
        values = self.points.values[columns]
        mean = block.family.mean(block.given(values))  # (m, states, batch)
        tilt = (mean - self.offset[columns].view(-1, 1, 1)).log()
        tilted = (columns.unsqueeze(1) == self.variable).unsqueeze(1)  # (m, 1, batch)
        return block.log_prob(values) + torch.where(tilted, tilt, 0.0).sum(0)

    def conditionals(self, block: Block, columns: Tensor) -> Tensor:
        """Parameters of each of some correlated columns given the evidence, ``(m, states, batch, 2)``."""
        return self.points.conditionals(block, columns)
