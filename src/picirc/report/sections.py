# SPDX-License-Identifier: Apache-2.0
"""The sections of a report, and what they show: the table, rows drawn from the model, and mutual information."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import stats
from torch import Tensor

from picirc.checks import is_number
from picirc.report.drawing import (
    FONT,
    Axes,
    Bare,
    Markup,
    Scale,
    band,
    bars,
    dots,
    drawing,
    grouped_bars,
    join,
    key,
    label,
    line,
    number,
    percent,
    shorten,
    span,
    steps,
    tag,
    text_width,
)
from picirc.structure.information import mutual_information
from picirc.structure.trees import LatentTree, maximum_spanning_tree
from picirc.tables import TableModel
from picirc.tables.answers import Cell, CellDistributions, given_others, strange_cells

Array = npt.NDArray[np.float64]

FEWEST_DRAWN, MOST_DRAWN = 500, 4000  # rows drawn from the model, whatever the table has
_RANGE = 0.005  # the fraction of values that may lie beyond each end of an axis
_ROOM = 0.1  # how far an axis extends beyond these quantiles, relative to their distance
_MOST_UNIT_BINS = 40  # counts with fewer different values have a bin for each


@dataclass(frozen=True, eq=False)
class Field:
    """A column of the table and the same column of the rows drawn from the model."""

    name: str
    kind: str  # the kind of its distribution
    labels: tuple[str, ...]  # the names of its categories; empty for numbers
    whole: bool  # whether its numbers are counts
    data: Array  # the values in the units of the table, or the codes of categories; NaN where missing
    drawn: Array  # the same for the rows drawn

    @property
    def observed(self) -> Array:
        """The values that are not missing."""
        return self.data[~np.isnan(self.data)]

    @property
    def empty(self) -> bool:
        """Whether all values are missing."""
        return bool(np.isnan(self.data).all())

    def limits(self) -> tuple[float, float]:
        """The range of an axis, without outliers."""
        return limits_of(self.observed if not self.empty else self.drawn, 0.02)

    def shares(self) -> tuple[Array, Array]:
        """The shares of the categories in the data and in the rows drawn."""
        return category_shares(self.observed, len(self.labels)), category_shares(self.drawn, len(self.labels))


def limits_of(values: Array, margin: float) -> tuple[float, float]:
    """The range of an axis: all values but a few outliers, and a margin relative to its length."""
    low, high = np.quantile(values, [_RANGE, 1 - _RANGE])
    room = _ROOM * (high - low)
    low, high = max(low - room, values.min()), min(high + room, values.max())
    room = margin * (high - low) if high > low else max(abs(float(low)), 1.0) / 2
    return float(low - room), float(high + room)


def category_shares(codes: Array, count: int) -> Array:
    """The relative frequency of each of ``count`` codes."""
    found: Array = np.bincount(codes.astype(np.intp), minlength=count) / max(len(codes), 1)
    return found


@dataclass(frozen=True, eq=False)
class Material:
    """A model, a table, and rows drawn from the model for comparison."""

    model: TableModel
    fields: tuple[Field, ...]  # its columns
    encoded: Tensor  # the table as the circuit takes it, `(rows, columns)`
    drawn: Tensor  # rows drawn from the circuit, in the same form
    information: Array  # the mutual information between every two columns of the table, in nats
    drawn_information: Array  # the same for the rows drawn
    seed: int  # determines everything random

    @property
    def rows(self) -> int:
        """The number of rows of the table."""
        return len(self.encoded)

    @cached_property
    def tree(self) -> LatentTree:
        """The maximum spanning tree of the mutual information between columns; the model may have another tree."""
        if len(self.fields) == 1:
            return LatentTree((-1,), ((0,),))
        return LatentTree.from_edges(maximum_spanning_tree(self.information))

    @cached_property
    def log_densities(self) -> Array:
        """The log-density of every row of the table, in its units."""
        return self.model.log_density_of_encoded(self.encoded.numpy())

    def some(self, most: int, purpose: int) -> npt.NDArray[np.intp]:
        """At most ``most`` rows of the table; each purpose has its own random numbers."""
        return some_rows(self.rows, most, (self.seed, purpose))


def some_rows(rows: int, most: int, seed: tuple[int, ...]) -> npt.NDArray[np.intp]:
    """All rows or, if there are too many, a random choice of them, in ascending order."""
    if rows <= most:
        return np.arange(rows)
    return np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))


def gather(model: TableModel, table: Any, seed: int) -> Material:
    """Encode the table, draw rows from the model, and estimate the mutual information between columns."""
    encoded = np.asarray(model.schema.encode(table), np.float64)
    count = int(np.clip(len(encoded), FEWEST_DRAWN, MOST_DRAWN))
    qpc = model.qpc
    drawn = qpc.sample(count, generator=torch.Generator(device=qpc.device).manual_seed(seed)).double().cpu()
    fields = tuple(
        Field(
            column.name,
            column.kind,
            tuple(map(str, column.categories)) if column.coded else (),
            column.family.discrete and not column.coded,
            in_units(column, encoded[:, place]),
            in_units(column, drawn[:, place].numpy()),
        )
        for place, column in enumerate(model.schema.columns)
    )
    kinds = ["categorical" if column.coded else "ordinal" for column in model.schema.columns]
    # As many rows of both, because the estimate depends on the number of rows.
    data = encoded[some_rows(len(encoded), count, (seed, 0))]
    both = [mutual_information(rows[:, : len(kinds)], kinds) for rows in (data, drawn[: len(data)].numpy())]
    return Material(model, fields, torch.as_tensor(encoded), drawn, both[0], both[1], seed)


def in_units(column: Any, codes: Array) -> Array:
    """Numbers in the units of the table; categories keep their codes."""
    return codes if column.coded else column.numbers(codes)


def edges_of(field: Field, most: int) -> Array:
    """The edges of the bins of a column of numbers. Counts lie in the middle of their bins."""
    low, high = field.limits()
    values = field.observed if not field.empty else field.drawn
    if field.whole:
        first, last = math.floor(low), math.ceil(high)
        width = max(1, math.ceil((last - first + 1) / min(most, _MOST_UNIT_BINS)))
        return np.arange(first, last + width + 1, width, dtype=np.float64) - 0.5
    count = int(np.clip(2 * round(len(values) ** (1 / 3)), 8, most))
    return np.linspace(low, high, count + 1)


def densities(values: Array, edges: Array) -> Array:
    """The share of the values in each bin divided by its width. The total includes values outside."""
    counts = np.histogram(values, edges)[0]
    return counts / (max(len(values), 1) * np.diff(edges))


MOST_PATTERNS = 8
_CUT = 0.1  # the first part of the training, which does not determine the range of the plot
_MOST_NAMES = 6
_SPARK = (120.0, 28.0)


# Training


Curve = list[tuple[float, float]]  # steps, and the log-likelihoods there


def curves(summary: Mapping[str, Any]) -> dict[str, Curve]:
    """The log-likelihood of the training rows and of the held-out rows in a summary.

    The summary may come from a file, and contain anything. What is not a number is left out.
    """
    training = summary.get("training")
    records = training.get("records") if isinstance(training, Mapping) else None
    found = {}
    for name in ("train", "valid"):
        pairs = [(_number(record, "step"), _number(record, name)) for record in _as_list(records)]
        if curve := sorted((step, value) for step, value in pairs if step is not None and value is not None):
            found[name] = curve
    return found


def training_section(material: Material) -> Markup:
    """The training curve, and other facts of the summary."""
    summary = material.model.summary
    found = curves(summary)
    if not found:
        return tag("p", "The model was saved without a record of its training.", class_="note")
    words = {"train": ("other", "training rows"), "valid": ("data", "held-out rows")}
    note = "columns standardised; the dot is the step that was kept"
    legend = key([words[name] for name in found], note)
    return tag("div", tag("div", _curve_plot(found, summary), legend), _facts(found, summary), class_="beside")


def _curve_plot(found: Mapping[str, Curve], summary: Mapping[str, Any]) -> Markup:
    pairs = [pair for curve in found.values() for pair in curve]
    last, best = max(pairs)[0], _number(summary, "training", "best_step")
    late = [value for step, value in pairs if step >= _CUT * last]
    low, high = span(min(late, default=min(pairs)[1]), max(value for _, value in pairs))
    room = 0.06 * (high - low)
    limits = span(0.0, last), (low - room, high + room)
    axes = Axes(400.0, 240.0, *limits, "step", "mean log-likelihood of a row", x_ticks=5)
    marks = []
    for name, class_ in (("train", "other"), ("valid", "data")):
        kept = [(step, value) for step, value in found.get(name, []) if value >= axes.y[0]]
        marks.append(line(axes, [step for step, _ in kept], [value for _, value in kept], class_))
        chosen = name == ("valid" if "valid" in found else "train")
        for step, value in kept:
            if len(kept) == 1 or (chosen and step == best):  # too few for a line, or the step that was kept
                marks.append(dots(axes, np.array([step]), np.array([value]), f"{class_} solid", 4.5))
    return axes.draw(*marks, title="The log-likelihood during training")


def _facts(found: Mapping[str, Curve], summary: Mapping[str, Any]) -> Markup:
    """The numbers in the summary."""

    def count(*path: str) -> str:
        value = _number(summary, *path)
        return "" if value is None else f"{int(value):,}"

    def decimal(*path: str, step: float | None = None) -> str:
        value = _number(summary, *path)
        return "" if value is None else label(value, step)

    last, best = max(pair[0] for curve in found.values() for pair in curve), _number(summary, "training", "best_step")
    members = count("settings", "members")
    lines = [
        ("training rows", count("rows", "train")),
        ("their mean log-density", decimal("log_density", "train", step=0.1)),
        ("held-out rows", count("rows", "valid")),
        ("their mean log-density", decimal("log_density", "valid", step=0.1)),
        ("models; the plot shows the first", members if members != "1" else ""),
        ("steps", f"{int(last):,}" + ("" if best in (None, last) else f", best at {count('training', 'best_step')}")),
        ("quadrature points", count("settings", "points")),
        ("width of the nets", count("settings", "width")),
        ("seconds of training", decimal("seconds", "training")),
    ]
    cells = [join([tag("dt", name), tag("dd", text)]) for name, text in lines if text]
    stopped = summary["training"].get("stopped")
    why = tag("p", f"Ended: {stopped}.", class_="note") if isinstance(stopped, str) and stopped else Markup()
    return tag("div", tag("dl", *cells, class_="facts"), why)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: Any, *path: str) -> float | None:
    """The number at a path of names; None if there is something else."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return float(value) if is_number(value) and math.isfinite(value) else None


# Columns and missing values


def columns_section(material: Material) -> Markup:
    """A line for each column, and the columns that are missing together."""
    heads = [tag("th", text) for text in ("column", "type", "values", "data and samples")]
    head = tag("tr", *heads, tag("th", "missing", colspan=2))
    lines = [_column_line(field, material.rows) for field in material.fields]
    table = tag("table", tag("thead", head), tag("tbody", *lines), class_="columns")
    return key() + tag("div", table, class_="scroll tall", tabindex=0) + _patterns(material)


def patterns(material: Material) -> list[tuple[tuple[int, ...], int]]:
    """The sets of columns that are missing together, and in how many rows; the most frequent first."""
    missing = np.isnan(material.encoded.numpy())
    _, first, counts = np.unique(np.packbits(missing, axis=1), axis=0, return_index=True, return_counts=True)
    columns = [tuple(np.flatnonzero(missing[row]).tolist()) for row in first]
    return sorted(zip(columns, counts.tolist(), strict=True), key=lambda entry: (-entry[1], entry[0]))


def _column_line(field: Field, rows: int) -> Markup:
    gone = int(np.isnan(field.data).sum())
    share = gone / rows
    bar = tag("span", tag("i", style=f"width:{number(100 * share)}%"), class_="share")
    text = f"{gone:,} ({percent(share)})" if gone else "none"
    name = tag("th", shorten(field.name, 32), title=field.name, scope="row")
    cells = [tag("td", field.kind), tag("td", _values(field)), tag("td", spark(field))]
    return tag("tr", name, *cells, tag("td", bar if gone else ""), tag("td", text, class_=None if gone else "quiet"))


def _values(field: Field) -> str:
    if field.empty:
        return "no values"
    if not field.labels:
        low, high = float(field.observed.min()), float(field.observed.max())
        return label(low) if low == high else f"{label(low)} … {label(high)}"
    top = [code for code, _ in Counter(field.observed.astype(int).tolist()).most_common(3)]
    words = ", ".join(shorten(field.labels[code], 12) for code in top)
    seen = len(np.unique(field.observed))
    return words if seen <= len(top) else f"{words} and {seen - len(top)} more"


def spark(field: Field) -> Markup:
    """The distribution of a column, as high as a line of text: bars for the data, an outline for the samples."""
    if field.empty:
        return Markup()
    if field.labels:
        data, drawn = field.shares()
        order = np.argsort(-data, kind="stable")[:20]
        heights = data[order], drawn[order]
        edges = np.arange(len(order) + 1.0)
    else:
        edges = edges_of(field, most=24)
        heights = densities(field.observed, edges), densities(field.drawn, edges)
    width, height = _SPARK
    top = float(np.max(heights)) or 1.0
    across, up = Scale(float(edges[0]), float(edges[-1]), 1, width - 1), Scale(0.0, top, height - 1, 2)
    plot = Bare(across, up)
    marks = bars(plot, edges, heights[0], "data"), steps(plot, edges, heights[1], "drawn")
    return drawing(width, height, *marks, title=f"Distribution of {field.name}", class_="spark")


def _patterns(material: Material) -> Markup:
    found = patterns(material)
    complete = next((count for columns, count in found if not columns), 0)
    words = f"{complete:,} of {material.rows:,} rows ({percent(complete / material.rows)}) are complete."
    gaps = [(columns, count) for columns, count in found if columns]
    if not gaps:
        return tag("p", words, class_="note")
    lines = []
    for columns, count in gaps[:MOST_PATTERNS]:
        names = ", ".join(material.fields[c].name for c in columns[:_MOST_NAMES])
        more = f" and {len(columns) - _MOST_NAMES} more" if len(columns) > _MOST_NAMES else ""
        lines.append(tag("li", tag("b", f"{count:,} "), tag("small", "rows without "), shorten(names, 80) + more))
    if len(gaps) > MOST_PATTERNS:
        lines.append(tag("li", tag("small", f"and {len(gaps) - MOST_PATTERNS:,} other combinations"), class_="quiet"))
    return tag("p", words, class_="note") + tag("ul", *lines, class_="patterns")


Two = tuple[Array, Array]  # values of the data, and of the samples

_ROW, _GAP, _PAD = 32.0, 44.0, 10.0  # between leaves, between generations, inside the frame of a name
_THICKEST = 7.0
_MOST_CENTRED = 40  # latents of a tree that fits on a screen

MOST_PAIRS = 6
_MOST_DOTS = 400
_MOST_PANELS = 6  # categories that have a panel of their own
_MOST_BARS = 8  # categories that have bars of their own
_PANEL = (260.0, 150.0)
_JITTER = 0.3  # how far counts are moved, so that equal ones do not hide each other


# The tree


@dataclass(frozen=True)
class Node:
    """A latent in the drawing of a tree."""

    name: str  # the names of its variables, shortened
    x: float  # the left end of its frame
    y: float  # the middle of its frame
    width: float  # the width of its frame
    end: float  # the right end of its generation, where lines to the next one may begin to bend


def tree_section(material: Material) -> Markup:
    """The drawing of the tree."""
    structure = material.tree
    nodes = layout(structure, [field.name for field in material.fields])
    strengths = [edge_information(material, structure, latent) for latent in range(structure.n_latents)]
    strongest = max(strengths, default=0.0)
    lines = [
        _edge(nodes[parent], nodes[latent], strengths[latent], strengths[latent] / (strongest or 1.0))
        for latent, parent in enumerate(structure.parents)
        if parent >= 0
    ]
    frames = [_frame(node, material, structure.variables[latent]) for latent, node in enumerate(nodes)]
    width = max(node.x + node.width for node in nodes) + 4
    height = max(node.y for node in nodes) + _ROW / 2 + 4
    picture = drawing(width, height, *lines, *frames, title="The tree of dependencies", class_="tree")
    thick = f"thicker lines mean more mutual information, up to {label(strongest, 0.01)} nats"
    legend = key([("numeric", "numbers"), ("coded", "categories")], thick)
    return tag("div", picture, class_="scroll", tabindex=0) + legend


def edge_information(material: Material, tree: LatentTree, latent: int) -> float:
    """The largest mutual information between a variable of a latent and one of its parent, in nats."""
    parent = tree.parents[latent]
    pairs = [(a, b) for a in tree.variables[latent] for b in (tree.variables[parent] if parent >= 0 else ())]
    return max((float(material.information[pair]) for pair in pairs), default=0.0)


def layout(tree: LatentTree, names: Sequence[str]) -> list[Node]:
    """Place generations from left to right, each as wide as its longest name, on the rows of ``rows_of``."""
    labels = [shorten(", ".join(names[v] for v in own), 22) for own in tree.variables]
    widths = [text_width(name, FONT) + 2 * _PAD if name else 10.0 for name in labels]
    depth = depths_of(tree)
    ends, start = [], 4.0
    for level in range(max(depth) + 1):
        ends.append(start + max(width for width, d in zip(widths, depth, strict=True) if d == level))
        start = ends[-1] + _GAP
    starts = [4.0, *(end + _GAP for end in ends)]
    rows = rows_of(tree)
    return [
        Node(labels[k], starts[depth[k]], (rows[k] - min(rows) + 0.5) * _ROW, widths[k], ends[depth[k]])
        for k in range(tree.n_latents)
    ]


def depths_of(tree: LatentTree) -> list[int]:
    """The generation of each latent; that of the root is 0."""
    depths = [0] * tree.n_latents
    for latent in reversed(tree.order[:-1]):
        depths[latent] = depths[tree.parents[latent]] + 1
    return depths


def rows_of(tree: LatentTree) -> list[float]:
    """A row for each latent. Latents of one generation are at least one row apart, and no lines cross.

    Children are as close as the generations below them allow, the one with the most descendants first. Parents are in
    the middle of their children. In a large tree they are next to the first child, so that the root is at the top.
    """
    below = [1] * tree.n_latents
    for latent in tree.order[:-1]:
        below[tree.parents[latent]] += below[latent]
    centred = tree.n_latents <= _MOST_CENTRED
    shift = [0.0] * tree.n_latents  # from a parent's row to its child's
    tops: list[list[float]] = [[] for _ in below]  # the first row of each generation, from the latent's own
    bottoms: list[list[float]] = [[] for _ in below]  # and the last one
    for latent in tree.order:  # children before parents
        top: list[float] = []
        bottom: list[float] = []
        children = sorted(tree.children[latent], key=lambda child: (-below[child], child))
        for child in children:
            # Only generations that an earlier child also has need to be kept apart.
            needed = [down - up for down, up in zip(bottom, tops[child], strict=False)]
            shift[child] = max(needed) + 1 if needed else 0.0
            bottom = _merged(bottom, bottoms[child], shift[child], later=True)
            top = _merged(top, tops[child], shift[child], later=False)
        middle = (shift[children[0]] + shift[children[-1]]) / 2 if children and centred else 0.0
        for child in children:
            shift[child] -= middle
            tops[child], bottoms[child] = [], []
        tops[latent], bottoms[latent] = ([0.0, *(row - middle for row in edge)] for edge in (top, bottom))
    rows = [0.0] * tree.n_latents
    for latent in reversed(tree.order[:-1]):
        rows[latent] = rows[tree.parents[latent]] + shift[latent]
    return rows


def _merged(edge: list[float], child: list[float], shift: float, *, later: bool) -> list[float]:
    """The outline of several children with one more; where both have a generation, the later or the earlier counts."""
    both = min(len(edge), len(child))
    inner = [child[i] + shift if later else edge[i] for i in range(both)]
    return [*inner, *edge[both:], *(row + shift for row in child[both:])]


def _edge(parent: Node, child: Node, strength: float, share: float) -> Markup:
    start, end = parent.end, child.x
    bend = 0.6 * (end - start)
    path = (
        f"M{number(parent.x + parent.width)} {number(parent.y)}H{number(start)}"
        f"C{number(start + bend)} {number(parent.y)} "
        f"{number(end - bend)} {number(child.y)} {number(end)} {number(child.y)}"
    )
    words = f"{parent.name or 'latent'} – {child.name or 'latent'}: {label(strength, 0.01)} nats"
    return tag("path", tag("title", words), d=path, class_="edge", stroke_width=1 + (_THICKEST - 1) * share)


def _frame(node: Node, material: Material, variables: tuple[int, ...]) -> Markup:
    fields = [material.fields[v] for v in variables]
    if not fields:
        return tag("circle", cx=node.x + 5, cy=node.y, r=5.0, class_="latent")
    kind = "coded" if fields[0].labels else "void" if fields[0].empty else "numeric"
    box = tag("rect", x=node.x, y=node.y - 12, width=node.width, height=24.0, rx=12.0, class_=f"node {kind}")
    words = join((f"{field.name} ({field.kind})" for field in fields), ", ")
    name = tag("text", node.name, x=node.x + node.width / 2, y=node.y + 4, text_anchor="middle")
    return tag("g", tag("title", words), box, name)


# Pairs


def pairs_section(material: Material) -> Markup:
    """A figure for each of the most dependent pairs."""
    pairs = strongest_pairs(material)
    if not pairs:
        return tag("p", "There are no two columns with values to compare.", class_="note")
    return key() + tag("div", *(_figure(material, a, b) for a, b in pairs), class_="pairs")


def strongest_pairs(material: Material, most: int = MOST_PAIRS) -> list[tuple[int, int]]:
    """The neighbours in the tree with the largest mutual information."""
    found = [(min(pair), max(pair)) for pair in enumerate(material.tree.parents) if min(pair) >= 0]
    filled = [not field.empty for field in material.fields]
    kept = [(a, b) for a, b in found if filled[a] and filled[b]]
    return sorted(kept, key=lambda pair: (-round(float(material.information[pair]), 10), pair))[:most]


def _figure(material: Material, a: int, b: int) -> Markup:
    one, two = material.fields[a], material.fields[b]
    if one.labels or two.labels:
        # Of two categorical columns the one with fewer categories has the panels.
        swap = not one.labels or (len(two.labels) > 0 and len(two.labels) < len(one.labels))
        panels = _panels(two, one) if swap else _panels(one, two)
    else:
        panels = _scatters(material, one, two)
    words = (
        f"mutual information {label(float(material.information[a, b]), 0.01)} nats in the data, "
        f"{label(float(material.drawn_information[a, b]), 0.01)} in the samples"
    )
    caption = tag("figcaption", tag("b", one.name), " and ", tag("b", two.name), tag("small", words))
    return tag("figure", caption, panels, class_="card")


def _scatters(material: Material, one: Field, two: Field) -> Markup:
    """Two plots with the same axes."""
    rng = np.random.default_rng((material.seed, 1))
    chosen = material.some(_MOST_DOTS, purpose=1)
    sides = (("data", "data", one.data[chosen], two.data[chosen]), ("drawn", "samples", one.drawn, two.drawn))
    shown = int((~np.isnan(one.data[chosen]) & ~np.isnan(two.data[chosen])).sum())
    panels, outside = [], []
    for class_, word, x, y in sides:
        there = ~np.isnan(x) & ~np.isnan(y)
        x, y = x[there][: max(shown, 50)], y[there][: max(shown, 50)]
        axes = Axes(360.0, 280.0, one.limits(), two.limits(), one.name, two.name)
        inside = (x >= axes.x[0]) & (x <= axes.x[1]) & (y >= axes.y[0]) & (y <= axes.y[1])
        outside.append(int((~inside).sum()))
        marks = dots(axes, _apart(one, x, rng), _apart(two, y, rng), class_)
        picture = axes.draw(marks, title=f"{one.name} and {two.name}: {word}")
        panels.append(tag("div", tag("p", tag("i", class_=f"swatch {class_}"), word, class_="side"), picture))
    note = Markup()
    if any(outside):
        note = tag("p", f"Outside the axes: {outside[0]} of the data, {outside[1]} of the samples.", class_="note")
    return tag("div", *panels, class_="twins") + note


def _apart(field: Field, values: Array, rng: np.random.Generator) -> Array:
    return values + rng.uniform(-_JITTER, _JITTER, len(values)) if field.whole else values


def _panels(facet: Field, other: Field) -> Markup:
    """The distribution of one column for each frequent category of another."""
    shares, drawn_shares = facet.shares()
    order = [int(code) for code in np.argsort(-shares, kind="stable") if shares[code] > 0]
    kept = sorted(order[:_MOST_PANELS])
    picked = [
        (other.data[(facet.data == code) & ~np.isnan(other.data)], other.drawn[facet.drawn == code]) for code in kept
    ]
    titles = [f"{other.name}, {facet.name} = {facet.labels[code]}" for code in kept]
    pictures = _bar_panels(other, picked, titles) if other.labels else _histograms(other, picked, titles)
    parts = []
    for code, picture in zip(kept, pictures, strict=True):
        words = f"{percent(float(shares[code]))} of the data, {percent(float(drawn_shares[code]))} of the samples"
        name = tag("b", shorten(facet.labels[code], 24), title=facet.labels[code])
        parts.append(tag("div", tag("p", name, tag("small", words), class_="side"), picture))
    notes = [f"{other.name} for each value of {facet.name}."]
    if len(order) > len(kept):
        notes.append(f"{len(order) - len(kept)} rarer values are left out.")
    return tag("p", " ".join(notes), class_="note") + tag("div", *parts, class_="facets")


def _histograms(field: Field, picked: Sequence[Two], titles: Sequence[str]) -> list[Markup]:
    """Histograms of numbers with the same axes: bars for the data, an outline for the samples."""
    edges = edges_of(field, most=24)
    heights = [(densities(data, edges), densities(drawn, edges)) for data, drawn in picked]
    top = 1.05 * max((float(np.max(pair)) for pair in heights), default=0.0) or 1.0
    pictures = []
    for (data, drawn), title in zip(heights, titles, strict=True):
        axes = Axes(*_PANEL, (float(edges[0]), float(edges[-1])), (0.0, top), field.name, y_ticks=0)
        marks = bars(axes, edges, data, "data"), steps(axes, edges, drawn, "drawn")
        pictures.append(axes.draw(*marks, title=title))
    return pictures


def _bar_panels(field: Field, picked: Sequence[Two], titles: Sequence[str]) -> list[Markup]:
    """Bars for the shares of categories in the data and in the samples; rare categories are combined."""
    order = np.argsort(-field.shares()[0], kind="stable")
    kept = np.sort(order[:_MOST_BARS]) if len(order) > _MOST_BARS + 1 else np.arange(len(order))
    shares = [(category_shares(data, len(order)), category_shares(drawn, len(order))) for data, drawn in picked]
    groups = []
    for data, drawn in shares:
        found = [(field.labels[code], float(data[code]), float(drawn[code])) for code in kept]
        if len(kept) < len(order):
            found.append((f"{len(order) - len(kept)} others", 1 - data[kept].sum(), 1 - drawn[kept].sum()))
        groups.append(found)
    top = max((max(shares) for group in groups for _, *shares in group), default=1.0) or 1.0
    return [grouped_bars(group, _PANEL[0], top, title) for group, title in zip(groups, titles, strict=True)]


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
