# SPDX-License-Identifier: Apache-2.0
"""What all pages of the explorer share: the form of questions and answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from picirc.errors import ArgumentError

Answer = dict[str, Any]
Question = Callable[[Answer], Answer]


class Page(Protocol):
    """A model as a page shows it."""

    @property
    def questions(self) -> Mapping[str, Question]:
        """What can be asked, by name; questions and answers are plain JSON values."""

    def describe(self) -> Answer:
        """What the page needs to know once; ``kind`` says which page it is."""


def count_of(request: Answer, name: str, default: int, *, least: int = 1, most: int) -> int:
    """A whole number in a request."""
    value = request.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ArgumentError(name, f"a whole number from {least:,} to {most:,}", repr(value)[:80])
    return value
