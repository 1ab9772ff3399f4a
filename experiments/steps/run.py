# SPDX-License-Identifier: Apache-2.0
"""More steps (Figures 5 and B.1b): whether the ranking of the models depends on how long they are trained."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import binomial.run as binomial
from density import density_job
from harness import Job, Record, merged, read_models, read_settings
from plots import COLOURS, MARKERS, NAMES, canvas, legend_below, light_grid

PLACE = "Figure 5, B.1b"
PAPER = "up to 30,000 steps"


def jobs(quick: bool) -> list[Job]:
    """Every model with every number of steps, the short trainings first."""
    settings, models = read_settings(__file__, quick), read_models(quick)
    changed = merged(models, read_settings(binomial.__file__, quick)["changes"])
    own = {"categorical": models, "binomial": changed}
    found = []
    for steps, (inputs, names) in product(settings["steps"], settings["models"].items()):
        for name in names:
            made = {**settings["common"], "inputs": inputs, "steps": steps, "model": name, **own[inputs][name]}
            found.append(density_job(f"{inputs}-{name}-{steps}", made))
    return found


def draw(records: Sequence[Record], folder: Path) -> None:
    """Bits against steps, one panel for each kind of inputs."""
    kinds = list(dict.fromkeys(r["settings"]["inputs"] for r in records))
    entries: dict[str, Any] = {}
    with canvas(folder / "steps.png", 1, len(kinds), 3.9 * len(kinds) + 0.4, 3.7) as panels:
        for panel, inputs in zip(panels[0], kinds, strict=True):
            steps = sorted({r["settings"]["steps"] for r in records})
            for model, bits in _bits(records, inputs).items():
                marks = {"marker": MARKERS[model], "color": COLOURS[model], "ms": 5, "linewidth": 1.2}
                (entries[NAMES[model]],) = panel.plot(list(bits), list(bits.values()), **marks)
            panel.set_xscale("log")
            panel.set_xticks(steps, [f"{number:,}" for number in steps])
            panel.minorticks_off()
            panel.set_title(f"{inputs} inputs", fontsize=9.5)
            panel.set_xlabel("steps")
            panel.set_ylabel("test bits per dimension")
            light_grid(panel)
        legend_below(panels[0, 0], entries)


def summary(records: Sequence[Record]) -> str:
    """The longest training of every model."""
    longest = max(r["settings"]["steps"] for r in records)
    found = []
    for inputs in dict.fromkeys(r["settings"]["inputs"] for r in records):
        bits = {model: own[longest] for model, own in _bits(records, inputs).items() if longest in own}
        found.append(f"{inputs}: {', '.join(f'{NAMES[model]} {value:.3f}' for model, value in bits.items())}")
    return f"after {longest:,} steps, {'; '.join(found)}"


def rows(records: Sequence[Record]) -> list[list[str]]:
    """Test bits per dimension, a column for each number of steps."""
    steps = sorted({r["settings"]["steps"] for r in records})
    table = [["inputs", "model", *(f"{number:,} steps" for number in steps)]]
    for inputs in dict.fromkeys(r["settings"]["inputs"] for r in records):
        for model, bits in _bits(records, inputs).items():
            table.append([inputs, NAMES[model], *(f"{bits[s]:.3f}" if s in bits else "" for s in steps)])
    return table


def _bits(records: Sequence[Record], inputs: str) -> dict[str, dict[int, float]]:
    """Test bits of every model with some kind of inputs, by the number of steps."""
    found: dict[str, dict[int, float]] = {}
    for record in records:
        settings = record["settings"]
        if settings["inputs"] == inputs:
            found.setdefault(settings["model"], {})[settings["steps"]] = record["figures"]["test"]
    return {model: dict(sorted(bits.items())) for model, bits in found.items()}
