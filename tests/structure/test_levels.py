# SPDX-License-Identifier: Apache-2.0
"""Arrays for the structure learners: how columns are counted, levels of values, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from picirc.errors import ArgumentError
from picirc.structure import information
from picirc.structure.information import Kind, as_matrix, column_kinds, cut, levels

nan = np.nan


def levelled(values: np.ndarray, kind: Kind, bins: int) -> tuple[np.ndarray, int]:
    """The levels of a column, and their number."""
    ends = cut(values, kind, bins)
    return levels(values, ends), len(ends)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([False, True], "categorical"),
        ([0, 1, 1], "categorical"),
        ([1.0, nan, 0.0], "categorical"),
        ([0, 0], "categorical"),
        ([nan, nan], "categorical"),
        ([0, 1, 2], "categorical"),
        ([-1, 1], "categorical"),
        ([0.0, nan, 63.0], "categorical"),
        ([0, 64], "ordinal"),
        ([-(2**62), 2**62], "ordinal"),
        ([0.0, 0.5], "gaussian"),
        ([1e300, -0.5, nan], "gaussian"),
    ],
)
def test_kinds_are_inferred_from_the_values(values: list, kind: str) -> None:
    table = as_matrix(np.array(values)[:, None])
    assert column_kinds(table) == (kind,)


def test_kinds_are_declared_for_all_columns_or_for_each() -> None:
    table = as_matrix([[0, 5], [1, 6]])
    assert column_kinds(table, "gaussian") == ("gaussian", "gaussian")
    assert column_kinds(table, ["binary", "ordinal"]) == ("binary", "ordinal")
    assert column_kinds(table, ["categorical", "auto"]) == ("categorical", "categorical")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("normal", "columns: expected 'auto' or one of binary, categorical, ordinal, gaussian, got normal"),
        (["binary"], "one kind for each of 2 columns, got 1 kinds"),
        (["binary", "auto"], "zeros and ones in binary column 0, got values in"),
        (["auto", "categorical"], "integers in categorical column 1"),
    ],
)
def test_kinds_that_do_not_fit_are_refused(columns: str | list[str], message: str) -> None:
    table = as_matrix([[0, 0.5], [2, 1.0]])
    with pytest.raises(ArgumentError, match=message):
        column_kinds(table, columns)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros(3), r"two dimensions, \(rows, columns\), got shape \(3,\)"),
        (np.zeros((2, 3, 3)), "flattens images"),
        (np.zeros((0, 3)), r"at least one row and one column, got shape \(0, 3\)"),
        (np.zeros((3, 0)), "at least one row and one column"),
        ([[0.0, np.inf]], "finite values, got an infinite one in column 1"),
        ([[-np.inf]], "finite values"),
        ([["a"]], "numbers, got dtype"),
        ([[None, 1]], "numbers, got dtype object"),
        ([[1j]], "numbers, got dtype complex"),
        ([[1, 2], [3]], "a table of numbers, got list"),
        (torch.zeros(2, 2, requires_grad=True), "a table of numbers, got Tensor"),
    ],
)
def test_what_is_no_table_is_refused(X: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        as_matrix(X)


def test_a_mask_is_missing_values() -> None:
    masked = np.ma.masked_array([[1, 2], [3, 4]], mask=[[False, True], [False, False]])
    np.testing.assert_array_equal(as_matrix(masked), [[1, nan], [3, 4]])


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64, np.float32, np.float64])
@pytest.mark.parametrize("kind", ["categorical", "ordinal"])
def test_few_values_are_levels_as_they_are(dtype: type, kind: str) -> None:
    level, n_levels = levelled(np.array([9, 3, 3, 100], dtype), kind, bins=3)
    assert level.tolist() == [1, 0, 0, 2]
    assert n_levels == 3


def test_missing_values_come_after_all_levels() -> None:
    level, n_levels = levelled(np.array([nan, 2.0, nan, 1.0]), "categorical", bins=2)
    assert (level.tolist(), n_levels) == ([2, 1, 2, 0], 2)
    level, n_levels = levelled(np.array([nan, nan]), "gaussian", bins=2)
    assert (level.tolist(), n_levels) == ([0, 0], 0)


def test_categories_are_merged_only_if_they_are_very_many(monkeypatch: pytest.MonkeyPatch) -> None:
    level, n_levels = levelled(np.arange(300), "categorical", bins=2)
    assert (level.tolist(), n_levels) == (list(range(300)), 300)
    monkeypatch.setattr(information, "MOST_CATEGORIES", 20)
    values = np.append(np.arange(300), np.repeat([17, 170], 100))
    level, n_levels = levelled(values, "categorical", bins=2)
    assert n_levels <= 20
    for frequent in (17, 170):
        assert set(values[level == level[frequent]]) == {frequent}


@pytest.mark.parametrize("kind", ["ordinal", "gaussian"])
def test_values_without_ties_fall_into_equal_bins(kind: str) -> None:
    values = np.random.default_rng(0).permutation(60) ** 2 / 7
    level, n_levels = levelled(values, kind, bins=5)
    assert n_levels == 5
    assert np.bincount(level).tolist() == [12] * 5
    assert (np.diff(level[np.argsort(values)].astype(int)) >= 0).all()


@pytest.mark.parametrize("frequent", [-1, 17, 41])
def test_a_frequent_value_has_a_bin_of_its_own(frequent: int) -> None:
    values = np.concatenate([np.full(160, frequent), np.arange(40)])
    level, n_levels = levelled(values, "ordinal", bins=5)
    own = set(level[values == frequent].tolist())
    others = level[(values != frequent)]
    assert len(own) == 1
    assert np.isin(others, list(own)).sum() <= 1
    assert n_levels == 5
    assert np.ptp(np.bincount(others, minlength=5)[[i for i in range(5) if i not in own]]) <= 8


@given(st.lists(st.integers(-200, 200), min_size=1, max_size=60), st.integers(2, 8))
def test_bins_are_intervals_and_no_more_than_asked_for(values: list[int], bins: int) -> None:
    level, n_levels = levelled(np.array(values), "ordinal", bins)
    assert sorted(set(level.tolist())) == list(range(n_levels))
    assert n_levels <= bins or n_levels == len(set(values)) <= bins
    assert n_levels >= min(2, len(set(values)))
    by_value = sorted(zip(values, level.tolist(), strict=True))
    assert [pair[1] for pair in by_value] == sorted(level.tolist())
    assert len(set(by_value)) == len(set(values))


def test_values_between_those_that_were_cut_belong_to_the_next_level() -> None:
    ends = cut(np.array([1.0, 2.0, 4.0, 8.0]), "ordinal", bins=2)
    assert ends.tolist() == [2.0, 8.0]
    assert levels(np.array([0.5, 2.0, 2.5, 8.0, nan]), ends).tolist() == [0, 0, 1, 1, 2]
