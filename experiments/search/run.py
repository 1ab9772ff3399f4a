# SPDX-License-Identifier: Apache-2.0
"""The step sizes that the defaults come from: five for every kind of model on every set, judged on validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import mean

from density import density_job
from harness import Job, Record, merged, read_models, read_settings
from plots import COLOURS, MARKERS, NAMES, canvas, legend_below, light_grid

PLACE = "beyond the paper"
PAPER = "steps of 1e-2 for PICs and for EM"

Losses = dict[float, dict[str, float]]  # by step size and set: bits a variable above the best of this kind of model


def jobs(quick: bool) -> list[Job]:
    """Every size of every kind on every set; seeds after the first on the sets in ``repeated`` only."""
    settings, models = read_settings(__file__, quick), read_models(quick)
    sets = {name: own for name, own in settings["sets"].items() if name in settings.get("only", settings["sets"])}
    tried = [(kind, size) for kind, sizes in settings["sizes"].items() for size in sizes]
    found = []
    for seed, (data, own), (kind, size) in product(settings["seeds"], sets.items(), tried):
        if seed != settings["seeds"][0] and data not in settings["repeated"]:
            continue
        schedule = {"high": size, "low": size / 100, "warmup": settings["warmup"].get(kind, 0)}
        model = merged(models[kind], {"fit": {"schedule": schedule}})
        whole = {**settings["common"], **own, "data": data, "model": kind, "seed": seed, **model}
        found.append(density_job(f"{data}-{kind}-{size:g}-seed{seed}", whole))
    return found


def losses(records: Sequence[Record]) -> dict[str, Losses]:
    """How far each size is from the best one, by kind; only of sets that have all sizes."""
    found: dict[str, dict[str, dict[float, list[float]]]] = {}
    for record in records:
        s = record["settings"]
        cell = found.setdefault(s["model"], {}).setdefault(s["data"], {})
        cell.setdefault(s["fit"]["schedule"]["high"], []).append(record["figures"]["valid"])
    result: dict[str, Losses] = {}
    for kind, sets in found.items():
        sizes = sorted({size for cell in sets.values() for size in cell})
        for data, cell in sets.items():
            if len(cell) == len(sizes):
                best = min(map(mean, cell.values()))
                for size in sizes:
                    result.setdefault(kind, {}).setdefault(size, {})[data] = mean(cell[size]) - best
    return result


def draw(records: Sequence[Record], folder: Path) -> None:
    """The mean loss against the step size."""
    with canvas(folder / "search.png", 1, 1, 5.5, 3.6) as panels:
        panel, entries = panels[0, 0], {}
        for kind, own in losses(records).items():
            sizes = list(own)
            (entries[NAMES[kind]],) = panel.plot(
                sizes, [_mean(own[size]) for size in sizes], MARKERS[kind] + "-", color=COLOURS[kind]
            )
        panel.set_xscale("log")
        panel.set_xlabel("size of the first steps")
        panel.set_ylabel("bits a variable above the best")
        light_grid(panel)
        legend_below(panel, entries)


def summary(records: Sequence[Record]) -> str:
    """The best size of each kind over all sets."""
    found = losses(records)
    best = {kind: min(own, key=lambda size: _mean(own[size])) for kind, own in found.items()}
    return "; ".join(
        f"{NAMES[kind]} {size:g} (mean loss {_mean(found[kind][size]):.4f})" for kind, size in best.items()
    )


def rows(records: Sequence[Record]) -> list[list[str]]:
    """All losses, in thousandths of a bit."""
    found = losses(records)
    sets = list(dict.fromkeys(record["settings"]["data"] for record in records))
    table = [["model", "first steps", *(NAMES.get(data, data) for data in sets), "mean"]]
    for kind, own in found.items():
        for size, cell in own.items():
            values = [f"{1000 * cell[data]:.1f}" if data in cell else "" for data in sets]
            table.append([NAMES[kind], f"{size:g}", *values, f"{1000 * _mean(cell):.1f}"])
    return table


def _mean(cell: Mapping[str, float]) -> float:
    return mean(cell.values())
