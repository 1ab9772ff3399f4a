# SPDX-License-Identifier: Apache-2.0
"""The homogeneous chain on a grid: one start, one transition and one emission for all steps.

On N points z₁ … z_N the chain is a hidden Markov model whose tables are values of smooth functions:

    p(x_1 … x_T) = Σ start[n₁] e₁[n₁] ∏ₜ P_dt[nₜ₋₁, nₜ] eₜ[nₜ],   eₜ[n] = p(xₜ | z_n).

The forward pass normalises every filtered distribution, so that long sequences do not underflow. The backward pass
gives smoothed distributions, which are also the gradient of the log-likelihood with respect to the log-emissions.
Sequences of different lengths are computed together, the longest first, so that those still running are the first rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from picirc.autograd import first_order
from picirc.inputs import Family

Array = npt.NDArray[Any]

# The smallest probabilities: surprises stay finite, and no number is denormal, which would be slow.
_LEAST = {torch.float32: 1e-30, torch.float64: 1e-200}
_MOST_NUMBERS = 2**26  # the largest number of transition probabilities that are materialised at once


@dataclass(frozen=True, eq=False)
class Batch:
    """Sequences side by side, the longest first."""

    x: Tensor  # `(S, C)`: the first steps of all sequences, then all second steps, …
    gaps: Tensor  # `(S,)`, the time since the step before in units of the model; not used for first steps
    running: tuple[int, ...]  # the number of sequences that have a step at each time; descending
    order: tuple[int, ...]  # the position in the user's list of each sequence of the batch

    @classmethod
    def of(cls, sequences: Sequence[Tensor], gaps: Sequence[Tensor]) -> Batch:
        """Pack sequences ``(T, C)`` with their gaps ``(T,)``."""
        order = sorted(range(len(sequences)), key=lambda i: -len(sequences[i]))
        lengths = [len(sequences[i]) for i in order]
        running = np.searchsorted(-np.array(lengths), -np.arange(lengths[0]), side="left").tolist()
        ends = _ends(running)
        place = np.arange(ends[-1]) - np.repeat(ends[:-1], running)  # the sequence of every step
        places = torch.from_numpy(np.asarray(_ends(lengths))[place] + np.repeat(np.arange(len(running)), running))
        x, dt = torch.cat([sequences[i] for i in order]), torch.cat([gaps[i] for i in order])
        return cls(x[places], dt[places], tuple(running), tuple(order))

    def split(self, values: Tensor) -> list[Tensor]:
        """Values of all steps ``(S, …)`` as one tensor ``(T, …)`` for each sequence, in the user's order."""
        ends = _ends(self.running)
        found: list[Tensor] = [values] * len(self.order)
        lengths = np.searchsorted(-np.array(self.running), -np.arange(len(self.order)), side="left")
        for place, number in enumerate(self.order):
            found[number] = values[torch.tensor(ends[: lengths[place]]) + place]
        return found


@dataclass(frozen=True, eq=False)
class Chain:
    """A chain whose functions have been evaluated on a grid."""

    nodes: Tensor  # the points of the latent, `(N, d)`
    start: Tensor  # the probabilities of the first state, `(N,)`
    # `transition(gaps)`, `(D,)` to `(D, N, N)`: from each state (rows) to each state.
    transition: Callable[[Tensor], Tensor]
    inputs: tuple[tuple[Family, Tensor], ...]  # the family of each column with its parameters `(1, N, P)`

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
        """``log p(x_t | x_<t)`` ``(S,)``, filtered and, with ``smooth``, smoothed probabilities ``(S, N)``."""
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
        """The distribution of the state after each of the next steps: ``(B, N)`` to ``(steps, B, N)``."""
        distinct, index = _distinct(gaps)
        tables = self.transition(distinct)
        found = []
        for number in index.tolist():
            state = state @ tables[number]
            found.append(state)
        return torch.stack(found)

    @torch.no_grad()
    def draw_states(self, filtered: Tensor, gaps: Tensor, generator: torch.Generator, count: int) -> Tensor:
        """Draw the states ``(count, T)`` of one sequence given all its steps, from the last to the first."""
        path = [draw(filtered[-1].expand(count, -1), generator)]
        distinct, index = _distinct(gaps)
        tables = self.transition(distinct)
        for t in range(len(filtered) - 2, -1, -1):
            path.append(draw(filtered[t] * tables[index[t + 1]][:, path[-1]].T, generator))
        return torch.stack(path[::-1], 1)

    @torch.no_grad()
    def draw_ahead(self, states: Tensor, gaps: Tensor, generator: torch.Generator) -> Tensor:
        """Draw the states of the next steps after given ones: ``(count,)`` to ``(count, steps)``."""
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
        """The expectation of every column for states with the distribution ``weights``: ``(…, N)`` to ``(…, C)``."""
        columns = torch.stack([family.mean(params[0]) for family, params in self.inputs], -1)  # (N, C)
        return weights @ columns


def draw(weights: Tensor, generator: torch.Generator) -> Tensor:
    """Draw one index from each row of weights, ``(B, N)`` to ``(B,)``."""
    return torch.multinomial(weights.clamp(min=_LEAST[weights.dtype]), 1, generator=generator).squeeze(1)


def normalised(log_weights: Tensor) -> Tensor:
    """Probabilities over the last axis, with the smallest ones set to zero."""
    found = log_weights.softmax(-1)
    return torch.where(found < _LEAST[found.dtype], 0.0, found)


def repeated(table: Tensor, gaps: Tensor) -> Tensor:
    """Powers of one transition, for integer gaps: ``(N, N)`` and ``(D,)`` to ``(D, N, N)``."""
    return torch.stack([torch.linalg.matrix_power(table, int(gap)) for gap in gaps.tolist()])


class _Transitions:
    """The transition of each step, materialised once if all distinct gaps fit in memory, else step by step."""

    def __init__(self, make: Callable[[Tensor], Tensor], gaps: Tensor, index: Tensor, running: Sequence[int]) -> None:
        self._make, self._gaps = make, gaps
        first = make(gaps[:1])
        few = len(gaps) <= max(1, _MOST_NUMBERS // first[0].numel())
        self._tables = (first if len(gaps) == 1 else make(gaps)).detach().numpy() if few else None
        self._single = np.ascontiguousarray(self._tables[0]) if self._tables is not None and len(gaps) == 1 else None
        self._turned = None if self._single is None else np.ascontiguousarray(self._single.T)
        self._index = index.numpy()
        self._ends = _ends(running)

    def forward(self, t: int, state: Array, out: Array) -> None:
        """``state @ P`` for the step to time t, ``(B, N)``."""
        if self._single is not None:
            np.matmul(state, self._single, out=out)
        else:
            np.matmul(state[:, None], self._at(t), out=out[:, None])

    def backward(self, t: int, message: Array, out: Array) -> None:
        """``P @ message`` for the step to time t."""
        if self._turned is not None:
            np.matmul(message, self._turned, out=out)
        else:
            np.matmul(self._at(t), message[..., None], out=out[..., None])

    def _at(self, t: int) -> Array:
        numbers = self._index[self._ends[t] : self._ends[t + 1]]
        if self._tables is not None:
            return self._tables[numbers[0] : numbers[0] + 1] if len(numbers) == 1 else self._tables[numbers]
        return self._make(self._gaps[torch.from_numpy(numbers)]).detach().numpy()


class _Forward(torch.autograd.Function):
    """``log p(x_t | x_<t)`` of all steps; the gradient is read off the backward pass.

    This gradient is correct if all steps of a sequence have the same weight in the loss, as in a likelihood. Other
    weights raise an error.
    """

    @staticmethod
    def forward(
        ctx: Any, start: Tensor, tables: Tensor, log_emission: Tensor, index: Tensor, running: tuple[int, ...]
    ) -> Tensor:
        table = _Transitions(lambda gaps: tables[gaps], torch.arange(len(tables)), index, running)
        emission, top = _scaled(log_emission)
        filtered, scale = _forward(start, table, emission, running)
        # The first and third are not needed, but tell what a second derivative would be taken of.
        ctx.save_for_backward(start, tables, log_emission, emission, index, filtered, scale)
        ctx.running = running
        return scale.log() + top

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        _, tables, _, emission, index, filtered, scale = ctx.saved_tensors
        running, (weights,) = ctx.running, gradients
        before, after = _pairs(running)
        if not torch.equal(weights[before], weights[after]):
            raise RuntimeError("the steps of a sequence must have equal weights; differentiate sums of whole sequences")
        table = _Transitions(lambda gaps: tables[gaps], torch.arange(len(tables)), index, running)
        arriving, ratio = _backward(table, emission, scale, running)
        flow = arriving * weights.unsqueeze(1)
        to_start = flow[: running[0]].sum(0)
        to_tables = torch.zeros_like(tables)
        for number in range(len(tables)):
            some = slice(None) if len(tables) == 1 else index[after] == number
            to_tables[number] = filtered[before[some]].T @ flow[after[some]]
        return to_start, to_tables, filtered * ratio * weights.unsqueeze(1), None, None


def _pairs(running: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The positions of all pairs of consecutive steps."""
    after = np.arange(running[0], sum(running))
    return torch.from_numpy(after - np.repeat(running[:-1], running[1:])), torch.from_numpy(after)


def _scaled(log_emission: Tensor) -> tuple[Tensor, Tensor]:
    """Emissions divided by the largest of their step, and its logarithm."""
    top = log_emission.max(1).values
    return (log_emission - top.unsqueeze(1)).exp(), top


# The loops over time use NumPy: for small arrays its calls take a fraction of the time of torch's.


def _forward(start: Tensor, table: _Transitions, emission: Tensor, running: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Filtered probabilities ``(S, N)`` and the normaliser of each step ``(S,)``."""
    least = np.asarray(_LEAST[start.dtype], emission.detach().numpy().dtype)
    given, ends = emission.detach().numpy(), _ends(running)
    filtered, scale = np.empty_like(given), np.empty((len(given), 1), given.dtype)
    state: Array = np.broadcast_to(start.detach().numpy(), (running[0], len(start)))
    for t, count in enumerate(running):
        part = slice(ends[t], ends[t + 1])
        new, total = filtered[part], scale[part]
        if t:
            table.forward(t, state[:count], new)
            np.maximum(new, least, out=new)
        else:
            np.maximum(state, least, out=new)
        np.multiply(new, given[part], out=new)
        np.add.reduce(new, 1, out=total, keepdims=True)
        np.divide(new, total, out=new)
        state = new
    return torch.from_numpy(filtered), torch.from_numpy(scale).squeeze(1)


def _backward(table: _Transitions, emission: Tensor, scale: Tensor, running: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The backward messages of each step, with its own emission and without it, ``(S, N)`` each.

    The second one times the filtered probabilities gives the smoothed ones.
    """
    own, ends = (emission / scale.unsqueeze(1)).numpy(), _ends(running)
    arriving, ratio = np.empty_like(own), np.ones_like(own)
    for t in range(len(running) - 1, -1, -1):
        part = slice(ends[t], ends[t + 1])
        if t + 1 < len(running):
            later = arriving[ends[t + 1] : ends[t + 2]]
            table.backward(t + 1, later, ratio[part][: len(later)])
        np.multiply(own[part], ratio[part], out=arriving[part])
    return torch.from_numpy(arriving), torch.from_numpy(ratio)


def _ends(running: Sequence[int]) -> list[int]:
    """The position of the first step of each time, and the number of steps."""
    return np.concatenate([[0], np.cumsum(running)]).tolist()  # type: ignore[no-any-return]


def _distinct(gaps: Tensor) -> tuple[Tensor, Tensor]:
    found, index = torch.unique(gaps, return_inverse=True)
    return found, index
