# SPDX-License-Identifier: Apache-2.0
"""Models of sequences: held-out likelihood and forecasts against the usual methods, and exact against drawn filters.

``make bench-sequences`` prints all comparisons, losses as well as wins, and writes them to ``benchmarks/results/``.
"""

from __future__ import annotations

import argparse
import logging
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import gammaln

import picirc as pc
from report import write
from sequences_data import CHOSEN_ON, HELD_OUT, load
from sequences_rivals import METHODS, Score, scored

Numbers = npt.NDArray[np.float64]

STEPS, PARTICLES, RUNS = 1000, 10_000, 8
SIZES = (9, 13, 17, 21, 25, 33, 41, 49, 65, 97, 129, 193, 257)


def main() -> None:
    options = _options()
    torch.set_num_threads(options.threads)
    logging.getLogger("hmmlearn").setLevel(logging.ERROR)
    records: list[dict[str, Any]] = []
    for name in options.series:
        train, test = load(name)
        row: dict[str, Any] = {"series": name, "train": len(train), "test": len(test), "columns": train.shape[1]}
        row["chosen_on"] = name in CHOSEN_ON
        row["scores"] = {method: _plain(scored(method, train, test)) for method in METHODS}
        records.append(row)
        print(*_lines([row]), sep="\n", flush=True)
    filters = [against_particles(name, *model) for name, model in MODELS.items()] if options.filters else []
    print(*_summary(records), *(_filter_line(row) for row in filters), sep="\n")
    write(options.output, "sequences", {"series": records, "filters": filters})


def _options() -> argparse.Namespace:
    names = [*CHOSEN_ON, *HELD_OUT]
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--series", nargs="*", default=names, choices=names)
    parser.add_argument("--no-filters", dest="filters", action="store_false")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, help="where to write the figures")
    return parser.parse_args()


def _plain(score: Score | str) -> dict[str, Any]:
    return {"note": score} if isinstance(score, str) else score._asdict()


def _lines(records: list[dict[str, Any]]) -> list[str]:
    found = []
    for row in records:
        for method, score in row["scores"].items():
            if "nats" not in score:
                found.append(f"{row['series']:20} {method:12} {score['note']}")
                continue
            shown = f"{score['nats']:8.3f} nats  {score['crps']:6.4f} CRPS  {score['seconds']:6.1f} s  {score['note']}"
            found.append(f"{row['series']:20} {method:12} {shown}")
    return found


def _summary(records: list[dict[str, Any]]) -> list[str]:
    """In how many series each method is behind, on those that the defaults were chosen by and on the others."""
    found = []
    for chosen in (True, False):
        rows = [row for row in records if row["chosen_on"] == chosen]
        for rival in list(METHODS)[1:]:
            pairs = [(r["scores"]["picirc"], r["scores"][rival]) for r in rows if "nats" in r["scores"][rival]]
            wins = sum(a["nats"] > b["nats"] for a, b in pairs)
            kind = "chosen on" if chosen else "held out"
            found.append(f"{kind:10} picirc ahead of {rival:12} on likelihood in {wins} of {len(pairs)} series")
    return found


# Known non-linear models: quadrature against a bootstrap particle filter.


def volatility(rule: pc.Rule) -> pc.SequenceModel:
    net = pc.BayesNet()
    net.latent("h", pc.LinearGaussian(std=0.2 / math.sqrt(1 - 0.97**2)))
    net.observed(
        "x",
        pc.Density(lambda x, h: -0.5 * (x * x * torch.exp(-h) + h + math.log(2 * math.pi)), ["h"], domain=(-60, 60)),
    )
    return pc.state_space(net, {"h": pc.LinearGaussian({"h": 0.97}, std=0.2)}, rule=rule)


def counts(rule: pc.Rule) -> pc.SequenceModel:
    net = pc.BayesNet()
    net.latent("z", pc.LinearGaussian(std=0.3 / math.sqrt(1 - 0.95**2)))
    net.observed("x", pc.Conditional(pc.Poisson(), lambda z: 0.7 + z, ["z"]))
    return pc.state_space(net, {"z": pc.LinearGaussian({"z": 0.95}, std=0.3)}, rule=rule)


def _log_volatility(x: float, h: Numbers) -> Numbers:
    return -0.5 * (x * x * np.exp(-h) + h + math.log(2 * math.pi))


def _log_counts(x: float, z: Numbers) -> Numbers:
    return x * (0.7 + z) - np.exp(0.7 + z) - gammaln(x + 1)


MODELS: dict[str, tuple[Any, ...]] = {
    "stochastic volatility": (volatility, 0.97, 0.2, _log_volatility),
    "counts": (counts, 0.95, 0.3, _log_counts),
}


def against_particles(
    name: str,
    make: Callable[[pc.Rule], pc.SequenceModel],
    a: float,
    q: float,
    log_density: Callable[[float, Numbers], Numbers],
) -> dict[str, Any]:
    """The error of the log-likelihood and the seconds of both filters; the smallest grid that is as accurate."""
    x = make(pc.trapezoidal(129)).sample(STEPS, seed=1)["x"]
    exact = float(make(pc.trapezoidal(1025)).log_prob(x)[0])
    draws, seconds = [], []
    for run in range(RUNS):
        started = time.perf_counter()
        draws.append(particle_filter(x, a, q, log_density, np.random.default_rng(run)))
        seconds.append(time.perf_counter() - started)
    error = float(np.sqrt(np.mean((np.array(draws) - exact) ** 2)))
    grids = []
    for size in SIZES:
        try:
            best = math.inf
            for _ in range(3):
                started = time.perf_counter()
                found = float(make(pc.trapezoidal(size)).log_prob(x)[0])
                best = min(best, time.perf_counter() - started)
        except pc.ArgumentError:  # too coarse for the step
            continue
        grids.append({"points": size, "error": abs(found - exact), "seconds": best})
    equal = next(grid for grid in grids if grid["error"] <= error)
    particles = {"error": error, "seconds": float(np.median(seconds)), "particles": PARTICLES}
    return {"model": name, "steps": STEPS, "particles": particles, "equal": equal, "grids": grids}


def particle_filter(
    x: Numbers, a: float, q: float, log_density: Callable[[float, Numbers], Numbers], rng: np.random.Generator
) -> float:
    """The bootstrap filter with systematic resampling at every step; the estimate of the log-likelihood."""
    state = rng.normal(size=PARTICLES) * q / math.sqrt(1 - a * a)
    total = 0.0
    for value in x:
        logs = log_density(value, state)
        top = logs.max()
        weights = np.exp(logs - top)
        total += top + math.log(weights.mean())
        places = (np.arange(PARTICLES) + rng.random()) / PARTICLES
        state = state[np.minimum(np.searchsorted(np.cumsum(weights / weights.sum()), places), PARTICLES - 1)]
        state = a * state + q * rng.normal(size=PARTICLES)
    return total


def _filter_line(row: dict[str, Any]) -> str:
    drawn, grid = row["particles"], row["equal"]
    return (
        f"{row['model']:22} {drawn['particles']:,} particles: error {drawn['error']:.3f}, {drawn['seconds']:.2f} s; "
        f"{grid['points']} points: error {grid['error']:.2g}, {grid['seconds']:.3f} s "
        f"({drawn['seconds'] / grid['seconds']:.0f} times as fast)"
    )


if __name__ == "__main__":
    main()
