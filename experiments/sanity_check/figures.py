# SPDX-License-Identifier: Apache-2.0
"""Table and figures of the sanity check, from the lines of its results."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

Array = NDArray[np.float64]
Lines = Sequence[Mapping[str, Any]]
Curves = Mapping[str, Array]  # for each series the MSE, (models, xs)

# The palette of Okabe and Ito, told apart by colour-blind readers too; every curve has its own marker.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"


def curves(lines: Lines, study: str) -> Curves:
    """The results of a study, one array a series; null was infinity."""
    found = [line["mse"] for line in sorted(lines, key=lambda line: line["model"]) if line["study"] == study]
    return {name: np.array([[np.inf if y is None else y for y in mse[name]] for mse in found]) for name in found[0]}


def write(lines: Lines, xs: Mapping[str, Sequence[float]], out: Path) -> None:
    """Write ``table.csv``, its heart as ``table.md``, and one figure a study."""
    write_table({study: (xs[study], curves(lines, study)) for study in xs}, out / "table.csv")
    (out / "table.md").write_text(summary(xs["points"], curves(lines, "points")), encoding="utf-8")
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    draw_points(xs["points"], curves(lines, "points")).savefig(out / "points.png")
    draw_coefficients(xs["coefficients"], curves(lines, "coefficients")).savefig(out / "coefficients.png")
    draw_sigmas(xs["sigmas"], curves(lines, "sigmas")).savefig(out / "sigmas.png")
    plt.close("all")


def write_table(studies: Mapping[str, tuple[Sequence[float], Curves]], path: Path) -> None:
    """One row a series and x: mean, quartiles, and how many models have an infinite MSE."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["study", "series", "x", "mean", "lower quartile", "median", "upper quartile", "infinite"])
        for study, (xs, found) in studies.items():
            for name, values in found.items():
                for x, column in zip(xs, values.T, strict=True):
                    numbers = [column.mean(), *quartiles(column)]
                    writer.writerow([study, name, x, *(f"{v:.3g}" for v in numbers), int(np.isinf(column).sum())])


def summary(xs: Sequence[float], found: Curves) -> str:
    """The MSE of the rules against N, median and mean over the models, as a table in Markdown."""
    models = len(next(iter(found.values())))
    chosen = [number for number, x in enumerate(xs) if x >= 16]
    rows = [
        ["rule", "domain", "over models", *(f"N = {xs[number]:g}" for number in chosen)],
        ["---"] * (3 + len(chosen)),
    ]
    for name, values in found.items():
        rule, domain = name.split(", ")
        for word, numbers in (("median", quartiles(values)[1]), ("mean", values.mean(0))):
            rows.append([rule, domain, word, *(f"{numbers[number]:.1e}" for number in chosen)])
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    note = "Simpson's rule has one point more than the column says."
    return f"MSE of the log-likelihood, {models} models.\n\n{table}\n\n{note}\n"


def quartiles(values: Array) -> Array:
    """Lower quartile, median and upper quartile over the models; each is the value of a model, maybe infinite."""
    found: Array = np.quantile(values, (0.25, 0.5, 0.75), axis=0, method="nearest")
    return found


def draw_points(xs: Sequence[float], found: Curves) -> Figure:
    """MSE against the number of points, one panel a domain."""
    figure, panels = plt.subplots(1, 2, figsize=(9, 4.4), sharey=True, dpi=160, layout="constrained")
    titles = {
        "worst": "domains of the paper (±3σ of every conditional)",
        "marginal": "domains by marginal moments",
    }
    rules = list(dict.fromkeys(name.split(", ")[0] for name in found))
    for panel, (domain, title) in zip(panels, titles.items(), strict=True):
        for number, rule in enumerate(rules):
            if f"{rule}, {domain}" in found:
                points = [x + 1 for x in xs] if rule == "Simpson" else xs
                draw_curve(panel, points, found[f"{rule}, {domain}"], number, rule)
        panel.set_title(title, fontsize=9.5)
        panel.set_xscale("log", base=2)
        panel.set_xticks([4, 8, 16, 32, 64, 128, 256], ["4", "8", "16", "32", "64", "128", "256"])
        panel.set_xlabel("number of points N")
    finish(figure, panels)
    return figure


def draw_coefficients(xs: Sequence[float], found: Curves) -> Figure:
    """MSE against the range of the coefficients."""
    figure, panel = plt.subplots(figsize=(6, 4.2), dpi=160, layout="constrained")
    for number, (name, values) in enumerate(found.items()):
        draw_curve(panel, xs, values, number, name)
    panel.set_xscale("log", base=2)
    panel.set_xticks(xs, [f"{x:g}" for x in xs])
    panel.set_xlabel("coefficients uniform in [−a, a]:  a")
    finish(figure, [panel])
    return figure


def draw_sigmas(xs: Sequence[float], found: Curves) -> Figure:
    """MSE against the width of the marginal domain."""
    rules = list(dict.fromkeys(name.split(", ")[0] for name in found))
    figure, panels = plt.subplots(1, len(rules), figsize=(9, 4.2), sharey=True, dpi=160, layout="constrained")
    for panel, rule in zip(panels, rules, strict=True):
        own = {name.split(", ")[1]: values for name, values in found.items() if name.startswith(rule)}
        for number, (name, values) in enumerate(own.items()):
            draw_curve(panel, xs, values, number, name)
        panel.set_title(rule, fontsize=9.5)
        panel.set_xlabel("half-width of the domain in marginal standard deviations")
    finish(figure, panels)
    return figure


def draw_curve(panel: Axes, xs: Sequence[float], values: Array, number: int, label: str) -> None:
    """The median over the models with a band between the quartiles; hollow at the top where it is infinite."""
    lower, median, upper = quartiles(values)
    colour, marker = COLOURS[number], MARKERS[number]
    panel.plot(xs, median, marker=marker, markersize=4, linewidth=1.4, label=label, color=colour, zorder=3)
    panel.fill_between(xs, lower, upper, color=colour, alpha=0.1, linewidth=0)
    for x in np.asarray(xs)[np.isinf(median)]:
        (top,) = panel.plot(x, 1 - 0.035 * number, marker, color=colour, fillstyle="none")
        top.set(transform=panel.get_xaxis_transform(), clip_on=False, in_layout=False)


def finish(figure: Figure, panels: Sequence[Axes]) -> None:
    """Logarithmic MSE, a light grid, and one legend below the panels."""
    handles: dict[str, Artist] = {}
    for panel in panels:
        panel.set_yscale("log")
        panel.grid(color="#dddddd", linewidth=0.6)
        found, labels = panel.get_legend_handles_labels()
        handles.update(zip(labels, found, strict=True))
    panels[0].set_ylabel("MSE of the log-likelihood")
    columns = len(handles) if len(panels) > 1 else 2
    labels = list(handles)
    figure.legend(list(handles.values()), labels, loc="outside lower center", ncols=columns, frameon=False)
