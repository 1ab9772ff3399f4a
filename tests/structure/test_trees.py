# SPDX-License-Identifier: Apache-2.0
"""Latent trees against brute force: every property from its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from picirc.errors import ArgumentError
from picirc.structure.trees import LatentTree, chain, random_tree


@st.composite
def edge_lists(draw: st.DrawFn) -> list[tuple[int, int]]:
    n = draw(st.integers(1, 12))
    labels = draw(st.permutations(range(n)))
    return [(labels[node], labels[draw(st.integers(0, node - 1))]) for node in range(1, n)]


def distances(tree: LatentTree) -> np.ndarray:
    """Numbers of edges between all pairs of latents, by Floyd and Warshall."""
    n = tree.n_latents
    distance = np.full((n, n), n)
    np.fill_diagonal(distance, 0)
    for child, parent in enumerate(tree.parents):
        if parent >= 0:
            distance[child, parent] = distance[parent, child] = 1
    for k in range(n):
        distance = np.minimum(distance, distance[:, [k]] + distance[[k]])
    return distance


def edge_set(tree: LatentTree) -> set[frozenset[int]]:
    return {frozenset((child, parent)) for child, parent in enumerate(tree.parents) if parent >= 0}


def subtree(tree: LatentTree, latent: int) -> set[int]:
    return {latent}.union(*(subtree(tree, child) for child in tree.children[latent]))


@given(edge_lists())
def test_properties_follow_their_definitions(edges: list[tuple[int, int]]) -> None:
    tree = LatentTree.from_edges(edges)
    distance = distances(tree)
    assert tree.n_latents == tree.n_variables == len(edges) + 1
    assert tree.parents[tree.root] == -1
    for latent in range(tree.n_latents):
        assert tree.children[latent] == tuple(k for k, p in enumerate(tree.parents) if p == latent)
        assert tree.heights[latent] == max(distance[latent, below] for below in subtree(tree, latent))
    assert tree.depth == distance[tree.root].max()
    assert sorted(tree.order) == list(range(tree.n_latents))
    for latent, parent in enumerate(tree.parents):
        assert parent == -1 or tree.order.index(latent) < tree.order.index(parent)


@given(edge_lists())
def test_from_edges_keeps_the_edges_and_hangs_from_the_centre(edges: list[tuple[int, int]]) -> None:
    tree = LatentTree.from_edges(edges)
    assert edge_set(tree) == {frozenset(edge) for edge in edges}
    assert tree.variables == tuple((i,) for i in range(tree.n_latents))
    eccentricity = distances(tree).max(axis=1)
    assert tree.root == np.flatnonzero(eccentricity == eccentricity.min())[0]


@given(edge_lists(), st.data())
def test_reroot_changes_the_root_alone(edges: list[tuple[int, int]], data: st.DataObject) -> None:
    tree = LatentTree.from_edges(edges)
    root = data.draw(st.integers(0, tree.n_latents - 1))
    moved = tree.reroot(root)
    assert moved.root == root
    assert edge_set(moved) == edge_set(tree)
    assert moved.variables == tree.variables
    assert moved == LatentTree.from_edges(edges, root=root)
    assert moved.reroot() == tree


def test_variables_may_be_none_one_or_several() -> None:
    tree = LatentTree([-1, 0, 0], [[], [2, 0], [np.int64(1)]])  # type: ignore[arg-type]
    assert tree == LatentTree((-1, 0, 0), ((), (2, 0), (1,)))
    assert hash(tree) == hash(LatentTree((-1, 0, 0), ((), (2, 0), (1,))))
    assert (tree.n_latents, tree.n_variables) == (3, 3)
    assert tree.reroot(1).variables == tree.variables


def test_a_chain_is_a_hidden_markov_model() -> None:
    tree = chain(4)
    assert tree.parents == (-1, 0, 1, 2)
    assert tree.variables == ((0,), (1,), (2,), (3,))
    assert tree.heights == (3, 2, 1, 0)
    assert chain(1) == LatentTree((-1,), ((0,),))


def test_long_chains_need_no_recursion() -> None:
    n = 5_000
    tree = chain(n)
    assert tree.order == tuple(reversed(range(n)))
    assert tree.depth == n - 1
    assert tree.reroot().depth == n // 2
    assert tree.reroot(n - 1).heights == tuple(range(n))


@given(st.integers(1, 40), st.integers(0, 5))
def test_random_trees_depend_on_the_seed_alone(n: int, seed: int) -> None:
    tree = random_tree(n, seed)
    assert tree == random_tree(n, np.random.default_rng(seed))
    assert tree.n_variables == n
    assert tree == tree.reroot()


@given(st.integers(2, 40), st.data())
def test_random_trees_have_the_depth_asked_for(n: int, data: st.DataObject) -> None:
    depth = data.draw(st.integers(1, n // 2))
    tree = random_tree(n, seed=1, depth=depth)
    assert tree.depth == depth
    assert tree == tree.reroot()


def test_random_trees_differ_from_seed_to_seed() -> None:
    assert len({random_tree(20, seed) for seed in range(10)}) == 10
    assert len({random_tree(20, seed, depth=4) for seed in range(10)}) == 10


@pytest.mark.parametrize(
    ("parents", "variables", "message"),
    [
        ((), (), "exactly one root, marked -1, got 0 roots"),
        ((-1, -1), ((0,), (1,)), r"got 2 roots \[0, 1\]"),
        ((-1, 5), ((0,), (1,)), "5 as the parent of latent 1"),
        ((-1, -2), ((0,), (1,)), "parents: expected a"),
        ((-1, 0.5), ((0,), (1,)), "parents: expected a"),
        ((-1, 2, 1), ((0,), (1,), (2,)), "the cycle 1 → 2 → 1"),
        ((-1, 1), ((0,), (1,)), "the cycle 1 → 1"),
        ((-1, 0), ((0,),), "1 tuples of variables for 2 latents"),
        ((-1, 0), ((0,), (0,)), "0 twice"),
        ((-1, 0), ((0,), (2,)), "2 but not 1"),
        ((-1, 0), ((0,), (True,)), "variables: expected a"),
        ((-1, 0), ((0,), ()), "latent 1 with neither"),
    ],
)
def test_malformed_trees_are_refused(parents: tuple, variables: tuple, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        LatentTree(parents, variables)


@pytest.mark.parametrize(
    ("edges", "root", "message"),
    [
        ([(0, 1), (1, 3)], None, r"pairs of nodes 0\.\.2.*got \(1, 3\)"),
        ([(0, 1, 2)], None, "pairs of nodes"),
        ([()], None, "pairs of nodes"),
        ([(0, 0)], None, "no path between nodes 0 and 1"),
        ([(0, 1), (1, 0)], None, "no path between nodes 0 and 2"),
        ([(0, 1), (1, 2), (2, 0)], None, "no path between nodes 0 and 3"),
        ([(0, 1)], 2, r"root: expected a node of the tree, 0\.\.1, got 2"),
        ([(0, 1)], -1, "root: expected a"),
    ],
)
def test_edges_that_are_no_tree_are_refused(edges: list, root: int | None, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        LatentTree.from_edges(edges, root)


@pytest.mark.parametrize("depth", [0, 6, 2.0])
def test_impossible_depths_are_refused(depth: float) -> None:
    with pytest.raises(ArgumentError, match="depth: expected"):
        random_tree(10, 0, depth=depth)  # type: ignore[arg-type]


def test_sizes_are_whole_and_positive() -> None:
    for make in (chain, lambda n: random_tree(n, 0)):
        for n in (0, -1, 1.5, "3", True):
            with pytest.raises(ArgumentError, match="n: expected a positive integer"):
                make(n)  # type: ignore[arg-type]
