# SPDX-License-Identifier: Apache-2.0
"""Circuit → QPC: place rules on the latents' domains, evaluate the functions there, and put the numbers together.

`integrate_static` is Algorithm 1: the same points for a latent wherever it occurs, so that units are re-used.

`integrate_nested` is Algorithm A.2: points that follow the integrand, at the price of exponential size. The points of a
latent depend on the values of its parents, so a function of it is tabulated over the axes of all its ancestors. That is
an ordinary program in which the weights share those axes with the rows.
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
from picirc.errors import ArgumentError, SizeError, StructureError
from picirc.functions import Density, FunctionFamily, MultivariateNormal, Parametric
from picirc.functions.conditional import modules_of
from picirc.inputs import Family
from picirc.qpc.distribution import QPC
from picirc.qpc.marginals import LatentGrid, LatentPosterior
from picirc.quadrature import Grid, Rule, gauss_legendre
from picirc.symbolic.build import SHARED
from picirc.symbolic.circuit import Cost, SymbolicCircuit
from picirc.symbolic.units import Input, Integral

# 2²⁷ numbers in double precision are one gigabyte.
LARGEST = 2**27


def integrate_static(
    circuit: SymbolicCircuit,
    rule: AnyRule | Mapping[str, AnyRule],
    domain: Domain = "marginal",
    sigmas: float | None = None,
    like: Tensor | None = None,
    limit: int = LARGEST,
    on: Tensor | None = None,
) -> QPC:
    """Static quadrature of a circuit, with the arguments of ``Circuit.integrate``.

    Derived intervals reach 6 standard deviations by default, and 3 for ``domain="worst"``. ``like`` has the wanted
    dtype and device; by default float64 on the CPU.
    """
    rules = rules_of(circuit, rule)
    check_size(circuit.cost(rules), limit, "use fewer points, or another elimination order or network of lower width")
    if domain == "posterior":
        assert on is not None, "checked before"
        grids = place_at_posterior(circuit, rules, on, SIGMAS["marginal"] if sigmas is None else sigmas)
    else:
        grids = place(circuit, rules, domain, sigmas)
    like = torch.zeros((), dtype=torch.float64) if like is None else like
    axes = make_axes(grids, lambda z: (z,), like.dtype, like.device)
    return assemble(circuit, axes, like, partial(_refine_static, circuit, rules, domain, sigmas, like, limit, on))


def _refine_static(
    circuit: SymbolicCircuit,
    rules: Mapping[str, AnyRule],
    domain: Domain,
    sigmas: float | None,
    like: Tensor,
    limit: int,
    on: Tensor | None,
) -> QPC:
    """More than twice the points on intervals a quarter wider, so that what the ends cut off is seen too."""
    reach = 1.25 * (reach_of(domain) if sigmas is None else sigmas)
    return integrate_static(circuit, _finer(rules), domain, reach, like, limit, on)


def reach_of(domain: Domain) -> float:
    """How many standard deviations derived intervals reach by default."""
    return SIGMAS.get(domain, SIGMAS["marginal"]) if isinstance(domain, str) else SIGMAS["marginal"]


def _finer(rules: Mapping[str, AnyRule]) -> dict[str, AnyRule]:
    """The same rules with more points."""
    return {z: rule.resize(5 * len(rule) // 2 + 1) for z, rule in rules.items()}


_ROUGH, _ROUNDS, _MOST_ROUGH = 64, 60, 2**20
_EDGE = 1e-3  # of the posterior at an end of an interval, which is then too short


@dataclass(frozen=True)
class Located:
    """Where the posterior of a latent is: its mean and standard deviation for each data point."""

    mean: Tensor
    std: Tensor

    def interval(self, sigmas: float, within: Interval | None) -> Interval:
        """What lies within ``sigmas`` standard deviations of one of the means, and inside the latent's domain."""
        low, high = float((self.mean - sigmas * self.std).min()), float((self.mean + sigmas * self.std).max())
        return (max(low, within[0]), min(high, within[1])) if within else (low, high)


def locate_posterior(circuit: SymbolicCircuit, on: Tensor, domain: Domain = "marginal") -> dict[str, Located]:
    """Find the posterior of each latent that is a number, by moving and narrowing its interval.

    A grid of a few points on the interval shows where the mass is. If it is at an end, the next interval reaches
    further out. While it is in a single cell, the next interval has the width of some cells.
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
        posteriors = _on_grids(circuit, grids).latents(on)
        after = dict[str, Interval]()
        for z in numbers:
            found[z], after[z] = _located(posteriors[z], grids[z], stated[z])
        still = all(_close(after[z], grids[z]) for z in numbers)
        grids = place(circuit, rules, after, None)
        if still:
            break
    return found


def _on_grids(circuit: SymbolicCircuit, grids: Mapping[str, Grid]) -> QPC:
    like = torch.zeros((), dtype=torch.float64)
    return assemble(circuit, make_axes(grids, lambda z: (z,), like.dtype, like.device), like, None)


def _located(posterior: LatentPosterior, grid: Grid, stated: Interval | None) -> tuple[Located, Interval]:
    """What a grid shows of a posterior, and the interval to look at next."""
    assert posterior.mean is not None, "the latents have values"
    assert posterior.variance is not None
    found = Located(posterior.mean, posterior.variance.sqrt().clamp(min=float(grid.weights.max()) / 2))
    low, high = found.interval(9.0, stated)
    width = float(grid.weights.sum())
    below, above = edge_mass(posterior)
    ends = (float(grid.points.min()) - width, float(grid.points.max()) + width)
    low, high = (min(low, ends[0]) if below > _EDGE else low), (max(high, ends[1]) if above > _EDGE else high)
    return found, (max(low, stated[0]), min(high, stated[1])) if stated else (low, high)


def edge_mass(posterior: LatentPosterior) -> tuple[float, float]:
    """The probability of the lowest and of the highest twentieth of a latent's points, for the worst data point."""
    count = max(1, posterior.probabilities.shape[1] // 20)
    sides = posterior.probabilities[:, :count], posterior.probabilities[:, -count:]
    below, above = (float(side.sum(1).max()) for side in sides)
    return below, above


def _close(interval: Interval, grid: Grid) -> bool:
    near = 0.2 * (interval[1] - interval[0])
    ends = float(grid.points.min()), float(grid.points.max())
    return all(abs(a - b) < near for a, b in zip(interval, ends, strict=True))


def place_at_posterior(
    circuit: SymbolicCircuit, rules: Mapping[str, AnyRule], on: Tensor, sigmas: float
) -> dict[str, Grid]:
    """Rules at the posterior of each latent given the data: one at a time, all data points together.

    Gauss–Hermite is placed at mean and standard deviation of the average posterior, other rules on an interval that
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


def integrate_nested(
    circuit: SymbolicCircuit,
    rule: AnyRule | Mapping[str, AnyRule],
    sigmas: float = 6.0,
    like: Tensor | None = None,
    limit: int = LARGEST,
) -> QPC:
    """Nested quadrature of a circuit whose integral units carry one conditional density each.

    The arguments are those of ``Circuit.integrate``. Gauss–Hermite is placed at each conditional's mean and standard
    deviation, other rules on mean ± ``sigmas`` standard deviations.
    """
    rules = rules_of(circuit, rule)
    _check_conditionals(circuit)
    check_size(
        circuit.cost(rules, nested=True),
        limit,
        "nested quadrature grows exponentially with depth: use fewer points, or leave out nested=True",
    )
    if not sigmas > 0:
        raise ArgumentError("sigmas", "a positive number", sigmas)
    like = torch.zeros((), dtype=torch.float64) if like is None else like
    grids = place_nested(circuit, rules, sigmas)
    axes = make_axes(grids, lineage(circuit).__getitem__, like.dtype, like.device)
    return assemble(circuit, axes, like, partial(_refine_nested, circuit, rules, sigmas, like, limit))


def _refine_nested(
    circuit: SymbolicCircuit, rules: Mapping[str, AnyRule], sigmas: float, like: Tensor, limit: int
) -> QPC:
    return integrate_nested(circuit, _finer(rules), 1.25 * sigmas, like, limit)


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
    """The grid of a latent: points and weights over its own axis and those of the latents it moves with.

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
        """The number of components, 0 for a latent that is a number."""
        return self.points.shape[-1] if self.points.ndim > self.weights.ndim else 0

    def aligned(self, order: Sequence[str]) -> Tensor:
        """The points as a view that broadcasts over ``order``, with the components of a vector last."""
        if not self.dims:
            return _aligned(self.points, self.indices, order)
        return torch.stack([_aligned(part, self.indices, order) for part in self.points.unbind(-1)], -1)


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
    sizes = {z: axis.size for z, axis in axes.items()}
    # Axes with equally many points are of one kind.
    plan = make_plan(circuit, sizes, partial(family_of, circuit), lambda z: axes[z].indices)
    compiled = CompiledCircuit(plan.schedule, {size: size for size in sizes.values()})
    parameters = Parameters(
        tuple(_weights(circuit, block, axes, compiled) for block in plan.blocks),
        tuple(like.new_tensor([unit.weights for unit in units]).unsqueeze(-1) for units in plan.mixtures),
        tuple(_input_parameters(plan, number, axes, like) for number in range(len(plan.inputs))),
        tuple(_correlation(plan, number, axes, like) for number in plan.blocks_of_inputs),
    )
    latents = [_latent_grid(at, axes[at.name], at.name in circuit.discrete) for at in plan.latents]
    return QPC(compiled, parameters, circuit.variables, _families(plan), latents, circuit.properties, refine)


def _latent_grid(at: Latent, axis: Axis, discrete: bool) -> LatentGrid:
    weights = _aligned(axis.weights, axis.indices, at.order)
    where = (at.name, at.pool, at.row, at.axis)
    if axis.dims:
        return LatentGrid(*where, None, weights, axis.points)
    return LatentGrid(*where, _aligned(axis.points, axis.indices, at.order), weights, discrete=discrete)


# The points of the latents of a kind, `(N,)`, or `(N, dims)` for vectors, and their weights `(N,)`; points are None
# when states have no values.
KindGrids = Mapping[Hashable, tuple[Tensor | None, Tensor]]


def quadrature_of(
    plan: Plan,
    states: Mapping[Hashable, int],
    parameters: Parameters,
    grids: KindGrids | None = None,
    refine: Callable[[], QPC] | None = None,
    compiled: CompiledCircuit | None = None,
) -> QPC:
    """The circuit of a structure with the given numbers.

    Args:
        plan: The plan of the structure.
        states: The number of states of the latents of each kind.
        parameters: The numbers.
        grids: The grids of the latents of each kind; None when states are not points.
        refine: Makes the same circuit on a finer grid.
        compiled: What runs it, if it is not the usual one.
    """
    assert plan.source is not None, "structures have families"
    _, families, *_ = plan.source
    latents = _SameGrids(plan, grids)
    circuit = plan.circuit
    run = compiled or compiled_of(plan, states)
    return QPC(run, parameters, circuit.variables, families, latents, circuit.properties, refine)


def mixture_of(
    plan: Plan,
    parts: Sequence[Parameters],
    grids: KindGrids,
    refine: Callable[[], QPC],
) -> QPC:
    """Several circuits of one tree as one: they are the states of a latent that all functions depend on.

    Args:
        plan: The plan of the tree with such a latent.
        parts: The numbers of each of the M circuits.
        grids: The grids of the latents of each kind, ``SHARED`` among them.
        refine: Makes the same circuit on a finer grid.
    """
    numbers = Parameters(
        (*(torch.cat(w, 1) for w in zip(*(p.weights for p in parts), strict=True)), grids[SHARED][1].view(1, 1, 1, -1)),
        (),
        tuple(torch.cat(i, 1) for i in zip(*(p.inputs for p in parts), strict=True)),
        tuple(torch.stack(c) for c in zip(*(p.correlations for p in parts), strict=True)),
    )
    return quadrature_of(plan, sizes_of(grids), numbers, grids, refine)


def sizes_of(grids: KindGrids) -> dict[Hashable, int]:
    """The number of states of each kind."""
    return {kind: len(weights) for kind, (_, weights) in grids.items()}


_compiled: WeakKeyDictionary[Plan, dict[frozenset[Any], CompiledCircuit]] = WeakKeyDictionary()
_KEPT_SIZES = 8  # numbers of states for which the compiled circuit of a plan is kept


def compiled_of(plan: Plan, states: Mapping[Hashable, int]) -> CompiledCircuit:
    """The compiled circuit of a structure, for the number of states of the latents of each kind."""
    kept, sizes = _compiled.setdefault(plan, {}), frozenset(states.items())
    if sizes not in kept:
        kept[sizes] = CompiledCircuit(plan.schedule, states)
        while len(kept) > _KEPT_SIZES:
            del kept[next(iter(kept))]
    return kept[sizes]


@dataclass(frozen=True)
class _SameGrids:
    """The grids of latents, the same for all of one kind, made on demand: circuits have thousands."""

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
    """``weight(z) · ∏ factors`` for every integral of a block, ``(rows, g, o, z)``."""
    rows = []
    for unit, shared, new in block.integrals:
        order = shared + new + unit.variables
        total = sum(_aligned(axes[z].weights.log(), axes[z].indices, order) for z in unit.variables)
        for factor in unit.factors:
            points = [axes[z].aligned(order) for z in factor.latents]
            total = total + _log_density(factor.function, circuit.names[unit])(*points)
        assert isinstance(total, Tensor)
        shape = compiled.shape(block.shared + block.new + block.integrated)
        rows.append(flushed(total.expand(shape).exp()))
    stacked = torch.stack(rows)
    kinds = (block.shared, block.new, block.integrated)
    return stacked.reshape(len(rows), *(math.prod(compiled.shape(k)) for k in kinds))


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


def _families(plan: Plan) -> list[Family]:
    """The family of each variable: the first of its inputs, if the parts of a mixture have several."""
    uses = [
        (slot.pool, slot.row, slot.variable, step.family)
        for slots, step in zip(plan.slots, plan.inputs, strict=True)
        for slot in slots
    ]
    found: dict[str, Family] = {}
    for _, _, variable, family in sorted(uses, key=lambda use: use[:2]):
        _check_family(variable, found.setdefault(variable, family), family)
    return [found[variable] for variable in plan.circuit.variables]


def _check_family(variable: str, known: Family, family: Family) -> None:
    """The parts of a mixture may have different continuous families, but only one and the same discrete one."""
    if known != family and (known.discrete or family.discrete):
        expected = f"one discrete family, or continuous ones only, for the variable {variable!r}"
        raise ArgumentError("circuit", expected, f"{known!r} and {family!r}")


def _input_parameters(plan: Plan, number: int, axes: Mapping[str, Axis], like: Tensor) -> Tensor:
    """The parameters of an input step at the points of the inputs' parents, ``(inputs, states, P)``."""
    return torch.stack([_parameters(slot, plan.inputs[number].family, axes, like) for slot in plan.slots[number]])


def _parameters(slot: Slot, family: Family, axes: Mapping[str, Axis], like: Tensor) -> Tensor:
    """The parameters ``(states, P)`` of an input at the points of its parents."""
    function = slot.unit.function
    blank = like.new_zeros([axes[index].size for index in slot.order])
    if isinstance(family, FunctionFamily):
        return _parent_values(slot, axes, blank)
    points = [_spread(axes[z], slot.order, blank) for z in function.parents]
    if isinstance(function, MultivariateNormal):
        mean, covariance = function.moments(*points)
        place = slot.unit.variables.index(slot.variable)
        parts = [mean[..., place].expand(blank.shape), covariance[..., place, place].expand(blank.shape).sqrt()]
        return torch.stack([part.to(blank.dtype) for part in parts], -1).reshape(-1, 2)
    assert isinstance(function, Parametric)
    params = function.parameters(*points)
    return params.expand(*blank.shape, family.size).reshape(-1, family.size).to(blank.dtype)


def _spread(axis: Axis, order: Sequence[str], blank: Tensor) -> Tensor:
    """The points of a parent over all axes of an input."""
    points = axis.aligned(order)
    return points + (blank.unsqueeze(-1) if axis.dims else blank)


def _parent_values(slot: Slot, axes: Mapping[str, Axis], blank: Tensor) -> Tensor:
    """The points of the parents as parameters; those that the data have are filled in for each data point."""
    function = slot.unit.function
    values = [_spread(axes[z], slot.order, blank) if z in axes else blank for z in function.parents]
    if isinstance(function, Density) and not set(slot.unit.function.parents) - axes.keys():
        _check_learnable(function, [value for value in values if value.ndim == blank.ndim])
    columns = [value.unsqueeze(-1) if value.ndim == blank.ndim else value for value in values] or [blank.unsqueeze(-1)]
    joined = torch.cat(columns, -1)
    return joined.reshape(-1, joined.shape[-1])


def _correlation(plan: Plan, number: int, axes: Mapping[str, Axis], like: Tensor) -> Tensor:
    """The correlation matrix of a joint input ``(m, m)``; one for each state if it depends on the parents."""
    slot = plan.slots[number][0]
    function = slot.unit.function
    assert isinstance(function, MultivariateNormal)
    blank = like.new_zeros([axes[index].size for index in slot.order])
    _, covariance = function.moments(*(_spread(axes[z], slot.order, blank) for z in function.parents))
    std = covariance.diagonal(dim1=-2, dim2=-1).sqrt()
    matrix = (covariance / std.unsqueeze(-1) / std.unsqueeze(-2)).to(like)
    order = [slot.unit.variables.index(other.variable) for other in plan.slots[number]]
    matrix = matrix[..., order, :][..., :, order]
    return matrix if matrix.ndim == 2 else matrix.expand(*blank.shape, -1, -1).reshape(-1, *matrix.shape[-2:])


def _check_learnable(function: Density, parents: Sequence[Tensor]) -> None:
    """Refuse a density that learns, but is not computed by a module: ``fit`` would not find its parameters."""
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
    """The family of an input unit; one that is evaluated for each data point if it depends on observed variables."""
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
