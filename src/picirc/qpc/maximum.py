"""The upward pass with maxima in place of sums."""

from __future__ import annotations

import torch
from torch import Tensor

from picirc.native import kernels_for
from picirc.qpc.program import Fill, Parameters, Program, rows_of
from picirc.qpc.steps import MixStep, PassStep, SumStep
from picirc.qpc.trace import Trace

# Elements of the largest temporary, chosen to stay in the processor's cache.
_CHUNK_ELEMENTS = 2**18


def max_up(program: Program, fill: Fill, parameters: Parameters, batch: int) -> Trace:
    """Compute all rows with ``max`` for every sum; the rows keep their logarithms."""
    trace = program.fresh_trace(parameters.like, batch)
    fill(trace.rows)
    for step in program.steps(batch * parameters.like.element_size()):
        rows, scales = rows_of(trace.rows, step), rows_of(trace.scales, step)
        match step:
            case SumStep():
                results = _max_product(program, step, rows, parameters.weights[step.block])
                scale = scales.repeat_interleave(step.edges, 0)
                program.send(step.sends, program.result_shape(step), results, scale, trace)
            case MixStep():
                parts, part_scales = program.parts(step, trace)
                weights = parameters.mixtures[step.block][step.first : step.first + len(parts)].log().unsqueeze(-1)
                rows.copy_((parts + weights + part_scales.to(parts.dtype).unsqueeze(2)).amax(1))
            case PassStep():
                program.send(step.sends, program.shapes[step.pool], rows.clone(), scales.clone(), trace)
    return trace


def _max_product(program: Program, step: SumStep, rows: Tensor, weights: Tensor) -> Tensor:
    """``max_z (log W[g, o, z] + row[g, z, r])``, a few results at a time."""
    g, o, z, r = program.dims(step)
    fold, batch = step.stop - step.start, rows.shape[-1]
    cells = rows.view(fold * g, z, r * batch)
    logs = program.matrices(step, weights).log()  # (fold * g, edges * o, z)
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
