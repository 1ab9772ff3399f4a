# SPDX-License-Identifier: Apache-2.0
"""Fourier features against none (Figure B.3): bits per dimension, and the density of the root."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

import picirc as pc
from density import Trained, density_job
from harness import Context, Figures, Job, Record, read_models, read_settings
from plots import BLUE, NAMES, ORANGE, canvas, light_grid

PLACE = "Figure B.3"
PAPER = "not below 1.27 on MNIST without Fourier features, 1.18 with them"
LABELS = {True: "with Fourier features", False: "without"}


def jobs(quick: bool) -> list[Job]:
    """Each PIC twice."""
    settings, models = read_settings(__file__, quick), read_models(quick)
    found = []
    for name in settings["models"]:
        for fourier in (True, False):
            options = models[name]["options"] | {"fourier": fourier}
            own = {**settings["common"], "curve": settings["curve"], "model": name, **models[name], "options": options}
            found.append(density_job(f"{name}-{'fourier' if fourier else 'none'}", own, root_density))
    return found


def root_density(trained: Trained, figures: Figures, context: Context) -> Figures:
    """The density of the root latent when nothing is observed."""
    structure = trained.model.structure
    assert isinstance(structure, pc.LatentTree)
    nothing = torch.full((1, structure.n_variables), torch.nan)
    root = trained.qpc(pc.midpoint(trained.settings["curve"])).latents(nothing)[f"z{structure.root}"]
    assert root.grid is not None
    return {"z": root.grid.tolist(), "density": root.density[0].tolist()}


def draw(records: Sequence[Record], folder: Path) -> None:
    """The densities, one panel a model."""
    models = list(dict.fromkeys(r["settings"]["model"] for r in records))
    with canvas(folder / "density.png", 1, len(models), 4.2 * len(models) + 0.4, 3.6) as panels:
        for panel, model in zip(panels[0], models, strict=True):
            for record in records:
                if record["settings"]["model"] != model:
                    continue
                figures, fourier = record["figures"], record["settings"]["options"]["fourier"]
                colour, style = (BLUE, "-") if fourier else (ORANGE, "--")
                label = f"{LABELS[fourier]}: {figures['test']:.3f} bits"
                panel.plot(figures["z"], figures["density"], color=colour, linestyle=style, linewidth=1.4, label=label)
            panel.set_title(NAMES[model], fontsize=9.5)
            panel.set_xlabel("z, the latent at the root")
            panel.set_ylabel("density")
            panel.set_ylim(bottom=0)
            light_grid(panel)
            panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, frameon=False)


def summary(records: Sequence[Record]) -> str:
    """Bits per dimension with and without."""
    models = dict.fromkeys(r["settings"]["model"] for r in records)
    return "; ".join(f"{NAMES[model]}: {_pair(records, model)}" for model in models)


def rows(records: Sequence[Record]) -> list[list[str]]:
    """Test bits per dimension."""
    table = [["model", "N", "B", "steps", *LABELS.values()]]
    for model in dict.fromkeys(r["settings"]["model"] for r in records):
        bits = _bits(records, model)
        settings = next(r["settings"] for r in records if r["settings"]["model"] == model)
        sizes = [str(settings[name]) for name in ("states", "batch", "steps")]
        table.append([NAMES[model], *sizes, *(f"{bits[f]:.3f}" if f in bits else "" for f in LABELS)])
    return table


def _bits(records: Sequence[Record], model: str) -> dict[bool, float]:
    own = [r for r in records if r["settings"]["model"] == model]
    return {r["settings"]["options"]["fourier"]: r["figures"]["test"] for r in own}


def _pair(records: Sequence[Record], model: str) -> str:
    bits = _bits(records, model)
    return ", ".join(f"{bits[fourier]:.3f} {label}" for fourier, label in LABELS.items() if fourier in bits)
