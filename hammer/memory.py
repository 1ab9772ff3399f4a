# SPDX-License-Identifier: Apache-2.0
"""Results that are kept while others are computed, and memory that does not grow with the number of calls."""

from __future__ import annotations

import random
from pathlib import Path

import torch

import picirc as pc
from count import Count

PERMITTED_GROWTH = 64 * 2**20  # bytes


def held_results(seed: int, scale: float) -> Count:
    """A result is the caller's own: nothing that is computed later overwrites it."""
    source, count = random.Random(seed), Count()
    circuits = _circuits()
    held: list[tuple[str, torch.Tensor, torch.Tensor]] = []
    for _ in range(int(40 * scale) or 1):
        for qpc in circuits:
            held += [(name, value, value.detach().clone()) for name, value in _answers(qpc, source.randrange(1, 70))]
    for _ in range(int(1000 * scale) or 1):
        _answers(source.choice(circuits), source.randrange(1, 200))
    for name, value, copy in held:
        count.tried += 1
        count.check(torch.equal(value, copy), f"{name} was overwritten")
    return count


def steady_memory(seed: int, scale: float) -> Count:
    """The memory of the process after the first calls, and after all."""
    source, count = random.Random(seed), Count()
    qpc = pc.HCLT(pc.chain(6), pc.Categorical(5), states=8)()
    x = qpc.sample((3000,))
    calls = int(20_000 * scale)
    with torch.no_grad():
        for number in range(calls):
            if number == calls // 10:
                before = _resident()
            qpc.log_prob(x[: source.randrange(1, 3000)])
            count.tried += 1
    growth = _resident() - before
    count.check(growth < PERMITTED_GROWTH, f"{growth / 2**20:.0f} MiB more")
    count.note = f"{growth / 2**20:+.0f} MiB"
    return count


def _circuits() -> list[pc.QPC]:
    mixed = [pc.Gaussian(), pc.Categorical(300), pc.Bernoulli(), pc.Poisson()]
    return [
        pc.HCLT(pc.chain(4), mixed, states=5)(),
        pc.PIC(pc.random_tree(4, seed=0), mixed, width=8)(pc.shifted(7)),
        pc.HCLT(pc.quad_graph(2, 2), pc.Bernoulli(), states=3, dtype=torch.float64)(),
    ]


def _answers(qpc: pc.QPC, batch: int) -> list[tuple[str, torch.Tensor]]:
    x = qpc.sample((batch,))
    value = qpc.log_prob(x)
    weights = [weights for weights in qpc.parameters.weights if weights.requires_grad]
    found = [("a sample", x), ("a likelihood", value), ("weights", weights[0])]
    found += [("a gradient", flow) for flow in torch.autograd.grad(value.sum(), weights, retain_graph=True)]
    partial = x.detach().clone()
    partial[:, 0] = torch.nan
    return [*found, ("a mean", qpc.marginals(partial).mean), ("a completion", qpc.mpe(given=partial))]


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096
