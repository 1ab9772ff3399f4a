"""The best model in about two hours: recipes compared on validation, the test images looked at once, at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import picirc as pc
from best.averaged import AveragedPIC
from best.mixture import Mixture, clusters, component_logs, fitted_weights
from best.recipes import DATA, QUICK, RECIPES, Recipe
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
    """A job for every recipe, which sees no test image, and one that tests the chosen."""
    recipes = QUICK if quick else RECIPES
    found = []
    for data in DATA[:1] if quick else DATA:
        own = [
            Job(f"{data}-{name}", {"data": data, "recipe": name, "seed": recipe.seed, **asdict(recipe)}, learn)
            for name, recipe in recipes.items()
        ]
        candidates = {job.key: job.digest for job in own}
        found += [*own, Job(f"{data}-test", {"data": data, "candidates": candidates}, choose, candidates)]
    return found


def learn(settings: Settings, desk: Desk) -> Figures:
    """Train the components one after the other, weigh them, and keep the mixture."""
    recipe = Recipe(**{name: value for name, value in settings.items() if name not in ("data", "recipe")})
    data = load_data(settings["data"], desk.quick)
    cluster, valid_cluster = clusters((data.train, data.valid), recipe.components, recipe.seed)
    components, seconds = [], 0.0
    for number in range(recipe.components):
        rows, valid = data.train[cluster == number], data.valid[valid_cluster == number]
        structure = _structure(recipe, data, rows, desk, number)
        folder = desk.checkpoints / str(number)
        model, history = train_on(_model(recipe, data, structure), rows, valid, _fit_settings(recipe), folder)
        assert isinstance(model, pc.PIC)
        components.append(model.plain() if isinstance(model, AveragedPIC) else model)
        seconds += history.records[-1]["seconds"]
    chosen = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(recipe.seed))[:WEIGHING_ROWS]
    points = recipe.finer * recipe.states
    weights = fitted_weights(component_logs(components, data.train[chosen.numpy()], points))
    mixture = Mixture(tuple(components), weights, points)
    folder = desk.runs / "models" / desk.checkpoints.name
    mixture.save(folder)
    return {
        "valid": pc.bits_per_dimension(mixture.mean_log_prob(data.valid), data.valid.shape[1]),
        "weights": weights,
        "points": points,
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


def _fit_settings(recipe: Recipe) -> Settings:
    """The settings that ``density.train`` reads."""
    schedule = {"high": recipe.high, "low": recipe.low, "warmup": 50}
    fit = {"schedule": schedule, "optimizer": recipe.optimizer, "weight_decay": recipe.weight_decay}
    names = ("states", "batch", "steps", "validate_every", "patience", "seed")
    return {"rule": "shifted", "fit": fit, **{name: getattr(recipe, name) for name in names}}


def draw(records: Sequence[Record], folder: Path) -> None:
    """Bars: ours beside the published."""
    tests = [record for record in records if "test" in record["figures"]]
    if not tests:
        return
    with canvas(folder / "best.png", 1, len(tests), 4.2 * len(tests), 3.2) as panels:
        for panel, record in zip(panels[0], tests, strict=True):
            data = record["settings"]["data"]
            bars(panel, {"picirc": record["figures"]["test"], **PUBLISHED[data]}, [BLUE], "test bits per dimension")
            panel.set_title(NAMES[data], fontsize=9.5)


def summary(records: Sequence[Record]) -> str:
    """The tested models."""
    return "; ".join(
        f"{NAMES[r['settings']['data']]} {r['figures']['test']:.3f} ({r['figures']['chosen']}, "
        f"{r['figures']['train_seconds'] / 3600:.1f} h)"
        for r in records
        if "test" in r["figures"]
    )


def rows(records: Sequence[Record]) -> list[list[str]]:
    """Validation bits of all recipes, test bits of the chosen."""
    tested = {r["figures"]["chosen"]: r["figures"]["test"] for r in records if "test" in r["figures"]}
    table = [["recipe", "structure", "PICs", "N", "width", "steps", "hours", "validation", "test"]]
    for record in records:
        settings, figures = record["settings"], record["figures"]
        if "test" in figures:
            continue
        test = f"**{tested[record['key']]:.3f}**" if record["key"] in tested else ""
        sizes = [str(settings[name]) for name in ("structure", "components", "states", "width", "steps")]
        table.append([record["key"], *sizes, f"{record['seconds'] / 3600:.2f}", f"{figures['valid']:.3f}", test])
    return table
