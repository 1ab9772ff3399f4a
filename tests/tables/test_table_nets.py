# SPDX-License-Identifier: Apache-2.0
"""Stars, in which all columns of a table depend on one latent, a vector, and mixtures of trees."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import picirc as pc
from picirc.tables.candidates import out_of_reach
from picirc.tables.defaults import choose

SMALL = {"kind": "star", "points": 32, "width": 16, "dims": 3, "steps": 60, "held_out": 0.2}
TREES = {"kind": "trees", "points": 8, "width": 16, "steps": 60, "held_out": 0.2}


def taste(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    """Answers yes and no that depend on two numbers for each person."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(rows, 2)) @ np.random.default_rng(9).normal(size=(2, columns))
    return (rng.random((rows, columns)) < 1 / (1 + np.exp(-logits))).astype(int)


@pytest.mark.parametrize("settings", [SMALL | {"members": 1}, SMALL | {"members": 2}, TREES])
def test_it_is_a_distribution_with_all_queries(settings, tmp_path):
    table = taste(300, 4)
    model = pc.fit_table(table, settings=settings)
    assert (model.summary["kind"], model.points) == (settings["kind"], settings["points"])
    every = np.array(list(itertools.product([0, 1], repeat=4)))
    chances = np.exp(model.log_density(every))
    assert chances.sum() == pytest.approx(1)
    likely = every[(every[:, 0] == 1) & (every[:, 2] == 0)]
    expected = np.exp(model.log_density(likely)) @ likely[:, 3] / np.exp(model.log_density(likely)).sum()
    found = model.predict(np.array([[1.0, np.nan, 0.0, np.nan]]), "x3")
    assert found[0, 1] == pytest.approx(expected)
    drawn = model.sample(4000, seed=0)
    assert np.abs(drawn.mean(0) - chances @ every).max() < 0.05
    model.save(tmp_path / "model")
    again = pc.TableModel.load(tmp_path / "model")
    np.testing.assert_array_equal(again.log_density(every), model.log_density(every))


def test_a_star_sees_what_columns_have_in_common():
    train, others = taste(400, 10), taste(400, 10, seed=1)
    shares = (train.sum(0) + 1) / (len(train) + 2)
    apart = (others * np.log(shares) + (1 - others) * np.log(1 - shares)).sum(1).mean()
    model = pc.fit_table(train, settings=SMALL | {"steps": 150, "points": 64, "members": 1})
    assert model.log_density(others).mean() > apart + 0.5


@pytest.mark.parametrize(("members", "columns", "rival"), [(1, 40, "trees"), (2, 40, "tree"), (1, 8, "tree")])
def test_trees_and_star_race_for_a_table_of_categories(members, columns, rival):
    few = {"kind": "auto", "points": 8, "width": 8, "steps": 10, "members": members, "em_steps": 2, "states": 1}
    model = pc.fit_table(taste(150, columns), settings=few)
    summary = model.summary
    assert set(summary["race"]) == {rival, "star"}
    ahead = max(summary["race"], key=summary["race"].get)
    assert set(summary["scores"]) == {"mixture", ahead}
    assert summary["scores"][summary["kind"]] == max(summary["scores"].values())
    numbers = np.random.default_rng(0).normal(size=(150, 8))
    assert pc.fit_table(numbers, settings=few).summary["race"] == {}


@pytest.mark.parametrize("settings", [SMALL | {"members": 1}, TREES])
def test_it_learns_to_predict_a_column(settings):
    answers = taste(300, 6)
    model = pc.PICClassifier(settings=settings | {"target_steps": 40}).fit(answers[:, :5], answers[:, 5])
    assert model.model_.summary["kind"] == settings["kind"]
    assert (model.predict(answers[:, :5]) == answers[:, 5]).mean() > max(answers[:, 5].mean(), 1 - answers[:, 5].mean())


def test_the_settings_of_a_star_can_be_given():
    assert choose(2000, 50, kind="star").dims > 1
    assert choose(2000, 50, kind="star", dims=2, points=100).points == 100
    assert choose(2000, 50).dims == 1
    assert choose(300, 50, kind="trees").members == 1
    with pytest.raises(pc.ArgumentError, match="1 with several trees"):
        choose(300, 50, kind="trees", members=2)
    assert (choose(2000, 50, kind="trees").trees, choose(2000, 50, kind="trees", trees=2).trees) == (4, 2)
    assert choose(1000, 10).planned > choose(1000, 10, kind="tree").planned


@pytest.mark.parametrize(
    ("rival", "least", "ends"),
    [(-10.0, 200, 1000), (-1.5, 200, 1000), (-0.5, 200, 400), (3.0, 200, 200), (3.0, 500, 500), (-np.inf, 200, 1000)],
)
def test_a_training_that_cannot_win_ends_early(rival, least, ends):
    call, step = out_of_reach(rival, 1000, least), 0
    try:
        for step in range(50, 1001, 50):
            call({"step": step, "valid": -1.0 - 100 / step})
    except StopIteration:
        pass
    assert step == ends
