"""Orders in which latents are integrated out, and how wide the functions get on the way."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Sequence

Cliques = Collection[frozenset[str]]


def default_order(latents: Sequence[str], cliques: Cliques, children_first: Sequence[str]) -> tuple[str, ...]:
    """An order that keeps the largest intermediate function small.

    Finding the best order is NP-hard; the cheapest of three is taken. An order with children before parents wins ties,
    because its integral units carry one conditional density each, as in the paper.

    Args:
        latents: The latents to eliminate.
        cliques: The sets of latents that stand in one factor together.
        children_first: The latents, every child before its parents.
    """
    candidates = [
        tuple(children_first),
        _greedy(latents, cliques, lambda graph, z: len(graph[z])),
        _greedy(latents, cliques, _fill_in),
    ]
    return min(candidates, key=lambda order: _expense(order, cliques))


def widths(order: Iterable[str], cliques: Cliques) -> list[int]:
    """For each latent in turn, how many latents the function under its integral depends on, itself included."""
    graph = _neighbours(order, cliques)
    return [1 + len(_eliminate(graph, z)) for z in order]


def _expense(order: Sequence[str], cliques: Cliques) -> int:
    # The elements needed with 32 points a latent; the widest function dominates the total.
    return sum(32**width for width in widths(order, cliques))


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
