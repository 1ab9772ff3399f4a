# SPDX-License-Identifier: Apache-2.0
"""Classification by the joint density of features and label."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.datasets import load_digits, load_wine
from sklearn.model_selection import train_test_split

import picirc as pc

SINGLE = {"members": 1}  # one training instead of four, for speed


def test_real_classes_are_told_apart():
    X, y = load_wine(return_X_y=True)
    train, test, ours, theirs = train_test_split(X, y, test_size=0.4, random_state=0, stratify=y)
    classifier = pc.PICClassifier(points=8, width=32, steps=60, settings=SINGLE).fit(train, ours)
    assert classifier.score(test, theirs) > 0.93


def test_digits_with_half_of_the_pixels_unknown():
    X, y = load_digits(return_X_y=True)
    kept = y < 3
    train, test, ours, theirs = train_test_split(X[kept][:, 16:48], y[kept], test_size=0.3, random_state=0)
    settings = {"rate": 0.03, "floor": 0.3} | SINGLE
    classifier = pc.PICClassifier(points=8, width=16, steps=60, settings=settings).fit(train, ours)
    assert classifier.score(test, theirs) > 0.85
    half = np.where(np.random.default_rng(0).random(test.shape) < 0.5, np.nan, test)
    assert classifier.score(half, theirs) > 0.7


def test_probabilities_are_those_of_bayes(classifier, penguins):
    frame = penguins.drop(columns="species")
    assert classifier.label_ == "species"
    rows = frame.iloc[[0, 3, 300]]
    joint = [np.exp(classifier.model_.log_density(rows.assign(species=label))) for label in classifier.classes_]
    expected = np.stack(joint, 1) / np.sum(joint, 0)[:, None]
    found = classifier.predict_proba(rows)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    np.testing.assert_allclose(found.sum(1), 1.0, rtol=1e-12)
    assert classifier.predict(rows).tolist() == classifier.classes_[expected.argmax(1)].tolist()


def test_without_features_the_frequencies_of_the_classes_are_left(classifier, penguins):
    frame = penguins.drop(columns="species")
    nothing = pd.DataFrame({name: [None] for name in frame})
    shares = penguins.species.value_counts(normalize=True).sort_index()
    np.testing.assert_allclose(classifier.predict_proba(nothing)[0], shares, atol=0.08)


def groups(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two groups that are easy to tell apart."""
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1], 150)
    return rng.normal(size=(300, 2)) + np.where(y == 0, -2.0, 2.0)[:, None] * [1.0, 0.5], y


KNOWN = np.arange(300) % 25 == 0


def test_every_way_to_say_that_there_is_no_label_is_the_same():
    X, y = groups(0)
    fitted = []
    for missing in (None, np.nan, -1):
        made = pc.PICClassifier(points=4, width=4, steps=2, settings=SINGLE, unlabelled=-1 if missing == -1 else None)
        fitted.append(made.fit(X, np.where(KNOWN, y, missing)))
        assert fitted[-1].classes_.tolist() == [0, 1]
        assert fitted[-1].model_.schema["label"].missing == 288
    for other in fitted[1:]:
        np.testing.assert_array_equal(other.predict_proba(X), fitted[0].predict_proba(X))


def test_rows_without_a_label_are_used():
    X, y = groups(0)
    short = {"points": 8, "width": 16, "steps": 80, "settings": {"rate": 0.03} | SINGLE}
    classifier = pc.PICClassifier(**short).fit(X, np.where(KNOWN, y, None))
    test, truth = groups(1)
    assert classifier.score(test, truth) > 0.9
    # The density of the features is that of all rows, not of the few that have a label.
    few = pc.PICClassifier(**short).fit(X[KNOWN], y[KNOWN])
    rows = np.insert(test, 2, np.nan, axis=1)
    assert classifier.model_.log_density(rows).mean() > few.model_.log_density(rows).mean() + 0.1


def test_minus_one_is_a_class_unless_said_otherwise():
    X = np.r_[np.zeros((20, 1)), np.ones((20, 1))] + 0.01 * np.arange(40)[:, None]
    y = np.repeat([-1, 1], 20)
    assert pc.PICClassifier(points=4, width=4, steps=5, settings={"members": 1}).fit(X, y).classes_.tolist() == [-1, 1]
    assert pc.PICClassifier(points=4, width=4, steps=5, unlabelled=-1).fit(X, y).classes_.tolist() == [1]


@pytest.mark.parametrize(
    "y",
    [
        [True, False] * 10,
        ["yes", "no"] * 10,
        [1.0, 2.0] * 10,
        [3, None] * 5 + [7, None] * 5,
        pd.Series(["a", "b"] * 10, dtype="category", name="class"),
        pd.Series(["a", None, "b", "a"] * 5, dtype="string"),
        pl.Series("class", ["a", "b"] * 10),
        np.array(["a", "b"] * 10, dtype=object),
    ],
)
def test_labels_of_every_type(y):
    X = np.arange(40.0).reshape(20, 2)
    classifier = pc.PICClassifier(points=4, width=4, steps=3, settings={"members": 1}).fit(X, y)
    known = [label for label in list(y) if label is not None and label is not pd.NA]
    assert classifier.classes_.tolist() == sorted(set(known))
    assert set(classifier.predict(X).tolist()) <= set(known)
    assert classifier.label_ == (getattr(y, "name", None) or "label")


def test_the_label_gets_a_name_of_its_own(penguins):
    frame = penguins[["island", "year"]].rename(columns={"island": "label"})
    classifier = pc.PICClassifier(points=4, width=4, steps=3, settings={"members": 1}).fit(
        frame, penguins.species.tolist()
    )
    assert classifier.label_ == "label_"
    assert classifier.n_features_in_ == 2


@pytest.mark.parametrize(
    ("y", "columns", "words"),
    [
        (None, None, "requires y to be passed"),
        ([None, None, None], None, "a label for at least one row"),
        ([0, 1], None, "inconsistent numbers of samples"),
        ([0.5, 1.25, 3.5], None, "Unknown label type"),
        ([np.inf, 1.0, 2.0], None, "inf"),
        ([0, 1, 0], {"label": "gaussian"}, "among x0, x1"),
        ([0, 1, 0], ["gaussian"], "a mapping"),
        ([0, 1, 0], {"x5": "gaussian"}, "among x0, x1"),
    ],
)
def test_mistakes_are_named(y, columns, words):
    with pytest.raises(ValueError, match=words):
        pc.PICClassifier(columns, points=4, width=4, steps=1, settings={"members": 1}).fit(
            [[1.0, 2.5], [2.0, 1.5], [3.0, 0.5]], y
        )


def test_declared_features_count_from_the_end_of_the_features():
    X = np.random.default_rng(0).poisson(9, size=(50, 2))
    model = (
        pc.PICClassifier({-1: "poisson"}, points=4, width=4, steps=3, settings={"members": 1})
        .fit(X, X[:, 0] > 9)
        .model_
    )
    assert [column.kind for column in model.schema.columns] == ["gaussian", "poisson", "categorical"]


def test_unseen_categories_of_features(penguins):
    X, y = penguins[["island", "body_mass_g"]], penguins.species
    strict = pc.PICClassifier(points=4, width=4, steps=3, settings={"members": 1}).fit(X, y)
    new = X.head(1).assign(island="Ross")
    with pytest.raises(pc.ArgumentError, match="'Ross' in row 0; fit with unseen='missing'"):
        strict.predict(new)
    lenient = pc.PICClassifier(points=4, width=4, steps=3, unseen="missing", settings={"members": 1}).fit(X, y)
    np.testing.assert_array_equal(lenient.predict_proba(new), lenient.predict_proba(new.assign(island=None)))
