# SPDX-License-Identifier: Apache-2.0
"""Chow–Liu trees: the heaviest tree by enumeration, and known trees from their own samples."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from picirc.errors import ArgumentError
from picirc.structure.information import mutual_information
from picirc.structure.trees import LatentTree, hidden_chow_liu, maximum_spanning_tree, random_tree

nan = np.nan


def chow_liu(X: np.ndarray | list[list[int]], chunk: int = 2**23) -> list[tuple[int, int]]:
    return maximum_spanning_tree(mutual_information(X, chunk=chunk))


def edges_of(tree: LatentTree) -> list[tuple[int, int]]:
    return sorted((min(e), max(e)) for e in enumerate(tree.parents) if e[1] >= 0)


def is_tree(edges: tuple[tuple[int, int], ...], n: int) -> bool:
    component = list(range(n))
    for a, b in edges:
        component = [component[a] if c == component[b] else c for c in component]
    return len(set(component)) == 1


def binary_samples(tree: LatentTree, n: int, seed: int) -> np.ndarray:
    """A binary variable per latent that copies its parent's three times in four."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 2, (n, tree.n_latents))
    for latent in reversed(tree.order[:-1]):
        X[:, latent] = X[:, tree.parents[latent]] ^ (rng.random(n) < 0.25)
    return X


def gaussian_samples(tree: LatentTree, n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, tree.n_latents))
    for latent in reversed(tree.order[:-1]):
        X[:, latent] += rng.choice([-0.8, 0.8]) * X[:, tree.parents[latent]]
    return X


@given(st.integers(1, 5), st.data())
def test_the_spanning_tree_is_the_heaviest_of_all(n: int, data: st.DataObject) -> None:
    pairs = list(itertools.combinations(range(n), 2))
    values = data.draw(st.lists(st.integers(-3, 3), min_size=len(pairs), max_size=len(pairs)))
    weights = np.zeros((n, n))
    for (i, j), value in zip(pairs, values, strict=True):
        weights[i, j] = weights[j, i] = value
    edges = maximum_spanning_tree(weights)
    every = [edges for edges in itertools.combinations(pairs, n - 1) if is_tree(edges, n)]
    assert tuple(edges) in every
    assert sum(weights[e] for e in edges) == max(sum(weights[e] for e in tree) for tree in every)


def test_ties_go_to_the_first_pair() -> None:
    assert maximum_spanning_tree(np.zeros((4, 4))) == [(0, 1), (0, 2), (0, 3)]
    noise = np.random.default_rng(0).normal(size=(4, 4)) * 1e-13
    assert maximum_spanning_tree(1 + noise + noise.T) == [(0, 1), (0, 2), (0, 3)]


@pytest.mark.parametrize("weights", [[1.0], [[1.0, 2.0]], [[0, 1], [2, 0]], [[0, nan], [nan, 0]], np.zeros((0, 0))])
def test_weights_are_a_symmetric_matrix(weights: object) -> None:
    with pytest.raises(ArgumentError, match="weights: expected a"):
        maximum_spanning_tree(weights)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("samples", [binary_samples, gaussian_samples])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_a_tree_is_recovered_from_its_own_samples(seed: int, samples, missing: float) -> None:
    tree = random_tree(15, seed)
    X = samples(tree, 5000, seed).astype(float)
    X[np.random.default_rng(seed).random(X.shape) < missing] = nan
    assert chow_liu(X) == edges_of(tree)
    assert hidden_chow_liu(X) == tree


def test_a_tree_is_recovered_from_columns_of_many_kinds() -> None:
    tree = random_tree(12, 0)
    X = gaussian_samples(tree, 5000, 0)
    X[:, ::3] = np.round(X[:, ::3] * 50)  # ordinal
    X[:, 1::3] = np.floor(X[:, 1::3])  # categorical
    assert chow_liu(X) == edges_of(tree)


@given(st.permutations(range(9)))
def test_permuted_columns_permute_the_tree(order: list[int]) -> None:
    X = np.random.default_rng(5).integers(0, 4, (50, 9))
    moved = chow_liu(X[:, order])
    assert sorted(tuple(sorted((order[i], order[j]))) for i, j in moved) == chow_liu(X)


@pytest.mark.parametrize("chunk", [1, 100, 10_000])
def test_chunks_change_nothing_even_with_ties(chunk: int) -> None:
    X = np.random.default_rng(0).integers(0, 5, (60, 6))
    X = np.concatenate([X, X[:, ::-1], np.ones((60, 2), int)], axis=1)
    assert chow_liu(X, chunk=chunk) == chow_liu(X)


def test_degenerate_columns_still_make_a_tree() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=50)
    X = np.column_stack([np.full(50, nan), x, np.zeros(50), x, rng.integers(0, 300, 50)])
    edges = chow_liu(X)
    assert is_tree(tuple(edges), 5)
    assert (1, 3) in edges
    assert hidden_chow_liu(X).n_variables == 5


def test_one_column_is_a_tree() -> None:
    assert chow_liu([[1], [0]]) == []
    assert hidden_chow_liu([[1], [0]]) == LatentTree((-1,), ((0,),))


def test_the_root_is_the_centre_or_the_column_asked_for() -> None:
    X = np.cumsum(np.random.default_rng(0).normal(size=(500, 7)), axis=1)
    assert hidden_chow_liu(X).root == 3
    assert hidden_chow_liu(X, root="centre").root == 3
    assert hidden_chow_liu(X, root=0).parents == (-1, 0, 1, 2, 3, 4, 5)
    for root in ("center", 7, -1):
        with pytest.raises(ArgumentError, match="root: expected"):
            hidden_chow_liu(X, root=root)  # type: ignore[arg-type]


def test_arguments_reach_the_mutual_information() -> None:
    X = [[0, 1], [1, 0]]
    for arguments in ({"bins": 1}, {"smoothing": -1}, {"chunk": 0}, {"columns": "?"}):
        with pytest.raises(ArgumentError, match=next(iter(arguments))):
            hidden_chow_liu(X, **arguments)


def test_groups_hang_together_on_the_strongest_pair():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 2000))
    # 0 and 3 are alike, 1 and 4 are; 2 depends on 4 alone.
    table = np.stack([a, b, b + 0.5 * rng.normal(size=2000), a, b], 1) + 0.1 * rng.normal(size=(2000, 5))
    tree = hidden_chow_liu(table, groups=[(3, 0), (2,), (1, 4)])
    assert tree.variables == ((0, 3), (2,), (1, 4))
    assert {frozenset(edge) for edge in enumerate(tree.parents) if edge[1] >= 0} >= {frozenset((1, 2))}
    single = hidden_chow_liu(table, groups=[(0, 1, 2, 3, 4)])
    assert (single.parents, single.variables) == ((-1,), ((0, 1, 2, 3, 4),))
    alone = hidden_chow_liu(table, groups=[(i,) for i in range(5)])
    assert alone == hidden_chow_liu(table)


@pytest.mark.parametrize("groups", [[(0, 1)], [(0, 1, 2, 2)], [(0, 1, 2), ()], [(0, 1), (2, 5)], [0, 1, 2]])
def test_groups_have_every_column_once(groups):
    with pytest.raises(ArgumentError, match="groups"):
        hidden_chow_liu(np.eye(3), groups=groups)
