"""What a model is, apart from its numbers, as plain JSON values; and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import torch

from picirc import inputs
from picirc.ensemble import Ensemble
from picirc.errors import ArgumentError
from picirc.functions.nets import Bank
from picirc.hclt import HCLT
from picirc.inputs import Family, group_columns
from picirc.model import Model
from picirc.pic import PIC
from picirc.structure.regions import RegionGraph
from picirc.structure.trees import LatentTree

Description = dict[str, Any]
Value = TypeVar("Value")

_KINDS: dict[str, type[Model]] = {"PIC": PIC, "HCLT": HCLT, "Ensemble": Ensemble}
_MOST_MEMBERS = 100  # of an ensemble; more would be a trick to make reading slow
_STRUCTURES: dict[str, type[LatentTree | RegionGraph]] = {"LatentTree": LatentTree, "RegionGraph": RegionGraph}
# How deep the lists of numbers are nested.
_DEPTHS = {"parents": 1, "variables": 2, "scopes": 2, "partitions": 3}
_FAMILIES: tuple[type[Family], ...] = (
    *(inputs.Bernoulli, inputs.Binomial, inputs.Categorical),
    *(inputs.Gaussian, inputs.Laplace, inputs.Poisson, inputs.StudentT),
)
# The scopes of a structure may have this many entries in all, about as many as fit into 5 GB: a deep tree in a small
# file must not take all the memory there is.
_MOST_ENTRIES = 50_000_000
_DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}
_SETTINGS: dict[str, dict[str, type]] = {
    "HCLT": {"states": int, "product": str},
    "PIC": {
        "width": int,
        "sharing": str,
        "input_sharing": str,
        "energy": str,
        "dims": int,
        "product": str,
        "fourier": bool,
        "learnable": bool,
        "correlated": bool,
    },
}
# What models have that were saved before there was a choice.
_FORMER = {"correlated": False, "energy": "softplus", "dims": 1}


def describe_model(model: Model) -> Description:
    """The description from which ``build_model`` makes the same model, without its numbers.

    The standard deviation of the Fourier frequencies is not part of it: it shaped the first random frequencies, and
    these are stored.
    """
    if type(model) not in _KINDS.values():
        raise ArgumentError("model", "a PIC or an HCLT", type(model).__name__)
    kinds = {str(tensor.dtype).removeprefix("torch.") for tensor in model.state_dict().values()}
    if len(kinds) != 1 or not kinds <= set(_DTYPES):
        got = " and ".join(sorted(kinds))
        raise ArgumentError("model", "one floating-point type for all tensors", got, "use model.float()")
    members = {"members": len(model.members)} if isinstance(model, Ensemble) else {}
    return {
        "kind": type(model).__name__,
        **members,
        "dtype": kinds.pop(),
        "structure": {"kind": type(model.structure).__name__} | _values(model.structure),
        "families": [
            describe_family(family) | {"columns": columns} for family, columns in group_columns(model.families)
        ],
        "settings": _settings(model),
    }


def build_model(description: Mapping[str, Any], families: Sequence[type[Family]] = ()) -> Model:
    """The model of a description, with tensors that have shapes but take no memory.

    Args:
        description: What ``describe_model`` made, from a file that may say anything.
        families: The classes of families that are not the library's own.
    """
    kind = choice(description, "kind", _KINDS)
    structure = _structure(take(description, "structure", dict))
    columns = _families(take(description, "families", list), structure.n_variables, families)
    settings = take(description, "settings", dict)
    names = _SETTINGS["HCLT" if kind is HCLT else "PIC"]
    if kind is not HCLT:
        settings = _FORMER | settings
    only(settings, names, "settings")
    options: dict[str, Any] = {name: take(settings, name, wanted) for name, wanted in names.items()}
    with torch.device("meta"):
        if kind is not Ensemble:
            return kind(structure, columns, **options)
        count = take(description, "members", int)
        if not 1 <= count <= _MOST_MEMBERS:
            raise ArgumentError("members", f"a number from 1 to {_MOST_MEMBERS}", count)
        return Ensemble([PIC(structure, columns, **options) for _ in range(count)])


def describe_family(family: Family) -> Description:
    """The name and the fields of a family."""
    return {"name": type(family).__name__} | _values(family)


def build_family(entry: Mapping[str, Any], own: Sequence[type[Family]] = ()) -> Family:
    """The family of a description.

    Args:
        entry: What ``describe_family`` made, from a file that may say anything.
        own: The classes of families that are not the library's own.
    """
    cls = choice(entry, "name", {cls.__name__: cls for cls in (*_FAMILIES, *own)})
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]  # every family is a dataclass
    only(entry, {"name", *names}, "families")
    return cls(**{name: take(entry, name, object) for name in names})


def dtype_of(description: Mapping[str, Any]) -> torch.dtype:
    """The floating-point type of the tensors."""
    return choice(description, "dtype", _DTYPES)


def _settings(model: Model) -> Description:
    if isinstance(model, HCLT):
        return {"states": model.states, "product": model.product}
    if isinstance(model, Ensemble):
        return _settings(model.member(0))
    assert isinstance(model, PIC)
    bank = model.integrals[0]
    if not isinstance(bank, Bank):
        raise ArgumentError("model", "a PIC with nets of the library", "one with functions of one's own")
    trained = {name for name, _ in bank.named_parameters()}
    return {
        "width": model.width,
        "sharing": model.sharing,
        "input_sharing": model.input_sharing,
        "energy": model.energy,
        "dims": model.dims,
        "product": model.product,
        "fourier": bank.features.fourier,
        "learnable": bank.features.fourier and "features.frequencies" in trained,
        "correlated": model.correlated,
    }


def _values(value: Any) -> Description:
    """The fields of a dataclass."""
    if not is_dataclass(value):
        raise ArgumentError("model", "families that are frozen dataclasses", type(value).__name__)
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _structure(entry: Description) -> LatentTree | RegionGraph:
    cls = choice(entry, "kind", _STRUCTURES)
    names = [field.name for field in fields(cls)]
    only(entry, {"kind", *names}, "structure")
    for name in names:
        _check_nested(name, entry.get(name), _DEPTHS[name])
    if cls is RegionGraph:
        _check_size(
            len(scope) * (1 + len(ways)) for scope, ways in zip(entry["scopes"], entry["partitions"], strict=True)
        )
    structure = cls(**{name: entry[name] for name in names})
    if isinstance(structure, LatentTree):
        _check_size(_below(structure))
    return structure


def _check_size(sizes: Iterable[int]) -> None:
    if (entries := sum(sizes)) > _MOST_ENTRIES:
        raise ArgumentError("structure", f"scopes with at most {_MOST_ENTRIES:,} entries in all", f"{entries:,}")


def _below(tree: LatentTree) -> list[int]:
    """The number of latents and variables at and below each latent."""
    sizes = [1 + len(own) for own in tree.variables]
    for latent in tree.order[:-1]:
        sizes[tree.parents[latent]] += sizes[latent]
    return sizes


def _check_nested(name: str, value: object, depth: int) -> None:
    if depth == 0:
        return  # the structure itself checks its numbers
    if not isinstance(value, list):
        raise ArgumentError(name, f"lists of whole numbers, {_DEPTHS[name]} deep", repr(value)[:80])
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
    """An entry of a description that must be there and have a type."""
    value = entry.get(name)
    # A truth value is a number to Python, but not in a file.
    if name not in entry or not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise ArgumentError(name, f"a value of type {wanted.__name__}", repr(value)[:80])
    return value


def choice(entry: Mapping[str, Any], name: str, choices: Mapping[str, Value]) -> Value:
    """What an entry of a description names."""
    chosen = entry.get(name)
    if not isinstance(chosen, str) or chosen not in choices:
        raise ArgumentError(name, " or ".join(choices), repr(chosen)[:80])
    return choices[chosen]


def only(entry: Mapping[str, Any], names: Mapping[str, Any] | set[str], where: str) -> None:
    """Raise if a description has entries that it should not have."""
    unknown = sorted(set(entry) - set(names))
    if unknown:
        raise ArgumentError(where, f"nothing besides {', '.join(sorted(names))}", unknown[0][:80])
