# SPDX-License-Identifier: Apache-2.0
"""How much a result depends on the seed: the default PIC on MNIST after 1,000 steps, with ten seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

from density import density_job
from harness import Job, Record, read_models, read_settings
from plots import BLUE, canvas, light_grid

PLACE = "beyond the paper"
PAPER = "–"


def jobs(quick: bool) -> list[Job]:
    """The same training with every seed."""
    settings, model = read_settings(__file__, quick), read_models(quick)["pic"]
    return [
        density_job(f"pic-seed{seed}", {**settings["common"], "model": "pic", "seed": seed, **model})
        for seed in settings["seeds"]
    ]


def draw(records: Sequence[Record], folder: Path) -> None:
    """A point for each seed."""
    with canvas(folder / "seeds.png", 1, 1, 5.0, 2.2) as panels:
        panel = panels[0, 0]
        panel.plot([record["seed"] for record in records], _bits(records), "o", color=BLUE)
        panel.set_xlabel("seed")
        panel.set_ylabel("bits per dimension, test")
        light_grid(panel)


def summary(records: Sequence[Record]) -> str:
    """Mean, spread and the worst."""
    bits = _bits(records)
    spread = f" ± {stdev(bits):.4f}" if len(bits) > 1 else ""
    return f"{mean(bits):.4f}{spread} bits with {len(bits)} seeds, the worst {max(bits):.4f}"


def rows(records: Sequence[Record]) -> list[list[str]]:
    """One row a seed."""
    table = [["seed", "test bits", "minutes"]]
    for record in records:
        figures = record["figures"]
        table.append([str(record["seed"]), f"{figures['test']:.4f}", f"{figures['train_seconds'] / 60:.1f}"])
    return table


def _bits(records: Sequence[Record]) -> list[float]:
    return [record["figures"]["test"] for record in records]
