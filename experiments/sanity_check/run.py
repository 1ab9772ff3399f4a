# SPDX-License-Identifier: Apache-2.0
"""The paper's sanity check (§4.1, Figure 3): how well does quadrature approximate linear-Gaussian trees?

Random trees of 128 latents with one observed variable each have a closed-form likelihood. Their QPCs are
compared with it in three studies: over the number of points, over the size of the coefficients, and over the
width of the integration domain. Each model and study is one line of ``results.jsonl``; a run that was stopped
goes on where it was, and when all lines are there the table and the figures are drawn.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import figures
import numpy as np
import torch

import picirc as pc

LATENTS = 128  # with one observed variable each: 256 nodes
RANGE = 2.0  # coefficients are uniform in [-RANGE, RANGE]
BIAS = 1.0  # biases are uniform in [-BIAS, BIAS]
STDS = (0.5, 1.5)  # standard deviations of the noise are uniform between these

RULES: Mapping[str, Callable[[int], pc.Rule]] = {
    "midpoint": pc.midpoint,
    "trapezoidal": pc.trapezoidal,
    "Simpson": lambda n: pc.simpson(n + 1),  # needs an odd number of points
    "Gauss–Legendre": pc.gauss_legendre,
    "Clenshaw–Curtis": pc.clenshaw_curtis,
    "Gauss–Hermite": pc.gauss_hermite,
}
DOMAINS = ("worst", "marginal")
SIGMAS = {"worst": 3.0, "marginal": 6.0}  # the paper's choice, and one whose ends cost nothing up to N = 256


@dataclass(frozen=True)
class Problem:
    """A circuit, data drawn from it, and their exact log-likelihood."""

    circuit: pc.Circuit
    x: torch.Tensor
    exact: torch.Tensor

    def mse(self, rule: pc.Rule, domain: str, sigmas: float | None = None) -> float:
        """The mean squared error of the QPC's log-likelihood; infinite if a sample gets probability zero."""
        qpc = self.circuit.integrate(rule, domain=domain, sigmas=sigmas or SIGMAS[domain])
        return float((qpc.log_prob(self.x) - self.exact).square().mean())


@dataclass(frozen=True)
class Study:
    """Curves of the MSE: ``evaluate`` gives the value of each series at one of the ``xs``."""

    xs: Sequence[float]
    evaluate: Callable[[Callable[[float], Problem], float], dict[str, float]]
    models: float = math.inf  # at most so many, where fewer are enough

    def run(self, make: Callable[[float], Problem]) -> dict[str, list[float]]:
        """All series of one model; ``make`` gives the model for a range of coefficients."""
        columns = [self.evaluate(make, x) for x in self.xs]
        return {name: [column[name] for column in columns] for name in columns[0]}


def by_points(make: Callable[[float], Problem], n: float) -> dict[str, float]:
    """Every rule on both domains; Gauss–Hermite has no interval and is placed at the marginal moments."""
    problem = make(RANGE)
    pairs = [(rule, domain) for rule in RULES for domain in DOMAINS]
    pairs.remove(("Gauss–Hermite", "worst"))
    return {f"{rule}, {domain}": problem.mse(RULES[rule](int(n)), domain) for rule, domain in pairs}


def by_coefficients(make: Callable[[float], Problem], largest: float) -> dict[str, float]:
    """The same trees, noise and biases with smaller and larger coefficients."""
    problem = make(largest)
    pairs = [(domain, n) for domain in DOMAINS for n in (64, 128)]
    return {f"{domain}, N = {n}": problem.mse(pc.trapezoidal(n), domain) for domain, n in pairs}


def by_sigmas(make: Callable[[float], Problem], sigmas: float) -> dict[str, float]:
    """Wider intervals lose less at their ends and have fewer points inside."""
    problem = make(RANGE)
    pairs = [(rule, n) for rule in ("trapezoidal", "Gauss–Legendre") for n in (16, 32, 64, 128)]
    return {f"{rule}, N = {n}": problem.mse(RULES[rule](n), "marginal", sigmas) for rule, n in pairs}


STUDIES = {
    "points": Study((4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256), by_points),
    "coefficients": Study((0.5, 1, 1.5, 2, 2.5, 3, 4), by_coefficients),
    "sigmas": Study((3, 4, 5, 6, 7, 8), by_sigmas, models=10),
}


def random_network(rng: np.random.Generator, largest: float) -> pc.BayesNet:
    """A random linear-Gaussian latent tree; ``largest`` only scales the coefficients."""
    tree = pc.random_tree(LATENTS, rng)

    def conditional(parent: str | None) -> pc.LinearGaussian:
        coefficient, bias, std = rng.uniform(-1, 1), rng.uniform(-BIAS, BIAS), rng.uniform(*STDS)
        return pc.LinearGaussian({parent: largest * coefficient} if parent else {}, bias, std)

    net = pc.BayesNet()
    for i, parent in enumerate(tree.parents):
        net.latent(f"z{i}", conditional(f"z{parent}" if parent >= 0 else None))
        net.observed(f"x{i}", conditional(f"z{i}"))
    return net


def make_problem(seed: int, model: int, samples: int, largest: float) -> Problem:
    """Model number ``model``, with data from its closed form."""
    rng = np.random.default_rng([seed, model])
    circuit = pc.from_bayesnet(random_network(rng, largest))
    exact = circuit.exact()
    x = exact.sample(samples, torch.Generator().manual_seed(int(rng.integers(2**31))))
    return Problem(circuit, x, exact.log_prob(x))


def run_model(name: str, model: int, seed: int, samples: int) -> dict[str, Any]:
    """One line of the results; numbers that JSON does not know (infinity) become null."""
    start = time.perf_counter()
    made: dict[float, Problem] = {}

    def make(largest: float) -> Problem:
        if largest not in made:
            made.clear()  # the studies use one range after the other
            made[largest] = make_problem(seed, model, samples, largest)
        return made[largest]

    series = STUDIES[name].run(make)
    mse = {key: [float(f"{y:.4g}") if math.isfinite(y) else None for y in ys] for key, ys in series.items()}
    return {"study": name, "model": model, "mse": mse, "seconds": round(time.perf_counter() - start, 2)}


def nested_sizes(seed: int, models: int) -> dict[str, str]:
    """The largest tensor that nested quadrature would need for one data point: smallest and largest model."""
    rngs = [np.random.default_rng([seed, model]) for model in range(models)]
    circuits = [pc.from_bayesnet(random_network(rng, RANGE)) for rng in rngs]
    sizes = {n: [c.cost(pc.gauss_hermite(n), nested=True).largest for c in circuits] for n in (4, 8, 16, 64)}
    return {f"N = {n}": f"{min(found):.2g} to {max(found):.2g} numbers" for n, found in sizes.items()}


def configuration(args: argparse.Namespace) -> dict[str, object]:
    """What the results depend on; a directory holds results of one configuration only."""
    return {
        "seed": args.seed,
        "samples": args.samples,
        "latents": LATENTS,
        "coefficients": [-RANGE, RANGE],
        "biases": [-BIAS, BIAS],
        "stds": list(STDS),
        "sigmas": SIGMAS,
        "xs": {name: list(study.xs) for name, study in STUDIES.items()},
    }


def revision() -> str:
    """The commit of the code."""
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def describe(args: argparse.Namespace, lines: Sequence[Mapping[str, Any]]) -> dict[str, object]:
    """How the results were made."""
    return {
        "command": f"python experiments/sanity_check/run.py --models {args.models} --samples {args.samples} "
        f"--seed {args.seed} --threads {args.threads}",
        "configuration": configuration(args),
        "revisions": sorted({line["revision"] for line in lines}),
        "versions": {"picirc": pc.__version__, "torch": torch.__version__, "python": platform.python_version()},
        "date": date.today().isoformat(),
        "seconds": round(sum(line["seconds"] for line in lines), 1),
    }


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The results so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def check_configuration(args: argparse.Namespace) -> None:
    """Refuse to mix results of two configurations."""
    described = args.out / "run.json"
    if described.exists():
        old = json.loads(described.read_text())["configuration"]
        if old != configuration(args):
            raise SystemExit(f"{args.out} holds results of another configuration; remove it or choose another --out")
    else:
        described.write_text(json.dumps(describe(args, []), indent=2) + "\n")


def run_all(args: argparse.Namespace, path: Path) -> bool:
    """Add the lines that are missing until the time is over; whether all are there."""
    deadline = time.monotonic() + 60 * args.minutes
    commit = revision()  # of the code in memory, whatever happens to the files meanwhile
    done = {(line["study"], line["model"]) for line in read_lines(path)}
    for model in range(args.models):
        for name in STUDIES:
            if (name, model) in done or model >= STUDIES[name].models:
                continue
            if time.monotonic() > deadline:
                return False
            line = run_model(name, model, args.seed, args.samples) | {"revision": commit}
            with path.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(f"model {model + 1:3d} of {args.models}  {name:13s} {line['seconds']:6.1f} s", flush=True)
    return True


def main() -> None:
    """Run what is missing, then write the table and the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=50)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after this; run again to go on")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    # Densities far from their mean are subnormal numbers, which processors multiply many times more slowly;
    # to take them as zero changes no digit of the results.
    torch.set_flush_denormal(True)
    args.out.mkdir(parents=True, exist_ok=True)
    check_configuration(args)
    path = args.out / "results.jsonl"
    if not run_all(args, path):
        print("stopped after the time given; run again to go on")
        return
    lines = [line for line in read_lines(path) if line["model"] < args.models]
    about = describe(args, lines) | {"nested": nested_sizes(args.seed, args.models)}
    (args.out / "run.json").write_text(json.dumps(about, indent=2) + "\n")
    figures.write(lines, {name: study.xs for name, study in STUDIES.items()}, args.out)
    print(f"{about['seconds']:.0f} seconds of computation; table and figures in {args.out}")


if __name__ == "__main__":
    main()
