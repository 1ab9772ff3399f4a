# SPDX-License-Identifier: Apache-2.0
"""What the page about a table asks, and how the model answers: evidence and answers are plain JSON values.

This is the only file of the explorer that knows how a model of a table is queried.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from picirc.errors import ArgumentError, ImpossibleEvidenceError, StructureError
from picirc.explorer.requests import Answer, Question, count_of
from picirc.qpc.marginals import Marginals
from picirc.report.surprises import surprises
from picirc.structure.chow_liu import maximum_spanning_tree
from picirc.structure.information import mutual_information
from picirc.tables import Column, TableModel
from picirc.tables.cells import strange_cells

Array = npt.NDArray[np.float64]

_BINS = 48  # of the axis of a column of numbers; each has a point of the grid in its middle
_TAILS = np.array([*np.arange(1, 13) * 0.03, 0.5, 0.8, 1.5, 4.0])  # points beyond the axis, in units of its length
_BARS = 60  # of a column of counts
_DRAWN = 2000  # rows, for the tree, the axes and the surprise of rows
_NODES, _FEWER = 12, 6  # of a range alone, and of each of several
_MOST_NODES = 128  # combinations of nodes of ranges and of categories in sets
_NEGLIGIBLE = 1e-5  # a node of less weight is left out
_CANDIDATES, _ROUNDS = 2048, 16  # rows drawn to find some in ranges and sets
_LISTED = 20
_TINY = np.finfo(np.float64).tiny
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True, eq=False)
class Axis:
    """Where the distribution of a column is computed.

    Attributes:
        column: The column.
        place: Its place in the schema.
        grid: Values in the units of the table in ascending order; the codes of categories.
        encoded: The same as the circuit takes them.
        first: Which point of the grid the axis begins with.
        last: Which one it ends with.
        step: For counts the distance between points.
    """

    column: Column
    place: int
    grid: Array
    encoded: Array
    first: int
    last: int
    step: int = 1

    @property
    def kind(self) -> str:
        """``"category"``, ``"count"`` or ``"number"``."""
        return "category" if self.column.coded else "count" if self.column.family.discrete else "number"

    def masses(self, density: Array) -> Array:
        """Probabilities from densities at the points: of the points of a discrete column, of the gaps of others."""
        found = density * self.step
        if self.kind == "number":
            found = (density[1:] + density[:-1]) / 2
            # Far out the gaps are wide, and the density falls like an exponential function.
            rise = np.diff(np.log(np.maximum(density, _TINY)))
            steep = np.abs(rise) > 1e-3
            steep[self.first : self.last] = False
            found[steep] = np.diff(density)[steep] / rise[steep]
            found *= np.diff(self.encoded)
        total = found.sum()
        return found / total if total > 0 else found

    def cut(self, masses: Array, inside: Restriction) -> Array:
        """The masses that are left when values are known to lie in a range or a set."""
        if self.kind != "number":
            return masses * np.isin(np.arange(len(masses)), inside.points(self))
        ends = np.interp([inside.low, inside.high], self.grid, np.concatenate([[0.0], np.cumsum(masses)]))
        found: Array = np.diff(np.clip(np.concatenate([[0.0], np.cumsum(masses)]), *ends))
        return found

    def summary(self, masses: Array, known: Restriction | None = None) -> Answer:
        """Mean, quantiles and the heights to draw, for a column that may be known to lie in a range."""
        total = masses.sum()
        if not total > 0:
            raise ImpossibleEvidenceError(f"{self.column.name}: the evidence leaves no value possible.")
        masses = masses / total
        if self.kind == "category":
            return {"heights": masses.tolist()}
        shown = masses[self.first : self.last + (self.kind == "count")]
        if self.kind == "count":
            below = np.cumsum(masses)
            quantiles = [self.grid[min(int(np.searchsorted(below, q)), len(below) - 1)] for q in _QUANTILES]
            mean = float(masses @ self.grid)
        else:
            below = np.concatenate([[0.0], np.cumsum(masses)])
            rising = below + np.arange(len(below)) * 1e-15
            grid = self.grid if known is None else np.clip(self.grid, known.low, known.high)
            quantiles = np.interp(_QUANTILES, rising, grid).tolist()
            mean = float(masses @ ((grid[1:] + grid[:-1]) / 2))
            shown = shown.reshape(-1, 2).sum(1)
        return {"heights": shown.tolist(), "mean": mean, "quantiles": [float(q) for q in quantiles]}


@dataclass(frozen=True)
class Restriction:
    """What is known about a column: one value, a range or a set of values."""

    low: float = -math.inf
    high: float = math.inf
    values: tuple[float, ...] | None = None  # encoded

    @property
    def certain(self) -> bool:
        """Whether it is one value."""
        return self.values is not None and len(self.values) == 1

    def points(self, axis: Axis) -> npt.NDArray[np.intp]:
        """The points of a discrete column's grid that are possible."""
        if self.values is not None:
            return np.flatnonzero(np.isin(axis.encoded, self.values))
        found = np.flatnonzero((axis.grid >= self.low) & (axis.grid <= self.high))
        if not len(found):
            raise ArgumentError(
                axis.column.name, "a range with a possible value", f"{self.low:g} to {self.high:g}", "make it wider"
            )
        return found

    def holds(self, values: Array, encoded: Array) -> npt.NDArray[np.bool_]:
        """Where it is true."""
        if self.values is not None:
            return np.isin(encoded, self.values)
        return (values >= self.low) & (values <= self.high)


Evidence = Mapping[int, Restriction]


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
        columns = self.schema.decoded(encoded)
        return {"columns": list(columns), "rows": list(map(list, zip(*map(_plain, columns.values()), strict=True)))}

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
            expected = self.schema.decoded(codes)[self.schema.names[cell.column]]
            found.append({"column": cell.column, "tail": cell.tail, "expected": _plain(expected)[0]})
        return {"row": number, "cells": self._values(number), "surprises": found}

    def surprising(self, request: Answer) -> Answer:
        """The rows of the data that surprise the model most, in nats beyond what it expects of such a row."""
        n = count_of(request, "n", _LISTED, most=200)
        order = np.argsort(-self._surprise, kind="stable")[:n]
        return {"rows": [{"row": int(row), "surprise": float(self._surprise[row])} for row in order]}

    def evidence(self, given: Any) -> dict[int, Restriction]:
        """Check evidence from the page."""
        if not isinstance(given, dict):
            raise ArgumentError("evidence", "a mapping from names of columns to what is known", type(given).__name__)
        return {self.schema.index(name): self._restriction(name, known) for name, known in given.items()}

    def _restriction(self, name: str, known: Any) -> Restriction:
        axis = self.axes[self.schema.index(name)]
        match known:
            case {"is": value, **rest} if not rest:
                return Restriction(values=self._encoded(axis, [value]))
            case {"in": [*values], **rest} if values and not rest and axis.kind != "number":
                return Restriction(values=self._encoded(axis, values))
            case {"from": low, "to": high, **rest} if not rest and axis.kind != "category":
                bounds = (-math.inf if low is None else low, math.inf if high is None else high)
                if not all(isinstance(bound, int | float) for bound in bounds) or not bounds[0] <= bounds[1]:
                    raise ArgumentError(name, "two numbers, the smaller one first, or null", f"{low} and {high}")
                return Restriction(float(bounds[0]), float(bounds[1]))
        ways = {
            "category": '{"is": value} or {"in": [values]}',
            "count": '{"is": value}, {"in": [values]} or {"from": a, "to": b}',
            "number": '{"is": value} or {"from": a, "to": b}',
        }[axis.kind]
        raise ArgumentError(name, ways, repr(known)[:80])

    def _encoded(self, axis: Axis, values: Sequence[Any]) -> tuple[float, ...]:
        if axis.column.kind == "empty":
            raise ArgumentError(axis.column.name, "a column with values", "one that was empty")
        if any(value is None or isinstance(value, list | dict) for value in values):
            raise ArgumentError(axis.column.name, "values of the column", repr(values)[:80])
        if axis.kind == "category" and axis.column.dtype != "text":
            values = [float(value) if not isinstance(value, str) else value for value in values]
        table = {axis.column.name: np.array(values, dtype=object) if isinstance(values[0], str) else values}
        codes = self.schema.encode(table, absent=self.schema.names)[:, axis.place]
        return tuple(dict.fromkeys(codes.tolist()))

    def _answer(self, evidence: Evidence) -> Answer:
        points = self._row({place: known for place, known in evidence.items() if known.certain})
        uncertain = {place: known for place, known in evidence.items() if not known.certain}
        marginals = self.model.qpc.marginals(given=points)
        masses = self._masses(marginals)
        log_evidence = float(self.model.qpc.log_prob(points[None]))
        if uncertain:
            nodes = Nodes.of(self, points, uncertain, masses, marginals)
            exact = self._log_intervals(points, uncertain)
            log_evidence = log_evidence + nodes.log_total if exact is None else exact
            masses = self._mixed(nodes, uncertain, masses)
        certain = {place for place, known in evidence.items() if known.certain}
        cards = [
            None if axis.place in certain else axis.summary(masses[axis.place], uncertain.get(axis.place))
            for axis in self.axes
        ]
        density = any(self.axes[place].kind == "number" and known.certain for place, known in evidence.items())
        return {
            "cards": cards,
            "log_evidence": log_evidence,
            "density": density,
            "matching": self._matching(evidence),
        }

    def _log_intervals(self, points: torch.Tensor, uncertain: Evidence) -> float | None:
        """The log-probability of values, ranges and sets together; None if the circuit has no closed form for it."""
        if any(self.axes[place].step > 1 for place in uncertain):
            return None
        ranges = {place for place in uncertain if self.axes[place].kind == "number"}
        sets = {
            place: self.axes[place].encoded[uncertain[place].points(self.axes[place])]
            for place in uncertain.keys() - ranges
        }
        choices = np.array(list(product(*sets.values())), dtype=np.float64)
        rows = points.repeat(len(choices), 1)
        rows[:, list(sets)] = torch.from_numpy(choices)
        low, high = torch.full_like(rows, -torch.inf), torch.full_like(rows, torch.inf)
        for place in ranges:
            low[:, place], high[:, place] = self._bounds(self.axes[place], uncertain[place])
        try:
            logs = self.model.qpc.log_interval(low, high, given=rows) + self.model.qpc.log_prob(rows)
        except (StructureError, NotImplementedError):
            return None
        return float(logs.logsumexp(0))

    def _bounds(self, axis: Axis, known: Restriction) -> tuple[float, float]:
        """The ends of a range, encoded."""
        ends = np.array([known.low, known.high])
        finite = np.isfinite(ends)
        ends[finite] = self._encode(axis.column, ends[finite]) if finite.any() else ends[finite]
        return float(ends[0]), float(ends[1])

    def _masses(self, marginals: Marginals, every: int = 1) -> list[Array]:
        """The distribution of every column on its grid given one data point; numbers at every so many points of it."""
        parts = [slice(None, None, every if axis.kind == "number" else 1) for axis in self.axes]
        points = [axis.encoded[part] for axis, part in zip(self.axes, parts, strict=True)]
        values = torch.full((max(map(len, points)), len(self.axes)), torch.nan, dtype=torch.float64)
        for axis, own in zip(self.axes, points, strict=True):
            if axis.kind != "category":
                values[: len(own), axis.place] = torch.from_numpy(own)
        densities = marginals.log_prob(values).exp().numpy()
        found = []
        for axis, own in zip(self.axes, points, strict=True):
            if axis.kind == "category":
                found.append(marginals.probabilities(self.model.qpc.variables[axis.place]).numpy())
            else:
                found.append(axis.masses(np.interp(axis.encoded, own, densities[: len(own), axis.place])))
        return found

    def _mixed(self, nodes: Nodes, uncertain: Evidence, alone: list[Array]) -> list[Array]:
        """The average of the distributions given each node; ``alone`` is what the exact values say by themselves."""
        found = [np.zeros_like(masses) for masses in alone]
        for row, weight in zip(nodes.rows, nodes.weights, strict=True):
            if weight > _NEGLIGIBLE:
                for total, masses in zip(found, self._masses(self.model.qpc.marginals(given=row), 2), strict=True):
                    total += weight * masses
        for place, known in uncertain.items():
            found[place] = nodes.own(self.axes[place], known, alone[place])
        return found

    def _row(self, known: Evidence) -> torch.Tensor:
        row = torch.full((len(self.axes),), torch.nan, dtype=torch.float64)
        for place, restriction in known.items():
            assert restriction.values is not None
            row[place] = restriction.values[0]
        return row

    def _draw(self, evidence: Evidence, n: int, source: torch.Generator) -> Array:
        points = self._row({place: known for place, known in evidence.items() if known.certain})
        uncertain = {place: known for place, known in evidence.items() if not known.certain}
        if not uncertain:
            return self.model.qpc.sample(n, given=points, generator=source).numpy()
        found: list[Array] = []
        for _ in range(_ROUNDS):
            drawn = self.model.qpc.sample(_CANDIDATES, given=points, generator=source).numpy()
            units = self._units(drawn)
            fits = [known.holds(units[:, place], drawn[:, place]) for place, known in uncertain.items()]
            found.append(drawn[np.logical_and.reduce(fits)])
            if sum(map(len, found)) >= n:
                return np.concatenate(found)[:n]
        tried = _ROUNDS * _CANDIDATES
        remedy = "make the ranges wider"
        raise ArgumentError("evidence", f"evidence that {n} of {tried:,} rows drawn agree with", "fewer", remedy)

    def _units(self, encoded: Array) -> Array:
        """Numbers in the units of the table; categories keep their codes."""
        columns = self.schema.decoded(encoded)
        found = encoded.copy()
        for place, column in enumerate(self.schema.columns):
            if not column.coded:
                found[:, place] = np.asarray(columns[column.name], np.float64)
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
        information = mutual_information(self._drawn, kinds)
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
        columns = self.schema.decoded(self._data()[number : number + 1])
        return [_plain(values)[0] for values in columns.values()]

    def _matching(self, evidence: Evidence) -> int | None:
        """The number of rows of the data that agree with the evidence."""
        if self.rows is None or self.units is None:
            return None
        fits = np.ones(len(self.rows), bool)
        for place, known in evidence.items():
            fits &= known.holds(self.units[:, place], self.rows[:, place])
        return int(fits.sum())

    def _axis(self, place: int) -> Axis:
        column = self.schema.columns[place]
        if column.coded:
            codes = np.arange(max(1, len(column.categories)), dtype=np.float64)
            return Axis(column, place, codes, codes, 0, len(codes) - 1)
        values = self._units(self._drawn)[:, place] if self.units is None else self.units[:, place]
        values = values[np.isfinite(values)]
        if not len(values):
            values = self._units(self._drawn)[:, place]
        low, high = _limits(values)
        if column.family.discrete:
            step = max(1, math.ceil((high - low + 1) / _BARS))
            first, far = math.floor(low), math.ceil(high + (high - low) + 5)
            grid = np.arange(first % step, far + 1, step, dtype=np.float64)
            start = int(np.searchsorted(grid, first))
            return Axis(
                column, place, grid, self._encode(column, grid), start, start + int((high - first) // step), step
            )
        edges = np.linspace(low, high, 2 * _BINS + 1)
        room = (high - low) * _TAILS
        grid = np.concatenate([(low - room)[::-1], edges, high + room])
        first = len(_TAILS)
        return Axis(column, place, grid, self._encode(column, grid), first, first + 2 * _BINS)

    def _encode(self, column: Column, values: Array) -> Array:
        return self.schema.encode({column.name: values}, absent=self.schema.names)[:, self.schema.index(column.name)]

    def _describe(self, axis: Axis) -> Answer:
        column = axis.column
        found: Answer = {"name": column.name, "kind": axis.kind, "empty": column.kind == "empty"}
        if axis.kind == "category":
            found["labels"] = _plain(np.array(column.categories, dtype=object))
        else:
            found["low"], found["high"] = float(axis.grid[axis.first]), float(axis.grid[axis.last])
            found["whole"] = axis.kind == "count" or column.dtype == "integer"
            found["step"] = axis.step
        if self.units is not None:
            found["data"] = self._histogram(axis)
        return found

    def _histogram(self, axis: Axis) -> list[float]:
        """The share of the data in each bar."""
        assert self.units is not None
        values = self.units[:, axis.place]
        values = values[np.isfinite(values)]
        shown = axis.grid[axis.first : axis.last + 1]
        edges = shown[::2] if axis.kind == "number" else np.append(shown, shown[-1] + axis.step) - 0.5
        found: list[float] = (np.histogram(values, edges)[0] / max(1, len(values))).tolist()
        return found


@dataclass(frozen=True, eq=False)
class Nodes:
    """Ranges and sets as weighted exact values: each is one possible combination.

    A set is enumerated. A range of a number is cut into strata of equal probability given the exact values, each with
    a value in its middle: the midpoint rule in the coordinate of the distribution function.

    Attributes:
        rows: The combinations together with the exact values, ``(nodes, columns)``.
        weights: Their probabilities given the evidence.
        log_total: The logarithm of the probability of ranges and sets given the exact values.
        strata: For each restricted column the number of the stratum of each node.
        parts: For each restricted column the probability of each stratum given the exact values.
    """

    rows: torch.Tensor
    weights: Array
    log_total: float
    strata: Mapping[int, npt.NDArray[np.intp]]
    parts: Mapping[int, list[Stratum]]

    @classmethod
    def of(
        cls,
        table: TableQuestions,
        points: torch.Tensor,
        uncertain: Evidence,
        alone: list[Array],
        marginals: Marginals,
    ) -> Nodes:
        """The nodes of evidence; ``alone`` and ``marginals`` are the distributions given the exact values."""
        several = sum(table.axes[place].kind == "number" for place in uncertain) > 1
        parts = {
            place: _strata(table.axes[place], known, alone[place], marginals, _FEWER if several else _NODES)
            for place, known in uncertain.items()
        }
        size = math.prod(map(len, parts.values()))
        if size > _MOST_NODES:
            remedy = "fix one of them to a value, or leave one out"
            got = f"{size:,} from {', '.join(table.schema.names[place] for place in parts)}"
            raise ArgumentError("evidence", f"at most {_MOST_NODES} combinations of ranges and sets", got, remedy)
        chosen = np.array(list(product(*(range(len(own)) for own in parts.values()))), dtype=np.intp)
        rows = points.repeat(len(chosen), 1)
        widths = np.zeros(len(chosen))
        for number, (place, own) in enumerate(parts.items()):
            rows[:, place] = torch.tensor([own[k].value for k in chosen[:, number]], dtype=torch.float64)
            widths += np.array([own[k].log_width for k in chosen[:, number]])
        logs = table.model.qpc.log_prob(rows).numpy() - float(table.model.qpc.log_prob(points[None])) + widths
        top = logs.max()
        if not np.isfinite(top):
            raise ImpossibleEvidenceError("evidence: these values cannot occur together; remove one of them.")
        scaled = np.exp(logs - top)
        total = min(0.0, float(top + math.log(scaled.sum())))
        strata = {place: chosen[:, number] for number, place in enumerate(parts)}
        return cls(rows, scaled / scaled.sum(), total, strata, parts)

    def own(self, axis: Axis, known: Restriction, alone: Array) -> Array:
        """The distribution of a restricted column: that given the exact values, reweighted stratum by stratum."""
        parts = self.parts[axis.place]
        posterior = np.bincount(self.strata[axis.place], self.weights, minlength=len(parts))
        if axis.kind != "number":
            found = np.zeros_like(alone)
            found[[part.point for part in parts]] = posterior
            return found
        below = np.concatenate([[0.0], np.cumsum(axis.cut(alone, known))])
        if not below[-1] > 0:
            raise ImpossibleEvidenceError(f"{axis.column.name}: no value in this range is possible; make it wider.")
        edges = np.linspace(0.0, below[-1], len(parts) + 1)
        return np.diff(np.interp(below, edges, np.concatenate([[0.0], np.cumsum(posterior)])))


@dataclass(frozen=True)
class Stratum:
    """A part of what a column may be.

    Attributes:
        value: The value that stands for it, encoded.
        log_width: The logarithm of its probability divided by the density of the value; 0 for a category.
        point: For a discrete column the point of the grid.
    """

    value: float
    log_width: float
    point: int = -1


def _strata(axis: Axis, known: Restriction, alone: Array, marginals: Marginals, n: int) -> list[Stratum]:
    if axis.kind != "number":
        return [Stratum(float(axis.encoded[point]), math.log(axis.step), int(point)) for point in known.points(axis)]
    below = np.concatenate([[0.0], np.cumsum(axis.cut(alone, known))])
    if not below[-1] > 0:
        raise ImpossibleEvidenceError(f"{axis.column.name}: no value in this range is possible; make it wider.")
    middles = (np.arange(n) + 0.5) / n * below[-1]
    rising = below + np.arange(len(below)) * 1e-15
    values = torch.from_numpy(np.interp(middles, rising, axis.encoded))
    rows = torch.full((n, len(marginals.mean)), torch.nan, dtype=torch.float64)
    rows[:, axis.place] = values
    logs = math.log(below[-1] / n) - marginals.log_prob(rows)[:, axis.place]
    return [Stratum(value, width) for value, width in zip(values.tolist(), logs.tolist(), strict=True)]


def _limits(values: Array) -> tuple[float, float]:
    """From where to where an axis reaches: all values, but for a few that lie far outside."""
    low, high = np.quantile(values, [0.005, 0.995])
    room = 0.1 * (high - low)
    low, high = max(low - room, values.min()), min(high + room, values.max())
    margin = 0.04 * (high - low) if high > low else max(abs(float(low)), 1.0) / 2
    return float(low - margin), float(high + margin)


def _plain(values: npt.NDArray[Any]) -> list[Any]:
    """Values as JSON has them; missing ones are null."""
    found = []
    for value in values.tolist():
        missing = value is None or (isinstance(value, float) and not math.isfinite(value))
        found.append(None if missing else value)
    return found
