# SPDX-License-Identifier: Apache-2.0
"""Time and memory of a training step (Figure B.2), each measured in a process of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from cost.training import measure_training
from density import load_data, make_structure
from harness import Context, Figures, Job, Record, Settings, read_models, read_settings
from measure import Fresh
from plots import COLOURS, MARKERS, NAMES, canvas, legend_below, light_grid

PLACE = "Figure B.2"
PAPER = "at N = 128: 7.62 GiB for a PIC, 0.81 to 1.32 GiB for EM (on a GPU)"
FRESH = Fresh("torch", "picirc.learning", "picirc.data")
MEASURES = {"seconds": "seconds a step", "gib": "peak memory, GiB"}


def jobs(quick: bool) -> list[Job]:
    """Every model at every size; none is trained to the end."""
    settings = read_settings(__file__, quick)
    models = read_models(quick)
    how = {name: settings[name] for name in ("repetitions", "budget")}
    endless = {"validate_every": 10**9, "patience": None}
    return [
        Job(
            f"{name}-N{states}-B{batch}",
            {**settings["common"], **how, **endless, "model": name, "states": states, "batch": batch, **models[name]},
            run,
        )
        for states in settings["states"]
        for batch in settings["batches"]
        for name in settings["models"]
    ]


def run(settings: Settings, context: Context) -> Figures:
    """Measure in a fresh process, whose memory holds nothing else."""
    data = load_data(settings["data"], context.quick)
    make_structure(settings["structure"], data, context.runs / "trees")  # is learned here, and found there
    threads = torch.get_num_threads()
    found: Figures = FRESH(measure_training, dict(settings), context.quick, context.runs / "trees", threads)
    return found


def draw(records: Sequence[Record], folder: Path) -> None:
    """Time above, memory below, one column a batch size."""
    batches = sorted({r["settings"]["batch"] for r in records})
    models = list(dict.fromkeys(r["settings"]["model"] for r in records))
    states = sorted({r["settings"]["states"] for r in records})
    entries: dict[str, Any] = {}
    size = (2.8 * len(batches) + 0.8, 5.6)
    with canvas(folder / "cost.png", 2, len(batches), *size, sharex=True, sharey="row") as panels:
        for row, (measure, label) in zip(panels, MEASURES.items(), strict=True):
            for panel, batch in zip(row, batches, strict=True):
                for model in models:
                    own = [r for r in records if (r["settings"]["batch"], r["settings"]["model"]) == (batch, model)]
                    own.sort(key=lambda r: int(r["settings"]["states"]))
                    xs, ys = [r["settings"]["states"] for r in own], [r["figures"][measure] for r in own]
                    (line,) = panel.plot(xs, ys, marker=MARKERS[model], color=COLOURS[model], ms=4.5)
                    entries[NAMES[model]] = line
                panel.set_xscale("log", base=2)
                panel.set_yscale("log")
                panel.set_xticks(states, list(map(str, states)))
                light_grid(panel)
            row[0].set_ylabel(label)
        for panel, batch in zip(panels[0], batches, strict=True):
            panel.set_title(f"B = {batch}", fontsize=9.5)
        for panel in panels[-1]:
            panel.set_xlabel("N")
        legend_below(panels[0, 0], entries)


def summary(records: Sequence[Record]) -> str:
    """The largest size."""
    largest = max((r["settings"]["states"], r["settings"]["batch"]) for r in records)
    own = [r for r in records if (r["settings"]["states"], r["settings"]["batch"]) == largest]
    shown = (f"{NAMES[r['settings']['model']]} {_cell(r)}" for r in own)
    return f"at N = {largest[0]}, B = {largest[1]}: {', '.join(shown)}"


def rows(records: Sequence[Record]) -> list[list[str]]:
    """All sizes."""
    models = list(dict.fromkeys(r["settings"]["model"] for r in records))
    table = [["N", "B", *(NAMES[model] for model in models)]]
    cells = {(r["settings"]["states"], r["settings"]["batch"], r["settings"]["model"]): _cell(r) for r in records}
    for states, batch in sorted({cell[:2] for cell in cells}):
        table.append([str(states), str(batch), *(cells.get((states, batch, model), "") for model in models)])
    return table


def _cell(record: Record) -> str:
    return f"{record['figures']['seconds']:.2g} s, {record['figures']['gib']:.2f} GiB"
