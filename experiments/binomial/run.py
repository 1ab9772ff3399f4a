# SPDX-License-Identifier: Apache-2.0
"""Binomial inputs (Figure B.1b): PICs against HCLTs by Adam, where one number makes a whole input distribution."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import images.run as images
from density import model_jobs
from harness import Job, Record, merged, read_models, read_settings
from plots import NAMES, paired_scatter

PLACE = "Figure B.1b"
PAPER = "QPC ahead of HCLT by Adam at almost every N and B"

rows = images.rows


def jobs(quick: bool) -> list[Job]:
    """All models at all sizes."""
    settings = read_settings(__file__, quick)
    return model_jobs(settings, merged(read_models(quick), settings["changes"]))


def draw(records: Sequence[Record], folder: Path) -> None:
    """The paired scatter plot."""
    paired_scatter(records, ["adam"], folder / "scatter.png")


def summary(records: Sequence[Record]) -> str:
    """How often each PIC is ahead."""
    found = []
    for data in dict.fromkeys(r["settings"]["data"] for r in records):
        for name in ("pic", "settled", "fixed", "paper"):
            ahead, pairs = images.duels(records, data, name, "adam")
            if pairs:
                found.append(f"{NAMES.get(data, data)}: {NAMES[name]} ahead in {ahead} of {pairs}")
    return "; ".join(found)
