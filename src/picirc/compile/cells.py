"""From units to cells: the first half of planning.

A *cell* is what the program stores a row for: a product of inputs and of the messages below, or a mixture of such
products, tabulated over the states of its indices. A *message* is what an integral unit makes of a cell: a
contraction over the states of the integrated latents. Nested products are flattened away, so that a circuit
alternates between cells and messages.

An *index* is a grid axis. With static quadrature every latent has its own; with nested quadrature the points of a
latent move with its ancestors, so that a function of it is tabulated over the ancestors' axes too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from picirc.symbolic.circuit import SymbolicCircuit
from picirc.symbolic.units import Input, Integral, Product, Sum, Unit

Indices = tuple[str, ...]
Closure = Callable[[str], Indices]  # the axes that a latent's grid points depend on, its own included


@dataclass(eq=False)
class Cell:
    """A row of the program, tabulated over ``order``."""

    order: Indices
    height: int
    split: tuple[int, int, int] = (0, 0, 0)  # axes shared with the factors, integrated, passed through
    terms: tuple[Term, ...] = ()  # what a product cell multiplies
    mixed: tuple[Cell, ...] = ()  # what a mixture cell adds, with the weights of `mixture`
    mixture: Sum | None = None
    edges: list[Message] = field(default_factory=list)
    users: list[Cell] = field(default_factory=list)  # the cells that multiply it as it is


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


Term = Input | Message | Cell


class Cells:
    """All cells and messages of a circuit, the lower ones first; ``root`` is a cell without axes."""

    def __init__(self, circuit: SymbolicCircuit, kinds: Mapping[str, Hashable], closure: Closure) -> None:
        self._rank = {z: i for i, z in enumerate(circuit.latents)}
        self._kinds = kinds
        self._closure = closure
        self._terms: dict[int, tuple[Term | Sum, ...]] = {}
        self._dense: dict[tuple[int, Indices, tuple[Hashable, ...]], Cell] = {}
        self._direct: dict[int, Cell] = {}
        self._sums: dict[int, Indices] = {}
        self._uses = Counter(id(child) for unit in circuit.units for child in unit.inputs)
        self.cells: list[Cell] = []
        for unit in circuit.units:
            self._terms[id(unit)] = self._visit(unit)
        self.root = self._product(self._terms[id(circuit.root)], ())

    def indices(self, latents: Iterable[str]) -> Indices:
        """The axes over which a function of these latents is tabulated."""
        return self._sorted({index for z in latents for index in self._closure(z)})

    def _visit(self, unit: Unit) -> tuple[Term | Sum, ...]:
        match unit:
            case Input():
                return (unit,)
            case Integral():
                return (self._message(unit),)
            case Sum():
                axes = {index for child in unit.inputs for index in self._unit_indices(child)}
                self._sums[id(unit)] = self._sorted(axes)
                return (unit,)
            case Product():
                return tuple(term for child in unit.inputs for term in self._terms[id(child)])

    def _message(self, unit: Integral) -> Message:
        own = set(unit.variables)
        below = self._unit_indices(unit.child) - own
        around = set(self.indices(z for f in unit.factors for z in f.latents)) | {
            index for z in own for index in self._closure(z)
        }
        around -= own
        shared, new, passed = (self._sorted(s) for s in (below & around, around - below, below - around))
        cell = self._dense_cell(unit, shared, new, passed)
        message = Message(unit, cell, shared, new, passed)
        cell.edges.append(message)
        return message

    def _dense_cell(self, unit: Integral, shared: Indices, new: Indices, passed: Indices) -> Cell:
        order = shared + unit.variables + passed
        # Integrals of the same unit share its cell when their products can be done as one.
        key = (id(unit.child), order, tuple(self._kinds[index] for index in new))
        if not shared and not passed and key in self._dense:
            return self._dense[key]
        split = (len(shared), len(unit.variables), len(passed))
        cell = self._cell(unit.child, order, split)
        self._dense[key] = cell
        return cell

    def _cell(self, unit: Unit, order: Indices, split: tuple[int, int, int] = (0, 0, 0)) -> Cell:
        if isinstance(unit, Sum):
            return self._mixture(unit, order, split)
        return self._product(self._terms[id(unit)], order, split)

    def _product(self, terms: tuple[Term | Sum, ...], order: Indices, split: tuple[int, int, int] = (0, 0, 0)) -> Cell:
        resolved = tuple(self._direct_mixture(term) if isinstance(term, Sum) else term for term in terms)
        height = 1 + max((_height(term) for term in resolved), default=-1)
        cell = Cell(order, height, split, terms=resolved)
        for term in resolved:
            if not isinstance(term, Input):
                term.users.append(cell)
        self.cells.append(cell)
        return cell

    def _mixture(self, unit: Sum, order: Indices, split: tuple[int, int, int] = (0, 0, 0)) -> Cell:
        # A sum below several sums is computed once; copies of it would multiply with depth.
        mixed = tuple(
            self._product((child,), order)
            if isinstance(child, Sum) and self._uses[id(child)] > 1
            else self._cell(child, order)
            for child in unit.inputs
        )
        cell = Cell(order, 1 + max(c.height for c in mixed), split, mixed=mixed, mixture=unit)
        self.cells.append(cell)
        return cell

    def _direct_mixture(self, unit: Sum) -> Cell:
        if id(unit) not in self._direct:
            self._direct[id(unit)] = self._mixture(unit, self._sums[id(unit)])
        return self._direct[id(unit)]

    def _unit_indices(self, unit: Unit) -> set[str]:
        found: set[str] = set()
        for term in self._terms[id(unit)]:
            match term:
                case Input():
                    found |= set(self.indices(term.function.parents))
                case Sum():
                    found |= set(self._sums[id(term)])
                case _:
                    found |= set(term.order)
        return found

    def _sorted(self, axes: set[str]) -> Indices:
        return tuple(sorted(axes, key=self._rank.__getitem__))


def _height(term: Term) -> int:
    match term:
        case Input():
            return -1
        case Message():
            return term.cell.height
        case Cell():
            return term.height
