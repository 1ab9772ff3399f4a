"""Binomial inputs, and what they share with Bernoulli inputs."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import final

import torch
import torch.nn.functional as nnf
from torch import Tensor

from picirc.inputs.family import require_integer
from picirc.inputs.finite import LARGEST_LOGIT, FiniteFamily
from picirc.inputs.numerics import as_float, bounded, log_mix, pooled


class SuccessFamily(FiniteFamily):
    """Number of successes in ``trials`` independent trials; the parameter is the logit of a success.

    ``p(x) = C(n, x) σ(l)^x σ(-l)^(n-x)``
    """

    @property
    @abstractmethod
    def _trials(self) -> int:
        """Return n."""

    @property
    def values(self) -> int:
        """``trials + 1``."""
        return self._trials + 1

    @property
    def size(self) -> int:
        """One parameter: the logit."""
        return 1

    def constrain(self, raw: Tensor) -> Tensor:
        """Return the logit itself, kept within ±1000."""
        return bounded(raw, LARGEST_LOGIT)

    def unconstrain(self, params: Tensor) -> Tensor:
        """Return the logit itself."""
        return params

    def table(self, params: Tensor) -> Tensor:
        """Log-probabilities of 0 … n successes, ``(..., 1)`` to ``(..., n + 1)``."""
        x = self._values(params).double()
        counts = torch.lgamma(x[-1] + 1) - torch.lgamma(x + 1) - torch.lgamma(x[-1] - x + 1)
        x, counts = x.to(params.dtype), counts.to(params.dtype)
        return torch.addcmul(counts + x * nnf.logsigmoid(params), self._trials - x, nnf.logsigmoid(-params))

    def mean(self, params: Tensor) -> Tensor:
        """``n σ(l)``."""
        return self._trials * params[..., 0].sigmoid()

    def variance(self, params: Tensor) -> Tensor:
        """``n σ(l) σ(-l)``."""
        return self._trials * params[..., 0].sigmoid() * (-params[..., 0]).sigmoid()

    def sample(self, params: Tensor, generator: torch.Generator) -> Tensor:
        """Draw numbers of successes; in float64, whose sigmoid keeps the last failure in 10¹⁵."""
        success = params[..., 0].double().sigmoid()
        return torch.binomial(torch.full_like(success, self._trials), success, generator).to(params.dtype)

    @torch.no_grad()
    def expected_statistics(self, params: Tensor, x: Tensor, flows: Tensor) -> Tensor:
        """Successes and failures, ``(F or 1, K, 2)``."""
        x = x.to(flows.dtype)
        return pooled(flows @ torch.stack((x, self._trials - x), -1), params)

    @torch.no_grad()
    def from_statistics(self, params: Tensor, statistics: Tensor, smoothing: float = 0.0) -> Tensor:
        """``logit = log successes - log failures``, kept finite when one of them is 0."""
        counts = statistics + smoothing * self._trials / 2
        log_counts = counts.clamp(min=torch.finfo(counts.dtype).tiny).log()
        logit = log_counts[..., :1] - log_counts[..., 1:]
        return torch.where(counts.sum(-1, keepdim=True) > 0, logit, params)

    def mix(self, old: Tensor, new: Tensor, step: float | Tensor) -> Tensor:
        """Average the probabilities of a success."""
        success = log_mix(nnf.logsigmoid(old), nnf.logsigmoid(new), step)
        failure = log_mix(nnf.logsigmoid(-old), nnf.logsigmoid(-new), step)
        return success - failure

    def initial(self, x: Tensor, states: int, generator: torch.Generator) -> Tensor:
        """Logit of the column's smoothed mean, plus noise of standard deviation 1 for each state."""
        x = as_float(x)
        total = x.nansum(-1, keepdim=True)  # (F, 1)
        count = (~x.isnan()).sum(-1, keepdim=True)
        success = (total + 0.5) / (self._trials * count + 1)
        noise = torch.randn(x.shape[0], states, generator=generator, dtype=x.dtype, device=x.device)
        return (success.logit() + noise).unsqueeze(-1)


@final
@dataclass(frozen=True, repr=False)
class Binomial(SuccessFamily):
    """Binomial distribution over 0 … ``trials``; one parameter, the logit of a success.

    Args:
        trials: Number of trials.

    Example:
        >>> Binomial(2).table(torch.zeros(1)).exp()
        tensor([0.2500, 0.5000, 0.2500])
    """

    trials: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "trials", require_integer("trials", self.trials))

    @property
    def _trials(self) -> int:
        return self.trials
