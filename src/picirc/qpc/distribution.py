"""The quadrature of a circuit as a distribution that answers queries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from picirc.errors import ArgumentError
from picirc.inputs import Family
from picirc.qpc.evidence import Points, as_points
from picirc.qpc.likelihood import Engine
from picirc.qpc.program import Parameters
from picirc.qpc.queries import LatentGrid, latent_states


class QPC(Distribution):
    """A probabilistic circuit that approximates an integral circuit: a distribution over its observed variables.

    Every query is exact for this circuit unless its documentation says otherwise; how far the circuit is from the
    integral that it stands for is what ``error`` estimates.

    Args:
        engine: The tensor program.
        parameters: Its numbers.
        variables: The names of the observed variables, in the order of the columns.
        families: The family of each variable.
        latents: The grids of the continuous latents.
        properties: The structural properties of the circuit.
        refine: Makes the same quadrature on a finer grid; None when there is none.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    has_rsample = False

    def __init__(
        self,
        engine: Engine,
        parameters: Parameters,
        variables: Sequence[str],
        families: Sequence[Family],
        latents: Sequence[LatentGrid],
        properties: object,
        refine: Callable[[], QPC] | None = None,
    ) -> None:
        self.engine = engine
        self.parameters = parameters
        self.variables = tuple(variables)
        self.families = tuple(families)
        self.grids = tuple(latents)
        self.properties = properties
        self._refine = refine
        self._refined: QPC | None = None
        super().__init__(event_shape=torch.Size([len(self.variables)]), validate_args=False)

    @property
    def support(self) -> constraints.Constraint:
        """Values are checked by the families of the variables; NaN is allowed everywhere."""
        return constraints.real_vector

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point type of the parameters."""
        return self.parameters.like.dtype

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.parameters.like.device

    def log_prob(self, value: Tensor, mask: Tensor | None = None) -> Tensor:
        """``log p(x)`` for every row of ``value``, ``(batch, variables)``; missing values are integrated out exactly.

        Args:
            value: The data; NaN is missing.
            mask: True where a value is missing, in addition to NaN.

        Returns:
            ``(batch,)``, with a gradient to the parameters if they need one.
        """
        points = self._points(value, mask)
        needs_gradient = torch.is_grad_enabled() and any(t.requires_grad for t in self.parameters.tensors)
        if needs_gradient:
            return self.engine.differentiable_log_prob(points, self.parameters)
        return self.engine.log_prob(points, self.parameters)

    def posteriors(self, x: Tensor, mask: Tensor | None = None) -> tuple[dict[str, Tensor], Tensor]:
        """For each latent the posterior probabilities of its states ``(batch, states)``, and ``log p(x)``."""
        return latent_states(self.engine, self.parameters, self.grids, self._points(x, mask))

    def refined(self) -> QPC:
        """The same quadrature with more than twice the points, on intervals a quarter wider where they were derived."""
        if self._refine is None:
            raise ArgumentError(
                "qpc", "a circuit that was integrated from a symbolic one", "one made from parameters",
                "integrate again with more points and compare",
            )  # fmt: skip
        if self._refined is None:
            self._refined = self._refine()
        return self._refined

    def error(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """An estimate of the quadrature error ``|log p(x) − log p̂(x)|`` for every row, by refinement.

        The circuit is integrated again with more than twice the points and on wider intervals. For a rule of order p
        the difference is the error times about 1 − 2.5⁻ᵖ; for spectral rules it is the error itself. An estimate below
        what rounding allows is reported as that bound.
        """
        with torch.no_grad():
            mine, finer = self.log_prob(x, mask), self.refined().log_prob(x, mask)
            rounding = torch.finfo(self.dtype).eps * (1 + mine.abs())
            same = mine == finer  # also where both are -inf
            return torch.where(same, torch.zeros_like(mine), (mine - finer).abs()).clamp(min=rounding)

    def __repr__(self) -> str:
        return f"QPC({len(self.variables)} variables, {self.size:,} weights, {str(self.dtype).split('.')[-1]})"

    @property
    def size(self) -> int:
        """The number of sum weights."""
        return sum(t.numel() for t in (*self.parameters.weights, *self.parameters.mixtures))

    def _points(self, x: Tensor, mask: Tensor | None = None) -> Points:
        return as_points(x, mask, self.families, self.variables, self.parameters.like)
