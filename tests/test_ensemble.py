# SPDX-License-Identifier: Apache-2.0
"""The mixture of several models as one circuit."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from scipy import stats

import picirc as pc
from oracles import enumerate_values
from picirc.learning import gradient

TREE = pc.LatentTree((-1, 0, 0), ((0, 1, 2), (3, 4), (5,)))
OTHERS = (pc.LatentTree((-1, 0, 1, 2), ((5,), (0, 3), (4,), (1, 2))), pc.star(6))
FAMILIES = [pc.Gaussian()] * 4 + [pc.Poisson(), pc.Categorical(3)]
RULE = pc.midpoint(6)
# The trees of three members, and their weights.
MIXTURES = {
    "average": ((TREE,) * 3, None),
    "weighted": ((TREE,) * 3, (2, 1, 5)),
    "trees": ((TREE, *OTHERS), None),
    "weighted trees": ((TREE, *OTHERS), (2, 1, 5)),
    "some trees alike": ((TREE, OTHERS[0], TREE), (2, 1, 5)),
}


def member(seed, tree=TREE, correlated=True, families=FAMILIES, **options):
    generator = torch.Generator().manual_seed(seed)
    pic = pc.PIC(tree, families, width=8, correlated=correlated, generator=generator, **options).double()
    with torch.no_grad():
        for parameter in pic.correlations:
            parameter.normal_(generator=generator)
    return pic


@pytest.fixture(scope="module", params=MIXTURES.values(), ids=MIXTURES)
def ensemble(request):
    trees, weights = request.param
    return pc.Ensemble([member(seed, tree) for seed, tree in enumerate(trees)], weights)


@pytest.fixture(scope="module")
def logs(ensemble):
    weights = torch.tensor(ensemble.weights or (1, 1, 1), dtype=torch.float64)
    return (weights / weights.sum()).log().unsqueeze(1)  # (member, 1)


@pytest.fixture(scope="module")
def circuits(ensemble):
    with torch.no_grad():
        return ensemble(RULE), [m(RULE) for m in ensemble.members]


@pytest.fixture(scope="module")
def rows(circuits):
    _, parts = circuits
    source = torch.Generator().manual_seed(0)
    x = torch.cat([part.sample(6, generator=source) for part in parts])
    return x.masked_fill(torch.rand(x.shape, generator=source) < 0.4, torch.nan)


def weights_of(parts, rows, logs):
    """The posterior of the members, (member, row, 1)."""
    return (torch.stack([part.log_prob(rows) for part in parts]) + logs).softmax(0).unsqueeze(-1)


def test_the_likelihood_is_the_weighted_mean(circuits, rows, logs):
    whole, parts = circuits
    expected = (torch.stack([part.log_prob(rows) for part in parts]) + logs).logsumexp(0)
    torch.testing.assert_close(whole.log_prob(rows), expected, rtol=1e-10, atol=1e-10)
    seen = rows.masked_fill(torch.arange(6) > 2, torch.nan)
    given = (torch.stack([part.log_prob(seen) for part in parts]) + logs).logsumexp(0)
    torch.testing.assert_close(whole.log_prob(rows, given=seen), expected - given, rtol=1e-9, atol=1e-9)


def test_the_error_compares_with_a_finer_mixture(ensemble, circuits, rows):
    whole, _ = circuits
    with torch.no_grad():
        finer = ensemble(RULE.refine()).log_prob(rows)
    torch.testing.assert_close(whole.error(rows), (whole.log_prob(rows) - finer).abs(), rtol=1e-7, atol=1e-9)


def test_posteriors_tell_the_members_apart(ensemble, circuits, rows, logs):
    whole, parts = circuits
    weights = weights_of(parts, rows, logs)
    found = whole.latents(rows)
    if len(ensemble.structures) == 1:
        torch.testing.assert_close(found["g"].probabilities, weights.squeeze(-1).T, rtol=1e-8, atol=1e-10)
        return
    first = 0
    for tree, part, weight in zip(ensemble.structures, parts, weights, strict=True):
        own = part.latents(rows)
        for latent in range(tree.n_latents):
            one, other = found[f"z{first + latent}"], own[f"z{latent}"]
            torch.testing.assert_close(one.presence, weight.squeeze(-1), rtol=1e-8, atol=1e-10)
            torch.testing.assert_close(one.mean, other.mean, rtol=1e-7, atol=1e-8)
        first += tree.n_latents
    assert len(found) == first


def test_marginals_are_those_of_the_members_by_their_posterior(circuits, rows, logs):
    whole, parts = circuits
    weights = weights_of(parts, rows, logs)
    found = whole.marginals(rows)
    own = [part.marginals(rows) for part in parts]
    mean = (weights * torch.stack([m.mean for m in own])).sum(0)
    square = (weights * torch.stack([m.variance + m.mean.square() for m in own])).sum(0)
    torch.testing.assert_close(found.mean, mean, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.variance, square - mean.square(), rtol=1e-7, atol=1e-7)
    kinds = (weights * torch.stack([m.probabilities("x5") for m in own])).sum(0)
    torch.testing.assert_close(found.probabilities("x5"), kinds, rtol=1e-9, atol=1e-9)


def test_covariances_hold_between_and_within_members(circuits, rows, logs):
    whole, parts = circuits
    given = rows[1]
    weights = weights_of(parts, given[None], logs)[:, 0, 0]
    means = torch.stack([part.mean(given=given) for part in parts])
    mean = weights @ means
    within = sum(w * part.covariance(given) for w, part in zip(weights, parts, strict=True))
    away = means - mean
    torch.testing.assert_close(
        whole.covariance(given), within + torch.einsum("m,mi,mj->ij", weights, away, away), rtol=1e-7, atol=1e-7
    )


def test_completions_come_from_the_mixture(circuits, rows):
    whole, _ = circuits
    given = rows[0]
    drawn = whole.sample(20_000, given=given, generator=torch.Generator().manual_seed(1))
    free = given.isnan()
    assert torch.equal(drawn[:, ~free], given[~free].expand(len(drawn), -1))
    error = (drawn.var(0) / len(drawn)).sqrt()
    assert ((drawn.mean(0) - whole.mean(given=given)).abs() <= 5 * error + 1e-9).all()


def test_one_member_is_itself(ensemble, rows):
    one = ensemble.members[1]
    with torch.no_grad():
        torch.testing.assert_close(pc.Ensemble([one])(RULE).log_prob(rows), one(RULE).log_prob(rows))


def test_gradients_are_those_of_the_members(ensemble, rows, logs):
    """As one circuit, and member by member as in training."""

    def gradients(make):
        ensemble.zero_grad(set_to_none=True)
        make().sum().backward()
        return [parameter.grad for parameter in ensemble.parameters()]

    whole = gradients(lambda: ensemble(pc.shifted(4)).log_prob(rows))
    slices = ensemble.slices(pc.shifted(4))
    torch.testing.assert_close(ensemble.log_shares(), logs.flatten())
    each = gradients(lambda: (torch.stack([make().log_prob(rows) for make in slices]) + logs.view(-1, 1)).logsumexp(0))
    for one, other in zip(whole, each, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


def test_members_are_trained_together(ensemble, circuits, rows, monkeypatch):
    """One after another, with the gradient of the whole."""

    def trained():
        return pc.fit(ensemble, rows, rule=pc.shifted(4), batch_size=6, steps=3)[0]

    monkeypatch.setattr(gradient, "_NEGLIGIBLE", 0.0)
    found = trained()
    with torch.no_grad():
        assert found(RULE).log_prob(rows).mean() > circuits[0].log_prob(rows).mean()
    monkeypatch.setattr(pc.Ensemble, "slices", pc.Model.slices)  # all members at once, as one circuit
    for one, other in zip(found.parameters(), trained().parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("sharing", ["none", "composite", "full"])
def test_a_mixture_of_trees_is_a_distribution(sharing):
    """Against the enumeration of all values: mass, marginals, conditionals, and draws."""
    families = [pc.Bernoulli(), pc.Categorical(3), pc.Bernoulli(), pc.Categorical(3)]
    trees = [pc.chain(4), pc.star(4), pc.LatentTree((-1, 0), ((3, 0), (1, 2)))]
    own = {"families": families, "correlated": False, "sharing": sharing, "input_sharing": sharing}
    members = [member(seed, tree, **own) for seed, tree in enumerate(trees)]
    with torch.no_grad():
        for parameter in (parameter for one in members for parameter in one.parameters()):
            parameter *= 2  # far from uniform
        whole = pc.Ensemble(members, torch.tensor([1.0, 2.0, 3.0]))(pc.midpoint(5))
    everything = enumerate_values([2, 3, 2, 3])
    mass = whole.log_prob(everything).exp()
    assert float(mass.sum()) == pytest.approx(1, abs=1e-12)
    given = torch.tensor([torch.nan, 2, torch.nan, 0], dtype=torch.float64)
    possible = ((everything == given) | given.isnan()).all(1)
    assert float(whole.log_prob(given[None]).exp()) == pytest.approx(float(mass[possible].sum()), abs=1e-12)
    conditional = mass * possible / mass[possible].sum()
    torch.testing.assert_close(whole.mean(given=given), conditional @ everything)
    torch.testing.assert_close(
        whole.marginals(given).probabilities("x0"),
        torch.stack([conditional[everything[:, 0] == value].sum() for value in (0, 1)]),
    )
    best = whole.log_prob(whole.mpe(given)[None])
    assert float(best) <= float(mass[possible].log().max()) + 1e-12
    drawn = whole.sample(20_000, generator=torch.Generator().manual_seed(0))
    counts = (drawn.unsqueeze(1) == everything).all(2).sum(0)
    expected = len(drawn) * mass
    statistic = float(((counts - expected).square() / expected).sum())
    assert stats.chi2.sf(statistic, len(everything) - 1) > 1e-3


def test_it_is_saved_and_loaded(ensemble, rows, tmp_path):
    pc.save(ensemble, tmp_path / "model", summary={"note": "three"})
    loaded = pc.load(tmp_path / "model")
    assert isinstance(loaded, pc.Ensemble)
    assert pc.io.describe(tmp_path / "model")["members"] == 3
    assert loaded.weights == ensemble.weights
    assert list(loaded.structures) == list(ensemble.structures)
    for name, tensor in ensemble.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)
    with torch.no_grad():
        assert torch.equal(loaded(RULE).log_prob(rows), ensemble(RULE).log_prob(rows))


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ([], "one PIC or more"),
        (None, "one PIC or more"),
        ([member(0), member(1).float()], "the same dtype"),
        ([member(0), pc.HCLT(TREE, FAMILIES, 2)], "one PIC or more"),
        ([member(0), member(1, correlated=False)], "the same correlated"),
        ([member(0), member(1, OTHERS[0], families=[pc.Gaussian()] * 6)], "the same families"),
        ([member(0), member(1, OTHERS[0], dims=2)], "the same dims"),
        ([member(0), member(1, OTHERS[0], shared=2)], "the same shared"),
        ([pc.PIC(pc.quad_graph(2, 2), pc.Bernoulli(), width=4)], "latent tree"),
    ],
)
def test_what_cannot_be_mixed_is_refused(others, words):
    with pytest.raises(pc.ArgumentError, match=words):
        pc.Ensemble(others)


@pytest.mark.parametrize("weights", [(1, 2), (1, 2, 0), (1, 2, -1), (1, 2, np.nan), (1, 2, "3"), 3, "123"])
def test_weights_are_positive_numbers_one_for_each_member(weights):
    with pytest.raises(pc.ArgumentError, match="weights: expected a positive number"):
        pc.Ensemble([member(seed) for seed in range(3)], weights)


def test_a_mixture_of_trees_has_no_single_tree_to_draw():
    trees = pc.Ensemble([member(0), member(1, OTHERS[0])])
    assert not hasattr(trees, "structure")
    with pytest.raises(pc.ArgumentError, match="a latent tree, or a model on one"):
        pc.plot.tree(trees)


def test_the_model_of_a_small_table_is_an_average_and_can_be_copied():
    source = np.random.default_rng(0)
    table = source.normal(size=(60, 3)) @ source.normal(size=(3, 3))
    model = pc.fit_table(table, steps=5, points=4, width=4)
    assert isinstance(model.pic, pc.Ensemble)
    assert model.pic.structure.variables == ((0, 1, 2),)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.log_density(table), model.log_density(table))
    single = pc.fit_table(table, steps=5, points=4, width=4, settings={"members": 1, "block": 1})
    assert not isinstance(single.pic, pc.Ensemble)
    assert single.summary["log_density"]["train"] == pytest.approx(single.log_density(table).mean())
    assert single.pic.structure.n_latents == 3
