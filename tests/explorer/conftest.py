# SPDX-License-Identifier: Apache-2.0
"""Small models for the tests of the explorer, fitted once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from explorer_cases import mixed_table, network

import picirc as pc
from picirc.explorer import make_page
from picirc.explorer.server import Explorer


@pytest.fixture
def two_latents() -> pc.BayesNet:
    return network()


@pytest.fixture(scope="session")
def mixed():
    table = mixed_table()
    return pc.fit_table(table, {"rings": "poisson"}, steps=80, points=6, width=16, settings={"members": 1}), table


@pytest.fixture(scope="session")
def images():
    """An untrained model of binary images with its examples."""
    rng = np.random.default_rng(2)
    model = pc.PIC(pc.chain(16), inputs=pc.Categorical(3), width=8, generator=torch.Generator().manual_seed(0))
    return model, rng.integers(0, 3, (5, 16))


@pytest.fixture(scope="session")
def large_images():
    """A model of grey images of 28 × 28 pixels, hardly trained."""
    rng = np.random.default_rng(6)
    images = rng.integers(0, 256, (24, 784))
    source = torch.Generator().manual_seed(0)
    model = pc.PIC(pc.random_tree(784, seed=0), inputs=pc.Categorical(256), width=8, generator=source)
    return pc.fit(model, images, rule=pc.shifted(16), steps=2, batch_size=8)[0], images


@pytest.fixture(scope="session")
def weather():
    """A model of two short sequences of numbers and categories, hardly trained."""
    rng = np.random.default_rng(5)
    level = np.cumsum(rng.normal(size=48)).reshape(2, 24)
    table = {
        "place": ["north"] * 24 + ["south"] * 24,
        "day": np.tile(np.datetime64("2024-03-01") + np.arange(24), 2),
        "degrees": (10 + 3 * level).ravel(),
        "sky": np.array(["sun", "rain"], dtype=object)[(level.ravel() > 0).astype(int)],
    }
    table["degrees"][5] = np.nan
    return pc.fit_sequences(table, by="place", time="day", dims=1, steps=20, points=8, settings={"refit": False}), table


@pytest.fixture(scope="session")
def serve():
    """Start explorers; all of them end with the tests."""
    running: list[Explorer] = []

    def start(model, data=None, **options) -> Explorer:
        running.append(Explorer(make_page(model, data, **options)))
        return running[-1]

    yield start
    for explorer in running:
        explorer.stop()
