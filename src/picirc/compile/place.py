# SPDX-License-Identifier: Apache-2.0
"""Where the points of each latent lie: rules become grids.

A discrete latent has its values as points. A latent with a stated domain is integrated over it. The marginal of a
linear-Gaussian latent follows from those above it in closed form. Mean and standard deviation of any other latent on
an infinite domain are estimated from those of its parents, as if these were independent. Only location and scale
matter, and `qpc.error` finds out if they are wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from picirc.errors import ArgumentError, StructureError
from picirc.functions import Density, LinearGaussian
from picirc.quadrature import Grid, Rule, VectorRule, counting, gauss_hermite, sobol
from picirc.symbolic.circuit import SymbolicCircuit
from picirc.symbolic.units import Input, Integral

Interval = tuple[float, float]
Domain = str | Mapping[str, Interval]
AnyRule = Rule | VectorRule

# The paper covers ±3σ of every conditional; the marginal's interval can afford to lose less.
SIGMAS = {"worst": 3.0, "marginal": 6.0}
_POINTS = (33, 33, 33, 15, 7)  # that stand for a parent, by the number of parents


def place(
    circuit: SymbolicCircuit, rules: Mapping[str, AnyRule], domain: Domain, sigmas: float | None
) -> dict[str, Grid]:
    """Place a rule for each latent on its domain."""
    given = dict(domain) if isinstance(domain, Mapping) else {}
    unknown = set(given) - set(circuit.latents)
    choice = "marginal" if isinstance(domain, Mapping) else domain
    if choice not in SIGMAS or unknown:
        came = ", ".join(sorted(unknown)) if unknown else domain
        expected = f'"marginal", "worst", or intervals for latents ({", ".join(circuit.latents)})'
        raise ArgumentError("domain", expected, came)
    for z, interval in given.items():
        _check_interval(circuit, z, interval)
    reach = SIGMAS[choice] if sigmas is None else sigmas
    if not reach > 0:
        raise ArgumentError("sigmas", "a positive number", sigmas)
    grids = counting_grids(circuit)
    grids |= {z: _interval_rule(z, rules[z]).on(*interval) for z, interval in given.items()}
    if len(grids) == len(circuit.latents):
        return grids  # nothing to derive, also where the components of a mixture order the latents differently
    chooser = _marginal_grid if choice == "marginal" else _worst_case_grid
    placement = _Placement(circuit, rules, reach, given)
    for z in circuit.parents_first:
        if z not in grids:
            grids[z] = chooser(placement, z, grids)
    return grids


def counting_grids(circuit: SymbolicCircuit) -> dict[str, Grid]:
    """The values of the discrete latents, with weights 1."""
    rules = {z: counting(k) for z, k in circuit.discrete.items()}
    return {z: Grid(rule.points.copy(), rule.weights.copy()) for z, rule in rules.items()}


def _check_interval(circuit: SymbolicCircuit, z: str, interval: object) -> None:
    if z in circuit.discrete or z in circuit.dims:
        kind = "discrete" if z in circuit.discrete else "a vector"
        raise ArgumentError("domain", "intervals for latents that are numbers", f"one for {z!r}, which is {kind}")
    match interval:
        case (Real() as low, Real() as high) if -math.inf < float(low) < float(high) < math.inf:
            return
    raise ArgumentError("domain", f"a finite interval (low, high) for the latent {z!r}", interval)


def rules_of(circuit: SymbolicCircuit, rule: object) -> dict[str, AnyRule]:
    """One rule for each latent; that of a discrete one is known."""
    rules: dict[str, Any] = dict(rule) if isinstance(rule, Mapping) else dict.fromkeys(circuit.latents, rule)
    rules |= {z: counting(k) for z, k in circuit.discrete.items()}
    if set(rules) != set(circuit.latents):
        expected = f"a rule for each latent ({', '.join(z for z in circuit.latents if z not in circuit.discrete)})"
        came = ", ".join(str(z) for z in rules if z not in circuit.discrete)
        raise ArgumentError("rule", expected, f"rules for {came or 'none'}")
    _check_vectors(circuit)
    for z, one in rules.items():
        _check_rule(z, one, circuit.dims.get(z, 0))
    return rules


def _check_rule(z: str, rule: object, dims: int) -> None:
    if dims and not (isinstance(rule, VectorRule) and rule.dims == dims):
        expected = f"a rule for the latent {z!r}, a vector of {dims} dimensions"
        raise ArgumentError("rule", expected, rule, f"for example {{{z!r}: pc.sobol(1024, dims={dims})}}")
    if not dims and not isinstance(rule, Rule):
        raise ArgumentError("rule", f"a quadrature rule such as pc.trapezoidal(64) for the latent {z!r}", rule)
    assert isinstance(rule, Rule | VectorRule)
    if (rule.weights < 0).any():
        raise ArgumentError("rule", "weights that are not negative, so that sums are probabilities", rule.name)


def _check_vectors(circuit: SymbolicCircuit) -> None:
    """Refuse a linear-Gaussian function of a vector, whose coefficients are single numbers."""
    for unit in circuit.units if circuit.dims else ():
        carried = [unit] if isinstance(unit, Input) else unit.factors if isinstance(unit, Integral) else ()
        for function in (carrier.function for carrier in carried):
            vectors = [parent for parent in function.parents if parent in circuit.dims]
            if vectors and isinstance(function, LinearGaussian):
                expected = f"parents of {function!r} that are numbers"
                remedy = "use pc.Conditional or pc.MultivariateNormal with a function of the vector"
                raise ArgumentError("function", expected, f"the vector {vectors[0]!r}", remedy)


def _interval_rule(z: str, rule: AnyRule) -> Rule:
    assert isinstance(rule, Rule), z
    return rule


class _Placement:
    """What the latents of a circuit are like: stated domains, closed-form marginals, and estimated ones.

    Args:
        circuit: The circuit.
        rules: The rule of each latent.
        sigmas: How many standard deviations a derived interval reaches.
        given: Intervals that the user gave.
    """

    def __init__(
        self, circuit: SymbolicCircuit, rules: Mapping[str, AnyRule], sigmas: float, given: Mapping[str, Interval]
    ) -> None:
        self.circuit, self.rules, self.sigmas = circuit, rules, sigmas
        stated = {z: given.get(z) or stated_domain(circuit, z) for z in circuit.latents if z not in circuit.discrete}
        self.known = {z: interval for z, interval in stated.items() if interval}
        self._spreads = spreads(circuit)
        self._estimates: dict[str, tuple[Any, Any]] = {}

    def marginal(self, z: str) -> Spread | None:
        """The marginal of a latent in closed form."""
        spread = self._spreads[z]
        closed = isinstance(own_density(self.circuit, z), LinearGaussian) and set(spread.bounded) <= self.known.keys()
        return spread if closed else None

    def estimated(self, z: str) -> Grid:
        """The rule at the estimated mean and standard deviation of a latent."""
        rule = self.rules[z]
        mean, spread = self._moments(z)
        if isinstance(rule, VectorRule) or math.isinf(rule.domain[1]):
            return rule.at(mean, spread)
        return rule.on(mean - self.sigmas * spread, mean + self.sigmas * spread)

    def _moments(self, z: str) -> tuple[Any, Any]:
        """Mean and standard deviation of a latent, of a vector mean and covariance."""
        if z not in self._estimates:
            parents, weights = self._parents(z)
            with torch.no_grad():
                mean, spread = (torch.as_tensor(moment).double() for moment in self._function(z).moments(*parents))
            mean = mean.expand(len(weights), *mean.shape[-1:]) if z in self.circuit.dims else mean.expand(len(weights))
            centre = torch.tensordot(weights, mean, 1)
            between = mean - centre
            if z in self.circuit.dims:
                within = torch.tensordot(weights, spread.expand(len(weights), *spread.shape[-2:]), 1)
                total = within + torch.einsum("n,ni,nj->ij", weights, between, between)
                self._estimates[z] = (centre.numpy(), total.numpy())
            else:
                total = weights @ (spread.square() + between.square())
                self._estimates[z] = (float(centre), math.sqrt(float(total)))
        return self._estimates[z]

    def _parents(self, z: str) -> tuple[list[Tensor], Tensor]:
        """Values of the parents of a latent, all combinations, and their weights as if the parents were independent."""
        parents = self._function(z).parents
        n = _POINTS[min(len(parents), len(_POINTS) - 1)]
        values: list[Tensor] = []
        weights = torch.ones(1, dtype=torch.float64)
        for points, masses in (self._rough(parent, n) for parent in parents):
            values = [value.repeat_interleave(len(masses), 0) for value in values]
            values.append(points.repeat(len(weights), *(1,) * (points.ndim - 1)))
            weights = (weights.unsqueeze(1) * masses).flatten()
        return values, weights

    def _rough(self, z: str, n: int) -> tuple[Tensor, Tensor]:
        """Points and probabilities that stand for the marginal of a latent: its values, or those of a normal."""
        if z in self.circuit.discrete:
            parents, weights = self._parents(z)
            k = self.circuit.discrete[z]
            values = torch.arange(k, dtype=torch.float64)
            with torch.no_grad():
                logs = self._function(z).log_density(values, *(parent.unsqueeze(1) for parent in parents))
            return values, weights @ logs.double().exp().expand(len(weights), k)
        mean, spread = self._moments(z)
        if z in self.circuit.dims:
            rule = sobol(n * n, self.circuit.dims[z])
            return torch.as_tensor(rule.at(mean, spread).points), torch.as_tensor(rule.weights.copy())
        points = torch.as_tensor(gauss_hermite(n).points * spread + mean)
        if z in self.known:
            points = points.clamp(*self.known[z])
        masses = torch.as_tensor(gauss_hermite(n).weights) * torch.exp(
            -(torch.as_tensor(gauss_hermite(n).points) ** 2) / 2
        )
        return points, masses / masses.sum()

    def _function(self, z: str) -> Any:
        return own_density(self.circuit, z)


def _marginal_grid(placement: _Placement, z: str, grids: Mapping[str, Grid]) -> Grid:
    """The rule where the latent's own marginal has its mass.

    The interval of a linear-Gaussian latent is its marginal mean ± ``sigmas`` marginal standard deviations, however
    long the chain of its ancestors; a rule for the whole line is placed at those moments.
    """
    rule, spread = placement.rules[z], placement.marginal(z)
    if isinstance(rule, Rule) and (spread is not None or z in placement.known):
        if math.isinf(rule.domain[1]):
            return rule.at(*_moments(z, spread, rule))
        return rule.on(*(placement.known.get(z) or spread.interval(placement.known, placement.sigmas)))  # type: ignore[union-attr]
    return placement.estimated(z)


def _worst_case_grid(placement: _Placement, z: str, grids: Mapping[str, Grid]) -> Grid:
    """The rule as in the paper's Appendix C.2.

    The interval of a latent reaches ``sigmas`` conditional standard deviations beyond the smallest and the largest
    conditional mean at its parents' points. It covers every conditional, and so widens at each step down a tree.
    """
    function, rule = own_density(placement.circuit, z), placement.rules[z]
    if z in placement.known:
        return _interval_rule(z, rule).on(*placement.known[z])
    if not isinstance(function, LinearGaussian):
        return placement.estimated(z)
    ends = [
        sorted((a * grids[parent].points.min(), a * grids[parent].points.max()))
        for parent, a in function.weights.items()
    ]
    low = function.bias + sum(end[0] for end in ends) - placement.sigmas * function.std
    high = function.bias + sum(end[1] for end in ends) + placement.sigmas * function.std
    return _interval_rule(z, rule).on(float(low), float(high))


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
    """The marginal of every latent that is linear-Gaussian given the others; the rest are left open."""
    found: dict[str, Spread] = {}
    joined = _joined(circuit)
    for z in circuit.parents_first:
        function = own_density(circuit, z)
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
    """The latents that may reach another one along two paths, so that their noises must be kept separate.

    All others pass the sum of their noises on as one, which keeps the work for a long chain linear.
    """
    found: set[str] = set()
    for z in reversed(circuit.parents_first):
        parents = {parent for function in circuit.densities[z] for parent in function.parents}
        if len(parents) > 1 or z in found:
            found |= parents
    return found


def own_density(circuit: SymbolicCircuit, z: str) -> object:
    """The density of a latent, when the circuit has exactly one for it."""
    functions = circuit.densities[z]
    return functions[0] if len(functions) == 1 else None


def stated_domain(circuit: SymbolicCircuit, z: str) -> Interval | None:
    """The finite domain that a latent's densities state; None if an interval has to be derived, and can be."""
    functions = circuit.densities[z]
    domains = [function.domain for function in functions if isinstance(function, Density)]
    if functions and len(domains) == len(functions):
        low, high = min(d[0] for d in domains), max(d[1] for d in domains)
        if math.isfinite(high - low):
            return low, high
    if len(functions) == 1:
        _check_line(z, functions[0])
        return None
    why = "several densities" if functions else "no density of its own"
    raise ArgumentError(
        "domain", f"an interval for the latent {z!r}, which has {why}", "none", f"domain={{{z!r}: (low, high)}}"
    )


def _check_line(z: str, function: object) -> None:
    """Refuse a latent whose values are neither finitely many nor the real line."""
    if not callable(getattr(function, "moments", None)):
        expected = f"an interval for the latent {z!r}, which has a density without a domain"
        raise ArgumentError("domain", expected, "none", f"domain={{{z!r}: (low, high)}}")
    family = getattr(function, "family", None)
    if family is not None and family.discrete:
        expected = f"a latent with finitely many values or on the real line instead of {z!r}, {function!r}"
        remedy = "an infinite sum is not expressible: cut it off, as pc.Discrete(k, probabilities) with a large k"
        raise ArgumentError("function", expected, "infinitely many values", remedy)


def _moments(z: str, spread: Spread | None, rule: Rule) -> tuple[float, float]:
    if spread is None or spread.bounded or not spread.noise:
        raise ArgumentError(
            "rule",
            f"a rule on an interval for the latent {z!r}, whose marginal is not Gaussian",
            repr(rule),
            f"give it its own rule: {{{z!r}: pc.gauss_legendre(n), ...}}",
        )
    return spread.constant, spread.std


def place_nested(circuit: SymbolicCircuit, rules: Mapping[str, AnyRule], sigmas: float) -> dict[str, Grid]:
    """A rule for each latent at every combination of its ancestors' points: grids over the axes ``lineage(z)``."""
    if circuit.dims:
        vectors = ", ".join(circuit.dims)
        raise StructureError(f"nested quadrature needs latents that are numbers, but {vectors} is a vector.")
    along = lineage(circuit)
    grids: dict[str, Grid] = {}
    for z in circuit.parents_first:
        rule = rules[z]
        assert isinstance(rule, Rule)
        grids[z] = _nested_grid(circuit, z, rule, sigmas, grids, along)
    return grids


def lineage(circuit: SymbolicCircuit) -> dict[str, tuple[str, ...]]:
    """Each latent with its ancestors, these first."""
    rank = {z: i for i, z in enumerate(circuit.parents_first)}
    return {z: tuple(sorted(circuit.lineage[z], key=rank.__getitem__)) for z in circuit.latents}


def _nested_grid(
    circuit: SymbolicCircuit,
    z: str,
    rule: Rule,
    sigmas: float,
    grids: Mapping[str, Grid],
    along: Mapping[str, tuple[str, ...]],
) -> Grid:
    function: Any
    (function,) = circuit.densities[z]
    above = along[z][:-1]
    parents = [torch.as_tensor(_over(grids[p].points, along[p], above)) for p in function.parents]
    shape = np.broadcast_shapes(*(p.shape for p in parents)) if parents else ()
    if z in circuit.discrete:
        return Grid(*(np.broadcast_to(part, (*shape, len(rule))).copy() for part in (rule.points, rule.weights)))
    if isinstance(function, Density) and not function.stated and math.isfinite(function.domain[1] - function.domain[0]):
        return rule.on(*(np.full(shape, end) for end in function.domain))
    mean, std = (torch.as_tensor(moment).detach() for moment in function.moments(*parents))
    centre, reach = (np.broadcast_to(np.asarray(v, dtype=np.float64), shape) for v in (mean, std))
    if math.isinf(rule.domain[1]):
        return rule.at(centre, reach)
    return rule.on(centre - sigmas * reach, centre + sigmas * reach)


def _over(points: np.ndarray, indices: tuple[str, ...], order: tuple[str, ...]) -> np.ndarray:
    """Points over ``indices`` as a view over ``order``, of which ``indices`` is a subsequence."""
    return points[tuple(slice(None) if index in indices else None for index in order)]
