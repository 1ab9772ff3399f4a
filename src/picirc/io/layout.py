# SPDX-License-Identifier: Apache-2.0
"""The order of the rows of a model's tensors in a file.

Inside a model the planner decides which functions share a tensor and in which order; that may change from version to
version. In a file the tensors are named, and their rows sorted, by what they belong to:

====================================  ==========================================================================
tensor                                rows
====================================  ==========================================================================
``weights.{given}.{integrated}``      integrals with this many latents given and integrated, by the numbers of the
(HCLT), ``integrals.….*`` (PIC)       integrated latents, of those given, and of the partition
``mixtures.{arity}``                  regions with this many partitions, by number
``inputs.{family}`` (HCLT)            input units, by variable, then by the integral above
``inputs.{family}.{n}.{axis}.*``      the same, of the variables below latent ``axis`` of ``n`` integrated at
(PIC)                                 once; of correlated variables ``.block{b}`` follows, with the blocks in the
                                      order of their first variables
``correlations.block{b}``             what makes the correlations of these variables, in ascending order; of an HCLT
                                      in every state
====================================  ==========================================================================

Tensors that all functions of a bank share (frequencies, a common hidden layer) are stored as they are. The names of
the tensors of an ensemble begin with ``members.{number}``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from picirc.compile.plan import Plan
from picirc.engine.schedule import InputStep, SumStep
from picirc.functions.nets import Bank
from picirc.inputs import group_columns
from picirc.model import Model
from picirc.symbolic.units import Integral, Sum

_MEMBER = "members"

Key = tuple[Any, ...]
Block = tuple[str, list[Key]]  # the name in the file, and what each row belongs to


@dataclass(frozen=True)
class Piece:
    """A tensor of a model and its place in a file."""

    name: str  # in the model
    stored: str  # in the file; several pieces may be stored as one tensor
    keys: tuple[Key, ...] | None  # what each row belongs to; None for a tensor that is stored as it is


def to_file(model: Model) -> dict[str, Tensor]:
    """The tensors of a model as a file has them."""
    stored: dict[str, Tensor] = {}
    for start, part in _parts(model):
        own = part.state_dict()
        for name, pieces in _by_name(part).items():
            whole = torch.cat([own[piece.name] for piece in pieces])
            stored[start + name] = whole if pieces[0].keys is None else whole[_order(pieces)]
    return stored


def from_file(model: Model, stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a file as the model has them: ``to_file`` undone, as tensors of their own."""
    found: dict[str, Tensor] = {}
    for start, part in _parts(model):
        own = part.state_dict()
        for name, pieces in _by_name(part).items():
            whole = stored[start + name].clone()
            if pieces[0].keys is not None:
                whole[_order(pieces)] = stored[start + name]
            rows = whole.split([len(own[piece.name]) for piece in pieces])
            found |= {start + piece.name: tensor.clone() for piece, tensor in zip(pieces, rows, strict=True)}
    return found


def _parts(model: Model) -> Iterator[tuple[str, Model]]:
    """The members of an ensemble, or the model itself, with what the names of their tensors begin with."""
    parts = {id(part): part for part in model.parts}
    for name, module in model.named_modules():
        if id(module) in parts:
            yield f"{name}." if name else "", parts[id(module)]


def count_members(stored: Iterable[str]) -> int:
    """The number of members of an ensemble by the names of its tensors."""
    return len({name.split(".")[1] for name in stored if name.startswith(f"{_MEMBER}.")})


def layout(model: Model) -> Iterator[Piece]:
    """The place of each tensor of a model."""
    blocks = _blocks(model)
    for name in model.state_dict():
        kind, number, *rest = name.split(".")
        stored, keys = blocks[kind][int(number)]
        owner = getattr(model, kind)[int(number)]  # a bank of functions, or a single tensor
        by_row = ".".join(rest) in Bank.BY_ROW[owner.sharing] if isinstance(owner, Bank) else kind != "correlations"
        yield Piece(name, ".".join([stored, *rest]), tuple(keys) if by_row else None)


def _by_name(model: Model) -> dict[str, list[Piece]]:
    found: dict[str, list[Piece]] = {}
    for piece in layout(model):
        found.setdefault(piece.stored, []).append(piece)
    return found


def _order(pieces: Sequence[Piece]) -> Tensor:
    """Which row of the pieces together comes first in the file, which second, and so on."""
    keys = [key for piece in pieces for key in piece.keys or ()]
    assert len(set(keys)) == len(keys), "every row belongs to something else"
    return torch.tensor(sorted(range(len(keys)), key=keys.__getitem__), device="cpu")


def _blocks(model: Model) -> dict[str, list[Block]]:
    plan = model.plan
    integrals = _integrals(plan)
    above = _above(plan, integrals)
    families = [family for family, _ in group_columns(model.families)]

    def inputs(group: InputStep) -> Block:
        slots = zip(group.columns.tolist(), group.rows.tolist(), strict=True)
        keys = [(column, above[group.pool, row]) for column, row in slots]
        name = f"inputs.{families.index(group.family)}"
        if model.has_rule:  # nets of latents at different places are not alike; tables are
            latents = keys[0][1][0]
            name += f".{len(latents)}.{group.axes[0] if group.axes else 0}"
        if group.correlation is not None:
            name += f".block{joint.index(keys[0])}"
        return name, keys

    def first(group: InputStep) -> Key:
        return (int(group.columns[0]), above[group.pool, int(group.rows[0])])

    blocks = [group for group in plan.inputs if group.correlation is not None]
    joint = sorted(map(first, blocks))
    sizes = [f"{len(b.new)}.{len(b.integrated)}" for b in plan.blocks]
    return {
        "weights": [(f"weights.{size}", keys) for size, keys in zip(sizes, integrals, strict=True)],
        "integrals": [(f"integrals.{size}", keys) for size, keys in zip(sizes, integrals, strict=True)],
        "mixtures": [_mixture(sums) for sums in plan.mixtures],
        "inputs": [inputs(group) for group in plan.inputs],
        "correlations": [(f"correlations.block{joint.index(first(group))}", []) for group in blocks],
    }


def _integrals(plan: Plan) -> list[list[Key]]:
    """For each block of sum weights: the latents integrated, those given, and the partition, of every row."""
    partition: dict[int, int] = {}
    for unit in plan.circuit.units:
        if isinstance(unit, Sum):
            for number, child in enumerate(unit.inputs):
                parts = (child,) if isinstance(child, Integral) else child.inputs
                partition |= dict.fromkeys(map(id, parts), number)
    return [
        [(_numbers(unit.variables), _numbers(new), partition.get(id(unit), 0)) for unit, _, new in block.integrals]
        for block in plan.blocks
    ]


def _above(plan: Plan, integrals: Sequence[Sequence[Key]]) -> dict[tuple[int, int], Key]:
    """The first of the integrals over each row of the program."""
    found = {}
    for step in plan.schedule.steps:
        if isinstance(step, SumStep):
            for place, row in enumerate(range(step.start, step.stop)):
                first = step.first + place * step.edges
                found[step.pool, row] = min(integrals[step.block][first : first + step.edges])
    return found


def _mixture(sums: Sequence[Sum]) -> Block:
    """A block of mixing weights; its rows belong to regions."""
    return f"mixtures.{len(sums[0].inputs)}", [(_region(unit),) for unit in sums]


def _region(unit: Sum) -> int:
    """The region that a sum over partitions belongs to: the one latent that all its integrals are given."""
    child = unit.inputs[0]
    integral = child if isinstance(child, Integral) else child.inputs[0]
    assert isinstance(integral, Integral)
    return _numbers(integral.factors[0].function.parents)[0]


def _numbers(latents: Sequence[str]) -> tuple[int, ...]:
    return tuple(int(name[1:]) for name in latents)
