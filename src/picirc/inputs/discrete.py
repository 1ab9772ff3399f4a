# SPDX-License-Identifier: Apache-2.0
"""Families of integers: Bernoulli, Binomial, Categorical and Poisson."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
import torch.nn.functional as nnf
from torch import Tensor

from picirc.checks import check_integer
from picirc.errors import ArgumentError
from picirc.inputs.family import (
    Family,
    Natural,
    as_float,
    log_difference,
    log_frequencies,
    log_mix,
    log_probabilities,
    observed_mean,
    observed_values,
    pooled,
    require_support,
)
from picirc.memory import empty, has_values
from picirc.native import kernels_for

LARGEST_LOGIT = 1e3  # beyond any probability of interest; sums of such logits are far from overflow
LARGEST_LOG_RATE = 30.0  # e³⁰ ≈ 10¹³: samples still fit the integers, and rates never round to 0
_FOLDS = 16  # variables that are counted at a time
_MOST_STATISTICS = 16  # with more values a table is faster than a matrix product


class FiniteFamily(Family):
    """A family with the values 0 … C-1, defined by the ``table`` of their log-probabilities.

    ``cdf``, ``log_interval``, ``mean`` and ``variance`` treat the codes as numbers, also where their order is
    meaningless.
    """

    discrete: ClassVar[bool] = True

    @property
    @abstractmethod
    def values(self) -> int:
        """C, the number of values."""

    @abstractmethod
    def table(self, params: Tensor) -> Tensor:
        """Log-probabilities of all values, ``(..., P)`` to ``(..., C)``."""

    def check(self, x: Tensor, variable: str | int) -> None:
        """Accept the integers 0 … C-1 and NaN."""
        nearest = x.clamp(0, self.values - 1)
        valid = x == (nearest.round_() if x.is_floating_point() else nearest)
        remedy = "recode the values, or give the variable another family"
        require_support(x, valid, variable, f"integers from 0 to {self.values - 1}", remedy, self)

    def log_prob(self, params: Tensor, x: Tensor) -> Tensor:
        """Entries of the table: ``(F or 1, K, P)`` and ``(F, B)`` to ``(F, K, B)``."""
        return read_table(self.table(params), _codes(x))

    def sample(self, params: Tensor, generator: torch.Generator) -> Tensor:
        """Draw from the table, ``(..., P)`` to ``(...)``."""
        probabilities = self.table(params).exp().reshape(-1, self.values)
        draws = torch.multinomial(probabilities, 1, replacement=True, generator=generator)
        return draws.reshape(params.shape[:-1]).to(params.dtype)

    def mean(self, params: Tensor) -> Tensor:
        """Σ_c c p_c."""
        return self.table(params).exp() @ self._values(params)

    def variance(self, params: Tensor) -> Tensor:
        """Σ_c (c - mean)² p_c."""
        deviation = self._values(params) - self.mean(params).unsqueeze(-1)
        return (self.table(params).exp() * deviation.square()).sum(-1)

    def cdf(self, params: Tensor, x: Tensor) -> Tensor:
        """P(X <= x) in the order of the integer codes, ``(F, K, B)``."""
        return self.log_interval(params, torch.zeros_like(x), x).exp()

    def log_interval(self, params: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """Log of Σ p_c over the integers in [low, high], without cancellation in the tails."""
        first = _codes(as_float(low).ceil().clamp(0, self.values))
        last = _codes(as_float(high).floor().clamp(-1, self.values - 1))
        return sum_table(self.table(params), first, last)

    def mode(self, params: Tensor) -> Tensor:
        """The most probable value; of several, the smallest."""
        return self.table(params).argmax(-1).to(params.dtype)

    def mode_log_prob(self, params: Tensor) -> Tensor:
        """The largest entry of the table."""
        return self.table(params).amax(-1)

    def inner(self, a: Tensor, b: Tensor) -> Tensor:
        """Σ_c p_c q_c, exactly."""
        return self.table(a).exp() @ self.table(b).exp().mT

    def natural(self, params: Tensor) -> Natural | None:
        """Indicators of the values 1 … C-1, with their log-odds against 0; None for large tables."""
        if self.values > _MOST_STATISTICS:
            return None
        table = self.table(params)
        values = torch.arange(1, self.values, device=params.device)

        def statistics(x: Tensor) -> tuple[Tensor, Tensor]:
            return (x.unsqueeze(-2) == values.unsqueeze(-1)).to(table.dtype), torch.zeros_like(x)

        return Natural(table[..., 1:] - table[..., :1], -table[..., 0], statistics)

    @torch.no_grad()
    def expected_statistics(self, params: Tensor, x: Tensor, flows: Tensor) -> Tensor:
        """Total flow of each value, ``(F or 1, K, C)``."""
        return count_values(flows, _codes(x), self.values, shared=params.shape[0] == 1)

    def _values(self, params: Tensor) -> Tensor:
        return torch.arange(self.values, dtype=params.dtype, device=params.device)


class SuccessFamily(FiniteFamily):
    """Number of successes in n = ``trials`` independent trials; the parameter is the logit l of a success.

    ``p(x) = C(n, x) σ(l)^x σ(-l)^(n-x)``
    """

    trials: int

    @property
    def values(self) -> int:
        """``trials + 1``."""
        return self.trials + 1

    @property
    def size(self) -> int:
        """One parameter: the logit."""
        return 1

    def constrain(self, raw: Tensor) -> Tensor:
        """The logit, clamped to ±1000."""
        return raw.clamp(-LARGEST_LOGIT, LARGEST_LOGIT)

    def unconstrain(self, params: Tensor) -> Tensor:
        """The logit."""
        return params

    def table(self, params: Tensor) -> Tensor:
        """Log-probabilities of 0 … n successes, ``(..., 1)`` to ``(..., n + 1)``."""
        x = self._values(params)
        return torch.addcmul(self._log_ways(x) + x * nnf.logsigmoid(params), self.trials - x, nnf.logsigmoid(-params))

    def natural(self, params: Tensor) -> Natural:
        """The number of successes, with the logit."""

        def statistics(x: Tensor) -> tuple[Tensor, Tensor]:
            count = x.to(params.dtype)
            return count.unsqueeze(-2), self._log_ways(count)

        return Natural(params, self.trials * nnf.softplus(params[..., 0]), statistics)

    def _log_ways(self, x: Tensor) -> Tensor:
        """``log C(n, x)``."""
        if self.trials == 1:
            return torch.zeros_like(x)
        count, trials = x.double(), torch.tensor(float(self.trials), dtype=torch.float64, device=x.device)
        return (torch.lgamma(trials + 1) - torch.lgamma(count + 1) - torch.lgamma(trials - count + 1)).to(x.dtype)

    def mean(self, params: Tensor) -> Tensor:
        """``n σ(l)``."""
        return self.trials * params[..., 0].sigmoid()

    def variance(self, params: Tensor) -> Tensor:
        """``n σ(l) σ(-l)``."""
        return self.trials * params[..., 0].sigmoid() * (-params[..., 0]).sigmoid()

    def sample(self, params: Tensor, generator: torch.Generator) -> Tensor:
        """Draw numbers of successes, in float64: its sigmoid still resolves one failure in 10¹⁵."""
        success = params[..., 0].double().sigmoid()
        return torch.binomial(torch.full_like(success, self.trials), success, generator).to(params.dtype)

    @torch.no_grad()
    def expected_statistics(self, params: Tensor, x: Tensor, flows: Tensor) -> Tensor:
        """Successes and failures, ``(F or 1, K, 2)``."""
        x = x.to(flows.dtype)
        return pooled(flows @ torch.stack((x, self.trials - x), -1), params)

    @torch.no_grad()
    def from_statistics(self, params: Tensor, statistics: Tensor, smoothing: float = 0.0) -> Tensor:
        """``logit = log successes - log failures``, finite even if one of them is 0."""
        counts = statistics + smoothing * self.trials / 2
        log_counts = counts.clamp(min=torch.finfo(counts.dtype).tiny).log()
        logit = log_counts[..., :1] - log_counts[..., 1:]
        return torch.where(counts.sum(-1, keepdim=True) > 0, logit, params)

    def mix(self, old: Tensor, new: Tensor, step: float | Tensor) -> Tensor:
        """Average the probabilities of a success."""
        success = log_mix(nnf.logsigmoid(old), nnf.logsigmoid(new), step)
        failure = log_mix(nnf.logsigmoid(-old), nnf.logsigmoid(-new), step)
        return success - failure

    def initial(self, x: Tensor, states: int, generator: torch.Generator) -> Tensor:
        """Logit of the column's smoothed mean, plus noise of standard deviation 1 for each state."""
        x = as_float(x)
        noise = torch.randn(x.shape[0], states, generator=generator, dtype=x.dtype, device=x.device)
        return (self._typical(x) + noise).unsqueeze(-1)

    def _typical(self, x: Tensor) -> Tensor:
        """The logit of the column's smoothed mean."""
        count = (~x.isnan()).sum(-1, keepdim=True)
        return ((x.nansum(-1, keepdim=True) + 0.5) / (self.trials * count + 1)).logit()


@final
@dataclass(frozen=True, repr=False)
class Binomial(SuccessFamily):
    """Binomial distribution over 0 … ``trials``; one parameter, the logit of a success.

    Args:
        trials: Number of trials.

    Example:
        >>> Binomial(2).table(torch.zeros(1)).exp()
        tensor([0.2500, 0.5000, 0.2500])
    """

    trials: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "trials", check_integer("trials", self.trials))


@final
@dataclass(frozen=True, repr=False)
class Bernoulli(SuccessFamily):
    """Bernoulli distribution over {0, 1}; one parameter, the logit of a 1.

    Example:
        >>> Bernoulli().mean(torch.zeros(1))
        tensor(0.5000)
    """

    trials: ClassVar[int] = 1  # type: ignore[misc]  # an argument of Binomial


@final
@dataclass(frozen=True, repr=False)
class Categorical(FiniteFamily):
    """Categorical distribution over the codes 0 … C-1; the parameters are their log-probabilities.

    Args:
        categories: Number of categories.

    Example:
        >>> Categorical(256)
        Categorical(256)
        >>> Categorical(4).constrain(torch.zeros(4)).exp()
        tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """

    categories: int
    softmax: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "categories", check_integer("categories", self.categories))

    @property
    def size(self) -> int:
        """One log-probability per category."""
        return self.categories

    @property
    def values(self) -> int:
        """The number of categories."""
        return self.categories

    def constrain(self, raw: Tensor) -> Tensor:
        """``log_softmax`` of the raw values, clamped to ±1000."""
        return log_probabilities(raw, LARGEST_LOGIT)

    def unconstrain(self, params: Tensor) -> Tensor:
        """The log-probabilities."""
        return params

    def table(self, params: Tensor) -> Tensor:
        """The parameters."""
        return params

    @torch.no_grad()
    def from_statistics(self, params: Tensor, statistics: Tensor, smoothing: float = 0.0) -> Tensor:
        """Frequencies ``(n_c + smoothing / C) / (n + smoothing)``; the smallest positive float in place of 0."""
        return log_frequencies(statistics + smoothing / self.categories, params)

    def move(self, raw: Tensor, old: Tensor, statistics: Tensor, smoothing: float, step: float | Tensor) -> None:
        """The same in one pass over memory."""
        if native := kernels_for(raw, old, statistics):
            native.move_logs(raw, old, statistics, torch.as_tensor(step, dtype=old.dtype).contiguous(), smoothing)
        else:
            super().move(raw, old, statistics, smoothing, step)

    def mix(self, old: Tensor, new: Tensor, step: float | Tensor) -> Tensor:
        """Average the probabilities."""
        return log_mix(old, new, step)

    def initial(self, x: Tensor, states: int, generator: torch.Generator) -> Tensor:
        """Frequencies of the column with one pseudo-observation, times log-normal noise for each state."""
        x = as_float(x)
        shape = (x.shape[0], states, self.categories)
        noise = torch.randn(shape, generator=generator, dtype=x.dtype, device=x.device)
        return (self._log_counts(x) + noise).log_softmax(-1)

    def _typical(self, x: Tensor) -> Tensor:
        """The logarithms of the column's smoothed frequencies."""
        return self._log_counts(x).squeeze(1).log_softmax(-1)

    def _log_counts(self, x: Tensor) -> Tensor:
        """Log of the number of rows of each category, with one pseudo-observation, ``(F, 1, C)``."""
        observed = (~x.isnan()).to(x.dtype).unsqueeze(1)  # (F, 1, B)
        counts = count_values(observed, x.nan_to_num(self.neutral).long(), self.categories, shared=False)
        return (counts + 1 / self.categories).log()


def _codes(x: Tensor) -> Tensor:
    """``x`` as indices. NaN is refused, because converting it would give 0 on some processors."""
    if x.is_floating_point() and has_values(x) and bool(x.isnan().any()):
        raise ArgumentError("x", "values without NaN", "NaN", "put the family's neutral value there, then mask")
    return x.long()


class _Read(torch.autograd.Function):
    """``out[f, k, b] = table[f or 0, k, codes[f, b]]`` for tables ``(F or 1, K, C)`` and codes ``(F, B)``.

    Autograd's own gradient would expand a shared table to all variables. This one does not.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor, codes: Tensor) -> Tensor:
        ctx.save_for_backward(codes)
        ctx.values, ctx.shared = table.shape[-1], table.shape[0] == 1
        return table.expand(codes.shape[0], -1, -1).gather(2, _each_state(codes, table.shape[1]))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (codes,) = ctx.saved_tensors
        return count_values(gradients[0], codes, ctx.values, shared=ctx.shared), None


read_table: Callable[[Tensor, Tensor], Tensor] = _Read.apply


def look_up(table: Tensor, codes: Tensor, out: Tensor) -> None:
    """``read_table`` into ``out``, without a gradient."""
    native = kernels_for(table, out)
    if native and _within(codes, table.shape[2]):
        native.look_up(table, codes.int(), out)
    else:
        torch.gather(table.expand(len(codes), -1, -1), 2, _each_state(codes, table.shape[1]), out=out)


def count_values(weights: Tensor, codes: Tensor, values: int, *, shared: bool) -> Tensor:
    """Sum weights ``(F, K, B)`` by the codes ``(F, B)``: ``(F, K, C)``, or ``(1, K, C)`` if shared."""
    folds, states, _ = weights.shape
    counts = empty((1 if shared else folds, states, values), weights)
    native = kernels_for(weights, counts)
    if native and _within(codes, values):
        native.count_values(counts, weights, codes.int())
        return counts
    if not shared:
        return counts.zero_().scatter_add_(2, _each_state(codes, states), weights)
    total = weights.new_zeros(states, values)
    # A few variables at a time are brought into the order (state, variable, row), within the cache.
    for some, part in zip(codes.split(_FOLDS), weights.split(_FOLDS), strict=True):
        by_state = part.transpose(0, 1).reshape(states, -1)
        total.scatter_add_(1, some.flatten().expand(states, -1), by_state)
    return total.unsqueeze(0)


def sum_table(table: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """Log-sum-exp of the entries first … last ``(F, B)`` of tables ``(F or 1, K, C)``: ``(F, K, B)``.

    The binary digits of its length divide a range into blocks whose lengths are powers of two. The sums of all blocks
    of one length follow from those of half the length.
    """
    length = (last - first + 1).clamp(min=0)  # (F, B)
    total = torch.full((first.shape[0], table.shape[1], first.shape[1]), -torch.inf).to(table)
    width, blocks = 1, table
    while True:
        used = (length & width) > 0
        part = read_table(blocks, first.clamp(max=blocks.shape[-1] - 1))
        total = torch.where(used.unsqueeze(1), torch.logaddexp(total, part), total)
        first = first + width * used
        if 2 * width > table.shape[-1]:
            return total
        blocks = torch.logaddexp(blocks[..., :-width], blocks[..., width:])
        width *= 2


def _within(codes: Tensor, values: int) -> bool:
    """Whether all codes are entries of a table. A compiled loop would go beyond it where PyTorch raises an error."""
    return not codes.numel() or (int(codes.min()) >= 0 and int(codes.max()) < values)


def _each_state(codes: Tensor, states: int) -> Tensor:
    return codes.unsqueeze(1).expand(-1, states, -1)


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
        """The log-rate, clamped to ±30."""
        return raw.clamp(-LARGEST_LOG_RATE, LARGEST_LOG_RATE)

    def unconstrain(self, params: Tensor) -> Tensor:
        """The log-rate."""
        return params

    def check(self, x: Tensor, variable: str | int) -> None:
        """Accept the integers from 0 to 10¹² and NaN."""
        valid = (x >= 0) & (x <= 1e12)
        if x.is_floating_point():
            valid &= x == x.floor()
        require_support(x, valid, variable, "counts (integers from 0 to 1e12) for Poisson()")

    def log_prob(self, params: Tensor, x: Tensor) -> Tensor:
        """Log-probabilities, ``(F or 1, K, 1)`` and ``(F, B)`` to ``(F, K, B)``.

        The formula is ``-(x (e^t - 1) - x t) - h(x)`` with t = l - log x. The large terms of the textbook formula,
        which would cancel in float32, are all in h, which does not depend on the states and is computed in float64.
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
        """Difference of two tail probabilities on the side where they are small."""
        log_rate = params.double()
        first = low.double().unsqueeze(1).ceil()
        last = high.double().unsqueeze(1).floor()
        above = log_difference(_log_at_least(log_rate, first), _log_at_least(log_rate, last + 1))
        below = log_difference(_log_at_most(log_rate, last), _log_at_most(log_rate, first - 1))
        return torch.where(first > log_rate.exp(), above, below).to(params.dtype)

    def mode(self, params: Tensor) -> Tensor:
        """The rate, rounded down."""
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
        return torch.where(weight > 0, rate.log().clamp(-LARGEST_LOG_RATE, LARGEST_LOG_RATE), params)

    def mix(self, old: Tensor, new: Tensor, step: float | Tensor) -> Tensor:
        """Average the rates."""
        return log_mix(old, new, step)

    def initial(self, x: Tensor, states: int, generator: torch.Generator) -> Tensor:
        """Rates half-way between the mean of the column and random values of it."""
        x = as_float(x)
        rate = (observed_mean(x, 1.0) + observed_values(x, states, generator)) / 2
        return (rate + 0.1).log().clamp(-LARGEST_LOG_RATE, LARGEST_LOG_RATE).unsqueeze(-1)

    def _typical(self, x: Tensor) -> Tensor:
        """The logarithm of the column's mean."""
        return (observed_mean(x, 1.0) + 0.1).log().clamp(-LARGEST_LOG_RATE, LARGEST_LOG_RATE)


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
