# SPDX-License-Identifier: Apache-2.0
"""The instructions of a compiled circuit: plain data, without torch.

Rows of one shape are stored in one pool ``(rows, states, batch)``. The *kind* of an axis stands for its number of
states, which the compiled circuit looks up, so that one schedule serves every rule. A pass up runs the steps in order,
a pass down in reverse.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from picirc.inputs import Family

Kinds = tuple[Hashable, ...]
Rows = NDArray[np.int64]
Flags = NDArray[np.bool_]
Spans = tuple[tuple[int, int], ...]  # start and stop of consecutive rows


@dataclass(frozen=True)
class Pool:
    """Rows that are tabulated over axes of the same kinds."""

    kinds: Kinds
    rows: int
    blank: Spans = ()  # rows that start as log 1, because no step overwrites them before others add to them


@dataclass(frozen=True)
class Send:
    """The rows into which the results of a step are multiplied."""

    pool: int
    rows: Rows
    sources: Rows | None  # which result goes to each row; None for all of them in order
    # The position of each axis of a result among the axes of the rows; None if they are the same.
    axes: tuple[int, ...] | None
    fresh: Flags | None = None  # which rows hold nothing before, so that they are overwritten; None for none


def _pieces(sends: Sequence[Send], low: int, high: int) -> tuple[Send, ...]:
    """Return the parts of sends for the results from ``low`` to ``high``."""
    found = []
    for send in sends:
        sources: Rows | None = None
        here: slice | Flags = slice(low, high)
        if send.sources is not None:
            here = (send.sources >= low) & (send.sources < high)
            if not here.any():
                continue
            sources = send.sources[here] - low
            if len(sources) == high - low and bool((np.diff(sources) > 0).all()):
                sources = None
        fresh = None if send.fresh is None else send.fresh[here]
        found.append(replace(send, rows=send.rows[here], sources=sources, fresh=fresh))
    return tuple(found)


@dataclass(frozen=True)
class InputStep:
    """Input distributions of one family, evaluated together and multiplied into their rows."""

    family: Family
    params: int  # the index of their parameters `(inputs or 1, states, P)`
    columns: Rows  # the column of the data of each input
    pool: int
    rows: Rows  # the row of each input; several inputs may have the same row
    kinds: Kinds  # the axes of the parameters
    axes: tuple[int, ...] | None = None  # their positions among the axes of the rows; None if they are the same
    # The index of the correlation matrix of a block of inputs at the same row; None if they are independent.
    correlation: int | None = None
    fresh: bool = False  # whether their rows hold nothing before, so that they are overwritten
    # For each observed parent of the inputs, its position among the parameters and its column.
    parents: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class SumStep:
    """Integrals: ``out[g, o, r] = Σ_z W[g, o, z] · row[g, z, r]`` for a slice of rows, with ``edges`` results each.

    The axes are those that the weights share with the row (g), the new ones of the result (o), the integrated ones (z)
    and those that pass through (r). A tree has only o and z, one axis each.
    """

    pool: int
    start: int
    stop: int
    edges: int
    shared: Kinds
    new: Kinds
    integrated: Kinds
    passed: Kinds
    block: int  # the block of weights
    first: int  # the first of its weights there
    sends: tuple[Send, ...]

    @property
    def results(self) -> int:
        """The number of results."""
        return (self.stop - self.start) * self.edges

    def split(self, fold: int) -> Iterator[SumStep]:
        """Yield the step in pieces of at most ``fold`` rows."""
        for start in range(self.start, self.stop, fold):
            stop = min(start + fold, self.stop)
            low, high = ((row - self.start) * self.edges for row in (start, stop))
            sends = _pieces(self.sends, low, high)
            yield replace(self, start=start, stop=stop, first=self.first + low, sends=sends)


@dataclass(frozen=True)
class MixStep:
    """Sum units: the rows ``start:stop`` become mixtures of the rows ``sources`` (fold, arity) of the same pool.

    Mixtures that are not integrated are sent to the rows that use them.
    """

    pool: int
    start: int
    stop: int
    sources: Rows
    block: int  # the block of mixing weights
    first: int = 0  # the first of its weights there
    sends: tuple[Send, ...] = ()
    edges: ClassVar[int] = 1

    @property
    def results(self) -> int:
        """The number of results."""
        return self.stop - self.start

    def split(self, fold: int) -> Iterator[MixStep]:
        """Yield the step in pieces of at most ``fold`` rows."""
        for low in range(0, self.results, fold):
            start, sources = self.start + low, self.sources[low : low + fold]
            sends = _pieces(self.sends, low, low + len(sources))
            stop, first = start + len(sources), self.first + low
            yield replace(self, start=start, stop=stop, sources=sources, first=first, sends=sends)


Step = InputStep | SumStep | MixStep


@dataclass(frozen=True)
class Schedule:
    """The pools, the steps in the order of a pass up, and the pool and row of the root."""

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
        """Whether each row is used exactly once, as a whole, so that the scales add up at the root."""
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
