"""The input layer: the bottom of the program, where data meet distributions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from picirc.inputs import Family, Gaussian
from picirc.qpc.blocks import Block
from picirc.qpc.evidence import Evidence, Points
from picirc.qpc.layers import gather_back, spread
from picirc.qpc.program import Parameters, Program
from picirc.qpc.steps import Kinds, MixStep, Rows


@dataclass(frozen=True)
class InputGroup:
    """Input distributions of one family that are evaluated together.

    Attributes:
        family: Their family.
        params: Which of the input parameter tensors ``(fold or 1, states, P)`` is theirs.
        columns: The column of the data for each of them.
        pool: The pool that they are multiplied into.
        rows: The rows there.
        kinds: The axes that the parameters are tabulated over.
        axes: Their positions among the axes of the rows; None when they are the same.
        selection: The rows of the parameters that they use; None for all of them in order, or one shared by all.
        correlation: Which of the correlation matrices makes them one block, all at the same row; None when they are
            independent given the state.
    """

    family: Family
    params: int
    columns: Rows
    pool: int
    rows: Rows
    kinds: Kinds
    axes: tuple[int, ...] | None = None
    selection: Rows | None = None
    correlation: int | None = None


class InputLayer:
    """All input groups of a program.

    Args:
        groups: The groups. One that comes first at all of its rows writes them, the others are multiplied in.
        program: The program whose rows are filled.
    """

    def __init__(self, groups: Sequence[InputGroup], program: Program) -> None:
        self.groups = tuple(groups)
        self._program = program
        pools = program.schedule.pools
        written = [np.zeros(pool.rows, dtype=bool) for pool in pools]
        writes = [_claims(group, written) for group in groups]
        # What is multiplied in would be lost in rows that are written afterwards.
        self._fills = sorted(zip(self.groups, writes, strict=True), key=lambda fill: not fill[1])
        for step in program.schedule.steps:
            if isinstance(step, MixStep):
                written[step.pool][step.start : step.stop] = True
                continue
            for send in step.sends:
                if send.fresh is not None:
                    written[send.pool][send.rows[send.fresh]] = True
        self._blank = [_spans(~rows) for rows in written]

    def fill(self, rows: list[Tensor], evidence: Evidence, parameters: Parameters) -> None:
        """Write the log-values of the inputs into the rows; those that nothing writes first become log 1."""
        for pool, blank in zip(rows, self._blank, strict=True):
            for start, stop in blank:
                pool[start:stop].zero_()
        for group, writes in self._fills:
            if group.correlation is None:
                self._fill_group(rows[group.pool], group, evidence, parameters.inputs[group.params], writes)
            else:
                columns = self._program.index(group.columns, parameters.like.device)
                rows[group.pool][int(group.rows[0])] += evidence.joint(self.block(group, parameters), columns)

    def gradients(self, flows: Sequence[Tensor], evidence: Points, parameters: Parameters) -> list[Tensor]:
        """The derivative of the root's log-value with respect to the inputs' parameters, then to the correlations."""
        params = parameters.inputs
        totals: list[Tensor | None] = [None] * len(params)
        correlations = [torch.zeros_like(matrix) for matrix in parameters.correlations]
        for group in self.groups:
            if group.correlation is not None:
                flow = flows[group.pool][int(group.rows[0])]
                columns = self._program.index(group.columns, flow.device)
                block = self.block(group, parameters)
                found, correlations[group.correlation] = evidence.joint_gradient(block, columns, flow)
                totals[group.params] = found.sum_to_size(params[group.params].shape)
                continue
            chosen = self.select(group, params[group.params])
            flow = self.flows(group, flows)
            columns = self._program.index(group.columns, flow.device)
            found = evidence.gradient(group.family, chosen, columns, flow)
            if group.selection is not None:
                rows = self._program.index(group.selection, flow.device)
                found = torch.zeros_like(params[group.params]).index_add_(0, rows, found)
            total = totals[group.params]
            totals[group.params] = found if total is None else total.add_(found)
        inputs = [torch.zeros_like(p) if t is None else t for p, t in zip(params, totals, strict=True)]
        return inputs + correlations

    def flows(self, group: InputGroup, flows: Sequence[Tensor]) -> Tensor:
        """The flows that reach a group's distributions, ``(fold, states, batch)``."""
        pool = flows[group.pool]
        start, stop = _span(group.rows)
        flow = pool[start:stop] if stop else pool.index_select(0, self._program.index(group.rows, pool.device))
        if group.axes is None:
            return flow
        shape = self._program.sizes(group.kinds)
        return gather_back(flow, group.axes, shape, self._program.shapes[group.pool])

    def block(self, group: InputGroup, parameters: Parameters) -> Block:
        """The joint distribution of a group of correlated inputs."""
        assert group.correlation is not None
        assert isinstance(group.family, Gaussian)
        params = parameters.inputs[group.params].expand(len(group.columns), -1, -1)  # all may share one distribution
        return Block(group.family, params, parameters.correlations[group.correlation])

    def select(self, group: InputGroup, params: Tensor) -> Tensor:
        """The parameters of a group's distributions, ``(fold or 1, states, P)``."""
        if group.selection is None:
            return params
        return params.index_select(0, self._program.index(group.selection, params.device))

    def _fill_group(self, pool: Tensor, group: InputGroup, evidence: Evidence, params: Tensor, writes: bool) -> None:
        params = self.select(group, params)
        columns = self._program.index(group.columns, pool.device)
        start, stop = _span(group.rows)
        if writes and stop:
            evidence.write(group.family, params, columns, pool[start:stop])
            return
        rows = self._program.index(group.rows, pool.device)
        values = pool.new_empty(len(rows), params.shape[1], pool.shape[-1])
        evidence.write(group.family, params, columns, values)
        if writes:
            pool.index_copy_(0, rows, values)
        elif group.axes is None:
            pool.index_add_(0, rows, values)
        else:
            target = self._program.shapes[group.pool]
            wide = spread(values, group.axes, self._program.sizes(group.kinds), target)
            pool.index_add_(0, rows, wide.reshape(len(rows), *pool.shape[1:]))


def _claims(group: InputGroup, written: Sequence[NDArray[np.bool_]]) -> bool:
    """Whether a group is the first at all of its rows and covers all of their states."""
    rows = group.rows
    alone = not written[group.pool][rows].any() and len(np.unique(rows)) == len(rows) and group.correlation is None
    if group.axes is None and alone:
        written[group.pool][rows] = True
        return True
    return False


def _spans(chosen: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Start and stop of every run of chosen rows."""
    edges = np.flatnonzero(np.diff(chosen, prepend=False, append=False))
    return [(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]


def _span(rows: Rows) -> tuple[int, int]:
    """Start and stop when the rows are consecutive, else (0, 0)."""
    consecutive = len(rows) > 0 and bool((np.diff(rows) == 1).all())
    return (int(rows[0]), int(rows[-1]) + 1) if consecutive else (0, 0)
