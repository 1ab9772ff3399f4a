"""Speed and memory of the tensor program, as ratios to the bare matrix products measured in the same run.

``make bench`` prints one table and writes the figures to ``benchmarks/results/``. Every case alternates with what it is
compared with, and what counts is the median of the ratios. Everything is measured under the allocator's default
setting, and again while it keeps its memory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from measure import ALLOCATORS, RESULTS, cores, environment, origin
from workload import mnist_tree

Record = Mapping[str, Any]

STATES, BATCHES = (16, 32, 64, 128), (1, 64, 256)
QUICK = ((64, 1), (64, 256))

# The largest ratio that is good enough, by case, N and B.
RATIOS = {
    ("up", 128, 256): 2.0,
    ("up+down", 128, 256): 2.0,
    ("up", 32, 256): 4.0,
    ("up+down", 32, 256): 4.0,
    ("log-likelihood", 64, 256): 4.0,
    ("sample", 64, 256): 5.0,
    ("sample, half given", 64, 256): 8.0,
}
LATENCY = {("log-likelihood", 64, 1): 8e-3}  # seconds
ARRAYS = 3  # that up+down may take, besides parameters and their gradient


def main() -> None:
    options = _options()
    shapes = QUICK if options.quick else [(n, b) for n in options.states for b in options.batches]
    tree, kind = mnist_tree()
    print(f"{kind}: {tree.n_latents} latents, {tree.depth + 1} levels, 256 categories; {cores()} threads")
    task = {"parents": tree.parents, "shapes": shapes, "budget": 0.5 if options.quick else options.budget}
    records = {}
    for allocator in ALLOCATORS:
        print(f"allocator: {allocator}", file=sys.stderr)
        records[allocator] = _run(task, allocator)
    print("\n".join(table(records)))
    result = {**origin(), "workload": {**task, "parents": len(tree.parents), "tree": kind, "levels": tree.depth + 1}}
    _write(options.output, options.quick, {**result, "records": records})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="N = 64 only, in about a minute")
    parser.add_argument("--states", type=int, nargs="+", default=STATES, help="the numbers N of states")
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES, help="the numbers B of data points")
    parser.add_argument("--budget", type=float, default=2.0, help="seconds for each comparison")
    parser.add_argument("--output", type=Path, help="where to write the figures")
    return parser.parse_args()


def _run(task: Mapping[str, Any], allocator: str) -> list[Record]:
    command = [sys.executable, str(Path(__file__).with_name("worker.py"))]
    done = subprocess.run(
        command, input=json.dumps(task), stdout=subprocess.PIPE, env=environment(allocator), text=True, check=True
    )
    found: list[Record] = json.loads(done.stdout)
    return found


def _write(path: Path | None, quick: bool, result: Mapping[str, Any]) -> None:
    name = f"bench-{'quick-' if quick else ''}{result['date'][:10]}.json"
    path = path or RESULTS / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"written to {path}")


def table(records: Mapping[str, Iterable[Record]]) -> list[str]:
    """One line a case; two figures are those under the default and under the tuned allocator."""
    head = f"{'N':>4} {'B':>4}  {'case':<20} {'ratio':>12} {'to':<6} {'target':<22} "
    head += f"{'ms':>17} {'peak MiB':>13} {'arrays':>10}"
    lines = [head, "-" * len(head)]
    for pair in zip(*records.values(), strict=True):
        one = pair[0]
        start = f"{one['states']:>4} {one['batch']:>4}  {one['case']:<20}"
        times = _two(pair, lambda r: f"{1e3 * r['seconds']:.2f}", 8)
        if "ratio" not in one:
            rates = _two(pair, lambda r: f"{r['gflop_per_second']:.0f}", 4)
            lines.append(f"{start} {'':>12} {'':<6} {'':<22} {times} {rates} GFLOP/s".rstrip())
            continue
        ratios = _two(pair, lambda r: f"{r['ratio']:.2f}", 5)
        peaks = _two(pair, lambda r: f"{r['peak_bytes'] / 2**20:.0f}", 6)
        arrays = _two(pair, lambda r: f"{r['peak_bytes'] / r['array_bytes']:.1f}", 4)
        lines.append(f"{start} {ratios:>12} {one['against']:<6} {_target(pair):<22} {times} {peaks} {arrays}")
    return lines


def _two(pair: tuple[Record, ...], text: Any, width: int) -> str:
    return " ".join(f"{text(record):>{width}}" for record in pair)


def _target(pair: tuple[Record, ...]) -> str:
    """What was wanted, and whether it is so under the default allocator."""
    one = pair[0]
    key = (one["case"], one["states"], one["batch"])
    wanted: list[tuple[str, bool]] = []
    if key in RATIOS:
        wanted.append((f"≤ {RATIOS[key]:g}×", one["ratio"] <= RATIOS[key]))
    if key in LATENCY:
        wanted.append((f"< {1e3 * LATENCY[key]:g} ms", one["seconds"] < LATENCY[key]))
    if one["case"] == "up+down" and one["batch"] > 1:
        most = ARRAYS * one["array_bytes"] + one["gradient_bytes"]
        wanted.append((f"≤ {most / 2**20:.0f} MiB", one["peak_bytes"] <= most))
    return ", ".join(f"{text}{'' if met else ' missed'}" for text, met in wanted)


if __name__ == "__main__":
    main()
