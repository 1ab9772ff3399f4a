# SPDX-License-Identifier: Apache-2.0
"""Sum regions (Figure B.4): the weights of one latent given its parent, in an HCLT and in QPCs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.colors import PowerNorm
from numpy.typing import NDArray

import picirc as pc
from density import Trained, density_job
from harness import Context, Figures, Job, Record, read_models, read_settings
from plots import NAMES, canvas

PLACE = "Figure B.4"
PAPER = "weights of the HCLT like noise, those of the QPC smooth"
BRIGHTEST = 0.995  # the quantile of all weights at which the colours end


def jobs(quick: bool) -> list[Job]:
    """One training a model."""
    settings, models = read_settings(__file__, quick), read_models(quick)
    shared = {**settings["common"], "latent": settings["latent"]}
    return [
        density_job(name, {**shared, "model": name, **models[name]}, partial(keep_region, name=name))
        for name in settings["models"]
    ]


def keep_region(trained: Trained, figures: Figures, context: Context, name: str) -> Figures:
    """Write the weights to a file beside the results, and measure how much neighbouring states differ.

    A QPC is integrated with as many points as the HCLT has states.
    """
    states, latent = trained.settings["states"], f"z{trained.settings['latent']}"
    weights = region(trained.model, trained.qpc(pc.midpoint(states)), latent)
    np.save(context.folder / f"{name}.npy", weights.astype(np.float32))
    return {"latent": latent, "file": f"{name}.npy", "roughness": roughness(weights)}


def region(model: pc.PIC | pc.HCLT, qpc: pc.QPC, latent: str) -> NDArray[np.float64]:
    """The sum weights (parent's state, latent's state); every row adds to one."""
    for block, weights in zip(model.plan.blocks, qpc.parameters.weights, strict=True):
        for row, (integral, *_) in enumerate(block.integrals):
            if integral.variables == (latent,):
                found: NDArray[np.float64] = weights[row, 0].detach().double().numpy()
                return found
    raise ValueError(f"no latent {latent}")


def roughness(weights: NDArray[np.float64]) -> float:
    """How much neighbouring weights of a row differ, relative to any two of them; 1 for an order by chance."""
    neighbours = np.abs(np.diff(weights, axis=1)).mean()
    ordered = np.sort(weights, axis=1)
    n = weights.shape[1]
    ranks = 2 * np.arange(n) - n + 1
    any_two = (ordered * ranks).sum(1).mean() * 2 / (n * (n - 1))
    return float(neighbours / any_two)


def draw(records: Sequence[Record], folder: Path) -> None:
    """One heatmap a model on a common scale of colours."""
    regions = [np.load(folder / record["figures"]["file"]) for record in records]
    scaled = [weights * weights.shape[1] for weights in regions]  # 1 for a uniform row
    norm = PowerNorm(0.5, 0, float(np.quantile(np.concatenate([s.ravel() for s in scaled]), BRIGHTEST)))
    with canvas(folder / "regions.png", 1, len(records), 3.3 * len(records) + 0.9, 3.6) as panels:
        for panel, record, weights in zip(panels[0], records, scaled, strict=True):
            image = panel.imshow(weights, norm=norm, cmap="viridis", interpolation="nearest")
            panel.set_title(NAMES[record["settings"]["model"]], fontsize=9.5)
            panel.set_xlabel("state of the latent")
        panels[0, 0].set_ylabel("state of its parent")
        label = "weight, relative to a uniform row"
        panels[0, 0].figure.colorbar(image, ax=list(panels[0]), label=label, shrink=0.85, extend="max")


def summary(records: Sequence[Record]) -> str:
    """How rough the weights are along a row."""
    return "roughness (1 is chance): " + ", ".join(
        f"{NAMES[r['settings']['model']]} {r['figures']['roughness']:.2f}" for r in records
    )


def rows(records: Sequence[Record]) -> list[list[str]]:
    """Roughness and bits."""
    table = [["model", "N", "steps", "roughness of the region", "test bits per dimension"]]
    for record in records:
        settings, figures = record["settings"], record["figures"]
        sizes = [str(settings["states"]), str(settings["steps"])]
        table.append([NAMES[settings["model"]], *sizes, f"{figures['roughness']:.2f}", f"{figures['test']:.3f}"])
    return table
