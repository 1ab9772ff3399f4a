# SPDX-License-Identifier: Apache-2.0
"""Samples: goodness of fit at fixed seeds, with and without evidence, and what stays as it is."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

import picirc as pc
from cases import CASES
from picirc.qpc import sampling
from table_circuits import COLUMNS, TABLES, Table, columns_data, conditions, each_table, evidences, with_parameters

TINY = 1e-4  # a p-value below this is a failure


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def chi_square(counts: torch.Tensor, p: torch.Tensor) -> float:
    """The p-value of frequencies; rare values are put together."""
    assert float(counts[p == 0].sum()) == 0, "a value of probability zero was drawn"
    total = float(counts.sum())
    rare = p * total < 5
    observed = [*counts[~rare].tolist(), float(counts[rare].sum())]
    expected = [*(p[~rare] * total).tolist(), float(p[rare].sum()) * total]
    if expected[-1] < 1e-6:
        observed, expected = observed[:-1], expected[:-1]
    if len(expected) == 1:
        return 1.0
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    return float(stats.chi2.sf(statistic, len(expected) - 1))


@each_table
def test_samples_have_the_frequencies_of_the_joint(table):
    joint = table.joint()
    samples = table.qpc().sample(4000, generator=seeded())
    assert samples.shape == (4000, table.variables)
    assert chi_square(joint.counts(samples), joint.p) > TINY


@each_table
def test_conditional_samples_have_the_conditional_frequencies(table):
    qpc = table.qpc()
    samples = qpc.sample(1000, given=evidences(table), generator=seeded(1))
    for number, (evidence, joint) in enumerate(conditions(table)):
        assert chi_square(joint.counts(samples[:, number]), joint.p) > TINY, evidence


@each_table
def test_what_is_observed_stays(table):
    given = evidences(table)
    samples = table.qpc().sample((2, 3), given=given, generator=seeded())
    assert samples.shape == (2, 3, *given.shape)
    known = ~given.isnan()
    assert (samples[..., known] == given[known]).all()
    assert not samples.isnan().any()


def uniforms(qpc: pc.QPC, samples: torch.Tensor, discrete: list[bool], given: torch.Tensor | None) -> torch.Tensor:
    """``F(x_i | x_1 … x_{i−1}, e)``, spread evenly over the jumps of discrete columns: independent and uniform."""
    known = torch.full_like(samples, math.nan) if given is None else given.expand_as(samples).clone()
    places = [i for i in range(samples.shape[1]) if bool(known[0, i].isnan())]
    found = []
    for i in places:
        ends = torch.full_like(samples, math.nan)
        ends[:, i] = samples[:, i]
        u = qpc.cdf(ends, given=known)
        if discrete[i]:
            ends[:, i] -= 1
            below = qpc.cdf(ends, given=known)
            u = below + (u - below) * torch.rand(len(u), generator=seeded(50 + i), dtype=u.dtype)
        found.append(u)
        known[:, i] = samples[:, i]
    return torch.stack(found, 1)


def check_fit(qpc: pc.QPC, discrete: list[bool], given: torch.Tensor | None, n: int = 300) -> None:
    samples = qpc.sample(n, given=given, generator=seeded(2))
    u = uniforms(qpc, samples, discrete, given)
    for i in range(u.shape[1]):
        assert stats.kstest(u[:, i].numpy(), "uniform").pvalue > TINY, f"the {i}th of the unknown columns"
    if u.shape[1] > 1:
        correlations = torch.corrcoef(u.T).triu(1)
        assert float(correlations.abs().max()) < 4 / math.sqrt(n)


@pytest.mark.parametrize("name", CASES)
def test_samples_of_integral_circuits(name):
    case = CASES[name]
    qpc = case.integrate(pc.gauss_legendre(20))
    check_fit(qpc, [isinstance(column, int) for column in case.columns], None)


@pytest.mark.parametrize("name", CASES)
def test_conditional_samples_of_integral_circuits(name):
    case = CASES[name]
    qpc = case.integrate(pc.gauss_legendre(20))
    given = case.complete(1, seed=3)[0]
    given[1:] = math.nan
    check_fit(qpc, [isinstance(column, int) for column in case.columns], given)


@pytest.mark.parametrize("table", COLUMNS.values(), ids=COLUMNS.keys())
def test_samples_of_columns_of_all_families(table):
    discrete = [False, False, False, True, True]
    qpc = table.qpc()
    check_fit(qpc, discrete, None, n=600)
    given = columns_data(1, seed=3)[0]
    given[[0, 2, 4]] = math.nan
    check_fit(qpc, discrete, given, n=600)


def test_nested_quadrature_can_be_sampled():
    qpc = CASES["lg_tree"].circuit.integrate(pc.gauss_hermite(6), nested=True)
    check_fit(qpc, [False] * 3, None)


def test_the_same_generator_gives_the_same_samples():
    for table in TABLES.values():
        qpc, given = table.qpc(), evidences(table)
        first, second, other = (qpc.sample(50, generator=seeded(seed)) for seed in (3, 3, 4))
        assert torch.equal(first, second)
        assert not torch.equal(first, other)
        first, second = (qpc.sample(5, given=given, generator=seeded(3)) for _ in range(2))
        assert torch.equal(first, second)


def test_without_a_generator_torch_decides():
    qpc = TABLES["tree"].qpc()
    with torch.random.fork_rng():
        torch.manual_seed(1)
        first, second = qpc.sample(50), qpc.sample(50)
        torch.manual_seed(1)
        again = qpc.sample(50)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


def test_a_generator_leaves_the_global_state_alone():
    before = torch.get_rng_state()
    TABLES["quad_graph_mixed"].qpc().sample(10, generator=seeded())
    assert torch.equal(torch.get_rng_state(), before)


def test_shapes():
    table = TABLES["tree"]
    qpc, given = table.qpc(), evidences(table)[:2]
    assert qpc.sample().shape == (5,)
    assert qpc.sample(3).shape == (3, 5)
    assert qpc.sample((2, 3)).shape == (2, 3, 5)
    assert qpc.sample(torch.Size([4])).shape == (4, 5)
    assert qpc.sample(given=given[0]).shape == (5,)
    assert qpc.sample(3, given=given[0]).shape == (3, 5)
    assert qpc.sample(given=given).shape == (2, 5)
    assert qpc.sample(3, given=given).shape == (3, 2, 5)


def test_single_precision_has_the_same_frequencies():
    for name in ("tree", "quad_graph_tucker", "random_regions"):
        table = TABLES[name]
        joint = table.joint()
        samples = table.qpc(dtype=torch.float32).sample(4000, generator=seeded(6))
        assert samples.dtype == torch.float32
        assert chi_square(joint.counts(samples.double()), joint.p) > TINY


def test_samples_in_parts(monkeypatch):
    """Few choices at a time and few rows of evidence at a time: the same distribution."""
    table = TABLES["quad_graph"]
    qpc, given = table.qpc(), evidences(table)
    monkeypatch.setattr(sampling, "_STATES", 500)
    monkeypatch.setattr("picirc.engine.compiled.BUDGET", 2 * qpc.compiled.elements)
    samples = qpc.sample(1000, given=given, generator=seeded(7))
    for number, (evidence, joint) in enumerate(conditions(table)):
        assert chi_square(joint.counts(samples[:, number]), joint.p) > TINY, evidence


@each_table
def test_few_scores_at_a_time(table, monkeypatch):
    """The pieces in which rows and inputs are chosen make no difference, one sample for one number of the generator."""
    qpc, given = table.qpc(), evidences(table)

    def drawn() -> list[torch.Tensor]:
        counts = {None: (3, 50), given: (2,)}  # few samples a state, and many
        return [qpc.sample(n, given=e, generator=seeded(8)) for e, ns in counts.items() for n in ns]

    whole = drawn()
    monkeypatch.setattr(sampling, "_LEAST", 1)
    monkeypatch.setattr(sampling, "_MOST", 1)
    for pieces, together in zip(drawn(), whole, strict=True):
        torch.testing.assert_close(pieces, together)


def test_samples_of_many_variables():
    """The shape of the image data sets, with fewer states: nothing of the size samples × variables × states²."""
    table = Table(pc.random_tree(784, 0), pc.Categorical(16), 32)
    samples = table.qpc(dtype=torch.float32).sample(64, generator=seeded())
    assert samples.shape == (64, 784)
    assert ((samples >= 0) & (samples < 16) & (samples == samples.floor())).all()


def test_nothing_is_drawn_that_is_impossible():
    """Ends of tables with probability zero are never reached by rounding."""
    qpc = TABLES["one_variable"].qpc()
    table = torch.tensor([[[0.0, 0.5, 0.5, 0.0]]], dtype=torch.float64).log().expand(1, 5, 4)
    samples = with_parameters(qpc, inputs=[table]).sample(20000, generator=seeded())
    assert samples.unique().tolist() == [1.0, 2.0]
