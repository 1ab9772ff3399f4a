# SPDX-License-Identifier: Apache-2.0
"""The same circuits with the same parameters in other libraries: agreement, time and memory.

``make bench-peers`` installs the other libraries in an environment of their own and runs this. The log-likelihoods of
both sides have to agree before anything is timed.
"""

from __future__ import annotations

import argparse
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from measure import cores
from report import LEGEND, Record, Records, measure_all, pairs, side_by_side, write
from workload import CATEGORIES, mnist_tree

STRUCTURES = (("cirkit", "quad graph"), ("cirkit", "Chow–Liu"), ("spflow", "HCLT"))
PACKAGES = {"cirkit": "libcirkit", "spflow": "spflow"}
STATES = (16, 32, 64)
SIDES = ("ours", "theirs")
AHEAD = 3.0  # times faster, and never with more memory


def main() -> None:
    options = _options()
    versions = _versions()
    tree, kind = mnist_tree()
    states = STATES[:1] if options.quick else options.states
    circuits = [(peer, structure, n) for peer, structure in STRUCTURES if peer in versions for n in states]
    if not circuits:
        raise SystemExit("neither libcirkit nor spflow is installed; make bench-peers installs both")
    task = {
        "parents": tree.parents,
        "circuits": circuits,
        "batch": options.batch,
        "budget": options.budget,
        "threads": options.threads,
        "patience": options.patience,
    }
    installed = ", ".join(f"{PACKAGES[peer]} {number}" for peer, number in versions.items())
    print(f"{installed}; {kind}, {tree.n_variables} variables, {CATEGORIES} categories; {options.threads} threads")
    records = measure_all("peers_worker.py", task)
    print(LEGEND, *table(records), sep="\n")
    setting = {"peers": versions, "tree": kind, **{name: task[name] for name in ("budget", "threads", "patience")}}
    write(options.output, "peers", {**setting, "records": records})


def _versions() -> dict[str, str]:
    found = {}
    for peer, package in PACKAGES.items():
        try:
            found[peer] = version(package)
        except PackageNotFoundError:
            print(f"{package} is not installed and left out")
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help=f"N = {STATES[0]} only")
    parser.add_argument("--states", type=int, nargs="+", default=STATES, help="the numbers N of states")
    parser.add_argument("--batch", type=int, default=256, help="the number of data points")
    parser.add_argument("--budget", type=float, default=5.0, help="seconds for each comparison")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds after which their side is given up")
    parser.add_argument("--threads", type=int, default=cores(), help="by default one for each core")
    parser.add_argument("--output", type=Path, help="where to write the figures")
    return parser.parse_args()


def table(records: Records) -> list[str]:
    """One line a case, under a head."""
    head = f"{'peer':<7} {'structure':<11} {'N':>4} {'B':>4}  {'case':<15} {'theirs / ours':>15} {'target':<28}"
    head += f" {'ours ms':>17} {'theirs ms':>17} {'ours MiB':>13} {'theirs MiB':>13} {'disagree':>9}"
    return [head, "-" * len(head), *map(_line, pairs(records))]


def _line(pair: tuple[Record, ...]) -> str:
    one = pair[0]
    start = f"{one['peer']:<7} {one['structure']:<11} {one['states']:>4} {one['batch']:>4}  {one['case']:<15}"
    ratios = side_by_side(pair, lambda r: f"{r['ratio']:.1f}" if "ratio" in r else "–", 7)
    figures = [side_by_side(pair, partial(_figure, name=f"{side}_seconds", scale=1e3), 8) for side in SIDES]
    figures += [side_by_side(pair, partial(_figure, name=f"{side}_bytes", scale=2**-20), 6) for side in SIDES]
    reasons = {r["theirs_failure"] for r in pair if "theirs_failure" in r}
    line = " ".join([start, ratios, f"{_target(one):<28}", *figures, f"{one['disagreement']:>9.0e}"])
    return "  ".join([line, *reasons])


def _figure(record: Record, name: str, scale: float) -> str:
    return f"{scale * record[name]:.0f}" if name in record else "–"


def _target(record: Record) -> str:
    """What was wanted, and whether it is missed; the default allocator decides."""
    if "ratio" not in record:
        return ""
    slow = record["ratio"] < AHEAD
    large = record["ours_bytes"] > record["theirs_bytes"]
    missed = " and ".join(word for word, wrong in (("time", slow), ("memory", large)) if wrong)
    return f"≥ {AHEAD:g}×" + (f" missed: {missed}" if missed else "")


if __name__ == "__main__":
    main()
