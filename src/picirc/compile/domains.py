"""Where each latent is integrated: the intervals on which rules are placed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from picirc.errors import ArgumentError
from picirc.functions import Density, LinearGaussian
from picirc.quadrature import Grid, Rule
from picirc.symbolic.circuit import SymbolicCircuit

Interval = tuple[float, float]


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
