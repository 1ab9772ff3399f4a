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

SHARING = ("none", "composite", "full")

_SHARED_SIGMA = 0.5  # of the frequencies of a shared latent's features

# Elements of the largest temporary of a piece, chosen to stay in the processor's cache.
_PIECE_ELEMENTS = 2**19
# So many values are kept for the backward pass; more of them are computed again there, in pieces.
_KEPT_ELEMENTS = 2**24


class Features(nn.Module):
    """The first layer: Fourier features ``[cos 2π f·z, sin 2π f·z]``, or a plain affine layer without them.

    Args:
        arguments: The number of latents.
        width: The number of features, even.
        fourier: Whether to use Fourier features.
        sigma: The standard deviation of the frequencies f, or one for each argument.
        learnable: Whether the frequencies are trained.
        generator: The source of randomness.
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
        # Scaled to unit variance, so that the next layer starts as any other would.
        return math.sqrt(2) * torch.cat([angle.cos(), angle.sin()], 1)


def _normal_points(
    rows: int, arguments: int, scale: float | Sequence[float], generator: torch.Generator | None
) -> Tensor:
    """Normal quantiles of scrambled Sobol points, ``(rows, arguments)``, times ``scale``.

    Independent normal numbers leave gaps between the frequencies, and the quality of a model then depends on the seed.
    """
    with torch.device("cpu"):  # a model may be made on another device, or on "meta" without any numbers
        seed = int(torch.randint(2**31, (), generator=generator))
        uniform = torch.quasirandom.SobolEngine(arguments, scramble=True, seed=seed).draw(rows, dtype=torch.float64)
        points = torch.special.ndtri(uniform.clamp(1e-6, 1 - 1e-6))
        found = torch.tensor(scale) * points.to(torch.get_default_dtype())
    return torch.tensor(found.numpy())  # arithmetic on "meta" would import torch's compiler, which takes seconds


class Bank(nn.Module):
    """``rows`` functions of the same latents: features, a hidden layer, and a linear head with ``outputs`` numbers.

    Args:
        rows: The number of functions.
        arguments: The number of latents of each.
        outputs: The number of values of each.
        width: The width of the nets.
        sharing: ``"none"``: every function has a hidden layer and a head of its own. ``"composite"``: one hidden layer
            for all, a head for each. ``"full"``: one function for all rows.
        fourier: Whether to use Fourier features.
        sigma: The standard deviation of their frequencies, or one for each latent.
        learnable: Whether the frequencies are trained.
        generator: The source of randomness.
        shared: The dimensions of a latent that all functions depend on besides, and the number of its features; the
            heads are linear in these. None for functions of the other latents only.
    """

    center: Tensor | None
    gain: Tensor | None
    # The parameters that have a row for each function.
    BY_ROW: ClassVar[dict[str, tuple[str, ...]]] = {
        "none": ("hidden", "hidden_bias", "head", "head_bias", "turns", "turns_bias"),
        "composite": ("head", "head_bias", "turns", "turns_bias"),
        "full": (),
    }

    def __init__(
        self,
        rows: int,
        arguments: int,
        outputs: int,
        width: int,
        sharing: str,
        fourier: bool = True,
        sigma: float | Sequence[float] = 1.0,
        learnable: bool = False,
        generator: torch.Generator | None = None,
        shared: tuple[int, int] | None = None,
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
        # While training, values are ``center + gain · (what the head says)``; they are never stored.
        self.register_buffer("center", None, persistent=False)
        self.register_buffer("gain", None, persistent=False)

    def standardise(self, center: Tensor, gain: Tensor, keep: bool) -> None:
        """Let the outputs of every head be ``center + gain · …``, ``(heads, outputs)`` each, until ``absorb``.

        Optimisers take steps of about one size for all parameters, which suits outputs that vary by about one.

        Args:
            center: What the outputs are when the head says zero.
            gain: What they change by when the head changes by one.
            keep: Keep the functions as they are, by changing the heads; otherwise the heads keep their values.
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
        """End what ``standardise`` began; the functions stay the same."""
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
            turn = features / math.sqrt(len(features))  # the heads then change as much as without it
            head = head + torch.einsum("k,hkow->how", turn, self.turns)
            bias = bias + torch.einsum("k,hko->ho", turn, self.turns_bias)
        if self.center is None or self.gain is None:
            return head, bias
        bias = torch.addcmul(self.center, bias, self.gain)
        return (head if bool((self.gain == 1).all()) else head * self.gain.unsqueeze(-1)), bias

    def forward(self, z: Tensor, finish: Finish, g: Tensor | None = None) -> Tensor:
        """Evaluate all functions on a grid, and ``finish`` them piece by piece.

        Args:
            z: ``(points, arguments)``.
            finish: Makes the result of some rows from their values ``(rows, points, outputs)``.
            g: The value ``(dims,)`` of the shared latent, if there is one.

        Returns:
            What ``finish`` makes, for all rows, or for the one that stands for all of them.
        """
        features = self.features(z).T  # (width, points)
        head, bias = self._heads(g)
        # The nets may run in low precision; what is made of them does not.
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
        """The functions as energies of densities, normalised on the grid: ``(rows or 1, 1, o, z)``.

        Args:
            z: ``(o · z, arguments)``, the integrated latents varying fastest.
            log_weights: ``(z,)``, the logarithms of the quadrature weights of the integrated latents; or ``(o, z)``,
                with those of a reference density added.
            energy: What makes densities of the functions.
            g: The value ``(dims,)`` of the shared latent, if there is one.
        """
        if self.sharing == "none" and torch.is_autocast_enabled(z.device.type):
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
            return composite_weights(head, bias, hidden.to(head.dtype), log_weights, energy, _PIECE_ELEMENTS).unsqueeze(
                1
            )

    def log_softmax(self, z: Tensor, g: Tensor | None = None) -> Tensor:
        """The outputs of each function as unnormalised log-probabilities, normalised: ``(rows or 1, points, outputs)``.

        The same as ``forward`` with a softmax, with a gradient by hand: nothing is computed twice.
        """
        hidden = _hidden(self.hidden, self.hidden_bias, self.features(z).T)[0]  # (width, points)
        head, bias = self._heads(g)
        with full_precision(z.device):
            found: Tensor = _LogSoftmax.apply(head, bias, hidden.T.to(head.dtype))  # type: ignore[no-untyped-call]
        return found


class _LogSoftmax(torch.autograd.Function):
    """``log softmax`` of ``hidden · headᵀ + bias`` over the outputs, some rows at a time."""

    @staticmethod
    def forward(ctx: Any, head: Tensor, bias: Tensor, hidden: Tensor) -> Tensor:
        rows, outputs, _ = head.shape
        out = empty((rows, len(hidden), outputs), head)
        for part in _row_pieces(out):
            own = hidden.expand(len(head[part]), -1, -1)
            out[part] = torch.baddbmm(bias[part].unsqueeze(1), own, head[part].mT).log_softmax(-1)
        ctx.save_for_backward(head, hidden, out)
        return out

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor | None, ...]:
        head, hidden, out = ctx.saved_tensors
        d_head, d_bias, d_hidden = empty(head.shape, head), head.new_empty(head.shape[:2]), torch.zeros_like(hidden)
        for part in _row_pieces(out):
            flow = torch.ops.aten._log_softmax_backward_data(gradient[0][part], out[part], -1, head.dtype)
            torch.bmm(flow.mT, hidden.expand(len(flow), -1, -1), out=d_head[part])
            torch.sum(flow, 1, out=d_bias[part])
            d_hidden.addbmm_(flow, head[part])
        return d_head, d_bias, d_hidden


def _row_pieces(values: Tensor) -> list[slice]:
    size = _piece(values[0].numel())
    return [slice(start, start + size) for start in range(0, len(values), size)]


def _piece(elements: int) -> int:
    """The number of functions in a piece, when each needs this many elements."""
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


# Pieces


Piece = Callable[..., Tensor]


def chunked(piece: Piece, rows: Sequence[Tensor], shared: Sequence[Tensor], size: int) -> Tensor:
    """``piece(*rows, *shared)``, computed for ``size`` rows at a time and with recomputation in the backward pass.

    Args:
        piece: A function of tensors whose result has one row for each row of its first arguments.
        rows: Tensors with the same number of rows.
        shared: Tensors that every piece uses whole.
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
    """The ``autocast`` in force, which has ended when the backward pass computes a piece again."""
    if device == "meta":
        return nullcontext
    enabled = torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if enabled else None
    return partial(torch.autocast, device, dtype=dtype, enabled=enabled)


def _parts(tensor: Tensor, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, len(tensor), size)]
