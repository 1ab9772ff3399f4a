"""Orders in which latents are integrated out, and how wide the functions get on the way."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Sequence

Cliques = Collection[frozenset[str]]


def default_order(
    latents: Sequence[str], densities: Cliques, inputs: Cliques, children_first: Sequence[str]
) -> tuple[str, ...]:
    """An order that keeps the largest intermediate function small.

    Finding the best order is NP-hard; the cheapest of three is taken. An order with children before parents wins ties,
    because its integral units carry one conditional density each, as in the paper.

    Args:
        latents: The latents to eliminate.
        densities: For each latent, itself and its parents.
        inputs: For each observed variable, its parents.
        children_first: The latents, every child before its parents.
    """
    cliques = [*densities, *inputs]
    candidates = [
        tuple(children_first),
        _greedy(latents, cliques, lambda graph, z: len(graph[z])),
        _greedy(latents, cliques, _fill_in),
    ]
    # The elements needed with 32 points a latent; the widest function dominates the total.
    return min(candidates, key=lambda order: sum(32**width for width in widths(order, densities, inputs)))


def widths(order: Iterable[str], densities: Cliques, inputs: Cliques) -> list[int]:
    """For each latent in turn, the most latents that one tensor of its integral depends on.

    The tensors are the densities that the integral carries, the function below it, and the result.
    """
    factors, functions, found = _Buckets(densities), _Buckets(inputs), []
    for z in order:
        carried = frozenset((z,)).union(*factors.take(z))
        below = frozenset((z,)).union(*functions.take(z))
        result = (carried | below) - {z}
        found.append(max(len(carried), len(below), len(result)))
        functions.add(result)
    return found


class _Buckets:
    """Sets of latents that are found by their members."""

    def __init__(self, cliques: Cliques) -> None:
        self._cliques: dict[int, frozenset[str]] = {}
        self._where: dict[str, set[int]] = {}
        self._count = 0
        for clique in cliques:
            self.add(clique)

    def add(self, clique: frozenset[str]) -> None:
        self._count += 1
        self._cliques[self._count] = clique
        for z in clique:
            self._where.setdefault(z, set()).add(self._count)

    def take(self, z: str) -> list[frozenset[str]]:
        """Remove the sets with the member ``z``, and return them."""
        numbers = self._where.pop(z, set())
        found = [self._cliques.pop(number) for number in numbers]
        for other in frozenset().union(*found) - {z}:
            self._where[other] -= numbers
        return found


def _greedy(
    latents: Sequence[str], cliques: Cliques, score: Callable[[dict[str, set[str]], str], int]
) -> tuple[str, ...]:
    """Always take the latent with the lowest score; the heap is updated for the neighbours of each one taken."""
    graph = _neighbours(latents, cliques)
    rank = {z: i for i, z in enumerate(latents)}
    current = {z: score(graph, z) for z in latents}
    heap = [(current[z], rank[z], z) for z in latents]
    heapq.heapify(heap)
    order: list[str] = []
    while heap:
        value, _, z = heapq.heappop(heap)
        if z not in graph or value != current[z]:
            continue
        order.append(z)
        for neighbour in _eliminate(graph, z):
            current[neighbour] = score(graph, neighbour)
            heapq.heappush(heap, (current[neighbour], rank[neighbour], neighbour))
    return tuple(order)


def _neighbours(latents: Iterable[str], cliques: Cliques) -> dict[str, set[str]]:
    graph: dict[str, set[str]] = {z: set() for z in latents}
    for clique in cliques:
        for z in clique & graph.keys():
            graph[z] |= (clique & graph.keys()) - {z}
    return graph


def _eliminate(graph: dict[str, set[str]], z: str) -> set[str]:
    """Remove ``z`` and connect its neighbours, which now stand in one function."""
    around = graph.pop(z)
    for neighbour in around:
        graph[neighbour] |= around - {neighbour}
        graph[neighbour].discard(z)
    return around


def _fill_in(graph: dict[str, set[str]], z: str) -> int:
    around = graph[z]
    return sum(len(around - graph[neighbour]) - 1 for neighbour in around)
