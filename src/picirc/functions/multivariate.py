# SPDX-License-Identifier: Apache-2.0
"""The multivariate normal density: of several observed variables together, or of a latent that is a vector."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from picirc.checks import check_integer
from picirc.errors import ArgumentError
from picirc.functions.density import parent_names
from picirc.inputs import Gaussian

Numbers = Sequence[Any] | Tensor
Link = Callable[..., Tensor]


class MultivariateNormal:
    """``p(v_1, …, v_m | parents) = N(v; mean, covariance)``.

    For observed variables, ``net.observed(["a", "b"], pc.MultivariateNormal(...))``, every query stays exact. As the
    density of a latent, ``net.latent("z", pc.MultivariateNormal(dims=3))``, it makes the latent a vector, whose values
    ``(..., 3)`` are the arguments of links. Vectors need a rule for them, such as ``pc.sobol(1024, dims=3)``.

    Args:
        mean: m numbers, or a function of the parents that returns ``(..., m)``; zeros by default.
        covariance: A matrix ``(m, m)``, or a function of the parents that returns ``(..., m, m)``; the identity by
            default.
        parents: The names of the parents, in the order of the functions' arguments.
        dims: m, if it does not follow from the others.

    Example:
        >>> pair = MultivariateNormal(lambda z: torch.stack([z, -z], -1), [[1.0, 0.5], [0.5, 1.0]], ["z"])
        >>> pair.log_density(torch.tensor([1.0, -1.0]), torch.tensor(1.0))
        tensor(-1.6940)
    """

    def __init__(
        self,
        mean: Numbers | Link | None = None,
        covariance: Numbers | Link | None = None,
        parents: Sequence[str] = (),
        *,
        dims: int | None = None,
    ) -> None:
        self.parents = parent_names(parents)
        self.mean, self.covariance = _numbers(mean), _numbers(covariance)
        known = [t.shape[0] for t in (self.mean, self.covariance) if isinstance(t, Tensor) and t.ndim]
        if dims is None and not known:
            raise ArgumentError("dims", "the number of variables", "none", "for example dims=3")
        self.dims = check_integer("dims", dims if dims is not None else known[0], least=2)
        for name, part, shape in (("mean", self.mean, (self.dims,)), ("covariance", self.covariance, (self.dims,) * 2)):
            if isinstance(part, Tensor) and part.shape != shape:
                raise ArgumentError(name, f"numbers of shape {shape}", f"shape {tuple(part.shape)}")
        if isinstance(self.covariance, Tensor):
            self._check(self.covariance)

    @property
    def family(self) -> Gaussian:
        """The family of each variable by itself."""
        return Gaussian()

    def moments(self, *parents: Tensor) -> tuple[Tensor, Tensor]:
        """Mean ``(..., m)`` and covariance ``(..., m, m)`` given the parents."""
        like = parents[0] if parents else torch.zeros((), dtype=torch.float64)
        unit = torch.eye(self.dims, dtype=like.dtype, device=like.device)
        mean = self._part("mean", self.mean, unit.new_zeros(self.dims), parents)
        covariance = self._part("covariance", self.covariance, unit, parents)
        if not isinstance(self.covariance, Tensor | None):
            self._check(covariance)
        return mean, covariance

    def log_density(self, value: Tensor, *parents: Tensor) -> Tensor:
        """``log p(value | parents)`` of vectors ``(..., m)``, broadcasting."""
        mean, covariance = self.moments(*(parent.to(value.dtype) for parent in parents))
        factor = torch.linalg.cholesky(covariance.to(value.dtype))
        difference = value - mean.to(value.dtype)
        white = torch.linalg.solve_triangular(factor, difference.unsqueeze(-1), upper=False).squeeze(-1)
        logs = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        found: Tensor = -0.5 * white.square().sum(-1) - logs - 0.5 * self.dims * math.log(2 * math.pi)
        return found

    def _part(self, name: str, part: Link | Tensor | None, default: Tensor, parents: Sequence[Tensor]) -> Tensor:
        if part is None:
            return default
        found = part.to(default) if isinstance(part, Tensor) else torch.as_tensor(part(*parents))
        if found.shape[-default.ndim :] != default.shape:
            expected = f"a tensor (..., {', '.join(map(str, default.shape))})"
            raise ArgumentError(name, expected, f"shape {tuple(found.shape)}")
        return found

    def _check(self, covariance: Tensor) -> None:
        symmetric = torch.allclose(covariance, covariance.mT, rtol=1e-6, atol=0)
        _, failed = torch.linalg.cholesky_ex(covariance.detach())
        if not symmetric or bool(failed.any()):
            got = "one that is not" if symmetric else "one that is not symmetric"
            raise ArgumentError("covariance", "symmetric positive definite matrices", got)

    def __repr__(self) -> str:
        given = f" | {', '.join(self.parents)}" if self.parents else ""
        return f"MultivariateNormal(dims={self.dims}{given})"


def _numbers(part: Numbers | Link | None) -> Tensor | Link | None:
    if part is None or (callable(part) and not isinstance(part, Tensor)):
        return part
    return torch.as_tensor(part, dtype=torch.float64)
