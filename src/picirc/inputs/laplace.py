"""Laplace inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from picirc.inputs.family import require_above
from picirc.inputs.location import LocationScale

CLOSEST = 1e-4  # in EM, an observation nearer to the location than this many scales weighs as if it were there


@final
@dataclass(frozen=True, repr=False)
class Laplace(LocationScale):
    """Laplace distribution; the parameters are location and scale.

    ``log p(x) = -|x - loc| / scale - log(2 scale)``

    This is not an exponential family. Its EM step minimises the parabolas ``(r²/|r_old| + |r_old|)/2`` that
    touch ``|r|`` from above at the old residuals, so the likelihood never falls (up to ``1e-4 scale`` around
    an observation) and the location tends to the weighted median, while the sums still add up over batches.

    Args:
        min_scale: Least scale.
    """

    min_scale: float = 1e-3

    def __post_init__(self) -> None:
        require_above("min_scale", self.min_scale, 0.0)

    def variance(self, params: Tensor) -> Tensor:
        """``2 scale²``."""
        return 2 * params[..., 1].square()

    def inner(self, a: Tensor, b: Tensor) -> Tensor:
        """``exp(-d/s) (1 + (d/s) (1 - e^-t)/t) / (2 (s + r))``.

        Here d is the distance of the locations, s >= r the scales, and ``t = d (1/r - 1/s)``. The usual form
        divides by s² - r² and breaks down where the scales are equal.
        """
        loc_a, scale_a = a.unsqueeze(-2).unbind(-1)  # (F, K, 1)
        loc_b, scale_b = b.unsqueeze(-3).unbind(-1)  # (F, 1, L)
        wide, narrow = torch.maximum(scale_a, scale_b), torch.minimum(scale_a, scale_b)
        distance = (loc_a - loc_b).abs() / wide
        t = (distance * (wide / narrow - 1)).clamp(min=torch.finfo(a.dtype).tiny)
        return torch.exp(-distance) * (1 - distance * torch.expm1(-t) / t) / (2 * (wide + narrow))

    @torch.no_grad()
    def from_statistics(self, params: Tensor, statistics: Tensor, smoothing: float = 0.0) -> Tensor:
        """Minimum of the parabolas; pseudo-observations lie at the old location ± the old scale."""
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
        # the difference of two exponential variates, which has no uniform variate to run out of digits
        ends = torch.empty((2, *params.shape[:-1]), dtype=params.dtype, device=params.device)
        ends.exponential_(generator=generator)
        return ends[0] - ends[1]

    def _statistics(self, z: Tensor, params: Tensor) -> Iterator[Tensor]:
        old = z.abs().clamp(min=CLOSEST)
        yield 1 / old
        yield z / old
        yield (z.square() / old + old) / 2
