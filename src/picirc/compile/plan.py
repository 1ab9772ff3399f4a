"""Circuit → folded plan: which rows are computed together, in what order, and where their results go.

A plan knows the structure only. The *kind* of an axis stands for its number of states, which the rule decides later;
cells whose axes are of the same kinds fold into one step, so the plan of a circuit serves every rule. Rows of one
shape live in one *pool*, numbered by height, so that each step works on a contiguous slice.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from picirc.compile.cells import Cell, Cells, Closure, Indices
from picirc.qpc.steps import Flags, Kinds, MixStep, PassStep, Pool, Schedule, Send, Step, SumStep
from picirc.symbolic.circuit import SymbolicCircuit
from picirc.symbolic.units import Input, Integral, Sum


@dataclass(frozen=True)
class Block:
    """Sum weights of one shape ``(rows, g, o, z)``; the integral and its axes for each row."""

    shared: Kinds
    new: Kinds
    integrated: Kinds
    integrals: tuple[tuple[Integral, Indices, Indices], ...]


@dataclass(frozen=True)
class Slot:
    """One use of an input unit: the row it is multiplied into, and how its axes lie among the row's."""

    unit: Input
    order: Indices
    pool: int
    row: int
    axes: tuple[int, ...] | None


@dataclass(frozen=True)
class Latent:
    """A row whose axes ``order`` include a latent's at ``axis``, where its posterior can be read off."""

    name: str
    pool: int
    row: int
    axis: int
    order: Indices


@dataclass(frozen=True)
class Plan:
    """The folded schedule of a circuit, and what its weights and inputs stand for."""

    schedule: Schedule
    blocks: tuple[Block, ...]
    mixtures: tuple[tuple[Sum, ...], ...]
    slots: tuple[Slot, ...]
    latents: tuple[Latent, ...]


def make_plan(circuit: SymbolicCircuit, kinds: Mapping[str, Hashable], closure: Closure | None = None) -> Plan:
    """Fold a circuit.

    Args:
        circuit: A smooth and decomposable circuit.
        kinds: For each latent, what stands for its number of states; latents of one kind have equally many.
        closure: The axes that a latent's grid points depend on; by default its own only.
    """
    circuit.properties.require("smooth", "decomposable", purpose="quadrature")
    return _Planner(Cells(circuit, kinds, closure or (lambda z: (z,))), kinds).plan()


class _Planner:
    def __init__(self, cells: Cells, kinds: Mapping[str, Hashable]) -> None:
        self.cells = cells
        self.kinds = kinds
        self.pools: dict[Kinds, int] = {}
        self.counts: list[int] = []
        self.place: dict[Cell, tuple[int, int]] = {}
        self.blocks: dict[tuple[Kinds, Kinds, Kinds], int] = {}
        self.integrals: list[list[tuple[Integral, Indices, Indices]]] = []
        self.mixtures: list[tuple[Sum, ...]] = []

    def plan(self) -> Plan:
        groups = self._groups()
        for group in groups:
            self._place(group)
        steps = [step for group in groups for step in self._steps(group)]
        pools = tuple(Pool(kinds, self.counts[i]) for kinds, i in self.pools.items())
        blocks = tuple(Block(*shape, integrals=tuple(self.integrals[i])) for shape, i in self.blocks.items())
        schedule = Schedule(pools, self._with_fresh_rows(steps), self.place[self.cells.root])
        return Plan(schedule, blocks, tuple(self.mixtures), tuple(self._slots()), tuple(self._latents()))

    def _groups(self) -> list[list[Cell]]:
        """Cells that fold: of one height, one shape and one fate."""
        groups: dict[Hashable, list[Cell]] = {}
        for cell in sorted(self.cells.cells, key=lambda c: c.height):
            new = {self._kinds(message.new) for message in cell.edges}
            assert len(new) <= 1, "edges of one cell have results of one shape"
            key = (
                cell.height,
                self._kinds(cell.order),
                cell.split,
                len(cell.mixed),
                len(cell.edges),
                new.pop() if new else None,
                bool(cell.users),
            )
            groups.setdefault(key, []).append(cell)
        return list(groups.values())

    def _place(self, group: list[Cell]) -> None:
        pool = self._pool(self._kinds(group[0].order))
        for cell in group:
            self.place[cell] = (pool, self.counts[pool])
            self.counts[pool] += 1

    def _steps(self, group: list[Cell]) -> list[Step]:
        pool, start = self.place[group[0]]
        stop = start + len(group)
        steps: list[Step] = []
        if group[0].mixed:
            sources = np.array([[self.place[c][1] for c in cell.mixed] for cell in group], dtype=np.int64)
            steps.append(MixStep(pool, start, stop, sources, len(self.mixtures)))
            self.mixtures.append(tuple(cell.mixture for cell in group if cell.mixture))
        if group[0].edges:
            steps.append(self._sum_step(group, pool, start, stop))
        elif group[0].users:
            steps.append(PassStep(pool, start, stop, self._sends([(c.order, c.users) for c in group])))
        return steps

    def _sum_step(self, group: list[Cell], pool: int, start: int, stop: int) -> SumStep:
        messages = [message for cell in group for message in cell.edges]
        one = messages[0]
        shape = (self._kinds(one.shared), self._kinds(one.new), self._kinds(one.unit.variables))
        block = self.blocks.setdefault(shape, len(self.blocks))
        if block == len(self.integrals):
            self.integrals.append([])
        first = len(self.integrals[block])
        self.integrals[block].extend((m.unit, m.shared, m.new) for m in messages)
        sends = self._sends([(m.order, m.users) for m in messages])
        shared, new, integrated = shape
        passed = self._kinds(one.passed)
        edges = len(group[0].edges)
        return SumStep(pool, start, stop, edges, shared, new, integrated, passed, block, first, sends)

    def _sends(self, results: list[tuple[Indices, list[Cell]]]) -> tuple[Send, ...]:
        targets: dict[tuple[int, tuple[int, ...] | None], tuple[list[int], list[int]]] = {}
        for position, (order, users) in enumerate(results):
            for user in users:
                pool, row = self.place[user]
                sources, rows = targets.setdefault((pool, _axes(order, user.order)), ([], []))
                sources.append(position)
                rows.append(row)
        every = list(range(len(results)))
        return tuple(
            Send(pool, np.array(rows), None if sources == every else np.array(sources), axes)
            for (pool, axes), (sources, rows) in targets.items()
        )

    def _with_fresh_rows(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        """Mark what comes first at a row: it can be written, and the row need not be cleared before."""
        held = [np.zeros(count, dtype=bool) for count in self.counts]
        for cell, (pool, row) in self.place.items():
            held[pool][row] = bool(cell.mixed) or any(isinstance(term, Input) for term in cell.terms)
        sends = [send for step in steps if not isinstance(step, MixStep) for send in step.sends]
        for send in sends:
            if send.axes is not None:  # spread over the row by an addition, so the row has to be clear
                held[send.pool][send.rows] = True
        found = []
        for step in steps:
            if not isinstance(step, MixStep):
                step = replace(step, sends=tuple(_with_fresh(send, held[send.pool]) for send in step.sends))
            found.append(step)
        return tuple(found)

    def _slots(self) -> list[Slot]:
        slots = []
        for cell in self.cells.cells:
            for term in cell.terms:
                if isinstance(term, Input):
                    order = self.cells.indices(term.function.parents)
                    slots.append(Slot(term, order, *self.place[cell], _axes(order, cell.order)))
        return sorted(slots, key=lambda slot: (slot.pool, slot.row))

    def _latents(self) -> list[Latent]:
        found = []
        for cell in self.cells.cells:
            if cell.edges:
                shared, integrated, _ = cell.split
                axes = range(shared, shared + integrated)
                found += [Latent(cell.order[axis], *self.place[cell], axis, cell.order) for axis in axes]
        return found

    def _pool(self, kinds: Kinds) -> int:
        if kinds not in self.pools:
            self.pools[kinds] = len(self.pools)
            self.counts.append(0)
        return self.pools[kinds]

    def _kinds(self, order: Indices) -> Kinds:
        return tuple(self.kinds[index] for index in order)


def _axes(order: Indices, target: Indices) -> tuple[int, ...] | None:
    return None if order == target else tuple(target.index(index) for index in order)


def _with_fresh(send: Send, held: Flags) -> Send:
    """A send with its first entry at each row that holds nothing marked; then these hold something too."""
    first = np.zeros(len(send.rows), dtype=bool)
    first[np.unique(send.rows, return_index=True)[1]] = True
    fresh = first & ~held[send.rows]
    held[send.rows] = True
    return replace(send, fresh=fresh) if fresh.any() else send
