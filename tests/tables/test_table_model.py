# SPDX-License-Identifier: Apache-2.0
"""Queries in the units of a table, against the circuit itself, sums and integrals."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import mixed_tables
import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import stats

import picirc as pc


@pytest.fixture(scope="module")
def penguins() -> Any:
    return mixed_tables.penguin_table()


@pytest.fixture(scope="module")
def model() -> pc.TableModel:
    return mixed_tables.penguin_model()


@pytest.fixture(scope="module")
def mixed() -> dict[str, Any]:
    return mixed_tables.mixed_table()


@pytest.fixture(scope="module")
def mixed_model() -> pc.TableModel:
    return mixed_tables.mixed_model()


def single(model: pc.TableModel, **cells: Any) -> dict[str, Any]:
    """A row with some cells."""
    return {name: [cells.get(name)] for name in model.schema.names}


def repeated(row: dict[str, Any], name: str, values: Any) -> dict[str, Any]:
    """A row many times, with other values in a column."""
    return {key: list(values) if key == name else cell * len(values) for key, cell in row.items()}


# Densities


def test_a_density_is_that_of_the_circuit_over_the_spreads(model, penguins):
    rows = model.schema.encode(penguins)
    inside = model.qpc.log_prob(torch.tensor(rows)).numpy()
    names = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]
    spread = penguins[names].quantile(0.75) - penguins[names].quantile(0.25)
    scales = np.log(spread / 1.349).to_numpy()
    expected = inside - (penguins[names].notna().to_numpy() * scales).sum(1)
    np.testing.assert_allclose(model.log_density(penguins), expected, rtol=1e-12)


def test_a_real_column_integrates_to_one_in_its_own_units(model):
    grid = np.linspace(0, 12000, 4001)
    row = single(model, species="Gentoo", sex=None)
    joint = np.exp(model.log_density(repeated(row, "body_mass_g", grid)))
    known = np.exp(model.log_density(row))[0]
    assert np.trapezoid(joint, grid) == pytest.approx(known, rel=1e-6)
    conditional = np.exp(model.log_density({"body_mass_g": grid}, given={"species": "Gentoo"}))
    np.testing.assert_allclose(conditional, joint / known, rtol=1e-9)


def test_the_probabilities_of_a_column_of_categories_sum_to_one(model):
    labels = model.schema["island"].categories
    logs = model.log_density(repeated(single(model), "island", labels))
    assert np.exp(logs).sum() == pytest.approx(1.0, rel=1e-9)
    assert model.log_density(single(model))[0] == pytest.approx(0.0, abs=1e-9)


def test_conditional_times_marginal_is_joint(model, penguins):
    rows = penguins.iloc[[0, 3, 100, 300]]
    known = rows.copy()
    known[["bill_length_mm", "body_mass_g", "island"]] = None
    total = model.log_density(known) + model.log_density(rows, given=known)
    np.testing.assert_allclose(total, model.log_density(rows), rtol=1e-9)


def test_a_change_of_units_changes_the_density_by_its_logarithm():
    values = np.random.default_rng(0).gamma(3.0, size=(80, 2))
    grams, tons = (
        pc.fit_table(values * unit, points=4, width=4, steps=10, settings={"members": 1}) for unit in (1.0, 2.0**-20)
    )
    difference = tons.log_density(values * 2.0**-20) - grams.log_density(values)
    np.testing.assert_allclose(difference, 2 * 20 * math.log(2), rtol=1e-12)


def test_evidence_comes_in_many_forms(model, penguins):
    row = penguins.iloc[7]
    known = ["species", "body_mass_g"]
    forms = [
        {name: row[name] for name in known},
        {name: [row[name]] for name in known},
        row.where(row.index.isin(known)),
        penguins.iloc[[7]][known],
        pl.DataFrame({name: [row[name]] for name in known}),
        np.array([row[name] if name in known else None for name in penguins.columns], dtype=object),
        [row[name] if name in known else None for name in penguins.columns],
    ]
    target = {"sex": ["male", "female"]}
    expected = model.log_density(target, given=forms[0])
    for form in forms[1:]:
        np.testing.assert_allclose(model.log_density(target, given=form), expected, rtol=1e-12)


def test_evidence_must_fit_the_rows(model, penguins):
    with pytest.raises(pc.ArgumentError, match=r"one row, or as many as the table \(344\), got 2 rows"):
        model.log_density(penguins, given=penguins.iloc[:2])
    with pytest.raises(pc.ArgumentError, match="given"):
        model.log_density({"species": ["Gentoo"]}, given={"species": "Adelie"})


# Completing rows


def test_the_mean_is_the_integral_of_the_conditional_density(model):
    row = single(model, species="Chinstrap", sex="female", flipper_length_mm=190.0, year=2008)
    grid = np.linspace(1000, 8000, 3001)
    known = {name: cell[0] for name, cell in row.items() if cell[0] is not None}
    density = np.exp(model.log_density({"body_mass_g": grid}, given=known))
    assert np.trapezoid(density, grid) == pytest.approx(1.0, rel=1e-6)
    found = model.impute(row)
    assert found["body_mass_g"][0] == pytest.approx(np.trapezoid(grid * density, grid), rel=1e-6)
    labels = model.schema["island"].categories
    best = labels[int(np.argmax(model.log_density({"island": labels}, given=known)))]
    assert found["island"] == [best]


def test_probabilities_are_those_of_bayes(model, penguins):
    labels = model.schema["species"].categories
    rows = penguins.iloc[[0, 3, 200, 340]].assign(species=None)
    joint = np.stack([np.exp(model.log_density(rows.assign(species=label))) for label in labels], 1)
    expected = joint / joint.sum(1, keepdims=True)
    np.testing.assert_allclose(model.predict(rows, "species"), expected, rtol=1e-9)
    # What stands in the column does not count, and it may be absent.
    np.testing.assert_array_equal(
        model.predict(rows.assign(species="Gentoo"), "species"), model.predict(rows, "species")
    )
    np.testing.assert_array_equal(
        model.predict(rows.drop(columns="species"), "species"), model.predict(rows, "species")
    )
    bernoulli = pc.fit_table({"flag": [True, False] * 10, "x": np.arange(20.0)}, steps=5, settings={"members": 1})
    assert bernoulli.predict({"x": [1.0]}, "flag").shape == (1, 2)


def test_a_number_is_predicted_by_its_mean(model):
    row = single(model, species="Chinstrap", sex="female", flipper_length_mm=190.0)
    partial = {"species": ["Chinstrap"], "sex": ["female"], "flipper_length_mm": [190.0]}
    mean = model.impute(row)["body_mass_g"][0]
    assert model.predict(partial, "body_mass_g")[0] == pytest.approx(mean, rel=1e-9)
    assert model.log_density(partial) == model.log_density(row)
    with pytest.raises(pc.ArgumentError, match="column: expected one of species"):
        model.predict(row, "weight")


def test_quantiles_invert_the_probability_of_a_range(model, mixed_model):
    row = {"species": "Adelie", "bill_length_mm": 38.0}
    levels = [0.05, 0.5, 0.95]
    found = model.quantiles({name: [value] for name, value in row.items()}, "bill_depth_mm", levels)[0]
    below = [model.probability({"bill_depth_mm": pc.between(None, end)}, given=row) for end in found]
    np.testing.assert_allclose(below, levels, rtol=1e-9)
    for name in ("count", "level"):
        (middle,) = mixed_model.quantiles({"flag": [True]}, name, [0.5])[0]
        reached, short = (
            mixed_model.probability({name: pc.between(None, end)}, given={"flag": True}) for end in (middle, middle - 1)
        )
        assert short < 0.5 <= reached
    with pytest.raises(pc.ArgumentError, match="which is categorical"):
        model.quantiles({"sex": ["male"]}, "species", [0.5])
    with pytest.raises(pc.ArgumentError, match="levels"):
        model.quantiles({"sex": ["male"]}, "bill_depth_mm", [5])


def test_small_integers_have_means_and_medians(model):
    row = {"species": ["Gentoo"]}
    p = model.predict(row, "year")[0]
    assert model.expectation(row, "year")[0] == pytest.approx(p @ [2007, 2008, 2009])
    assert model.impute(row)["year"] == [2008]
    assert model.impute(row, "median")["year"] == [2007 + int((p.cumsum() < 0.5).sum())]


def test_several_imputations_differ(model):
    found = model.impute({"species": ["Gentoo"]}, "sample", seed=0, copies=3)
    assert len({tuple(one[name][0] for name in one) for one in found}) == 3
    assert set(found[0]) == set(model.schema.names)
    with pytest.raises(pc.ArgumentError, match="copies"):
        model.impute({"species": ["Gentoo"]}, copies=3)


def test_the_surprising_cell_of_a_row_comes_first(model):
    row = {"species": "Gentoo", "body_mass_g": 5100.0, "flipper_length_mm": 218.0, "bill_depth_mm": 21.5}
    cells = model.explain(row)
    assert cells[0]["column"] == "bill_depth_mm"
    assert cells[0]["value"] == 21.5
    assert 14 < cells[0]["expected"] < 18
    assert all(0 < cell["tail"] <= 1 for cell in cells)
    assert [cell["surprise"] for cell in cells] == sorted((-math.log(cell["tail"]) for cell in cells), reverse=True)
    assert {cell["column"] for cell in cells} == set(row)


def test_the_mode_is_at_least_as_probable_as_what_was_there(model, penguins):
    """Also than the mean, which max-product decoding is compared with."""
    gaps = penguins.iloc[::20].assign(bill_length_mm=None, flipper_length_mm=None)
    mode, mean = (model.log_density(model.impute(gaps, how)) for how in ("mode", "mean"))
    assert (mode >= mean - 1e-9).all()


def test_draws_come_from_the_conditional_distribution(model):
    row = single(model, island="Dream", bill_depth_mm=18.0)
    many = repeated(row, "island", ["Dream"] * 3000)
    found = model.impute(many, "sample", seed=1)
    p = model.predict(row, "species")[0]
    counts = [list(found["species"]).count(label) for label in model.schema["species"].categories]
    assert stats.chisquare(counts, 3000 * p).pvalue > 1e-3
    grid = np.linspace(1000, 8000, 3001)
    density = np.exp(model.log_density({"body_mass_g": grid}, given={"island": "Dream", "bill_depth_mm": 18.0}))
    cdf = np.r_[0, np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(grid))]
    assert stats.kstest(found["body_mass_g"], lambda x: np.interp(x, grid, cdf)).pvalue > 1e-3


@pytest.mark.parametrize("how", ["mean", "mode", "sample"])
def test_observed_cells_stay_bit_for_bit(how, model, penguins):
    filled = model.impute(penguins, how, seed=3)
    assert type(filled) is type(penguins)
    assert not filled.isna().any().any()
    seen = penguins.notna()
    for name in penguins:
        mine, theirs = penguins[name][seen[name]], filled[name][seen[name]]
        assert mine.dtype == theirs.dtype or name == "sex"
        assert (mine.to_numpy() == theirs.to_numpy()).all()
    assert penguins.isna().sum().sum() == 19, "the table itself is not changed"


def test_imputing_is_one_thing_for_every_kind_of_table(mixed_model, mixed):
    expected = mixed_model.impute(mixed, "sample", seed=2)
    schema = mixed_model.schema
    codes = schema.encode(expected)
    assert not np.isnan(codes).any()
    assert all(isinstance(cell, bool) for cell in expected["flag"])
    array = np.array(list(mixed.values()), dtype=object).T
    frame = pl.DataFrame(mixed)
    tables: list[Any] = [
        {name: np.array(values, dtype=object) for name, values in mixed.items()},
        frame,
        frame.to_arrow(),
        frame.with_columns(pl.col("text").cast(pl.Categorical)),
        frame.with_columns(pl.col("text").cast(pl.Enum(["high", "low", "middle"]))),
        pd.DataFrame(mixed, index=[1] * 60),
        pd.DataFrame(mixed).convert_dtypes(),
        pd.DataFrame(mixed).astype({"text": "category"}),
        array,
    ]
    for table in tables:
        found = mixed_model.impute(table, "sample", seed=2)
        assert type(found) is type(table)
        if hasattr(table, "dtypes") and not isinstance(table, pd.DataFrame):
            assert found.schema == table.schema
        np.testing.assert_allclose(schema.encode(found), codes, rtol=1e-12)
    text = pc.data.Table(("real", "text"), np.array([[np.nan, 0.0], [100.0, np.nan]]), {"text": ("low", "high")})
    two = pc.fit_table({name: mixed[name] for name in ("real", "text")}, steps=3, settings={"members": 1})
    found = two.impute(text)
    assert isinstance(found, pc.data.Table)
    assert found.values[0, 1] == 0.0
    assert found.values[1, 0] == 100.0
    assert not np.isnan(found.values).any()


def test_a_frame_that_lacks_a_category_still_gets_it(model, penguins):
    """A categorical type without the label that is the most probable becomes one of texts."""
    rows = penguins[penguins.species == "Gentoo"].head(3).assign(species=pd.Categorical([None, "Adelie", None]))
    assert list(model.impute(rows).species) == ["Gentoo", "Adelie", "Gentoo"]


def test_whole_columns_may_be_missing(model, penguins):
    rows = penguins.head(2)
    for gone in (None, math.nan):
        filled = model.impute(rows.assign(species=gone, body_mass_g=gone, year=gone))
        assert set(filled.species) <= {"Adelie", "Chinstrap", "Gentoo"}
        assert filled.year.isin([2007, 2008, 2009]).all()
    frame = pl.from_pandas(rows).with_columns(pl.lit(None).alias("species"))
    assert model.impute(frame)["species"].dtype == pl.String


# Drawing tables


def test_samples_are_tables_of_the_kind_that_was_fitted(model, penguins, mixed_model, mixed):
    drawn = model.sample(5, seed=0)
    assert isinstance(drawn, pd.DataFrame)
    assert list(drawn.columns) == list(penguins.columns)
    assert drawn.year.dtype == np.int64
    assert not drawn.isna().any().any()
    pd.testing.assert_frame_equal(drawn, model.sample(5, seed=0))
    assert not drawn.equals(model.sample(5, seed=1))
    assert not model.sample(5).equals(model.sample(5))
    assert np.isfinite(mixed_model.log_density(mixed_model.sample(7))).all()
    for kind, container in ((pl.DataFrame, "polars"), (np.ndarray, "numpy")):
        table = pl.DataFrame({"a": np.arange(20.0), "b": np.arange(20) / 2})
        small = pc.fit_table(table if container == "polars" else table.to_numpy(), steps=2, settings={"members": 1})
        assert isinstance(small.sample(2), kind)


def test_known_cells_come_back_as_they_are(model, penguins):
    given = penguins.iloc[[0, 200]][["species", "bill_length_mm", "year"]].assign(year=[None, 2009])
    drawn = model.sample(3, given=given)
    assert list(drawn.species) == ["Adelie"] * 3 + ["Gentoo"] * 3
    assert list(drawn.bill_length_mm) == np.repeat(given.bill_length_mm.to_numpy(), 3).tolist()
    assert list(drawn.year[3:]) == [2009] * 3
    whole = pc.fit_table({"n": np.arange(100) * 2, "x": np.arange(100) / 3}, steps=2, settings={"members": 1})
    assert whole.sample(2, given={"n": 7})["n"].dtype == np.int64
    assert whole.sample(2, given={"n": 7.5})["n"].tolist() == [7.5, 7.5]


def test_samples_have_the_frequencies_of_the_model(model):
    drawn = model.sample(4000, seed=5)
    p = model.predict(single(model), "species")[0]
    counts = [(drawn.species == label).sum() for label in model.schema["species"].categories]
    assert stats.chisquare(counts, 4000 * p).pvalue > 1e-3


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.sample(0), "n: expected a positive integer"),
        (lambda m: m.sample(2, seed=-1), "seed"),
        (lambda m: m.sample(2, given={"colour": "red"}), "given: expected names of columns .* got colour"),
        (lambda m: m.sample(2, given={"species": "Emperor"}), "'Emperor' in row 0"),
        (lambda m: m.impute({"species": ["Gentoo"], "wing": [1.0]}), "also wing"),
        (lambda m: m.impute({}, how="best"), "how: expected 'mean' or 'median' or 'mode' or 'sample'"),
    ],
)
def test_mistakes_are_named(model, call, words):
    with pytest.raises(pc.ArgumentError, match=words):
        call(model)


# The unusual


@pytest.mark.parametrize(
    "table",
    [
        {"x": [1.5]},
        {"x": [1.5], "y": ["a"]},
        {"x": [2.0] * 30},
        {"x": [2.0] * 30, "y": ["a"] * 30, "z": [True] * 30},
        {"x": [None] * 30, "y": np.arange(30.0)},
        {"x": [1e300] * 3 + [-1e300, 1.0, 2.0], "y": [0.0, 1e-300, 2e-300, 1e-310, 0.0, 0.0]},
        {"x": np.array([3e38, -3e38, 1.0], dtype=np.float32), "y": [1.7e308, -1.7e308, 0.0]},
        {"x": [0, 0, 0, 0, 2**62], "y": [1, None, None, None, None]},
        np.random.default_rng(0).standard_cauchy((40, 2)) ** 3,
        np.array([[1.0, 2.0], [math.nan, math.nan], [3.0, math.nan]]),
    ],
)
def test_unusual_tables_have_finite_answers(table):
    model = pc.fit_table(table, steps=3, settings={"members": 1})
    assert np.isfinite(model.log_density(table)).all()
    schema = model.schema
    values = schema.encode(model.sample(20))
    empty = [column.kind == "empty" for column in schema.columns]
    assert (np.isnan(values) == empty).all()
    filled = schema.encode(model.impute(table))
    assert (np.isnan(filled) == empty).all()


def test_a_table_without_any_value_is_refused():
    with pytest.raises(pc.ArgumentError, match="table: expected a value in at least one column"):
        pc.fit_table({"x": [None, None]})


def test_a_value_far_away_is_improbable_and_not_an_error(model):
    logs = model.log_density({"body_mass_g": [4000.0, 1e5, 1e10, 1e300, -1.7e308]}, given={"species": "Adelie"})
    assert np.isfinite(logs).all()
    assert (np.diff(logs[:4]) < 0).all()
    filled = model.impute(single(model, body_mass_g=1e300))
    assert filled["body_mass_g"] == [1e300]
    assert math.isfinite(filled["bill_length_mm"][0])


def test_what_stands_in_an_empty_column_does_not_count():
    model = pc.fit_table({"x": [None] * 20, "y": np.arange(20.0)}, steps=3, settings={"members": 1})
    logs = model.log_density({"x": [None, "new"], "y": [3.0, 3.0]})
    assert logs[0] == logs[1]
    assert model.impute({"x": [None, "new"], "y": [3.0, None]})["x"] == [None, "new"]


def test_an_unseen_category_may_count_as_missing(penguins):
    model = pc.fit_table(penguins, unseen="missing", points=4, width=4, steps=3, settings={"members": 1})
    row = single(model, species="Emperor", body_mass_g=4000.0)
    assert model.log_density(row) == model.log_density(single(model, body_mass_g=4000.0))
    assert model.impute(row)["species"] == ["Emperor"]
    assert model.sample(2, given={"species": "Emperor"}).species.isin(model.schema["species"].categories).all()


# Fitting


def test_the_same_seed_gives_the_same_model_and_leaves_no_trace(penguins):
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first, second, other = (
        pc.fit_table(penguins, steps=6, points=4, width=4, seed=seed, settings={"members": 2}) for seed in (1, 1, 2)
    )
    first.sample(2), first.impute(penguins, "sample")
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()  # noqa: NPY002
    mine, theirs = first.pic.state_dict(), second.pic.state_dict()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert not np.array_equal(first.log_density(penguins), other.log_density(penguins))


def test_training_improves_on_rows_held_out(model, penguins):
    short, longer = pc.fit_table(penguins, points=8, width=16, steps=1, settings={"members": 1}), model
    assert longer.summary["log_density"]["valid"] > short.summary["log_density"]["valid"] + 1
    held = longer.summary["rows"]
    assert held["train"] + held["valid"] == 344
    assert held["valid"] > 0


def test_small_tables_are_not_learned_by_heart():
    rng = np.random.default_rng(0)
    train, test = rng.normal(size=(30, 4)), rng.normal(size=(1000, 4))
    model = pc.fit_table(train, settings={"members": 2, "em_steps": 30})
    best = stats.multivariate_normal(np.zeros(4)).logpdf(test).mean()
    assert best - 1.5 < model.log_density(test).mean() < best


def test_settings_are_given_by_name(penguins):
    records: list[Any] = []
    model = pc.fit_table(
        penguins,
        points=4,
        width=4,
        steps=4,
        settings={"validate_every": 2, "held_out": 0.5},
        callbacks=[records.append],
    )
    assert [record["step"] for record in records] == list(range(2, 17, 2))  # four models of four steps
    assert model.summary["settings"]["points"] == 4
    assert model.summary["rows"] == {"train": 172, "valid": 172}
    assert model.qpc.grids[0].points.shape[-1] == 8  # twice the points
    assert len(model.pic.parts) == 4
    other = pc.fit_table(penguins, width=4, settings={"steps": 3, "points": 5, "width": 8})
    assert other.points == 5
    assert other.pic.width == 4
    assert [record["step"] for record in other.summary["training"]["records"]] == [3]
    with pytest.raises(pc.ArgumentError, match="settings: expected names among"):
        pc.fit_table(penguins, settings={"speed": 3})
    for wrong in ({"steps": 0}, {"points": 2.5}, {"seed": -1}, {"width": 3}):
        with pytest.raises(pc.ArgumentError, match=next(iter(wrong))):
            pc.fit_table(penguins, **wrong)  # type: ignore[arg-type]


def test_columns_of_one_kind_of_number_have_their_family():
    counts = np.random.default_rng(0).poisson(3, size=(50, 2))
    model = pc.fit_table(counts, "poisson", steps=3, settings={"members": 1})
    assert model.pic.families == (pc.Poisson(), pc.Poisson())
    assert model.sample(5).dtype == np.int64


def test_copies_answer_the_same(model, penguins):
    expected = model.log_density(penguins)
    for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(twin.log_density(penguins), expected)
        assert twin.schema == model.schema
        assert twin.summary == model.summary


def test_a_model_and_its_schema_belong_together(model, mixed_model):
    with pytest.raises(pc.ArgumentError, match="schema: expected the families of the model"):
        pc.TableModel(mixed_model.schema, model.pic, 8)
    assert repr(model).startswith("TableModel(8 columns, ")


def test_the_mean_of_a_spiked_column_may_lie_between_the_spike_and_the_other_values():
    """A column that is mostly zero and otherwise above 100: its mean is below 100, and imputing gives that mean."""
    rng = np.random.default_rng(3)
    paid = np.where(rng.random(600) < 0.8, 0.0, 100 + rng.exponential(50, 600))
    model = pc.fit_table({"paid": paid, "other": rng.normal(size=600)}, steps=20, points=8, width=16)
    assert model.schema.columns[0].spikes == (0.0,)
    row = {"paid": [None], "other": [0.0]}
    mean = float(model.predict(row, "paid")[0])
    assert 5 < mean < 95
    assert float(model.impute(row)["paid"][0]) == pytest.approx(mean, rel=1e-6)
    drawn = np.asarray(model.sample(300, seed=0)["paid"])
    assert drawn[drawn != 0].min() >= 100, "a draw is a spike or one of the other values"


def test_small_tables_of_which_no_rows_are_held_out():
    """Nothing can be judged, so the first mixture is taken."""
    rng = np.random.default_rng(0)
    table = {"a": rng.normal(size=60), "b": rng.integers(0, 3, 60)}
    model = pc.fit_table(table, settings={"kind": "auto", "steps": 5, "em_steps": 3, "states": 4})
    assert model.summary["rows"] == {"train": 60, "valid": 0}
    assert np.isfinite(model.log_density(table)).all()
