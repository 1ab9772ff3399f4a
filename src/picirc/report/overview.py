# SPDX-License-Identifier: Apache-2.0
"""Sections about the model and the table as such: the training, and the columns with their missing values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from picirc.report.drawing import (
    Axes,
    Bare,
    Markup,
    Scale,
    bars,
    dots,
    drawing,
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
)
from picirc.report.material import Array, Field, Material, densities, edges_of

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
