# SPDX-License-Identifier: Apache-2.0
"""Mutual information between all pairs of columns of an array, from contingency tables or correlations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, product
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.special import xlogy

from picirc.checks import check_integer
from picirc.errors import ArgumentError

Kind = Literal["binary", "categorical", "ordinal", "gaussian"]
Columns = Kind | Literal["auto"] | Sequence[str]
KINDS: tuple[Kind, ...] = get_args(Kind)

MOST_LEVELS = 64  # integers with a wider range than this are divided into bins; otherwise every value is a level
MOST_CATEGORIES = 4096  # rare categories beyond this number are merged, so that the table of two columns fits in memory
SPARSE_DENSITY = (
    1 / 25
)  # below this fraction of non-zeros a sparse matrix product is faster than a dense one (measured)

Values = npt.NDArray[Any]
Matrix = npt.NDArray[np.float64]
Levels = npt.NDArray[np.unsignedinteger[Any]]


@runtime_checkable
class Parts(Protocol):
    """A table that is read in parts, as often as needed.

    Attributes:
        some: The rows that determine the levels of the columns. They include the smallest and the largest value of each
            column and every category.
    """

    some: Values

    def __iter__(self) -> Iterator[Values]:
        """Iterate over all rows, or those of this process, in parts."""

    def add_up(self, sums: Sequence[Matrix]) -> None:
        """Add up sums over all processes in place."""


def mutual_information(
    X: npt.ArrayLike | Parts,
    columns: Columns = "auto",
    *,
    bins: int = 8,
    smoothing: float = 1.0,
    chunk: int = 2**23,
) -> Matrix:
    """Return the mutual information, in nats, between all pairs of columns.

    Discrete pairs: with c_ab the number of rows in which the pair has levels a and b, plus ``smoothing``, and
    with its sums c_a·, c_·b and c over the table,

        I = Σ_ab c_ab / c · log(c_ab · c / (c_a· · c_·b)).

    Ordinal columns with more than ``bins`` values are first divided into ``bins`` intervals with about equal numbers of
    rows. Gaussian pairs: I = -½ log(1 - ρ²), where the correlation ρ is multiplied by n / (n + smoothing), as if
    ``smoothing`` uncorrelated rows had been added. A Gaussian column in a pair with a discrete one is divided
    into intervals too. Rows in which either value is missing are ignored for the pair.

    Args:
        X: The table, (rows, columns), NaN where a value is missing; or its parts, if it does not fit in memory.
        columns: ``"auto"``, or the kinds (see :func:`column_kinds`).
        bins: The largest number of levels of an ordinal column, or of a Gaussian one in a pair with a discrete one.
        smoothing: The pseudo-count added to every cell of every contingency table, 0 or more.
        chunk: The maximum number of table cells in memory at once; the result does not depend on it.

    Returns:
        A symmetric, non-negative (columns, columns) matrix with a diagonal of zeros. Constant columns and columns
        without values have mutual information zero with all others.

    Example:
        >>> X = np.array([[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0]])
        >>> np.round(mutual_information(X, smoothing=0.0), 3)
        array([[0.   , 0.693, 0.   ],
               [0.693, 0.   , 0.   ],
               [0.   , 0.   , 0.   ]])
    """
    some = X.some if isinstance(X, Parts) else as_matrix(X)
    kinds = column_kinds(some, columns)
    bins, chunk = check_integer("bins", bins, 2), check_integer("chunk", chunk, 1)
    if not 0 <= smoothing < math.inf:
        raise ArgumentError("smoothing", "a finite number, 0 or more", smoothing)
    information = np.zeros((len(kinds), len(kinds)))
    whole = [_Part(some)]
    for tallies in _passes(_tallies(some, kinds, bins, chunk), chunk):
        sums = [[np.zeros(shape) for shape in tally.shapes] for tally in tallies]
        for part in map(_Part, X) if isinstance(X, Parts) else whole:
            for tally, own in zip(tallies, sums, strict=True):
                tally.add(own, part, chunk)
        if isinstance(X, Parts):
            X.add_up([matrix for own in sums for matrix in own])
        for tally, own in zip(tallies, sums, strict=True):
            tally.fill(information, own, smoothing)
    np.fill_diagonal(information, 0.0)
    return (information + information.T) / 2  # the order of summation affects the last digit


def as_matrix(X: npt.ArrayLike) -> Values:
    """Return ``X`` as a two-dimensional array of numbers in which only NaN marks a missing value.

    Raises:
        ArgumentError: ``X`` is not a table of finite numbers (and NaN) with at least one row and one column.
    """
    remedy = "give an array of integers, floats (NaN where missing) or booleans, one row per observation"
    if isinstance(X, np.ma.MaskedArray):
        X = np.ma.filled(X.astype(np.float64), np.nan)
    try:
        table = np.asarray(X)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError("X", "a table of numbers", f"{type(X).__name__} ({error})", remedy) from error
    if table.dtype.kind == "b":
        table = table.view(np.uint8)
    if table.dtype.kind not in "iuf":
        raise ArgumentError("X", "numbers", f"dtype {table.dtype}", remedy)
    if table.ndim != 2:
        got = f"shape {table.shape}"
        raise ArgumentError("X", "two dimensions, (rows, columns)", got, "X.reshape(len(X), -1) flattens images")
    if 0 in table.shape:
        raise ArgumentError("X", "at least one row and one column", f"shape {table.shape}")
    for column in range(table.shape[1]) if table.dtype.kind == "f" else ():
        if np.isinf(table[:, column]).any():
            raise ArgumentError("X", "finite values", f"an infinite one in column {column}", "mark missing ones by NaN")
    return table


def column_kinds(table: Values, columns: Columns = "auto") -> tuple[Kind, ...]:
    """Return the kind of every column, as declared or inferred from its values.

    The kind only decides how mutual information is computed. The types of columns in a model are inferred by
    ``picirc.tables.Schema``. With ``"auto"``, integers are ``"categorical"`` (every value is a level), or ``"ordinal"``
    (divided into bins) if they span more than 64 values. Columns with fractional values are ``"gaussian"``.

    Args:
        table: What :func:`as_matrix` returned.
        columns: ``"auto"``, one kind for all columns, or a kind (or ``"auto"``) for each.

    Raises:
        ArgumentError: A kind is unknown, the number of kinds is wrong, or a column has values that its kind excludes.
    """
    declared = [columns] * table.shape[1] if isinstance(columns, str) else list(columns)
    if len(declared) != table.shape[1]:
        raise ArgumentError("columns", f"one kind for each of {table.shape[1]} columns", f"{len(declared)} kinds")
    return tuple(_kind(table[:, i], kind, f"column {i}") for i, kind in enumerate(declared))


def cut(values: Values, kind: Kind, bins: int) -> Values:
    """Divide the values of a column into levels, and return the largest value of each level in ascending order.

    Every value of a binary or categorical column is a level. Ordinal and Gaussian columns with more than ``bins``
    values are divided into at most ``bins`` intervals with numbers of rows as equal as ties permit. Columns with more
    than 4,096 categories are divided into 4,096 intervals, most of which hold a single category.
    """
    distinct, counts = _value_counts(values[~np.isnan(values)] if values.dtype.kind == "f" else values)
    most = bins if kind in ("ordinal", "gaussian") else MOST_CATEGORIES
    if len(distinct) <= most:
        return distinct
    ends: Values = distinct[np.flatnonzero(np.diff(_equal_frequency(counts, most), append=most))]
    return ends


def levels(values: Values, ends: Values) -> Levels:
    """Return the level of every value, from 0, given the largest value of each of K levels; NaN has level K."""
    found: Levels = np.searchsorted(ends, values).astype(np.min_scalar_type(len(ends)))
    return found


def _kind(values: Values, declared: str, name: str) -> Kind:
    observed = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    whole = values.dtype.kind in "iu" or bool((observed == np.floor(observed)).all())
    low, high = (observed.min(), observed.max()) if len(observed) else (0, 0)
    if declared == "auto":
        if not whole:
            return "gaussian"
        return "categorical" if float(high) - float(low) < MOST_LEVELS else "ordinal"
    if declared not in KINDS:
        raise ArgumentError("columns", f"'auto' or one of {', '.join(KINDS)}", declared)
    if declared == "binary" and not (whole and low >= 0 and high <= 1):
        raise ArgumentError("X", f"zeros and ones in binary {name}", f"values in [{low}, {high}]")
    if declared == "categorical" and not whole:
        raise ArgumentError("X", f"integers in categorical {name}", "fractions", "declare it gaussian")
    return declared


def _value_counts(values: Values) -> tuple[Values, npt.NDArray[np.intp]]:
    """Return the distinct values in ascending order and how often each occurs."""
    if values.dtype.kind in "iu" and values.dtype.itemsize <= 2 and len(values):
        low = int(values.min())
        counts = np.bincount(values.astype(np.intp) - low)  # far faster than sorting
        present = np.flatnonzero(counts)
        return (present + low).astype(values.dtype), counts[present]
    distinct, counts = np.unique(values, return_counts=True)
    return distinct, counts


def _equal_frequency(counts: npt.NDArray[np.intp], bins: int) -> npt.NDArray[np.intp]:
    """Merge neighbouring values into at most ``bins`` intervals; return the interval of every value.

    Each interval ends as close as possible to its share of the remaining rows. A frequent value (such as the black of
    an image) therefore gets an interval of its own, and the other values share the remaining intervals.
    """
    cumulative = np.append(0, np.cumsum(counts))
    ends = [0]
    while ends[-1] < len(counts):
        start = ends[-1]
        target = cumulative[start] + _share(counts[start:], bins - len(ends) + 1)
        end = max(int(np.searchsorted(cumulative, target)), start + 1)
        if end > start + 1 and target - cumulative[end - 1] < cumulative[end] - target:
            end -= 1
        ends.append(end)
    return np.repeat(np.arange(len(ends) - 1), np.diff(ends))


def _share(counts: npt.NDArray[np.intp], bins: int) -> float:
    """Return the number of rows per bin if values with more rows than that get bins of their own."""
    frequent = np.zeros(len(counts), bool)
    while True:
        share = float(counts[~frequent].sum() / (bins - frequent.sum()))
        if np.array_equal(frequent, counts > share):
            return share
        frequent = counts > share  # the share shrinks in every round, so this set grows and the loop ends


@dataclass(frozen=True)
class _Group:
    """Columns whose levels are counted together."""

    columns: tuple[int, ...]
    ends: tuple[Values, ...]  # the largest value of each level of each column

    @property
    def size(self) -> int:
        """The number of levels of all columns."""
        return sum(map(len, self.ends))

    @property
    def starts(self) -> npt.NDArray[np.intp]:
        """The first level of each column."""
        return _starts([len(ends) for ends in self.ends])


@dataclass(frozen=True)
class _Indicators:
    """Indicators of the levels of a group of columns in some rows.

    The most frequent level of each column has no indicator, because its counts follow from those of the others. Missing
    values are an additional level, so that the counts of any pair of columns add up to the number of rows.
    """

    matrix: Values | sparse.csr_array  # (row, level with an indicator)
    counts: Matrix  # (level,)
    kept: npt.NDArray[np.bool_]  # (level,): whether it has an indicator
    observed: npt.NDArray[np.bool_]  # (level,): whether it is not the level of missing values
    starts: npt.NDArray[np.intp]  # (column,): its first level


class _Part:
    """Some rows of a table. The indicators of their levels are computed when they are first needed."""

    def __init__(self, rows: Values) -> None:
        self.rows = rows
        self._made: dict[tuple[int, ...], _Indicators] = {}

    def indicators(self, group: _Group, chunk: int) -> _Indicators:
        """The indicators of a group of columns."""
        if group.columns not in self._made:
            found = [levels(self.rows[:, column], ends) for column, ends in zip(group.columns, group.ends, strict=True)]
            # There is one more count if there are missing values.
            counts = [np.bincount(level, minlength=len(ends)) for level, ends in zip(found, group.ends, strict=True)]
            kept = [np.arange(len(count)) != np.argmax(count) for count in counts]
            observed = [np.arange(len(count)) < len(ends) for count, ends in zip(counts, group.ends, strict=True)]
            self._made[group.columns] = _Indicators(
                matrix=_matrix(found, counts, kept, chunk),
                counts=np.concatenate(counts).astype(np.float64),
                kept=np.concatenate(kept),
                observed=np.concatenate(observed),
                starts=_starts([len(count) for count in counts]),
            )
        return self._made[group.columns]


@dataclass(frozen=True)
class _Tables:
    """The contingency tables of all pairs with a column of each of two groups."""

    left: _Group
    right: _Group

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """The shapes of the sums over the rows."""
        return [(self.left.size, self.right.size)]

    def add(self, sums: Sequence[Matrix], part: _Part, chunk: int) -> None:
        """Add the counts of some rows."""
        left, right = (part.indicators(group, chunk) for group in (self.left, self.right))
        sums[0][:] += _pair_counts(left, right, chunk)

    def fill(self, information: Matrix, sums: Sequence[Matrix], smoothing: float) -> None:
        """Compute the mutual information from the sums, into a matrix of all columns."""
        block = _discrete_information(sums[0], self.left.starts, self.right.starts, smoothing)
        information[np.ix_(self.left.columns, self.right.columns)] = block
        information[np.ix_(self.right.columns, self.left.columns)] = block.T


def _tallies(some: Values, kinds: Sequence[Kind], bins: int, chunk: int) -> list[_Tables | _Moments]:
    """The sums to compute over the rows."""
    side = max(1, math.isqrt(chunk))  # the tables of two groups have at most side × side cells
    gaussian = [i for i, kind in enumerate(kinds) if kind == "gaussian"]
    found: list[_Tables | _Moments] = [_Moments(tuple(gaussian), *_standardisation(some, gaussian))] if gaussian else []
    discrete = list(_groups(some, [i for i, kind in enumerate(kinds) if kind != "gaussian"], kinds, bins, side))
    found += [_Tables(*pair) for pair in combinations_with_replacement(discrete, 2)]
    if discrete:
        found += [_Tables(*pair) for pair in product(discrete, _groups(some, gaussian, kinds, bins, side))]
    return found


def _passes(tallies: Sequence[_Tables | _Moments], chunk: int) -> Iterator[list[_Tables | _Moments]]:
    """Divide the sums into as few passes over the rows as memory permits."""
    own: list[_Tables | _Moments] = []
    cells = 0
    for tally in tallies:
        size = sum(rows * columns for rows, columns in tally.shapes)
        if own and cells + size > chunk:
            yield own
            own, cells = [], 0
        own.append(tally)
        cells += size
    if own:
        yield own


def _groups(some: Values, columns: Sequence[int], kinds: Sequence[Kind], bins: int, side: int) -> Iterator[_Group]:
    """Gather columns into groups of at most ``side`` levels, or of one column; skip constant columns."""
    members: dict[int, Values] = {}
    size = 0
    for column in columns:
        ends = cut(some[:, column], kinds[column], bins)
        if len(ends) < 2:
            continue
        if members and size + len(ends) > side:
            yield _Group(tuple(members), tuple(members.values()))
            members, size = {}, 0
        members[column] = ends
        size += len(ends)
    if members:
        yield _Group(tuple(members), tuple(members.values()))


def _matrix(
    found: Sequence[Levels],
    counts: Sequence[npt.NDArray[np.intp]],
    kept: Sequence[npt.NDArray[np.bool_]],
    chunk: int,
) -> Values | sparse.csr_array:
    """Indicators of the levels that are kept, (row, level): dense if they are few and not mostly zero, else sparse."""
    rows, indptr = len(found[0]), np.append(0, np.cumsum(np.concatenate(counts)[np.concatenate(kept)]))
    size = len(indptr) - 1
    # Sums of ones are exact in single precision up to 2**24 rows.
    dtype = np.float32 if rows <= 2**24 else np.float64
    if rows * size <= 2 * chunk and indptr[-1] >= SPARSE_DENSITY * rows * size:
        dense = np.empty((size, rows), dtype)
        numbers = ((level, number) for level, keep in zip(found, kept, strict=True) for number in np.flatnonzero(keep))
        for own, (level, number) in zip(dense, numbers, strict=True):
            np.equal(level, number, out=own)
        return dense.T
    by_level = [np.argsort(level, kind="stable") for level in found]
    indices = np.concatenate(
        [order[np.repeat(keep, count)] for order, keep, count in zip(by_level, kept, counts, strict=True)]
    )
    transposed = sparse.csr_array((np.ones(len(indices), dtype), indices, indptr), shape=(size, rows))
    return transposed.T.tocsr()


def _starts(lengths: Sequence[int]) -> npt.NDArray[np.intp]:
    return np.cumsum([0, *lengths[:-1]])


def _pair_counts(left: _Indicators, right: _Indicators, chunk: int) -> Matrix:
    """Return how often each observed level of one group occurs together with each level of the other."""
    table = np.zeros((len(left.counts), len(right.counts)))  # (level, level)
    table[np.ix_(left.kept, right.kept)] = _products(left.matrix, right.matrix, chunk)
    table[:, ~right.kept] = left.counts[:, None] - np.add.reduceat(table, right.starts, axis=1)
    table[~left.kept] = 0.0
    table[~left.kept] = right.counts - np.add.reduceat(table, left.starts, axis=0)
    return table[np.ix_(left.observed, right.observed)]


def _products(left: Values | sparse.csr_array, right: Values | sparse.csr_array, chunk: int) -> Values:
    """Return leftᵀ right as a dense matrix."""
    n_rows, size = left.shape[0], left.shape[1] + right.shape[1]
    if sparse.issparse(left) and sparse.issparse(right) and left.nnz + right.nnz < SPARSE_DENSITY * n_rows * size:
        product: Values = (left.T.tocsr() @ right).toarray()
        return product
    total = np.zeros((left.shape[1], right.shape[1]), left.dtype)
    step = max(1, 4 * chunk // size)  # indicators take half the memory of counts; many short products would be slow
    for start in range(0, n_rows, step):
        rows = slice(start, start + step)
        first = _dense(left[rows])
        second = first if left is right else _dense(right[rows])  # AᵀA takes NumPy half the time of AᵀB
        total += first.T @ second
    return total


def _dense(matrix: Values | sparse.csr_array) -> Values:
    return matrix.toarray() if sparse.issparse(matrix) else matrix


def _discrete_information(
    counts: Matrix, row_starts: npt.NDArray[np.intp], column_starts: npt.NDArray[np.intp], smoothing: float
) -> Matrix:
    """Return the mutual information of every contingency table in a matrix of such tables.

    With f(c) = c log c it is (Σ_ab f(c_ab) - Σ_a f(c_a·) - Σ_b f(c_·b) + f(c)) / c.
    """
    rows = np.diff(row_starts, append=counts.shape[0])[:, None]  # (left, 1): levels of each column
    columns = np.diff(column_starts, append=counts.shape[1])  # (right,)

    def sum_rows(x: Matrix) -> Matrix:
        return np.add.reduceat(x, row_starts, axis=0)

    def sum_columns(x: Matrix) -> Matrix:
        return np.add.reduceat(x, column_starts, axis=1)

    def f(x: Matrix) -> Matrix:
        return np.asarray(xlogy(x, x))

    left, right = sum_columns(counts), sum_rows(counts)  # (level, right), (left, level)
    total = sum_rows(left) + smoothing * rows * columns  # (left, right)
    entropies = sum_rows(f(left + smoothing * columns)) + sum_columns(f(right + smoothing * rows))
    joint = sum_rows(sum_columns(f(counts + smoothing)))
    known = np.where(total > 0, total, 1.0)  # columns that are never observed together get zero
    return np.maximum((joint - entropies + f(total)) / known, 0.0)


@dataclass(frozen=True)
class _Moments:
    """Sums for the correlations of Gaussian columns; each pair is summed over the rows in which both are observed."""

    columns: tuple[int, ...]
    shift: Matrix
    scale: Matrix

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """The shapes of the sums over the rows: of ones, values, squares and products."""
        return [(len(self.columns), len(self.columns))] * 4

    def add(self, sums: Sequence[Matrix], part: _Part, chunk: int) -> None:
        """Add the sums over some rows."""
        step = max(1, chunk // len(self.columns))
        n, firsts, squares, products = sums
        for start in range(0, len(part.rows), step):
            values = (part.rows[start : start + step, list(self.columns)] - self.shift) / self.scale
            seen = ~np.isnan(values)
            values, weights = np.where(seen, values, 0.0), seen.astype(np.float64)
            n += weights.T @ weights
            firsts += values.T @ weights  # of the first column, over the rows in which the second is observed
            squares += (values**2).T @ weights
            products += values.T @ values

    def fill(self, information: Matrix, sums: Sequence[Matrix], smoothing: float) -> None:
        """Compute -½ log(1 - ρ²) from the sums, into a matrix of all columns."""
        n, firsts, squares, products = sums
        seen_once = np.maximum(n, 1.0)
        variances = squares - firsts**2 / seen_once  # times n, as are the covariances
        covariances = products - firsts * firsts.T / seen_once
        # The variance of a constant column may differ from zero by cancellation.
        varies = (variances > 1e-12 * squares) & (variances.T > 1e-12 * squares.T)
        correlations = covariances / np.sqrt(np.where(varies, variances * variances.T, 1.0))
        shrunk = np.where(varies, correlations * (seen_once / (seen_once + smoothing)), 0.0)
        found = -0.5 * np.log(np.maximum(1.0 - shrunk**2, np.finfo(np.float64).eps))
        information[np.ix_(self.columns, self.columns)] = found


def _standardisation(table: Values, columns: Sequence[int]) -> tuple[Matrix, Matrix]:
    """Return the shift and the scale that map every column into [-1, 1]."""
    low = np.array([np.fmin.reduce(table[:, column]) for column in columns], np.float64)  # fmin ignores NaN
    high = np.array([np.fmax.reduce(table[:, column]) for column in columns], np.float64)
    shift, scale = low / 2 + high / 2, high / 2 - low / 2
    return shift, np.where(scale > 0, scale, 1.0)
