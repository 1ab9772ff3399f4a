# SPDX-License-Identifier: Apache-2.0
"""Probable values for what is missing: max-product decoding, and coordinate ascent from the modes of the marginals.

Max-product replaces the sums of the pass up by maxima. Its pass down is that of `sampling.py` with the best choices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from picirc.engine.compiled import CompiledCircuit, Parameters, Ready, Values
from picirc.engine.evidence import Evidence, Modes, Points
from picirc.engine.schedule import InputStep, MixStep, SumStep
from picirc.inputs import Family
from picirc.inputs.discrete import read_table
from picirc.native import kernels_for
from picirc.qpc.marginals import input_flows
from picirc.qpc.sampling import choose, complete

_CHUNK_ELEMENTS = 2**18  # of the largest temporary, so that it stays in the cache
_MOST_VALUES = 64  # that are tried for a finite variable; more would take longer than a pass


def most_probable(
    compiled: CompiledCircuit, parameters: Parameters, points: Points, central: Tensor, rounds: int
) -> Tensor:
    """Complete every data point: return values ``(batch, variables)``.

    One candidate is the result of max-product. The other one starts from ``central``, the evidence completed variable
    by variable ``(batch, variables)``, and changes the variable with the largest gain in each round. The better one is
    returned.
    """
    parameters = parameters.detach()

    def outcome(family: Family, params: Tensor, row: Tensor, state: Tensor) -> Tensor:
        if params.shape[:2].numel() < len(row):
            return family.mode(params)[row, state]
        return family.mode(params[row, state])

    best = []
    for where, part in compiled.parts(points):
        assert isinstance(part, Points)
        columns = torch.arange(part.batch, device=parameters.like.device)
        states = choose(compiled, max_up(compiled, Modes(part), parameters), parameters, columns, Maximiser())
        joint = complete(compiled, parameters, part, columns, states, outcome)
        score = compiled.log_prob(Points(joint.T.contiguous(), None), parameters)
        single, own = _ascend(compiled, parameters, part, central[where], rounds)
        best.append(torch.where((own > score).unsqueeze(1), single, joint))
    return torch.cat(best)


def _ascend(
    compiled: CompiledCircuit, parameters: Parameters, part: Points, x: Tensor, rounds: int
) -> tuple[Tensor, Tensor]:
    """Coordinate ascent: in each round, change the missing value of each data point with the largest gain.

    Let ``f(s)`` be the posterior of the state above a variable given the complete data point. Another value v
    multiplies the likelihood by ``Σ_s f(s) p(v | s) / p(x_i | s)``. One pass up and one down give this factor for all
    variables.
    """
    x, missing = x.clone(), part.values.isnan().T
    score = x.new_full((len(x),), -torch.inf)
    columns, counts = np.unique(np.concatenate([step.columns for step in compiled.inputs]), return_counts=True)
    single = columns[counts == 1]
    for _ in range(max(1, rounds)):
        flows, values = input_flows(compiled, parameters, Points(x.T.contiguous(), None))
        score = values
        gains, proposals = torch.zeros_like(x), x.clone()
        for step, flow in zip(compiled.inputs, flows, strict=True):
            if step.correlation is not None or step.parents or rounds == 0:
                continue
            own = torch.as_tensor(step.columns, device=x.device)
            gain, value = _best_change(step.family, parameters.inputs[step.params], x.T[own], flow)
            # If a variable has inputs in several parts of a mixture, no single input knows the gain.
            once = torch.as_tensor(np.isin(step.columns, single), device=x.device)
            gains[:, own[once]], proposals[:, own[once]] = gain.T[:, once], value.T[:, once]
        gain, place = gains.masked_fill(~missing | gains.isnan(), 0.0).max(1)
        changed = x.scatter(1, place.unsqueeze(1), proposals.gather(1, place.unsqueeze(1)))
        x = torch.where((gain > 0).unsqueeze(1), changed, x)
        score = score + gain
    return x, score


def _best_change(family: Family, params: Tensor, x: Tensor, flow: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gain in log-likelihood of the best other value of each variable, and the value, ``(fold, batch)``."""
    table = family.table(params)
    if table is None and not family.discrete:
        value = (family.mean(params).unsqueeze(1) @ flow).squeeze(1)
        change = family.log_prob(params, value).sub_(family.log_prob(params, x)).exp_()  # (fold, states, batch)
        return change.mul_(flow).nan_to_num_(0.0).sum(1).log_(), value
    if table is None or table.shape[-1] > _MOST_VALUES:
        return torch.zeros_like(x), x
    here = read_table(-table, x.long()).exp_().mul_(flow).nan_to_num_(0.0)
    gain, value = (table.exp().mT @ here).max(1)  # of (fold, values, batch)
    return gain.log_(), value.to(x.dtype)


@dataclass(frozen=True)
class Maximiser:
    """Choose the highest score."""

    logarithmic: bool = True

    def pick(self, scores: Tensor) -> Tensor:
        """Choose for every row."""
        return scores.argmax(-1)

    def look_up(self, tables: Tensor, rows: Tensor) -> Tensor:
        """Choose once for every table."""
        return tables.argmax(-1)[rows]


def max_up(compiled: CompiledCircuit, evidence: Evidence, parameters: Parameters) -> Values:
    """Compute all rows with maxima in place of sums; the rows keep their logarithms."""
    values = compiled.start(parameters.like, evidence.batch)
    for ready in compiled.steps(parameters.like, evidence.batch)[0]:
        step = ready.step
        if isinstance(step, InputStep):
            compiled.input_up(ready, values, evidence, parameters)
            continue
        rows, scales = (pools[step.pool][step.start : step.stop] for pools in (values.rows, values.scales))
        match step:
            case SumStep():
                results = _max_product(ready, rows, parameters.weights[step.block])
                scale = scales.repeat_interleave(step.edges, 0)
                compiled.send(ready.targets, ready.shape, results, scale, values)
            case MixStep():
                parts, part_scales = compiled.mixed(ready, values)
                weights = parameters.mixtures[step.block][step.first : step.first + len(parts)].log().unsqueeze(-1)
                rows.copy_((parts + weights + part_scales.to(parts.dtype).unsqueeze(2)).amax(1))
                compiled.send(ready.targets, ready.shape, rows.clone(), scales.clone(), values)
    return values


def _max_product(ready: Ready, rows: Tensor, weights: Tensor) -> Tensor:
    """Return ``max_z (log W[g, o, z] + row[g, z, r])``."""
    step, (g, o, z, r) = ready.step, ready.dims
    assert isinstance(step, SumStep)
    fold, batch = step.stop - step.start, rows.shape[-1]
    cells = rows.view(fold * g, z, r * batch)
    logs = weights[ready.weights].reshape(ready.matrices).log()  # (fold * g, edges * o, z)
    results = cells.new_empty(fold * g, step.edges * o, r * batch)
    if native := kernels_for(logs, cells):
        native.max_product(results, logs, cells)
    else:
        _chunked_max_product(results, logs, cells)
    return results.view(fold * step.edges, g * o * r, batch)


def _chunked_max_product(out: Tensor, weights: Tensor, rows: Tensor) -> None:
    """Compute all results of some rows, or some results of one row, at a time, through one buffer."""
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
