# SPDX-License-Identifier: Apache-2.0
"""Small table circuits, and their joint distribution by a recursion over the units that folds nothing."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pytest
import torch
from torch import Tensor

import picirc as pc
from oracles import enumerate_values
from picirc.inputs import Bernoulli, Binomial, Categorical, Family, Gaussian, Laplace, Poisson, StudentT

Named = tuple[tuple[str, ...], Tensor]  # latents, and values with an axis for each of them and the batch last


def parts_by_unit(model: pc.HCLT) -> dict[int, list[tuple[int, int]]]:
    """For each input unit, by its ``id``, the parameters that belong to it: (tensor, row)."""
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for slot in itertools.chain(*model.plan.slots):
        groups[model.families[int(slot.unit.variable[1:])], slot.pool, slot.axes].append(id(slot.unit))
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for group, units in enumerate(groups.values()):
        for row, unit in enumerate(units):
            found[unit].append((group, row))
    return found


@dataclass(frozen=True)
class Unfolded:
    """A table circuit unit by unit: each is an array over the latents that it depends on.

    Attributes:
        model: The model.
        best: Maximise over states and parts instead of adding.
        only: Allow some latents a single state, or none at all (−1).
    """

    model: pc.HCLT
    best: bool = False
    only: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def weights(self) -> dict[int, Named]:
        """For each integral unit its table, with an axis of length one for the batch."""
        plan, parameters = self.model.plan, self.model.parameters_of_circuit().detach()
        found = {}
        for block, tensor in zip(plan.blocks, parameters.weights, strict=True):
            for row, (unit, shared, new) in enumerate(block.integrals):
                names = shared + new + unit.variables
                table = tensor[row].reshape([self.model.states for _ in names]).clone()
                for z in set(names) & set(self.only) & set(unit.variables):
                    allowed = torch.arange(self.model.states) == self.only[z]
                    table.movedim(names.index(z), -1)[..., ~allowed] = 0.0
                found[id(unit)] = names, table.unsqueeze(-1)
        return found

    @cached_property
    def mixtures(self) -> dict[int, Tensor]:
        """For each sum unit its weights (arity, states)."""
        plan, parameters = self.model.plan, self.model.parameters_of_circuit().detach()
        blocks = zip(plan.mixtures, parameters.mixtures, strict=True)
        return {id(unit): tensor[row] for units, tensor in blocks for row, unit in enumerate(units)}

    @cached_property
    def inputs(self) -> dict[int, tuple[Family, Tensor, int]]:
        """For each input unit its family, its parameters (1, states, P) and its column."""
        parameters = self.model.parameters_of_circuit().detach()
        found = {}
        for slot in itertools.chain(*self.model.plan.slots):
            ((group, row), *_) = parts_by_unit(self.model)[id(slot.unit)]
            column = int(slot.unit.variable[1:])
            found[id(slot.unit)] = self.model.families[column], parameters.inputs[group][row : row + 1], column
        return found

    def values(self, x: Tensor) -> dict[int, Named]:
        """The value of every unit, by its ``id``, for every row of data."""
        values: dict[int, Named] = {}
        for unit in self.model.plan.circuit.units:
            below = [values[id(child)] for child in unit.inputs]
            match unit:
                case pc.Input():
                    family, params, column = self.inputs[id(unit)]
                    values[id(unit)] = unit.function.parents, _input(family, params, x[:, column])
                case pc.Product():
                    values[id(unit)] = _product(below)
                case pc.Sum():
                    names = below[0][0]
                    parts = torch.stack([_ordered(part, names) for part in below])
                    shape = (len(parts), *(self.model.states for _ in names), 1)
                    values[id(unit)] = names, self._reduce(parts * self.mixtures[id(unit)].view(shape), [0])
                case pc.Integral():
                    names, product = _product([*below, self.weights[id(unit)]])
                    rest = tuple(z for z in names if z not in unit.variables)
                    values[id(unit)] = rest, self._reduce(product, [names.index(z) for z in unit.variables])
        return values

    def prob(self, x: Tensor) -> Tensor:
        """The value of the root for every row."""
        return self.values(x)[id(self.model.plan.circuit.root)][1]

    def _reduce(self, values: Tensor, axes: list[int]) -> Tensor:
        return values.amax(axes) if self.best else values.sum(axes)


def _input(family: Family, params: Tensor, x: Tensor) -> Tensor:
    missing = x.isnan()
    return family.log_prob(params, x.masked_fill(missing, family.neutral)[None])[0].exp().masked_fill(missing, 1.0)


def _ordered(value: Named, names: Sequence[str]) -> Tensor:
    """The values with an axis for each of the names, in that order."""
    own, tensor = value
    tensor = tensor.permute(*sorted(range(len(own)), key=lambda i: names.index(own[i])), -1)
    for position, name in enumerate(names):
        if name not in own:
            tensor = tensor.unsqueeze(position)
    return tensor


def _product(values: Sequence[Named]) -> Named:
    names = tuple(dict.fromkeys(name for own, _ in values for name in own))
    return names, math.prod((_ordered(value, names) for value in values), start=torch.ones((), dtype=torch.float64))


@dataclass(frozen=True)
class Table:
    """A table circuit with random parameters.

    Attributes:
        structure: A latent tree or a region graph.
        inputs: The families.
        states: The number of states.
        product: How partitions combine.
    """

    structure: pc.LatentTree | pc.RegionGraph
    inputs: Family | tuple[Family, ...]
    states: int
    product: str = "cp"

    def model(self, seed: int = 0, states: int | None = None, sharpness: float = 1.5) -> pc.HCLT:
        """The model in double precision; input units have the same parameters wherever they are used."""
        generator = torch.Generator().manual_seed(seed)
        arguments = {"product": self.product, "generator": generator, "dtype": torch.float64}
        model = pc.HCLT(self.structure, self.inputs, states or self.states, **arguments)  # type: ignore[arg-type]
        with torch.no_grad():
            for parameter in model.parameters():
                parameter *= sharpness
            for (first, row), *others in parts_by_unit(model).values():
                for group, other in others:
                    model.inputs[group][other] = model.inputs[first][row]
        return model

    def qpc(self, seed: int = 0, states: int | None = None, dtype: torch.dtype = torch.float64) -> pc.QPC:
        """The circuit, without gradients."""
        with torch.no_grad():
            return self.model(seed, states).to(dtype)()

    def joint(self, seed: int = 0, states: int | None = None) -> Joint:
        """Everything that can happen, with its probability."""
        model = self.model(seed, states)
        return Joint(enumerate_values([f.values for f in model.families]), model)  # type: ignore[attr-defined]

    @property
    def variables(self) -> int:
        return self.structure.n_variables


class Joint:
    """A finite distribution as a list of all its values ``x`` (n, variables) and their probabilities ``p`` (n,)."""

    def __init__(self, x: Tensor, model: pc.HCLT | None = None, p: Tensor | None = None) -> None:
        assert (model is None) != (p is None)
        self.x = x
        self.p = p if model is None else Unfolded(model).prob(x)  # type: ignore[assignment]

    def matches(self, evidence: Tensor) -> Tensor:
        return ((self.x == evidence) | evidence.isnan()).all(1)

    def prob(self, evidence: Tensor) -> Tensor:
        """The probability of what is known, for a row of values or NaN."""
        return self.p[self.matches(evidence)].sum()

    def given(self, evidence: Tensor) -> Joint:
        p = self.p * self.matches(evidence)
        return Joint(self.x, p=p / p.sum())

    @cached_property
    def mean(self) -> Tensor:
        return self.p @ self.x

    @cached_property
    def covariance(self) -> Tensor:
        centred = self.x - self.mean
        return (centred.T * self.p) @ centred

    def marginal(self, column: int, value: float) -> Tensor:
        return self.p[self.x[:, column] == value].sum()

    def counts(self, samples: Tensor) -> Tensor:
        """How often each of the values was drawn."""
        place = {tuple(row.tolist()): i for i, row in enumerate(self.x)}
        numbers = torch.tensor([place[tuple(row.tolist())] for row in samples])
        return torch.bincount(numbers, minlength=len(self.x)).to(self.p)


def with_parameters(qpc: pc.QPC, **parts: Sequence[Tensor]) -> pc.QPC:
    """The same circuit with other numbers: ``weights``, ``mixtures`` or ``inputs``."""
    parameters = replace(qpc.parameters, **{name: tuple(tensors) for name, tensors in parts.items()})
    return pc.QPC(qpc.compiled, parameters, qpc.variables, qpc.families, qpc.grids, qpc.properties)


def line(reach: float = 28.0, points: int = 20001) -> tuple[Tensor, Tensor]:
    """Points and weights for integrals over all real numbers, also of functions with heavy tails: x = sinh(s)."""
    s = torch.linspace(-reach, reach, points, dtype=torch.float64)
    return s.sinh(), s.cosh() * (2 * reach / (points - 1))


def holes(x: Tensor, seed: int = 0, share: float = 0.5) -> Tensor:
    """The data with a different set of values missing in every row; nothing is known in the last one."""
    generator = torch.Generator().manual_seed(seed)
    missing = torch.rand(x.shape, generator=generator) < share
    missing[-1] = True
    return x.masked_fill(missing, math.nan)


def evidences(table: Table, rows: int = 6) -> Tensor:
    """Some evidence about the variables of a finite table circuit."""
    x = table.joint().x
    return holes(x[:: max(1, len(x) // rows)], seed=1)


def conditions(table: Table) -> Iterator[tuple[Tensor, Joint]]:
    """Rows of evidence with the distribution given each."""
    joint = table.joint()
    for evidence in evidences(table):
        yield evidence, joint.given(evidence)


# Three parts, two ways to split, a leaf with two variables, and a variable in two leaves.
HAND_MADE = pc.RegionGraph(
    scopes=((0,), (1,), (2, 3), (4,), (0, 4), (0, 1, 4), (0, 1, 2, 3, 4)),
    partitions=((), (), (), (), (), ((0, 1, 3), (1, 4)), ((2, 5), (0, 1, 2, 3))),
)
# Every region splits once, into three parts at the root.
THREE_PARTS = pc.RegionGraph(
    scopes=((0, 1), (2,), (3,), (4,), (2, 3), (0, 1, 2, 3, 4)), partitions=((), (), (), (), ((1, 2),), ((0, 4, 3),))
)
SEVERAL_A_LATENT = pc.LatentTree(parents=(-1, 0, 0, 1), variables=((), (0, 3), (1,), (2, 4)))
MIXED = (Bernoulli(), Categorical(3), Binomial(3), Categorical(2))

TABLES: dict[str, Table] = {
    "tree": Table(pc.random_tree(5, 0), Categorical(3), 4),
    "several_a_latent": Table(SEVERAL_A_LATENT, Categorical(3), 3),
    "chain_mixed": Table(pc.chain(4), MIXED, 3),
    "one_variable": Table(pc.chain(1), Categorical(4), 5),
    "one_state": Table(pc.random_tree(4, 1), Categorical(3), 1),
    "quad_tree": Table(pc.quad_tree(2, 3), Bernoulli(), 3),
    "quad_tree_tucker": Table(pc.quad_tree(2, 2), Categorical(3), 3, "tucker"),
    "quad_graph": Table(pc.quad_graph(2, 3), Categorical(2), 3),
    "quad_graph_mixed": Table(pc.quad_graph(2, 2), MIXED, 2),
    "quad_graph_tucker": Table(pc.quad_graph(2, 2), Categorical(3), 2, "tucker"),
    "random_regions": Table(pc.random_regions(5, 0, repetitions=3), Categorical(3), 2),
    "wide_leaves": Table(pc.random_regions(6, 1, repetitions=3, depth=1), Bernoulli(), 3),
    "one_region": Table(pc.random_regions(3, 0, depth=0), Categorical(3), 4),
    "hand_made": Table(HAND_MADE, Categorical(2), 3),
    "hand_made_tucker": Table(HAND_MADE, Categorical(2), 2, "tucker"),
    "three_parts": Table(THREE_PARTS, Categorical(3), 3),
    "three_parts_tucker": Table(THREE_PARTS, Bernoulli(), 2, "tucker"),
}

# The columns are not finite, so these are checked by numerical integration.
# Not too narrow and not too heavy in the tails for numerical integration.
MIXED_COLUMNS = (Gaussian(min_std=0.3), Laplace(min_scale=0.5), StudentT(0.3, 4.0), Poisson(), Categorical(3))
TREE_OF_COLUMNS = Table(pc.random_tree(5, 2), MIXED_COLUMNS, 3)
GRAPH_OF_COLUMNS = Table(pc.random_regions(5, 3, repetitions=2), MIXED_COLUMNS, 2)
COLUMNS: dict[str, Table] = {"tree_of_columns": TREE_OF_COLUMNS, "graph_of_columns": GRAPH_OF_COLUMNS}

each_table = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
each_of_columns = pytest.mark.parametrize("table", COLUMNS.values(), ids=COLUMNS.keys())


def columns_data(rows: int = 6, seed: int = 0) -> Tensor:
    """Values for the mixed columns, (rows, 5)."""
    generator = torch.Generator().manual_seed(seed)
    real = torch.randn(rows, 3, generator=generator, dtype=torch.float64)
    counts = torch.randint(4, (rows, 1), generator=generator)
    kinds = torch.randint(3, (rows, 1), generator=generator)
    return torch.cat([real, counts, kinds], 1)


def near(dtype: torch.dtype = torch.float64) -> dict[str, float]:
    """Tolerances for results of one dtype."""
    return {"rtol": 2e-4, "atol": 2e-5} if dtype == torch.float32 else {"rtol": 1e-9, "atol": 1e-10}
