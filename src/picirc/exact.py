# SPDX-License-Identifier: Apache-2.0
"""Closed-form integration of linear-Gaussian circuits.

The function of every unit is ``exp(−½ vᵀ K v + hᵀ v + g)`` over observed variables and free latents. Products add these
forms, integrals complete the square; at the root only the observed variables are left, and the function is a
multivariate normal density. This works for trees and DAGs and for every elimination order, because nothing needs to be
a conditional density on the way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from picirc.errors import ArgumentError, IntractableError
from picirc.functions import LinearGaussian
from picirc.symbolic.circuit import SymbolicCircuit
from picirc.symbolic.units import Input, Integral, Product, Sum, Unit


@dataclass(frozen=True)
class Quadratic:
    """``exp(−½ vᵀ K v + hᵀ v + g)`` over named variables."""

    names: tuple[str, ...]
    K: Tensor
    h: Tensor
    g: Tensor

    def __mul__(self, other: Quadratic) -> Quadratic:
        names = tuple(dict.fromkeys(self.names + other.names))
        left, right = self._over(names), other._over(names)
        return Quadratic(names, left.K + right.K, left.h + right.h, self.g + other.g)

    def integrate(self, names: Sequence[str]) -> Quadratic:
        """The integral over some of the variables."""
        out = [self.names.index(name) for name in names if name in self.names]
        rest = [i for i in range(len(self.names)) if i not in out]
        chol, failed = torch.linalg.cholesky_ex(self.K[out][:, out])
        if failed or len(out) < len(names):
            raise IntractableError(f"no closed form: nothing keeps the integral over {', '.join(names)} finite.")
        cross = torch.linalg.solve_triangular(chol, self.K[out][:, rest], upper=False)
        shift = torch.linalg.solve_triangular(chol, self.h[out].unsqueeze(1), upper=False).squeeze(1)
        log_volume = 0.5 * len(out) * math.log(2 * math.pi) - chol.diagonal().log().sum()
        return Quadratic(
            tuple(self.names[i] for i in rest),
            self.K[rest][:, rest] - cross.T @ cross,
            self.h[rest] - cross.T @ shift,
            self.g + log_volume + 0.5 * shift @ shift,
        )

    def _over(self, names: tuple[str, ...]) -> Quadratic:
        place = torch.tensor([names.index(name) for name in self.names], dtype=torch.long)
        K, h = self.K.new_zeros(len(names), len(names)), self.h.new_zeros(len(names))
        K[place[:, None], place[None, :]] = self.K
        h[place] = self.h
        return Quadratic(names, K, h, self.g)


class ExactGaussian:
    """A multivariate normal over named variables: what a linear-Gaussian circuit integrates to.

    Args:
        variables: The names, in the order of the columns.
        mean: ``(D,)``.
        covariance: ``(D, D)``.
    """

    def __init__(self, variables: Sequence[str], mean: Tensor, covariance: Tensor) -> None:
        self.variables = tuple(variables)
        self.mean = mean
        self.covariance = covariance

    def log_prob(self, x: Tensor) -> Tensor:
        """``log p(x)`` of every row ``(batch, D)``; NaN is missing and integrated out."""
        x = self._rows("x", x)
        missing = x.isnan()
        result = torch.empty(len(x), dtype=self.mean.dtype)
        patterns, which = missing.unique(dim=0, return_inverse=True)
        for number, pattern in enumerate(patterns):
            rows = which == number
            result[rows] = self._log_prob_of(x[rows][:, ~pattern], ~pattern)
        return result

    def condition(self, evidence: Mapping[str, float]) -> ExactGaussian:
        """The distribution of the other variables given the values of some."""
        unknown = [name for name in evidence if name not in self.variables]
        if unknown or not evidence or len(evidence) == len(self.variables):
            expected = f"values for some, not all, of {', '.join(self.variables)}"
            raise ArgumentError("evidence", expected, ", ".join(unknown or evidence) or "none")
        seen = torch.tensor([name in evidence for name in self.variables])
        values = [evidence[name] for name in self.variables if name in evidence]
        if not all(math.isfinite(value) for value in values):
            raise ArgumentError("evidence", "finite values", dict(evidence), "leave out what is missing")
        e = torch.tensor(values, dtype=self.mean.dtype)
        chol = torch.linalg.cholesky(self.covariance[seen][:, seen])
        gain = torch.cholesky_solve(self.covariance[seen][:, ~seen], chol).T
        mean = self.mean[~seen] + gain @ (e - self.mean[seen])
        covariance = self.covariance[~seen][:, ~seen] - gain @ self.covariance[seen][:, ~seen]
        names = [name for name in self.variables if name not in evidence]
        return ExactGaussian(names, mean, covariance)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Independent draws, ``(n, D)``."""
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise ArgumentError("n", "a positive integer", n)
        chol: Tensor = torch.linalg.cholesky(self.covariance)
        noise = torch.randn(n, len(self.mean), dtype=self.mean.dtype, generator=generator)
        return self.mean + noise @ chol.T

    def __repr__(self) -> str:
        return f"ExactGaussian({', '.join(self.variables)})"

    def _log_prob_of(self, x: Tensor, seen: Tensor) -> Tensor:
        chol: Tensor = torch.linalg.cholesky(self.covariance[seen][:, seen])
        standard: Tensor = torch.linalg.solve_triangular(chol, (x - self.mean[seen]).T, upper=False)
        log_volume = 0.5 * x.shape[1] * math.log(2 * math.pi) + chol.diagonal().log().sum()
        return -0.5 * standard.square().sum(0) - log_volume

    def _rows(self, argument: str, x: Tensor) -> Tensor:
        x = torch.as_tensor(x, dtype=self.mean.dtype)
        if x.ndim != 2 or x.shape[1] != len(self.variables):
            expected = f"a tensor (batch, {len(self.variables)})"
            raise ArgumentError(argument, expected, f"shape {tuple(x.shape)}", "a single data point is x[None]")
        if x.isinf().any():
            raise ArgumentError(argument, "finite values, or NaN where missing", "infinite values")
        return x


def integrate_exactly(circuit: SymbolicCircuit) -> ExactGaussian:
    """The closed form of a linear-Gaussian circuit."""
    circuit.properties.require("smooth", "decomposable", purpose="exact integration")
    functions: dict[Unit, Quadratic] = {}
    for unit in circuit.units:
        name = circuit.names[unit]
        match unit:
            case Input():
                functions[unit] = _conditional(unit.variable, unit.function, name)
            case Product():
                functions[unit] = _product([functions[child] for child in unit.inputs])
            case Integral():
                for factor in unit.factors:
                    if len(factor.variables) != 1:
                        raise IntractableError(f"no closed form: the unit {name} carries a joint density.")
                factors = [_conditional(f.variables[0], f.function, name) for f in unit.factors]
                functions[unit] = _product([functions[unit.child], *factors]).integrate(unit.variables)
            case Sum():
                raise IntractableError(
                    f"no closed form: the sum unit {name} makes a mixture of normals, not one; use integrate(rule)."
                )
    root = functions[circuit.root]._over(circuit.variables)
    log_mass = float(root.integrate(circuit.variables).g)
    # What rounding may make of log 1 grows with the terms that cancel.
    if abs(log_mass) > 1e-4 + 1e-10 * abs(float(root.g)):
        raise IntractableError(
            f"no closed form: the function of {circuit.names[circuit.root]} has the mass {math.exp(log_mass):.3g} "
            "instead of one; give every latent one density, conditioned on latents above it."
        )
    covariance = torch.cholesky_inverse(torch.linalg.cholesky(root.K))
    return ExactGaussian(circuit.variables, covariance @ root.h, covariance)


def _product(parts: Sequence[Quadratic]) -> Quadratic:
    zero = torch.zeros((), dtype=torch.float64)
    total = Quadratic((), zero.new_zeros(0, 0), zero.new_zeros(0), zero)
    for part in parts:
        total = total * part
    return total


def _conditional(variable: str, function: object, unit: str) -> Quadratic:
    """``N(v; Σ a_i z_i + b, σ²)`` as a quadratic in v and z."""
    if not isinstance(function, LinearGaussian):
        raise IntractableError(
            f"no closed form: the unit {unit} carries {function!r}, which is not linear-Gaussian; use integrate(rule)."
        )
    direction = torch.tensor([1.0, *(-a for a in function.weights.values())], dtype=torch.float64)
    precision = function.std**-2
    g = -0.5 * function.bias**2 * precision - math.log(function.std) - 0.5 * math.log(2 * math.pi)
    return Quadratic(
        (variable, *function.parents),
        torch.outer(direction, direction) * precision,
        direction * function.bias * precision,
        torch.tensor(g, dtype=torch.float64),
    )
