# SPDX-License-Identifier: Apache-2.0
"""Correlated Gaussian columns: every query against an enumeration of all states, with a normal distribution in each."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor
from torch.autograd import gradcheck
from torch.testing import assert_close

import picirc as pc
from block_circuits import BLOCKS, KIND, NORMAL, TREE, Mixture, enumerate_states, make_pic, make_qpc, patterns
from picirc.inputs.correlated import Block, correlation
from picirc.qpc import sampling
from table_circuits import holes, near

SHARING = ("none", "composite", "full")
TINY = 1e-4  # a p-value below this is a failure
INF = math.inf


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rows(qpc: pc.QPC, count: int = 6, seed: int = 0) -> Tensor:
    return qpc.sample(count, generator=seeded(seed))


def evidence(qpc: pc.QPC, count: int = 8) -> Tensor:
    """Rows with values missing, one that is complete and one of which nothing is known."""
    x = rows(qpc, count)
    return torch.cat([x[:1], holes(x)])


@pytest.fixture(scope="module")
def qpc() -> pc.QPC:
    return make_qpc()


@pytest.fixture(scope="module")
def truth(qpc: pc.QPC) -> Mixture:
    return enumerate_states(qpc)


def test_the_groups_are_those_of_the_latents(qpc):
    groups = [tuple(g.columns.tolist()) for g in qpc.compiled.inputs if g.correlation is not None]
    assert sorted(groups) == sorted(BLOCKS)
    assert all(float((m - torch.eye(len(m))).abs().max()) > 0.05 for m in qpc.parameters.correlations)


def test_the_oracle_agrees_with_scipy(qpc, truth):
    for row in evidence(qpc, 3).numpy():
        values, expected = row[list(NORMAL)], truth.logs.copy()
        seen = ~np.isnan(values)
        for s in range(len(expected)):
            expected[s] += 0.0 if np.isnan(row[KIND]) else np.log(truth.table[s, int(row[KIND])])
            if seen.any():
                normal = stats.multivariate_normal(truth.mean[s][seen], truth.cov[s][np.ix_(seen, seen)])
                expected[s] += normal.logpdf(values[seen])
        np.testing.assert_allclose(truth.state_logs(row), expected, rtol=1e-10)


# The likelihood


@pytest.mark.parametrize("sharing", SHARING)
@pytest.mark.parametrize("points", [1, 4, 6])
def test_every_pattern_of_missing_columns(sharing, points):
    qpc = make_qpc(points=points, input_sharing=sharing)
    x = patterns(rows(qpc, 1)[0])
    found = qpc.log_prob(x)
    assert_close(found, enumerate_states(qpc).log_prob(x), **near())
    masked = qpc.log_prob(rows(qpc, 1).expand_as(x), mask=x.isnan())
    assert torch.equal(masked, found)
    for number in (0, 5, 77, 127):
        assert_close(qpc.log_prob(x[number : number + 1])[0], found[number], rtol=0, atol=1e-12)


def test_complete_rows(qpc, truth):
    x = rows(qpc, 30)
    assert_close(qpc.log_prob(x), truth.log_prob(x), **near())


def test_nothing_observed_is_exactly_log_one(qpc):
    nothing = torch.full((3, 7), math.nan, dtype=torch.float64)
    for group in qpc.compiled.inputs:
        if group.correlation is not None:
            block = qpc.compiled.block(group, qpc.parameters)
            assert (block.log_prob(nothing[:, group.columns].T) == 0).all()
    assert float(qpc.log_prob(nothing).abs().max()) < 1e-14


def test_conditional_log_prob(qpc, truth):
    x = rows(qpc, 8, seed=1)
    known = holes(x, seed=2)
    known[0] = x[0]
    asked = holes(x, seed=3)
    both = torch.where(known.isnan(), asked, known)
    assert_close(qpc.log_prob(asked, given=known), truth.log_prob(both) - truth.log_prob(known), **near())


def test_without_correlation_columns_are_independent():
    params = torch.rand(3, 4, 2, generator=seeded(), dtype=torch.float64) + 0.5
    x = holes(torch.randn(5, 3, generator=seeded(1), dtype=torch.float64)).T
    alone = pc.Gaussian().log_prob(params, x.nan_to_num(0.0)).masked_fill(x.isnan().unsqueeze(1), 0.0).sum(0)
    assert_close(Block(pc.Gaussian(), params, torch.eye(3, dtype=torch.float64)).log_prob(x), alone, **near())


def test_states_with_matrices_of_their_own():
    """Two halves of the states with a matrix each are two blocks, one after the other."""
    family, params = pc.Gaussian(), torch.rand(3, 6, 2, generator=seeded(), dtype=torch.float64) + 0.5
    matrices = torch.stack([correlation(torch.randn(3, generator=seeded(k)).double(), 3) for k in (1, 2)])
    whole = Block(family, params, matrices)
    halves = [Block(family, own, m) for own, m in zip(params.chunk(2, 1), matrices, strict=True)]
    x = holes(torch.randn(6, 3, generator=seeded(3), dtype=torch.float64)).T
    low, high = torch.full_like(x, -INF), torch.full_like(x, INF)
    high[1] = 2.5
    for query, axis in (("log_prob", 0), ("at_mode", 0), ("given", 1), ("given_others", 1)):
        assert torch.equal(getattr(whole, query)(x), torch.cat([getattr(h, query)(x) for h in halves], axis))
    assert torch.equal(whole.log_interval(x, low, high), torch.cat([h.log_interval(x, low, high) for h in halves]))
    inner = torch.cat([torch.cat([a.inner(b) for b in halves], 1) for a in halves])
    assert torch.equal(whole.inner(whole), inner)
    assert_close(inner, inner.T, **near())
    noise = torch.randn(3, 6, generator=seeded(4), dtype=torch.float64)
    state = torch.tensor([5, 0, 3, 2, 1, 4])
    for shocks in (None, noise):
        found = whole.complete(x, state, shocks)
        for row, k in enumerate(state.tolist()):
            own = None if shocks is None else shocks[:, row : row + 1]
            alone = halves[k // 3].complete(x[:, row : row + 1], torch.tensor([k % 3]), own)
            assert_close(found[:, row : row + 1], alone, **near())


@pytest.mark.parametrize(
    ("structure", "inputs"),
    [
        (TREE, [pc.Categorical(3), *[pc.Laplace()] * 6]),
        (pc.chain(4), pc.Gaussian()),
        (TREE, [pc.Categorical(3), pc.Gaussian(), *[pc.Poisson()] * 3, pc.Gaussian(), pc.Gaussian()]),
        (TREE, [pc.Categorical(3), *(pc.Gaussian(min_std=0.1 * k) for k in range(1, 7))]),
    ],
    ids=["none", "one_a_latent", "some_alone", "other_families"],
)
def test_where_no_columns_stand_together_the_option_changes_nothing(structure, inputs):
    one, other = (make_pic(structure=structure, inputs=inputs, correlated=flag) for flag in (True, False))
    mine, theirs = one.state_dict(), other.state_dict()
    assert list(mine) == list(theirs)
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    with torch.no_grad():
        left, right = one(pc.gauss_legendre(4)), other(pc.gauss_legendre(4))
        x = holes(left.sample(5, generator=seeded()))
        assert torch.equal(left.log_prob(x), right.log_prob(x))
        assert torch.equal(left.mean(x), right.mean(x))


# What follows from the flows


def test_moments_given_evidence(qpc, truth):
    e = evidence(qpc)
    means, variances, covariances = qpc.mean(e), qpc.variance(e), qpc.covariance(e)
    for number, row in enumerate(e):
        mean, cov = truth.given(row).moments()
        assert_close(means[number], mean, **near())
        assert_close(variances[number], cov.diagonal(), **near())
        assert_close(covariances[number], cov, **near())
        assert_close(qpc.covariance(row), cov, **near())


def test_moments_without_evidence(qpc, truth):
    mean, cov = truth.moments()
    assert_close(qpc.mean(), mean, **near())
    assert_close(qpc.variance(), cov.diagonal(), **near())
    assert_close(qpc.covariance(), cov, **near())


def test_marginals_given_evidence(qpc, truth):
    e = evidence(qpc)
    x = rows(qpc, len(e), seed=4)
    found = qpc.marginals(e).log_prob(x)
    for number, row in enumerate(e):
        base = truth.log_prob(row[None])
        for column in range(7):
            if row[column].isnan():
                joint = row.clone()
                joint[column] = x[number, column]
                assert_close(found[number, column], (truth.log_prob(joint[None]) - base)[0], **near())
            else:
                assert float(found[number, column]) == (0.0 if row[column] == x[number, column] else -INF)


def test_many_values_for_one_row_of_evidence(qpc):
    row = evidence(qpc)[2]
    x = rows(qpc, 5, seed=4)
    many = qpc.marginals(row).log_prob(x)
    assert_close(many, qpc.marginals(row.expand(5, -1)).log_prob(x), **near())


def test_the_categorical_column_listens_to_the_blocks(qpc, truth):
    e = evidence(qpc)
    found = qpc.marginals(e).probabilities("x0")
    for number, row in enumerate(e):
        given = truth.given(row)
        assert_close(found[number], torch.tensor(given.p @ given.table), **near())


def test_posteriors_of_latents(qpc, truth):
    e = evidence(qpc)
    found = qpc.latents(e)
    for number, row in enumerate(e):
        p = truth.given(row).p
        for latent in range(3):
            expected = np.bincount(truth.places[:, latent], weights=p, minlength=4)
            assert_close(found[f"z{latent}"].probabilities[number], torch.tensor(expected), **near())


# Intervals


def unbounded(e: Tensor) -> tuple[Tensor, Tensor]:
    return torch.full_like(e, -INF), torch.full_like(e, INF)


@pytest.mark.parametrize("columns", [(1,), (5,), (4, 3), (2, 5, 6), (6,)], ids=str)
def test_one_interval_in_a_block(qpc, truth, columns):
    """The other columns of the block are observed or missing."""
    e = evidence(qpc)
    e[:, list(columns)] = math.nan
    low, high = unbounded(e)
    for column in columns:
        low[:, column] = torch.linspace(-1.5, 0.2, len(e))
        high[:, column] = low[:, column] + torch.linspace(0.3, 2.0, len(e))
        low[0, column], high[1, column] = -INF, INF
    found = qpc.log_interval(low, high, given=e).exp()
    joint = qpc.log_interval(low[:1], high[:1]).exp()
    for number, row in enumerate(e):
        given = truth.given(row)
        inside = [given.between(c, float(low[number, c]), float(high[number, c])) for c in columns]
        assert_close(found[number], torch.tensor(given.p @ np.prod(inside, axis=0)), **near())
    inside = [truth.between(c, float(low[0, c]), float(high[0, c])) for c in columns]
    assert_close(joint[0], torch.tensor(truth.p @ np.prod(inside, axis=0)), **near())


def test_the_distribution_function(qpc, truth):
    e = evidence(qpc)
    e[:, [2, 3, KIND]] = math.nan
    x = torch.full_like(e, math.nan)
    x[:, 2], x[:, 3], x[:, KIND] = 0.3, -0.1, 1.0
    found = qpc.cdf(x, given=e)
    for number, row in enumerate(e):
        given = truth.given(row)
        inside = given.between(2, -INF, 0.3) * given.between(3, -INF, -0.1) * given.table[:, :2].sum(1)
        assert_close(found[number], torch.tensor(given.p @ inside), **near())


def test_far_tails_keep_their_digits():
    qpc = make_qpc(points=1)
    truth = enumerate_states(qpc)
    row = torch.full((7,), math.nan, dtype=torch.float64)
    row[1] = 0.4
    given = truth.given(row)
    mean, std = (float(value[0]) for value in given.project(np.eye(6)[NORMAL.index(4)]))
    low, high = unbounded(row[None])
    low[0, 4] = mean + 12 * std
    assert_close(qpc.log_interval(low, high, given=row)[0], torch.tensor(stats.norm.logsf(12)), rtol=1e-9, atol=0)


@pytest.mark.parametrize("pair", [pair for block in BLOCKS for pair in itertools.combinations(block, 2)], ids=str)
def test_two_intervals_in_a_block_are_refused(qpc, pair):
    low, high = (torch.full((2, 7), bound, dtype=torch.float64) for bound in (-INF, INF))
    high[1, list(pair)] = 0.5
    with pytest.raises(pc.StructureError, match="correlated"):
        qpc.log_interval(low, high)
    with pytest.raises(pc.StructureError, match="correlated"):
        qpc.cdf(high.masked_fill(high.isinf(), math.nan))
    known = torch.full((2, 7), math.nan, dtype=torch.float64)
    known[1, pair[0]] = 0.1  # one of the two lies in its interval, which then says nothing
    alone = high.clone()
    alone[1, pair[0]] = INF
    assert torch.equal(qpc.log_interval(low, high, given=known), qpc.log_interval(low, alone, given=known))


def test_values_outside_their_interval_are_impossible(qpc):
    e = rows(qpc, 3)
    e[:, 4] = math.nan
    low, high = unbounded(e)
    low[0, 2], high[1, 5] = e[0, 2] + 1e-9, e[1, 5] - 1e-9
    low[2, 2], high[2, 5] = e[2, 2], e[2, 5]  # at its ends an interval is closed
    high[:, 4] = 0.2
    found = qpc.log_interval(low, high, given=e)
    assert torch.isneginf(found[:2]).all()
    low[:, 2], high[:, 5] = -INF, INF
    assert torch.equal(found[2], qpc.log_interval(low, high, given=e)[2])


# Completions


def check_samples(samples: Tensor, given: Mixture) -> None:
    """Every combination of the columns that were drawn has the distribution of the mixture; the moments agree."""
    free = given.cov[0].diagonal() > 0
    directions = [*np.eye(len(NORMAL))[free], *np.random.default_rng(0).normal(size=(6, len(NORMAL))) * free]
    for direction in directions:
        mean, std = given.project(direction)
        drawn = samples[:, list(NORMAL)].numpy() @ direction
        fit = stats.kstest(drawn, lambda y, m=mean, s=std: stats.norm.cdf(y[:, None], m, s) @ given.p)
        assert fit.pvalue > TINY
    mean, cov = given.moments()
    centred = samples - mean
    products = centred.unsqueeze(2) * centred.unsqueeze(1)  # (n, columns, columns)
    for values, expected in ((samples, mean), (products, cov)):
        error = values.std(0) / math.sqrt(len(samples))
        assert ((values.mean(0) - expected).abs() <= 4.5 * error + 1e-12).all()


@pytest.mark.parametrize("number", [1, 2, 3, -1])
def test_samples_have_the_conditional_distribution(qpc, truth, number):
    row = evidence(qpc)[number]
    samples = qpc.sample(3000, given=row, generator=seeded(5))
    known = ~row.isnan()
    assert (samples[:, known] == row[known]).all()
    check_samples(samples, truth.given(row))


def test_samples_for_many_patterns_at_once(qpc, truth, monkeypatch):
    """In parts, with a different set of columns missing in every row."""
    e = evidence(qpc)[1:5]
    monkeypatch.setattr(sampling, "_STATES", 4000)
    monkeypatch.setattr("picirc.engine.compiled.BUDGET", 2 * qpc.compiled.elements)
    samples = qpc.sample(2000, given=e, generator=seeded(6))
    for number, row in enumerate(e):
        check_samples(samples[:, number], truth.given(row))


def test_probable_samplings(qpc, truth):
    """Never worse than the mean, nor than the mode of the most probable states."""
    e = evidence(qpc)
    found = qpc.mpe(e)
    known = ~e.isnan()
    assert torch.equal(found[known], e[known])
    mean = qpc.mean(e)
    mean[:, KIND] = found[:, KIND]
    assert (qpc.log_prob(found) >= qpc.log_prob(mean) - 1e-12).all()
    for number, row in enumerate(e):
        best = best_sampling(truth, row)
        assert float(truth.log_prob(found[number : number + 1])) >= float(truth.log_prob(best[None])) - 1e-9


def best_sampling(truth: Mixture, row: Tensor) -> Tensor:
    """The most probable values of the most probable states and values together."""
    given = truth.given(row)
    samplings = torch.tensor(np.insert(given.mean, KIND, given.table.argmax(1), axis=1))
    samplings = torch.where(row.isnan(), samplings, row)
    scores = [float(truth.state_logs(x.numpy())[s]) for s, x in enumerate(samplings)]
    return samplings[int(np.argmax(scores))]


def test_the_most_probable_values_of_every_state(qpc):
    """The density of what is observed, times that of a normal distribution at its centre for the rest."""
    e = evidence(qpc)
    for group in qpc.compiled.inputs:
        if group.correlation is None:
            continue
        block = qpc.compiled.block(group, qpc.parameters)
        x = e[:, group.columns]
        expected = block.log_prob(x.T)
        for k, b in np.ndindex(*expected.shape):
            std = block.params[:, k, 1]
            precision = torch.linalg.inv(std[:, None] * block.matrix * std)
            free = x[b].isnan()
            expected[k, b] += 0.5 * torch.logdet(precision[free][:, free] / (2 * math.pi))
        assert_close(block.at_mode(x.T), expected, **near())


def test_in_a_single_state_the_sampling_is_the_mean():
    qpc = make_qpc(points=1)
    e = evidence(qpc)
    e[:, KIND] = 1.0
    assert_close(qpc.mpe(e), qpc.mean(e), **near())


# Products and pruning


def test_inner_products(qpc, truth):
    other = make_qpc(seed=3, points=3)
    theirs = enumerate_states(other)
    pp, pq, qq = truth.inner(truth), truth.inner(theirs), theirs.inner(theirs)
    assert_close(float(pc.log_inner_product(qpc, other)), pq, **near())
    assert_close(float(pc.log_inner_product(other, qpc)), pq, **near())
    assert_close(float(pc.log_inner_product(qpc, qpc)), pp, **near())
    assert_close(float(pc.l2_divergence(qpc, other)), math.exp(pp) + math.exp(qq) - 2 * math.exp(pq), **near())
    assert_close(float(pc.cauchy_schwarz_divergence(qpc, other)), (pp + qq) / 2 - pq, **near())
    assert float(pc.l2_divergence(qpc, qpc)) < 1e-14


@pytest.mark.parametrize("sharing", SHARING)
def test_the_l2_divergence_by_integration(sharing):
    pair = pc.LatentTree((-1,), ((0, 1),))
    options = {"structure": pair, "inputs": pc.Gaussian(min_std=0.3), "input_sharing": sharing}
    p, q = make_qpc(0, 4, **options), make_qpc(1, 3, **options)
    line = torch.linspace(-20, 20, 668, dtype=torch.float64)
    x = torch.cartesian_prod(line, line)
    cell = float(line[1] - line[0]) ** 2
    assert_close(float(p.log_prob(x).exp().sum()) * cell, 1.0, **near())
    difference = p.log_prob(x).exp() - q.log_prob(x).exp()
    assert_close(float(pc.l2_divergence(p, q)), float(difference.square().sum()) * cell, **near())


def test_a_circuit_without_correlations_is_another_structure(qpc):
    with pytest.raises(pc.StructureError):
        pc.log_inner_product(qpc, make_qpc(correlated=False))


@pytest.mark.parametrize("sharing", SHARING)
def test_nothing_is_pruned_at_zero(sharing):
    qpc = make_qpc(input_sharing=sharing)
    e = evidence(qpc)
    pruned, bound = qpc.prune(0.0)
    assert pruned.size == qpc.size
    assert bound < 1e-12
    assert_close(pruned.log_prob(e), qpc.log_prob(e), rtol=0, atol=1e-13)


def test_a_pruned_circuit_answers_queries():
    qpc = make_qpc(points=6)
    pruned, bound = qpc.prune(0.15)
    assert pruned.size < qpc.size
    assert 0 < bound < 1
    truth, e = enumerate_states(pruned), evidence(qpc)
    assert_close(pruned.log_prob(e), truth.log_prob(e), **near())
    for row in e:
        mean, cov = truth.given(row).moments()
        assert_close(pruned.mean(row), mean, **near())
        assert_close(pruned.covariance(row), cov, **near())


# Gradients, parts and precision


def check_gradients(model: pc.PIC, x: Tensor, given: Tensor | None = None) -> None:
    names, tensors = zip(*model.named_parameters(), strict=True)

    def log_prob(*values: Tensor) -> Tensor:
        parameters = dict(zip(names, values, strict=True))
        return torch.func.functional_call(model, parameters, (pc.gauss_legendre(3),)).log_prob(x, given=given)

    assert gradcheck(log_prob, tensors, fast_mode=True)


@pytest.mark.parametrize("sharing", SHARING)
def test_finite_differences(sharing):
    model = make_pic(width=4, input_sharing=sharing)
    x = rows(model(pc.gauss_legendre(3)), 4)
    x = torch.cat([x, holes(x)])
    check_gradients(model, x)
    qpc = model(pc.gauss_legendre(3))
    qpc.log_prob(x).sum().backward()
    assert all(float(raw.grad.abs().min()) > 0 for raw in model.correlations)


@pytest.mark.parametrize("parts", [1, 2, 6])
def test_gradients_from_moments_are_those_of_autograd(parts):
    source = seeded()
    mean = torch.randn(5, 6, generator=source, dtype=torch.float64)
    std = torch.rand(5, 6, generator=source, dtype=torch.float64) + 0.3
    params = torch.stack((mean, std), -1)
    matrix = correlation(torch.randn(parts, 10, generator=source, dtype=torch.float64), 5)
    x = torch.randn(5, 12, generator=source, dtype=torch.float64)
    x[torch.rand(5, 12, generator=source) < 0.3] = torch.nan
    flow = torch.randn(6, 24, generator=source, dtype=torch.float64)
    both = torch.cat((x, x), 1)  # which is evaluated only once
    leaves = [tensor.clone().requires_grad_() for tensor in (params, matrix, x)]
    found = Block(NORMAL, *leaves[:2]).log_prob(leaves[2])
    expected = torch.autograd.grad(torch.cat((found, found), 1), leaves, flow)
    block = Block(NORMAL, params, matrix)
    to_params, to_matrix = block.gradients(both, flow)
    assert_close(to_params, expected[0])
    assert_close(to_matrix, (expected[1] + expected[1].mT) / 2)
    to_x = block.value_gradient(both, flow)
    assert_close(to_x[:, :12] + to_x[:, 12:], expected[2].nan_to_num(0.0))


def test_finite_differences_of_a_conditional():
    model = make_pic(width=4)
    x = rows(model(pc.gauss_legendre(3)), 4)
    check_gradients(model, x, holes(x, seed=4))


@pytest.mark.parametrize("size", [1, 3])
def test_in_parts(qpc, size, monkeypatch):
    """A batch that does not fit is split: the same values, gradients, marginals and covariances."""
    model, e = make_pic(), evidence(qpc)
    low, high = unbounded(e)
    high[:, 2], hidden = 0.4, e.clone()
    hidden[:, 2] = math.nan

    def everything() -> list[Tensor]:
        circuit = model(pc.gauss_legendre(4))
        values = circuit.log_prob(e)
        slopes = torch.autograd.grad(values.square().sum(), list(model.parameters()))
        moments = [circuit.mean(e), circuit.variance(e), circuit.covariance(e), circuit.mpe(e)]
        inside = circuit.log_interval(low, high, given=hidden)
        return [values.detach(), *slopes, *moments, inside, circuit.latents(e)["z1"].probabilities]

    expected = everything()
    monkeypatch.setattr("picirc.engine.compiled.BUDGET", size * qpc.compiled.elements)
    assert len(list(qpc.compiled.parts(qpc._points(e)))) == -(-len(e) // size)
    for found, wanted in zip(everything(), expected, strict=True):
        assert_close(found, wanted, **near())


@pytest.mark.parametrize("strength", [0.9999, 0.99999999])
def test_strong_correlations_of_many_columns_in_single_precision(strength):
    """All columns follow the first; what is left of a variance is found as a difference."""
    model = make_pic(structure=pc.LatentTree((-1,), (tuple(range(30)),)), inputs=pc.Gaussian(), width=4).float()
    below = torch.tril_indices(30, 30, -1)
    with torch.no_grad():
        model.correlations[0].copy_((below[1] == 0) * strength / math.sqrt(1 - strength**2))
    single = model(pc.gauss_legendre(4))
    assert float(single.parameters.correlations[0].detach()[1, 2]) > 0.999
    e = rows(single, 12, seed=1)
    e[1:] = holes(e[1:])
    e[2, 1:], e[3, :-1] = math.nan, math.nan
    single.log_prob(e).sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    drawn = single.sample(20, given=e, generator=seeded())
    assert drawn.isfinite().all()
    with torch.no_grad():
        double = model.double()(pc.gauss_legendre(4))
    assert_close(single.log_prob(e).detach().double(), double.log_prob(e), rtol=1e-3, atol=2e-2)
    assert_close(single.variance(e).double(), double.variance(e), rtol=1e-2, atol=1e-6)
    assert_close(single.mean(e).double(), double.mean(e), rtol=1e-2, atol=1e-2)
    assert single.covariance(e[:4]).isfinite().all()
    assert single.mpe(e).isfinite().all()


def test_the_matrix_is_made_in_full_precision():
    raw = torch.randn(6, generator=seeded())
    expected = correlation(raw, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(correlation(raw, 4), expected)


@settings(max_examples=60)
@given(st.integers(2, 7), st.lists(st.floats(-1e4, 1e4), min_size=21, max_size=21))
def test_any_numbers_make_a_correlation_matrix(columns, numbers):
    raw = torch.tensor(numbers[: columns * (columns - 1) // 2], dtype=torch.float64)
    matrix = correlation(raw, columns)
    assert_close(matrix, matrix.T, rtol=0, atol=1e-12)
    assert_close(matrix.diagonal(), torch.ones(columns, dtype=torch.float64), rtol=0, atol=1e-12)
    assert float(torch.linalg.eigvalsh(matrix)[0]) > 0.9e-4
    assert torch.linalg.cholesky(matrix.float()).isfinite().all()


def test_zeros_make_the_identity():
    assert torch.equal(correlation(torch.zeros(10), 5), torch.eye(5))
