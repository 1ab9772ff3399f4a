# SPDX-License-Identifier: Apache-2.0
"""The best of one PIC in at most two hours of two cores: a tree, and a tree whose functions share one more latent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from density import listed_jobs
from harness import Job, Record, read_settings
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
    return listed_jobs(read_settings(__file__, quick))


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
        trees = str(s.get("options", {}).get("shared", 1))
        sizes = [str(s["states"]), str(s["batch"]), f"{figures['best_step']:,}", str(s["seed"])]
        parameters, minutes = f"{figures['parameters']:,}", f"{figures['train_seconds'] / 60:.0f}"
        bits = [f"{figures[part]:.4f}" for part in ("valid", "test")]
        table.append([NAMES[s["data"]], s["model"], trees, *sizes, parameters, minutes, *bits])
    return table
