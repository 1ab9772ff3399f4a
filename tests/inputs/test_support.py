# SPDX-License-Identifier: Apache-2.0
"""What families refuse: values outside the support, wrong constructor arguments, missing categories."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from family_cases import each_case, each_finite

from picirc.errors import ArgumentError
from picirc.inputs import (
    Bernoulli,
    Binomial,
    Categorical,
    Gaussian,
    Laplace,
    Poisson,
    StudentT,
    as_columns,
    group_columns,
)

inf = torch.inf


@each_case
def test_support_and_missing_values_pass(case):
    x = torch.cat((case.x()[0], torch.tensor([torch.nan])))
    case.family.check(x, "age")
    case.family.check(x.float(), "age")
    case.family.check(torch.tensor([torch.nan, torch.nan]), "age")
    case.family.check(torch.empty(0), "age")
    case.family.check(torch.tensor([0, 1], dtype=torch.uint8), "age")
    case.family.check(torch.tensor([0, 1]), "age")


@pytest.mark.parametrize(
    ("family", "wrong"),
    [
        *((Bernoulli(), value) for value in (-1.0, 2.0, 0.5, inf, -inf)),
        *((Categorical(3), value) for value in (-1.0, 3.0, 1.5, inf, -inf)),
        *((Binomial(9), value) for value in (-1.0, 10.0, 0.1, inf, -inf)),
        *((Poisson(), value) for value in (-1.0, 0.1, inf, -inf, 1e13)),
        *((Gaussian(), value) for value in (inf, -inf, 1e13)),
        *((Laplace(), value) for value in (inf, -inf, -1e13)),
        *((StudentT(), value) for value in (inf, -inf, 1e13)),
    ],
    ids=str,
)
def test_values_outside_the_support_are_named(family, wrong):
    x = torch.tensor([0.0, torch.nan, wrong, wrong], dtype=torch.float64)
    message = rf"variable age: expected .*, got {re.escape(str(wrong))} in row 2"
    with pytest.raises(ArgumentError, match=message):
        family.check(x, "age")


def test_integers_outside_the_support_are_named():
    with pytest.raises(ArgumentError, match=r"variable 7: expected integers from 0 to 2.*got 3 in row 1"):
        Categorical(3).check(torch.tensor([0, 3]), 7)
    with pytest.raises(ArgumentError, match="got -1 in row 0"):
        Poisson().check(torch.tensor([-1]), 7)


@each_finite
def test_a_missing_category_is_never_read(case):
    x = torch.tensor([[0.0, torch.nan]])
    for method in (case.family.log_prob, case.family.cdf):
        with pytest.raises(ArgumentError, match="without NaN"):
            method(case.params(), x)


@pytest.mark.parametrize("wrong", [0, -3, 2.5, True, "3", None])
def test_sizes_are_positive_integers(wrong):
    with pytest.raises(ArgumentError, match="categories: expected a positive integer"):
        Categorical(wrong)
    with pytest.raises(ArgumentError, match="trials: expected a positive integer"):
        Binomial(wrong)


def test_sizes_may_come_from_arrays():
    for size in (np.int64(4), torch.tensor(4)):
        assert repr(Categorical(size)) == "Categorical(4)"
        assert Binomial(size) == Binomial(4)


@pytest.mark.parametrize("wrong", [0.0, -1.0, inf, torch.nan, True, "1"])
def test_floors_are_positive_numbers(wrong):
    with pytest.raises(ArgumentError, match="min_std"):
        Gaussian(min_std=wrong)
    with pytest.raises(ArgumentError, match="min_scale"):
        Laplace(min_scale=wrong)
    with pytest.raises(ArgumentError, match="min_scale"):
        StudentT(min_scale=wrong)
    with pytest.raises(ArgumentError, match="min_df"):
        StudentT(min_df=wrong)


def test_the_variance_of_student_t_stays_finite():
    with pytest.raises(ArgumentError, match=r"min_df: expected a finite number above 2"):
        StudentT(min_df=2.0)
    params = StudentT().constrain(torch.full((3,), -1e4))
    assert StudentT().variance(params).isfinite()


def test_columns_take_one_family_or_one_each():
    mixed = [Gaussian(), Categorical(3), Gaussian()]
    assert as_columns(Bernoulli(), 3) == (Bernoulli(),) * 3
    assert as_columns(mixed, 3) == tuple(mixed)
    assert as_columns(tuple(mixed), 3) == tuple(mixed)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([Gaussian()], "inputs: expected one family for each of the 2 variables, got 1 families"),
        ([Gaussian(), "normal"], r"inputs\[1\]: expected a family, got 'normal'"),
        (3, "inputs: expected a family, or a sequence"),
        ("ab", r"inputs\[0\]"),
        (Gaussian, r"got the class Gaussian; write Gaussian\(...\)"),
    ],
)
def test_columns_refuse_anything_else(inputs, message):
    with pytest.raises(ArgumentError, match=message):
        as_columns(inputs, 2)


def test_groups_hold_every_column_once_in_order_of_appearance():
    columns = [Categorical(3), Gaussian(), Categorical(2), Categorical(3), Gaussian(min_std=0.1), Gaussian()]
    assert group_columns(columns) == [
        (Categorical(3), [0, 3]),
        (Gaussian(), [1, 5]),
        (Categorical(2), [2]),
        (Gaussian(min_std=0.1), [4]),
    ]
    assert group_columns([]) == []
