"""The best model in about two hours: recipes compared on validation, the test images looked at once, at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import picirc as pc
from best.averaged import AveragedPIC
from best.mixture import Mixture, clusters
from best.parts import Part, split
from best.recipes import RECIPES, Recipe, Stage
from best.recipes import quick as small
from best.warm import begin_with
from density import Structure, learned_tree, load_data, make_structure, train_on
from harness import Context, Figures, Job, Record, Settings, read_records
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
    found: dict[str, Job] = {}
    for data in list(RECIPES)[:1] if quick else RECIPES:
        for test, recipes in RECIPES[data].items():
            own = [_job(data, name, small(recipe) if quick else recipe, found) for name, recipe in recipes.items()]
            candidates = {job.key: job.digest for job in own}
            settings = {"data": data, "test": test, "candidates": candidates}
            found |= {job.key: job for job in [*own, Job(f"{data}-{test}", settings, choose, candidates)]}
    return list(found.values())


def _job(data: str, name: str, recipe: Recipe, others: Mapping[str, Job]) -> Job:
    """The job of a recipe, which may need one of the others."""
    settings = {"data": data, "recipe": name, **recipe.settings()}
    if not recipe.after:
        return Job(f"{data}-{name}", settings, learn)
    needed = others[f"{data}-{recipe.after}"]
    needs = {needed.key: needed.digest}
    return Job(f"{data}-{name}", {**settings, "needs": needs}, learn, needs)


def learn(settings: Settings, context: Context) -> Figures:
    """Train the components one after the other, weigh them, and keep the mixture."""
    recipe = Recipe.read(settings)
    data = load_data(settings["data"], context.quick)
    if recipe.after:
        (before,) = _records(settings["needs"], context)
        parts, seconds = split(_mixture(before, context), data, recipe), 0.0
    else:
        first, seconds = _start(recipe, data, context)
        parts = _clustered(recipe, data, first, context)
    components = []
    for number, part in enumerate(parts):
        component, spent = _train(part, recipe, recipe.stages, data, context.checkpoints / str(number))
        components.append(component)
        seconds += spent
    chosen = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(recipe.seed))[:WEIGHING_ROWS]
    even = (1 / len(components),) * len(components)
    mixture = Mixture(tuple(components), even, recipe.points, data.image_shape or (), recipe.reach)
    mixture = mixture.weighed(data.train[chosen.numpy()])
    folder = context.runs / "models" / context.checkpoints.name
    mixture.save(folder)
    return {
        "valid": pc.bits_per_dimension(mixture.mean_log_prob(data.valid), data.valid.shape[1]),
        "weights": mixture.weights,
        "points": recipe.points,
        "parameters": sum(p.numel() for component in components for p in component.parameters()),
        "train_seconds": round(seconds, 2),
        "seconds_before": before["seconds"] if recipe.after else 0.0,
        "model": folder.name,
    }


def choose(settings: Settings, context: Context) -> Figures:
    """Test the model that is best on validation."""
    candidates = {record["key"]: record for record in _records(settings["candidates"], context)}
    valid = {key: record["figures"]["valid"] for key, record in candidates.items()}
    best = min(valid, key=lambda key: float(valid[key]))
    data = load_data(settings["data"], context.quick)
    bits = pc.bits_per_dimension(_mixture(candidates[best], context).mean_log_prob(data.test), data.test.shape[1])
    return {"chosen": best, "valid": valid, "test": bits, "train_seconds": _seconds(candidates[best])}


def _records(wanted: Mapping[str, str], context: Context) -> list[Record]:
    """The records of some jobs, by their keys and digests."""
    found = {(record["key"], record["digest"]): record for record in read_records(context.folder)}
    return [found[key, digest] for key, digest in wanted.items()]


def _mixture(record: Record, context: Context) -> Mixture:
    return Mixture.load(context.runs / "models" / record["figures"]["model"])


def _seconds(record: Record) -> float:
    """What a model took, with the one that it went on from."""
    return float(record["seconds"] + record["figures"].get("seconds_before", 0.0))


def _clustered(recipe: Recipe, data: Dataset, first: pc.PIC | None, context: Context) -> Iterator[Part]:
    """The clusters of the images."""
    labels, valid_labels = clusters((data.train, data.valid), recipe.components, recipe.seed)
    for number in range(recipe.components):
        rows, valid = data.train[labels == number], data.valid[valid_labels == number]
        yield Part(rows, valid, _structure(recipe, data, rows, context, number), first)


def _start(recipe: Recipe, data: Dataset, context: Context) -> tuple[pc.PIC | None, float]:
    """One PIC of all images, if the recipe has one, and the seconds of its training."""
    if not recipe.start:
        return None, 0.0
    part = Part(data.train, data.valid, make_structure(recipe.structure, data, context.runs / "trees"), None)
    return _train(part, recipe, recipe.start, data, context.checkpoints / "start")


def _train(part: Part, recipe: Recipe, stages: Sequence[Stage], data: Dataset, folder: Path) -> tuple[pc.PIC, float]:
    """A PIC after some stages, with its averaged weights if it has them, and their seconds."""
    seconds, found = 0.0, part.first
    for number, stage in enumerate(stages):
        model = _model(recipe, data, part.structure)
        if found is not None:
            begin_with(model, found)
        trained, history = train_on(model, part.rows, part.valid, _fit_settings(recipe, stage), folder / str(number))
        assert isinstance(trained, pc.PIC)
        found = trained.plain() if isinstance(trained, AveragedPIC) else trained
        seconds += history.records[-1]["seconds"]
    assert found is not None, "at least one stage"
    return found, seconds


def _structure(recipe: Recipe, data: Dataset, rows: object, context: Context, number: int) -> Structure:
    if recipe.structure == "chow-liu" and recipe.components > 1:
        name = f"{data.name}-{len(data.train)}-seed{recipe.seed}-{number}of{recipe.components}.json"
        return learned_tree(rows, context.runs / "trees" / name)
    return make_structure(recipe.structure, data, context.runs / "trees")


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
        start = ", ".join(settings.get("needs", ())) or _stages(settings["start"])
        sizes = [str(len(figures["weights"])), start, _stages(settings["stages"]), str(settings["points"])]
        table.append([record["key"], *sizes, f"{_seconds(record) / 60:.0f}", f"{figures['valid']:.3f}", test])
    return table


def _stages(found: Sequence[Record]) -> str:
    return ", then ".join(f"{stage['steps']} steps with N = {stage['states']}" for stage in found)
