# SPDX-License-Identifier: Apache-2.0
"""Small models that learn and data for them, one for each structure and each family."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

import picirc as pc

SHARING = ("none", "composite", "full")
MIXED = (pc.Gaussian(), pc.Categorical(3), pc.Poisson(), pc.Bernoulli())

FAMILIES: dict[str, pc.Family | tuple[pc.Family, ...]] = {
    "bernoulli": pc.Bernoulli(),
    "categorical": pc.Categorical(5),
    "binomial": pc.Binomial(6),
    "gaussian": pc.Gaussian(),
    "poisson": pc.Poisson(),
    "laplace": pc.Laplace(),
    "student": pc.StudentT(),
    "mixed": MIXED,
}


@dataclass(frozen=True)
class Shape:
    """A structure over four variables, and how its partitions combine."""

    structure: pc.LatentTree | pc.RegionGraph
    product: str = "cp"


STRUCTURES: dict[str, Shape] = {
    "tree": Shape(pc.random_tree(4, 0)),
    "chain": Shape(pc.chain(4)),
    "quad_tree": Shape(pc.quad_tree(2, 2)),
    "quad_tree_tucker": Shape(pc.quad_tree(2, 2), "tucker"),
    "quad_graph": Shape(pc.quad_graph(2, 2)),
    "quad_graph_tucker": Shape(pc.quad_graph(2, 2), "tucker"),
    "random_regions": Shape(pc.random_regions(4, 0, repetitions=2)),
    "random_regions_tucker": Shape(pc.random_regions(4, 0, repetitions=2), "tucker"),
}

RULES: dict[str, pc.Rule | pc.RandomRule] = {
    "trapezoidal": pc.trapezoidal(5),
    "midpoint": pc.midpoint(4),
    "simpson": pc.simpson(5),
    "gauss_legendre": pc.gauss_legendre(5),
    "clenshaw_curtis": pc.clenshaw_curtis(5),
    "shifted": pc.shifted(4),
}

each_family = pytest.mark.parametrize("inputs", FAMILIES.values(), ids=FAMILIES.keys())
each_structure = pytest.mark.parametrize("shape", STRUCTURES.values(), ids=STRUCTURES.keys())
each_sharing = pytest.mark.parametrize("sharing", SHARING)
each_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())


def make_pic(
    shape: Shape = STRUCTURES["tree"],
    inputs: pc.Family | Sequence[pc.Family] = FAMILIES["categorical"],
    sharing: str = "composite",
    seed: int = 0,
    width: int = 8,
    **options: object,
) -> pc.PIC:
    generator = torch.Generator().manual_seed(seed)
    arguments = {"sharing": sharing, "input_sharing": sharing, "product": shape.product, **options}
    return pc.PIC(shape.structure, inputs, width, generator=generator, **arguments)  # type: ignore[arg-type]


def make_hclt(
    shape: Shape = STRUCTURES["tree"],
    inputs: pc.Family | Sequence[pc.Family] = FAMILIES["categorical"],
    seed: int = 0,
    states: int = 3,
    dtype: torch.dtype = torch.float32,
) -> pc.HCLT:
    generator = torch.Generator().manual_seed(seed)
    return pc.HCLT(shape.structure, inputs, states, shape.product, generator, dtype)


def data_for(
    inputs: pc.Family | Sequence[pc.Family] = FAMILIES["categorical"],
    rows: int = 64,
    seed: int = 0,
    missing: float = 0.0,
) -> Tensor:
    """Four columns that depend on each other through one of two groups, (rows, 4); a share of the values is NaN."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, rows)
    families = [inputs] * 4 if isinstance(inputs, pc.Family) else inputs
    columns = np.stack([_column(family, group, rng) for family in families], 1)
    return torch.tensor(np.where(rng.random(columns.shape) < missing, np.nan, columns))


def _column(family: pc.Family, group: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    share = np.where(group == 0, 0.15, 0.8)
    match family:
        case pc.Bernoulli():
            return rng.binomial(1, share).astype(float)
        case pc.Categorical(categories):
            return rng.binomial(categories - 1, share).astype(float)
        case pc.Binomial(trials):
            return rng.binomial(trials, share).astype(float)
        case pc.Poisson():
            return rng.poisson(8 * share).astype(float)
    return 4 * share + 0.6 * rng.standard_t(4, len(group))


def bits(model: torch.nn.Module) -> dict[str, Tensor]:
    """Everything that a model consists of, copied."""
    return {name: value.clone() for name, value in model.state_dict().items()}


def same_bits(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    first, second = one.state_dict(), other.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def without_time(history: pc.History) -> list[dict[str, float]]:
    """The records of a training without how long they took; NaN as None, which equals itself."""
    return [
        {name: None if np.isnan(value) else value for name, value in record.items() if name != "seconds"}
        for record in history.records
    ]


@contextmanager
def plain_products() -> Iterator[None]:
    """Matrix products without oneDNN, which may choose instructions that a virtual machine only claims to have."""
    enabled, *_ = torch.backends.mkldnn.set_flags(_enabled=False)
    try:
        yield
    finally:
        torch.backends.mkldnn.set_flags(_enabled=enabled)
