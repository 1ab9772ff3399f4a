# SPDX-License-Identifier: Apache-2.0
"""The linear-Gaussian conditional density, for latents and for observed variables."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from picirc.errors import ArgumentError
from picirc.functions.conditional import Parametric
from picirc.inputs import Gaussian


class LinearGaussian(Parametric):
    """``p(v | z_1, …, z_k) = N(v; Σ_i a_i z_i + b, σ²)``.

    Args:
        weights: The coefficient ``a_i`` of each parent, by name.
        bias: ``b``.
        std: ``σ``, the standard deviation (not the variance).

    Example:
        >>> LinearGaussian({"z1": 0.8}, bias=0.1, std=0.5)
        LinearGaussian(0.8·z1 + 0.1, std=0.5)
    """

    family = Gaussian()

    def __init__(self, weights: Mapping[str, float] | None = None, bias: float = 0.0, std: float = 1.0) -> None:
        if not isinstance(weights, Mapping | None):
            raise ArgumentError("weights", "a coefficient for each parent by name", weights, 'for example {"z1": 0.8}')
        self.weights = {name: _finite("weights", a) for name, a in (weights or {}).items()}
        self.bias = _finite("bias", bias)
        self.std = _finite("std", std)
        if self.std <= 0:
            raise ArgumentError("std", "a positive number", std, "it is the standard deviation of the noise")

    @property
    def parents(self) -> tuple[str, ...]:
        """The variables with a coefficient."""
        return tuple(self.weights)

    def parameters(self, *parents: Tensor) -> Tensor:
        """Mean and standard deviation, ``(..., 2)``."""
        mean = torch.as_tensor(self.mean(*parents), dtype=None if parents else torch.float64)
        return torch.stack([mean, torch.full_like(mean, self.std)], -1)

    def mean(self, *parents: Tensor) -> Tensor | float:
        """``Σ_i a_i z_i + b``; the parents broadcast against each other."""
        total: Tensor | float = self.bias
        for a, z in zip(self.weights.values(), parents, strict=True):
            total = total + a * z
        return total

    def log_density(self, value: Tensor, *parents: Tensor) -> Tensor:
        """``log p(value | parents)``, broadcasting."""
        standard = (value - self.mean(*parents)) / self.std
        return -0.5 * standard * standard - math.log(self.std) - 0.5 * math.log(2 * math.pi)

    def __repr__(self) -> str:
        terms = [f"{a:g}·{name}" for name, a in self.weights.items()]
        if self.bias or not terms:
            terms.append(f"{self.bias:g}")
        return f"LinearGaussian({' + '.join(terms)}, std={self.std:g})"


def _finite(argument: str, value: float) -> float:
    if getattr(value, "requires_grad", False):
        remedy = "write a density with parameters to learn as pc.Density or pc.Conditional"
        raise ArgumentError(argument, "a plain number", "a tensor that requires a gradient", remedy)
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ArgumentError(argument, "a finite number", value)
    return number
