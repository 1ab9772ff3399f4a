# SPDX-License-Identifier: Apache-2.0
"""Samples: the way down with choices, one state for every row.

A choice starts at the root and follows the circuit to its inputs. At a sum step the state of the result is known and
one of the integrated states is chosen; at a mixture one of the parts. What is not reached has the state −1. Values for
the chosen states then complete the data points. `mpe.py` goes the same way with the best choice instead of a drawn one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from picirc.engine.compiled import CompiledCircuit, Parameters, Values
from picirc.engine.evidence import Points
from picirc.engine.inputs import pieces
from picirc.engine.regions import Restricted
from picirc.engine.schedule import InputStep, MixStep, PassStep, SumStep
from picirc.engine.steps import Ready, Target
from picirc.inputs import Family
from picirc.native import kernels_for
from picirc.qpc.validation import check_possible

# The scores that are in memory at a time: enough for a fast loop, and few enough for a processor's cache.
_LEAST, _MOST = 2**13, 2**20
# The states that are chosen at a time, of all samples.
_STATES = 2**22
_FEW = 2**12  # numbers that are copied in less time than a bisection takes to start

Outcome = Callable[[Family, Tensor, Tensor, Tensor], Tensor]


def draw(
    compiled: CompiledCircuit,
    parameters: Parameters,
    evidence: Points | Restricted,
    n: int,
    generator: torch.Generator,
) -> Tensor:
    """Draw ``n`` completions of every data point: ``(n, batch, variables)``; observed values stay."""
    parameters = parameters.detach()
    sampler = Sampler(generator)

    def outcome(family: Family, params: Tensor, row: Tensor, state: Tensor) -> Tensor:
        table = family.table(params)
        if table is None:
            return family.sample(params[row, state], generator)
        if len(row) <= table.shape[:2].numel():
            return sampler.pick(table[row, state].exp_()).to(params.dtype)
        drawn = sampler.look_up(table.exp().flatten(0, 1), row * params.shape[1] + state)
        return drawn.to(params.dtype)

    def completed(part: Points | Restricted, values: Values, some: Tensor) -> Tensor:
        states = choose(compiled, values, parameters, some, sampler)
        return complete(compiled, parameters, part, some, states, outcome, generator)

    rows = sum(pool.rows for pool in compiled.schedule.pools)
    drawn = []
    for where, part in compiled.parts(evidence):
        assert isinstance(part, Points | Restricted)
        values = compiled.up(part, parameters)
        check_possible(compiled.root(values), first=where.start)
        columns = torch.arange(part.batch, device=parameters.like.device).repeat(n)
        blocks = [completed(part, values, some) for some in columns.split(max(1, _STATES // rows))]
        drawn.append(_joined(blocks).unflatten(0, (n, part.batch)))
    return _joined(drawn, 1)


def _joined(parts: Sequence[Tensor], axis: int = 0) -> Tensor:
    """All parts along an axis; one is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), axis)


class Chooser(Protocol):
    """How a choice is made."""

    @property
    def logarithmic(self) -> bool:
        """Whether scores are logarithms (of maxima), or probabilities up to a factor (of sums)."""

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
        """Draw by bisection; no row of the tables is copied unless that is quicker."""
        choices = tables.shape[1]
        if len(rows) * choices <= _FEW:
            return self.pick(tables.index_select(0, rows))
        totals = tables.cumsum(-1)
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


def choose(
    compiled: CompiledCircuit, values: Values, parameters: Parameters, columns: Tensor, chooser: Chooser
) -> list[Tensor]:
    """Choose a state for every row.

    Args:
        compiled: The circuit.
        values: What an upward pass computed.
        parameters: Its parameters.
        columns: For each choice to be made, the data point that it is conditioned on, ``(samples,)``.
        chooser: How to choose.

    Returns:
        For each pool ``(rows, samples)``.
    """
    pools = compiled.schedule.pools
    states = [torch.full((pool.rows, len(columns)), -1, dtype=torch.long, device=columns.device) for pool in pools]
    pool, row = compiled.schedule.root
    states[pool][row] = 0
    most = at_once(states, values)
    for ready in reversed(compiled.steps(parameters.like)[0]):
        match ready.step:
            case SumStep() as step:
                results = _results(compiled, ready.targets, states, _count(step))
                _choose_sum(ready, values, parameters, columns, results, states[step.pool], chooser, most)
            case MixStep():
                _choose_mix(ready, values, parameters, columns, states, chooser)
            case PassStep() as step:
                found = _results(compiled, ready.targets, states, step.stop - step.start)
                states[step.pool][step.start : step.stop] = found
    return states


def at_once(states: Sequence[Tensor], values: Values | None = None) -> int:
    """The number of scores that may be in memory at a time: little beside what is there, the states and values."""
    chosen = sum(pool.numel() for pool in states)
    computed = sum(pool.numel() for pool in values.rows) if values else 0
    return min(max(_LEAST, chosen, computed // 16), _MOST)


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


def _results(compiled: CompiledCircuit, targets: Sequence[Target], states: Sequence[Tensor], count: int) -> Tensor:
    """The states of a step's results, from the rows that use them: ``(results, samples)``."""
    if len(targets) == 1 and targets[0].sources is None and targets[0].axes is None:
        return states[targets[0].pool].index_select(0, targets[0].rows)
    found = torch.full((count, states[0].shape[1]), -1, dtype=torch.long, device=states[0].device)
    for target in targets:
        used = states[target.pool][target.rows]
        if target.axes is not None:
            used = project(used, target.axes, compiled.shapes[target.pool])
        if target.sources is None:
            torch.maximum(found, used, out=found)
        else:
            # Several rows may use a result, of which a choice reaches at most one.
            found.scatter_reduce_(0, target.sources.unsqueeze(1).expand_as(used), used, "amax")
    return found


def _choose_sum(
    ready: Ready,
    values: Values,
    parameters: Parameters,
    columns: Tensor,
    results: Tensor,
    states: Tensor,
    chooser: Chooser,
    most: int,
) -> None:
    step, (g, o, z, r) = ready.step, ready.dims
    assert isinstance(step, SumStep)
    fold, samples = step.stop - step.start, len(columns)
    results = results.view(fold, step.edges, samples)
    block = parameters.weights[step.block]
    weights = block[step.first : step.first + _count(step)].reshape(fold, step.edges, g, o, z)
    cells = values.rows[step.pool][step.start : step.stop].view(fold, g, z, r, -1)
    found = states[step.start : step.stop]
    tables = min(samples, step.edges * g * o) if _alike(cells) else samples
    if fold * tables * z <= most:
        found.copy_(_choice(results, weights, cells, columns, chooser))
        return
    for part in pieces(fold, tables * z, most):
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
    outcome, edge = results.max(1) if edges > 1 else (results.squeeze(1), None)  # (fold, samples)
    number = at_o = outcome.clamp(min=0)
    at_g = at_r = None
    if not g == r == 1:
        at_r, rest = at_o % r, torch.div(at_o, r, rounding_mode="floor")
        at_o, at_g = rest % o, torch.div(rest, o, rounding_mode="floor")
        number = at_g * o + at_o
    # From here on the number, among all weights, of those that lead to each result.
    if edge is not None:
        number = number + edge * (g * o)
    if fold > 1:
        number = number + torch.arange(0, fold * edges * g * o, edges * g * o, device=columns.device).unsqueeze(1)
    number = number.flatten()
    if _alike(cells) and samples > edges * g * o:
        scores = _combined(weights, cells.view(fold, 1, g, 1, z), chooser)
        chosen = chooser.look_up(scores.reshape(-1, z), number)
    else:
        used = weights.reshape(-1, z).index_select(0, number).view(fold, samples, z)
        values = _values(cells, at_g, at_r, columns)
        chosen = chooser.pick(_combined(used, values, chooser, out=used).flatten(0, 1))
    state = chosen.view(fold, samples)
    if at_g is not None and at_r is not None:
        state = (at_g * z + state) * r + at_r
    return torch.where(outcome < 0, outcome, state)


def _alike(cells: Tensor) -> bool:
    """Whether all samples choose from the same tables: there is one data point, and no axis passes through."""
    return cells.shape[-2:] == (1, 1)


def _values(cells: Tensor, at_g: Tensor | None, at_r: Tensor | None, columns: Tensor) -> Tensor:
    """The values of the integrated states: of ``(fold, g, z, r, batch)`` those at some g, r and columns.

    The result is ``(fold, samples, z)``, or has 1 in place of samples that are all given the same.
    """
    fold, _, z, _, batch = cells.shape
    if at_g is not None:
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
    ready: Ready,
    values: Values,
    parameters: Parameters,
    columns: Tensor,
    states: list[Tensor],
    chooser: Chooser,
) -> None:
    step, sources = ready.step, ready.index  # (fold, arity)
    assert isinstance(step, MixStep)
    state = states[step.pool][step.start : step.stop]  # (fold, samples)
    active = state.clamp(min=0).unsqueeze(1)  # (fold, 1, samples)
    parts = values.rows[step.pool][sources.unsqueeze(-1), active, columns]  # (fold, arity, samples)
    parts = parts + values.scales[step.pool][sources][:, :, columns].to(parts.dtype)
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


def complete(
    compiled: CompiledCircuit,
    parameters: Parameters,
    evidence: Points | Restricted,
    columns: Tensor,
    states: Sequence[Tensor],
    outcome: Outcome,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Values for the chosen states where they are missing, ``(samples, variables)``.

    Those of independent inputs come from ``outcome``; correlated ones are drawn, or their means without a generator.
    """
    points = evidence.points if isinstance(evidence, Restricted) else evidence
    values = points.values[:, columns].T.contiguous()  # (samples, variables)
    if isinstance(evidence, Restricted):
        assert generator is not None, "regions are drawn from"
        _draw_regions(compiled, parameters, evidence, values, states, generator)
    for step in _parents_first(compiled.inputs):
        column, rows = (torch.as_tensor(where, device=values.device) for where in (step.columns, step.rows))
        chosen = states[step.pool]
        if step.correlation is not None:
            state, known = chosen[rows], values.T[column]  # (m, samples)
            if step.axes is not None:
                state = project(state, step.axes, compiled.shapes[step.pool])
            noise = None
            if generator is not None:
                noise = torch.randn(known.shape, generator=generator, dtype=known.dtype, device=known.device)
            found = compiled.block(step, parameters).complete(known, state[0].clamp(min=0), noise)
            values[:, column] = torch.where(state >= 0, found, known).T
            continue
        params = parameters.inputs[step.params]
        shared = len(params) == 1
        for part in [slice(None)] if shared else pieces(len(params), _drawn(params, len(columns)), at_once(states)):
            state = chosen[rows[part]]  # (fold, samples)
            if step.axes is not None:
                state = project(state, step.axes, compiled.shapes[step.pool])
            slot, sample = ((state >= 0) & values.T[column[part]].isnan()).nonzero(as_tuple=True)
            row = torch.zeros_like(slot) if shared else slot
            own = params[part]
            at = state[slot, sample]
            if step.parents:  # parameters of each sample, as if it were a variable of its own
                own, row, at = (
                    own[row, at].unsqueeze(1),
                    torch.arange(len(row), device=row.device),
                    torch.zeros_like(at),
                )
                for place, parent in step.parents:
                    own[:, 0, place] = values[sample, parent]
            values[sample, column[part][slot]] = outcome(step.family, own, row, at)
    return values


def _parents_first(steps: Sequence[InputStep]) -> list[InputStep]:
    """Input steps in an order in which variables come before those that are conditioned on them."""
    waiting, order = list(steps), []
    while waiting:
        open_columns = {int(column) for step in waiting for column in step.columns}
        ready = [step for step in waiting if not any(column in open_columns for _, column in step.parents)]
        order += ready
        waiting = [step for step in waiting if step not in ready]
    return order


def _draw_regions(
    compiled: CompiledCircuit,
    parameters: Parameters,
    evidence: Restricted,
    values: Tensor,
    states: Sequence[Tensor],
    generator: torch.Generator,
) -> None:
    """Put draws of the restricted variables in the chosen states into ``(samples, variables)``."""
    for step in compiled.inputs:
        own = [slot for slot, column in enumerate(step.columns) if int(column) in evidence.regions]
        if own and step.correlation is not None:
            column = torch.as_tensor(step.columns, device=values.device)
            state, known = states[step.pool][int(step.rows[0])], values.T[column]
            if step.axes is not None:
                state = project(state, step.axes, compiled.shapes[step.pool])
            found = evidence.fill(compiled.block(step, parameters), column, known, state.clamp(min=0), generator)
            values[:, column] = torch.where(state >= 0, found, known).T
            continue
        params = parameters.inputs[step.params]
        for slot in own:
            place, state = int(step.columns[slot]), states[step.pool][int(step.rows[slot])]
            if step.axes is not None:
                state = project(state, step.axes, compiled.shapes[step.pool])
            (sample,) = ((state >= 0) & values[:, place].isnan()).nonzero(as_tuple=True)
            chosen = params[slot if len(params) > 1 else 0, state[sample]]
            if len(sample):
                values[sample, place] = evidence.regions[place].draw(step.family, chosen, generator)


def _drawn(params: Tensor, samples: int) -> int:
    """The elements that the samples of one variable take: a copy of what each uses, or all tables if they are fewer."""
    states = params.shape[1]
    return min(states, samples) * params[0, 0].numel()
