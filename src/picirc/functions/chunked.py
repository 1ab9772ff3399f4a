# SPDX-License-Identifier: Apache-2.0
"""Evaluate many functions piece by piece, keeping no intermediate values.

Autograd would keep the activations of every function on the whole grid: for D functions of width W on N² points that is
D·W·N² numbers. Here each piece is computed, its result is kept, and on the way back it is computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

from picirc.autograd import first_order

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
