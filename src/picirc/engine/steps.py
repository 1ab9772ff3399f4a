# SPDX-License-Identifier: Apache-2.0
"""Schedules made ready: with numbers of states, in pieces that fit into the cache, and with indices on a device."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from picirc.engine.inputs import FEWEST
from picirc.engine.schedule import Flags, InputStep, MixStep, PassStep, Rows, Schedule, Step, SumStep

# About the second-level caches of two cores: a step works on its rows and its results.
CACHE_BYTES = 2**22
# A step's scratch is at most such a part of everything, so that it does not outweigh the rest; below so many bytes that
# does not matter, and fewer pieces are faster.
_LARGEST_PART, _LEAST_PIECE = 1 / 32, 2**18


@dataclass(frozen=True)
class Target:
    """A ``Send`` with its indices on a device; ``begun`` are the rows that it writes first."""

    pool: int
    rows: Tensor
    sources: Tensor | None
    axes: tuple[int, ...] | None
    fresh: Tensor | None
    begun: Tensor | None


@dataclass(frozen=True)
class Ready:
    """A step with its indices on a device."""

    step: Step
    targets: tuple[Target, ...] = ()  # where its results go
    # The parts of a mixture `(fold, arity)`, or the rows of inputs.
    index: Tensor = field(default_factory=lambda: torch.empty(0))
    columns: Tensor = field(default_factory=lambda: torch.empty(0))  # the columns of inputs
    stars: tuple[tuple[Tensor, Tensor], ...] = ()  # inputs that share rows: which ones `(rows, inputs)`, and the rows
    # Start and stop of the rows of inputs, if they are consecutive and each is used once.
    span: tuple[int, int] | None = None
    dims: tuple[int, int, int, int] = (1, 1, 1, 1)  # the numbers of states g, o, z, r of a sum step
    shape: tuple[int, ...] = ()  # the state axes of its results
    # Whether its results go to rows of the same shape and are scaled as a whole, as compiled loops need it.
    whole: bool = False
    weights: slice = field(default_factory=lambda: slice(0))  # which of its block of weights are those of a sum step
    matrices: tuple[int, int, int] = (1, 1, 1)  # and their shape as matrices `(fold * g, edges * o, z)`
    results: int = 0  # the elements of its results for one data point
    offset: int = 0  # those of the steps before it
    scratch: int = 1  # the elements of its rows, parts or results for one data point, whichever are more


class Layout:
    """A schedule with numbers of states.

    Args:
        schedule: The steps.
        sizes: The number of states of each kind of axis.

    Attributes:
        shapes: The numbers of states of the rows of each pool.
        inputs: The input steps, in the order of their parameters.
        results: The number of results of all sum steps for one data point.
        elements: The number of values that a pass keeps for one data point: the rows, and the results for the way down.
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
        """The numbers of states of some axes."""
        return tuple(self.sizes[kind] for kind in kinds)

    def dims(self, step: SumStep) -> tuple[int, int, int, int]:
        """The numbers of states g, o, z, r of a sum step."""
        g, o, z, r = (math.prod(self.shape(k)) for k in (step.shared, step.new, step.integrated, step.passed))
        return g, o, z, r

    def result_shape(self, step: SumStep) -> tuple[int, ...]:
        """The state axes of a sum step's results."""
        return self.shape(step.shared + step.new + step.passed)

    def ready(self, width: int, device: torch.device) -> list[Ready]:
        """The steps with their indices on a device, in pieces that fit into the cache.

        Args:
            width: The bytes that a state of a row takes for a whole batch; 0 for whole steps.
            device: Where the indices go.
        """
        steps: list[Ready] = []
        with torch.inference_mode(False):
            for piece in self._pieces(width):
                last = steps[-1] if steps else None
                steps.append(self._prepare(piece, last.offset + last.results if last else 0, device))
        return steps

    def _pieces(self, width: int) -> Iterator[Step]:
        """The steps, in pieces that fit into the cache where a state of a row has ``width`` bytes."""
        most = min(CACHE_BYTES, max(_LEAST_PIECE, int(_LARGEST_PART * self.elements * width)))
        for step in self.schedule.steps:
            if width and isinstance(step, SumStep | MixStep):
                yield from step.split(max(1, most // (self._row_elements(step) * width)))
            else:
                yield step

    def _prepare(self, step: Step, offset: int, device: torch.device) -> Ready:
        def index(rows: Rows | Flags) -> Tensor:
            return torch.as_tensor(rows, device=device)

        match step:
            case InputStep():
                stars = tuple((index(members), index(rows)) for members, rows in _stars(step))
                own = (index(step.rows), index(step.columns), stars, span_of(step.rows))
                return Ready(step, (), *own, offset=offset)
            case MixStep():
                size = (step.stop - step.start) * self._row_elements(step)
                return Ready(step, (), index(step.sources), offset=offset, scratch=size)
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
        if isinstance(step, PassStep):
            return Ready(step, targets, offset=offset)
        rows, (g, o, z, r) = step.stop - step.start, self.dims(step)
        return Ready(
            step,
            targets,
            dims=(g, o, z, r),
            shape=self.result_shape(step),
            whole=not (step.shared or step.passed) and all(send.axes is None for send in step.sends),
            weights=slice(step.first, step.first + rows * step.edges),
            matrices=(rows * g, step.edges * o, z),  # one of g and edges is 1
            results=self._results(step),
            offset=offset,
            scratch=rows * self._row_elements(step),
        )

    def _row_elements(self, step: SumStep | MixStep) -> int:
        """What one row of a step works on, for one data point."""
        row = math.prod(self.shapes[step.pool])
        if isinstance(step, MixStep):
            return row * int(step.sources.shape[1])
        return max(row, self._results(step) // (step.stop - step.start))

    def _results(self, step: SumStep) -> int:
        return (step.stop - step.start) * step.edges * math.prod(self.result_shape(step))


def span_of(rows: Rows) -> tuple[int, int] | None:
    """Start and stop when the rows are consecutive."""
    consecutive = len(rows) > 0 and bool((np.diff(rows) == 1).all())
    return (int(rows[0]), int(rows[-1]) + 1) if consecutive else None


def _stars(step: InputStep) -> Iterator[tuple[Rows, Rows]]:
    """Inputs by the number of those at the same row: which ones ``(rows, inputs)``, and the rows."""
    rows, counts = np.unique(step.rows, return_counts=True)
    if step.axes is not None or step.parents or step.correlation is not None or counts.max() < FEWEST:
        return
    order = np.argsort(step.rows, kind="stable")
    first = np.cumsum(counts) - counts
    for count in np.unique(counts):
        own = counts == count
        yield order[first[own][:, None] + np.arange(count)], rows[own]
