# SPDX-License-Identifier: Apache-2.0
"""Every family against scipy, method by method."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, is_dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch
from family_cases import CASES, each_case, each_dtype, each_finite, near
from numpy.testing import assert_allclose
from scipy import integrate, stats
from torch.utils._python_dispatch import TorchDispatchMode

from picirc.inputs import Bernoulli, Binomial, Categorical, Family, Gaussian, Laplace, Poisson, StudentT


@each_case
@each_dtype
def test_log_prob(case, dtype):
    params, x = case.params(3, dtype), case.x(3, dtype)
    result = case.family.log_prob(params, x)
    assert result.dtype == dtype
    assert_allclose(result.numpy(), case.log_prob(params, x), **near(dtype))


@each_case
def test_shared_parameters_equal_repeated_ones(case):
    shared, x = case.params(1), case.x(4)
    repeated = shared.expand(4, -1, -1)
    for method in (case.family.log_prob, case.family.cdf):
        assert torch.equal(method(shared, x), method(repeated, x))
    low = x - 1
    assert torch.equal(case.family.log_interval(shared, low, x), case.family.log_interval(repeated, low, x))


class Largest(TorchDispatchMode):
    """Watches the size of the memory behind every tensor that is made."""

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for value in result if isinstance(result, list | tuple) else [result]:
            if isinstance(value, torch.Tensor):
                self.bytes = max(self.bytes, value.untyped_storage().nbytes())
        return result


@each_case
def test_shared_parameters_are_never_expanded(case):
    folds, states, rows = 40, 3, 5
    family = Categorical(500) if isinstance(case.family, Categorical) else case.family
    family = Binomial(500) if isinstance(family, Binomial) else family
    raw = torch.randn(1, states, family.size, generator=torch.Generator().manual_seed(0), requires_grad=True)
    x = torch.ones(folds, rows)
    with Largest() as largest:
        result = family.log_prob(family.constrain(raw), x)
        result.sum().backward()
        family.expected_statistics(family.constrain(raw).detach(), x, torch.ones(folds, states, rows))
    result_bytes = 4 * folds * states * rows
    table_bytes = 8 * states * max(family.size, 501)
    assert largest.bytes <= max(2 * result_bytes, table_bytes)
    assert raw.grad.shape == raw.shape


@each_case
def test_integer_data_mean_the_same(case):
    x = torch.tensor([[0, 1, 1]])
    for dtype in (torch.uint8, torch.int64):
        assert torch.equal(case.family.cdf(case.params(), x.to(dtype)), case.family.cdf(case.params(), x.double()))
        assert torch.equal(
            case.family.log_prob(case.params(), x.to(dtype)), case.family.log_prob(case.params(), x.double())
        )


@each_case
def test_log_prob_has_the_gradient_of_finite_differences(case):
    torch.manual_seed(0)
    raw = torch.randn(2, 3, case.family.size, dtype=torch.float64, requires_grad=True)
    shared = torch.randn(1, 3, case.family.size, dtype=torch.float64, requires_grad=True)
    x = case.x(2)[:, :5]  # 100 is out of reach of the step of the differences
    for start in (raw, shared):
        assert torch.autograd.gradcheck(lambda r: case.family.log_prob(case.family.constrain(r), x), start)


@each_case
@each_dtype
def test_mean_and_variance(case, dtype):
    params = case.params(2, dtype)
    assert_allclose(case.family.mean(params).numpy(), case.oracle("mean", params), **near(dtype))
    assert_allclose(case.family.variance(params).numpy(), case.oracle("var", params), **near(dtype))


@each_case
@each_dtype
def test_cdf(case, dtype):
    infinities = torch.tensor([[-torch.inf, -0.5, 1.2, torch.inf]], dtype=dtype)
    x = torch.cat((case.x(1, dtype), infinities), -1)
    params = case.params(1, dtype)
    result = case.family.cdf(params, x)
    assert result.dtype == dtype
    assert_allclose(result.numpy(), case.oracle("cdf", params, x), rtol=2e-5, atol=near(dtype)["atol"])


@each_case
@each_dtype
def test_log_interval_includes_both_ends(case, dtype):
    low = torch.tensor([[-torch.inf, -torch.inf, 0.0, 0.5, 1.0, 1.0, 2.0, 3.0]], dtype=dtype)
    high = torch.tensor([[torch.inf, 1.0, torch.inf, 2.5, 3.0, 1.0, 1.0, torch.inf]], dtype=dtype)
    params = case.params(1, dtype)
    below = low.ceil() - 1 if case.family.discrete else low
    expected = case.oracle("cdf", params, high) - case.oracle("cdf", params, below)
    result = case.family.log_interval(params, low, high)
    assert result.dtype == dtype
    assert_allclose(result.exp().numpy(), np.maximum(expected, 0), rtol=1e-4, atol=near(dtype)["atol"])
    assert torch.all(result[..., 0].abs() < 1e-5)  # everything
    assert torch.all(result[..., 6] == -torch.inf)  # an empty interval


@each_case
def test_interval_of_everything_is_one_for_extreme_parameters(case):
    everything = torch.tensor([[torch.inf]])
    params = case.family.constrain(torch.full((1, 1, case.family.size), -40.0))
    assert case.family.log_interval(params, -everything, everything).abs() < 1e-5


@each_case
def test_mode_is_where_the_log_prob_is_highest(case):
    params = case.params(2)
    mode, top = case.family.mode(params), case.family.mode_log_prob(params)
    assert mode.shape == top.shape == params.shape[:-1]
    at_modes = case.family.log_prob(params, mode)  # (F, K, K): every state at the mode of every state
    assert_allclose(at_modes.diagonal(dim1=1, dim2=2), top)
    last = 17 if case.family.table(params) is None else case.family.table(params).shape[-1] - 1
    grid = torch.arange(last + 1.0) if case.family.discrete else torch.linspace(-50, 50, 1001)
    assert torch.all(case.family.log_prob(params, grid.double().expand(2, -1)) <= top.unsqueeze(-1) + 1e-12)


@each_case
@each_dtype
def test_samples_fit_the_distribution(case, dtype):
    generator = torch.Generator().manual_seed(1)
    for state in range(len(case.states)):
        params = case.params(1, dtype)[0, state].expand(50, 100, -1)
        draws = case.family.sample(params, generator)
        assert draws.shape == (50, 100)
        assert draws.dtype == dtype
        case.family.check(draws.flatten(), "x")
        x = draws.flatten().double().numpy()
        exact = case.scipy(case.params()[0, state].numpy())
        if case.family.discrete:
            values, observed = np.unique(x, return_counts=True)
            expected = len(x) * exact.pmf(values)
            common = expected >= 5
            rest = len(x) - expected[common].sum()
            observed = np.append(observed[common], observed[~common].sum())
            expected = np.append(expected[common], rest)
            keep = expected > 1e-9
            assert observed[~keep].sum() == 0
            pvalue = stats.chisquare(observed[keep], expected[keep], sum_check=False).pvalue
            assert keep.sum() == 1 or pvalue > 1e-3
        else:
            assert stats.kstest(x, exact.cdf).pvalue > 1e-3


@each_case
def test_samples_depend_on_the_generator_alone(case):
    params = case.params(4)
    torch.manual_seed(5)
    first = case.family.sample(params, torch.Generator().manual_seed(3))
    torch.manual_seed(6)
    assert torch.equal(first, case.family.sample(params, torch.Generator().manual_seed(3)))


@each_case
@each_dtype
def test_inner_equals_the_sum_or_integral_of_the_product(case, dtype):
    params = case.params(1, dtype)
    other = params[:, :2]
    result = case.family.inner(params, other)
    assert result.shape == (1, 3, 2)
    assert result.dtype == dtype
    rows = params[0].double().numpy()
    for i, p in enumerate(map(case.scipy, rows)):
        for j, q in enumerate(map(case.scipy, rows[:2])):
            if case.family.discrete:
                x = np.arange(200)
                expected = (p.pmf(x) * q.pmf(x)).sum()
            else:
                cuts = [-np.inf, *sorted({*rows[:, 0], -200.0, -1.0, 5.0, 200.0}), np.inf]
                expected = sum(
                    integrate.quad(lambda x, p=p, q=q: p.pdf(x) * q.pdf(x), *piece, epsabs=1e-14)[0]
                    for piece in pairwise(cuts)
                )
            assert_allclose(result[0, i, j], expected, rtol=1e-4 if dtype == torch.float32 else 1e-7)


@each_case
def test_inner_shares_parameters(case):
    a, b = case.params(1), case.params(3)
    result = case.family.inner(a, b)
    assert_allclose(result, case.family.inner(a.expand(3, -1, -1), b), rtol=1e-12)
    assert_allclose(result, case.family.inner(b, a).mT, rtol=1e-12)


@each_finite
def test_table_lists_all_log_probs(case):
    params = case.params(2)
    table = case.family.table(params)
    x = torch.arange(table.shape[-1], dtype=torch.float64).expand(2, -1)
    assert_allclose(table, case.log_prob(params, x), rtol=1e-9, atol=1e-10)
    assert_allclose(table.logsumexp(-1), 0.0, atol=1e-12)


def test_only_finite_families_have_a_table():
    for case in CASES:
        finite = isinstance(case.family, Bernoulli | Binomial | Categorical)
        assert (case.family.table(case.params()) is not None) == finite


@each_case
@each_dtype
def test_constrain_is_finite_and_valid_for_any_raw_value(case, dtype):
    extremes = torch.tensor([0.0, 1.0, -1.0, 80.0, -80.0, 1e4, -1e4, 1e30, -1e30], dtype=dtype)
    raw = torch.cartesian_prod(*[extremes] * min(case.family.size, 3)).reshape(-1, min(case.family.size, 3))
    raw = torch.nn.functional.pad(raw, (0, case.family.size - raw.shape[-1])).requires_grad_()
    params = case.family.constrain(raw)
    assert params.dtype == dtype
    assert params.isfinite().all()
    params.sum().backward()
    assert raw.grad.isfinite().all()


@each_case
@each_dtype
def test_extreme_parameters_give_no_nan(case, dtype):
    extremes = torch.tensor([0.0, 80.0, -80.0], dtype=dtype)
    raw = torch.cartesian_prod(*[extremes] * case.family.size).reshape(1, -1, case.family.size)
    raw.requires_grad_()
    family, params, x = case.family, case.family.constrain(raw), case.x(2, dtype)
    result = family.log_prob(params, x)
    assert result.isfinite().all()
    (gradient,) = torch.autograd.grad(result.sum(), raw)
    assert gradient.isfinite().all()
    params = params.detach()
    for value in (
        family.cdf(params, x),
        family.mean(params),
        family.variance(params),
        family.mode(params),
        family.mode_log_prob(params),
        family.inner(params[:, :9], params[:, :9]),
        family.sample(params, torch.Generator().manual_seed(0)),
        family.log_interval(params, x - 1, x).exp(),
    ):
        assert value.isfinite().all()


@each_case
@each_dtype
def test_unconstrain_undoes_constrain(case, dtype):
    params = case.params(2, dtype)
    again = case.family.constrain(case.family.unconstrain(params))
    assert_allclose(again, params, rtol=1e-5 if dtype == torch.float32 else 1e-8)


@each_case
def test_neutral_is_in_the_support(case):
    neutral = torch.full((1, 1), case.family.neutral, dtype=torch.float64)
    case.family.check(neutral[0], "x")
    assert case.family.log_prob(case.params(), neutral).isfinite().all()


def test_families_are_frozen_values_with_a_short_repr():
    families: list[tuple[Family, str]] = [
        (Bernoulli(), "Bernoulli()"),
        (Categorical(256), "Categorical(256)"),
        (Binomial(255), "Binomial(255)"),
        (Gaussian(), "Gaussian()"),
        (Gaussian(min_std=0.1), "Gaussian(min_std=0.1)"),
        (Poisson(), "Poisson()"),
        (Laplace(min_scale=0.5), "Laplace(min_scale=0.5)"),
        (StudentT(min_df=4.0), "StudentT(min_df=4.0)"),
    ]
    for family, text in families:
        assert repr(family) == text
        assert eval(text) == family
        assert hash(eval(text)) == hash(family)
        assert is_dataclass(family)
        for field in fields(family):
            with pytest.raises(FrozenInstanceError):
                setattr(family, field.name, 1)
    assert len({family for family, _ in families}) == len(families)
