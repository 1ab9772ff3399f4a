# SPDX-License-Identifier: Apache-2.0
"""Chow–Liu trees: maximum spanning trees of the mutual information between columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse.csgraph import minimum_spanning_tree

from picirc.errors import ArgumentError
from picirc.structure.information import Columns, mutual_information
from picirc.structure.trees import LatentTree

# Mutual information is a sum in no fixed order, so smaller differences may be rounding errors.
TIE_DECIMALS = 10


def maximum_spanning_tree(weights: npt.ArrayLike) -> list[tuple[int, int]]:
    """Return the edges of a tree over all nodes whose weights have the largest sum.

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
        raise ArgumentError("weights", "a symmetric matrix of finite numbers", "another one")
    # minimum_spanning_tree of scipy 1.14 accepts 32-bit indices only.
    left, right = (side.astype(np.int32) for side in np.triu_indices(len(matrix), k=1))
    by_weight = np.argsort(-np.round(matrix[left, right], TIE_DECIMALS), kind="stable")
    # Ranks instead of weights: scipy treats zeros as absent edges, and breaks ties in an unspecified way.
    ranks = np.empty(len(by_weight))
    ranks[by_weight] = np.arange(1, len(by_weight) + 1)
    tree = minimum_spanning_tree(sparse.coo_array((ranks, (left, right)), shape=matrix.shape)).tocoo()
    return sorted((int(min(i, j)), int(max(i, j))) for i, j in zip(tree.row, tree.col, strict=True))


def chow_liu(
    X: npt.ArrayLike,
    columns: Columns = "auto",
    *,
    bins: int = 8,
    smoothing: float = 1.0,
    chunk: int = 2**23,
) -> list[tuple[int, int]]:
    """Return the edges of the Chow–Liu tree, the maximum spanning tree of the mutual information.

    Of all distributions that factorise along a tree, it gives the one with the highest likelihood. The arguments are
    those of :func:`mutual_information`, and the edges those of :func:`maximum_spanning_tree`.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = np.cumsum(rng.normal(size=(1000, 4)), axis=1)  # each column follows the one before
        >>> chow_liu(X)
        [(0, 1), (1, 2), (2, 3)]
    """
    return maximum_spanning_tree(mutual_information(X, columns, bins=bins, smoothing=smoothing, chunk=chunk))


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

    Every column becomes a variable with a latent of its own, or with one that it shares with the rest of its group. The
    mutual information of two groups is the largest between a column of one and a column of the other.

    Args:
        X: The table, (rows, columns), NaN where a value is missing.
        columns: ``"auto"``, or the kinds of the columns.
        groups: The columns of each latent, every column once; None for one latent per column.
        bins: The largest number of levels of an ordinal column.
        smoothing: The pseudo-count added to every cell of every contingency table.
        root: The column (or group) at the root, or ``"centre"`` for the tree's centre, which gives the smallest depth.
        chunk: The maximum number of table cells in memory at once.

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
