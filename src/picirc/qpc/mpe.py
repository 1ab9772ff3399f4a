# SPDX-License-Identifier: Apache-2.0
"""Probable values for what is missing: max-product decoding.

The pass up takes maxima in place of sums; the way down is that of `sampling.py`, with the best choice everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from picirc.engine.compiled import CompiledCircuit, Parameters, Ready, Values, matrices, rows_of
from picirc.engine.evidence import Evidence, Modes, Points
from picirc.engine.schedule import InputStep, MixStep, PassStep, SumStep
from picirc.inputs import Family
from picirc.native import kernels_for
from picirc.qpc.sampling import choose, complete

# Elements of the largest temporary, chosen to stay in the processor's cache.
_CHUNK_ELEMENTS = 2**18


def most_probable(compiled: CompiledCircuit, parameters: Parameters, points: Points) -> Tensor:
    """Complete every data point by max-product, or by the greedy choice where that is better: ``(batch, variables)``.

    Both are evaluated by the likelihood of the completed data point, and the better one is kept.
    """
    parameters = parameters.detach()

    def outcome(family: Family, params: Tensor, row: Tensor, state: Tensor) -> Tensor:
        if params.shape[:2].numel() < len(row):
            return family.mode(params)[row, state]
        return family.mode(params[row, state])

    best: list[Tensor] = []
    for _, part in compiled.parts(points):
        assert isinstance(part, Points)
        columns = torch.arange(part.batch, device=parameters.like.device)
        candidates, scores = [], []
        for logarithmic in (True, False):
            values = max_up(compiled, Modes(part), parameters) if logarithmic else compiled.up(part, parameters)
            states = choose(compiled, values, parameters, columns, Maximiser(logarithmic))
            found = complete(compiled, parameters, part, columns, states, outcome)
            candidates.append(found)
            scores.append(compiled.log_prob(Points(found.T.contiguous(), None), parameters))
        best.append(torch.where((scores[0] >= scores[1]).unsqueeze(1), candidates[0], candidates[1]))
    return torch.cat(best)


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


def max_up(compiled: CompiledCircuit, evidence: Evidence, parameters: Parameters) -> Values:
    """Compute all rows with ``max`` for every sum; the rows keep their logarithms."""
    steps = compiled.steps(parameters.like, evidence.batch)
    values = compiled.start(parameters.like, evidence.batch)
    inputs = [ready for ready in steps if isinstance(ready.step, InputStep)]
    compiled.run(inputs, values, evidence, parameters, keep=False)
    for ready in steps[len(inputs) :]:
        step = ready.step
        assert not isinstance(step, InputStep)
        rows, scales = rows_of(values.rows, step), rows_of(values.scales, step)
        match step:
            case SumStep():
                results = _max_product(ready, rows, parameters.weights[step.block])
                scale = scales.repeat_interleave(step.edges, 0)
                compiled.send(ready.targets, ready.shape, results, scale, values)
            case MixStep():
                parts, part_scales = compiled.mixed(ready, values)
                weights = parameters.mixtures[step.block][step.first : step.first + len(parts)].log().unsqueeze(-1)
                rows.copy_((parts + weights + part_scales.to(parts.dtype).unsqueeze(2)).amax(1))
            case PassStep():
                compiled.send(ready.targets, compiled.shapes[step.pool], rows.clone(), scales.clone(), values)
    return values


def _max_product(ready: Ready, rows: Tensor, weights: Tensor) -> Tensor:
    """``max_z (log W[g, o, z] + row[g, z, r])``, a few results at a time."""
    step, (g, o, z, r) = ready.step, ready.dims
    assert isinstance(step, SumStep)
    fold, batch = step.stop - step.start, rows.shape[-1]
    cells = rows.view(fold * g, z, r * batch)
    logs = matrices(ready, weights).log()  # (fold * g, edges * o, z)
    results = cells.new_empty(fold * g, step.edges * o, r * batch)
    if native := kernels_for(logs, cells):
        native.max_product(results, logs, cells)
    else:
        _chunked_max_product(results, logs, cells)
    return results.view(fold * step.edges, g * o * r, batch)


def _chunked_max_product(out: Tensor, weights: Tensor, rows: Tensor) -> None:
    """All results of some rows, or some results of one row, whose sums of logarithms all go through one buffer."""
    fold, results, states = weights.shape
    batch = rows.shape[-1]
    some = min(results, max(1, _CHUNK_ELEMENTS // (states * batch)))
    many = min(fold, max(1, _CHUNK_ELEMENTS // (some * states * batch)))
    buffer = rows.new_empty(many, some, states, batch)
    for first in range(0, fold, many):
        here = slice(first, first + many)
        for start in range(0, results, some):
            there = slice(start, start + some)
            chosen = out[here, there]
            scores = buffer[: chosen.shape[0], : chosen.shape[1]]
            torch.add(weights[here, there].unsqueeze(-1), rows[here].unsqueeze(1), out=scores)
            torch.amax(scores, 2, out=chosen)
