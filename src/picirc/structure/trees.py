# SPDX-License-Identifier: Apache-2.0
"""Trees of latents with observed variables: given, random, or learned from data (Chow–Liu)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse.csgraph import minimum_spanning_tree

from picirc.checks import check_integer
from picirc.errors import ArgumentError
from picirc.structure.bayesnet import topological_order
from picirc.structure.information import Columns, mutual_information

Neighbours = Sequence[Sequence[int]]  # of every node

# Mutual information is a sum in no fixed order, so smaller differences may be rounding errors.
TIE_DECIMALS = 10


@dataclass(frozen=True)
class LatentTree:
    """A rooted tree of latent variables Z, each with the observed variables X that depend on it alone.

    The joint density factorises along the tree, p(x, z) = ∏_k p(z_k | z_parent(k)) ∏_{i on k} p(x_i | z_k).

    Args:
        parents: The parent of each latent; -1 for the root.
        variables: The observed variables of each latent: none, one or several. Together they are 0..D-1, each once. A
            latent without children has at least one.

    Example:
        >>> tree = LatentTree(parents=(-1, 0, 0), variables=((), (0, 1), (2,)))
        >>> tree.n_latents, tree.n_variables, tree.children[0], tree.depth
        (3, 3, (1, 2), 1)
    """

    parents: tuple[int, ...]
    variables: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        parents = tuple(check_integer("parents", parent, -1) for parent in self.parents)
        variables = tuple(tuple(check_integer("variables", v, 0) for v in own) for own in self.variables)
        # Lists and NumPy integers are accepted. Tuples of int are stored, which are hashable.
        object.__setattr__(self, "parents", parents)
        object.__setattr__(self, "variables", variables)
        _check_parents(parents)
        _check_variables(variables, parents)

    @classmethod
    def from_edges(cls, edges: Iterable[Sequence[int]], root: int | None = None) -> LatentTree:
        """Return the tree with one latent and one variable for each node of an undirected tree over 0..D-1.

        Args:
            edges: The D-1 pairs of neighbours, in any order and direction.
            root: The latent at the root; by default the tree's centre, which gives the smallest depth. Of two
                centres the one with the lower index is taken.

        Example:
            >>> LatentTree.from_edges([(0, 1), (1, 2)]).parents
            (1, -1, 1)
        """
        parents = _rooted(edges, root)
        return cls(parents, tuple((i,) for i in range(len(parents))))

    def reroot(self, root: int | None = None) -> LatentTree:
        """Return the same tree with another root, by default its centre."""
        edges = [(child, parent) for child, parent in enumerate(self.parents) if parent >= 0]
        return LatentTree(_rooted(edges, root), self.variables)

    @property
    def n_latents(self) -> int:
        """The number of latents."""
        return len(self.parents)

    @cached_property
    def n_variables(self) -> int:
        """The number D of observed variables."""
        return sum(map(len, self.variables))

    @cached_property
    def root(self) -> int:
        """The latent without a parent."""
        return self.parents.index(-1)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """The child latents of each latent, in ascending order."""
        children: list[list[int]] = [[] for _ in self.parents]
        for child, parent in enumerate(self.parents):
            if parent >= 0:
                children[parent].append(child)
        return tuple(map(tuple, children))

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Every latent once, children before parents: the root is last."""
        return tuple(reversed(_walk(self.children, self.root)[0]))

    @cached_property
    def heights(self) -> tuple[int, ...]:
        """The number of edges from each latent down to its farthest leaf; leaves have 0."""
        heights = [0] * self.n_latents
        for latent in self.order[:-1]:
            parent = self.parents[latent]
            heights[parent] = max(heights[parent], heights[latent] + 1)
        return tuple(heights)

    @property
    def depth(self) -> int:
        """The height of the root; 0 for a single latent."""
        return self.heights[self.root]


def chain(n: int) -> LatentTree:
    """Return the tree of a hidden Markov model: latent i follows latent i-1 and carries variable i.

    Example:
        >>> chain(3)
        LatentTree(parents=(-1, 0, 1), variables=((0,), (1,), (2,)))
    """
    n = check_integer("n", n, 1)
    return LatentTree(tuple(range(-1, n - 1)), tuple((i,) for i in range(n)))


def star(n: int) -> LatentTree:
    """Return the tree of one latent with n variables, which are independent given its value.

    If the latent is a vector, this is a continuous mixture: ``PIC(star(n), inputs, dims=16)``.

    Example:
        >>> star(3)
        LatentTree(parents=(-1,), variables=((0, 1, 2),))
    """
    return LatentTree((-1,), (tuple(range(check_integer("n", n))),))


def random_tree(n: int, seed: int | np.random.Generator, depth: int | None = None) -> LatentTree:
    """Return a random tree of n latents with one variable each, rooted at the centre.

    Each latent is attached to one of the earlier ones, chosen uniformly. Then the latents are numbered at random.

    Args:
        n: The number of latents and of variables.
        seed: The seed, or a NumPy generator.
        depth: The exact depth of the tree. The tree then grows from a path whose middle is the root, and nothing is
            attached below that depth. By default the depth is not fixed; it grows with log n.

    Example:
        >>> random_tree(784, seed=0, depth=50).depth
        50
    """
    n = check_integer("n", n, 1)
    rng = np.random.default_rng(seed)
    limit, size = n, 1
    if depth is not None:
        limit = check_integer("depth", depth, 0)
        size = min(n, 2 * limit + 1)  # a path of this many nodes has the depth `limit` if its middle is the root
        if limit > n // 2 or (limit == 0 and n > 1):
            raise ArgumentError("depth", f"a depth that {n} latents can have", depth, f"at most {n // 2}")
    labels = rng.permutation(n)
    edges = [(i, i + 1) for i in range(size - 1)]
    level = [abs(i - size // 2) for i in range(size)]
    open_nodes = [i for i in range(size) if level[i] < limit]
    for node in range(size, n):
        parent = open_nodes[rng.integers(len(open_nodes))]
        edges.append((parent, node))
        level.append(level[parent] + 1)
        if level[node] < limit:
            open_nodes.append(node)
    return LatentTree.from_edges([(int(labels[a]), int(labels[b])) for a, b in edges])


def _walk(neighbours: Neighbours, start: int) -> tuple[list[int], dict[int, int]]:
    """Return the nodes reachable from ``start``, nearest first, and the node from which each was reached."""
    reached_from = {start: -1}
    order = [start]
    for node in order:
        for other in neighbours[node]:
            if other not in reached_from:
                reached_from[other] = node
                order.append(other)
    return order, reached_from


def _centre(neighbours: Neighbours) -> int:
    """Return the middle of a longest path, the lower index if there are two."""
    end = _walk(neighbours, 0)[0][-1]
    order, reached_from = _walk(neighbours, end)
    path = [order[-1]]
    while path[-1] != end:
        path.append(reached_from[path[-1]])
    return min(path[(len(path) - 1) // 2], path[len(path) // 2])


def _rooted(edges: Iterable[Sequence[int]], root: int | None) -> tuple[int, ...]:
    """Return the parent of every node of an undirected tree with this root (by default the centre)."""
    neighbours = _neighbours(edges)
    if root is None:
        root = _centre(neighbours)
    elif check_integer("root", root, 0) >= len(neighbours):
        raise ArgumentError("root", f"a node of the tree, 0..{len(neighbours) - 1}", root)
    parents = _walk(neighbours, root)[1]
    return tuple(parents[node] for node in range(len(neighbours)))


def _neighbours(edges: Iterable[Sequence[int]]) -> list[list[int]]:
    """Return the neighbours of every node of the undirected tree with these edges."""
    pairs = [tuple(check_integer("edges", node, 0) for node in edge) for edge in edges]
    neighbours: list[list[int]] = [[] for _ in range(len(pairs) + 1)]
    for pair in pairs:
        if len(pair) != 2 or max(pair) > len(pairs):
            expected = f"pairs of nodes 0..{len(pairs)}, since {len(pairs)} edges make a tree of one node more"
            raise ArgumentError("edges", expected, pair)
        a, b = pair
        neighbours[a].append(b)
        neighbours[b].append(a)
    reached = _walk(neighbours, 0)[1]
    if len(reached) < len(neighbours):
        lost = next(node for node in range(len(neighbours)) if node not in reached)
        remedy = "check for an edge given twice and for a cycle"
        raise ArgumentError("edges", "a connected tree", f"no path between nodes 0 and {lost}", remedy)
    return neighbours


def _check_parents(parents: tuple[int, ...]) -> None:
    roots = [latent for latent, parent in enumerate(parents) if parent == -1]
    if len(roots) != 1:
        raise ArgumentError("parents", "exactly one root, marked -1", f"{len(roots)} roots {roots[:8]}")
    for latent, parent in enumerate(parents):
        if parent >= len(parents):
            expected = f"latents 0..{len(parents) - 1} or -1"
            raise ArgumentError("parents", expected, f"{parent} as the parent of latent {latent}")
    topological_order({str(latent): [str(p)] if p >= 0 else [] for latent, p in enumerate(parents)})


def _check_variables(variables: tuple[tuple[int, ...], ...], parents: tuple[int, ...]) -> None:
    if len(variables) != len(parents):
        got = f"{len(variables)} tuples of variables for {len(parents)} latents"
        raise ArgumentError("variables", "one tuple per latent, () for none", got)
    hanging = sorted(variable for own in variables for variable in own)
    for i, variable in enumerate(hanging):
        if variable != i:
            problem = f"{variable} twice" if i and hanging[i - 1] == variable else f"{variable} but not {i}"
            raise ArgumentError("variables", "every variable 0..D-1 once", problem)
    inner = set(parents)
    for latent, own in enumerate(variables):
        if not own and latent not in inner:
            got = f"latent {latent} with neither"
            raise ArgumentError("variables", "a variable or a child on every latent", got, "leave it out")


def maximum_spanning_tree(weights: npt.ArrayLike) -> list[tuple[int, int]]:
    """Return the edges of the spanning tree with the largest sum of weights.

    Weights that agree to ten decimals are ties; the pair that comes first in ascending order is preferred.

    Args:
        weights: A symmetric (node, node) matrix of finite numbers; the diagonal is ignored.

    Returns:
        The edges (i, j) with i < j in ascending order.

    Example:
        >>> maximum_spanning_tree([[0, 3, 1], [3, 0, 2], [1, 2, 0]])
        [(0, 1), (1, 2)]
    """
    matrix = np.asarray(weights, np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise ArgumentError("weights", "a square matrix", f"shape {matrix.shape}")
    if not np.isfinite(matrix).all() or not np.allclose(matrix, matrix.T):
        raise ArgumentError("weights", "a symmetric matrix of finite numbers", "one that is not")
    # minimum_spanning_tree of scipy 1.14 accepts 32-bit indices only.
    left, right = (side.astype(np.int32) for side in np.triu_indices(len(matrix), k=1))
    by_weight = np.argsort(-np.round(matrix[left, right], TIE_DECIMALS), kind="stable")
    # Ranks instead of weights: scipy treats zeros as absent edges, and breaks ties in an unspecified way.
    ranks = np.empty(len(by_weight))
    ranks[by_weight] = np.arange(1, len(by_weight) + 1)
    tree = minimum_spanning_tree(sparse.coo_array((ranks, (left, right)), shape=matrix.shape)).tocoo()
    return sorted((int(min(i, j)), int(max(i, j))) for i, j in zip(tree.row, tree.col, strict=True))


def hidden_chow_liu(
    X: npt.ArrayLike,
    columns: Columns = "auto",
    *,
    groups: Sequence[Sequence[int]] | None = None,
    bins: int = 8,
    smoothing: float = 1.0,
    root: int | Literal["centre"] = "centre",
    chunk: int = 2**23,
) -> LatentTree:
    """Return the latent tree whose latents are connected like the columns in the Chow–Liu tree.

    This is the maximum spanning tree of the mutual information. No other tree over the columns admits a distribution
    with a higher likelihood. Every column becomes a variable, with a latent of its own or one for all columns of its
    group. The mutual information of two groups is the largest between a column of one and a column of the other.

    Args:
        X: The table, (rows, columns), NaN where a value is missing.
        columns: ``"auto"``, or the kinds of the columns, as for :func:`mutual_information`.
        groups: The columns of each latent, every column once; None for one latent per column.
        bins: As for :func:`mutual_information`.
        smoothing: As for :func:`mutual_information`.
        root: The column (or group) at the root, or ``"centre"`` for the tree's centre, which gives the smallest depth.
        chunk: As for :func:`mutual_information`.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> hidden_chow_liu(np.cumsum(rng.normal(size=(1000, 5)), axis=1)).parents
        (1, 2, -1, 2, 3)
        >>> hidden_chow_liu(np.cumsum(rng.normal(size=(1000, 5)), axis=1), groups=[(0, 1), (2,), (3, 4)]).variables
        ((0, 1), (2,), (3, 4))
    """
    if isinstance(root, str) and root != "centre":
        raise ArgumentError("root", "'centre' or the index of a column", root)
    return latent_tree(mutual_information(X, columns, bins=bins, smoothing=smoothing, chunk=chunk), groups, root)


def latent_tree(
    weights: npt.NDArray[np.float64],
    groups: Sequence[Sequence[int]] | None = None,
    root: int | Literal["centre"] = "centre",
) -> LatentTree:
    """Return the tree of :func:`hidden_chow_liu`, given the mutual information of all pairs of columns."""
    members = _members(groups, len(weights))
    if len(members) == 1:
        return LatentTree((-1,), members)
    starts = np.cumsum([0, *map(len, members)])[:-1]
    order = np.concatenate(members)
    between = weights[np.ix_(order, order)]
    for axis in (0, 1):
        between = np.maximum.reduceat(between, starts, axis)
    tree = LatentTree.from_edges(maximum_spanning_tree(between), None if root == "centre" else root)
    return LatentTree(tree.parents, members)


def _members(groups: Sequence[Sequence[int]] | None, columns: int) -> tuple[tuple[int, ...], ...]:
    if groups is None:
        return tuple((column,) for column in range(columns))
    expected = f"each of the columns 0 to {columns - 1} in one group"
    if not all(isinstance(group, Sequence) for group in groups):
        raise ArgumentError("groups", expected, groups, "write [(0, 1), (2,)] for example")
    members = tuple(tuple(sorted(group)) for group in groups)
    if sorted(column for group in members for column in group) != list(range(columns)) or () in members:
        raise ArgumentError("groups", expected, list(members))
    return members
