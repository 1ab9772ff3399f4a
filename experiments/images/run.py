"""MNIST and Fashion-MNIST (Figure 5 and Figure B.1a): PICs against HCLTs of the same size on the same trees."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from density import model_jobs
from harness import Job, Record, read_models, read_settings
from plots import NAMES, paired_scatter

PLACE = "Figure 5, B.1a"
PAPER = "MNIST 1.18 (QPC), 1.21 (HCLT); Fashion-MNIST 3.27, 3.34; QPC ahead at nearly every N and B"


def jobs(quick: bool) -> list[Job]:
    """All models at all sizes."""
    return model_jobs(read_settings(__file__, quick), read_models(quick))


def draw(records: Sequence[Record], folder: Path) -> None:
    """The paired scatter plot."""
    paired_scatter(records, ["hclt-em", "hclt-adam"], folder / "scatter.png")


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
    ahead, pairs = duels(records, data)
    return f"{NAMES.get(data, data)} {', '.join(found)}; {NAMES['pic-ours']} ahead of EM in {ahead} of {pairs} pairs"


def duels(records: Sequence[Record], data: str, ours: str = "pic-ours", other: str = "hclt-em") -> tuple[int, int]:
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
    """Test bits per dimension, mean over the seeds."""
    models = list(dict.fromkeys(r["settings"]["model"] for r in records))
    table = [["data", "N", "B", "steps", "seeds", *(NAMES[model] for model in models)]]
    cells: dict[tuple[str, int, int, int], dict[str, list[float]]] = {}
    for record in records:
        s = record["settings"]
        cell = cells.setdefault((s["data"], s["states"], s["batch"], s["steps"]), {})
        cell.setdefault(s["model"], []).append(record["figures"]["test"])
    for (data, *sizes), found in sorted(cells.items(), reverse=False):
        seeds = max(map(len, found.values()))
        bits = [f"{mean(found[model]):.3f}" if model in found else "" for model in models]
        table.append([NAMES.get(data, data), *map(str, sizes), str(seeds), *bits])
    return table
