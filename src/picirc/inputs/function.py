# SPDX-License-Identifier: Apache-2.0
"""Inputs given as a function: any conditional density of an observed variable."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, final

import torch
from torch import Tensor

from picirc.errors import ArgumentError
from picirc.functions.density import modules_of
from picirc.inputs.family import Family, require_support

_CELLS = 4096


class LogDensity(Protocol):
    """A conditional log-density with a stated domain."""

    @property
    def domain(self) -> tuple[float, float]:
        """The interval that carries the density."""

    @property
    def parents(self) -> tuple[str, ...]:
        """What it is conditioned on."""

    def log_density(self, value: Tensor, *parents: Tensor) -> Tensor:
        """The logarithm, broadcasting."""


@final
@dataclass(frozen=True, repr=False)
class FunctionFamily(Family):
    """The family of a density ``p(x | z)``, with the values of the latents as its parameters.

    The log-density is exact. Samples, moments and probabilities of intervals are computed on a fine grid over the
    domain, which must be finite for them.

    Args:
        function: The conditional log-density.
    """

    function: LogDensity

    @property
    def learnable(self) -> tuple[Tensor, ...]:
        """The parameters of the modules that compute the density."""
        return tuple(parameter for module in modules_of(self.function) for parameter in module.parameters())

    @property
    def size(self) -> int:
        """One parameter a latent; one that is not used when there is none."""
        return max(1, len(self.function.parents))

    def constrain(self, raw: Tensor) -> Tensor:
        """The values of the latents themselves: they have no constraints."""
        return raw

    def check(self, x: Tensor, variable: str | int) -> None:
        """Accept finite numbers and NaN; what lies outside the domain is impossible, not wrong."""
        require_support(x, ~x.isinf(), variable, "finite numbers")

    @property
    def neutral(self) -> float:  # type: ignore[override]
        """A point of the domain."""
        low, high = (max(-1e6, self.function.domain[0]), min(1e6, self.function.domain[1]))
        return (low + high) / 2

    def log_prob(self, params: Tensor, x: Tensor) -> Tensor:
        """The function's values, ``(F, K, B)``."""
        values = x.unsqueeze(1)  # (F, 1, B)
        return self.function.log_density(values, *self._parents(params)).expand(len(x), params.shape[1], -1)

    def sample(self, params: Tensor, generator: torch.Generator) -> Tensor:
        """Draw a cell of the grid, then a point in it."""
        points, masses, width = self._cells(params)
        draws = torch.multinomial(masses.flatten(0, -2), 1, replacement=True, generator=generator)
        jitter = torch.rand(draws.shape, generator=generator, dtype=params.dtype, device=params.device) - 0.5
        return (points[draws] + jitter * width).reshape(params.shape[:-1])

    def mean(self, params: Tensor) -> Tensor:
        """On the grid."""
        points, masses, _ = self._cells(params)
        return masses @ points

    def variance(self, params: Tensor) -> Tensor:
        """On the grid."""
        points, masses, _ = self._cells(params)
        mean = masses @ points
        return masses @ points.square() - mean.square()

    def cdf(self, params: Tensor, x: Tensor) -> Tensor:
        """On the grid, interpolated linearly inside a cell."""
        points, masses, width = self._cells(params)  # (F, K, C)
        share = ((x.unsqueeze(-1) - points) / width + 0.5).clamp(0, 1)  # (F, B, C)
        return masses @ share.mT

    def mode(self, params: Tensor) -> Tensor:
        """The best point of the grid."""
        points, masses, _ = self._cells(params)
        return points[masses.argmax(-1)]

    def _parents(self, params: Tensor) -> list[Tensor]:
        return [params[..., i].unsqueeze(-1) for i in range(len(self.function.parents))]

    def _cells(self, params: Tensor) -> tuple[Tensor, Tensor, float]:
        """Midpoints of the grid's cells, normalised masses ``(..., cells)`` and the width of a cell."""
        low, high = self.function.domain
        if math.isinf(low) or math.isinf(high):
            raise ArgumentError(
                "domain", "a finite domain for sampling, moments and intervals", self.function.domain,
                "state the interval that carries the density",
            )  # fmt: skip
        width = (high - low) / _CELLS
        points = low + width * (torch.arange(_CELLS, dtype=params.dtype, device=params.device) + 0.5)
        logs = self.function.log_density(points, *self._parents(params)).expand(*params.shape[:-1], -1)
        return points, logs.softmax(-1), width
