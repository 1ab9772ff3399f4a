# SPDX-License-Identifier: Apache-2.0
"""The questions of the page about a table. Evidence and answers are JSON values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from picirc.engine.evidence import Region
from picirc.errors import ArgumentError, ImpossibleEvidenceError
from picirc.explorer.server import Answer, Question, count_of, plain_values
from picirc.report.material import in_units, limits_of
from picirc.report.surprises import surprises
from picirc.structure.information import mutual_information
from picirc.structure.trees import maximum_spanning_tree
from picirc.tables import Column, TableModel
from picirc.tables.answers import Conditional, strange_cells

Array = npt.NDArray[np.float64]

_BINS = 48  # of a column of numbers; each is divided into two intervals
_TAILS = np.array([*np.arange(1, 13) * 0.03, 0.5, 0.8, 1.5, 4.0])  # points beyond the axis, relative to its length
_BARS = 60  # of a column of counts
_DRAWN = 2000  # rows drawn for the tree, the axes and the surprise of rows
_LISTED = 20  # surprising rows
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True, eq=False)
class Axis:
    """The points at which the distribution of a column is computed."""

    column: Column
    place: int  # the position of the column in the schema
    # The ends of intervals of numbers or the values of counts, in the units of the table; or the codes of categories.
    grid: Array
    edges: Array  # the codes of the ends of intervals, or of those around the values; the outer ones are infinite
    first: int  # the index of the point of the grid at which the axis begins
    last: int  # and ends
    step: int = 1  # the distance between points, for counts

    @property
    def kind(self) -> str:
        """``"category"``, ``"count"`` or ``"number"``."""
        return "category" if self.column.coded else "count" if self.column.family.discrete else "number"

    def has_density_at(self, code: float) -> bool:
        """Whether a value has a density rather than a probability."""
        return self.kind == "number" and code not in getattr(self.column.family, "atoms", ())

    def summary(self, masses: Array, spikes: Array, mean: float | None, known: Region | None) -> Answer:
        """The mean, the quantiles and the heights to draw.

        Args:
            masses: The probabilities of the intervals or values.
            spikes: The probabilities of the atoms of a column of numbers.
            mean: The expectation; None to compute it from the masses.
            known: The range or set to which the column is restricted.
        """
        if self.kind == "count":
            below = np.cumsum(masses)
            quantiles = [self.grid[min(int(np.searchsorted(below, q)), len(below) - 1)] for q in _QUANTILES]
            shown, middles = masses[self.first : self.last + 1], self.grid
        else:
            grid = _possible(self.column, self.grid, known)
            quantiles = np.interp(
                _QUANTILES, *_distribution(grid, masses, np.array(self.column.spikes), spikes)
            ).tolist()
            shown, middles = masses[self.first : self.last].reshape(-1, 2).sum(1), (grid[1:] + grid[:-1]) / 2
        if mean is None:
            mean = float(masses @ middles + spikes @ np.array(self.column.spikes))
        found = {"heights": shown.tolist(), "mean": mean, "quantiles": [float(q) for q in quantiles]}
        return found | ({"spikes": spikes.tolist()} if len(spikes) else {})


def _distribution(grid: Array, masses: Array, values: Array, spikes: Array) -> tuple[Array, Array]:
    """The distribution function at some points: probabilities in ascending order, and the values."""
    below = np.concatenate([[0.0], np.cumsum(masses)])
    smooth = np.interp(values, grid, below)
    jumps = smooth + np.cumsum(spikes)  # values are in ascending order
    reached = np.concatenate([below + (grid[:, None] >= values) @ spikes, jumps - spikes, jumps])
    at = np.concatenate([grid, values, values])
    order = np.lexsort((at, reached))
    return reached[order] + np.arange(len(order)) * 1e-15, at[order]


@dataclass(frozen=True, eq=False)
class Evidence:
    """Evidence on the columns."""

    row: Array  # the codes of known values, `(columns,)`; NaN is unknown
    regions: Mapping[int, Region]  # ranges and sets, by the position of the column

    @property
    def values(self) -> dict[int, float]:
        """The codes of known values, by the position of the column."""
        return {int(place): float(self.row[place]) for place in np.flatnonzero(~np.isnan(self.row))}

    def holds(self, rows: Array) -> npt.NDArray[np.bool_]:
        """Which encoded rows agree with the evidence."""
        fits = np.ones(len(rows), bool)
        for place, code in self.values.items():
            fits &= rows[:, place] == code
        for place, region in self.regions.items():
            fits &= region.holds(torch.from_numpy(rows[:, place])).numpy()
        return fits


class TableQuestions:
    """Questions about a model of a table; ``data`` is a table of any kind to compare it with."""

    def __init__(self, model: TableModel, data: Any = None, name: str = "table") -> None:
        self.model, self.name = model, name
        self.schema = model.schema
        self.rows: Array | None = None if data is None else model.schema.encode(data)
        self.axes = tuple(self._axis(place) for place in range(len(self.schema.columns)))
        self.questions: dict[str, Question] = {
            "answer": self.answer, "sample": self.sample, "row": self.row, "surprising": self.surprising
        }  # fmt: skip

    def describe(self) -> Answer:
        """The columns, and the tree of their dependencies."""
        return {
            "kind": "table",
            "name": self.name,
            "rows": None if self.rows is None else len(self.rows),
            "columns": [self._describe(axis) for axis in self.axes],
            "edges": self._tree,
        }

    def answer(self, request: Answer) -> Answer:
        """The distribution of every column given one or two sets of evidence.

        The request has ``evidence``, a list of mappings from names to ``{"is": value}``, ``{"from": a, "to": b}`` or
        ``{"in": [values]}``.
        """
        asked = request.get("evidence")
        if not isinstance(asked, list) or not 1 <= len(asked) <= 2:
            raise ArgumentError("evidence", "a list of one or two sets of evidence", type(asked).__name__)
        return {"answers": [self.given(evidence) for evidence in asked]}

    def given(self, asked: Any) -> Answer:
        """The distribution of every column given one set of evidence."""
        evidence = self.evidence(asked)
        with self._in_words(evidence):
            given = Conditional(self.model.qpc, torch.from_numpy(evidence.row), evidence.regions)
        known = evidence.values
        return {
            "cards": [None if axis.place in known else self._card(axis, given, evidence) for axis in self.axes],
            "log_evidence": given.log_evidence,
            "density": any(self.axes[place].has_density_at(code) for place, code in known.items()),
            "matching": None if self.rows is None else int(evidence.holds(self.rows).sum()),
        }

    def sample(self, request: Answer) -> Answer:
        """Rows drawn from the model given evidence."""
        n = count_of(request, "n", 10, most=1000)
        evidence = self.evidence(request.get("evidence", {}))
        seed = count_of(request, "seed", 0, least=0, most=2**31)
        qpc, source = self.model.qpc, torch.Generator().manual_seed(seed)
        regions = {qpc.variables[place]: region for place, region in evidence.regions.items()}
        with self._in_words(evidence):
            drawn = qpc.sample(n, given=torch.from_numpy(evidence.row), generator=source, regions=regions)
        columns = self._columns(drawn.numpy())
        rows = zip(*map(plain_values, columns.values()), strict=True)
        return {"columns": list(columns), "rows": list(map(list, rows))}

    def row(self, request: Answer) -> Answer:
        """A row of the data, with the surprise of each cell and its expected value given the others."""
        rows = self._data()
        number = count_of(request, "row", 0, least=0, most=len(rows) - 1)
        one = torch.from_numpy(rows[number : number + 1])
        (strange,) = strange_cells(self.model.qpc, one, self.schema.columns)
        found = []
        for cell in strange:
            column, expected = self.schema.columns[cell.column], cell.expected
            shown = column.categories[int(expected)] if column.coded else round(expected) if column.whole else expected
            found.append({"column": cell.column, "tail": cell.tail, "expected": shown})
        columns = self._columns(rows[number : number + 1])
        cells = [plain_values(values)[0] for values in columns.values()]
        return {"row": number, "cells": cells, "surprises": found}

    def surprising(self, request: Answer) -> Answer:
        """The most surprising rows of the data; the surprise is in nats beyond the expected one."""
        n = count_of(request, "n", _LISTED, most=200)
        order = np.argsort(-self._surprise, kind="stable")[:n]
        return {"rows": [{"row": int(row), "surprise": float(self._surprise[row])} for row in order]}

    def evidence(self, given: Any) -> Evidence:
        """Check and encode evidence."""
        if not isinstance(given, dict):
            raise ArgumentError("evidence", "a mapping from column names to evidence", type(given).__name__)
        row, regions = np.full(self.schema.width, np.nan), {}
        for name, known in given.items():
            axis = self.axes[self.schema.index(name)]
            match self._known(axis, known):
                case float(code):
                    row[axis.place] = code
                case Region() as region:
                    regions[axis.place] = region
        return Evidence(row, regions)

    def _known(self, axis: Axis, known: Any) -> float | Region:
        """The evidence on a column: the code of a value, or a range or set of codes."""
        column = axis.column
        match known:
            case {"is": value, **rest} if not rest:
                code: float = self._codes(axis, [value]).tolist()[0]
                return code
            case {"in": [*values], **rest} if values and not rest and axis.kind != "number":
                return Region(tuple((code, code) for code in sorted(set(self._codes(axis, values).tolist()))))
            case {"from": low, "to": high, **rest} if not rest and axis.kind != "category":
                bounds = (-math.inf if low is None else low, math.inf if high is None else high)
                if not all(isinstance(bound, int | float) for bound in bounds) or not bounds[0] <= bounds[1]:
                    raise ArgumentError(column.name, "two numbers, the smaller one first, or null", f"{low} and {high}")
                return column.region_between(float(bounds[0]), float(bounds[1]))
        ways = {
            "category": '{"is": value} or {"in": [values]}',
            "count": '{"is": value}, {"in": [values]} or {"from": a, "to": b}',
            "number": '{"is": value} or {"from": a, "to": b}',
        }[axis.kind]
        raise ArgumentError(column.name, ways, repr(known)[:80])

    def _codes(self, axis: Axis, values: Sequence[Any]) -> Array:
        if axis.column.kind == "empty":
            raise ArgumentError(axis.column.name, "a column with values", "one that was empty")
        if any(value is None or isinstance(value, list | dict) for value in values):
            raise ArgumentError(axis.column.name, "values of the column", repr(values)[:80])
        if axis.kind == "category" and axis.column.dtype != "text":
            values = [float(value) if not isinstance(value, str) else value for value in values]
        return self._encode(axis.column, np.array(values, dtype=object) if isinstance(values[0], str) else values)

    def _card(self, axis: Axis, given: Conditional, evidence: Evidence) -> Answer:
        """The distribution of a column."""
        if axis.kind == "category":
            return {"heights": given.probabilities(axis.place).tolist()}
        masses, spikes = given.masses(axis.place, axis.edges)
        return axis.summary(masses, spikes, given.mean(axis.column, axis.place), evidence.regions.get(axis.place))

    @contextmanager
    def _in_words(self, evidence: Evidence) -> Iterator[None]:
        """Name the columns in the error for evidence with probability zero."""
        try:
            yield
        except ImpossibleEvidenceError:
            names = ", ".join(self.schema.names[place] for place in sorted({*evidence.values, *evidence.regions}))
            remedy = "remove some of it, or widen its ranges"
            raise ImpossibleEvidenceError(f"evidence: these values have probability zero: {names}; {remedy}.") from None

    @cached_property
    def _drawn(self) -> Array:
        return self.model.qpc.sample(_DRAWN, generator=torch.Generator().manual_seed(0)).numpy()

    @cached_property
    def _tree(self) -> list[Answer]:
        """The maximum spanning tree of the mutual information between columns, in rows drawn from the model."""
        if len(self.axes) == 1:
            return []
        kinds = ["categorical" if axis.column.coded else "ordinal" for axis in self.axes]
        information = mutual_information(self._drawn[:, : len(kinds)], kinds)
        edges = maximum_spanning_tree(information)
        return [{"ends": [a, b], "nats": float(information[a, b])} for a, b in edges]

    @cached_property
    def _surprise(self) -> Array:
        rows = self._data()
        density = self.model.log_density_of_encoded
        return surprises(density, rows, density(rows), self._drawn)[0]

    def _data(self) -> Array:
        if self.rows is None:
            remedy = "start the explorer with --data table.csv, or pc.explore(model, data=table)"
            raise ArgumentError("row", "a table to take rows from", "none", remedy)
        return self.rows

    def _columns(self, encoded: Array) -> dict[str, Array]:
        """Decoded columns; dates in days since 1970."""
        dated = {c.name: c.numbers(encoded[:, place]) for place, c in enumerate(self.schema.columns) if c.dated}
        return self.schema.decoded(encoded) | dated

    def _axis(self, place: int) -> Axis:
        column = self.schema.columns[place]
        if column.coded:
            codes = np.arange(max(1, len(column.categories)), dtype=np.float64)
            return Axis(column, place, codes, codes, 0, len(codes) - 1)
        values = self._observed(place)
        low, high = limits_of(values if len(values) else in_units(column, self._drawn[:, place]), 0.04)
        if column.family.discrete:
            step = max(1, math.ceil((high - low + 1) / _BARS))
            first, far = math.floor(low), math.ceil(high + (high - low) + 5)
            grid = np.arange(first % step, far + 1, step, dtype=np.float64)
            start = int(np.searchsorted(grid, first))
            edges = np.append(grid - 1, math.inf)
            edges[0] = -math.inf
            return Axis(column, place, grid, edges, start, start + int((high - first) // step), step)
        room = (high - low) * _TAILS
        grid = np.concatenate([(low - room)[::-1], np.linspace(low, high, 2 * _BINS + 1), high + room])
        edges = np.maximum.accumulate(self._encode(column, _possible(column, grid)))
        edges[0], edges[-1] = -math.inf, math.inf
        return Axis(column, place, grid, edges, len(_TAILS), len(_TAILS) + 2 * _BINS)

    def _observed(self, place: int) -> Array:
        """The observed values of a column of the data, in the units of the table."""
        values = np.empty(0) if self.rows is None else in_units(self.schema.columns[place], self.rows[:, place])
        found: Array = values[np.isfinite(values)]
        return found

    def _encode(self, column: Column, values: Any) -> Array:
        if column.dated:  # the page counts in days
            return column.nearest(np.asarray(values, np.float64))
        return self.schema.encode({column.name: values}, absent=self.schema.names)[:, self.schema.index(column.name)]

    def _describe(self, axis: Axis) -> Answer:
        column = axis.column
        found: Answer = {"name": column.name, "kind": axis.kind, "empty": column.kind == "empty"}
        if axis.kind == "category":
            found["labels"] = plain_values(np.array(column.categories, dtype=object))
        else:
            found["low"], found["high"] = float(axis.grid[axis.first]), float(axis.grid[axis.last])
            found["whole"] = axis.kind == "count" or column.whole
            found["step"] = axis.step
            found["spikes"] = list(column.spikes)
        if self.rows is not None:
            found["data"], found["single"] = self._histogram(axis)
        return found

    def _histogram(self, axis: Axis) -> tuple[list[float], list[float]]:
        """The fraction of the data in each bar, and at each atom."""
        values = self._observed(axis.place)
        single = np.array([np.sum(values == spike) for spike in axis.column.spikes])
        shown = axis.grid[axis.first : axis.last + 1]
        edges = shown[::2] if axis.kind == "number" else np.append(shown, shown[-1] + axis.step) - 0.5
        bars = np.histogram(values[~np.isin(values, axis.column.spikes)], edges)[0]
        return tuple((counts / max(1, len(values))).tolist() for counts in (bars, single))


def _possible(column: Column, values: Array, known: Region | None = None) -> Array:
    """Numbers clipped to the values that a column can have, or to those of a range."""
    ends = np.array((-math.inf, math.inf) if known is None else known.intervals[0])
    found: Array = np.clip(values, *column.decode(ends, exact=True))
    return found
