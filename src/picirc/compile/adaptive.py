# SPDX-License-Identifier: Apache-2.0
"""Adaptive quadrature: grids refined for each data point.

Every latent's interval is cut into panels with a Gauss–Legendre rule each. The flows of a data point give the
integrand along each latent with all others integrated out; where its Legendre coefficients on a panel do not decay,
the panel is halved. When no panel asks for more, all are halved once, and the change is the estimate of the error;
where that would be too large, it is the change of the last step. An interval that was derived from a latent's
marginal is widened where its ends carry a part of the integral.
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

from picirc.compile.integrate import assemble, make_axes
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
    """Values of the log-likelihood and estimates of their absolute errors, ``(...)`` each."""

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
    endless = _endless(circuit, domain)
    results = [_one(circuit, row.unsqueeze(0), tol, start, endless) for row in x]
    found = torch.tensor(results, dtype=torch.float64).view(*shape, 2)
    return Adaptive(*found.unbind(-1))


def _one(
    circuit: SymbolicCircuit, x: Tensor, tol: float, edges: Edges, endless: Collection[str]
) -> tuple[float, float]:
    """Value and error estimate for one data point."""
    last, value, error = math.nan, math.nan, math.inf
    for _ in range(_ROUNDS):
        value, rough, masses = _inspect(_quadrature(circuit, edges), x, edges, tol)
        error, last = _distance(value, last), value
        wider = {z: _widened(e, masses.get(z), tol) if z in endless else e for z, e in edges.items()}
        if any(len(wider[z]) > len(e) for z, e in edges.items()) and _fits(circuit, wider):
            edges, last = wider, math.nan  # a wider grid of the same fineness says nothing about the error
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


def _endless(circuit: SymbolicCircuit, domain: Domain) -> set[str]:
    """The latents whose interval was derived, so that it may turn out too narrow for an unusual data point."""
    given = domain if isinstance(domain, Mapping) else {}
    free = [z for z in circuit.latents if z not in given and z not in circuit.discrete]
    return {z for z in free if stated_domain(circuit, z) is None}


def _widened(edges: NDArray[np.float64], mass: NDArray[np.float64] | None, tol: float) -> NDArray[np.float64]:
    """The panels, with one as wide as all of them at each end that carries more of the integral than the tolerance."""
    if mass is None:
        return edges
    width = edges[-1] - edges[0]
    below = [edges[0] - width] if mass[0] > tol else []
    above = [edges[-1] + width] if mass[-1] > tol else []
    return np.concatenate([below, edges, above])


def _first_panels(circuit: SymbolicCircuit, domain: Domain) -> Edges:
    """Wide intervals, cut into four."""
    if circuit.dims:
        got = f"the vector {next(iter(circuit.dims))!r}"
        raise ArgumentError("circuit", "latents that are numbers, for panels", got, "use integrate(rule)")
    rules = rules_of(circuit, gauss_legendre(2))
    grids = place(circuit, rules, domain, 9.0)
    edges = {}
    for z, grid in grids.items():
        if z in circuit.discrete:
            continue
        middle, half = grid.points.mean(), grid.weights.sum() / 2
        edges[z] = middle + half * np.linspace(-1, 1, 5)
    return edges


def _quadrature(circuit: SymbolicCircuit, edges: Edges) -> QPC:
    rule = gauss_legendre(_POINTS)
    panels = {z: rule.on(e[:-1], e[1:]) for z, e in edges.items()}
    grids = {z: Grid(panel.points.ravel(), panel.weights.ravel()) for z, panel in panels.items()}
    grids |= counting_grids(circuit)
    like = torch.zeros((), dtype=torch.float64)
    return assemble(circuit, make_axes(grids, lambda z: (z,), like.dtype, like.device), like, None)


def _inspect(
    qpc: QPC, x: Tensor, edges: Edges, tol: float
) -> tuple[float, dict[str, NDArray[np.bool_]], dict[str, NDArray[np.float64]]]:
    """The log-likelihood on the grid, and for each latent the panels that need halving and what each panel carries."""
    total = sum(len(e) - 1 for e in edges.values())
    nodes, weights = legendre.leggauss(_POINTS)
    project = legendre.legvander(nodes, _POINTS - 1).T * weights * (np.arange(_POINTS)[:, None] + 0.5)
    value = float(qpc.log_prob(x))
    if value == -math.inf:
        # No point has met the support of the integrand; that it has none cannot be known.
        return value, {z: np.ones(len(e) - 1, dtype=bool) for z, e in edges.items()}, {}
    posterior = qpc.latents(x)
    rough, masses = {}, {}
    for z, e in edges.items():
        mass = posterior[z].probabilities[0].numpy().reshape(-1, _POINTS)  # weight times integrand, by panel
        masses[z] = mass.sum(1)
        coefficients = (mass / weights) @ project.T
        # What the highest coefficients leave unresolved, relative to the whole integral. A Gauss rule integrates
        # polynomials of twice the degree that its points determine, so relative to the panel it counts squared.
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
