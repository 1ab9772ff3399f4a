# SPDX-License-Identifier: Apache-2.0
"""The whole method, written plainly: circuit → quadrature → likelihood.

Nothing is folded, shared or scaled here. Every unit becomes an array of log-values with one axis for each latent and
the batch last; a unit that does not depend on a latent has length one along its axis. The engine computes the same
numbers, many units at a time; `tests/test_reference.py` holds it to this file. Sizes multiply with the latents of a
function, so this is for reading and for small circuits.

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

from picirc.functions import Conditional
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
    """
    quadrature = _Quadrature(circuit, grids, x)
    values: dict[Unit, Array] = {}
    for unit in circuit.units:  # the inputs of a unit come before it
        values[unit] = quadrature.value(unit, [values[below] for below in unit.inputs])
    return np.broadcast_to(values[circuit.root].reshape(-1), len(x)).copy()


class _Quadrature:
    def __init__(self, circuit: SymbolicCircuit, grids: Mapping[str, Grid], x: Array) -> None:
        self._axis = {z: i for i, z in enumerate(circuit.latents)}
        self._grids = grids
        self._column = {name: x[:, i] for i, name in enumerate(circuit.variables)}

    def value(self, unit: Unit, below: Sequence[Array]) -> Array:
        """The log-value of a unit at every point of its latents, from the values of the units below."""
        match unit:
            case Input():
                return self._input(unit)
            case Product():
                return np.asarray(sum(below, np.zeros((1,) * (len(self._axis) + 1))))
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
            total = total + _log_density(factor.function, *self._points(factor.latents))
        for z in unit.variables:
            total = total + np.log(self._along(z, self._grids[z].weights))
        over = tuple(self._axis[z] for z in unit.variables)
        return np.asarray(logsumexp(total, axis=over, keepdims=True))

    def _input(self, unit: Input) -> Array:
        """``p(x | Z)`` of one variable; a missing value is integrated out, which leaves one."""
        x, parents = self._column[unit.variable], self._points(unit.function.parents)
        seen = ~np.isnan(x)
        shape = np.broadcast_shapes(x.shape, *(z.shape for z in parents), (1,) * (len(self._axis) + 1))
        found = np.zeros(shape)
        if seen.any():
            found[..., seen] = _log_input(unit.function, x[seen], *parents)
        return found

    def _points(self, latents: Sequence[str]) -> list[Array]:
        return [self._along(z, self._grids[z].points) for z in latents]

    def _along(self, z: str, values: Array) -> Array:
        """Numbers for the points of a latent, along its axis."""
        return values.reshape([-1 if axis == self._axis[z] else 1 for axis in range(len(self._axis) + 1)])


def _log_density(function: Function, *points: Array) -> Array:
    """``log p(v | parents)`` of a latent; functions are written with torch."""
    density = getattr(function, "log_density")  # noqa: B009  # a function of a latent has one
    found: torch.Tensor = density(*map(torch.as_tensor, points))
    return found.detach().numpy()


def _log_input(function: Function, x: Array, *parents: Array) -> Array:
    """``log p(x | parents)`` of an observed variable, with the batch along the last axis."""
    if not isinstance(function, Conditional):
        return _log_density(function, x, *parents)
    shape = np.broadcast_shapes(*(z.shape for z in parents))  # (…, 1): the parameters are the same for the batch
    params = function.parameters(*(torch.as_tensor(np.broadcast_to(z, shape).copy()) for z in parents)).detach()
    states, values = params.reshape(1, -1, params.shape[-1]), torch.as_tensor(x).unsqueeze(0)
    found: Array = function.family.log_prob(states, values).numpy()  # type: ignore[attr-defined]
    return found.reshape(*shape[:-1], len(x))
