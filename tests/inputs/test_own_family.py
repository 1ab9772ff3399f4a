# SPDX-License-Identifier: Apache-2.0
"""A family with nothing but the seven abstract methods, and what the defaults make of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from numpy.testing import assert_allclose
from scipy import stats

from picirc.errors import ArgumentError
from picirc.inputs import Family, Gaussian, group_columns, require_support


@dataclass(frozen=True)
class Geometric(Family):
    """Number of failures before the first success; the parameter is the logit of a success."""

    discrete: ClassVar[bool] = True

    @property
    def size(self):
        return 1

    def constrain(self, raw):
        return raw.clamp(-30, 30)

    def check(self, x, variable):
        require_support(x, (x >= 0) & (x == x.floor()) & ~x.isinf(), variable, "counts", "count from 0")

    def log_prob(self, params, x):
        return torch.nn.functional.logsigmoid(params) + x.unsqueeze(1) * torch.nn.functional.logsigmoid(-params)

    def sample(self, params, generator):
        p = params[..., 0].sigmoid()
        return torch.empty_like(p).exponential_(generator=generator).div(-torch.log1p(-p)).floor()

    def mean(self, params):
        return (-params[..., 0]).exp()

    def variance(self, params):
        return self.mean(params) / params[..., 0].sigmoid()


@dataclass(frozen=True)
class WithMore(Geometric):
    """The same with two of the optional methods."""

    def cdf(self, params, x):
        log_failure = torch.nn.functional.logsigmoid(-params)
        return 1 - torch.exp(log_failure * (x.floor().unsqueeze(1) + 1).clamp(min=0))

    def mode(self, params):
        return torch.zeros_like(params[..., 0])


PARAMS = torch.tensor([[[0.0], [-1.0]]], dtype=torch.float64)


def test_nothing_less_than_the_seven_methods():
    assert Family.__abstractmethods__ == {*("size", "constrain", "check", "log_prob", "sample", "mean", "variance")}
    with pytest.raises(TypeError, match="abstract"):
        Family()


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("unconstrain", 1),
        ("cdf", 2),
        ("log_interval", 3),
        ("mode", 1),
        ("mode_log_prob", 1),
        ("inner", 2),
        ("expected_statistics", 3),
        ("from_statistics", 2),
    ],
)
def test_an_absent_method_is_named(method, arguments):
    needed = {"log_interval": "cdf", "mode_log_prob": "mode"}.get(method, method)
    with pytest.raises(NotImplementedError, match=rf"Geometric cannot be used for .*: add the method {needed}\("):
        getattr(Geometric(), method)(PARAMS, *[torch.ones(1, 2)] * (arguments - 1))


def test_defaults_that_need_nothing_more(generator):
    family = Geometric()
    assert family.table(PARAMS) is None
    assert family.neutral == 0
    start = family.initial(torch.zeros(4, 9, dtype=torch.float64), 3, generator)
    assert start.shape == (4, 3, 1)
    assert start.dtype == torch.float64
    assert_allclose(family.mix(PARAMS, PARAMS + 1, 0.25), PARAMS + 0.25)
    assert_allclose(family.mix(PARAMS, PARAMS + 1, torch.tensor([[0.0, 1.0]])), PARAMS + torch.tensor([[[0.0], [1.0]]]))


def test_defaults_built_on_cdf_and_mode():
    family, p = WithMore(), PARAMS[0].sigmoid().numpy()
    low, high = (
        torch.tensor([[0.0, 1.5, 3.0, 2.0, -torch.inf]]),
        torch.tensor([[0.0, 4.0, torch.inf, 1.0, 2.0]]),
    )
    exact = stats.geom(p, loc=-1)
    expected = (exact.cdf(high.numpy()) - exact.cdf(low.ceil().numpy() - 1)).clip(min=0)
    assert_allclose(family.log_interval(PARAMS, low, high).exp()[0], expected, atol=1e-12)
    assert_allclose(family.mode_log_prob(PARAMS)[0], exact.logpmf(0)[:, 0])


def test_continuous_intervals_ignore_the_ends():
    class Unit(WithMore):
        discrete = False

        def cdf(self, params, x):
            return x.clamp(0, 1).unsqueeze(1).expand(-1, params.shape[1], -1)

    low, high = torch.tensor([[0.25, -torch.inf, 0.5]]), torch.tensor([[0.75, torch.inf, 0.5]])
    assert_allclose(Unit().log_interval(PARAMS, low, high).exp()[0, 0], [0.5, 1.0, 0.0])


def test_it_is_a_value_like_the_others():
    assert group_columns([Geometric(), Gaussian(), Geometric()]) == [(Geometric(), [0, 2]), (Gaussian(), [1])]
    assert repr(Geometric()) == "Geometric()"
    with pytest.raises(ArgumentError, match=r"variable calls: expected counts, got 0.5 in row 1; count from 0"):
        Geometric().check(torch.tensor([1.0, 0.5]), "calls")


def test_a_family_that_is_no_dataclass_can_be_shown():
    class Plain(Geometric):
        __repr__ = Family.__repr__

    assert repr(Plain()) == "Plain()"
