# SPDX-License-Identifier: Apache-2.0
"""Probabilities far out, where differences of distribution functions have no digits left."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from family_cases import each_dtype
from numpy.testing import assert_allclose
from scipy import integrate, special, stats

from picirc.inputs import Bernoulli, Binomial, Categorical, Gaussian, Laplace, Poisson, StudentT


def log_interval(family, params, low, high, dtype=torch.float64):
    params = torch.tensor([[params]], dtype=dtype)
    low, high = (torch.tensor([[v]], dtype=dtype) for v in (low, high))
    return family.log_interval(params, low, high).item()


@each_dtype
@pytest.mark.parametrize(("low", "high"), [(5, 6), (20, 21), (30, np.inf), (100, 101), (1, 1 + 2**-12)])
def test_gaussian_tails_on_both_sides(low, high, dtype):
    # log P(X > a) - log P(X > b) is large in the tails, so this oracle is accurate there
    first, last = stats.norm.logsf(low), stats.norm.logsf(high)
    expected = first + np.log(-np.expm1(last - first))
    rtol = 1e-6 if dtype == torch.float32 else 1e-9
    assert_allclose(log_interval(Gaussian(), [0.0, 1.0], low, high, dtype), expected, rtol=rtol)
    assert_allclose(log_interval(Gaussian(), [0.0, 1.0], -high, -low, dtype), expected, rtol=rtol)


@each_dtype
@pytest.mark.parametrize(("low", "high"), [(50, 51), (700, np.inf), (2000, 2001)])
def test_laplace_tails_on_both_sides(low, high, dtype):
    expected = -low - np.log(2) + np.log(-np.expm1(low - high))
    assert_allclose(log_interval(Laplace(), [0.0, 1.0], low, high, dtype), expected, rtol=1e-6)
    assert_allclose(log_interval(Laplace(), [0.0, 1.0], -high, -low, dtype), expected, rtol=1e-6)


@pytest.mark.parametrize(("low", "high"), [(1e3, np.inf), (1e5, 2e5), (20, 20.001)])
def test_student_tails_on_both_sides(low, high):
    expected = np.log(stats.t.sf(low, 3) - stats.t.sf(high, 3))
    assert_allclose(log_interval(StudentT(), [0.0, 1.0, 3.0], low, high), expected, rtol=1e-9)
    assert_allclose(log_interval(StudentT(), [0.0, 1.0, 3.0], -high, -low), expected, rtol=1e-9)


@pytest.mark.parametrize(("df", "low"), [(1e6, 50.0), (1e4, 40.0), (300.0, 1e3), (1000.0, 1e9)])
def test_student_tails_beyond_the_smallest_float(df, low):
    def log_density(x):
        return stats.t.logpdf(x, df)

    scale = (df + low**2) / ((df + 1) * low)  # over which the density falls by e
    shape = integrate.quad(lambda s: np.exp(log_density(low + scale * s) - log_density(low)), 0, 60)[0]
    expected = log_density(low) + np.log(scale * shape)
    assert expected < -700
    assert_allclose(log_interval(StudentT(), [0.0, 1.0, df], low, np.inf), expected, atol=1e-4)
    assert_allclose(log_interval(StudentT(), [0.0, 1.0, df], -np.inf, -low), expected, atol=1e-4)


@pytest.mark.parametrize(
    ("rate", "low", "high"),
    [
        (1.0, 400, np.inf),
        (1.0, 400, 400),
        (1.0, 30, 32),
        (3000.0, 0, 100),
        (3000.0, -np.inf, 1),
        (3000.0, 2990, 3010),
        (3000.0, 6000, np.inf),
        (3000.0, 6000, 6001),
        (1e6, 0, 960_000),
        (1e6, 1_040_000, np.inf),
    ],
)
def test_poisson_tails(rate, low, high):
    first = max(low, 0) if high == np.inf else max(low, high - 20_000, 0)  # the end that matters
    x = np.arange(first, min(high, first + 20_000) + 1)
    expected = special.logsumexp(stats.poisson.logpmf(x, rate))
    tolerance = 1e-3 if rate > 1e5 else 1e-8  # the series for lost probabilities is cut off
    assert_allclose(log_interval(Poisson(), [np.log(rate)], low, high), expected, atol=tolerance, rtol=1e-8)


@each_dtype
def test_finite_ranges_are_sums_of_positive_terms(dtype):
    probabilities = torch.tensor([0.5, 1e-20, 3e-20, 0.5 - 4e-20], dtype=torch.float64)
    params = probabilities.log().tolist()
    assert_allclose(log_interval(Categorical(4), params, 1, 2, dtype), np.log(4e-20), rtol=1e-6)
    assert_allclose(log_interval(Categorical(4), params, 0.5, 1.5, dtype), np.log(1e-20), rtol=1e-6)
    upper = log_interval(Binomial(255), [-4.0], 200, np.inf, dtype)
    x = np.arange(200, 256)
    expected = special.logsumexp(stats.binom.logpmf(x, 255, special.expit(-4.0)))
    assert_allclose(upper, expected, rtol=1e-6)


def test_every_range_of_a_table():
    categories = 11
    table = torch.randn(2, 3, categories, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    table = table.log_softmax(-1)
    ends = torch.cartesian_prod(torch.arange(-1.0, 13), torch.arange(-1.0, 13)).T.double()
    low, high = (end.expand(2, -1) for end in ends)
    result = Categorical(categories).log_interval(table, low, high)
    codes = torch.arange(categories)
    inside = (codes >= low[0, :, None]) & (codes <= high[0, :, None])  # (B, C)
    assert_allclose(result.exp(), table.exp() @ inside.double().T, atol=1e-14)


@each_dtype
@pytest.mark.parametrize("logit", [-80.0, 80.0])
def test_large_logits_keep_the_small_probability(logit, dtype):
    params = torch.tensor([[[logit]]], dtype=dtype)
    x = torch.tensor([[0.0, 1.0]], dtype=dtype)
    expected = np.sort([-80.0, -np.exp(-80.0)])
    assert_allclose(np.sort(Bernoulli().log_prob(params, x)[0, 0].numpy()), expected, rtol=1e-6)


def test_a_narrow_gaussian_far_from_zero_keeps_its_digits():
    params = torch.tensor([[[1000.0, 1e-3]]])
    x = torch.tensor([[1000.0, 1000.0 + 2**-10]])
    expected = stats.norm.logpdf(x.numpy(), 1000, 1e-3)
    assert_allclose(Gaussian().log_prob(params, x)[0], expected, rtol=1e-5)


def test_poisson_keeps_its_digits_at_large_counts():
    x = torch.tensor([[999_000.0, 1_000_000.0, 1_002_000.0]])
    params = torch.tensor([[[13.815511]]])
    expected = stats.poisson.logpmf(x.numpy(), np.exp(params.double().item()))
    assert_allclose(Poisson().log_prob(params, x)[0], expected, atol=5e-3)


@each_dtype
def test_student_becomes_gaussian(dtype):
    x = torch.tensor([[-3.0, 0.0, 1.0, 4.0]], dtype=dtype)
    student = torch.tensor([[[0.5, 2.0, 1e6]]], dtype=dtype)
    gaussian = student[..., :2]
    assert_allclose(StudentT().log_prob(student, x), Gaussian().log_prob(gaussian, x), atol=2e-5)
    assert_allclose(StudentT().inner(student, student), Gaussian().inner(gaussian, gaussian), rtol=1e-5)


def test_laplace_inner_is_smooth_where_scales_are_equal():
    a = torch.tensor([[[0.0, 1.0]]], dtype=torch.float64)
    b = torch.tensor([[[0.7, 1.0], [0.7, 1 + 1e-12], [0.7, 1 + 1e-6]]], dtype=torch.float64)
    equal, close, near = Laplace().inner(a, b)[0, 0]
    assert_allclose(equal, 1.7 * np.exp(-0.7) / 4)
    assert_allclose([close, near], equal, rtol=1e-5)
