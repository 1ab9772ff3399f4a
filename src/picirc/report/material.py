# SPDX-License-Identifier: Apache-2.0
"""The input of the sections of a report: the table, rows drawn from the model, and mutual information."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from picirc.structure.information import mutual_information
from picirc.structure.trees import LatentTree, maximum_spanning_tree
from picirc.tables import TableModel

Array = npt.NDArray[np.float64]

FEWEST_DRAWN, MOST_DRAWN = 500, 4000  # rows drawn from the model, whatever the table has
_RANGE = 0.005  # the fraction of values that may lie beyond each end of an axis
_ROOM = 0.1  # how far an axis extends beyond these quantiles, relative to their distance
_MOST_UNIT_BINS = 40  # counts with fewer different values have a bin for each


@dataclass(frozen=True, eq=False)
class Field:
    """A column of the table and the same column of the rows drawn from the model."""

    name: str
    kind: str  # the kind of its distribution
    labels: tuple[str, ...]  # the names of its categories; empty for numbers
    whole: bool  # whether its numbers are counts
    data: Array  # the values in the units of the table, or the codes of categories; NaN where missing
    drawn: Array  # the same for the rows drawn

    @property
    def observed(self) -> Array:
        """The values that are not missing."""
        return self.data[~np.isnan(self.data)]

    @property
    def empty(self) -> bool:
        """Whether all values are missing."""
        return bool(np.isnan(self.data).all())

    def limits(self) -> tuple[float, float]:
        """The range of an axis, without outliers."""
        return limits_of(self.observed if not self.empty else self.drawn, 0.02)

    def shares(self) -> tuple[Array, Array]:
        """The shares of the categories in the data and in the rows drawn."""
        return category_shares(self.observed, len(self.labels)), category_shares(self.drawn, len(self.labels))


def limits_of(values: Array, margin: float) -> tuple[float, float]:
    """The range of an axis: all values but a few outliers, and a margin relative to its length."""
    low, high = np.quantile(values, [_RANGE, 1 - _RANGE])
    room = _ROOM * (high - low)
    low, high = max(low - room, values.min()), min(high + room, values.max())
    room = margin * (high - low) if high > low else max(abs(float(low)), 1.0) / 2
    return float(low - room), float(high + room)


def category_shares(codes: Array, count: int) -> Array:
    """The relative frequency of each of ``count`` codes."""
    found: Array = np.bincount(codes.astype(np.intp), minlength=count) / max(len(codes), 1)
    return found


@dataclass(frozen=True, eq=False)
class Material:
    """A model, a table, and rows drawn from the model for comparison."""

    model: TableModel
    fields: tuple[Field, ...]  # its columns
    encoded: Tensor  # the table as the circuit takes it, `(rows, columns)`
    drawn: Tensor  # rows drawn from the circuit, in the same form
    information: Array  # the mutual information between every two columns of the table, in nats
    drawn_information: Array  # the same for the rows drawn
    seed: int  # determines everything random

    @property
    def rows(self) -> int:
        """The number of rows of the table."""
        return len(self.encoded)

    @cached_property
    def tree(self) -> LatentTree:
        """The maximum spanning tree of the mutual information between columns; the model may have another tree."""
        if len(self.fields) == 1:
            return LatentTree((-1,), ((0,),))
        return LatentTree.from_edges(maximum_spanning_tree(self.information))

    @cached_property
    def log_densities(self) -> Array:
        """The log-density of every row of the table, in its units."""
        return self.model.log_density_of_encoded(self.encoded.numpy())

    def some(self, most: int, purpose: int) -> npt.NDArray[np.intp]:
        """At most ``most`` rows of the table; each purpose has its own random numbers."""
        return some_rows(self.rows, most, (self.seed, purpose))


def some_rows(rows: int, most: int, seed: tuple[int, ...]) -> npt.NDArray[np.intp]:
    """All rows or, if there are too many, a random choice of them, in ascending order."""
    if rows <= most:
        return np.arange(rows)
    return np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))


def gather(model: TableModel, table: Any, seed: int) -> Material:
    """Encode the table, draw rows from the model, and estimate the mutual information between columns."""
    encoded = np.asarray(model.schema.encode(table), np.float64)
    count = int(np.clip(len(encoded), FEWEST_DRAWN, MOST_DRAWN))
    qpc = model.qpc
    drawn = qpc.sample(count, generator=torch.Generator(device=qpc.device).manual_seed(seed)).double().cpu()
    fields = tuple(
        Field(
            column.name,
            column.kind,
            tuple(map(str, column.categories)) if column.coded else (),
            column.family.discrete and not column.coded,
            in_units(column, encoded[:, place]),
            in_units(column, drawn[:, place].numpy()),
        )
        for place, column in enumerate(model.schema.columns)
    )
    kinds = ["categorical" if column.coded else "ordinal" for column in model.schema.columns]
    # As many rows of both, because the estimate depends on the number of rows.
    data = encoded[some_rows(len(encoded), count, (seed, 0))]
    both = [mutual_information(rows[:, : len(kinds)], kinds) for rows in (data, drawn[: len(data)].numpy())]
    return Material(model, fields, torch.as_tensor(encoded), drawn, both[0], both[1], seed)


def in_units(column: Any, codes: Array) -> Array:
    """Numbers in the units of the table; categories keep their codes."""
    return codes if column.coded else column.numbers(codes)


def edges_of(field: Field, most: int) -> Array:
    """The edges of the bins of a column of numbers. Counts lie in the middle of their bins."""
    low, high = field.limits()
    values = field.observed if not field.empty else field.drawn
    if field.whole:
        first, last = math.floor(low), math.ceil(high)
        width = max(1, math.ceil((last - first + 1) / min(most, _MOST_UNIT_BINS)))
        return np.arange(first, last + width + 1, width, dtype=np.float64) - 0.5
    count = int(np.clip(2 * round(len(values) ** (1 / 3)), 8, most))
    return np.linspace(low, high, count + 1)


def densities(values: Array, edges: Array) -> Array:
    """The share of the values in each bin divided by its width. The total includes values outside."""
    counts = np.histogram(values, edges)[0]
    return counts / (max(len(values), 1) * np.diff(edges))
