# SPDX-License-Identifier: Apache-2.0
"""Marginals and moments, given evidence or not."""

from __future__ import annotations

import math

import pytest
import torch
from normals import each_net, given
from torch.distributions import Normal
from torch.testing import assert_close

import picirc as pc
from cases import ANGLE, CASES, REAL
from oracles import observed_normal
from table_circuits import (
    COLUMNS,
    TABLES,
    columns_data,
    conditions,
    each_of_columns,
    each_table,
    evidences,
    holes,
    line,
    near,
    with_parameters,
)


@each_table
def test_probabilities_of_every_value(table):
    qpc = table.qpc()
    batch = qpc.marginals(evidences(table))
    for number, (evidence, joint) in enumerate(conditions(table)):
        single = qpc.marginals(evidence)
        for i, name in enumerate(qpc.variables):
            values = range(qpc.families[i].values)
            expected = torch.stack([joint.marginal(i, value) for value in values])
            assert_close(single.probabilities(name), expected, **near())
            assert_close(batch.probabilities(name)[number], expected, **near())


@each_table
def test_log_prob_of_a_value(table):
    qpc, joint = table.qpc(), table.joint()
    x = joint.x[len(joint.x) // 2]
    batch = qpc.marginals(evidences(table)).log_prob(x)
    for number, (evidence, conditional) in enumerate(conditions(table)):
        expected = torch.stack([conditional.marginal(i, float(value)) for i, value in enumerate(x)]).log()
        assert_close(qpc.marginals(evidence).log_prob(x), expected, **near())
        assert_close(batch[number], expected, **near())


def test_log_prob_of_many_values():
    """One row of evidence serves any number of values; several rows serve one each, or one for all."""
    table = TABLES["quad_graph_mixed"]
    qpc, x, evidence = table.qpc(), table.joint().x[:3], evidences(table)[:3]
    assert qpc.marginals().log_prob(x).shape == x.shape
    assert_close(qpc.marginals().log_prob(x)[1], qpc.marginals().log_prob(x[1]), rtol=0, atol=0)
    each = qpc.marginals(evidence).log_prob(x)
    for row in range(3):
        assert_close(each[row], qpc.marginals(evidence[row]).log_prob(x[row]), **near())
    assert_close(qpc.marginals(evidence[:1]).log_prob(x)[2], qpc.marginals(evidence[0]).log_prob(x[2]), **near())
    with pytest.raises(pc.ArgumentError, match=r"x: expected one row, or as many as there are data points \(3\)"):
        qpc.marginals(evidence).log_prob(x[:2])


def test_an_observed_variable_is_certain():
    table = TABLES["chain_mixed"]
    evidence = torch.tensor([1.0, math.nan, 2.0, math.nan])
    marginals = table.qpc().marginals(evidence)
    assert marginals.probabilities("x0").tolist() == [0.0, 1.0]
    assert marginals.log_prob(torch.tensor([1.0, 0.0, 1.0, math.nan]))[[0, 2, 3]].tolist() == [0.0, -math.inf, 0.0]
    assert marginals.mean[[0, 2]].tolist() == [1.0, 2.0]
    assert marginals.variance[[0, 2]].tolist() == [0.0, 0.0]


@each_table
def test_mean_and_variance(table):
    qpc = table.qpc()
    batch = evidences(table)
    means, variances = qpc.mean(batch), qpc.variance(given=batch)
    assert means.shape == variances.shape == batch.shape
    for number, (evidence, joint) in enumerate(conditions(table)):
        variance = joint.covariance.diagonal()
        assert_close(qpc.mean(given=evidence), joint.mean, **near())
        assert_close(qpc.variance(given=evidence), variance, **near())
        assert_close(means[number], joint.mean, **near())
        assert_close(variances[number], variance, **near())


@each_table
def test_moments_without_evidence_are_attributes(table):
    qpc, joint = table.qpc(), table.joint()
    assert_close(qpc.mean + 0, joint.mean, **near())
    assert_close(qpc.variance + 0, joint.covariance.diagonal(), **near())
    assert_close(qpc.stddev, joint.covariance.diagonal().sqrt(), **near())
    assert_close(qpc.mean(), joint.mean, **near())
    assert type(qpc.mean()) is type(qpc.mean + 0) is torch.Tensor


@each_table
def test_covariance(table):
    qpc = table.qpc()
    batch = qpc.covariance(evidences(table))
    for number, (evidence, joint) in enumerate(conditions(table)):
        assert_close(qpc.covariance(evidence), joint.covariance, **near())
        assert_close(batch[number], joint.covariance, **near())
    assert_close(qpc.covariance(), table.joint().covariance, **near())


@each_table
def test_single_precision_is_close(table):
    evidence = evidences(table)
    one, two = table.qpc(dtype=torch.float32), table.qpc()
    for query in ("mean", "variance", "covariance"):
        found, expected = (getattr(qpc, query)(evidence) for qpc in (one, two))
        assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)


def values_and_masses(column: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The values of a mixed column and what to weigh their probabilities with, for sums or integrals."""
    if column < 3:
        return line()
    values = torch.arange(120 if column == 3 else 3, dtype=torch.float64)
    return values, torch.ones_like(values)


@each_of_columns
def test_moments_of_columns_of_all_families(table):
    """By integration along each column, given some of the others."""
    qpc = table.qpc()
    given = holes(columns_data(4, seed=2), seed=3)
    mean, variance = qpc.mean(given), qpc.variance(given)
    for row, column in given.isnan().nonzero().tolist():
        values, mass = values_and_masses(column)
        rows = torch.full((len(values), 5), math.nan, dtype=torch.float64)
        rows[:, column] = values
        p = qpc.log_prob(rows, given=given[row]).exp()
        assert_close(qpc.marginals(given[row]).log_prob(rows)[:, column].exp(), p, **near())
        expected = (p * mass * values).sum()
        assert_close(mean[row, column], expected, rtol=1e-6, atol=1e-6)
        assert_close(variance[row, column], (p * mass * (values - expected) ** 2).sum(), rtol=1e-4, atol=1e-6)


@each_of_columns
def test_covariance_of_columns_of_all_families(table):
    """By integration over the pairs of a Gaussian, a count and a category, the others known."""
    qpc = table.qpc()
    evidence = columns_data(1, seed=4)[0]
    evidence[[0, 3, 4]] = math.nan
    covariance, mean = qpc.covariance(evidence), qpc.mean(evidence)
    places = {0: line(4.0, 401), 3: values_and_masses(3), 4: values_and_masses(4)}
    for i, j in ((0, 3), (0, 4), (3, 4)):
        left, right = (grid.flatten() for grid in torch.meshgrid(places[i][0], places[j][0], indexing="ij"))
        rows = torch.full((len(left), 5), math.nan, dtype=torch.float64)
        rows[:, i], rows[:, j] = left, right
        p = qpc.log_prob(rows, given=evidence).exp() * torch.outer(places[i][1], places[j][1]).flatten()
        expected = (p * (left - mean[i]) * (right - mean[j])).sum()
        assert_close(covariance[i, j], expected, rtol=1e-6, atol=1e-8)
        assert_close(covariance[j, i], expected, rtol=1e-6, atol=1e-8)
    assert (covariance[[1, 2]] == 0).all()


@each_net
def test_moments_of_a_linear_gaussian(name):
    case = CASES[name]
    qpc = case.integrate()
    mean, cov = map(torch.as_tensor, observed_normal(case.net))
    evidence = holes(case.complete(4))
    means, variances, covariances = qpc.mean(evidence), qpc.variance(evidence), qpc.covariance(evidence)
    for row, e in enumerate(evidence):
        expected, spread = given(mean, cov, e)
        assert_close(means[row], expected, rtol=1e-6, atol=1e-6)
        assert_close(variances[row], spread.diagonal(), rtol=1e-6, atol=1e-6)
        assert_close(covariances[row], spread, rtol=1e-6, atol=1e-6)
        x = e.nan_to_num(0.3)
        hidden = e.isnan()
        logs = Normal(expected[hidden], spread.diagonal()[hidden].sqrt()).log_prob(x[hidden])
        assert_close(qpc.marginals(e).log_prob(x)[hidden], logs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_marginals_are_likelihoods_of_one_variable(name):
    case = CASES[name]
    qpc = case.integrate(pc.gauss_legendre(14))
    evidence, x = case.data()[-5], case.complete(1, seed=8)[0]
    found = qpc.marginals(evidence).log_prob(x)
    for i in evidence.isnan().nonzero().flatten().tolist():
        alone = torch.full_like(x, math.nan)
        alone[i] = x[i]
        assert_close(found[i], qpc.log_prob(alone[None], given=evidence)[0], **near())


@pytest.mark.parametrize("name", CASES)
def test_moments_of_integral_circuits(name):
    """By integration along each column."""
    case = CASES[name]
    qpc = case.integrate(pc.gauss_legendre(14))
    mean, variance = qpc.mean(), qpc.variance()
    for i, column in enumerate(case.columns):
        if column == ANGLE:
            values = (torch.arange(8192, dtype=torch.float64) + 0.5) / 8192 * 2 * math.pi - math.pi
            mass = torch.full_like(values, 2 * math.pi / 8192)
        elif column == REAL:
            values, mass = line(5.0, 801)
        else:
            values = torch.arange(80 if (name, i) == ("mixed_columns", 0) else int(column), dtype=torch.float64)
            mass = torch.ones_like(values)
        rows = torch.full((len(values), len(case.columns)), math.nan, dtype=torch.float64)
        rows[:, i] = values
        p = qpc.log_prob(rows).exp() * mass
        p /= p.sum()  # moments are those of the normalised circuit, and a coarse rule does not integrate to one
        expected = (p * values).sum()
        assert_close(mean[i], expected, rtol=1e-5, atol=1e-5)
        assert_close(variance[i], (p * (values - expected) ** 2).sum(), rtol=1e-5, atol=1e-5)


def test_narrow_distributions_far_from_zero():
    """A year with a spread of a tenth, in single precision: the variance does not drown in the mean's square."""
    table = COLUMNS["tree_of_columns"]
    qpc = table.qpc(dtype=torch.float32)
    inputs = list(qpc.parameters.inputs)
    (place,) = [i for i, group in enumerate(qpc.compiled.inputs) if isinstance(group.family, pc.Gaussian)]
    inputs[place] = torch.tensor([[[2000.0, 0.1], [2000.2, 0.1], [1999.9, 0.2]]])
    shifted = with_parameters(qpc, inputs=inputs)
    inputs[place] = inputs[place] - torch.tensor([2000.0, 0.0])
    centred = with_parameters(qpc, inputs=inputs)
    assert_close(shifted.variance + 0, centred.variance + 0, rtol=2e-3, atol=0)
    assert_close(shifted.covariance()[0], centred.covariance()[0], rtol=2e-2, atol=1e-3)


def test_states_that_all_have_the_same_large_mean():
    """The weight of a variable in the covariance may not vanish in rounding."""
    with torch.no_grad():
        qpc = pc.HCLT(pc.chain(2), pc.Gaussian(), states=2)()
    inputs = torch.tensor([1e9, 1.0]).expand(2, 2, 2)
    assert with_parameters(qpc, inputs=[inputs]).covariance().isfinite().all()


def test_unknown_names_and_infinite_variables_are_refused():
    marginals = COLUMNS["tree_of_columns"].qpc().marginals()
    with pytest.raises(pc.ArgumentError, match=r"variable: expected one of x0, x1, x2, x3, x4, got x9"):
        marginals.probabilities("x9")
    with pytest.raises(pc.ArgumentError, match=r"variable: expected a variable with finitely many values, got x0"):
        marginals.probabilities("x0")
    with pytest.raises(pc.ArgumentError, match=r"variable x4: expected integers from 0 to 2"):
        marginals.log_prob(torch.tensor([0.0, 0.0, 0.0, 0.0, 3.0]))
    with pytest.raises(pc.ArgumentError, match=r"x: expected a tensor \(batch, 5\)"):
        marginals.log_prob(torch.zeros(4))
