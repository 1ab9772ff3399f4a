"""PICs against hidden Chow–Liu trees on the 8×8 digits: the same tree, the same number of states, several seeds.

Each method has the settings, of those tried, that did best on the validation digits with seed 0; the test digits are
looked at once, after training. Each run is one line of ``results.jsonl``; a run that was stopped goes on where it was,
and at the end the table is printed.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

import picirc as pc
from picirc.data import load

VALID_FRACTION = 0.15  # of the digits that are not for testing
WIDTH = 64
COMMON: dict[str, Any] = {"batch_size": 128, "validate_every": 50, "patience": 400}

Score = dict[str, float]


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

    def bits(self, qpc: pc.QPC) -> float:
        """Bits per dimension of the test digits."""
        return pc.bits_per_dimension(pc.mean_log_prob(qpc, self.test), self.test.shape[1])


def by_adam(seed: int, high: float, weight_decay: float, steps: int) -> dict[str, Any]:
    """Options of ``pc.fit``."""
    schedule = pc.Cosine(high, high / 100, None)
    return {
        "optimizer": "adamw",
        "weight_decay": weight_decay,
        "schedule": schedule,
        "steps": steps,
        "seed": seed,
    } | COMMON


def train_pic(
    problem: Problem, states: int, seed: int, sharing: str, inputs: str, high: float, weight_decay: float, steps: int
) -> Score:
    """A PIC by AdamW whose points are shifted at random; tested with as many points, and with twice as many."""
    generator = torch.Generator().manual_seed(seed)
    pic = pc.PIC(problem.tree, problem.inputs, WIDTH, sharing=sharing, input_sharing=inputs, generator=generator)
    options = by_adam(seed, high, weight_decay, steps)
    pic, history = pc.fit(pic, problem.train, problem.valid, rule=pc.shifted(states), **options)
    with torch.no_grad():
        test, finer = (problem.bits(pic(pc.midpoint(n))) for n in (states, 2 * states))
    return _score(pic, history, test) | {"finer": finer}


def train_em(problem: Problem, states: int, seed: int, high: float, smoothing: float, steps: int) -> Score:
    """An HCLT by mini-batch EM."""
    hclt = pc.HCLT(problem.tree, problem.inputs, states, generator=torch.Generator().manual_seed(seed))
    schedule = pc.Cosine(high, high / 30, None)
    hclt, history = pc.fit_em(
        hclt, problem.train, problem.valid, schedule=schedule, smoothing=smoothing, steps=steps, seed=seed, **COMMON
    )
    return _score(hclt, history, problem.bits(hclt()))


def train_adam(problem: Problem, states: int, seed: int, high: float, weight_decay: float, steps: int) -> Score:
    """An HCLT by AdamW."""
    hclt = pc.HCLT(problem.tree, problem.inputs, states, generator=torch.Generator().manual_seed(seed))
    hclt, history = pc.fit(hclt, problem.train, problem.valid, **by_adam(seed, high, weight_decay, steps))
    return _score(hclt, history, problem.bits(hclt()))


def _score(model: torch.nn.Module, history: pc.History, test: float) -> Score:
    size = sum(parameter.numel() for parameter in model.parameters())
    return {"test": test, "valid": history.best["bits"], "best_step": history.best["step"], "parameters": size}


METHODS: Mapping[str, partial[Score]] = {
    "PIC composite/full": partial(
        train_pic, sharing="composite", inputs="full", high=0.02, weight_decay=0.0, steps=1500
    ),
    "PIC composite/composite": partial(
        train_pic, sharing="composite", inputs="composite", high=0.02, weight_decay=0.1, steps=1500
    ),
    "PIC none/none": partial(train_pic, sharing="none", inputs="none", high=0.01, weight_decay=0.3, steps=800),
    "HCLT EM": partial(train_em, high=0.6, smoothing=0.2, steps=1000),
    "HCLT Adam": partial(train_adam, high=0.1, weight_decay=0.1, steps=600),
}


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The results so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def plan(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What has to be run: all methods for one seed, then for the next."""
    for seed in range(args.seeds):
        for states in args.states:
            for method in args.methods:
                yield {"method": method, "states": states, "seed": seed}


def run_all(args: argparse.Namespace, path: Path) -> None:
    """Add the lines that are missing."""
    problem = Problem.make()
    done = [{key: line[key] for key in ("method", "states", "seed")} for line in read_lines(path)]
    for run in plan(args):
        if run in done:
            continue
        started = time.perf_counter()
        method = METHODS[run["method"]]
        score = method(problem, run["states"], run["seed"])
        line = run | score | {"settings": method.keywords, "seconds": round(time.perf_counter() - started, 1)}
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{run['method']:24s} N={run['states']:<3d} seed {run['seed']}: {score['test']:.4f} bits", flush=True)


def table(lines: list[dict[str, Any]], args: argparse.Namespace) -> str:
    """Mean and standard deviation of the test bits per dimension over the seeds."""
    rows = [f"{'method':26s}" + "".join(f"{f'N = {n}':>18s}{'2N points':>18s}" for n in args.states)]
    for method in args.methods:
        cells = ""
        for n in args.states:
            own = [line for line in lines if line["method"] == method and line["states"] == n]
            for key in ("test", "finer"):
                values = [line[key] for line in own if key in line]
                spread = statistics.stdev(values) if len(values) > 1 else 0.0
                cells += f"{f'{statistics.mean(values):.4f} ± {spread:.4f}':>18s}" if values else f"{'':18s}"
        rows.append(f"{method:26s}{cells}")
    return "\n".join(rows)


def describe(args: argparse.Namespace, lines: list[dict[str, Any]]) -> dict[str, Any]:
    """How the results were made."""
    return {
        "command": shlex.join(["python", "experiments/digits/run.py", *sys.argv[1:]]),
        "seeds": list(range(args.seeds)),
        "configuration": {
            "states": args.states,
            "valid_fraction": VALID_FRACTION,
            "width": WIDTH,
            "threads": args.threads,
            "methods": {name: METHODS[name].keywords for name in args.methods},
            **COMMON,
        },
        "versions": {"picirc": pc.__version__, "torch": torch.__version__, "python": platform.python_version()},
        "seconds": round(sum(line["seconds"] for line in lines), 1),
    }


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--states", type=int, nargs="+", default=[16, 32])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "results.jsonl"
    run_all(args, path)
    lines = read_lines(path)
    (args.out / "run.json").write_text(json.dumps(describe(args, lines), indent=2) + "\n")
    print(table(lines, args))


if __name__ == "__main__":
    main()
