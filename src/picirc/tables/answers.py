# SPDX-License-Identifier: Apache-2.0
"""The distribution of columns given what is known of the others, and of every cell given the rest of its row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from picirc.engine.evidence import Points, Region, Restricted
from picirc.engine.schedule import InputStep
from picirc.inputs import Family, Spiked
from picirc.inputs.correlated import Block
from picirc.qpc.distribution import QPC
from picirc.qpc.marginals import Component, components
from picirc.qpc.validation import as_points, check_possible
from picirc.tables.column import Column, Numbers

_BISECTIONS = 70
_DRAWS, _CELLS = 8192, 24  # for columns that are correlated with restricted ones
_SOME = 20  # intervals in which columns correlated with restricted ones are computed
_ANYWHERE = Region(((-math.inf, math.inf),))

Mixture = tuple[Family, Tensor, Tensor]  # parameters (batch or 1, states, P) and weights (batch, states)


@dataclass(frozen=True, eq=False)
class Answer:
    """``p(column | row)`` for each of some rows."""

    qpc: QPC  # the circuit
    column: Column
    place: int  # its place in the schema
    rows: Tensor  # encoded, `(rows, columns)`; what they say about the column itself is ignored
    regions: Mapping[int, Region]  # what is known of columns by range and set, by place

    def probabilities(self) -> Numbers:
        """The probabilities of the categories, ``(rows, categories)``."""
        own = self.regions.get(self.place)
        found = torch.zeros(len(self.rows), len(self.column.categories), dtype=torch.float64)
        for family, params, weights in self._parts:
            table = family.table(params)
            assert table is not None, "only asked of columns of categories"
            found += weights @ table[0].exp() if len(table) == 1 else (weights.unsqueeze(1) @ table.exp()).squeeze(1)
        if own is not None:
            found = found * own.holds(torch.arange(found.shape[1]).to(found))
        return (found / found.sum(1, keepdim=True)).numpy()

    def mean(self) -> Numbers:
        """The expectation of every row, in the units of the table."""
        if self.column.coded:
            return self.probabilities() @ np.array(self.column.categories, np.float64)
        if self._correlated or self.place in self.regions:
            return np.array([self._strata_mean(row) for row in range(len(self.rows))])
        found = torch.zeros(len(self.rows), dtype=torch.float64)
        for family, params, weights in self._parts:
            found += (self.column.expectation(family, params) * weights).sum(1)
        return found.numpy()

    def quantiles(self, levels: Sequence[float]) -> Numbers:
        """The smallest values whose distribution function reaches the levels, ``(rows, levels)``, in units."""
        wanted = np.asarray(levels, np.float64)
        if self.column.coded:
            below = self.probabilities().cumsum(1)
            codes = (below[:, :, None] < wanted - 1e-12).sum(1).clip(max=below.shape[1] - 1)
            labels: Numbers = np.array(self.column.categories, np.float64)[codes]
            return labels
        if self._correlated:
            codes = np.stack([self._strata_codes(row, wanted) for row in range(len(self.rows))])
        else:
            codes = self._inverse(torch.as_tensor(wanted)).numpy()
        return np.stack([self.column.numbers(codes[:, place]) for place in range(len(wanted))], 1)

    @cached_property
    def _known(self) -> Tensor:
        rows = self.rows.clone()
        rows[:, self.place] = torch.nan
        return rows

    @cached_property
    def _parts(self) -> list[Mixture]:
        """The column as a mixture given everything else."""
        qpc = self.qpc
        others = {place: region for place, region in self.regions.items() if place != self.place}
        points = as_points(self._known, None, qpc.families, qpc.variables, qpc.parameters.like)
        found, values = components(qpc.compiled, qpc.parameters, Restricted(points, others) if others else points)
        check_possible(values)
        parts = []
        for part in found:
            for slot in (part.columns == self.place).nonzero().flatten().tolist():
                params = part.params[slot if len(part.params) > 1 else 0]
                params = params.transpose(0, 1) if params.ndim == 3 else params.unsqueeze(0)
                parts.append((part.family, params, part.weights[slot].T))
        return parts

    @property
    def _correlated(self) -> bool:
        """Whether a column that this one is correlated with in a block is known by range or set."""
        return bool(_mates(self.qpc, self.place) & set(self.regions) - {self.place})

    def _inverse(self, levels: Tensor) -> Tensor:
        """Quantiles of the mixtures by bisection, ``(rows, levels)``, in codes."""
        spread = [(f.mean(p), f.variance(p).nan_to_num(1e12, 1e12).sqrt()) for f, p, _ in self._parts]
        low = torch.stack([(mean - 64 * std).amin(1) for mean, std in spread]).amin(0)
        high = torch.stack([(mean + 64 * std).amax(1) for mean, std in spread]).amax(0)
        a, b = (end.expand(len(self.rows)).unsqueeze(1).expand(-1, len(levels)) for end in (low, high))
        discrete = self.column.family.discrete
        if own := self.regions.get(self.place):
            ends = [end for piece in own.pieces for end in piece if math.isfinite(end)]
            a, b = a.clamp(max=min(ends, default=math.inf) - 1), b.clamp(min=max(ends, default=-math.inf))
        for _ in range(_BISECTIONS):
            middle = ((a + b) / 2).floor() if discrete else (a + b) / 2
            reached = self._below(middle) >= levels - 1e-12
            a, b = torch.where(reached, a, middle + 1 if discrete else middle), torch.where(reached, middle, b)
        for atom in _atoms(self.column.family):  # bisection only comes close to one at 0
            b = torch.where((a < atom) & (atom < b), atom, b)
        return b.ceil() if discrete else b

    def _below(self, codes: Tensor) -> Tensor:
        """``P(X ≤ x)``, given the column's own region if it has one, ``(rows, n)``."""
        if own := self.regions.get(self.place):
            everything = torch.full_like(codes[:, :1], torch.inf)
            return (self._log_at_most(codes, own) - self._log_at_most(everything, own)).exp()
        total = torch.zeros_like(codes)
        for family, params, weights in self._parts:
            below = family.cdf(params.expand(len(codes), -1, -1), codes)  # (rows, states, n)
            total += (weights.unsqueeze(1) @ below).squeeze(1)
        return total

    def _log_at_most(self, codes: Tensor, own: Region) -> Tensor:
        """``log P(X ≤ x, X in the region)``: all of it may be tiny."""
        found = [
            (own.log_at_most(family, params.expand(len(codes), -1, -1), codes) + weights.log().unsqueeze(2)).logsumexp(
                1
            )
            for family, params, weights in self._parts
        ]
        return torch.stack(found).logsumexp(0)

    def _strata_mean(self, row: int) -> float:
        codes, weights = self._strata(row)
        return float(weights @ np.asarray(self.column.decode(codes, exact=True, beyond=True), np.float64))

    def _strata_codes(self, row: int, levels: Numbers) -> Numbers:
        codes, weights = self._strata(row)
        found: Numbers = codes[np.searchsorted(weights.cumsum(), levels).clip(max=len(codes) - 1)]
        return found

    def _strata(self, row: int) -> tuple[Numbers, Numbers]:
        """Draws of the column in ascending order, and their weights.

        The circuit says how probable the cells are that the draws are divided into.
        """
        names = self.qpc.variables
        regions = {names[place]: region for place, region in self.regions.items()}
        known, source = self._known[row], torch.Generator().manual_seed(0)
        drawn = self.qpc.sample(_DRAWS, given=known, generator=source, regions=regions)[:, self.place].sort().values
        edges = drawn[torch.linspace(0, _DRAWS - 1, _CELLS).long()].unique()
        cells = torch.bucketize(drawn, edges).numpy()
        own = regions.get(names[self.place], _ANYWHERE)
        logs = torch.cat(
            [
                self.qpc.log_evidence(known, regions | {names[self.place]: own.meet(Region(((-np.inf, edge),)))})
                for edge in [*edges.tolist(), np.inf]
            ]
        )
        below = (logs - logs[-1]).exp().clamp(0, 1).numpy()
        masses = np.diff(below, prepend=0.0)
        weights: Numbers = (masses / np.bincount(cells, minlength=len(masses)).clip(min=1))[cells]
        return drawn.numpy(), weights / weights.sum()


class Conditional:
    """Every column of a table given one row of evidence, from one pass up and one down.

    Args:
        qpc: The circuit.
        row: Encoded values, ``(columns,)``; NaN is unknown.
        regions: What is known of columns by range and set, by place.

    Attributes:
        log_evidence: The logarithm of the density of the values times the probability of the regions.
    """

    def __init__(self, qpc: QPC, row: Tensor, regions: Mapping[int, Region]) -> None:
        self._qpc, self._regions = qpc, regions
        self._points = as_points(row[None], None, qpc.families, qpc.variables, qpc.parameters.like)
        evidence = Restricted(self._points, regions) if regions else self._points
        self._components, values = components(qpc.compiled, qpc.parameters, evidence)
        check_possible(values)
        self.log_evidence = float(values[0])

    def masses(self, place: int, edges: Numbers) -> tuple[Numbers, Numbers]:
        """How probable it is that a column lies between two neighbouring codes, and that it is one of its atoms.

        Args:
            place: The place of a column that is not known exactly.
            edges: Codes in ascending order, from −inf to inf; an interval is without its lower end and its atoms.
        """
        ends = torch.from_numpy(edges)
        total = torch.zeros(len(edges) - 1 + len(_atoms(self._qpc.families[place])), dtype=torch.float64)
        for number, family, params, weights in self.mixtures[place]:
            masses = _pieces(family, params, ends, self._regions.get(place))
            agreement = self._agreement(number, place, ends, weights)
            if agreement is not None:
                masses[:, : len(edges) - 1] *= (agreement - agreement.amax(1, keepdim=True)).exp()
            # Where nothing is left, the weight of the state is zero too.
            total += weights @ (masses / masses.sum(1, keepdim=True)).nan_to_num(0.0)
        found = (total / total.sum()).numpy()
        return found[: len(edges) - 1], found[len(edges) - 1 :]

    def probabilities(self, place: int) -> Numbers:
        """The probabilities of the categories of a column that is not known exactly."""
        total: Tensor | None = None
        for _, family, params, weights in self.mixtures[place]:
            table = family.table(params)
            assert table is not None, "only asked of columns of categories"
            masses = table.exp()
            masses = masses * self._regions.get(place, _ANYWHERE).holds(torch.arange(masses.shape[1]).to(masses))
            part = weights @ (masses / masses.sum(1, keepdim=True)).nan_to_num(0.0)
            total = part if total is None else total + part
        assert total is not None, "every column has an input"
        return (total / total.sum()).numpy()

    def mean(self, column: Column, place: int) -> float | None:
        """The expectation in the units of the table; None where a range leaves no closed form."""
        if _mates(self._qpc, place) & set(self._regions):
            return None
        parts = self.mixtures[place]
        return float(sum(weights @ column.expectation(family, params) for _, family, params, weights in parts))

    @cached_property
    def mixtures(self) -> dict[int, list[tuple[int, Family, Tensor, Tensor]]]:
        """For each column the numbers of its inputs, with family, parameters ``(states, P)`` and weights ``(states,)``.

        The parameters are those given the values alone: in a state, regions of the column itself and of columns that
        are correlated with it come on top.
        """
        found: dict[int, list[tuple[int, Family, Tensor, Tensor]]] = {}
        for number, part in enumerate(self._components):
            params = part.params[:, :, 0] if part.params.ndim == 4 else part.params
            for slot, place in enumerate(part.columns.tolist()):
                own = (number, part.family, params[slot if len(params) > 1 else 0], part.weights[slot, :, 0])
                found.setdefault(place, []).append(own)
        return found

    def _agreement(self, number: int, place: int, edges: Tensor, weights: Tensor) -> Tensor | None:
        """In each state and interval the log-probability of the regions of columns correlated with this one.

        It is ``(states, intervals)``; None if there are no such regions.
        """
        compiled, step = self._qpc.compiled, self._qpc.compiled.inputs[number]
        columns = self._components[number].columns
        others = {c: self._regions[c] for c in columns.tolist() if c != place and c in self._regions}
        if step.correlation is None or not others:
            return None
        block = compiled.block(step, self._qpc.parameters.detach())
        finite = edges.clamp(edges[1], edges[-2])
        middles = (finite[1:] + finite[:-1]) / 2
        # A smooth function of the code, so that some of the intervals are enough.
        some = torch.arange(0, len(middles), max(1, len(middles) // _SOME))
        rows = self._points.values.repeat(1, len(some))
        rows[place] = middles[some]
        found = Restricted(Points(rows, rows.isnan()), others).agreement(block, columns, weights)
        return _interpolated(found, middles[some], middles)


def _interpolated(values: Tensor, at: Tensor, wanted: Tensor) -> Tensor:
    """Values ``(states, n)`` at ascending codes, linearly interpolated at others, ``(states, m)``."""
    right = torch.searchsorted(at, wanted).clamp(1, len(at) - 1)
    width = (at[right] - at[right - 1]).clamp(min=torch.finfo(at.dtype).tiny)
    share = ((wanted - at[right - 1]) / width).clamp(0, 1)
    return torch.lerp(values[:, right - 1], values[:, right], share)


def _mates(qpc: QPC, place: int) -> set[int]:
    """A column and those that it is correlated with in a block."""
    found = {place}
    for step in qpc.compiled.inputs:
        columns = {int(column) for column in step.columns}
        if step.correlation is not None and place in columns:
            found |= columns
    return found


def _atoms(family: Family) -> tuple[float, ...]:
    """The single values that a distribution of reals gives a probability."""
    return family.atoms if isinstance(family, Spiked) else ()


def _pieces(family: Family, params: Tensor, edges: Tensor, region: Region | None) -> Tensor:
    """The probabilities of the parts of intervals that are in a region, then those of atoms: ``(states, ...)``.

    Those in a region are divided by the largest of the state, as all of them may be tiny.
    """
    atoms = params.new_tensor(_atoms(family))
    if isinstance(family, Spiked):
        logs, (family, params) = params[:, :-2], family.smooth(params)
    else:
        logs = params.new_zeros(len(params), 1)
    if region is None:
        below = family.cdf(params[None], edges[None].to(params))[0]
        return torch.cat((logs[:, :1].exp() * below.diff(dim=1), logs[:, 1:].exp()), 1)
    low, high = edges[None, :-1].to(params) + family.discrete, edges[None, 1:].to(params)
    parts = [family.log_interval(params[None], low.clamp(min=a), high.clamp(max=b))[0] for a, b in region.intervals]
    inside = torch.where(region.holds(atoms), 0.0, -torch.inf)
    found = torch.cat((torch.stack(parts).logsumexp(0) + logs[:, :1], logs[:, 1:] + inside), 1)
    return (found - found.amax(1, keepdim=True)).exp()


# Cells given the other cells of their row


# Log-densities of a value more than this below the largest over the states are raised to that level.
_FARTHEST = 200.0


class Softened(Points):
    """Observed values, none of which rules out a state.

    The likelihood of a value is divided out of the posterior of the states to get what the others say; so it must not
    be zero, not even for an outlier.
    """

    def part(self, start: int, stop: int) -> Softened:
        """A part of the batch."""
        part = super().part(start, stop)
        return Softened(part.values, part.missing)

    def write(self, family: Family, params: Tensor, columns: Tensor, out: Tensor) -> None:
        """Put the log-probabilities of the values into ``out``, ``(fold, states, batch)``; missing is log 1."""
        super().write(family, params, columns, out)
        torch.maximum(out, out.amax(1, keepdim=True) - _FARTHEST, out=out)

    def joint(self, block: Block, columns: Tensor) -> Tensor:
        """The log-density of correlated columns, ``(states, batch)``."""
        values = super().joint(block, columns)
        return torch.maximum(values, values.amax(0) - _FARTHEST)

    def conditionals(self, block: Block, columns: Tensor) -> Tensor:
        """Parameters of each of some correlated columns given the others, ``(m, states, batch, 2)``."""
        return block.given_others(self.values[columns])


@dataclass(frozen=True, eq=False)
class CellDistributions:
    """``p(X_j | the other cells of the row)`` for every cell with a value in a column: mixtures over states."""

    column: int  # the column j
    rows: Tensor  # the rows that have a value there, `(cells,)`
    values: Tensor
    # Families with their parameters `(cells or 1, states, P)` and the logarithms of their weights `(states,
    # cells)`, which add to one over all parts.
    parts: Sequence[tuple[Family, Tensor, Tensor]]

    def at_most(self) -> Tensor:
        """``P(X ≤ x)`` of every cell."""
        return self._within(torch.full_like(self.values, -torch.inf), self.values)

    def at_least(self) -> Tensor:
        """``P(X ≥ x)`` of every cell."""
        return self._within(self.values, torch.full_like(self.values, torch.inf))

    def exactly(self) -> Tensor:
        """``P(X = x)`` of every cell, for discrete columns."""
        return self._within(self.values, self.values)

    def mean(self, column: Column) -> Tensor:
        """``E[X]`` of every cell, in the units of the table."""
        found = [(column.expectation(family, params).T * logs.exp()).sum(0) for family, params, logs in self.parts]
        return torch.stack(found).sum(0)

    def probabilities(self) -> Tensor:
        """The probabilities of all values of a finite column, ``(cells, values)``."""
        found = []
        for family, params, logs in self.parts:
            table = family.table(params)
            assert table is not None, "only asked of columns with categories"
            found.append(logs.exp().T @ table[0].exp())
        return torch.stack(found).sum(0)

    def _within(self, low: Tensor, high: Tensor) -> Tensor:
        found = []
        for family, params, logs in self.parts:
            # Every cell a variable of its own, with or without parameters of its own.
            inside = family.log_interval(params, low.unsqueeze(1), high.unsqueeze(1)).squeeze(2)  # (cells, states)
            found.append((inside.T + logs).exp().sum(0))
        return torch.stack(found).sum(0).clamp(0, 1)


def given_others(qpc: QPC, rows: Tensor, columns: int | None = None) -> list[CellDistributions]:
    """The distributions of all cells of a table given the others of their rows, from one pass up and one down.

    The flow of a state k of the latent above x_j is its posterior probability given the whole row, proportional to
    ``p(k | others) · p(x_j | k)``; divided by ``p(x_j | k)`` it tells what the others say. The divisor of a correlated
    column is ``p(x_j | k, others of its block)``. Rows that the circuit cannot produce at all are left out.

    Args:
        qpc: The circuit, in double precision.
        rows: ``(rows, columns)``; NaN is missing, and integrated out.
        columns: Only so many columns, the first ones; by default all.

    Returns:
        One entry for each column with a value, in the order of the columns.
    """
    points = as_points(rows, None, qpc.families, qpc.variables, qpc.parameters.like)
    softened = Softened(points.values, points.missing)
    found, values = components(qpc.compiled, qpc.parameters, softened)
    seen = ~points.values.isnan() & (values > -torch.inf)
    parts: dict[int, list[tuple[Family, Tensor, Tensor]]] = {}
    for group, component in zip(qpc.compiled.inputs, found, strict=True):
        logs = component.weights.log() - _own(qpc, group, component, softened)  # (fold, states, batch)
        for slot, column in enumerate(component.columns.tolist()):
            params = component.params[slot if len(component.params) > 1 else 0]
            params = params[:, seen[column]].transpose(0, 1) if params.ndim == 3 else params.unsqueeze(0)
            parts.setdefault(column, []).append((component.family, params, logs[slot][:, seen[column]]))
    return [
        CellDistributions(column, seen[column].nonzero().flatten(), points.values[column, seen[column]], _normal(mixed))
        for column, mixed in sorted(parts.items())
        if bool(seen[column].any()) and (columns is None or column < columns)
    ]


@dataclass(frozen=True)
class Cell:
    """A cell and what is expected given the other cells of its row."""

    column: int
    # The probability of a value at least as extreme: twice that of the tail beyond the value; for categories that of
    # all categories that are not more probable.
    tail: float
    expected: float  # the conditional mean in the units of the table, or the code of the most probable category


def strange_cells(qpc: QPC, rows: Tensor, columns: Sequence[Column]) -> list[list[Cell]]:
    """For each row its observed cells, the most surprising given the others first.

    Args:
        qpc: The circuit.
        rows: ``(rows, columns)``; NaN is missing.
        columns: The columns; further entries of the rows are no cells.
    """
    found: list[list[Cell]] = [[] for _ in rows]
    for cells in given_others(qpc, rows, len(columns)):
        if columns[cells.column].coded:
            chances = cells.probabilities()
            mine = chances.gather(1, cells.values.long().unsqueeze(1))
            tails, expected = chances.masked_fill(chances > mine, 0.0).sum(1), chances.argmax(1)
        else:
            tails, expected = _tails(cells), cells.mean(columns[cells.column])
        tails = tails.clamp(max=1)  # against rounding
        for row, tail, value in zip(cells.rows.tolist(), tails.tolist(), expected.tolist(), strict=True):
            found[row].append(Cell(cells.column, tail, float(value)))
    return [sorted(row, key=lambda cell: cell.tail) for row in found]


def _tails(cells: CellDistributions) -> Tensor:
    """Twice the smaller of P(X ≤ x) and P(X ≥ x); 1 where the family has no distribution function."""
    try:
        return 2 * torch.minimum(cells.at_most(), cells.at_least())
    except NotImplementedError:
        return torch.ones_like(cells.values)


def _own(qpc: QPC, group: InputStep, component: Component, softened: Softened) -> Tensor:
    """What the flows have from the cells themselves, ``(fold, states, batch)``: the rest is what the others say."""
    own = torch.empty_like(component.weights)
    if group.correlation is None:
        softened.write(component.family, component.params, component.columns, own)
        return own
    points = Points(softened.values, softened.missing)
    points.write(component.family, component.params, component.columns, own)
    block = qpc.compiled.block(group, qpc.parameters.detach())
    # A block is softened as a whole; none of that may be left in what its other columns say.
    return own + softened.joint(block, component.columns) - points.joint(block, component.columns)


def _normal(parts: Sequence[tuple[Family, Tensor, Tensor]]) -> list[tuple[Family, Tensor, Tensor]]:
    total = torch.cat([logs for _, _, logs in parts]).logsumexp(0)
    return [(family, params, logs - total) for family, params, logs in parts]
