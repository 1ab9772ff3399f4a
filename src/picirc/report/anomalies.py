"""The rows that surprise the model most, and which of their cells do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from picirc.qpc.distribution import QPC
from picirc.report.conditionals import CellDistributions, given_others
from picirc.report.histogram import densities
from picirc.report.markup import Markup, shorten, tag
from picirc.report.material import Array, Field, Material
from picirc.report.scales import label
from picirc.report.svg import Axes, bars, key, steps

LogDensity = Callable[[Array], Array]

MOST_ROWS = 12
_CELLS = 3  # named of each row
_SURPRISING = 0.05  # a cell is named when what it has, or something further off, is less probable than this
_MOST_PATTERN_ROWS = 20_000  # that are searched for combinations of missing cells
_SHRINK = 1e-3
_FIGURES = {"row": "n", "log-density": "n roomy", "surprise": "n"}  # and how they are set


@dataclass(frozen=True)
class Cell:
    """A cell and what the other cells of its row let expect.

    Attributes:
        column: The column.
        tail: The probability of something as far off: beyond the value on its side, doubled; for categories that of all
            that are no more probable.
        expected: The conditional mean, or the code of the most probable category.
    """

    column: int
    tail: float
    expected: float


def surprises(log_density: LogDensity, rows: Array, values: Array, drawn: Array) -> tuple[Array, Array]:
    """How far the log-density of each row lies below what the model expects of a row with the same cells missing.

    Fewer cells have another density, so rows with different cells missing cannot be compared as they are. The
    expectation is estimated from rows drawn from the model, with the cells of rows of the table taken away; it is
    linear in which cells are missing.

    Args:
        log_density: The log-density of rows with NaN where cells are missing.
        rows: ``(rows, columns)``; NaN is missing.
        values: Their log-densities.
        drawn: Rows drawn from the model, complete.

    Returns:
        The surprise of every row in nats, and that of the rows drawn, with the cells of one row of the table after the
        other taken away.
    """
    missing = np.isnan(rows)
    patterns = np.unique(missing[:: 1 + len(rows) // _MOST_PATTERN_ROWS], axis=0)
    masks = patterns[np.arange(len(drawn)) % len(patterns)]  # the rare ones as often as the others
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


def strange_cells(qpc: QPC, rows: Tensor, coded: Sequence[bool]) -> list[list[Cell]]:
    """For each row its observed cells, the one that is most surprising given the others first.

    Args:
        qpc: The circuit.
        rows: ``(rows, columns)``; NaN is missing.
        coded: Whether the columns have categories.
    """
    found: list[list[Cell]] = [[] for _ in rows]
    for cells in given_others(qpc, rows):
        if coded[cells.column]:
            chances = cells.probabilities()
            mine = chances.gather(1, cells.values.long().unsqueeze(1))
            tails, expected = chances.masked_fill(chances > mine, 0.0).sum(1), chances.argmax(1)
        else:
            tails, expected = _tails(cells), cells.mean()
        for row, tail, value in zip(cells.rows.tolist(), tails.tolist(), expected.tolist(), strict=True):
            found[row].append(Cell(cells.column, tail, float(value)))
    return [sorted(row, key=lambda cell: cell.tail) for row in found]


def _tails(cells: CellDistributions) -> Tensor:
    """Twice the smaller of P(X ≤ x) and P(X ≥ x); 1 where the family has no distribution function."""
    try:
        return (2 * torch.minimum(cells.at_most(), cells.at_least())).clamp(max=1)
    except NotImplementedError:
        return torch.ones_like(cells.values)


def section(material: Material) -> Markup:
    """How surprising the rows are, and a table of the most surprising ones."""
    rows, values = material.encoded, material.log_densities
    density = material.model.log_density_of_encoded
    found, drawn = surprises(density, rows.numpy(), values, material.drawn.numpy())
    order = np.argsort(-found, kind="stable")[:MOST_ROWS]
    coded = [bool(field.labels) for field in material.fields]
    strange = strange_cells(material.model.qpc, rows[torch.as_tensor(order)], coded)
    lines = []
    for row, cells in zip(order.tolist(), strange, strict=True):
        named = [cell for cell in cells[:_CELLS] if cell.tail < _SURPRISING]
        words = [_words(material, row, cell) for cell in named] or [tag("li", "no cell by itself", class_="quiet")]
        numbers = (f"{row:,}", label(float(values[row]), 0.1), label(float(found[row]), 0.1))
        figures = (tag("td", text, class_=class_) for text, class_ in zip(numbers, _FIGURES.values(), strict=True))
        lines.append(tag("tr", *figures, tag("td", tag("ul", *words))))
    heads = [tag("th", text, class_=class_) for text, class_ in _FIGURES.items()]
    table = tag("table", tag("thead", tag("tr", *heads, tag("th", "cells that do not fit the others"))),
                tag("tbody", *lines))  # fmt: skip
    return tag("div", tag("div", table, class_="scroll", tabindex=0), _plot(found, drawn), class_="beside wide-first")


def _words(material: Material, row: int, cell: Cell) -> Markup:
    field = material.fields[cell.column]
    has = _value(field, float(field.data[row]))
    wanted = _value(field, _units(material, cell))
    chance = label(cell.tail, digits=2) if cell.tail >= 1e-6 else "< 1e-6"
    name = tag("b", shorten(field.name, 28), title=field.name)
    return tag(
        "li", name, f" is {has}, expected {wanted} ", tag("small", f"p {'=' if chance[0] != '<' else ''} {chance}")
    )


def _units(material: Material, cell: Cell) -> float:
    column = material.model.schema.columns[cell.column]
    return cell.expected if column.coded else float(column.location + column.scale * cell.expected)


def _value(field: Field, value: float) -> str:
    return shorten(field.labels[int(value)], 24) if field.labels else label(value)


def _plot(found: Array, drawn: Array) -> Markup:
    """How surprising the rows are, against rows that the model itself drew."""
    both = np.concatenate([found, drawn])
    low, high = map(float, np.quantile(both[np.isfinite(both)], [0.001, 0.995]))  # the wildest stand in the table
    edges = np.linspace(low, max(high, low + 1.0), 31)
    heights = densities(found, edges), densities(drawn, edges)
    axes = Axes(
        300.0, 220.0, (low, float(edges[-1])), (0.0, 1.05 * float(np.max(heights))), "surprise (nats)", y_ticks=0
    )
    picture = axes.draw(
        bars(axes, edges, heights[0], "data"), steps(axes, edges, heights[1], "drawn"), title="Surprise"
    )
    return tag("div", picture, key())
