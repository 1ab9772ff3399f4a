# SPDX-License-Identifier: Apache-2.0
"""Bayesian networks with continuous latents, written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from picirc.errors import ArgumentError
from picirc.structure.dag import topological_order


class Function(Protocol):
    """A conditional density, of which the structure only needs the parents."""

    @property
    def parents(self) -> tuple[str, ...]:
        """The names of the latents that it is conditioned on."""


def check_function(function: object) -> None:
    """Raise an error unless ``function`` has parents, as the function of a variable or a unit must."""
    if not isinstance(getattr(function, "parents", None), tuple):
        remedy = "use pc.LinearGaussian, pc.Conditional or pc.Density"
        raise ArgumentError("function", "a conditional density with a tuple of parents", function, remedy)


class BayesNet:
    """A Bayesian network of continuous latents and observed variables.

    The joint density is the product of one conditional density per variable,
    ``p(x, z) = ∏ p(z_i | pa(z_i)) · ∏ p(x_j | pa(x_j))``, and every parent is a latent. Variables can be added in any
    order. The network as a whole is checked when it is used.

    Example:
        >>> import picirc as pc
        >>> net = pc.BayesNet()
        >>> net.latent("z", pc.LinearGaussian(std=1.0))
        >>> net.observed("x", pc.LinearGaussian({"z": 0.5}, std=0.3))
        >>> net
        BayesNet(latents: z; observed: x)
    """

    def __init__(self) -> None:
        self._latents: dict[str, Function] = {}
        self._observed: dict[str, Function] = {}

    def latent(self, name: str, function: Function) -> None:
        """Add the continuous latent ``name`` with its density given its parents."""
        check_function(function)
        self._latents[self._fresh(name)] = function

    def observed(self, name: str, function: Function) -> None:
        """Add the observed variable ``name`` with its density (or mass) given its latent parents."""
        check_function(function)
        self._observed[self._fresh(name)] = function

    @property
    def latents(self) -> Mapping[str, Function]:
        """The latents and their functions, in the order in which they were added."""
        return dict(self._latents)

    @property
    def variables(self) -> Mapping[str, Function]:
        """The observed variables and their functions, in the order of the data's columns: that of their addition."""
        return dict(self._observed)

    @property
    def children_first(self) -> tuple[str, ...]:
        """The latents, each child before its parents: the elimination order that nested quadrature requires."""
        self.check()
        order = topological_order({name: function.parents for name, function in self._latents.items()})
        return tuple(reversed(order))

    def check(self) -> None:
        """Raise an error that names the problem if no circuit can be built from the network."""
        if not self._observed:
            raise ArgumentError("net", "at least one observed variable", "none", "add one with net.observed(...)")
        for name, function in (self._latents | self._observed).items():
            for parent in function.parents:
                self._check_parent(name, parent)
        topological_order({name: function.parents for name, function in self._latents.items()})

    def _check_parent(self, name: str, parent: str) -> None:
        if parent in self._observed:
            raise ArgumentError(
                "net",
                f"{name!r} to have latent parents only",
                f"the observed parent {parent!r}",
                f"{parent!r} would stand in two factors of a product, which is then not decomposable; "
                "put a latent between the two",
            )
        if parent not in self._latents:
            raise ArgumentError(
                "net",
                f"every parent of {name!r} to be a latent of the network",
                f"the unknown name {parent!r}",
                f"add it with net.latent({parent!r}, ...); latents so far: {', '.join(self._latents) or 'none'}",
            )

    def _fresh(self, name: str) -> str:
        if not isinstance(name, str) or not name:
            raise ArgumentError("name", "a non-empty string", name)
        if name in self._latents or name in self._observed:
            raise ArgumentError("name", "a name not yet in the network", name, "names are unique; choose another")
        return name

    def __repr__(self) -> str:
        return f"BayesNet(latents: {', '.join(self._latents)}; observed: {', '.join(self._observed)})"
