# SPDX-License-Identifier: Apache-2.0
"""The linear-Gaussian conditional density against scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

import picirc as pc
from picirc.errors import ArgumentError


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_density_broadcasts_and_equals_the_normal_density(dtype):
    function = pc.LinearGaussian({"a": 0.8, "b": -1.5}, bias=0.3, std=0.4)
    v, a, b = (torch.linspace(-2, 2, n, dtype=dtype) for n in (3, 4, 5))
    result = function.log_density(v[:, None, None], a[None, :, None], b[None, None, :])
    v, a, b = np.meshgrid(v, a, b, indexing="ij")
    assert result.dtype == dtype
    expected = stats.norm.logpdf(v, 0.8 * a - 1.5 * b + 0.3, 0.4)
    np.testing.assert_allclose(result, expected, rtol=1e-5 if dtype == torch.float32 else 1e-13)


def test_parents_stand_in_the_order_of_the_weights():
    function = pc.LinearGaussian({"b": 2.0, "a": 3.0})
    assert function.parents == ("b", "a")
    assert float(function.mean(torch.tensor(1.0), torch.tensor(10.0))) == 32.0


def test_without_parents_it_is_a_normal_density():
    function = pc.LinearGaussian(bias=1.0, std=2.0)
    assert function.parents == ()
    assert float(function.log_density(torch.tensor(4.0))) == pytest.approx(stats.norm.logpdf(4.0, 1.0, 2.0))


def test_repr_reads_like_the_formula():
    assert repr(pc.LinearGaussian({"z1": 0.8, "z2": -1.0}, 0.1, 0.5)) == "LinearGaussian(0.8·z1 + -1·z2 + 0.1, std=0.5)"
    assert repr(pc.LinearGaussian()) == "LinearGaussian(0, std=1)"


@pytest.mark.parametrize("value", [math.nan, math.inf, None, "a", [1.0]])
@pytest.mark.parametrize("argument", ["bias", "std", "weights"])
def test_numbers_are_finite(argument, value):
    with pytest.raises(ArgumentError, match=f"{argument}: expected a finite number"):
        pc.LinearGaussian(**{argument: {"z": value} if argument == "weights" else value})


def test_a_gradient_is_not_cut_silently():
    with pytest.raises(ArgumentError, match="std: expected a plain number, got a tensor that requires a gradient"):
        pc.LinearGaussian(std=torch.tensor(1.0, requires_grad=True))  # type: ignore[arg-type]


def test_weights_have_names():
    with pytest.raises(ArgumentError, match="weights: expected a coefficient for each parent by name"):
        pc.LinearGaussian([("z", 1.0)])  # type: ignore[arg-type]
