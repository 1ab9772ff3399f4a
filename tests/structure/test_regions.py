# SPDX-License-Identifier: Apache-2.0
"""Region graphs against brute force, and the constructors against what they promise."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from picirc.errors import ArgumentError
from picirc.structure.regions import RegionGraph, quad_graph, quad_tree, random_regions

sides = st.integers(1, 9)


@st.composite
def graphs(draw: st.DrawFn) -> RegionGraph:
    n, seed = draw(st.integers(1, 9)), draw(st.integers(0, 3))
    return draw(
        st.sampled_from(
            [
                quad_tree(n, seed + 1),
                quad_graph(n, seed + 1),
                random_regions(n, seed, repetitions=seed + 1),
                random_regions(n, seed, repetitions=2, depth=seed),
            ]
        )
    )


def trees(graph: RegionGraph, region: int) -> Iterator[frozenset]:
    """Every way to decompose a region down to its leaves, as a set of nested scopes."""
    if not graph.partitions[region]:
        yield frozenset([graph.scopes[region]])
    for partition in graph.partitions[region]:
        for parts in itertools.product(*(list(trees(graph, child)) for child in partition)):
            yield frozenset([graph.scopes[region]]).union(*parts)


def longest(graph: RegionGraph, region: int) -> int:
    return max((1 + longest(graph, c) for way in graph.partitions[region] for c in way), default=0)


def splits(graph: RegionGraph) -> list[tuple[tuple[int, ...], frozenset[tuple[int, ...]]]]:
    return [
        (scope, frozenset(graph.scopes[child] for child in way))
        for scope, ways in zip(graph.scopes, graph.partitions, strict=True)
        for way in ways
    ]


@given(graphs())
def test_properties_follow_their_definitions(graph: RegionGraph) -> None:
    assert graph.scopes[graph.root] == tuple(range(graph.n_variables))
    assert graph.leaves == tuple(r for r in range(len(graph.scopes)) if graph.partitions[r] == ())
    assert graph.heights == tuple(longest(graph, region) for region in range(len(graph.scopes)))
    assert graph.depth == longest(graph, graph.root)
    conflict = any(
        scope == other and way != another for (scope, way), (other, another) in itertools.combinations(splits(graph), 2)
    )
    assert graph.structured_decomposable == (not conflict)


@given(graphs())
def test_constructors_give_every_region_once(graph: RegionGraph) -> None:
    assert len(set(graph.scopes)) == len(graph.scopes)
    for ways in graph.partitions:
        assert len({frozenset(way) for way in ways}) == len(ways)


@given(sides, sides)
def test_quad_trees_split_in_one_way_down_to_pixels(height: int, width: int) -> None:
    graph = quad_tree(height, width)
    assert graph.is_tree
    assert graph.structured_decomposable
    assert len(graph.scopes) == 2 * height * width - 1
    assert [graph.scopes[leaf] for leaf in graph.leaves] == [(i,) for i in range(height * width)]
    assert graph.depth == (height - 1).bit_length() + (width - 1).bit_length()


@given(st.integers(1, 4), st.integers(1, 4))
def test_quad_graphs_hold_the_same_quadrants_whichever_way_is_taken(height: int, width: int) -> None:
    graph = quad_graph(height, width)
    assert [graph.scopes[leaf] for leaf in graph.leaves] == [(i,) for i in range(height * width)]
    block = {
        tuple(r * width + c for r in range(top, min(top + s, height)) for c in range(left, min(left + s, width)))
        for s in (1, 2, 4)
        for top in range(0, height, s)
        for left in range(0, width, s)
    }
    assert block <= set(graph.scopes)
    for way in set(trees(graph, graph.root)):
        assert block <= way


@given(st.integers(0, 4))
def test_quad_graphs_of_powers_of_two_have_the_number_of_regions_that_counting_gives(power: int) -> None:
    side = 2**power
    graph = quad_graph(side, side)
    larger_blocks = sum(4**k for k in range(power))
    assert len(graph.scopes) == side**2 + 5 * larger_blocks  # the block itself and its four halves
    assert sum(map(len, graph.partitions)) == 6 * larger_blocks  # two of the block, one of each half
    assert graph.depth == 2 * power


@given(sides, sides)
def test_quad_graphs_of_any_size_reach_down_to_pixels(height: int, width: int) -> None:
    graph = quad_graph(height, width)
    assert [graph.scopes[leaf] for leaf in graph.leaves] == [(i,) for i in range(height * width)]
    for scope, ways in zip(graph.scopes, graph.partitions, strict=True):
        rows, columns = {v // width for v in scope}, {v % width for v in scope}
        assert len(scope) == len(rows) * len(columns)  # rectangles all
        assert len(ways) <= 2
    assert graph.depth == (height - 1).bit_length() + (width - 1).bit_length()


def test_a_transposed_image_has_the_transposed_quad_graph() -> None:
    graph, transposed = quad_graph(5, 3), quad_graph(3, 5)
    moved = {tuple(sorted(v % 3 * 5 + v // 3 for v in scope)) for scope in graph.scopes}
    assert moved == set(transposed.scopes)


def test_two_by_two_in_full() -> None:
    graph = quad_graph(2, 2)
    assert set(splits(graph)) == {
        ((0, 1), frozenset({(0,), (1,)})),
        ((2, 3), frozenset({(2,), (3,)})),
        ((0, 2), frozenset({(0,), (2,)})),
        ((1, 3), frozenset({(1,), (3,)})),
        ((0, 1, 2, 3), frozenset({(0, 1), (2, 3)})),
        ((0, 1, 2, 3), frozenset({(0, 2), (1, 3)})),
    }
    assert not graph.structured_decomposable
    assert not graph.is_tree


def test_an_odd_image_is_clipped_not_padded() -> None:
    graph = quad_graph(3, 3)
    top, bottom = (0, 1, 2, 3, 4, 5), (6, 7, 8)
    left, right = (0, 1, 3, 4, 6, 7), (2, 5, 8)
    ways = [way for scope, way in splits(graph) if len(scope) == 9]
    assert ways == [frozenset({top, bottom}), frozenset({left, right})]
    assert (bottom, frozenset({(6, 7), (8,)})) in splits(graph)
    assert (right, frozenset({(2, 5), (8,)})) in splits(graph)


def test_images_of_28_by_28() -> None:
    tree, graph = quad_tree(28, 28), quad_graph(28, 28)
    assert (len(tree.scopes), tree.depth) == (1567, 10)
    # Blocks of sides 2, 4, 8, 16, 32: 14², 7², 4², 2², 1². Those of side 8 on the lower and right rim are
    # clipped to 4 pixels, which leaves a half empty and no second way to split.
    assert graph.n_variables == len(graph.leaves) == 784
    assert graph.depth == 10
    sizes = [len(ways) for ways in graph.partitions]
    assert sizes.count(2) == 14**2 + 7**2 + 3**2 + 2**2 + 1
    assert len(graph.partitions[graph.root]) == 2
    assert {len(graph.scopes[child]) for way in graph.partitions[graph.root] for child in way} == {
        16 * 28,
        12 * 28,
    }


@given(st.integers(1, 40), st.integers(1, 4), st.integers(0, 3))
def test_random_regions_halve(n: int, repetitions: int, seed: int) -> None:
    graph = random_regions(n, seed, repetitions)
    assert graph == random_regions(n, np.random.default_rng(seed), repetitions)
    assert graph.depth == (n - 1).bit_length()
    assert [graph.scopes[leaf] for leaf in graph.leaves] == [(i,) for i in range(n)]
    assert len(graph.partitions[graph.root]) <= repetitions
    for ways in graph.partitions:
        for way in ways:
            first, second = (len(graph.scopes[child]) for child in way)
            assert abs(first - second) <= 1
    if repetitions == 1:
        assert graph.is_tree
        assert len(graph.scopes) == 2 * n - 1


def test_every_repetition_gives_the_root_a_partition() -> None:
    graph = random_regions(30, seed=0, repetitions=7)
    assert len(graph.partitions[graph.root]) == 7
    assert random_regions(30, seed=1) != random_regions(30, seed=2)


def test_equal_partitions_are_kept_once() -> None:
    graph = random_regions(2, seed=0, repetitions=5)
    assert graph.scopes == ((0,), (1,), (0, 1))
    assert len(graph.partitions[graph.root]) == 1


@given(st.integers(1, 40), st.integers(0, 7))
def test_depth_ends_the_splitting(n: int, depth: int) -> None:
    graph = random_regions(n, 0, repetitions=2, depth=depth)
    assert graph.depth == min(depth, (n - 1).bit_length())
    for leaf in graph.leaves:
        assert len(graph.scopes[leaf]) in {1, n // 2**depth, -(-n // 2**depth)}


def test_regions_with_one_scope_must_agree_to_be_structured() -> None:
    leaves = ((0,), (1,), (2,))
    agreeing = RegionGraph(
        scopes=(*leaves, (0, 1), (0, 1), (0, 1, 2)),
        partitions=((), (), (), ((0, 1),), ((1, 0),), ((3, 2), (4, 2))),
    )
    assert agreeing.structured_decomposable
    assert not agreeing.is_tree
    differing = RegionGraph(
        scopes=(*leaves, (0, 1), (1, 2), (0, 1, 2)),
        partitions=((), (), (), ((0, 1),), ((1, 2),), ((3, 2), (0, 4))),
    )
    assert not differing.structured_decomposable


def test_hand_made_leaves_may_have_several_variables() -> None:
    graph = RegionGraph([[0, 2], [1], [0, 1, 2]], [[], [], [[0, 1]]])  # type: ignore[arg-type]
    assert graph.leaves == (0, 1)
    assert graph.n_variables == 3
    assert hash(graph) == hash(RegionGraph(((0, 2), (1,), (0, 1, 2)), ((), (), ((0, 1),))))


@pytest.mark.parametrize(
    ("scopes", "partitions", "message"),
    [
        ((), (), "0 scopes"),
        (((0,),), (), "1 scopes and 0 tuples"),
        (((),), ((),), r"got \(\) for region 0"),
        (((1, 0),), ((),), r"got \(1, 0\) for region 0"),
        (((0, 0),), ((),), r"got \(0, 0\) for region 0"),
        (((0, 2),), ((),), r"covers 0\.\.D-1, got \(0, 2\)"),
        (((-1, 0),), ((),), "scopes: expected a"),
        (((0,), (1,), (0, 1)), ((), (), ((0,),)), "two or more of the regions before region 2"),
        (((0,), (0, 1)), ((), ((0, 1),)), "regions before region 1.*put children before parents"),
        (((0,), (1,), (0, 1)), ((), (), ((0, 7),)), "regions before region 2"),
        (((0,), (1,), (0, 1)), ((), (), ((0, 0),)), r"make up \(0, 1\).*got \(0,\) and \(0,\)"),
        (((0,), (0, 1), (0, 1)), ((), (), ((0, 1),)), "disjoint regions"),
        (((0,), (1,), (0, 1, 2)), ((), (), ((0, 1),)), r"make up \(0, 1, 2\)"),
        (((0,), (1,), (0,), (0, 1)), ((), (), (), ((0, 1),)), "region 2 unused"),
        ((tuple(range(1, 21)),), ((),), "and 8 more"),
    ],
)
def test_malformed_graphs_are_refused(scopes: tuple, partitions: tuple, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        RegionGraph(scopes, partitions)


@pytest.mark.parametrize("wrong", [0, -2, 1.5, None])
def test_sizes_are_whole_and_positive(wrong: object) -> None:
    for argument, make in {
        "height": lambda: quad_tree(wrong, 2),
        "width": lambda: quad_graph(2, wrong),
        "n": lambda: random_regions(wrong, 0),
        "repetitions": lambda: random_regions(2, 0, wrong),
    }.items():
        with pytest.raises(ArgumentError, match=f"{argument}: expected a positive integer"):
            make()
    with pytest.raises(ArgumentError, match="depth: expected a non-negative integer"):
        random_regions(4, 0, depth=-1)
