"""Small drawings: axes with round numbers, dots, lines, bars, steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from picirc.report.markup import Markup, join, number, shorten, tag, text_width
from picirc.report.scales import Scale, label, nice_step

Array = npt.NDArray[np.float64]

FONT = 12.0  # the size of the text, in units of the drawing
_GROUP = 29.0  # the height of the bars of a category


def drawing(width: float, height: float, *children: object, title: str, class_: str = "plot") -> Markup:
    """A drawing that takes the width there is; the title is what it is called by screen readers."""
    box = f"0 0 {number(width)} {number(height)}"
    parts = tag("title", title), *children
    size = {"width": number(width), "height": number(height)}
    return tag("svg", *parts, viewBox=box, role="img", class_=class_, xmlns="http://www.w3.org/2000/svg", **size)


class Placed(Protocol):
    """Something with a scale across and one up."""

    @property
    def across(self) -> Scale:
        """From numbers to places from left to right."""

    @property
    def up(self) -> Scale:
        """From numbers to places from bottom to top."""


@dataclass(frozen=True)
class Bare:
    """A plot without axes, in the size of a line of text."""

    across: Scale
    up: Scale


@dataclass(frozen=True)
class Axes:
    """The frame of a plot: a linear axis below and one at the left.

    Attributes:
        width: Of the whole drawing.
        height: Of the whole drawing.
        x: The range of the axis below.
        y: The range of the axis at the left.
        x_label: What stands below; cut where it is too long.
        y_label: What stands above the axis at the left.
        x_ticks: About how many numbers stand below.
        y_ticks: About how many stand at the left; 0 for an axis without numbers.
    """

    width: float
    height: float
    x: tuple[float, float]
    y: tuple[float, float]
    x_label: str = ""
    y_label: str = ""
    x_ticks: int = 4
    y_ticks: int = 4
    across: Scale = field(init=False)
    up: Scale = field(init=False)

    def __post_init__(self) -> None:
        marks = self._marks(self.y, self.y_ticks)
        left = 8 + max((text_width(text, FONT) for _, text in marks), default=0.0)
        below = self._marks(self.x, self.x_ticks)
        right = (
            max((text_width(text, FONT) / 2 for _, text in below), default=0.0) + 2
        )  # the last number may stand there
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
        """The plot: a grid, what is drawn on it, and the numbers."""
        return drawing(self.width, self.height, self._grid(), *marks, self._numbers(), title=title)

    def _grid(self) -> Markup:
        left, right = number(self.across.start), number(self.across.stop)
        rows = [f"M{left} {number(self.up(tick))}H{right}" for tick, _ in self._marks(self.y, self.y_ticks)]
        bottom = f"M{left} {number(self.up.start)}H{right}"
        return tag("path", d="".join(rows), class_="grid") + tag("path", d=bottom, class_="axis")

    def _numbers(self) -> Markup:
        below, beside = self.up.start + 16, self.across.start - 6
        parts = []
        for tick, text in self._fitting():
            parts.append(tag("text", text, x=self.across(tick), y=below, text_anchor="middle"))
        for tick, text in self._marks(self.y, self.y_ticks):
            parts.append(tag("text", text, x=beside, y=self.up(tick) + 4, text_anchor="end"))
        if self.x_label:
            middle = (self.across.start + self.across.stop) / 2
            name = shorten(self.x_label, int((self.across.stop - self.across.start) / (0.62 * FONT)))
            parts.append(tag("text", name, x=middle, y=self.height - 5, text_anchor="middle", class_="name"))
        if self.y_label:
            name = shorten(self.y_label, int((self.width - 12) / (0.62 * FONT)))
            parts.append(tag("text", name, x=2.0, y=12.0, class_="name"))
        return tag("g", *parts, class_="numbers")

    def _fitting(self) -> list[tuple[float, str]]:
        """The numbers below, fewer of them where they would touch."""
        count = self.x_ticks
        while True:
            marks = self._marks(self.x, count)
            room = abs(self.across(marks[1][0]) - self.across(marks[0][0])) if len(marks) > 1 else np.inf
            if count <= 1 or room > max(text_width(text, FONT) for _, text in marks) + 8:
                return marks
            count -= 1


def dots(axes: Axes, x: Array, y: Array, class_: str, radius: float = 2.2) -> Markup:
    """A dot for every pair of numbers that lies within the axes."""
    inside = (x >= axes.x[0]) & (x <= axes.x[1]) & (y >= axes.y[0]) & (y <= axes.y[1])
    places = zip(x[inside], y[inside], strict=True)
    circles = (tag("circle", cx=round(axes.across(a), 1), cy=round(axes.up(b), 1), r=radius) for a, b in places)
    return tag("g", *circles, class_=f"dots {class_}")


def line(axes: Axes, x: Sequence[float], y: Sequence[float], class_: str) -> Markup:
    """A line through points, as far as they lie within the axes."""
    places = [(axes.across(a), axes.up(min(max(b, axes.y[0]), axes.y[1]))) for a, b in zip(x, y, strict=True)]
    path = "L".join(f"{number(a)} {number(b)}" for a, b in places)
    return tag("path", d=f"M{path}", class_=f"line {class_}") if places else Markup()


def bars(axes: Placed, edges: Array, heights: Array, class_: str) -> Markup:
    """Bars from the bottom, one for each interval between two edges."""
    path, floor = "", number(axes.up.start)
    for low, high, height in zip(edges[:-1], edges[1:], heights, strict=True):
        if height > 0:
            left, right = axes.across(low) + 0.5, axes.across(high) - 0.5
            path += f"M{number(left)} {floor}V{number(axes.up(height))}H{number(right)}V{floor}Z"
    return tag("path", d=path, class_=f"bars {class_}")


def steps(axes: Placed, edges: Array, heights: Array, class_: str) -> Markup:
    """The outline of bars, from the bottom and back to it."""
    path = f"M{number(axes.across(edges[0]))} {number(axes.up.start)}"
    for high, height in zip(edges[1:], heights, strict=True):
        path += f"V{number(axes.up(height))}H{number(axes.across(high))}"
    return tag("path", d=f"{path}V{number(axes.up.start)}", class_=f"line {class_}")


def band(axes: Axes, low: float, high: float, class_: str = "band") -> Markup:
    """A strip between two heights, over the whole width."""
    top, bottom = axes.up(high), axes.up(low)
    width = axes.across.stop - axes.across.start
    return tag("rect", x=axes.across.start, y=top, width=width, height=bottom - top, class_=class_)


@dataclass(frozen=True)
class Bar:
    """A category in a chart of grouped bars, with a share of the data and one of the samples."""

    name: str
    data: float
    drawn: float


def grouped_bars(groups: Sequence[Bar], width: float, top: float, title: str) -> Markup:
    """Two bars for each category, one below the other, that reach from the names at the left up to a share ``top``."""
    names = [shorten(group.name, 14) for group in groups]
    left = 8 + max((text_width(name, FONT) for name in names), default=0.0)
    across = Scale(0.0, top, left, width - 40)
    parts = []
    for place, (name, group) in enumerate(zip(names, groups, strict=True)):
        y = 4 + _GROUP * place
        parts.append(tag("text", name, tag("title", group.name), x=left - 6, y=y + 15, text_anchor="end"))
        for share, class_, top in ((group.data, "data", y), (group.drawn, "drawn", y + 11)):
            end = max(across(share), left)
            parts.append(tag("rect", x=left, y=top, width=end - left, height=10.0, class_=f"bars {class_}"))
            parts.append(tag("text", f"{100 * share:.0f} %", x=end + 4, y=top + 9, class_="value"))
    axis = tag("path", d=f"M{number(left)} 0V{number(4 + _GROUP * len(groups))}", class_="axis")
    return drawing(width, 6 + _GROUP * len(groups), join(parts), axis, title=title)


def key() -> Markup:
    """Which colour is the data's, and which that of the rows drawn from the model."""
    items = (("data", "data"), ("drawn", "samples"))
    return tag("p", *(tag("span", tag("i", class_=f"swatch {c}"), word) for c, word in items), class_="key")
