# SPDX-License-Identifier: Apache-2.0
"""Densities: scores, anomalies, conditionals and samples."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.datasets import load_breast_cancer

import picirc as pc


def test_scores_are_those_of_the_model(density, penguins):
    logs = density.score_samples(penguins)
    np.testing.assert_array_equal(logs, density.model_.log_density(penguins))
    assert density.score(penguins) == pytest.approx(logs.mean())


def test_a_normal_sample_has_nearly_the_density_of_the_normal():
    rng = np.random.default_rng(0)
    normal = stats.multivariate_normal([3.0, -200.0], [[1.0, 24.0], [24.0, 900.0]])
    density = pc.PICDensity(random_state=1, steps=200).fit(normal.rvs(1000, random_state=rng))
    test = normal.rvs(2000, random_state=rng)
    assert density.score(test) == pytest.approx(normal.logpdf(test).mean(), abs=0.15)


def test_the_threshold_is_a_quantile_of_the_training_rows(density, penguins):
    assert density.anomaly(penguins).mean() == pytest.approx(0.05, abs=1 / 344)
    strange = penguins.iloc[[0, 1]].copy()
    strange.loc[1, "body_mass_g"] = 20000.0
    assert density.anomaly(strange).tolist() == [False, True]
    none = pc.PICDensity(points=4, width=4, steps=2, quantile=0.0, settings={"members": 1}).fit(penguins)
    assert not none.anomaly(penguins).any()
    for wrong in (-0.1, 1.5, "many", True):
        with pytest.raises(pc.ArgumentError, match="quantile"):
            pc.PICDensity(quantile=wrong).fit(penguins)


def test_spoilt_rows_are_found_among_real_ones():
    X = load_breast_cancer().data[:, :10]
    rng = np.random.default_rng(0)
    spoilt = np.column_stack([rng.permutation(column) for column in X.T])  # each column as before, but not together
    density = pc.PICDensity(points=8, width=16, steps=100, settings={"rate": 0.03, "members": 1}).fit(X[:400])
    auc = stats.mannwhitneyu(density.score_samples(X[400:]), density.score_samples(spoilt)).statistic
    assert auc / (len(X[400:]) * len(spoilt)) > 0.9


def test_conditionals(density, penguins):
    given = {"species": "Gentoo", "sex": "female"}
    conditional = density.conditional(given)
    females = penguins[(penguins.species == "Gentoo") & (penguins.sex == "female")]
    logs = conditional.score_samples(females)
    joint = density.score_samples(females)
    alone = pd.DataFrame([{name: given.get(name) for name in penguins}])
    np.testing.assert_allclose(joint - logs, density.score_samples(alone)[0], rtol=1e-9)
    np.testing.assert_allclose(density.score_samples(females, given=given), logs, rtol=1e-12)
    drawn = conditional.sample(50, random_state=2)
    assert isinstance(drawn, pd.DataFrame)
    assert set(drawn.species) == {"Gentoo"}
    assert set(drawn.sex) == {"female"}
    assert drawn.equals(density.sample(50, random_state=2, given=given))
    assert conditional.score(drawn) == pytest.approx(conditional.score_samples(drawn).mean())


def test_samples_depend_on_the_random_state_alone(density, penguins):
    first, second, other = (density.sample(9, random_state=state) for state in (1, 1, 2))
    assert first.equals(second)
    assert not first.equals(other)
    assert list(first.columns) == list(penguins.columns)
    generators = [np.random.RandomState(4) for _ in range(2)]
    assert density.sample(3, generators[0]).equals(density.sample(3, generators[1]))
    assert not density.sample(3, generators[0]).equals(density.sample(3, np.random.RandomState(4)))
