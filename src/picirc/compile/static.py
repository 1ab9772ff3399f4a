"""Algorithm 1: the same points for a latent wherever it occurs, so that units are re-used."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from picirc.compile.domains import Interval, marginal_grids, worst_case_grids
from picirc.compile.materialise import LARGEST, assemble, check_size, make_axes
from picirc.errors import ArgumentError
from picirc.qpc.distribution import QPC
from picirc.quadrature import Grid, Rule
from picirc.symbolic.circuit import SymbolicCircuit

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

    def refine() -> QPC:
        finer, further = _refined(rules, domain, sigmas)
        return integrate_static(circuit, finer, domain, further, like, limit)

    return assemble(circuit, axes, like, refine)


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


def _refined(rules: Mapping[str, Rule], domain: Domain, sigmas: float | None) -> tuple[dict[str, Rule], float | None]:
    """More than twice the points on intervals a quarter wider, so that what the ends cut off is seen too."""
    choice = domain if isinstance(domain, str) else "marginal"
    finer = {z: rule.resize(5 * len(rule) // 2 + 1) for z, rule in rules.items()}
    return finer, 1.25 * (_SIGMAS[choice] if sigmas is None else sigmas)
