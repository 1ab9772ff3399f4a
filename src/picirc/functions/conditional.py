# SPDX-License-Identifier: Apache-2.0
"""A parametric family whose parameters are a function of the latents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor

from picirc.errors import ArgumentError
from picirc.functions.density import parent_names


class Parametric(Protocol):
    """What is needed of a family of input distributions here: unconstrained numbers become valid parameters."""

    @property
    def size(self) -> int:
        """The number of parameters."""

    def constrain(self, raw: Tensor) -> Tensor:
        """Valid parameters from unconstrained numbers."""


class Conditional:
    """``p(x | z) = family(x; constrain(link(z)))``: an observed variable of a known family.

    Args:
        family: The family, for example ``pc.Bernoulli()``.
        link: ``link(*parents)`` gives the unconstrained parameters, ``(..., P)`` for a family with ``P`` of them (or
            ``(...)`` when ``P`` is one).
        parents: The names of the latents, in the order of the arguments.
    """

    def __init__(self, family: Parametric, link: Callable[..., Tensor], parents: Sequence[str]) -> None:
        if not callable(link):
            raise ArgumentError("link", "a function of tensors", link)
        self.family = family
        self.link = link
        self.parents = parent_names(parents)

    def parameters(self, *parents: Tensor) -> Tensor:
        """The valid parameters ``(..., P)`` at the given values of the parents."""
        raw = self.link(*parents)
        if self.family.size == 1 and raw.ndim <= max((parent.ndim for parent in parents), default=0):
            raw = raw.unsqueeze(-1)
        if raw.ndim == 0 or raw.shape[-1] != self.family.size:
            raise ArgumentError(
                "link",
                f"{self.family.size} parameters of {self.family!r} in the last dimension",
                f"a tensor of shape {tuple(raw.shape)}",
            )
        return self.family.constrain(raw)

    def __repr__(self) -> str:
        return f"Conditional({self.family!r} | {', '.join(self.parents)})"
