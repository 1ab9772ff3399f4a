"""Energy-based densities on a grid, with a hand-written gradient for nets that share their hidden layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import softplus

from picirc.recycling import recycled


def normalise(values: Tensor, log_weights: Tensor) -> Tensor:
    """``S_jk = w_k exp(−E_jk) / Σ_k w_k exp(−E_jk)`` with the energies ``E = softplus(values)``.

    Args:
        values: ``(..., o, z)``.
        log_weights: ``(z,)``, the logarithms of the quadrature weights.
    """
    return (log_weights - softplus(values)).softmax(-1)


def composite_weights(head: Tensor, bias: Tensor, hidden: Tensor, log_weights: Tensor, size: int) -> Tensor:
    """Sum weights of functions ``head_i · hidden(z) + bias_i`` that share ``hidden``, ``size`` functions at a time.

    The same as ``normalise``, but the way back needs neither the values nor the energies: these follow from the
    weights themselves and from the logarithms of their normalisers, one number a row.

    Args:
        head: ``(rows, width)``.
        bias: ``(rows,)``.
        hidden: ``(width, points)`` with ``points = o · z``.
        log_weights: ``(z,)``.
        size: The number of functions of a piece.

    Returns:
        ``(rows, o, z)``.
    """
    weights: Tensor = _Composite.apply(head, bias, hidden, log_weights, size)  # type: ignore[no-untyped-call]
    return weights


class _Composite(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, head: Tensor, bias: Tensor, hidden: Tensor, log_weights: Tensor, size: int) -> Tensor:
        shape = (len(head), hidden.shape[1] // len(log_weights), len(log_weights))
        weights, norms = recycled(shape, head), head.new_empty(*shape[:2], 1)
        for start in range(0, len(head), size):
            part = slice(start, start + size)
            values = torch.addmm(bias[part].unsqueeze(1), head[part], hidden).view(-1, *shape[1:])
            logs = softplus(values).neg_().add_(log_weights)
            norm = torch.logsumexp(logs, -1, keepdim=True, out=norms[part])
            torch.exp(logs.sub_(norm), out=weights[part])
        ctx.save_for_backward(head, hidden, log_weights, weights, norms)
        ctx.size = size
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor | None, ...]:
        head, hidden, log_weights, weights, norms = ctx.saved_tensors
        d_head, d_bias, d_hidden = torch.empty_like(head), head.new_empty(len(head)), torch.zeros_like(hidden)
        for start in range(0, len(head), ctx.size):
            part = slice(start, start + ctx.size)
            w, g = weights[part], gradient[0][part]
            flow = (w * g).sum(-1, keepdim=True).sub(g).mul_(w)  # −dL/d(log-weights), that is dL/dE
            # exp(−E) = S · norm / w_k, and the slope of softplus is 1 − exp(−E).
            slope = w.log().add_(norms[part]).sub_(log_weights).exp_().neg_().add_(1)
            flow = flow.mul_(slope).flatten(1)  # (rows, points)
            torch.mm(flow, hidden.T, out=d_head[part])
            torch.sum(flow, 1, out=d_bias[part])
            d_hidden.addmm_(head[part].T, flow)
        return d_head, d_bias, d_hidden, None, None
