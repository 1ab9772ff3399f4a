# SPDX-License-Identifier: Apache-2.0
"""Kinds of evidence for a batch of data points, and the values of the input distributions given each of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Protocol, Self

import numpy as np
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


Piece = tuple[float, float]

# Ranges and sets: the probability of regions under the input distributions, and draws from them

_BISECTIONS = 80
_REACH = 64.0  # standard deviations within which a draw from an infinite interval is searched
# Nodes for the probability that correlated columns lie in their intervals: for two columns, and for more.
_NODES = (48, 1024)
_FEW_NODES = (12, 32)  # for two digits
_NEGLIGIBLE = 1e-4  # states of less weight are left out of results with two digits
_CANDIDATES = 128  # among which one is drawn if several correlated columns are restricted
_AT_ONCE = 2**22  # elements of temporaries


@dataclass(frozen=True)
class Region:
    """A set of values that a variable is known to be in."""

    intervals: tuple[Piece, ...] = ()  # disjoint and closed; a value of a discrete variable is an interval
    points: tuple[float, ...] = ()  # values of a continuous variable, which have a density but no probability

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The intervals, then the points as intervals of length zero."""
        return (*self.intervals, *((point, point) for point in self.points))

    def holds(self, x: Tensor) -> Tensor:
        """Return which of the values are inside."""
        inside = [(x >= low) & (x <= high) for low, high in self.pieces]
        return torch.stack(inside).any(0) if inside else torch.zeros_like(x, dtype=torch.bool)

    def meet(self, other: Region) -> Region:
        """Return the intersection."""
        both = [(max(a, c), min(b, d)) for a, b in self.intervals for c, d in other.intervals]
        mine, theirs = (torch.tensor(region.points, dtype=torch.float64) for region in (self, other))
        kept = [*mine[other.holds(mine)].tolist(), *theirs[self.holds(theirs)].tolist()]
        return Region(tuple((low, high) for low, high in both if low <= high), tuple(dict.fromkeys(kept)))

    def log_pieces(self, family: Family, params: Tensor) -> Tensor:
        """Return the log-probability of each interval and the log-density of each point, ``(F, K, n)``."""
        ends = params.new_tensor(self.intervals, dtype=torch.float64).view(-1, 2).T
        low, high = (end.expand(len(params), -1) for end in ends)
        points = params.new_tensor(self.points, dtype=torch.float64).expand(len(params), -1)
        parts = [family.log_interval(params, low, high)] if self.intervals else []
        parts += [family.log_prob(params, points.to(params.dtype))] if self.points else []
        return torch.cat(parts, -1) if parts else params.new_zeros(*params.shape[:2], 0)

    def log_at_most(self, family: Family, params: Tensor, x: Tensor) -> Tensor:
        """Return the log-probability of the values inside that are at most ``x``, ``(F, n)`` to ``(F, K, n)``."""
        found = params.new_full((len(x), params.shape[1], x.shape[1]), -torch.inf)
        for low, high in self.intervals:
            inside = family.log_interval(params, torch.full_like(x, low), x.clamp(max=high))
            found = torch.logaddexp(found, torch.where((x < low).unsqueeze(1), -torch.inf, inside))
        for point in self.points:
            density = family.log_prob(params, torch.full_like(x, point))
            found = torch.logaddexp(found, torch.where((x < point).unsqueeze(1), -torch.inf, density))
        return found

    def draw(self, family: Family, params: Tensor, generator: torch.Generator) -> Tensor:
        """Draw one value for each parameter vector ``(n, P)``."""
        alone = params.unsqueeze(1)  # each draw is a variable with one state
        piece = _pick(self.log_pieces(family, alone).squeeze(1), generator)
        low, high = params.new_tensor(self.pieces).T[:, piece]
        found: Tensor = low.clone()
        rows = (low < high).nonzero().flatten()
        if len(rows):
            found[rows] = _draw_within(family, alone[rows], low[rows], high[rows], generator)
        return found


@dataclass(frozen=True)
class Restricted(WithPoints):
    """Exact values, and variables known to lie in regions, which are the same for all data points.

    Several intervals of correlated columns in one block have no closed form. Their probability is integrated
    numerically, to about eight digits for two columns and four digits for more. The ``conditionals`` are right for a
    block without a region.
    """

    regions: Mapping[int, Region]  # by variable

    def write(self, family: Family, params: Tensor, columns: Tensor, out: Tensor) -> None:
        """Write the log-probabilities of values and regions to ``out``, ``(fold, states, batch)``."""
        self.points.write(family, params, columns, out)
        for slot, region in self._own(columns):
            alone = params[slot : slot + 1] if len(params) > 1 else params
            mass = region.log_pieces(family, alone)[0].logsumexp(-1, keepdim=True)  # (states, 1)
            x = self.points.values[columns[slot]]
            out[slot] += torch.where(x.isnan(), mass, torch.where(region.holds(x), 0.0, -torch.inf))

    def joint(self, block: Block, columns: Tensor) -> Tensor:
        """Return the log-probability of correlated columns, ``(states, batch)``."""
        x = self.points.values[columns]
        own = self._own(columns)
        if not own:
            return block.log_prob(x)
        outside = torch.stack([~region.holds(x[slot]) & ~x[slot].isnan() for slot, region in own]).any(0)
        found = block.params.new_empty(block.params.shape[1], x.shape[1])
        patterns, which = torch.unique(x.isnan().T, dim=0, return_inverse=True)
        for number, missing in enumerate(patterns):
            free = [(slot, region) for slot, region in own if bool(missing[slot])]
            size = max(1, _AT_ONCE // (block.params.shape[1] * len(_rule(max(0, len(free) - 1))[1])))
            for rows in (which == number).nonzero().flatten().split(size):
                found[:, rows] = _log_mass(block, x[:, rows], free)
        return found.masked_fill(outside, -torch.inf)

    def agreement(self, block: Block, columns: Tensor, weights: Tensor) -> Tensor:
        """Return ``log P(regions | values)`` of correlated columns in intervals, ``(states, batch)``, to two digits.

        All data points have the same missing values. The result is 0 in states of negligible weight.
        """
        x = self.points.values[columns]
        bounds = {slot: region.intervals[0] for slot, region in self._own(columns)}
        kept = (weights > _NEGLIGIBLE).nonzero().flatten()
        found = x.new_zeros(len(weights), x.shape[1])
        found[kept] = _rectangle(_of_states(block)[kept], block.params[:, kept], x, bounds, _FEW_NODES)
        return found

    def fill(self, block: Block, columns: Tensor, x: Tensor, state: Tensor, generator: torch.Generator) -> Tensor:
        """Draw the missing restricted columns of values ``(m, samples)`` in the given states."""
        x = x.clone()
        own = self._own(columns)
        patterns, which = torch.unique(x.isnan().T, dim=0, return_inverse=True)
        part = state // (block.params.shape[1] // len(block.matrices))
        for number, missing in enumerate(patterns):
            free = [(slot, region) for slot, region in own if bool(missing[slot])]
            for index, matrix in enumerate(block.matrices):
                rows = ((which == number) & (part == index)).nonzero().flatten()
                for some in rows.split(_AT_ONCE // _CANDIDATES) if free and len(rows) else ():
                    mean, std = block.params[:, state[some]].unbind(-1)  # (m, samples)
                    x[:, some] = _draw_joint(matrix, mean, std, x[:, some], free, generator)
        return x

    def _own(self, columns: Tensor) -> list[tuple[int, Region]]:
        return [(slot, self.regions[c]) for slot, c in enumerate(columns.tolist()) if c in self.regions]


Free = list[tuple[int, Region]]


def _alternatives(x: Tensor, free: Free) -> Iterator[tuple[Tensor, dict[int, Piece]]]:
    """Yield all combinations of one piece of each region: the values with points filled in, and the intervals.

    An interval of length zero, where two ranges meet, has no probability: correlated columns have no atoms.
    """
    choices: list[list[Piece | float]] = [[*(p for p in r.intervals if p[0] < p[1]), *r.points] for _, r in free]
    for pieces in product(*choices):
        known, bounds = x.clone(), dict[int, Piece]()
        for (slot, _), piece in zip(free, pieces, strict=True):
            if isinstance(piece, float):
                known[slot] = piece
            else:
                bounds[slot] = piece
        yield known, bounds


def _of_states(block: Block) -> Tensor:
    """Return the correlation matrix of every state, ``(states, m, m)``."""
    return block.matrices.repeat_interleave(block.params.shape[1] // len(block.matrices), 0)


def _log_mass(block: Block, x: Tensor, free: Free) -> Tensor:
    """Return ``log p(observed, regions)``, ``(states, batch)``, for rows with the same missing values."""
    matrices = block.matrices if len(block.matrices) == 1 else _of_states(block)
    total = []
    for known, bounds in _alternatives(x, free):
        density = block.log_prob(known)
        if bounds:
            density = density + _rectangle(matrices, block.params, known, bounds, _NODES)
        total.append(density)
    if not total:  # a region without any value
        return block.params.new_full((block.params.shape[1], x.shape[1]), -torch.inf)
    return torch.stack(total).logsumexp(0)


def _rectangle(
    matrices: Tensor, params: Tensor, x: Tensor, bounds: Mapping[int, Piece], sizes: tuple[int, int]
) -> Tensor:
    """Return ``log P(bounds | observed)``, ``(states, batch)``, for rows with the same missing values.

    The correlation matrices are ``(states or 1, m, m)``.
    """
    slots = list(bounds)
    seen, gain, factor = _conditional(matrices, x, slots)
    mean, std = (p.unsqueeze(2) for p in params.unbind(-1))  # (m, states, 1)
    expected = torch.einsum("krs,skb->rkb", gain, ((x.unsqueeze(1) - mean) / std)[seen])
    nodes, weights = (part.to(x)[..., None, None] for part in _rule(len(bounds) - 1, sizes))
    masses, _ = _walk(bounds, expected, factor.permute(1, 2, 0).unsqueeze(3), mean[slots], std[slots], nodes)
    return (masses + weights.log()).logsumexp(0)


def _draw_joint(matrix: Tensor, mean: Tensor, std: Tensor, x: Tensor, free: Free, generator: torch.Generator) -> Tensor:
    """Draw the restricted columns of samples ``(m, samples)`` with the same missing values, each in its own state."""
    found = x.clone()
    count = 1 if len(free) == 1 and len(free[0][1].pieces) == 1 else _CANDIDATES
    u = torch.rand(len(free), count, x.shape[1], generator=generator, dtype=x.dtype, device=x.device)
    tried = []
    for known, bounds in _alternatives(x, free):
        slots = list(bounds)
        seen, gain, factor = _conditional(matrix, known, slots)
        scores = (known - mean) / std
        logs, drawn = _walk(bounds, gain @ scores[seen], factor, mean[slots], std[slots], u[: len(bounds)])
        if len(bounds) < len(free):
            logs = logs + _log_density(matrix, scores)
        values = known.unsqueeze(1).repeat(1, logs.shape[0], 1)
        for slot, value in drawn.items():
            values[slot] = value
        tried.append((logs, values))
    logs = torch.cat([logs for logs, _ in tried])  # (candidates, samples)
    chosen = _pick(logs.T, generator)
    values = torch.cat([values for _, values in tried], 1)  # (m, candidates, samples)
    best = values[:, chosen, torch.arange(x.shape[1], device=x.device)]
    for slot, _ in free:
        found[slot] = best[slot]
    return found


def _log_density(matrix: Tensor, scores: Tensor) -> Tensor:
    """Return the log-density of scores ``(m, n)`` with the same missing ones, up to a constant."""
    seen = (~scores[:, 0].isnan()).nonzero().flatten()
    factor = torch.linalg.cholesky(matrix[seen][:, seen])
    white: Tensor = torch.linalg.solve_triangular(factor, scores[seen], upper=False)
    return -0.5 * white.square().sum(0)


def _conditional(matrix: Tensor, x: Tensor, slots: list[int]) -> tuple[list[int], Tensor, Tensor]:
    """Condition the columns ``slots`` on those observed in ``x``.

    Returns:
        The observed columns, the weights of their scores, and the Cholesky factor of the conditional covariance
        ``(..., columns, columns)``.
    """
    seen = [slot for slot in range(len(x)) if slot not in slots and not bool(x[slot, :1].isnan().any())]
    cross = matrix[..., slots, :][..., seen]
    gain = torch.linalg.solve(matrix[..., seen, :][..., seen], cross.mT).mT if seen else cross
    return seen, gain, torch.linalg.cholesky(matrix[..., slots, :][..., slots] - gain @ cross.mT)


def _walk(
    bounds: Mapping[int, Piece], expected: Tensor, factor: Tensor, mean: Tensor, std: Tensor, u: Tensor
) -> tuple[Tensor, dict[int, Tensor]]:
    """Draw columns one after another, each inside its interval given those before.

    Args:
        bounds: The interval of each column.
        expected: The expected scores given what is observed, ``(columns, ...)``.
        factor: The Cholesky factor of their covariance, ``(columns, columns, ...)``.
        mean: ``(columns, ...)``.
        std: ``(columns, ...)``.
        u: Numbers between 0 and 1, ``(columns or one fewer, draws, ...)``.

    Returns:
        The log-probability of all intervals, each given what was drawn before ``(draws, ...)``: its exponential has the
        joint probability as its mean over u. And the values by column.
    """
    total = expected.new_zeros(u.shape[1], *expected.shape[1:])
    shocks: list[Tensor] = []
    values = {}
    for place, (slot, ends) in enumerate(bounds.items()):
        centre = expected[place] + sum((factor[place, i] * shock for i, shock in enumerate(shocks)), start=total * 0)
        low, high = (((end - mean[place]) / std[place] - centre) / factor[place, place] for end in ends)
        upper = low + high > 0  # mirrored, because the upper tail has no digits
        a, b = torch.where(upper, -high, low), torch.where(upper, -low, high)
        below, above = torch.special.log_ndtr(a), torch.special.log_ndtr(b)
        mass = above + torch.log1p(-(below - above).exp().clamp(max=1.0))
        total = total + mass
        if place < len(u):
            share = torch.logaddexp(below, mass + u[place].log())
            shock = torch.special.ndtri(share.exp().clamp(min=torch.finfo(total.dtype).tiny)).clamp(min=a, max=b)
            shocks.append(torch.where(upper, -shock, shock))
            values[slot] = mean[place] + std[place] * (centre + factor[place, place] * shocks[-1])
    return total, values


@cache
def _rule(dimensions: int, sizes: tuple[int, int] = _NODES) -> tuple[Tensor, Tensor]:
    """Return nodes between 0 and 1, ``(dimensions, nodes)``, and their weights."""
    if dimensions == 0:
        return torch.zeros(0, 1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    if dimensions == 1:
        nodes, weights = np.polynomial.legendre.leggauss(sizes[0])
        return torch.from_numpy((nodes + 1) / 2).unsqueeze(0), torch.from_numpy(weights / 2)
    drawn = torch.quasirandom.SobolEngine(dimensions, scramble=True, seed=0).draw(sizes[1], dtype=torch.float64)
    return drawn.T.clamp(1e-9, 1 - 1e-9), torch.full((sizes[1],), 1 / sizes[1], dtype=torch.float64)


def _draw_within(family: Family, params: Tensor, low: Tensor, high: Tensor, generator: torch.Generator) -> Tensor:
    """Draw from intervals by bisection; parameters are ``(n, 1, P)``."""
    mean, std = family.mean(params).squeeze(1), family.variance(params).squeeze(1).sqrt()
    reach = _REACH * torch.where(std.isfinite(), std, 1.0 + mean.abs()).clamp(min=1.0)
    a = torch.where(torch.isinf(low), torch.minimum(mean, high) - reach, low)
    b = torch.where(torch.isinf(high), torch.maximum(mean, low) + reach, high)
    u = torch.rand(len(a), generator=generator, dtype=a.dtype, device=a.device)
    wanted = u.log() + _log_within(family, params, low, high)
    for _ in range(_BISECTIONS):
        middle = (a + b) / 2
        if family.discrete:
            middle = middle.floor()
        enough = _log_within(family, params, low, middle) >= wanted
        a, b = torch.where(enough, a, middle + 1 if family.discrete else middle), torch.where(enough, middle, b)
    return b.ceil() if family.discrete else b


def _log_within(family: Family, params: Tensor, low: Tensor, high: Tensor) -> Tensor:
    return family.log_interval(params, low.unsqueeze(1), high.unsqueeze(1))[:, 0, 0]


def _pick(logs: Tensor, generator: torch.Generator) -> Tensor:
    """Draw one choice for each row of log-weights ``(n, choices)``."""
    if logs.shape[1] == 1:
        return torch.zeros(len(logs), dtype=torch.long, device=logs.device)
    top = logs.amax(1, keepdim=True).clamp(min=-math.inf)
    weights = (logs - torch.where(top.isfinite(), top, 0.0)).exp()
    weights = torch.where(weights.sum(1, keepdim=True) > 0, weights, 1.0)
    return torch.multinomial(weights, 1, generator=generator).squeeze(1)
