"""The best model in about two hours: recipes compared on validation, the test images looked at once, at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

import picirc as pc
from best.averaged import AveragedPIC
from best.mixture import Mixture, clusters, component_logs, fitted_weights
from best.recipes import RECIPES, Recipe, Stage
from best.recipes import quick as small
from best.warm import begin_with
from density import Structure, learned_tree, load_data, make_structure, train_on
from harness import Desk, Figures, Job, Record, Settings, read_records
from picirc.data import Dataset
from plots import BLUE, NAMES, bars, canvas

PLACE = "Figure 5, table"
PUBLISHED = {
    "mnist": {
        "QPC (paper)": 1.18,
        "HCLT (paper)": 1.21,
        "SparsePC": 1.14,
        "RAT-SPN": 1.67,
        "IDF": 1.90,
        "BitSwap": 1.27,
        "BB-ANS": 1.39,
        "McBits": 1.98,
    },
    "fashion-mnist": {
        "QPC (paper)": 3.27,
        "HCLT (paper)": 3.34,
        "SparsePC": 3.27,
        "RAT-SPN": 4.29,
        "IDF": 3.47,
        "BitSwap": 3.28,
        "BB-ANS": 3.66,
        "McBits": 3.72,
    },
}
PAPER = "MNIST 1.18, Fashion-MNIST 3.27 (SparsePC 1.14, 3.27)"
WEIGHING_ROWS = 5000  # training rows that the weights of a mixture are fitted on


def jobs(quick: bool) -> list[Job]:
    """A job for every recipe, which sees no test image, and those that test the chosen ones."""
    found = []
    for data in list(RECIPES)[:1] if quick else RECIPES:
        for test, recipes in RECIPES[data].items():
            own = [_job(data, name, small(recipe) if quick else recipe) for name, recipe in recipes.items()]
            candidates = {job.key: job.digest for job in own}
            settings = {"data": data, "test": test, "candidates": candidates}
            found += [*own, Job(f"{data}-{test}", settings, choose, candidates)]
    return found


def _job(data: str, name: str, recipe: Recipe) -> Job:
    stages = {part: [asdict(stage) for stage in getattr(recipe, part)] for part in ("start", "stages")}
    return Job(f"{data}-{name}", {"data": data, "recipe": name, **asdict(recipe), **stages}, learn)


def learn(settings: Settings, desk: Desk) -> Figures:
    """Train the components one after the other, weigh them, and keep the mixture."""
    recipe = Recipe.read(settings)
    data = load_data(settings["data"], desk.quick)
    labels, valid_labels = clusters((data.train, data.valid), recipe.components, recipe.seed)
    first, seconds = _start(recipe, data, desk)
    components = []
    for number in range(recipe.components):
        rows, valid = data.train[labels == number], data.valid[valid_labels == number]
        make = partial(_model, recipe, data, _structure(recipe, data, rows, desk, number))
        component, spent = _train(make, rows, valid, recipe, recipe.stages, first, desk.checkpoints / str(number))
        components.append(component)
        seconds += spent
    chosen = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(recipe.seed))[:WEIGHING_ROWS]
    weights = fitted_weights(component_logs(components, data.train[chosen.numpy()], recipe.points))
    mixture = Mixture(tuple(components), weights, recipe.points)
    folder = desk.runs / "models" / desk.checkpoints.name
    mixture.save(folder)
    return {
        "valid": pc.bits_per_dimension(mixture.mean_log_prob(data.valid), data.valid.shape[1]),
        "weights": weights,
        "points": recipe.points,
        "parameters": sum(p.numel() for component in components for p in component.parameters()),
        "train_seconds": round(seconds, 2),
        "model": folder.name,
    }


def choose(settings: Settings, desk: Desk) -> Figures:
    """Test the model that is best on validation."""
    found = {(record["key"], record["digest"]): record for record in read_records(desk.folder)}
    candidates = {key: found[key, digest] for key, digest in settings["candidates"].items()}
    valid = {key: record["figures"]["valid"] for key, record in candidates.items()}
    best = min(valid, key=lambda key: float(valid[key]))
    data = load_data(settings["data"], desk.quick)
    mixture = Mixture.load(desk.runs / "models" / candidates[best]["figures"]["model"])
    bits = pc.bits_per_dimension(mixture.mean_log_prob(data.test), data.test.shape[1])
    return {"chosen": best, "valid": valid, "test": bits, "train_seconds": candidates[best]["seconds"]}


def _start(recipe: Recipe, data: Dataset, desk: Desk) -> tuple[pc.PIC | None, float]:
    """One PIC of all images, if the recipe has one, and the seconds of its training."""
    if not recipe.start:
        return None, 0.0
    make = partial(_model, recipe, data, make_structure(recipe.structure, data, desk.runs / "trees"))
    return _train(make, data.train, data.valid, recipe, recipe.start, None, desk.checkpoints / "start")


def _train(
    make: Callable[[], pc.PIC],
    rows: Any,
    valid: Any,
    recipe: Recipe,
    stages: Sequence[Stage],
    first: pc.PIC | None,
    folder: Path,
) -> tuple[pc.PIC, float]:
    """A PIC after some stages, with its averaged weights if it has them, and their seconds.

    Args:
        make: Makes a PIC that has not learned anything yet.
        rows: The images.
        valid: Those for validation.
        recipe: The recipe.
        stages: The stages.
        first: A PIC whose nets it begins with, or None.
        folder: For the checkpoints.
    """
    seconds, found = 0.0, first
    for number, stage in enumerate(stages):
        model = make()
        if found is not None:
            begin_with(model, found)
        trained, history = train_on(model, rows, valid, _fit_settings(recipe, stage), folder / str(number))
        assert isinstance(trained, pc.PIC)
        found = trained.plain() if isinstance(trained, AveragedPIC) else trained
        seconds += history.records[-1]["seconds"]
    assert found is not None, "at least one stage"
    return found, seconds


def _structure(recipe: Recipe, data: Dataset, rows: object, desk: Desk, number: int) -> Structure:
    if recipe.structure == "chow-liu" and recipe.components > 1:
        name = f"{data.name}-{len(data.train)}-seed{recipe.seed}-{number}of{recipe.components}.json"
        return learned_tree(rows, desk.runs / "trees" / name)
    return make_structure(recipe.structure, data, desk.runs / "trees")


def _model(recipe: Recipe, data: Dataset, structure: Structure) -> pc.PIC:
    options: dict[str, Any] = {name: getattr(recipe, name) for name in ("width", "sigma", "sharing", "input_sharing")}
    options["generator"] = torch.Generator().manual_seed(recipe.seed)
    inputs = pc.Categorical(data.categories)
    if recipe.decay:
        return AveragedPIC(recipe.decay, structure, inputs, **options)
    return pc.PIC(structure, inputs, **options)


def _fit_settings(recipe: Recipe, stage: Stage) -> Settings:
    """The settings that ``density.train`` reads."""
    schedule = {"high": stage.high, "low": stage.high / 100, "warmup": min(50, stage.steps // 10)}
    fit = {"schedule": schedule, "optimizer": recipe.optimizer, "weight_decay": recipe.weight_decay}
    names = ("batch", "validate_every", "patience", "seed")
    own = {name: getattr(recipe, name) for name in names}
    return {"rule": "shifted", "fit": fit, "states": stage.states, "steps": stage.steps, **own}


def draw(records: Sequence[Record], folder: Path) -> None:
    """Bars: ours beside the published, one panel a data set."""
    tests = [record for record in records if "test" in record["figures"]]
    names = list(dict.fromkeys(record["settings"]["data"] for record in tests))
    if not tests:
        return
    with canvas(folder / "best.png", 1, len(names), 4.6 * len(names), 3.2) as panels:
        for panel, data in zip(panels[0], names, strict=True):
            own = sorted((r["figures"]["test"], _label(r)) for r in tests if r["settings"]["data"] == data)
            values = {label: bits for bits, label in own} | PUBLISHED[data]
            bars(panel, values, [BLUE] * len(own), "test bits per dimension")
            panel.set_title(NAMES[data], fontsize=9.5)


def summary(records: Sequence[Record]) -> str:
    """The tested models."""
    return "; ".join(
        f"{NAMES[r['settings']['data']]} {r['figures']['test']:.3f} ({_label(r)})"
        for r in records
        if "test" in r["figures"]
    )


def _label(test: Record) -> str:
    """The recipe that was chosen, and the minutes that it took."""
    figures = test["figures"]
    name = figures["chosen"].removeprefix(f"{test['settings']['data']}-")
    return f"picirc, {name}, {figures['train_seconds'] / 60:.0f} min"


def rows(records: Sequence[Record]) -> list[list[str]]:
    """Validation bits of all recipes, test bits of the chosen."""
    tested = {r["figures"]["chosen"]: r["figures"]["test"] for r in records if "test" in r["figures"]}
    table = [["recipe", "PICs", "at the start", "each", "points of the test", "minutes", "validation", "test"]]
    for record in records:
        settings, figures = record["settings"], record["figures"]
        if "test" in figures:
            continue
        test = f"**{tested[record['key']]:.3f}**" if record["key"] in tested else ""
        stages = [_stages(settings[name]) for name in ("start", "stages")]
        sizes = [str(settings["components"]), *stages, str(settings["points"])]
        table.append([record["key"], *sizes, f"{record['seconds'] / 60:.0f}", f"{figures['valid']:.3f}", test])
    return table


def _stages(found: Sequence[Record]) -> str:
    return ", then ".join(f"{stage['steps']} steps with N = {stage['states']}" for stage in found)
