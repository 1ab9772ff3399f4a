# SPDX-License-Identifier: Apache-2.0
"""The best in two hours of two cores: a tree, trees that share a latent, and trees learned from clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

import picirc as pc
from density import Trained, build, figures_of, learned_tree, listed_jobs, load_data, make_inputs, train_on
from harness import Context, Figures, Job, Record, Settings, read_settings
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


def jobs(quick: bool) -> list[Job]:
    """Every model on every set."""
    found = listed_jobs(read_settings(__file__, quick))
    return [replace(job, run=_mixture) if "clusters" in job.settings else job for job in found]


def _mixture(settings: Settings, context: Context) -> Figures:
    """A PIC for each cluster of the images, on the tree of that cluster, mixed by the sizes of the clusters."""
    data = load_data(settings["data"], context.quick)
    source = torch.Generator().manual_seed(settings["seed"])
    inputs = make_inputs(data, settings)
    clusters = pc.Clusters.find(data.train, inputs, settings["clusters"], source)
    labels, held = (clusters.of(rows).numpy() for rows in (data.train, data.valid))
    members, sizes, steps, seconds = [], [], 0, 0.0
    for number in sorted(set(labels)):
        rows, valid = data.train[labels == number], data.valid[held == number]
        tree = learned_tree(rows, context.checkpoints / f"tree{number}.json")
        model = build(tree, inputs, settings)
        folder = context.checkpoints / f"member{number}"
        member, history = train_on(model, rows, valid if len(valid) else None, settings, folder)
        members.append(member)
        sizes.append(len(rows))
        steps += history.records[-1]["step"]
        seconds += history.records[-1]["seconds"]
    history = pc.History(stopped=f"{len(members)} members trained")
    trained = Trained(pc.Ensemble(members, sizes), history, data, settings)
    valid = pc.mean_log_prob(trained.qpc(), data.valid)
    bits = pc.bits_per_dimension(valid, data.valid.shape[1])
    history.records.append({"step": steps, "valid": valid, "bits": bits, "seconds": seconds})
    return figures_of(trained) | {"rows": sizes}


def draw(records: Sequence[Record], folder: Path) -> None:
    """Bars: ours beside the published, one panel a data set."""
    names = list(dict.fromkeys(record["settings"]["data"] for record in records))
    with canvas(folder / "best.png", 1, len(names), 4.6 * len(names), 3.2) as panels:
        for panel, data in zip(panels[0], names, strict=True):
            own = sorted((r["figures"]["test"], _label(r)) for r in records if r["settings"]["data"] == data)
            values = {label: bits for bits, label in own} | PUBLISHED[data]
            bars(panel, values, [BLUE] * len(own), "test bits per dimension")
            panel.set_title(NAMES[data], fontsize=9.5)


def summary(records: Sequence[Record]) -> str:
    """The model of each set that is best on validation."""
    best: dict[str, Record] = {}
    for record in records:
        data = record["settings"]["data"]
        best[data] = min(best.get(data, record), record, key=lambda r: float(r["figures"]["valid"]))
    return "; ".join(f"{NAMES[data]} {r['figures']['test']:.3f} ({_label(r)})" for data, r in best.items())


def _label(record: Record) -> str:
    settings, figures = record["settings"], record["figures"]
    return f"picirc, {settings['model']}, seed {settings['seed']}, {figures['train_seconds'] / 60:.0f} min"


def rows(records: Sequence[Record]) -> list[list[str]]:
    """Sizes, time and bits of every model."""
    table = [["data", "model", "trees", "N", "B", "steps", "seed", "parameters", "minutes", "validation", "test"]]
    for record in records:
        s, figures = record["settings"], record["figures"]
        trees = str(s.get("clusters", s.get("options", {}).get("shared", 1)))
        sizes = [str(s["states"]), str(s["batch"]), f"{figures['best_step']:,}", str(s["seed"])]
        parameters, minutes = f"{figures['parameters']:,}", f"{figures['train_seconds'] / 60:.0f}"
        bits = [f"{figures[part]:.4f}" for part in ("valid", "test")]
        table.append([NAMES[s["data"]], s["model"], trees, *sizes, parameters, minutes, *bits])
    return table
