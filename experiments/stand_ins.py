# SPDX-License-Identifier: Apache-2.0
"""Small data sets for trials, in place of those whose files are not there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import picirc as pc
from picirc.data import Dataset, Provenance

ROWS = {"train": 300, "valid": 60, "test": 60}
SYMBOLS = "@abc "
LENGTH = 24


def cut(data: Dataset) -> Dataset:
    """The first rows of every part, without labels."""
    parts = {part: getattr(data, part)[:rows] for part, rows in ROWS.items()}
    return replace(data, **parts, train_labels=None, valid_labels=None, test_labels=None)


def stand_in(name: str) -> Dataset:
    """The digits for images, digits in black and white for binary sets, invented words for text."""
    if name.startswith("ptb"):
        return text(name)
    digits = pc.data.load("digits", valid_fraction=0.2)
    if "mnist" in name:
        return replace(digits, name=name)
    parts: dict[str, Any] = {
        part: np.ascontiguousarray(getattr(digits, part)[:, 16:48] > 7).view(np.uint8) for part in ROWS
    }
    return replace(digits, name=name, **parts, categories=2, image_shape=None)


def text(name: str) -> Dataset:
    """Sentences of invented words, padded like those of the Penn Tree Bank."""
    rng = np.random.default_rng(0)
    words = ("a", "ab", "abc", "cab", "bac")

    def sentence() -> list[int]:
        line = " ".join(rng.choice(words, size=rng.integers(1, 7)))[:LENGTH].rstrip().ljust(LENGTH, SYMBOLS[0])
        return [SYMBOLS.index(character) for character in line]

    parts: dict[str, Any] = {part: np.array([sentence() for _ in range(rows)], np.uint8) for part, rows in ROWS.items()}
    return Dataset(name, **parts, categories=len(SYMBOLS), provenance=Provenance("invented"), symbols=SYMBOLS)
