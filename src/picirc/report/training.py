"""How the training went."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from picirc.report.markup import Markup, join, tag
from picirc.report.material import Material
from picirc.report.scales import label, span
from picirc.report.svg import Axes, dots, line

_CUT = 0.1  # the first part of a training, whose low values would press all others together


@dataclass(frozen=True)
class Curve:
    """The likelihood at the steps where it was measured."""

    steps: tuple[float, ...]
    values: tuple[float, ...]


def curves(summary: Mapping[str, Any]) -> dict[str, Curve]:
    """The curves that a summary holds, of the training data and of the rows held out.

    The summary may come from a file that says anything; what is no number is left out.
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


def section(material: Material) -> Markup:
    """The curve, and what else the summary says."""
    summary = material.model.summary
    found = curves(summary)
    if not found:
        return tag("p", "The model was saved without a record of its training.", class_="note")
    return tag("div", tag("div", _plot(found, summary), _key(found)), _facts(summary), class_="beside")


def _plot(found: Mapping[str, Curve], summary: Mapping[str, Any]) -> Markup:
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
            if len(kept) == 1:  # which is no line yet
                marks.append(
                    dots(axes, np.array([steps[kept[0]]]), np.array([heights[kept[0]]]), f"{class_} solid", 4.5)
                )
    best = _best(found, summary)
    if best is not None:
        marks.append(
            dots(
                axes, np.array([best[0]]), np.array([best[1]]), f"{'data' if 'valid' in found else 'other'} solid", 4.5
            )
        )
    return axes.draw(*marks, title="The likelihood in the course of the training")


def _best(found: Mapping[str, Curve], summary: Mapping[str, Any]) -> tuple[float, float] | None:
    """The step whose parameters were kept, and its likelihood."""
    curve = found.get("valid") or found["train"]
    step = summary["training"].get("best_step")
    return next(((s, v) for s, v in zip(curve.steps, curve.values, strict=True) if s == step), None)


def _key(found: Mapping[str, Curve]) -> Markup:
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
        ("their mean log-density", _number(density.get("train"), 0.1)),
        ("rows held out", _whole(rows.get("valid"))),
        ("their mean log-density", _number(density.get("valid"), 0.1)),
        ("models, the first is drawn", None if members == "1" else members),
        ("steps", _steps(training)),
        ("quadrature points", _whole(settings.get("points"))),
        ("width of the nets", _whole(settings.get("width"))),
        ("seconds of training", _number(seconds.get("training"))),
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


def _number(value: Any, step: float | None = None) -> str | None:
    return label(float(value), step) if _is_number(value) else None
