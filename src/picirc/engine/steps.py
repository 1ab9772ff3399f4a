# SPDX-License-Identifier: Apache-2.0
"""Schedules prepared for execution: numbers of states, pieces that fit into the cache, indices on a device."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from picirc.engine.inputs import FEWEST
from picirc.engine.schedule import Flags, InputStep, MixStep, Rows, Schedule, Step, SumStep

CACHE_BYTES = 2**22  # about the second-level caches of two cores
# The scratch of a step is at most this fraction of all values, so that it takes little memory beside them. Pieces with
# fewer bytes than the second number save little memory and take longer.
_LARGEST_PART, _LEAST_PIECE = 1 / 32, 2**18


@dataclass(frozen=True)
class Target:
    """A ``Send`` with its indices on a device."""

    pool: int
    rows: Tensor
    sources: Tensor | None
    axes: tuple[int, ...] | None
    fresh: Tensor | None
    begun: Tensor | None  # the fresh rows


@dataclass(frozen=True)
class Ready:
    """A step with its indices on a device."""

    step: Step
    targets: tuple[Target, ...] = ()  # the rows that its results go to
    index: Tensor = field(
        default_factory=lambda: torch.empty(0)
    )  # the parts of a mixture `(fold, arity)`, or input rows
    columns: Tensor = field(default_factory=lambda: torch.empty(0))  # the columns of inputs
    stars: tuple[tuple[Tensor, Tensor], ...] = ()  # the inputs `(rows, inputs)` that share rows, and the rows
    span: tuple[int, int] | None = None  # start and stop of the rows of inputs, if they are consecutive
    dims: tuple[int, int, int, int] = (1, 1, 1, 1)  # the numbers of states g, o, z, r of a sum step
    shape: tuple[int, ...] = ()  # the state axes of its results
    # Whether its results go to rows of the same shape and are scaled as a whole, as the compiled loops require.
    whole: bool = False
    weights: slice = field(default_factory=lambda: slice(0))  # the part of its block of weights
    matrices: tuple[int, int, int] = (1, 1, 1)  # the shape of its weights as matrices `(fold * g, edges * o, z)`
    results: int = 0  # the number of its results for one data point
    offset: int = 0  # the number of results of the steps before it
    scratch: int = 1  # the elements that it works on for one data point


class Layout:
    """A schedule with numbers of states.

    Args:
        schedule: The steps.
        sizes: The number of states of each kind of axis.

    Attributes:
        shapes: The numbers of states of the rows of each pool.
        inputs: The input steps, in the order of their parameters.
        results: The number of results of all sum steps for one data point.
        elements: The number of values that a pass keeps for one data point: rows, and results for the pass down.
    """

    def __init__(self, schedule: Schedule, sizes: Mapping[Hashable, int]) -> None:
        self.schedule = schedule
        self.sizes = dict(sizes)
        self.shapes = [self.shape(pool.kinds) for pool in schedule.pools]
        self.inputs = schedule.inputs
        rows = sum(p.rows * math.prod(s) for p, s in zip(schedule.pools, self.shapes, strict=True))
        self.results = sum(self._results(step) for step in schedule.steps if isinstance(step, SumStep))
        self.elements = rows + self.results

    def shape(self, kinds: Sequence[Hashable]) -> tuple[int, ...]:
        """Return the numbers of states of some axes."""
        return tuple(self.sizes[kind] for kind in kinds)

    def dims(self, step: SumStep) -> tuple[int, int, int, int]:
        """Return the numbers of states g, o, z, r of a sum step."""
        g, o, z, r = (math.prod(self.shape(k)) for k in (step.shared, step.new, step.integrated, step.passed))
        return g, o, z, r

    def result_shape(self, step: SumStep) -> tuple[int, ...]:
        """Return the state axes of the results of a sum step."""
        return self.shape(step.shared + step.new + step.passed)

    def ready(self, width: int, device: torch.device) -> list[Ready]:
        """Return the steps with their indices on a device, in pieces that fit into the cache.

        Args:
            width: The bytes of one state of a row for a whole batch; 0 for whole steps.
            device: The device of the indices.
        """
        most = min(CACHE_BYTES, max(_LEAST_PIECE, int(_LARGEST_PART * self.elements * width)))
        steps: list[Ready] = []
        offset = 0
        with torch.inference_mode(False):
            for step in self.schedule.steps:
                pieces: Iterable[Step] = [step]
                if width and isinstance(step, SumStep | MixStep):
                    pieces = step.split(max(1, most // (self._row_elements(step) * width)))
                for piece in pieces:
                    steps.append(self._prepare(piece, offset, device))
                    offset += steps[-1].results
        return steps

    def _prepare(self, step: Step, offset: int, device: torch.device) -> Ready:
        def index(rows: Rows | Flags) -> Tensor:
            return torch.as_tensor(rows, device=device)

        if isinstance(step, InputStep):
            stars = tuple((index(members), index(rows)) for members, rows in _stars(step))
            return Ready(step, (), index(step.rows), index(step.columns), stars, span_of(step.rows))
        targets = tuple(
            Target(
                send.pool,
                index(send.rows),
                None if send.sources is None else index(send.sources),
                send.axes,
                None if send.fresh is None else index(send.fresh),
                None if send.fresh is None else index(send.rows[send.fresh]),
            )
            for send in step.sends
        )
        rows = step.stop - step.start
        scratch = rows * self._row_elements(step)
        if isinstance(step, MixStep):
            return Ready(step, targets, index(step.sources), shape=self.shapes[step.pool], scratch=scratch)
        g, o, z, r = self.dims(step)
        return Ready(
            step,
            targets,
            dims=(g, o, z, r),
            shape=self.result_shape(step),
            whole=not (step.shared or step.passed) and all(send.axes is None for send in step.sends),
            weights=slice(step.first, step.first + step.results),
            matrices=(rows * g, step.edges * o, z),  # one of g and edges is 1
            results=self._results(step),
            offset=offset,
            scratch=scratch,
        )

    def _row_elements(self, step: SumStep | MixStep) -> int:
        """Return the number of elements that one row of a step works on, for one data point."""
        row = math.prod(self.shapes[step.pool])
        if isinstance(step, MixStep):
            return row * int(step.sources.shape[1])
        return max(row, self._results(step) // (step.stop - step.start))

    def _results(self, step: SumStep) -> int:
        return step.results * math.prod(self.result_shape(step))


def span_of(rows: Rows) -> tuple[int, int] | None:
    """Return start and stop of consecutive rows, or None if they are not consecutive."""
    consecutive = len(rows) > 0 and bool((np.diff(rows) == 1).all())
    return (int(rows[0]), int(rows[-1]) + 1) if consecutive else None


def _stars(step: InputStep) -> Iterator[tuple[Rows, Rows]]:
    """Yield the inputs ``(rows, inputs)`` that share rows, and the rows, for each number of inputs at a row."""
    rows, counts = np.unique(step.rows, return_counts=True)
    if step.axes is not None or step.parents or step.correlation is not None or counts.max() < FEWEST:
        return
    order = np.argsort(step.rows, kind="stable")
    first = np.cumsum(counts) - counts
    for count in np.unique(counts):
        own = counts == count
        yield order[first[own][:, None] + np.arange(count)], rows[own]
