# SPDX-License-Identifier: Apache-2.0
"""Circuit → QPC: place rules on the domains of the latents, evaluate the functions there, and assemble the parameters.

Static quadrature (Algorithm 1) uses the same points of a latent wherever it occurs, so that units are reused. Nested
quadrature (Algorithm A.2) lets the points of a latent depend on the values of its parents. A function of the latent is
then tabulated over the axes of all its ancestors, so the size is exponential in the depth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from picirc.compile.place import (
    SIGMAS,
    AnyRule,
    Domain,
    Interval,
    counting_grids,
    lineage,
    place,
    place_nested,
    rules_of,
    stated_domain,
)
from picirc.compile.plan import Latent, Plan, Slot, WeightBlock, make_plan
from picirc.engine.compiled import CompiledCircuit, Parameters
from picirc.engine.contraction import flushed
from picirc.engine.schedule import InputStep
from picirc.errors import ArgumentError, SizeError, StructureError
from picirc.functions import Density, FunctionFamily, MultivariateNormal, Parametric
from picirc.functions.conditional import modules_of
from picirc.inputs import Family
from picirc.qpc.distribution import QPC
from picirc.qpc.marginals import LatentGrid, LatentPosterior
from picirc.quadrature import Grid, Rule, gauss_legendre
from picirc.symbolic.build import Open
from picirc.symbolic.circuit import SymbolicCircuit
from picirc.symbolic.units import Input, Integral

LARGEST = 2**27  # elements of a tensor: one gigabyte in double precision


def integrate(
    circuit: SymbolicCircuit,
    rule: AnyRule | Mapping[str, AnyRule],
    sigmas: float | None,
    *,
    nested: bool,
    domain: Domain,
    like: Tensor,
    limit: int,
    on: Tensor | None,
) -> QPC:
    """Integrate a circuit by quadrature, with the arguments of ``Circuit.integrate``.

    The result has the dtype and device of ``like``.
    """
    rules, reach = rules_of(circuit, rule), reach_of(domain) if sigmas is None else sigmas
    remedy = "use fewer points, or another elimination order or network of lower width"
    if nested:
        if domain != "marginal":
            raise ArgumentError("domain", "no domain with nested=True", domain, "points follow the conditionals")
        _check_conditionals(circuit)
        remedy = "nested quadrature grows exponentially with depth: use fewer points, or leave out nested=True"
    cost = circuit.cost(rules, nested)
    if cost.largest > limit:
        raise SizeError(
            f"the circuit is too wide to materialise: {cost.widest} needs {cost.largest:.3g} numbers "
            f"({cost.largest * 8 / 2**30:.3g} GiB), the limit is {limit:.3g}; {remedy}."
        )
    if not reach > 0:
        raise ArgumentError("sigmas", "a positive number", sigmas)
    if nested:
        grids = place_nested(circuit, rules, reach)
    elif domain == "posterior" and on is not None:
        grids = _place_at_posterior(circuit, rules, on, reach)
    else:
        grids = place(circuit, rules, domain, reach)
    refine = partial(_refine, circuit, rules, reach, nested=nested, domain=domain, like=like, limit=limit, on=on)
    return assemble(circuit, grids, like, lineage(circuit) if nested else {}, refine)


def _refine(circuit: SymbolicCircuit, rules: Mapping[str, AnyRule], reach: float, **options: Any) -> QPC:
    """Integrate with 2.5 times the points on intervals that are a quarter wider.

    The wider intervals show what the ends of the narrower ones cut off.
    """
    finer = {z: rule.resize(5 * len(rule) // 2 + 1) for z, rule in rules.items()}
    return integrate(circuit, finer, 1.25 * reach, **options)


def reach_of(domain: Domain) -> float:
    """Return how many standard deviations a derived interval reaches by default."""
    return SIGMAS["worst" if domain == "worst" else "marginal"]


_ROUGH, _ROUNDS, _MOST_ROUGH = 64, 60, 2**20
_EDGE = 1e-3  # an interval is too short if its end carries more of the posterior than this


@dataclass(frozen=True)
class Located:
    """The posterior mean and standard deviation of a latent for each data point."""

    mean: Tensor
    std: Tensor

    def interval(self, sigmas: float, within: Interval | None) -> Interval:
        """Return the part of ``within`` that is at most ``sigmas`` standard deviations away from one of the means."""
        low, high = float((self.mean - sigmas * self.std).min()), float((self.mean + sigmas * self.std).max())
        return (max(low, within[0]), min(high, within[1])) if within else (low, high)


def locate_posterior(circuit: SymbolicCircuit, on: Tensor, domain: Domain = "marginal") -> dict[str, Located]:
    """Find the posterior of each scalar latent by moving and narrowing its interval.

    A coarse grid on the interval shows where the mass is. If it is at an end, the next interval reaches further out.
    While it is in a single cell, the next interval has the width of a few cells.
    """
    if circuit.dims:
        expected, got = 'latents that are numbers for domain="posterior"', f"the vector {next(iter(circuit.dims))!r}"
        raise ArgumentError("domain", expected, got, "use another domain")
    numbers = [z for z in circuit.latents if z not in circuit.discrete]
    points = _ROUGH
    while points > 16 and circuit.cost(gauss_legendre(points)).largest > _MOST_ROUGH:
        points //= 2
    rules = rules_of(circuit, gauss_legendre(points))
    given = domain if isinstance(domain, Mapping) else {}
    stated = {z: given.get(z) or stated_domain(circuit, z) for z in numbers}
    grids, found = place(circuit, rules, given, 9.0), dict[str, Located]()
    for _ in range(_ROUNDS):
        posteriors = assemble(circuit, grids).latents(on)
        after = dict[str, Interval]()
        for z in numbers:
            found[z], after[z] = _located(posteriors[z], grids[z], stated[z])
        converged = all(_close(after[z], grids[z]) for z in numbers)
        grids = place(circuit, rules, after, None)
        if converged:
            break
    return found


def _located(posterior: LatentPosterior, grid: Grid, stated: Interval | None) -> tuple[Located, Interval]:
    """Return what a grid shows of a posterior, and the interval to look at next."""
    assert posterior.mean is not None, "the latents have values"
    assert posterior.variance is not None
    found = Located(posterior.mean, posterior.variance.sqrt().clamp(min=float(grid.weights.max()) / 2))
    low, high = found.interval(9.0, None)
    width = float(grid.weights.sum())
    below, above = edge_mass(posterior)
    if below > _EDGE:
        low = min(low, float(grid.points.min()) - width)
    if above > _EDGE:
        high = max(high, float(grid.points.max()) + width)
    return found, (max(low, stated[0]), min(high, stated[1])) if stated else (low, high)


def edge_mass(posterior: LatentPosterior) -> tuple[float, float]:
    """Return the largest probability, over the data points, of the lowest and of the highest 5 % of the points."""
    count = max(1, posterior.probabilities.shape[1] // 20)
    sides = posterior.probabilities[:, :count], posterior.probabilities[:, -count:]
    below, above = (float(side.sum(1).max()) for side in sides)
    return below, above


def _close(interval: Interval, grid: Grid) -> bool:
    near = 0.2 * (interval[1] - interval[0])
    ends = float(grid.points.min()), float(grid.points.max())
    return all(abs(a - b) < near for a, b in zip(interval, ends, strict=True))


def _place_at_posterior(
    circuit: SymbolicCircuit, rules: Mapping[str, AnyRule], on: Tensor, sigmas: float
) -> dict[str, Grid]:
    """Place the rule of each latent where its posterior is, for all data points together.

    Gauss–Hermite is placed at the mean and standard deviation of the average posterior, other rules on an interval that
    covers every posterior.
    """
    grids = counting_grids(circuit)
    for z, found in locate_posterior(circuit, on).items():
        rule = rules[z]
        assert isinstance(rule, Rule)
        if math.isinf(rule.domain[1]):
            mean = found.mean.mean()
            spread = (found.std.square() + (found.mean - mean).square()).mean().sqrt()
            grids[z] = rule.at(float(mean), float(spread))
        else:
            grids[z] = rule.on(*found.interval(sigmas, stated_domain(circuit, z)))
    return grids


def _check_conditionals(circuit: SymbolicCircuit) -> None:
    for unit in circuit.units:
        if isinstance(unit, Integral) and [f.variables for f in unit.factors] != [unit.variables]:
            carried = " · ".join(f"p({', '.join(f.variables)} | …)" for f in unit.factors) or "nothing"
            raise StructureError(
                f"nested quadrature places points at the conditional density of each latent, but the unit "
                f"{circuit.names[unit]} carries {carried}; eliminate children before parents: "
                "from_bayesnet(net, order=net.children_first)."
            )
    for z, functions in circuit.densities.items():
        if len(functions) != 1:
            carried = "several densities" if functions else "a joint density with others only"
            raise StructureError(
                f"nested quadrature places points at the conditional density of each latent, but {z!r} has {carried}; "
                "leave out nested=True, or give different latents different names."
            )


@dataclass(frozen=True)
class Axis:
    """The grid of a latent, tabulated over the axes ``indices``: those of the latents it moves with, then its own.

    The points of a vector have a further axis, for its components.
    """

    indices: tuple[str, ...]
    points: Tensor
    weights: Tensor

    @property
    def size(self) -> int:
        """The number of points."""
        return self.weights.shape[-1]

    @property
    def dims(self) -> int:
        """The number of components; 0 for a scalar latent."""
        return self.points.shape[-1] if self.points.ndim > self.weights.ndim else 0

    def aligned(self, order: Sequence[str]) -> Tensor:
        """Return the points as a view that broadcasts over ``order``, with the components of a vector last."""
        if not self.dims:
            return _aligned(self.points, self.indices, order)
        return torch.stack([_aligned(part, self.indices, order) for part in self.points.unbind(-1)], -1)

    def over(self, order: Sequence[str], blank: Tensor) -> Tensor:
        """Return the points expanded over all axes of ``order``; ``blank`` holds zeros of that shape."""
        return self.aligned(order) + (blank.unsqueeze(-1) if self.dims else blank)


def assemble(
    circuit: SymbolicCircuit,
    grids: Mapping[str, Grid],
    like: Tensor | None = None,
    along: Mapping[str, tuple[str, ...]] | None = None,
    refine: Callable[[], QPC] | None = None,
) -> QPC:
    """Integrate a smooth and decomposable circuit on the given grids.

    Args:
        circuit: The circuit.
        grids: The grid of each latent.
        like: A tensor of the desired dtype and device; by default float64 on the CPU.
        along: The axes of a grid, the latent's own last; by default only its own.
        refine: Returns the same quadrature on a finer grid.
    """
    like = torch.zeros((), dtype=torch.float64) if like is None else like
    axes = {
        z: Axis(
            (along or {}).get(z, (z,)), torch.as_tensor(grid.points).to(like), torch.as_tensor(grid.weights).to(like)
        )
        for z, grid in grids.items()
    }
    sizes = {z: axis.size for z, axis in axes.items()}
    # Axes with the same number of points are of one kind.
    plan = make_plan(circuit, sizes, partial(family_of, circuit), lambda z: axes[z].indices)
    compiled = CompiledCircuit(plan.schedule, {size: size for size in sizes.values()})
    uses = list(zip(plan.inputs, plan.slots, strict=True))
    parameters = Parameters(
        tuple(_weights(circuit, block, axes, compiled) for block in plan.blocks),
        tuple(like.new_tensor([unit.weights for unit in units]).unsqueeze(-1) for units in plan.mixtures),
        tuple(torch.stack([_parameters(slot, step.family, axes, like) for slot in slots]) for step, slots in uses),
        tuple(_correlation(plan.slots[number], axes, like) for number in plan.blocks_of_inputs),
    )
    latents = [_latent_grid(at, axes[at.name], at.name in circuit.discrete) for at in plan.latents]
    return QPC(compiled, parameters, circuit.variables, _families(plan), latents, circuit.properties, refine)


def _latent_grid(at: Latent, axis: Axis, discrete: bool) -> LatentGrid:
    points = None if axis.dims else _aligned(axis.points, axis.indices, at.order)
    weights = _aligned(axis.weights, axis.indices, at.order)
    vectors = axis.points if axis.dims else None
    return LatentGrid(at.name, at.pool, at.row, at.axis, points, weights, vectors, discrete)


# For each kind of latents their points, `(N,)` or `(N, dims)`, and weights `(N,)`; points are None when states have no
# values.
KindGrids = Mapping[Hashable, tuple[Tensor | None, Tensor]]


def quadrature_of(
    plan: Plan,
    states: Mapping[Hashable, int],
    parameters: Parameters,
    grids: KindGrids | None = None,
    refine: Callable[[], QPC] | None = None,
    compiled: CompiledCircuit | None = None,
) -> QPC:
    """Return the QPC of a structure with the given parameters.

    Args:
        plan: The plan of the structure.
        states: The number of states of the latents of each kind.
        parameters: The parameters.
        grids: The grids of the latents of each kind; None when states are not points.
        refine: Returns the same circuit on a finer grid.
        compiled: The compiled circuit, if it is not the usual one of the plan.
    """
    assert plan.source is not None, "structures have families"
    families, circuit = plan.source[1], plan.circuit
    run = compiled or compiled_of(plan, states)
    return QPC(run, parameters, circuit.variables, families, _SameGrids(plan, grids), circuit.properties, refine)


def mixture_of(
    plan: Plan, parts: Sequence[Parameters], shares: Tensor, grids: KindGrids, refine: Callable[[], QPC]
) -> QPC:
    """Combine several circuits of one tree into one: they are the states of a latent that all functions depend on.

    Args:
        plan: The plan of the tree with such a latent.
        parts: The parameters of each circuit.
        shares: The probability of each circuit.
        grids: The grids of the latents of each kind, including ``SHARED``.
        refine: Returns the same circuit on a finer grid.
    """
    numbers = Parameters(
        (*(torch.cat(w, 1) for w in zip(*(p.weights for p in parts), strict=True)), shares.view(1, 1, 1, -1)),
        (),
        tuple(torch.cat(i, 1) for i in zip(*(p.inputs for p in parts), strict=True)),
        tuple(torch.stack(c) for c in zip(*(p.correlations for p in parts), strict=True)),
    )
    return quadrature_of(plan, sizes_of(grids), numbers, grids, refine)


def sum_of(
    plan: Plan, parts: Sequence[tuple[Plan, Parameters]], weights: Tensor, grids: KindGrids, refine: Callable[[], QPC]
) -> QPC:
    """Combine circuits of different trees into one: a sum unit mixes them.

    Args:
        plan: The plan of the mixture.
        parts: The plan and the parameters of each tree.
        weights: The weights of the trees.
        grids: The grids of the latents of each kind.
        refine: Returns the same circuit on a finer grid.
    """
    assert plan.source is not None, "structures have families"
    rows: dict[int, Tensor] = {}  # the sum weights of each latent
    steps: dict[tuple[int, int], tuple[InputStep, int]] = {}  # by tree and column the input step, and the row in it
    first = 0
    for number, (tree, (own, numbers)) in enumerate(zip(plan.source[0], parts, strict=True)):
        for block, tables in zip(own.blocks, numbers.weights, strict=True):
            for (unit, _, _), table in zip(block.integrals, tables, strict=True):
                rows[first + int(unit.variables[0][1:])] = table
        for step in own.inputs:
            steps |= {(number, column): (step, row) for row, column in enumerate(step.columns.tolist())}
        first += tree.n_latents
    inputs, correlations = [], []
    for step, slots in zip(plan.inputs, plan.slots, strict=True):
        function = slots[0].unit.function
        assert isinstance(function, Open), "structures have no functions"
        found = [steps[function.part, column] for column in step.columns.tolist()]
        source, numbers = found[0][0], parts[function.part][1]
        values = numbers.inputs[source.params]
        inputs.append(values if len(values) == 1 else values[[row for _, row in found]])
        if source.correlation is not None:
            correlations.append(numbers.correlations[source.correlation])
    numbers = Parameters(
        tuple(torch.stack([rows[int(unit.variables[0][1:])] for unit, _, _ in b.integrals]) for b in plan.blocks),
        (weights.view(1, -1, 1),),
        tuple(inputs),
        tuple(correlations),
    )
    return quadrature_of(plan, sizes_of(grids), numbers, grids, refine)


def sizes_of(grids: KindGrids) -> dict[Hashable, int]:
    """Return the number of states of each kind."""
    return {kind: len(weights) for kind, (_, weights) in grids.items()}


_compiled: WeakKeyDictionary[Plan, dict[frozenset[Any], CompiledCircuit]] = WeakKeyDictionary()
_KEPT_SIZES = 8  # compiled circuits that are kept for each plan


def compiled_of(plan: Plan, states: Mapping[Hashable, int]) -> CompiledCircuit:
    """Return the compiled circuit of a plan for the given number of states of each kind."""
    kept, sizes = _compiled.setdefault(plan, {}), frozenset(states.items())
    if sizes not in kept:
        kept[sizes] = CompiledCircuit(plan.schedule, states)
        while len(kept) > _KEPT_SIZES:
            del kept[next(iter(kept))]
    return kept[sizes]


@dataclass(frozen=True)
class _SameGrids:
    """The grids of latents, equal for all of one kind and made on demand: a circuit may have thousands."""

    plan: Plan
    grids: KindGrids | None

    def __iter__(self) -> Iterator[LatentGrid]:
        for at in self.plan.latents:
            kind = self.plan.schedule.pools[at.pool].kinds[at.axis]
            own, weight = (None, None) if self.grids is None else self.grids[kind]
            vectors = own if own is not None and own.ndim == 2 else None
            shape = [-1 if i == at.axis else 1 for i in range(len(at.order))]
            numbers = own if vectors is None else None
            points, weights = (None if t is None else t.view(shape) for t in (numbers, weight))
            yield LatentGrid(at.name, at.pool, at.row, at.axis, points, weights, vectors)


def _weights(
    circuit: SymbolicCircuit, block: WeightBlock, axes: Mapping[str, Axis], compiled: CompiledCircuit
) -> Tensor:
    """Return ``weight(z) · ∏ factors`` for every integral of a block, ``(rows, g, o, z)``."""
    shape = compiled.shape(block.shared + block.new + block.integrated)
    rows = []
    for unit, shared, new in block.integrals:
        order = shared + new + unit.variables
        total = sum(_aligned(axes[z].weights.log(), axes[z].indices, order) for z in unit.variables)
        for factor in unit.factors:
            log_density = getattr(factor.function, "log_density", None)
            if log_density is None:
                expected = f"a density with a method log_density at the unit {circuit.names[unit]}"
                raise ArgumentError("function", expected, factor.function, "use pc.Density")
            total = total + log_density(*(axes[z].aligned(order) for z in factor.latents))
        assert isinstance(total, Tensor)
        rows.append(flushed(total.expand(shape).exp()))
    kinds = (block.shared, block.new, block.integrated)
    return torch.stack(rows).reshape(len(rows), *(math.prod(compiled.shape(k)) for k in kinds))


def _aligned(values: Tensor, indices: Sequence[str], order: Sequence[str]) -> Tensor:
    """Return values over ``indices`` as a view that broadcasts over ``order``."""
    values = values.permute(sorted(range(len(indices)), key=lambda i: order.index(indices[i])))
    for position, index in enumerate(order):
        if index not in indices:
            values = values.unsqueeze(position)
    return values


def _families(plan: Plan) -> list[Family]:
    """Return the family of each variable.

    The parts of a mixture may have different continuous families, of which the first is returned, but only one discrete
    family.
    """
    uses = [(slot, step.family) for slots, step in zip(plan.slots, plan.inputs, strict=True) for slot in slots]
    found: dict[str, Family] = {}
    for slot, family in sorted(uses, key=lambda use: (use[0].pool, use[0].row)):
        known = found.setdefault(slot.variable, family)
        if known != family and (known.discrete or family.discrete):
            expected = f"one discrete family, or continuous ones only, for the variable {slot.variable!r}"
            raise ArgumentError("circuit", expected, f"{known!r} and {family!r}")
    return [found[variable] for variable in plan.circuit.variables]


def _parameters(slot: Slot, family: Family, axes: Mapping[str, Axis], like: Tensor) -> Tensor:
    """Return the parameters ``(states, P)`` of an input at the points of its parents."""
    function = slot.unit.function
    blank = like.new_zeros([axes[index].size for index in slot.order])
    # Observed parents are filled in for each data point.
    points = [axes[z].over(slot.order, blank) if z in axes else blank for z in function.parents]
    if isinstance(family, FunctionFamily):
        if isinstance(function, Density) and axes.keys() >= set(function.parents):
            _check_learnable(function, [value for value in points if value.ndim == blank.ndim])
        columns = [value.unsqueeze(-1) if value.ndim == blank.ndim else value for value in points or [blank]]
        joined = torch.cat(columns, -1)
        return joined.reshape(-1, joined.shape[-1])
    if isinstance(function, MultivariateNormal):
        mean, covariance = function.moments(*points)
        place = slot.unit.variables.index(slot.variable)
        parts = [mean[..., place].expand(blank.shape), covariance[..., place, place].expand(blank.shape).sqrt()]
        return torch.stack([part.to(blank.dtype) for part in parts], -1).reshape(-1, 2)
    assert isinstance(function, Parametric)
    params = function.parameters(*points)
    return params.expand(*blank.shape, family.size).reshape(-1, family.size).to(blank.dtype)


def _correlation(slots: Sequence[Slot], axes: Mapping[str, Axis], like: Tensor) -> Tensor:
    """Return the correlation matrix of a joint input ``(m, m)``; one for each state if it depends on the parents."""
    unit, order = slots[0].unit, slots[0].order
    assert isinstance(unit.function, MultivariateNormal)
    blank = like.new_zeros([axes[index].size for index in order])
    _, covariance = unit.function.moments(*(axes[z].over(order, blank) for z in unit.function.parents))
    std = covariance.diagonal(dim1=-2, dim2=-1).sqrt()
    matrix = (covariance / std.unsqueeze(-1) / std.unsqueeze(-2)).to(like)
    chosen = [unit.variables.index(slot.variable) for slot in slots]
    matrix = matrix[..., chosen, :][..., :, chosen]
    return matrix if matrix.ndim == 2 else matrix.expand(*blank.shape, -1, -1).reshape(-1, *matrix.shape[-2:])


def _check_learnable(function: Density, parents: Sequence[Tensor]) -> None:
    """Raise if a density has parameters but is not computed by a module, because ``fit`` would not find them."""
    low, high = function.domain
    inside = max(low, min(high, 0.0))
    if not modules_of(function) and torch.is_grad_enabled() and parents and len(parents) == len(function.parents):
        at = [parent.detach().flatten()[:1] for parent in parents]
        if function.log_density(at[0].new_full((1,), inside), *at).requires_grad:
            raise ArgumentError(
                "log_density", "a torch.nn.Module that holds the parameters to learn", "a function that uses them",
                "write pc.Density(module, ...)",
            )  # fmt: skip


def family_of(circuit: SymbolicCircuit, unit: Input) -> Family:
    """Return the family of an input unit.

    A function of observed variables becomes a family whose parameters are filled in for each data point.
    """
    function = unit.function
    observed = any(parent in circuit.variables for parent in function.parents)
    dims = tuple(circuit.dims.get(parent, 0) for parent in function.parents)
    match function:
        case MultivariateNormal() if observed:
            expected = f"a joint density of {', '.join(unit.variables)} given latents only"
            remedy = "write one density for each variable, conditioned on those before it"
            raise ArgumentError("function", expected, f"observed parents of {function!r}", remedy)
        case Density() | Parametric() if observed or isinstance(function, Density):
            return FunctionFamily(function, dims)
        case Parametric() | MultivariateNormal():
            return function.family
    expected = "pc.LinearGaussian, pc.Conditional, pc.Discrete, pc.MultivariateNormal or pc.Density for an input unit"
    raise ArgumentError("function", expected, function)
