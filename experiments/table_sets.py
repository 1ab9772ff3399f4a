# SPDX-License-Identifier: Apache-2.0
"""Tables as data sets: the rows encoded by the library's schema, in three parts, and a family for each column."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import picirc as pc
from picirc.data import Dataset, Provenance

NAMES = ("magic", "wage")
FRACTION = 0.1  # of the rows for validation, and again for testing


@dataclass(frozen=True, repr=False)
class TableSet(Dataset):
    """A table whose columns have families of their own."""

    families: tuple[pc.Family, ...] = ()


def load_table(name: str) -> TableSet:
    """``tables/NAME.parquet`` in the folder that ``PICIRC_DATA`` names; everybody gets the same parts."""
    path = Path(os.environ.get("PICIRC_DATA", "")) / "tables" / f"{name}.parquet"
    schema = pc.Schema.infer(path)
    rows = schema.encode(path).astype(np.float32)
    held = round(FRACTION * len(rows))
    test, valid, train = np.split(np.random.default_rng(0).permutation(rows), [held, 2 * held])
    origin = Provenance(f"the table {path.name}", (path,))
    return TableSet(name, train, valid, test, None, origin, columns=schema.names, families=tuple(schema.families))
