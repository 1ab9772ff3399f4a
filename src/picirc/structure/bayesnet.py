# SPDX-License-Identifier: Apache-2.0
"""Bayesian networks with continuous and discrete latents, and the topological order of directed graphs."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Protocol

from picirc.errors import ArgumentError


def topological_order(parents: Mapping[str, Sequence[str]]) -> list[str]:
    """Order the nodes of a directed acyclic graph so that parents come before their children.

    Among the nodes whose parents are all placed, the one that was inserted first comes next. A mapping that is
    already in order therefore keeps its order.

    Args:
        parents: The parents of every node; every parent is itself a key.

    Raises:
        ArgumentError: A parent is not a key, or the graph has a cycle, which the message lists.

    Example:
        >>> topological_order({"rain": [], "wet": ["rain", "sprinkler"], "sprinkler": ["rain"]})
        ['rain', 'sprinkler', 'wet']
    """
    names = list(parents)
    index = {name: i for i, name in enumerate(names)}
    for name, own in parents.items():
        for parent in own:
            if parent not in index:
                raise ArgumentError("parents", f"parents of {name!r} that are nodes", parent, "declare it too")
    sorter = TopologicalSorter(parents)
    try:
        sorter.prepare()
    except CycleError as error:
        raise ArgumentError("parents", "an acyclic graph", f"the cycle {' → '.join(error.args[1])}") from None
    ready: list[int] = []
    order: list[str] = []
    while sorter:
        for name in sorter.get_ready():
            heapq.heappush(ready, index[name])
        order.append(names[heapq.heappop(ready)])
        sorter.done(order[-1])
    return order


class Function(Protocol):
    """A conditional density. Structures only use the names of its parents."""

    @property
    def parents(self) -> tuple[str, ...]:
        """The names of the variables it is conditioned on."""


def check_function(function: object) -> None:
    """Raise an error unless ``function`` has a tuple of parents."""
    if not isinstance(getattr(function, "parents", None), tuple):
        remedy = "use pc.LinearGaussian, pc.Conditional, pc.Discrete, pc.MultivariateNormal or pc.Density"
        raise ArgumentError("function", "a conditional density with a tuple of parents", function, remedy)


def variable_names(names: str | Sequence[str], function: Function) -> tuple[str, ...]:
    """Return the names of observed variables as a tuple: one, or as many as the function is a joint density of."""
    found = (names,) if isinstance(names, str) else tuple(names)
    dims = getattr(function, "dims", 0) or 1
    if not all(isinstance(name, str) and name for name in found) or len(set(found)) != len(found):
        raise ArgumentError("variables", "different non-empty strings", names)
    if len(found) != dims:
        expected = f"{dims} names for {function!r}" if dims > 1 else f"one name for {function!r}"
        remedy = "" if dims > 1 else "a joint density of several variables is pc.MultivariateNormal"
        raise ArgumentError("variables", expected, ", ".join(found) or "none", remedy)
    return found


class BayesNet:
    """A Bayesian network of latents, continuous or discrete, and observed variables.

    The joint density is the product of one conditional density per variable,
    ``p(x, z) = ∏ p(z_i | pa(z_i)) · ∏ p(x_j | pa(x_j))``. Parents of latents are latents. Parents of observed variables
    are latents and observed variables. Variables can be added in any order. The network as a whole is checked when it
    is used.

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
        self._inputs: dict[tuple[str, ...], Function] = {}
        self._names: set[str] = set()

    def latent(self, name: str, function: Function) -> None:
        """Add the latent ``name`` with its density given its parents.

        A function with finitely many values, such as ``pc.Discrete(3)``, makes the latent discrete, and
        ``pc.MultivariateNormal`` makes it a vector.
        """
        check_function(function)
        if not isinstance(name, str) or not name:
            raise ArgumentError("name", "a non-empty string", name)
        self._claim(name)
        self._latents[name] = function

    def observed(self, name: str | Sequence[str], function: Function) -> None:
        """Add the observed variable ``name``, or several with a joint density, given its parents.

        A parent may be a latent or an observed variable.
        """
        check_function(function)
        names = variable_names(name, function)
        self._claim(*names)
        self._inputs[names] = function

    @property
    def latents(self) -> Mapping[str, Function]:
        """The latents and their functions, in the order in which they were added."""
        return dict(self._latents)

    @property
    def inputs(self) -> Mapping[tuple[str, ...], Function]:
        """The densities of the observed variables: of one each, or of several jointly."""
        return dict(self._inputs)

    @property
    def variables(self) -> Mapping[str, Function]:
        """The observed variables and their functions, in the order in which they were added: the data's columns."""
        return {name: function for names, function in self._inputs.items() for name in names}

    @property
    def children_first(self) -> tuple[str, ...]:
        """The latents, each child before its parents: the elimination order that nested quadrature requires."""
        self.check()
        order = topological_order({name: function.parents for name, function in self._latents.items()})
        return tuple(reversed(order))

    def check(self) -> None:
        """Raise an error that names the problem if no circuit can be built from the network."""
        if not self._inputs:
            raise ArgumentError("net", "at least one observed variable", "none", "add one with net.observed(...)")
        functions = self._latents | dict(self.variables)
        for name, function in functions.items():
            for parent in function.parents:
                if parent not in functions:
                    expected, got = f"every parent of {name!r} to be in the network", f"the unknown name {parent!r}"
                    latents = ", ".join(self._latents) or "none"
                    remedy = f"add it with net.latent({parent!r}, ...); latents so far: {latents}"
                    raise ArgumentError("net", expected, got, remedy)
                if name in self._latents and parent not in self._latents:
                    expected = f"the latent {name!r} to have latent parents only"
                    remedy = (
                        "the weights of a circuit are the same for all data points, and these would depend on the "
                        f"data; let an observed variable depend on {parent!r} and {name!r} instead"
                    )
                    raise ArgumentError("net", expected, f"the observed parent {parent!r}", remedy)
        topological_order({name: function.parents for name, function in functions.items()})

    def _claim(self, *names: str) -> None:
        for name in names:
            if name in self._names:
                raise ArgumentError("name", "a name not yet in the network", name, "names are unique; choose another")
        self._names.update(names)

    def __repr__(self) -> str:
        return f"BayesNet(latents: {', '.join(self._latents)}; observed: {', '.join(self.variables)})"
