# SPDX-License-Identifier: Apache-2.0
"""Types of columns come back as they went in."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl

import picirc as pc


def test_types_of_pandas_come_back(tmp_path):
    size = pd.CategoricalDtype(["small", "middle", "large"], ordered=True)
    rows = pd.DataFrame(
        {
            "size": pd.Series(["small", "large", "middle", None] * 10, dtype=size),
            "colour": pd.Series(["red", "blue"] * 20, dtype="category"),
            "count": pd.Series([*range(38), None, 5], dtype="Int64"),
            "flag": pd.Series([True, False, None, True] * 10, dtype="boolean"),
            "short": np.arange(40, dtype=np.int16) * 7,
            "single": np.linspace(0, 1, 40, dtype=np.float32),
            "plain": np.linspace(0, 1, 40),
            "object": pd.Series(["left", "right", None, "left"] * 10, dtype=object),
        }
    )
    model = pc.fit_table(rows, steps=2, points=4, width=4)
    model.save(tmp_path / "m")
    for each in (model, pc.TableModel.load(tmp_path / "m")):
        assert each.sample(5, seed=0).dtypes.to_dict() == rows.dtypes.to_dict()
        assert each.impute(rows).dtypes.to_dict() == rows.dtypes.to_dict()
    assert list(model.sample(5, seed=0)["size"].cat.categories) == ["small", "middle", "large"]


def test_types_of_polars_come_back():
    rows = pl.DataFrame(
        {
            "size": pl.Series(["small", "large"] * 20, dtype=pl.Enum(["small", "middle", "large"])),
            "colour": pl.Series(["red", None] * 20, dtype=pl.Categorical),
            "count": pl.Series([*range(39), None], dtype=pl.Int32),
            "flag": pl.Series([True, False, None, True] * 10),
            "single": pl.Series(np.linspace(0, 1, 40), dtype=pl.Float32),
        }
    )
    model = pc.fit_table(rows, steps=2, points=4, width=4)
    assert model.sample(5, seed=0).schema == rows.schema


def test_a_type_that_cannot_hold_the_values_is_left():
    rows = pd.DataFrame({"short": np.arange(40, dtype=np.int8), "x": np.linspace(0, 1, 40)})
    model = pc.fit_table(rows, steps=2, points=4, width=4)
    assert model.sample(2, given={"short": 7.5}, seed=0)["short"].tolist() == [7.5, 7.5]


def test_names_that_are_integers_come_back(tmp_path):
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 2))).assign(label=["a", "b"] * 20)
    pc.fit_table(rows, steps=2, points=4, width=4).save(tmp_path / "m")
    model = pc.TableModel.load(tmp_path / "m")
    assert list(model.sample(5, seed=0)) == [0, 1, "label"]
    assert list(model.impute(rows[[1]])) == [1, 0, "label"]
    assert model.probability({0: pc.between(None, None)}, given={1: 0.5}) == 1.0
