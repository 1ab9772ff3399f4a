"""Inner products of circuits, and the divergences that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor

from picirc.errors import ArgumentError, StructureError
from picirc.qpc.inputs import InputGroup
from picirc.qpc.steps import Send, SumStep

if TYPE_CHECKING:
    from picirc.qpc.distribution import QPC

T = TypeVar("T")


def inner_product(p: QPC, q: QPC) -> Tensor:
    """``log ∫ p(x) q(x) dx`` of two circuits with the same structure, whatever their numbers of states.

    For every pair of states the integral over a row's variables is the product of those over its factors, and a pair of
    integrals turns the matrix of these numbers M into ``W_p M W_qᵀ``. Both circuits must be structured-decomposable,
    split their variables in the same way and have inputs of the same families; rows must have at most one axis.
    """
    _check_compatible(p, q)
    like = p.parameters.like
    program, other = p.engine.program, q.engine.program
    pools = program.schedule.pools
    rows = [
        like.new_zeros(pool.rows, program.shapes[i][0] if pool.kinds else 1, other.shapes[i][0] if pool.kinds else 1)
        for i, pool in enumerate(pools)
    ]
    for a, b in zip(p.engine.layer.groups, q.engine.layer.groups, strict=True):
        if a.correlation is not None:
            joint, other_joint = (c.engine.layer.block(g, c.parameters.detach()) for c, g in ((p, a), (q, b)))
            rows[a.pool][int(a.rows[0])] += joint.inner(other_joint)
            continue
        mine = p.engine.layer.select(a, p.parameters.inputs[a.params].detach())
        theirs = q.engine.layer.select(b, q.parameters.inputs[b.params].detach())
        logs = a.family.inner(mine, theirs).log().expand(len(a.rows), -1, -1)
        rows[a.pool].index_add_(0, program.index(a.rows, like.device), logs)
    for step in program.schedule.steps:
        assert isinstance(step, SumStep)
        cells = rows[step.pool][step.start : step.stop].repeat_interleave(step.edges, 0)  # (results, z, z')
        top = cells.flatten(1).amax(1).clamp(min=torch.finfo(like.dtype).min).view(-1, 1, 1)
        left = p.parameters.weights[step.block].detach()[step.first : step.first + len(cells), 0]
        right = q.parameters.weights[step.block].detach()[step.first : step.first + len(cells), 0]
        results = (left @ (cells - top).exp() @ right.mT).log() + top
        for send in step.sends:
            chosen = results if send.sources is None else results[program.index(send.sources, like.device)]
            rows[send.pool].index_add_(0, program.index(send.rows, like.device), chosen)
    pool, row = program.schedule.root
    return rows[pool][row, 0, 0]


def l2_divergence(p: QPC, q: QPC) -> Tensor:
    """``∫ (p(x) − q(x))² dx``."""
    pp, qq, pq = inner_product(p, p), inner_product(q, q), inner_product(p, q)
    top = torch.maximum(pp, qq)
    return top.exp() * ((pp - top).exp() + (qq - top).exp() - 2 * (pq - top).exp()).clamp(min=0.0)


def cauchy_schwarz_divergence(p: QPC, q: QPC) -> Tensor:
    """``−log (∫ p q / √(∫ p² ∫ q²))``: zero for equal distributions, and finite where the L2 divergence underflows."""
    return ((inner_product(p, p) + inner_product(q, q)) / 2 - inner_product(p, q)).clamp(min=0.0)


def _check_compatible(p: QPC, q: QPC) -> None:
    purpose = "the inner product"
    for circuit in (p, q):
        circuit.properties.require("smooth", "structured_decomposable", purpose=purpose)
    if (p.dtype, p.device) != (q.dtype, q.device):
        raise ArgumentError("q", f"the dtype and device of p, {p.dtype} on {p.device}", f"{q.dtype} on {q.device}")
    mine, theirs = p.engine.program.schedule, q.engine.program.schedule
    groups, others = p.engine.layer.groups, q.engine.layer.groups
    same = p.variables == q.variables and mine.root == theirs.root and len(mine.pools) == len(theirs.pools)
    same = same and _all_alike(mine.steps, theirs.steps, _alike) and _all_alike(groups, others, _same_inputs)
    if not same:
        raise StructureError(
            f"{purpose} needs two circuits of the same structure, without mixtures and with one latent a row; "
            f"these are {p!r} and {q!r}."
        )


def _all_alike(a: Sequence[T], b: Sequence[T], alike: Callable[[T, T], bool]) -> bool:
    return len(a) == len(b) and all(map(alike, a, b))


def _alike(a: object, b: object) -> bool:
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


def _same_inputs(a: InputGroup, b: InputGroup) -> bool:
    same = (a.family, a.pool, a.axes, b.axes) == (b.family, b.pool, None, None) and a.correlation == b.correlation
    return same and np.array_equal(a.columns, b.columns) and np.array_equal(a.rows, b.rows)
