# SPDX-License-Identifier: Apache-2.0
"""Adaptive quadrature: grids refined for each data point.

The interval of every latent is divided into panels with a Gauss–Legendre rule each. The flows of a data point are the
integrand along each latent with all others integrated out. A panel is halved if the Legendre coefficients of the
integrand do not decay on it. When all panels are smooth, all are halved once more, and the change is the estimate of
the error. If that would be too large, the estimate is the change of the last step. A derived interval is widened if its
ends carry a part of the integral.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.polynomial import legendre
from numpy.typing import NDArray
from torch import Tensor

from picirc.compile.integrate import assemble
from picirc.compile.place import Domain, counting_grids, place, rules_of, stated_domain
from picirc.errors import ArgumentError
from picirc.qpc.distribution import QPC
from picirc.qpc.validation import as_batch
from picirc.quadrature import Grid, gauss_legendre
from picirc.symbolic.circuit import SymbolicCircuit

Edges = dict[str, NDArray[np.float64]]

_POINTS = 8  # on each panel
_ROUNDS = 40
_MOST_STATES = 2**22  # of the widest function


@dataclass(frozen=True)
class Adaptive:
    """The log-likelihoods ``(...)`` and the estimates of their absolute errors ``(...)``."""

    value: Tensor
    error: Tensor


def adaptive_log_prob(circuit: SymbolicCircuit, x: Tensor, tol: float, domain: Domain = "marginal") -> Adaptive:
    """Integrate separately for every data point, to an absolute error of ``tol``."""
    if not tol > 0:
        raise ArgumentError("tol", "a positive number", tol)
    x, shape = as_batch(x, "x", len(circuit.variables))
    x = x.to(torch.float64)
    start = _first_panels(circuit, domain)
    if len(x):
        _quadrature(circuit, start)._points(x)  # checks the data before the long work
    given = domain if isinstance(domain, Mapping) else {}
    # The interval of these latents is derived, so it may be too narrow for an unusual data point.
    derived = {z for z in start if z not in given and stated_domain(circuit, z) is None}
    results = [_one(circuit, row.unsqueeze(0), tol, start, derived) for row in x]
    found = torch.tensor(results, dtype=torch.float64).view(*shape, 2)
    return Adaptive(*found.unbind(-1))


def _one(
    circuit: SymbolicCircuit, x: Tensor, tol: float, edges: Edges, derived: Collection[str]
) -> tuple[float, float]:
    """Return the value and the estimated error for one data point."""
    last, value, error = math.nan, math.nan, math.inf
    for _ in range(_ROUNDS):
        value, rough, masses = _inspect(_quadrature(circuit, edges), x, edges, tol)
        error, last = _distance(value, last), value
        wider = {z: _widened(e, masses.get(z), tol) if z in derived else e for z, e in edges.items()}
        if any(len(wider[z]) > len(e) for z, e in edges.items()) and _fits(circuit, wider):
            edges, last = wider, math.nan  # wider at the same resolution: no estimate of the error
            continue
        smooth = not any(mask.any() for mask in rough.values())
        finer = {z: _halve(e, rough[z] | smooth) for z, e in edges.items()}
        if not _fits(circuit, finer):
            break
        if smooth:
            value = float(_quadrature(circuit, finer).log_prob(x))
            error = _distance(value, last)
            if error <= tol:
                break
        edges = finer
    return value, max(error, float(np.finfo(np.float64).eps) * abs(value))


def _distance(a: float, b: float) -> float:
    return abs(a - b) if math.isfinite(a - b) else math.inf


def _widened(edges: NDArray[np.float64], mass: NDArray[np.float64] | None, tol: float) -> NDArray[np.float64]:
    """Add a panel as wide as the interval at each end that carries more of the integral than ``tol``."""
    if mass is None:
        return edges
    width = edges[-1] - edges[0]
    below = [edges[0] - width] if mass[0] > tol else []
    above = [edges[-1] + width] if mass[-1] > tol else []
    return np.concatenate([below, edges, above])


def _first_panels(circuit: SymbolicCircuit, domain: Domain) -> Edges:
    """Return wide intervals, each divided into four panels."""
    if circuit.dims:
        got = f"the vector {next(iter(circuit.dims))!r}"
        raise ArgumentError("circuit", "latents that are numbers, for panels", got, "use integrate(rule)")
    grids = place(circuit, rules_of(circuit, gauss_legendre(2)), domain, 9.0)
    return {
        z: grid.points.mean() + grid.weights.sum() / 2 * np.linspace(-1, 1, 5)
        for z, grid in grids.items()
        if z not in circuit.discrete
    }


def _quadrature(circuit: SymbolicCircuit, edges: Edges) -> QPC:
    rule = gauss_legendre(_POINTS)
    panels = {z: rule.on(e[:-1], e[1:]) for z, e in edges.items()}
    grids = {z: Grid(panel.points.ravel(), panel.weights.ravel()) for z, panel in panels.items()}
    return assemble(circuit, grids | counting_grids(circuit))


def _inspect(
    qpc: QPC, x: Tensor, edges: Edges, tol: float
) -> tuple[float, dict[str, NDArray[np.bool_]], dict[str, NDArray[np.float64]]]:
    """Return the log-likelihood, and for each latent which panels need halving and the mass of each panel."""
    total = sum(len(e) - 1 for e in edges.values())
    nodes, weights = legendre.leggauss(_POINTS)
    project = legendre.legvander(nodes, _POINTS - 1).T * weights * (np.arange(_POINTS)[:, None] + 0.5)
    value = float(qpc.log_prob(x))
    if value == -math.inf:
        # No point lies in the support of the integrand, which may still exist.
        return value, {z: np.ones(len(e) - 1, dtype=bool) for z, e in edges.items()}, {}
    posterior = qpc.latents(x)
    rough, masses = {}, {}
    for z, e in edges.items():
        mass = posterior[z].probabilities[0].numpy().reshape(-1, _POINTS)  # weight times integrand, by panel
        masses[z] = mass.sum(1)
        coefficients = (mass / weights) @ project.T
        # The unresolved part of the integral, from the highest coefficients. A Gauss rule is exact for twice the degree
        # that its points determine, so relative to the panel this part counts squared.
        left = np.abs(coefficients[:, -2:]).sum(1) * 2
        scale = np.abs(coefficients).max(1).clip(min=np.finfo(np.float64).tiny)
        rough[z] = np.asarray(left * np.minimum(1, left / scale) > tol / total, dtype=bool)
        assert len(rough[z]) == len(e) - 1
    return value, rough, masses


def _halve(edges: NDArray[np.float64], chosen: NDArray[np.bool_]) -> NDArray[np.float64]:
    middles = (edges[:-1] + edges[1:])[chosen] / 2
    return np.sort(np.concatenate([edges, middles]))


def _fits(circuit: SymbolicCircuit, edges: Edges) -> bool:
    counts = {z: range(_POINTS * (len(e) - 1)) for z, e in edges.items()}
    return circuit.cost(counts).largest <= _MOST_STATES
