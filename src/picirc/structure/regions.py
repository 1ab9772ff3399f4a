# SPDX-License-Identifier: Apache-2.0
"""Region graphs: sets of variables, and alternative partitions of each set into smaller ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from picirc.checks import check_integer
from picirc.errors import ArgumentError

Scope = tuple[int, ...]
Partition = tuple[int, ...]
Rectangle = tuple[int, int, int, int]  # top, bottom, left, right; bottom and right are exclusive


@dataclass(frozen=True)
class RegionGraph:
    """Regions, each a set of variables, and the partitions that split them into smaller regions.

    Args:
        scopes: The variables of each region in ascending order. Children come before parents. The last region is the
            root, which covers 0..D-1.
        partitions: The alternative partitions of each region. Each is a tuple of two or more regions; a leaf region
            has none, ``()``.

    Example:
        >>> graph = RegionGraph(scopes=((0,), (1,), (0, 1)), partitions=((), (), ((0, 1),)))
        >>> graph.root, graph.leaves, graph.depth, graph.is_tree
        (2, (0, 1), 1, True)
    """

    scopes: tuple[Scope, ...]
    partitions: tuple[tuple[Partition, ...], ...]

    def __post_init__(self) -> None:
        scopes = tuple(tuple(check_integer("scopes", v, 0) for v in scope) for scope in self.scopes)
        partitions = tuple(
            tuple(tuple(check_integer("partitions", child, 0) for child in partition) for partition in ways)
            for ways in self.partitions
        )
        # Lists and NumPy integers are accepted. Tuples of int are stored, which are hashable.
        object.__setattr__(self, "scopes", scopes)
        object.__setattr__(self, "partitions", partitions)
        _check_scopes(scopes, partitions)
        for region, ways in enumerate(partitions):
            for partition in ways:
                _check_partition(region, partition, scopes)
        used = {child for ways in partitions for partition in ways for child in partition}
        for region in range(len(scopes) - 1):
            if region not in used:
                raise ArgumentError("partitions", "every region but the root used", f"region {region} unused")

    @property
    def n_variables(self) -> int:
        """The number D of variables."""
        return len(self.scopes[-1])

    @property
    def root(self) -> int:
        """The region that covers every variable: the last one."""
        return len(self.scopes) - 1

    @cached_property
    def leaves(self) -> tuple[int, ...]:
        """The regions without partitions."""
        return tuple(region for region, ways in enumerate(self.partitions) if not ways)

    @cached_property
    def heights(self) -> tuple[int, ...]:
        """The number of partitions on the longest path from each region down to a leaf; leaves have 0."""
        heights: list[int] = []
        for ways in self.partitions:
            heights.append(max((heights[child] + 1 for partition in ways for child in partition), default=0))
        return tuple(heights)

    @property
    def depth(self) -> int:
        """The height of the root."""
        return self.heights[self.root]

    @cached_property
    def structured_decomposable(self) -> bool:
        """Whether all regions with the same scope split in the same way."""
        way_of: dict[Scope, frozenset[Scope]] = {}
        for scope, ways in zip(self.scopes, self.partitions, strict=True):
            for partition in ways:
                way = frozenset(self.scopes[child] for child in partition)
                if way_of.setdefault(scope, way) != way:
                    return False
        return True

    @cached_property
    def is_tree(self) -> bool:
        """Whether every region splits in at most one way and is part of at most one partition."""
        used = [child for ways in self.partitions for partition in ways for child in partition]
        return len(used) == len(set(used)) and all(len(ways) <= 1 for ways in self.partitions)


def quad_tree(height: int, width: int) -> RegionGraph:
    """Halve the rectangles of an image along their longer side, recursively down to single pixels.

    Two successive halvings divide a square into its quadrants. Every region has one partition, so the graph is a
    tree and structured-decomposable. Pixel (r, c) is variable r·width + c. If a side has an odd number of pixels, the
    first half is the larger one. A square is divided into top and bottom.

    Example:
        >>> graph = quad_tree(2, 2)
        >>> graph.scopes
        ((0,), (1,), (2,), (3,), (0, 1), (2, 3), (0, 1, 2, 3))
        >>> graph.partitions[graph.root]
        ((4, 5),)
    """

    def halves(rectangle: Rectangle) -> list[tuple[Rectangle, Rectangle]]:
        top, bottom, left, right = rectangle
        rows = bottom - top >= right - left
        return [_cut(rectangle, rows, ((top + bottom if rows else left + right) + 1) // 2)]

    return _from_rectangles(height, width, halves)


def quad_graph(height: int, width: int) -> RegionGraph:
    """Split the square blocks of an image both into top and bottom and into left and right.

    The halves are split again into quadrants. Both partitions lead to the same four quadrants, which are therefore
    shared. The blocks are those of a grid whose side is the next power of two, clipped to the image: a region is split
    at the middle row or column of the smallest aligned block that contains it. Pixel (r, c) is variable r·width + c.

    Example:
        >>> graph = quad_graph(2, 2)
        >>> [graph.scopes[region] for region in graph.partitions[graph.root][1]]
        [(0, 2), (1, 3)]
        >>> len(graph.scopes), graph.structured_decomposable
        (9, False)
    """

    def cuts(rectangle: Rectangle) -> list[tuple[Rectangle, Rectangle]]:
        top, bottom, left, right = rectangle
        # The bit length of the difference between the first and the last row (column). The smallest aligned block has
        # the side 2**max(tall, wide), and the rectangle crosses its middle only along the longer of the two.
        tall, wide = (top ^ (bottom - 1)).bit_length(), (left ^ (right - 1)).bit_length()
        half = max(tall, wide) - 1  # the logarithm of half the side
        ways = []
        if tall >= wide:
            ways.append(_cut(rectangle, True, (bottom - 1) >> half << half))
        if wide >= tall:
            ways.append(_cut(rectangle, False, (right - 1) >> half << half))
        return ways

    return _from_rectangles(height, width, cuts)


def random_regions(
    n: int, seed: int | np.random.Generator, repetitions: int = 1, depth: int | None = None
) -> RegionGraph:
    """Split n variables at random into two halves, recursively.

    Args:
        n: The number of variables.
        seed: The seed, or a NumPy generator.
        repetitions: The number of random splits of the root, each continued recursively. A partition that occurs twice
            is kept once, and regions that occur several times, such as single variables, are shared.
        depth: The maximum number of splits from the root to a leaf; by default splits continue to single variables.

    Example:
        >>> graph = random_regions(8, seed=0, repetitions=3)
        >>> len(graph.partitions[graph.root]), graph.depth, len(graph.leaves)
        (3, 3, 8)
    """
    n, repetitions = check_integer("n", n, 1), check_integer("repetitions", repetitions, 1)
    limit = n if depth is None else check_integer("depth", depth, 0)
    rng = np.random.default_rng(seed)
    root = tuple(range(n))
    splits: dict[Scope, list[tuple[Scope, ...]]] = {}
    for _ in range(repetitions):
        todo = [(root, 0)]
        for scope, level in todo:
            ways = splits.setdefault(scope, [])
            if len(scope) == 1 or level == limit:
                continue
            shuffled = rng.permutation(scope)
            first, second = (tuple(sorted(map(int, half))) for half in np.array_split(shuffled, 2))
            if not {(first, second), (second, first)} & set(ways):
                ways.append((first, second))
            todo += [(first, level + 1), (second, level + 1)]
    return _from_splits(splits)


def _cut(rectangle: Rectangle, rows: bool, at: int) -> tuple[Rectangle, Rectangle]:
    """Cut a rectangle before a row, or before a column."""
    top, bottom, left, right = rectangle
    if rows:
        return (top, at, left, right), (at, bottom, left, right)
    return (top, bottom, left, at), (top, bottom, at, right)


def _from_rectangles(
    height: int, width: int, split: Callable[[Rectangle], Sequence[tuple[Rectangle, Rectangle]]]
) -> RegionGraph:
    """Return the graph of the rectangles into which ``split`` divides the image; equal rectangles are one region."""
    height, width = check_integer("height", height, 1), check_integer("width", width, 1)

    def scope(rectangle: Rectangle) -> Scope:
        top, bottom, left, right = rectangle
        return tuple(r * width + c for r in range(top, bottom) for c in range(left, right))

    splits: dict[Scope, list[tuple[Scope, ...]]] = {}
    todo: list[Rectangle] = [(0, height, 0, width)]
    while todo:
        rectangle = todo.pop()
        variables = scope(rectangle)
        if variables not in splits:
            ways = split(rectangle) if len(variables) > 1 else []
            splits[variables] = [tuple(map(scope, way)) for way in ways]
            todo += [child for way in ways for child in way]
    return _from_splits(splits)


def _from_splits(splits: Mapping[Scope, Sequence[tuple[Scope, ...]]]) -> RegionGraph:
    """Number the scopes by size, so that children come before parents and the root is last."""
    scopes = sorted(splits, key=lambda scope: (len(scope), scope))
    number = {scope: region for region, scope in enumerate(scopes)}
    partitions = (tuple(tuple(number[child] for child in way) for way in splits[scope]) for scope in scopes)
    return RegionGraph(tuple(scopes), tuple(partitions))


def _check_scopes(scopes: tuple[Scope, ...], partitions: tuple[tuple[Partition, ...], ...]) -> None:
    if not scopes or len(scopes) != len(partitions):
        got = f"{len(scopes)} scopes and {len(partitions)} tuples of partitions"
        raise ArgumentError("partitions", "one tuple of partitions per region, () for a leaf", got)
    for region, scope in enumerate(scopes):
        if not scope or any(a >= b for a, b in pairwise(scope)):
            expected = "one or more variables in ascending order, each once"
            raise ArgumentError("scopes", expected, f"{_show(scope)} for region {region}")
    if scopes[-1] != tuple(range(len(scopes[-1]))):
        raise ArgumentError("scopes", "a last region, the root, that covers 0..D-1", _show(scopes[-1]))


def _check_partition(region: int, partition: Partition, scopes: tuple[Scope, ...]) -> None:
    if len(partition) < 2 or max(partition) >= region:
        expected = f"two or more of the regions before region {region}"
        raise ArgumentError("partitions", expected, partition, "put children before parents")
    union = sorted(variable for child in partition for variable in scopes[child])
    if tuple(union) != scopes[region]:
        expected = f"disjoint regions that make up {_show(scopes[region])}, the scope of region {region}"
        raise ArgumentError("partitions", expected, " and ".join(_show(scopes[child]) for child in partition))


def _show(scope: Scope) -> str:
    return str(scope) if len(scope) <= 12 else f"{scope[:12]} and {len(scope) - 12} more"
