# SPDX-License-Identifier: Apache-2.0
"""The distribution of one column given what is known of the others: probabilities, means and quantiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from picirc.engine.regions import Region, Restricted
from picirc.inputs import Family
from picirc.qpc.distribution import QPC
from picirc.qpc.marginals import components
from picirc.qpc.validation import as_points, check_possible
from picirc.tables.schema import Column, Numbers

_BISECTIONS = 70
_DRAWS, _CELLS = 8192, 64  # for columns that are correlated with restricted ones

Mixture = tuple[Family, Tensor, Tensor]  # parameters (batch or 1, states, P) and weights (batch, states)


@dataclass(frozen=True, eq=False)
class Answer:
    """``p(column | row)`` for each of some rows.

    Attributes:
        qpc: The circuit.
        column: The column.
        place: Its place in the schema.
        rows: Encoded, ``(rows, columns)``; what they say about the column itself is ignored.
        regions: What is known of columns by range and set, by place.
    """

    qpc: QPC
    column: Column
    place: int
    rows: Tensor
    regions: Mapping[int, Region]

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
        mates = {self.place}
        for step in self.qpc.compiled.inputs:
            columns = {int(column) for column in step.columns}
            if step.correlation is not None and self.place in columns:
                mates |= columns
        return bool(mates & set(self.regions))

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
        own = regions.get(names[self.place], Region(((-np.inf, np.inf),)))
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
