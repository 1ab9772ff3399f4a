# SPDX-License-Identifier: Apache-2.0
"""Region graphs against the hidden Chow–Liu tree on MNIST: the same PIC and the same steps on other structures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from density import density_job
from harness import Job, Record, read_models, read_settings
from plots import BLUE, GREEN, ORANGE, canvas, light_grid

PLACE = "beyond the paper"
PAPER = "its sequel: quad graphs ahead of trees with several hundred states (MNIST 1.11)"
COLOURS = {"chow-liu": BLUE, "quad-graph": ORANGE, "quad-tree": GREEN}
USUAL = 500  # steps
MARKERS = {"cp": "o-", "tucker": "s--"}


def jobs(quick: bool) -> list[Job]:
    """A model for each structure, product, N and number of steps."""
    settings, model = read_settings(__file__, quick), read_models(quick)["pic"]
    found = []
    for structure, product, states, steps in settings["trained"]:
        options = {**model.get("options", {}), "product": product}
        own = {"model": "pic", "structure": structure, "product": product, "states": states, "steps": steps}
        found.append(
            density_job(
                f"{structure}-{product}-N{states}" + ("" if steps <= USUAL else f"-{steps}steps"),
                {**settings["common"], **own, **model, "options": options},
            )
        )
    return found


def draw(records: Sequence[Record], folder: Path) -> None:
    """Validation bits against N for each structure and product, after the usual number of steps."""
    with canvas(folder / "regions.png", 1, 1, 5.4, 3.0) as panels:
        panel = panels[0, 0]
        for structure, product in dict.fromkeys(map(_kind, records)):
            alike = [r for r in records if _kind(r) == (structure, product) and r["settings"]["steps"] <= USUAL]
            own = sorted(alike, key=_states)
            bits = [r["figures"]["valid"] for r in own]
            label = f"{structure}, {product}"
            panel.plot(list(map(_states, own)), bits, MARKERS[product], color=COLOURS[structure], label=label)
        panel.set_xscale("log", base=2)
        panel.set_xlabel("N")
        panel.set_ylabel("bits per dimension, validation")
        panel.legend(frameon=False)
        light_grid(panel)


def summary(records: Sequence[Record]) -> str:
    """Validation bits of each."""
    found = [
        f"{', '.join(_kind(r))}, N = {_states(r)}, {r['settings']['steps']:,} steps: {r['figures']['valid']:.3f}"
        for r in records
    ]
    return "validation bits: " + "; ".join(found)


def rows(records: Sequence[Record]) -> list[list[str]]:
    """One row a model."""
    table = [["structure", "product", "N", "steps", "validation", "test", "minutes"]]
    for record in records:
        figures = record["figures"]
        bits = [f"{figures[name]:.4f}" for name in ("valid", "test")]
        minutes = f"{figures['train_seconds'] / 60:.1f}"
        table.append([*_kind(record), str(_states(record)), f"{figures['steps']:,}", *bits, minutes])
    return table


def _kind(record: Record) -> tuple[str, str]:
    return record["settings"]["structure"], record["settings"]["product"]


def _states(record: Record) -> int:
    return int(record["settings"]["states"])
