# SPDX-License-Identifier: Apache-2.0
"""Learning correlations: what a matrix says, few states cannot."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

import picirc as pc
from neural import plain_products

STAR = pc.LatentTree((-1,), (tuple(range(5)),))
RULE = pc.trapezoidal(4)


def normal() -> stats.multivariate_normal_gen:
    """Five columns of variance one that depend on each other strongly and in different ways."""
    factors = np.random.default_rng(3).normal(size=(5, 2))
    cov = factors @ factors.T + 0.15 * np.eye(5)
    scale = np.sqrt(cov.diagonal())
    return stats.multivariate_normal(np.zeros(5), cov / scale[:, None] / scale)


def table(rows: int, seed: int, gaps: float = 0.0) -> Tensor:
    rng = np.random.default_rng(seed)
    x = normal().rvs(rows, random_state=rng)
    return torch.tensor(np.where(rng.random(x.shape) < gaps, np.nan, x), dtype=torch.float32)


def excess(correlated: bool, train: Tensor) -> float:
    """By how much new rows are less probable than under the normal distribution itself, in nats."""
    model = pc.PIC(STAR, pc.Gaussian(), width=8, correlated=correlated, generator=torch.Generator().manual_seed(0))
    model, _ = pc.fit(model, train, rule=RULE, steps=200, weight_decay=1.0)
    test = table(2000, seed=1)
    with torch.no_grad():
        found = float(model(RULE).log_prob(test).double().mean())
    return float(normal().logpdf(test.double().numpy()).mean()) - found


def test_a_normal_distribution_is_learnt():
    """The entropy is reached closely with correlations, and with as many states not without them."""
    train = table(2000, seed=0)
    assert excess(True, train) < 0.12
    assert excess(False, train) > 0.5


def test_a_normal_distribution_is_learnt_from_rows_with_gaps():
    assert excess(True, table(2000, seed=0, gaps=0.3)) < 0.12


def test_half_precision_of_the_nets_leaves_the_matrix_alone():
    model = pc.PIC(STAR, pc.Gaussian(), width=8, correlated=True, generator=torch.Generator().manual_seed(0))
    train = table(256, seed=0)
    with plain_products():
        low, high = (pc.fit(model, train, rule=RULE, steps=5, autocast=t)[0] for t in (torch.bfloat16, None))
    for mine, theirs in zip(low.correlations, high.correlations, strict=True):
        assert float(mine.detach().abs().max()) > 0
        assert mine.dtype == torch.float32
        torch.testing.assert_close(mine, theirs, rtol=0.2, atol=0.02)


@pytest.mark.parametrize("sharing", ["none", "composite", "full"])
def test_every_parameter_learns(sharing):
    model = pc.PIC(STAR, pc.Gaussian(), 8, input_sharing=sharing, correlated=True)
    model(RULE).log_prob(table(20, seed=0, gaps=0.3)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    assert all(float(raw.grad.abs().min()) > 0 for raw in model.correlations)
