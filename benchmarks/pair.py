# SPDX-License-Identifier: Apache-2.0
"""One circuit in two libraries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import picirc as pc
from measure import Run

SAMPLES = 16

Preparation = Callable[[], Run]


@dataclass(frozen=True)
class Pair:
    """The same circuit with the same parameters in picirc and in another library.

    Attributes:
        ours: The model of picirc.
        theirs: The other module.
        log_prob: Its log-likelihood of a batch ``(batch, variables)``, differentiable.
        sample: Its samples, ``(n, variables)``.
    """

    ours: pc.HCLT
    theirs: nn.Module
    log_prob: Callable[[Tensor], Tensor]
    sample: Callable[[int], Tensor]

    def disagreement(self, x: Tensor) -> float:
        """The largest relative difference between the two log-likelihoods."""
        with torch.no_grad():
            mine, other = self.ours().log_prob(x).double(), self.log_prob(x).double()
        return float(((mine - other).abs() / other.abs()).max())

    def runs(self, x: Tensor) -> Mapping[str, tuple[Preparation, Preparation | None]]:
        """What is measured, by name: ours and theirs, where they have it; each is prepared only when it is wanted.

        Likelihoods and training steps begin with the parameters as they are trained. Samples are of a circuit that
        exists. Making ours is a case of its own, since the other libraries have no circuit apart from the parameters.
        """
        no_grad = torch.no_grad()
        return {
            "log-likelihood": (
                lambda: no_grad(lambda: self.ours().log_prob(x)),
                lambda: no_grad(lambda: self.log_prob(x)),
            ),
            "training step": (
                lambda: lambda: _step(self.ours, lambda: self.ours().log_prob(x)),
                lambda: lambda: _step(self.theirs, lambda: self.log_prob(x)),
            ),
            f"{SAMPLES} samples": (
                lambda: _sampling(no_grad(self.ours)()),
                lambda: no_grad(lambda: self.sample(SAMPLES)),
            ),
            "making": (lambda: no_grad(self.ours), None),
        }


def _sampling(made: pc.QPC) -> Run:
    return torch.no_grad()(lambda: made.sample(SAMPLES))


def _step(module: nn.Module, log_prob: Callable[[], Tensor]) -> None:
    """A step without its optimiser, which would be the same for both."""
    module.zero_grad()
    log_prob().mean().neg().backward()
