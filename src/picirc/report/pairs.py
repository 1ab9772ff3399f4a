"""Pairs of columns: the data beside what was drawn from the model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from picirc.report.histogram import densities, edges_of
from picirc.report.markup import Markup, shorten, tag
from picirc.report.material import Array, Field, Material, category_shares
from picirc.report.scales import label, percent
from picirc.report.svg import Axes, Bar, bars, dots, grouped_bars, key, steps

Two = tuple[Array, Array]  # values of the data, and of the samples

MOST_PAIRS = 6
_MOST_DOTS = 400
_MOST_PANELS = 6  # categories that have a panel of their own
_MOST_BARS = 8  # categories that have bars of their own
_PANEL = (260.0, 150.0)
_JITTER = 0.3  # how far counts are moved apart, so that equal ones do not hide each other


def section(material: Material) -> Markup:
    """A figure for each of the most dependent pairs."""
    pairs = strongest_pairs(material)
    if not pairs:
        return tag("p", "There are no two columns with values to compare.", class_="note")
    return key() + tag("div", *(_figure(material, a, b) for a, b in pairs), class_="pairs")


def strongest_pairs(material: Material, most: int = MOST_PAIRS) -> list[tuple[int, int]]:
    """The pairs of columns next to each other in the tree that tell most about each other."""
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
