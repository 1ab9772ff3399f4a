# SPDX-License-Identifier: Apache-2.0
"""Continuous mixtures of trees: against the sum over the points written out, on complete rows and with gaps."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

import picirc as pc

TREE = pc.LatentTree((-1, 0, 0, 2), ((2,), (0,), (3,), (1,)))  # the variables in another order than the latents
FAMILIES = [pc.Bernoulli(), pc.Categorical(3), pc.Categorical(3), pc.Bernoulli()]
SIZES = (2, 3, 3, 2)
RULE = pc.sobol(8, 2)


def make(**options) -> pc.TreeMixture:
    generator = torch.Generator().manual_seed(0)
    return pc.TreeMixture(TREE, FAMILIES, width=8, dims=2, generator=generator, **options).double()


def everything() -> torch.Tensor:
    return torch.tensor(list(itertools.product(*map(range, SIZES))), dtype=torch.float64)


def written_out(mixture: pc.TreeMixture, x: torch.Tensor) -> torch.Tensor:
    """``log Σ_n w_n ∏ p(x_i | x_parent(i), z_n)``, one table after the other."""
    points = torch.tensor(np.array(RULE.points))
    total = torch.tensor(np.array(RULE.weights)).log().repeat(len(x), 1)
    columns = [own[0] for own in TREE.variables]
    for bank, block in zip(mixture.integrals, mixture.plan.blocks, strict=True):
        for row, (unit, _, new) in enumerate(block.integrals):
            own = columns[int(unit.variables[0][1:])]
            raw = bank(points, lambda values: values)[row]  # (points, cells)
            logs = raw.view(len(points), -1, SIZES[own]).log_softmax(-1)
            given = x[:, columns[int(new[0][1:])]].long() if new else torch.zeros(len(x), dtype=torch.long)
            total = total + logs[:, given, x[:, own].long()].T
    return total.logsumexp(1)


def test_complete_rows_are_the_sum_over_the_points():
    mixture, x = make(), everything()
    found = mixture(RULE).log_prob(x)
    torch.testing.assert_close(found, written_out(mixture, x))
    assert float(found.detach().exp().sum()) == pytest.approx(1.0, abs=1e-12)


def test_the_two_ways_agree_on_values_and_gradients():
    """The matrix product against the passes through the circuit, which rows with gaps take."""
    mixture, x = make(), everything()
    qpc = mixture(RULE)
    plain = pc.QPC(
        type(qpc.compiled).__mro__[1](qpc.compiled.schedule, qpc.compiled.sizes),
        *(qpc.parameters, qpc.variables, qpc.families, qpc.grids, qpc.properties),
    )
    torch.testing.assert_close(plain.log_prob(x), qpc.log_prob(x))
    parameters = list(mixture.parameters())
    one, other = (torch.autograd.grad(q.log_prob(x[:5]).sum(), parameters, retain_graph=True) for q in (qpc, plain))
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b)


def test_missing_values_are_summed_out():
    qpc, x = make()(RULE), everything()
    joint = qpc.log_prob(x).detach().exp()
    hidden = x.clone()
    hidden[:, 3] = math.nan  # has a parent and a child
    hidden[::2, 0] = math.nan
    for row, value in zip(hidden, qpc.log_prob(hidden).detach().exp(), strict=True):
        same = ((x == row) | row.isnan()).all(1)
        assert float(value) == pytest.approx(float(joint[same].sum()))


def test_queries_of_a_mixture_of_trees():
    qpc, x = make()(RULE), everything()
    joint = qpc.log_prob(x).detach().exp()
    torch.testing.assert_close(qpc.mean().detach(), joint @ x)
    given = torch.tensor([math.nan, 1.0, math.nan, 1.0], dtype=torch.float64)
    same = ((x == given) | given.isnan()).all(1)
    expected = (joint[same] @ x[same]) / joint[same].sum()
    torch.testing.assert_close(qpc.mean(given=given).detach(), expected)
    drawn = qpc.sample(2000, given=given, generator=torch.Generator().manual_seed(0))
    assert (drawn[:, [1, 3]] == 1).all()
    torch.testing.assert_close(drawn.mean(0), expected, atol=0.06, rtol=0)
    assert qpc.latents(x[:2])["g"].mean.shape == (2, 2)
    assert float(qpc.error(x).max()) > 0


def test_training_begins_with_the_tables_of_the_data_and_learns(tmp_path):
    rng = np.random.default_rng(0)
    cause = rng.normal(size=(600, 1))
    first = (rng.random((600, 2)) < 1 / (1 + np.exp(-3 * cause))).astype(float)
    x = np.column_stack([first[:, 0], rng.integers(3, size=600), rng.integers(3, size=600), first[:, 1]])
    options = {"steps": 200, "validate_every": 40, "batch_size": 100, "weight_decay": 0.0, "schedule": pc.Cosine(2e-2)}
    mixture, history = pc.fit(make(), x, x, rule=pc.shifted(pc.sobol(32, 2)), **options)
    assert history.best["valid"] > history.records[0]["valid"]
    independent = sum(np.log(np.bincount(column.astype(int)) / 600)[column.astype(int)].mean() for column in x.T)
    assert history.best["valid"] > independent + 0.05
    pc.save(mixture, tmp_path)
    rows = torch.tensor(x)
    assert torch.equal(pc.load(tmp_path)(RULE).log_prob(rows), mixture(RULE).log_prob(rows))


@pytest.mark.parametrize(
    ("structure", "inputs", "said"),
    [
        (pc.star(3), pc.Bernoulli(), "one variable for each latent"),
        (pc.chain(3), pc.Gaussian(), "pc.Bernoulli"),
        (pc.chain(3), pc.Categorical(40), "at most 16 values"),
    ],
)
def test_what_is_no_tree_of_discrete_variables_is_refused(structure, inputs, said):
    with pytest.raises(pc.ArgumentError, match=said):
        pc.TreeMixture(structure, inputs)


def test_a_rule_of_other_dimensions_is_refused():
    with pytest.raises(pc.ArgumentError, match="vectors of 2 dimensions"):
        make()(pc.sobol(8, 3))
