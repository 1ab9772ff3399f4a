# SPDX-License-Identifier: Apache-2.0
"""Tables and networks for the tests of the explorer."""

from __future__ import annotations

import numpy as np

import picirc as pc

ROWS = 120
HOSTILE = ("<img src=x onerror=alert(1)>", "__proto__", '"]}; drop', "constructor", "a\u202eb\nc " + "long " * 20)


def mixed_table() -> dict[str, list[object]]:
    """Numbers, counts and categories that depend on each other, with gaps."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, ROWS)
    length = rng.normal(10 + 3 * kind, 1.0)
    length[:4] = np.nan
    return {
        "kind": np.array(["ash", "birch", "cedar"], dtype=object)[kind].tolist(),
        "length": length.tolist(),
        "weight": rng.normal(20 + 5 * kind, 2.0).tolist(),
        "rings": rng.poisson(4 + 3 * kind).tolist(),
        "old": (rng.random(ROWS) < 0.2 + 0.3 * kind).tolist(),
    }


def hostile_table() -> dict[str, list[object]]:
    """Columns and categories with names that are markup, code or worse."""
    rng = np.random.default_rng(1)
    table: dict[str, list[object]] = {name: rng.normal(size=60).tolist() for name in HOSTILE[:3]}
    labels = np.array(["<script>alert(2)</script>", "__proto__", "'; --"], dtype=object)
    return table | {name: labels[rng.integers(0, 3, 60)].tolist() for name in HOSTILE[3:]}


def network() -> pc.BayesNet:
    """Two latents and two observed variables, of which one depends on both latents."""
    net = pc.BayesNet()
    net.latent("z1", pc.LinearGaussian(std=1.0))
    net.latent("z2", pc.LinearGaussian({"z1": 0.8}, std=0.5))
    net.observed("x1", pc.LinearGaussian({"z1": 1.0}, std=0.3))
    net.observed("x2", pc.LinearGaussian({"z1": 0.4, "z2": -1.5}, std=0.4))
    return net
