# SPDX-License-Identifier: Apache-2.0
"""Energy-based densities on a grid, with hand-written gradients.

A function f of a latent z and of the latents it depends on defines a conditional density by its energy E(f). The
weights of a sum unit are ``S_jk = w_k exp(−E_jk) / Σ_k w_k exp(−E_jk)`` with quadrature weights ``w_k``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import softplus

from picirc.autograd import first_order
from picirc.memory import empty, has_values

_TILE_POINTS = 2**12  # at most; a tile of more points would have few functions, and slow matrix products


class Energy(ABC):
    """The map from the values of a function to energies.

    Attributes:
        invariant: Whether adding a constant to a function changes nothing. The gradient of a bias is then set to zero,
            because optimisers that normalise gradients would amplify its rounding errors.
    """

    invariant: ClassVar[bool] = False

    @abstractmethod
    def normalise(self, values: Tensor, log_weights: Tensor) -> Tensor:
        """The sum weights ``(..., o, z)`` of values of this shape; ``log_weights`` are ``(z,)`` or ``(o, z)``."""

    @abstractmethod
    def weigh(self, values: Tensor, log_weights: Tensor, norms: Tensor, out: Tensor) -> None:
        """``normalise`` values ``(rows, o · z)``, which are overwritten, into ``out`` ``(rows, o, z)``.

        The normalisers are written into ``norms`` ``(rows, o, 1)`` if ``flow_back`` needs them.
        """

    @abstractmethod
    def flow_back(self, weights: Tensor, norms: Tensor, log_weights: Tensor, gradient: Tensor) -> Tensor:
        """The gradient of the values ``(rows, o · z)`` from the gradient of the weights ``(rows, o, z)``."""


class Unbounded(Energy):
    """``E = 3 f``: the weights are a softmax, whose gradient does not vanish at peaks.

    The factor allows for peaked densities with net weights of ordinary size. A factor of 1 learns more slowly, and 10
    is unstable.
    """

    scale = 3.0
    invariant: ClassVar[bool] = True

    def normalise(self, values: Tensor, log_weights: Tensor) -> Tensor:
        """The softmax of ``log w − 3 f``."""
        return (log_weights - self.scale * values).softmax(-1)

    def weigh(self, values: Tensor, log_weights: Tensor, norms: Tensor, out: Tensor) -> None:
        """The softmax, in place; ``norms`` are not needed."""
        torch.softmax(values.view_as(out).mul_(-self.scale).add_(log_weights), -1, out=out)

    def flow_back(self, weights: Tensor, norms: Tensor, log_weights: Tensor, gradient: Tensor) -> Tensor:
        """The gradient of a softmax."""
        return _minus_log_gradient(weights, gradient).mul_(self.scale).flatten(1)


class Softplus(Energy):
    """``E = softplus(f)``, as in the paper: unnormalised weights are at most ``w_k``, and gradients vanish at peaks."""

    def normalise(self, values: Tensor, log_weights: Tensor) -> Tensor:
        """The softmax of ``log w − softplus(f)``."""
        return (log_weights - softplus(values)).softmax(-1)

    def weigh(self, values: Tensor, log_weights: Tensor, norms: Tensor, out: Tensor) -> None:
        """``exp(−softplus(f))`` is the sigmoid of −f, without logarithms or a maximum."""
        kept = values.neg_()
        masses = torch.sigmoid(kept).view_as(out).mul_(log_weights.exp())
        torch.sum(masses, -1, keepdim=True, out=norms)
        if not has_values(norms) or float(norms.amin()) >= torch.finfo(norms.dtype).tiny / torch.finfo(norms.dtype).eps:
            torch.div(masses, norms, out=out)
        else:  # all masses of a row are too small to be divided without losing digits
            logs = softplus(kept.neg_()).neg_().view_as(out).add_(log_weights)
            torch.logsumexp(logs, -1, keepdim=True, out=norms)
            torch.exp(logs.sub_(norms), out=out)
            norms.exp_()

    def flow_back(self, weights: Tensor, norms: Tensor, log_weights: Tensor, gradient: Tensor) -> Tensor:
        """The slope of softplus is 1 − exp(−E), and exp(−E) = S · norm / w_k."""
        slope = (weights * norms).mul_(-(-log_weights).exp()).add_(1)
        return _minus_log_gradient(weights, gradient).mul_(slope).flatten(1)


ENERGIES: dict[str, Energy] = {"unbounded": Unbounded(), "softplus": Softplus()}


def _minus_log_gradient(weights: Tensor, gradient: Tensor) -> Tensor:
    """The gradient of the energies, ``−dL/d log(unnormalised weights)``."""
    return (weights * gradient).sum(-1, keepdim=True).sub(gradient).mul_(weights)


class _Composite(torch.autograd.Function):
    """Sum weights of functions ``head_i · hidden(z) + bias_i`` that share ``hidden``, computed in tiles.

    The result is that of ``energy.normalise``. The backward pass needs only the weights and their normalisers, not the
    values or the energies.
    """

    @staticmethod
    def forward(
        ctx: Any,
        head: Tensor,  # (rows, width)
        bias: Tensor,  # (rows,)
        hidden: Tensor,  # (width, points) with points = o · z
        log_weights: Tensor,  # (z,), or (o, z) with a reference density
        energy: Energy,
        elements: int,  # values of a tile
    ) -> Tensor:  # (rows, o, z)
        shape = (len(head), hidden.shape[1] // log_weights.shape[-1], log_weights.shape[-1])
        weights, norms = empty(shape, head), head.new_empty(*shape[:2], 1)
        for rows, given, points in _tiles(shape, elements):
            values = torch.addmm(bias[rows].unsqueeze(1), head[rows], hidden[:, points])
            energy.weigh(values, _of_tile(log_weights, given), norms[rows, given], weights[rows, given])
        ctx.save_for_backward(head, hidden, log_weights, weights, norms)
        ctx.energy, ctx.elements = energy, elements
        return weights

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor | None, ...]:
        head, hidden, log_weights, weights, norms = ctx.saved_tensors
        d_head, d_bias, d_hidden = torch.zeros_like(head), head.new_zeros(len(head)), torch.zeros_like(hidden)
        by_point = hidden.T.contiguous()  # products with it are faster
        for rows, given, points in _tiles(weights.shape, ctx.elements):
            tile = rows, given
            own = _of_tile(log_weights, given)
            flow = ctx.energy.flow_back(weights[tile], norms[tile], own, gradient[0][tile])
            d_head[rows].addmm_(flow, by_point[points])
            if not ctx.energy.invariant:
                d_bias[rows].add_(flow.sum(1))
            d_hidden[:, points].addmm_(head[rows].T, flow)
        return d_head, d_bias, d_hidden, None, None, None


def _tiles(shape: Sequence[int], elements: int) -> Iterator[tuple[slice, slice, slice]]:
    """Tiles of values ``(rows, given, states)``: the rows, the given states, and the points of these."""
    rows, given, states = shape
    some = min(given, max(1, _TILE_POINTS // states))
    many = max(1, elements // (some * states))
    for start in range(0, rows, many):
        for first in range(0, given, some):
            last = min(first + some, given)
            yield slice(start, start + many), slice(first, last), slice(first * states, last * states)


def _of_tile(log_weights: Tensor, given: slice) -> Tensor:
    return log_weights if log_weights.ndim == 1 else log_weights[given]


class _Separate(torch.autograd.Function):
    """Sum weights of functions ``head_i · tanh(hidden_i · features(z) + hidden_bias_i) + bias_i``, in pieces.

    Activations are not kept. The backward pass computes them again, in one buffer for all pieces.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,  # (rows, width, width)
        hidden_bias: Tensor,  # (rows, width)
        head: Tensor,  # (rows, width)
        bias: Tensor,  # (rows,)
        features: Tensor,  # (width, points) with points = o · z
        log_weights: Tensor,  # (z,), or (o, z) with a reference density
        energy: Energy,
        size: int,  # functions of a piece
    ) -> Tensor:  # (rows, o, z)
        shape = (len(head), features.shape[1] // log_weights.shape[-1], log_weights.shape[-1])
        weights, norms = empty(shape, head), head.new_empty(*shape[:2], 1)
        buffer, constant = head.new_empty(size, *features.shape), _with_constant(features)
        for start in range(0, len(head), size):
            part = slice(start, start + size)
            active = _active(hidden[part], hidden_bias[part], constant, buffer)
            values = torch.baddbmm(bias[part].view(-1, 1, 1), head[part].unsqueeze(1), active).squeeze(1)
            energy.weigh(values, log_weights, norms[part], weights[part])
        ctx.save_for_backward(hidden, hidden_bias, head, features, log_weights, weights, norms)
        ctx.energy, ctx.size = energy, size
        return weights

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor | None, ...]:
        hidden, hidden_bias, head, features, log_weights, weights, norms = ctx.saved_tensors
        d_hidden, d_hidden_bias, d_head = (torch.empty_like(t) for t in (hidden, hidden_bias, head))
        d_bias = head.new_zeros(len(head))
        d_features = torch.zeros_like(features) if ctx.needs_input_grad[4] else None
        buffer, back = (head.new_empty(ctx.size, *features.shape) for _ in range(2))
        constant, by_point = _with_constant(features), features.T.contiguous()  # products with it are faster
        for start in range(0, len(head), ctx.size):
            part = slice(start, start + ctx.size)
            active = _active(hidden[part], hidden_bias[part], constant, buffer)
            flow = ctx.energy.flow_back(weights[part], norms[part], log_weights, gradient[0][part])
            if not ctx.energy.invariant:
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
        return d_hidden, d_hidden_bias, d_head, d_bias, d_features, None, None, None


composite_weights: Callable[..., Tensor] = _Composite.apply
separate_weights: Callable[..., Tensor] = _Separate.apply


def _with_constant(features: Tensor) -> Tensor:
    """Features ``(width + 1, points)`` with a last one of 1, whose weight is the bias."""
    return torch.cat([features, features.new_ones(1, features.shape[1])])


def _active(hidden: Tensor, bias: Tensor, constant: Tensor, buffer: Tensor) -> Tensor:
    """The activations of the hidden layers, ``(rows, width, points)``, in the buffer."""
    out = buffer[: len(hidden)]
    weights = torch.cat([hidden, bias.unsqueeze(-1)], -1)
    torch.mm(weights.flatten(0, 1), constant, out=out.flatten(0, 1)).tanh_()
    return out
