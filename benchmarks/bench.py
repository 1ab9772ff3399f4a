# SPDX-License-Identifier: Apache-2.0
"""Speed and memory of the tensor program, as ratios to the bare matrix products measured in the same run.

``make bench`` prints one table and writes the figures to ``benchmarks/results/``. Every case alternates with what it is
compared with, and what counts is the median of the ratios. Everything is measured under the allocator's default
setting, and again while it keeps its memory.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from measure import cores
from report import LEGEND, Record, Records, measure_all, pairs, side_by_side, write
from workload import CATEGORIES, mnist_tree

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
ARRAYS = 3  # that up+down may take besides the gradient; parameters and data are there before


def main() -> None:
    options = _options()
    tree, kind = mnist_tree()
    task = {
        "parents": tree.parents,
        "shapes": QUICK if options.quick else [(n, b) for n in options.states for b in options.batches],
        "budget": 0.5 if options.quick else options.budget,
        "threads": options.threads,
    }
    workload = f"{kind}, {tree.n_latents} latents, {tree.depth + 1} levels, {CATEGORIES} categories"
    print(f"{workload}; {options.threads} threads")
    records = measure_all("worker.py", task)
    print(LEGEND, *table(records), sep="\n")
    name = "bench-quick" if options.quick else "bench"
    setting = {"workload": workload, "budget": task["budget"], "threads": options.threads}
    write(options.output, name, {**setting, "records": records})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="N = 64 only, in about a minute")
    parser.add_argument("--states", type=int, nargs="+", default=STATES, help="the numbers N of states")
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES, help="the numbers B of data points")
    parser.add_argument("--budget", type=float, default=2.0, help="seconds for each comparison")
    parser.add_argument("--threads", type=int, default=cores(), help="by default one for each core")
    parser.add_argument("--output", type=Path, help="where to write the figures")
    return parser.parse_args()


def table(records: Records) -> list[str]:
    """One line a case, under a head."""
    head = f"{'N':>4} {'B':>4}  {'case':<20} {'ratio':>13} {'to':<6} {'target':<24}"
    head += f" {'ms':>17} {'peak MiB':>15} {'in arrays':>13}"
    return [head, "-" * len(head), *map(_line, pairs(records))]


def _line(pair: tuple[Record, ...]) -> str:
    one = pair[0]
    start = f"{one['states']:>4} {one['batch']:>4}  {one['case']:<20}"
    times = side_by_side(pair, lambda r: f"{1e3 * r['seconds']:.2f}", 8)
    if "ratio" not in one:
        rates = side_by_side(pair, lambda r: f"{r['gflop_per_second']:.0f}", 7)
        return f"{start} {'':>13} {'':<6} {'':<24} {times} {rates} GFLOP/s"
    ratios = side_by_side(pair, lambda r: f"{r['ratio']:.2f}", 6)
    peaks = side_by_side(pair, lambda r: f"{r['peak_bytes'] / 2**20:.1f}", 7)
    arrays = side_by_side(pair, lambda r: f"{r['peak_bytes'] / r['array_bytes']:.1f}", 6)
    return f"{start} {ratios} {one['against']:<6} {_target(one):<24} {times} {peaks} {arrays}"


def _target(record: Record) -> str:
    """What was wanted, and whether it is missed; the default allocator decides."""
    key = (record["case"], record["states"], record["batch"])
    wanted: list[tuple[str, bool]] = []
    if key in RATIOS:
        wanted.append((f"≤ {RATIOS[key]:g}×", record["ratio"] <= RATIOS[key]))
    if key in LATENCY:
        wanted.append((f"< {1e3 * LATENCY[key]:g} ms", record["seconds"] < LATENCY[key]))
    if record["case"] == "up+down" and record["batch"] > 1:
        most = ARRAYS * record["array_bytes"] + record["gradient_bytes"]
        wanted.append((f"≤ {most / 2**20:.0f} MiB", record["peak_bytes"] <= most))
    return ", ".join(text + ("" if met else " missed") for text, met in wanted)


if __name__ == "__main__":
    main()
