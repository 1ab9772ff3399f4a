# SPDX-License-Identifier: Apache-2.0
"""HTML and SVG: escaped markup, the frame of a page, axes, and small plots."""

from __future__ import annotations

import html
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

import numpy as np
import numpy.typing as npt

from picirc import __version__

Array = npt.NDArray[np.float64]

FONT = 12.0  # the size of the text, in units of the drawing
_GROUP = 29.0  # the height of the bars of a category
# Characters that HTML and XML do not allow, and those that change the direction of the text around them.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u202a-\u202e\u2066-\u2069]")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_VOID = frozenset({"br", "link", "meta"})  # elements of HTML without an end tag


# Markup


class Markup(str):
    """A string of markup. Other strings are escaped when they are added to it."""

    __slots__ = ()

    def __add__(self, other: str) -> Markup:
        return Markup(str(self) + str(escape(other)))


def escape(value: object) -> Markup:
    """Text as markup, with special characters escaped and forbidden ones replaced.

    Example:
        >>> escape("<b> & co")
        '&lt;b&gt; &amp; co'
    """
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(_FORBIDDEN.sub("\ufffd", str(value))))


def join(parts: Iterable[object], between: str = "") -> Markup:
    """Join parts; those that are not markup are escaped."""
    return Markup(between.join(map(escape, parts)))


def tag(element: str, /, *children: object, **attributes: object) -> Markup:
    """An element with attributes and children; attributes that are None are left out.

    Underscores in the names of attributes become hyphens, and a trailing one is dropped (``class_``).

    Example:
        >>> tag("a", "R & D", href="#x", class_="it")
        '<a href="#x" class="it">R &amp; D</a>'
        >>> tag("rect", x=0.1 + 0.2, stroke_width=2)
        '<rect x="0.3" stroke-width="2"></rect>'
    """
    given = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items() if value is not None}
    texts = {name: number(value) if isinstance(value, float) else escape(value) for name, value in given.items()}
    start = "".join(f' {name}="{text}"' for name, text in texts.items())
    if element in _VOID:
        return Markup(f"<{element}{start}/>")
    return Markup(f"<{element}{start}>{join(children)}</{element}>")


def section(anchor: str, title: str, words: str, content: Markup) -> Markup:
    """A section of a page with an explanation."""
    return tag("section", tag("h2", title), tag("p", words, class_="lead"), content, id=anchor)


def tiles(facts: Sequence[tuple[str, str]]) -> Markup:
    """Names and values in a row."""
    return tag("div", *(tag("div", tag("b", value), join([name])) for name, value in facts), class_="tiles")


def page(title: str, top: Markup, sections: Sequence[Markup], units: str, style: str = "") -> Markup:
    """A whole page. Its policy forbids scripts and anything loaded from elsewhere.

    Args:
        title: The title.
        top: The header.
        sections: The sections.
        units: The source of the units of densities, for the footer.
        style: Additional CSS.
    """
    rules = files("picirc.report").joinpath("style.css").read_text(encoding="utf-8") + style
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", Markup(rules)),
    )
    words = f"Written by picirc {__version__}. Logarithms are natural; densities are in the units of {units}."
    body = tag("body", top, tag("main", *sections), tag("footer", tag("p", words)))
    return Markup(f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n")


def number(value: float) -> str:
    """A coordinate, rounded to two decimals.

    Example:
        >>> number(12.3456), number(-0.0001), number(20.0)
        ('12.35', '0', '20')
    """
    return f"{round(value, 2) + 0.0:.2f}".rstrip("0").rstrip(".")


def text_width(text: str, size: float) -> float:
    """The approximate width of a text at a font size. East Asian characters are wider than others."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return size * (0.62 * (len(text) - wide) + 1.05 * wide)


def shorten(text: str, most: int) -> str:
    """Shorten a text to ``most`` characters, with an ellipsis in the middle.

    Example:
        >>> shorten("measurement_of_column_17", 12), shorten("short", 12)
        ('measurem…_17', 'short')
    """
    text = " ".join(text.split())
    room = text_width("x" * most, 1)
    if text_width(text, 1) <= room:
        return text
    # Names that begin alike often differ at the end.
    head, tail = text[:most], text[-max(1, most // 4) :]
    while head and text_width(f"{head}…{tail}", 1) > room:
        head = head[:-1]
    return f"{head}…{tail}"


# Numbers along an axis


@dataclass(frozen=True)
class Scale:
    """A linear map from numbers to positions."""

    low: float  # the number at `start`
    high: float  # the number at `stop`; above `low`
    start: float  # the first position
    stop: float  # the last position; it may be smaller than the first, as on an axis that points up

    def __call__(self, value: float) -> float:
        """The position of a number."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.stop - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """About ``count`` round numbers on the axis.

        Example:
            >>> Scale(0, 1, 0, 100).ticks(4)
            [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
        """
        step = nice_step(self.high - self.low, count)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [round(i * step, 12 - exponent(step)) for i in range(first, last + 1)]


def span(low: float, high: float) -> tuple[float, float]:
    """The range itself or, if it is empty, one around it."""
    if high > low:
        return low, high
    room = max(abs(low), 1.0) / 2
    return low - room, high + room


def exponent(value: float) -> int:
    """The decimal exponent."""
    return math.floor(math.log10(abs(value))) if value else 0


def nice_step(extent: float, count: int) -> float:
    """A step of 1, 2 or 5 times a power of ten that divides an extent into about ``count`` parts."""
    rough = extent / max(count, 1)
    power = 10.0 ** exponent(rough)
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= 0.75 * rough)


def label(value: float, step: float | None = None, digits: int = 3) -> str:
    """Format a number with the decimals that a step between neighbours needs, or with some significant digits.

    Example:
        >>> label(0.30000000000000004, 0.1), label(12345.0), label(0.000123), label(2.5e9), label(-1.0)
        ('0.3', '12,345', '1.23e-4', '2.5e9', '−1')
    """
    if not math.isfinite(value):
        return str(value)
    places = -exponent(step) if step else digits - 1 - exponent(value)
    if value and not -4 < exponent(value) < 6:
        text = f"{value:.{digits - 1}e}" if step is None else f"{value:.{max(0, exponent(value) + places)}e}"
        mantissa, power = text.split("e")
        text = f"{_trim(mantissa)}e{int(power)}"
    else:
        text = f"{value + 0.0:,.{max(0, places)}f}"
        text = _trim(text) if step is None else text
    return "0" if text in ("-0", "−0") else text.replace("-", "−", 1) if text.startswith("-") else text


def _trim(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(part: float) -> str:
    """Format a fraction as a percentage; only 0 becomes 0 %, and only 1 becomes 100 %.

    Example:
        >>> percent(0.25), percent(0.05), percent(0.0003), percent(1.0), percent(0.9999), percent(0.0)
        ('25 %', '5.0 %', '< 0.1 %', '100 %', '> 99.9 %', '0 %')
    """
    if 0 < part < 0.001:
        return "< 0.1 %"
    if 0.999 < part < 1:
        return "> 99.9 %"
    return f"{100 * part:.1f} %" if 0 < part < 0.0995 else f"{100 * part:.0f} %"


# Plots


def drawing(width: float, height: float, *children: object, title: str, class_: str = "plot") -> Markup:
    """An SVG image that scales to the available width; screen readers read its title."""
    box = f"0 0 {number(width)} {number(height)}"
    parts = tag("title", title), *children
    size = {"width": number(width), "height": number(height)}
    return tag("svg", *parts, viewBox=box, role="img", class_=class_, xmlns="http://www.w3.org/2000/svg", **size)


@dataclass(frozen=True)
class Bare:
    """A plot without axes."""

    across: Scale  # from left to right
    up: Scale  # from bottom to top


@dataclass(frozen=True)
class Axes:
    """A plot with linear axes."""

    width: float  # of the whole drawing
    height: float
    x: tuple[float, float]  # the range of the horizontal axis
    y: tuple[float, float]  # the range of the vertical axis
    x_label: str = ""  # shortened if it is too long
    y_label: str = ""  # above the vertical axis
    x_ticks: int = 4  # the approximate number of ticks
    y_ticks: int = 4  # 0 for an axis without numbers
    across: Scale = field(init=False)
    up: Scale = field(init=False)

    def __post_init__(self) -> None:
        marks = self._marks(self.y, self.y_ticks)
        left = 8 + max((text_width(text, FONT) for _, text in marks), default=0.0)
        below = self._marks(self.x, self.x_ticks)
        # Half of the last number extends beyond the axis.
        right = max((text_width(text, FONT) / 2 for _, text in below), default=0.0) + 2
        bottom = self.height - (38 if self.x_label else 22)
        top = 24.0 if self.y_label else 8.0
        object.__setattr__(self, "across", Scale(*self.x, left, self.width - right))
        object.__setattr__(self, "up", Scale(*self.y, bottom, top))

    @staticmethod
    def _marks(limits: tuple[float, float], count: int) -> list[tuple[float, str]]:
        if not count:
            return []
        step = nice_step(limits[1] - limits[0], count)
        return [(tick, label(tick, step)) for tick in Scale(*limits, 0, 1).ticks(count)]

    def draw(self, *marks: object, title: str) -> Markup:
        """The plot: a grid, the marks, and the numbers."""
        return drawing(self.width, self.height, self._grid(), *marks, self._numbers(), title=title)

    def _grid(self) -> Markup:
        left, right = number(self.across.start), number(self.across.stop)
        rows = [f"M{left} {number(self.up(tick))}H{right}" for tick, _ in self._marks(self.y, self.y_ticks)]
        bottom = f"M{left} {number(self.up.start)}H{right}"
        return tag("path", d="".join(rows), class_="grid") + tag("path", d=bottom, class_="axis")

    def _numbers(self) -> Markup:
        below, beside = self.up.start + 16, self.across.start - 6
        parts = [
            *(tag("text", text, x=self.across(x), y=below, text_anchor="middle") for x, text in self._fitting()),
            *(
                tag("text", text, x=beside, y=self.up(y) + 4, text_anchor="end")
                for y, text in self._marks(self.y, self.y_ticks)
            ),
        ]
        if self.x_label:
            middle = (self.across.start + self.across.stop) / 2
            name = shorten(self.x_label, int((self.across.stop - self.across.start) / (0.62 * FONT)))
            parts.append(tag("text", name, x=middle, y=self.height - 5, text_anchor="middle", class_="name"))
        if self.y_label:
            name = shorten(self.y_label, int((self.width - 12) / (0.62 * FONT)))
            parts.append(tag("text", name, x=2.0, y=12.0, class_="name"))
        return tag("g", *parts, class_="numbers")

    def _fitting(self) -> list[tuple[float, str]]:
        """The ticks of the horizontal axis, fewer of them where their numbers would overlap."""
        for count in range(self.x_ticks, 0, -1):
            marks = self._marks(self.x, count)
            room = abs(self.across(marks[1][0]) - self.across(marks[0][0])) if len(marks) > 1 else np.inf
            if room > max(text_width(text, FONT) for _, text in marks) + 8:
                break
        return marks


def dots(axes: Axes, x: Array, y: Array, class_: str, radius: float = 2.2) -> Markup:
    """A dot for every pair of numbers within the axes."""
    inside = (x >= axes.x[0]) & (x <= axes.x[1]) & (y >= axes.y[0]) & (y <= axes.y[1])
    places = zip(x[inside], y[inside], strict=True)
    circles = (tag("circle", cx=round(axes.across(a), 1), cy=round(axes.up(b), 1), r=radius) for a, b in places)
    return tag("g", *circles, class_=f"dots {class_}")


def line(axes: Axes, x: Sequence[float], y: Sequence[float], class_: str) -> Markup:
    """A line through points, clipped to the axes."""
    places = [(axes.across(a), axes.up(min(max(b, axes.y[0]), axes.y[1]))) for a, b in zip(x, y, strict=True)]
    path = "L".join(f"{number(a)} {number(b)}" for a, b in places)
    return tag("path", d=f"M{path}", class_=f"line {class_}") if places else Markup()


def bars(axes: Axes | Bare, edges: Array, heights: Array, class_: str) -> Markup:
    """Vertical bars between the edges."""
    path, floor = "", number(axes.up.start)
    for low, high, height in zip(edges[:-1], edges[1:], heights, strict=True):
        if height > 0:
            left, right = axes.across(low) + 0.5, axes.across(high) - 0.5
            path += f"M{number(left)} {floor}V{number(axes.up(height))}H{number(right)}V{floor}Z"
    return tag("path", d=path, class_=f"bars {class_}")


def steps(axes: Axes | Bare, edges: Array, heights: Array, class_: str) -> Markup:
    """The outline of a histogram."""
    path = f"M{number(axes.across(edges[0]))} {number(axes.up.start)}"
    for high, height in zip(edges[1:], heights, strict=True):
        path += f"V{number(axes.up(height))}H{number(axes.across(high))}"
    return tag("path", d=f"{path}V{number(axes.up.start)}", class_=f"line {class_}")


def band(axes: Axes, low: float, high: float, class_: str = "band") -> Markup:
    """A horizontal band."""
    top, bottom = axes.up(high), axes.up(low)
    width = axes.across.stop - axes.across.start
    return tag("rect", x=axes.across.start, y=top, width=width, height=bottom - top, class_=class_)


def grouped_bars(groups: Sequence[tuple[str, float, float]], width: float, top: float, title: str) -> Markup:
    """Two horizontal bars for each category, its shares of the data and of the samples; the axis ends at ``top``."""
    names = [shorten(name, 14) for name, _, _ in groups]
    left = 8 + max((text_width(name, FONT) for name in names), default=0.0)
    across = Scale(0.0, top, left, width - 40)
    parts = []
    for place, (name, data, drawn) in enumerate(groups):
        y = 4 + _GROUP * place
        parts.append(tag("text", names[place], tag("title", name), x=left - 6, y=y + 15, text_anchor="end"))
        for share, class_, start in ((data, "data", y), (drawn, "drawn", y + 11)):
            end = max(across(share), left)
            parts.append(tag("rect", x=left, y=start, width=end - left, height=10.0, class_=f"bars {class_}"))
            parts.append(tag("text", f"{100 * share:.0f} %", x=end + 4, y=start + 9, class_="value"))
    axis = tag("path", d=f"M{number(left)} 0V{number(4 + _GROUP * len(groups))}", class_="axis")
    return drawing(width, 6 + _GROUP * len(groups), *parts, axis, title=title)


def key(items: Iterable[tuple[str, str]] = (("data", "data"), ("drawn", "samples")), note: str = "") -> Markup:
    """A legend: the classes of colours and their meanings, and a note."""
    spans = [tag("span", tag("i", class_=f"swatch {class_}"), word) for class_, word in items]
    return tag("p", *spans, tag("span", note) if note else "", class_="key")
