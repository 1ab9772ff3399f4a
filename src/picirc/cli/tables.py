"""The data of a command: three parts, and what is known of the columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from picirc import data
from picirc.cli.options import DataOptions
from picirc.data.dataset import hold_out
from picirc.errors import ArgumentError

_SUFFIXES = (".csv", ".csv.gz", ".parquet", ".npy", ".npz")
_HELD_OUT, _SEED = 0.1, 0  # the parts depend on the number of rows and on nothing else


@dataclass(frozen=True, eq=False)
class Tables:
    """Rows for training, validation and testing.

    Attributes:
        parts: ``(rows, variables)`` each, by name.
        columns: The names of the variables.
        levels: For every categorical column of a file the texts that its values stand for.
        categories: The number of values of every variable of a data set; None for a file.
        image_shape: Height and width of images.
    """

    parts: Mapping[str, npt.NDArray[Any]]
    columns: tuple[str, ...]
    levels: Mapping[str, Sequence[str]]
    categories: int | None = None
    image_shape: tuple[int, int] | None = None

    def about(self) -> dict[str, Any]:
        """What has to be known to use a model of these data, as JSON values."""
        return {
            "columns": list(self.columns),
            "levels": {name: list(levels) for name, levels in self.levels.items()},
            "image_shape": None if self.image_shape is None else list(self.image_shape),
        }


def read_tables(options: DataOptions, about: Mapping[str, Any] | None = None) -> Tables:
    """Read a data set or a file.

    Args:
        options: Which one.
        about: What ``Tables.about`` said of the data that a model was trained on; a file must have the same columns.
    """
    if options.data is None:
        raise ArgumentError("--data", "the name of a data set", "none", "or give a table: picirc fit TABLE --out …")
    if not options.data.lower().endswith(_SUFFIXES):
        found = data.load(options.data, options.data_dir)
        parts = {"train": found.train, "valid": found.valid, "test": found.test}
        names = tuple(f"x{i}" for i in range(found.train.shape[1]))
        return Tables(parts, names, {}, found.categories, found.image_shape)
    known = (about or {}).get("levels") or {}
    table = data.read(Path(options.data), known or options.categorical)
    if about is not None and list(table.columns) != about["columns"]:
        expected = f"the columns of the model's data ({', '.join(about['columns'][:8])}, …)"
        raise ArgumentError("--data", expected, ", ".join(table.columns[:8]))
    return Tables(_split(table.values), table.columns, table.levels)


def _split(rows: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    if len(rows) < 3:
        raise ArgumentError("--data", "at least three rows, one for each part", f"{len(rows)}")
    rest, test = hold_out(len(rows), _HELD_OUT, _SEED)
    train, valid = hold_out(len(rest), _HELD_OUT, _SEED)
    return {"train": rows[rest[train]], "valid": rows[rest[valid]], "test": rows[test]}


def largest(tables: Tables, column: int) -> float:
    """The largest value of a column in all parts: the support is part of the question, not of the answer."""
    values = np.concatenate([part[:, column] for part in tables.parts.values()])
    if np.isnan(values).all():
        raise ArgumentError("--data", "a value in every column", f"none in {tables.columns[column]}")
    return float(np.nanmax(values))
