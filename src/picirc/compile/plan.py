# SPDX-License-Identifier: Apache-2.0
"""Circuit → plan: which rows are computed together, in what order, and where their results go.

First, units become *cells* and *messages*. A cell is what the program stores a row for: a product of inputs and of the
messages below, or a mixture of such products, tabulated over the states of its indices. A message is the integral of a
cell: a contraction over the states of the integrated latents. Nested products are flattened, so that cells and messages
alternate. An *index* is a grid axis. With static quadrature every latent has its own. With nested quadrature the points
of a latent move with its ancestors, so a function of it is tabulated over the axes of the ancestors too.

Then, cells of the same height and shape are folded into one step. The *kind* of an axis stands for its number of
states, which depends on the rule, so that one plan serves every rule. Rows of one shape are stored in one *pool*,
numbered by height, so that each step works on a contiguous slice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from picirc.checks import check_boolean
from picirc.engine.schedule import (
    Flags,
    InputStep,
    Kinds,
    MixStep,
    Pool,
    Schedule,
    Send,
    Spans,
    Step,
    SumStep,
)
from picirc.errors import ArgumentError
from picirc.structure.regions import RegionGraph
from picirc.structure.trees import LatentTree
from picirc.symbolic.build import SHARED, Open, from_structure
from picirc.symbolic.circuit import SymbolicCircuit
from picirc.symbolic.units import Input, Integral, Product, Sum, Unit

if TYPE_CHECKING:
    from picirc.inputs import Family

STATES = "states"  # the kind of all axes of a structure whose latents have the same number of states
Indices = tuple[str, ...]
Closure = Callable[[str], Indices]  # the axes that the points of a latent depend on, including its own


@dataclass(frozen=True)
class WeightBlock:
    """Sum weights of one shape ``(rows, g, o, z)``."""

    shared: Kinds
    new: Kinds
    integrated: Kinds
    integrals: tuple[tuple[Integral, Indices, Indices], ...]  # for each row the unit and its shared and new axes


@dataclass(frozen=True)
class Slot:
    """One use of an input unit, for one of its variables."""

    unit: Input
    variable: str
    order: Indices  # its axes
    pool: int  # of the row that it is multiplied into
    row: int
    axes: tuple[int, ...] | None  # the positions of its axes among those of the row; None if they are the same


@dataclass(frozen=True)
class Latent:
    """A row with the axes ``order`` whose flow over ``axis`` is the posterior of a latent."""

    name: str
    pool: int
    row: int
    axis: int
    order: Indices


@dataclass(frozen=True, eq=False)
class Plan:
    """The folded schedule of a circuit, and the units that its weights and inputs belong to."""

    circuit: SymbolicCircuit
    schedule: Schedule
    blocks: tuple[WeightBlock, ...]
    mixtures: tuple[tuple[Sum, ...], ...]  # the sum units of each block of mixing weights
    slots: tuple[tuple[Slot, ...], ...]  # the uses of input units of each input step
    latents: tuple[Latent, ...]
    source: tuple[Any, ...] | None = None  # the arguments of `plan_structure`, if it made the plan

    @cached_property
    def inputs(self) -> tuple[InputStep, ...]:
        """The input steps, in the order of their parameters."""
        return self.schedule.inputs

    @property
    def kinds(self) -> frozenset[Hashable]:
        """The kinds of all axes."""
        return frozenset(kind for pool in self.schedule.pools for kind in pool.kinds)

    @property
    def blocks_of_inputs(self) -> tuple[int, ...]:
        """The numbers of the input steps with correlated inputs, in the order of their matrices."""
        joint = [step for step in self.inputs if step.correlation is not None]
        return tuple(step.params for step in sorted(joint, key=lambda step: step.correlation or 0))

    def weight_shapes(self, states: int) -> list[tuple[int, int, int, int]]:
        """Return the shape ``(rows, g, o, z)`` of each block of sum weights if every latent has ``states`` states."""
        return [
            (len(b.integrals), states ** len(b.shared), states ** len(b.new), states ** len(b.integrated))
            for b in self.blocks
        ]

    def mixture_shapes(self, states: int) -> list[tuple[int, int, int]]:
        """Return the shape ``(fold, arity, states)`` of each block of mixing weights."""
        shapes: dict[int, tuple[int, int, int]] = {}
        for step in self.schedule.steps:
            if isinstance(step, MixStep):
                axes = len(self.schedule.pools[step.pool].kinds)
                shapes[step.block] = (*step.sources.shape, states**axes)
        return [shapes[i] for i in range(len(shapes))]

    def __deepcopy__(self, memo: dict[int, Any]) -> Plan:
        """Return the plan itself, because it is immutable."""
        return self

    def __reduce__(self) -> Any:
        """Pickle the arguments of ``plan_structure`` if there are any, and all units otherwise."""
        return object.__reduce_ex__(self, 2) if self.source is None else (plan_structure, self.source)


def plan_structure(
    structure: LatentTree | RegionGraph | Sequence[LatentTree],
    families: Sequence[Family],
    product: str = "cp",
    correlated: bool = False,
    shared: bool = False,
    kinds: Sequence[int] | None = None,
) -> Plan:
    """Return the plan of a latent tree or region graph whose functions are not yet known.

    Args:
        structure: The structure; several trees are mixed by a sum unit at the root.
        families: The family of each variable.
        product: ``"cp"`` or ``"tucker"``, for region graphs.
        correlated: Whether the Gaussian variables of one latent are correlated given its state.
        shared: Whether all functions of a tree depend on one more latent, with a kind of its own.
        kinds: The number of dimensions or states of each latent of a tree, if they differ. Latents with the same number
            are of one kind.
    """
    if check_boolean("correlated", correlated) and product == "tucker":
        raise ArgumentError("correlated", "False with product='tucker'", correlated, "use product='cp'")
    circuit = from_structure(structure, product, shared)
    family = dict(zip(circuit.variables, families, strict=True))
    axes: dict[str, Hashable] = {
        name: SHARED if name == SHARED else STATES if kinds is None else kind_of(kinds[int(name[1:])])
        for name in circuit.latents
    }
    plan = make_plan(circuit, axes, lambda unit: family[unit.variable], correlated=correlated)
    return replace(plan, source=(structure, tuple(families), product, correlated, shared, kinds))


def kind_of(number: int) -> str:
    """Return the kind of latents with this number of dimensions or states, if it differs between latents."""
    return f"of{number}"


def make_plan(
    circuit: SymbolicCircuit,
    kinds: Mapping[str, Hashable],
    family: Callable[[Input], Family],
    closure: Closure | None = None,
    correlated: bool = False,
) -> Plan:
    """Fold a circuit.

    Args:
        circuit: A smooth circuit, decomposable except for variables that are conditioned on others.
        kinds: The kind of each latent; latents of one kind have the same number of states.
        family: Returns the family of an input unit.
        closure: Returns the axes that the points of a latent depend on; by default only its own.
        correlated: Whether Gaussian inputs at one row are correlated.
    """
    circuit.properties.require("smooth", purpose="quadrature")
    circuit.check_products("quadrature")
    return _Planner(circuit, kinds, family, closure or (lambda z: (z,)), correlated).plan()


class _Planner:
    def __init__(
        self,
        circuit: SymbolicCircuit,
        kinds: Mapping[str, Hashable],
        family: Callable[[Input], Family],
        closure: Closure,
        correlated: bool,
    ) -> None:
        self.circuit = circuit
        self.cells = Cells(circuit, kinds, closure)
        self.kinds = kinds
        self.family = family
        self.correlated = correlated
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
        inputs, slots = self._inputs()
        steps, blank = self._begun(inputs, [step for group in groups for step in self._steps(group)])
        pools = tuple(Pool(kinds, self.counts[i], blank[i]) for kinds, i in self.pools.items())
        blocks = tuple(WeightBlock(*shape, integrals=tuple(self.integrals[i])) for shape, i in self.blocks.items())
        schedule = Schedule(pools, steps, self.place[self.cells.root])
        return Plan(self.circuit, schedule, blocks, tuple(self.mixtures), slots, tuple(self._latents()))

    def _groups(self) -> list[list[Cell]]:
        """Group the cells that are computed together: same height and shape, used in the same way."""
        groups: dict[Hashable, list[Cell]] = {}
        for cell in sorted(self.cells.cells, key=lambda c: c.height):
            new = {self._kinds(message.new) for message in cell.edges}
            assert len(new) <= 1, "the results of one cell have one shape"
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
        pool = self.pools.setdefault(self._kinds(group[0].order), len(self.pools))
        if pool == len(self.counts):
            self.counts.append(0)
        for cell in group:
            self.place[cell] = (pool, self.counts[pool])
            self.counts[pool] += 1

    def _steps(self, group: list[Cell]) -> list[SumStep | MixStep]:
        pool, start = self.place[group[0]]
        stop = start + len(group)
        steps: list[SumStep | MixStep] = []
        if group[0].mixed:
            sources = np.array([[self.place[c][1] for c in cell.mixed] for cell in group], dtype=np.int64)
            sends = self._sends([(cell.order, cell.users) for cell in group])
            steps.append(MixStep(pool, start, stop, sources, len(self.mixtures), sends=sends))
            self.mixtures.append(tuple(cell.mixture for cell in group if cell.mixture))
        if group[0].edges:
            steps.append(self._sum_step(group, pool, start, stop))
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

    def _inputs(self) -> tuple[list[InputStep], tuple[tuple[Slot, ...], ...]]:
        """Return an input step for each family; correlated inputs of a row are a step of their own."""
        columns = {name: column for column, name in enumerate(self.circuit.variables)}
        uses = [(slot, self.family(slot.unit)) for slot in self._slots()]
        joint = Counter(
            (slot.pool, slot.row, family)
            for slot, family in uses
            if self.correlated and family.correlates and slot.axes is None
        )
        alike: dict[tuple[Any, ...], list[Slot]] = {}
        for slot, family in uses:
            together: Hashable = slot.row if joint[slot.pool, slot.row, family] > 1 else None
            if len(slot.unit.variables) > 1:
                together = (slot.row, slot.unit)
            # Each tree of a mixture may have one table for all its inputs.
            part = slot.unit.function.part if isinstance(slot.unit.function, Open) else 0
            key = (family, self._kinds(slot.order), slot.pool, slot.axes, together, part)
            alike.setdefault(key, []).append(slot)
        steps: list[InputStep] = []
        for (family, kinds, pool, axes, together, _), group in alike.items():
            correlation = None
            if together is not None:
                correlation = sum(step.correlation is not None for step in steps)
                group.sort(key=lambda slot: columns[slot.variable])
            own, rows = np.array([(columns[slot.variable], slot.row) for slot in group]).T
            parents = self._observed_parents(group[0].unit, columns)
            steps.append(InputStep(family, len(steps), own, pool, rows, kinds, axes, correlation, parents=parents))
        return steps, tuple(map(tuple, alike.values()))

    def _observed_parents(self, unit: Input, columns: Mapping[str, int]) -> tuple[tuple[int, int], ...]:
        """Return the position among the parameters and the column of each observed parent of an input."""
        found, place = [], 0
        for parent in unit.function.parents:
            if parent in columns:
                found.append((place, columns[parent]))
            place += self.circuit.dims.get(parent, 1)
        return tuple(found)

    def _begun(
        self, inputs: Sequence[InputStep], steps: Sequence[SumStep | MixStep]
    ) -> tuple[tuple[Step, ...], list[Spans]]:
        """Mark what comes first at each row, so that it is overwritten and need not be cleared before.

        The first is an input step that covers its rows, a mixture, or the first result that is sent there.

        Returns:
            All steps, and for each pool the rows that no step overwrites.
        """
        written, held = ([np.zeros(count, dtype=bool) for count in self.counts] for _ in range(2))
        first: list[Step] = []
        then: list[Step] = []
        for group in inputs:
            held[group.pool][group.rows] = True
            if group.axes is None and group.correlation is None and not written[group.pool][group.rows].any():
                written[group.pool][group.rows] = True
                first.append(replace(group, fresh=True))
            else:
                then.append(group)  # after those that overwrite rows, or it would be lost
        for step in steps:
            if isinstance(step, MixStep):
                held[step.pool][step.start : step.stop] = written[step.pool][step.start : step.stop] = True
            for send in step.sends:
                if send.axes is not None:  # it is added to the row, which must be cleared before
                    held[send.pool][send.rows] = True
        for step in steps:
            sends = tuple(_with_fresh(send, held[send.pool]) for send in step.sends)
            for send in sends:
                if send.fresh is not None:
                    written[send.pool][send.rows[send.fresh]] = True
            then.append(replace(step, sends=sends))
        return (*first, *then), [_spans(~rows) for rows in written]

    def _slots(self) -> list[Slot]:
        slots: list[Slot] = []
        for cell in self.cells.cells:
            for term in cell.terms:
                if isinstance(term, Input):
                    order = self.cells.indices(self.circuit.free(term))
                    at = (*self.place[cell], _axes(order, cell.order))
                    slots.extend(Slot(term, variable, order, *at) for variable in term.variables)
        return sorted(slots, key=lambda slot: (slot.pool, slot.row))

    def _latents(self) -> list[Latent]:
        found = []
        for cell in self.cells.cells:
            if cell.edges:
                shared, integrated, _ = cell.split
                axes = range(shared, shared + integrated)
                found += [Latent(cell.order[axis], *self.place[cell], axis, cell.order) for axis in axes]
        return found

    def _kinds(self, order: Indices) -> Kinds:
        return tuple(self.kinds[index] for index in order)


def _axes(order: Indices, target: Indices) -> tuple[int, ...] | None:
    return None if order == target else tuple(target.index(index) for index in order)


def _with_fresh(send: Send, held: Flags) -> Send:
    """Mark the first entry of a send at each row that holds nothing, and note in ``held`` that it does now."""
    first = np.zeros(len(send.rows), dtype=bool)
    first[np.unique(send.rows, return_index=True)[1]] = True
    fresh = first & ~held[send.rows]
    held[send.rows] = True
    return replace(send, fresh=fresh) if fresh.any() else send


def _spans(chosen: Flags) -> Spans:
    """Return start and stop of each run of chosen rows."""
    edges = np.flatnonzero(np.diff(chosen, prepend=False, append=False))
    return tuple((int(start), int(stop)) for start, stop in edges.reshape(-1, 2))


@dataclass(eq=False)
class Cell:
    """A row of the program, tabulated over ``order``."""

    order: Indices
    height: int
    split: tuple[int, int, int] = (0, 0, 0)  # the numbers of axes that are shared with the factors, integrated, passed
    terms: tuple[Term, ...] = ()  # what a product cell multiplies
    mixed: tuple[Cell, ...] = ()  # what a mixture cell adds, with the weights of `mixture`
    mixture: Sum | None = None
    edges: list[Message] = field(default_factory=list)
    users: list[Cell] = field(default_factory=list)  # the cells that multiply it without an integral


@dataclass(eq=False)
class Message:
    """``out[g, o, r] = Σ_z W[g, o, z] · cell[g, z, r]``: an integral unit as a batched matrix product."""

    unit: Integral
    cell: Cell
    shared: Indices  # g
    new: Indices  # o
    passed: Indices  # r
    users: list[Cell] = field(default_factory=list)

    @property
    def order(self) -> Indices:
        """The axes of the result."""
        return self.shared + self.new + self.passed

    @property
    def height(self) -> int:
        """The height of the cell."""
        return self.cell.height


Term = Input | Message | Cell


class Cells:
    """All cells and messages of a circuit, children first; ``root`` is a cell without axes."""

    def __init__(self, circuit: SymbolicCircuit, kinds: Mapping[str, Hashable], closure: Closure) -> None:
        self._free = circuit.free
        # Outermost first: the axes of the ancestors of a latent come before its own, as in cells.
        self._rank = {z: i for i, z in enumerate(reversed(circuit.latents))}
        self._kinds = kinds
        self._closure = closure
        self._terms: dict[Unit, tuple[Term | Sum, ...]] = {}
        self._dense: dict[tuple[Unit, Indices, tuple[Hashable, ...]], Cell] = {}
        self._direct: dict[Sum, Cell] = {}
        self._sums: dict[Sum, Indices] = {}
        self._uses = Counter(child for unit in circuit.units for child in unit.inputs)
        self.cells: list[Cell] = []
        for unit in circuit.units:
            self._terms[unit] = self._visit(unit)
        self.root = self._product(self._terms[circuit.root], ())

    def indices(self, latents: Iterable[str]) -> Indices:
        """Return the axes over which a function of these latents is tabulated."""
        return self._sorted({index for z in latents for index in self._closure(z)})

    def _visit(self, unit: Unit) -> tuple[Term | Sum, ...]:
        match unit:
            case Input():
                return (unit,)
            case Integral():
                return (self._message(unit),)
            case Sum():
                axes = {index for child in unit.inputs for index in self._unit_indices(child)}
                self._sums[unit] = self._sorted(axes)
                return (unit,)
            case Product():
                return tuple(term for child in unit.inputs for term in self._terms[child])

    def _message(self, unit: Integral) -> Message:
        own = set(unit.variables)
        below = self._unit_indices(unit.child) - own
        around = set(self.indices([*own, *(z for factor in unit.factors for z in factor.latents)])) - own
        shared, new, passed = (self._sorted(s) for s in (below & around, around - below, below - around))
        cell = self._dense_cell(unit, shared, new, passed)
        message = Message(unit, cell, shared, new, passed)
        cell.edges.append(message)
        return message

    def _dense_cell(self, unit: Integral, shared: Indices, new: Indices, passed: Indices) -> Cell:
        order = shared + unit.variables + passed
        # Integrals of the same unit share a cell if one product computes them all.
        key = (unit.child, order, tuple(self._kinds[index] for index in new))
        if not shared and not passed and key in self._dense:
            return self._dense[key]
        split = (len(shared), len(unit.variables), len(passed))
        cell = self._cell(unit.child, order, split)
        self._dense[key] = cell
        return cell

    def _cell(self, unit: Unit, order: Indices, split: tuple[int, int, int] = (0, 0, 0)) -> Cell:
        if isinstance(unit, Sum):
            return self._mixture(unit, order, split)
        return self._product(self._terms[unit], order, split)

    def _product(self, terms: tuple[Term | Sum, ...], order: Indices, split: tuple[int, int, int] = (0, 0, 0)) -> Cell:
        resolved = tuple(self._direct_mixture(term) if isinstance(term, Sum) else term for term in terms)
        height = 1 + max((-1 if isinstance(term, Input) else term.height for term in resolved), default=-1)
        cell = Cell(order, height, split, terms=resolved)
        for term in resolved:
            if not isinstance(term, Input):
                term.users.append(cell)
        self.cells.append(cell)
        return cell

    def _mixture(self, unit: Sum, order: Indices, split: tuple[int, int, int] = (0, 0, 0)) -> Cell:
        # A sum below several sums is computed once, because copies would multiply with depth.
        mixed = tuple(
            self._product((child,), order)
            if isinstance(child, Sum) and self._uses[child] > 1
            else self._cell(child, order)
            for child in unit.inputs
        )
        cell = Cell(order, 1 + max(c.height for c in mixed), split, mixed=mixed, mixture=unit)
        self.cells.append(cell)
        return cell

    def _direct_mixture(self, unit: Sum) -> Cell:
        if unit not in self._direct:
            self._direct[unit] = self._mixture(unit, self._sums[unit])
        return self._direct[unit]

    def _unit_indices(self, unit: Unit) -> set[str]:
        found: set[str] = set()
        for term in self._terms[unit]:
            match term:
                case Input():
                    found |= set(self.indices(self._free(term)))
                case Sum():
                    found |= set(self._sums[term])
                case _:
                    found |= set(term.order)
        return found

    def _sorted(self, axes: set[str]) -> Indices:
        return tuple(sorted(axes, key=self._rank.__getitem__))
