# SPDX-License-Identifier: Apache-2.0
"""Small models of small tables, fitted once for all tests of the report."""

from __future__ import annotations

import numpy as np
import pytest

from picirc.report.sections import gather
from picirc.tables import fit_table

ROWS = 160


def mixed_table(seed: int = 0) -> dict[str, list[object]]:
    """Numbers, counts and categories that depend on each other, with gaps."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 3, ROWS)
    length = rng.normal(10 + 3 * kind, 1.0)
    weight = 2 * length + rng.normal(0, 1, ROWS)
    table: dict[str, list[object]] = {
        "kind": ["ash", "birch", "cedar"],
        "length": length.tolist(),
        "weight": weight.tolist(),
        "rings": rng.poisson(4 + 6 * kind).tolist(),
        "old": (rng.random(ROWS) < 0.2 + 0.3 * kind).tolist(),
    }
    table["kind"] = [table["kind"][code] for code in kind]
    for name, gaps in (("length", 5), ("kind", 8), ("weight", 20)):
        for row in rng.choice(ROWS, gaps, replace=False):
            table[name][row] = None
    return table


@pytest.fixture(scope="session")
def mixed():
    table = mixed_table()
    return fit_table(table, {"rings": "poisson"}, steps=40, points=8, width=16, settings={"members": 2}), table


@pytest.fixture(scope="session")
def material(mixed):
    return gather(*mixed, seed=0)
