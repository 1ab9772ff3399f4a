# SPDX-License-Identifier: Apache-2.0
"""Wrappers for hand-written derivatives: second derivatives raise an error, and ``torch.compile`` skips queries."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor

Gradients = tuple[Tensor | None, ...]
Backward = Callable[..., Gradients]
F = TypeVar("F", bound=Callable[..., Any])


def first_order(backward: Backward) -> Backward:
    """Wrap a ``backward`` so that differentiating its results raises an error.

    ``once_differentiable`` of PyTorch raises only if the incoming gradient requires a gradient. Otherwise a second
    derivative would silently be zero.
    """

    @functools.wraps(backward)
    def wrapped(ctx: Any, *flows: Tensor) -> Gradients:
        with torch.no_grad():
            found = backward(ctx, *flows)
        if not torch.is_grad_enabled():  # without create_graph=True
            return found
        sources = [t for t in (*flows, *ctx.saved_tensors) if t.requires_grad]
        given = [t for t in found if t is not None]
        marked = iter(_Final.apply(len(given), *given, *sources))  # type: ignore[no-untyped-call]
        return tuple(None if t is None else next(marked) for t in found)

    return wrapped


class _Final(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(t.view_as(t) for t in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *flows: Tensor) -> Gradients:
        raise NotImplementedError(
            "picirc computes first derivatives only, and this asks for a second one (create_graph=True, a Hessian); "
            "use differences of gradients instead."
        )


def full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context without ``autocast``; the device ``meta`` does not support autocast."""
    return nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)


def uncompiled(function: F) -> F:
    """Exclude a query from ``torch.compile``, which would trace its loops step by step.

    Transformations of ``torch.func`` raise an error that names an alternative.
    """
    skipped: Callable[..., Any] | None = None

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal skipped
        if skipped is None and "torch._dynamo" in sys.modules:  # late: the compiler takes seconds to import
            skipped = torch.compiler.disable(function)
        try:
            return (skipped or function)(*args, **kwargs)
        except RuntimeError as error:
            if "functorch" not in str(error) and "vmap:" not in str(error):
                raise
            raise NotImplementedError(
                "queries to a circuit cannot be transformed by torch.func (grad, vmap, jacrev); use "
                "torch.autograd.grad, and give all rows at once instead of vmap."
            ) from error

    return call  # type: ignore[return-value]
