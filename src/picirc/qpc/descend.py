"""The way down with choices: one state for every row, drawn or maximised.

A choice starts at the root and follows the circuit to its inputs. At a sum step the state of the result is known and
one of the integrated states is chosen; at a mixture one of the parts. What is not reached has the state −1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from picirc.native import kernels_for
from picirc.qpc.evidence import pieces
from picirc.qpc.program import Parameters, Program
from picirc.qpc.steps import MixStep, PassStep, Send, SumStep
from picirc.qpc.trace import Trace

# The scores that are in memory at a time: enough for a fast loop, and few enough for a processor's cache.
_LEAST, _MOST = 2**13, 2**20


class Chooser(Protocol):
    """How a choice is made."""

    @property
    def logarithmic(self) -> bool:
        """Whether scores are logarithms (after ``max_up``), or probabilities up to a factor (after ``up``)."""

    def pick(self, scores: Tensor) -> Tensor:
        """One choice for every row of scores, which may be overwritten: ``(n, choices)`` to ``(n,)``."""

    def look_up(self, tables: Tensor, rows: Tensor) -> Tensor:
        """``pick(tables[rows])``, where rows ``(n,)`` are many and the tables ``(m, choices)`` few."""


@dataclass(frozen=True)
class Sampler:
    """Draw in proportion to the scores, by inverting their cumulative sums."""

    generator: torch.Generator
    logarithmic: bool = False

    def pick(self, scores: Tensor) -> Tensor:
        """Draw for every row by a search in its own cumulative sum."""
        total = scores.cumsum_(-1)
        u = self._uniform(total[:, -1])
        return torch.searchsorted(total, u.unsqueeze(1), right=True).squeeze(1).clamp_(max=scores.shape[1] - 1)

    def look_up(self, tables: Tensor, rows: Tensor) -> Tensor:
        """Draw by bisection; no row of the tables is copied."""
        choices, totals = tables.shape[1], tables.cumsum(-1)
        flat, base = totals.flatten(), rows * choices
        u = self._uniform(totals[:, -1][rows])
        if native := kernels_for(totals, u):
            native.bisect(base, totals, rows, u)
            return base
        low, high = torch.zeros_like(base), torch.full_like(base, choices - 1)
        for _ in range((choices - 1).bit_length()):
            middle = (low + high) // 2
            above = flat[base + middle] > u  # the first entry above u is not after the middle
            high = torch.where(above, middle, high)
            low = torch.where(above, low, torch.minimum(middle + 1, high))
        return low

    def _uniform(self, total: Tensor) -> Tensor:
        """Uniform between zero and the totals, below them also after rounding: so never a choice without a score."""
        u = torch.rand(total.shape, generator=self.generator, dtype=total.dtype, device=total.device)
        return u * (1 - 4 * torch.finfo(total.dtype).eps) * total


@dataclass(frozen=True)
class Maximiser:
    """Take the choice with the highest score."""

    logarithmic: bool

    def pick(self, scores: Tensor) -> Tensor:
        """The best of every row."""
        return scores.argmax(-1)

    def look_up(self, tables: Tensor, rows: Tensor) -> Tensor:
        """The best of every table, once."""
        return tables.argmax(-1)[rows]


def descend(program: Program, trace: Trace, parameters: Parameters, columns: Tensor, chooser: Chooser) -> list[Tensor]:
    """Choose a state for every row.

    Args:
        program: The program.
        trace: What an upward pass left behind.
        parameters: Its parameters.
        columns: For each choice to be made, the data point of the trace that it is conditioned on, ``(samples,)``.
        chooser: How to choose.

    Returns:
        For each pool ``(rows, samples)``.
    """
    samples = len(columns)
    states = [
        torch.full((pool.rows, samples), -1, dtype=torch.long, device=columns.device) for pool in program.schedule.pools
    ]
    pool, row = program.schedule.root
    states[pool][row] = 0
    for step in reversed(program.schedule.steps):
        match step:
            case SumStep():
                results = _results(program, step.sends, program.result_shape(step), states, _count(step))
                _choose_sum(program, step, trace, parameters, columns, results, states, chooser)
            case MixStep():
                _choose_mix(program, step, trace, parameters, columns, states, chooser)
            case PassStep():
                shape = program.shapes[step.pool]
                found = _results(program, step.sends, shape, states, step.stop - step.start)
                states[step.pool][step.start : step.stop] = found
    return states


def at_once(states: Sequence[Tensor], trace: Trace | None = None) -> int:
    """The number of scores that may be in memory at a time: little beside what is there, the states and the trace."""
    chosen = sum(pool.numel() for pool in states)
    values = sum(pool.numel() for pool in trace.rows) if trace else 0
    return min(max(_LEAST, chosen, values // 16), _MOST)


def project(states: Tensor, axes: Sequence[int], target: Sequence[int]) -> Tensor:
    """The state over some axes of a row, from its state over all of them; −1 stays −1.

    Args:
        states: States of rows with the axes ``target``.
        axes: The wanted axes, as positions among them.
        target: The numbers of states of the rows' axes.
    """
    result = torch.zeros_like(states)
    strides = [1] * len(target)
    for i in range(len(target) - 2, -1, -1):
        strides[i] = strides[i + 1] * target[i + 1]
    for axis in axes:
        coordinate = torch.div(states, strides[axis], rounding_mode="floor") % target[axis]
        result = result * target[axis] + coordinate
    return torch.where(states < 0, states, result)


def _count(step: SumStep) -> int:
    return (step.stop - step.start) * step.edges


def _results(
    program: Program, sends: Sequence[Send], shape: Sequence[int], states: Sequence[Tensor], count: int
) -> Tensor:
    """The states of a step's results, from the rows that use them: ``(results, samples)``."""
    device = states[0].device
    found = torch.full((count, states[0].shape[1]), -1, dtype=torch.long, device=device)
    for send in sends:
        used = states[send.pool][program.index(send.rows, device)]
        if send.axes is not None:
            used = project(used, send.axes, program.shapes[send.pool])
        if send.sources is None:
            torch.maximum(found, used, out=found)
        else:
            sources = program.index(send.sources, device)
            # Several rows may use a result, of which a choice reaches at most one.
            found.scatter_reduce_(0, sources.unsqueeze(1).expand_as(used), used, "amax")
    return found


def _choose_sum(
    program: Program,
    step: SumStep,
    trace: Trace,
    parameters: Parameters,
    columns: Tensor,
    results: Tensor,
    states: list[Tensor],
    chooser: Chooser,
) -> None:
    g, o, z, r = program.dims(step)
    fold, samples = step.stop - step.start, len(columns)
    results = results.view(fold, step.edges, samples)
    block = parameters.weights[step.block]
    weights = block[step.first : step.first + _count(step)].reshape(fold, step.edges, g, o, z)
    cells = trace.rows[step.pool][step.start : step.stop].view(fold, g, z, r, -1)
    found = states[step.pool][step.start : step.stop]
    tables = min(samples, step.edges * g * o) if _alike(cells) else samples
    for part in pieces(fold, tables * z, at_once(states, trace)):
        found[part] = _choice(results[part], weights[part], cells[part], columns, chooser)


def _choice(results: Tensor, weights: Tensor, cells: Tensor, columns: Tensor, chooser: Chooser) -> Tensor:
    """The states of some rows, ``(fold, samples)``.

    Args:
        results: The states of their results, ``(fold, edges, samples)``, −1 where a result is not reached.
        weights: ``(fold, edges, g, o, z)``.
        cells: Their values, ``(fold, g, z, r, batch)``.
        columns: The data point of each sample.
        chooser: How to choose.
    """
    (fold, edges, g, o, z), r, samples = weights.shape, cells.shape[3], len(columns)
    outcome, edge = results.max(1)  # (fold, samples)
    active = outcome.clamp(min=0)
    at_r, rest = active % r, torch.div(active, r, rounding_mode="floor")
    at_o, at_g = rest % o, torch.div(rest, o, rounding_mode="floor")
    row = torch.arange(fold, device=columns.device).unsqueeze(1)
    number = (((row * edges + edge) * g + at_g) * o + at_o).flatten()  # of the weights that lead to each result
    if _alike(cells) and samples > edges * g * o:
        scores = _combined(weights, cells.view(fold, 1, g, 1, z), chooser)
        chosen = chooser.look_up(scores.reshape(-1, z), number)
    else:
        used = weights.reshape(-1, z).index_select(0, number).view(fold, samples, z)
        values = _values(cells, at_g, at_r, columns)
        chosen = chooser.pick(_combined(used, values, chooser, out=used).flatten(0, 1))
    state = (at_g * z + chosen.view(fold, samples)) * r + at_r
    return torch.where(outcome < 0, outcome, state)


def _alike(cells: Tensor) -> bool:
    """Whether all samples choose from the same tables: there is one data point, and no axis passes through."""
    return cells.shape[-2:] == (1, 1)


def _values(cells: Tensor, at_g: Tensor, at_r: Tensor, columns: Tensor) -> Tensor:
    """The values of the integrated states: of ``(fold, g, z, r, batch)`` those at some g, r and columns.

    The result is ``(fold, samples, z)``, or has 1 in place of samples that are all given the same.
    """
    fold, g, z, r, batch = cells.shape
    if not g == r == 1:
        row = torch.arange(fold, device=columns.device).unsqueeze(1)
        return cells[row, at_g, :, at_r, columns.unsqueeze(0)]
    # Copying rows of a transposed view is faster than gathering single numbers.
    values = cells.view(fold, z, batch).transpose(1, 2)
    return values if batch == 1 else values.index_select(1, columns)


def _combined(weights: Tensor, values: Tensor, chooser: Chooser, out: Tensor | None = None) -> Tensor:
    if chooser.logarithmic:
        return torch.add(torch.log(weights, out=out), values, out=out)
    return torch.mul(weights, values, out=out)


def _choose_mix(
    program: Program,
    step: MixStep,
    trace: Trace,
    parameters: Parameters,
    columns: Tensor,
    states: list[Tensor],
    chooser: Chooser,
) -> None:
    sources = program.index(step.sources, columns.device)  # (fold, arity)
    state = states[step.pool][step.start : step.stop]  # (fold, samples)
    active = state.clamp(min=0).unsqueeze(1)  # (fold, 1, samples)
    parts = trace.rows[step.pool][sources.unsqueeze(-1), active, columns]  # (fold, arity, samples)
    parts = parts + trace.scales[step.pool][sources][:, :, columns].to(parts.dtype)
    weights = parameters.mixtures[step.block]
    fold, arity = sources.shape
    per_state = active.expand(-1, arity, -1) if weights.shape[2] > 1 else active.new_zeros(fold, arity, len(columns))
    scores = (parts + weights.gather(2, per_state).log()).transpose(1, 2).reshape(-1, arity).contiguous()
    if not chooser.logarithmic:
        scores = (scores - scores.amax(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)).exp()
    chosen = chooser.pick(scores).view(fold, 1, -1)
    index = torch.arange(arity, device=columns.device).view(1, -1, 1)
    reached = torch.where(index == chosen, state.unsqueeze(1), -1)  # (fold, arity, samples)
    states[step.pool].index_copy_(0, sources.flatten(), reached.flatten(0, 1))
