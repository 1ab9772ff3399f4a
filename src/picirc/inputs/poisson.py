# SPDX-License-Identifier: Apache-2.0
"""Poisson inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from picirc.inputs.family import Family, Natural, require_support
from picirc.inputs.numerics import (
    as_float,
    bounded,
    log_difference,
    log_mix,
    observed_mean,
    observed_values,
    pooled,
)

LARGEST_LOG_RATE = 30.0  # e³⁰ ≈ 10¹³: samples still fit the integers, and rates never round to 0


@final
@dataclass(frozen=True, repr=False)
class Poisson(Family):
    """Poisson distribution over 0, 1, 2, …; one parameter, the log-rate l, within ±30.

    ``log p(x) = x l - exp(l) - log x!``

    Example:
        >>> Poisson().mean(torch.zeros(1))
        tensor(1.)
    """

    discrete: ClassVar[bool] = True

    @property
    def size(self) -> int:
        """One parameter: the log-rate."""
        return 1

    def constrain(self, raw: Tensor) -> Tensor:
        """Return the log-rate itself, kept within ±30."""
        return bounded(raw, LARGEST_LOG_RATE)

    def unconstrain(self, params: Tensor) -> Tensor:
        """Return the log-rate itself."""
        return params

    def check(self, x: Tensor, variable: str | int) -> None:
        """Accept the integers from 0 to 10¹² and NaN."""
        valid = (x >= 0) & (x <= 1e12)
        if x.is_floating_point():
            valid &= x == x.floor()
        require_support(x, valid, variable, "counts (integers from 0 to 1e12) for Poisson()")

    def log_prob(self, params: Tensor, x: Tensor) -> Tensor:
        """Log-probabilities, ``(F or 1, K, 1)`` and ``(F, B)`` to ``(F, K, B)``.

        Written with t = l - log x as ``-(x (e^t - 1) - x t) - h(x)``: the large terms of the textbook
        formula, which cancel to nothing in float32 at counts of a million, are all in h, which is computed in
        float64 without the states.
        """
        count = x.double()
        at_least_one = count.clamp(min=1)  # at 0 the formula is that of log 1 = 0, with h(0) = 1
        h = torch.lgamma(count + 1) - torch.xlogy(count, count) + at_least_one
        count, at_least_one, h = (v.to(params.dtype).unsqueeze(1) for v in (count, at_least_one, h))
        t = params - at_least_one.log()  # (F, K, B)
        return count * t - at_least_one * torch.expm1(t) - h

    def sample(self, params: Tensor, generator: torch.Generator) -> Tensor:
        """Draw counts, ``(..., 1)`` to ``(...)``."""
        return torch.poisson(params[..., 0].double().exp(), generator).to(params.dtype)

    def mean(self, params: Tensor) -> Tensor:
        """The rate."""
        return params[..., 0].exp()

    def variance(self, params: Tensor) -> Tensor:
        """The rate."""
        return params[..., 0].exp()

    def cdf(self, params: Tensor, x: Tensor) -> Tensor:
        """``Q(⌊x⌋ + 1, rate)``, the regularised upper incomplete gamma function."""
        return _log_at_most(params.double(), x.double().unsqueeze(1).floor()).exp().to(params.dtype)

    def log_interval(self, params: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """Difference of two tail probabilities, taken on the side where they are small."""
        log_rate = params.double()
        first = low.double().unsqueeze(1).ceil()
        last = high.double().unsqueeze(1).floor()
        above = log_difference(_log_at_least(log_rate, first), _log_at_least(log_rate, last + 1))
        below = log_difference(_log_at_most(log_rate, last), _log_at_most(log_rate, first - 1))
        return torch.where(first > log_rate.exp(), above, below).to(params.dtype)

    def mode(self, params: Tensor) -> Tensor:
        """Round the rate down; at an integer rate its predecessor is as probable."""
        return params[..., 0].exp().floor()

    def inner(self, a: Tensor, b: Tensor) -> Tensor:
        """``Σ_x p q = exp(-(√λ - √μ)²) · exp(-2√(λμ)) I₀(2√(λμ))``."""
        root_a = (a / 2).exp()  # (F, K, 1)
        root_b = (b / 2).exp().mT  # (F, 1, L)
        scaled: Tensor = torch.special.i0e(2 * root_a * root_b)
        return scaled * torch.exp(-(root_a - root_b).square())

    def natural(self, params: Tensor) -> Natural:
        """The count, with the log-rate; in double precision, because large terms cancel."""
        log_rate = params.double()

        def statistics(x: Tensor) -> tuple[Tensor, Tensor]:
            count = x.double()
            return count.unsqueeze(-2), -torch.lgamma(count + 1)

        return Natural(log_rate, log_rate[..., 0].exp(), statistics)

    @torch.no_grad()
    def expected_statistics(self, params: Tensor, x: Tensor, flows: Tensor) -> Tensor:
        """Total weight and weighted sum of the counts, ``(F or 1, K, 2)``."""
        x = x.to(flows.dtype)
        return pooled(flows @ torch.stack((torch.ones_like(x), x), -1), params)

    @torch.no_grad()
    def from_statistics(self, params: Tensor, statistics: Tensor, smoothing: float = 0.0) -> Tensor:
        """Log of the weighted mean, with ``smoothing`` pseudo-observations of the old mean."""
        weight = statistics[..., :1] + smoothing
        total = statistics[..., 1:] + smoothing * params.exp()
        rate = total / weight.clamp(min=torch.finfo(params.dtype).tiny)
        return torch.where(weight > 0, bounded(rate.log(), LARGEST_LOG_RATE), params)

    def mix(self, old: Tensor, new: Tensor, step: float | Tensor) -> Tensor:
        """Average the rates."""
        return log_mix(old, new, step)

    def initial(self, x: Tensor, states: int, generator: torch.Generator) -> Tensor:
        """Rates half-way between the column's mean and a random value of it."""
        x = as_float(x)
        rate = (observed_mean(x, 1.0) + observed_values(x, states, generator)) / 2
        return bounded((rate + 0.1).log(), LARGEST_LOG_RATE).unsqueeze(-1)

    def raw_start(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The logarithm of the column's mean."""
        center = self.unconstrain(bounded((observed_mean(x, 1.0) + 0.1).log(), LARGEST_LOG_RATE))
        return center, torch.ones_like(center)


def _log_at_most(log_rate: Tensor, x: Tensor) -> Tensor:
    """Log of P(X <= x) for integers x."""
    rate, count = log_rate.exp(), x.clamp(min=0)
    log_tail: Tensor = torch.special.gammaincc(count + 1, rate).log()
    log_tail = _mend(log_tail, log_rate, count, lambda term: (count - term).clamp(min=0) / rate)
    return torch.where(x < 0, -torch.inf, torch.where(x == torch.inf, 0.0, log_tail))


def _log_at_least(log_rate: Tensor, x: Tensor) -> Tensor:
    """Log of P(X >= x) for integers x."""
    rate, count = log_rate.exp(), x.clamp(min=1)
    log_tail: Tensor = torch.special.gammainc(count, rate).log()
    log_tail = _mend(log_tail, log_rate, count, lambda term: rate / (count + term + 1))
    return torch.where(x <= 0, 0.0, torch.where(x == torch.inf, -torch.inf, log_tail))


def _mend(log_tail: Tensor, log_rate: Tensor, count: Tensor, ratio: Callable[[int], Tensor]) -> Tensor:
    """Replace tail probabilities that underflow by a series in ratios of neighbouring probabilities.

    ``p(x) (1 + r₀ (1 + r₁ (1 + …)))``, closed after some terms by a geometric series.
    """
    lost = log_tail < -600
    if not bool(lost.any()):
        return log_tail
    terms = 32
    series = 1 / (1 - ratio(terms).clamp(max=0.999))
    for term in reversed(range(terms)):
        series = 1 + ratio(term).clamp(max=0.999) * series
    log_mass = count * log_rate - log_rate.exp() - torch.lgamma(count + 1)
    return torch.where(lost, log_mass + series.log(), log_tail)
