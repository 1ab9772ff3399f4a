# SPDX-License-Identifier: Apache-2.0
"""The Penn Tree Bank in sentences of 288 characters (Table 1), on a hidden Chow–Liu tree and on a chain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from density import Trained, density_job
from harness import Context, Figures, Job, Record, read_models, read_settings
from plots import COLOURS, NAMES, bars, canvas

PLACE = "Table 1"
PUBLISHED = {"QPC (paper)": 1.22, "SparsePC": 1.35, "bipartite flow": 1.38, "AF/SCF": 1.46, "IAF/SCF": 1.63}
PAPER = ", ".join(f"{name} {bits:.2f}" for name, bits in PUBLISHED.items()) + " bits per position"
STRUCTURES = {"chow-liu": "tree", "chain": "chain"}


def jobs(quick: bool) -> list[Job]:
    """Each model on each structure, and the first of them once more with more steps."""
    settings = read_settings(__file__, quick)
    names, structures, long = (settings.pop(name) for name in ("models", "structures", "long"))
    models = read_models(quick)

    def job(name: str, structure: str, suffix: str = "", **changes: int) -> Job:
        own = settings | {"model": name, "structure": structure} | models[name] | changes
        return density_job(f"{name}-{structure}{suffix}", own, characters)

    found = [job(name, structure) for name in names for structure in structures]
    return [*found, job(names[0], structures[0], "-long", steps=long)]


def characters(trained: Trained, figures: Figures, context: Context) -> Figures:
    """Bits for each character of the sentences: all bits count, those of the padding too."""
    rows = trained.data.test
    bits = -figures["test_log_likelihood"] * len(rows) / math.log(2)
    real = int(np.count_nonzero(rows))
    return {"bits_per_character": bits / real, "characters": real, "positions": rows.size}


def draw(records: Sequence[Record], folder: Path) -> None:
    """Bars: bits per position beside the published ones, and bits per character."""
    colours = [COLOURS[record["settings"]["model"]] for record in records]
    ours, real = ({_label(r): r["figures"][name] for r in records} for name in ("test", "bits_per_character"))
    with canvas(folder / "bits.png", 1, 2, 9, 3.2, width_ratios=(3, 2)) as panels:
        bars(panels[0, 0], ours | PUBLISHED, colours, "test bits per position, as published")
        bars(panels[0, 1], real, colours, "test bits per character")


def summary(records: Sequence[Record]) -> str:
    """Both ways of counting."""
    return "; ".join(
        f"{_label(r)} {r['figures']['test']:.2f} ({r['figures']['bits_per_character']:.2f} a character)"
        for r in records
    )


def rows(records: Sequence[Record]) -> list[list[str]]:
    """Both ways of counting, and the training behind them."""
    table = [["model", "N", "steps", "bits per position", "bits per character", "hours"]]
    for record in records:
        found, settings = record["figures"], record["settings"]
        bits = [f"{found['test']:.3f}", f"{found['bits_per_character']:.3f}"]
        table.append(
            [_label(record), str(settings["states"]), f"{found['steps']:.0f}", *bits, f"{record['seconds'] / 3600:.2f}"]
        )
    return table


def _label(record: Record) -> str:
    settings = record["settings"]
    return f"{NAMES[settings['model']]}, {STRUCTURES[settings['structure']]}, {settings['steps']:,} steps"
