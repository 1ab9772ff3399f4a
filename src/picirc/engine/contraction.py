# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of single steps and of their derivatives.

Shapes: ``rows`` are ``(fold, states, batch)``; ``weights`` are matrices ``(fold, o, z)``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from picirc.memory import has_values
from picirc.native import Kernels

# Rows are scaled to a maximum of exp(headroom), so that the sum over a few dozen states is about one and its logarithm
# loses no digits.
_HEADROOM = 8.0
# Smaller numbers become zero. Denormal numbers would be common where a row combines many variables, and processors
# handle them a hundred times more slowly. In double precision products of two such numbers are not denormal either.
LEAST = {
    torch.float32: 2.0**-126,
    torch.float64: 2.0**-511,
    torch.bfloat16: torch.finfo(torch.bfloat16).tiny,
    torch.float16: torch.finfo(torch.float16).tiny,
}
_LOWEST = {dtype: math.log(number) + 1e-3 for dtype, number in LEAST.items()}  # and smaller logarithms −inf
# In a pass down the products of values and flows must not become denormal either. The thresholds change a gradient by
# less than its rounding error.
_LEAST_VALUE_DOWN = {torch.float32: 2.0**-46, torch.float64: 2.0**-400}
_LEAST_FLOW = {torch.float32: 2.0**-66, torch.float64: 2.0**-400}


def scale_rows(rows: Tensor, out: Tensor | None = None, native: Kernels | None = None) -> Tensor:
    """Replace log-values by ``exp(value − shift)``, in place, and return the shift of each row and data point.

    If all states of a row are impossible, their maximum −inf is replaced by the lowest finite number, so that the
    values become zero instead of NaN.

    Args:
        rows: ``(fold, states, batch)``.
        out: Where the shifts are written, ``(fold, 1, batch)``.
        native: The compiled loops, if they support these tensors.
    """
    lowest = _LOWEST[rows.dtype]
    fold, states, batch = rows.shape
    if native:
        shift = rows.new_empty(fold, 1, batch) if out is None else out
        native.scale_rows(rows, shift, _HEADROOM, lowest)
        return shift
    # The maximum of many states is faster in two stages.
    part = rows.view(fold, states // 8, 8, batch).amax(1) if states >= 64 and states % 8 == 0 else rows
    shift = torch.amax(part, 1, keepdim=True, out=out).clamp_(min=torch.finfo(rows.dtype).min).sub_(_HEADROOM)
    torch.threshold_(rows.sub_(shift), lowest, -math.inf).exp_()
    return shift


def least_flow(flow: Tensor) -> float:
    """Return the smallest flow that is not set to zero, for the given flow into the root."""
    return _LEAST_FLOW.get(flow.dtype, 0.0) * float(flow.abs().amax()) if has_values(flow) and len(flow) else 0.0


def flushed(values: Tensor) -> Tensor:
    """Set values that would be denormal to zero, in place unless autograd needs the original ones."""
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
    """Reverse ``sums = weights @ rows``: replace rows by their flows, in place.

    The flow of a log-value of a row is the value times what arrives through the product.

    Args:
        weights: ``(fold, o, z)``.
        rows: ``(fold, z, batch)``: scaled values, overwritten by flows.
        quotients: ``(fold, o, batch)``: the flows of the log-sums divided by the sums.
        scratch: ``(fold, z, batch)``.
        gradient: ``(fold, o, z)``: where the derivative with respect to the weights is written.
        smallest: Smaller flows become zero.
        native: The compiled loops, if they support these tensors.
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
    """Compute ``log Σ_a w_a exp(part_a)`` over the second axis, and return its scales ``(fold, batch)``.

    Args:
        parts: ``(fold, arity, states, batch)``: log-values, overwritten.
        scales: ``(fold, arity, batch)``: their scales.
        weights: ``(fold, arity, states or 1)``.
        out: ``(fold, states, batch)``: where the mixtures are written.
    """
    top, scale = _align(parts, scales, weights)
    torch.sum(parts.mul_(weights.unsqueeze(-1)), 1, out=out)
    out.log_().add_(top)
    return scale


def mix_down(parts: Tensor, scales: Tensor, weights: Tensor, flow: Tensor, gradient: Tensor | None) -> Tensor:
    """Reverse ``mix_up``: replace the parts by their flows ``(fold, arity, states, batch)``.

    The derivative with respect to a weight of zero is reported as zero, so that an absent part stays absent.
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
    """Bring log-values to one scale, subtract their maxima and exponentiate, in place; return maxima and scale.

    Parts of weight zero become zero. They do not determine the scale, because the others could vanish beside them.
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
    """Expand results ``(n, states, batch)`` to ``(n, *target, batch)``.

    Args:
        results: ``(n, states, batch)``.
        axes: The position of each axis of a result among those of the target.
        shape: The numbers of states of the axes of a result.
        target: The numbers of states of the axes of the target.
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
    """Reverse ``spread``: sum flows ``(n, states of target, batch)`` to ``(n, states of results, batch)``."""
    viewed: Tensor = flows.unflatten(1, tuple(target) or (1,))
    missing = [1 + position for position in range(len(target)) if position not in axes]
    if missing:
        viewed = viewed.sum(missing)
    kept = sorted(axes)
    if shape:
        viewed = viewed.permute(0, *(1 + kept.index(axis) for axis in axes), -1)
    return viewed.reshape(len(flows), -1, flows.shape[-1])
