# SPDX-License-Identifier: Apache-2.0
"""Tables that several tests use, and models of them that are fitted once."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from palmerpenguins import load_penguins

import picirc as pc


@cache
def penguin_table() -> Any:
    """344 penguins: texts, measurements and a year, 19 cells missing."""
    return load_penguins()


@cache
def penguin_model() -> pc.TableModel:
    return pc.fit_table(penguin_table(), points=8, width=16, steps=50)


@cache
def mixed_table() -> dict[str, Any]:
    """A small table with a column of each kind, every one with missing cells."""
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=60)

    def holes(values: Any, place: int) -> list[Any]:
        return [None if row % 13 == place else value for row, value in enumerate(np.asarray(values).tolist())]

    return {
        "real": holes(hidden * 3 + 100, 0),
        "text": holes(np.where(hidden > 0.5, "high", np.where(hidden < -0.5, "low", "middle")), 1),
        "flag": holes(hidden > 0, 2),
        "count": holes(rng.poisson(np.exp(hidden)), 3),
        "level": holes(np.clip(np.rint(hidden) + 1, 0, 3).astype(int), 4),
    }


@cache
def mixed_model() -> pc.TableModel:
    return pc.fit_table(mixed_table(), {"count": "poisson"}, points=8, width=8, steps=40)
