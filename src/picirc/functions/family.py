# SPDX-License-Identifier: Apache-2.0
"""The family of a function: the values of the parents are its parameters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from picirc.errors import ArgumentError
from picirc.functions.conditional import Parametric
from picirc.functions.density import Density, modules_of
from picirc.inputs.family import Family, require_support

_CELLS = 4096


@final
@dataclass(frozen=True, repr=False)
class FunctionFamily(Family):
    """A conditional distribution ``p(x | parents)`` with the values of the parents as its parameters.

    A function of latents alone could be evaluated at their points once and for all. This family evaluates it for each
    data point, as a density that is given by code requires, and a function of observed variables.

    The log-density is exact. Samples, moments and probabilities of intervals are those of the function's own family; a
    ``pc.Density`` has none, and they are computed on a fine grid over its domain, which must be finite for them.

    Args:
        function: The conditional distribution.
        dims: For each parent its number of components, 0 for a plain number.
    """

    function: Density | Parametric
    dims: tuple[int, ...]

    @property
    def learnable(self) -> tuple[Tensor, ...]:
        """The parameters of the modules that compute the function."""
        return tuple(parameter for module in modules_of(self.function) for parameter in module.parameters())

    @property
    def discrete(self) -> bool:  # type: ignore[override]
        """Whether the function's family is."""
        return isinstance(self.function, Parametric) and self.function.family.discrete

    @property
    def size(self) -> int:
        """One parameter for each component of each parent; one that is not used when there is none."""
        return max(1, sum(max(1, d) for d in self.dims))

    def constrain(self, raw: Tensor) -> Tensor:
        """The values of parents are what they are."""
        return raw

    def check(self, x: Tensor, variable: str | int) -> None:
        """Accept what the function's family does; of a density finite numbers and NaN."""
        if isinstance(self.function, Parametric):
            return self.function.family.check(x, variable)
        # What lies outside the domain is impossible, not wrong.
        return require_support(x, ~x.isinf(), variable, "finite numbers")

    @property
    def neutral(self) -> float:  # type: ignore[override]
        """A point of the support."""
        if isinstance(self.function, Parametric):
            return self.function.family.neutral
        low, high = (max(-1e6, self.function.domain[0]), min(1e6, self.function.domain[1]))
        return (low + high) / 2

    def log_prob(self, params: Tensor, x: Tensor) -> Tensor:
        """The function's values, ``(F, K, B)``."""
        if isinstance(self.function, Parametric) and not self.function.family.discrete:
            return self.function.family.log_prob(self._own(params), x)  # all data points of a state at once
        values = x.unsqueeze(1)  # (F, 1, B)
        return self.function.log_density(values, *self._parents(params, 1)).expand(len(x), params.shape[1], -1)

    def sample(self, params: Tensor, generator: torch.Generator) -> Tensor:
        """Draw from the function's family; of a density a cell of the grid, then a point in it."""
        if isinstance(self.function, Parametric):
            return self.function.family.sample(self._own(params), generator)
        points, masses, width = self._cells(params)
        draws = torch.multinomial(masses.flatten(0, -2), 1, replacement=True, generator=generator)
        jitter = torch.rand(draws.shape, generator=generator, dtype=params.dtype, device=params.device) - 0.5
        return (points[draws] + jitter * width).reshape(params.shape[:-1])

    def mean(self, params: Tensor) -> Tensor:
        """That of the function's family, or on the grid."""
        if isinstance(self.function, Parametric):
            return self.function.family.mean(self._own(params))
        points, masses, _ = self._cells(params)
        return masses @ points

    def variance(self, params: Tensor) -> Tensor:
        """That of the function's family, or on the grid."""
        if isinstance(self.function, Parametric):
            return self.function.family.variance(self._own(params))
        points, masses, _ = self._cells(params)
        mean = masses @ points
        return masses @ points.square() - mean.square()

    def cdf(self, params: Tensor, x: Tensor) -> Tensor:
        """That of the function's family, or on the grid, interpolated linearly inside a cell."""
        if isinstance(self.function, Parametric):
            return self.function.family.cdf(self._own(params), x)
        points, masses, width = self._cells(params)  # (F, K, C)
        share = ((x.unsqueeze(-1) - points) / width + 0.5).clamp(0, 1)  # (F, B, C)
        return masses @ share.mT

    def mode(self, params: Tensor) -> Tensor:
        """That of the function's family, or the best point of the grid."""
        if isinstance(self.function, Parametric):
            return self.function.family.mode(self._own(params))
        points, masses, _ = self._cells(params)
        return points[masses.argmax(-1)]

    def table(self, params: Tensor) -> Tensor | None:
        """That of the function's family."""
        if not isinstance(self.function, Parametric) or self.function.values is None:
            return None
        return self.function.family.table(self._own(params))

    def _own(self, params: Tensor) -> Tensor:
        """The parameters of the function's family, ``(..., P)``."""
        assert isinstance(self.function, Parametric)
        found = self.function.parameters(*self._parents(params))
        return found.expand(*params.shape[:-1], -1).to(params.dtype)

    def _parents(self, params: Tensor, axes: int = 0) -> list[Tensor]:
        """The values of the parents ``(...)``, of vectors ``(..., d)``, with some axes of length one after the dots."""
        parts = params.split([max(1, d) for d in self.dims], -1) if self.dims else ()
        shape = (*params.shape[:-1], *(1,) * axes)
        return [part.reshape(*shape, *((d,) if d else ())) for part, d in zip(parts, self.dims, strict=True)]

    def _cells(self, params: Tensor) -> tuple[Tensor, Tensor, float]:
        """Midpoints of the grid's cells, normalised masses ``(..., cells)`` and the width of a cell."""
        assert isinstance(self.function, Density)
        low, high = self.function.domain
        if math.isinf(low) or math.isinf(high):
            raise ArgumentError(
                "domain", "a finite domain for sampling, moments and intervals", self.function.domain,
                "state the interval that carries the density",
            )  # fmt: skip
        width = (high - low) / _CELLS
        points = low + width * (torch.arange(_CELLS, dtype=params.dtype, device=params.device) + 0.5)
        logs = self.function.log_density(points, *self._parents(params, 1)).expand(*params.shape[:-1], -1)
        return points, logs.softmax(-1), width
