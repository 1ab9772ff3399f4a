"""Six binary data sets: PICs and HCLTs with one setting for all, beside published test log-likelihoods."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from density import density_job
from harness import Job, Record, read_settings
from plots import BLUE, GREEN, ORANGE, PINK, RED, SKY, canvas, legend_below, light_grid

PLACE = "beyond the paper"
PAPER = "published by others: LearnSPN, RAT-SPN, ID-SPN, mixtures of Strudel"
NAMES = {"pic": "PIC", "hclt-em": "HCLT, EM"}
STYLES = {
    "PIC": ("o", BLUE),
    "HCLT, EM": ("s", ORANGE),
    "LearnSPN": ("v", GREEN),
    "RAT-SPN": ("^", PINK),
    "ID-SPN": ("D", RED),
    "Strudel": ("P", SKY),
}
REFERENCE = "ID-SPN"


def jobs(quick: bool) -> list[Job]:
    """Both models on every set."""
    settings = read_settings(__file__, quick)
    return [
        density_job(f"{data}-{name}", {**settings["common"], "data": data, "model": name, **options})
        for data in settings["data"]
        for name, options in settings["models"].items()
    ]


def results(records: Sequence[Record]) -> dict[str, dict[str, float]]:
    """Test log-likelihoods by set and method, ours and the published."""
    published = read_settings(__file__, quick=False)["published"]
    found: dict[str, dict[str, float]] = {}
    for record in records:
        settings = record["settings"]
        cell = found.setdefault(settings["data"], {})
        cell[NAMES[settings["model"]]] = record["figures"]["test_log_likelihood"]
    return {data: cell | published[data] for data, cell in found.items()}


def draw(records: Sequence[Record], folder: Path) -> None:
    """How far each method is from the best published one, in percent of the log-likelihood."""
    found = results(records)
    with canvas(folder / "binary.png", 1, 1, 7, 1.4 + 0.42 * len(found)) as panels:
        panel, entries = panels[0, 0], {}
        panel.axvline(0, color="#888888", linewidth=0.8)
        for height, values in enumerate(found.values()):
            base = values[REFERENCE]
            for name, value in values.items():
                marker, colour = STYLES[name]
                filled = "full" if name in NAMES.values() else "none"
                (line,) = panel.plot(
                    100 * (value - base) / abs(base), height, marker, color=colour, ms=6, fillstyle=filled
                )
                entries[name] = line
        panel.set_yticks(range(len(found)), list(found))
        panel.invert_yaxis()
        panel.margins(y=0.12)
        low, high = panel.get_xlim()
        low, high = min(-2, 1.2 * low), max(1, 1.2 * high)
        panel.set_xscale("symlog", linthresh=2)
        ticks = [tick for tick in (-30, -10, -5, -2, -1, 0, 1, 2, 5, 10, 30) if low <= tick <= high]
        panel.set_xticks(ticks, list(map(str, ticks)))
        panel.set_xlim(low, high)
        panel.set_xlabel(f"test log-likelihood, % above {REFERENCE} (logarithmic beyond 2 %)")
        light_grid(panel)
        legend_below(panel, entries, columns=len(entries))


def summary(records: Sequence[Record]) -> str:
    """Ours on every set."""
    found = results(records)
    ahead = sum("PIC" in v and "HCLT, EM" in v and v["PIC"] > v["HCLT, EM"] for v in found.values())
    shown = ", ".join(f"{data} {values['PIC']:.2f}" for data, values in found.items() if "PIC" in values)
    return f"PIC: {shown}; ahead of HCLT on {ahead} of {len(found)}"


def rows(records: Sequence[Record]) -> list[list[str]]:
    """All test log-likelihoods."""
    table = [["set", *STYLES]]
    for data, values in results(records).items():
        table.append([data, *(f"{values[name]:.2f}" if name in values else "" for name in STYLES)])
    return table
