# SPDX-License-Identifier: Apache-2.0
"""Columns that are not normal: spikes, skew, integers. Densities are exact in the units of the table."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

import picirc as pc
from picirc.data.frames import read_frame
from picirc.tables import Schema, TableModel
from picirc.tables.inference import _peaks


def table() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=600)
    return {
        "zero": np.where(hidden < 0.2, 0.0, np.exp(hidden)),
        "skewed": np.exp(1.5 * hidden),
        "sentinel": np.where(rng.random(600) < 0.15, -999.0, 10 * hidden + 50),
        "days": rng.negative_binomial(1, 0.02, 600),
        "normal": hidden + rng.normal(size=600),
    }


@pytest.fixture(scope="module")
def rows() -> dict[str, Any]:
    return table()


@pytest.fixture(scope="module")
def model(rows: dict[str, Any]) -> TableModel:
    with pytest.warns(UserWarning, match="'sentinel' has -999 in"):
        return pc.fit_table(rows, points=8, width=16, steps=60, settings={"members": 1})


def test_the_kind_is_inferred_and_printed(model):
    kinds = {column.name: column.kind for column in model.schema.columns}
    assert kinds == {
        "zero": "spiked",
        "skewed": "scores",
        "sentinel": "spiked",
        "days": "scores",
        "normal": "gaussian",
    }
    assert model.schema["zero"].spikes == (0.0,)
    assert "often -999" in str(model.schema)


def test_columns_with_one_spike_share_a_family(rows):
    """So the engine computes a wide table of such columns in one piece."""
    wide = rows | {"heavy": 1000 * rows["zero"]}
    schema = Schema.infer(wide)
    codes = schema.encode(wide)
    assert len({schema[name].family for name in ("zero", "sentinel", "heavy")}) == 1
    for name in ("zero", "sentinel", "heavy"):
        np.testing.assert_allclose(schema[name].decode(codes[:, schema.index(name)]), wide[name])


def test_codes_keep_the_order_of_the_values(model, rows):
    """Also between a far spike and the other values, where the line beyond the last knot may pass the spike's code."""
    for name in ("zero", "sentinel"):
        values = np.unique([*rows[name], -1e6, -1200.0, -999.0, -998.0, -900.0, -1.0, 1e6])
        assert (np.diff(model.schema[name].encode(read_frame({name: values}).cells(name))) >= 0).all()
    found = model.probability({"sentinel": pc.between(None, -900.0)})
    assert found == pytest.approx(model.probability({"sentinel": -999.0}), rel=1e-9)


def test_what_is_declared_counts(rows):
    schema = Schema.infer(rows, {"zero": "gaussian", "normal": "scores"})
    assert [schema[name].kind for name in ("zero", "normal")] == ["gaussian", "scores"]
    with pytest.raises(pc.ArgumentError, match="values that occur often"):
        Schema.infer(rows, {"normal": "spiked"})


def test_values_come_back(model, rows):
    found = model.schema.decoded(model.schema.encode(rows))
    for name, values in rows.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-9, atol=1e-9)
    assert (found["zero"] == rows["zero"])[rows["zero"] == 0].all()


@pytest.mark.parametrize("name", ["zero", "skewed", "sentinel"])
def test_a_slope_is_the_derivative_of_the_value(model, rows, name):
    column = model.schema[name]
    seen = rows[name][~np.isin(rows[name], column.spikes)]
    middle = np.quantile(seen, [0.13, 0.41, 0.66, 0.87])
    step = 1e-7 * np.ptp(seen)
    code, above = (model.schema.encode({name: x}, absent=model.schema.names)[:, model.schema.index(name)]
                   for x in (middle, middle + step))  # fmt: skip
    np.testing.assert_allclose(column.log_slope(code), np.log(step / (above - code)), atol=1e-4)


@pytest.mark.parametrize("name", ["zero", "skewed", "sentinel"])
def test_spikes_and_density_add_to_one(model, name):
    column = model.schema[name]
    low, high = column.low, column.high
    knots = np.array([value for value, _ in column.knots])
    reach = knots[-1] - knots[0]
    outer = np.concatenate([[knots[0] - 40 * reach], knots, [knots[-1] + 40 * reach]])
    grid = np.unique(np.concatenate([np.linspace(a, b, 400) for a, b in itertools.pairwise(outer)]))
    middle = (grid[1:] + grid[:-1]) / 2
    mass = (np.exp(model.log_density({name: middle})) * np.diff(grid)).sum()
    spikes = np.exp(model.log_density({name: np.array(column.spikes)})).sum() if column.spikes else 0.0
    assert mass + spikes == pytest.approx(1.0, rel=2e-3)
    total = model.probability({name: pc.between(None, None)})
    assert total == pytest.approx(1.0, rel=1e-9)
    if column.spikes:
        assert model.probability({name: column.spikes[0]}) == pytest.approx(spikes, rel=1e-9)
    assert low < high


def test_a_value_beyond_a_peak_at_an_end_is_improbable_and_not_impossible():
    """Prices in whole units, the largest of them a few times: the piece at that end is steep."""
    source = np.random.default_rng(0)
    prices = np.append(np.rint(np.exp(source.normal(11, 0.4, 400))), 5 * [300_000.0])
    model = pc.fit_table({"price": prices}, {"price": "scores"}, settings={"kind": "mixture", "em_steps": 5})
    column = model.schema["price"]
    assert column.knots[-1][0] - column.knots[-2][0] < 1
    at, beyond = model.log_density({"price": np.array([300_000.0, 330_000.0])})
    assert at - 25 < beyond < at - 5
    # The line that goes on has an inverse, and the density its slope.
    codes = column.nearest(np.array([300_000.0, 310_000.0, 330_000.0, 10.0, -3_000.0]))
    np.testing.assert_allclose(column.decode(codes, beyond=True), [300_000.0, 310_000.0, 330_000.0, 10.0, -3_000.0])
    slope = math.log(20_000 / (codes[2] - codes[1]))
    np.testing.assert_allclose(column.log_slope(codes[1:3]), slope)
    assert column.log_slope(codes[:1])[0] < 2  # of the peak, also after rounding
    np.testing.assert_allclose(column.log_slope(codes[:1].astype(np.float32)), column.log_slope(codes[:1]))


def test_draws_stay_inside_the_range_and_have_the_spikes(model, rows):
    drawn = model.sample(4000, seed=0)
    for name in ("zero", "skewed", "sentinel", "days"):
        assert drawn[name].min() >= min(rows[name])
        assert drawn[name].max() <= max(rows[name])
    assert drawn["days"].dtype == np.int64
    for name, spike in (("zero", 0.0), ("sentinel", -999.0)):
        p = model.probability({name: spike})
        assert stats.binomtest(int((drawn[name] == spike).sum()), 4000, p).pvalue > 1e-3
        assert p == pytest.approx((rows[name] == spike).mean(), abs=0.1)


def test_means_are_in_the_units_of_the_table(model):
    given = {"normal": 0.4}
    drawn = model.sample(40_000, given=given, seed=0)
    for name in ("zero", "skewed", "sentinel"):
        mean = model.predict({"normal": [0.4]}, name)[0]
        assert abs(mean - drawn[name].mean()) < 4 * drawn[name].std() / 200
        (middle,) = model.quantiles({"normal": [0.4]}, name, [0.7])[0]
        assert (drawn[name] <= middle).mean() == pytest.approx(0.7, abs=0.02) or middle in model.schema[name].spikes


def test_ranges_of_such_columns_agree_with_draws(model):
    drawn = model.sample(20_000, seed=0)
    for name, low, high in (("zero", 0.0, 1.5), ("zero", 0.1, 2.0), ("skewed", 0.5, 2.0), ("days", 10, 30)):
        hits = ((drawn[name] >= low) & (drawn[name] <= high)).mean()
        assert model.probability({name: pc.between(low, high)}) == pytest.approx(hits, abs=0.015)
    found = model.sample(500, given={"zero": pc.between(0.5, None), "skewed": pc.between(None, 3.0)}, seed=0)
    assert found["zero"].min() >= 0.5 - 1e-9
    assert found["skewed"].max() <= 3.0 + 1e-9


def test_a_saved_model_answers_the_same(model, rows, tmp_path):
    model.save(tmp_path / "m")
    found = TableModel.load(tmp_path / "m")
    assert found.schema == model.schema
    np.testing.assert_array_equal(found.log_density(rows), model.log_density(rows))


@pytest.mark.parametrize(
    "wrong", [{"knots": [[1, 2]]}, {"knots": [[1, 2], [0, 3]]}, {"knots": "ab"}, {"spikes": [1.0]}]
)
def test_a_damaged_schema_is_refused(model, wrong):
    description = model.schema.to_json()
    description["columns"][1].update(wrong)
    with pytest.raises(pc.ArgumentError):
        Schema.from_json(description)


@pytest.fixture(scope="module")
def prices():
    """Two prices in whole dollars that move together, a quarter of the first at one of two popular values."""
    rng = np.random.default_rng(0)
    level = rng.normal(size=1500)
    first = np.rint(np.exp(7 + 0.3 * level + 0.05 * rng.normal(size=1500)))
    near = np.array([999.0, 1299.0])[(first > 1150).astype(int)]
    first = np.where(rng.random(1500) < 0.25, near, first)
    return {"price": first, "cost": np.rint(np.exp(6 + 0.3 * level + 0.05 * rng.normal(size=1500)))}


def test_spikes_of_a_part_of_a_column_are_peaks_between_knots(prices):
    column = pc.Schema.infer(prices)["price"]
    assert column.kind == "scores"
    assert not column.spikes
    at, codes = np.array(column.knots).T
    for peak in (999.0, 1299.0):
        assert {peak - 0.5, peak + 0.5} <= set(at)
        between = np.interp([peak - 0.5, peak + 0.5], at, codes)
        share = np.diff(stats.norm.cdf(between))[0]
        assert share == pytest.approx((prices["price"] == peak).mean(), abs=1e-6)
    values = np.unique(prices["price"])
    np.testing.assert_allclose(column.decode(column.encode(read_frame({"price": values}).cells("price"))), values)


def test_values_that_their_neighbours_do_not_explain_are_peaks():
    rng = np.random.default_rng(0)
    smooth = rng.integers(0, 5000, 4000).astype(float)
    assert len(_peaks(smooth, 1.0)) == 0
    ages = np.rint(rng.normal(50, 10, 4000))  # all occur often, as their neighbours do
    assert len(_peaks(ages, 1.0)) == 0
    often = np.repeat([390.0, 2000.0, 4999.0], [12, 40, 15])
    assert _peaks(np.concatenate([smooth, often]), 1.0).tolist() == [390.0, 2000.0, 4999.0]
    amounts = np.concatenate([rng.exponential(300, 3000).round(), np.repeat(np.arange(100.0, 1000.0, 50.0), 60)])
    column = pc.Schema.infer({"amount": amounts})["amount"]
    drawn = column.like_seen(column.decode(rng.normal(size=20_000)))
    for value in (100.0, 550.0, 950.0):
        assert (drawn == value).mean() == pytest.approx((amounts == value).mean(), abs=5e-3)


def test_columns_with_peaks_are_correlated_and_drawn_with_them(prices):
    settings = {"kind": "mixture", "members": 1, "states": 16, "em_steps": 20}
    model = pc.fit_table(prices, settings=settings)
    drawn = model.sample(6000, seed=0)
    for peak in (999.0, 1299.0):  # the share of a single value among the whole numbers around it would be 0.002
        assert (drawn["price"] == peak).mean() == pytest.approx((prices["price"] == peak).mean(), abs=0.03)
    found = np.corrcoef(np.log(drawn["price"]), np.log(drawn["cost"]))[0, 1]
    assert found == pytest.approx(np.corrcoef(np.log(prices["price"]), np.log(prices["cost"]))[0, 1], abs=0.05)
    grid = np.arange(prices["price"].min() - 800, prices["price"].max() + 3000, 0.01)  # states at a peak are narrow
    assert np.exp(model.log_density({"price": grid})).sum() * 0.01 == pytest.approx(1, abs=0.01)
    inside = model.probability({"price": pc.between(998.5, 999.5)})
    assert inside == pytest.approx((drawn["price"] == 999).mean(), abs=0.02)


@pytest.mark.parametrize("share", [0.2, 0.7])
def test_a_spike_without_a_step_or_in_most_rows_is_an_atom(share):
    rng = np.random.default_rng(1)
    rain = np.where(rng.random(800) < share, 0.0, rng.gamma(2.0, 3.0, 800))
    assert pc.Schema.infer({"rain": rain})["rain"].spikes == (0.0,)
    whole = np.where(rng.random(800) < share, 0.0, np.rint(rng.gamma(2.0, 300.0, 800)))
    assert pc.Schema.infer({"rain": whole})["rain"].spikes == ((0.0,) if share > 0.5 else ())


def test_a_far_value_is_an_atom_also_among_whole_numbers():
    rng = np.random.default_rng(2)
    ages = np.where(rng.random(800) < 0.15, -999.0, np.rint(rng.normal(45, 12, 800)))
    assert pc.Schema.infer({"age": ages})["age"].spikes == (-999.0,)


@pytest.mark.parametrize("rows", [60, 300])
def test_a_far_value_is_an_atom_also_where_it_is_rare(rows):
    rng = np.random.default_rng(3)
    values = rng.integers(0, 90, rows).astype(float)
    values[:6] = 9999
    assert pc.Schema.infer({"age": values})["age"].spikes == (9999.0,)
    with pytest.warns(UserWarning, match="9999 in 6 rows"):
        pc.fit_table({"age": values}, points=4, width=4, steps=1)


def test_quantiles_in_a_range_are_the_least_values_that_reach_their_levels(model):
    """Also where these are atoms, and the others lie far away."""
    given = {"days": pc.between(2, 60), "zero": pc.one_of([0.0])}
    levels = [0.01, 0.2, 0.5, 0.9]
    for level, value in zip(levels, model.quantiles({}, "days", levels, given=given)[0], strict=True):
        reached, before = (
            model.probability({"days": pc.between(None, end)}, given=given) for end in (value, value - 1)
        )
        assert before < level <= reached + 1e-6
    assert model.quantiles({}, "zero", [0.5], given=given) == 0.0
    far = {"sentinel": pc.between(None, -900.0)}
    assert model.quantiles({}, "sentinel", [0.05, 0.95], given=far).tolist() == [[-999.0, -999.0]]


def test_an_explanation_has_the_value_as_it_came_and_the_mean_of_the_others(model):
    row = {"normal": 0.4, "skewed": 1e6, "zero": 0.0, "days": 30}
    cells = {cell["column"]: cell for cell in model.explain(row)}
    assert {name: cell["value"] for name, cell in cells.items()} == row
    for name in row:
        mean = model.predict({other: value for other, value in row.items() if other != name}, name)[0]
        assert cells[name]["expected"] == pytest.approx(mean, rel=1e-6)


def test_draws_beyond_the_range_seen_if_asked_for(model, rows):
    for name in ("skewed", "days"):
        far = 1.5 * rows[name].max()
        drawn = model.sample(50, given={name: pc.between(far, None)}, seed=0)[name]
        assert drawn.min() >= np.floor(far)
    plain, beyond = (model.sample(20_000, seed=0, beyond=wanted)["days"] for wanted in (False, True))
    assert plain.max() == rows["days"].max() < beyond.max()
    assert (plain == beyond)[(plain > plain.min()) & (plain < plain.max())].all()
