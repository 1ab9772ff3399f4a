# SPDX-License-Identifier: Apache-2.0
"""The distribution of columns given what is known of the others: probabilities, means and quantiles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from picirc.engine.evidence import Points
from picirc.engine.regions import Region, Restricted
from picirc.inputs import Family, Spiked
from picirc.qpc.distribution import QPC
from picirc.qpc.marginals import components
from picirc.qpc.validation import as_points, check_possible
from picirc.tables.schema import Column, Numbers

_BISECTIONS = 70
_DRAWS, _CELLS = 8192, 64  # for columns that are correlated with restricted ones
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
        if self._entangled:
            return np.array([self._strata(row)[2] for row in range(len(self.rows))])
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
        if self._entangled:
            codes = np.stack([np.interp(wanted, *self._strata(row)[:2]) for row in range(len(self.rows))])
        else:
            codes = self._inverse(torch.as_tensor(wanted)).numpy()
        return np.stack([self.column.decode(codes[:, place]) for place in range(len(wanted))], 1).astype(np.float64)

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
    def _entangled(self) -> bool:
        """Whether the column itself, or one that it is correlated with in a block, is known by range or set."""
        return bool(_mates(self.qpc, self.place) & set(self.regions))

    def _inverse(self, levels: Tensor) -> Tensor:
        """Quantiles of the mixtures by bisection, ``(rows, levels)``, in codes."""
        spread = [(f.mean(p), f.variance(p).nan_to_num(1e12, 1e12).sqrt()) for f, p, _ in self._parts]
        low = torch.stack([(mean - 64 * std).amin(1) for mean, std in spread]).amin(0)
        high = torch.stack([(mean + 64 * std).amax(1) for mean, std in spread]).amax(0)
        a, b = (end.expand(len(self.rows)).unsqueeze(1).expand(-1, len(levels)) for end in (low, high))
        discrete = self.column.family.discrete
        for _ in range(_BISECTIONS):
            middle = ((a + b) / 2).floor() if discrete else (a + b) / 2
            reached = self._below(middle) >= levels - 1e-12
            a, b = torch.where(reached, a, middle + 1 if discrete else middle), torch.where(reached, middle, b)
        return b.ceil() if discrete else b

    def _below(self, codes: Tensor) -> Tensor:
        """``P(X ≤ x)``, ``(rows, n)``."""
        total = torch.zeros_like(codes)
        for family, params, weights in self._parts:
            below = family.cdf(params.expand(len(codes), -1, -1), codes)  # (rows, states, n)
            total += (weights.unsqueeze(1) @ below).squeeze(1)
        return total

    def _strata(self, row: int) -> tuple[Numbers, Numbers, float]:
        """The distribution function at some codes, these codes, and the mean.

        Draws say where the cells are, the circuit how probable each of them is.
        """
        names = self.qpc.variables
        regions = {names[place]: region for place, region in self.regions.items()}
        known, source = self._known[row], torch.Generator().manual_seed(0)
        drawn = self.qpc.sample(_DRAWS, given=known, generator=source, regions=regions)[:, self.place].sort().values
        values = np.asarray(self.column.decode(drawn.numpy(), exact=True), np.float64)
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
        counts = np.bincount(cells, minlength=len(edges) + 1)
        sums = np.bincount(cells, weights=values, minlength=len(edges) + 1)
        full = counts > 0
        mean = float((masses[full] * sums[full] / counts[full]).sum() / masses[full].sum())
        return below[:-1], edges.numpy(), mean


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
        for number, family, params, weights in self._mixtures[place]:
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
        for _, family, params, weights in self._mixtures[place]:
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
        parts = self._mixtures[place]
        return float(sum(weights @ column.expectation(family, params) for _, family, params, weights in parts))

    @cached_property
    def _mixtures(self) -> dict[int, list[tuple[int, Family, Tensor, Tensor]]]:
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
