# SPDX-License-Identifier: Apache-2.0
"""Slow and obvious twins of the fast paths: nothing is folded, nothing is shared, everything is in log space."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce

import numpy as np
import torch
from scipy import integrate, special, stats

import picirc as pc
from picirc.quadrature import Grid, Rule

Array = np.ndarray
LOG_TWO_PI = math.log(2 * math.pi)


def joint_normal(net: pc.BayesNet) -> tuple[tuple[str, ...], Array, Array]:
    """Names, mean and covariance of all variables of a linear-Gaussian network, ancestors first.

    Each variable is a linear function of its parents plus noise, so its row of the covariance is the same linear
    function of the rows of its parents.
    """
    functions = {**net.latents, **net.variables}
    names = (*reversed(net.children_first), *net.variables)
    place = {name: i for i, name in enumerate(names)}
    mean, cov = np.zeros(len(names)), np.zeros((len(names), len(names)))
    for i, name in enumerate(names):
        function = functions[name]
        rows = [place[parent] for parent in function.parents]
        a = np.array(list(function.weights.values()))
        mean[i] = function.bias + a @ mean[rows] if rows else function.bias
        if rows:
            cov[i, :i] = cov[:i, i] = a @ cov[rows, :i]
        cov[i, i] = function.std**2 + (a @ cov[rows, i] if rows else 0.0)
    return names, mean, cov


def observed_normal(net: pc.BayesNet) -> tuple[Array, Array]:
    """Mean and covariance of the observed variables, in the order of the columns."""
    names, mean, cov = joint_normal(net)
    keep = [names.index(name) for name in net.variables]
    return mean[keep], cov[np.ix_(keep, keep)]


def normal_log_prob(mean: Array, cov: Array, x: Array) -> Array:
    """Log-density of every row; the rows and columns of what is missing are left out."""
    result = np.zeros(len(x))
    for i, row in enumerate(x):
        seen = ~np.isnan(row)
        if seen.any():
            result[i] = stats.multivariate_normal(mean[seen], cov[np.ix_(seen, seen)]).logpdf(row[seen])
    return result


def filtered_log_prob(a: float, q: float, c: float, r: float, x: Array) -> float:
    """Log-likelihood of a chain ``z₀ ~ N(0, q²)``, ``zₜ = a zₜ₋₁ + q ε``, ``xₜ = c zₜ + r ε`` by Kalman's filter."""
    mean, var, total = 0.0, q * q, 0.0
    for value in x:
        spread = c * c * var + r * r
        total += stats.norm.logpdf(value, c * mean, math.sqrt(spread))
        gain = c * var / spread
        mean, var = mean + gain * (value - c * mean), (1 - gain * c) * var
        mean, var = a * mean, a * a * var + q * q
    return total


def input_log_prob(function: object, x: Array, *parents: Array) -> Array:
    """``log p(x | parents)`` from scipy, for ``x`` of shape (batch,) and parents that broadcast against (…, 1)."""
    if isinstance(function, pc.LinearGaussian):
        mean = function.bias + sum(a * z for a, z in zip(function.weights.values(), parents, strict=True))
        return stats.norm.logpdf(x, mean, function.std)
    tensors = [torch.as_tensor(z, dtype=torch.float64) for z in parents]
    if isinstance(function, pc.Density):
        return function.log_density(torch.as_tensor(x), *tensors).numpy()
    assert isinstance(function, pc.Conditional)
    raw = np.asarray(function.link(*tensors), dtype=np.float64)  # (…, 1), or (…, 1, P) for several parameters
    match function.family:
        case pc.Bernoulli():
            return stats.bernoulli.logpmf(x, special.expit(raw))
        case pc.Binomial(trials):
            return stats.binom.logpmf(x, trials, special.expit(raw))
        case pc.Poisson():
            return stats.poisson.logpmf(x, np.exp(raw))
        case pc.Categorical():
            logs = special.log_softmax(raw, axis=-1)
            return (
                np.take_along_axis(logs, x.astype(int)[:, None], -1)[..., 0]
                if logs.ndim == 2
                else (np.stack([logs[..., 0, int(value)] for value in x], -1))
            )
    raise AssertionError(function.family)


def _observed(function: object, column: Array, *parents: Array) -> Array:
    """As above, with log 1 where the value is missing."""
    shape = np.broadcast_shapes(column.shape, *(z.shape for z in parents))
    logs, seen = np.zeros(shape), ~np.isnan(column)
    if seen.any():
        logs[..., seen] = input_log_prob(function, column[seen], *parents)
    return logs


def static_log_prob(circuit: pc.Circuit, grids: Mapping[str, Grid], x: Array) -> Array:
    """Algorithm 1 by plain recursion: every unit is an array with one axis a latent, and the batch last.

    A unit that does not depend on a latent has length one along its axis; a unit used twice is computed twice.
    """
    axes = {z: i for i, z in enumerate(circuit.latents)}
    columns = {name: x[:, i] for i, name in enumerate(circuit.variables)}

    def along(z: str, values: Array) -> Array:
        return values.reshape([-1 if axis == axes[z] else 1 for axis in range(len(axes) + 1)])

    def points(latents: Sequence[str]) -> list[Array]:
        return [along(z, grids[z].points) for z in latents]

    def value(unit: pc.Input | pc.Integral | pc.Sum | pc.Product) -> Array:
        match unit:
            case pc.Input():
                return _observed(unit.function, columns[unit.variable], *points(unit.function.parents))
            case pc.Product():
                return reduce(np.add, map(value, unit.inputs), np.zeros((1,) * len(axes) + (len(x),)))
            case pc.Sum():
                with np.errstate(divide="ignore"):
                    terms = [value(u) + np.log(w) for u, w in zip(unit.inputs, unit.weights, strict=True)]
                return reduce(np.logaddexp, terms)
            case pc.Integral():
                total = value(unit.child)
                for z in unit.variables:
                    total = total + np.log(along(z, grids[z].weights))
                for factor in unit.factors:
                    at = map(torch.as_tensor, points(factor.latents))
                    total = total + factor.function.log_density(*at).numpy()
                over = tuple(axes[z] for z in unit.variables)
                return special.logsumexp(total, axis=over, keepdims=True)

    return value(circuit.root).reshape(-1)


def nested_log_prob(circuit: pc.Circuit, rules: Mapping[str, Rule], x: Array, sigmas: float = 6.0) -> Array:
    """Algorithm A.2 by plain recursion: at each combination of the latents above, a rule is placed anew."""
    columns = {name: x[:, i] for i, name in enumerate(circuit.variables)}

    def place(z: str, function: object, above: list[Array]) -> Grid:
        if isinstance(function, pc.LinearGaussian):
            mean = function.bias + sum(a * float(p[0]) for a, p in zip(function.weights.values(), above, strict=True))
            std = function.std
        else:
            if isinstance(function, pc.Conditional):
                mean, std = (float(v) for v in function.moments(*map(torch.as_tensor, above)))
                if function.values is not None:
                    return Grid(np.arange(float(function.values)), np.ones(function.values))
                return rules[z].on(mean - sigmas * std, mean + sigmas * std)
            assert isinstance(function, pc.Density)
            if not function.stated:
                return rules[z].on(*function.domain)
            mean, std = (float(v) for v in function.moments(*map(torch.as_tensor, above)))
        if math.isinf(rules[z].domain[1]):
            return rules[z].at(mean, std)
        return rules[z].on(mean - sigmas * std, mean + sigmas * std)

    def value(unit: pc.Input | pc.Integral | pc.Sum | pc.Product, at: dict[str, Array]) -> Array:
        match unit:
            case pc.Input():
                parents = [at[z] for z in unit.function.parents]
                return _observed(unit.function, columns[unit.variable], *parents)
            case pc.Product():
                return reduce(np.add, [value(child, at) for child in unit.inputs], np.zeros(len(x)))
            case pc.Sum():
                terms = [value(u, at) + np.log(w) for u, w in zip(unit.inputs, unit.weights, strict=True)]
                return reduce(np.logaddexp, terms)
            case pc.Integral():
                ((factor,), (z,)) = unit.factors, unit.variables
                above = [at[parent] for parent in factor.function.parents]
                grid = place(z, factor.function, above)
                terms = []
                for point, weight in zip(grid.points, grid.weights, strict=True):
                    here = np.array([point])
                    density = factor.function.log_density(*map(torch.as_tensor, [here, *above])).numpy()
                    terms.append(np.log(weight) + density + value(unit.child, {**at, z: here}))
                return special.logsumexp(terms, axis=0)

    return value(circuit.root, {}).reshape(-1)


def posterior(circuit: pc.Circuit, grids: Mapping[str, Grid], x: Array, latent: str) -> Array:
    """Probabilities of the states of a latent, ``(batch, states)``: what is lost when a state is left out.

    In a mixture they are those given a component that has the latent.
    """
    whole = static_log_prob(circuit, grids, x)
    grid = grids[latent]
    shares = []
    for n in range(len(grid.points)):
        others = {**grids, latent: Grid(np.delete(grid.points, n), np.delete(grid.weights, n))}
        shares.append(-np.expm1(static_log_prob(circuit, others, x) - whole))
    result = np.stack(shares, -1)
    return result / result.sum(-1, keepdims=True)


def dense_log_prob(net: pc.BayesNet, x: Array, ranges: Mapping[str, tuple[float, float]], points: int = 401) -> Array:
    """Log-likelihood of a network: Simpson's rule by scipy for the whole joint density on a dense grid."""
    names = list(net.latents)
    lines = [np.linspace(*ranges[name], points) for name in names]
    at = dict(zip(names, np.ix_(*lines, [0.0])[:-1], strict=True))  # one axis a latent, and one for the batch
    total = np.zeros((points,) * len(names) + (len(x),))
    for name, function in net.latents.items():
        values = [at[z] for z in (name, *function.parents)]
        total = total + function.log_density(*map(torch.as_tensor, values)).numpy()
    for i, function in enumerate(net.variables.values()):
        total = total + _observed(function, x[:, i], *(at[z] for z in function.parents))
    top = total.max(axis=tuple(range(len(names))))
    density = np.exp(total - top)
    for line in lines:
        density = integrate.simpson(density, x=line, axis=0)
    return np.log(density) + top


def enumerate_values(sizes: Sequence[int]) -> torch.Tensor:
    """Every combination of the values 0 … C−1 of discrete variables, one a row."""
    return torch.tensor(list(itertools.product(*map(range, sizes))), dtype=torch.float64)


def integrate_out(
    log_prob: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, column: int, reach: float
) -> Array:
    """``log ∫ p(x) dx_column`` of every row, on a dense grid over ±reach."""
    points, weights = np.polynomial.legendre.leggauss(400)
    rows = x.repeat_interleave(len(points), 0)
    rows[:, column] = torch.as_tensor(reach * points).repeat(len(x))
    values = log_prob(rows).reshape(len(x), -1).numpy()
    return special.logsumexp(values + np.log(reach * weights), axis=1)


def all_orders(net: pc.BayesNet) -> Iterator[tuple[str, ...]]:
    """Every order in which the latents can be eliminated."""
    return itertools.permutations(net.latents)
