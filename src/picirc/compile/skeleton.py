"""A structure ready for parameters: the plan of a latent tree or region graph whose functions are still open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from torch import Tensor

from picirc.compile.plan import Latent, make_plan
from picirc.inputs import Family, Gaussian
from picirc.qpc.distribution import QPC
from picirc.qpc.inputs import InputGroup, InputLayer
from picirc.qpc.latents import LatentGrid
from picirc.qpc.likelihood import Engine
from picirc.qpc.program import Parameters, Program
from picirc.qpc.steps import MixStep
from picirc.structure.regions import RegionGraph
from picirc.structure.trees import LatentTree
from picirc.symbolic.build import from_structure

_STATES = "states"  # all latents have equally many


class Skeleton:
    """Everything of a circuit but its numbers.

    Args:
        structure: A latent tree or a region graph.
        families: The family of each variable.
        product: ``"cp"`` or ``"tucker"``, for region graphs.
        correlated: Whether the Gaussian variables of one latent are correlated given its state.
    """

    def __init__(
        self,
        structure: LatentTree | RegionGraph,
        families: Sequence[Family],
        product: str = "cp",
        correlated: bool = False,
    ) -> None:
        self.families = tuple(families)
        self._correlated = correlated
        self.circuit = from_structure(structure, product)
        self.plan = make_plan(self.circuit, dict.fromkeys(self.circuit.latents, _STATES))
        self.groups = self._groups()
        self.engine: Callable[[int], Engine] = lru_cache(maxsize=8)(self._engine)

    def __deepcopy__(self, memo: dict[int, Any]) -> Skeleton:
        """Itself: nothing in it changes, and copying the units of a deep circuit one inside the other has no end."""
        return self

    def weight_shapes(self, states: int) -> list[tuple[int, int, int, int]]:
        """The shape ``(rows, g, o, z)`` of each block of sum weights."""
        return [
            (len(b.integrals), states ** len(b.shared), states ** len(b.new), states ** len(b.integrated))
            for b in self.plan.blocks
        ]

    def mixture_shapes(self, states: int) -> list[tuple[int, int, int]]:
        """The shape ``(fold, arity, states)`` of each block of mixing weights."""
        shapes: dict[int, tuple[int, int, int]] = {}
        for step in self.plan.schedule.steps:
            if isinstance(step, MixStep):
                axes = len(self.plan.schedule.pools[step.pool].kinds)
                shapes[step.block] = (*step.sources.shape, states**axes)
        return [shapes[i] for i in range(len(shapes))]

    def qpc(
        self,
        states: int,
        parameters: Parameters,
        points: Tensor | None = None,
        weights: Tensor | None = None,
        refine: Callable[[], QPC] | None = None,
    ) -> QPC:
        """The circuit with the given numbers.

        Args:
            states: The number of states of each latent.
            parameters: The numbers.
            points: The grid of all latents ``(states,)``; None when states have no values.
            weights: Its quadrature weights.
            refine: Makes the same circuit on a finer grid.
        """
        latents = _SameGrids(self.plan.latents, points, weights)
        circuit = self.circuit
        engine = self.engine(states)
        return QPC(engine, parameters, circuit.variables, self.families, latents, circuit.properties, refine)

    def _groups(self) -> list[InputGroup]:
        """The input units by family; the parameters of a group are in the order of its rows.

        Correlated inputs of a row are a group of their own.
        """
        alike: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
        blocks = self._blocks()
        for slot in self.plan.slots:
            column = int(slot.unit.variable[1:])
            family = self.families[column]
            block = (slot.pool, slot.row, family) if (slot.pool, slot.row, family) in blocks else None
            alike.setdefault((family, slot.pool, slot.axes, block), []).append((column, slot.row))
        groups, correlations = [], 0
        for number, ((family, pool, axes, block), slots) in enumerate(alike.items()):
            columns, rows = np.array(slots if block is None else sorted(slots)).T
            correlation = None if block is None else correlations
            correlations += block is not None
            groups.append(InputGroup(family, number, columns, pool, rows, (_STATES,), axes, correlation=correlation))
        return groups

    def _blocks(self) -> set[tuple[int, int, Family]]:
        """The rows with several Gaussian inputs of one family, if these are to be correlated."""
        found: Counter[tuple[int, int, Family]] = Counter()
        for slot in self.plan.slots if self._correlated else ():
            family = self.families[int(slot.unit.variable[1:])]
            if isinstance(family, Gaussian) and slot.axes is None:
                found[slot.pool, slot.row, family] += 1
        return {place for place, count in found.items() if count > 1}

    def _engine(self, states: int) -> Engine:
        program = Program(self.plan.schedule, {_STATES: states})
        return Engine(program, InputLayer(self.groups, program))


@dataclass(frozen=True)
class _SameGrids:
    """The grids of latents that all have the same points, made when somebody asks for them: circuits have thousands.

    Attributes:
        places: Where the latents are.
        points: ``(states,)``; None when states have no values.
        weights: The quadrature weights, likewise.
    """

    places: Sequence[Latent]
    points: Tensor | None
    weights: Tensor | None

    def __iter__(self) -> Iterator[LatentGrid]:
        for place in self.places:
            shape = [-1 if i == place.axis else 1 for i in range(len(place.order))]
            grid = (None if t is None else t.view(shape) for t in (self.points, self.weights))
            yield LatentGrid(place.name, place.pool, place.row, place.axis, *grid)
