# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of single steps, each with its hand-written reverse.

Shapes: ``rows`` are ``(fold, states, batch)``; ``weights`` are ``(fold, o, z)`` matrices, one a row or a stack of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from picirc.memory import has_values
from picirc.native import Kernels

# Scaled rows reach up to exp(headroom), so that a usual sum over some dozens of states is about one and its logarithm
# loses no digits.
_HEADROOM = 8.0
# Smaller numbers are taken for zero. Processors are a hundred times slower with denormal numbers, which would be common
# where a row sums up many variables. In double precision there is room to keep products from becoming denormal too.
LEAST = {
    torch.float32: 2.0**-126,
    torch.float64: 2.0**-511,
    torch.bfloat16: torch.finfo(torch.bfloat16).tiny,
    torch.float16: torch.finfo(torch.float16).tiny,
}
_LOWEST = {dtype: math.log(number) + 1e-3 for dtype, number in LEAST.items()}  # logarithms likewise
# On the way down the products of values and flows must not become denormal either. What they leave out changes a
# gradient by less than its rounding errors.
_LEAST_VALUE_DOWN = {torch.float32: 2.0**-46, torch.float64: 2.0**-400}
_LEAST_FLOW = {torch.float32: 2.0**-66, torch.float64: 2.0**-400}


def scale_rows(rows: Tensor, out: Tensor | None = None, native: Kernels | None = None) -> Tensor:
    """Turn log-values in place into ``exp(value − shift)`` with a shift for each row and data point, which is returned.

    A row without any possible state has the maximum −inf; the lowest finite number in its place keeps the
    difference from becoming NaN, and the values zero.

    Args:
        rows: ``(fold, states, batch)``.
        out: Where the shifts go, ``(fold, 1, batch)``.
        native: The compiled loops, if they can work on these tensors.
    """
    lowest = _LOWEST[rows.dtype]
    if native:
        shift = rows.new_empty(len(rows), 1, rows.shape[2]) if out is None else out
        native.scale_rows(rows, shift, _HEADROOM, lowest)
        return shift
    shift = _maxima(rows, out).clamp_(min=torch.finfo(rows.dtype).min).sub_(_HEADROOM)
    torch.threshold_(rows.sub_(shift), lowest, -math.inf).exp_()
    return shift


def _maxima(rows: Tensor, out: Tensor | None) -> Tensor:
    """The maximum over the states, ``(fold, 1, batch)``; of many states in two stages, which is faster."""
    fold, states, batch = rows.shape
    if states >= 64 and states % 8 == 0:
        rows = rows.view(fold, states // 8, 8, batch).amax(1)
    return torch.amax(rows, 1, keepdim=True, out=out)


def least_flow(flow: Tensor) -> float:
    """The smallest flow that counts when this is the flow into the root."""
    return _LEAST_FLOW.get(flow.dtype, 0.0) * float(flow.abs().amax()) if has_values(flow) and len(flow) else 0.0


def flushed(values: Tensor) -> Tensor:
    """The values with all that does not count set to zero, in place unless autograd has to know the values before."""
    if values.requires_grad:
        return torch.hardshrink(values, LEAST[values.dtype])
    return torch.hardshrink(values, LEAST[values.dtype], out=values)


def contract_down(
    weights: Tensor,
    rows: Tensor,
    quotients: Tensor,
    scratch: Tensor,
    gradient: Tensor | None,
    smallest: float,
    native: Kernels | None = None,
) -> None:
    """Reverse of ``sums = weights @ rows``: turn rows into their flows in place.

    The flow of ``log(sums)`` divided by the sums goes back through the product; the flow of a row's log-value is its
    value times what arrives.

    Args:
        weights: ``(fold, o, z)``.
        rows: ``(fold, z, batch)``, scaled values; overwritten with flows.
        quotients: ``(fold, o, batch)``, the flow of the log-sums divided by the sums.
        scratch: ``(fold, z, batch)``.
        gradient: ``(fold, o, z)``, where the derivative with respect to the weights is written.
        smallest: The smallest flow that counts.
        native: The compiled loops, if they can work on these tensors.
    """
    if gradient is not None:
        torch.hardshrink(rows, _LEAST_VALUE_DOWN.get(rows.dtype, 0.0), out=rows)
        torch.bmm(quotients, rows.transpose(1, 2), out=gradient)
    torch.bmm(weights.transpose(1, 2), quotients, out=scratch)
    if native:
        native.multiply_flows(rows, scratch, smallest)
    else:
        torch.hardshrink(rows.mul_(scratch), smallest, out=rows)


def mix_up(parts: Tensor, scales: Tensor, weights: Tensor, out: Tensor) -> Tensor:
    """``log Σ_a w_a exp(part_a)`` over the second axis, scaled.

    Args:
        parts: ``(fold, arity, states, batch)``, log-values; overwritten.
        scales: ``(fold, arity, batch)``, what has to be added to them.
        weights: ``(fold, arity, states or 1)``.
        out: ``(fold, states, batch)``, where the mixtures go.

    Returns:
        Their scales ``(fold, batch)``.
    """
    top, scale = _align(parts, scales, weights)
    torch.sum(parts.mul_(weights.unsqueeze(-1)), 1, out=out)
    out.log_().add_(top)
    return scale


def mix_down(parts: Tensor, scales: Tensor, weights: Tensor, flow: Tensor, gradient: Tensor | None) -> Tensor:
    """Reverse of ``mix_up``: turn the parts into their flows ``(fold, arity, states, batch)``.

    The derivative with respect to a weight of zero is given as zero: a part that is absent stays absent.
    """
    _align(parts, scales, weights)
    weights = weights.unsqueeze(-1)
    total = torch.einsum("fasb,fas->fsb", parts, weights.squeeze(-1).expand(parts.shape[:3]))
    parts.mul_(torch.div(flow, total.clamp_(min=torch.finfo(total.dtype).tiny), out=total).unsqueeze(1))
    if gradient is not None:
        summed = parts.sum(-1)  # (fold, arity, states)
        gradient.add_(summed if gradient.shape[2] > 1 else summed.sum(2, keepdim=True))
    return parts.mul_(weights)


def _align(parts: Tensor, scales: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Bring log-values to one scale and exponentiate them in place, less their maxima; return maxima and scale.

    Parts without weight are zero. They must not decide the scale, as the others could vanish beside them.
    """
    lowest = torch.finfo(parts.dtype).min
    absent = weights == 0
    if not has_values(weights) or bool(absent.any()):
        parts.masked_fill_(absent.unsqueeze(-1), -math.inf)
        scales = scales.masked_fill(absent.all(2, keepdim=True), -math.inf)
    scale = scales.amax(1).clamp_(min=lowest)
    parts.add_((scales - scale.unsqueeze(1)).to(parts.dtype).unsqueeze(2))
    top = parts.amax(1).clamp_(min=lowest)
    parts.sub_(top.unsqueeze(1)).exp_()
    return top, scale


def spread(results: Tensor, axes: Sequence[int], shape: Sequence[int], target: Sequence[int]) -> Tensor:
    """View results ``(n, *shape, batch)`` so that they broadcast to ``(n, *target, batch)``.

    Args:
        results: ``(n, states, batch)``.
        axes: For each axis of a result its position among the target's axes.
        shape: The numbers of states of the result's axes.
        target: Those of the target's axes.
    """
    order = sorted(range(len(axes)), key=axes.__getitem__)
    viewed: Tensor = results.unflatten(1, tuple(shape) or (1,))
    if not shape:
        return viewed.view(len(results), *(1 for _ in target), -1).expand(-1, *target, -1)
    viewed = viewed.permute(0, *(1 + i for i in order), -1)
    for position in range(len(target)):
        if position not in axes:
            viewed = viewed.unsqueeze(1 + position)
    return viewed.expand(-1, *target, -1)


def gather_back(flows: Tensor, axes: Sequence[int], shape: Sequence[int], target: Sequence[int]) -> Tensor:
    """Reverse of ``spread``: sum flows ``(n, states of target, batch)`` back to ``(n, states of results, batch)``."""
    viewed: Tensor = flows.unflatten(1, tuple(target) or (1,))
    missing = [1 + position for position in range(len(target)) if position not in axes]
    if missing:
        viewed = viewed.sum(missing)
    kept = sorted(axes)
    if shape:
        viewed = viewed.permute(0, *(1 + kept.index(axis) for axis in axes), -1)
    return viewed.reshape(len(flows), -1, flows.shape[-1])
