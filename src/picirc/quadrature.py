# SPDX-License-Identifier: Apache-2.0
"""Quadrature rules: points and weights with ∫ f(z) dz ≈ Σₙ wₙ f(zₙ).

A `Rule` is immutable and defined on a reference domain. Placed on the domain of a latent, it becomes a `Grid`:
``rule.on(low, high)`` for an interval, ``rule.at(mean, std)`` for Gauss–Hermite, whose points follow a normal density.
Both accept arrays, because nested quadrature places one rule on many intervals at once. ``n`` is always the number of
points, not of cells.

`shifted` makes random rules: a new shift at each training step prevents a model from fitting the points instead of the
integral. Latents that are vectors need a `VectorRule`: `sobol`, or the `tensor_grid` of a rule in one dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.fft import dct
from scipy.special import ndtr, ndtri, roots_hermitenorm, roots_legendre

from picirc.checks import check_choice, check_integer
from picirc.errors import ArgumentError

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Grid:
    """A rule placed on a latent's domain."""

    points: Array  # (…, N), ascending along the last axis; (N, d) for vectors
    weights: Array  # (…, N)


@dataclass(frozen=True, eq=False, repr=False)
class Rule:
    """Points and weights on a reference domain: ∫ f(z) dz ≈ Σₙ wₙ f(zₙ).

    The functions of this module make the usual rules. Make a custom rule with ``Rule(name, points, weights, domain,
    order)``. The arrays are copied and made read-only.

    Attributes:
        name: The name of the rule, such as ``"trapezoidal"``.
        points: The points zₙ, of shape (N,), ascending, inside the domain.
        weights: The weights wₙ, of shape (N,).
        domain: The reference domain, (-1, 1), or (-inf, inf) for Gauss–Hermite.
        order: The order p of the error O(N⁻ᵖ) for smooth integrands; inf if the error decreases faster than any power.
        remake: ``remake(n)`` returns the same kind of rule with n points, or the next allowed number; None for custom
            rules.

    Example:
        >>> rule = trapezoidal(3)
        >>> rule.points, rule.weights
        (array([-1.,  0.,  1.]), array([0.5, 1. , 0.5]))
        >>> rule.on(0, 8).points
        array([0., 4., 8.])
    """

    name: str
    points: Array
    weights: Array
    domain: tuple[float, float]
    order: float
    remake: Callable[[int], Rule] | None = None

    def __post_init__(self) -> None:
        _freeze(self)
        if self.points.ndim != 1 or len(self.points) == 0 or self.points.shape != self.weights.shape:
            shapes = f"shapes {self.points.shape} and {self.weights.shape}"
            raise ArgumentError("points, weights", "two arrays of one shape (N,), N ≥ 1", shapes)
        low, high = self.domain
        if not low < high:
            raise ArgumentError("domain", "(low, high) with low < high", self.domain)
        if np.any(np.diff(self.points) <= 0) or self.points[0] < low or self.points[-1] > high:
            raise ArgumentError("points", f"ascending numbers inside {self.domain}", self.points)

    def __len__(self) -> int:
        return len(self.points)

    def __repr__(self) -> str:
        return f"Rule({self.name}, N={len(self)})"

    def on(self, low: ArrayLike, high: ArrayLike) -> Grid:
        """Place the rule on the interval [low, high] by an affine map.

        The ends are numbers or arrays that broadcast to a shape (…); the grid then has the shape (…, N).

        Example:
            >>> midpoint(2).on([0, 10], [4, 20]).points
            array([[ 1. ,  3. ],
                   [12.5, 17.5]])
        """
        start, end = self.domain
        if not math.isfinite(end - start):
            remedy = "place it with .at(mean, std), or take a rule on an interval such as gauss_legendre"
            raise ArgumentError("rule", "a rule on a finite domain", f"{self.name} on {self.domain}", remedy)
        lows, highs = _column_pair("low", low, "high", high)  # (…, 1)
        with np.errstate(over="ignore"):
            length = highs - lows
        wrong = (length <= 0) | np.isinf(length)
        if np.any(wrong):
            first = (float(lows[wrong][0]), float(highs[wrong][0]))
            raise ArgumentError("low, high", "low < high, a finite distance apart", first)
        t = (2 * self.points - (start + end)) / (end - start)  # (N,), in [-1, 1]
        # Rounding must not move an end point out of the interval, where the density may be undefined.
        points = np.clip(lows + length / 2 + length / 2 * t, lows, highs)  # (…, N)
        return Grid(points, length / (end - start) * self.weights)

    def at(self, mean: ArrayLike, std: ArrayLike) -> Grid:
        """Place a Gauss–Hermite rule at a normal density: points mean + std·tₙ, weights std·wₙ.

        Both are numbers or arrays that broadcast to a shape (…); the grid then has the shape (…, N).

        Example:
            >>> gauss_hermite(3).at(mean=10.0, std=2.0).points.round(4)
            array([ 6.5359, 10.    , 13.4641])
        """
        if self.domain != (-math.inf, math.inf):
            remedy = "place it with .on(mean - k*std, mean + k*std), k = 3 or more"
            raise ArgumentError("rule", "a rule on (-inf, inf)", f"{self.name} on {self.domain}", remedy)
        means, stds = _column_pair("mean", mean, "std", std)  # (…, 1)
        if np.any(stds <= 0):
            raise ArgumentError("std", "positive numbers", float(stds[stds <= 0][0]))
        return Grid(means + stds * self.points, stds * self.weights)

    def resize(self, n: int) -> Rule:
        """Return the same kind of rule with n points, or the next larger number allowed.

        Example:
            >>> simpson(3).resize(8)
            Rule(simpson, N=9)
        """
        if self.remake is None:
            remedy = "make the other size by hand too"
            raise ArgumentError("rule", "a rule of a known family", f"{self.name}, made by hand", remedy)
        return self.remake(check_integer("n", n))

    def refine(self) -> Rule:
        """Return the same kind of rule with twice as many cells: 2N points, or 2N - 1 if both ends are points.

        Example:
            >>> trapezoidal(5).refine(), midpoint(5).refine()
            (Rule(trapezoidal, N=9), Rule(midpoint, N=10))
        """
        closed = (self.points[0], self.points[-1]) == self.domain
        return self.resize(2 * len(self) - closed)


@dataclass(frozen=True, eq=False, repr=False)
class VectorRule:
    """Points and weights for a latent that is a vector of d dimensions: ∫ f(z) μ(dz) ≈ Σₙ wₙ f(zₙ).

    Attributes:
        name: The name of the rule, such as ``"sobol"``.
        points: The points zₙ, of shape (N, d).
        weights: The weights wₙ, of shape (N,), which add up to 1.
        measure: The base measure μ: ``"normal"`` for N(0, I), ``"uniform"`` for the uniform distribution on [-1, 1]ᵈ.
        remake: ``remake(n, seed)`` returns the same kind of rule with n points (or the next allowed number) and, if it
            is random, this seed; None for custom rules.

    Example:
        >>> rule = sobol(1024, dims=3)
        >>> rule.points.shape, bool(np.abs(rule.points.mean(0)).max() < 0.01)
        ((1024, 3), True)
    """

    name: str
    points: Array
    weights: Array
    measure: str = "normal"
    remake: Callable[[int, int], VectorRule] | None = None

    def __post_init__(self) -> None:
        check_choice("measure", self.measure, ("normal", "uniform"))
        _freeze(self)
        if self.points.ndim != 2 or self.points.size == 0 or self.weights.shape != self.points.shape[:1]:
            shapes = f"shapes {self.points.shape} and {self.weights.shape}"
            raise ArgumentError("points, weights", "arrays of shapes (N, d) and (N,)", shapes)

    def __len__(self) -> int:
        return len(self.points)

    def __repr__(self) -> str:
        return f"VectorRule({self.name}, N={len(self)}, dims={self.dims})"

    @property
    def dims(self) -> int:
        """The number of dimensions d."""
        return int(self.points.shape[1])

    def resize(self, n: int, seed: int = 0) -> VectorRule:
        """Return the same kind of rule with n points, or with the next larger number allowed."""
        if self.remake is None:
            remedy = "make the other size by hand too"
            raise ArgumentError("rule", "a rule of a known kind", f"{self.name}, made by hand", remedy)
        return self.remake(check_integer("n", n), seed)

    def refine(self) -> VectorRule:
        """Return the same kind of rule with twice the points (or the next number allowed) and another random seed."""
        return self.resize(2 * len(self), seed=1)

    def at(self, mean: ArrayLike, covariance: ArrayLike) -> Grid:
        """Place the rule at a normal density: points m + L tₙ, with L Lᵀ the covariance, and weights relative to dz.

        A rule for the uniform measure is placed on a parallelepiped of ±6 standard deviations.

        Example:
            >>> tensor_grid(gauss_hermite(3), 2).at([10.0, 0.0], [[4.0, 0.0], [0.0, 1.0]]).points[0].round(4)
            array([ 6.5359, -1.7321])
        """
        centre, spread = _finite("mean", mean), _finite("covariance", covariance)
        factor = np.linalg.cholesky(spread)
        if self.measure == "normal":
            logs = np.log(self.weights) + (self.points**2).sum(1) / 2 + self.dims * math.log(2 * math.pi) / 2
            points = self.points
        else:
            logs, points = np.log(self.weights) + self.dims * math.log(12), 6 * self.points
        return Grid(centre + points @ factor.T, np.exp(logs + np.log(factor.diagonal()).sum()))

    def shift(self, shift: ArrayLike) -> VectorRule:
        """Return the rule with all points shifted by a vector in [0, 1)ᵈ, modulo 1 in the unit cube.

        With a uniformly random shift, the rule is unbiased for any points.
        """
        moved = np.mod(self._uniform() + _finite("shift", shift), 1.0)
        return VectorRule(f"{self.name}, shifted", _from_cube(moved, self.measure), self.weights, self.measure)

    def _uniform(self) -> Array:
        """The points in the unit cube."""
        return ndtr(self.points) if self.measure == "normal" else (self.points + 1) / 2


@dataclass(frozen=True, repr=False)
class RandomRule:
    """A rule whose points get a new random shift in every training step.

    In one dimension there are N equal cells on [-1, 1] with one point each, all at the same fraction of their cell.
    With a shift uniform in [0, 1) the rule is unbiased, E[Σₙ wₙ f(zₙ)] = ∫ f(z) dz, for every N. The training loop
    draws the shift.

    Attributes:
        n: The number of points N.
        base: For vectors, the rule whose points are shifted; None in one dimension.
        settle: Whether the shifts shrink towards the end of a training, until the points are those of ``rule``.
    """

    n: int
    base: VectorRule | None = None
    settle: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", check_integer("n", self.n))
        if not isinstance(self.settle, bool):
            raise ArgumentError("settle", "True or False", repr(self.settle))

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        points = f", N={self.n}" if self.base is None else f" {self.base!r}"
        return f"RandomRule(shifted{points}{', settling' if self.settle else ''})"

    @property
    def dims(self) -> int:
        """The number of dimensions of a point."""
        return 1 if self.base is None else self.base.dims

    def draw(self, shift: ArrayLike) -> Rule | VectorRule:
        """Return the rule for a shift in [0, 1), or a vector of them: zₖ = -1 + (k + shift)·h with weights h = 2/N."""
        fraction = _finite("shift", shift)
        shape = () if self.base is None else (self.base.dims,)
        if fraction.shape != shape or not np.all((fraction >= 0) & (fraction < 1)):
            expected = "one number in [0, 1)" if self.base is None else f"{self.dims} numbers in [0, 1)"
            raise ArgumentError("shift", expected, shift, "give a fraction of a cell")
        return _cells(self.n, float(fraction)) if self.base is None else self.base.shift(fraction)

    def random(self, generator: np.random.Generator, spread: float = 1.0) -> Rule | VectorRule:
        """Return the rule for a random shift; ``spread`` scales how far the points are from those of ``rule``."""
        shift = generator.random(None if self.base is None else self.base.dims)
        rest = 0.5 if self.base is None else 0.0
        return self.draw(shift if spread == 1.0 else rest + spread * (shift - rest))

    @property
    def rule(self) -> Rule | VectorRule:
        """The rule without a random shift: the midpoint rule ``draw(0.5)``, or the base rule for vectors."""
        return self.draw(0.5) if self.base is None else self.base

    def resize(self, n: int) -> RandomRule:
        """Return the random rule with n points."""
        if self.base is None:
            return replace(self, n=n)
        base = self.base.resize(n)
        return replace(self, n=len(base), base=base)


@dataclass(frozen=True)
class Rules:
    """A rule for each number of dimensions, for models whose latents differ in it.

    Attributes:
        rules: The rules, by ascending dimensions.
    """

    rules: tuple[Rule | VectorRule | RandomRule, ...]

    def map(self, change: Callable[[Any], Any]) -> Rules:
        """Apply ``change`` to each rule."""
        return Rules(tuple(map(change, self.rules)))

    def refine(self) -> Rules:
        """Refine each rule."""
        return self.map(lambda rule: rule.refine())


def midpoint(n: int) -> Rule:
    """The midpoint rule, order 2: n cells of width h = 2/n, ∫ f ≈ h Σₖ f(-1 + (k + ½)h).

    Example:
        >>> midpoint(4).points
        array([-0.75, -0.25,  0.25,  0.75])
    """
    return _cells(check_integer("n", n), 0.5)


def trapezoidal(n: int) -> Rule:
    """The trapezoidal rule, order 2: with h = 2/(n - 1), ∫ f ≈ h (½f₀ + f₁ + … + fₙ₋₂ + ½fₙ₋₁); n ≥ 2.

    Example:
        >>> trapezoidal(5).weights
        array([0.25, 0.5 , 0.5 , 0.5 , 0.25])
    """
    n = check_integer("n", n, 2)
    weights = np.full(n, 2 / (n - 1))
    weights[[0, -1]] /= 2
    return Rule("trapezoidal", _equidistant(n), weights, (-1.0, 1.0), 2.0, partial(_allowed, trapezoidal, 2))


def simpson(n: int) -> Rule:
    """Simpson's rule, order 4: with h = 2/(n - 1), ∫ f ≈ h/3 (f₀ + 4f₁ + 2f₂ + 4f₃ + … + fₙ₋₁); odd n ≥ 3.

    Example:
        >>> (simpson(5).weights * 6).round(10)
        array([1., 4., 2., 4., 1.])
    """
    n = check_integer("n", n, 3)
    if n % 2 == 0:
        raise ArgumentError("n", "an odd number of points", n, f"take simpson({n + 1})")
    weights = np.full(n, 2.0)
    weights[1::2] = 4.0
    weights[[0, -1]] = 1.0
    weights *= 2 / (3 * (n - 1))
    return Rule("simpson", _equidistant(n), weights, (-1.0, 1.0), 4.0, partial(_allowed, simpson, 3, step=2))


def gauss_legendre(n: int) -> Rule:
    """The Gauss–Legendre rule, with spectral convergence: exact for polynomials of degree ≤ 2n - 1.

    The points are the zeros of the Legendre polynomial Pₙ, the weights wₖ = 2 / ((1 - zₖ²) Pₙ'(zₖ)²).

    Example:
        >>> rule = gauss_legendre(2)
        >>> rule.points.round(4), rule.weights.round(4)
        (array([-0.5774,  0.5774]), array([1., 1.]))
    """
    points, weights = roots_legendre(check_integer("n", n))
    return Rule("gauss_legendre", points, weights, (-1.0, 1.0), math.inf, gauss_legendre)


def clenshaw_curtis(n: int) -> Rule:
    """The Clenshaw–Curtis rule, with spectral convergence: exact for polynomials of degree ≤ n - 1; n ≥ 2.

    The points are the extrema zₖ = -cos(πk / (n - 1)) of a Chebyshev polynomial, and the rule integrates the
    interpolating polynomial. With mⱼ = ∫ Tⱼ = 2 / (1 - j²) for even j and 0 for odd j, the weights are the cosine
    transform of m divided by n - 1, and halved at both ends. The refined rule contains all points of the original one.

    Example:
        >>> rule = clenshaw_curtis(5)
        >>> rule.points.round(4)
        array([-1.    , -0.7071,  0.    ,  0.7071,  1.    ])
        >>> (rule.weights * 15).round(10)
        array([ 1.,  8., 12.,  8.,  1.])
    """
    n = check_integer("n", n, 2)
    moments = np.zeros(n)
    moments[::2] = 2 / (1 - np.arange(0.0, n, 2) ** 2)
    weights = dct(moments, type=1) / (n - 1)
    weights[[0, -1]] /= 2
    points = np.sin(np.pi / 2 * _equidistant(n))  # equal to the cosine formula, but exactly symmetric
    return Rule("clenshaw_curtis", points, weights, (-1.0, 1.0), math.inf, partial(_allowed, clenshaw_curtis, 2))


def gauss_hermite(n: int) -> Rule:
    """The Gauss–Hermite rule, with spectral convergence: exact for φ(z) times polynomials of degree ≤ 2n - 1.

    Like every other rule it integrates with respect to dz, here over the real line, so the integrand includes the
    density: ∫ f(z) dz ≈ Σₖ wₖ f(tₖ), where tₖ are the zeros of the Hermite polynomial Heₙ. Let φ be the standard normal
    density and ωₖ the weights of an expectation under it. Then wₖ = ωₖ / φ(tₖ) = 1 / Σ_{j<n} ψⱼ(tₖ)², with the Hermite
    functions ψⱼ = Heⱼ √(φ / j!). Place the rule with `Rule.at`.

    Example:
        >>> grid = gauss_hermite(5).at(mean=3.0, std=2.0)
        >>> density = np.exp(-(((grid.points - 3) / 2) ** 2) / 2) / np.sqrt(8 * np.pi)
        >>> float(np.sum(grid.weights * density * grid.points**2).round(10))  # mean² + std²
        13.0
    """
    points, _ = roots_hermitenorm(check_integer("n", n))  # the weights of scipy underflow for large n
    weights = np.exp(-_log_hermite_sum(points))
    return Rule("gauss_hermite", points, weights, (-math.inf, math.inf), math.inf, gauss_hermite)


def whole_line(n: int) -> Rule:
    """A rule for the whole real line with algebraic tails: the midpoint rule in φ after the map z = 3 tan φ.

    With φₖ = (k + ½)π/n − π/2, ∫ f(z) dz ≈ (3π/n) Σₖ f(3 tan φₖ) / cos² φₖ. The convergence is spectral for smooth
    functions that decay at least as fast as 1/z². Gauss–Hermite is better for normal densities and fails for heavy
    tails. Place the rule with `Rule.at` at the location and scale of the integrand.

    Example:
        >>> grid = whole_line(32).at(mean=1.0, std=1.0)
        >>> cauchy = 1 / (np.pi * (1 + (grid.points - 1) ** 2))
        >>> bool(abs(np.sum(grid.weights * cauchy) - 1) < 1e-8)
        True
    """
    angles = np.pi / 2 * _cells(check_integer("n", n), 0.5).points
    weights = 3 * np.pi / (n * np.cos(angles) ** 2)
    return Rule("whole_line", 3 * np.tan(angles), weights, (-math.inf, math.inf), math.inf, whole_line)


def counting(n: int) -> Rule:
    """The points 0 … n − 1 with weights 1, which turn the integral over a discrete latent into a sum.

    This is the rule of every discrete latent. Refining does not change it.

    Example:
        >>> counting(3).points, counting(3).refine()
        (array([0., 1., 2.]), Rule(counting, N=3))
    """
    points = np.arange(float(check_integer("n", n)))
    return Rule("counting", points, np.ones(n), (-0.5, n - 0.5), math.inf, lambda _: counting(n))


def shifted(n: int | VectorRule, settle: bool = False) -> RandomRule:
    """The randomly shifted rule: n cells of width h = 2/n, ∫ f ≈ h Σₖ f(-1 + (k + shift)h).

    The order is 1 for a single shift, and the average over all shifts is exact. The points of a rule for vectors are
    all shifted by the same random vector.

    Args:
        n: The number of points, or a rule for vectors.
        settle: Let the points come to rest as the steps of a training become small. The model is then better on just
            these points, ``shifted(n).rule``, and slightly worse on any others.

    Example:
        >>> shifted(4).draw(0.25).points
        array([-0.875, -0.375,  0.125,  0.625])
        >>> shifted(4).rule
        Rule(midpoint, N=4)
        >>> shifted(sobol(256, dims=2))
        RandomRule(shifted VectorRule(sobol, N=256, dims=2))
    """
    return RandomRule(len(n), n, settle) if isinstance(n, VectorRule) else RandomRule(n, settle=settle)


def sobol(n: int, dims: int, measure: str = "normal", seed: int = 0) -> VectorRule:
    """Scrambled Sobol points with equal weights: quasi-Monte-Carlo in any number of dimensions.

    For smooth integrands the error decreases almost as 1/n; for random points it decreases as 1/√n.

    Args:
        n: The number of points; powers of two are best.
        dims: The number of dimensions.
        measure: ``"normal"`` for z ~ N(0, I), or ``"uniform"`` on [-1, 1]ᵈ.
        seed: The seed of the scrambling.

    Example:
        >>> rule = sobol(4096, dims=2)
        >>> float((rule.weights * (rule.points**2).sum(1)).sum().round(2))  # E|z|² of a normal vector
        2.0
    """
    from scipy.stats import qmc  # slow to import, and rarely needed

    n, dims = check_integer("n", n), check_integer("dims", dims)
    check_choice("measure", measure, ("normal", "uniform"))
    engine = qmc.Sobol(dims, scramble=True, rng=np.random.default_rng(check_integer("seed", seed, 0)))
    # Generate a power of two, for which the sequence is balanced, and take the first n.
    cube = engine.random_base2(math.ceil(math.log2(n)))[:n] if n > 1 else np.full((1, dims), 0.5)

    return VectorRule("sobol", _from_cube(cube, measure), np.full(n, 1 / n), measure, partial(_sobol, dims, measure))


def tensor_grid(rule: Rule, dims: int) -> VectorRule:
    """All combinations of the points of a one-dimensional rule: nᵈ points, so only for few dimensions.

    Gauss–Hermite rules give the normal measure, all other rules the uniform measure on [-1, 1]ᵈ.

    Example:
        >>> tensor_grid(gauss_hermite(4), dims=2)
        VectorRule(tensor gauss_hermite, N=16, dims=2)
    """
    dims = check_integer("dims", dims)
    normal = not math.isfinite(rule.domain[1])
    measure = "normal" if normal else "uniform"
    points = rule.points if normal else rule.on(-1.0, 1.0).points
    weights = rule.weights * np.exp(-(points**2) / 2) if normal else rule.weights
    weights = weights / weights.sum()
    if np.any(weights <= 0):
        raise ArgumentError("rule", "positive weights, which become probabilities", f"{rule}")
    grid, products = (
        np.stack([axis.ravel() for axis in np.meshgrid(*[values] * dims, indexing="ij")], 1)
        for values in (points, weights)
    )

    return VectorRule(f"tensor {rule.name}", grid, products.prod(1), measure, partial(_tensor_grid, rule, dims))


# Rules are pickled, so what makes them anew is a function of this module.


def _sobol(dims: int, measure: str, n: int, seed: int) -> VectorRule:
    return sobol(n, dims, measure, seed)


def _tensor_grid(rule: Rule, dims: int, n: int, seed: int) -> VectorRule:
    return tensor_grid(rule.resize(math.ceil(n ** (1 / dims) - 1e-9)), dims)


def _allowed(make: Callable[[int], Rule], least: int, n: int, step: int = 1) -> Rule:
    """The rule with n points, or the next larger number among least, least + step, …."""
    return make(least + math.ceil(max(n - least, 0) / step) * step)


def _from_cube(cube: Array, measure: str) -> Array:
    """Map points of the unit cube to the domain of the measure; points on the boundary are moved inside."""
    edge = 1e-7
    return ndtri(np.clip(cube, edge, 1 - edge)) if measure == "normal" else 2 * cube - 1


def _cells(n: int, shift: float) -> Rule:
    """One point at the same fraction of each of n equal cells: the midpoint rule, and shifted rules."""
    points = (2 * (np.arange(n) + shift) - n) / n
    name, order = ("midpoint", 2.0) if shift == 0.5 else ("shifted", 1.0)
    return Rule(name, points, np.full(n, 2 / n), (-1.0, 1.0), order, partial(_cells, shift=shift))


def _equidistant(n: int) -> Array:
    """N equidistant points from -1 to 1, both included; unlike ``linspace``, exactly symmetric."""
    return np.arange(1.0 - n, n, 2) / (n - 1)


def _log_hermite_sum(t: Array) -> Array:
    """Log of Σ_{j<N} ψⱼ(t)² at the N zeros t of He_N, from the recurrence of pⱼ = Heⱼ / √j!.

    The sum is stationary at the zeros, so rounding errors of the zeros have no first-order effect on the weights. The
    polynomials are rescaled by powers of two as they grow; the normal density is included in log space.
    """
    previous, current, total = np.zeros_like(t), np.ones_like(t), np.ones_like(t)
    exponent = np.zeros_like(t)
    for j in range(1, len(t)):
        previous, current = current, (t * current - math.sqrt(j - 1) * previous) / math.sqrt(j)
        total += current**2
        large = total > 2.0**400
        factor = np.where(large, 2.0**-200, 1.0)
        previous, current, total = previous * factor, current * factor, total * factor**2
        exponent += 400.0 * large
    return np.log(total) + exponent * math.log(2) - t**2 / 2 - math.log(2 * math.pi) / 2


def _finite(name: str, value: ArrayLike) -> Array:
    """Return a copy of the value as an array, after a check that it consists of finite real numbers."""
    array = np.asarray(value)
    if array.dtype.kind not in "iuf":
        raise ArgumentError(name, "real numbers", value)
    if not np.all(np.isfinite(array)):
        raise ArgumentError(name, "finite numbers", float(array[~np.isfinite(array)][0]))
    return array.astype(np.float64)


def _freeze(rule: Rule | VectorRule) -> None:
    """Replace the points and weights of a rule by read-only copies."""
    for name in ("points", "weights"):
        array = _finite(name, getattr(rule, name))
        array.flags.writeable = False
        object.__setattr__(rule, name, array)


def _column_pair(one: str, first: ArrayLike, two: str, second: ArrayLike) -> tuple[Array, Array]:
    """Broadcast two arguments, and append an axis of length 1 for the N points."""
    a, b = _finite(one, first), _finite(two, second)
    try:
        a, b = np.broadcast_arrays(a, b)
    except ValueError:
        shapes = f"shapes {a.shape} and {b.shape}"
        raise ArgumentError(f"{one}, {two}", "shapes that broadcast", shapes) from None
    return a[..., None], b[..., None]
