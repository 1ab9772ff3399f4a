# SPDX-License-Identifier: Apache-2.0
"""Families of real numbers: Gaussian, Laplace and Student-t, and Gaussians with spikes at single values."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, final

import scipy.special
import torch
from torch import Tensor

from picirc.checks import is_number
from picirc.errors import ArgumentError
from picirc.inputs.family import (
    Family,
    Natural,
    as_float,
    inverse_positive,
    log_difference,
    log_frequencies,
    log_mix,
    log_probabilities,
    observed_mean,
    observed_std,
    observed_values,
    pooled,
    positive,
    require_above,
    require_parameters,
    require_support,
)

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
CLOSEST = 1e-4  # the least distance of an observation from the location, in scales, in EM of Laplace
MAX_DF = 1e6  # of Student-t, where it equals a Gaussian to six digits
_WELL_CONDITIONED = 64.0  # squares of standardised means up to this are accurate in single precision


class LocationScale(Family):
    """A density symmetric about its mode, ``p(x) = f(z) / scale`` with ``z = (x - loc) / scale``.

    The first two parameters are loc and scale. EM works in units of z, relative to the old parameters, so that nothing
    cancels in float32 for data far from zero.
    """

    @property
    @abstractmethod
    def _floor(self) -> float:
        """The smallest scale."""

    @abstractmethod
    def _log_density(self, z: Tensor, params: Tensor) -> Tensor:
        """``log f(z) - log scale`` for z ``(F, K, B)`` and params ``(F or 1, K, P)``."""

    @abstractmethod
    def _log_cdf(self, z: Tensor, params: Tensor) -> Tensor:
        """Log of the distribution function of f, in float64, accurate for z <= 0."""

    @abstractmethod
    def _noise(self, params: Tensor, generator: torch.Generator) -> Tensor:
        """Draw from f, ``(..., P)`` to ``(...)``."""

    @abstractmethod
    def _statistics(self, z: Tensor, params: Tensor) -> Iterator[Tensor]:
        """Yield the statistics of EM besides the weight, each ``(F, K, B)``."""

    @property
    def size(self) -> int:
        """Two parameters: location and scale."""
        return 2

    def constrain(self, raw: Tensor) -> Tensor:
        """``(loc, softplus(·) + the smallest scale)``."""
        return torch.stack((raw[..., 0], positive(raw[..., 1], self._floor)), -1)

    def unconstrain(self, params: Tensor) -> Tensor:
        """The inverse of ``constrain``."""
        return torch.stack((params[..., 0], inverse_positive(params[..., 1], self._floor)), -1)

    def accept(self, params: Tensor) -> Tensor:
        """Accept a finite location and positive numbers. The smallest scale applies to learning only."""
        valid = params.detach().isfinite().all(-1) & (params.detach()[..., 1:] > 0).all(-1)
        require_parameters(params.detach(), valid, f"a finite location and a positive scale for {self!r}")
        return params

    def check(self, x: Tensor, variable: str | int) -> None:
        """Accept NaN and finite numbers of at most 10¹², whose standardised squares fit float32."""
        remedy = "mark missing values by NaN, and rescale very large ones"
        require_support(x, x.abs() <= 1e12, variable, "finite numbers of at most 1e12", remedy)

    def log_prob(self, params: Tensor, x: Tensor) -> Tensor:
        """Log-densities, ``(F or 1, K, P)`` and ``(F, B)`` to ``(F, K, B)``."""
        return self._log_density(_standardise(params, x.to(params.dtype)), params)

    def sample(self, params: Tensor, generator: torch.Generator) -> Tensor:
        """``loc + scale · noise``, ``(..., P)`` to ``(...)``."""
        return params[..., 0] + params[..., 1] * self._noise(params, generator)

    def mean(self, params: Tensor) -> Tensor:
        """The location."""
        return params[..., 0]

    def mode(self, params: Tensor) -> Tensor:
        """The location."""
        return params[..., 0]

    def cdf(self, params: Tensor, x: Tensor) -> Tensor:
        """P(X <= x), from the lower tail, or one minus the upper tail."""
        wide = params.double()
        z = _standardise(wide, x.double())
        tail = self._log_cdf(-z.abs(), wide).exp()
        return torch.where(z < 0, tail, 1 - tail).to(params.dtype)

    def log_interval(self, params: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """Difference of two tail probabilities; an interval in the upper tail is mirrored first."""
        wide = params.double()
        a, b = _standardise(wide, low.double()), _standardise(wide, high.double())
        upper = a + b > 0
        a, b = torch.where(upper, -b, a), torch.where(upper, -a, b)
        return log_difference(self._log_cdf(b, wide), self._log_cdf(a, wide)).to(params.dtype)

    @torch.no_grad()
    def expected_statistics(self, params: Tensor, x: Tensor, flows: Tensor) -> Tensor:
        """Total weight, then the family's statistics in units of z, ``(F or 1, K, S)``."""
        z = _standardise(params, x.to(params.dtype))
        sums = [flows.sum(-1)] + [(flows * statistic).sum(-1) for statistic in self._statistics(z, params)]
        return pooled(torch.stack(sums, -1), params)

    def initial(self, x: Tensor, states: int, generator: torch.Generator) -> Tensor:
        """Random values of the column as locations, and the scale that gives every state the column's variance."""
        x = as_float(x)
        return self._located(observed_values(x, states, generator), observed_std(x))

    def raw_start(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and scale of the columns; a unit step changes either by one scale."""
        params = self._located(observed_mean(x, 0.0).squeeze(-1), observed_std(x).squeeze(-1))
        scale, center = params[..., 1], self.unconstrain(params)
        gain = torch.ones_like(center)
        gain[..., 0] = scale
        gain[..., 1] = scale / torch.sigmoid(center[..., 1])  # the slope of softplus
        return center, gain

    def _located(self, loc: Tensor, std: Tensor) -> Tensor:
        """Parameters ``(..., P)`` for locations ``(...)`` and standard deviations."""
        params = self._standard(loc)
        scale = (std / self.variance(params).sqrt()).clamp(min=self._floor)
        params[..., 0], params[..., 1] = loc, scale
        return params

    def _standard(self, like: Tensor) -> Tensor:
        """Parameters ``(..., P)`` with location 0 and scale 1, for ``like`` of shape ``(...)``."""
        return torch.stack((torch.zeros_like(like), torch.ones_like(like)), -1)


@final
@dataclass(frozen=True, repr=False)
class Gaussian(LocationScale):
    """Normal distribution; the parameters are mean and standard deviation.

    Args:
        min_std: The smallest standard deviation, so that no state can collapse onto one observation.

    Example:
        >>> params = torch.tensor([[[0.0, 1.0], [2.0, 0.5]]])  # one variable, two states
        >>> Gaussian().log_prob(params, torch.tensor([[0.0]])).squeeze()
        tensor([-0.9189, -8.2258])
    """

    correlates: ClassVar[bool] = True
    min_std: float = 1e-3

    def __post_init__(self) -> None:
        require_above("min_std", self.min_std, 0.0)

    def variance(self, params: Tensor) -> Tensor:
        """Square of the standard deviation."""
        return params[..., 1].square()

    def inner(self, a: Tensor, b: Tensor) -> Tensor:
        """Density of a normal with the sum of both variances at the distance of the means."""
        mean_a, std_a = a.unsqueeze(-2).unbind(-1)  # (F, K, 1)
        mean_b, std_b = b.unsqueeze(-3).unbind(-1)  # (F, 1, L)
        std = torch.hypot(std_a, std_b)
        z = (mean_a - mean_b) / std
        return torch.exp(-0.5 * z.square() - HALF_LOG_TWO_PI) / std

    def natural(self, params: Tensor) -> Natural:
        """``x`` and ``x²`` about the average mean of the states; in double precision where squares would cancel."""
        mean, std = params.unbind(-1)
        centre = mean.detach().mean(-1, keepdim=True)
        if bool(((mean.detach() - centre) / std.detach()).square().amax() > _WELL_CONDITIONED):
            mean, std, centre = mean.double(), std.double(), centre.double()
        mean, precision = mean - centre, std.reciprocal().square()
        eta = torch.stack((mean * precision, -0.5 * precision), -1)

        def statistics(x: Tensor) -> tuple[Tensor, Tensor]:
            z = x.to(eta.dtype) - centre
            return torch.stack((z, z.square()), -2), torch.zeros_like(z)

        return Natural(eta, 0.5 * mean.square() * precision + std.log() + HALF_LOG_TWO_PI, statistics)

    @torch.no_grad()
    def from_statistics(self, params: Tensor, statistics: Tensor, smoothing: float = 0.0) -> Tensor:
        """Weighted mean and standard deviation; pseudo-observations are at the old mean ± the old std."""
        weight, first, second = statistics.unbind(-1)
        mean, std = params.unbind(-1)
        total = (weight + smoothing).clamp(min=torch.finfo(params.dtype).tiny)
        shift = first / total
        spread = ((second + smoothing) / total - shift.square()).clamp(min=0).sqrt()
        new = torch.stack((mean + std * shift, (std * spread).clamp(min=self.min_std)), -1)
        return torch.where((weight + smoothing > 0).unsqueeze(-1), new, params)

    def mix(self, old: Tensor, new: Tensor, step: float | Tensor) -> Tensor:
        """Average the first two moments: mean and variance of the mixture of both."""
        weight = torch.as_tensor(step, dtype=old.dtype, device=old.device)
        mean = torch.lerp(old[..., 0], new[..., 0], weight)
        between = (new[..., 0] - old[..., 0]) * (weight * (1 - weight)).sqrt()
        within = torch.lerp(old[..., 1].square(), new[..., 1].square(), weight).sqrt()
        return torch.stack((mean, torch.hypot(within, between)), -1)

    @property
    def _floor(self) -> float:
        return self.min_std

    def _log_density(self, z: Tensor, params: Tensor) -> Tensor:
        return torch.addcmul(-params[..., 1:].log() - HALF_LOG_TWO_PI, z, z, value=-0.5)

    def cdf(self, params: Tensor, x: Tensor) -> Tensor:
        """``Φ(z)``, as accurate as the general method and several times as fast."""
        found: Tensor = torch.special.ndtr(_standardise(params.double(), x.double()))
        return found.to(params.dtype)

    def _log_cdf(self, z: Tensor, params: Tensor) -> Tensor:
        log_cdf: Tensor = torch.special.log_ndtr(z)
        return log_cdf

    def _noise(self, params: Tensor, generator: torch.Generator) -> Tensor:
        return torch.randn(params.shape[:-1], generator=generator, dtype=params.dtype, device=params.device)

    def _statistics(self, z: Tensor, params: Tensor) -> Iterator[Tensor]:
        yield z
        yield z.square()


@final
@dataclass(frozen=True, repr=False)
class Laplace(LocationScale):
    """Laplace distribution; the parameters are location and scale.

    ``log p(x) = -|x - loc| / scale - log(2 scale)``

    This is not an exponential family. Its EM step minimises the parabolas ``(r²/|r_old| + |r_old|)/2``, which touch
    ``|r|`` from above at the old residuals. The likelihood never decreases (up to ``1e-4 scale`` around an
    observation), the location converges to the weighted median, and the statistics of batches can be added.

    Args:
        min_scale: The smallest scale.
    """

    min_scale: float = 1e-3

    def __post_init__(self) -> None:
        require_above("min_scale", self.min_scale, 0.0)

    def variance(self, params: Tensor) -> Tensor:
        """``2 scale²``."""
        return 2 * params[..., 1].square()

    def inner(self, a: Tensor, b: Tensor) -> Tensor:
        """``exp(-d/s) (1 + (d/s) (1 - e^-t)/t) / (2 (s + r))``.

        Here d is the distance of the locations, s >= r are the scales, and ``t = d (1/r - 1/s)``. The usual form
        divides by s² - r² and fails for equal scales.
        """
        loc_a, scale_a = a.unsqueeze(-2).unbind(-1)  # (F, K, 1)
        loc_b, scale_b = b.unsqueeze(-3).unbind(-1)  # (F, 1, L)
        wide, narrow = torch.maximum(scale_a, scale_b), torch.minimum(scale_a, scale_b)
        distance = (loc_a - loc_b).abs() / wide
        t = (distance * (wide / narrow - 1)).clamp(min=torch.finfo(a.dtype).tiny)
        return torch.exp(-distance) * (1 - distance * torch.expm1(-t) / t) / (2 * (wide + narrow))

    @torch.no_grad()
    def from_statistics(self, params: Tensor, statistics: Tensor, smoothing: float = 0.0) -> Tensor:
        """Minimum of the parabolas; pseudo-observations are at the old location ± the old scale."""
        weight, curvature, slope, height = statistics.unbind(-1)
        loc, scale = params.unbind(-1)
        tiny = torch.finfo(params.dtype).tiny
        shift = slope / (curvature + smoothing).clamp(min=tiny)
        spread = (height + smoothing - slope * shift / 2) / (weight + smoothing).clamp(min=tiny)
        new = torch.stack((loc + scale * shift, (scale * spread).clamp(min=self.min_scale)), -1)
        return torch.where((weight + smoothing > 0).unsqueeze(-1), new, params)

    @property
    def _floor(self) -> float:
        return self.min_scale

    def _log_density(self, z: Tensor, params: Tensor) -> Tensor:
        return -(2 * params[..., 1:]).log() - z.abs()

    def _log_cdf(self, z: Tensor, params: Tensor) -> Tensor:
        tail = -z.abs() - math.log(2)
        return torch.where(z < 0, tail, torch.log1p(-tail.exp()))

    def _noise(self, params: Tensor, generator: torch.Generator) -> Tensor:
        # The difference of two exponential variates is accurate in the tails, unlike the logarithm of a uniform one.
        ends = torch.empty((2, *params.shape[:-1]), dtype=params.dtype, device=params.device)
        ends.exponential_(generator=generator)
        return ends[0] - ends[1]

    def _statistics(self, z: Tensor, params: Tensor) -> Iterator[Tensor]:
        old = z.abs().clamp(min=CLOSEST)
        yield 1 / old
        yield z / old
        yield (z.square() / old + old) / 2


@final
@dataclass(frozen=True, repr=False)
class StudentT(LocationScale):
    """Student's t distribution; the parameters are location, scale and degrees of freedom ν.

    ``p(x) ∝ (1 + z²/ν)^(-(ν+1)/2) / scale``. ν is between ``min_df > 2``, so that the variance is finite, and 10⁶.

    This is not an exponential family, but a Gaussian whose precision is multiplied by a latent u ~ Gamma(ν/2,
    ν/2). EM takes the expectation of u under the old parameters. Every step increases the likelihood.

    Args:
        min_scale: The smallest scale.
        min_df: The smallest number of degrees of freedom, above 2.
    """

    min_scale: float = 1e-3
    min_df: float = 2.1

    def __post_init__(self) -> None:
        require_above("min_scale", self.min_scale, 0.0)
        require_above("min_df", self.min_df, 2.0)

    @property
    def size(self) -> int:
        """Three parameters: location, scale and degrees of freedom."""
        return 3

    def constrain(self, raw: Tensor) -> Tensor:
        """``(loc, softplus(·) + min_scale, softplus(·) + min_df)``, the last at most 10⁶."""
        df = positive(raw[..., 2:], self.min_df).clamp(max=MAX_DF)
        return torch.cat((super().constrain(raw), df), -1)

    def unconstrain(self, params: Tensor) -> Tensor:
        """The inverse of ``constrain``."""
        return torch.cat((super().unconstrain(params), inverse_positive(params[..., 2:], self.min_df)), -1)

    def variance(self, params: Tensor) -> Tensor:
        """``scale² ν / (ν - 2)``."""
        _, scale, df = params.unbind(-1)
        return torch.where(df > 2, scale.square() * df / (df - 2), torch.inf)

    def inner(self, a: Tensor, b: Tensor) -> Tensor:
        """∫ p q by quadrature, to about ten digits; there is no closed form.

        The line is divided at both locations. The outer pieces are integrated by the trapezoidal rule over log r, with
        r the distance from the nearer location, and the inner piece over the logit of the position in it. Both maps
        keep the singularities of the density at a constant distance from the real line for all scales, so the rule
        converges geometrically.
        """
        wide_a, wide_b = a.double().unsqueeze(-2), b.double().unsqueeze(-3)  # (F, K, 1, 3), (F, 1, L, 3)
        p, q = _density(wide_a), _density(wide_b)
        distance = (wide_a[..., 0] - wide_b[..., 0]).abs()
        narrow = torch.minimum(wide_a[..., 1], wide_b[..., 1]).log()
        wide = torch.maximum(wide_a[..., 1], wide_b[..., 1]).log()
        nodes = 512
        outer_start, outer_step = narrow - 38, (wide - narrow + 56) / nodes
        inner_end = 38 + torch.log1p(distance / narrow.exp())
        total = torch.zeros_like(distance)
        for node in range(nodes + 1):
            r = (outer_start + node * outer_step).exp()
            total += outer_step * r * (p(r) * q(distance + r) + p(distance + r) * q(r))
            t = inner_end * (2 * node / nodes - 1)
            near, far = t.sigmoid(), (-t).sigmoid()
            between = p(distance * near) * q(distance * far)
            total += 2 * inner_end / nodes * distance * near * far * between
        return total.to(a.dtype)

    @torch.no_grad()
    def from_statistics(self, params: Tensor, statistics: Tensor, smoothing: float = 0.0) -> Tensor:
        """Reweighted mean and scale, and ν from its own equation; pseudo-observations follow the old parameters."""
        weight, precision, first, second, log_precision = statistics.unbind(-1)
        loc, scale, df = params.unbind(-1)
        tiny = torch.finfo(params.dtype).tiny
        total = (weight + smoothing).clamp(min=tiny)
        shift = first / (precision + smoothing).clamp(min=tiny)
        spread = ((second + smoothing - first * shift) / total).clamp(min=0).sqrt()
        new_scale = (scale * spread).clamp(min=self.min_scale)
        new_df = self._solve_df(df, (log_precision / total).double(), (smoothing / total).double())
        new = torch.stack((loc + scale * shift, new_scale, new_df), -1)
        return torch.where((weight + smoothing > 0).unsqueeze(-1), new, params)

    @property
    def _floor(self) -> float:
        return self.min_scale

    def _standard(self, like: Tensor) -> Tensor:
        df = torch.full_like(like, max(5.0, self.min_df))
        return torch.cat((super()._standard(like), df.unsqueeze(-1)), -1)

    def _log_density(self, z: Tensor, params: Tensor) -> Tensor:
        df = params[..., 2:]
        constant = _log_constant(df) - params[..., 1:2].log()
        return constant - (df + 1) / 2 * torch.log1p(z.square() / df)

    def _log_cdf(self, z: Tensor, params: Tensor) -> Tensor:
        df = params[..., 2:]
        lower = scipy.special.stdtr(df.detach().cpu().numpy(), z.detach().cpu().numpy())
        log_lower = torch.from_numpy(lower).to(z).log()
        # Where that underflows: f(z) g / (1 - g') with g = -f/f', from integrating by parts twice.
        g = (df + z.square()) / ((df + 1) * z.abs())
        bend = (1 - df / z.square()) / (df + 1)
        log_f = _log_constant(df) - (df + 1) / 2 * torch.log1p(z.square() / df)
        lost = (log_lower < -600) & z.isfinite()
        return torch.where(lost, log_f + g.log() - torch.log1p(-bend), log_lower)

    def _noise(self, params: Tensor, generator: torch.Generator) -> Tensor:
        # A polar method: ν (e^(2E/ν) - 1), with E exponential, is the squared radius of a bivariate t.
        df = params[..., 2]
        exponential = torch.empty_like(df).exponential_(generator=generator)
        angle = 2 * math.pi * torch.rand(df.shape, generator=generator, dtype=df.dtype, device=df.device)
        return (df * torch.expm1(2 * exponential / df)).sqrt() * angle.cos()

    def _statistics(self, z: Tensor, params: Tensor) -> Iterator[Tensor]:
        df = params[..., 2:]
        u = (df + 1) / (df + z.square())  # expected precision given z
        yield u
        yield u * z
        yield u * z.square()
        yield u.log() - u

    def _solve_df(self, old: Tensor, mean_log: Tensor, prior: Tensor) -> Tensor:
        """Maximise over ν by bisection, in float64 because log h and ψ(h) cancel for large h.

        With h = ν/2 the derivative is ``log h - ψ(h) + 1 + E[log u - u]``, which decreases with h. Without a root in
        the allowed range, the nearest end is best. ``mean_log`` is the mean of log û - û with û = E[u | z]. The
        fraction ``prior`` of pseudo-observations has the expectation under the old ν.
        """
        half = old.double() / 2
        correction = _log_minus_digamma(half + 0.5)  # E[log u | z] = log û - this
        constant = 1 + mean_log - (1 - prior) * correction - prior * (1 + _log_minus_digamma(half))
        low = torch.full_like(constant, math.log(self.min_df / 2))
        high = torch.full_like(constant, math.log(MAX_DF / 2))
        for _ in range(50):
            middle = (low + high) / 2
            rising = _log_minus_digamma(middle.exp()) + constant > 0
            low, high = torch.where(rising, middle, low), torch.where(rising, high, middle)
        return (2 * low.exp()).clamp(self.min_df, MAX_DF).to(old.dtype)


def _standardise(params: Tensor, x: Tensor) -> Tensor:
    """``(x - loc) / scale``: ``(F or 1, K, P)`` and ``(F, B)`` to ``(F, K, B)``."""
    return (x.unsqueeze(1) - params[..., :1]) / params[..., 1:2]


def _log_constant(df: Tensor) -> Tensor:
    """``log Γ((ν+1)/2) - log Γ(ν/2) - log(πν)/2``; the gammas cancel, hence float64."""
    half = df.double() / 2
    constant = torch.lgamma(half + 0.5) - torch.lgamma(half) - (2 * math.pi * half).log() / 2
    return constant.to(df.dtype)


def _log_minus_digamma(h: Tensor) -> Tensor:
    return h.log() - torch.digamma(h)


def _density(params: Tensor) -> Callable[[Tensor], Tensor]:
    """The density as a function of the distance from the location."""
    _, scale, df = params.unbind(-1)
    top = _log_constant(df).exp() / scale
    return lambda r: top * torch.exp(-(df + 1) / 2 * torch.log1p((r / scale).square() / df))


_LARGEST_LOGIT = 30.0  # of the probabilities of spikes


@final
@dataclass(frozen=True, repr=False)
class Spiked(Family):
    """A mixture of a Gaussian and of single values (atoms), ``p(x) = p_0 N(x; μ, σ²) + Σ_i p_i [x = a_i]``.

    Atoms have log-probabilities; all other values have log-densities. The parameters are the log-probabilities of the
    Gaussian and of each atom, then mean and standard deviation.

    Args:
        atoms: The values, ascending. They are rounded to single precision, so that data of any precision match.
        min_std: The smallest standard deviation.

    Example:
        >>> params = torch.tensor([[[0.5, 0.5, 2.0, 1.0]]])  # half of the values are 0, the others N(2, 1)
        >>> params[..., :2] = params[..., :2].log()
        >>> Spiked((0.0,)).log_prob(params, torch.tensor([[0.0, 2.0]])).exp().squeeze()
        tensor([0.5000, 0.1995])
    """

    atoms: tuple[float, ...]
    min_std: float = 1e-3

    def __post_init__(self) -> None:
        require_above("min_std", self.min_std, 0)
        if not isinstance(self.atoms, list | tuple) or not self.atoms:
            raise ArgumentError("atoms", "a list of at least one number", repr(self.atoms)[:80])
        if not all(is_number(a) and math.isfinite(a) for a in self.atoms):
            raise ArgumentError("atoms", "finite numbers", repr(self.atoms)[:80])
        rounded = tuple(torch.tensor(self.atoms, dtype=torch.float32).double().tolist())
        if any(a >= b for a, b in itertools.pairwise(rounded)) or not all(map(math.isfinite, rounded)):
            raise ArgumentError("atoms", "ascending numbers that differ in single precision", repr(self.atoms)[:80])
        object.__setattr__(self, "atoms", rounded)

    @property
    def size(self) -> int:
        """The probabilities, mean and standard deviation."""
        return len(self.atoms) + 3

    def constrain(self, raw: Tensor) -> Tensor:
        """Log-probabilities, then the parameters of the Gaussian."""
        logs = log_probabilities(raw[..., :-2], _LARGEST_LOGIT)
        return torch.cat((logs, self._gaussian.constrain(raw[..., -2:])), -1)

    def accept(self, params: Tensor) -> Tensor:
        """Logits, then mean and standard deviation, which are not changed."""
        logs = log_probabilities(params[..., :-2], _LARGEST_LOGIT)
        return torch.cat((logs, self._gaussian.accept(params[..., -2:])), -1)

    def unconstrain(self, params: Tensor) -> Tensor:
        """The inverse of ``constrain``."""
        return torch.cat((params[..., :-2], self._gaussian.unconstrain(params[..., -2:])), -1)

    def check(self, x: Tensor, variable: str | int) -> None:
        """Accept all finite numbers."""
        require_support(x, x.isfinite(), variable, "finite numbers")

    def log_prob(self, params: Tensor, x: Tensor) -> Tensor:
        """Log-probability of atoms, log-density of other values, ``(F, K, B)``."""
        hits = x.unsqueeze(1) == self._atoms(x).unsqueeze(1)  # (F, atoms, B)
        other = ~hits.any(1, keepdim=True)
        # A product with zeros and ones selects the probability, in the time of a single `where`.
        share = params[..., :-2] @ torch.cat((other, hits), 1).to(params.dtype)
        return share + torch.where(other, self._gaussian.log_prob(params[..., -2:], x), 0.0)

    def sample(self, params: Tensor, generator: torch.Generator) -> Tensor:
        """An atom, or a Gaussian draw."""
        logs = params[..., :-2]
        chosen = torch.multinomial(logs.reshape(-1, logs.shape[-1]).exp(), 1, generator=generator).view(logs.shape[:-1])
        drawn = self._gaussian.sample(params[..., -2:], generator)
        values = torch.cat((drawn.unsqueeze(-1), self._atoms(params).expand(*drawn.shape, -1)), -1)
        return values.gather(-1, chosen.unsqueeze(-1)).squeeze(-1)

    def mean(self, params: Tensor) -> Tensor:
        """Expectation."""
        shares = params[..., :-2].exp()
        return shares[..., 0] * params[..., -2] + (shares[..., 1:] * self._atoms(params)).sum(-1)

    def variance(self, params: Tensor) -> Tensor:
        """Variance within the Gaussian and between it and the atoms."""
        shares, mean = params[..., :-2].exp(), self.mean(params)
        own = params[..., -1].square() + (params[..., -2] - mean).square()
        others = (self._atoms(params) - mean.unsqueeze(-1)).square()
        return shares[..., 0] * own + (shares[..., 1:] * others).sum(-1)

    def cdf(self, params: Tensor, x: Tensor) -> Tensor:
        """The probability of the Gaussian and of the atoms up to x."""
        found = params[..., :1].exp() * self._gaussian.cdf(params[..., -2:], x)
        for place, atom in enumerate(self.atoms, 1):
            found = found + params[..., place, None].exp() * (x >= atom).unsqueeze(1)
        return found

    def log_interval(self, params: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """The probability of the Gaussian and of the atoms between the ends."""
        found = params[..., :1] + self._gaussian.log_interval(params[..., -2:], low, high)
        for place, atom in enumerate(self.atoms, 1):
            inside = ((low <= atom) & (atom <= high)).unsqueeze(1)
            found = torch.where(inside, torch.logaddexp(found, params[..., place, None].expand_as(found)), found)
        return found

    def mode(self, params: Tensor) -> Tensor:
        """The most probable atom, or the mean if the Gaussian is more probable than any."""
        values = torch.cat((params[..., -2:-1], self._atoms(params).expand(*params.shape[:-1], -1)), -1)
        return values.gather(-1, params[..., :-2].argmax(-1, keepdim=True)).squeeze(-1)

    def raw_start(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The shares of the atoms in the columns, and mean and scale of all other values."""
        hits = torch.stack([(x == atom).sum(-1) for atom in self.atoms], -1).to(x.dtype)  # (F, atoms)
        rest = (~x.isnan()).sum(-1, keepdim=True) - hits.sum(-1, keepdim=True)
        logits = (torch.cat((rest, hits), -1) + 1.0).log()
        centre, gain = self._gaussian.raw_start(self._without_atoms(x))
        logits = logits - logits.mean(-1, keepdim=True)
        return torch.cat((logits, centre), -1), torch.cat((torch.ones_like(logits), gain), -1)

    def smooth(self, params: Tensor) -> tuple[Gaussian, Tensor]:
        """The Gaussian alone, and its parameters."""
        return self._gaussian, params[..., -2:]

    @torch.no_grad()
    def expected_statistics(self, params: Tensor, x: Tensor, flows: Tensor) -> Tensor:
        """The weights of the Gaussian and of each atom, then the statistics of the Gaussian, ``(F or 1, K, S)``."""
        atoms = x.unsqueeze(-1) == self._atoms(x)  # (F, B, atoms)
        rest = flows.masked_fill(atoms.any(-1).unsqueeze(1), 0.0)
        shares = torch.cat((rest.sum(-1, keepdim=True), flows @ atoms.to(flows.dtype)), -1)
        gaussian = params[..., -2:].expand(len(x), -1, -1)
        found = torch.cat((shares, self._gaussian.expected_statistics(gaussian, x, rest)), -1)
        return pooled(found, params)

    @torch.no_grad()
    def from_statistics(self, params: Tensor, statistics: Tensor, smoothing: float = 0.0) -> Tensor:
        """Frequencies as for categories, mean and standard deviation as for a Gaussian."""
        logs = log_frequencies(statistics[..., :-3] + smoothing / (len(self.atoms) + 1), params[..., :-2])
        gaussian = self._gaussian.from_statistics(params[..., -2:], statistics[..., -3:], smoothing)
        return torch.cat((logs, gaussian), -1)

    def mix(self, old: Tensor, new: Tensor, step: float | Tensor) -> Tensor:
        """Average the probabilities, and the moments of the Gaussian."""
        gaussian = self._gaussian.mix(old[..., -2:], new[..., -2:], step)
        return torch.cat((log_mix(old[..., :-2], new[..., :-2], step), gaussian), -1)

    def initial(self, x: Tensor, states: int, generator: torch.Generator) -> Tensor:
        """The shares of the atoms with noise for each state; other values of the column as means of the Gaussian."""
        x = as_float(x)
        shares = self.raw_start(x)[0][..., :-2].unsqueeze(1)
        noise = torch.randn((len(x), states, len(self.atoms) + 1), generator=generator, dtype=x.dtype, device=x.device)
        gaussian = self._gaussian.initial(self._without_atoms(x), states, generator)
        return torch.cat(((shares + noise).log_softmax(-1), gaussian), -1)

    @property
    def _gaussian(self) -> Gaussian:
        return Gaussian(min_std=self.min_std)

    def _without_atoms(self, x: Tensor) -> Tensor:
        return x.masked_fill((x.unsqueeze(-1) == self._atoms(x)).any(-1), torch.nan)

    def _atoms(self, like: Tensor) -> Tensor:
        return torch.tensor(self.atoms, dtype=like.dtype, device=like.device)
