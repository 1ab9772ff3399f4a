"""From options to structures, families and models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from picirc.cli.options import DataModelOptions, DataTrainingOptions
from picirc.cli.tables import Tables, largest
from picirc.errors import ArgumentError
from picirc.inputs import Bernoulli, Binomial, Categorical, Family, Gaussian
from picirc.inputs.finite import FiniteFamily
from picirc.pic import HCLT, PIC
from picirc.structure import (
    LatentTree,
    RegionGraph,
    chain,
    hidden_chow_liu,
    quad_graph,
    quad_tree,
    random_regions,
    random_tree,
)
from picirc.structure.columns import column_kinds, read_table


def make_model(tables: Tables, options: DataModelOptions, training: DataTrainingOptions) -> PIC | HCLT:
    """The model that the options ask for, with random parameters."""
    families = make_families(tables, options.inputs)
    structure = make_structure(tables, options.structure, training.seed)
    generator = torch.Generator().manual_seed(training.seed)
    if options.model == "hclt":
        return HCLT(structure, families, options.points, options.product, generator)
    alike = len(set(families)) == 1 and isinstance(families[0], FiniteFamily)
    usual = "full" if tables.image_shape is not None and alike else "composite"
    return PIC(
        structure,
        families,
        width=options.width,
        sharing=options.sharing,
        input_sharing=options.input_sharing or usual,
        product=options.product,
        generator=generator,
    )


def make_structure(tables: Tables, name: str, seed: int) -> LatentTree | RegionGraph:
    """A structure by its name."""
    variables = len(tables.columns)
    match name:
        case "chain":
            return chain(variables)
        case "random":
            return random_tree(variables, seed)
        case "random-regions":
            return random_regions(variables, seed=seed)
        case "quad-tree" | "quad-graph":
            if tables.image_shape is None:
                raise ArgumentError("--structure", "a structure for rows that are not images", name, "try hclt-tree")
            return (quad_tree if name == "quad-tree" else quad_graph)(*tables.image_shape)
    kinds = ["categorical" if column in tables.levels else "auto" for column in tables.columns]
    return hidden_chow_liu(tables.parts["train"], kinds)


def make_families(tables: Tables, choice: str) -> list[Family]:
    """The family of each variable."""
    if tables.categories is not None:
        return [_finite(choice, tables.categories)] * len(tables.columns)
    auto = _auto(tables) if choice == "auto" else [choice] * len(tables.columns)
    found: list[Family] = []
    for number, (column, name) in enumerate(zip(tables.columns, auto, strict=True)):
        if column in tables.levels:
            found.append(Categorical(len(tables.levels[column])))
        else:
            values = 2 if name in ("gaussian", "bernoulli") else int(largest(tables, number)) + 1
            found.append(_finite(name, max(values, 2)))
    return found


def _finite(choice: str, values: int) -> Family:
    """A family with the values 0, …, ``values`` − 1, or the Gaussian one."""
    match choice:
        case "gaussian":
            return Gaussian()
        case "binomial":
            return Binomial(values - 1)
        case "categorical":
            return Categorical(values)
        case "bernoulli" if values > 2:
            raise ArgumentError("--inputs", f"a family for {values} values", choice, "try categorical")
    return Bernoulli() if values == 2 else Categorical(values)


def _auto(tables: Tables) -> Sequence[str]:
    """For each column of a table the family that its values suggest."""
    whole = read_table(np.concatenate(list(tables.parts.values())))
    names = {"binary": "bernoulli", "categorical": "categorical", "ordinal": "gaussian", "gaussian": "gaussian"}
    chosen = [names[kind] for kind in column_kinds(whole)]
    return [
        "gaussian" if name == "categorical" and np.nanmin(whole[:, number]) < 0 else name
        for number, name in enumerate(chosen)
    ]
