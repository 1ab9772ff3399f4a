"""HTML and SVG as text that cannot be broken by what is put into it."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable

# What no HTML or XML may contain, and what could turn the direction of the text around it.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u202a-\u202e\u2066-\u2069]")
_EMPTY = frozenset({"br", "link", "meta"})  # elements of HTML that have no end


class Markup(str):
    """Text that is markup already; every other text is escaped before it becomes a part of some."""

    __slots__ = ()

    def __add__(self, other: str) -> Markup:
        return Markup(str(self) + str(escape(other)))


def escape(value: object) -> Markup:
    """Text as markup: characters with a meaning are written as references, forbidden ones replaced.

    Example:
        >>> escape("<b> & co")
        '&lt;b&gt; &amp; co'
    """
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(_FORBIDDEN.sub("\ufffd", str(value))))


def join(parts: Iterable[object], between: str = "") -> Markup:
    """Parts one after the other, those that are not markup escaped."""
    return Markup(between.join(map(escape, parts)))


def tag(element: str, /, *children: object, **attributes: object) -> Markup:
    """An element with its attributes and children; attributes that are None are left out.

    Underscores in the names of attributes are hyphens, and a last one is dropped (``class_``).

    Example:
        >>> tag("a", "R & D", href="#x", class_="it")
        '<a href="#x" class="it">R &amp; D</a>'
        >>> tag("rect", x=0.1 + 0.2, stroke_width=2)
        '<rect x="0.3" stroke-width="2"></rect>'
    """
    given = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items() if value is not None}
    start = "".join(f' {name}="{_attribute(value)}"' for name, value in given.items())
    if element in _EMPTY:
        return Markup(f"<{element}{start}/>")
    return Markup(f"<{element}{start}>{join(children)}</{element}>")


def _attribute(value: object) -> str:
    return number(value) if isinstance(value, float) else escape(value)


def number(value: float) -> str:
    """A length in a drawing, to a hundredth.

    Example:
        >>> number(12.3456), number(-0.0001), number(20.0)
        ('12.35', '0', '20')
    """
    return f"{round(value, 2) + 0.0:.2f}".rstrip("0").rstrip(".")


def text_width(text: str, size: float) -> float:
    """About how wide a text is at a font size; East Asian characters are twice as wide as others."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return size * (0.62 * (len(text) - wide) + 1.05 * wide)


def shorten(text: str, most: int) -> str:
    """The text in at most so many columns, with an ellipsis in the middle if something was left out.

    Example:
        >>> shorten("measurement_of_column_17", 12), shorten("short", 12)
        ('measurem…_17', 'short')
    """
    text = " ".join(text.split())
    room = text_width("x" * most, 1)
    if text_width(text, 1) <= room:
        return text
    # The end often tells apart what begins alike.
    head, tail = text, text[-max(1, most // 4) :]
    while head and text_width(f"{head}…{tail}", 1) > room:
        head = head[:-1]
    return f"{head}…{tail}"
