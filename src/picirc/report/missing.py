"""The columns one by one, and what is missing."""

from __future__ import annotations

from collections import Counter

import numpy as np

from picirc.report.histogram import densities, edges_of
from picirc.report.markup import Markup, number, shorten, tag
from picirc.report.material import Array, Field, Material
from picirc.report.scales import Scale, label, percent
from picirc.report.svg import Bare, bars, drawing, key, steps

MOST_PATTERNS = 8
_MOST_NAMES = 6
_SPARK = (120.0, 28.0)


def section(material: Material) -> Markup:
    """A line for each column, and the combinations of columns that are missing together."""
    heads = [tag("th", text) for text in ("column", "type", "values", "data and samples")]
    head = tag("tr", *heads, tag("th", "missing", colspan=2))
    lines = [_line(field, material.rows) for field in material.fields]
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


def _line(field: Field, rows: int) -> Markup:
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
    """The distribution of a column in the size of a line of text: bars for the data, an outline for the samples."""
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
