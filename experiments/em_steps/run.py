# SPDX-License-Identifier: Apache-2.0
"""EM for PICs against Adam in the same processor time: ``python experiments/em_steps/run.py``.

A step of EM for a PIC computes the expected counts of a batch by one pass up and down, and then takes several steps of
Adam on the nets alone, which raise the expected log-likelihood of these counts. With one such step it is Adam itself. A
line for each run is appended to ``results.jsonl``; runs that have a line are not repeated.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import picirc as pc

SETS = ("jester", "accidents")
RUNS = ((1, 256), (1, 1024), (2, 256), (4, 1024), (8, 2048))  # steps of the nets on the counts of a batch, and its rows
POINTS, RATE, WARMUP = 32, 7e-3, 50
RESULTS = Path(__file__).parent / "results.jsonl"


def main() -> None:
    """Make the runs that are missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=0.7, help="of processor time for each run")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    known = [json.loads(line)["setting"] for line in lines]
    for name in SETS:
        for inner, rows in RUNS:
            setting = {"data": name, "inner": inner, "rows": rows, "minutes": options.minutes, "seed": options.seed}
            if setting not in known:
                record = {"setting": setting} | run(**setting)
                with RESULTS.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
                print(json.dumps(record), flush=True)


def run(data: str, inner: int, rows: int, minutes: float, seed: int) -> dict[str, float]:
    """Train for so many minutes, and return the mean log-likelihoods of the other parts of the data."""
    parts = pc.data.load(data)
    train = torch.as_tensor(np.asarray(parts.train), dtype=torch.float32)
    source, order = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    pic = pc.PIC(pc.hidden_chow_liu(parts.train), pc.Categorical(2), input_sharing="composite", generator=source)
    pic.begin_training(train, source)
    decay = pic.weight_decay(len(train)) / inner
    solver = torch.optim.AdamW(pic.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=decay, fused=True)
    started, steps = time.process_time(), 0
    while (used := (time.process_time() - started) / (60 * minutes)) < 1:
        size = RATE * (0.505 + 0.495 * math.cos(math.pi * used)) * min(1.0, (steps + 1) / WARMUP)
        for group in solver.param_groups:
            group["lr"] = size
        rule = pc.shifted(POINTS).random(np.random.default_rng([seed, steps]))
        _step(pic, rule, train[torch.as_tensor(order.integers(len(train), size=rows))], inner, solver)
        steps += 1
    pic.end_training()
    qpc = pic(pc.trapezoidal(2 * POINTS))
    return {"steps": steps} | {part: _mean(qpc, getattr(parts, part)) for part in ("valid", "test")}


def _step(pic: pc.PIC, rule: Any, x: torch.Tensor, inner: int, solver: torch.optim.Optimizer) -> None:
    qpc = pic(rule)
    if inner == 1:
        solver.zero_grad()
        (-qpc.log_prob(x).mean()).backward()
        solver.step()
        return
    tables = (*qpc.parameters.weights, *qpc.parameters.inputs)
    flows = torch.autograd.grad(qpc.log_prob(x).mean(), tables)
    first = len(qpc.parameters.weights)
    # A derivative by the logarithm of a probability is an expected count; the inputs are logarithms already.
    counts = [(w * flow).detach() for w, flow in zip(tables[:first], flows[:first], strict=True)]
    for _ in range(inner):
        found = pic(rule).parameters
        logs = (*(w.clamp_min(1e-30).log() for w in found.weights), *found.inputs)
        solver.zero_grad()
        (-sum((c * log).sum() for c, log in zip((*counts, *flows[first:]), logs, strict=True))).backward()
        solver.step()


@torch.no_grad()
def _mean(qpc: pc.QPC, x: Any) -> float:
    values = torch.as_tensor(np.asarray(x), dtype=torch.float32)
    return float(torch.cat([qpc.log_prob(part) for part in values.split(1000)]).mean())


if __name__ == "__main__":
    main()
