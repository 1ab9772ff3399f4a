"""The homogeneous chain on a grid: one start, one transition and one emission for all steps.

With N points z₁ … z_N the latent chain is a hidden Markov model whose tables are values of smooth functions:

    p(x_1 … x_T) = Σ start[n₁] e₁[n₁] ∏ₜ P_dt[nₜ₋₁, nₜ] eₜ[nₜ],   eₜ[n] = p(xₜ | z_n).

The forward pass keeps every filtered distribution normalised, so that no length underflows; the backward pass gives
smoothed distributions, which are also the gradient of the log-likelihood with respect to the log-emissions. Sequences
of different lengths are computed together, the longest first, so that those still running are the first rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from picirc.inputs import Family

# Probabilities below these count as these: a surprise stays finite, and no number is denormal, which is slow.
_LEAST = {torch.float32: 1e-30, torch.float64: 1e-200}
_MOST_NUMBERS = 2**26  # of the transitions that are materialised at once


@dataclass(frozen=True, eq=False)
class Batch:
    """Sequences side by side, the longest first.

    Attributes:
        x: ``(S, C)``: the steps of all sequences, time by time: first the first step of each, then the second, …
        gaps: ``(S,)``, the time since the step before in units of the model; that of a first step is not used.
        running: How many sequences have a step at each time; descending.
        order: The place in the user's list of each sequence of the batch.
    """

    x: Tensor
    gaps: Tensor
    running: tuple[int, ...]
    order: tuple[int, ...]

    @classmethod
    def of(cls, sequences: Sequence[Tensor], gaps: Sequence[Tensor]) -> Batch:
        """Pack sequences ``(T, C)`` with their gaps ``(T,)``."""
        order = sorted(range(len(sequences)), key=lambda i: -len(sequences[i]))
        lengths = [len(sequences[i]) for i in order]
        running = [sum(length > t for length in lengths) for t in range(lengths[0])]
        rows = torch.tensor([(place, t) for t, count in enumerate(running) for place in range(count)])  # (S, 2)
        starts = torch.tensor([0, *lengths]).cumsum(0)[:-1]
        places = starts[rows[:, 0]] + rows[:, 1]
        x, dt = torch.cat([sequences[i] for i in order]), torch.cat([gaps[i] for i in order])
        return cls(x[places], dt[places], tuple(running), tuple(order))

    def split(self, values: Tensor) -> list[Tensor]:
        """Values of all steps, ``(S, …)``, as one tensor ``(T, …)`` for each sequence in the user's order."""
        ends = torch.tensor([0, *self.running]).cumsum(0).tolist()
        found: list[Tensor] = [values] * len(self.order)
        for place, number in enumerate(self.order):
            steps = [ends[t] + place for t, count in enumerate(self.running) if count > place]
            found[number] = values[torch.tensor(steps)]
        return found


@dataclass(frozen=True, eq=False)
class Chain:
    """A chain whose functions have been evaluated on a grid.

    Attributes:
        nodes: The points of the latent, ``(N, d)``.
        start: The probabilities of the first state, ``(N,)``.
        transition: ``transition(gaps)``, ``(D,)`` to ``(D, N, N)``: from each state (rows) to each state.
        inputs: The family of each column with its parameters ``(1, N, P)``.
    """

    nodes: Tensor
    start: Tensor
    transition: Callable[[Tensor], Tensor]
    inputs: tuple[tuple[Family, Tensor], ...]

    def log_emission(self, x: Tensor) -> Tensor:
        """``log p(x | z_n)`` of rows ``(S, C)`` in every state, ``(S, N)``; missing cells count as log 1."""
        total = self.start.new_zeros(len(x), len(self.start))
        for column, (family, params) in enumerate(self.inputs):
            seen = (~x[:, column].isnan()).nonzero().squeeze(1)
            if len(seen):
                values = x[seen, column].to(total.dtype).unsqueeze(0)  # (1, B)
                logs = family.log_prob(params, values)[0].T  # (B, N)
                total = total + logs if len(seen) == len(x) else total.index_add(0, seen, logs)
        return total

    def log_steps(self, batch: Batch) -> Tensor:
        """``log p(x_t | x_1 … x_{t-1})`` of all steps ``(S,)``, differentiable."""
        distinct, index = _distinct(batch.gaps)
        steps: Tensor = _Forward.apply(  # type: ignore[no-untyped-call]
            self.start, self.transition(distinct), self.log_emission(batch.x), index, batch.running
        )
        return steps

    @torch.no_grad()
    def passes(self, batch: Batch, *, smooth: bool = False) -> tuple[Tensor, Tensor, Tensor | None]:
        """``log p(x_t | x_<t)`` ``(S,)``, filtered and, if asked for, smoothed probabilities ``(S, N)``."""
        distinct, index = _distinct(batch.gaps)
        table = _Transitions(self.transition, distinct, index, batch.running)
        emission, top = _scaled(self.log_emission(batch.x))
        filtered, scale = _forward(self.start, table, emission, batch.running)
        smoothed = None
        if smooth:
            ratio = _backward(table, emission, scale, batch.running)[1]
            smoothed = filtered * ratio
            smoothed = smoothed / smoothed.sum(1, keepdim=True)
        return scale.log() + top, filtered, smoothed

    @torch.no_grad()
    def ahead(self, state: Tensor, gaps: Tensor) -> Tensor:
        """The distribution of the state after each of several steps in turn: ``(B, N)`` to ``(steps, B, N)``."""
        distinct, index = _distinct(gaps)
        tables = self.transition(distinct)
        found = []
        for number in index.tolist():
            state = state @ tables[number]
            found.append(state)
        return torch.stack(found)

    @torch.no_grad()
    def draw_states(self, filtered: Tensor, gaps: Tensor, generator: torch.Generator, count: int) -> Tensor:
        """Draw paths of states of one sequence given all its steps, from the last to the first: ``(count, T)``."""
        path = [draw(filtered[-1].expand(count, -1), generator)]
        distinct, index = _distinct(gaps)
        tables = self.transition(distinct)
        for t in range(len(filtered) - 2, -1, -1):
            weights = filtered[t] * tables[index[t + 1]][:, path[-1]].T  # (count, N)
            path.append(draw(weights, generator))
        return torch.stack(path[::-1], 1)

    @torch.no_grad()
    def draw_ahead(self, states: Tensor, gaps: Tensor, generator: torch.Generator) -> Tensor:
        """Draw the states of further steps after given ones: ``(count,)`` to ``(count, steps)``."""
        distinct, index = _distinct(gaps)
        tables = self.transition(distinct)
        path = [states]
        for number in index.tolist():
            path.append(draw(tables[number][path[-1]], generator))
        return torch.stack(path[1:], 1)

    @torch.no_grad()
    def emit(self, states: Tensor, generator: torch.Generator) -> Tensor:
        """Draw a row for each state, ``(…)`` to ``(…, C)``."""
        return torch.stack([family.sample(params[0, states], generator) for family, params in self.inputs], -1)

    @torch.no_grad()
    def means(self, weights: Tensor) -> Tensor:
        """The expectation of every column when the state has the distribution ``weights``: ``(…, N)`` to ``(…, C)``."""
        columns = torch.stack([family.mean(params[0]) for family, params in self.inputs], -1)  # (N, C)
        return weights @ columns


def draw(weights: Tensor, generator: torch.Generator) -> Tensor:
    """Draw one index from each row of weights, ``(B, N)`` to ``(B,)``."""
    return torch.multinomial(weights.clamp(min=_LEAST[weights.dtype]), 1, generator=generator).squeeze(1)


def normalised(log_weights: Tensor) -> Tensor:
    """Probabilities over the last axis, those below the least number that counts taken as zero."""
    found = log_weights.softmax(-1)
    return torch.where(found < _LEAST[found.dtype], 0.0, found)


def repeated(table: Tensor, gaps: Tensor) -> Tensor:
    """Powers of one transition, for gaps that are whole numbers: ``(N, N)`` and ``(D,)`` to ``(D, N, N)``."""
    return torch.stack([torch.linalg.matrix_power(table, int(gap)) for gap in gaps.tolist()])


class _Transitions:
    """The transition of each step, materialised for some distinct gaps at a time."""

    def __init__(self, make: Callable[[Tensor], Tensor], gaps: Tensor, index: Tensor, running: Sequence[int]) -> None:
        self._make, self._gaps = make, gaps
        self._single = len(gaps) == 1
        first = make(gaps[:1])
        keep = max(1, _MOST_NUMBERS // first[0].numel())
        self._tables = first if self._single else make(gaps) if len(gaps) <= keep else None
        ends = torch.tensor([0, *running]).cumsum(0).tolist()
        self._index = [index[a:b] for a, b in pairwise(ends)]

    def forward(self, t: int, state: Tensor) -> Tensor:
        """``state @ P`` for the step to time t: ``(B, N)`` to ``(B, N)``."""
        if self._single:
            assert self._tables is not None
            return state @ self._tables[0]
        return torch.bmm(state.unsqueeze(1), self._at(t)).squeeze(1)

    def backward(self, t: int, message: Tensor) -> Tensor:
        """``P @ message`` for the step to time t."""
        if self._single:
            assert self._tables is not None
            return message @ self._tables[0].T
        return torch.bmm(self._at(t), message.unsqueeze(2)).squeeze(2)

    def _at(self, t: int) -> Tensor:
        if self._tables is not None:
            return self._tables[self._index[t]]
        return self._make(self._gaps[self._index[t]])


class _Forward(torch.autograd.Function):
    """``log p(x_t | x_<t)`` of all steps; the gradient is read off the backward pass.

    The gradient of a weighted sum of steps is exact when all steps of a sequence have one weight, as in a likelihood;
    for other weights it would be wrong, so it refuses.
    """

    @staticmethod
    def forward(
        ctx: Any, start: Tensor, tables: Tensor, log_emission: Tensor, index: Tensor, running: tuple[int, ...]
    ) -> Tensor:
        table = _Transitions(lambda gaps: tables[gaps], torch.arange(len(tables)), index, running)
        emission, top = _scaled(log_emission)
        filtered, scale = _forward(start, table, emission, running)
        ctx.save_for_backward(tables, emission, index, filtered, scale)
        ctx.running = running
        return scale.log() + top

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        tables, emission, index, filtered, scale = ctx.saved_tensors
        running, (weights,) = ctx.running, gradients
        first = weights[: running[0]]
        ends = torch.tensor([0, *running]).cumsum(0)
        places = torch.cat([torch.arange(count) for count in running])
        if not torch.equal(weights, first[places]):
            raise RuntimeError("the steps of a sequence need one weight; differentiate sums of whole sequences")
        table = _Transitions(lambda gaps: tables[gaps], torch.arange(len(tables)), index, running)
        arriving, ratio = _backward(table, emission, scale, running)
        flow = arriving * weights.unsqueeze(1)
        to_start = flow[: running[0]].sum(0)
        before, after = _pairs(running, ends)
        to_tables = torch.zeros_like(tables)
        for number in range(len(tables)):
            some = slice(None) if len(tables) == 1 else index[after] == number
            to_tables[number] = filtered[before[some]].T @ flow[after[some]]
        return to_start, to_tables, filtered * ratio * weights.unsqueeze(1), None, None


def _pairs(running: Sequence[int], ends: Tensor) -> tuple[Tensor, Tensor]:
    """The places of every two steps that follow each other."""
    before = [torch.arange(count) + ends[t] for t, count in enumerate(running[1:])]
    after = [torch.arange(count) + ends[t + 1] for t, count in enumerate(running[1:])]
    if not before:
        return torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long)
    return torch.cat(before), torch.cat(after)


def _scaled(log_emission: Tensor) -> tuple[Tensor, Tensor]:
    """Emissions divided by the largest of their step, and its logarithm."""
    top = log_emission.max(1).values
    return (log_emission - top.unsqueeze(1)).exp(), top


def _forward(start: Tensor, table: _Transitions, emission: Tensor, running: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Filtered probabilities ``(S, N)`` and what each step was divided by ``(S,)``."""
    least = _LEAST[start.dtype]
    filtered, scale = torch.empty_like(emission), emission.new_empty(len(emission), 1)
    state, place = start.expand(running[0], -1), 0
    for t, count in enumerate(running):
        if t:
            state = table.forward(t, state[:count])
        part = slice(place, place + count)
        state = state.clamp(min=least).mul_(emission[part])
        total = state.sum(1, keepdim=True)
        state = torch.div(state, total, out=filtered[part])
        scale[part] = total
        place += count
    return filtered, scale.squeeze(1)


def _backward(table: _Transitions, emission: Tensor, scale: Tensor, running: Sequence[int]) -> tuple[Tensor, Tensor]:
    """What arrives at each step from after it: with its own emission, and without, ``(S, N)`` each.

    The second times the filtered probabilities are the smoothed ones.
    """
    own = emission / scale.unsqueeze(1)
    arriving, ratio = torch.empty_like(emission), torch.ones_like(emission)
    place = len(emission)
    later: Tensor | None = None
    for t in range(len(running) - 1, -1, -1):
        count = running[t]
        part = slice(place - count, place)
        if later is not None:
            ratio[part][: len(later)] = table.backward(t + 1, later)
        later = torch.mul(own[part], ratio[part], out=arriving[part])
        place -= count
    return arriving, ratio


def _distinct(gaps: Tensor) -> tuple[Tensor, Tensor]:
    found, index = torch.unique(gaps, return_inverse=True)
    return found, index
