# SPDX-License-Identifier: Apache-2.0
"""What the pictures share: colours that colour-blind readers can tell apart, names, and the paired scatter plot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any, Literal

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness import Record

# The palette of Okabe and Ito; every series has a marker of its own as well.
BLUE, RED, GREEN, PINK, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
COLOURS = {"hclt-em": ORANGE, "hclt-adam": RED, "pic-paper": PINK, "pic-ours": SKY}
COLOURS |= {"em": ORANGE, "adam": RED, "paper": PINK, "pic": BLUE, "settled": "#000000", "fixed": GREEN}
MARKERS = {"hclt-em": "s", "hclt-adam": "D", "pic-paper": "^", "pic-ours": "o"}
MARKERS |= {"em": "s", "adam": "D", "paper": "^", "pic": "o", "settled": "*", "fixed": "v"}
NAMES = {
    "hclt-em": "HCLT, EM",
    "hclt-adam": "HCLT, Adam",
    "pic-paper": "PIC as in the paper",
    "pic-ours": "PIC of picirc, bounded energy",
    "em": "HCLT, EM",
    "adam": "HCLT, Adam",
    "paper": "PIC as in the paper",
    "pic": "PIC of picirc, points that move",
    "settled": "PIC of picirc, points that settle",
    "fixed": "PIC of picirc, fixed points",
    "mnist": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
}
SIZES = "osD^vPX"  # markers for the numbers of states


@contextmanager
def canvas(path: Path, rows: int, columns: int, width: float, height: float, **options: Any) -> Iterator[Any]:
    """A figure of panels ``(rows, columns)``, saved at the end."""
    with plt.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure, panels = plt.subplots(
            rows, columns, figsize=(width, height), dpi=160, layout="constrained", squeeze=False, **options
        )
        yield panels
        figure.savefig(path)
        plt.close(figure)


def light_grid(panel: Axes, axis: Literal["both", "x", "y"] = "both") -> None:
    """Lines to read values by."""
    panel.grid(axis=axis, color="#dddddd", linewidth=0.6)
    panel.set_axisbelow(True)


def bars(panel: Axes, values: Mapping[str, float], colours: Sequence[str], label: str) -> None:
    """Horizontal bars with their values, the first on top; those without a colour are grey."""
    shown = [*colours, *["#999999"] * (len(values) - len(colours))]
    drawn = panel.barh(range(len(values)), list(values.values()), color=shown, height=0.65)
    panel.bar_label(drawn, fmt="%.2f", padding=3)
    panel.set_yticks(range(len(values)), list(values))
    panel.invert_yaxis()
    panel.set_xlim(0, 1.2 * max(values.values()))
    panel.set_xlabel(label)
    light_grid(panel, "x")


def legend_below(panel: Axes, entries: Mapping[str, Any], columns: int = 4) -> None:
    """One legend for all panels of a figure."""
    figure = panel.figure
    assert isinstance(figure, Figure)
    handles, labels = list(entries.values()), list(entries)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)


def mark(marker: str, colour: str, **options: Any) -> Line2D:
    """A legend entry."""
    return Line2D([], [], marker=marker, color=colour, linestyle="none", **options)


def paired_scatter(records: Sequence[Record], baselines: Sequence[str], path: Path) -> None:
    """Bits per dimension of PICs against those of the HCLT of the same data, N, B and seed; lower is better.

    One row of panels a data set and one column a baseline, or all in a row if there is one baseline. Points below the
    diagonal are better than the baseline.
    """
    data = list(dict.fromkeys(r["settings"]["data"] for r in records))
    states = sorted({r["settings"]["states"] for r in records})
    pics = [
        name
        for name in ("pic-paper", "pic-ours", "paper", "pic", "settled", "fixed")
        if any(r["settings"]["model"] == name for r in records)
    ]
    columns = len(baselines) if len(baselines) > 1 else len(data)
    rows = len(data) * len(baselines) // columns
    markers = dict(zip(states, SIZES, strict=False))
    with canvas(path, rows, columns, 4 * columns + 0.4, 4 * rows + 0.7) as panels:
        for panel, (one, baseline) in zip(panels.flat, product(data, baselines), strict=True):
            own = [record for record in records if record["settings"]["data"] == one]
            ends = []
            for name, n in product(pics, states):
                pairs = _pairs(own, name, baseline, n)
                xs, ys = [x for x, _ in pairs], [y for _, y in pairs]
                panel.plot(xs, ys, markers[n], color=COLOURS[name], ms=5.5, mec="white", mew=0.4)
                ends += xs + ys
            _diagonal(panel, ends)
            panel.set_title(NAMES.get(one, one), fontsize=9.5)
            panel.set_xlabel(f"{NAMES[baseline]}, bits per dimension")
            panel.set_ylabel("PIC, bits per dimension")
        entries = {NAMES[name]: mark("o", COLOURS[name]) for name in pics}
        for n, marker in markers.items():
            entries[f"N = {n}"] = mark(marker, "#666666", fillstyle="none")
        legend_below(panels[0, 0], entries, columns=3)


def _pairs(records: Sequence[Record], pic: str, baseline: str, states: int) -> list[tuple[float, float]]:
    """The bits (baseline, PIC) of one size that have the same B and seed."""
    found: dict[tuple[str, int, int], float] = {}
    for record in records:
        settings = record["settings"]
        if settings["states"] == states:
            found[settings["model"], settings["batch"], settings["seed"]] = record["figures"]["test"]
    return [
        (found[baseline, batch, seed], bits)
        for (model, batch, seed), bits in found.items()
        if model == pic and (baseline, batch, seed) in found
    ]


def _diagonal(panel: Axes, values: Sequence[float]) -> None:
    """The line of equal bits, and shade where the PIC is better; both axes get the same range."""
    if not values:
        panel.set(xticks=[], yticks=[])
        panel.annotate("no pairs yet", (0.5, 0.5), xycoords="axes fraction", ha="center", color="#666666")
        return
    low, high = min(values), max(values)
    margin = 0.06 * (high - low) or 0.01
    ends = [low - margin, high + margin]
    panel.plot(ends, ends, color="#888888", linewidth=0.8, zorder=0)
    panel.fill_between(ends, [ends[0]] * 2, ends, color="#eeeeee", linewidth=0, zorder=-1)
    panel.set(xlim=ends, ylim=ends, aspect="equal")
    panel.annotate("PIC better", (0.96, 0.04), xycoords="axes fraction", ha="right", color="#666666")
