# SPDX-License-Identifier: Apache-2.0
"""Where the points of each latent lie: rules become grids.

The points of a discrete latent are its values. A latent with a stated domain is integrated over that domain. The
marginal of a linear-Gaussian latent has a closed form. The mean and standard deviation of any other latent on an
infinite domain are estimated from those of its parents, as if the parents were independent. Only location and scale
matter, and `qpc.error` shows whether they are wrong.
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

# The paper covers ±3σ of every conditional. Intervals of marginals are shorter, so they can reach further.
SIGMAS = {"worst": 3.0, "marginal": 6.0}
_POINTS = (33, 33, 33, 15, 7)  # points for each parent, by the number of parents


def place(
    circuit: SymbolicCircuit, rules: Mapping[str, AnyRule], domain: Domain, sigmas: float | None
) -> dict[str, Grid]:
    """Place the rule of each latent on its domain; ``sigmas`` is None for the default reach."""
    given = dict(domain) if isinstance(domain, Mapping) else {}
    unknown = set(given) - set(circuit.latents)
    choice = "marginal" if isinstance(domain, Mapping) else domain
    if choice not in SIGMAS or unknown:
        came = ", ".join(sorted(unknown)) if unknown else domain
        expected = f'"marginal", "worst", or intervals for latents ({", ".join(circuit.latents)})'
        raise ArgumentError("domain", expected, came)
    for z, interval in given.items():
        _check_interval(circuit, z, interval)
    grids = counting_grids(circuit)
    grids |= {z: _on(rules[z], interval) for z, interval in given.items()}
    if len(grids) == len(circuit.latents):
        return (
            grids  # nothing to derive; parents_first may not exist if the parts of a mixture order latents differently
        )
    placement = _Placement(circuit, rules, SIGMAS[choice] if sigmas is None else sigmas, given)
    derive = placement.marginal if choice == "marginal" else placement.worst_case
    for z in circuit.parents_first:
        if z not in grids:
            grids[z] = derive(z, grids)
    return grids


def counting_grids(circuit: SymbolicCircuit) -> dict[str, Grid]:
    """Return the values of the discrete latents, with weights 1."""
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
    """Return a checked rule for each latent; a discrete latent has its values as points."""
    rules: dict[str, Any] = dict(rule) if isinstance(rule, Mapping) else dict.fromkeys(circuit.latents, rule)
    rules |= {z: counting(k) for z, k in circuit.discrete.items()}
    if set(rules) != set(circuit.latents):
        expected = f"a rule for each latent ({', '.join(z for z in circuit.latents if z not in circuit.discrete)})"
        came = ", ".join(str(z) for z in rules if z not in circuit.discrete)
        raise ArgumentError("rule", expected, f"rules for {came or 'none'}")
    _check_vectors(circuit)
    for z, one in rules.items():
        dims = circuit.dims.get(z, 0)
        if dims and not (isinstance(one, VectorRule) and one.dims == dims):
            expected = f"a rule for the latent {z!r}, a vector of {dims} dimensions"
            raise ArgumentError("rule", expected, one, f"for example {{{z!r}: pc.sobol(1024, dims={dims})}}")
        if not dims and not isinstance(one, Rule):
            raise ArgumentError("rule", f"a quadrature rule such as pc.trapezoidal(64) for the latent {z!r}", one)
        if (one.weights < 0).any():
            raise ArgumentError("rule", "weights that are not negative, so that sums are probabilities", one.name)
    return rules


def _check_vectors(circuit: SymbolicCircuit) -> None:
    """Raise if a linear-Gaussian function has a vector as a parent, since its coefficients are single numbers."""
    for unit in circuit.units if circuit.dims else ():
        carried = [unit] if isinstance(unit, Input) else unit.factors if isinstance(unit, Integral) else ()
        for function in (carrier.function for carrier in carried):
            vectors = [parent for parent in function.parents if parent in circuit.dims]
            if vectors and isinstance(function, LinearGaussian):
                expected = f"parents of {function!r} that are numbers"
                remedy = "use pc.Conditional or pc.MultivariateNormal with a function of the vector"
                raise ArgumentError("function", expected, f"the vector {vectors[0]!r}", remedy)


def _on(rule: AnyRule, interval: Interval) -> Grid:
    assert isinstance(rule, Rule), "only scalar latents have intervals"
    return rule.on(*interval)


class _Placement:
    """Derives the grids of latents from their stated domains, closed-form marginals and estimated marginals.

    Args:
        circuit: The circuit.
        rules: The rule of each latent.
        sigmas: How many standard deviations a derived interval reaches.
        given: The intervals given by the user.
    """

    def __init__(
        self, circuit: SymbolicCircuit, rules: Mapping[str, AnyRule], sigmas: float, given: Mapping[str, Interval]
    ) -> None:
        self._circuit, self._rules, self._sigmas = circuit, rules, sigmas
        stated = {z: given.get(z) or stated_domain(circuit, z) for z in circuit.latents if z not in circuit.discrete}
        self._known = {z: interval for z, interval in stated.items() if interval}
        self._densities: dict[str, Any] = {z: own_density(circuit, z) for z in circuit.latents}
        self._spreads = spreads(circuit)
        self._estimates: dict[str, tuple[Any, Any]] = {}

    def marginal(self, z: str, grids: Mapping[str, Grid]) -> Grid:
        """Place the rule where the marginal of the latent has its mass.

        The interval of a linear-Gaussian latent is its marginal mean ± ``sigmas`` marginal standard deviations,
        regardless of how many ancestors it has. A rule for the whole line is placed at these moments.
        """
        rule, spread = self._rules[z], self._spreads[z]
        closed = isinstance(self._densities[z], LinearGaussian) and spread.bounded.keys() <= self._known.keys()
        if not isinstance(rule, Rule) or not (closed or z in self._known):
            return self._estimated(z)
        if not math.isinf(rule.domain[1]):
            return rule.on(*(self._known.get(z) or spread.interval(self._known, self._sigmas)))
        if not closed or spread.bounded or not spread.noise:
            expected = f"a rule on an interval for the latent {z!r}, whose marginal is not Gaussian"
            remedy = f"give it its own rule: {{{z!r}: pc.gauss_legendre(n), ...}}"
            raise ArgumentError("rule", expected, rule, remedy)
        return rule.at(spread.constant, spread.std)

    def worst_case(self, z: str, grids: Mapping[str, Grid]) -> Grid:
        """Place the rule as in Appendix C.2 of the paper.

        The interval reaches ``sigmas`` conditional standard deviations beyond the smallest and the largest conditional
        mean at the points of the parents. It covers every conditional, so it widens at each step down a tree.
        """
        function, rule = self._densities[z], self._rules[z]
        if z in self._known:
            return _on(rule, self._known[z])
        if not isinstance(function, LinearGaussian):
            return self._estimated(z)
        ranges = {parent: (grids[parent].points.min(), grids[parent].points.max()) for parent in function.weights}
        low, high = Spread(function.bias, {z: function.std}, function.weights).interval(ranges, self._sigmas)
        return _on(rule, (float(low), float(high)))

    def _estimated(self, z: str) -> Grid:
        """Place the rule at the estimated mean and standard deviation."""
        rule = self._rules[z]
        mean, spread = self._moments(z)
        if isinstance(rule, VectorRule) or math.isinf(rule.domain[1]):
            return rule.at(mean, spread)
        return rule.on(mean - self._sigmas * spread, mean + self._sigmas * spread)

    def _moments(self, z: str) -> tuple[Any, Any]:
        """Return the mean and standard deviation of a scalar latent, or the mean and covariance of a vector."""
        if z not in self._estimates:
            parents, weights = self._parents(z)
            with torch.no_grad():
                mean, spread = (torch.as_tensor(moment).double() for moment in self._densities[z].moments(*parents))
            mean = mean.expand(len(weights), *mean.shape[-1:]) if z in self._circuit.dims else mean.expand(len(weights))
            centre = torch.tensordot(weights, mean, 1)
            between = mean - centre
            if z in self._circuit.dims:
                within = torch.tensordot(weights, spread.expand(len(weights), *spread.shape[-2:]), 1)
                total = within + torch.einsum("n,ni,nj->ij", weights, between, between)
                self._estimates[z] = (centre.numpy(), total.numpy())
            else:
                total = weights @ (spread.square() + between.square())
                self._estimates[z] = (float(centre), math.sqrt(float(total)))
        return self._estimates[z]

    def _parents(self, z: str) -> tuple[list[Tensor], Tensor]:
        """Return all combinations of values of the parents, and their weights as if the parents were independent."""
        parents = self._densities[z].parents
        n = _POINTS[min(len(parents), len(_POINTS) - 1)]
        values: list[Tensor] = []
        weights = torch.ones(1, dtype=torch.float64)
        for points, masses in (self._rough(parent, n) for parent in parents):
            values = [value.repeat_interleave(len(masses), 0) for value in values]
            values.append(points.repeat(len(weights), *(1,) * (points.ndim - 1)))
            weights = (weights.unsqueeze(1) * masses).flatten()
        return values, weights

    def _rough(self, z: str, n: int) -> tuple[Tensor, Tensor]:
        """Return points and probabilities that approximate the marginal: the values of the latent, or a normal."""
        if z in self._circuit.discrete:
            parents, weights = self._parents(z)
            k = self._circuit.discrete[z]
            values = torch.arange(k, dtype=torch.float64)
            with torch.no_grad():
                logs = self._densities[z].log_density(values, *(parent.unsqueeze(1) for parent in parents))
            return values, weights @ logs.double().exp().expand(len(weights), k)
        mean, spread = self._moments(z)
        if z in self._circuit.dims:
            vectors = sobol(n * n, self._circuit.dims[z])
            return torch.as_tensor(vectors.at(mean, spread).points), torch.as_tensor(vectors.weights.copy())
        rule = gauss_hermite(n)
        points = torch.as_tensor(rule.points * spread + mean)
        if z in self._known:
            points = points.clamp(*self._known[z])
        masses = torch.as_tensor(rule.weights) * torch.exp(-(torch.as_tensor(rule.points) ** 2) / 2)
        return points, masses / masses.sum()


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
        """Return mean ± ``sigmas`` standard deviations, over all values of the bounded latents."""
        ends = [sorted((c * domains[u][0], c * domains[u][1])) for u, c in self.bounded.items()]
        low = self.constant + sum(end[0] for end in ends) - sigmas * self.std
        high = self.constant + sum(end[1] for end in ends) + sigmas * self.std
        return low, high


def spreads(circuit: SymbolicCircuit) -> dict[str, Spread]:
    """Return every linear-Gaussian latent as a combination of noises and of latents that are not linear-Gaussian."""
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
    """Return the latents that may reach another one along two paths, so that their noises must be kept separate.

    All others pass on the sum of their noises as one, which makes the work for a long chain linear.
    """
    found: set[str] = set()
    for z in reversed(circuit.parents_first):
        parents = {parent for function in circuit.densities[z] for parent in function.parents}
        if len(parents) > 1 or z in found:
            found |= parents
    return found


def own_density(circuit: SymbolicCircuit, z: str) -> object:
    """Return the density of a latent, or None if the circuit does not have exactly one."""
    functions = circuit.densities[z]
    return functions[0] if len(functions) == 1 else None


def stated_domain(circuit: SymbolicCircuit, z: str) -> Interval | None:
    """Return the finite domain that the densities of a latent state, or None if an interval can be derived."""
    functions = circuit.densities[z]
    domains = [function.domain for function in functions if isinstance(function, Density)]
    if functions and len(domains) == len(functions):
        low, high = min(d[0] for d in domains), max(d[1] for d in domains)
        if math.isfinite(high - low):
            return low, high
    why = "several densities" if functions else "no density of its own"
    if len(functions) == 1:
        function: Any = functions[0]
        why = "a density without a domain"
        if callable(getattr(function, "moments", None)):
            family = getattr(function, "family", None)
            if family is not None and family.discrete:
                expected = f"a latent with finitely many values or on the real line instead of {z!r}, {function!r}"
                remedy = (
                    "an infinite sum is not expressible: truncate it, as pc.Discrete(k, probabilities) with a large k"
                )
                raise ArgumentError("function", expected, "infinitely many values", remedy)
            return None
    expected = f"an interval for the latent {z!r}, which has {why}"
    raise ArgumentError("domain", expected, "none", f"domain={{{z!r}: (low, high)}}")


def lineage(circuit: SymbolicCircuit) -> dict[str, tuple[str, ...]]:
    """Return each latent with its ancestors, the ancestors first."""
    rank = {z: i for i, z in enumerate(circuit.parents_first)}
    return {z: tuple(sorted(circuit.lineage[z], key=rank.__getitem__)) for z in circuit.latents}


def place_nested(circuit: SymbolicCircuit, rules: Mapping[str, AnyRule], sigmas: float) -> dict[str, Grid]:
    """Place a rule for each latent at every combination of its ancestors' points: grids over the axes ``lineage(z)``.

    Gauss–Hermite is placed at the mean and standard deviation of each conditional, other rules on mean ± ``sigmas``
    standard deviations.
    """
    if circuit.dims:
        vectors = ", ".join(circuit.dims)
        raise StructureError(f"nested quadrature needs latents that are numbers, but {vectors} is a vector.")
    along = lineage(circuit)
    grids: dict[str, Grid] = {}
    for z in circuit.parents_first:
        rule, (function,), above = rules[z], circuit.densities[z], along[z][:-1]
        assert isinstance(rule, Rule)
        parents = [
            torch.as_tensor(grids[p].points[tuple(slice(None) if index in along[p] else None for index in above)])
            for p in function.parents
        ]
        shape = np.broadcast_shapes(*(p.shape for p in parents)) if parents else ()
        domain = function.domain if isinstance(function, Density) and not function.stated else (-math.inf, math.inf)
        if z in circuit.discrete:
            parts = (np.broadcast_to(part, (*shape, len(rule))).copy() for part in (rule.points, rule.weights))
            grids[z] = Grid(*parts)
        elif math.isfinite(domain[1] - domain[0]):
            grids[z] = rule.on(*(np.full(shape, end) for end in domain))
        else:
            moments = (torch.as_tensor(moment).detach() for moment in function.moments(*parents))  # type: ignore[attr-defined]
            mean, std = (np.broadcast_to(np.asarray(v, dtype=np.float64), shape) for v in moments)
            infinite = math.isinf(rule.domain[1])
            grids[z] = rule.at(mean, std) if infinite else rule.on(mean - sigmas * std, mean + sigmas * std)
    return grids
