# SPDX-License-Identifier: Apache-2.0
"""Sections about the model and its columns: training, dependencies, pairs in data and samples, and a summary."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from picirc.report.drawing import (
    FONT,
    Axes,
    Bar,
    Bare,
    Markup,
    Scale,
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
from picirc.report.material import Array, Field, Material, category_shares, densities, edges_of
from picirc.structure.trees import LatentTree

MOST_PATTERNS = 8
_CUT = 0.1  # the first part of a training, whose low values would flatten the rest of the curve
_MOST_NAMES = 6
_SPARK = (120.0, 28.0)


# Training


@dataclass(frozen=True)
class Curve:
    """The likelihood at the steps where it was measured."""

    steps: tuple[float, ...]
    values: tuple[float, ...]


def curves(summary: Mapping[str, Any]) -> dict[str, Curve]:
    """The curves that a summary holds, of the training data and of the rows held out.

    The summary may come from a file that holds anything; what is not a number is left out.
    """
    training = summary.get("training")
    records = training.get("records") if isinstance(training, Mapping) else None
    found = {}
    for name in ("train", "valid"):
        pairs = [
            (float(record["step"]), float(record[name]))
            for record in (records if isinstance(records, list) else [])
            if isinstance(record, Mapping) and _is_number(record.get("step")) and _is_number(record.get(name))
        ]
        pairs.sort()
        if pairs:
            steps, values = zip(*pairs, strict=True)
            found[name] = Curve(steps, values)
    return found


def training_section(material: Material) -> Markup:
    """The training curve, and what else the summary says."""
    summary = material.model.summary
    found = curves(summary)
    if not found:
        return tag("p", "The model was saved without a record of its training.", class_="note")
    return tag("div", tag("div", _curve_plot(found, summary), _curve_key(found)), _facts(summary), class_="beside")


def _curve_plot(found: Mapping[str, Curve], summary: Mapping[str, Any]) -> Markup:
    values = [value for curve in found.values() for value in curve.values]
    last = max(max(curve.steps) for curve in found.values())
    late = [v for curve in found.values() for s, v in zip(curve.steps, curve.values, strict=True) if s >= _CUT * last]
    low, high = span(min(late, default=min(values)), max(values))
    room = 0.06 * (high - low)
    axes = Axes(400.0, 240.0, (0.0, last), (low - room, high + room), "step", "mean log-likelihood of a row", x_ticks=5)
    marks = []
    for name, class_ in (("train", "other"), ("valid", "data")):
        if name in found:
            steps, heights = found[name].steps, found[name].values
            kept = [i for i, height in enumerate(heights) if height >= axes.y[0]]
            marks.append(line(axes, [steps[i] for i in kept], [heights[i] for i in kept], class_))
            if len(kept) == 1:  # too few for a line
                marks.append(_dot(axes, steps[kept[0]], heights[kept[0]], class_))
    best = _best(found, summary)
    if best is not None:
        marks.append(_dot(axes, *best, "data" if "valid" in found else "other"))
    return axes.draw(*marks, title="The likelihood in the course of the training")


def _dot(axes: Axes, step: float, height: float, class_: str) -> Markup:
    return dots(axes, np.array([step]), np.array([height]), f"{class_} solid", 4.5)


def _best(found: Mapping[str, Curve], summary: Mapping[str, Any]) -> tuple[float, float] | None:
    """The step whose parameters were kept, and its likelihood."""
    curve = found.get("valid") or found["train"]
    step = summary["training"].get("best_step")
    return next(((s, v) for s, v in zip(curve.steps, curve.values, strict=True) if s == step), None)


def _curve_key(found: Mapping[str, Curve]) -> Markup:
    words = {"train": ("other", "learned from"), "valid": ("data", "held out")}
    items = [tag("span", tag("i", class_=f"swatch {words[n][0]}"), words[n][1]) for n in found]
    return tag("p", *items, tag("span", "columns standardised; the dot is the step that was kept"), class_="key")


def _facts(summary: Mapping[str, Any]) -> Markup:
    """What the summary says in numbers."""
    rows, density, seconds = (_part(summary, name) for name in ("rows", "log_density", "seconds"))
    training, settings = _part(summary, "training"), _part(summary, "settings")
    members = _whole(settings.get("members"))
    lines = [
        ("rows learned from", _whole(rows.get("train"))),
        ("their mean log-density", _decimal(density.get("train"), 0.1)),
        ("rows held out", _whole(rows.get("valid"))),
        ("their mean log-density", _decimal(density.get("valid"), 0.1)),
        ("models, the first is drawn", None if members == "1" else members),
        ("steps", _steps(training)),
        ("quadrature points", _whole(settings.get("points"))),
        ("width of the nets", _whole(settings.get("width"))),
        ("seconds of training", _decimal(seconds.get("training"))),
    ]
    cells = [join([tag("dt", name), tag("dd", text)]) for name, text in lines if text]
    stopped = training.get("stopped")
    why = tag("p", f"Ended: {stopped}.", class_="note") if isinstance(stopped, str) and stopped else Markup()
    return tag("div", tag("dl", *cells, class_="facts"), why)


def _steps(training: Mapping[str, Any]) -> str | None:
    records = training.get("records")
    last = (
        records[-1].get("step") if isinstance(records, list) and records and isinstance(records[-1], Mapping) else None
    )
    best = training.get("best_step")
    steps = _whole(last)
    return f"{steps}, best at {_whole(best)}" if steps and _is_number(best) and best != last else steps


def _part(summary: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = summary.get(name)
    return found if isinstance(found, Mapping) else {}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _whole(value: Any) -> str | None:
    return f"{int(value):,}" if _is_number(value) else None


def _decimal(value: Any, step: float | None = None) -> str | None:
    return label(float(value), step) if _is_number(value) else None


# Columns and missing values


def columns_section(material: Material) -> Markup:
    """A line for each column, and the combinations of columns that are missing together."""
    heads = [tag("th", text) for text in ("column", "type", "values", "data and samples")]
    head = tag("tr", *heads, tag("th", "missing", colspan=2))
    lines = [_column_line(field, material.rows) for field in material.fields]
    table = tag("table", tag("thead", head), tag("tbody", *lines), class_="columns")
    return key() + tag("div", table, class_="scroll tall", tabindex=0) + _patterns(material)


def patterns(material: Material) -> list[tuple[tuple[int, ...], int]]:
    """The sets of columns that are missing together with the number of rows in which they are, most frequent first."""
    missing = np.isnan(material.encoded.numpy())
    _, first, counts = np.unique(np.packbits(missing, axis=1), axis=0, return_index=True, return_counts=True)
    found = [
        (tuple(np.flatnonzero(missing[row]).tolist()), int(count)) for row, count in zip(first, counts, strict=True)
    ]
    return sorted(found, key=lambda entry: (-entry[1], entry[0]))


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
        data_shares, drawn_shares = _by_frequency(field)
        heights = data_shares[:20], drawn_shares[:20]
        edges = np.arange(len(heights[0]) + 1.0)
    else:
        edges = edges_of(field, most=24)
        heights = densities(field.observed, edges), densities(field.drawn, edges)
    width, height = _SPARK
    top = float(np.max(heights)) or 1.0
    across, up = Scale(float(edges[0]), float(edges[-1]), 1, width - 1), Scale(0.0, top, height - 1, 2)
    plot = Bare(across, up)
    marks = bars(plot, edges, heights[0], "data"), steps(plot, edges, heights[1], "drawn")
    return drawing(width, height, *marks, title=f"Distribution of {field.name}", class_="spark")


def _by_frequency(field: Field) -> tuple[Array, Array]:
    data, drawn = field.shares()
    order = np.argsort(-data, kind="stable")
    return data[order], drawn[order]


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
_JITTER = 0.3  # how far counts are moved apart, so that equal ones do not hide each other


# The tree


@dataclass(frozen=True)
class Node:
    """A latent in the drawing."""

    name: str  # the names of its variables, shortened; empty for a latent without any
    x: float  # the left end of its frame
    y: float  # its middle
    width: float  # of its frame
    end: float  # where its generation ends, and lines to the next one may bend


def tree_section(material: Material) -> Markup:
    """The drawing of the tree."""
    structure = material.tree
    nodes = layout(structure, [field.name for field in material.fields])
    strengths = [edge_information(material, structure, latent) for latent in range(structure.n_latents)]
    strongest = max(strengths, default=0.0)
    lines = []
    for latent, parent in enumerate(structure.parents):
        if parent >= 0:
            share = strengths[latent] / strongest if strongest else 0.0
            lines.append(_edge(nodes[parent], nodes[latent], strengths[latent], share))
    frames = [_frame(node, material, structure.variables[latent]) for latent, node in enumerate(nodes)]
    width = max(node.x + node.width for node in nodes) + 4
    height = max(node.y for node in nodes) + _ROW / 2 + 4
    picture = drawing(width, height, *lines, *frames, title="The tree of dependencies", class_="tree")
    return tag("div", picture, class_="scroll", tabindex=0) + _tree_key(strongest)


def edge_information(material: Material, tree: LatentTree, latent: int) -> float:
    """The largest mutual information of a variable of a latent and one of its parent, in nats."""
    parent = tree.parents[latent]
    pairs = [(a, b) for a in tree.variables[latent] for b in (tree.variables[parent] if parent >= 0 else ())]
    return max((float(material.information[pair]) for pair in pairs), default=0.0)


def layout(tree: LatentTree, names: Sequence[str]) -> list[Node]:
    """Generations from left to right, each as wide as its longest name, on the rows of ``rows_of``."""
    labels = [shorten(", ".join(names[v] for v in own), 22) for own in tree.variables]
    widths = [text_width(name, FONT) + 2 * _PAD if name else 10.0 for name in labels]
    depth = [0] * tree.n_latents
    for latent in reversed(tree.order[:-1]):
        depth[latent] = depth[tree.parents[latent]] + 1
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


def rows_of(tree: LatentTree) -> list[float]:
    """A row for each latent, so that all of one generation are at least one row apart and no lines cross.

    Children are as close as the generations below them allow, the one with the most descendants first. Parents are in
    the middle of their children or, in a tree too large to be seen at once, next to the first of them: the root is then
    at the top, where one begins to read.
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
            # Generations that the earlier children do not have leave room.
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
    """The edge of several children: of each generation that two of them have, the later (or the earlier) one's."""
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


def _tree_key(strongest: float) -> Markup:
    def item(class_: str, text: str) -> Markup:
        return tag("span", tag("i", class_=f"swatch {class_}"), text)

    thick = f"the thicker a line, the more its ends tell about each other, up to {label(strongest, 0.01)} nats"
    return tag("p", item("numeric", "numbers"), item("coded", "categories"), tag("span", thick), class_="key")


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
        # Of two columns of categories the one with fewer has the panels.
        swap = not one.labels or (len(two.labels) > 0 and len(two.labels) < len(one.labels))
        panels = _panels(two, one) if swap else _panels(one, two)
    else:
        panels = _scatters(material, one, two)
    words = (
        f"mutual information {label(float(material.information[a, b]), 0.01)} nats in the data, "
        f"{label(float(material.drawn_information[a, b]), 0.01)} among the samples"
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
        note = tag("p", f"Outside of the axes: {outside[0]} of the data, {outside[1]} of the samples.", class_="note")
    return tag("div", *panels, class_="twins") + note


def _apart(field: Field, values: Array, rng: np.random.Generator) -> Array:
    return values + rng.uniform(-_JITTER, _JITTER, len(values)) if field.whole else values


def _panels(facet: Field, other: Field) -> Markup:
    """For each of the frequent categories of one column the distribution of the other."""
    shares, drawn_shares = facet.shares()
    order = [int(code) for code in np.argsort(-shares, kind="stable") if shares[code] > 0]
    kept = sorted(order[:_MOST_PANELS])
    picked = [_both(other, facet.data == code, facet.drawn == code) for code in kept]
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


def _both(field: Field, data: npt.NDArray[np.bool_], drawn: npt.NDArray[np.bool_]) -> Two:
    """The observed values in some rows of the table, and those in some of the rows drawn."""
    values = field.data[data]
    return values[~np.isnan(values)], field.drawn[drawn]


def _histograms(field: Field, picked: Sequence[Two], titles: Sequence[str]) -> list[Markup]:
    """The distribution of numbers: bars for the data, an outline for the samples; all with the same axes."""
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
    """The distribution of categories: a bar for the data and one for the samples; the rarer ones together."""
    order = np.argsort(-field.shares()[0], kind="stable")
    kept = np.sort(order[:_MOST_BARS]) if len(order) > _MOST_BARS + 1 else np.arange(len(order))
    shares = [(category_shares(data, len(order)), category_shares(drawn, len(order))) for data, drawn in picked]
    groups = []
    for data, drawn in shares:
        found = [Bar(field.labels[code], float(data[code]), float(drawn[code])) for code in kept]
        if len(kept) < len(order):
            found.append(Bar(f"{len(order) - len(kept)} others", 1 - data[kept].sum(), 1 - drawn[kept].sum()))
        groups.append(found)
    top = max((max(bar.data, bar.drawn) for group in groups for bar in group), default=1.0) or 1.0
    return [grouped_bars(group, _PANEL[0], top, title) for group, title in zip(groups, titles, strict=True)]
