"""Categorical inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from picirc.inputs.family import require_integer
from picirc.inputs.finite import LARGEST_LOGIT, FiniteFamily, count_values
from picirc.inputs.numerics import as_float, log_mix, log_probabilities


@final
@dataclass(frozen=True, repr=False)
class Categorical(FiniteFamily):
    """Categorical distribution over the codes 0 … C-1; the parameters are their log-probabilities.

    The codes are treated as ordered wherever an order is needed (``cdf``, ``log_interval``) and as numbers in
    ``mean`` and ``variance``.

    Args:
        categories: Number of categories.

    Example:
        >>> Categorical(256)
        Categorical(256)
        >>> Categorical(4).constrain(torch.zeros(4)).exp()
        tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """

    categories: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "categories", require_integer("categories", self.categories))

    @property
    def size(self) -> int:
        """One log-probability a category."""
        return self.categories

    @property
    def values(self) -> int:
        """The number of categories."""
        return self.categories

    def constrain(self, raw: Tensor) -> Tensor:
        """``log_softmax`` of the raw values, these kept within ±1000."""
        return log_probabilities(raw, LARGEST_LOGIT)

    def unconstrain(self, params: Tensor) -> Tensor:
        """Return the log-probabilities themselves."""
        return params

    def table(self, params: Tensor) -> Tensor:
        """Return the parameters themselves."""
        return params

    @torch.no_grad()
    def from_statistics(self, params: Tensor, statistics: Tensor, smoothing: float = 0.0) -> Tensor:
        """Frequencies ``(n_c + smoothing / C) / (n + smoothing)``; instead of 0 the least positive float."""
        counts = statistics + smoothing / self.categories
        total = counts.sum(-1, keepdim=True)
        tiny = torch.finfo(counts.dtype).tiny
        frequencies = (counts / total.clamp(min=tiny)).clamp(min=tiny)
        return torch.where(total > tiny, frequencies.log(), params)

    def mix(self, old: Tensor, new: Tensor, step: float | Tensor) -> Tensor:
        """Average the probabilities."""
        return log_mix(old, new, step)

    def initial(self, x: Tensor, states: int, generator: torch.Generator) -> Tensor:
        """Frequencies of the column with one pseudo-observation, times log-normal noise for each state."""
        x = as_float(x)
        observed = (~x.isnan()).to(x.dtype).unsqueeze(1)  # (F, 1, B)
        counts = count_values(observed, x.nan_to_num(self.neutral).long(), self.categories, shared=False)
        shape = (x.shape[0], states, self.categories)
        noise = torch.randn(shape, generator=generator, dtype=x.dtype, device=x.device)
        return ((counts + 1 / self.categories).log() + noise).log_softmax(-1)
