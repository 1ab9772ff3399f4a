# SPDX-License-Identifier: Apache-2.0
"""Small numerical tools that several families share."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as nnf
from torch import Tensor

from picirc.autograd import first_order
from picirc.memory import empty, has_values
from picirc.native import kernels_for

# Elements that are normalised at a time, few enough to stay in the processor's cache.
_PIECE_ELEMENTS = 2**18


def bounded(raw: Tensor, limit: float) -> Tensor:
    """Clamp to ±limit: a bound that probabilities never reach, and whose sums stay finite."""
    return raw.clamp(-limit, limit)


def log_probabilities(raw: Tensor, limit: float) -> Tensor:
    """``log_softmax`` over the last axis of values kept within ±limit."""
    logs: Tensor = _LogProbabilities.apply(raw, limit)  # type: ignore[no-untyped-call]
    return logs


class _LogProbabilities(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, raw: Tensor, limit: float) -> Tensor:
        logs = empty(raw.shape, raw)
        if native := kernels_for(raw, logs):
            native.log_softmax(logs, raw, limit)
        else:
            for some, out in zip(_pieces(raw), _pieces(logs), strict=True):
                torch.log_softmax(_within(some, limit), -1, out=out)
        ctx.save_for_backward(raw, logs)
        ctx.limit = limit
        return logs

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor, None]:
        raw, logs = ctx.saved_tensors
        found = empty(raw.shape, raw)
        for some, log, flow, out in zip(*map(_pieces, (raw, logs, gradient[0], found)), strict=True):
            torch.mul(log.exp(), flow.sum(-1, keepdim=True), out=out)
            torch.sub(flow, out, out=out)
            out.masked_fill_(some.abs() > ctx.limit, 0.0)
        return found, None


def probabilities(raw: Tensor) -> Tensor:
    """``softmax`` over the last axis."""
    found: Tensor = _Probabilities.apply(raw)  # type: ignore[no-untyped-call]
    return found


class _Probabilities(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, raw: Tensor) -> Tensor:
        found = empty(raw.shape, raw)
        torch.softmax(raw, -1, out=found)
        ctx.save_for_backward(found)
        return found

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor]:
        (found,) = ctx.saved_tensors
        raw = empty(found.shape, found)
        for p, flow, out in zip(*map(_pieces, (found, gradient[0], raw)), strict=True):
            torch.sub(flow, (flow * p).sum(-1, keepdim=True), out=out)
            out.mul_(p)
        return (raw,)


def _within(raw: Tensor, limit: float) -> Tensor:
    """The values clamped to ±limit; on a CPU without a copy if none exceeds it, because the test is cheaper."""
    if raw.device.type == "cpu" and has_values(raw):
        low, high = torch.aminmax(raw)
        if -limit <= float(low) and float(high) <= limit:
            return raw
    return raw.clamp(-limit, limit)


def _pieces(table: Tensor) -> tuple[Tensor, ...]:
    """A table ``(..., C)`` as pieces ``(rows, C)``, views where it is contiguous."""
    size = max(1, _PIECE_ELEMENTS // table.shape[-1])
    pieces: tuple[Tensor, ...] = table.reshape(-1, table.shape[-1]).split(size)
    return pieces


def positive(raw: Tensor, floor: float) -> Tensor:
    """``softplus(raw) + floor``: a positive number bounded away from zero."""
    return nnf.softplus(raw) + floor


def inverse_positive(value: Tensor, floor: float) -> Tensor:
    """Undo ``positive``; a value at the floor, which no raw number reaches, is taken a thousandth of it above."""
    excess = (value - floor).clamp(min=min(1e-6, 1e-3 * floor) if floor > 0 else 1e-6)
    return excess + torch.log(-torch.expm1(-excess))


def log1mexp(x: Tensor) -> Tensor:
    """log(1 - exp(x)) for x <= 0, accurate at both ends."""
    return torch.where(x > -math.log(2), torch.log(-torch.expm1(x)), torch.log1p(-torch.exp(x)))


def log_difference(larger: Tensor, smaller: Tensor) -> Tensor:
    """log(exp(larger) - exp(smaller)); -inf where that is not positive."""
    difference = larger + log1mexp((smaller - larger).clamp(max=0))
    return torch.where(smaller < larger, difference, -torch.inf)


def log_mix(old: Tensor, new: Tensor, step: float | Tensor) -> Tensor:
    """log((1 - step) exp(old) + step exp(new)); ``step`` is a number or lacks the last axis."""
    weight = torch.as_tensor(step, dtype=old.dtype, device=old.device).unsqueeze(-1)
    return torch.logaddexp(old + torch.log1p(-weight), new + torch.log(weight))


def pooled(statistics: Tensor, params: Tensor) -> Tensor:
    """Sum statistics ``(F, K, S)`` over the variables if these share their parameters."""
    return statistics.sum(0, keepdim=True) if params.shape[0] == 1 else statistics


def as_float(x: Tensor) -> Tensor:
    """``x`` if it is of a floating dtype, else ``x`` in float32."""
    return x if x.is_floating_point() else x.to(torch.float32)


def observed_values(x: Tensor, states: int, generator: torch.Generator) -> Tensor:
    """Draw K observed values from each row of x, ``(F, B)`` to ``(F, K)``; 0 if all are missing."""
    ordered = nnf.pad(x, (0, 1), value=torch.nan).sort(-1).values  # NaN sorts last, and no row is empty
    count = (~ordered.isnan()).sum(-1, keepdim=True)  # (F, 1)
    u = torch.rand((x.shape[0], states), generator=generator, dtype=torch.float64, device=x.device)
    index = (u * count).long().clamp(max=ordered.shape[-1] - 1)
    return ordered.gather(-1, index).nan_to_num(0.0)  # (F, K)


def observed_mean(x: Tensor, default: float) -> Tensor:
    """Mean of the observed values of each row, ``(F, 1)``; ``default`` where nothing is observed."""
    return x.nanmean(-1, keepdim=True).nan_to_num(default)


def observed_std(x: Tensor) -> Tensor:
    """Standard deviation of each row, ``(F, 1)``; 1 where the values do not vary or are all missing."""
    mean = observed_mean(x, 0.0)
    std = (x - mean).square().nanmean(-1, keepdim=True).sqrt()
    rounding = 32 * torch.finfo(x.dtype).eps * mean.abs()  # what a constant row may seem to deviate
    return torch.where(std > rounding, std, 1.0)
