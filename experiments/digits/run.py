# SPDX-License-Identifier: Apache-2.0
"""PICs against hidden Chow–Liu trees on the 8×8 digits: the same tree, the same number of states, the same search.

Every method gets six settings, tried with a seed of their own and compared on the validation digits. The best one is
trained again with the seeds that are reported, and only then are the test digits looked at. Each run is one line of
``search.jsonl`` or ``results.jsonl``; what was stopped goes on where it was, and at the end the table is printed.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch

import picirc as pc
from picirc.data import load

VALID_FRACTION = 0.15  # of the digits that are not for testing
SEARCH_SEED = 100
COMMON: dict[str, Any] = {"batch_size": 128, "validate_every": 50, "patience": 400, "steps": 1200}

Settings = Mapping[str, Any]
Trained = tuple[pc.PIC | pc.HCLT, pc.History]


@dataclass(frozen=True)
class Problem:
    """The digits, and the tree that all models share."""

    train: torch.Tensor
    valid: torch.Tensor
    test: torch.Tensor
    tree: pc.LatentTree
    inputs: pc.Family

    @staticmethod
    def make() -> Problem:
        """The same for every seed, so that seeds differ by initialisation and the order of the data alone."""
        digits = load("digits", valid_fraction=VALID_FRACTION)
        train, valid, test = (torch.as_tensor(part) for part in (digits.train, digits.valid, digits.test))
        return Problem(train, valid, test, pc.hidden_chow_liu(train), pc.Categorical(digits.categories))

    def bits(self, model: pc.PIC | pc.HCLT, states: int, rows: torch.Tensor) -> float:
        """Bits per dimension; a PIC is integrated with the number of points of its training."""
        with torch.no_grad():
            qpc = model() if isinstance(model, pc.HCLT) else model(pc.midpoint(states))
        return pc.bits_per_dimension(pc.mean_log_prob(qpc, rows), rows.shape[1])


def train_pic(problem: Problem, states: int, seed: int, high: float, weight_decay: float, sigma: float) -> Trained:
    """A PIC by AdamW whose points are shifted at random."""
    pic = pc.PIC(problem.tree, problem.inputs, 256, "composite", "full", sigma=sigma, generator=_source(seed))
    options = _by_adam(seed, high, weight_decay)
    return pc.fit(pic, problem.train, problem.valid, rule=pc.shifted(states), **options)


def train_em(problem: Problem, states: int, seed: int, high: float, smoothing: float) -> Trained:
    """An HCLT by mini-batch EM."""
    hclt = pc.HCLT(problem.tree, problem.inputs, states, generator=_source(seed))
    schedule = pc.Cosine(high, high / 30, None)
    return pc.fit_em(hclt, problem.train, problem.valid, schedule=schedule, smoothing=smoothing, seed=seed, **COMMON)


def train_adam(problem: Problem, states: int, seed: int, high: float, weight_decay: float) -> Trained:
    """An HCLT by AdamW."""
    hclt = pc.HCLT(problem.tree, problem.inputs, states, generator=_source(seed))
    return pc.fit(hclt, problem.train, problem.valid, **_by_adam(seed, high, weight_decay))


def _by_adam(seed: int, high: float, weight_decay: float) -> dict[str, Any]:
    schedule = pc.Cosine(high, high / 100, None, warmup=50)
    return {"optimizer": "adamw", "weight_decay": weight_decay, "schedule": schedule, "seed": seed, **COMMON}


def _source(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# A method, and the values of its settings; six combinations each.
METHODS: Mapping[str, tuple[Callable[..., Trained], Mapping[str, tuple[float, ...]]]] = {
    "PIC": (train_pic, {"high": (0.005, 0.01, 0.02), "weight_decay": (0.1,), "sigma": (1.0, 2.0)}),
    "HCLT EM": (train_em, {"high": (0.3, 0.6, 0.9), "smoothing": (0.1, 0.3)}),
    "HCLT Adam": (train_adam, {"high": (0.03, 0.1, 0.3), "weight_decay": (0.1, 0.5)}),
}


class Record:
    """Lines of JSON in a file, one for each run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def once(self, key: Settings, run: Callable[[], Settings]) -> None:
        """Run what has no line yet, and add its line."""
        if any(all(line.get(name) == value for name, value in key.items()) for line in self.lines):
            return
        started = time.perf_counter()
        line = {**key, **run(), "seconds": round(time.perf_counter() - started, 1)}
        self.lines.append(line)
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(line, flush=True)

    def of(self, method: str, states: int) -> list[dict[str, Any]]:
        """The lines of a method at one size."""
        return [line for line in self.lines if (line["method"], line["states"]) == (method, states)]


def search(problem: Problem, method: str, states: int, record: Record) -> Settings:
    """The settings that did best on the validation digits."""
    train, choices = METHODS[method]
    for values in product(*choices.values()):
        settings = dict(zip(choices, values, strict=True))

        def run(settings: Settings = settings) -> Settings:
            model, history = train(problem, states, SEARCH_SEED, **settings)
            return {"valid": problem.bits(model, states, problem.valid), "best_step": history.best["step"]}

        record.once({"method": method, "states": states, "settings": settings}, run)
    best = min(record.of(method, states), key=lambda line: line["valid"])
    chosen: Settings = best["settings"]
    return chosen


def report(problem: Problem, method: str, states: int, settings: Settings, seeds: int, record: Record) -> None:
    """Train with the seeds that count, and look at the test digits."""
    for seed in range(seeds):

        def run(seed: int = seed) -> Settings:
            model, history = METHODS[method][0](problem, states, seed, **settings)
            size = sum(parameter.numel() for parameter in model.parameters())
            found = {part: problem.bits(model, states, getattr(problem, part)) for part in ("valid", "test")}
            return {**found, "best_step": history.best["step"], "parameters": size}

        record.once({"method": method, "states": states, "seed": seed, "settings": dict(settings)}, run)


def table(record: Record, sizes: list[int]) -> str:
    """Mean and standard deviation of the test bits per dimension over the seeds, in Markdown."""
    rows = ["| | " + " | ".join(f"N = {n}" for n in sizes) + " |", "|---" * (1 + len(sizes)) + "|"]
    for method in METHODS:
        cells = []
        for states in sizes:
            values = [line["test"] for line in record.of(method, states)]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            cells.append(f"{statistics.mean(values):.4f} ± {spread:.4f}")
        rows.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--states", type=int, nargs="+", default=[16, 32])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.out.mkdir(parents=True, exist_ok=True)
    tried, found = Record(args.out / "search.jsonl"), Record(args.out / "results.jsonl")
    problem = Problem.make()
    for states, method in product(args.states, METHODS):
        settings = search(problem, method, states, tried)
        report(problem, method, states, settings, args.seeds, found)
    origin = {
        "command": shlex.join(["python", "experiments/digits/run.py", *sys.argv[1:]]),
        "seeds": {"search": SEARCH_SEED, "reported": list(range(args.seeds))},
        "configuration": {"valid_fraction": VALID_FRACTION, "threads": args.threads, **COMMON},
        "versions": {"picirc": pc.__version__, "torch": torch.__version__, "python": platform.python_version()},
        "seconds": round(sum(line["seconds"] for line in tried.lines + found.lines), 1),
    }
    (args.out / "run.json").write_text(json.dumps(origin, indent=2) + "\n")
    print(table(found, args.states))


if __name__ == "__main__":
    main()
