# SPDX-License-Identifier: Apache-2.0
"""Binary data sets, four of them held out: PICs and HCLTs with one setting for all, beside published figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

from density import listed_jobs
from harness import Job, Record, read_settings
from plots import BLUE, GREEN, ORANGE, PINK, RED, SKY, canvas, legend_below, light_grid

PLACE = "beyond the paper"
PAPER = "published by others: LearnSPN, RAT-SPN, ID-SPN, mixtures of Strudel, HCLT, continuous mixtures (CM)"
NAMES = {
    "pic": "PIC",
    "trees": "four trees, few points first",
    "fine-trees": "four trees",
    "star": "PIC, star",
    "mixture": "tree mixture",
    "hclt-em": "HCLT, EM",
}
BEST = "chosen"  # the model with the best validation likelihood, for each seed
STYLES = {
    "PIC": ("o", BLUE),
    "four trees, few points first": ("<", BLUE),
    "four trees": ("p", BLUE),
    "PIC, star": ("*", SKY),
    "tree mixture": ("h", GREEN),
    "HCLT, EM": ("s", ORANGE),
    "LearnSPN": ("v", "#555555"),
    "RAT-SPN": ("^", PINK),
    "ID-SPN": ("D", RED),
    "Strudel": ("P", "#888888"),
    "HCLT": ("X", "#884400"),
    "CM": ("d", "#000000"),
}
REFERENCE = "HCLT, EM"

Values = dict[str, list[float]]  # test log-likelihoods by method, one for each seed


def jobs(quick: bool) -> list[Job]:
    """All models on every set, the first seed of all of them first; then the sets that are held out."""
    settings = read_settings(__file__, quick)
    models = {name: settings["models"][name] for name in settings["held_out_models"]}
    return [*listed_jobs(settings), *listed_jobs({**settings, "data": settings["held_out"], "models": models})]


def results(records: Sequence[Record]) -> dict[str, Values]:
    """Test log-likelihoods by set and method, ours and the published."""
    published = read_settings(__file__, quick=False)["published"]
    found: dict[str, Values] = {}
    best: dict[tuple[str, int], tuple[float, float]] = {}
    for record in records:
        settings, figures = record["settings"], record["figures"]
        value = figures["test_log_likelihood"]
        found.setdefault(settings["data"], {}).setdefault(NAMES[settings["model"]], []).append(value)
        if settings["model"] != "hclt-em":
            place = settings["data"], settings["seed"]
            best[place] = max(best.get(place, (-math.inf, 0.0)), (figures["valid_log_likelihood"], value))
    for (data, _), (_, value) in best.items():
        found[data].setdefault(BEST, []).append(value)
    quoted = {data: {name: [value] for name, value in published.get(data, {}).items()} for data in found}
    return {data: cell | quoted[data] for data, cell in found.items()}


def shown(values: Sequence[float]) -> str:
    """The mean over seeds, with the standard deviation if there are several."""
    spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
    return f"{mean(values):.2f}{spread}"


def draw(records: Sequence[Record], folder: Path) -> None:
    """How far each method is from an HCLT by EM, in percent of the log-likelihood."""
    found = {data: values for data, values in results(records).items() if REFERENCE in values}
    with canvas(folder / "binary.png", 1, 1, 7, 1.4 + 0.42 * len(found)) as panels:
        panel, entries = panels[0, 0], {}
        panel.axvline(0, color="#888888", linewidth=0.8)
        for height, values in enumerate(found.values()):
            base = mean(values[REFERENCE])
            for name in (name for name in STYLES if name in values):
                marker, colour = STYLES[name]
                filled = "full" if name in NAMES.values() else "none"
                percent = 100 * (mean(values[name]) - base) / abs(base)
                (line,) = panel.plot(percent, height, marker, color=colour, ms=6, fillstyle=filled)
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
        legend_below(panel, entries, columns=5)


def summary(records: Sequence[Record]) -> str:
    """Ours on every set."""
    found = results(records)
    both = [v for v in found.values() if "PIC" in v and "HCLT, EM" in v]
    ahead = sum(mean(v["PIC"]) > mean(v["HCLT, EM"]) for v in both)
    listed = ", ".join(f"{data} {shown(values[BEST])}" for data, values in found.items() if BEST in values)
    return f"chosen on validation: {listed}; a PIC on the tree is ahead of HCLT by EM on {ahead} of {len(both)}"


def rows(records: Sequence[Record]) -> list[list[str]]:
    """All test log-likelihoods, means over seeds."""
    names = [*NAMES.values(), BEST, *(name for name in STYLES if name not in NAMES.values())]
    found, held_out = results(records), read_settings(__file__, quick=False)["held_out"]
    return [["set", *names]] + [
        [
            f"{data} (held out)" if data in held_out else data,
            *(shown(values[name]) if name in values else "" for name in names),
        ]
        for data, values in found.items()
    ]
