# SPDX-License-Identifier: Apache-2.0
"""Directed acyclic graphs, given as the parents of every node."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

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
