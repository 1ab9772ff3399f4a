# SPDX-License-Identifier: Apache-2.0
"""Pruning: dropping states of small prior probability."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from picirc.checks import is_number
from picirc.engine.compiled import CompiledCircuit, Parameters
from picirc.engine.evidence import Points
from picirc.engine.schedule import InputStep, MixStep, Schedule, SumStep
from picirc.errors import ArgumentError, StructureError
from picirc.qpc.marginals import LatentGrid


def prune(
    compiled: CompiledCircuit, parameters: Parameters, grids: tuple[LatentGrid, ...], threshold: float
) -> tuple[CompiledCircuit, Parameters, tuple[LatentGrid, ...], float]:
    """Drop states whose prior probability is below ``threshold``; rows of one kind keep the same number.

    The rest is a part p̃ ≤ p of the distribution with mass m, divided by m. The total variation distance to p is at most
    1 − m, which is returned.
    """
    if not is_number(threshold) or not 0 <= float(threshold) < 1:
        raise ArgumentError("threshold", "a probability from 0 to below 1", threshold)
    parameters, schedule = parameters.detach(), compiled.schedule
    _check_rows(schedule)
    if any(matrix.ndim > 2 for matrix in parameters.correlations):
        raise StructureError("pruning needs one correlation matrix for all states of a latent; prune the members.")
    missing = parameters.like.new_full((1 + max(int(step.columns.max()) for step in compiled.inputs), 1), torch.nan)
    nothing = Points(missing, missing.isnan())
    ((_, _, flows),) = compiled.flows(nothing, parameters)
    masses = [rows[:, :, 0].clone() for rows in flows.rows]
    kept = _kept_states(compiled, masses, float(threshold))
    sizes = {pool.kinds[0]: kept[i].shape[1] for i, pool in enumerate(schedule.pools) if pool.kinds}
    pruned = CompiledCircuit(schedule, sizes)
    weights = tuple(_pruned_weights(schedule, parameters, kept, i) for i in range(len(parameters.weights)))
    inputs = _pruned_inputs(compiled, parameters, kept)
    mixtures = tuple(_pruned_mixture(schedule, w, kept, i) for i, w in enumerate(parameters.mixtures))
    result = Parameters(weights, mixtures, inputs, parameters.correlations)
    mass = (pruned.log_prob(nothing, result) - compiled.log_prob(nothing, parameters)).exp()
    result = _normalised(schedule, result, float(mass))
    cut = tuple(
        replace(
            grid,
            points=None if grid.points is None else grid.points[kept[grid.pool][grid.row]],
            weights=None if grid.weights is None else grid.weights[kept[grid.pool][grid.row]],
        )
        for grid in grids
    )
    return pruned, result, cut, max(0.0, 1.0 - float(mass))


def _check_rows(schedule: Schedule) -> None:
    several = any(len(pool.kinds) > 1 for pool in schedule.pools)
    steps = [step for step in schedule.steps if not isinstance(step, InputStep)]
    shared = any(
        len(step.sends) > 1 or send.axes is not None or len(send.rows) != step.results
        for step in steps
        for send in step.sends
    )
    if several or shared:
        raise StructureError(
            "pruning needs a circuit in which every function has one latent and is used once, such as a tree or a "
            'region graph with product="cp"; this one has functions of several latents or shared units.'
        )


def _kept_states(compiled: CompiledCircuit, masses: list[Tensor], threshold: float) -> list[Tensor]:
    """Return the states that each row keeps, ``(rows, kept)`` for each pool, in ascending order."""
    for step in reversed(compiled.schedule.steps):
        if isinstance(step, MixStep):
            # The parts of a mixture have the same latent, so they keep the same states.
            sources = torch.as_tensor(step.sources, device=masses[0].device)
            masses[step.pool][sources] = masses[step.pool][step.start : step.stop].unsqueeze(1).clone()
    counts: dict[object, int] = {}
    for pool, mass in zip(compiled.schedule.pools, masses, strict=True):
        if pool.kinds:
            most = int((mass >= threshold).sum(1).max())
            counts[pool.kinds[0]] = max(1, most, counts.get(pool.kinds[0], 1))
    return [
        mass.topk(counts[pool.kinds[0]], 1).indices.sort(1).values
        if pool.kinds
        else torch.zeros(pool.rows, 1, dtype=torch.long, device=mass.device)
        for pool, mass in zip(compiled.schedule.pools, masses, strict=True)
    ]


def _pruned_weights(schedule: Schedule, parameters: Parameters, kept: list[Tensor], block: int) -> Tensor:
    weights = parameters.weights[block]
    rows = []
    for step in schedule.steps:
        if isinstance(step, SumStep) and step.block == block:
            (send,) = step.sends
            order = np.argsort(send.sources) if send.sources is not None else np.arange(step.results)
            users = torch.as_tensor(send.rows[order], device=weights.device)
            into = kept[step.pool][step.start : step.stop].repeat_interleave(step.edges, 0)  # (results, z)
            out = kept[send.pool][users]  # (results, o)
            part = weights[step.first : step.first + step.results, 0]
            part = part.gather(1, out.unsqueeze(2).expand(-1, -1, part.shape[2]))
            rows.append((step.first, part.gather(2, into.unsqueeze(1).expand(-1, out.shape[1], -1))))
    return torch.cat([part for _, part in sorted(rows, key=lambda r: r[0])]).unsqueeze(1)


def _pruned_inputs(compiled: CompiledCircuit, parameters: Parameters, kept: list[Tensor]) -> tuple[Tensor, ...]:
    inputs = list(parameters.inputs)
    for step in compiled.inputs:
        params = parameters.inputs[step.params]
        states = kept[step.pool][torch.as_tensor(step.rows, device=params.device)]
        if step.axes is not None:
            raise StructureError("pruning needs every input unit to be used once, by a function of its latent.")
        rows = params.expand(len(states), -1, -1)
        inputs[step.params] = rows.gather(1, states.unsqueeze(2).expand(-1, -1, params.shape[2]))
    return tuple(inputs)


def _pruned_mixture(schedule: Schedule, weights: Tensor, kept: list[Tensor], block: int) -> Tensor:
    if weights.shape[2] == 1:
        return weights
    (step,) = [s for s in schedule.steps if isinstance(s, MixStep) and s.block == block]
    states = kept[step.pool][step.start : step.stop]
    return weights.gather(2, states.unsqueeze(1).expand(-1, weights.shape[1], -1))


def _normalised(schedule: Schedule, parameters: Parameters, mass: float) -> Parameters:
    """Divide one factor of the root by ``mass``."""
    pool, row = schedule.root
    weights, mixtures = list(parameters.weights), list(parameters.mixtures)

    def divide(tensors: list[Tensor], block: int, number: int) -> Parameters:
        tensors[block] = tensors[block].clone()
        tensors[block][number] /= mass
        return replace(parameters, weights=tuple(weights), mixtures=tuple(mixtures))

    for step in reversed(schedule.steps):
        if isinstance(step, InputStep):
            continue
        for send in step.sends:
            users = np.flatnonzero((send.rows == row) & (send.pool == pool))
            if len(users):
                number = int(users[0] if send.sources is None else send.sources[users[0]])
                if isinstance(step, SumStep):
                    return divide(weights, step.block, step.first + number)
                return divide(mixtures, step.block, number)
        if isinstance(step, MixStep) and step.pool == pool and step.start <= row < step.stop:
            return divide(mixtures, step.block, row - step.start)
    return parameters  # a circuit without latents
