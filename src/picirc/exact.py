# SPDX-License-Identifier: Apache-2.0
"""Closed-form integration of linear-Gaussian circuits.

Every conditional density says that ``(v − Σ a_i z_i − b) / σ`` is standard normal. This is a *row* ``A u − c`` of a
least-squares problem in the unknowns ``u``, and a function of the circuit is ``exp(−½ ‖A u − c‖² + g)``. A product
stacks the rows of its inputs. A latent is integrated out by a QR decomposition of the rows that mention it: its own row
gives the volume, and the other rows remain. Only square roots of precisions appear, so that variances of very different
sizes do not lose digits. The work is linear in the number of latents if each row mentions few of them, as in a chain or
a tree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from picirc.checks import check_integer
from picirc.errors import ArgumentError, IntractableError
from picirc.functions import LinearGaussian
from picirc.structure.bayesnet import topological_order
from picirc.symbolic.build import Buckets
from picirc.symbolic.circuit import SymbolicCircuit
from picirc.symbolic.units import Factor, Input, Integral, Product, Sum, Unit

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_MASS_TOLERANCE = 1e-6


class ExactGaussian:
    """A multivariate normal over named variables, to which a linear-Gaussian circuit integrates.

    Args:
        variables: The names, in the order of the columns.
        mean: ``(D,)``.
        covariance: ``(D, D)``.

    Example:
        >>> cov = torch.tensor([[1.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
        >>> normal = ExactGaussian(["a", "b"], torch.zeros(2, dtype=torch.float64), cov)
        >>> normal.condition({"a": 2.0}).mean
        tensor([1.], dtype=torch.float64)
    """

    def __init__(self, variables: Sequence[str], mean: Tensor, covariance: Tensor) -> None:
        self.variables = tuple(variables)
        self._mean, self._covariance = mean, covariance

    @property
    def mean(self) -> Tensor:
        """The means, ``(D,)``."""
        return self._mean

    @property
    def covariance(self) -> Tensor:
        """The covariances, ``(D, D)``."""
        return self._covariance

    def log_prob(self, x: Tensor) -> Tensor:
        """``log p(x)`` of every row ``(batch, D)``; NaN is missing and integrated out."""
        x = torch.as_tensor(x, dtype=torch.float64)
        if x.ndim != 2 or x.shape[1] != len(self.variables):
            expected = f"a tensor (batch, {len(self.variables)})"
            raise ArgumentError("x", expected, f"shape {tuple(x.shape)}", "a single data point is x[None]")
        if x.isinf().any():
            raise ArgumentError("x", "finite values, or NaN where missing", "infinite values")
        result = torch.empty(len(x), dtype=x.dtype)
        patterns, which = x.isnan().unique(dim=0, return_inverse=True)
        for number, pattern in enumerate(patterns):
            rows = which == number
            result[rows] = self._log_prob_of(x[rows][:, ~pattern], ~pattern)
        return result

    def condition(self, evidence: Mapping[str, float]) -> ExactGaussian:
        """The distribution of the other variables given the values of some variables."""
        unknown = [name for name in evidence if name not in self.variables]
        if unknown or not evidence or len(evidence) == len(self.variables):
            expected = f"values for some, not all, of {', '.join(self.variables)}"
            raise ArgumentError("evidence", expected, ", ".join(unknown or evidence) or "none")
        if not all(math.isfinite(value) for value in evidence.values()):
            raise ArgumentError("evidence", "finite values", dict(evidence), "leave out what is missing")
        return self._condition(evidence)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Independent draws, ``(n, D)``."""
        return self._sample(check_integer("n", n), generator)

    def __repr__(self) -> str:
        return f"ExactGaussian({', '.join(self.variables)})"

    def _condition(self, evidence: Mapping[str, float]) -> ExactGaussian:
        seen = torch.tensor([name in evidence for name in self.variables])
        values = [evidence[name] for name in self.variables if name in evidence]
        chol = torch.linalg.cholesky(self.covariance[seen][:, seen])
        gain = torch.cholesky_solve(self.covariance[seen][:, ~seen], chol).T
        mean = self.mean[~seen] + gain @ (torch.tensor(values, dtype=self.mean.dtype) - self.mean[seen])
        covariance = self.covariance[~seen][:, ~seen] - gain @ self.covariance[seen][:, ~seen]
        return ExactGaussian([name for name in self.variables if name not in evidence], mean, covariance)

    def _sample(self, n: int, generator: torch.Generator | None) -> Tensor:
        chol: Tensor = torch.linalg.cholesky(self.covariance)
        noise = torch.randn(n, len(self.mean), dtype=self.mean.dtype, generator=generator)
        return self.mean + noise @ chol.T

    def _log_prob_of(self, x: Tensor, seen: Tensor) -> Tensor:
        chol: Tensor = torch.linalg.cholesky(self.covariance[seen][:, seen])
        standard: Tensor = torch.linalg.solve_triangular(chol, (x - self.mean[seen]).T, upper=False)
        log_volume = x.shape[1] * _HALF_LOG_2PI + chol.diagonal().log().sum()
        return -0.5 * standard.square().sum(0) - log_volume


class NetworkGaussian(ExactGaussian):
    """The normal distribution of a linear-Gaussian network, whose latents are eliminated for each query.

    Args:
        variables: The variables of the distribution, in the order of the columns.
        nodes: The conditional density of each variable of the network by name, parents first.
        order: The latents in the order of their elimination.
    """

    def __init__(self, variables: Sequence[str], nodes: Mapping[str, Conditional], order: Sequence[str]) -> None:
        self.variables = tuple(variables)
        self._nodes, self._order = dict(nodes), tuple(order)

    @cached_property
    def mean(self) -> Tensor:
        """The means, from parents to children."""
        means: dict[str, float] = {}
        for name, node in self._nodes.items():
            means[name] = node.bias + sum(a * means[z] for z, a in node.weights.items())
        return torch.tensor([means[name] for name in self.variables], dtype=torch.float64)

    @cached_property
    def covariance(self) -> Tensor:
        """The covariances, from the coefficients of each variable in the noises of all variables with children."""
        above = {parent for node in self._nodes.values() for parent in node.weights}
        place = {name: i for i, name in enumerate(name for name in self._nodes if name in above)}
        shares: dict[str, np.ndarray] = {}
        for name, node in self._nodes.items():
            own = np.zeros(len(place))
            for parent, a in node.weights.items():
                own += a * shares[parent]
            if name in place:
                own[place[name]] = node.std
            shares[name] = own
        found = torch.from_numpy(np.array([shares[name] for name in self.variables]))
        own_noise = [0.0 if name in place else self._nodes[name].std for name in self.variables]
        noise = torch.tensor(own_noise, dtype=torch.float64)
        return found @ found.T + noise.square().diag()

    def _log_prob_of(self, x: Tensor, seen: Tensor) -> Tensor:
        names = [name for name, known in zip(self.variables, seen.tolist(), strict=True) if known]
        values = dict(zip(names, x.T, strict=True))
        nodes = self._above(names)
        rows = _Rows([node.row(values, len(x)) for node in nodes.values()])
        hidden = [name for name in self.variables if name in nodes and name not in values]  # parents of others
        for name in (*self._order, *hidden):
            if name in nodes:
                rows.integrate(name)
        return rows.log_value - _log_norm(nodes.values())

    def _condition(self, evidence: Mapping[str, float]) -> ExactGaussian:
        values = {name: torch.tensor([value], dtype=torch.float64) for name, value in evidence.items()}
        rows = _Rows([node.row(values, 1) for node in self._nodes.values()])
        for name in self._order:
            rows.integrate(name)
        return rows.normal([name for name in self.variables if name not in evidence])[0]

    def _sample(self, n: int, generator: torch.Generator | None) -> Tensor:
        drawn: dict[str, Tensor] = {}
        for name, node in self._nodes.items():
            drawn[name] = node.bias + node.std * torch.randn(n, dtype=torch.float64, generator=generator)
            for parent, a in node.weights.items():
                drawn[name] += a * drawn[parent]
        return torch.stack([drawn[name] for name in self.variables], 1)

    def _above(self, names: Sequence[str]) -> dict[str, Conditional]:
        """The nodes of the named variables and of their ancestors; all others integrate to one."""
        needed, stack = set(names), list(names)
        while stack:
            new = [parent for parent in self._nodes[stack.pop()].weights if parent not in needed]
            needed.update(new)
            stack.extend(new)
        return {name: node for name, node in self._nodes.items() if name in needed}


@dataclass(frozen=True)
class Conditional:
    """``N(v; Σ a_i z_i + b, σ²)``, with names that are unique in the whole circuit."""

    name: str
    weights: Mapping[str, float]
    bias: float
    std: float

    def row(self, values: Mapping[str, Tensor], batch: int) -> Row:
        """The row of the conditional if some variables have the given values, ``(batch,)`` each."""
        terms = {self.name: 1.0} | {z: -a for z, a in self.weights.items()}
        right = torch.full((batch,), self.bias, dtype=torch.float64)
        for name, a in terms.items():
            if name in values:
                right = right - a * values[name]
        names = [name for name in terms if name not in values]
        left = torch.tensor([[terms[name] for name in names]], dtype=torch.float64)
        return Row(tuple(names), left / self.std, right[None] / self.std)


@dataclass(frozen=True)
class Row:
    """Rows ``A u − c`` in the unknowns ``u``."""

    names: tuple[str, ...]  # of the unknowns
    left: Tensor  # A, (rows, unknowns)
    right: Tensor  # c, (rows, batch)


class _Rows:
    """The function ``exp(−½ ‖A u − c‖² + g)``, the product of those of the given rows."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.log_value = torch.zeros(rows[0].right.shape[1] if rows else 1, dtype=torch.float64)  # g, (batch,)
        self._rows = Buckets[Row]()
        for row in rows:
            self._add(row)

    def integrate(self, name: str) -> None:
        """Integrate out an unknown."""
        stacked = _stacked(self._rows.take(name)[1], (name,))
        if not stacked.left.numel() or not bool(stacked.left[:, 0].any()):
            raise IntractableError(f"no closed form: nothing keeps the integral over {name} finite.")
        rest = self._triangular(stacked)
        self.log_value = self.log_value + _HALF_LOG_2PI - rest.left[0, 0].abs().log()
        self._add(Row(rest.names[1:], rest.left[1:, 1:], rest.right[1:]))

    def normal(self, names: Sequence[str]) -> tuple[ExactGaussian, float]:
        """The normal density over the remaining unknowns, and the logarithm of the mass of the function."""
        rest = self._triangular(_stacked(self._rows.rest(), names))
        if len(rest.left) < len(names) or bool((rest.left.diagonal() == 0).any()):
            raise IntractableError(f"no closed form: nothing keeps the integral over {', '.join(names)} finite.")
        mean: Tensor = torch.linalg.solve_triangular(rest.left, rest.right, upper=True).squeeze(1)
        root: Tensor = torch.linalg.solve_triangular(rest.left, torch.eye(len(names), dtype=mean.dtype), upper=True)
        log_mass = self.log_value + len(names) * _HALF_LOG_2PI - rest.left.diagonal().abs().log().sum()
        return ExactGaussian(names, mean, root @ root.T), float(log_mass)

    def _triangular(self, row: Row) -> Row:
        """The same rows, rotated so that A is upper triangular; the residual that no unknown can reduce goes into g."""
        # Large rows first: the rounding error of a rotation is relative to its largest row.
        order = row.left.abs().amax(1).argsort(descending=True, stable=True)
        left, right = row.left[order], row.right[order]
        q, r = torch.linalg.qr(left)
        turned = q.T @ right
        if len(left) > len(turned):
            self.log_value = self.log_value - 0.5 * (right - q @ turned).square().sum(0)
        return Row(row.names, r, turned)

    def _add(self, row: Row) -> None:
        if not row.names:
            self.log_value = self.log_value - 0.5 * row.right.square().sum(0)
        elif len(row.left):
            self._rows.add(frozenset(row.names), row)


def _stacked(rows: Sequence[Row], first: Sequence[str]) -> Row:
    """The rows below each other, with the unknowns ``first`` in the first columns."""
    names = tuple(dict.fromkeys((*first, *(name for row in rows for name in row.names))))
    place = {name: i for i, name in enumerate(names)}
    left = torch.zeros(sum(len(row.left) for row in rows), len(names), dtype=torch.float64)
    start = 0
    for row in rows:
        left[start : start + len(row.left), [place[name] for name in row.names]] = row.left
        start += len(row.left)
    right = torch.cat([row.right for row in rows]) if rows else torch.zeros(0, 1, dtype=torch.float64)
    return Row(names, left, right)


def integrate_exactly(circuit: SymbolicCircuit) -> ExactGaussian:
    """The closed form of a linear-Gaussian circuit."""
    circuit.properties.require("smooth", purpose="exact integration")
    circuit.check_products("exact integration")
    conditionals, latents = _conditionals(circuit)
    nodes = {node.name: node for node in conditionals}
    if len(nodes) == len(conditionals) and not set(latents) - set(nodes):
        try:
            order = topological_order({name: tuple(node.weights) for name, node in nodes.items()})
            return NetworkGaussian(circuit.variables, {name: nodes[name] for name in order}, latents)
        except ArgumentError:  # a cycle
            pass
    rows = _Rows([node.row({}, 1) for node in conditionals])
    for latent in latents:
        rows.integrate(latent)
    found, log_mass = rows.normal(circuit.variables)
    log_mass -= _log_norm(conditionals)
    if abs(log_mass) > _MASS_TOLERANCE:
        raise IntractableError(
            f"no closed form: the function of {circuit.names[circuit.root]} has the mass {math.exp(log_mass):.3g} "
            "instead of one; give every latent one density, conditioned on latents above it."
        )
    return found


def _conditionals(circuit: SymbolicCircuit) -> tuple[list[Conditional], list[str]]:
    """All conditional densities, and the latents in the order of their elimination.

    Two integrals over latents of the same name are over different latents; the second one is renamed.
    """
    found: list[Conditional] = []
    latents: list[str] = []
    used: set[str] = set(circuit.variables)
    stack: list[tuple[Unit, dict[str, str]]] = [(circuit.root, {})]
    while stack:
        unit, names = stack.pop()
        match unit:
            case Sum():
                text = f"the sum unit {circuit.names[unit]} makes a mixture of normals, not one; use integrate(rule)."
                raise IntractableError(f"no closed form: {text}")
            case Input():
                found.append(_conditional(unit, names, circuit.names[unit]))
            case Product():
                stack.extend((child, names) for child in unit.inputs)
            case Integral():
                own = {latent: _fresh(latent, used) for latent in unit.variables}
                used.update(own.values())
                latents.extend(own.values())
                known = names | own
                found.extend(_conditional(factor, known, circuit.names[unit]) for factor in unit.factors)
                stack.append((unit.child, {z: known[z] for z in circuit.free(unit.child)}))
    return found, latents[::-1]


def _fresh(name: str, used: set[str]) -> str:
    number = 2
    fresh = name
    while fresh in used:
        fresh, number = f"{name} ({number})", number + 1
    return fresh


def _conditional(carrier: Input | Factor, names: Mapping[str, str], unit: str) -> Conditional:
    """The conditional density of an input unit, or of a factor of an integral unit, with unique names."""
    function = carrier.function
    if len(carrier.variables) != 1:
        raise IntractableError(f"no closed form: the unit {unit} carries a joint density.")
    if not isinstance(function, LinearGaussian):
        raise IntractableError(
            f"no closed form: the unit {unit} carries {function!r}, which is not linear-Gaussian; use integrate(rule)."
        )
    weights = {names.get(z, z): a for z, a in function.weights.items()}
    variable = carrier.variables[0]
    return Conditional(names.get(variable, variable), weights, function.bias, function.std)


def _log_norm(nodes: Iterable[Conditional]) -> float:
    """``Σ log σ + ½ log 2π`` over conditional densities."""
    return sum(math.log(node.std) + _HALF_LOG_2PI for node in nodes)
