# SPDX-License-Identifier: Apache-2.0
"""Imputation: what is filled in, and what stays."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.impute import SimpleImputer

import picirc as pc


def test_real_values_are_guessed_better_than_by_the_mean_of_the_column():
    X = load_breast_cancer().data[:, :8]
    gone = np.random.default_rng(0).random(X.shape) < 0.2
    holes = np.where(gone, np.nan, X)
    scale = X.std(0)

    def error(filled: np.ndarray) -> float:
        return float(np.sqrt((((filled - X) / scale)[gone] ** 2).mean()))

    found = pc.PICImputer(points=8, width=16, steps=100, settings={"members": 1}).fit_transform(holes)
    np.testing.assert_array_equal(found[~gone], X[~gone])
    assert error(found) < 0.7 * error(SimpleImputer().fit_transform(holes))


def test_mixed_tables_are_filled(imputer, penguins):
    filled = imputer.transform(penguins)
    assert isinstance(filled, pd.DataFrame)
    assert not filled.isna().any().any()
    assert set(filled.sex) == {"male", "female"}
    assert list(imputer.get_feature_names_out()) == list(penguins.columns)


@pytest.mark.parametrize("output", ["pandas", "polars"])
@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, np.ndarray])
def test_the_output_is_what_was_asked_for(output, kind, penguins):
    frame = penguins.drop(columns=["species", "island", "sex"])
    table = {pd.DataFrame: frame, pl.DataFrame: pl.from_pandas(frame), np.ndarray: frame.to_numpy(float)}[kind]
    imputer = pc.PICImputer(points=4, width=4, steps=2, settings={"members": 1}).set_output(transform=output)
    filled = imputer.fit_transform(table)
    assert type(filled) is {"pandas": pd.DataFrame, "polars": pl.DataFrame}[output]
    names = [f"x{i}" for i in range(5)] if kind is np.ndarray else list(frame.columns)
    assert list(filled.columns) == names
    seen = frame.notna().to_numpy()
    np.testing.assert_array_equal(filled.to_numpy()[seen], frame.to_numpy()[seen])


@pytest.mark.parametrize("output", ["pandas", "polars"])
def test_texts_survive_another_kind_of_output(output, penguins):
    imputer = pc.PICImputer(points=4, width=4, steps=2, settings={"members": 1}).set_output(transform=output)
    for table in (penguins, pl.from_pandas(penguins)):
        filled = imputer.fit_transform(table)
        assert list(filled["species"])[:2] == ["Adelie", "Adelie"]
        assert list(filled["bill_length_mm"])[:2] == [39.1, 39.5]


def test_multiple_imputations_differ_where_something_was_missing(imputer, penguins):
    tables = imputer.impute(penguins, 4)
    gone = penguins.body_mass_g.isna()
    assert len({tuple(table.body_mass_g[gone]) for table in tables}) == 4
    for table in tables:
        pd.testing.assert_frame_equal(table[~penguins.isna().any(axis=1)], penguins.dropna(), check_dtype=False)
    again = imputer.impute(penguins, 4)
    assert all(mine.equals(theirs) for mine, theirs in zip(tables, again, strict=True))
    other = (
        pc.PICImputer(points=4, width=4, steps=2, random_state=5, settings={"members": 1})
        .fit(penguins)
        .impute(penguins, 1)
    )
    assert not other[0].equals(tables[0])
    with pytest.raises(pc.ArgumentError, match="n_imputations"):
        imputer.impute(penguins, 0)


def test_draws_are_as_uncertain_as_the_model():
    """The spread of many imputations is the conditional spread, not that of the column."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    X = np.column_stack([x, x + 0.3 * rng.normal(size=400)])
    imputer = pc.PICImputer("sample", points=12, width=16, steps=150, settings={"rate": 0.03, "members": 1}).fit(X)
    drawn = imputer.transform(np.column_stack([np.ones(500), np.full(500, np.nan)]))[:, 1]
    assert drawn.mean() == pytest.approx(1.0, abs=0.3)
    assert drawn.std() < 0.7 < X[:, 1].std()
    np.testing.assert_array_equal(imputer.transform(np.array([[1.0, np.nan]])), imputer.transform([[1.0, np.nan]]))


def test_columns_without_any_value_are_dropped(penguins):
    X = np.array([[1.0, np.nan, 2.0], [np.nan, np.nan, 4.0], [3.0, np.nan, np.nan]])
    imputer = pc.PICImputer(points=4, width=4, steps=2, settings={"members": 1})
    filled = imputer.fit_transform(X)
    assert filled.shape == (3, 2)
    assert not np.isnan(filled).any()
    assert list(imputer.get_feature_names_out()) == ["x0", "x2"]
    for table in (penguins.assign(nothing=None), pl.from_pandas(penguins).with_columns(pl.lit(None).alias("nothing"))):
        filled = imputer.fit_transform(table)
        assert list(filled.columns) == list(penguins.columns)
        assert list(imputer.set_output(transform="pandas").fit_transform(table).columns) == list(penguins.columns)
        imputer = pc.PICImputer(points=4, width=4, steps=2, settings={"members": 1})


def test_how_must_be_a_word():
    with pytest.raises(pc.ArgumentError, match="how: expected 'mean' or 'median' or 'mode' or 'sample', got best"):
        pc.PICImputer(how="best").fit([[1.0]])


def test_the_mode_fills_every_gap_and_nothing_else():
    X = np.random.default_rng(5).normal(size=(40, 3))
    X[::3, 1] = np.nan
    filled = pc.PICImputer(how="mode", points=4, width=4, steps=2, settings={"members": 1}).fit_transform(X)
    assert np.isfinite(filled).all()
    np.testing.assert_array_equal(filled[~np.isnan(X)], X[~np.isnan(X)])
