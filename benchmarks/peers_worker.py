# SPDX-License-Identifier: Apache-2.0
"""Compares with other libraries under one setting of the allocator: a task on standard input, JSON on the output."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from statistics import median
from typing import Any

import torch

import picirc as pc
from measure import Fresh, Run, interleaved, peak, seconds
from pair import SAMPLES, Pair
from workload import CATEGORIES, PIXELS

AGREEMENT = 1e-5  # relative, of log-likelihoods in single precision
_SIDE = 28
_SHARE = 0.8  # of the memory that is free, which a run may take

Parents = tuple[int, ...]


def build(peer: str, structure: str, states: int, parents: Parents, categories: int = CATEGORIES) -> Pair:
    """The pair of one comparison; ``parents`` is the tree, whose size is also that of the quad graph."""
    tree = pc.LatentTree(parents, tuple((i,) for i in range(len(parents))))
    if peer == "spflow":
        import peer_spflow

        return peer_spflow.pair(tree, states, categories)
    import peer_cirkit

    side = _SIDE if len(parents) == PIXELS else 4
    graph = peer_cirkit.quad_graph(side, side) if structure == "quad graph" else peer_cirkit.chow_liu(tree)
    return peer_cirkit.pair(graph, states, categories)


def alone(case: str, side: int, batch: int, task: tuple[str, str, int, Parents]) -> tuple[float, int]:
    """Time and peak memory of one side of a pair, in a process of its own."""
    peer, structure, states, parents = task
    small = build(peer, structure, 2 * SAMPLES, pc.chain(16).parents, categories=4)  # few samples a state, as below
    _side(small, torch.zeros(2, 16), case, side)()  # loads the code and starts the threads
    run = _side(build(peer, structure, states, parents), data(batch, len(parents)), case, side)
    _limit_memory()
    spent: list[float] = []
    memory = peak(lambda: spent.append(seconds(run)), times=1)
    if spent[0] < 1:
        spent = [seconds(run) for _ in range(7)]
    return median(spent), memory


def _side(pair: Pair, x: torch.Tensor, case: str, side: int) -> Run:
    prepare = pair.runs(x)[case][side]
    assert prepare is not None
    return prepare()


def data(batch: int, variables: int) -> torch.Tensor:
    """Random images."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(CATEGORIES, (batch, variables), generator=generator).float()


def _limit_memory() -> None:
    """Let a run that needs more memory than there is fail, rather than the machine."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    resource.setrlimit(resource.RLIMIT_DATA, (int(_SHARE * free), -1))


def compare(peer: str, structure: str, states: int, task: dict[str, Any], fresh: Fresh) -> list[dict[str, Any]]:
    """All figures for one circuit."""
    parents, batch = tuple(task["parents"]), task["batch"]
    pair, x = build(peer, structure, states, parents), data(task["batch"], len(parents))
    difference = pair.disagreement(x)
    if not difference < AGREEMENT:
        raise RuntimeError(f"{peer}, {structure}: the log-likelihoods differ by {difference:.1e}, relatively")
    shape = {"peer": peer, "structure": structure, "states": states, "batch": batch, "disagreement": difference}
    one = (batch, (peer, structure, states, parents))
    records = []
    for case, (ours, theirs) in pair.runs(x).items():
        record: dict[str, Any] = {**shape, "case": case}
        record["ours_seconds"], record["ours_bytes"] = fresh(alone, case, 0, *one)
        if theirs is not None:
            try:
                other = fresh(alone, case, 1, *one, timeout=task["patience"])
            except RuntimeError as failure:
                record["theirs_failure"] = "out of memory" if "allocate memory" in str(failure) else str(failure)
            else:
                record["theirs_seconds"], record["theirs_bytes"] = other
                record |= _ratio(record) if "samples" in case else _taking_turns(ours(), theirs(), task["budget"])
        records.append(record)
    return records


def _ratio(record: dict[str, Any]) -> dict[str, Any]:
    """Of what is too slow and too large on their side to run many times."""
    return {"ratio": record["theirs_seconds"] / record["ours_seconds"]}


def _taking_turns(ours: Run, theirs: Run, budget: float) -> dict[str, Any]:
    timing = interleaved(theirs, ours, budget, warm_up=1)
    return {
        "theirs_seconds": timing.seconds,
        "ours_seconds": timing.base,
        "ratio": timing.ratio,
        "repetitions": timing.repetitions,
    }


def main() -> None:
    task = json.load(sys.stdin)
    torch.set_num_threads(task["threads"])
    fresh = Fresh("workload", *(f"peer_{peer}" for peer in {peer for peer, _, _ in task["circuits"]}))
    records = []
    for peer, structure, states in task["circuits"]:
        print(f"  {peer}, {structure}, N = {states}", file=sys.stderr)
        records += compare(peer, structure, states, task, fresh)
    json.dump(records, sys.stdout)


if __name__ == "__main__":
    main()
