# SPDX-License-Identifier: Apache-2.0
"""The description of a model as JSON values, and the names of its tensors in a file.

A model class declares what is stored: ``STORED`` has the names of the constructor arguments besides structure and
inputs, which are attributes of the same names. ``FORMER`` has the values in older models of arguments that were added
later. The constructor checks its arguments, because they may come from a file.

In a model the planner decides which functions share a tensor and in which order, and that may change between versions.
In a file the names of the tensors and the order of their rows do not depend on it:

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
``….of{n}``                           follows for each latent of a function where they differ in dimensions or states
``correlations.block{b}``             the parameters of the correlations of these variables, in ascending order; of an
                                      HCLT in every state
====================================  ==========================================================================

Tensors that all functions of a bank share (frequencies, a common hidden layer) are stored as they are. The names of
the tensors of an ensemble begin with ``members.{number}``. Its description has one structure, or a list with one for
each member, and the weights of the members unless they are equal.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from picirc import inputs
from picirc.compile.plan import STATES, Plan
from picirc.engine.schedule import InputStep, Kinds, SumStep
from picirc.errors import ArgumentError
from picirc.functions.nets import Bank
from picirc.hclt import HCLT
from picirc.inputs import Family, group_columns
from picirc.inputs.discrete import FiniteFamily
from picirc.mixture import TreeMixture
from picirc.model import Model
from picirc.pic import PIC, Ensemble
from picirc.structure.regions import RegionGraph
from picirc.structure.trees import LatentTree
from picirc.symbolic.units import Integral, Sum

Description = dict[str, Any]
Value = TypeVar("Value")

_KINDS: dict[str, type[Model]] = {"PIC": PIC, "HCLT": HCLT, "Ensemble": Ensemble, "TreeMixture": TreeMixture}
_STRUCTURES: dict[str, type[LatentTree | RegionGraph]] = {"LatentTree": LatentTree, "RegionGraph": RegionGraph}
# The depths of nested lists of integers.
_DEPTHS = {"parents": 1, "variables": 2, "scopes": 2, "partitions": 3}
_FAMILIES: tuple[type[Family], ...] = (
    *(inputs.Bernoulli, inputs.Binomial, inputs.Categorical),
    *(inputs.Gaussian, inputs.Laplace, inputs.Poisson, inputs.Spiked, inputs.StudentT),
)
_DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}
# The scopes of a structure have an entry of about 100 bytes for each variable and latent below each latent, so a deep
# tree in a small file could exhaust the memory. Long chains need the most: with 5,000 latents of two states each there
# are 119 entries for each byte of the file.
_ENTRIES_PER_BYTE, _MOST_ENTRIES = 128, 50_000_000
# The values of finite families with fewer parameters than values; a query makes a table of all values.
_MOST_VALUES = 2**20


def describe_model(model: Model) -> Description:
    """The description from which ``build_model`` makes the same model, apart from its parameters.

    The standard deviation of the Fourier frequencies is not part of it, because the frequencies are stored.
    """
    if type(model) not in _KINDS.values():
        raise ArgumentError("model", "a PIC or an HCLT", type(model).__name__)
    kinds = {str(tensor.dtype).removeprefix("torch.") for tensor in model.state_dict().values()}
    if len(kinds) != 1 or not kinds <= set(_DTYPES):
        got = " and ".join(sorted(kinds))
        raise ArgumentError("model", "one floating-point type for all tensors", got, "use model.float()")
    part = model.parts[0]
    members: Description = {} if part is model else {"members": len(model.parts)}
    if isinstance(model, Ensemble) and model.weights is not None:
        members["weights"] = list(model.weights)
    if part.custom:
        raise ArgumentError("model", "a PIC with nets of the library", "one with custom functions")
    structures = [{"kind": type(own).__name__} | _values(own) for own in model.structures]
    return {
        "kind": type(model).__name__,
        **members,
        "dtype": kinds.pop(),
        "structure": structures[0] if len(structures) == 1 else structures,
        "families": [
            describe_family(family) | {"columns": columns} for family, columns in group_columns(model.families)
        ],
        "settings": {name: getattr(part, name) for name in part.STORED},
    }


def build_model(description: Mapping[str, Any], families: Sequence[type[Family]], size: int, members: int) -> Model:
    """The model of a description, with tensors on the device "meta".

    Args:
        description: The result of ``describe_model``, from a file that may contain anything.
        families: The user's own classes of families.
        size: The size of the file in bytes, which limits the memory that is used.
        members: The number of members with tensors in the file.
    """
    kind = choice(description, "kind", _KINDS)
    cls = kind.MEMBER or kind
    if kind.MEMBER and take(description, "members", int) != members:
        raise ArgumentError("members", f"{members}, the number with tensors", description["members"])
    entries = description.get("structure")
    each = entries if kind.MEMBER and isinstance(entries, list) and len(entries) == members else [entries]
    structures = [_structure(take({"structure": entry}, "structure", dict), size) for entry in each]
    check_size(structures, size)
    columns = _families(take(description, "families", list), structures[0].n_variables, families)
    check_values(columns)
    settings = cls.FORMER | take(description, "settings", dict)
    only(settings, set(cls.STORED), "settings")
    options: dict[str, Any] = {name: take(settings, name, object) for name in cls.STORED}
    with torch.device("meta"):
        models = [cls(structure, columns, **options) for structure in structures]
    if kind is not Ensemble:
        return models[0]
    models += [copy.deepcopy(models[0]) for _ in range(members - len(models))]
    weights = take(description, "weights", list) if "weights" in description else None
    return Ensemble([model for model in models if isinstance(model, PIC)], weights)


def check_size(structures: Iterable[LatentTree | RegionGraph], size: int) -> None:
    """Raise if the structures of a model need too much memory for a file of ``size`` bytes."""
    _check_entries(sum(map(_entries, structures)), size)


def _entries(structure: LatentTree | RegionGraph) -> int:
    """The number of entries of the scopes of a structure."""
    if isinstance(structure, RegionGraph):
        return _region_entries(structure.scopes, structure.partitions)
    below = [1 + len(own) for own in structure.variables]  # the latents and variables at and below each latent
    for latent in structure.order[:-1]:
        below[structure.parents[latent]] += below[latent]
    return sum(below)


def check_values(families: Iterable[Family]) -> None:
    """Raise if a family has a table of too many values."""
    for family in set(families):
        if isinstance(family, FiniteFamily) and family.values > max(_MOST_VALUES, family.size):
            raise ArgumentError("families", f"at most {_MOST_VALUES:,} values", f"{family!r}")


def describe_family(family: Family) -> Description:
    """The name and the fields of a family; raises if the family cannot be restored from them."""
    found = {"name": type(family).__name__} | _values(family)
    try:
        same = build_family(json.loads(json.dumps(found, allow_nan=False)), [type(family)]) == family
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError("model", "families whose fields are plain JSON values", f"{family!r}: {error}") from error
    if not same:
        raise ArgumentError("model", "families that are determined by their fields", repr(family))
    return found


def build_family(entry: Mapping[str, Any], own: Sequence[type[Family]] = ()) -> Family:
    """The family of a description, which may contain anything; ``own`` are the user's own classes of families."""
    known = {cls.__name__: cls for cls in _FAMILIES}
    for cls in own:
        if known.setdefault(cls.__name__, cls) is not cls:
            raise ArgumentError("families", "a different name for each class", cls.__name__, "rename the class")
    cls = choice(entry, "name", known)
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]  # every family is a dataclass
    only(entry, {"name", *names}, "families")
    return cls(**{name: take(entry, name, object) for name in names})


def dtype_of(description: Mapping[str, Any]) -> torch.dtype:
    """The floating-point type of the tensors."""
    return choice(description, "dtype", _DTYPES)


def _values(value: Any) -> Description:
    """The fields of a dataclass."""
    if not is_dataclass(value):
        raise ArgumentError("model", "families that are frozen dataclasses", type(value).__name__)
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _structure(entry: Description, size: int) -> LatentTree | RegionGraph:
    cls = choice(entry, "kind", _STRUCTURES)
    names = [field.name for field in fields(cls)]
    only(entry, {"kind", *names}, "structure")
    for name in names:
        _check_nested(name, entry.get(name), _DEPTHS[name])
    if cls is RegionGraph:  # before the graph itself checks its scopes
        _check_entries(_region_entries(entry["scopes"], entry["partitions"]), size)
    return cls(**{name: entry[name] for name in names})


def _check_entries(entries: int, size: int) -> None:
    most = min(_MOST_ENTRIES, _ENTRIES_PER_BYTE * size)
    if entries > most:
        expected = f"scopes with at most {most:,} entries in all for a file of {size:,} bytes"
        raise ArgumentError("structure", expected, f"{entries:,}")


def _region_entries(scopes: Sequence[Sequence[int]], partitions: Sequence[Sequence[Any]]) -> int:
    return sum(len(scope) * (1 + len(ways)) for scope, ways in zip(scopes, partitions, strict=False))


def _check_nested(name: str, value: object, depth: int) -> None:
    if depth == 0:
        return  # the structure checks its numbers
    if not isinstance(value, list):
        raise ArgumentError(name, f"lists of integers, nested {_DEPTHS[name]} deep", repr(value)[:80])
    for item in value:
        _check_nested(name, item, depth - 1)


def _families(entries: list[Any], variables: int, own: Sequence[type[Family]]) -> list[Family]:
    """The family of each column."""
    found: dict[int, Family] = {}
    for entry in entries:
        if not isinstance(entry, dict):
            raise ArgumentError("families", "an object for each family", entry)
        family = build_family({name: value for name, value in entry.items() if name != "columns"}, own)
        for column in take(entry, "columns", list):
            if type(column) is not int or not 0 <= column < variables or column in found:
                raise ArgumentError("columns", f"each of the {variables} columns once", column)
            found[column] = family
    if len(found) != variables:
        raise ArgumentError("columns", f"a family for each of {variables} columns", f"{len(found)} of them")
    return [found[column] for column in range(variables)]


def take(entry: Mapping[str, Any], name: str, wanted: type[Value]) -> Value:
    """An entry of a description; raises if it is absent or has another type. A boolean is not an integer."""
    value = entry.get(name)
    if name not in entry or not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise ArgumentError(name, f"a value of type {wanted.__name__}", repr(value)[:80])
    return value


def choice(entry: Mapping[str, Any], name: str, choices: Mapping[str, Value]) -> Value:
    """The choice that an entry of a description names."""
    chosen = entry.get(name)
    if not isinstance(chosen, str) or chosen not in choices:
        raise ArgumentError(name, " or ".join(choices), repr(chosen)[:80])
    return choices[chosen]


def only(entry: Mapping[str, Any], names: Mapping[str, Any] | set[str], where: str) -> None:
    """Raise if a description has other entries than ``names``."""
    unknown = sorted(set(entry) - set(names))
    if unknown:
        raise ArgumentError(where, f"nothing besides {', '.join(sorted(names))}", unknown[0][:80])


Key = tuple[Any, ...]
Block = tuple[str, list[Key]]  # the name in the file, and what each row belongs to; nothing if rows keep their order


@dataclass(frozen=True)
class Piece:
    """A tensor of a model that is stored as a part of a tensor in a file."""

    name: str  # in the model
    keys: tuple[Key, ...] | None  # what each row belongs to; None for a tensor whose rows keep their order


def to_file(model: Model) -> dict[str, Tensor]:
    """The tensors of a model as they are stored in a file."""
    own, stored = model.state_dict(), {}
    for name, pieces in _pieces(model).items():
        whole = torch.cat([own[piece.name] for piece in pieces])
        stored[name] = whole if pieces[0].keys is None else whole[_order(pieces)]
    return stored


def shapes_in_file(model: Model) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors of a model in a file; its own tensors may be on "meta"."""
    own, found = model.state_dict(), {}
    for name, pieces in _pieces(model).items():
        shapes = [own[piece.name].shape for piece in pieces]
        found[name] = (sum(shape[0] for shape in shapes), *shapes[0][1:])
    return found


def from_file(model: Model, stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a model from those of a file: the inverse of ``to_file``."""
    own = model.state_dict()
    found: dict[str, Tensor] = {}
    for name, pieces in _pieces(model).items():
        whole = stored[name].clone()
        if pieces[0].keys is not None:
            whole[_order(pieces)] = stored[name]
        rows = whole.split([len(own[piece.name]) for piece in pieces])
        found |= {piece.name: tensor.clone() for piece, tensor in zip(pieces, rows, strict=True)}
    return found


def added_since(model: Model, stored: Collection[str]) -> dict[str, Tensor]:
    """The parameters that an older file lacks, because they were zero."""
    shapes = shapes_in_file(model)
    return {name: torch.zeros(shapes[name]) for name in model.ADDED if name in shapes and name not in stored}


def count_members(stored: Iterable[str]) -> int:
    """The number of members of an ensemble, from the names of the tensors in its file."""
    return len({name.split(".")[1] for name in stored if name.startswith("members.")})


def _pieces(model: Model) -> dict[str, list[Piece]]:
    """The pieces of each tensor in a file. The names of an ensemble begin with those of its members."""
    found: dict[str, list[Piece]] = {}
    parts = {id(part): part for part in model.parts}
    for path, module in model.named_modules():
        if (part := parts.get(id(module))) is None:
            continue
        start, blocks = f"{path}." if path else "", _blocks(part)
        for name in part.state_dict():
            kind, number, *rest = name.split(".")
            stored, keys = blocks[kind][int(number)]
            owner = getattr(part, kind)[int(number)]  # a bank of functions, or a single tensor
            by_row = ".".join(rest) in Bank.BY_ROW[owner.sharing] if isinstance(owner, Bank) else bool(keys)
            piece = Piece(start + name, tuple(keys) if by_row else None)
            found.setdefault(start + ".".join([stored, *rest]), []).append(piece)
    return found


def _order(pieces: Sequence[Piece]) -> Tensor:
    """The order in the file of the rows of all pieces."""
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
        if model.has_rule:  # nets of latents at different positions have different shapes; tables do not
            latents = keys[0][1][0]
            name += f".{len(latents)}.{group.axes[0] if group.axes else 0}{_of_kinds(group.kinds)}"
        if group.correlation is not None:
            name += f".block{joint.index(keys[0])}"
        return name, keys

    def first(group: InputStep) -> Key:
        return (int(group.columns[0]), above[group.pool, int(group.rows[0])])

    blocks = [group for group in plan.inputs if group.correlation is not None]
    joint = sorted(map(first, blocks))
    sizes = [f"{len(b.new)}.{len(b.integrated)}{_of_kinds(b.new + b.integrated)}" for b in plan.blocks]
    return {
        "weights": [(f"weights.{size}", keys) for size, keys in zip(sizes, integrals, strict=True)],
        "integrals": [(f"integrals.{size}", keys) for size, keys in zip(sizes, integrals, strict=True)],
        "mixtures": [
            (f"mixtures.{len(sums[0].inputs)}", [(_region(unit),) for unit in sums]) for sums in plan.mixtures
        ],
        "inputs": [inputs(group) for group in plan.inputs],
        "correlations": [(f"correlations.block{joint.index(first(group))}", []) for group in blocks],
        "shares": [("shares", [])],
    }


def _of_kinds(kinds: Kinds) -> str:
    """The dimensions or states of the latents, where they differ."""
    return "".join(f".{kind}" for kind in kinds if kind != STATES)


def _integrals(plan: Plan) -> list[list[Key]]:
    """For every row of each block of sum weights the integrated latents, the given latents, and the partition."""
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
    """The first of the integrals above each row of the program."""
    found = {}
    for step in plan.schedule.steps:
        if isinstance(step, SumStep):
            for place, row in enumerate(range(step.start, step.stop)):
                first = step.first + place * step.edges
                found[step.pool, row] = min(integrals[step.block][first : first + step.edges])
    return found


def _region(unit: Sum) -> int:
    """The region of a sum over partitions: the one given latent of all its integrals."""
    child = unit.inputs[0]
    integral = child if isinstance(child, Integral) else child.inputs[0]
    assert isinstance(integral, Integral)
    return _numbers(integral.factors[0].function.parents)[0]


def _numbers(latents: Sequence[str]) -> tuple[int, ...]:
    return tuple(int(name[1:]) for name in latents)
