"""Bernoulli inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from picirc.inputs.binomial import SuccessFamily


@final
@dataclass(frozen=True, repr=False)
class Bernoulli(SuccessFamily):
    """Bernoulli distribution over {0, 1}; one parameter, the logit of a 1.

    Example:
        >>> import torch
        >>> Bernoulli().mean(torch.zeros(1))
        tensor(0.5000)
    """

    @property
    def _trials(self) -> int:
        return 1
