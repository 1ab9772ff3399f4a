# SPDX-License-Identifier: Apache-2.0
"""EM steps: weighted maximum likelihood where the family is exponential, an increase for all."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from family_cases import each_case, each_dtype, each_exponential
from numpy.testing import assert_allclose
from scipy import optimize, stats

from picirc.inputs import Bernoulli, Binomial, Categorical, Gaussian, Laplace, Poisson, StudentT

FOLDS, STATES, BATCH = 2, 3, 60


def data(case, generator, dtype=torch.float64):
    """Samples of the first state and random flows."""
    params = case.params(1)[0, 0].expand(FOLDS, BATCH, -1)
    x = case.family.sample(params, generator).to(dtype)
    flows = torch.rand(FOLDS, STATES, BATCH, generator=generator, dtype=torch.float64).square()
    return x, flows.to(dtype)


def step(family, params, x, flows, smoothing=0.0):
    return family.from_statistics(params, family.expected_statistics(params, x, flows), smoothing)


def likelihood(family, params, x, flows):
    """Weighted log-likelihood of each state, (F, K)."""
    return (flows * family.log_prob(params, x)).sum(-1)


def best_likelihood(family, x, flows):
    """The maximum over all parameters of one state, by scipy."""

    def loss(raw):
        raw = torch.tensor(raw, requires_grad=True)
        value = -(flows * family.log_prob(family.constrain(raw[None, None]), x[None])[0, 0]).sum()
        value.backward()
        return value.item(), raw.grad.numpy()

    start = np.zeros(family.size)
    return -optimize.minimize(loss, start, jac=True, options={"gtol": 1e-9}).fun


@each_exponential
def test_a_step_is_the_weighted_maximum_likelihood_of_an_exponential_family(case, generator):
    family = case.family
    x, flows = data(case, generator)
    reached = likelihood(family, step(family, case.params(FOLDS), x, flows), x, flows)
    for fold in range(FOLDS):
        for state in range(STATES):
            best = best_likelihood(family, x[fold], flows[fold, state])
            assert_allclose(reached[fold, state], best, rtol=1e-8)


@each_case
@each_dtype
def test_no_step_lowers_the_likelihood(case, dtype, generator):
    x, flows = data(case, generator, dtype)
    params = case.params(FOLDS, dtype)
    before = likelihood(case.family, params, x, flows)
    for _ in range(20):
        params = step(case.family, params, x, flows)
        assert params.dtype == dtype
        after = likelihood(case.family, params, x, flows)
        slack = 1e-4 * before.abs() if dtype == torch.float32 else 1e-9 * before.abs()
        if isinstance(case.family, Laplace):  # the parabolas are flattened this near to an observation
            slack = slack + 1e-4 * flows.sum(-1)
        assert torch.all(after >= before - slack)
        before = after


def test_laplace_steps_tend_to_the_weighted_median(generator):
    x = torch.randn(1, 101, generator=generator, dtype=torch.float64)
    flows = torch.rand(1, 1, 101, generator=generator, dtype=torch.float64)
    params = torch.tensor([[[x[0, 0], 3.0]]], dtype=torch.float64)  # on an observation, where |r| = 0
    for _ in range(300):
        params = step(Laplace(), params, x, flows)
    order = x[0].argsort()
    total = flows[0, 0, order].cumsum(-1)
    median = x[0, order[(total < total[-1] / 2).sum()]]
    scale = (flows * (x - median).abs()).sum() / flows.sum()
    assert_allclose(params[0, 0], [median, scale], atol=1e-3)


def test_student_steps_tend_to_the_maximum_likelihood():
    x = stats.t(4, 3.0, 2.0).rvs(400, random_state=1)
    df, loc, scale = stats.t.fit(x)
    params = torch.tensor([[[0.0, 5.0, 30.0]]], dtype=torch.float64)
    data = torch.from_numpy(x)[None]
    for _ in range(200):
        params = step(StudentT(), params, data, torch.ones(1, 1, 400, dtype=torch.float64))
    assert_allclose(params[0, 0], [loc, scale, df], rtol=1e-2)
    best = stats.t.logpdf(x, df, loc, scale).sum()
    assert StudentT().log_prob(params, data).sum() > best - 1e-3


def test_student_finds_that_uniform_data_have_no_heavy_tails():
    x = torch.linspace(-1, 1, 200, dtype=torch.float64)[None]
    params = torch.tensor([[[0.0, 1.0, 5.0]]], dtype=torch.float64)
    for _ in range(100):
        params = step(StudentT(), params, x, torch.ones(1, 1, 200, dtype=torch.float64))
    assert params[0, 0, 2] > 50
    assert params.isfinite().all()


@each_case
def test_statistics_of_batches_add_up(case, generator):
    x, flows = data(case, generator)
    params = case.params(FOLDS)
    whole = case.family.expected_statistics(params, x, flows)
    halves = [
        case.family.expected_statistics(params, x[:, part], flows[..., part])
        for part in (slice(0, 25), slice(25, None))
    ]
    assert_allclose(whole, halves[0] + halves[1], rtol=1e-12, atol=1e-12)


@each_case
def test_shared_parameters_pool_the_variables(case, generator):
    x, flows = data(case, generator)
    params = case.params(1)
    pooled = case.family.expected_statistics(params, x, flows)
    apart = case.family.expected_statistics(params.expand(FOLDS, -1, -1), x, flows)
    assert_allclose(pooled, apart.sum(0, keepdim=True), rtol=1e-12, atol=1e-12)
    assert case.family.from_statistics(params, pooled).shape == params.shape


@each_case
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@each_dtype
def test_states_without_weight_stay_finite(case, smoothing, dtype, generator):
    x, flows = data(case, generator, dtype)
    flows[:, 0] = 0
    flows[:, 1, 1:] = 0  # all the weight of the second state on one observation
    params = case.params(FOLDS, dtype)
    new = step(case.family, params, x, flows, smoothing)
    assert new.isfinite().all()
    assert case.family.log_prob(new, x).isfinite().all()
    if smoothing == 0:
        assert torch.equal(new[:, 0], params[:, 0])
    for _ in range(3):
        new = step(case.family, new, x, flows, smoothing)
    assert new.isfinite().all()


def test_smoothing_spreads_over_the_values_of_a_finite_family():
    x, flows = torch.tensor([[0.0, 0.0, 1.0]]), torch.ones(1, 1, 3)
    for family in (Bernoulli(), Categorical(2), Binomial(1)):
        params = torch.zeros(1, 1, family.size)
        table = family.table(step(family, params, x, flows, smoothing=1.0))
        assert_allclose(table.exp()[0, 0], [2.5 / 4, 1.5 / 4], rtol=1e-6)


@pytest.mark.parametrize("family", [Gaussian(), Laplace(), StudentT(), Poisson()], ids=repr)
def test_smoothing_keeps_other_families_near_their_old_parameters(family, generator):
    params = family.constrain(torch.randn(1, 2, family.size, generator=generator))
    stay = step(family, params, torch.zeros(1, 1), torch.zeros(1, 2, 1), smoothing=1.0)
    assert_allclose(stay, params, rtol=1e-5)
    x, flows = torch.full((1, 1), 7.0), torch.ones(1, 2, 1)
    little, much = (step(family, params, x, flows, smoothing) for smoothing in (0.1, 100.0))
    distance = [(family.mean(new) - family.mean(params)).abs() for new in (little, much)]
    assert torch.all(distance[0] > distance[1])


def test_least_scales_hold_in_em():
    x, flows = torch.full((1, 5), 3.0), torch.ones(1, 1, 5)
    for family in (Gaussian(min_std=0.2), Laplace(min_scale=0.2), StudentT(min_scale=0.2)):
        params = family.constrain(torch.zeros(1, 1, family.size))
        for _ in range(30):
            params = step(family, params, x, flows)
        assert_allclose(params[..., :2], [[[3.0, 0.2]]], rtol=1e-3)


def test_gaussian_steps_lose_no_digits_far_from_zero(generator):
    x = 1000 + 1e-2 * torch.randn(1, 500, generator=generator)
    params = torch.tensor([[[999.99, 0.02]]])
    new = step(Gaussian(), params, x, torch.ones(1, 1, 500))
    exact = x.double()
    assert_allclose(new[0, 0], [exact.mean(), exact.std(correction=0)], rtol=1e-4)


@each_case
def test_mix_goes_from_old_to_new(case, generator):
    x, flows = data(case, generator)
    old = case.params(FOLDS)
    new = step(case.family, old, x, flows, smoothing=0.1)
    assert_allclose(case.family.mix(old, new, 0.0), old, rtol=1e-9, atol=1e-12)
    assert_allclose(case.family.mix(old, new, 1.0), new, rtol=1e-9, atol=1e-12)
    middle = case.family.mix(old, new, 0.3)
    expected = 0.7 * case.family.mean(old) + 0.3 * case.family.mean(new)
    assert_allclose(case.family.mean(middle), expected, rtol=1e-9)
    steps = torch.tensor([[0.0, 0.3, 1.0]], dtype=torch.float64)
    each = case.family.mix(old, new, steps)
    assert_allclose(each, torch.stack((old[:, 0], middle[:, 1], new[:, 2]), 1), rtol=1e-9, atol=1e-12)


@each_exponential
def test_mixing_by_weight_equals_averaging_statistics(case, generator):
    family = case.family
    x, flows = data(case, generator)
    params, rate = case.params(FOLDS), 0.2
    first, second = slice(0, 40), slice(40, None)
    a, b = (family.expected_statistics(params, x[:, part], flows[..., part]) for part in (first, second))
    averaged = family.from_statistics(params, (1 - rate) * a + rate * b)
    n, w = (flows[..., part].sum(-1) for part in (first, second))
    mixed = family.mix(
        family.from_statistics(params, a),
        family.from_statistics(params, b),
        rate * w / ((1 - rate) * n + rate * w),
    )
    assert_allclose(family.mean(mixed), family.mean(averaged), rtol=1e-9)
    assert_allclose(family.variance(mixed), family.variance(averaged), rtol=1e-9)


@each_case
@each_dtype
def test_initial_is_finite_whatever_the_columns(case, dtype):
    values = case.x(1, dtype)[0]
    x = torch.full((4, len(values)), torch.nan, dtype=dtype)
    x[0] = values
    x[1] = 1.0  # constant; the third is missing altogether
    x[3, 0] = values[0]
    first, again = (case.family.initial(x, 5, torch.Generator().manual_seed(2)) for _ in range(2))
    assert torch.equal(first, again)
    assert first.shape == (4, 5, case.family.size)
    assert first.dtype == dtype
    assert first.isfinite().all()
    assert case.family.log_prob(first, x.nan_to_num(case.family.neutral)).isfinite().all()
    assert not torch.equal(first[0, 0], first[0, 1]) or not torch.equal(first[0, 1], first[0, 2])
    assert_allclose(case.family.constrain(case.family.unconstrain(first)), first, rtol=1e-4)


@each_case
def test_initial_without_data_or_with_integers(case, generator):
    empty = case.family.initial(torch.empty(2, 0), 3, generator)
    assert empty.shape == (2, 3, case.family.size)
    assert empty.isfinite().all()
    integers = case.family.initial(torch.tensor([[0, 1, 1, 0]]), 3, generator)
    assert integers.dtype == torch.float32
    assert integers.isfinite().all()


@each_case
def test_initial_follows_the_data(case, generator):
    x = case.x()[:, :6]
    mean = case.family.mean(case.family.initial(x, 4000, generator)).mean()
    spread = x.std()
    assert math.isclose(mean, x.mean(), abs_tol=0.25 * spread)
