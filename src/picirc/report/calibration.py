"""Are the conditional distributions right? Where the values of a column lie among what the others let expect."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from picirc.report.conditionals import CellDistributions, given_others
from picirc.report.markup import Markup, shorten, tag
from picirc.report.material import Array, Material
from picirc.report.scales import label
from picirc.report.svg import Axes, band, bars

BINS = 10
MOST_ROWS = 1000
_MOST_NUMBERS = 2**26  # that are held at once
_FEWEST_ROWS = 100
_SHOWN = 24  # columns in view, those that are furthest off first; the others are folded away
_CRITICAL = 1.63  # a distance above this over √n happens to a calibrated column once in a hundred


@dataclass(frozen=True, eq=False)
class Ranks:
    """Where the values of a column lie in their conditional distributions, from 0 to 1.

    Attributes:
        name: The name of the column.
        values: One number for each row with a value; evenly spread if the distributions are right.
    """

    name: str
    values: Array

    @cached_property
    def distance(self) -> float:
        """How far the numbers are from evenly spread: the largest gap between a number and the share below it."""
        ordered, count = np.sort(self.values), len(self.values)
        shares = np.arange(count + 1) / count
        return float(max((shares[1:] - ordered).max(), (ordered - shares[:-1]).max()))

    @property
    def off(self) -> bool:
        """Whether chance hardly explains the distance."""
        return self.distance > _CRITICAL / math.sqrt(len(self.values))


def conditional_ranks(cells: CellDistributions, uniform: Tensor) -> Tensor:
    """``P(X < x | others) + U · P(X = x | others)`` for every cell of a column.

    The numbers are uniform when the conditional distributions are right: the probability integral transform, for
    discrete columns the randomised one.

    Args:
        cells: The distributions of the cells.
        uniform: ``(cells,)``, numbers U drawn from [0, 1).
    """
    below = cells.at_most()
    if cells.parts[0][0].discrete:
        below = below - uniform * cells.exactly()
    return below.clamp(0, 1)


def all_ranks(material: Material) -> tuple[list[Ranks], list[str]]:
    """The ranks of every column with different values, and the columns whose family has no distribution function."""
    qpc = material.model.qpc
    afford = _MOST_NUMBERS // qpc.compiled.elements
    chosen = material.some(int(np.clip(afford, _FEWEST_ROWS, MOST_ROWS)), purpose=2)
    rows = material.encoded[torch.as_tensor(chosen)]
    rng = np.random.default_rng((material.seed, 3))
    found, without = [], []
    for cells in given_others(qpc, rows):
        name = material.fields[cells.column].name
        if not material.fields[cells.column].labels and len(cells.values.unique()) == 1:
            continue  # a constant is no sample of anything
        try:
            ranks = conditional_ranks(cells, torch.as_tensor(rng.random(len(cells.values))).to(cells.values))
        except NotImplementedError:
            without.append(name)
        else:
            found.append(Ranks(name, ranks.double().cpu().numpy()))
    return found, without


def section(material: Material) -> Markup:
    """A histogram for each column, those that are furthest off first."""
    found, without = all_ranks(material)
    if not found:
        return tag("p", "No column has values to judge.", class_="note")
    found.sort(key=lambda ranks: -ranks.distance * math.sqrt(len(ranks.values)))
    off = sum(ranks.off for ranks in found)
    used = max(len(ranks.values) for ranks in found)
    words = (
        f"{_columns(off)} further from even than chance explains (at a level of 1 %), of {len(found)}; "
        f"{used:,} rows were used. The grey strip is where 95 % of the bars of an even distribution lie."
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


def _columns(count: int) -> str:
    return {0: "No column is", 1: "One column is"}.get(count, f"{count} columns are")


def _panel(ranks: Ranks) -> Markup:
    count = len(ranks.values)
    heights = np.histogram(ranks.values, BINS, (0.0, 1.0))[0] * (BINS / count)  # 1 is even
    low, high = stats.binom.interval(0.95, count, 1 / BINS)
    low, high = float(low) * BINS / count, float(high) * BINS / count
    top = max(2.0, 1.05 * float(heights.max()), 1.05 * high)
    axes = Axes(170.0, 108.0, (0.0, 1.0), (0.0, top), x_ticks=2, y_ticks=2)
    marks = band(axes, low, high), bars(axes, np.linspace(0, 1, BINS + 1), heights, "off" if ranks.off else "data")
    words = f"distance {label(ranks.distance, 0.01)}" + (" – off" if ranks.off else "")
    name = tag("b", shorten(ranks.name, 15), title=ranks.name)
    picture = axes.draw(*marks, title=f"Calibration of {ranks.name}")
    return tag("div", tag("p", name, tag("small", words), class_="side"), picture)
