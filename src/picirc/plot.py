# SPDX-License-Identifier: Apache-2.0
"""Plots of models and circuits. They draw on matplotlib axes and return them, and need the extra ``viz``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from picirc.checks import check_integer
from picirc.circuit import Circuit
from picirc.errors import ArgumentError, IntractableError
from picirc.explorer.pages import TableQuestions
from picirc.hclt import HCLT
from picirc.learning.history import History
from picirc.pic import PIC
from picirc.qpc.distribution import QPC
from picirc.quadrature import Rule, gauss_hermite, gauss_legendre, trapezoidal
from picirc.report.drawing import shorten
from picirc.report.sections import depths_of, in_units, rows_of
from picirc.structure.trees import LatentTree
from picirc.tables import TableModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

    Panels = npt.NDArray[np.object_]  # of axes

__all__ = ["latents", "marginals", "pairs", "quadrature", "sum_region", "training", "tree"]

_DATA, _MODEL, _BEFORE = "#c3cad2", "#1f63ad", "#6b7480"
_COLOURS = ("#1f63ad", "#d55e00", "#009e73", "#8a4fb0")  # colour-blind readers can tell them apart
_MARKS = "osv^"
_LARGEST_DOTS = 9.0
_MOST_NAMES = 6  # of variables of one latent


def tree(
    model: TableModel | PIC | HCLT | LatentTree, names: Sequence[str] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the latent tree of a model, with the root on the left and the variables of each latent.

    Args:
        model: A model, or a tree.
        names: The names of the variables; by default those of the table, or their numbers.
        ax: The axes; by default a new figure.
    """
    structure = model.pic.structure if isinstance(model, TableModel) else getattr(model, "structure", model)
    if not isinstance(structure, LatentTree):
        raise ArgumentError("model", "a latent tree, or a model on one", type(structure).__name__)
    if names is None:
        names = model.schema.names if isinstance(model, TableModel) else list(map(str, range(structure.n_variables)))
    axes = _axes(ax)
    depth, rows = depths_of(structure), rows_of(structure)
    for latent, parent in enumerate(structure.parents):
        if parent >= 0:
            axes.plot([depth[parent], depth[latent]], [-rows[parent], -rows[latent]], color=_DATA, zorder=1)
    size = float(np.clip(900 / structure.n_latents, 12, 90))
    axes.scatter(depth, [-row for row in rows], s=size, color=_MODEL, zorder=2)
    for latent, own in enumerate(structure.variables):
        label = "\n".join(shorten(names[variable], 30) for variable in own[:_MOST_NAMES])
        axes.annotate(
            label + ("\n…" if len(own) > _MOST_NAMES else ""), (depth[latent], -rows[latent]), (7, 0),
            textcoords="offset points", va="center", fontsize=8,
            bbox={"boxstyle": "square,pad=0.1", "facecolor": axes.get_facecolor(), "edgecolor": "none"},
        )  # fmt: skip
    axes.margins(x=0.15, y=0.1)
    axes.axis("off")
    return axes


def marginals(
    model: TableModel,
    given: Mapping[str, Any] | None = None,
    data: Any = None,
    columns: Sequence[str] | None = None,
    axes: Any = None,
) -> Panels:
    """Draw the distribution of every column given evidence, over the histogram of the data.

    Args:
        model: The model of a table.
        given: Evidence, a mapping from names to values.
        data: Rows to compare with.
        columns: The columns to draw; by default all without evidence.
        axes: One for each column; by default a new figure.

    Returns:
        The axes, one for each column.
    """
    questions = TableQuestions(model, data)
    answers = [questions.given({name: {"is": value} for name, value in known.items()}) for known in ({}, given or {})]
    wanted = [name for name in model.schema.names if name not in (given or {})] if columns is None else list(columns)
    panels = _panels(axes, len(wanted))
    described = questions.describe()["columns"]
    for panel, name in zip(panels, wanted, strict=True):
        place = model.schema.index(name)
        before, after = (answer["cards"][place] for answer in answers)
        if after is None:
            raise ArgumentError("columns", "columns without evidence", name)
        _marginal(panel, described[place], before["heights"], after["heights"], conditional=bool(given))
        _spikes(panel, described[place], after.get("spikes", []))
        panel.set_title(shorten(name, 30), fontsize=10)
    return panels


def _spikes(panel: Axes, column: Mapping[str, Any], shares: Sequence[float]) -> None:
    """Draw the atoms of a column of numbers as bars; the full height is probability one."""
    bars: dict[str, Any] = {"transform": panel.get_xaxis_transform()}
    for place, share in enumerate(shares):
        value = column["spikes"][place]
        if "single" in column:
            panel.vlines(value, 0, column["single"][place], color=_DATA, linewidth=7, capstyle="butt", **bars)
        panel.vlines(value, 0, share, color=_MODEL, linewidth=3, capstyle="butt", **bars)
        panel.text(value, share, f" {share:.0%}", fontsize=8, **bars)


def _marginal(
    panel: Axes, column: Mapping[str, Any], before: list[float], after: list[float], *, conditional: bool
) -> None:
    data = column.get("data")
    if column["kind"] == "category":
        places = np.arange(len(after))
        if data is not None:
            panel.barh(places, data, color=_DATA, height=0.8)
        panel.barh(places, after, color=_MODEL, height=0.4)
        if conditional:
            panel.scatter(before, places, marker="|", color=_BEFORE, s=80, zorder=3)
        panel.set_yticks(places, [shorten(str(label), 18) for label in column["labels"]])
        panel.invert_yaxis()
        panel.set_xlim(0, None)
        return
    edges = np.linspace(column["low"], column["high"], len(after) + 1)
    if column["kind"] == "count":
        edges = column["low"] + (np.arange(len(after) + 1) - 0.5) * column["step"]
    width = float(edges[1] - edges[0])
    middles = (edges[1:] + edges[:-1]) / 2
    if data is not None:
        panel.stairs(np.asarray(data) / width, edges, fill=True, color=_DATA)
    if conditional:
        panel.plot(middles, np.asarray(before) / width, color=_BEFORE, linestyle=":", linewidth=1.2)
    panel.plot(middles, np.asarray(after) / width, color=_MODEL)
    panel.fill_between(middles, np.asarray(after) / width, color=_MODEL, alpha=0.15)
    panel.set_yticks([])
    panel.set_ylim(0, None)


def pairs(
    model: TableModel, columns: Sequence[str], data: Any = None, n: int = 500, seed: int = 0, axes: Any = None
) -> Panels:
    """Draw a scatter plot for every pair of columns: the data above the diagonal, samples below it.

    Args:
        model: The model of a table.
        columns: Two or more columns.
        data: Rows to compare with.
        n: The number of samples.
        seed: The random seed.
        axes: ``(columns, columns)`` axes; by default a new figure.

    Returns:
        The axes, ``(columns, columns)``.
    """
    places = [model.schema.index(name) for name in columns]
    if len(places) < 2:
        raise ArgumentError("columns", "two columns or more", f"{len(places)}")
    drawn = model.schema.encode(model.sample(n, seed=seed))
    rows = None if data is None else model.schema.encode(data)
    panels = _panels(axes, len(places) ** 2, across=len(places)).reshape(len(places), -1)
    for down, row in enumerate(places):
        for across, column in enumerate(places):
            panel = panels[down, across]
            if down >= across or rows is None:
                _pair(panel, model, drawn, row, column, _MODEL)
            if down <= across and rows is not None:
                _pair(panel, model, rows, row, column, _BEFORE)
            _name(panel, model, (row if across == 0 else -1), (column if down == len(places) - 1 else -1))
    return panels


def _pair(panel: Axes, model: TableModel, rows: npt.NDArray[np.float64], row: int, column: int, colour: str) -> None:
    x, y = (in_units(model.schema.columns[place], rows[:, place]) for place in (column, row))
    if row == column:
        coded = model.schema.columns[row].coded
        count = len(model.schema.columns[row].categories)
        heights, edges = np.histogram(
            x[~np.isnan(x)], count if coded else 24, (-0.5, count - 0.5) if coded else None, density=True
        )
        panel.stairs(heights, edges, color=colour)
        panel.set_yticks([])
        return
    size = float(np.clip(4000 / max(1, len(rows)), 1.0, _LARGEST_DOTS))
    noise = np.random.default_rng(0).uniform(-0.18, 0.18, (2, len(rows)))  # categories would hide each other
    x, y = (v + w * model.schema.columns[p].coded for v, w, p in zip((x, y), noise, (column, row), strict=True))
    panel.scatter(x, y, s=size, color=colour, alpha=0.5, linewidths=0)


def _name(panel: Axes, model: TableModel, row: int, column: int) -> None:
    for place, axis, name in ((row, panel.yaxis, panel.set_ylabel), (column, panel.xaxis, panel.set_xlabel)):
        if place < 0:
            axis.set_ticklabels([])
            continue
        name(shorten(model.schema.names[place], 24), fontsize=9)
        labels = model.schema.columns[place].categories
        if labels and not (axis is panel.yaxis and panel.get_subplotspec() is None):
            axis.set_ticks(range(len(labels)), [shorten(str(label), 10) for label in labels], fontsize=8)


def sum_region(qpc: QPC, region: int = 0, ax: Axes | None = None) -> Axes:
    """Draw the weights of one sum region: the square roots of the probabilities of a child's states given its parent's.

    If the states lie on a grid, neighbouring rows and columns are similar, and the image is smooth.

    Args:
        qpc: The circuit.
        region: The number of the region, counted over all levels.
        ax: The axes; by default a new figure.
    """
    found = [w.detach().double().cpu() for w in qpc.parameters.weights if w.ndim >= 2]
    regions = [one for w in found for one in w.reshape(-1, *w.shape[-2:])]
    number = check_integer("region", region, 0, len(regions) - 1)
    axes = _axes(ax)
    axes.imshow(regions[number].clamp(min=0).sqrt().numpy(), cmap="magma", vmin=0, aspect="auto")
    axes.set_xlabel("state of the child")
    axes.set_ylabel("state of the parent")
    return axes


def latents(qpc: QPC, x: Tensor, name: str | None = None, ax: Axes | None = None) -> Axes:
    """Draw the posterior density of a latent given each of a few data points.

    Args:
        qpc: The circuit.
        x: ``(batch, variables)`` or one data point; NaN is missing.
        name: The latent; by default the first one.
        ax: The axes; by default a new figure.
    """
    rows = torch.as_tensor(x)
    found = qpc.latents(rows if rows.ndim == 2 else rows[None])
    name = next(iter(found)) if name is None else name
    if name not in found:
        raise ArgumentError("name", f"one of {', '.join(found)}", name)
    posterior = found[name]
    axes = _axes(ax)
    for number in range(len(posterior.probabilities)):
        colour = _COLOURS[number % len(_COLOURS)]
        if posterior.grid is None:
            axes.stairs(posterior.probabilities[number].detach().cpu().numpy(), color=colour)
            continue
        grid, density = (v.detach().cpu().numpy() for v in (posterior.grid, posterior.density[number]))
        axes.plot(grid, density, color=colour, marker=".", markersize=4, linewidth=1.2)
        axes.fill_between(grid, density, color=colour, alpha=0.12)
    axes.set_xlabel(name if posterior.grid is not None else f"state of {name}")
    axes.set_ylabel(f"p({name} | x)")
    axes.set_ylim(0, None)
    return axes


def training(history: History | Sequence[Mapping[str, float]], ax: Axes | None = None) -> Axes:
    """Draw the mean log-likelihood of the training and validation rows against the step.

    Args:
        history: The history that ``pc.fit`` returned, or its records.
        ax: The axes; by default a new figure.
    """
    records = history.records if isinstance(history, History) else list(history)
    if not records:
        raise ArgumentError("history", "at least one record", "none")
    axes = _axes(ax)
    steps = [record["step"] for record in records]
    axes.plot(steps, [record["train"] for record in records], color=_BEFORE, label="training")
    valid = np.array([record["valid"] for record in records], dtype=np.float64)
    if not np.isnan(valid).all():
        best = int(np.nanargmax(valid))
        axes.plot(steps, valid, color=_MODEL, label="validation")
        axes.plot(steps[best], valid[best], "o", color=_MODEL, label=f"best, step {int(steps[best]):,}")
    axes.set_xlabel("step")
    axes.set_ylabel("mean log-likelihood")
    axes.legend(frameon=False)
    return axes


def quadrature(
    circuit: Circuit,
    x: Tensor,
    rules: Mapping[str, Callable[[int], Rule]] | None = None,
    points: Sequence[int] = (4, 8, 12, 16, 24, 32, 48, 64, 96),
    ax: Axes | None = None,
) -> Axes:
    """Draw the largest error of the log-likelihood of some data against the number of points.

    Dots are the errors that the circuit estimates. Lines are the true errors, if the circuit has a closed form.

    Args:
        circuit: An integral circuit.
        x: The data.
        rules: Rules by name; by default trapezoidal, Gauss–Legendre and Gauss–Hermite.
        points: The numbers of points.
        ax: The axes; by default a new figure.
    """
    if rules is None:
        rules = {"trapezoidal": trapezoidal, "Gauss–Legendre": gauss_legendre, "Gauss–Hermite": gauss_hermite}
    try:
        truth = circuit.exact().log_prob(x)
    except IntractableError:
        truth = None
    axes = _axes(ax)
    for number, (name, rule) in enumerate(rules.items()):
        circuits = [circuit.integrate(rule(n)) for n in points]
        colour, mark = _COLOURS[number % len(_COLOURS)], _MARKS[number % len(_MARKS)]
        axes.plot(
            points, [float(qpc.error(x).max()) for qpc in circuits], mark, color=colour, label=name, fillstyle="none"
        )
        if truth is not None:
            errors = [max(float((qpc.log_prob(x) - truth).abs().max()), 1e-16) for qpc in circuits]
            axes.plot(points, errors, color=colour, linewidth=1.2)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(points, list(map(str, points)), fontsize=8)
    axes.set_xlabel("points N for each latent")
    axes.set_ylabel("largest error of log p(x)")
    axes.grid(color="#e8ebee", linewidth=0.6)
    axes.legend(frameon=False)
    return axes


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    return _pyplot().subplots(layout="constrained")[1]  # type: ignore[no-any-return]


def _panels(axes: Any, count: int, across: int = 4) -> Panels:
    """The given axes, flat, or ``count`` new ones."""
    if axes is not None:
        found = np.array(axes, dtype=object).flatten()
        if len(found) != count:
            raise ArgumentError("axes", f"{count} axes", f"{len(found)}")
        return found
    across = max(1, min(across, count))
    down = -(-count // across)
    _, made = _pyplot().subplots(down, across, figsize=(2.7 * across, 2.1 * down), layout="constrained", squeeze=False)
    for spare in made.flatten()[count:]:
        spare.remove()
    return made.flatten()[:count]  # type: ignore[no-any-return]


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError('plots need matplotlib: pip install "picirc[viz]"') from error
    return plt
