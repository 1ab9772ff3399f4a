# SPDX-License-Identifier: Apache-2.0
"""The whole method, written plainly: circuit → quadrature → likelihood.

Nothing is folded, shared or scaled here. Every unit becomes an array of log-values, with one axis for each latent and
the batch as the last axis; along the axis of a latent that the unit does not depend on, the length is one. The engine
computes the same numbers for many units at a time, and `tests/test_reference.py` compares the two. The size of an array
grows exponentially with the latents of its function, so use this module to read the method, and for small circuits.

    >>> import picirc as pc
    >>> net = pc.BayesNet()
    >>> net.latent("z", pc.LinearGaussian(std=1.0))
    >>> net.observed("x", pc.LinearGaussian({"z": 2.0}, std=0.5))
    >>> circuit, rule, x = pc.from_bayesnet(net), pc.gauss_legendre(80), np.array([[0.3]])
    >>> log_prob(circuit, {"z": rule.on(-6, 6)}, x).round(6)
    array([-1.652986])
    >>> circuit.exact().log_prob(torch.tensor(x)).numpy().round(6)
    array([-1.652986])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp

from picirc.functions import MultivariateNormal
from picirc.quadrature import Grid
from picirc.structure.bayesnet import Function
from picirc.symbolic.circuit import SymbolicCircuit
from picirc.symbolic.units import Input, Integral, Product, Sum, Unit

Array = NDArray[np.float64]


def log_prob(circuit: SymbolicCircuit, grids: Mapping[str, Grid], x: Array) -> Array:
    """``log p(x)`` of every row by static quadrature (Algorithm 1).

    Args:
        circuit: The circuit.
        grids: The points and weights of each latent.
        x: ``(batch, variables)``; NaN is missing.

    Returns:
        ``(batch,)``.
    """
    quadrature = _Quadrature(circuit, grids, x)
    values: dict[Unit, Array] = {}
    for unit in circuit.units:  # the inputs of a unit come before it
        values[unit] = quadrature.value(unit, [values[below] for below in unit.inputs])
    return np.broadcast_to(values[circuit.root].reshape(-1), len(x)).copy()


class _Quadrature:
    def __init__(self, circuit: SymbolicCircuit, grids: Mapping[str, Grid], x: Array) -> None:
        self._latents = circuit.latents
        self._grids = grids
        self._columns = dict(zip(circuit.variables, x.T, strict=True))
        self._scalar = (1,) * (len(self._latents) + 1)  # the shape of a number

    def value(self, unit: Unit, below: Sequence[Array]) -> Array:
        """The log-value of a unit at every point of its latents, from the values of the units below."""
        match unit:
            case Input():
                return self._input(unit)
            case Product():
                return np.asarray(sum(below, np.zeros(self._scalar)))
            case Sum():
                with np.errstate(divide="ignore"):
                    parts = [part + np.log(weight) for part, weight in zip(below, unit.weights, strict=True)]
                return np.asarray(np.logaddexp.reduce(np.broadcast_arrays(*parts)))
            case Integral():
                return self._integral(unit, below[0])

    def _integral(self, unit: Integral, child: Array) -> Array:
        """``∫ f(Z, z) child(X, Z, z) dz ≈ Σ_n w_n f(Z, z_n) child(X, Z, z_n)``, in log space."""
        total = child
        for factor in unit.factors:
            total = total + _log_density(factor.function, *(self._points(z) for z in factor.latents))
        for z in unit.variables:
            total = total + np.log(self._along(z, self._grids[z].weights))
        axes = tuple(self._latents.index(z) for z in unit.variables)
        return np.asarray(logsumexp(total, axis=axes, keepdims=True))

    def _input(self, unit: Input) -> Array:
        """``log p(x | Z)`` of one variable, or of several; missing values are integrated out."""
        x = np.stack([self._columns[name] for name in unit.variables])  # (variables, batch)
        sizes = [len(self._grids[z].weights) if z in unit.function.parents else 1 for z in self._latents]
        found = np.zeros((*sizes, x.shape[1]))
        for row in range(x.shape[1]):
            seen = ~np.isnan(x[:, row])
            if seen.any():
                parents = [self._parent(name, row) for name in unit.function.parents]
                found[..., row] = np.atleast_1d(_log_input(unit.function, x[:, row], seen, parents))[..., 0]
        return found

    def _parent(self, name: str, row: int) -> Array:
        """The points of a latent, or the value of an observed variable in one row of the data."""
        return self._points(name) if name in self._latents else np.full(self._scalar, self._columns[name][row])

    def _points(self, z: str) -> Array:
        return self._along(z, self._grids[z].points)

    def _along(self, z: str, values: Array) -> Array:
        """Values at the points of a latent, along its axis; the components of a vector come last."""
        return values.reshape([*(-1 if z == other else 1 for other in self._latents), 1, *values.shape[1:]])


def _log_density(function: Function, *points: Array) -> Array:
    """``log p(v | parents)``, by a function that is written with torch."""
    density = getattr(function, "log_density")  # noqa: B009  # not part of the protocol `Function`
    found: torch.Tensor = density(*map(torch.as_tensor, points))
    return found.detach().numpy()


def _log_input(function: Function, x: Array, seen: Array, parents: Sequence[Array]) -> Array:
    """``log p(x | parents)`` of the observed variables of one data point."""
    if not isinstance(function, MultivariateNormal):
        return _log_density(function, x.reshape(()), *parents)
    mean, covariance = (moment.numpy() for moment in function.moments(*map(torch.as_tensor, parents)))
    mean, covariance = mean[..., seen], covariance[..., seen, :][..., :, seen]
    difference = (x[seen] - mean)[..., None]
    distance = (difference.swapaxes(-1, -2) @ np.linalg.inv(covariance) @ difference)[..., 0, 0]
    return np.asarray(-0.5 * (distance + np.linalg.slogdet(2 * np.pi * covariance)[1]))
