# SPDX-License-Identifier: Apache-2.0
"""From Bayesian networks, latent trees and region graphs to integral circuits.

The first half eliminates the latents of a network one by one. The second half searches for an elimination order that
keeps the number of latents in intermediate functions small.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import accumulate
from typing import Generic, TypeVar

from picirc.errors import ArgumentError
from picirc.structure.bayesnet import BayesNet, Function
from picirc.structure.regions import RegionGraph
from picirc.structure.trees import LatentTree
from picirc.symbolic.circuit import SymbolicCircuit
from picirc.symbolic.units import Factor, Input, Integral, Product, Sum, Unit

Cliques = Collection[frozenset[str]]
Item = TypeVar("Item")
FunctionOf = Callable[[int, str | None], Function]

SHARED = "g"  # the name of the latent that all functions of a tree may share


def from_bayesnet(net: BayesNet, order: Sequence[str] | None = None, prune: bool = True) -> SymbolicCircuit:
    """The circuit that eliminates the latents of ``net`` one by one (Algorithm A.1).

    The integral unit of a latent carries every conditional density that depends on it and has not been used yet. If
    children are eliminated before their parents, this is only ``p(z | pa(z))``. For any other order the further
    densities are needed for a correct result.

    Args:
        net: The network.
        order: The latents in the order of elimination; by default one that keeps intermediate functions small.
        prune: Omit barren latents. These have no observed descendant, so they integrate to one.
    """
    net.check()
    latents = _ancestors(net) if prune else net.latents
    factors, units = Buckets[Factor](), Buckets[Unit]()
    for name, function in latents.items():
        factors.add(frozenset((name, *function.parents)), Factor((name,), function))
    for names, function in net.inputs.items():
        units.add(frozenset(function.parents) & latents.keys(), Input(names, function))
    for name in _order(net, order, latents):
        (carried, densities), (below, children) = factors.take(name), units.take(name)
        units.add((carried | below) - {name}, Integral(name, _product(children), densities))
    return SymbolicCircuit(_product(units.rest()), tuple(net.variables))


def from_tree(
    tree: LatentTree, latent: FunctionOf, observed: FunctionOf, shared: Function | None = None, first: int = 0
) -> SymbolicCircuit:
    """The circuit of a latent tree: one integral unit per latent, over its inputs and its children's integrals.

    Args:
        tree: The tree. Latent ``i`` is called ``z{first + i}`` and variable ``j`` is called ``x{j}``.
        latent: ``latent(i, parent)`` gives the density of latent ``i`` given the latent called ``parent`` (None at
            the root).
        observed: ``observed(j, parent)`` gives the density of variable ``j`` given its latent.
        shared: The density of a latent ``g``, integrated last, that all other functions may depend on too.
        first: The number of the first latent, which tells the trees of a mixture apart.
    """
    others = {SHARED} if shared else set[str]()
    names = [f"z{first + i}" for i in range(tree.n_latents)]
    below: list[list[Unit]] = [
        [_checked(Input(f"x{j}", observed(j, name)), name, others) for j in variables]
        for name, variables in zip(names, tree.variables, strict=True)
    ]
    root: Unit | None = None
    for i in tree.order:
        if not below[i]:
            continue  # barren: it integrates to one
        parent = tree.parents[i]
        name = None if parent < 0 else names[parent]
        unit = _checked(Integral(names[i], _product(below[i]), latent(i, name)), name, others)
        if parent < 0:
            root = unit
        else:
            below[parent].append(unit)
    if root is None:
        raise ArgumentError("tree", "at least one observed variable", "none")
    if shared:
        root = Integral(SHARED, root, shared)
    return SymbolicCircuit(root, tuple(f"x{j}" for j in range(tree.n_variables)))


@dataclass(frozen=True)
class Open:
    """A placeholder for a function that is not known yet, such as a table or a neural net; it only has parents."""

    parents: tuple[str, ...]
    part: int = 0  # the tree of a mixture of trees; trees have parameters of their own


def from_structure(
    structure: LatentTree | RegionGraph | Sequence[LatentTree], product: str = "cp", shared: bool = False
) -> SymbolicCircuit:
    """The circuit of a latent tree or a region graph, with placeholders for its functions.

    Args:
        structure: The structure. Latent or region ``i`` is called ``z{i}`` and variable ``j`` is called ``x{j}``.
            Several trees are mixed by a sum unit; the latents of each are numbered after those before it.
        product: How a partition of a region combines its parts. ``"cp"``: each part is integrated separately, with
            ``p(z_part | z_region)``. ``"tucker"``: all parts are integrated jointly, with
            ``p(z_1, …, z_k | z_region)``.
        shared: Whether all functions of a tree depend on one more latent.
    """
    if product not in ("cp", "tucker"):
        raise ArgumentError("product", '"cp" or "tucker"', product)
    if isinstance(structure, RegionGraph):
        return from_regions(structure, product)
    if isinstance(structure, LatentTree):
        return _open_tree(structure, shared)
    starts = accumulate((tree.n_latents for tree in structure), initial=0)
    trees = [_open_tree(tree, False, *place) for tree, place in zip(structure, enumerate(starts), strict=False)]
    return SymbolicCircuit(Sum([tree.root for tree in trees], [1 / len(trees)] * len(trees)), trees[0].variables)


def _open_tree(tree: LatentTree, shared: bool, part: int = 0, first: int = 0) -> SymbolicCircuit:
    others = (SHARED,) if shared else ()

    def function(_: int, parent: str | None) -> Function:
        return Open((*others, parent) if parent else others, part)

    return from_tree(tree, function, function, Open(()) if shared else None, first)


def check_structure(structure: object) -> None:
    """Raise an error unless ``structure`` is a latent tree or a region graph."""
    if not isinstance(structure, LatentTree | RegionGraph):
        remedy = "learn one with pc.hidden_chow_liu(data), or use pc.chain, pc.quad_graph, ..."
        raise ArgumentError("structure", "a LatentTree or a RegionGraph", type(structure).__name__, remedy)


def from_regions(graph: RegionGraph, product: str) -> SymbolicCircuit:
    """The circuit of a region graph: a latent per region, a product per partition, a sum over the partitions."""
    functions: list[Unit] = []
    for region, (scope, partitions) in enumerate(zip(graph.scopes, graph.partitions, strict=True)):
        given = Open((f"z{region}",))
        if not partitions:
            functions.append(_product([Input(f"x{j}", given) for j in scope]))
            continue
        products: list[Unit] = []
        for parts in partitions:
            if product == "tucker":
                names = [f"z{part}" for part in parts]
                products.append(Integral(names, Product(*(functions[part] for part in parts)), given))
            else:
                products.append(Product(*(Integral(f"z{part}", functions[part], given) for part in parts)))
        functions.append(products[0] if len(products) == 1 else Sum(products, [1 / len(products)] * len(products)))
    root = Integral(f"z{graph.root}", functions[graph.root], Open(()))
    return SymbolicCircuit(root, tuple(f"x{j}" for j in range(graph.n_variables)))


def _checked(unit: Input | Integral, parent: str | None, others: AbstractSet[str]) -> Unit:
    """Return the unit if its function depends on ``parent`` and ``others`` only."""
    function = unit.function if isinstance(unit, Input) else unit.factors[0].function
    if set(function.parents) - {parent} - others:
        argument = "observed" if isinstance(unit, Input) else "latent"
        expected = f"a function with the parent {parent!r}" if parent else "a function without parents at the root"
        raise ArgumentError(argument, expected, f"parents {', '.join(function.parents)}")
    return unit


def _product(units: Sequence[Unit]) -> Unit:
    return units[0] if len(units) == 1 else Product(*units)


def _ancestors(net: BayesNet) -> Mapping[str, Function]:
    """The latents with an observed descendant."""
    found: set[str] = set()
    stack = [parent for function in net.inputs.values() for parent in function.parents]
    latents = net.latents
    while stack:
        name = stack.pop()
        if name in latents and name not in found:
            found.add(name)
            stack.extend(latents[name].parents)
    return {name: function for name, function in latents.items() if name in found}


def _order(net: BayesNet, order: Sequence[str] | None, latents: Mapping[str, Function]) -> Sequence[str]:
    """The latents to eliminate, in the order given or in the default one."""
    if order is None:
        densities = [frozenset((name, *function.parents)) for name, function in latents.items()]
        inputs = [frozenset(function.parents) & latents.keys() for function in net.inputs.values()]
        first = [name for name in net.children_first if name in latents]
        return default_order(tuple(latents), densities, inputs, first)
    if sorted(order) != sorted(net.latents):
        expected = f"each latent of the network once ({', '.join(net.latents)})"
        raise ArgumentError("order", expected, ", ".join(map(str, order)))
    return [name for name in order if name in latents]


def default_order(
    latents: Sequence[str], densities: Cliques, inputs: Cliques, children_first: Sequence[str]
) -> tuple[str, ...]:
    """An order that keeps the largest intermediate function small.

    Finding the best order is NP-hard, so the cheapest of three candidates is returned. If costs are equal, children
    come before parents, because each integral unit then carries one conditional density, as in the paper.

    Args:
        latents: The latents to eliminate.
        densities: For each latent, itself and its parents.
        inputs: For each observed variable, its parents.
        children_first: The latents, every child before its parents.
    """
    cliques = [*densities, *inputs]
    candidates = [tuple(children_first), _greedy(latents, cliques, _degree), _greedy(latents, cliques, _fill_in)]
    # The number of elements with 32 points per latent; the widest function dominates the sum.
    return min(candidates, key=lambda order: sum(32**width for width in widths(order, densities, inputs)))


def widths(order: Iterable[str], densities: Cliques, inputs: Cliques) -> list[int]:
    """For each latent in this order, the maximum number of latents that a tensor of its integral depends on.

    The tensors are the densities that the integral carries, the function below it, and the result.
    """
    factors, functions = Buckets[None](), Buckets[None]()
    for clique in densities:
        factors.add(clique, None)
    for clique in inputs:
        functions.add(clique, None)
    found = []
    for z in order:
        carried, below = factors.take(z)[0] | {z}, functions.take(z)[0] | {z}
        result = (carried | below) - {z}
        found.append(max(len(carried), len(below), len(result)))
        functions.add(result, None)
    return found


class Buckets(Generic[Item]):
    """Items that depend on sets of variables, in the order in which they were added, indexed by the variables."""

    def __init__(self) -> None:
        self._items: dict[int, tuple[frozenset[str], Item]] = {}
        self._where: dict[str, dict[int, None]] = {}
        self._count = 0

    def add(self, variables: frozenset[str], item: Item) -> None:
        """Add an item that depends on ``variables``."""
        self._count += 1
        self._items[self._count] = variables, item
        for z in variables:
            self._where.setdefault(z, {})[self._count] = None

    def take(self, z: str) -> tuple[frozenset[str], list[Item]]:
        """Remove and return the items that depend on ``z``, after the set of all variables that they depend on."""
        numbers = self._where.pop(z, {})
        found = [self._items.pop(number) for number in numbers]
        for number, (variables, _) in zip(numbers, found, strict=True):
            for other in variables - {z}:
                del self._where[other][number]
        return frozenset().union(*(variables for variables, _ in found)), [item for _, item in found]

    def rest(self) -> list[Item]:
        """The items that were not taken."""
        return [item for _, item in self._items.values()]


Graph = dict[str, set[str]]


def _greedy(latents: Sequence[str], cliques: Cliques, score: Callable[[Graph, str], int]) -> tuple[str, ...]:
    """Eliminate the latent with the lowest score first, and then update the scores of its neighbours."""
    graph: Graph = {z: set() for z in latents}
    for clique in cliques:
        members = clique & graph.keys()
        for z in members:
            graph[z] |= members - {z}
    rank = {z: i for i, z in enumerate(latents)}
    current = {z: score(graph, z) for z in latents}
    heap = [(current[z], rank[z], z) for z in latents]
    heapq.heapify(heap)
    order: list[str] = []
    while heap:
        value, _, z = heapq.heappop(heap)
        if z not in graph or value != current[z]:
            continue  # eliminated, or an outdated score
        order.append(z)
        around = graph.pop(z)
        for neighbour in around:  # they are now arguments of one function
            graph[neighbour] |= around - {neighbour}
            graph[neighbour].discard(z)
        for neighbour in around:
            current[neighbour] = score(graph, neighbour)
            heapq.heappush(heap, (current[neighbour], rank[neighbour], neighbour))
    return tuple(order)


def _degree(graph: Graph, z: str) -> int:
    return len(graph[z])


def _fill_in(graph: Graph, z: str) -> int:
    """Twice the number of edges that eliminating ``z`` would add."""
    around = graph[z]
    return sum(len(around - graph[neighbour]) - 1 for neighbour in around)
