# SPDX-License-Identifier: Apache-2.0
"""The contract of scikit-learn, as scikit-learn checks it."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import picirc as pc

SHORT: dict[str, Any] = {"points": 4, "width": 4, "steps": 3}
SINGLE = {"members": 1}  # one training instead of four, for speed
ESTIMATORS = [pc.PICDensity, pc.PICImputer, pc.PICClassifier]


@parametrize_with_checks(
    [
        pc.PICDensity(points=4, width=4, steps=2, settings=SINGLE),
        pc.PICImputer(points=4, width=4, steps=2, settings=SINGLE),
        pc.PICClassifier(settings=SINGLE | {"kind": "mixture", "states": 2, "em_steps": 5, "target_steps": 3}),
    ]
)
def test_the_contract_of_scikit_learn(estimator, check):
    check(estimator)


def test_pipelines_and_searches():
    X, y = load_wine(return_X_y=True)
    X[::7, 3] = np.nan
    search = GridSearchCV(pc.PICClassifier(**SHORT, settings=SINGLE), {"columns": [None, "student"]}, cv=2)
    search.fit(X, y)
    assert set(search.best_params_) == {"columns"}
    assert search.best_estimator_.model_.schema.columns[0].kind in ("gaussian", "student", "scores", "spiked")
    source = np.random.default_rng(0)
    clusters = source.normal(0, 0.3, (200, 2)) + np.where(source.random((200, 1)) < 0.5, 3.0, -3.0)
    density = GridSearchCV(pc.PICDensity(**SHORT, settings=SINGLE), {"steps": [1, 30]}, cv=2).fit(clusters)
    assert density.best_params_ == {"steps": 30}  # one normal distribution does not fit two clusters
    chain = make_pipeline(
        pc.PICImputer(**SHORT, settings=SINGLE),
        StandardScaler(),
        pc.PICClassifier(points=8, width=16, steps=80, settings=SINGLE),
    )
    assert cross_val_score(chain, X, y, cv=2).min() > 0.8
    assert cross_val_score(pc.PICDensity(**SHORT, settings=SINGLE), X, cv=2).shape == (2,)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_clone_has_the_parameters_and_nothing_else(estimator):
    made = estimator(columns={"a": "gaussian"}, points=3, settings={"floor": 0.2}, unseen="missing", random_state=5)
    twin = clone(made)
    assert twin.get_params() == made.get_params()
    assert not hasattr(twin, "model_")


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_parameters_reach_the_model(estimator):
    X, y = load_breast_cancer(return_X_y=True)
    settings = {"batch_size": 32, "held_out": 0.25}
    made = estimator(**SHORT, settings=settings, unseen="missing", random_state=np.random.RandomState(0))
    model = made.fit(X[:, :4], y).model_
    assert model.points == 4
    assert model.schema.unseen == "missing"
    assert model.summary["settings"]["batch_size"] == 32
    assert model.summary["rows"]["valid"] == round(0.25 * len(X))
    assert model.summary["seed"] != 0
    with pytest.raises(pc.ArgumentError, match="random_state"):
        estimator(random_state=-1).fit(X[:9, :2], y[:9])


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_frames_of_all_libraries_give_the_same(estimator, penguins):
    y = penguins.species.tolist()
    frame = penguins.drop(columns="species")
    ask = {pc.PICDensity: "score_samples", pc.PICImputer: "transform", pc.PICClassifier: "predict_proba"}[estimator]
    found = []
    for table in (frame, pl.from_pandas(frame)):
        fitted = estimator(**SHORT, settings=SINGLE).fit(table, y)
        assert list(fitted.feature_names_in_) == list(frame.columns)
        found.append(getattr(fitted, ask)(table))
    if estimator is pc.PICImputer:
        assert isinstance(found[1], pl.DataFrame)
        found = [fitted.model_.schema.encode(table) for table in found]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)
    with pytest.raises(ValueError, match="feature names"):
        getattr(fitted, ask)(table.rename({"island": "land"}))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_texts_in_lists_and_arrays(estimator):
    rows = [["a", 1.5], ["b", 2.5], [None, 3.5], ["a", None]] * 5
    y = [0, 1, 0, 1] * 5
    for table in (rows, np.array(rows, dtype=object)):
        model = estimator(**SHORT, settings=SINGLE).fit(table, y).model_
        assert [column.kind for column in model.schema.columns[:2]] == ["categorical", "gaussian"]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_saved_estimator_comes_back(estimator, penguins, tmp_path):
    y = penguins.species
    frame = penguins.drop(columns="species")
    extra = {"how": "sample"} if estimator is pc.PICImputer else {}
    fitted = estimator(**SHORT, **extra, random_state=3).fit(frame, y)
    fitted.save(tmp_path)
    found = estimator.load(tmp_path)
    assert found.get_params() == fitted.get_params()
    assert list(found.feature_names_in_) == list(fitted.feature_names_in_)
    assert found.n_features_in_ == 7
    assert found.model_.summary == fitted.model_.summary
    if estimator is pc.PICDensity:
        np.testing.assert_array_equal(found.anomaly(frame), fitted.anomaly(frame))
        np.testing.assert_array_equal(found.score_samples(frame), fitted.score_samples(frame))
    elif estimator is pc.PICImputer:
        pd.testing.assert_frame_equal(found.transform(frame), fitted.transform(frame))
    else:
        assert found.classes_.tolist() == fitted.classes_.tolist()
        np.testing.assert_array_equal(found.predict_proba(frame), fitted.predict_proba(frame))
    other = pc.PICImputer if estimator is pc.PICDensity else pc.PICDensity
    with pytest.raises(pc.ArgumentError, match=f"expected {other.__name__}, got '{estimator.__name__}'"):
        other.load(tmp_path)
    assert isinstance(pc.TableModel.load(tmp_path), pc.TableModel)


@pytest.fixture(scope="module")
def small_model() -> pc.TableModel:
    return pc.fit_table({"x0": np.arange(20.0), "x1": ["a", "b"] * 10}, **SHORT)


@pytest.mark.parametrize(
    ("estimator", "about"),
    [
        (pc.PICDensity, None),
        (pc.PICDensity, {"name": "PICDensity"}),
        (pc.PICDensity, {"name": "PICDensity", "parameters": {}, "fitted": {"threshold": "low"}}),
        (pc.PICDensity, {"name": "PICDensity", "parameters": {}, "fitted": {}}),
        (pc.PICDensity, {"name": "PICDensity", "parameters": {"__class__": "x"}, "fitted": {"threshold": 0.0}}),
        (pc.PICDensity, {"name": "PICDensity", "parameters": {"columns": [1]}, "fitted": {"threshold": 0.0}}),
        (pc.PICClassifier, {"name": "PICClassifier", "parameters": {}, "fitted": {"label": "none"}}),
        (pc.PICClassifier, {"name": "PICClassifier", "parameters": {}, "fitted": {"label": "x0"}}),
        (pc.PICClassifier, {"name": "PICClassifier", "parameters": {}, "fitted": {"label": "x1", "more": 1}}),
    ],
)
def test_what_a_file_says_of_an_estimator_is_checked(estimator, about, small_model, tmp_path):
    model = copy.copy(small_model)
    model.summary = model.summary | {"estimator": about}
    model.save(tmp_path)
    with pytest.raises(pc.ArgumentError, match="a model that picirc saved"):
        estimator.load(tmp_path)
