# SPDX-License-Identifier: Apache-2.0
"""What the page about a table asks, and how the model answers: evidence and answers are plain JSON values.

This is the only file of the explorer that knows how a model of a table is queried.
"""

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

from picirc.engine.regions import Region
from picirc.errors import ArgumentError, ImpossibleEvidenceError
from picirc.explorer.server import Answer, Question, count_of, plain_values
from picirc.report.material import limits_of
from picirc.report.surprises import surprises
from picirc.structure.information import mutual_information
from picirc.structure.trees import maximum_spanning_tree
from picirc.tables import Column, TableModel
from picirc.tables.answers import Conditional, strange_cells

Array = npt.NDArray[np.float64]

_BINS = 48  # of the axis of a column of numbers, each of two intervals
_TAILS = np.array([*np.arange(1, 13) * 0.03, 0.5, 0.8, 1.5, 4.0])  # points beyond the axis, in units of its length
_BARS = 60  # of a column of counts
_DRAWN = 2000  # rows, for the tree, the axes and the surprise of rows
_LISTED = 20
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True, eq=False)
class Axis:
    """Where the distribution of a column is computed."""

    column: Column
    place: int  # its place in the schema
    # In the units of the table the ends of intervals of numbers, the values of counts, the codes of categories.
    grid: Array
    edges: Array  # the codes of the ends of the intervals, or of those around the values; the outer ones are infinite
    first: int  # which point of the grid the axis begins with
    last: int  # which one it ends with
    step: int = 1  # for counts the distance between points

    @property
    def kind(self) -> str:
        """``"category"``, ``"count"`` or ``"number"``."""
        return "category" if self.column.coded else "count" if self.column.family.discrete else "number"

    def has_density_at(self, code: float) -> bool:
        """Whether a value has a density and no probability."""
        return self.kind == "number" and code not in getattr(self.column.family, "atoms", ())

    def summary(self, masses: Array, spikes: Array, mean: float | None, known: Region | None) -> Answer:
        """Mean, quantiles and the heights to draw.

        Args:
            masses: The probabilities of the intervals or values.
            spikes: The probabilities of the single values of a column of numbers.
            mean: The expectation; None to take it from the masses.
            known: The range or set in which the column is known to lie.
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
    """Points of a distribution function: probabilities in ascending order, and the values where they are reached."""
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

    row: Array  # the codes of values known exactly, `(columns,)`; NaN is unknown
    regions: Mapping[int, Region]  # evidence by range and set, by place

    @property
    def values(self) -> dict[int, float]:
        """The codes of values known exactly, by place."""
        return {int(place): float(self.row[place]) for place in np.flatnonzero(~np.isnan(self.row))}

    @property
    def places(self) -> list[int]:
        """The columns of which something is known."""
        return sorted({*self.values, *self.regions})

    def holds(self, rows: Array) -> npt.NDArray[np.bool_]:
        """Which encoded rows agree with it."""
        fits = np.ones(len(rows), bool)
        for place, code in self.values.items():
            fits &= rows[:, place] == code
        for place, region in self.regions.items():
            fits &= region.holds(torch.from_numpy(rows[:, place])).numpy()
        return fits


class TableQuestions:
    """The questions that can be asked about a model of a table.

    Args:
        model: The model.
        data: Rows to compare it with, a table of any kind; None if there are none.
        name: What the page is called.
    """

    def __init__(self, model: TableModel, data: Any = None, name: str = "table") -> None:
        self.model, self.name = model, name
        self.schema = model.schema
        self.rows: Array | None = None if data is None else model.schema.encode(data)
        self.units = None if self.rows is None else self._units(self.rows)
        self.axes = tuple(self._axis(place) for place in range(len(self.schema.columns)))

    @property
    def questions(self) -> Mapping[str, Question]:
        """The questions by name."""
        return {"answer": self.answer, "sample": self.sample, "row": self.row, "surprising": self.surprising}

    def describe(self) -> Answer:
        """What the page needs to know once."""
        return {
            "kind": "table",
            "name": self.name,
            "rows": None if self.rows is None else len(self.rows),
            "columns": [self._describe(axis) for axis in self.axes],
            "edges": self._tree,
        }

    def answer(self, request: Answer) -> Answer:
        """The distribution of every column given each of one or two sets of evidence.

        The request has ``evidence``, a list of mappings from names to ``{"is": value}``, ``{"from": a, "to": b}`` or
        ``{"in": [values]}``.
        """
        asked = request.get("evidence")
        if not isinstance(asked, list) or not 1 <= len(asked) <= 2:
            raise ArgumentError("evidence", "a list of one or two sets of evidence", type(asked).__name__)
        return {"answers": [self.given(evidence) for evidence in asked]}

    def given(self, evidence: Any) -> Answer:
        """The distribution of every column given one set of evidence."""
        return self._answer(self.evidence(evidence))

    def sample(self, request: Answer) -> Answer:
        """Rows drawn from the model given evidence."""
        n = count_of(request, "n", 10, most=1000)
        evidence = self.evidence(request.get("evidence", {}))
        seed = count_of(request, "seed", 0, least=0, most=2**31)
        encoded = self._draw(evidence, n, torch.Generator().manual_seed(seed))
        columns = self._columns(encoded)
        return {
            "columns": list(columns),
            "rows": list(map(list, zip(*map(plain_values, columns.values()), strict=True))),
        }

    def row(self, request: Answer) -> Answer:
        """A row of the data as evidence, with the surprise of each cell and what the others let expect."""
        rows = self._data()
        number = count_of(request, "row", 0, least=0, most=len(rows) - 1)
        one = torch.from_numpy(rows[number : number + 1])
        (cells,) = strange_cells(self.model.qpc, one, [axis.column.coded for axis in self.axes])
        found = []
        for cell in cells:
            codes = np.full((1, len(self.axes)), np.nan)
            codes[0, cell.column] = cell.expected
            expected = self._columns(codes)[self.schema.names[cell.column]]
            found.append({"column": cell.column, "tail": cell.tail, "expected": plain_values(expected)[0]})
        return {"row": number, "cells": self._values(number), "surprises": found}

    def surprising(self, request: Answer) -> Answer:
        """The rows of the data that surprise the model most, in nats beyond what it expects of such a row."""
        n = count_of(request, "n", _LISTED, most=200)
        order = np.argsort(-self._surprise, kind="stable")[:n]
        return {"rows": [{"row": int(row), "surprise": float(self._surprise[row])} for row in order]}

    def evidence(self, given: Any) -> Evidence:
        """Check evidence from the page."""
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
        """The evidence on a column: the code of a value, or a range or a set of codes."""
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

    def _answer(self, evidence: Evidence) -> Answer:
        with self._in_words(evidence):
            given = Conditional(self.model.qpc, torch.from_numpy(evidence.row), evidence.regions)
        return {
            "cards": [
                None if axis.place in evidence.values else self._card(axis, given, evidence) for axis in self.axes
            ],
            "log_evidence": given.log_evidence,
            "density": any(self.axes[place].has_density_at(code) for place, code in evidence.values.items()),
            "matching": None if self.rows is None else int(evidence.holds(self.rows).sum()),
        }

    def _card(self, axis: Axis, given: Conditional, evidence: Evidence) -> Answer:
        """The distribution of a column that is not known exactly."""
        if axis.kind == "category":
            return {"heights": given.probabilities(axis.place).tolist()}
        masses, spikes = given.masses(axis.place, axis.edges)
        return axis.summary(masses, spikes, given.mean(axis.column, axis.place), evidence.regions.get(axis.place))

    def _draw(self, evidence: Evidence, n: int, source: torch.Generator) -> Array:
        variables = self.model.qpc.variables
        regions = {variables[place]: region for place, region in evidence.regions.items()}
        given = torch.from_numpy(evidence.row)
        with self._in_words(evidence):
            return self.model.qpc.sample(n, given=given, generator=source, regions=regions).numpy()

    @contextmanager
    def _in_words(self, evidence: Evidence) -> Iterator[None]:
        """Evidence that cannot occur is refused by the names of its columns."""
        try:
            yield
        except ImpossibleEvidenceError:
            names = ", ".join(self.schema.names[place] for place in evidence.places)
            remedy = "take something away, or if it is a range, make it wider"
            raise ImpossibleEvidenceError(f"evidence: this has no probability: {names}; {remedy}.") from None

    def _units(self, encoded: Array) -> Array:
        """Numbers in the units of the table; categories keep their codes."""
        found = encoded.copy()
        for place, column in enumerate(self.schema.columns):
            if not column.coded:
                found[:, place] = column.numbers(encoded[:, place])
        return found

    @cached_property
    def _drawn(self) -> Array:
        return self.model.qpc.sample(_DRAWN, generator=torch.Generator().manual_seed(0)).numpy()

    @cached_property
    def _tree(self) -> list[Answer]:
        """The columns that tell most about each other in rows drawn from the model, with how much in nats."""
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

    def _values(self, number: int) -> list[Any]:
        columns = self._columns(self._data()[number : number + 1])
        return [plain_values(values)[0] for values in columns.values()]

    def _columns(self, encoded: Array) -> dict[str, Array]:
        """Decoded columns; dates as the page has them, in days since 1970."""
        dated = {c.name: c.numbers(encoded[:, place]) for place, c in enumerate(self.schema.columns) if c.dated}
        return self.schema.decoded(encoded) | dated

    def _axis(self, place: int) -> Axis:
        column = self.schema.columns[place]
        if column.coded:
            codes = np.arange(max(1, len(column.categories)), dtype=np.float64)
            return Axis(column, place, codes, codes, 0, len(codes) - 1)
        values = self._units(self._drawn)[:, place] if self.units is None else self.units[:, place]
        values = values[np.isfinite(values)]
        if not len(values):
            values = self._units(self._drawn)[:, place]
        low, high = limits_of(values, 0.04)
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
        if self.units is not None:
            found["data"], found["single"] = self._histogram(axis)
        return found

    def _histogram(self, axis: Axis) -> tuple[list[float], list[float]]:
        """The share of the data in each bar, and at each single value."""
        assert self.units is not None
        values = self.units[:, axis.place]
        values = values[np.isfinite(values)]
        single = np.array([np.sum(values == spike) for spike in axis.column.spikes])
        shown = axis.grid[axis.first : axis.last + 1]
        edges = shown[::2] if axis.kind == "number" else np.append(shown, shown[-1] + axis.step) - 0.5
        bars = np.histogram(values[~np.isin(values, axis.column.spikes)], edges)[0]
        return tuple((counts / max(1, len(values))).tolist() for counts in (bars, single))


def _possible(column: Column, values: Array, known: Region | None = None) -> Array:
    """Numbers moved to the nearest values that a column can have, or to those of a range."""
    ends = np.array((-math.inf, math.inf) if known is None else known.intervals[0])
    found: Array = np.clip(values, *column.decode(ends, exact=True))
    return found
