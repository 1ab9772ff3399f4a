# SPDX-License-Identifier: Apache-2.0
"""Every cell given the others, all at once, against one query for each column."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

import picirc as pc
from picirc.tables.answers import given_others
from picirc.tables.column import Column

NAN = math.nan


def mixed_circuit(structure=None) -> pc.QPC:
    structure = structure or pc.random_tree(6, seed=3)
    families = [pc.Gaussian(), pc.Categorical(4), pc.Poisson(), pc.Laplace(), pc.Bernoulli(), pc.StudentT()]
    model = pc.HCLT(structure, families, states=5, generator=torch.Generator().manual_seed(0)).double()
    return model()


def rows_of(qpc: pc.QPC, count: int, gaps: float = 0.3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    rows = qpc.sample(count, generator=generator)
    rows[torch.rand(rows.shape, generator=generator) < gaps] = NAN
    return rows


def one_by_one(qpc, rows, column):
    """The same questions, asked with the public queries for one column."""
    seen = ~rows[:, column].isnan()
    known = rows[seen]
    rest = known.clone()
    rest[:, column] = NAN
    low, high = (torch.full_like(known, side) for side in (-math.inf, math.inf))
    from_here, to_here = low.clone(), high.clone()
    from_here[:, column], to_here[:, column] = known[:, column], known[:, column]
    return {
        "rows": seen.nonzero().flatten(),
        "at_least": qpc.log_interval(from_here, high, given=rest).exp(),
        "at_most": qpc.log_interval(low, to_here, given=rest).exp(),
        "mean": qpc.mean(given=rest)[:, column],
    }


@pytest.mark.parametrize("structure", [pc.random_tree(6, seed=3), pc.quad_graph(2, 3)], ids=["tree", "graph"])
def test_all_at_once_is_one_by_one(structure):
    qpc = mixed_circuit(structure)
    rows = rows_of(qpc, 40)
    found = given_others(qpc, rows)
    assert [cells.column for cells in found] == list(range(6))
    for cells in found:
        wanted = one_by_one(qpc, rows, cells.column)
        assert torch.equal(cells.rows, wanted["rows"])
        mean = cells.mean(Column("x", pc.Poisson(), "float"))  # of values that are their own codes
        for name, own in (("at_most", cells.at_most()), ("at_least", cells.at_least()), ("mean", mean)):
            torch.testing.assert_close(own, wanted[name], rtol=1e-8, atol=1e-10)
        if qpc.families[cells.column].discrete:
            both = cells.at_most() + cells.at_least() - cells.exactly()
            torch.testing.assert_close(both, torch.ones_like(both), rtol=1e-8, atol=1e-8)


def test_probabilities_of_categories():
    qpc = mixed_circuit()
    rows = rows_of(qpc, 30)
    for cells in given_others(qpc, rows):
        if cells.column not in (1, 4):
            continue
        rest = rows[cells.rows].clone()
        rest[:, cells.column] = NAN
        wanted = qpc.marginals(rest).probabilities(qpc.variables[cells.column])
        torch.testing.assert_close(cells.probabilities(), wanted, rtol=1e-8, atol=1e-10)


def test_a_linear_gaussian_network_agrees_with_the_normal_distribution():
    net = pc.BayesNet()
    net.latent("z", pc.LinearGaussian())
    net.observed("a", pc.LinearGaussian({"z": 1.0}, std=0.6))
    net.observed("b", pc.LinearGaussian({"z": -2.0}, bias=1.0, std=0.8))
    circuit = pc.from_bayesnet(net)
    exact, qpc = circuit.exact(), circuit.integrate(pc.trapezoidal(200), sigmas=8)
    rows = exact.sample(50, torch.Generator().manual_seed(0))
    mean, covariance = exact.mean.numpy(), exact.covariance.numpy()
    for cells in given_others(qpc, rows):
        i, j = cells.column, 1 - cells.column
        slope = covariance[i, j] / covariance[j, j]
        centre = mean[i] + slope * (rows[:, j].numpy() - mean[j])
        spread = math.sqrt(covariance[i, i] - slope * covariance[i, j])
        wanted = stats.norm.cdf(rows[:, i].numpy(), centre, spread)
        np.testing.assert_allclose(cells.at_most().numpy(), wanted, rtol=1e-6, atol=1e-9)


def test_a_wild_value_does_not_decide_what_the_others_say():
    """A value thousands of spreads away leaves next to nothing of the states that the others ask for."""
    tree = pc.LatentTree((-1,), ((0, 1),))
    model = pc.HCLT(tree, [pc.Gaussian(), pc.Gaussian()], states=2).double()
    with torch.no_grad():
        model.weights[0].zero_()  # both states alike
        model.inputs[0][0] = torch.tensor([[0.0, -6.0], [5000.0, 5000.0]])  # means and raw standard deviations
        model.inputs[0][1] = torch.tensor([[0.0, -6.0], [50.0, -6.0]])
    qpc = model()
    rows = torch.tensor([[4000.0, 0.0]], dtype=torch.float64)  # by the second column it is the first state, by far
    cells = given_others(qpc, rows)[0]
    assert float(cells.mean(Column("x", pc.Gaussian(), "float"))) == pytest.approx(0.0, abs=1e-6)
    assert float(cells.at_least()) < 1e-30


def test_missing_rows_and_columns_are_left_out():
    qpc = mixed_circuit()
    rows = rows_of(qpc, 5, gaps=0.0)
    rows[:, 2] = NAN
    rows[3] = NAN
    found = given_others(qpc, rows)
    assert [cells.column for cells in found] == [0, 1, 3, 4, 5]
    assert all(cells.rows.tolist() == [0, 1, 2, 4] for cells in found)
