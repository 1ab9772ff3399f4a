# SPDX-License-Identifier: Apache-2.0
"""A real table and estimators that are fitted to it once for all tests."""

from __future__ import annotations

from typing import Any

import pytest
from palmerpenguins import load_penguins

import picirc as pc

SINGLE = {"members": 1}  # one training instead of four, for speed


@pytest.fixture(scope="session")
def penguins() -> Any:
    return load_penguins()


@pytest.fixture(scope="session")
def density(penguins) -> pc.PICDensity:
    return pc.PICDensity(points=8, width=16, steps=60, quantile=0.05, settings=SINGLE).fit(penguins)


@pytest.fixture(scope="session")
def imputer(penguins) -> pc.PICImputer:
    return pc.PICImputer(points=8, width=16, steps=40, random_state=4, settings=SINGLE).fit(penguins)


@pytest.fixture(scope="session")
def classifier(penguins) -> pc.PICClassifier:
    made = pc.PICClassifier(points=8, width=16, steps=80, settings=SINGLE)
    return made.fit(penguins.drop(columns="species"), penguins.species)
