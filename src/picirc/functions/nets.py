# SPDX-License-Identifier: Apache-2.0
"""Banks of small neural functions of a few latents, evaluated together on a grid."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from picirc.autograd import first_order, full_precision
from picirc.errors import ArgumentError
from picirc.functions.energy import Energy, composite_weights, separate_weights
from picirc.memory import empty

Finish = Callable[[Tensor], Tensor]
Piece = Callable[..., Tensor]

SHARING = ("none", "composite", "full")

_SHARED_SIGMA = 0.5  # the standard deviation of the frequencies of a shared latent
_PIECE_ELEMENTS = 2**19  # elements of the largest temporary of a piece, which stays in the processor's cache
_KEPT_ELEMENTS = 2**24  # values kept for the backward pass, which otherwise computes them again in pieces


class Features(nn.Module):
    """The first layer: Fourier features ``√2 [cos 2π f·z, sin 2π f·z]``, or ``tanh`` of an affine layer.

    The arguments are those of ``Bank``.
    """

    def __init__(
        self,
        arguments: int,
        width: int,
        fourier: bool,
        sigma: float | Sequence[float],
        learnable: bool,
        generator: torch.Generator | None,
    ) -> None:
        super().__init__()
        self.fourier = fourier
        rows = width // 2 if fourier else width
        scale = sigma if fourier else 1 / math.sqrt(arguments)
        frequencies = _normal_points(rows, arguments, scale, generator)
        if fourier and not learnable:
            self.register_buffer("frequencies", frequencies)
        else:
            self.frequencies = nn.Parameter(frequencies)
        if not fourier:
            self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, z: Tensor) -> Tensor:
        """``(points, arguments)`` to ``(points, width)``."""
        if not self.fourier:
            return torch.tanh(z @ self.frequencies.T + self.bias)
        angle = 2 * math.pi * (z @ self.frequencies.T)
        # The factor gives features unit variance.
        return math.sqrt(2) * torch.cat([angle.cos(), angle.sin()], 1)


def _normal_points(
    rows: int, arguments: int, scale: float | Sequence[float], generator: torch.Generator | None
) -> Tensor:
    """Normal quantiles of scrambled Sobol points, ``(rows, arguments)``, times ``scale``.

    Independent normal numbers leave gaps between the frequencies, and the quality of a model then depends on the seed.
    """
    with torch.device("cpu"):  # the default device may be another one, or "meta"
        seed = int(torch.randint(2**31, (), generator=generator))
        uniform = torch.quasirandom.SobolEngine(arguments, scramble=True, seed=seed).draw(rows, dtype=torch.float64)
        points = torch.special.ndtri(uniform.clamp(1e-6, 1 - 1e-6))
        found = torch.tensor(scale) * points.to(torch.get_default_dtype())
    return torch.tensor(found.numpy())  # arithmetic on "meta" would import torch's compiler, which takes seconds


class Bank(nn.Module):
    """``rows`` functions of the same latents: features, a hidden layer, and a linear head with ``outputs`` numbers.

    The functions may depend on a further latent g. The heads are then linear in Fourier features of g.
    """

    center: Tensor | None
    gain: Tensor | None
    # The parameters with a row for each function.
    BY_ROW: ClassVar[dict[str, tuple[str, ...]]] = {
        "none": ("hidden", "hidden_bias", "head", "head_bias", "turns", "turns_bias"),
        "composite": ("head", "head_bias", "turns", "turns_bias"),
        "full": (),
    }

    def __init__(
        self,
        rows: int,  # the number of functions
        arguments: int,  # the number of latents of each
        outputs: int,  # the number of values of each
        width: int,  # the width of the nets, an even number
        sharing: str,  # "none"; "composite": one hidden layer, but a head for each; "full": one function for all rows
        fourier: bool = True,  # whether to use Fourier features
        sigma: float | Sequence[float] = 1.0,  # the standard deviation of their frequencies, or one for each latent
        learnable: bool = False,  # whether the frequencies are trained
        generator: torch.Generator | None = None,
        shared: tuple[int, int] | None = None,  # the dimensions of g and the number of its features; None without g
    ) -> None:
        super().__init__()
        if sharing not in SHARING:
            raise ArgumentError("sharing", " or ".join(map(repr, SHARING)), sharing)
        self.rows, self.outputs, self.sharing = rows, outputs, sharing
        self.features = Features(arguments, width, fourier, sigma, learnable, generator)
        own = rows if sharing == "none" else 1
        heads = 1 if sharing == "full" else rows

        def uniform(*shape: int) -> nn.Parameter:
            bound = 1 / math.sqrt(width)
            return nn.Parameter(torch.empty(shape).uniform_(-bound, bound, generator=generator))

        self.hidden, self.hidden_bias = uniform(own, width, width), uniform(own, width)
        self.head, self.head_bias = uniform(heads, outputs, width), uniform(heads, outputs)
        if shared is not None:
            dims, turns = shared
            self.shared = Features(dims, turns, True, _SHARED_SIGMA, False, generator)
            self.turns, self.turns_bias = uniform(heads, turns, outputs, width), uniform(heads, turns, outputs)
        # During training, outputs are ``center + gain · head``. These buffers are not saved.
        self.register_buffer("center", None, persistent=False)
        self.register_buffer("gain", None, persistent=False)

    def blend(self, weights: Tensor) -> None:
        """Replace the heads by combinations of them, with weights ``(outputs, outputs)``."""
        with torch.no_grad():
            self.head.copy_(weights @ self.head)
            if hasattr(self, "turns"):
                self.turns.copy_(weights @ self.turns)

    def standardise(self, center: Tensor, gain: Tensor, keep: bool) -> None:
        """Set the outputs to ``center + gain · head``, ``(heads, outputs)`` each, until ``absorb``.

        Optimisers take steps of similar size for all parameters, which suits outputs of about unit variance.

        Args:
            center: The outputs for a head of zero.
            gain: The change of the outputs for a unit change of the head.
            keep: Whether to change the heads so that the functions stay the same.
        """
        if keep:
            with torch.no_grad():
                self.head_bias.copy_((self.head_bias - center) / gain)
                self.head.copy_(self.head / gain.unsqueeze(-1))
                if hasattr(self, "turns"):
                    self.turns.div_(gain[:, None, :, None])
                    self.turns_bias.div_(gain.unsqueeze(1))
        self.center, self.gain = center, gain

    def absorb(self) -> None:
        """Undo ``standardise`` by changing the heads so that the functions stay the same."""
        if self.center is not None and self.gain is not None:
            with torch.no_grad():
                if hasattr(self, "turns"):
                    self.turns.mul_(self.gain[:, None, :, None])
                    self.turns_bias.mul_(self.gain.unsqueeze(1))
                head, bias = self._heads(None)
                self.head.copy_(head)
                self.head_bias.copy_(bias)
            self.center = self.gain = None

    def _heads(self, g: Tensor | None) -> tuple[Tensor, Tensor]:
        """The heads and their biases at a value of the shared latent, in the units of the outputs."""
        head: Tensor = self.head
        bias: Tensor = self.head_bias
        if g is not None:
            features = self.shared(g.view(1, -1))[0]
            turn = features / math.sqrt(len(features))  # of length one
            head = head + torch.einsum("k,hkow->how", turn, self.turns)
            bias = bias + torch.einsum("k,hko->ho", turn, self.turns_bias)
        if self.center is None or self.gain is None:
            return head, bias
        bias = torch.addcmul(self.center, bias, self.gain)
        return (head if bool((self.gain == 1).all()) else head * self.gain.unsqueeze(-1)), bias

    def forward(self, z: Tensor, finish: Finish, g: Tensor | None = None) -> Tensor:
        """Evaluate all functions on a grid, and apply ``finish`` to pieces of them.

        Args:
            z: ``(points, arguments)``.
            finish: Maps the values ``(rows, points, outputs)`` of some rows to their results.
            g: The value ``(dims,)`` of the shared latent, if there is one.

        Returns:
            The results of all rows; of one row with full sharing.
        """
        features = self.features(z).T  # (width, points)
        head, bias = self._heads(g)
        # The nets may run in low precision, but ``finish`` does not.
        if self.sharing == "none":
            rows, dtype = (self.hidden, self.hidden_bias, head, bias), head.dtype
            size = _piece(self.hidden.shape[1] * features.shape[1])
            return chunked(lambda *t: finish(_net(*t).mT.to(dtype)), rows, (features,), size)
        hidden = _hidden(self.hidden, self.hidden_bias, features)[0]  # (width, points)
        if len(head) * self.outputs * hidden.shape[1] <= _KEPT_ELEMENTS:
            return finish(_head(head, bias, hidden).mT.to(head.dtype))
        size, dtype = _piece(self.outputs * hidden.shape[1]), head.dtype
        return chunked(lambda *t: finish(_head(*t).mT.to(dtype)), (head, bias), (hidden,), size)

    def sum_weights(self, z: Tensor, log_weights: Tensor, energy: Energy, g: Tensor | None = None) -> Tensor:
        """The sum weights ``(rows or 1, 1, o, z)`` of the densities that have the functions as energies.

        Args:
            z: ``(o · z, arguments)``, the integrated latents varying fastest.
            log_weights: The log quadrature weights ``(z,)`` of the integrated latents; or ``(o, z)``, with the log of a
                reference density added.
            energy: The map from values to energies.
            g: The value ``(dims,)`` of the shared latent, if there is one.
        """
        if self.sharing == "none" and _is_autocast(z.device.type):
            shape = (-1, 1, len(z) // log_weights.shape[-1], log_weights.shape[-1])
            found: Tensor = self(z, lambda values: energy.normalise(values.view(shape), log_weights), g)
            return found
        head, bias = self._heads(g)
        head, bias = head.squeeze(1), bias.squeeze(1)
        if self.sharing == "none":
            nets = (self.hidden, self.hidden_bias, head, bias)
            features = self.features(z).T.contiguous()
            return separate_weights(*nets, features, log_weights, energy, _piece(features.numel())).unsqueeze(1)
        hidden = _hidden(self.hidden, self.hidden_bias, self.features(z).T)[0]  # (width, points)
        with full_precision(z.device):  # probabilities are normalised in full precision
            weights = composite_weights(head, bias, hidden.to(head.dtype), log_weights, energy, _PIECE_ELEMENTS)
        return weights.unsqueeze(1)

    def log_softmax(self, z: Tensor, g: Tensor | None = None) -> Tensor:
        """``log_softmax`` over the outputs of each function, ``(rows or 1, points, outputs)``.

        The result is that of ``forward`` with a softmax, but with a hand-written gradient that computes nothing twice.
        """
        hidden = _hidden(self.hidden, self.hidden_bias, self.features(z).T)[0]  # (width, points)
        head, bias = self._heads(g)
        with full_precision(z.device):
            found: Tensor = _LogSoftmax.apply(head, bias, hidden.T.to(head.dtype))  # type: ignore[no-untyped-call]
        return found


class _LogSoftmax(torch.autograd.Function):
    """``log softmax`` of ``hidden · headᵀ + bias`` over the outputs, in pieces of rows."""

    @staticmethod
    def forward(ctx: Any, head: Tensor, bias: Tensor, hidden: Tensor) -> Tensor:
        rows, outputs, _ = head.shape
        out = empty((rows, len(hidden), outputs), head)
        for part in _parts(out, _piece(out[0].numel())):
            own = hidden.expand(len(head[part]), -1, -1)
            out[part] = torch.baddbmm(bias[part].unsqueeze(1), own, head[part].mT).log_softmax(-1)
        ctx.save_for_backward(head, hidden, out)
        return out

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor | None, ...]:
        head, hidden, out = ctx.saved_tensors
        d_head, d_bias, d_hidden = empty(head.shape, head), head.new_empty(head.shape[:2]), torch.zeros_like(hidden)
        for part in _parts(out, _piece(out[0].numel())):
            flow = torch.ops.aten._log_softmax_backward_data(gradient[0][part], out[part], -1, head.dtype)
            torch.bmm(flow.mT, hidden.expand(len(flow), -1, -1), out=d_head[part])
            torch.sum(flow, 1, out=d_bias[part])
            d_hidden.addbmm_(flow, head[part])
        return d_head, d_bias, d_hidden


def _piece(elements: int) -> int:
    """The number of functions in a piece if each needs this many elements."""
    return max(1, _PIECE_ELEMENTS // elements)


def _hidden(weights: Tensor, bias: Tensor, features: Tensor) -> Tensor:
    """``(rows, width, width)`` and ``(width, points)`` to ``(rows, width, points)``."""
    rows, width, _ = weights.shape
    return torch.addmm(bias.view(-1, 1), weights.flatten(0, 1), features).tanh().view(rows, width, -1)


def _head(weights: Tensor, bias: Tensor, hidden: Tensor) -> Tensor:
    """``(rows, outputs, width)`` and ``(width, points)`` to ``(rows, outputs, points)``."""
    return torch.addmm(bias.view(-1, 1), weights.flatten(0, 1), hidden).view(*bias.shape, -1)


def _net(hidden: Tensor, hidden_bias: Tensor, head: Tensor, head_bias: Tensor, features: Tensor) -> Tensor:
    return torch.baddbmm(head_bias.unsqueeze(-1), head, _hidden(hidden, hidden_bias, features))


def chunked(piece: Piece, rows: Sequence[Tensor], shared: Sequence[Tensor], size: int) -> Tensor:
    """``piece(*rows, *shared)``, computed for ``size`` rows at a time, and again in the backward pass.

    Args:
        piece: A function of tensors whose result has one row for each row of its first arguments.
        rows: Tensors with the same number of rows.
        shared: Tensors that are not divided.
        size: The number of rows of a piece.
    """
    result: Tensor = _Chunked.apply(piece, len(rows), size, *rows, *shared)  # type: ignore[no-untyped-call]
    return result


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, piece: Piece, count: int, size: int, *tensors: Tensor) -> Tensor:
        ctx.piece, ctx.count, ctx.size = piece, count, size
        ctx.precision = _precision(tensors[0].device.type)
        ctx.save_for_backward(*tensors)
        out: Tensor | None = None
        for part in _parts(tensors[0], size):
            found = piece(*(t[part] for t in tensors[:count]), *tensors[count:])
            if out is None:
                out = found.new_empty(len(tensors[0]), *found.shape[1:])
            out[part] = found
        assert out is not None, "there is at least one row"
        return out

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor | None, ...]:
        count, tensors = ctx.count, ctx.saved_tensors
        wanted = ctx.needs_input_grad[3:]
        totals = [torch.zeros_like(t) if w else None for t, w in zip(tensors, wanted, strict=True)]
        for part in _parts(tensors[0], ctx.size):
            with torch.enable_grad(), ctx.precision():
                leaves = [
                    (t[part] if i < count else t).detach().requires_grad_(w)
                    for i, (t, w) in enumerate(zip(tensors, wanted, strict=True))
                ]
                value = ctx.piece(*leaves)
            needed = [leaf for leaf in leaves if leaf.requires_grad]
            found = iter(torch.autograd.grad(value, needed, gradient[0][part]))
            for i, total in enumerate(totals):
                if total is not None:
                    (total[part] if i < count else total).add_(next(found))
        return (None, None, None, *totals)


def _precision(device: str) -> Callable[[], AbstractContextManager[Any]]:
    """The current ``autocast``, for the backward pass to compute pieces in the same precision."""
    if device == "meta":
        return nullcontext
    enabled = _is_autocast(device)
    dtype = torch.get_autocast_dtype(device) if enabled else None
    return partial(torch.autocast, device, dtype=dtype, enabled=enabled)


def _is_autocast(device: str) -> bool:
    return device != "meta" and torch.is_autocast_enabled(device)  # "meta" has no autocast


def _parts(tensor: Tensor, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, len(tensor), size)]
