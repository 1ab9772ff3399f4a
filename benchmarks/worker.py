# SPDX-License-Identifier: Apache-2.0
"""Measures under one setting of the allocator: reads what to measure from standard input, writes JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

import torch

import picirc as pc
from measure import Fresh, interleaved
from workload import BARE, Workload, peak_of

# What each case is compared with: the products of one pass, those of both, or the bare pass up.
BASES = {
    "up": "limit",
    "up+down": "limit3",
    "log-likelihood": "limit",
    "likelihood+gradient": "limit3",
    "sample": "up",
    "sample, half given": "up",
    "marginals": "up",
    "mpe": "up",
}


def measure(tree: pc.LatentTree, states: int, batch: int, budget: float, fresh: Fresh) -> list[dict[str, Any]]:
    """All figures for one N and one B."""
    workload = Workload(tree, states, batch)
    runs = {**workload.limits(), **workload.cases}
    shape = {"states": states, "batch": batch}
    sizes = {"array_bytes": workload.array_bytes, "gradient_bytes": workload.gradient_bytes}
    records: list[dict[str, Any]] = []
    for case, base in BASES.items():
        bare = case in BARE or base in BARE
        timing = interleaved(runs[case], runs[base], budget, prepare=workload.fill if bare else None)
        memory = fresh(peak_of, case, tree.parents, states, batch)
        records.append({**shape, "case": case, "against": base, **asdict(timing), "peak_bytes": memory, **sizes})
    return _limits(records, workload.flops, shape) + records


def _limits(records: list[dict[str, Any]], flops: int, shape: dict[str, int]) -> list[dict[str, Any]]:
    """The products themselves, from the first case that was compared with them."""
    found = []
    for name, products in (("limit", 1), ("limit3", 3)):
        spent = next(r["base"] for r in records if r["against"] == name)
        rate = products * flops / spent / 1e9
        found.append({**shape, "case": name, "seconds": spent, "gflop_per_second": rate})
    return found


def main() -> None:
    task = json.load(sys.stdin)
    torch.set_num_threads(task["threads"])
    variables = tuple((i,) for i in range(len(task["parents"])))
    tree = pc.LatentTree(tuple(task["parents"]), variables)
    fresh = Fresh("workload")
    records = []
    for states, batch in task["shapes"]:
        print(f"  N = {states}, B = {batch}", file=sys.stderr)
        records += measure(tree, states, batch, task["budget"], fresh)
    json.dump(records, sys.stdout)


if __name__ == "__main__":
    main()
