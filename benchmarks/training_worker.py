# SPDX-License-Identifier: Apache-2.0
"""Measures training steps under one setting of the allocator: reads what to measure from stdin, writes JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import torch

import picirc as pc
from measure import Fresh, Run, interleaved, peak
from workload import CATEGORIES, Workload

BASELINE = "HCLT-Adam"
# Sharing of integral and of input units, and the width of the nets.
MODELS: dict[str, tuple[str, str, int]] = {
    "composite / full, 64": ("composite", "full", 64),
    "composite / full, 256": ("composite", "full", 256),
    "composite / composite, 64": ("composite", "composite", 64),
    "none / none, 64": ("none", "none", 64),
}
STAR_POINTS, STAR_VARIABLES, STAR_DIMS, STAR_BATCH = 8192, 1000, 16, 256


def step_of(name: str, tree: pc.LatentTree, states: int, batch: int) -> Run:
    """A whole training step: materialise, likelihood, gradient, Adam."""
    generator = torch.Generator().manual_seed(0)
    family = pc.Categorical(CATEGORIES)
    x = torch.randint(CATEGORIES, (batch, tree.n_variables), generator=generator).float()
    draws = np.random.default_rng(0)
    model: pc.HCLT | pc.PIC
    if name == BASELINE:
        model = pc.HCLT(tree, family, states, generator=generator)
    else:
        sharing, input_sharing, width = MODELS[name]
        model = pc.PIC(tree, family, width, sharing, input_sharing, generator=generator)
    solver = torch.optim.Adam(model.parameters(), 1e-2, fused=True)  # as pc.fit has it

    def step() -> None:
        solver.zero_grad()
        qpc = model() if isinstance(model, pc.HCLT) else model(pc.shifted(states).draw(float(draws.random())))
        qpc.log_prob(x).mean().neg().backward()
        solver.step()

    return step


def peak_of(name: str, parents: tuple[int, ...], states: int, batch: int) -> int:
    """The peak memory of a step in bytes, with parameters and optimiser; for a process of its own."""
    step_of(name, pc.chain(20), 4, 4)()  # loads the code and starts the threads, which are not what is measured
    made: list[Run] = []

    def whole() -> None:
        if not made:
            made.append(step_of(name, _tree(parents), states, batch))
        made[0]()

    return peak(whole)


def measure(tree: pc.LatentTree, states: int, batch: int, budget: float, fresh: Fresh) -> list[dict[str, Any]]:
    """All figures for one N and one B."""
    products = Workload(tree, states, batch).limits()["limit3"]
    baseline = step_of(BASELINE, tree, states, batch)
    memory = fresh(peak_of, BASELINE, tree.parents, states, batch)
    timing = interleaved(baseline, products, budget, fewest=3)
    shape = {"states": states, "batch": batch}
    first = {"model": BASELINE, "to_products": timing.ratio, "seconds": timing.seconds, "peak_bytes": memory}
    records: list[dict[str, Any]] = [{**shape, **first}]
    for name in MODELS:
        step = step_of(name, tree, states, batch)
        timing = interleaved(step, products, budget, fewest=3)
        records.append(
            {
                **shape,
                "model": name,
                "to_products": timing.ratio,
                "to_baseline": interleaved(step, baseline, budget, fewest=3).ratio,
                "seconds": timing.seconds,
                "peak_bytes": fresh(peak_of, name, tree.parents, states, batch),
                "baseline_bytes": memory,
            }
        )
    return records


def measure_star(budget: float) -> list[dict[str, Any]]:
    """A continuous mixture: one latent with many points above many variables, against bare matrix products.

    The likelihood has one product, its gradient with respect to the inputs two, and a training step those of the nets
    besides: three for the heads and two for the hidden layer, whose input is not learned through.
    """
    generator = torch.Generator().manual_seed(0)
    model = pc.PIC(pc.star(STAR_VARIABLES), pc.Bernoulli(), dims=STAR_DIMS, generator=generator)
    rule = pc.sobol(STAR_POINTS, STAR_DIMS)
    with torch.no_grad():
        qpc = model(rule)
    for tensor in qpc.parameters.tensors:
        tensor.requires_grad_()
    solver = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
    x = torch.randint(2, (STAR_BATCH, STAR_VARIABLES), generator=generator).float()
    table, values = torch.rand(STAR_POINTS, STAR_VARIABLES), torch.empty(STAR_POINTS, STAR_BATCH)
    hidden, square = torch.rand(STAR_POINTS, model.width), torch.rand(model.width, model.width)
    head = torch.rand(model.width, STAR_VARIABLES)

    def one() -> None:
        torch.mm(table, x.T, out=values)

    def two() -> None:
        one()
        torch.mm(values, x)

    def whole() -> None:
        two()
        _ = hidden @ head, table @ head.T, hidden.T @ table, hidden @ square, hidden.T @ hidden

    def gradient() -> None:
        qpc.log_prob(x).sum().backward()

    def step() -> None:
        solver.zero_grad()
        model(rule).log_prob(x).mean().neg().backward()
        solver.step()

    likelihood = torch.no_grad()(lambda: qpc.log_prob(x))
    shape = {"states": STAR_POINTS, "batch": STAR_BATCH}
    records = []
    for name, run, products in (("likelihood", likelihood, one), ("gradient", gradient, two), ("step", step, whole)):
        timing = interleaved(run, products, budget, fewest=3)
        record = {"model": f"star, {name}", "to_products": timing.ratio, "seconds": timing.seconds}
        records.append({**shape, **record, "peak_bytes": peak(run)})
    return records


def _tree(parents: tuple[int, ...]) -> pc.LatentTree:
    return pc.LatentTree(tuple(parents), tuple((i,) for i in range(len(parents))))


def main() -> None:
    task = json.load(sys.stdin)
    torch.set_num_threads(task["threads"])
    fresh = Fresh("training_worker")
    records = []
    for states, batch in task["shapes"]:
        print(f"  N = {states}, B = {batch}", file=sys.stderr)
        records += measure(_tree(task["parents"]), states, batch, task["budget"], fresh)
    print("  star", file=sys.stderr)
    records += measure_star(task["budget"])
    json.dump(records, sys.stdout)


if __name__ == "__main__":
    main()
