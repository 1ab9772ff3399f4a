# SPDX-License-Identifier: Apache-2.0
"""Conditional densities given as functions of tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from picirc.errors import ArgumentError
from picirc.quadrature import midpoint, whole_line

_CELLS = 1024


class Density:
    """Any conditional density ``p(v | parents)``, given by its logarithm.

    Args:
        log_density: ``log_density(value, *parents)``, written with torch so that its arguments broadcast.
        parents: The names of the latents it is conditioned on, in the order of the arguments.
        domain: The interval outside which the density vanishes, or is negligible. A latent is integrated over its
            domain. The whole real line by default.
        moments: ``moments(*parents)`` gives mean and standard deviation of ``v``; nested quadrature needs it. For
            latents on an infinite domain it says where the points lie. Without it they are found numerically.

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
        domain: tuple[float, float] = (-math.inf, math.inf),
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
        self._moments = moments

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

    def moments(self, *parents: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation given the parents: those that were given, or on a fine grid over the domain."""
        if self._moments is not None:
            return self._moments(*parents)
        low, high = self.domain
        finite = math.isfinite(high - low)
        grid = midpoint(_CELLS).on(low, high) if finite else whole_line(_CELLS).at(0.0, 1.0)
        points, weights = torch.as_tensor(grid.points), torch.as_tensor(grid.weights)
        logs = self.log_density(points, *(parent.unsqueeze(-1) for parent in parents)) + weights.log()
        if not finite and bool((logs.logsumexp(-1).abs() > 0.1).any()):
            mass = float(logs.logsumexp(-1).exp().flatten()[0])
            remedy = "normalise it, or give its mean and standard deviation as moments="
            raise ArgumentError("log_density", "a density with the mass 1", f"{mass:.3g} found near 0", remedy)
        masses = logs.softmax(-1)
        # Heavy tails may have no moments, so the outer hundredths do not count.
        total = masses.cumsum(-1)
        masses = torch.where((total > 0.01) & (total - masses < 0.99), masses, 0.0)
        masses = masses / masses.sum(-1, keepdim=True)
        mean = masses @ points
        return mean, 1.1 * (masses * (points - mean.unsqueeze(-1)).square()).sum(-1).sqrt()

    @property
    def stated(self) -> bool:
        """Whether mean and standard deviation were given."""
        return self._moments is not None

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
