# SPDX-License-Identifier: Apache-2.0
"""One cosine, restarts, batches that grow, or an average of the weights: which way of training pays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from torch import Tensor

import picirc as pc
from density import Model, Trained, build, load_data, make_inputs, make_structure, progress, train
from harness import Context, Figures, Job, Record, Settings, merged, read_models, read_settings
from picirc.learning.loop import Loop
from plots import BLUE, GREEN, NAMES, ORANGE, PINK, canvas, legend_below, light_grid

PLACE = "beyond the paper"
PAPER = "restarts every 500 steps"
PERIODS = 4  # with restarts
TAIL = 0.25  # the part of the steps whose parameters are averaged; the step size falls to a tenth only

WAYS = {
    "cosine": "one cosine",
    "restarts": f"{PERIODS} cosines",
    "growing": "batches three times as large in the second half",
    "average": "average of the last quarter",
}
COLOURS = dict(zip(WAYS, (BLUE, ORANGE, GREEN, PINK), strict=True))


def jobs(quick: bool) -> list[Job]:
    """Every way for every kind of model on every set; the first seed of all first."""
    settings, models = read_settings(__file__, quick), read_models(quick)
    sets = {name: own for name, own in settings["sets"].items() if name in settings.get("only", settings["sets"])}
    found = []
    for seed, (data, own), name, way in product(settings["seeds"], sets.items(), settings["models"], settings["ways"]):
        schedule = dict(settings["schedules"][name])
        if way == "restarts":
            schedule["period"] = own["steps"] // PERIODS
        if way == "average":
            schedule["low"] = schedule["high"] / 10
        model = merged(models[name], {"fit": {"schedule": schedule}})
        whole = {**settings["common"], **own, "data": data, "model": name, "way": way, "seed": seed, **model}
        found.append(Job(f"{data}-{name}-{way}-seed{seed}", whole, _estimate))
    return found


class GrowingBatches:
    """Batches of half the size in the first half of the steps, and of three halves in the second."""

    def __init__(self, rows: Any, size: int, steps: int, seed: int) -> None:
        self._rows, self._steps, self._seed = torch.as_tensor(np.asarray(rows)), steps, seed
        self._sizes = size // 2, size + size // 2

    def __iter__(self) -> Iterator[Tensor]:
        source = np.random.default_rng([self._seed, 7])
        order = np.empty(0, dtype=np.int64)
        for step in range(self._steps):
            size = self._sizes[2 * step >= self._steps]
            while len(order) < size:
                order = np.concatenate((order, source.permutation(len(self._rows))))
            yield self._rows[order[:size]]
            order = order[size:]


@contextmanager
def averaging(start: int) -> Iterator[None]:
    """Trainings meanwhile end with the mean of their parameters after every step from ``start`` on.

    The library has no place for this, so its loop is replaced.
    """
    found: dict[str, Tensor] = {}
    advance = Loop._advance

    def advance_and_add(loop: Loop, *arguments: Any) -> None:
        advance(loop, *arguments)
        count = loop._state.step - start
        for name, value in loop.model.state_dict().items() if count > 0 else ():
            found.setdefault(name, value.clone()).lerp_(value, 1 / count)
        if loop.history.stopped and found:
            loop._best = found

    Loop._advance = advance_and_add  # type: ignore[method-assign]
    try:
        yield
    finally:
        Loop._advance = advance  # type: ignore[method-assign]


def _estimate(settings: Settings, context: Context) -> Figures:
    data = load_data(settings["data"], context.quick)
    structure = make_structure(settings["structure"], data, context.runs / "trees")
    model: Model = build(structure, make_inputs(data, settings), settings)
    steps, rows = settings["steps"], data.train
    options: dict[str, Any] = {"callbacks": [progress(steps)]}
    if settings["way"] == "growing":
        rows = GrowingBatches(rows, settings["batch"], steps, settings["seed"])
        if settings["learn"] == "adam":  # a loader does not tell how many rows there are
            options["weight_decay"] = model.weight_decay(len(data.train))
    with averaging(steps - round(TAIL * steps)) if settings["way"] == "average" else nullcontext():
        model, history = train(model, rows, data.valid, settings, **options)
    qpc, variables = Trained(model, history, data, settings).qpc(), data.valid.shape[1]
    return {
        "valid": pc.bits_per_dimension(pc.mean_log_prob(qpc, data.valid), variables),
        "test": pc.bits_per_dimension(pc.mean_log_prob(qpc, data.test), variables),
        "best_step": history.best["step"],
        "train_seconds": round(history.records[-1]["seconds"], 2),
    }


Gains = Mapping[tuple[str, str, str], float]  # bits a variable below one cosine, by model, way and set


def _gains(records: Sequence[Record]) -> Gains:
    """The gain on validation, by pairs that have the same seed."""
    bits = {
        tuple(r["settings"][part] for part in ("model", "way", "data", "seed")): r["figures"]["valid"] for r in records
    }
    found: dict[tuple[str, str, str], list[float]] = {}
    for (model, way, data, seed), value in bits.items():
        if way != "cosine" and (model, "cosine", data, seed) in bits:
            found.setdefault((model, way, data), []).append(bits[model, "cosine", data, seed] - value)
    return {key: mean(values) for key, values in found.items()}


def _mean_gains(gains: Gains) -> dict[tuple[str, str], float]:
    pairs = dict.fromkeys(key[:2] for key in gains)
    return {pair: mean(value for key, value in gains.items() if key[:2] == pair) for pair in pairs}


def draw(records: Sequence[Record], folder: Path) -> None:
    """The gain of every way: a panel for each kind of model, a group of bars for each set."""
    gains = _gains(records)
    models = list(dict.fromkeys(r["settings"]["model"] for r in records))
    ways = [way for way in WAYS if any(key[1] == way for key in gains)]
    with canvas(folder / "schedules.png", len(models), 1, 6.5, 1.9 * len(models) + 0.6) as panels:
        entries: dict[str, Any] = {}
        for panel, model in zip(panels.flat, models, strict=True):
            sets = list(dict.fromkeys(key[2] for key in gains if key[0] == model))
            for number, way in enumerate(ways):
                places = [place + 0.25 * (number - (len(ways) - 1) / 2) for place in range(len(sets))]
                heights = [1000 * gains.get((model, way, data), 0.0) for data in sets]
                entries[WAYS[way]] = panel.bar(places, heights, 0.22, color=COLOURS[way])
            panel.axhline(0, color="#666666", linewidth=0.8)
            panel.set_xticks(range(len(sets)), [NAMES.get(data, data) for data in sets])
            panel.set_title(NAMES[model], fontsize=9.5)
            panel.set_ylabel("gain, 0.001 bits a variable")
            light_grid(panel, "y")
        legend_below(panels[0, 0], entries, columns=2)


def summary(records: Sequence[Record]) -> str:
    """The mean gain of every way over the sets."""
    found = _mean_gains(_gains(records))
    return "; ".join(f"{NAMES[model]}, {WAYS[way]} {1000 * gain:+.1f}" for (model, way), gain in found.items())


def rows(records: Sequence[Record]) -> list[list[str]]:
    """The gains of every way in thousandths of a bit a variable; larger is better."""
    gains = _gains(records)
    sets = list(dict.fromkeys(record["settings"]["data"] for record in records))
    table = [["model", "instead of one cosine", *(NAMES.get(data, data) for data in sets), "mean"]]
    for (model, way), average in _mean_gains(gains).items():
        own = [f"{1000 * gains[model, way, data]:+.1f}" if (model, way, data) in gains else "" for data in sets]
        table.append([NAMES[model], WAYS[way], *own, f"{1000 * average:+.1f}"])
    return table
