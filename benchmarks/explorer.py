# SPDX-License-Identifier: Apache-2.0
"""How long the explorer takes to answer, for a table of 20 columns and a model of the default size.

Usage: ``python benchmarks/explorer.py``; it trains for some steps first, which takes a minute.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np
import torch

import picirc as pc
from picirc.explorer import make_page

EVIDENCE = {
    "nothing": {},
    "a number": {"number0": {"is": 0.5}},
    "a category": {"class0": {"is": "b"}},
    "a set of categories": {"class0": {"in": ["a", "b"]}},
    "a set of counts": {"count0": {"in": [1, 2]}},
    "a range": {"number0": {"from": 0, "to": 1}},
    "a range of a skewed column": {"skewed0": {"from": 1, "to": 2}},
    "a range of a column with a spike": {"spiked0": {"from": 0, "to": 2}},
    "a range and a set": {"number0": {"from": 0, "to": 1}, "class0": {"in": ["a", "b"]}},
    "two ranges": {"number0": {"from": 0, "to": 1}, "number1": {"from": 0, "to": None}},
    "three ranges": {name: {"from": -1, "to": 1} for name in ("number0", "number1", "number2")},
}


def table(rows: int) -> dict[str, np.ndarray]:
    """Eight numbers, three skewed and two zero-inflated ones, four categories and three counts, all dependent."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(rows, 3))
    found = {f"number{i}": z @ rng.normal(size=3) + 0.7 * rng.normal(size=rows) for i in range(8)}
    found |= {f"skewed{i}": np.exp(z[:, i] + 0.3 * rng.normal(size=rows)) for i in range(3)}
    found |= {f"spiked{i}": np.where(rng.random(rows) < 0.4, 0.0, np.exp(z[:, i] + 1)) for i in range(2)}
    letters = np.array(list("abcde"), dtype=object)
    codes = [np.clip(1.2 * z[:, i % 3] + 2 + 0.5 * rng.normal(size=rows), 0, 4).astype(int) for i in range(4)]
    found |= {f"class{i}": letters[own] for i, own in enumerate(codes)}
    return found | {f"count{i}": rng.poisson(np.exp(1 + 0.5 * z[:, i])) for i in range(3)}


def main() -> None:
    """Fit, ask, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    data = table(arguments.rows)
    model = pc.fit_table(data, {f"count{i}": "poisson" for i in range(3)}, steps=arguments.steps)
    page = make_page(model, data)
    print(f"{model}; {torch.get_num_threads()} thread(s), load {os.getloadavg()[0]:.1f}\n")
    print("| evidence | ms of the processor |\n|---|---|")
    for name, evidence in EVIDENCE.items():
        with torch.no_grad():
            page.given(evidence)
            seconds = []
            for _ in range(arguments.repeats):
                started = time.process_time()
                page.given(evidence)
                seconds.append(time.process_time() - started)
        print(f"| {name} | {1e3 * np.median(seconds):.0f} |", flush=True)


if __name__ == "__main__":
    main()
