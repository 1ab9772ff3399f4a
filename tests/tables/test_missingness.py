# SPDX-License-Identifier: Apache-2.0
"""Whether cells are missing is part of the model, if it is asked for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

import picirc as pc
from picirc.tables import Schema, TableModel


def survey(rows: int = 4000) -> pd.DataFrame:
    """People whose income is missing in 60 % of the rows of the group a, and in 10 % of those of b."""
    rng = np.random.default_rng(0)
    group = rng.choice(["a", "b"], rows, p=[0.3, 0.7])
    income = np.where(group == "a", 10.0, 30.0) + rng.normal(size=rows)
    gone = rng.random(rows) < np.where(group == "a", 0.6, 0.1)
    sex = rng.choice(["f", "m"], rows).astype(object)
    sex[rng.random(rows) < 0.05] = None
    return pd.DataFrame({"group": group, "income": np.where(gone, np.nan, income), "sex": sex})


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return survey()


@pytest.fixture(scope="module")
def model(table: pd.DataFrame) -> TableModel:
    chosen = {"kind": "mixture", "states": 4, "em_steps": 60, "members": 1}
    return pc.fit_table(table, missingness=True, settings=chosen)


def test_gaps_are_as_probable_as_in_the_table(model, table):
    gone = table["income"].isna()
    for group in ("a", "b"):
        share = gone[table["group"] == group].mean()
        assert model.probability({"income": pc.missing}, given={"group": group}) == pytest.approx(share, abs=0.02)
        assert model.probability({"income": pc.observed}, given={"group": group}) == pytest.approx(1 - share, abs=0.02)
    share = (table["group"] == "a")[gone].mean()
    assert model.probability({"group": "a"}, given={"income": pc.missing}) == pytest.approx(share, abs=0.02)
    assert model.predict({"income": [None]}, "group")[0, 0] == pytest.approx(share, abs=0.02)


def test_the_rule_of_bayes_holds(model):
    both = model.probability({"income": pc.missing, "group": "a", "sex": "f"})
    part = model.probability({"income": pc.missing, "sex": "f"})
    assert both == pytest.approx(part * model.probability({"group": "a"}, given={"income": pc.missing, "sex": "f"}))
    assert both < model.probability({"group": "a", "sex": "f"})


def test_the_density_of_a_row_counts_what_is_missing(model):
    rows = pd.DataFrame({"group": ["a", "b"], "income": [np.nan, 30.0], "sex": ["f", None]})
    found = np.exp(model.log_density(rows))
    expected = model.probability({"group": "a", "income": pc.missing, "sex": "f"})
    assert found[0] == pytest.approx(expected * model.probability(
        {"sex": pc.observed}, given={"group": "a", "income": pc.missing, "sex": "f"}))  # fmt: skip
    part, rest = rows[["group", "sex"]], rows[["income"]]
    np.testing.assert_allclose(model.log_density(rows), model.log_density(part) + model.log_density(rest, given=part))


def test_about_absent_columns_nothing_is_known(model):
    assert model.log_density({"group": ["a"]})[0] == pytest.approx(math.log(model.probability({"group": "a"})))
    known = model.probability({"group": "a"}, given={"sex": "f"})
    assert model.probability({"group": "a"}, given={"sex": "f", "income": None}) == pytest.approx(known)
    filled = model.impute(pd.DataFrame({"sex": ["f"]}))
    assert filled["income"][0] == pytest.approx(model.predict({"sex": ["f"]}, "income")[0])


def test_what_is_missing_tells_how_to_fill_it(model):
    gap = pd.DataFrame({"group": ["a"], "income": [np.nan], "sex": ["m"]})
    assert model.impute(gap)["income"][0] == pytest.approx(10, abs=1)
    unknown = pd.DataFrame({"group": [None], "income": [np.nan], "sex": ["m"]})
    assert model.impute(unknown)["income"][0] < model.predict({"sex": ["m"]}, "income")[0] - 2


def test_draws_have_gaps_if_asked_for(model, table):
    drawn = model.sample(4000, seed=0, gaps=True)
    assert list(drawn.columns) == list(table.columns)
    for group in ("a", "b"):
        shares = [rows["income"].isna()[rows["group"] == group].mean() for rows in (drawn, table)]
        assert shares[0] == pytest.approx(shares[1], abs=0.05)
    assert not model.sample(500, seed=0).isna().any(axis=None)
    assert model.sample(50, {"income": pc.missing}, seed=0, gaps=True)["income"].isna().all()
    assert (
        not model.sample(200, {"income": 12.0, "sex": "f"}, seed=0, gaps=True)[["income", "sex"]].isna().any(axis=None)
    )
    assert not model.sample(200, {"income": pc.observed}, seed=0, gaps=True)["income"].isna().any()


def test_indicators_stay_hidden(model, table, tmp_path):
    assert model.schema.names == ("group", "income", "sex")
    assert "modelled" in str(model.schema)
    assert {cell["column"] for cell in model.explain(table.iloc[0])} <= set(table.columns)
    pc.write_report(model, table.head(200), tmp_path / "page.html")
    for how in ("mean", "median", "mode", "sample"):
        assert list(model.impute(table.head(20), how, seed=0).columns) == list(table.columns)
    model.save(tmp_path / "m")
    same = TableModel.load(tmp_path / "m")
    assert same.schema == model.schema
    np.testing.assert_array_equal(same.log_density(table.head(50)), model.log_density(table.head(50)))


def test_trees_model_it_too():
    rows = survey(400)
    found = pc.fit_table(rows, missingness=["income"], points=8, width=16, steps=200, settings={"members": 1})
    a, b = (found.probability({"income": pc.missing}, given={"group": group}) for group in "ab")
    assert a > b + 0.2


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda model: model.probability({"group": pc.missing}), ["'group'", "missingness"]),
        (lambda model: model.sample(1, {"group": pc.missing}), ["'group'", "missingness"]),
        (lambda model: Schema.infer(survey(50)).with_missingness("sex"), ["missingness", "['sex']"]),
        (lambda model: Schema.infer(survey(50)).with_missingness(["group"]), ["'group', which has none"]),
        (lambda model: Schema.infer(survey(50)).with_missingness(["age"]), ["columns with missing cells", "'age'"]),
    ],
)
def test_what_is_not_modelled_is_refused(model: TableModel, call: Any, words: list[str]):
    with pytest.raises(pc.ArgumentError) as caught:
        call(model)
    assert all(word in str(caught.value) for word in words)


def test_a_model_without_it_has_no_gaps():
    rows = {"x": [1.0, None, 2.0, 0.5] * 5, "y": [0.5, 1.0, 2.0, 1.5] * 5}
    with pytest.raises(pc.ArgumentError, match="missingness=True"):
        pc.fit_table(rows, points=4, width=4, steps=2, settings={"members": 1}).sample(1, gaps=True)


def test_rows_are_held_out_independently_of_how_they_were_drawn(model, table):
    # The table comes from NumPy's generator with the seed that the model has, too.
    assert model.probability({"group": "a"}) == pytest.approx((table["group"] == "a").mean(), abs=0.01)


def test_estimators_take_it():
    found = pc.PICImputer(missingness=True, points=4, width=4, steps=2, settings={"members": 1}).fit(survey(60))
    assert set(found.model_.schema.indicators) == {"income", "sex"}
    assert not found.transform(survey(60)).isna().any(axis=None)


def test_evidence_must_agree_with_the_rows(model, table):
    for given in ({"income": pc.missing}, {"income": 1.0}):
        with pytest.raises(pc.ArgumentError, match="given: expected in column 'income' what the rows have"):
            model.log_density(table.dropna().head(3), given=given)
