# SPDX-License-Identifier: Apache-2.0
"""The sections on calibration and on the most surprising rows: cells given the other cells of their rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from scipy import stats
from torch import Tensor

from picirc.report.drawing import Axes, Markup, band, bars, key, label, shorten, steps, tag
from picirc.report.material import Array, Material, densities
from picirc.tables.answers import Cell, CellDistributions, given_others, strange_cells

LogDensity = Callable[[Array], Array]

BINS = 10
MOST_RANKED_ROWS = 1000
_MOST_NUMBERS = 2**26  # held in memory at once
_FEWEST_ROWS = 100
_SHOWN = 24  # columns that are visible, the worst first; the others are folded
_CRITICAL = 1.63  # the distance of a calibrated column with n values exceeds this over √n with probability 1 %

MOST_ROWS = 12
_CELLS = 3  # named of each row
_SURPRISING = 0.05  # a cell is named when a value at least as extreme is less probable than this
_MOST_PATTERN_ROWS = 20_000  # searched for combinations of missing cells
_SHRINK = 1e-3
_FIGURES = {"row": "n", "log-density": "n roomy", "surprise": "n"}  # and their classes


# Calibration


@dataclass(frozen=True, eq=False)
class Ranks:
    """The probability integral transforms of the values of a column."""

    name: str  # the name of the column
    values: Array  # one for each observed value; uniform in [0, 1] if the conditional distributions are right

    @cached_property
    def distance(self) -> float:
        """The Kolmogorov–Smirnov distance from the uniform distribution."""
        ordered, count = np.sort(self.values), len(self.values)
        shares = np.arange(count + 1) / count
        return float(max((shares[1:] - ordered).max(), (ordered - shares[:-1]).max()))

    @property
    def off(self) -> bool:
        """Whether the distance is significant."""
        return self.distance > _CRITICAL / math.sqrt(len(self.values))


def conditional_ranks(cells: CellDistributions, uniform: Tensor) -> Tensor:
    """The probability integral transform ``P(X < x | others) + U · P(X = x | others)`` of every cell of a column.

    Args:
        cells: The distributions of the cells.
        uniform: ``(cells,)``, random numbers U in [0, 1), which are used for discrete columns.
    """
    below = cells.at_most()
    if cells.parts[0][0].discrete:
        below = below - uniform * cells.exactly()
    return below.clamp(0, 1)


def all_ranks(material: Material) -> tuple[list[Ranks], list[str]]:
    """The ranks of every column that is not constant, and the columns whose family has no distribution function."""
    qpc = material.model.qpc
    afford = _MOST_NUMBERS // qpc.compiled.elements
    chosen = material.some(int(np.clip(afford, _FEWEST_ROWS, MOST_RANKED_ROWS)), purpose=2)
    rows = material.encoded[torch.as_tensor(chosen)]
    rng = np.random.default_rng((material.seed, 3))
    found, without = [], []
    for cells in given_others(qpc, rows, len(material.fields)):
        name = material.fields[cells.column].name
        if not material.fields[cells.column].labels and len(cells.values.unique()) == 1:
            continue  # a constant says nothing about calibration
        try:
            ranks = conditional_ranks(cells, torch.as_tensor(rng.random(len(cells.values))).to(cells.values))
        except NotImplementedError:
            without.append(name)
        else:
            found.append(Ranks(name, ranks.double().cpu().numpy()))
    return found, without


def calibration_section(material: Material) -> Markup:
    """A histogram for each column, the worst first."""
    found, without = all_ranks(material)
    if not found:
        return tag("p", "No column has enough different values.", class_="note")
    found.sort(key=lambda ranks: -ranks.distance * math.sqrt(len(ranks.values)))
    off = sum(ranks.off for ranks in found)
    used = max(len(ranks.values) for ranks in found)
    many = {0: "No column is", 1: "One column is"}.get(off, f"{off} columns are")
    words = (
        f"{many} not uniform at a significance level of 1 %, of {len(found)}; {used:,} rows were used. "
        "The grey band contains 95 % of the bars of a uniform distribution."
    )
    parts = [tag("p", words, class_="note")]
    panels = [_panel(ranks) for ranks in found]
    parts.append(tag("div", *panels[:_SHOWN], class_="facets small"))
    if panels[_SHOWN:]:
        summary = tag("summary", f"The other {len(panels) - _SHOWN} columns")
        parts.append(tag("details", summary, tag("div", *panels[_SHOWN:], class_="facets small")))
    if without:
        parts.append(tag("p", f"Without a distribution function: {', '.join(without)}.", class_="note"))
    return Markup("".join(parts))


def _panel(ranks: Ranks) -> Markup:
    count = len(ranks.values)
    heights = np.histogram(ranks.values, BINS, (0.0, 1.0))[0] * (BINS / count)  # 1 if uniform
    low, high = stats.binom.interval(0.95, count, 1 / BINS)
    low, high = float(low) * BINS / count, float(high) * BINS / count
    top = max(2.0, 1.05 * float(heights.max()), 1.05 * high)
    axes = Axes(170.0, 108.0, (0.0, 1.0), (0.0, top), x_ticks=2, y_ticks=2)
    marks = band(axes, low, high), bars(axes, np.linspace(0, 1, BINS + 1), heights, "off" if ranks.off else "data")
    words = f"distance {label(ranks.distance, 0.01)}" + (" – off" if ranks.off else "")
    name = tag("b", shorten(ranks.name, 15), title=ranks.name)
    picture = axes.draw(*marks, title=f"Calibration of {ranks.name}")
    return tag("div", tag("p", name, tag("small", words), class_="side"), picture)


# The most surprising rows


def surprises(log_density: LogDensity, rows: Array, values: Array, drawn: Array) -> tuple[Array, Array]:
    """The expected log-density of a row with the same missing cells, minus the log-density of the row.

    Densities of different cells cannot be compared directly. The expectation is estimated from rows drawn from the
    model, with cells removed as in rows of the table. It is linear in the indicators of missing cells.

    Args:
        log_density: The log-density of rows, with NaN where cells are missing.
        rows: ``(rows, columns)``; NaN is missing.
        values: Their log-densities.
        drawn: Complete rows drawn from the model.

    Returns:
        The surprise in nats of the rows, and of the rows drawn, each with the missing cells of a row of the table.
    """
    missing = np.isnan(rows)
    patterns = np.unique(missing[:: 1 + len(rows) // _MOST_PATTERN_ROWS], axis=0)
    masks = patterns[np.arange(len(drawn)) % len(patterns)]  # rare patterns as often as frequent ones
    theirs = log_density(np.where(masks, np.nan, drawn))
    design = _design(masks)[np.isfinite(theirs)]
    square = design.T @ design + _SHRINK * np.eye(design.shape[1])
    weights = np.linalg.solve(square, design.T @ theirs[np.isfinite(theirs)])
    same = missing[np.arange(len(drawn)) % len(rows)]
    return (
        _design(missing) @ weights - values,
        _design(same) @ weights - log_density(np.where(same, np.nan, drawn)),
    )


def _design(missing: npt.NDArray[np.bool_]) -> Array:
    return np.column_stack([np.ones(len(missing)), missing])


def anomalies_section(material: Material) -> Markup:
    """A table of the most surprising rows, and a histogram of all surprises."""
    rows, values = material.encoded, material.log_densities
    density = material.model.log_density_of_encoded
    found, drawn = surprises(density, rows.numpy(), values, material.drawn.numpy())
    order = np.argsort(-found, kind="stable")[:MOST_ROWS]
    strange = strange_cells(material.model.qpc, rows[torch.as_tensor(order)], material.model.schema.columns)
    lines = []
    for row, cells in zip(order.tolist(), strange, strict=True):
        named = [cell for cell in cells[:_CELLS] if cell.tail < _SURPRISING]
        words = [_words(material, row, cell) for cell in named] or [tag("li", "no single cell", class_="quiet")]
        numbers = (f"{row:,}", label(float(values[row]), 0.1), label(float(found[row]), 0.1))
        figures = (tag("td", text, class_=class_) for text, class_ in zip(numbers, _FIGURES.values(), strict=True))
        lines.append(tag("tr", *figures, tag("td", tag("ul", *words))))
    heads = [tag("th", text, class_=class_) for text, class_ in _FIGURES.items()]
    head = tag("thead", tag("tr", *heads, tag("th", "surprising cells")))
    table = tag("table", head, tag("tbody", *lines))
    return tag(
        "div", tag("div", table, class_="scroll", tabindex=0), _surprise_plot(found, drawn), class_="beside wide-first"
    )


def _words(material: Material, row: int, cell: Cell) -> Markup:
    field = material.fields[cell.column]
    has, wanted = (
        shorten(field.labels[int(value)], 24) if field.labels else label(value)
        for value in (float(field.data[row]), cell.expected)
    )
    chance = label(cell.tail, digits=2) if cell.tail >= 1e-6 else "< 1e-6"
    name = tag("b", shorten(field.name, 28), title=field.name)
    return tag(
        "li", name, f" is {has}, expected {wanted} ", tag("small", f"p {'=' if chance[0] != '<' else ''} {chance}")
    )


def _surprise_plot(found: Array, drawn: Array) -> Markup:
    """Histograms of the surprise of the rows, and of rows drawn from the model."""
    both = np.concatenate([found, drawn])
    low, high = map(float, np.quantile(both[np.isfinite(both)], [0.001, 0.995]))  # outliers are in the table
    edges = np.linspace(low, max(high, low + 1.0), 31)
    heights = densities(found, edges), densities(drawn, edges)
    axes = Axes(
        300.0, 220.0, (low, float(edges[-1])), (0.0, 1.05 * float(np.max(heights))), "surprise (nats)", y_ticks=0
    )
    picture = axes.draw(
        bars(axes, edges, heights[0], "data"), steps(axes, edges, heights[1], "drawn"), title="Surprise"
    )
    return tag("div", picture, key())
