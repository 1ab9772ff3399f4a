# SPDX-License-Identifier: Apache-2.0
"""Many inputs at one row as one matrix product, against the sum of their log-densities one by one."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import picirc as pc
from picirc.engine import inputs as evaluation
from picirc.inputs import Family

FAMILIES: dict[str, Family] = {
    "bernoulli": pc.Bernoulli(),
    "binomial": pc.Binomial(5),
    "categorical": pc.Categorical(4),
    "large_categorical": pc.Categorical(40),  # faster with its table
    "gaussian": pc.Gaussian(),
    "poisson": pc.Poisson(),
    "laplace": pc.Laplace(),  # not exponential
}
each_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
# Several rows with different numbers of inputs, one of them too small for a product of its own.
TREE = pc.LatentTree((-1, 0, 0), (tuple(range(12)), tuple(range(12, 24)), (24, 25)))


def model_of(family: Family, dtype: torch.dtype = torch.float64) -> tuple[pc.HCLT, Tensor]:
    rng = torch.Generator().manual_seed(0)
    model = pc.HCLT(TREE, family, 3, generator=rng, dtype=dtype)
    with torch.no_grad():
        x = model().sample(9, generator=rng)
    x[torch.rand(x.shape, generator=rng) < 0.2] = math.nan
    x[0] = math.nan
    return model, x


def answers(model: pc.HCLT, x: Tensor) -> list[Tensor]:
    leaf = x.clone()
    if not model.families[0].discrete:
        leaf.requires_grad_()
    values = model().log_prob(leaf)
    found = torch.autograd.grad(values.square().sum(), [*model.parameters(), *([leaf] if leaf.requires_grad else [])])
    return [values.detach(), *found]


@each_family
@pytest.mark.parametrize("complete", [False, True])
def test_a_star_is_the_sum_of_its_inputs(family: Family, complete: bool, monkeypatch: pytest.MonkeyPatch):
    model, x = model_of(family)
    if complete:
        x = x[~x.isnan().any(1)] if (~x.isnan().any(1)).any() else x.nan_to_num(1.0)
    used = list[int]()
    log_prob = evaluation.Star.log_prob
    monkeypatch.setattr(evaluation.Star, "log_prob", lambda self: used.append(1) or log_prob(self))
    fast = answers(model, x)
    assert bool(used) == (family.natural(family.constrain(torch.zeros(1, 1, family.size))) is not None)
    monkeypatch.setattr(evaluation, "FEWEST", 1000)
    slow = answers(pc.HCLT(TREE, family, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64), x)
    for a, b in zip(fast, slow, strict=True):
        assert_close(a, b, rtol=1e-9, atol=1e-9)


@each_family
def test_all_other_queries(family: Family, monkeypatch: pytest.MonkeyPatch):
    model, x = model_of(family)
    qpc = model()
    fast = [qpc.mean(x), qpc.mpe(x), qpc.log_interval(x.nan_to_num(0.0) - 1, x.nan_to_num(0.0) + 1).detach()]
    monkeypatch.setattr(evaluation, "FEWEST", 1000)
    qpc = pc.HCLT(TREE, family, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)()
    slow = [qpc.mean(x), qpc.mpe(x), qpc.log_interval(x.nan_to_num(0.0) - 1, x.nan_to_num(0.0) + 1).detach()]
    for a, b in zip(fast, slow, strict=True):
        assert_close(a, b, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("std", [1.0, 1e-2])
def test_gaussians_far_from_zero_keep_their_digits(offset: float, std: float):
    """In single precision squares of values would cancel: they are taken about the middle, or in double precision."""
    rng = torch.Generator().manual_seed(0)
    mean = offset + torch.randn(1, 20, 5, generator=rng, dtype=torch.float64)
    params = torch.stack((mean, torch.full_like(mean, std)), -1).float()
    x = (params[..., 0, 0].double() + std * torch.randn(1, 20, generator=rng)).float().unsqueeze(-1)  # (1, 20, 1)
    star = evaluation.Star(pc.Gaussian(), params, x, None)
    expected = pc.Gaussian().log_prob(params[0].double(), x[0].double()).sum(0)
    assert star.usable
    assert_close(star.log_prob()[0].double(), expected, rtol=2e-6, atol=2e-3)


def test_impossible_values_are_left_to_the_tables():
    params = torch.tensor([0.0, -math.inf]).expand(1, 20, 3, 2)
    assert not evaluation.Star(pc.Categorical(2), params, torch.zeros(1, 20, 4), None).usable


def test_em_of_a_star():
    rng = torch.Generator().manual_seed(0)
    x = torch.randint(2, (50, 20), generator=rng).float()
    model = pc.HCLT(pc.LatentTree((-1,), (tuple(range(20)),)), pc.Bernoulli(), 3, generator=rng)
    before = float(model().log_prob(x).mean().detach())
    trained, _ = pc.fit_em(model, x, batch_size=None, steps=5, smoothing=0.0)
    assert float(trained().log_prob(x).mean().detach()) > before
