"""Energy-based densities on a grid, with hand-written gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import softplus

from picirc.recycling import recycled

Weigh = Callable[[Tensor, Tensor, Tensor, Tensor], None]

# Points of a tile, at most: with more of them a tile would have few functions, and its matrix products would be slow.
_TILE_POINTS = 2**12


def normalise(values: Tensor, log_weights: Tensor) -> Tensor:
    """``S_jk = w_k exp(−E_jk) / Σ_k w_k exp(−E_jk)`` with the energies ``E = softplus(values)``.

    Args:
        values: ``(..., o, z)``.
        log_weights: ``(z,)``, the logarithms of the quadrature weights.
    """
    return (log_weights - softplus(values)).softmax(-1)


def composite_weights(head: Tensor, bias: Tensor, hidden: Tensor, log_weights: Tensor, elements: int) -> Tensor:
    """Sum weights of functions ``head_i · hidden(z) + bias_i`` that share ``hidden``, some of their values at a time.

    The same as ``normalise``, but the way back needs neither the values nor the energies: these follow from the
    weights themselves and from their normalisers, one number a row.

    Args:
        head: ``(rows, width)``.
        bias: ``(rows,)``.
        hidden: ``(width, points)`` with ``points = o · z``.
        log_weights: ``(z,)``.
        elements: The number of values that are computed at a time.

    Returns:
        ``(rows, o, z)``.
    """
    weights: Tensor = _Composite.apply(head, bias, hidden, log_weights, elements)  # type: ignore[no-untyped-call]
    return weights


def separate_weights(
    hidden: Tensor, hidden_bias: Tensor, head: Tensor, bias: Tensor, features: Tensor, log_weights: Tensor, size: int
) -> Tensor:
    """Sum weights of functions ``head_i · tanh(hidden_i · features(z) + hidden_bias_i) + bias_i``, some at a time.

    Activations are never kept: on the way back they are computed again, in a buffer that serves all pieces.

    Args:
        hidden: ``(rows, width, width)``.
        hidden_bias: ``(rows, width)``.
        head: ``(rows, width)``.
        bias: ``(rows,)``.
        features: ``(width, points)`` with ``points = o · z``.
        log_weights: ``(z,)``.
        size: The number of functions of a piece.

    Returns:
        ``(rows, o, z)``.
    """
    nets = (hidden, hidden_bias, head, bias, features)
    weights: Tensor = _Separate.apply(*nets, log_weights, size)  # type: ignore[no-untyped-call]
    return weights


def _weigh(values: Tensor, log_weights: Tensor, norms: Tensor, out: Tensor) -> None:
    """As ``normalise``, for values ``(rows, points)``, which are overwritten; also the normalisers ``(rows, o, 1)``.

    The exponential exp(−softplus(x)) is the logistic function of −x, which needs neither logarithms nor a maximum.
    """
    masses = values.neg_().sigmoid_().view_as(out).mul_(log_weights.exp())
    torch.div(masses, torch.sum(masses, -1, keepdim=True, out=norms), out=out)


def _weigh_by_logarithms(values: Tensor, log_weights: Tensor, norms: Tensor, out: Tensor) -> None:
    """The same where all masses of a row may be too small to be numbers, and with them the normaliser."""
    logs = softplus(values).neg_().view_as(out).add_(log_weights)
    torch.logsumexp(logs, -1, keepdim=True, out=norms)
    torch.exp(logs.sub_(norms), out=out)
    norms.exp_()


def _weigh_all(compute: Callable[[Weigh], None], norms: Tensor) -> None:
    """Compute all weights, and again with logarithms if a normaliser is so small that it has lost digits."""
    compute(_weigh)
    if float(norms.amin()) < torch.finfo(norms.dtype).tiny / torch.finfo(norms.dtype).eps:
        compute(_weigh_by_logarithms)


def _flow_back(weights: Tensor, norms: Tensor, log_weights: Tensor, gradient: Tensor) -> Tensor:
    """Reverse of ``_weigh``: the derivative with respect to the values, ``(rows, points)``."""
    flow = (weights * gradient).sum(-1, keepdim=True).sub(gradient).mul_(weights)  # −dL/d(log-weights), that is dL/dE
    # The slope of softplus is 1 − exp(−E), and exp(−E) = S · norm / w_k.
    slope = (weights * norms).mul_(-(-log_weights).exp()).add_(1)
    return flow.mul_(slope).flatten(1)


class _Composite(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, head: Tensor, bias: Tensor, hidden: Tensor, log_weights: Tensor, elements: int) -> Tensor:
        shape = (len(head), hidden.shape[1] // len(log_weights), len(log_weights))
        weights, norms = recycled(shape, head), head.new_empty(*shape[:2], 1)

        def compute(weigh: Weigh) -> None:
            for rows, given, points in _tiles(shape, elements):
                values = torch.addmm(bias[rows].unsqueeze(1), head[rows], hidden[:, points])
                weigh(values, log_weights, norms[rows, given], weights[rows, given])

        _weigh_all(compute, norms)
        ctx.save_for_backward(head, hidden, log_weights, weights, norms)
        ctx.elements = elements
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor | None, ...]:
        head, hidden, log_weights, weights, norms = ctx.saved_tensors
        d_head, d_bias, d_hidden = torch.zeros_like(head), head.new_zeros(len(head)), torch.zeros_like(hidden)
        by_point = hidden.T.contiguous()  # its products are faster
        for rows, given, points in _tiles(weights.shape, ctx.elements):
            tile = rows, given
            flow = _flow_back(weights[tile], norms[tile], log_weights, gradient[0][tile])
            d_head[rows].addmm_(flow, by_point[points])
            d_bias[rows].add_(flow.sum(1))
            d_hidden[:, points].addmm_(head[rows].T, flow)
        return d_head, d_bias, d_hidden, None, None


def _tiles(shape: Sequence[int], elements: int) -> Iterator[tuple[slice, slice, slice]]:
    """Parts of values ``(rows, given, states)``: which rows, which given states, and the points of these."""
    rows, given, states = shape
    some = min(given, max(1, _TILE_POINTS // states))
    many = max(1, elements // (some * states))
    for start in range(0, rows, many):
        for first in range(0, given, some):
            last = min(first + some, given)
            yield slice(start, start + many), slice(first, last), slice(first * states, last * states)


class _Separate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        hidden_bias: Tensor,
        head: Tensor,
        bias: Tensor,
        features: Tensor,
        log_weights: Tensor,
        size: int,
    ) -> Tensor:
        shape = (len(head), features.shape[1] // len(log_weights), len(log_weights))
        weights, norms = recycled(shape, head), head.new_empty(*shape[:2], 1)
        buffer, constant = head.new_empty(size, *features.shape), _with_constant(features)

        def compute(weigh: Weigh) -> None:
            for start in range(0, len(head), size):
                part = slice(start, start + size)
                active = _active(hidden[part], hidden_bias[part], constant, buffer)
                values = torch.baddbmm(bias[part].view(-1, 1, 1), head[part].unsqueeze(1), active).squeeze(1)
                weigh(values, log_weights, norms[part], weights[part])

        _weigh_all(compute, norms)
        ctx.save_for_backward(hidden, hidden_bias, head, features, log_weights, weights, norms)
        ctx.size = size
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor | None, ...]:
        hidden, hidden_bias, head, features, log_weights, weights, norms = ctx.saved_tensors
        d_hidden, d_hidden_bias, d_head = (torch.empty_like(t) for t in (hidden, hidden_bias, head))
        d_bias = head.new_empty(len(head))
        d_features = torch.zeros_like(features) if ctx.needs_input_grad[4] else None
        buffer, back = (head.new_empty(ctx.size, *features.shape) for _ in range(2))
        constant, by_point = _with_constant(features), features.T.contiguous()  # by points, the product is faster
        for start in range(0, len(head), ctx.size):
            part = slice(start, start + ctx.size)
            active = _active(hidden[part], hidden_bias[part], constant, buffer)
            flow = _flow_back(weights[part], norms[part], log_weights, gradient[0][part])
            torch.sum(flow, 1, out=d_bias[part])
            flow = flow.unsqueeze(1)  # (rows, 1, points)
            torch.bmm(flow, active.mT, out=d_head[part].unsqueeze(1))
            inner = torch.mul(head[part].unsqueeze(2), flow, out=back[: len(flow)])
            torch.ops.aten.tanh_backward.grad_input(inner, active, grad_input=inner)
            torch.sum(inner, 2, out=d_hidden_bias[part])
            flat = inner.flatten(0, 1)  # (rows · width, points)
            torch.mm(flat, by_point, out=d_hidden[part].flatten(0, 1))
            if d_features is not None:
                d_features.addmm_(hidden[part].flatten(0, 1).T, flat)
        return d_hidden, d_hidden_bias, d_head, d_bias, d_features, None, None


def _with_constant(features: Tensor) -> Tensor:
    """Features ``(width + 1, points)``, the last of them 1: its weight is the bias, in the same matrix product."""
    return torch.cat([features, features.new_ones(1, features.shape[1])])


def _active(hidden: Tensor, bias: Tensor, constant: Tensor, buffer: Tensor) -> Tensor:
    """The activations of the hidden layers, ``(rows, width, points)``, in a buffer."""
    out = buffer[: len(hidden)]
    weights = torch.cat([hidden, bias.unsqueeze(-1)], -1)
    torch.mm(weights.flatten(0, 1), constant, out=out.flatten(0, 1)).tanh_()
    return out
