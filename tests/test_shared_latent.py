# SPDX-License-Identifier: Apache-2.0
"""A latent that all functions of a tree depend on: a mixture of trees that share their nets."""

from __future__ import annotations

import pytest
import torch

import picirc as pc
from picirc import io
from picirc.learning import gradient
from picirc.model import Model

TREE = pc.LatentTree((-1, 0, 0), ((0, 1), (2, 3), (4,)))
FAMILIES = [pc.Gaussian()] * 3 + [pc.Bernoulli(), pc.Categorical(3)]
RULE = pc.midpoint(6)


def model(shared=3, **options):
    generator = torch.Generator().manual_seed(0)
    pic = pc.PIC(TREE, FAMILIES, width=8, shared=shared, generator=generator, **options).double()
    with torch.no_grad():
        pic.shares[0].copy_(torch.linspace(0, 1, shared))  # trees of different weights
    return pic


def rows(pic, missing=0.3):
    source = torch.Generator().manual_seed(1)
    x = pic(RULE).sample(12, generator=source)
    return x.masked_fill(torch.rand(x.shape, generator=source) < missing, torch.nan)


def mixture(pic, x):
    """The slow twin: the logarithm of the weighted mean of the trees at each point of the shared latent."""
    return joint(pic, x).logsumexp(0)


def joint(pic, x):
    weights = pic.shares[0].softmax(0)
    return torch.stack([make().log_prob(x) + w.log() for w, make in zip(weights, pic.slices(RULE), strict=True)])


@pytest.mark.parametrize("options", [{}, {"sharing": "none"}, {"correlated": True}, {"shared_dims": 1}])
def test_it_is_a_mixture_of_trees(options):
    pic = model(**options)
    x = rows(pic)
    with torch.no_grad():
        torch.testing.assert_close(pic(RULE).log_prob(x), mixture(pic, x), rtol=1e-10, atol=1e-10)
        trees = torch.stack([make().log_prob(x) for make in pic.slices(RULE)])
    assert trees.std(0).min() > 1e-4, "the trees differ"


def test_posteriors_of_the_shared_latent_are_responsibilities():
    pic = model()
    x = rows(pic)
    with torch.no_grad():
        trees = joint(pic, x)
        found = pic(RULE).latents(x)["g"]
    torch.testing.assert_close(found.probabilities, trees.softmax(0).T, rtol=1e-8, atol=1e-10)
    points = torch.tensor(pc.sobol(3, 2).points)
    torch.testing.assert_close(found.mean, found.probabilities @ points, rtol=1e-8, atol=1e-10)


def test_training_visits_one_tree_after_the_other_and_follows_the_gradient_of_the_whole(monkeypatch):
    pic = model()
    x = rows(pic, missing=0.2)

    def trained():
        return pc.fit(pic, x, rule=pc.shifted(4), batch_size=6, steps=3)[0].state_dict()

    found = trained()
    monkeypatch.setattr(pc.PIC, "slices", Model.slices)  # all trees at once, as one circuit
    for name, tensor in trained().items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-7, atol=1e-9)


def test_the_trees_of_a_new_model_first_learn_a_cluster_of_rows_each():
    x = torch.cat([torch.zeros(30, 5), torch.ones(30, 5)])
    x[:, :3] += 0.1 * torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    pic = model(shared=2).float()
    assert pic.start_labels(x) is None
    pic.begin_training(x, torch.Generator().manual_seed(0))
    labels = pic.start_labels(x.masked_fill(torch.rand(x.shape) < 0.2, torch.nan))
    assert labels is not None
    assert set(labels[:30].tolist()) != set(labels[30:].tolist()), "the two kinds of rows are two clusters"
    pic.end_training()
    assert pic.start_labels(x) is None
    trained, _ = pc.fit(model(shared=2).float(), x, rule=pc.shifted(6), batch_size=30, steps=40)
    tree = trained(RULE).latents(x)["g"].probabilities.argmax(1)
    assert (tree == torch.where(torch.arange(60) < 30, tree[0], tree[-1])).all(), "each kind of rows has one tree"
    assert tree[0] != tree[-1]


def test_trees_learn_their_weights():
    """Four fifths of the rows are of one kind."""
    x = torch.cat([torch.zeros(80, 5), torch.ones(20, 5)])
    x[:, :3] += 0.1 * torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
    schedule = pc.Cosine(5e-2, 5e-3, None)
    fresh = pc.PIC(TREE, FAMILIES, width=8, shared=2, generator=torch.Generator().manual_seed(0))
    trained, _ = pc.fit(fresh, x, rule=pc.shifted(6), batch_size=100, steps=100, schedule=schedule)
    assert sorted(trained.log_shares().exp().tolist()) == pytest.approx([0.2, 0.8], abs=0.02)


def test_weight_decay_grows_with_the_number_of_trees():
    assert model(shared=4).weight_decay(16_000) == 2 * pc.PIC(TREE, FAMILIES).weight_decay(16_000)


def test_rows_without_a_share_in_a_tree_do_not_count_for_its_gradient(monkeypatch):
    x = torch.cat([torch.zeros(30, 5), torch.ones(30, 5)])
    x[:, :3] += 0.1 * torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    begun, _ = pc.fit(model(shared=2), x.double(), rule=pc.shifted(6), batch_size=30, steps=40)

    def trained():
        return pc.fit(begun, x.double(), rule=pc.shifted(6), batch_size=60, steps=1)[0].state_dict()

    found = trained()
    monkeypatch.setattr(gradient, "_NEGLIGIBLE", -1.0)
    for name, tensor in trained().items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-3, atol=1e-4)


def test_training_learns():
    x = torch.cat([torch.zeros(40, 5), torch.ones(40, 5)])
    x[:, :3] += 0.1 * torch.randn(80, 3, generator=torch.Generator().manual_seed(0))
    _, history = pc.fit(model().float(), x, rule=pc.shifted(6), batch_size=40, steps=30, validate_every=10)
    values = [record["train"] for record in history.records]
    assert values[-1] > values[0]


def test_it_is_saved_and_loaded(tmp_path):
    pic = model(shared=4, shared_dims=3)
    x = rows(pic)
    pc.save(pic, tmp_path / "model")
    loaded = pc.load(tmp_path / "model")
    assert (loaded.shared, loaded.shared_dims) == (4, 3)
    with torch.no_grad():
        assert torch.equal(loaded(RULE).log_prob(x), pic(RULE).log_prob(x))


def test_in_older_files_all_trees_weigh_the_same(tmp_path, monkeypatch):
    pic = model()
    torch.nn.init.zeros_(pic.shares[0])
    x = rows(pic)
    whole = io.to_file
    monkeypatch.setattr(io, "to_file", lambda own: {k: v for k, v in whole(own).items() if k != "shares"})
    pc.save(pic, tmp_path / "model")
    with torch.no_grad():
        assert torch.equal(pc.load(tmp_path / "model")(RULE).log_prob(x), pic(RULE).log_prob(x))


def test_where_it_cannot_be():
    with pytest.raises(ValueError, match="use a latent tree"):
        pc.PIC(pc.quad_graph(2, 2), inputs=pc.Bernoulli(), shared=2)
    with pytest.raises(ValueError, match="shared"):
        model(shared=1)
    with pytest.raises(ValueError, match="without a shared latent"):
        pc.Ensemble([model(), model()])
