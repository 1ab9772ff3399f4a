# SPDX-License-Identifier: Apache-2.0
"""The instructions of a compiled circuit: plain data, without torch.

Rows of one shape live in one pool ``(rows, states, batch)``. The *kind* of an axis stands for its number of states;
the compiled circuit looks the number up, so that one schedule serves every rule. A pass up runs the steps in their
order, a pass down in reverse.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from picirc.inputs import Family

Kinds = tuple[Hashable, ...]
Rows = NDArray[np.int64]
Flags = NDArray[np.bool_]
Spans = tuple[tuple[int, int], ...]  # start and stop of runs of rows


@dataclass(frozen=True)
class Pool:
    """Rows that are tabulated over axes of the same kinds."""

    kinds: Kinds  # the kinds of the axes
    rows: int  # the number of rows
    blank: Spans = ()  # the rows that begin as log 1, because no step writes them whole before others add to them


@dataclass(frozen=True)
class Send:
    """Where the results of a step are multiplied in."""

    pool: int  # the pool of the destination rows
    rows: Rows  # the destination rows
    sources: Rows | None  # which results of the step go there; None for all of them in order
    # For each axis of a result its position among the destination's axes; None when they are the same.
    axes: tuple[int, ...] | None
    # For each of the rows, whether it is written here first and holds nothing before; None for nowhere.
    fresh: Flags | None = None

    def piece(self, low: int, high: int) -> Send | None:
        """What is left of it for the results from ``low`` to ``high``."""
        if self.sources is None:
            return self._part(slice(low, high), None)
        here = (self.sources >= low) & (self.sources < high)
        if not here.any():
            return None
        sources = self.sources[here] - low
        every = len(sources) == high - low and bool((np.diff(sources) > 0).all())
        return self._part(here, None if every else sources)

    def _part(self, here: slice | Flags, sources: Rows | None) -> Send:
        fresh = None if self.fresh is None else self.fresh[here]
        return replace(self, rows=self.rows[here], sources=sources, fresh=fresh)


@dataclass(frozen=True)
class InputStep:
    """Input distributions of one family, evaluated together and multiplied into their rows."""

    family: Family  # their family
    params: int  # which of the input parameter tensors `(inputs or 1, states, P)` is theirs
    columns: Rows  # the column of the data for each of them
    pool: int  # the pool of their rows
    rows: Rows  # the row of each; several inputs may be multiplied into one row
    kinds: Kinds  # the axes that the parameters are tabulated over
    axes: tuple[int, ...] | None = None  # their positions among the axes of the rows; None when they are the same
    # Which of the correlation matrices makes them one block, all at the same row; None when they are independent given
    # the state.
    correlation: int | None = None
    fresh: bool = False  # whether their rows are written here first and hold nothing before
    # For each observed variable that the inputs are conditioned on, its place among the parameters, which are the
    # values of the parents, and its column.
    parents: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class SumStep:
    """Integrals: ``out[g, o, r] = Σ_z W[g, o, z] · row[g, z, r]`` for a slice of rows, ``edges`` results a row.

    The letters are the axes that the weights share with the row (g), the new ones of the result (o), the integrated
    ones (z) and those that pass through (r). In a tree there are only o and z: one state axis each.
    """

    pool: int
    start: int
    stop: int
    edges: int
    shared: Kinds
    new: Kinds
    integrated: Kinds
    passed: Kinds
    block: int  # which block of weights
    first: int  # and the first row there
    sends: tuple[Send, ...]

    def split(self, fold: int) -> list[SumStep]:
        """The same step in pieces of at most ``fold`` rows."""
        return [self._piece(start, min(start + fold, self.stop)) for start in range(self.start, self.stop, fold)]

    def _piece(self, start: int, stop: int) -> SumStep:
        low, high = ((row - self.start) * self.edges for row in (start, stop))
        sends = tuple(piece for send in self.sends if (piece := send.piece(low, high)) is not None)
        return replace(self, start=start, stop=stop, first=self.first + low, sends=sends)


@dataclass(frozen=True)
class MixStep:
    """Sum units: the rows ``start:stop`` become mixtures of the rows ``sources`` (fold, arity) of the same pool."""

    pool: int
    start: int
    stop: int
    sources: Rows
    block: int  # which block of mixing weights
    first: int = 0  # and the first row there

    def split(self, fold: int) -> list[MixStep]:
        """The same step in pieces of at most ``fold`` rows."""
        return [
            self._piece(low, min(low + fold, self.stop - self.start)) for low in range(0, self.stop - self.start, fold)
        ]

    def _piece(self, low: int, high: int) -> MixStep:
        start, stop, first = self.start + low, self.start + high, self.first + low
        return replace(self, start=start, stop=stop, sources=self.sources[low:high], first=first)


@dataclass(frozen=True)
class PassStep:
    """Mixtures that are multiplied as they are: the rows ``start:stop`` are sent on."""

    pool: int
    start: int
    stop: int
    sends: tuple[Send, ...]


Step = InputStep | SumStep | MixStep | PassStep


@dataclass(frozen=True)
class Schedule:
    """Pools, steps in the order of a pass up, and the place (pool, row) of the root."""

    pools: tuple[Pool, ...]
    steps: tuple[Step, ...]
    root: tuple[int, int]

    @cached_property
    def inputs(self) -> tuple[InputStep, ...]:
        """The input steps, in the order of their parameters."""
        found = [step for step in self.steps if isinstance(step, InputStep)]
        return tuple(sorted(found, key=lambda step: step.params))

    @property
    def simple(self) -> bool:
        """Whether each row's value goes whole to one other row, so that in the end the scales just add up."""
        return all(
            isinstance(step, InputStep)
            or (
                isinstance(step, SumStep)
                and not (step.shared or step.passed)
                and step.edges == len(step.sends) == 1
                and step.sends[0].sources is None
            )
            for step in self.steps
        )
