# SPDX-License-Identifier: Apache-2.0
"""Reports of tables whose names and categories are markup and scripts, opened in a browser."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from count import Count, SkippedError
from picirc.report import write_report
from picirc.tables import fit_table

sys.path.append(str(Path(__file__).parent.parent / "tests" / "report"))
from browser import browser, find_chromium

HOSTILE = [
    "<script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 1">',
    "<svg onload=window.hacked=1>",
    "</style><style>body{display:none}</style>",
    "</svg></title></textarea><script>window.hacked=1</script>",
    "javascript:window.hacked=1",
    "<a href='https://example.org/leak'>x</a>",
    '<link rel="stylesheet" href="https://example.org/leak.css">',
    "<meta http-equiv=refresh content='0;url=https://example.org'>",
    "&lt;script&gt;&#60;script>",
    "{{7*7}}${7*7}<%= 7*7 %>",
    "\u202ereversed\u2066 \u0000 \ufeff",
    "]]><!--",
    "x" * 2000,
]


def hostile_names(seed: int, scale: float) -> Count:
    """No script runs, nothing is asked for, no element appears that a harmless report does not have."""
    program = find_chromium()
    if program is None:
        raise SkippedError("no browser (apt-get install chromium)")
    source, count = random.Random(seed), Count()
    with TemporaryDirectory() as folder, browser(program) as page:
        elements = None
        for number in range(int(6 * scale) + 1):
            words = [f"name {i}" for i in range(4)] if number == 0 else source.sample(HOSTILE, 4)
            path = Path(folder) / f"report{number}.html"
            table = _table(words, source)
            write_report(fit_table(table, steps=2, points=3, width=4), table, path)
            with count.attempt(f"report {number}"):
                page.open(path)
                kinds = set(page.evaluate("[...document.querySelectorAll('*')].map(e => e.tagName)"))
                elements = elements or kinds
                count.check(page.evaluate("window.hacked") is None, f"a script ran: {words}")
                count.check(page.messages == [], f"messages {page.messages[:2]}")
                count.check(page.requests == [path.resolve().as_uri()], f"requests {page.requests[:3]}")
                count.check(kinds <= elements, f"new elements {kinds - elements}")
    return count


def _table(words: list[str], source: random.Random) -> dict[str, object]:
    rng = np.random.default_rng(source.randrange(99))
    names = [f"{word} {i}" for i, word in enumerate(words)]
    labels = [source.choice(words) for _ in range(50)]
    numbers = [rng.normal(size=50), rng.integers(0, 9, 50), rng.normal(size=50)]
    return dict(zip(names, [labels, *numbers], strict=True))
