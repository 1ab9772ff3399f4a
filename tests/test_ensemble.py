# SPDX-License-Identifier: Apache-2.0
"""The average of several models as one circuit."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

import picirc as pc

TREE = pc.LatentTree((-1, 0, 0), ((0, 1, 2), (3, 4), (5,)))
FAMILIES = [pc.Gaussian()] * 4 + [pc.Poisson(), pc.Categorical(3)]
RULE = pc.midpoint(6)


def member(seed, tree=TREE, correlated=True, **options):
    generator = torch.Generator().manual_seed(seed)
    pic = pc.PIC(tree, FAMILIES, width=8, correlated=correlated, generator=generator, **options).double()
    with torch.no_grad():
        for parameter in pic.correlations:
            parameter.normal_(generator=generator)
    return pic


@pytest.fixture(scope="module")
def members():
    return [member(seed) for seed in range(3)]


@pytest.fixture(scope="module")
def circuits(members):
    with torch.no_grad():
        return pc.Ensemble(members)(RULE), [m(RULE) for m in members]


@pytest.fixture(scope="module")
def rows(circuits):
    _, parts = circuits
    source = torch.Generator().manual_seed(0)
    x = torch.cat([part.sample(6, generator=source) for part in parts])
    return x.masked_fill(torch.rand(x.shape, generator=source) < 0.4, torch.nan)


def weights_of(parts, rows):
    return torch.stack([part.log_prob(rows) for part in parts]).softmax(0).unsqueeze(-1)  # (member, row, 1)


def test_the_likelihood_is_the_mean(circuits, rows):
    whole, parts = circuits
    expected = torch.stack([part.log_prob(rows) for part in parts]).logsumexp(0) - np.log(3)
    torch.testing.assert_close(whole.log_prob(rows), expected, rtol=1e-10, atol=1e-10)


def test_marginals_are_those_of_the_members_by_their_posterior(circuits, rows):
    whole, parts = circuits
    weights = weights_of(parts, rows)
    found = whole.marginals(rows)
    own = [part.marginals(rows) for part in parts]
    mean = (weights * torch.stack([m.mean for m in own])).sum(0)
    square = (weights * torch.stack([m.variance + m.mean.square() for m in own])).sum(0)
    torch.testing.assert_close(found.mean, mean, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.variance, square - mean.square(), rtol=1e-7, atol=1e-7)
    kinds = (weights * torch.stack([m.probabilities("x5") for m in own])).sum(0)
    torch.testing.assert_close(found.probabilities("x5"), kinds, rtol=1e-9, atol=1e-9)


def test_covariances_hold_between_and_within_members(circuits, rows):
    whole, parts = circuits
    given = rows[1]
    weights = weights_of(parts, given[None])[:, 0, 0]
    means = torch.stack([part.mean(given=given) for part in parts])
    mean = weights @ means
    within = sum(w * part.covariance(given) for w, part in zip(weights, parts, strict=True))
    away = means - mean
    torch.testing.assert_close(
        whole.covariance(given), within + torch.einsum("m,mi,mj->ij", weights, away, away), rtol=1e-7, atol=1e-7
    )


def test_completions_come_from_the_average(circuits, rows):
    whole, _ = circuits
    given = rows[0]
    drawn = whole.sample(20_000, given=given, generator=torch.Generator().manual_seed(1))
    free = given.isnan()
    assert torch.equal(drawn[:, ~free], given[~free].expand(len(drawn), -1))
    error = (drawn.var(0) / len(drawn)).sqrt()
    assert ((drawn.mean(0) - whole.mean(given=given)).abs() <= 5 * error + 1e-9).all()


def test_one_member_is_itself(members, rows):
    with torch.no_grad():
        torch.testing.assert_close(pc.Ensemble(members[:1])(RULE).log_prob(rows), members[0](RULE).log_prob(rows))


def test_gradients_reach_every_member(members, rows):
    ensemble = pc.Ensemble([member(seed) for seed in (7, 8)])
    ensemble(pc.shifted(4)).log_prob(rows).sum().backward()
    assert all(parameter.grad is not None for parameter in ensemble.parameters())


def test_it_is_saved_and_loaded(members, rows, tmp_path):
    ensemble = pc.Ensemble(members)
    pc.save(ensemble, tmp_path / "model", summary={"note": "three"})
    loaded = pc.load(tmp_path / "model")
    assert isinstance(loaded, pc.Ensemble)
    assert pc.io.describe(tmp_path / "model")["members"] == 3
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
        ([member(0), member(1, pc.LatentTree((-1, 0, 1), TREE.variables))], "the same structure"),
        ([pc.PIC(pc.quad_graph(2, 2), pc.Bernoulli(), width=4)], "latent tree"),
    ],
)
def test_what_cannot_be_averaged_is_refused(others, words):
    with pytest.raises(pc.ArgumentError, match=words):
        pc.Ensemble(others)


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
