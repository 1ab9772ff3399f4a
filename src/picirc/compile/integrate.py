# SPDX-License-Identifier: Apache-2.0
"""Circuit → QPC: place rules on the latents' domains, evaluate the functions there, and put the numbers together.

`integrate_static` is Algorithm 1: the same points for a latent wherever it occurs, so that units are re-used.

`integrate_nested` is Algorithm A.2: points that follow the integrand, at the price of exponential size. The points of a
latent depend on the values of its parents, so a function of it is tabulated over the axes of all its ancestors. That is
an ordinary program in which the weights share those axes with the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, singledispatch
from numbers import Real
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from picirc.compile.plan import STATES, Latent, Plan, WeightBlock, make_plan
from picirc.engine.compiled import CompiledCircuit, Parameters
from picirc.engine.contraction import flushed
from picirc.errors import ArgumentError, SizeError, StructureError
from picirc.functions import Conditional, Density, LinearGaussian
from picirc.functions.density import modules_of
from picirc.inputs import Family, FunctionFamily, Gaussian
from picirc.qpc.distribution import QPC
from picirc.qpc.latents import LatentGrid
from picirc.quadrature import Grid, Rule
from picirc.symbolic.build import SHARED
from picirc.symbolic.circuit import Cost, SymbolicCircuit
from picirc.symbolic.units import Input, Integral

# 2²⁷ numbers in double precision are one gigabyte.
LARGEST = 2**27


Interval = tuple[float, float]
Domain = str | Mapping[str, Interval]

# The paper covers ±3σ of every conditional; the marginal's interval can afford to lose less.
_SIGMAS = {"worst": 3.0, "marginal": 6.0}


def integrate_static(
    circuit: SymbolicCircuit,
    rule: Rule | Mapping[str, Rule],
    domain: Domain = "marginal",
    sigmas: float | None = None,
    like: Tensor | None = None,
    limit: int = LARGEST,
) -> QPC:
    """Static quadrature of a circuit.

    Args:
        circuit: The circuit.
        rule: A rule for all latents, or one for each.
        domain: ``"marginal"``, ``"worst"`` (the paper's), or intervals for some latents (the others: marginal).
        sigmas: How many standard deviations derived intervals reach; by default 6 (marginal) and 3 (worst).
        like: A tensor of the wanted dtype and device; float64 on the CPU by default.
        limit: The largest number of elements that a tensor may have.
    """
    rules = rules_of(circuit, rule)
    check_size(circuit.cost(rules), limit, "use fewer points, or another elimination order or network of lower width")
    grids = place(circuit, rules, domain, sigmas)
    like = torch.zeros((), dtype=torch.float64) if like is None else like
    axes = make_axes(grids, lambda z: (z,), like.dtype, like.device)

    return assemble(circuit, axes, like, partial(_refine_static, circuit, rules, domain, sigmas, like, limit))


def _refine_static(
    circuit: SymbolicCircuit,
    rules: Mapping[str, Rule],
    domain: Domain,
    sigmas: float | None,
    like: Tensor,
    limit: int,
) -> QPC:
    """More than twice the points on intervals a quarter wider, so that what the ends cut off is seen too."""
    choice = domain if isinstance(domain, str) else "marginal"
    reach = 1.25 * (_SIGMAS[choice] if sigmas is None else sigmas)
    return integrate_static(circuit, _finer(rules), domain, reach, like, limit)


def _finer(rules: Mapping[str, Rule]) -> dict[str, Rule]:
    return {z: rule.resize(5 * len(rule) // 2 + 1) for z, rule in rules.items()}


def place(circuit: SymbolicCircuit, rules: Mapping[str, Rule], domain: Domain, sigmas: float | None) -> dict[str, Grid]:
    """Place a rule for each latent on its domain."""
    given = dict(domain) if isinstance(domain, Mapping) else {}
    unknown = set(given) - set(circuit.latents)
    choice = "marginal" if isinstance(domain, Mapping) else domain
    if choice not in _SIGMAS or unknown:
        came = ", ".join(sorted(unknown)) if unknown else domain
        expected = f'"marginal", "worst", or intervals for latents ({", ".join(circuit.latents)})'
        raise ArgumentError("domain", expected, came)
    for z, interval in given.items():
        _check_interval(z, interval)
    reach = _SIGMAS[choice] if sigmas is None else sigmas
    if not reach > 0:
        raise ArgumentError("sigmas", "a positive number", sigmas)
    chooser = marginal_grids if choice == "marginal" else worst_case_grids
    return chooser(circuit, rules, reach, given)


def _check_interval(z: str, interval: object) -> None:
    match interval:
        case (Real() as low, Real() as high) if -math.inf < float(low) < float(high) < math.inf:
            return
    raise ArgumentError("domain", f"a finite interval (low, high) for the latent {z!r}", interval)


def rules_of(circuit: SymbolicCircuit, rule: object) -> dict[str, Rule]:
    """One rule for each latent."""
    rules: dict[str, Any] = dict(rule) if isinstance(rule, Mapping) else dict.fromkeys(circuit.latents, rule)
    if set(rules) != set(circuit.latents):
        expected = f"a rule for each latent ({', '.join(circuit.latents)})"
        raise ArgumentError("rule", expected, f"rules for {', '.join(map(str, rules)) or 'none'}")
    for one in rules.values():
        if not isinstance(one, Rule):
            raise ArgumentError("rule", "a quadrature rule such as pc.trapezoidal(64)", one)
        if (one.weights < 0).any():
            raise ArgumentError("rule", "weights that are not negative, so that sums are probabilities", one.name)
    return rules


def integrate_nested(
    circuit: SymbolicCircuit,
    rule: Rule | Mapping[str, Rule],
    sigmas: float = 6.0,
    like: Tensor | None = None,
    limit: int = LARGEST,
) -> QPC:
    """Nested quadrature of a circuit whose integral units carry one conditional density each.

    Args:
        circuit: The circuit.
        rule: A rule for all latents, or one for each. Gauss–Hermite is placed at each conditional's mean and standard
            deviation, the others on mean ± ``sigmas`` standard deviations.
        sigmas: The reach of intervals.
        like: A tensor of the wanted dtype and device; float64 on the CPU by default.
        limit: The largest number of elements that a tensor may have.
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
    rank = {z: i for i, z in enumerate(circuit.parents_first)}
    lineage = {z: tuple(sorted(circuit.lineage[z], key=rank.__getitem__)) for z in circuit.latents}
    like = torch.zeros((), dtype=torch.float64) if like is None else like
    grids: dict[str, Grid] = {}
    for z in circuit.parents_first:
        grids[z] = _place_nested(circuit, z, rules[z], sigmas, grids, lineage)
    axes = make_axes(grids, lineage.__getitem__, like.dtype, like.device)
    return assemble(circuit, axes, like, partial(_refine_nested, circuit, rules, sigmas, like, limit))


def _refine_nested(circuit: SymbolicCircuit, rules: Mapping[str, Rule], sigmas: float, like: Tensor, limit: int) -> QPC:
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


def _place_nested(
    circuit: SymbolicCircuit,
    z: str,
    rule: Rule,
    sigmas: float,
    grids: Mapping[str, Grid],
    lineage: Mapping[str, tuple[str, ...]],
) -> Grid:
    """The rule at every combination of the ancestors' points, over the axes ``lineage[z]``."""
    (function,) = circuit.densities[z]
    above = lineage[z][:-1]
    parents = [torch.as_tensor(_over(grids[p].points, lineage[p], above)) for p in function.parents]
    shape = np.broadcast_shapes(*(p.shape for p in parents)) if parents else ()
    if isinstance(function, LinearGaussian):
        mean, std = function.mean(*parents), torch.tensor(function.std, dtype=torch.float64)
    elif isinstance(function, Density) and function.moments is not None:
        mean, std = function.moments(*parents)
    elif isinstance(function, Density) and not math.isinf(function.domain[1] - function.domain[0]):
        low, high = (np.full(shape, end) for end in function.domain)
        return rule.on(low, high)
    else:
        raise ArgumentError("function", f"moments or a finite domain for the latent {z!r}", function)
    centre, reach = (np.broadcast_to(np.asarray(v, dtype=np.float64), shape) for v in (mean, std))
    if math.isinf(rule.domain[1]):
        return rule.at(centre, reach)
    return rule.on(centre - sigmas * reach, centre + sigmas * reach)


def _over(points: np.ndarray, indices: tuple[str, ...], order: tuple[str, ...]) -> np.ndarray:
    """Points over ``indices`` as a view over ``order``, of which ``indices`` is a subsequence."""
    return points[tuple(slice(None) if index in indices else None for index in order)]


@dataclass(frozen=True)
class Spread:
    """A latent as ``constant + Σ a_j ε_j + Σ c_k u_k`` with independent standard normal ε and u_k in intervals."""

    constant: float
    noise: Mapping[str, float]
    bounded: Mapping[str, float]

    @property
    def std(self) -> float:
        """The standard deviation of the Gaussian part."""
        return math.sqrt(sum(a * a for a in self.noise.values()))

    def interval(self, domains: Mapping[str, Interval], sigmas: float) -> Interval:
        """Mean ± ``sigmas`` standard deviations, over all values of the bounded latents."""
        ends = [sorted((c * domains[u][0], c * domains[u][1])) for u, c in self.bounded.items()]
        low = self.constant + sum(end[0] for end in ends) - sigmas * self.std
        high = self.constant + sum(end[1] for end in ends) + sigmas * self.std
        return low, high


def spreads(circuit: SymbolicCircuit) -> dict[str, Spread]:
    """The marginal of every latent that is linear-Gaussian given the others; the rest are bounded."""
    found: dict[str, Spread] = {}
    joined = _joined(circuit)
    for z in circuit.parents_first:
        function = _own(circuit, z)
        if not isinstance(function, LinearGaussian):
            found[z] = Spread(0.0, {}, {z: 1.0})
            continue
        constant, noise, bounded = function.bias, {z: function.std}, dict[str, float]()
        for parent, a in function.weights.items():
            above = found[parent]
            constant += a * above.constant
            for name, value in above.noise.items():
                noise[name] = noise.get(name, 0.0) + a * value
            for name, value in above.bounded.items():
                bounded[name] = bounded.get(name, 0.0) + a * value
        found[z] = Spread(constant, noise, bounded)
        if z not in joined:
            found[z] = Spread(constant, {z: found[z].std}, bounded)
    return found


def _joined(circuit: SymbolicCircuit) -> set[str]:
    """The latents that may reach another one on two ways, so that their noises have to be told apart.

    All others pass the sum of their noises on as one, which keeps the work for a long chain linear.
    """
    found: set[str] = set()
    for z in reversed(circuit.parents_first):
        parents = {parent for function in circuit.densities[z] for parent in function.parents}
        if len(parents) > 1 or z in found:
            found |= parents
    return found


def marginal_grids(
    circuit: SymbolicCircuit, rules: Mapping[str, Rule], sigmas: float, given: Mapping[str, Interval]
) -> dict[str, Grid]:
    """Rules placed where each latent's own marginal has its mass.

    The interval of a linear-Gaussian latent is its marginal mean ± ``sigmas`` marginal standard deviations, however
    long the chain of its ancestors; a rule for the whole line is placed at those moments.
    """
    domains = {z: given.get(z) or _stated(circuit, z) for z in circuit.latents}
    known = {z: interval for z, interval in domains.items() if interval}
    grids = {z: rules[z].on(*known[z]) for z in circuit.latents if z in given}
    if len(grids) == len(rules):
        return grids  # nothing to derive, also where the components of a mixture order the latents differently
    for z, spread in spreads(circuit).items():
        if z in given:
            continue
        if math.isinf(rules[z].domain[1]):
            grids[z] = rules[z].at(*_moments(z, spread, rules[z]))
        else:
            grids[z] = rules[z].on(*(known.get(z) or spread.interval(known, sigmas)))
    return grids


def worst_case_grids(
    circuit: SymbolicCircuit, rules: Mapping[str, Rule], sigmas: float, given: Mapping[str, Interval]
) -> dict[str, Grid]:
    """Rules placed as in the paper's Appendix C.2.

    The interval of a latent reaches ``sigmas`` conditional standard deviations beyond the smallest and the largest
    conditional mean at its parents' points. It covers every conditional, and so widens at each step down a tree.
    """
    grids: dict[str, Grid] = {}
    stated = {z: given.get(z) or _stated(circuit, z) for z in circuit.latents}
    for z in circuit.parents_first:
        function, interval = _own(circuit, z), stated[z]
        if interval is None:
            assert isinstance(function, LinearGaussian)
            ends = [
                sorted((a * grids[parent].points.min(), a * grids[parent].points.max()))
                for parent, a in function.weights.items()
            ]
            low = function.bias + sum(end[0] for end in ends) - sigmas * function.std
            high = function.bias + sum(end[1] for end in ends) + sigmas * function.std
            interval = (float(low), float(high))
        grids[z] = rules[z].on(*interval)
    return grids


def _own(circuit: SymbolicCircuit, z: str) -> object:
    """The density of a latent, when the circuit has exactly one for it."""
    functions = circuit.densities[z]
    return functions[0] if len(functions) == 1 else None


def _stated(circuit: SymbolicCircuit, z: str) -> Interval | None:
    """The domain that a latent's densities state; None for a linear-Gaussian one, whose domain is derived."""
    functions = circuit.densities[z]
    if len(functions) == 1 and isinstance(functions[0], LinearGaussian):
        return None
    domains = [function.domain for function in functions if isinstance(function, Density)]
    if not domains or len(domains) < len(functions):
        why = ("no density of its own", "a density without a domain", "several densities")[min(len(functions), 2)]
        raise ArgumentError(
            "domain",
            f"an interval for the latent {z!r}, which has {why}",
            "none",
            f"domain={{{z!r}: (low, high)}}",
        )
    low, high = min(d[0] for d in domains), max(d[1] for d in domains)
    if math.isinf(low) or math.isinf(high):
        raise ArgumentError(
            "domain", f"a finite interval for the latent {z!r}", (low, high), f"domain={{{z!r}: (low, high)}}"
        )
    return low, high


def _moments(z: str, spread: Spread, rule: Rule) -> tuple[float, float]:
    if spread.bounded or not spread.noise:
        raise ArgumentError(
            "rule",
            f"a rule on an interval for the latent {z!r}, whose marginal is not Gaussian",
            repr(rule),
            f"give it its own rule: {{{z!r}: pc.gauss_legendre(n), ...}}",
        )
    return spread.constant, spread.std


@dataclass(frozen=True)
class Axis:
    """The grid of a latent: points and weights over its own axis and those of the latents it moves with."""

    indices: tuple[str, ...]
    points: Tensor
    weights: Tensor


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
    sizes = {z: axis.points.shape[-1] for z, axis in axes.items()}
    # Axes with equally many points are of one kind.
    plan = make_plan(circuit, sizes, family_of, lambda z: axes[z].indices)
    compiled = CompiledCircuit(plan.schedule, {size: size for size in sizes.values()})
    parameters = Parameters(
        tuple(_weights(circuit, block, axes, compiled) for block in plan.blocks),
        tuple(like.new_tensor([unit.weights for unit in units]).unsqueeze(-1) for units in plan.mixtures),
        tuple(_input_parameters(plan, number, axes, sizes, like) for number in range(len(plan.inputs))),
    )
    latents = [
        LatentGrid(
            place.name,
            place.pool,
            place.row,
            place.axis,
            _aligned(axes[place.name].points, axes[place.name].indices, place.order),
            _aligned(axes[place.name].weights, axes[place.name].indices, place.order),
        )
        for place in plan.latents
    ]
    return QPC(compiled, parameters, circuit.variables, _families(plan), latents, circuit.properties, refine)


def quadrature_of(
    plan: Plan,
    states: int,
    parameters: Parameters,
    points: Tensor | None = None,
    weights: Tensor | None = None,
    refine: Callable[[], QPC] | None = None,
    shared: tuple[Tensor | None, Tensor] | None = None,
) -> QPC:
    """The circuit of a structure with the given numbers.

    Args:
        plan: The plan of the structure.
        states: The number of states of each latent.
        parameters: The numbers.
        points: The grid of all latents ``(states,)``; None when states have no values.
        weights: Its quadrature weights.
        refine: Makes the same circuit on a finer grid.
        shared: Points ``(M, dims)``, or None when its states have no values, and weights ``(M,)`` of the latent that
            all functions depend on, if there is one.
    """
    assert plan.source is not None, "structures have families"
    _, families, *_ = plan.source
    latents = _SameGrids(plan.latents, points, weights, shared)
    circuit = plan.circuit
    compiled = compiled_of(plan, states, len(shared[1]) if shared else 1)
    return QPC(compiled, parameters, circuit.variables, families, latents, circuit.properties, refine)


def mixture_of(
    plan: Plan,
    parts: Sequence[Parameters],
    grid: tuple[Tensor, Tensor],
    shared: tuple[Tensor | None, Tensor],
    refine: Callable[[], QPC],
) -> QPC:
    """Several circuits of one tree as one: they are the states of a latent that all functions depend on.

    Args:
        plan: The plan of the tree with such a latent.
        parts: The numbers of each of the M circuits.
        grid: Points and weights of all other latents.
        shared: Points ``(M, dims)``, or None when its states have no values, and weights ``(M,)`` of the shared latent.
        refine: Makes the same circuit on a finer grid.
    """
    numbers = Parameters(
        (*(torch.cat(w, 1) for w in zip(*(p.weights for p in parts), strict=True)), shared[1].view(1, 1, 1, -1)),
        (),
        tuple(torch.cat(i, 1) for i in zip(*(p.inputs for p in parts), strict=True)),
        tuple(torch.stack(c) for c in zip(*(p.correlations for p in parts), strict=True)),
    )
    return quadrature_of(plan, len(grid[1]), numbers, *grid, refine, shared)


_compiled: WeakKeyDictionary[Plan, dict[tuple[int, int], CompiledCircuit]] = WeakKeyDictionary()
_KEPT_SIZES = 8  # numbers of states for which the compiled circuit of a plan is kept


def compiled_of(plan: Plan, states: int, shared: int = 1) -> CompiledCircuit:
    """The compiled circuit of a structure, for a number of states of its latents and of the shared latent, if any."""
    kept, sizes = _compiled.setdefault(plan, {}), (states, shared)
    if sizes not in kept:
        kept[sizes] = CompiledCircuit(plan.schedule, {STATES: states, SHARED: shared})
        while len(kept) > _KEPT_SIZES:
            del kept[next(iter(kept))]
    return kept[sizes]


@dataclass(frozen=True)
class _SameGrids:
    """The grids of latents that all have the same points, made on demand: circuits have thousands.

    Attributes:
        places: Where the latents are.
        points: ``(states,)``, or ``(states, dims)`` for vectors; None when states have no values.
        weights: The quadrature weights, likewise.
        shared: Points and weights of the latent that all functions depend on, if there is one.
    """

    places: Sequence[Latent]
    points: Tensor | None
    weights: Tensor | None
    shared: tuple[Tensor | None, Tensor] | None

    def __iter__(self) -> Iterator[LatentGrid]:
        for place in self.places:
            own, weight = self.shared if self.shared and place.name == SHARED else (self.points, self.weights)
            vectors = own if own is not None and own.ndim == 2 else None
            shape = [-1 if i == place.axis else 1 for i in range(len(place.order))]
            numbers = own if vectors is None else None
            points, weights = (None if t is None else t.view(shape) for t in (numbers, weight))
            yield LatentGrid(place.name, place.pool, place.row, place.axis, points, weights, vectors)


def _weights(
    circuit: SymbolicCircuit, block: WeightBlock, axes: Mapping[str, Axis], compiled: CompiledCircuit
) -> Tensor:
    """``weight(z) · ∏ factors`` for every integral of a block, ``(rows, g, o, z)``."""
    rows = []
    for unit, shared, new in block.integrals:
        order = shared + new + unit.variables
        total = sum(_aligned(axes[z].weights.log(), axes[z].indices, order) for z in unit.variables)
        for factor in unit.factors:
            points = [_aligned(axes[z].points, axes[z].indices, order) for z in factor.latents]
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
        (slot.pool, slot.row, slot.unit.variable, step.family)
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


def _input_parameters(
    plan: Plan, number: int, axes: Mapping[str, Axis], sizes: Mapping[str, int], like: Tensor
) -> Tensor:
    """The parameters of an input step at the points of the inputs' parents, ``(inputs, states, P)``."""
    found = []
    for slot in plan.slots[number]:
        points = [_aligned(axes[z].points, axes[z].indices, slot.order) for z in slot.unit.function.parents]
        blank = like.new_zeros([sizes[index] for index in slot.order])
        found.append(_parameters(slot.unit.function, points, blank))
    return torch.stack(found)


@singledispatch
def _parameters(function: object, points: Sequence[Tensor], blank: Tensor) -> Tensor:
    """The parameters ``(states, P)`` of an input function at the given points of its parents.

    Args:
        function: What the input unit carries.
        points: The points of each parent, broadcasting against each other.
        blank: Zeros in the shape of the input's axes.
    """
    raise AssertionError(function)


@_parameters.register
def _(function: LinearGaussian, points: Sequence[Tensor], blank: Tensor) -> Tensor:
    mean = blank + function.mean(*points)
    return torch.stack([mean, torch.full_like(mean, function.std)], -1).reshape(-1, 2)


@_parameters.register
def _(function: Conditional, points: Sequence[Tensor], blank: Tensor) -> Tensor:
    params = function.parameters(*(point + blank for point in points))
    size = function.family.size
    return params.expand(*blank.shape, size).reshape(-1, size).to(blank.dtype)


@_parameters.register
def _(function: Density, points: Sequence[Tensor], blank: Tensor) -> Tensor:
    values = [point + blank for point in points] or [blank]
    _check_learnable(function, values[: len(function.parents)])
    return torch.stack(values, -1).reshape(-1, len(values))


def _check_learnable(function: Density, parents: Sequence[Tensor]) -> None:
    """Refuse a density that learns, but is not computed by a module: ``fit`` would not find its parameters."""
    low, high = function.domain
    inside = max(low, min(high, 0.0))
    if not modules_of(function) and torch.is_grad_enabled() and parents:
        at = [parent.detach().flatten()[:1] for parent in parents]
        if function.log_density(at[0].new_full((1,), inside), *at).requires_grad:
            raise ArgumentError(
                "log_density", "a torch.nn.Module that holds the parameters to learn", "a function that uses them",
                "write pc.Density(module, ...)",
            )  # fmt: skip


def family_of(unit: Input) -> Family:
    """The family of an input unit."""
    match unit.function:
        case LinearGaussian():
            return Gaussian()
        case Conditional(family=Family() as family):
            return family
        case Conditional(family=family):
            raise ArgumentError("family", "a family of input distributions, such as pc.Bernoulli()", family)
        case Density():
            return FunctionFamily(unit.function)
    expected = "pc.LinearGaussian, pc.Conditional or pc.Density for an input unit"
    raise ArgumentError("function", expected, unit.function)
