# SPDX-License-Identifier: Apache-2.0
"""Conditional densities given as functions of tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from picirc.errors import ArgumentError


class Density:
    """Any conditional density ``p(v | parents)``, given by its logarithm.

    Args:
        log_density: ``log_density(value, *parents)``, written with torch so that its arguments broadcast.
        parents: The names of the latents it is conditioned on, in the order of the arguments.
        domain: The interval outside which the density vanishes, or is negligible. An end may be infinite for an
            observed variable; a latent is integrated over its domain.
        moments: ``moments(*parents)`` gives mean and standard deviation of ``v``; only nested quadrature and rules
            for infinite domains need it.

    Example:
        >>> bump = Density(lambda v, z: torch.cos(v - z) - 1.266, parents=["z"], domain=(-torch.pi, torch.pi))
        >>> bump.parents, bump.domain
        (('z',), (-3.141592653589793, 3.141592653589793))
    """

    def __init__(
        self,
        log_density: Callable[..., Tensor],
        parents: Sequence[str] = (),
        *,
        domain: tuple[float, float],
        moments: Callable[..., tuple[Tensor, Tensor]] | None = None,
    ) -> None:
        if not callable(log_density):
            raise ArgumentError("log_density", "a function of tensors", log_density)
        self._log_density = log_density
        self.parents = parent_names(parents)
        low, high = (float(end) for end in domain)
        if math.isnan(low) or math.isnan(high) or low >= high:
            raise ArgumentError("domain", "an interval (low, high) with low < high", domain)
        self.domain = (low, high)
        self.moments = moments

    def log_density(self, value: Tensor, *parents: Tensor) -> Tensor:
        """``log p(value | parents)``, broadcasting; −inf outside the domain."""
        low, high = self.domain
        inside = (value >= low) & (value <= high)
        # The function may be undefined outside, so it is given a point of the domain there.
        safe = torch.where(inside, value, _inner_point(low, high))
        result = torch.as_tensor(self._log_density(safe, *parents), dtype=value.dtype)
        if torch.isnan(result).any() or torch.isposinf(result).any():
            raise ArgumentError(
                "log_density",
                "a logarithm that is finite or -inf on the domain",
                "NaN or +inf",
                f"check it on the domain [{low:g}, {high:g}]",
            )
        return torch.where(inside, result, -math.inf)

    def __repr__(self) -> str:
        given = f" | {', '.join(self.parents)}" if self.parents else ""
        return f"Density(·{given} on [{self.domain[0]:g}, {self.domain[1]:g}])"


def parent_names(parents: Sequence[str]) -> tuple[str, ...]:
    """The names as a tuple, each a different non-empty string."""
    names = (parents,) if isinstance(parents, str) else tuple(parents)
    if len(set(names)) != len(names) or not all(isinstance(name, str) and name for name in names):
        raise ArgumentError("parents", "different names of latents", parents)
    return names


def _inner_point(low: float, high: float) -> float:
    if math.isfinite(low) and math.isfinite(high):
        return (low + high) / 2
    return low + 1 if math.isfinite(low) else high - 1 if math.isfinite(high) else 0.0


def modules_of(function: object) -> list[nn.Module]:
    """The modules with parameters to learn that a function is, or that compute it."""
    found = [function] if isinstance(function, nn.Module) else list(vars(function).values())
    return [module for module in found if isinstance(module, nn.Module) and any(True for _ in module.parameters())]
