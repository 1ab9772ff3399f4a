# SPDX-License-Identifier: Apache-2.0
"""Inner products of circuits, and the divergences that follow from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor

from picirc.engine.schedule import InputStep, Rows, Send, Step, SumStep
from picirc.errors import ArgumentError, StructureError

if TYPE_CHECKING:
    from picirc.qpc.distribution import QPC

T = TypeVar("T")


def log_inner_product(p: QPC, q: QPC) -> Tensor:
    """``log ∫ p(x) q(x) dx`` of two circuits with the same structure, whatever their numbers of states.

    For every pair of states the integral over a row's variables is the product of those over its factors, and a pair of
    integrals turns the matrix of these numbers M into ``W_p M W_qᵀ``. Both circuits must be structured-decomposable,
    split their variables in the same way and have inputs of the same families; rows must have at most one axis.
    """
    _check_compatible(p, q)
    like = p.parameters.like
    schedule = p.compiled.schedule
    rows = [
        like.new_zeros(pool.rows, *(math.prod(circuit.compiled.shapes[i]) for circuit in (p, q)))
        for i, pool in enumerate(schedule.pools)
    ]

    def index(numbers: Rows) -> Tensor:
        return torch.as_tensor(numbers, device=like.device)

    for group in schedule.inputs:
        if group.correlation is not None:
            mine, theirs = (c.compiled.block(group, c.parameters.detach()) for c in (p, q))
            rows[group.pool][int(group.rows[0])] += mine.inner(theirs)
            continue
        one, two = (c.parameters.inputs[group.params].detach() for c in (p, q))
        logs = group.family.inner(one, two).log().expand(len(group.rows), -1, -1)
        rows[group.pool].index_add_(0, index(group.rows), logs)
    for step in schedule.steps:
        if not isinstance(step, SumStep):
            continue
        cells = rows[step.pool][step.start : step.stop].repeat_interleave(step.edges, 0)  # (results, z, z')
        top = cells.flatten(1).amax(1).clamp(min=torch.finfo(like.dtype).min).view(-1, 1, 1)
        left = p.parameters.weights[step.block].detach()[step.first : step.first + len(cells), 0]
        right = q.parameters.weights[step.block].detach()[step.first : step.first + len(cells), 0]
        results = (left @ (cells - top).exp() @ right.mT).log() + top
        for send in step.sends:
            chosen = results if send.sources is None else results[index(send.sources)]
            rows[send.pool].index_add_(0, index(send.rows), chosen)
    pool, row = schedule.root
    return rows[pool][row, 0, 0]


def l2_divergence(p: QPC, q: QPC) -> Tensor:
    """``∫ (p(x) − q(x))² dx``."""
    pp, qq, pq = log_inner_product(p, p), log_inner_product(q, q), log_inner_product(p, q)
    top = torch.maximum(pp, qq)
    return top.exp() * ((pp - top).exp() + (qq - top).exp() - 2 * (pq - top).exp()).clamp(min=0.0)


def cauchy_schwarz_divergence(p: QPC, q: QPC) -> Tensor:
    """``−log (∫ p q / √(∫ p² ∫ q²))``: zero for equal distributions, and finite where the L2 divergence underflows."""
    return ((log_inner_product(p, p) + log_inner_product(q, q)) / 2 - log_inner_product(p, q)).clamp(min=0.0)


def _check_compatible(p: QPC, q: QPC) -> None:
    purpose = "the inner product"
    for circuit in (p, q):
        circuit.properties.require("smooth", "structured_decomposable", purpose=purpose)
    if (p.dtype, p.device) != (q.dtype, q.device):
        raise ArgumentError("q", f"the dtype and device of p, {p.dtype} on {p.device}", f"{q.dtype} on {q.device}")
    mine, theirs = p.compiled.schedule, q.compiled.schedule
    same = p.variables == q.variables and mine.root == theirs.root and len(mine.pools) == len(theirs.pools)
    same = same and _all_alike(mine.steps, theirs.steps, _alike)
    if not same:
        raise StructureError(
            f"{purpose} needs two circuits of the same structure, without mixtures and with one latent a row; "
            f"these are {p!r} and {q!r}."
        )


def _all_alike(a: Sequence[T], b: Sequence[T], alike: Callable[[T, T], bool]) -> bool:
    return len(a) == len(b) and all(map(alike, a, b))


def _alike(a: Step, b: Step) -> bool:
    if isinstance(a, InputStep) and isinstance(b, InputStep):
        same = (a.family, a.params, a.pool, a.correlation) == (b.family, b.params, b.pool, b.correlation)
        same = same and a.axes is None and b.axes is None
        return same and np.array_equal(a.columns, b.columns) and np.array_equal(a.rows, b.rows)
    if not isinstance(a, SumStep) or not isinstance(b, SumStep) or a.shared or a.passed or b.shared or b.passed:
        return False
    mine, theirs = ((s.pool, s.start, s.stop, s.edges, s.block, s.first) for s in (a, b))
    return mine == theirs and _all_alike(a.sends, b.sends, _same_users)


def _same_users(a: Send, b: Send) -> bool:
    return (
        (a.pool, a.axes, b.axes) == (b.pool, None, None)
        and np.array_equal(a.rows, b.rows)
        and (a.sources is None) == (b.sources is None)
        and (a.sources is None or b.sources is None or np.array_equal(a.sources, b.sources))
    )
