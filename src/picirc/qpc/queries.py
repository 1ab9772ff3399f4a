"""Queries as small functions over the two traversals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from picirc.qpc.evidence import Evidence
from picirc.qpc.likelihood import Engine
from picirc.qpc.program import Parameters


@dataclass(frozen=True)
class LatentGrid:
    """The grid of a continuous latent, and the row and axis of the program where its states are."""

    name: str
    pool: int
    row: int
    axis: int
    points: Tensor


def latent_states(
    engine: Engine, parameters: Parameters, grids: Sequence[LatentGrid], evidence: Evidence
) -> tuple[dict[str, Tensor], Tensor]:
    """For each latent the posterior probability of its states ``(batch, states)``, and the log-values."""
    like = parameters.like
    values = torch.empty(evidence.batch, dtype=like.dtype, device=like.device)
    posteriors = {
        grid.name: like.new_zeros(evidence.batch, engine.program.shapes[grid.pool][grid.axis]) for grid in grids
    }
    for where, value, flows in engine.flows(evidence, parameters):
        values[where] = value.to(like.dtype)
        for grid in grids:
            shape = engine.program.shapes[grid.pool]
            flow = flows.rows[grid.pool][grid.row].unflatten(0, shape)  # (*states, batch)
            others = [axis for axis in range(len(shape)) if axis != grid.axis]
            posteriors[grid.name][where] += (flow.sum(others) if others else flow).T
    return posteriors, values
