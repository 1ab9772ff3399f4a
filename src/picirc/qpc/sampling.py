# SPDX-License-Identifier: Apache-2.0
"""Sampling: a pass down that chooses one state for every row.

It starts at the root and follows the circuit to its inputs. At a sum step the state of the result is known, and one of
the integrated states is chosen; at a mixture one of the parts is chosen. Rows that are not reached have the state −1.
Values drawn in the chosen states then complete the data points. `mpe.py` makes the same pass with the best choices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from picirc.engine.compiled import CompiledCircuit, Parameters, Ready, Target, Values
from picirc.engine.evidence import Points, Restricted
from picirc.engine.inputs import pieces
from picirc.engine.schedule import InputStep, MixStep, SumStep
from picirc.inputs import Family
from picirc.native import kernels_for
from picirc.qpc.validation import check_possible

_LEAST, _MOST = 2**13, 2**20  # scores in memory at a time: enough for a fast loop, few enough for the cache
_STATES = 2**22  # states that are chosen at a time
_FEW = 2**12  # elements that are copied faster than a bisection starts

Outcome = Callable[[Family, Tensor, Tensor, Tensor], Tensor]


def draw(
    compiled: CompiledCircuit,
    parameters: Parameters,
    evidence: Points | Restricted,
    n: int,
    generator: torch.Generator,
) -> Tensor:
    """Draw ``n`` completions of every data point: ``(n, batch, variables)``."""
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
    """Concatenate along an axis, without a copy of a single part."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), axis)


class Chooser(Protocol):
    """How choices are made."""

    @property
    def logarithmic(self) -> bool:
        """Whether scores are logarithms, or probabilities up to a factor."""

    def pick(self, scores: Tensor) -> Tensor:
        """Choose for every row of scores ``(n, choices)``, which may be overwritten."""

    def look_up(self, tables: Tensor, rows: Tensor) -> Tensor:
        """Return ``pick(tables[rows])`` for many rows ``(n,)`` and few tables ``(m, choices)``."""


@dataclass(frozen=True)
class Sampler:
    """Draw in proportion to the scores, by inversion of their cumulative sums."""

    generator: torch.Generator
    logarithmic: bool = False

    def pick(self, scores: Tensor) -> Tensor:
        """Draw for every row by a search in its cumulative sum."""
        total = scores.cumsum_(-1)
        u = self._uniform(total[:, -1])
        return torch.searchsorted(total, u.unsqueeze(1), right=True).squeeze(1).clamp_(max=scores.shape[1] - 1)

    def look_up(self, tables: Tensor, rows: Tensor) -> Tensor:
        """Draw by bisection, without a copy of the tables unless that is faster."""
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
        """Draw between zero and the totals, and below them even after rounding, so that no score of zero is chosen."""
        u = torch.rand(total.shape, generator=self.generator, dtype=total.dtype, device=total.device)
        return u * (1 - 4 * torch.finfo(total.dtype).eps) * total


def choose(
    compiled: CompiledCircuit, values: Values, parameters: Parameters, columns: Tensor, chooser: Chooser
) -> list[Tensor]:
    """Choose a state for every row: ``(rows, samples)`` for each pool.

    Args:
        compiled: The circuit.
        values: The result of a pass up.
        parameters: The parameters.
        columns: The data point of each sample, ``(samples,)``.
        chooser: How to choose.
    """
    pools = compiled.schedule.pools
    states = [torch.full((pool.rows, len(columns)), -1, dtype=torch.long, device=columns.device) for pool in pools]
    pool, row = compiled.schedule.root
    states[pool][row] = 0
    most = at_once(states, values)
    for ready in reversed(compiled.steps(parameters.like)[0]):
        match ready.step:
            case SumStep() as step:
                results = _results(compiled, ready.targets, states, step.results)
                _choose_sum(ready, values, parameters, columns, results, states[step.pool], chooser, most)
            case MixStep() as step:
                if ready.targets:
                    states[step.pool][step.start : step.stop] = _results(compiled, ready.targets, states, step.results)
                _choose_mix(ready, values, parameters, columns, states, chooser)
    return states


def at_once(states: Sequence[Tensor], values: Values | None = None) -> int:
    """Return the number of scores that may be in memory at a time: few in comparison with the states and values."""
    chosen = sum(pool.numel() for pool in states)
    computed = sum(pool.numel() for pool in values.rows) if values else 0
    return min(max(_LEAST, chosen, computed // 16), _MOST)


def project(states: Tensor, axes: Sequence[int], target: Sequence[int]) -> Tensor:
    """Return the state over some axes of a row, given its state over all of them; −1 stays −1.

    Args:
        states: The states of rows.
        axes: The positions of the desired axes.
        target: The numbers of states of all axes.
    """
    result = torch.zeros_like(states)
    strides = [1] * len(target)
    for i in range(len(target) - 2, -1, -1):
        strides[i] = strides[i + 1] * target[i + 1]
    for axis in axes:
        coordinate = torch.div(states, strides[axis], rounding_mode="floor") % target[axis]
        result = result * target[axis] + coordinate
    return torch.where(states < 0, states, result)


def _results(compiled: CompiledCircuit, targets: Sequence[Target], states: Sequence[Tensor], count: int) -> Tensor:
    """Return the states of the results of a step, from the rows that use them: ``(results, samples)``."""
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
            # Of the rows that use a result, a sample reaches at most one.
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
    weights = parameters.weights[step.block][ready.weights].reshape(fold, step.edges, g, o, z)
    cells = values.rows[step.pool][step.start : step.stop].view(fold, g, z, r, -1)
    found = states[step.start : step.stop]
    tables = min(samples, step.edges * g * o) if _alike(cells) else samples
    for part in pieces(fold, tables * z, most):
        found[part] = _choice(results[part], weights[part], cells[part], columns, chooser)


def _choice(results: Tensor, weights: Tensor, cells: Tensor, columns: Tensor, chooser: Chooser) -> Tensor:
    """Choose the states of some rows, ``(fold, samples)``.

    Args:
        results: The states of their results, ``(fold, edges, samples)``; −1 where a result is not reached.
        weights: ``(fold, edges, g, o, z)``.
        cells: The values of the rows, ``(fold, g, z, r, batch)``.
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
    # The row of weights that leads to each result, counted over all edges and folds.
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
    """Return whether all samples choose from the same tables: one data point, and no axis that passes through."""
    return cells.shape[-2:] == (1, 1)


def _values(cells: Tensor, at_g: Tensor | None, at_r: Tensor | None, columns: Tensor) -> Tensor:
    """Return the values of the integrated states ``(fold, samples or 1, z)`` at some g, r and columns."""
    fold, _, z, _, batch = cells.shape
    if at_g is not None:
        row = torch.arange(fold, device=columns.device).unsqueeze(1)
        return cells[row, at_g, :, at_r, columns.unsqueeze(0)]
    # A copy of rows of a transposed view is faster than a gather of single numbers.
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
    """Return values for the chosen states where they are missing, ``(samples, variables)``.

    ``outcome`` gives those of independent inputs. Correlated inputs are drawn, or have their means without a generator.
    """
    values = evidence.points.values[:, columns].T.contiguous()  # (samples, variables)
    if isinstance(evidence, Restricted):
        assert generator is not None, "regions are drawn from"
        _draw_regions(compiled, parameters, evidence, values, states, generator)
    for step in _parents_first(compiled.inputs):
        column, rows = (torch.as_tensor(where, device=values.device) for where in (step.columns, step.rows))
        if step.correlation is not None:
            state, known = _input_states(compiled, step, states, rows), values.T[column]  # (m, samples)
            noise = None
            if generator is not None:
                noise = torch.randn(known.shape, generator=generator, dtype=known.dtype, device=known.device)
            found = compiled.block(step, parameters).complete(known, state[0].clamp(min=0), noise)
            values[:, column] = torch.where(state >= 0, found, known).T
            continue
        params = parameters.inputs[step.params]
        shared = len(params) == 1
        # A copy of the parameters that the samples of a variable use, or all of them if they are fewer.
        each = min(params.shape[1], len(columns)) * params[0, 0].numel()
        for part in [slice(None)] if shared else pieces(len(params), each, at_once(states)):
            state = _input_states(compiled, step, states, rows[part])  # (fold, samples)
            slot, sample = ((state >= 0) & values.T[column[part]].isnan()).nonzero(as_tuple=True)
            row = torch.zeros_like(slot) if shared else slot
            own, at = params[part], state[slot, sample]
            if step.parents:  # the parameters of each sample, as if it were a variable of its own
                own = own[row, at].unsqueeze(1)
                row, at = torch.arange(len(row), device=row.device), torch.zeros_like(at)
                for place, parent in step.parents:
                    own[:, 0, place] = values[sample, parent]
            values[sample, column[part][slot]] = outcome(step.family, own, row, at)
    return values


def _input_states(compiled: CompiledCircuit, step: InputStep, states: Sequence[Tensor], rows: Tensor | int) -> Tensor:
    """Return the states of inputs at some rows, over the axes of their parameters."""
    found = states[step.pool][rows]
    return found if step.axes is None else project(found, step.axes, compiled.shapes[step.pool])


def _parents_first(steps: Sequence[InputStep]) -> list[InputStep]:
    """Sort input steps so that variables come before those that are conditioned on them."""
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
    """Write draws of the restricted variables in the chosen states to ``values``, ``(samples, variables)``."""
    for step in compiled.inputs:
        own = [slot for slot, column in enumerate(step.columns) if int(column) in evidence.regions]
        if own and step.correlation is not None:
            column = torch.as_tensor(step.columns, device=values.device)
            state, known = _input_states(compiled, step, states, int(step.rows[0])), values.T[column]
            found = evidence.fill(compiled.block(step, parameters), column, known, state.clamp(min=0), generator)
            values[:, column] = torch.where(state >= 0, found, known).T
            continue
        params = parameters.inputs[step.params]
        for slot in own:
            place, state = int(step.columns[slot]), _input_states(compiled, step, states, int(step.rows[slot]))
            (sample,) = ((state >= 0) & values[:, place].isnan()).nonzero(as_tuple=True)
            if len(sample):
                chosen = params[slot if len(params) > 1 else 0, state[sample]]
                values[sample, place] = evidence.regions[place].draw(step.family, chosen, generator)
