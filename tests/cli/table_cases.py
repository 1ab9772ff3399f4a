# SPDX-License-Identifier: Apache-2.0
"""A small table of every kind of column, as rows of texts, and files of it."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

COLUMNS = ["length", "pet", "flag", "count", "code", "note, quoted"]
ROWS = 60
QUICK = ["--steps", "3", "--points", "4", "--width", "4", "--batch", "16"]


def rows() -> list[list[str]]:
    """Columns that hang together, with missing cells, numbers written in unusual ways, and texts that need quotes."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(ROWS):
        kind = int(rng.integers(3))
        length = f"{rng.normal(10 * kind, 1):.3f}"
        pet = ["cat", "dog", "émeu, large"][kind]
        count = str(rng.poisson(20 + 10 * kind))
        code = ["01", "02", "10"][int(rng.integers(3))]
        note = ["a\nb", 'say "x"'][int(rng.integers(2))]
        found.append([length, pet, str(rng.integers(2)), count, code, note])
    found[0][0], found[1][0], found[2][3] = "+1.50", "1e1", "+20"
    for row, column in ((3, 0), (4, 1), (5, 2), (6, 3), (7, 4), (8, 5), (9, 0), (9, 1), (9, 3)):
        found[row][column] = "" if row % 2 else "NA"
    return found


def text(cells: list[list[str]], header: list[str] = COLUMNS, delimiter: str = ",") -> str:
    stream = io.StringIO(newline="")
    csv.writer(stream, delimiter=delimiter).writerows([header, *cells])
    return stream.getvalue()


def read(path: Path, delimiter: str = ",") -> tuple[list[str], list[list[str]]]:
    with path.open(newline="", encoding="utf-8") as file:
        header, *cells = csv.reader(file, delimiter=delimiter)
    return header, cells
