# SPDX-License-Identifier: Apache-2.0
"""Topological orders: valid, stable, and honest about cycles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from picirc.errors import ArgumentError
from picirc.structure.bayesnet import topological_order


@st.composite
def acyclic(draw: st.DrawFn) -> dict[str, list[str]]:
    n = draw(st.integers(0, 12))
    hidden_order = draw(st.permutations(range(n)))
    parents: dict[int, list[int]] = {}
    for position, node in enumerate(hidden_order):
        parents[node] = [p for p in hidden_order[:position] if draw(st.booleans())]
    inserted = draw(st.permutations(range(n)))
    return {str(node): [str(p) for p in parents[node]] for node in inserted}


@given(acyclic())
def test_every_next_node_is_the_first_inserted_one_that_is_ready(parents: dict[str, list[str]]) -> None:
    order: list[str] = []
    while len(order) < len(parents):
        order.append(next(n for n in parents if n not in order and set(parents[n]) <= set(order)))
    assert topological_order(parents) == order


def test_a_valid_insertion_order_is_kept() -> None:
    assert topological_order({"a": [], "b": ["a"], "c": [], "d": ["b", "c"]}) == ["a", "b", "c", "d"]


def test_a_parent_named_twice_is_one_parent() -> None:
    assert topological_order({"b": ["a", "a"], "a": []}) == ["a", "b"]


def test_a_long_chain_needs_no_recursion() -> None:
    n = 20_000
    parents = {str(i): [str(i + 1)] if i + 1 < n else [] for i in range(n)}
    assert topological_order(parents) == [str(i) for i in reversed(range(n))]


@pytest.mark.parametrize(
    ("parents", "cycle"),
    [
        ({"a": ["a"]}, "a → a"),
        ({"a": ["b"], "b": ["a"]}, "a → b → a"),
        ({"root": [], "x": ["y"], "y": ["z", "root"], "z": ["x"], "below": ["x"]}, "y → x → z → y"),
        ({"below": ["b"], "b": ["a"], "a": ["b"]}, "b → a → b"),
    ],
)
def test_the_message_names_the_cycle_from_parent_to_child(parents: dict[str, list[str]], cycle: str) -> None:
    with pytest.raises(ArgumentError, match=rf"the cycle {cycle}\."):
        topological_order(parents)


def test_unknown_parents_are_named() -> None:
    with pytest.raises(ArgumentError, match=r"'a' that are nodes, got nobody"):
        topological_order({"a": ["nobody"]})
