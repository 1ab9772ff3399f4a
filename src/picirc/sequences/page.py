# SPDX-License-Identifier: Apache-2.0
"""An HTML report on a model of sequences: series with forecasts, the latent, surprises, calibration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from picirc.atomic import replace_files
from picirc.checks import check_integer
from picirc.report.drawing import (
    Axes,
    Markup,
    bars,
    dots,
    join,
    label,
    line,
    number,
    page,
    percent,
    section,
    span,
    tag,
    tiles,
)
from picirc.sequences.data import Sequences
from picirc.sequences.model import Forecast, SequenceModel

Array = npt.NDArray[np.float64]

_STYLE = ".area{fill:var(--data);opacity:.18;stroke:none}.area.drawn{fill:var(--drawn);opacity:.25}"
_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
_MOST_SEQUENCES, _MOST_COLUMNS, _MOST_STEPS, _MOST_LISTED = 4, 6, 400, 12
_WIDTH = 680.0


def write_sequence_report(
    model: SequenceModel, data: Any, path: str | PathLike[str], *, steps: int = 12, seed: int = 0
) -> None:
    """Write a self-contained HTML report on a model of sequences.

    For the first sequences it shows every column with forecasts one step ahead and beyond the end, and the filtered
    latent. For all sequences it lists the most surprising steps and shows the calibration of the forecasts. An existing
    file is replaced atomically.

    Args:
        model: The result of ``fit_sequences`` or ``state_space``.
        data: The sequences, as for every query.
        path: The file to write, such as ``"report.html"``.
        steps: The number of steps to forecast beyond the end.
        seed: The seed of the calibration of discrete columns, as for ``SequenceModel.pit``.
    """
    steps, seed = check_integer("steps", steps), check_integer("seed", seed, 0)
    replace_files({Path(path): _page(model, model._read(data), steps, seed).encode("utf-8")})


def _page(model: SequenceModel, sequences: Sequences, steps: int, seed: int) -> Markup:
    names = sequences.keys or ([""] if sequences.alone else [f"sequence {i}" for i in range(len(sequences.tables))])
    sequences = replace(sequences, keys=None, alone=False)  # queries then return lists
    kept = slice(0, _MOST_SEQUENCES)
    times = None if sequences.times is None else sequences.times[kept]
    drawn = replace(sequences, tables=sequences.tables[kept], times=times, rows=sequences.rows[kept])
    surprises = [-part for part in model._steps(sequences)]
    sections = [
        section(
            "series",
            "Series and forecasts",
            "Dots are the data. The blue band holds 90 % of the forecast of each step from those before it. The orange "
            "bands hold 50 % and 90 % of the forecast beyond the end.",
            _series(model, drawn, names, steps),
        ),
        section(
            "state",
            "Filtered state",
            "The latent given the rows so far: its mean, and two standard deviations to either side.",
            _states(model, drawn, names),
        ),
        section(
            "surprises",
            "Surprises",
            "The surprise of a step is minus the log-density of its row given the rows before it.",
            _surprises(model, sequences, names, surprises),
        ),
        section(
            "calibration",
            "Calibration",
            "For every cell, the probability of a smaller value given the steps before it. If the forecasts are right, "
            "these are uniform from 0 to 1. A valley in the middle means that the model is overconfident, a hill that "
            "it is underconfident.",
            _calibration(model, sequences, seed),
        ),
    ]
    top = tag("header", tag("h1", "Sequence report"), tag("p", repr(model)), _tiles(model, sequences, surprises))
    return page("Report of a model of sequences", top, sections, "the data", _STYLE)


def _tiles(model: SequenceModel, sequences: Sequences, surprises: list[Array]) -> Markup:
    rows = sum(len(part) for part in surprises)
    cells = [model.columns.encode(table).isnan().numpy() for table in sequences.tables]
    facts = [
        ("sequences", f"{len(surprises):,}"),
        ("rows", f"{rows:,}"),
        ("cells missing", percent(float(np.concatenate(cells).mean()))),
        ("mean log-density of a row", label(-float(np.concatenate(surprises).mean()), 0.01)),
    ]
    return tiles(facts)


def _title(name: Any, subject: str) -> str:
    return f"{name} · {subject}" if str(name) else subject


def _axes(title: str, times: Array, low: float, high: float, height: float = 150.0) -> Axes:
    return Axes(_WIDTH, height, span(float(times[0]), float(times[-1])), (low, high), "", title, x_ticks=8)


def _series(model: SequenceModel, sequences: Sequences, names: Sequence[Any], steps: int) -> Markup:
    within, ahead = model.predict(sequences, _LEVELS), model.forecast(sequences, steps, _LEVELS)
    parts = []
    for i, table in enumerate(sequences.tables):
        codes = model.columns.encode(table).numpy()
        times = model._times(sequences, i)
        later = times[-1] + model.unit * np.arange(1, steps + 1)
        for column, name in list(enumerate(model.columns.names))[:_MOST_COLUMNS]:
            if name not in within[i].mean:
                continue
            values = model.columns.in_units(column, codes[:, column])
            parts.append(_plot(_title(names[i], name), times, values, within[i], later, ahead[i], name))
    if not parts:
        return tag("p", "No column holds numbers.", class_="note")
    return join(parts)


def _plot(
    title: str, times: Array, values: Array, within: Forecast, later: Array, ahead: Forecast, name: str
) -> Markup:
    kept = slice(max(0, len(times) - _MOST_STEPS), None)
    times, values, bands = times[kept], values[kept], within.quantiles[name][kept]
    beyond = ahead.quantiles[name]
    heights = np.concatenate([values[~np.isnan(values)], beyond[:, 0], beyond[:, -1]])
    low, high = span(float(heights.min()), float(heights.max()))
    room = 0.05 * (high - low)
    axes = _axes(title, np.concatenate([times, later]), low - room, high + room, 220.0)
    seen = ~np.isnan(values)
    marks = [
        _area(axes, times, bands[:, 0], bands[:, -1], "area"),
        _area(axes, later, beyond[:, 0], beyond[:, -1], "area drawn"),
        _area(axes, later, beyond[:, 1], beyond[:, -2], "area drawn"),
        line(axes, later.tolist(), beyond[:, 2].tolist(), "drawn"),
        dots(axes, times[seen], values[seen], "data"),
    ]
    return axes.draw(*marks, title=title)


def _area(axes: Axes, x: Array, low: Array, high: Array, class_: str) -> Markup:
    """The strip between two lines, cut to the axes."""
    below, above = (np.clip(v, *axes.y).tolist() for v in (low, high))
    there = [f"{number(axes.across(a))} {number(axes.up(b))}" for a, b in zip(x.tolist(), above, strict=True)]
    back = [f"{number(axes.across(a))} {number(axes.up(b))}" for a, b in zip(x.tolist(), below, strict=True)]
    return tag("path", d=f"M{'L'.join(there + back[::-1])}Z", class_=class_)


def _states(model: SequenceModel, sequences: Sequences, names: Sequence[Any]) -> Markup:
    parts = []
    for i, state in enumerate(model.filter(sequences)):
        kept = slice(max(0, len(state.times) - _MOST_STEPS), None)
        for j in range(state.nodes.shape[1]):
            mean, std, times = state.mean[kept, j], state.std[kept, j], state.times[kept]
            low, high = span(float((mean - 2 * std).min()), float((mean + 2 * std).max()))
            title = _title(names[i], f"latent {j + 1}")
            axes = _axes(title, times, low, high)
            band = _area(axes, times, mean - 2 * std, mean + 2 * std, "area")
            parts.append(axes.draw(band, line(axes, times.tolist(), mean.tolist(), "data"), title=title))
    return join(parts)


def _surprises(model: SequenceModel, sequences: Sequences, names: Sequence[Any], surprises: list[Array]) -> Markup:
    parts = []
    for i, values in enumerate(surprises[:_MOST_SEQUENCES]):
        times, shown = model._times(sequences, i)[-_MOST_STEPS:], values[-_MOST_STEPS:]
        low, high = span(float(shown.min()), float(shown.max()))
        title = _title(names[i], "surprise")
        axes = _axes(title, times, low, high)
        parts.append(axes.draw(line(axes, times.tolist(), shown.tolist(), "data"), title=title))
    places = [(float(v), i, t) for i, part in enumerate(surprises) for t, v in enumerate(part)]
    rows = []
    for value, i, t in sorted(places, reverse=True)[:_MOST_LISTED]:
        cells = [str(sequences.tables[i][n][t]) if n in sequences.tables[i] else "" for n in model.columns.names]
        when = str(model._shown(model._times(sequences, i)[t : t + 1])[0])
        rows.append(tag("tr", *(tag("td", c) for c in (str(names[i]), when, label(value, 0.01), *cells))))
    head = ("sequence", "time", "surprise", *model.columns.names)
    table = tag("table", tag("thead", tag("tr", *(tag("th", name) for name in head))), tag("tbody", *rows))
    return join([*parts, tag("div", table, class_="scroll")])


def _calibration(model: SequenceModel, sequences: Sequences, seed: int) -> Markup:
    shares = np.concatenate(model.pit(sequences, seed))
    edges, parts = np.linspace(0, 1, 11), []
    for column, name in list(enumerate(model.columns.names))[:_MOST_COLUMNS]:
        values = shares[:, column]
        values = values[~np.isnan(values)]
        if len(values):
            heights = np.histogram(values, edges)[0] / len(values) * 10
            axes = Axes(300.0, 170.0, (0.0, 1.0), (0.0, max(2.0, float(heights.max()) * 1.05)), "", name)
            level = line(axes, [0.0, 1.0], [1.0, 1.0], "other")
            parts.append(axes.draw(bars(axes, edges, heights, "data"), level, title=f"Calibration of {name}"))
    if not parts or not math.isfinite(float(np.nanmean(shares))):
        return tag("p", "There are no values to compare.", class_="note")
    return join(parts)
