# SPDX-License-Identifier: Apache-2.0
"""Likelihoods: joint, with values missing, and conditional, against the list of everything that can happen."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import picirc as pc
from cases import CASES, LINEAR_GAUSSIAN_NETS
from table_circuits import (
    TABLES,
    Joint,
    Table,
    Unfolded,
    columns_data,
    each_of_columns,
    each_table,
    evidences,
    holes,
    line,
    near,
    with_parameters,
)


def log_prob_of(joint: Joint, rows: torch.Tensor) -> torch.Tensor:
    return torch.stack([joint.prob(row) for row in rows]).log()


@each_table
def test_the_joint_is_that_of_the_units(table):
    joint = table.joint()
    assert_close(joint.p.sum(), torch.ones((), dtype=torch.float64), **near())
    assert_close(table.qpc().log_prob(joint.x), joint.p.log(), **near())


@each_table
def test_what_is_missing_is_summed_out(table):
    joint = table.joint()
    rows = holes(joint.x[:: max(1, len(joint.x) // 40)])
    assert_close(table.qpc().log_prob(rows), log_prob_of(joint, rows), **near())


@each_table
def test_single_precision_is_close(table):
    x = holes(table.joint().x)
    assert_close(table.qpc(dtype=torch.float32).log_prob(x).double(), table.qpc().log_prob(x), **near(torch.float32))


@each_table
def test_a_mask_is_the_same_as_nan(table):
    qpc, x = table.qpc(), table.joint().x[-20:]
    missing = holes(x).isnan()
    assert_close(qpc.log_prob(x, mask=missing), qpc.log_prob(x.masked_fill(missing, math.nan)), rtol=0, atol=0)


@each_table
def test_mask_and_nan_add_up(table):
    qpc, x = table.qpc(), table.joint().x[-20:]
    some, others = holes(x, seed=2), holes(x, seed=3).isnan()
    assert_close(qpc.log_prob(some, mask=others), qpc.log_prob(some.masked_fill(others, math.nan)), rtol=0, atol=0)


def test_what_is_masked_is_not_looked_at():
    """Not even to see whether it is inside the support."""
    table = TABLES["chain_mixed"]
    x = table.joint().x[:4]
    mask = torch.zeros_like(x, dtype=torch.bool)
    mask[:, 1] = True
    wild = x.clone()
    wild[:, 1] = torch.tensor([-7.0, 99.0, math.inf, 0.5])
    assert_close(table.qpc().log_prob(wild, mask=mask), table.qpc().log_prob(x, mask=mask), rtol=0, atol=0)


def test_a_missing_category_is_not_category_zero():
    table = TABLES["tree"]
    qpc, joint = table.qpc(), table.joint()
    x = joint.x[:1].clone()
    first = qpc.log_prob(x)
    x[0, 2] = math.nan
    assert_close(qpc.log_prob(x), log_prob_of(joint, x), **near())
    assert float(qpc.log_prob(x)) > float(first) + 0.1


@each_table
def test_nothing_known_has_probability_one(table):
    for dtype, eps in ((torch.float64, 1e-14), (torch.float32, 2e-6)):
        value = table.qpc(dtype=dtype).log_prob(torch.full((3, table.variables), math.nan))
        assert_close(value, torch.zeros(3, dtype=dtype), rtol=0, atol=eps)


@each_table
def test_conditional_on_one_row(table):
    qpc, joint = table.qpc(), table.joint()
    for evidence in evidences(table):
        rows = joint.x[joint.matches(evidence)]
        found = qpc.log_prob(rows, given=evidence)
        assert_close(found, joint.given(evidence).p[joint.matches(evidence)].log(), **near())
        assert_close(found.exp().sum(), torch.ones((), dtype=torch.float64), **near())


@each_table
def test_conditional_on_a_row_each(table):
    """Of what is asked some values are missing, and some are known from the evidence as well."""
    qpc, joint = table.qpc(), table.joint()
    complete = joint.x[:: max(1, len(joint.x) // 12)]
    given, asked = holes(complete, seed=4), holes(complete, seed=5)
    known = torch.where(given.isnan(), asked, given)
    expected = log_prob_of(joint, known) - log_prob_of(joint, given)
    assert_close(qpc.log_prob(asked, given=given), expected, **near())


@each_of_columns
def test_columns_of_all_families(table):
    """Against the units, with values missing or not; the mass of a row is one along every column."""
    qpc, x = table.qpc(), columns_data(12)
    for rows in (x, holes(x)):
        assert_close(qpc.log_prob(rows), Unfolded(table.model()).prob(rows).log(), **near())
    points, weights = line()
    counts = torch.arange(200, dtype=torch.float64)
    for column, (values, mass) in enumerate([(points, weights)] * 3 + [(counts, 1.0), (counts[:3], 1.0)]):
        rows = x[:1].repeat(len(values), 1)
        rows[:, column] = values
        known = x[:1].clone()
        known[:, column] = math.nan
        total = (qpc.log_prob(rows).exp() * mass).sum()
        assert_close(total.log(), qpc.log_prob(known)[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", LINEAR_GAUSSIAN_NETS)
def test_conditional_of_a_linear_gaussian(name):
    case = CASES[name]
    qpc, exact = case.integrate(), case.circuit.exact()
    x = case.complete(6)
    given = holes(x)
    expected = exact.log_prob(x) - exact.log_prob(given)
    assert_close(qpc.log_prob(x, given=given), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_the_order_of_the_columns_does_not_matter(name):
    """The same circuit with its columns the other way round: likelihoods, moments and completions follow."""
    case = CASES[name]
    circuit, x = case.circuit, case.data()
    domain = "marginal" if case.domain is None else case.domain
    straight, reverse = (
        pc.Circuit(circuit.root, names).integrate(pc.gauss_legendre(12), domain=domain)
        for names in (circuit.variables, circuit.variables[::-1])
    )
    assert reverse.variables == straight.variables[::-1]
    assert_close(reverse.log_prob(x.flip(1)), straight.log_prob(x), **near())
    given = x[-5]
    assert_close(reverse.mean(given.flip(0)), straight.mean(given).flip(0), **near())
    assert_close(reverse.covariance(given.flip(0)), straight.covariance(given).flip(0, 1), **near())
    assert_close(reverse.mpe(given.flip(0)), straight.mpe(given).flip(0), **near())


def test_the_names_of_latents_and_variables_do_not_matter():
    def net(name) -> pc.BayesNet:
        result = pc.BayesNet()
        result.latent(name("a"), pc.LinearGaussian(std=0.9))
        result.latent(name("b"), pc.LinearGaussian({name("a"): 0.6}, std=0.8))
        result.observed(name("x"), pc.LinearGaussian({name("a"): 1.0, name("b"): -0.5}, std=0.7))
        result.observed(name("y"), pc.Conditional(pc.Bernoulli(), lambda z: 2 * z, [name("b")]))
        return result

    first, second = (
        pc.from_bayesnet(net(name)).integrate(pc.gauss_legendre(16)) for name in (str, lambda name: f"{ord(name)}")
    )
    x = torch.tensor([[0.3, 1.0], [-1.0, 0.0], [math.nan, 1.0]], dtype=torch.float64)
    assert_close(first.log_prob(x), second.log_prob(x), rtol=0, atol=1e-14)


def test_the_numbers_of_the_variables_do_not_matter():
    table = TABLES["several_a_latent"]
    order = [3, 0, 4, 1, 2]  # what variable i is called now
    tree = pc.LatentTree(table.structure.parents, [[order[i] for i in own] for own in table.structure.variables])
    x = holes(table.joint().x)
    renamed = torch.empty_like(x)
    renamed[:, order] = x
    other = Table(tree, table.inputs, table.states).qpc()
    assert_close(other.log_prob(renamed), table.qpc().log_prob(x), **near())


def test_parameters_shared_by_all_variables():
    """One table for all inputs is the same as equal tables for each."""
    table = TABLES["tree"]
    qpc, x = table.qpc(), holes(table.joint().x[::7])
    shared = with_parameters(qpc, inputs=[p[:1] for p in qpc.parameters.inputs])
    equal = with_parameters(qpc, inputs=[p[:1].repeat(len(p), 1, 1) for p in qpc.parameters.inputs])
    queries = [
        lambda q: q.log_prob(x),
        lambda q: q.marginals(x).log_prob(torch.ones(table.variables)),
        lambda q: q.marginals(x).probabilities("x3"),
        lambda q: q.mean(x),
        lambda q: q.variance(x),
        lambda q: q.covariance(x[0]),
        lambda q: q.cdf(torch.ones(1, table.variables)),
        lambda q: q.mpe(x),
        lambda q: q.sample(5, given=x, generator=torch.Generator().manual_seed(0)),
        lambda q: pc.log_inner_product(q, qpc),
        lambda q: q.prune(0.1)[0].log_prob(x),
    ]
    for query in queries:
        assert_close(query(shared), query(equal), **near())


def test_data_may_be_integers_lists_or_arrays():
    table = TABLES["tree"]
    qpc, x = table.qpc(), table.joint().x[:5]
    expected = qpc.log_prob(x)
    for data in (x.long(), x.float(), x.to(torch.uint8), x.tolist(), x.numpy(), np.asarray(x, dtype=np.int32)):
        assert_close(qpc.log_prob(data), expected, rtol=0, atol=0)
