"""Tables of data as the structure learners read them: columns of a kind, and their values as levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from picirc.errors import ArgumentError

Kind = Literal["binary", "categorical", "ordinal", "gaussian"]
Columns = Kind | Literal["auto"] | Sequence[str]
KINDS: tuple[Kind, ...] = get_args(Kind)

# Integers that span more values than this are read as quantities (pixels), not as names (letters, classes).
LARGEST_CATEGORICAL_RANGE = 64

Values = npt.NDArray[Any]
Levels = npt.NDArray[np.unsignedinteger[Any]]


def read_table(X: npt.ArrayLike) -> Values:
    """Return ``X`` as a two-dimensional array of numbers in which only NaN marks a missing value.

    Raises:
        ArgumentError: ``X`` is no table of finite numbers (and NaN) with at least one row and one column.
    """
    remedy = "give an array of integers, floats (NaN where missing) or booleans, one row an observation"
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
            raise ArgumentError("X", "finite values", f"an infinite one in column {column}", "use NaN if missing")
    return table


def column_kinds(table: Values, columns: Columns = "auto") -> tuple[Kind, ...]:
    """Return the kind of every column: as declared, or inferred from its values.

    Inferred is ``"binary"`` for zeros and ones, ``"categorical"`` for integers, ``"ordinal"`` for integers
    that span more than 64 values and ``"gaussian"`` if any value has a fractional part.

    Args:
        table: What :func:`read_table` returned.
        columns: ``"auto"``, one kind for all columns, or a kind (or ``"auto"``) for each.

    Raises:
        ArgumentError: A kind is unknown, their number is wrong, or a column has values its kind cannot have.
    """
    declared = [columns] * table.shape[1] if isinstance(columns, str) else list(columns)
    if len(declared) != table.shape[1]:
        raise ArgumentError("columns", f"one kind for each of {table.shape[1]} columns", f"{len(declared)} kinds")
    return tuple(_kind(table[:, i], kind, f"column {i}") for i, kind in enumerate(declared))


def levels(values: Values, kind: Kind, bins: int) -> tuple[Levels, int]:
    """Number the distinct values of a column, or the bins of its values, from 0 in ascending order.

    Binary and categorical columns keep their values. Ordinal and Gaussian ones with more than ``bins`` values
    are cut into at most ``bins`` intervals that hold as equal numbers of rows as ties permit.

    Returns:
        The level of every row, and the number K of levels; a missing value has "level" K.
    """
    missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)
    distinct, counts = _distinct(values[~missing])
    level_of = np.arange(len(distinct))
    if kind in ("ordinal", "gaussian") and len(distinct) > bins:
        level_of = _equal_frequency(counts, bins)
    n_levels = int(level_of[-1]) + 1 if len(distinct) else 0
    # NaN sorts last, and so finds the entry behind all others.
    numbers = np.append(level_of, n_levels).astype(np.min_scalar_type(n_levels))
    return numbers[np.searchsorted(distinct, values)], n_levels


def _kind(values: Values, declared: str, name: str) -> Kind:
    observed = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    whole = values.dtype.kind in "iu" or bool((observed == np.floor(observed)).all())
    low, high = (observed.min(), observed.max()) if len(observed) else (0, 0)
    binary = whole and low >= 0 and high <= 1
    if declared == "auto":
        if binary:
            return "binary"
        if not whole:
            return "gaussian"
        return "categorical" if float(high) - float(low) < LARGEST_CATEGORICAL_RANGE else "ordinal"
    if declared not in KINDS:
        raise ArgumentError("columns", f"'auto' or one of {', '.join(KINDS)}", declared)
    if declared == "binary" and not binary:
        raise ArgumentError("X", f"zeros and ones in binary {name}", f"values in [{low}, {high}]")
    if declared == "categorical" and not whole:
        raise ArgumentError("X", f"whole numbers in categorical {name}", "fractions", "declare it gaussian")
    return declared


def _distinct(values: Values) -> tuple[Values, npt.NDArray[np.intp]]:
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

    Each interval ends as close as it can to its share of the rows that are left, so a frequent value (the
    black of an image) takes an interval of its own and the others divide the rest among them.
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
    """Return the number of rows a bin should hold when values above that number have bins of their own."""
    frequent = np.zeros(len(counts), bool)
    while True:
        share = float(counts[~frequent].sum() / (bins - frequent.sum()))
        if np.array_equal(frequent, counts > share):
            return share
        frequent = counts > share  # the share has become smaller, so these are more values than before
