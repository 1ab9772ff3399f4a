# SPDX-License-Identifier: Apache-2.0
"""Distribution functions and probabilities of boxes, with some variables known exactly or not."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from normals import each_net, given
from scipy import stats
from torch.testing import assert_close

import picirc as pc
from cases import CASES
from oracles import observed_normal
from table_circuits import (
    COLUMNS,
    TABLES,
    Joint,
    columns_data,
    conditions,
    each_of_columns,
    each_table,
    evidences,
    near,
)


def inside(joint: Joint, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """The probability of every box, by counting."""
    fits = (joint.x >= low.unsqueeze(1)) & (joint.x <= high.unsqueeze(1))  # (boxes, n, variables)
    return fits.all(2).double() @ joint.p


def boxes(joint: Joint, rows: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    """Bounds between, at and beyond the values; some are infinite."""
    generator = torch.Generator().manual_seed(0)
    shape = (rows, joint.x.shape[1])
    low = torch.randint(-1, 3, shape, generator=generator) / 2.0
    high = low + torch.randint(0, 5, shape, generator=generator) / 2.0
    low[torch.rand(shape, generator=generator) < 0.4] = -math.inf
    high[torch.rand(shape, generator=generator) < 0.4] = math.inf
    return low.double(), high.double()


@each_table
def test_the_probability_of_a_box(table):
    joint = table.joint()
    low, high = boxes(joint)
    assert_close(table.qpc().log_interval(low, high).exp(), inside(joint, low, high), **near())


@each_table
def test_the_probability_of_a_box_given_evidence(table):
    """Where the evidence lies outside of the box, the probability is zero."""
    qpc = table.qpc()
    low, high = boxes(table.joint())
    for evidence, joint in conditions(table):
        assert_close(qpc.log_interval(low, high, given=evidence).exp(), inside(joint, low, high), **near())


@each_table
def test_the_distribution_function(table):
    qpc, joint = table.qpc(), table.joint()
    x = joint.x[:: max(1, len(joint.x) // 10)].clone()
    x[0] = math.nan  # nothing is restricted
    x[-1, 0] = -0.5  # nothing is possible
    low, high = torch.full_like(x, -math.inf), x.nan_to_num(math.inf)
    assert_close(qpc.cdf(x), inside(joint, low, high), **near())
    assert qpc.cdf(x)[-1] == 0
    given = evidences(table)[:1].expand_as(x)
    expected = inside(joint.given(given[0]), low, high)
    assert_close(qpc.cdf(x, given=given), expected, **near())
    assert_close(qpc.cdf(x, given=given[0]), expected, **near())


def test_a_row_of_evidence_for_each_box():
    table = TABLES["random_regions"]
    qpc, evidence = table.qpc(), evidences(table)
    low, high = boxes(table.joint(), len(evidence))
    found = qpc.log_interval(low, high, given=evidence)
    for row in range(len(evidence)):
        alone = qpc.log_interval(low[row : row + 1], high[row : row + 1], given=evidence[row])
        assert_close(found[row], alone[0], **near())


@each_of_columns
def test_boxes_of_columns_of_all_families(table):
    """Summing the boxes along one column gives the probability without its bounds."""
    qpc = table.qpc()
    x = columns_data(3)
    evidence = torch.full_like(x, math.nan)
    evidence[:, 2] = x[:, 2]
    for column, cuts in enumerate([[-1.0, 0.3], [-0.5, 0.5], None, [0.5, 2.5], [0.5, 1.5]]):
        if cuts is None:
            continue
        ends = [-math.inf, *cuts, math.inf]
        low, high = torch.full((3, 5), -math.inf), x.float().masked_fill(x == 0, math.inf)
        high[:, column] = math.inf
        whole = qpc.log_interval(low, high, given=evidence).exp()
        parts = torch.zeros_like(whole)
        for below, above in pairwise(ends):
            low[:, column], high[:, column] = below, above
            parts += qpc.log_interval(low, high, given=evidence).exp()
        assert_close(parts, whole, **near())


@each_net
def test_the_distribution_function_of_a_linear_gaussian(name):
    case = CASES[name]
    qpc = case.integrate()
    mean, cov = map(torch.as_tensor, observed_normal(case.net))
    evidence = case.complete(1, seed=2)[0]
    evidence[:-2] = math.nan
    evidence[-1] = math.nan
    centre, spread = given(mean, cov, evidence)
    two = [0, len(mean) - 1]  # scipy is slow in more dimensions
    x = torch.full((3, len(mean)), math.nan, dtype=torch.float64)
    x[:, two] = centre[two] + torch.tensor([[0.3, -0.2], [1.0, 0.7], [-1.5, 0.1]], dtype=torch.float64)
    if len(mean) == 2:
        evidence[:] = math.nan
        centre, spread = mean, cov
    normal = stats.multivariate_normal(centre[two].numpy(), spread[two][:, two].numpy())
    expected = torch.tensor([normal.cdf(row.numpy()) for row in x[:, two]])
    assert_close(qpc.cdf(x, given=evidence), expected, rtol=1e-5, atol=1e-6)


def test_the_derivative_of_the_distribution_function_is_the_density():
    qpc = COLUMNS["tree_of_columns"].qpc()
    x = torch.full((2, 5), math.nan, dtype=torch.float64)
    for column in range(3):
        x[:] = math.nan
        x[0, column], x[1, column] = 0.4 - 1e-5, 0.4 + 1e-5
        below, above = qpc.cdf(x)
        x[0, column] = 0.4
        assert_close((above - below) / 2e-5, qpc.log_prob(x[:1])[0].exp(), rtol=1e-6, atol=1e-8)


def test_far_tails_keep_their_digits():
    """The logarithm of a tiny probability, which the difference of two distribution functions could not give."""
    qpc = CASES["lg_tree"].integrate(pc.gauss_legendre(100), sigmas=14)
    exact = CASES["lg_tree"].circuit.exact()
    std = float(exact.covariance[0, 0].sqrt())
    low = torch.full((1, 3), -math.inf, dtype=torch.float64)
    low[0, 0] = float(exact.mean[0]) + 9 * std
    found = qpc.log_interval(low, torch.full_like(low, math.inf))
    assert_close(found, torch.tensor([stats.norm.logsf(9)]), rtol=1e-8, atol=0)


def test_whole_numbers_are_welcome():
    table = TABLES["tree"]
    x = table.joint().x[100:103]
    assert_close(table.qpc().cdf(x.long()), table.qpc().cdf(x), rtol=0, atol=0)
    assert_close(table.qpc().cdf(np.asarray(x)), table.qpc().cdf(x), rtol=0, atol=0)


def test_wrong_bounds_are_refused():
    qpc = TABLES["tree"].qpc()
    zeros, ones = torch.zeros(2, 5), torch.ones(2, 5)
    with pytest.raises(pc.ArgumentError, match=r"low: expected bounds with low ≤ high, got 1 above 0 in row 0"):
        qpc.log_interval(ones, zeros)
    with pytest.raises(pc.ArgumentError, match="high: expected numbers, got NaN; an infinite bound leaves"):
        qpc.log_interval(zeros, ones * math.nan)
    with pytest.raises(pc.ArgumentError, match=r"low: expected as many rows as high \(1\), got 2 rows"):
        qpc.log_interval(zeros, ones[:1])
    with pytest.raises(pc.ArgumentError, match=r"high: expected a tensor \(..., 5\).*got shape \(2, 4\)"):
        qpc.log_interval(zeros, ones[:, :4])
    with pytest.raises(pc.ArgumentError, match=r"expected a tensor \(..., 5\).*got shape \(4,\)"):
        qpc.cdf(zeros[0, :4])
    with pytest.raises(pc.ArgumentError, match=r"given: expected one row, or as many as x \(2\), got 3 rows"):
        qpc.cdf(zeros, given=torch.full((3, 5), math.nan))
