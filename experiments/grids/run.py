# SPDX-License-Identifier: Apache-2.0
"""Another grid after training: bits per dimension against N for three rules, with models of fixed and random grids."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import picirc as pc
from density import RULES, Trained, density_job
from harness import Context, Figures, Job, Record, read_settings
from plots import BLUE, ORANGE, canvas, legend_below, light_grid

PLACE = "§3.2, §5"
PAPER = "“the circuit can be materialized for any N”; no figures"
TRAINING = {"trapezoidal": ("fixed points", ORANGE), "shifted": ("shifted points", BLUE)}
MOST = 1.15  # times the lowest bits are shown; the table has all
STYLES = {
    "trapezoidal": ("trapezoidal", "^", "-"),
    "gauss_legendre": ("Gauss–Legendre", "s", "--"),
    "midpoint": ("midpoint", "o", ":"),
}


def jobs(quick: bool) -> list[Job]:
    """A model for each training grid."""
    settings = read_settings(__file__, quick)
    shared = {**settings["common"], "points": settings["points"], "rules": settings["rules"], **settings["model"]}
    return [
        density_job(
            f"{structure}-{rule}-N{states}",
            {
                **shared,
                "model": "pic",
                "structure": structure,
                "rule": rule,
                "finer": 2 if rule == "shifted" else 1,
                "states": states,
            },
            other_grids,
        )
        for structure, states in settings["trained"]
        for rule in settings["training"]
    ]


def other_grids(trained: Trained, figures: Figures, context: Context) -> Figures:
    """Bits per dimension and seconds of the whole test set on every grid."""
    found: dict[str, dict[str, list[float]]] = {}
    rows = trained.data.test
    for name in trained.settings["rules"]:
        own = found[name] = {"bits": [], "seconds": []}
        for points in trained.settings["points"]:
            started = time.perf_counter()
            value = pc.mean_log_prob(trained.qpc(RULES[name](points)), rows)
            own["seconds"].append(round(time.perf_counter() - started, 3))
            own["bits"].append(pc.bits_per_dimension(value, rows.shape[1]))
    return {"grids": found}


def draw(records: Sequence[Record], folder: Path) -> None:
    """Bits above and seconds below, one column for each structure and training N."""
    trained = list(dict.fromkeys(map(_trained, records)))
    entries: dict[str, Any] = {}
    width = 3 * len(trained) + 0.6
    with canvas(folder / "grids.png", 2, len(trained), width, 5.8, sharex=True, sharey="row") as panels:
        for column, (structure, states) in enumerate(trained):
            for record in records:
                if _trained(record) == (structure, states):
                    entries |= _curves(panels[:, column], record)
            panels[0, column].axvline(states, color="#888888", linewidth=0.8)
            panels[0, column].set_title(f"{structure}, trained with N = {states}", fontsize=9.5)
            panels[-1, column].set_xlabel("N of the test")
        bits = [b for r in records for found in r["figures"]["grids"].values() for b in found["bits"]]
        if max(bits) > MOST * min(bits):  # a grid far too coarse would hide all differences that matter
            panels[0, 0].set_ylim(min(bits) - 0.01, MOST * min(bits))
        panels[0, 0].set_ylabel("test bits per dimension")
        panels[1, 0].set_ylabel("seconds for the test set")
        by_rule = sorted(entries, key=lambda label: label.split(", ")[1])  # legends are filled column by column
        legend_below(panels[0, 0], {label: entries[label] for label in by_rule}, columns=3)


def _trained(record: Record) -> tuple[str, int]:
    return record["settings"]["structure"], record["settings"]["states"]


def _curves(panels: Sequence[Any], record: Record) -> dict[str, Any]:
    """Draw the curves of a model; the entries of the legend."""
    settings, entries = record["settings"], {}
    label, colour = TRAINING[settings["rule"]]
    for name, found in record["figures"]["grids"].items():
        rule, marker, style = STYLES[name]
        for panel, values in zip(panels, (found["bits"], found["seconds"]), strict=True):
            (line,) = panel.plot(
                settings["points"], values, marker=marker, linestyle=style, color=colour, ms=4, linewidth=1.2
            )
            panel.set_xscale("log", base=2)
            ticks = [n for n in settings["points"] if n & (n - 1) == 0]
            panel.set_xticks(ticks, list(map(str, ticks)))
            panel.minorticks_off()
            light_grid(panel)
        panels[1].set_yscale("log")
        entries[f"{label}, {rule}"] = line
    return entries


def summary(records: Sequence[Record]) -> str:
    """The test bits, and the worst that any rule gives with at least as many points."""
    found = []
    for record in records:
        settings, figures = record["settings"], record["figures"]
        finer = [
            bits
            for own in figures["grids"].values()
            for n, bits in zip(settings["points"], own["bits"], strict=True)
            if n >= figures["points"]
        ]
        worst = max(finer, default=figures["test"])
        label = f"{settings['structure']}, {TRAINING[settings['rule']][0]}, N = {settings['states']}"
        found.append(f"{label}: {figures['test']:.3f} to {worst:.3f}")
    return "test bits, and the worst of all rules with at least as many points: " + "; ".join(found)


def rows(records: Sequence[Record]) -> list[list[str]]:
    """Bits per dimension on every grid."""
    points = list(dict.fromkeys(n for r in records for n in r["settings"]["points"]))
    table = [["trained with", "tested with", *(f"N = {n}" for n in points)]]
    for record in records:
        settings = record["settings"]
        label = f"{settings['structure']}, {settings['states']} {TRAINING[settings['rule']][0]}"
        for name, found in record["figures"]["grids"].items():
            bits = dict(zip(settings["points"], found["bits"], strict=True))
            table.append([label, STYLES[name][0], *(f"{bits[n]:.3f}" if n in bits else "" for n in points)])
    return table
