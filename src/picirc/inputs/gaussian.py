"""Gaussian inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from picirc.inputs.family import require_above
from picirc.inputs.location import LocationScale

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


@final
@dataclass(frozen=True, repr=False)
class Gaussian(LocationScale):
    """Normal distribution; the parameters are mean and standard deviation.

    Args:
        min_std: Least standard deviation, so that no state can collapse onto one observation.

    Example:
        >>> params = torch.tensor([[[0.0, 1.0], [2.0, 0.5]]])  # one variable, two states
        >>> Gaussian().log_prob(params, torch.tensor([[0.0]])).squeeze()
        tensor([-0.9189, -8.2258])
    """

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

    @torch.no_grad()
    def from_statistics(self, params: Tensor, statistics: Tensor, smoothing: float = 0.0) -> Tensor:
        """Weighted mean and standard deviation; pseudo-observations lie at the old mean ± the old std."""
        weight, first, second = statistics.unbind(-1)
        mean, std = params.unbind(-1)
        total = (weight + smoothing).clamp(min=torch.finfo(params.dtype).tiny)
        shift = first / total
        spread = ((second + smoothing) / total - shift.square()).clamp(min=0).sqrt()
        new = torch.stack((mean + std * shift, (std * spread).clamp(min=self.min_std)), -1)
        return torch.where((weight + smoothing > 0).unsqueeze(-1), new, params)

    def mix(self, old: Tensor, new: Tensor, step: float | Tensor) -> Tensor:
        """Mean and variance of the mixture of both, that is, average the first two moments."""
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

    def _log_cdf(self, z: Tensor, params: Tensor) -> Tensor:
        log_cdf: Tensor = torch.special.log_ndtr(z)
        return log_cdf

    def _noise(self, params: Tensor, generator: torch.Generator) -> Tensor:
        return torch.randn(params.shape[:-1], generator=generator, dtype=params.dtype, device=params.device)

    def _statistics(self, z: Tensor, params: Tensor) -> Iterator[Tensor]:
        yield z
        yield z.square()
