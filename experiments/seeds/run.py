# SPDX-License-Identifier: Apache-2.0
"""How much a result depends on the seed: PICs on MNIST, 1,000 steps, ten seeds; points that move, settle or stay."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import mean, stdev

from density import density_job
from harness import Job, Record, read_models, read_settings
from plots import COLOURS, MARKERS, NAMES, canvas, light_grid

PLACE = "beyond the paper"
PAPER = "–"


def jobs(quick: bool) -> list[Job]:
    """The same training with every seed."""
    settings, models = read_settings(__file__, quick), read_models(quick)
    return [
        density_job(f"{name}-seed{seed}", {**settings["common"], "model": name, "seed": seed, **models[name]})
        for name, seed in product(settings["models"], settings["seeds"])
    ]


def draw(records: Sequence[Record], folder: Path) -> None:
    """A point for each seed."""
    with canvas(folder / "seeds.png", 1, 1, 5.0, 2.2) as panels:
        panel = panels[0, 0]
        for name, own in _by_model(records).items():
            seeds = [record["seed"] for record in own]
            panel.plot(seeds, _bits(own), MARKERS[name], color=COLOURS[name], label=NAMES[name])
        panel.set_xlabel("seed")
        panel.set_ylabel("bits per dimension, test")
        panel.legend(fontsize=7, frameon=False)
        light_grid(panel)


def summary(records: Sequence[Record]) -> str:
    """Mean, spread and the worst."""
    found = []
    for name, own in _by_model(records).items():
        bits = _bits(own)
        spread = f" ± {stdev(bits):.4f}" if len(bits) > 1 else ""
        found.append(f"{NAMES[name]}: {mean(bits):.4f}{spread} bits with {len(bits)} seeds, the worst {max(bits):.4f}")
    return "; ".join(found)


def rows(records: Sequence[Record]) -> list[list[str]]:
    """One row a model and seed."""
    table = [["model", "seed", "test bits", "minutes"]]
    for record in records:
        name, figures = NAMES[record["settings"]["model"]], record["figures"]
        table.append([name, str(record["seed"]), f"{figures['test']:.4f}", f"{figures['train_seconds'] / 60:.1f}"])
    return table


def _by_model(records: Sequence[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record["settings"]["model"], []).append(record)
    return found


def _bits(records: Sequence[Record]) -> list[float]:
    return [record["figures"]["test"] for record in records]
