# SPDX-License-Identifier: Apache-2.0
"""One model on one data set: load, learn the tree, train, test. Most experiments are lists of this."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

import picirc as pc
from harness import Context, Figures, Job, Settings
from picirc.data import Dataset
from stand_ins import cut, stand_in
from table_sets import NAMES as TABLES
from table_sets import TableSet, load_table

Model = pc.PIC | pc.HCLT | pc.TreeMixture | pc.Ensemble
Structure = pc.LatentTree | pc.RegionGraph
Inputs = pc.Family | Sequence[pc.Family]
CHECKPOINT_EVERY = 200  # steps; an interruption writes one too

RULES: Mapping[str, Callable[[int], Any]] = {
    "trapezoidal": pc.trapezoidal,
    "gauss_legendre": pc.gauss_legendre,
    "midpoint": pc.midpoint,
    "shifted": pc.shifted,
    "settling": partial(pc.shifted, settle=True),
}


def make_rule(settings: Settings, points: int) -> Any:
    """The rule of a model's settings with so many points; ``"sobol"`` has the dimensions of the model's latents."""
    if settings["rule"] == "sobol":
        return pc.shifted(pc.sobol(points, settings["options"]["dims"]))
    return RULES[settings["rule"]](points)


INPUTS: Mapping[str, Callable[[int], pc.Family]] = {
    "categorical": pc.Categorical,
    "binomial": lambda categories: pc.Binomial(categories - 1),
    "bernoulli": lambda categories: pc.Bernoulli(),
}


@dataclass(frozen=True, eq=False)
class Trained:
    """A model after training, and what it was trained on."""

    model: Model
    history: pc.History
    data: Dataset
    settings: Settings

    @property
    def rule(self) -> pc.Rule | None:
        """The rule to test with: that of the training, or ``finer`` times the points of a random one."""
        if self.settings["kind"] == "hclt":
            return None
        rule = make_rule(self.settings, self.settings["states"] * self.settings.get("finer", 1))
        return rule.rule if isinstance(rule, pc.RandomRule) else rule

    def qpc(self, rule: pc.Rule | None = None) -> pc.QPC:
        """The circuit, integrated with the rule to test with or another one."""
        with torch.no_grad():
            found: pc.QPC = self.model() if isinstance(self.model, pc.HCLT) else self.model(rule or self.rule)
        return found


Extra = Callable[[Trained, Figures, Context], Figures]


def density_job(key: str, settings: Settings, extra: Extra | None = None) -> Job:
    """A job that trains and tests a model; ``extra`` adds figures of its own.

    The settings are: ``data``, ``inputs``, ``structure``, ``states``, ``batch``, ``steps``, ``validate_every``,
    ``patience`` and ``seed``, and those of a model in ``models.toml``.
    """
    return Job(key, settings, partial(_estimate, extra=extra))


def model_jobs(settings: Settings, models: Mapping[str, Settings], extra: Extra | None = None) -> list[Job]:
    """A job for every combination of what the settings list.

    They are ordered by seed, then by size, so that a short budget gives all models at the small sizes. A size is a pair
    ``[N, B]``. Seeds after the first are for the sizes in ``repeated`` only. A model in ``only`` has its own sizes, and
    one seed.
    """
    combinations = product(*(settings[name] for name in ("seeds", "sizes", "data", "models")))
    found = []
    for seed, size, data, name in combinations:
        only = settings.get("only", {}).get(name)
        again = seed != settings["seeds"][0]
        if (again and (only or size not in settings["repeated"])) or (only and size not in only):
            continue
        states, batch = size
        own = {"data": data, "model": name, "states": states, "batch": batch, "seed": seed}
        own |= {"steps": settings["steps"][str(states)]} | settings["common"] | models[name]
        found.append(density_job(f"{data}-{name}-N{states}-B{batch}-seed{seed}", own, extra))
    return found


def listed_jobs(settings: Settings) -> list[Job]:
    """A job for every set and every model in ``models``, which has settings of its own; the first seed of all first."""
    return [
        density_job(
            f"{data}-{name}-seed{seed}", {**settings["common"], "data": data, "model": name, "seed": seed, **own}
        )
        for seed in settings["seeds"]
        for data in settings["data"]
        for name, own in settings["models"].items()
    ]


def load_data(name: str, quick: bool) -> Dataset:
    """A data set; in a trial a few rows of it, or something like it if its files are not there."""
    return _load(name, quick)


@lru_cache(maxsize=2)
def _load(name: str, quick: bool) -> Dataset:
    if name in TABLES:
        return cut(load_table(name)) if quick else load_table(name)
    if not quick:
        return pc.data.load(name)
    try:
        return cut(pc.data.load(name, download=False))
    except pc.ArgumentError as error:
        print(f"a stand-in for {name} ({error})")
        return cut(stand_in(name))


def make_structure(kind: str, data: Dataset, trees: Path) -> Structure:
    """A structure for a data set.

    Args:
        kind: ``"chow-liu"``, ``"chain"``, ``"star"``, ``"quad-graph"`` or ``"quad-tree"``.
        data: The data set; a tree is learned from its training part.
        trees: The folder that keeps learned trees, by the names of the data sets.
    """
    match kind:
        case "chow-liu":
            rows, variables = data.train.shape
            return learned_tree(data.train, trees / f"{data.name}-{rows}x{variables}.json")
        case "chain":
            return pc.chain(data.train.shape[1])
        case "star":
            return pc.star(data.train.shape[1])
        case "quad-graph" | "quad-tree":
            assert data.image_shape is not None, "images"
            return (pc.quad_graph if kind == "quad-graph" else pc.quad_tree)(*data.image_shape)
    raise ValueError(f"no structure of the kind {kind!r}")


def learned_tree(rows: Any, path: Path) -> pc.LatentTree:
    """The hidden Chow–Liu tree of some rows, learned once and kept in a file."""
    if not path.exists():
        tree = pc.hidden_chow_liu(rows)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial_path = path.with_suffix(f".{os.getpid()}")
        partial_path.write_text(json.dumps({"parents": tree.parents, "variables": tree.variables}))
        os.replace(partial_path, path)
    found = json.loads(path.read_text())
    return pc.LatentTree(found["parents"], found["variables"])


def make_inputs(data: Dataset, settings: Settings) -> Inputs:
    """The families of a table's columns if ``inputs`` is ``"schema"``, else one family for all variables."""
    if settings["inputs"] == "schema":
        assert isinstance(data, TableSet), data.name
        return data.families
    assert data.categories is not None, "only tables hold numbers"
    return INPUTS[settings["inputs"]](data.categories)


def build(structure: Structure, inputs: Inputs, settings: Settings) -> Model:
    """A model that has not learned anything yet.

    The ``spread`` of a table's first random numbers, the logarithms of probabilities up to a constant, is 1 by default.
    """
    generator = torch.Generator().manual_seed(settings["seed"])
    options = settings.get("options", {})
    if settings["kind"] == "hclt":
        tables = pc.HCLT(structure, inputs, settings["states"], generator=generator, **options)
        with torch.no_grad():
            for table in tables.parameters():
                table *= settings.get("spread", 1.0)
        return tables
    kind = pc.TreeMixture if settings["kind"] == "mixture" else pc.PIC
    return kind(structure, inputs, generator=generator, **options)


def train(model: Model, rows: Any, valid: Any, settings: Settings, **options: Any) -> tuple[Model, pc.History]:
    """Train by what the settings say, with further options of ``pc.fit``."""
    fit = dict(settings.get("fit", {}))
    schedule = fit.pop("schedule", None)  # by default that of the library
    if schedule is not None:
        steps = (schedule["high"], schedule["low"], schedule.get("period"), schedule.get("warmup", 0))
        options["schedule"] = pc.Cosine(*steps)
    options |= {
        **fit,
        "batch_size": settings["batch"],
        "steps": settings["steps"],
        "validate_every": settings["validate_every"],
        "patience": settings["patience"],
        "seed": settings["seed"],
    }
    if not isinstance(model, pc.HCLT):
        return pc.fit(model, rows, valid, rule=make_rule(settings, settings["states"]), **options)
    return (pc.fit_em if settings["learn"] == "em" else pc.fit)(model, rows, valid, **options)


def train_on(
    model: Model, rows: Any, valid: Any, settings: Settings, folder: Path, callbacks: Sequence[Any] = ()
) -> tuple[Model, pc.History]:
    """Train with checkpoints in a folder, and go on from the one that is there.

    Raises:
        KeyboardInterrupt: The training was interrupted; its checkpoint is written.
    """
    shown = [progress(settings["steps"]), *callbacks]
    options = {"out": folder, "resume": True, "checkpoint_every": CHECKPOINT_EVERY, "callbacks": shown}
    model, history = train(model, rows, valid, settings, **options)
    if history.stopped == "interrupted":
        raise KeyboardInterrupt
    return model, history


def progress(steps: int) -> Callable[[Mapping[str, float]], None]:
    """What is told of every validation."""
    return pc.Progress(steps)


def _estimate(settings: Settings, context: Context, extra: Extra | None) -> Figures:
    data = load_data(settings["data"], context.quick)
    structure = make_structure(settings["structure"], data, context.runs / "trees")
    model = build(structure, make_inputs(data, settings), settings)
    model, history = train_on(model, data.train, data.valid, settings, context.checkpoints)
    trained = Trained(model, history, data, settings)
    figures = figures_of(trained)
    return figures | (extra(trained, figures, context) if extra else {})


def figures_of(trained: Trained) -> Figures:
    """Test log-likelihood, bits per dimension, and how the training went."""
    started = time.perf_counter()
    log_likelihood = pc.mean_log_prob(trained.qpc(), trained.data.test)
    variables = trained.data.test.shape[1]
    last, best = trained.history.records[-1], trained.history.best
    return {
        "test": pc.bits_per_dimension(log_likelihood, variables),
        "test_log_likelihood": log_likelihood,
        "valid": best["bits"],
        "valid_log_likelihood": best["valid"],
        "best_step": best["step"],
        "steps": last["step"],
        "stopped": trained.history.stopped,
        "parameters": sum(parameter.numel() for parameter in trained.model.parameters()),
        "points": trained.settings["states"] if trained.rule is None else len(trained.rule),
        "train_seconds": round(last["seconds"], 2),
        "test_seconds": round(time.perf_counter() - started, 2),
    }
