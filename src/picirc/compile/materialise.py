"""Grids → numbers: evaluate the functions of a circuit on its grids and assemble the program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch

import numpy as np
import torch
from torch import Tensor

from picirc.compile.plan import Block, Plan, Slot, make_plan
from picirc.errors import ArgumentError, SizeError
from picirc.functions import Conditional, Density, LinearGaussian
from picirc.inputs import Family, FunctionFamily, Gaussian
from picirc.qpc.distribution import QPC
from picirc.qpc.inputs import InputGroup, InputLayer
from picirc.qpc.latents import LatentGrid
from picirc.qpc.layers import flushed
from picirc.qpc.likelihood import Engine
from picirc.qpc.program import Parameters, Program
from picirc.quadrature import Grid
from picirc.symbolic.circuit import Cost, SymbolicCircuit

# 2²⁷ numbers in double precision are one gigabyte.
LARGEST = 2**27


@dataclass(frozen=True)
class Axis:
    """The grid of a latent: points and weights over its own axis and those of the latents it moves with."""

    indices: tuple[str, ...]
    points: Tensor
    weights: Tensor


def make_axes(
    grids: Mapping[str, Grid],
    indices: Callable[[str], tuple[str, ...]],
    dtype: torch.dtype,
    device: torch.device,
) -> dict[str, Axis]:
    """Grids as tensors; the last axis of a grid belongs to the latent itself."""
    return {
        z: Axis(
            indices(z),
            torch.as_tensor(grid.points, dtype=dtype, device=device),
            torch.as_tensor(grid.weights, dtype=dtype, device=device),
        )
        for z, grid in grids.items()
    }


def check_size(cost: Cost, limit: int, remedy: str) -> None:
    """Refuse a circuit that is too wide, before anything is allocated."""
    if cost.largest > limit:
        raise SizeError(
            f"the circuit is too wide to materialise: {cost.widest} needs {cost.largest:.3g} numbers "
            f"({cost.largest * 8 / 2**30:.3g} GiB), the limit is {limit:.3g}; {remedy}."
        )


def assemble(circuit: SymbolicCircuit, axes: Mapping[str, Axis], like: Tensor, refine: Callable[[], QPC] | None) -> QPC:
    """The quadrature of a circuit on the given grids.

    Args:
        circuit: A smooth and decomposable circuit.
        axes: The grid of each latent.
        like: A tensor of the wanted dtype and device.
        refine: Makes the same quadrature on a finer grid.
    """
    sizes = {z: axis.points.shape[-1] for z, axis in axes.items()}
    plan = make_plan(circuit, sizes, lambda z: axes[z].indices)  # axes with equally many points are of one kind
    program = Program(plan.schedule, {size: size for size in sizes.values()})
    groups, params, families = _inputs(circuit, plan, axes, sizes, like)
    weights = tuple(_weights(circuit, block, axes, program) for block in plan.blocks)
    mixtures = tuple(like.new_tensor([unit.weights for unit in units]).unsqueeze(-1) for units in plan.mixtures)
    latents = [
        LatentGrid(
            place.name,
            place.pool,
            place.row,
            place.axis,
            *(_aligned(t, axes[place.name].indices, place.order) for t in _grid(axes[place.name])),
        )
        for place in plan.latents
    ]
    return QPC(
        Engine(program, InputLayer(groups, program)),
        Parameters(weights, mixtures, params),
        circuit.variables,
        families,
        latents,
        circuit.properties,
        refine,
    )


def _grid(axis: Axis) -> tuple[Tensor, Tensor]:
    return axis.points, axis.weights


def _weights(circuit: SymbolicCircuit, block: Block, axes: Mapping[str, Axis], program: Program) -> Tensor:
    """``weight(z) · ∏ factors`` for every integral of a block, ``(rows, g, o, z)``."""
    rows = []
    for unit, shared, new in block.integrals:
        order = shared + new + unit.variables
        total = sum(_aligned(axes[z].weights.log(), axes[z].indices, order) for z in unit.variables)
        for factor in unit.factors:
            points = [_aligned(axes[z].points, axes[z].indices, order) for z in factor.latents]
            total = total + _log_density(factor.function, circuit.names[id(unit)])(*points)
        assert isinstance(total, Tensor)
        shape = program.sizes(block.shared + block.new + block.integrated)
        rows.append(flushed(total.expand(shape).exp()))
    stacked = torch.stack(rows)
    return stacked.reshape(len(rows), *(int(np.prod(program.sizes(k))) for k in _three(block)))


def _three(block: Block) -> tuple[tuple[object, ...], ...]:
    return block.shared, block.new, block.integrated


def _log_density(function: object, unit: str) -> Callable[..., Tensor]:
    found = getattr(function, "log_density", None)
    if found is None:
        raise ArgumentError(
            "function", f"a density with a method log_density at the unit {unit}", function, "use pc.Density"
        )
    density: Callable[..., Tensor] = found
    return density


def _aligned(values: Tensor, indices: Sequence[str], order: Sequence[str]) -> Tensor:
    """Values over ``indices`` as a view that broadcasts over ``order``."""
    kept = sorted(range(len(indices)), key=lambda i: order.index(indices[i]))
    values = values.permute(kept)
    for position, index in enumerate(order):
        if index not in indices:
            values = values.unsqueeze(position)
    return values


@dataclass(frozen=True)
class _Alike:
    """Input units that are evaluated together."""

    family: Family
    kinds: tuple[int, ...]
    pool: int
    axes: tuple[int, ...] | None


def _inputs(
    circuit: SymbolicCircuit, plan: Plan, axes: Mapping[str, Axis], sizes: Mapping[str, int], like: Tensor
) -> tuple[list[InputGroup], tuple[Tensor, ...], list[Family]]:
    """Input groups, their parameters, and the family of each variable."""
    columns = {name: i for i, name in enumerate(circuit.variables)}
    members: dict[_Alike, list[tuple[Slot, Tensor]]] = {}
    families: dict[str, Family] = {}
    for slot in plan.slots:
        points = [_aligned(axes[z].points, axes[z].indices, slot.order) for z in slot.unit.function.parents]
        kinds = tuple(sizes[index] for index in slot.order)
        family, params = _distribution(slot.unit.function, points, like.new_zeros(kinds))
        _check_family(slot.unit.variable, families.setdefault(slot.unit.variable, family), family)
        members.setdefault(_Alike(family, kinds, slot.pool, slot.axes), []).append((slot, params))
    groups = [
        InputGroup(
            alike.family,
            number,
            np.array([columns[slot.unit.variable] for slot, _ in slots]),
            alike.pool,
            np.array([slot.row for slot, _ in slots]),
            alike.kinds,
            alike.axes,
        )
        for number, (alike, slots) in enumerate(members.items())
    ]
    tensors = tuple(torch.stack([params for _, params in slots]) for slots in members.values())
    return groups, tensors, [families[name] for name in circuit.variables]


def _check_family(variable: str, known: Family, family: Family) -> None:
    """The parts of a mixture may have different continuous families, but only one and the same discrete one."""
    if known != family and (known.discrete or family.discrete):
        expected = f"one discrete family, or continuous ones only, for the variable {variable!r}"
        raise ArgumentError("circuit", expected, f"{known!r} and {family!r}")


@singledispatch
def _distribution(function: object, points: Sequence[Tensor], blank: Tensor) -> tuple[Family, Tensor]:
    """The family of an input function and its parameters ``(states, P)`` at the given points of its parents.

    Args:
        function: What the input unit carries.
        points: The points of each parent, broadcasting against each other.
        blank: Zeros in the shape of the input's axes.
    """
    raise ArgumentError("function", "pc.LinearGaussian, pc.Conditional or pc.Density for an input unit", function)


@_distribution.register
def _(function: LinearGaussian, points: Sequence[Tensor], blank: Tensor) -> tuple[Family, Tensor]:
    mean = blank + function.mean(*points)
    return Gaussian(), torch.stack([mean, torch.full_like(mean, function.std)], -1).reshape(-1, 2)


@_distribution.register
def _(function: Conditional, points: Sequence[Tensor], blank: Tensor) -> tuple[Family, Tensor]:
    family = function.family
    if not isinstance(family, Family):
        raise ArgumentError("family", "a family of input distributions, such as pc.Bernoulli()", family)
    params = function.parameters(*(point + blank for point in points))
    return family, params.expand(*blank.shape, family.size).reshape(-1, family.size).to(blank.dtype)


@_distribution.register
def _(function: Density, points: Sequence[Tensor], blank: Tensor) -> tuple[Family, Tensor]:
    values = [point + blank for point in points] or [blank]
    return FunctionFamily(function), torch.stack(values, -1).reshape(-1, len(values))
