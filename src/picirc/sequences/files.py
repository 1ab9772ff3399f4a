# SPDX-License-Identifier: Apache-2.0
"""Chains in files: safetensors and JSON, never pickle."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from picirc.errors import ArgumentError
from picirc.inputs import Family
from picirc.io.describe import only, take
from picirc.io.files import check_tensors, file_of, pack, read_description, read_file, refusing, write
from picirc.sequences.neural import SequencePIC
from picirc.tables import Schema

KIND = "SequencePIC"
_SETTINGS = {"dims": int, "width": int, "rank": int, "points": int, "timed": bool}
_MOST = 2**20  # of any size in a description
# A saved model may ask for a transition of this many weights, or of this many for each of its numbers.
_LEAST_WEIGHTS, _WEIGHTS_PER_NUMBER = 2**23, 1024
_CONTAINERS = ("numpy", "mapping", "pandas", "polars", "pyarrow", "modin", "cudf")


def save_chain(
    model: SequencePIC,
    path: str | PathLike[str],
    schema: Mapping[str, Any],
    about: Mapping[str, Any],
    summary: Mapping[str, Any],
) -> None:
    """Write a chain, its columns and what is known of its data in one move."""
    _check_size(model)
    tensors = {name: tensor.detach().cpu().float().contiguous() for name, tensor in model.state_dict().items()}
    for name, tensor in tensors.items():
        if bool(tensor.isnan().any()):
            raise ArgumentError("model", "parameters that are numbers", f"NaN in {name}")
    settings = {name: value for name, value in model.settings.items() if name != "families"}
    description = {"kind": KIND, "settings": settings, "schema": dict(schema), "about": dict(about)}
    write(path, *pack(description | {"summary": dict(summary)}, tensors))


def load_chain(
    path: Path, families: Sequence[type[Family]]
) -> tuple[SequencePIC, Schema, dict[str, Any], dict[str, Any]]:
    """Read what ``save_chain`` wrote; a file that is not what it claims to be is refused."""
    file = file_of(path, "SequenceModel.save")
    with refusing(file):
        metadata, tensors, _ = read_file(file)
        description = read_description(metadata)
        if description.get("kind") != KIND:
            remedy = "pc.load and pc.TableModel.load read others"
            raise ArgumentError("kind", KIND, repr(description.get("kind"))[:80], remedy)
        schema = Schema.from_json(take(description, "schema", dict), families)
        settings = take(description, "settings", dict)
        only(settings, _SETTINGS, "settings")
        options: dict[str, Any] = {name: take(settings, name, wanted) for name, wanted in _SETTINGS.items()}
        if any(not 0 <= int(value) <= _MOST for value in options.values()):
            raise ArgumentError("settings", f"sizes up to {_MOST:,}", repr(options)[:80])
        with torch.device("meta"):
            model = SequencePIC(schema.families, **options)
        _check_size(model)
        check_tensors(tensors, description, model.state_dict(), torch.float32)
        model.load_state_dict(tensors, assign=True)
        about = _about(take(description, "about", dict))
    return model, schema, about, take(description, "summary", dict)


def _check_size(model: SequencePIC) -> None:
    """Raise if the chain of a saved model would be far larger than the model."""
    weights = (2 * model.points) ** 2
    most = max(_LEAST_WEIGHTS, _WEIGHTS_PER_NUMBER * sum(p.numel() for p in model.parameters()))
    if weights > most:
        expected = f"points for at most {most:,} weights"
        raise ArgumentError("points", expected, f"{model.points}, for {weights:,}", "use fewer points, or wider nets")


def _about(entry: dict[str, Any]) -> dict[str, Any]:
    only(entry, {"by", "time", "unit", "container", "dates"}, "about")
    for name in ("by", "time"):
        if entry.get(name) is not None:
            take(entry, name, str)
    unit = take(entry, "unit", float)
    if not 0 < unit < math.inf:
        raise ArgumentError("unit", "a positive number", unit)
    if take(entry, "container", str) not in _CONTAINERS:
        raise ArgumentError("container", " or ".join(_CONTAINERS), entry["container"])
    take(entry, "dates", bool)
    return entry
