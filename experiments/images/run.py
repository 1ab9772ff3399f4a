# SPDX-License-Identifier: Apache-2.0
"""MNIST and Fashion-MNIST (Figure 5 and Figure B.1a): PICs against HCLTs of the same size on the same trees."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

from density import model_jobs
from harness import Job, Record, merged, read_models, read_settings
from plots import NAMES, paired_scatter

PLACE = "Figure 5, B.1a"
PAPER = "MNIST 1.18 (QPC), 1.21 (HCLT); Fashion-MNIST 3.27, 3.34; QPC ahead at nearly every N and B"


def jobs(quick: bool) -> list[Job]:
    """All models at all sizes."""
    settings = read_settings(__file__, quick)
    return model_jobs(settings, merged(read_models(quick), settings["changes"]))


def draw(records: Sequence[Record], folder: Path) -> None:
    """The paired scatter plot."""
    paired_scatter(records, ["em", "adam"], folder / "scatter.png")


def summary(records: Sequence[Record]) -> str:
    """The best model of each kind, by validation, and how often the PIC is ahead."""
    return "; ".join(_best(records, data) for data in dict.fromkeys(r["settings"]["data"] for r in records))


def _best(records: Sequence[Record], data: str) -> str:
    found = []
    for kind in ("pic", "hclt"):
        own = [r for r in records if r["settings"]["data"] == data and r["settings"]["kind"] == kind]
        if own:
            chosen = min(own, key=lambda r: float(r["figures"]["valid"]))
            found.append(f"{chosen['figures']['test']:.3f} ({NAMES[chosen['settings']['model']]})")
    for name in ("settled", "pic"):
        ahead, pairs = duels(records, data, name)
        if pairs:
            found.append(f"{NAMES[name]} ahead of EM in {ahead} of {pairs} pairs")
    return f"{NAMES.get(data, data)} {', '.join(found)}"


def duels(records: Sequence[Record], data: str, ours: str, other: str = "em") -> tuple[int, int]:
    """How many pairs of the same N, B and seed one model wins, and how many there are."""
    bits = {
        (s["model"], s["states"], s["batch"], s["seed"]): r["figures"]["test"]
        for r in records
        if (s := r["settings"])["data"] == data
    }
    pairs = [
        (value, bits[other, *rest])
        for (model, *rest), value in bits.items()
        if model == ours and (other, *rest) in bits
    ]
    return sum(a < b for a, b in pairs), len(pairs)


def rows(records: Sequence[Record]) -> list[list[str]]:
    """Test bits per dimension over the seeds, and how many steps and minutes it took."""
    models = list(dict.fromkeys(r["settings"]["model"] for r in records))
    table = [["data", "N", "B", "seeds", *(NAMES[model] for model in models)]]
    cells: dict[tuple[str, int, int], dict[str, list[Record]]] = {}
    for record in records:
        s = record["settings"]
        cell = cells.setdefault((s["data"], s["states"], s["batch"]), {})
        cell.setdefault(s["model"], []).append(record)
    for (data, *sizes), found in sorted(cells.items()):
        seeds = max(map(len, found.values()))
        bits = [_cell(found.get(model, [])) for model in models]
        table.append([NAMES.get(data, data), *map(str, sizes), str(seeds), *bits])
    return table


def _cell(records: Sequence[Record]) -> str:
    if not records:
        return ""
    bits, steps, seconds = (
        [float(r["figures"][name]) for r in records] for name in ("test", "best_step", "train_seconds")
    )
    spread = f" ± {stdev(bits):.4f}" if len(bits) > 1 else ""
    return f"{mean(bits):.4f}{spread} ({mean(steps):,.0f} steps, {mean(seconds) / 60:.0f} min)"
