"""What the symmetric location–scale families share: Gaussian, Laplace, Student-t."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from picirc.inputs.family import Family, require_support
from picirc.inputs.numerics import (
    as_float,
    inverse_positive,
    log_difference,
    observed_std,
    observed_values,
    pooled,
    positive,
)


class LocationScale(Family):
    """A density symmetric about its mode, ``p(x) = f(z) / scale`` with ``z = (x - loc) / scale``.

    The first two parameters are loc and scale. EM works in units of z, that is relative to the old
    parameters, so that nothing cancels in float32 for data far from zero.
    """

    @property
    @abstractmethod
    def _floor(self) -> float:
        """The least scale."""

    @abstractmethod
    def _log_density(self, z: Tensor, params: Tensor) -> Tensor:
        """``log f(z) - log scale`` for z ``(F, K, B)`` and params ``(F or 1, K, P)``."""

    @abstractmethod
    def _log_cdf(self, z: Tensor, params: Tensor) -> Tensor:
        """Log of the distribution function of f, in float64; needs to be accurate for z <= 0."""

    @abstractmethod
    def _noise(self, params: Tensor, generator: torch.Generator) -> Tensor:
        """Draw from f, ``(..., P)`` to ``(...)``."""

    @abstractmethod
    def _statistics(self, z: Tensor, params: Tensor) -> Iterator[Tensor]:
        """Yield what EM sums over the data besides the weight, each ``(F, K, B)``."""

    @property
    def size(self) -> int:
        """Two parameters: location and scale."""
        return 2

    def constrain(self, raw: Tensor) -> Tensor:
        """``(loc, softplus(·) + the least scale)``."""
        return torch.stack((raw[..., 0], positive(raw[..., 1], self._floor)), -1)

    def unconstrain(self, params: Tensor) -> Tensor:
        """Undo ``constrain``."""
        return torch.stack((params[..., 0], inverse_positive(params[..., 1], self._floor)), -1)

    def check(self, x: Tensor, variable: str | int) -> None:
        """Accept finite numbers of at most 10¹², whose standardised squares fit float32, and NaN."""
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
        """P(X <= x), from the lower tail or one minus it."""
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
        """Total weight, then the family's own sums in units of z, ``(F or 1, K, S)``."""
        z = _standardise(params, x.to(params.dtype))
        sums = [flows.sum(-1)] + [(flows * statistic).sum(-1) for statistic in self._statistics(z, params)]
        return pooled(torch.stack(sums, -1), params)

    def initial(self, x: Tensor, states: int, generator: torch.Generator) -> Tensor:
        """Random values of the column as locations, and the scale that gives every state its variance."""
        x = as_float(x)
        loc = observed_values(x, states, generator)  # (F, K)
        params = self._standard(loc)
        scale = observed_std(x) / self.variance(params).sqrt()
        params[..., 0], params[..., 1] = loc, scale.clamp(min=self._floor)
        return params

    def _standard(self, like: Tensor) -> Tensor:
        """Parameters ``(..., P)`` with location 0 and scale 1, for ``like`` of shape ``(...)``."""
        return torch.stack((torch.zeros_like(like), torch.ones_like(like)), -1)


def _standardise(params: Tensor, x: Tensor) -> Tensor:
    """``(x - loc) / scale``: ``(F or 1, K, P)`` and ``(F, B)`` to ``(F, K, B)``."""
    return (x.unsqueeze(1) - params[..., :1]) / params[..., 1:2]
