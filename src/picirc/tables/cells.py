# SPDX-License-Identifier: Apache-2.0
"""The distribution of every cell of a table given the other cells of its row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from picirc.engine.evidence import Points
from picirc.engine.schedule import InputStep
from picirc.inputs import Family
from picirc.inputs.correlated import Block
from picirc.qpc.distribution import QPC
from picirc.qpc.marginals import Component, components
from picirc.qpc.validation import as_points

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

    def mean(self) -> Tensor:
        """``E[X]`` of every cell."""
        found = [(family.mean(params).T * logs.exp()).sum(0) for family, params, logs in self.parts]
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


def given_others(qpc: QPC, rows: Tensor) -> list[CellDistributions]:
    """The distributions of all cells of a table given the others of their rows, from one pass up and one down.

    The flow of a state k of the latent above x_j is its posterior probability given the whole row, proportional to
    ``p(k | others) · p(x_j | k)``; divided by ``p(x_j | k)`` it tells what the others say. The divisor of a correlated
    column is ``p(x_j | k, others of its block)``. Rows that the circuit cannot produce at all are left out.

    Args:
        qpc: The circuit, in double precision.
        rows: ``(rows, columns)``; NaN is missing, and integrated out.

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
        if bool(seen[column].any())
    ]


@dataclass(frozen=True)
class Cell:
    """A cell and what is expected given the other cells of its row."""

    column: int
    # The probability of a value at least as extreme: twice that of the tail beyond the value; for categories that of
    # all categories that are not more probable.
    tail: float
    expected: float  # the conditional mean, or the code of the most probable category


def strange_cells(qpc: QPC, rows: Tensor, coded: Sequence[bool]) -> list[list[Cell]]:
    """For each row its observed cells, the most surprising given the others first.

    Args:
        qpc: The circuit.
        rows: ``(rows, columns)``; NaN is missing.
        coded: Whether the columns have categories.
    """
    found: list[list[Cell]] = [[] for _ in rows]
    for cells in given_others(qpc, rows):
        if coded[cells.column]:
            chances = cells.probabilities()
            mine = chances.gather(1, cells.values.long().unsqueeze(1))
            tails, expected = chances.masked_fill(chances > mine, 0.0).sum(1), chances.argmax(1)
        else:
            tails, expected = _tails(cells), cells.mean()
        for row, tail, value in zip(cells.rows.tolist(), tails.tolist(), expected.tolist(), strict=True):
            found[row].append(Cell(cells.column, tail, float(value)))
    return [sorted(row, key=lambda cell: cell.tail) for row in found]


def _tails(cells: CellDistributions) -> Tensor:
    """Twice the smaller of P(X ≤ x) and P(X ≥ x); 1 where the family has no distribution function."""
    try:
        return (2 * torch.minimum(cells.at_most(), cells.at_least())).clamp(max=1)
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
