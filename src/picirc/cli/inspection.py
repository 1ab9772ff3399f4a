"""``picirc inspect``: what a model is made of, and what it needs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from picirc.cli.saved import Saved, find_model, open_model
from picirc.compile.integrate import compiled_of
from picirc.ensemble import Ensemble
from picirc.errors import ArgumentError
from picirc.pic import HCLT, PIC
from picirc.structure.regions import RegionGraph
from picirc.structure.trees import LatentTree
from picirc.tables.model import TableModel


def print_sizes(path: Path, points: int | None, batch: int) -> None:
    """Print what a model is made of and what it needs."""
    for option, count in (("--points", points), ("--batch", batch)):
        if count is not None and count < 1:
            raise ArgumentError(option, "a positive whole number", count)
    saved = open_model(path)
    states = saved.model.states if isinstance(saved.model, HCLT) else points or saved.query.points
    assert states is not None
    if isinstance(saved.model, Ensemble):
        states *= len(saved.model.members)
    if saved.of_table:
        print(TableModel.load(find_model(path)).schema)
    for name, text in (*_model_lines(saved), *_memory_lines(saved.model, states, batch)):
        print(f"{name:<14}{text}")


def _model_lines(saved: Saved) -> Iterator[tuple[str, str]]:
    model, description = saved.model, saved.description
    numbers = sum(p.numel() for p in model.parameters())
    size = next(model.parameters()).element_size()
    families = Counter(map(repr, model.families))
    members = f" of {description['members']} PICs" if "members" in description else ""
    yield "model", description["kind"] + members
    yield "structure", _structure(model.structure)
    if not saved.of_table:  # its columns are listed
        yield "variables", f"{len(model.families)}: " + ", ".join(f"{n} {name}" for name, n in families.items())
    yield "settings", ", ".join(f"{name} {value}" for name, value in description["settings"].items())
    yield "parameters", f"{numbers:,} {description['dtype']}, {_bytes(numbers * size)}"
    for name in ("command", "stopped"):
        if name in saved.notes:
            yield name, saved.notes[name]
    if "test" in saved.notes:
        yield "test", f"{saved.notes['test']['bits']:.4f} bits per dimension"


def _structure(structure: LatentTree | RegionGraph) -> str:
    if isinstance(structure, LatentTree):
        return f"tree of {structure.n_latents} latents, depth {structure.depth}"
    partitions = sum(map(len, structure.partitions))
    return f"{len(structure.scopes)} regions with {partitions} partitions, depth {structure.depth}"


def _memory_lines(model: PIC | HCLT, states: int, batch: int) -> Iterator[tuple[str, str]]:
    plan, size = model.plan, next(model.parameters()).element_size()
    shapes = [*plan.weight_shapes(states), *plan.mixture_shapes(states)]
    weights = sum(map(math.prod, shapes))
    inputs = sum(len(group.rows) * states * group.family.size for group in plan.inputs)
    if not isinstance(model, HCLT) and model.input_sharing == "full":
        inputs = sum(states * group.family.size for group in plan.inputs)
    values = compiled_of(plan, states).elements * batch
    yield "", f"with {states} states for each latent and {batch} rows in a batch:"
    yield "  weights", f"{weights:,} numbers, {_bytes(weights * size)}"
    yield "  inputs", f"{inputs:,} numbers, {_bytes(inputs * size)}"
    yield "  values", f"{values:,} numbers, {_bytes(values * size)}"
    yield "  use", f"about {_bytes((weights + inputs + values) * size)}"
    yield "  training", f"about {_bytes((2 * (weights + inputs) + values) * size)}, with the gradients"


def _bytes(count: float) -> str:
    """A number of bytes for people.

    Example:
        >>> _bytes(300), _bytes(5 * 2**20)
        ('300 B', '5.0 MiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
