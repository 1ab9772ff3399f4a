# SPDX-License-Identifier: Apache-2.0
"""Mixtures of tables: EM with covariances, their average, and the choice between kinds of models."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch
from scipy import stats

import picirc as pc
from picirc.data.datasets import hold_out
from picirc.inputs.correlated import Block, correlation, raw_correlation
from picirc.structure.trees import LatentTree
from picirc.tables import candidates, mixtures, search, task
from picirc.tables.defaults import choose
from picirc.tables.task import Fitted

FAST = {"held_out": 0.2, "members": 2, "states": 4, "em_steps": 10, "kind": "mixture"}


def ring(rows: int, seed: int = 0) -> np.ndarray:
    """Two correlated clusters in three dimensions."""
    rng = np.random.default_rng(seed)
    turned = rng.normal(size=(rows, 3)) @ np.array([[1.0, 0.9, 0.0], [0.0, 0.4, 0.3], [0.0, 0.0, 0.5]])
    return turned + np.where(rng.random((rows, 1)) < 0.3, 4.0, -1.0)


def test_numbers_of_a_correlation_matrix():
    raw = torch.randn(5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(raw_correlation(correlation(raw, 4)), raw)


def test_a_step_of_em_finds_weighted_means_and_covariances():
    source = torch.Generator().manual_seed(0)
    x = torch.randn(3, 40, generator=source, dtype=torch.float64)
    flow = torch.rand(2, 40, generator=source, dtype=torch.float64)
    params = torch.rand(3, 2, 2, generator=source, dtype=torch.float64) + 0.5
    block = Block(pc.Gaussian(), params, correlation(torch.zeros(2, 3, dtype=torch.float64), 3))
    moved = block.from_statistics(block.statistics(x, flow), 0.0, 1.0)
    for state in range(2):
        weights = flow[state].numpy()
        np.testing.assert_allclose(moved.params[:, state, 0], np.average(x, axis=1, weights=weights), rtol=1e-9)
        wanted = np.cov(x, aweights=weights, ddof=0)
        np.testing.assert_allclose(moved.params[:, state, 1], np.sqrt(wanted.diagonal()), rtol=1e-6)
        found = moved.matrix[state].numpy()
        std = np.sqrt(wanted.diagonal())
        np.testing.assert_allclose(found, wanted / np.outer(std, std), atol=5e-4)


def test_em_never_lowers_the_likelihood_of_rows_with_gaps():
    x = ring(120)
    x[np.random.default_rng(1).random(x.shape) < 0.3] = np.nan
    model = pc.HCLT(pc.star(3), pc.Gaussian(), 3, correlated=True, dtype=torch.float64)
    _, history = pc.fit_em(model, x, batch_size=None, steps=15, smoothing=0.0, validate_every=1)
    scores = [record["train"] for record in history.records]
    assert (np.diff(scores) > -1e-3).all()  # the ridge of the matrices costs a little
    assert scores[-1] > scores[0]


def test_one_state_is_the_normal_distribution_of_the_data():
    x, others = ring(200), ring(50, seed=1)
    model = pc.HCLT(pc.star(3), pc.Gaussian(), 1, correlated=True, dtype=torch.float64)
    model, _ = pc.fit_em(model, x, batch_size=None, steps=3, smoothing=0.0)
    covariance = np.cov(x.T, ddof=0)
    ridge = (1 - 2e-4) * covariance + 2e-4 * np.diag(covariance.diagonal())
    expected = stats.multivariate_normal(x.mean(0), ridge).logpdf(others)
    np.testing.assert_allclose(model().log_prob(others).detach(), expected, rtol=1e-9)


def test_batches_find_what_all_rows_find():
    x = ring(2000)
    made = pc.HCLT(pc.star(3), pc.Gaussian(), 2, correlated=True, dtype=torch.float64)
    whole, _ = pc.fit_em(made, x, batch_size=None, steps=30, smoothing=0.0)
    parts, _ = pc.fit_em(made, x, batch_size=200, steps=60, smoothing=0.0, schedule=pc.Cosine(0.9, 0.02, period=None))
    found = [m().log_prob(x).mean().item() for m in (whole, parts)]
    assert found[0] == pytest.approx(found[1], abs=0.02)


def test_a_saved_mixture_has_the_same_bits(tmp_path):
    model = pc.HCLT(pc.star(3), [pc.Gaussian(), pc.Categorical(3), pc.Gaussian()], 2, correlated=True)
    with torch.no_grad():
        model.correlations[0].fill_(0.7)
    pc.save(model, tmp_path / "model")
    again = pc.load(tmp_path / "model")
    x = torch.tensor([[0.5, 2.0, -1.0], [math.nan, 1.0, 0.3]])
    assert torch.equal(again().log_prob(x), model().log_prob(x))


def test_the_average_of_mixtures_is_a_mixture():
    x = torch.tensor(ring(30))
    members = [pc.HCLT(pc.star(3), pc.Gaussian(), k, correlated=True, dtype=torch.float64) for k in (1, 2)]
    members = [pc.fit_em(member, x, batch_size=None, steps=5)[0] for member in members]
    both = mixtures.average(members)
    assert both.states == 3
    apart = torch.stack([member().log_prob(x) for member in members])
    torch.testing.assert_close(both().log_prob(x), apart.logsumexp(0) - math.log(2))


def test_a_table_of_clusters_has_a_mixture_with_several_states(tmp_path):
    model = pc.fit_table(ring(300), settings=FAST)
    assert model.summary["kind"] == "mixture"
    assert model.pic.states > 2  # of two members
    normal = stats.multivariate_normal(ring(300).mean(0), np.cov(ring(300).T))
    others = ring(300, seed=1)
    assert model.log_density(others).mean() > normal.logpdf(others).mean() + 0.3
    model.save(tmp_path / "model")
    again = pc.TableModel.load(tmp_path / "model")
    np.testing.assert_array_equal(again.log_density(others), model.log_density(others))
    assert "states" in repr(again)


def test_the_better_kind_is_kept():
    settings = {name: value for name, value in FAST.items() if name != "kind"}
    model = pc.fit_table(ring(120), settings={**settings, "kind": "auto", "em_steps": 2, "steps": 2})
    scores = model.summary["scores"]
    assert set(scores) == {"mixture", "tree"}
    assert scores[model.summary["kind"]] == max(scores.values())


def test_training_for_a_column_makes_it_more_probable_given_the_others():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 4))
    label = (x[:, 0] + x[:, 1] > 0).astype(float)
    rows = np.column_stack([x, label])
    families = [*[pc.Gaussian()] * 4, pc.Bernoulli()]
    model = pc.HCLT(pc.star(5), families, 4, correlated=True, dtype=torch.float64)
    model, _ = pc.fit_em(model, rows[:300], batch_size=None, steps=5)
    options = {"steps": 40, "schedule": pc.Cosine(0.02, 1e-3, period=None), "validate_every": 20}
    sharp, history = pc.fit(model, rows[:300], rows[300:], target=4, emphasis=10.0, **options)
    hidden = rows[300:].copy()
    hidden[:, 4] = np.nan
    before, after = ((m().log_prob(rows[300:]) - m().log_prob(hidden)).mean().item() for m in (model, sharp))
    assert after > before
    assert history.best["valid"] == pytest.approx(after)
    with pytest.raises(pc.ArgumentError, match="target"):
        pc.fit(model, rows, target=5)


def test_the_label_of_a_classifier_is_what_it_is_trained_for():
    x = np.random.default_rng(0).normal(size=(150, 2))
    label = np.where(x[:, 0] * x[:, 1] > 0, "same", "other")
    settings = {**FAST, "members": 1, "target_steps": 30}
    model = pc.PICClassifier(settings=settings).fit(x, label)
    assert (model.predict(x) == label).mean() > 0.7


def test_states_of_classes_belong_to_them():
    """A price that says nothing about the label does not hide the number that does."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 200)
    table = {"price": rng.integers(0, 4, 200) * 10.0, "loyalty": label + rng.normal(0, 0.5, 200), "label": label}
    schema = pc.Schema.infer(table)
    rows, every = schema.encode(table), np.arange(200)
    found = mixtures.of_classes(schema, rows, (every[:160], every[160:]), 2, 2, pc.tables.choose(200, 3), seed=0)
    assert found.states == 4
    hidden = rows.copy()
    hidden[:, 2] = np.nan
    with torch.no_grad():
        chance = (found().log_prob(rows) - found().log_prob(hidden)).exp()
    assert float(chance.mean()) > 0.75


def test_wider_states_have_wider_numbers_and_more_even_categories():
    source = torch.Generator().manual_seed(0)
    families = [pc.Gaussian(), pc.Gaussian(), pc.Categorical(3), pc.Categorical(3), pc.Bernoulli()]
    model = pc.HCLT(pc.star(5), families, 4, correlated=True, generator=source)
    wider = mixtures.widened(model, 2.0, target=3)
    for group in model.plan.inputs:
        before, after = (group.family.constrain(m.inputs[group.params]) for m in (model, wider))
        if group.correlation is not None:
            expected = torch.tensor([1.0, 2.0]) * before
        elif isinstance(group.family, pc.Categorical):
            expected = torch.stack(((before[0] / 2).log_softmax(-1), before[1]))  # these are log-probabilities
        else:
            expected = before / 2
        torch.testing.assert_close(after, expected)
    assert mixtures.widened(model, 1.0, target=3) is model


@pytest.mark.parametrize("labels", [np.array([False, True]), np.array(["no", "yes"]), np.array([0, 1])])
def test_states_of_classes_in_many_rows_belong_to_them_whatever_the_type_of_the_label(labels):
    rng = np.random.default_rng(0)
    code = rng.integers(0, 2, 4600)
    table = {"x": code + rng.normal(0, 0.3, 4600), "label": labels[code]}
    schema = pc.Schema.infer(table)
    rows, every = schema.encode(table), np.arange(4600)
    chosen = pc.tables.choose(4600, 2, em_passes=1.0)
    found = mixtures.of_classes(schema, rows, (every, every[:0]), 1, 2, chosen, seed=0)
    asked = schema.encode({"x": [-0.5, -0.5, 1.5, 1.5], "label": [*labels.tolist(), *labels.tolist()]})
    with torch.no_grad():
        known = found().log_prob(torch.tensor(asked)).exp().view(2, 2)  # by values of x and of the label
    chance = known / known.sum(1, keepdim=True)
    shares = np.bincount(code) / len(code)
    # Far from the other class, what is left is the share of that class in the noise.
    np.testing.assert_allclose(chance.diagonal().numpy(), 1 - 0.05 * (1 - shares), atol=0.005)


def test_a_classifier_of_many_rows_tries_wide_states_and_averages_three_mixtures(monkeypatch):
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 1200)
    x = rng.normal(size=(1200, 4)) + 0.5 * label[:, None]
    members, widened = [], mixtures.widened

    def noted(member, factor, target):
        members.append((member.states, factor))
        return widened(member, factor, target)

    monkeypatch.setattr(mixtures, "widened", noted)
    settings = {"kind": "mixture", "em_steps": 5, "states": 16, "target_steps": 20}
    model = pc.PICClassifier(settings=settings).fit(x, label).model_
    assert members[0][1] == 1.0
    assert 2.0 in [factor for _, factor in members]
    assert members[-1] == members[-2]  # two more members of the best place
    assert members[-1] in members[:-2]
    assert model.pic.states == 3 * members[-1][0]


def test_samples_stay_inside_the_range_seen_unless_told_otherwise():
    x = np.random.default_rng(0).normal(size=(40, 2))
    model = pc.fit_table(x, settings=FAST)
    drawn = model.sample(3000, seed=0)
    assert (drawn.min(0) >= x.min(0)).all()
    assert (drawn.max(0) <= x.max(0)).all()
    assert (model.sample(3000, seed=0, beyond=True).max(0) > x.max(0)).any()


def test_evidence_for_missing_cells():
    table = {"a": ring(200)[:, 0], "b": ring(200)[:, 1]}
    model = pc.fit_table(table, settings=FAST)
    holes = {"a": [None, 1.0], "b": [None, None]}
    free, low = model.impute(holes), model.impute(holes, given={"b": pc.between(None, -1.0)})
    assert low["b"][0] < -1 < free["b"][1]
    assert low["a"][0] < free["a"][0]
    known = model.impute(holes, given={"b": 2.0})
    np.testing.assert_allclose(known["b"], 2.0)
    assert all(value <= -1 for value in model.impute(holes, "sample", seed=0, given={"b": pc.between(None, -1)})["b"])
    with pytest.raises(pc.ArgumentError, match="given"):
        model.impute(holes, "mode", given={"b": pc.between(0, 1)})


def test_progress_is_written_to_the_error_stream_if_asked_for(capsys):
    pc.fit_table(ring(60), settings=FAST, progress=True)
    first, *others = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"about \d:\d\d:\d\d expected", first)  # before any training
    assert all("step" in line for line in others)
    assert others
    pc.fit_table(ring(60), settings=FAST, progress=False)
    assert capsys.readouterr().err == ""


def test_the_time_left_counts_from_the_beginning_of_the_fit(monkeypatch, capsys):
    """Seconds of single trainings would begin anew with each of them."""
    seconds, show = [], pc.Progress.__call__

    def noted(self, record):
        seconds.append(record["seconds"])
        show(self, record)

    monkeypatch.setattr(pc.Progress, "__call__", noted)
    pc.fit_table(ring(60), settings=FAST, progress=True)
    assert seconds == sorted(seconds)
    assert len(set(seconds)) == len(seconds) > 1


def test_progress_is_shown_while_classes_are_searched(capsys):
    table = {"x": ring(300)[:, 0], "label": (ring(300)[:, 0] > 0).tolist()}
    settings = {"kind": "mixture", "em_steps": 5, "states": 4, "target_steps": 20}
    pc.fit_table(table, target="label", settings=settings, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 5
    assert all("bits" not in line and line.endswith("left") for line in lines[1:])  # a score of the label alone


@pytest.mark.parametrize("target", [None, "label"])
def test_an_interrupted_search_returns_the_best_so_far(target):
    table = {"x": ring(300)[:, 0], "y": ring(300)[:, 1], "label": (ring(300)[:, 0] > 0).tolist()}
    seen = []

    def press(record):
        seen.append(record)
        if len(seen) == 8:
            raise KeyboardInterrupt

    settings = {"em_steps": 20, "states": 16, "members": 1, "target_steps": 20}
    model = pc.fit_table(table, target=target, settings=settings, callbacks=[press])
    assert len(seen) == 8  # no other training went on
    assert model.summary["training"]["stopped"] == "interrupted"
    assert set(model.summary["scores"]) == {"mixture"}
    assert np.isfinite(model.summary["scores"]["mixture"])
    assert np.isfinite(model.log_density(table)).all()


def test_an_interruption_before_anything_is_learned_ends_the_fit(monkeypatch):
    def press(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("picirc.learning.loop.Loop._record", press)
    with pytest.raises(KeyboardInterrupt):
        pc.fit_table(ring(300), settings={"members": 1})


def test_the_search_for_a_mixture_ends_when_its_work_is_done(monkeypatch):
    table, few = ring(200), {"kind": "mixture", "em_steps": 5, "members": 1}
    schema, tried = pc.Schema.infer(table), []
    train = mixtures.train

    def noted(schema, rows, split, states, *others, **named):
        tried.append(states)
        return train(schema, rows, split, states, *others, **named)

    monkeypatch.setattr(mixtures, "train", noted)
    monkeypatch.setattr(search, "BLOCKS", ())
    pc.fit_table(table, settings=few)
    assert max(tried) > 4
    work = mixtures.work_of_state(schema, schema.encode(table), pc.tables.choose(200, 2, **few))
    for most, expected in ((20, [4, 1, 8, 2]), (3, [1])):
        tried.clear()
        monkeypatch.setattr(search, "MOST_WORK", most * work)
        pc.fit_table(table, settings=few)
        assert sum(tried) <= most
        assert tried[: len(expected)] == expected[: len(tried)]


def test_the_search_in_a_large_table_sees_a_part_of_its_rows(monkeypatch):
    seen, train = [], mixtures.train

    def noted(schema, rows, split, states, chosen, *others, **named):
        seen.append((states, chosen.em_passes))
        return train(schema, rows, split, states, chosen, *others, **named)

    monkeypatch.setattr(mixtures, "train", noted)
    monkeypatch.setattr(search, "SEARCHED_ROWS", 400)
    model = pc.fit_table(ring(200), settings={"kind": "mixture", "em_steps": 5, "members": 1, "em_passes": 3.0})
    assert {passes for _, passes in seen[:-1]} == {2.0}
    assert seen[-1] == (model.pic.states, 3.0)


def test_mixtures_of_many_columns_are_trained_in_single_precision(monkeypatch):
    rng = np.random.default_rng(0)
    table = rng.normal(size=(60, 3)) @ rng.normal(size=(3, 12)) + rng.normal(size=(60, 12))
    schema, every = pc.Schema.infer(table), np.arange(60)
    rows, chosen = schema.encode(table), pc.tables.choose(60, 12)

    def trained():
        return mixtures.train(schema, rows, (every[:50], every[50:]), 2, chosen, seed=0)

    narrow, _ = trained()
    monkeypatch.setattr(mixtures, "FEWEST_WIDE", 10)
    wide, history = trained()
    assert (narrow.inputs[0].dtype, wide.inputs[0].dtype) == (torch.float64, torch.float32)
    assert history.records[0]["step"] == 2
    with torch.no_grad():
        found, expected = (float(model().log_prob(rows).mean()) for model in (wide, narrow))
    assert found == pytest.approx(expected, abs=0.5)


def test_a_small_table_may_have_a_mixture_for_a_label():
    rng = np.random.default_rng(0)
    y = np.array(["a", "b"] * 10)
    x = rng.normal(size=20) + 4 * (y == "b")
    model = pc.fit_table({"x": x, "y": y}, target="y", settings={"kind": "mixture", "members": 1})
    assert model.summary["kind"] == "mixture"
    assert model.predict({"x": [0.0, 4.0]}, "y").argmax(1).tolist() == [0, 1]


def test_the_search_stops_where_nothing_helps():
    asked = []

    def score(place):
        asked.append(place)
        return -abs(np.log2(place.states) - 5) - abs(np.log(place.smoothing)) + (place.block == 3)

    moves = [
        lambda place: place._replace(states=4 * place.states),
        lambda place: place._replace(states=2 * place.states),
        lambda place: place._replace(smoothing=place.smoothing / 3),
        *(lambda place, block=block: place._replace(block=block) for block in (6, 3)),
    ]
    best = search.search(score, search.Place(1, 9.0), moves)
    assert (best.states, best.block) == (32, 3)
    assert best.smoothing == pytest.approx(1.0)
    assert max(place.states for place in asked) < 1000


@pytest.mark.parametrize("shares", [None, (1.0, 3.0)])
def test_the_average_of_mixtures_on_a_tree_is_a_mixture(shares):
    table = np.random.default_rng(0).normal(size=(90, 4)) @ np.triu(np.ones((4, 4)))
    schema = pc.Schema.infer(table)
    rows, split = schema.encode(table), (np.arange(60), np.arange(60, 90))
    tree = LatentTree((-1, 0, 0), ((0,), (1, 2), (3,)))
    chosen = pc.tables.choose(90, 4)
    members = [mixtures.train(schema, rows, split, states, chosen, 0, tree, steps=3)[0] for states in (2, 3)]
    with torch.no_grad():
        found = mixtures.average(members, shares)().log_prob(torch.tensor(rows))
        own = torch.stack([member().log_prob(torch.tensor(rows)) for member in members], 1)
    weights = torch.tensor(shares or (1.0, 1.0), dtype=own.dtype)
    torch.testing.assert_close(found, (own + (weights / weights.sum()).log()).logsumexp(1))


def test_mixtures_that_began_elsewhere_are_averaged_if_that_helps(monkeypatch):
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 1500)
    curve = np.column_stack([np.cos(angle), np.sin(angle), np.sin(2 * angle)]) + rng.normal(0, 0.1, (1500, 3))
    settings = {"kind": "mixture", "em_steps": 5, "states": 32}
    several = pc.fit_table(curve[:1000], settings=settings)
    with monkeypatch.context() as patch:
        patch.setattr(search, "MOST_AVERAGED", 1)
        single = pc.fit_table(curve[:1000], settings=settings)
    assert several.pic.states in (2 * single.pic.states, 3 * single.pic.states)
    assert several.summary["scores"]["mixture"] > single.summary["scores"]["mixture"] + 0.01
    assert several.log_density(curve[1000:]).mean() > single.log_density(curve[1000:]).mean()
    monkeypatch.setattr(search, "LEAST_GAIN", 100.0)
    assert pc.fit_table(curve[:1000], settings=settings).pic.states == 1  # nothing gains so much


def test_averages_that_would_be_too_large_have_fewer_members(monkeypatch):
    counts, repeats = [], search.Mixtures._repeats

    def noted(self, place, tried):
        for most in (0, 2 * (2 * place.states) ** 2, 10**6):
            monkeypatch.setattr(search, "MOST_EDGE_WEIGHTS", most)
            counts.append(repeats(self, place, tried))
        monkeypatch.setattr(search, "MOST_WORK", 0)
        counts.append(repeats(self, place, tried))
        return 1

    monkeypatch.setattr(search.Mixtures, "_repeats", noted)
    pc.fit_table(blocked(1200), settings={"kind": "mixture", "em_steps": 8, "states": 16})
    assert counts == [1, 2, 3, 1]


def test_a_mixture_learns_from_the_rows_held_out_in_the_end(monkeypatch):
    pairs, finished = [], mixtures.finished

    def noted(model, rows, *others):
        pairs.append((model, finished(model, rows, *others), torch.tensor(rows)))
        return pairs[-1][1]

    monkeypatch.setattr(mixtures, "finished", noted)
    monkeypatch.setattr(search, "MOST_AVERAGED", 1)
    table = ring(1200)
    model = pc.fit_table(table, settings={"kind": "mixture", "em_steps": 5, "states": 8})
    ((before, after, rows),) = pairs
    with torch.no_grad():
        old, new = before().log_prob(rows), after().log_prob(rows)
        assert torch.equal(model.pic().log_prob(rows), new)
    assert len(rows) == 1200
    assert new.mean() > old.mean()
    # The score is that of rows which the model had not seen.
    _, held = hold_out(1200, 0.1, task._SPLITS)
    assert model.summary["scores"]["mixture"] == pytest.approx(float(old[held].mean()), abs=1e-4)


def test_a_place_is_given_up_after_its_first_member(monkeypatch):
    """One state is clearly worse than four for crossing lines, so only one of three members is trained."""
    tried, train = [], mixtures.train

    def noted(schema, rows, split, states, *others, **named):
        tried.append(states)
        return train(schema, rows, split, states, *others, **named)

    monkeypatch.setattr(mixtures, "train", noted)
    monkeypatch.setattr(mixtures, "refit", lambda *_: [])
    settings = {"kind": "mixture", "em_steps": 5, "members": 3, "states": 4}
    x = np.random.default_rng(0).normal(size=300)
    table = np.column_stack([x, np.where(np.arange(300) % 2, x, -x)]) + 0.01 * ring(300)[:, :2]
    with pytest.raises(IndexError):  # nothing was trained again
        pc.fit_table(table, settings=settings)
    assert tried[:3] == [4, 4, 4]
    assert tried.count(1) == 1


def test_blocks_hold_related_columns():
    rng = np.random.default_rng(0)
    related = np.kron(np.eye(3), np.ones((4, 4))) * rng.uniform(0.1, 0.5, (12, 12))
    order = rng.permutation(12)
    found = mixtures.blocks_of(((related + related.T) / 2)[np.ix_(order, order)], 4)
    assert sorted(sorted(order[block].tolist()) for block in found) == [[*range(4)], [*range(4, 8)], [*range(8, 12)]]
    assert max(map(len, mixtures.blocks_of(np.ones((7, 7)), 3))) == 3
    assert mixtures.blocks_of(np.zeros((3, 3)), 3) == [[0], [1], [2]]


def test_what_is_given_up_is_never_the_best_place(monkeypatch):
    """Of the second place the first member is far ahead and the second clearly behind: the third decides."""
    planned = iter([0.0, 0.0, 0.0, 1.0, -0.5, -2.0])
    scores: dict[int, float] = {}
    places = []
    member, at = search.Mixtures._member, search.Mixtures._at

    def planned_member(self, *args):
        model, history = member(self, *args)
        scores[id(history)] = next(planned, -1.0)
        kept.append(history)
        return model, history

    def recorded(self, *args):
        places.append(at(self, *args))
        return places[-1]

    kept: list = []
    monkeypatch.setattr(search.Mixtures, "_member", planned_member)
    monkeypatch.setattr(search.Mixtures, "_at", recorded)
    monkeypatch.setattr(search.Mixtures, "_is_behind", lambda self, own, rival, number: number == 1)
    monkeypatch.setattr(task, "score_of", lambda history: scores[id(history)])
    pc.fit_table(dict(zip("abc", ring(120).T, strict=True)), settings=FAST | {"members": 3})
    assert [len(one.members) for one in places[:3]] == [3, 3, 2]
    assert max(places, key=lambda one: one.worth) is places[0]


def blocked(rows: int, seed: int = 0) -> dict[str, list]:
    """Two independent blocks of two numbers and a category each, with eight clusters each."""
    rng = np.random.default_rng(seed)
    table = {}
    for block in "ab":
        cluster = rng.integers(8, size=rows)
        centres = np.random.default_rng(ord(block)).normal(0, 3, (8, 2))
        numbers = centres[cluster] + 0.3 * rng.normal(size=(rows, 2))
        table |= {f"{block}1": numbers[:, 0].tolist(), f"{block}2": numbers[:, 1].tolist()}
        table[f"{block}3"] = [f"v{c % 4}" for c in cluster]
    return table


def test_blocks_of_columns_get_latents_of_their_own(tmp_path, monkeypatch):
    train, test = blocked(1200), blocked(400, seed=1)
    model = pc.fit_table(train, settings={"kind": "mixture", "em_steps": 8, "states": 16})
    assert isinstance(model.pic, pc.HCLT)
    assert {frozenset(own) for own in model.pic.structure.variables} == {frozenset((0, 1, 2)), frozenset((3, 4, 5))}
    monkeypatch.setattr(search, "BLOCKS", ())
    single = pc.fit_table(train, settings={"kind": "mixture", "em_steps": 8, "states": 16})
    assert single.pic.structure.n_latents == 1
    assert model.log_density(test).mean() > single.log_density(test).mean() + 0.1
    drawn = model.sample(2000, given={"a1": test["a1"][0]}, seed=0)
    assert np.std(drawn["b1"]) == pytest.approx(np.std(test["b1"]), rel=0.2)  # the other block does not care
    pc.save(model.pic, tmp_path / "model")
    again = pc.load(tmp_path / "model")
    rows = model.schema.encode(pc.data.frames.read_frame(test))
    with torch.no_grad():
        assert torch.equal(again().log_prob(rows), model.pic().log_prob(rows))


@pytest.mark.parametrize("in_order", [True, False])
def test_integers_are_numbers_where_another_column_is_predicted_better_then(in_order):
    """The class follows from the difference of two marks, or else from what each of them is as a code."""
    rng = np.random.default_rng(0)
    level = rng.integers(0, 8, 1200)
    marks = level + rng.integers(0, 5, 1200)
    cause = marks - level > 1 if in_order else (level % 2 == 0) & (marks % 3 == 0)
    table = {"first": level, "second": marks, "code": np.where(cause, "a", "b")}
    settings = {"kind": "mixture", "states": 8, "em_steps": 20, "target_steps": 40}
    model = pc.fit_table(table, target="code", settings=settings)
    assert model.schema["first"].kind == ("scores" if in_order else "categorical")
    drawn = model.sample(50, seed=0)
    assert set(drawn["first"].tolist()) <= set(range(8))
    declared = pc.fit_table(table, {"first": "categorical"}, target="code", settings=settings)
    assert declared.schema["first"].kind == "categorical"


def test_kinds_are_compared_on_the_splits_that_both_have():
    """The second split of the average is easier, and an average is worth a little more than its members."""
    chosen = choose(2000, 3)

    def fitted(kind, *scores):
        return Fitted(kind, chosen, None, (), (), scores)

    def best(*found):
        return max(found, key=candidates._merit(found)).kind

    average = fitted("mixture", -0.3, -0.1, -0.1)
    assert best(average, fitted("tree", -0.25)) == "tree"
    assert best(average, fitted("tree", -0.295)) == "mixture"
    assert best(average, fitted("tree", -0.29, -0.12, -0.12)) == "mixture"
    assert best(fitted("mixture"), fitted("tree")) == "mixture"
