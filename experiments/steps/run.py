# SPDX-License-Identifier: Apache-2.0
"""More steps (Figures 5 and B.1b): whether the ranking of the models depends on how long they are trained."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import binomial.run as binomial
import images.run as images
from density import density_job
from harness import Job, Record, merged, read_models, read_settings
from plots import COLOURS, MARKERS, NAMES, canvas, legend_below, light_grid

PLACE = "Figure 5, B.1b"
PAPER = "up to 30,000 steps"

Panel = tuple[str, str, int]  # the data, the kind of inputs and N


def jobs(quick: bool) -> list[Job]:
    """Every model with every number of steps, the short trainings and small models first."""
    settings, models = read_settings(__file__, quick), read_models(quick)
    own = {
        inputs: merged(models, read_settings(module.__file__, quick)["changes"])
        for inputs, module in (("categorical", images), ("binomial", binomial))
    }
    found = []
    sizes = product(*(settings[name] for name in ("steps", "states", "data")), settings["models"].items())
    for steps, states, data, (inputs, names) in sizes:
        for name in names:
            made = {**settings["common"], **own[inputs][name], "data": data, "inputs": inputs, "model": name}
            made |= {"states": states, "steps": steps}
            found.append(density_job(f"{data}-{inputs}-{name}-N{states}-{steps}", made))
    return found


def draw(records: Sequence[Record], folder: Path) -> None:
    """Bits against steps: a row of panels for each N, a column for each set and kind of inputs."""
    bits = _bits(records)
    columns = list(dict.fromkeys(panel[:2] for panel in bits))
    states = sorted({panel[2] for panel in bits})
    steps = sorted({r["settings"]["steps"] for r in records})
    entries: dict[str, Any] = {}
    size = 2.9 * len(columns) + 0.4, 2.6 * len(states) + 0.6
    with canvas(folder / "steps.png", len(states), len(columns), *size) as panels:
        for (row, number), (column, kind) in product(enumerate(states), enumerate(columns)):
            panel = panels[row, column]
            panel.set_visible((*kind, number) in bits)
            for model, found in bits.get((*kind, number), {}).items():
                marks = {"marker": MARKERS[model], "color": COLOURS[model], "ms": 5, "linewidth": 1.2}
                (entries[NAMES[model]],) = panel.plot(list(found), list(found.values()), **marks)
            panel.set_xscale("log")
            panel.set_xticks(steps, [f"{number:,}" for number in steps])
            panel.minorticks_off()
            panel.set_title(f"{NAMES.get(kind[0], kind[0])}, {kind[1]}, N = {number}", fontsize=9)
            light_grid(panel)
        for panel in panels[-1]:
            panel.set_xlabel("steps")
        for panel in panels[:, 0]:
            panel.set_ylabel("test bits per dimension")
        legend_below(panels[0, 0], entries)


def summary(records: Sequence[Record]) -> str:
    """The longest training of every model at the largest size."""
    found = []
    largest = max(r["settings"]["states"] for r in records)
    for (data, inputs, states), models in _bits(records).items():
        if states == largest:
            ends = (f"{NAMES[model]} {bits[max(bits)]:.3f} ({max(bits):,})" for model, bits in models.items())
            found.append(f"{NAMES.get(data, data)}, {inputs}, N = {states}: {', '.join(ends)}")
    return "; ".join(found)


def rows(records: Sequence[Record]) -> list[list[str]]:
    """Test bits per dimension, a column for each number of steps."""
    steps = sorted({r["settings"]["steps"] for r in records})
    table = [["data", "inputs", "N", "model", *(f"{number:,} steps" for number in steps)]]
    for (data, inputs, states), models in _bits(records).items():
        for model, bits in models.items():
            cells = (f"{bits[s]:.4f}" if s in bits else "" for s in steps)
            table.append([NAMES.get(data, data), inputs, str(states), NAMES[model], *cells])
    return table


def _bits(records: Sequence[Record]) -> dict[Panel, dict[str, dict[int, float]]]:
    """Test bits by panel, model and number of steps."""
    found: dict[Panel, dict[str, dict[int, float]]] = {}
    for record in sorted(records, key=lambda r: (r["settings"]["states"], r["settings"]["steps"])):
        s = record["settings"]
        models = found.setdefault((s["data"], s["inputs"], s["states"]), {})
        models.setdefault(s["model"], {})[s["steps"]] = record["figures"]["test"]
    return found
