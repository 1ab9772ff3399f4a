"""Completing data points: samples, and the most probable values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from picirc.inputs import Family
from picirc.qpc.descend import Maximiser, Sampler, at_once, descend, project
from picirc.qpc.evidence import Modes, Points, pieces
from picirc.qpc.likelihood import Engine
from picirc.qpc.maximum import max_up
from picirc.qpc.program import Parameters
from picirc.qpc.queries import check_possible
from picirc.qpc.trace import Trace

# The states that are chosen at a time, of all samples.
_STATES = 2**22

Outcome = Callable[[Family, Tensor, Tensor, Tensor], Tensor]


def draw(engine: Engine, parameters: Parameters, points: Points, n: int, generator: torch.Generator) -> Tensor:
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

    def complete(part: Points, trace: Trace, some: Tensor) -> Tensor:
        states = descend(engine.program, trace, parameters, some, sampler)
        return _complete(engine, parameters, part, some, states, outcome, generator)

    rows = sum(pool.rows for pool in engine.program.schedule.pools)
    drawn = []
    for where, part in engine.parts(points):
        assert isinstance(part, Points)
        trace = engine.up(part, parameters, keep=False)
        check_possible(engine.program.root(trace), first=where.start)
        columns = torch.arange(part.batch, device=parameters.like.device).repeat(n)
        blocks = [complete(part, trace, some) for some in columns.split(max(1, _STATES // rows))]
        drawn.append(_joined(blocks).view(n, part.batch, -1))
        trace.lease.release()
    return _joined(drawn, 1)


def _joined(parts: Sequence[Tensor], axis: int = 0) -> Tensor:
    """All parts along an axis; one is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), axis)


def most_probable(engine: Engine, parameters: Parameters, points: Points) -> Tensor:
    """Complete every data point by max-product, or by the greedy choice where that is better: ``(batch, variables)``.

    Both are evaluated by the likelihood of the completed data point, and the better one is kept.
    """
    parameters = parameters.detach()

    def outcome(family: Family, params: Tensor, row: Tensor, state: Tensor) -> Tensor:
        if params.shape[:2].numel() < len(row):
            return family.mode(params)[row, state]
        return family.mode(params[row, state])

    best: list[Tensor] = []
    for _, part in engine.parts(points):
        assert isinstance(part, Points)
        columns = torch.arange(part.batch, device=parameters.like.device)
        candidates, scores = [], []
        for logarithmic in (True, False):
            trace = _max_trace(engine, parameters, part) if logarithmic else engine.up(part, parameters, keep=False)
            states = descend(engine.program, trace, parameters, columns, Maximiser(logarithmic))
            trace.lease.release()
            values = _complete(engine, parameters, part, columns, states, outcome)
            candidates.append(values)
            scores.append(engine.log_prob(Points(values.T.contiguous(), None), parameters))
        best.append(torch.where((scores[0] >= scores[1]).unsqueeze(1), candidates[0], candidates[1]))
    return torch.cat(best)


def _max_trace(engine: Engine, parameters: Parameters, points: Points) -> Trace:
    modes = Modes(points)
    return max_up(
        engine.program,
        lambda rows: engine.layer.fill(rows, modes, parameters),
        parameters,
        points.batch,
    )


def _complete(
    engine: Engine,
    parameters: Parameters,
    points: Points,
    columns: Tensor,
    states: Sequence[Tensor],
    outcome: Outcome,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Values for the chosen states where they are missing, ``(samples, variables)``.

    Those of independent inputs come from ``outcome``; correlated ones are drawn, or their means without a generator.
    """
    program, layer = engine.program, engine.layer
    values = points.values[:, columns].T.contiguous()  # (samples, variables)
    for group in layer.groups:
        column, rows = (program.index(where, values.device) for where in (group.columns, group.rows))
        chosen = states[group.pool]
        if group.correlation is not None:
            state, known = chosen[rows], values.T[column]  # (m, samples)
            noise = None
            if generator is not None:
                noise = torch.randn(known.shape, generator=generator, dtype=known.dtype, device=known.device)
            found = layer.block(group, parameters).complete(known, state[0].clamp(min=0), noise)
            values[:, column] = torch.where(state >= 0, found, known).T
            continue
        params = layer.select(group, parameters.inputs[group.params])
        shared = len(params) == 1
        for part in [slice(None)] if shared else pieces(len(params), _drawn(params, len(columns)), at_once(states)):
            state = chosen[rows[part]]  # (fold, samples)
            if group.axes is not None:
                state = project(state, group.axes, program.shapes[group.pool])
            slot, sample = ((state >= 0) & values.T[column[part]].isnan()).nonzero(as_tuple=True)
            row = torch.zeros_like(slot) if shared else slot
            found = outcome(group.family, params[part], row, state[slot, sample])
            values[sample, column[part][slot]] = found
    return values


def _drawn(params: Tensor, samples: int) -> int:
    """The elements that the samples of one variable take: a copy of what each uses, or all tables if they are fewer."""
    states = params.shape[1]
    return min(states, samples) * params[0, 0].numel()
