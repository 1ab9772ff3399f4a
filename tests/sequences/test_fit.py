# SPDX-License-Identifier: Apache-2.0
"""Learned chains: what is fitted, from any kind of data, and what they answer."""

from __future__ import annotations

import copy
import json
import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from safetensors.torch import load

import picirc as pc
from picirc.io import files
from picirc.sequences.chain import Batch
from picirc.sequences.dynamics import SequencePIC, initialise, normal_points

SMALL = {"dims": 1, "points": 16, "steps": 30, "settings": {"width": 8, "rank": 2, "validate_every": 10}}


def walk(n, seed=0, a=0.9):
    rng = np.random.default_rng(seed)
    found = np.zeros(n)
    for t in range(1, n):
        found[t] = a * found[t - 1] + math.sqrt(1 - a * a) * rng.normal()
    return found + 0.3 * rng.normal(size=n)


@pytest.fixture(scope="module")
def long_table():
    """Three people of different lengths, one number, one category, with missing cells and one missing week."""
    parts = []
    for person, n in (("ann", 40), ("bob", 25), ("cem", 33)):
        x = walk(n, n)
        mood = np.where(x > 0, "good", "bad").astype(object)
        mood[3] = None
        x[5:8] = np.nan
        day = np.arange(n, dtype=float)
        day[n // 2 :] += 6
        parts.append(pd.DataFrame({"person": person, "day": day, "x": 10 + 2 * x, "mood": mood}))
    return pd.concat(parts, ignore_index=True)


@pytest.fixture(scope="module")
def model(long_table):
    return pc.fit_sequences(long_table, by="person", time="day", **SMALL)


def test_a_chain_is_a_distribution():
    source = torch.Generator().manual_seed(0)
    with torch.no_grad():
        model = SequencePIC([pc.Gaussian()], dims=2, width=8, points=32, generator=source)
        chain = model.double()(normal_points(32, 2))
    assert chain.start.sum().item() == pytest.approx(1.0)
    for table in chain.transition(torch.tensor([1.0, 3.0])):
        np.testing.assert_allclose(table.sum(1), 1.0, atol=1e-12)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_points_are_standard_normal(dims):
    points = normal_points(512, dims, torch.full((dims,), 0.3))
    np.testing.assert_allclose(points.mean(0), 0.0, atol=0.03)
    np.testing.assert_allclose(np.cov(points.T).reshape(dims, dims), np.eye(dims), atol=0.06)


def test_short_steps_stay_and_long_ones_forget():
    model = SequencePIC([pc.Gaussian()], dims=1, width=8, points=64, timed=True).double()
    with torch.no_grad():
        model.mean.zero_()
        model.spread[0] = 0.0
        tables = model(normal_points(64, 1)).transition(torch.tensor([1e-3, 1.0, 50.0]))
    nodes = normal_points(64, 1)[:, 0]
    drift = [float((table @ nodes - nodes).abs().mean()) for table in tables]
    assert drift[0] < 0.02 < drift[1] < drift[2]
    assert float((tables[2] @ nodes).abs().max()) < 0.05


def test_training_starts_near_the_data_and_improves():
    x = [torch.from_numpy(walk(200, seed)).unsqueeze(1) for seed in range(2)]
    source = torch.Generator().manual_seed(0)
    model = SequencePIC([pc.Gaussian()], dims=1, width=8, points=32, generator=source)
    batch = Batch.of(x, [torch.ones(200)] * 2)

    def score():
        with torch.no_grad():
            return float(model(normal_points(64, 1)).log_steps(batch).mean())

    before = score()
    initialise(model, x)
    after = score()
    alone = np.concatenate(x).std()
    independent = -math.log(alone) - 0.5 * math.log(2 * math.pi) - 0.5
    assert after > max(before, independent)


def test_a_linear_series_comes_out_near_the_kalman_filter():
    x = walk(400, 3)
    model = pc.fit_sequences(x[:300], dims=1, points=32, steps=60)
    one, zero = np.eye(1), np.zeros(1)
    from sequence_oracles import kalman

    arguments = (0.9 * one, zero, 0.19 * one, one, zero, 0.09 * one, zero, one)
    best = kalman(x[:, None], *arguments)[0] - kalman(x[:300, None], *arguments)[0]
    found = -model.surprise(x)[300:].sum()
    assert found > best - 0.06 * 100


def test_one_long_table_is_several_sequences(model, long_table):
    assert model.log_prob(long_table).shape == (3,)
    states = model.smooth(long_table)
    assert list(states) == ["ann", "bob", "cem"]
    assert states["bob"].mean.shape == (25, 1)
    assert not model.dynamics.timed  # the missing week is six steps more
    parts = [part.drop(columns="person") for _, part in long_table.groupby("person")]
    np.testing.assert_allclose(model.log_prob(parts), model.log_prob(long_table), atol=1e-9)
    np.testing.assert_allclose(model.log_prob(parts[1])[0], model.log_prob(long_table)[1], atol=1e-9)


def test_the_order_of_rows_does_not_matter_with_times(model, long_table):
    shuffled = long_table.sample(frac=1, random_state=1)
    surprises, expected = model.surprise(shuffled), model.surprise(long_table)
    for person in expected:
        np.testing.assert_allclose(surprises[person], expected[person], atol=1e-9)


def test_a_missing_stretch_is_the_same_as_missing_rows(model):
    rows = {"day": [0.0, 1.0, 5.0], "x": [10.0, 11.0, 9.0], "mood": ["good", "good", "bad"]}
    gap = [None] * 3
    full = {
        "day": np.arange(6.0),
        "x": np.array([10.0, 11.0, np.nan, np.nan, np.nan, 9.0]),
        "mood": np.array(["good", "good", *gap, "bad"], dtype=object),
    }
    assert model.log_prob(rows)[0] == pytest.approx(model.log_prob(full)[0], abs=1e-9)


def test_forecasts_have_numbers_and_categories(model, long_table):
    ahead = model.forecast(long_table, steps=4, quantiles=[0.1, 0.5, 0.9])["ann"]
    assert (np.diff(ahead.quantiles["x"], axis=1) > 0).all()
    np.testing.assert_allclose(ahead.probabilities["mood"].sum(1), 1.0)
    assert ahead.categories["mood"] == ("bad", "good")
    assert list(ahead.table().columns) == ["time", "x", "x 10%", "x 50%", "x 90%", "mood", "mood = bad", "mood = good"]
    np.testing.assert_allclose(ahead.times, 45 + np.arange(1, 5))


def test_gaps_are_filled_in_the_table_as_it_came(model, long_table):
    filled = model.impute(long_table)
    assert list(filled.columns) == list(long_table.columns)
    assert not filled.isna().any().any()
    kept = long_table["x"].notna()
    assert (filled["x"][kept] == long_table["x"][kept]).all()
    assert (filled["person"] == long_table["person"]).all()
    polars = model.impute(pl.from_pandas(long_table), how="sample", seed=1)
    assert isinstance(polars, pl.DataFrame)
    assert polars["x"].null_count() == 0


def test_a_file_is_a_table(model, long_table, tmp_path):
    long_table.to_csv(tmp_path / "long.csv", index=False)
    assert model.log_prob(tmp_path / "long.csv") == pytest.approx(model.log_prob(long_table))


def test_samples_are_tables_of_the_kind_that_was_fitted(model, long_table):
    drawn = model.sample(12, n=2, given=long_table[long_table.person == "ann"].drop(columns="person"), seed=3)
    assert [type(part) for part in drawn] == [pd.DataFrame] * 2
    assert list(drawn[0].columns) == ["x", "mood"]
    assert len(drawn[0]) == 12
    assert drawn[0].equals(model.sample(12, n=2, given=long_table[:40].drop(columns="person"), seed=3)[0])


def test_units_are_those_of_the_data(long_table):
    """Ten times the values have a tenth of the density: everything else is the same."""
    small = [part["x"].to_numpy() for _, part in long_table.groupby("person")]
    one, ten = (pc.fit_sequences([f * x for x in small], **SMALL) for f in (1.0, 10.0))
    seen = sum((~np.isnan(x)).sum() for x in small)
    gap = one.log_prob(small).sum() - ten.log_prob([10 * x for x in small]).sum()
    assert gap == pytest.approx(seen * math.log(10), abs=1e-3 * seen)


def test_saved_models_answer_the_same(model, long_table, tmp_path):
    model.save(tmp_path / "m")
    again = pc.SequenceModel.load(tmp_path / "m")
    np.testing.assert_array_equal(again.log_prob(long_table), model.log_prob(long_table))
    assert (again.by, again.time, again.unit, again.summary) == ("person", "day", model.unit, model.summary)
    model.save(tmp_path / "m.safetensors")
    assert repr(pc.SequenceModel.load(tmp_path / "m.safetensors")) == repr(model)


def test_damaged_files_are_refused(model, tmp_path):
    model.save(tmp_path / "m.safetensors")
    content = bytearray((tmp_path / "m.safetensors").read_bytes())
    content[-5] ^= 255
    (tmp_path / "m.safetensors").write_bytes(content)
    with pytest.raises(pc.ArgumentError, match="damaged"):
        pc.SequenceModel.load(tmp_path / "m.safetensors")
    with pytest.raises(pc.ArgumentError, match="nothing at"):
        pc.SequenceModel.load(tmp_path / "absent")
    pc.save(pc.HCLT(pc.chain(2), inputs=pc.Bernoulli(), states=2), tmp_path / "other")
    with pytest.raises(pc.ArgumentError, match="SequencePIC"):
        pc.SequenceModel.load(tmp_path / "other")


@pytest.mark.parametrize("points", [10_000, 10**5, 10**6])
def test_a_small_file_may_not_ask_for_a_huge_chain(model, tmp_path, points):
    """The transition has four times the square of the points as its size."""
    path = tmp_path / "m.safetensors"
    model.save(path)
    description = pc.io.describe(path)
    description["settings"]["points"] = points
    text = json.dumps({"sha256": files._sign(description), "description": description})
    path.write_bytes(files.save(load(path.read_bytes()), metadata={"picirc": text}))
    with pytest.raises(pc.ArgumentError, match="points for at most"):
        pc.SequenceModel.load(path)
    large = copy.deepcopy(model)
    large.dynamics.points = points
    with pytest.raises(pc.ArgumentError, match="points for at most"):
        large.save(path)


def test_times_that_are_further_apart_than_any_number_of_steps(model):
    with pytest.raises(pc.ArgumentError, match="time: expected times less than"):
        model.log_prob({"person": ["a", "a"], "day": [0.0, 1e300], "x": [1.0, 2.0], "mood": ["good", None]})


def test_an_online_filter_agrees_with_all_rows_at_once(model, long_table):
    rows = long_table[long_table.person == "ann"]
    online = model.online()
    found = [online.update({"x": row.x, "mood": row.mood}, row.day) for row in rows.itertuples()]
    np.testing.assert_allclose(found, model.surprise(rows.drop(columns="person")), atol=1e-9)
    with pytest.raises(pc.ArgumentError, match="a time after"):
        online.update([1.0, "good"], 0.0)


def test_irregular_times_make_the_transition_depend_on_them():
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.exponential(1.0, 50))
    data = {"t": times, "x": walk(50, 1)}
    model = pc.fit_sequences(data, time="t", **SMALL)
    assert model.dynamics.timed
    near, far = ({"t": [0.0, gap], "x": [2.0, np.nan]} for gap in (0.01, 40.0))
    spread = [float(model.filter(part).std[1, 0]) for part in (near, far)]
    assert spread[0] < spread[1]
    with pytest.raises(pc.ArgumentError, match="the column 't' of the times"):
        model.log_prob(data["x"])


def test_dates_count_in_days_and_months_stay_months():
    days = pd.date_range("2020-01-01", periods=60, freq="MS")
    model = pc.fit_sequences(pd.DataFrame({"when": days, "x": walk(60)}), time="when", **SMALL)
    ahead = model.forecast(pd.DataFrame({"when": days, "x": walk(60)}), steps=3)
    assert ahead.times.astype("datetime64[D]").astype(str).tolist() == ["2025-01-01", "2025-02-01", "2025-03-01"]
    assert not model.dynamics.timed


def test_counts_have_counts_as_quantiles():
    counts = np.random.default_rng(0).poisson(np.exp(1 + 0.5 * walk(60)))
    model = pc.fit_sequences({"n": counts}, columns={"n": "poisson"}, **SMALL)
    ahead = model.forecast({"n": counts}, steps=2)
    np.testing.assert_array_equal(ahead.quantiles["n"], np.rint(ahead.quantiles["n"]))
    assert 0 <= np.nanmin(model.pit({"n": counts})) <= np.nanmax(model.pit({"n": counts})) <= 1


def test_the_same_seed_gives_the_same_model():
    first, second = (pc.fit_sequences(walk(40), seed=1, **SMALL) for _ in range(2))
    assert torch.equal(first.dynamics.mean, second.dynamics.mean)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ([], {}, "an empty list"),
        (np.zeros((2, 3, 4)), {}, "shape"),
        ([np.zeros(5)], {"by": "x"}, "a list of tables"),
        ({"x": [1.0, 2.0, 3.0]}, {"by": "y"}, "one of the columns x"),
        ({"x": [1.0, 2.0], "t": [1.0, 1.0]}, {"time": "t"}, "twice"),
        ({"x": [1.0, 2.0], "t": [1.0, np.nan]}, {"time": "t"}, "a time in every row"),
        ({"t": [1.0, 2.0, 3.0]}, {"time": "t"}, "at least one column"),
        (np.zeros(2), {}, "at least three rows"),
        (np.zeros(9), {"settings": {"speed": 1}}, "names among"),
        (np.zeros(9), {"steps": 0}, "positive integer"),
        ([{"x": [1.0]}, {"y": [1.0]}], {}, "tables with the columns x"),
    ],
)
def test_mistakes_are_named(data, options, message):
    with pytest.raises(pc.ArgumentError, match=message):
        pc.fit_sequences(data, **options)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda model, x: model.forecast(x, 0), "steps"),
        (lambda model, x: model.forecast(x, 2, quantiles=[1.5]), "between 0 and 1"),
        (lambda model, x: model.impute(x, how="guess"), "'mean' or 'median' or 'sample'"),
        (lambda model, x: model.sample(2, given=[x, x]), "one sequence"),
        (lambda model, x: model.online().update([1.0, 2.0]), "1 values"),
        (lambda model, x: model.log_prob({"y": x}), "y"),
    ],
)
def test_wrong_questions_are_named(ask, message):
    net = pc.BayesNet()
    net.latent("z", pc.LinearGaussian(std=1.0))
    net.observed("x", pc.LinearGaussian({"z": 1.0}, std=0.5))
    model = pc.state_space(net, {"z": pc.LinearGaussian({"z": 0.5}, std=0.9)}, rule=pc.trapezoidal(65))
    with pytest.raises(pc.ArgumentError, match=message):
        ask(model, np.zeros(4))
