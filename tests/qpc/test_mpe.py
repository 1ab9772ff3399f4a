# SPDX-License-Identifier: Apache-2.0
"""Probable completions: never worse than slow decoders, and right where one assignment of the latents dominates."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch.testing import assert_close

import picirc as pc
from cases import CASES
from table_circuits import COLUMNS, TABLES, Unfolded, columns_data, each_of_columns, each_table, evidences, holes, near


@each_table
def test_never_worse_than_the_modes_of_the_marginals(table):
    qpc, joint = table.qpc(), table.joint()
    evidence = evidences(table)
    for given, found in zip(evidence, qpc.log_prob(qpc.mpe(evidence)), strict=True):
        modes = given.clone()
        chosen = joint.matches(given)
        for column in given.isnan().nonzero().flatten().tolist():
            values = joint.x[chosen, column]
            masses = torch.stack([joint.p[chosen][values == v].sum() for v in values.unique()])
            modes[column] = values.unique()[masses.argmax()]
        assert float(found) >= float(qpc.log_prob(modes[None])) - 1e-9


@each_table
def test_the_log_likelihood_is_bounded(table):
    """Between the likelihood of what is returned and the bound lies that of the most probable values."""
    qpc, joint = table.qpc(), table.joint()
    for given in evidences(table):
        best = float(joint.p[joint.matches(given)].max().log())
        assert float(qpc.log_prob(qpc.mpe(given))) - 1e-9 <= best <= float(qpc.log_mpe_bound(given)) + 1e-9


@each_table
def test_more_rounds_are_never_worse(table):
    qpc, evidence = table.qpc(), evidences(table)
    scores = [qpc.log_prob(qpc.mpe(evidence, rounds=rounds)) for rounds in (0, 1, 2, 6)]
    for fewer, more in pairwise(scores):
        assert bool((more >= fewer - 1e-9).all())


@pytest.mark.parametrize("name", ["mixed_columns", "lg_tree", "hybrid", "sums"])
def test_the_ascent_of_continuous_variables_stays_below_the_bound(name):
    qpc, x = CASES[name].integrate(pc.gauss_legendre(16)), CASES[name].data()
    fewer, more = (qpc.log_prob(qpc.mpe(x, rounds=rounds)) for rounds in (0, 3))
    assert bool((fewer - 1e-9 <= more).all())
    assert bool((more <= qpc.log_mpe_bound(x) + 1e-9).all())


@each_table
def test_never_worse_than_max_product(table):
    """The best joint assignment of values and latents: its values are at least as probable as it is."""
    qpc, joint = table.qpc(), table.joint()
    best = Unfolded(table.model(), best=True).prob(joint.x)
    found = qpc.log_prob(qpc.mpe(evidences(table))).exp()
    for row, evidence in enumerate(evidences(table)):
        matches = joint.matches(evidence)
        assert (
            float(best[matches].max()) * (1 - 1e-9) <= float(found[row]) <= float(joint.p[matches].max()) * (1 + 1e-9)
        )


@each_table
def test_exact_when_one_assignment_of_the_latents_dominates(table):
    """Sum weights and mixtures that are nearly certain make the circuit a product of its inputs."""
    model = table.model()
    with torch.no_grad():
        for parameter in (*model.weights, *model.mixtures):
            parameter *= 100.0
        qpc = model()
    joint = table.joint()
    p = Unfolded(model).prob(joint.x)
    for evidence in evidences(table):
        found = qpc.log_prob(qpc.mpe(evidence)[None])
        assert_close(found[0], p[joint.matches(evidence)].max().log(), rtol=1e-6, atol=1e-6)


def test_exact_with_one_state():
    table = TABLES["one_state"]
    joint = table.joint()
    for evidence in evidences(table):
        best = joint.x[(joint.p * joint.matches(evidence)).argmax()]
        assert_close(table.qpc().mpe(evidence), best, rtol=0, atol=0)


@each_table
def test_what_is_observed_stays(table):
    qpc, evidence = table.qpc(), evidences(table)
    found = qpc.mpe(evidence)
    known = ~evidence.isnan()
    assert (found[known] == evidence[known]).all()
    assert not found.isnan().any()
    assert_close(qpc.mpe(evidence[0]), found[0], rtol=0, atol=0)
    assert qpc.mpe().shape == (table.variables,)


@each_of_columns
def test_columns_of_all_families(table):
    """Completions are in the support, and no greedy choice beats them."""
    qpc, circuit = table.qpc(), Unfolded(table.model())
    evidence = holes(columns_data(6))
    found = qpc.mpe(evidence)
    assert (found[~evidence.isnan()] == evidence[~evidence.isnan()]).all()
    scores = qpc.log_prob(found)  # refuses what is not in the support
    for row, given in enumerate(evidence):
        assert float(scores[row]) >= float(circuit.prob(qpc.marginals(given).modes()[None]).log()) - 1e-9


@pytest.mark.parametrize("name", CASES)
def test_integral_circuits(name):
    """A completion keeps what is known, is a value of the right kind, and not one from the tails."""
    case = CASES[name]
    qpc = case.integrate(pc.gauss_legendre(14))
    evidence = case.data()[4:]
    found = qpc.mpe(evidence)
    known = ~evidence.isnan()
    assert (found[known] == evidence[known]).all()
    for column, kind in zip(found.T, case.columns, strict=True):
        assert not isinstance(kind, int) or (column == column.round()).all()
    samples = qpc.sample(40, given=evidence, generator=torch.Generator().manual_seed(0))  # (40, rows, variables)
    drawn = qpc.log_prob(samples.flatten(0, 1)).view(samples.shape[:2])
    assert (qpc.log_prob(found) >= drawn.quantile(0.1, 0) - 1e-9).all()


def test_nothing_to_complete():
    for table in (TABLES["quad_graph"], TABLES["chain_mixed"]):
        x = table.joint().x[:4]
        assert_close(table.qpc().mpe(x), x, rtol=0, atol=0)


def test_the_same_in_single_precision():
    table = COLUMNS["tree_of_columns"]
    evidence = holes(columns_data(6))
    one, two = (table.qpc(dtype=dtype).mpe(evidence) for dtype in (torch.float32, torch.float64))
    assert_close(one.double(), two, **near(torch.float32))


def test_never_worse_than_the_mean_of_continuous_variables():
    net = pc.BayesNet()
    net.latent("z", pc.LinearGaussian(std=1.0))
    for j in range(4):
        net.observed(f"x{j}", pc.LinearGaussian({"z": 1.0 + j}, std=0.5))
    circuit = pc.from_bayesnet(net)
    qpc = circuit.integrate(pc.trapezoidal(16))
    evidence = torch.tensor([0.7, math.nan, math.nan, math.nan], dtype=torch.float64)
    found, mean = qpc.mpe(evidence), qpc.mean(given=evidence)
    assert qpc.log_prob(found[None]) >= qpc.log_prob(mean[None])
    assert found[0] == evidence[0]
