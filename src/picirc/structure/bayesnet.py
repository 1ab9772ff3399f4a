# SPDX-License-Identifier: Apache-2.0
"""Bayesian networks with continuous and discrete latents, written by hand, and the order of directed graphs."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Protocol

from picirc.errors import ArgumentError


def topological_order(parents: Mapping[str, Sequence[str]]) -> list[str]:
    """Order the nodes of a directed acyclic graph so that parents come before their children.

    Among the nodes whose parents are all placed, the one that was inserted first comes next. A mapping that is
    already in order therefore keeps its order.

    Args:
        parents: The parents of every node; every parent is itself a key.

    Returns:
        Every key once.

    Raises:
        ArgumentError: A parent is not a key, or the graph has a cycle, which the message lists.

    Example:
        >>> topological_order({"rain": [], "wet": ["rain", "sprinkler"], "sprinkler": ["rain"]})
        ['rain', 'sprinkler', 'wet']
    """
    names = list(parents)
    index = {name: i for i, name in enumerate(names)}
    children: dict[str, list[str]] = {name: [] for name in names}
    waiting: dict[str, int] = {}
    for name in names:
        distinct = dict.fromkeys(parents[name])
        for parent in distinct:
            if parent not in index:
                raise ArgumentError("parents", f"parents of {name!r} that are nodes", parent, "declare it too")
            children[parent].append(name)
        waiting[name] = len(distinct)

    ready = [i for i, name in enumerate(names) if waiting[name] == 0]  # sorted, hence a heap
    order: list[str] = []
    while ready:
        name = names[heapq.heappop(ready)]
        order.append(name)
        for child in children[name]:
            waiting[child] -= 1
            if waiting[child] == 0:
                heapq.heappush(ready, index[child])
    if len(order) < len(names):
        cycle = _cycle(parents, [name for name in names if waiting[name] > 0])
        raise ArgumentError("parents", "an acyclic graph", f"the cycle {' → '.join(cycle)}")
    return order


def _cycle(parents: Mapping[str, Sequence[str]], stuck: Sequence[str]) -> list[str]:
    """Return a cycle among ``stuck``, in which every node has a parent; the first node is repeated at the end."""
    members = set(stuck)
    path: dict[str, None] = {}
    node = stuck[0]
    while node not in path:
        path[node] = None
        node = next(parent for parent in parents[node] if parent in members)
    walked = list(path)
    cycle = walked[walked.index(node) :][::-1]  # the walk went from child to parent
    rank = {name: i for i, name in enumerate(stuck)}
    start = cycle.index(min(cycle, key=rank.__getitem__))
    return [*cycle[start:], *cycle[: start + 1]]


class Function(Protocol):
    """A conditional density, of which the structure only needs the parents."""

    @property
    def parents(self) -> tuple[str, ...]:
        """The names of what it is conditioned on."""


def check_function(function: object) -> None:
    """Raise an error unless ``function`` has parents, as the function of a variable or a unit must."""
    if not isinstance(getattr(function, "parents", None), tuple):
        remedy = "use pc.LinearGaussian, pc.Conditional, pc.Discrete, pc.MultivariateNormal or pc.Density"
        raise ArgumentError("function", "a conditional density with a tuple of parents", function, remedy)


def variable_names(names: str | Sequence[str], function: Function) -> tuple[str, ...]:
    """Check the names of observed variables: one, or as many as the function is a joint density of."""
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
        self._variables: dict[str, Function] = {}

    def latent(self, name: str, function: Function) -> None:
        """Add the latent ``name`` with its density given its parents.

        A function with finitely many values, such as ``pc.Discrete(3)``, makes it discrete, and
        ``pc.MultivariateNormal`` makes it a vector.
        """
        check_function(function)
        (fresh,) = self._fresh(name)
        self._latents[fresh] = function

    def observed(self, name: str | Sequence[str], function: Function) -> None:
        """Add the observed variable ``name``, or several with a joint density, with its density given its parents.

        A parent may be a latent or an observed variable.
        """
        check_function(function)
        names = self._fresh(*variable_names(name, function))
        self._inputs[names] = function
        self._variables.update(dict.fromkeys(names, function))

    @property
    def latents(self) -> Mapping[str, Function]:
        """The latents and their functions, in the order in which they were added."""
        return dict(self._latents)

    @property
    def variables(self) -> Mapping[str, Function]:
        """The observed variables and their functions, in the order of the data's columns: that of their addition."""
        return dict(self._variables)

    @property
    def inputs(self) -> Mapping[tuple[str, ...], Function]:
        """The densities of the observed variables: of each by itself, or of several jointly."""
        return dict(self._inputs)

    @property
    def children_first(self) -> tuple[str, ...]:
        """The latents, each child before its parents: the elimination order that nested quadrature requires."""
        self.check()
        order = topological_order({name: function.parents for name, function in self._latents.items()})
        return tuple(reversed(order))

    def check(self) -> None:
        """Raise an error that names the problem if no circuit can be built from the network."""
        observed = self.variables
        if not observed:
            raise ArgumentError("net", "at least one observed variable", "none", "add one with net.observed(...)")
        for name, function in {**self._latents, **observed}.items():
            for parent in function.parents:
                self._check_parent(name, parent, observed)
        topological_order({name: function.parents for name, function in {**self._latents, **observed}.items()})

    def _check_parent(self, name: str, parent: str, observed: Mapping[str, Function]) -> None:
        if parent in observed and name in self._latents:
            raise ArgumentError(
                "net",
                f"the latent {name!r} to have latent parents only",
                f"the observed parent {parent!r}",
                "the weights of a circuit are the same for all data points, and these would depend on the data; "
                f"let an observed variable depend on {parent!r} and {name!r} instead",
            )
        if parent not in self._latents and parent not in observed:
            raise ArgumentError(
                "net",
                f"every parent of {name!r} to be in the network",
                f"the unknown name {parent!r}",
                f"add it with net.latent({parent!r}, ...); latents so far: {', '.join(self._latents) or 'none'}",
            )

    def _fresh(self, *names: str) -> tuple[str, ...]:
        for name in names:
            if not isinstance(name, str) or not name:
                raise ArgumentError("name", "a non-empty string", name)
            if name in self._latents or name in self._variables:
                raise ArgumentError("name", "a name not yet in the network", name, "names are unique; choose another")
        return names

    def __repr__(self) -> str:
        return f"BayesNet(latents: {', '.join(self._latents)}; observed: {', '.join(self.variables)})"
