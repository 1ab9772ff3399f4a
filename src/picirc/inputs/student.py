"""Student-t inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

import scipy.special
import torch
from torch import Tensor

from picirc.inputs.family import require_above
from picirc.inputs.location import LocationScale
from picirc.inputs.numerics import inverse_positive, positive

MAX_DF = 1e6  # from here on a Gaussian to six digits


@final
@dataclass(frozen=True, repr=False)
class StudentT(LocationScale):
    """Student's t distribution; the parameters are location, scale and degrees of freedom ν.

    ``p(x) ∝ (1 + z²/ν)^(-(ν+1)/2) / scale``. ν stays above ``min_df > 2``, so that the variance is always
    finite, and is at most 10⁶.

    This is not an exponential family, but a Gaussian whose precision is multiplied by a latent u ~ Gamma(ν/2,
    ν/2). EM takes the expectation of u under the old parameters; every step increases the likelihood.

    Args:
        min_scale: Least scale.
        min_df: Least number of degrees of freedom, above 2.
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
        """Undo ``constrain``."""
        return torch.cat((super().unconstrain(params), inverse_positive(params[..., 2:], self.min_df)), -1)

    def variance(self, params: Tensor) -> Tensor:
        """``scale² ν / (ν - 2)``."""
        _, scale, df = params.unbind(-1)
        return scale.square() * df / (df - 2)

    def inner(self, a: Tensor, b: Tensor) -> Tensor:
        """∫ p q by quadrature, to about ten digits; there is no closed form.

        The line is cut at both locations. With r the distance from the nearer end, the pieces are integrated
        by the trapezoidal rule over log r, respectively over the logit of the position between the ends. Both
        maps put the singularities of the density at a constant distance from the real line whatever the
        scales, so the rule converges geometrically.
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
        """Reweighted mean and scale, and ν from its own equation; pseudo-observations as expected before."""
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
        # where that underflows: f(z) g / (1 - g') with g = -f/f', from integrating by parts twice
        g = (df + z.square()) / ((df + 1) * z.abs())
        bend = (1 - df / z.square()) / (df + 1)
        log_f = _log_constant(df) - (df + 1) / 2 * torch.log1p(z.square() / df)
        lost = (log_lower < -600) & z.isfinite()
        return torch.where(lost, log_f + g.log() - torch.log1p(-bend), log_lower)

    def _noise(self, params: Tensor, generator: torch.Generator) -> Tensor:
        # a polar method: ν (e^(2E/ν) - 1) is the squared radius, with E exponential, of a bivariate t
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
        """Maximise over ν by bisection; all in float64, as log h and ψ(h) cancel for large h.

        With h = ν/2 the derivative is ``log h - ψ(h) + 1 + E[log u - u]``, which falls with h; if it has no
        root in the allowed range, the nearest end is best. ``mean_log`` is the mean of log û - û, û = E[u |
        z], to which the share ``prior`` of pseudo-observations adds what the old ν expects.
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


def _log_constant(df: Tensor) -> Tensor:
    """``log Γ((ν+1)/2) - log Γ(ν/2) - log(πν)/2``; the gammas cancel, hence float64."""
    half = df.double() / 2
    constant = torch.lgamma(half + 0.5) - torch.lgamma(half) - (2 * math.pi * half).log() / 2
    return constant.to(df.dtype)


def _log_minus_digamma(h: Tensor) -> Tensor:
    return h.log() - torch.digamma(h)


def _density(params: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the density as a function of the distance from the location."""
    _, scale, df = params.unbind(-1)
    top = _log_constant(df).exp() / scale
    return lambda r: top * torch.exp(-(df + 1) / 2 * torch.log1p((r / scale).square() / df))
