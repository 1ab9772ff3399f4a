"""Exact covariances of the observed variables, given evidence."""

from __future__ import annotations

import torch
from torch import Tensor

from picirc.qpc.evidence import Points, Tilted
from picirc.qpc.likelihood import Engine
from picirc.qpc.program import Parameters
from picirc.qpc.queries import components, means


def covariance(engine: Engine, parameters: Parameters, points: Points, mean: Tensor, variance: Tensor) -> Tensor:
    """``Cov(X_i, X_j | e)`` for every data point, ``(batch, variables, variables)``.

    Weighting the distribution by ``x_t − c_t`` and taking the means gives one row: with ``Z_t = E[X_t − c_t | e]`` and
    the means ``m'`` of the weighted distribution, ``Cov(X_t, X_j | e) = Z_t (m'_j − m_j)``. The rows of a data point
    form one batch. Correlated inputs covary within a state too: the mean of that over the states is added.

    Args:
        engine: The program.
        parameters: Its parameters.
        points: The evidence.
        mean: The means given the evidence, ``(batch, variables)``.
        variance: The variances.
    """
    result = torch.diag_embed(variance)
    if points.missing is None:
        return result
    within = _within_blocks(engine, parameters, points)
    offset = _offsets(engine, parameters, points)
    for number in range(points.batch):
        hidden = points.missing[:, number].nonzero().flatten()
        if len(hidden) == 0:
            continue
        copies = torch.full_like(hidden, number)
        many = Points(points.values[:, copies], points.missing[:, copies])
        tilted, _ = components(engine, parameters, Tilted(many, hidden, offset))
        weighted = means(tilted, many.values)  # (variables, hidden)
        scale = (mean[number] - offset)[hidden].unsqueeze(1)  # E[X_t − c_t | e]
        rows = scale * (weighted.T - mean[number])[:, hidden]
        result[number, hidden.unsqueeze(1), hidden] = (rows + rows.T) / 2 + within[number][hidden][:, hidden]
    return torch.diagonal_scatter(result, variance, dim1=1, dim2=2)


def _within_blocks(engine: Engine, parameters: Parameters, points: Points) -> Tensor:
    """The mean over the states of the covariance of correlated inputs, ``(batch, variables, variables)``."""
    variables, batch = points.values.shape
    total = parameters.like.new_zeros(batch, variables, variables)
    blocks = [group for group in engine.layer.groups if group.correlation is not None]
    if not blocks:
        return total
    for where, _, flows in engine.flows(points, parameters):
        for group in blocks:
            columns = engine.program.index(group.columns, total.device)
            block, flow = engine.layer.block(group, parameters.detach()), flows.rows[group.pool][int(group.rows[0])]
            total[where, columns.unsqueeze(1), columns] += block.covariance(points.values[columns, where], flow)
    return total


def _offsets(engine: Engine, parameters: Parameters, points: Points) -> Tensor:
    """For each variable a constant well below the means of all its states."""
    like = parameters.like
    variables = len(points.values)
    low, high = like.new_full((variables,), torch.inf), like.new_full((variables,), -torch.inf)
    for part in components(engine, parameters, points)[0]:
        mean = part.over_batch(part.family.mean).expand(len(part.columns), -1, -1).flatten(1)
        low.scatter_reduce_(0, part.columns, mean.amin(1), "amin")
        high.scatter_reduce_(0, part.columns, mean.amax(1), "amax")
    reach = high - low
    return low - torch.where(reach > 0, reach, low.abs().clamp(min=1.0))
