# SPDX-License-Identifier: Apache-2.0
"""Mutual information against loops over pairs, levels and rows."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from picirc.errors import ArgumentError
from picirc.structure import information
from picirc.structure.information import mutual_information

nan = np.nan


def cut(column: np.ndarray, bins: int) -> np.ndarray:
    """Equally full bins by rank, for columns without ties whose observed values divide evenly among them."""
    observed = np.flatnonzero(~np.isnan(column))
    assert len(observed) % bins == 0
    binned = column.copy()
    for rank, row in enumerate(sorted(observed, key=column.__getitem__)):
        binned[row] = rank * bins // len(observed)
    return binned


def discrete_pair(x: np.ndarray, y: np.ndarray, smoothing: float) -> float:
    """Sum over all cells of p(a, b) log p(a, b) / (p(a) p(b))."""
    a_levels, b_levels = ({v for v in z.tolist() if not math.isnan(v)} for z in (x, y))
    cells = {(a, b): smoothing for a in a_levels for b in b_levels}
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        if not (math.isnan(a) or math.isnan(b)):
            cells[a, b] += 1
    total = sum(cells.values())
    result = 0.0
    for (a, b), count in cells.items():
        if count > 0:
            left = sum(cells[a, other] for other in b_levels)
            right = sum(cells[other, b] for other in a_levels)
            result += count / total * math.log(count * total / (left * right))
    return result


def gaussian_pair(x: np.ndarray, y: np.ndarray, smoothing: float) -> float:
    both = ~(np.isnan(x) | np.isnan(y))
    n = both.sum()
    correlation = np.corrcoef(x[both], y[both])[0, 1] * n / (n + smoothing)
    return -0.5 * math.log(1 - correlation**2)


def oracle(X: np.ndarray, kinds: Sequence[str], bins: int, smoothing: float) -> np.ndarray:
    X = X.astype(float)
    binned = [
        cut(column, bins) if kind in ("ordinal", "gaussian") else column
        for column, kind in zip(X.T, kinds, strict=True)
    ]
    result = np.zeros((len(kinds), len(kinds)))
    for i in range(len(kinds)):
        for j in range(i):
            if kinds[i] == kinds[j] == "gaussian":
                pair = gaussian_pair(X[:, i], X[:, j], smoothing)
            else:
                pair = discrete_pair(binned[i], binned[j], smoothing)
            result[i, j] = result[j, i] = pair
    return result


def mixed(missing: int) -> tuple[np.ndarray, list[str]]:
    """Sixty rows of dependent columns of all kinds, with ``missing`` values missing in each."""
    rng = np.random.default_rng(3)
    z = rng.normal(size=60)
    X = np.column_stack(
        [
            z + rng.normal(size=60),
            (z + rng.normal(size=60)) > 0,
            np.clip(np.round(z + rng.normal(size=60)), -2, 2) + 7,
            rng.permutation(60) * 5,
            100.0 - 3 * z + rng.normal(size=60),
            rng.integers(0, 3, 60),
            np.argsort(np.argsort(z + rng.normal(size=60))) * 3,
        ]
    )
    for column in range(X.shape[1]):
        X[rng.choice(60, missing, replace=False), column] = nan
    return X, ["gaussian", "binary", "categorical", "ordinal", "gaussian", "categorical", "ordinal"]


@pytest.fixture(params=[0.0, 1.0], ids=["dense", "sparse"])
def _product(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to multiply indicators, whatever the data."""
    monkeypatch.setattr(information, "SPARSE_DENSITY", request.param)


@pytest.mark.usefixtures("_product")
@pytest.mark.parametrize("missing", [0, 10, 20])
@pytest.mark.parametrize("smoothing", [0.0, 0.3, 1.0])
def test_equals_the_loops_over_all_kinds(missing: int, smoothing: float) -> None:
    X, kinds = mixed(missing)
    result = mutual_information(X, kinds, bins=5, smoothing=smoothing)
    np.testing.assert_allclose(result, oracle(X, kinds, 5, smoothing), rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("_product")
@given(st.data())
def test_equals_the_loops_on_small_tables(data: st.DataObject) -> None:
    n, d = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 5))
    entries = st.lists(st.sampled_from([0.0, 1.0, 2.0, nan]), min_size=n * d, max_size=n * d)
    X = np.array(data.draw(entries)).reshape(n, d)
    seen_together = all((~np.isnan(X[:, i]) & ~np.isnan(X[:, j])).any() for i in range(d) for j in range(d))
    smoothing = data.draw(st.sampled_from([0.0, 1.0] if seen_together else [1.0]))
    result = mutual_information(X, "categorical", smoothing=smoothing)
    np.testing.assert_allclose(result, oracle(X, ["categorical"] * d, 2, smoothing), atol=1e-12)


@pytest.mark.usefixtures("_product")
@pytest.mark.parametrize("chunk", [1, 50, 1000])
def test_chunks_change_nothing(chunk: int) -> None:
    X, kinds = mixed(10)
    whole = mutual_information(X, kinds, bins=5)
    np.testing.assert_allclose(mutual_information(X, kinds, bins=5, chunk=chunk), whole, atol=1e-13)


def test_kinds_are_inferred() -> None:
    X, kinds = mixed(10)
    result = mutual_information(X, bins=5)
    np.testing.assert_array_equal(result, mutual_information(X, kinds, bins=5))


def test_memory_is_bounded_by_the_chunk() -> None:
    X = np.random.default_rng(0).integers(0, 40, (200, 50))  # all tables together: 2,000² cells, 32 MB
    tracemalloc.start()
    try:
        mutual_information(X, "categorical", chunk=2**14)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4e6


def test_symmetric_non_negative_and_zero_on_the_diagonal() -> None:
    result = mutual_information(*mixed(20), bins=5)
    np.testing.assert_array_equal(result, result.T)
    assert (result >= 0).all()
    assert not result.diagonal().any()


@pytest.mark.parametrize("smoothing", [0.0, 1.0])
@pytest.mark.parametrize("kinds", [["categorical"] * 5, ["gaussian"] * 5, ["auto"] * 5])
def test_degenerate_columns_tell_nothing(kinds: list[str], smoothing: float) -> None:
    rng = np.random.default_rng(0)
    useful = rng.integers(0, 5, 40).astype(float)
    half = np.where(np.arange(40) < 20, 3.0, nan)
    other_half = np.where(np.arange(40) >= 20, useful, nan)
    X = np.column_stack([useful, np.full(40, 2.0), np.full(40, nan), half, other_half])
    result = mutual_information(X, kinds, smoothing=smoothing)
    assert np.isfinite(result).all()
    assert result[0, 4] > 0
    assert result.sum() == pytest.approx(2 * result[0, 4])


def test_columns_never_seen_together_tell_nothing() -> None:
    first = np.tile([0.0, 1.0], 10)
    X = np.column_stack([first, first])
    X[:10, 0] = X[10:, 1] = nan
    for kind in ("binary", "gaussian"):
        for smoothing in (0.0, 1.0):
            np.testing.assert_array_equal(mutual_information(X, kind, smoothing=smoothing), np.zeros((2, 2)))


def test_a_duplicate_tells_all() -> None:
    x = np.random.default_rng(0).integers(0, 3, 90)
    p = np.bincount(x) / 90
    result = mutual_information(np.column_stack([x, x, 2 - x]), smoothing=0.0)
    np.testing.assert_allclose(result[np.triu_indices(3, 1)], -(p * np.log(p)).sum())


@pytest.mark.parametrize("smoothing", [0.0, 1.0])
@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_gaussian_duplicates_stay_finite_at_any_scale(smoothing: float, scale: float) -> None:
    x, noise = np.random.default_rng(0).normal(size=(2, 50))
    X = np.column_stack([x, x, -2 * x, x + noise, noise]) * scale
    result = mutual_information(X, "gaussian", smoothing=smoothing)
    assert np.isfinite(result).all()
    assert result[0, 1] == pytest.approx(result[0, 2])
    assert result[0, 1] > 1 > result[0, 3] > result[0, 4]
    np.testing.assert_allclose(result, mutual_information(X / scale, "gaussian", smoothing=smoothing))


def test_a_gaussian_offset_does_not_matter() -> None:
    X = np.random.default_rng(0).normal(size=(100, 3)) @ np.array([[1, 1, 0], [0, 1, 1], [0, 0, 1]])
    moved = mutual_information(X + 1e6, "gaussian")
    np.testing.assert_allclose(moved, mutual_information(X, "gaussian"), rtol=1e-6)


def test_a_single_row_tells_nothing() -> None:
    assert not mutual_information([[1, 0, 7]]).any()
    assert not mutual_information([[1.5, 0.2]]).any()


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64, np.float16, np.float32])
def test_the_type_of_the_numbers_does_not_matter(dtype: type) -> None:
    X = np.random.default_rng(0).integers(0, 200, (80, 4)) // [1, 50, 80, 150]
    expected = mutual_information(X)
    np.testing.assert_array_equal(mutual_information(X.astype(dtype)), expected)
    np.testing.assert_array_equal(mutual_information(np.asfortranarray(X.astype(dtype))), expected)


def test_booleans_lists_and_tensors_are_welcome() -> None:
    X = np.random.default_rng(0).integers(0, 2, (30, 4))
    expected = mutual_information(X)
    np.testing.assert_array_equal(mutual_information(X.astype(bool)), expected)
    np.testing.assert_array_equal(mutual_information(X.tolist()), expected)
    np.testing.assert_array_equal(mutual_information(torch.as_tensor(X)), expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bins": 1}, "bins: expected an integer of at least 2, got 1"),
        ({"bins": 2.5}, "bins: expected a"),
        ({"smoothing": -1.0}, "smoothing: expected a finite number, 0 or more, got -1.0"),
        ({"smoothing": nan}, "smoothing: expected a finite number"),
        ({"smoothing": math.inf}, "smoothing: expected a finite number"),
        ({"chunk": 0}, "chunk: expected a positive integer"),
        ({"columns": "nominal"}, "columns: expected 'auto'"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        mutual_information([[0, 1], [1, 0]], **arguments)
