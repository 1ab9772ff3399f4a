# SPDX-License-Identifier: Apache-2.0
"""Quadrature rules against polynomials, closed forms, scipy and their own known orders."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate
from scipy.special import gammaln, roots_hermitenorm, roots_legendre
from scipy.stats import norm

import picirc as pc
from picirc.errors import ArgumentError
from picirc.quadrature import (
    Grid,
    RandomRule,
    Rule,
    clenshaw_curtis,
    gauss_hermite,
    gauss_legendre,
    midpoint,
    shifted,
    simpson,
    trapezoidal,
)

# Every rule on an interval, with the highest degree of the polynomials that N points integrate exactly.
DEGREES: dict[Callable[[int], Rule], Callable[[int], int]] = {
    midpoint: lambda n: 1,
    trapezoidal: lambda n: 1,
    simpson: lambda n: 3,
    gauss_legendre: lambda n: 2 * n - 1,
    clenshaw_curtis: lambda n: n if n % 2 else n - 1,  # symmetry gives one odd degree for nothing
}
FINITE = list(DEGREES)
ALL = [*FINITE, gauss_hermite]
SIZES = {midpoint: [1, 2, 9], trapezoidal: [2, 3, 8], simpson: [3, 5, 9]}
each_finite = pytest.mark.parametrize("make", FINITE, ids=lambda make: make.__name__)
each_rule = pytest.mark.parametrize("make", ALL, ids=lambda make: make.__name__)


def integral(grid: Grid | Rule, values: np.ndarray) -> np.ndarray:
    return np.sum(grid.weights * values, axis=-1)


@each_finite
@pytest.mark.parametrize("n", [3, 7, 65, 501])
def test_points_are_symmetric_and_weights_positive_with_sum_two(make, n):
    rule = make(n)
    assert len(rule) == n
    assert rule.points.shape == rule.weights.shape == (n,)
    assert rule.points.dtype == rule.weights.dtype == np.float64
    assert rule.domain == (-1.0, 1.0)
    assert np.all(np.diff(rule.points) > 0)
    np.testing.assert_array_equal(rule.points, -rule.points[::-1])
    assert np.all(rule.weights > 0)
    assert np.sum(rule.weights) == pytest.approx(2, rel=1e-13)


@each_finite
def test_polynomials_are_exact_up_to_the_known_degree_and_not_beyond(make):
    for n in SIZES.get(make, [2, 3, 6, 7]):
        rule, degree = make(n), DEGREES[make](n)
        # Away from the symmetric interval odd degrees do not vanish by themselves.
        grid = rule.on(0.0, 1.5)
        for k in range(degree + 1):
            assert integral(grid, grid.points**k) == pytest.approx(1.5 ** (k + 1) / (k + 1), rel=1e-13)
        k = degree + 1  # an even number for every rule, so that the integral of Tₖ is not 0
        chebyshev = np.cos(k * np.arccos(rule.points))
        assert integral(rule, chebyshev) != pytest.approx(2 / (1 - k**2), abs=1e-3)


@pytest.mark.parametrize("make", [midpoint, trapezoidal, simpson], ids=lambda make: make.__name__)
def test_error_falls_at_the_order_of_the_rule(make):
    exact = math.e - 1 / math.e
    rules = [make(17)]
    for _ in range(3):
        rules.append(rules[-1].refine())
    errors = [abs(integral(rule, np.exp(rule.points)) - exact) for rule in rules]
    for coarse, fine in pairwise(errors):
        assert math.log2(coarse / fine) == pytest.approx(rules[0].order, abs=0.02)


def test_a_single_shift_is_of_order_one():
    exact = math.e - 1 / math.e
    errors = [abs(integral(rule, np.exp(rule.points)) - exact) for rule in map(shifted(1).draw(0.2).resize, (64, 128))]
    assert shifted(64).draw(0.2).order == 1
    assert math.log2(errors[0] / errors[1]) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("make", [gauss_legendre, clenshaw_curtis], ids=lambda make: make.__name__)
def test_spectral_rules_reach_machine_precision(make):
    rule = make(40)
    assert rule.order == math.inf
    for f, exact in (
        (np.exp, math.e - 1 / math.e),
        (lambda z: np.sin(3 * z + 1), (math.cos(-2) - math.cos(4)) / 3),
        (lambda z: 1 / (2 + z), math.log(3)),
        (lambda z: norm.pdf(z, 0.3, 0.4), norm.cdf(1, 0.3, 0.4) - norm.cdf(-1, 0.3, 0.4)),
    ):
        assert integral(rule, f(rule.points)) == pytest.approx(exact, rel=1e-13)


def test_rules_agree_with_scipy_and_numpy():
    f = np.random.default_rng(0).normal(size=33)
    for make, twin in ((trapezoidal, integrate.trapezoid), (simpson, integrate.simpson)):
        grid = make(33).on(-2.0, 5.0)
        assert integral(grid, f) == pytest.approx(twin(f, x=grid.points), rel=1e-12)
    for n in (1, 2, 33, 100):
        for points, weights in (roots_legendre(n), np.polynomial.legendre.leggauss(n)):
            np.testing.assert_allclose(gauss_legendre(n).points, points, atol=1e-15)
            np.testing.assert_allclose(gauss_legendre(n).weights, weights, atol=1e-14)


@pytest.mark.parametrize("n", [2, 3, 8, 9, 30])
def test_clenshaw_curtis_weights_are_the_integrals_of_the_interpolant(n):
    rule = clenshaw_curtis(n)
    np.testing.assert_allclose(rule.points, -np.cos(np.pi * np.arange(n) / (n - 1)), atol=1e-15)
    # Weight k is the integral of the polynomial that is 1 at point k and 0 at the others.
    chebyshev = np.polynomial.chebyshev.Chebyshev
    for k in range(n):
        lagrange = chebyshev.fit(rule.points, np.eye(n)[k], deg=n - 1, domain=[-1, 1]).integ()
        assert rule.weights[k] == pytest.approx(lagrange(1) - lagrange(-1), abs=1e-12)


@pytest.mark.parametrize("n", [1, 2, 5, 20, 50])
def test_gauss_hermite_agrees_with_scipy_where_that_does_not_underflow(n):
    points, weights = roots_hermitenorm(n)
    rule = gauss_hermite(n)
    np.testing.assert_allclose(rule.points, points, atol=1e-13)
    np.testing.assert_allclose(rule.weights * np.exp(-(rule.points**2) / 2), weights, rtol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 5, 40, 120, 200, 500])
def test_gauss_hermite_is_exact_for_normal_times_polynomial(n):
    """Central moments E[(Z - μ)ᵏ] = σᵏ (k - 1)!! in log space, at every even degree up to 2n - 1."""
    mean, std = 3.0, 0.25
    grid = gauss_hermite(n).at(mean, std)
    assert np.all(np.isfinite(grid.weights))
    assert np.all(grid.weights > 0)
    scaled = (grid.points - mean) / std
    log_density = norm.logpdf(grid.points, mean, std)
    for k in range(0, 2 * n, 2):
        log_exact = gammaln(k + 1) - gammaln(k / 2 + 1) - k / 2 * math.log(2)
        with np.errstate(divide="ignore"):
            log_power = k * np.log(np.abs(scaled)) if k else 0.0
        moment = integral(grid, np.exp(log_density + log_power - log_exact))
        # A relative error of one rounding in a point grows with the degree.
        assert moment == pytest.approx(1, rel=1e-13 * (k + 10))
    for k in range(1, 2 * min(n, 8), 2):
        assert integral(grid, np.exp(log_density) * scaled**k) == pytest.approx(0, abs=1e-9)
    if n <= 5:
        missed = np.exp(log_density) * scaled ** (2 * n)
        assert integral(grid, missed) != pytest.approx(math.prod(range(1, 2 * n, 2)), rel=1e-2)


def test_gauss_hermite_covers_the_product_of_two_normals():
    """∫ N(z; 0, 1) N(x; a z, s²) dz = N(x; 0, 1 + …): what one integral unit computes."""
    rule, slope, noise = gauss_hermite(60), 0.8, 0.5
    x = np.linspace(-3, 3, 13)[:, None]
    values = norm.pdf(rule.points) * norm.pdf(x, slope * rule.points, noise)
    np.testing.assert_allclose(integral(rule, values), norm.pdf(x[:, 0], 0, math.hypot(slope, noise)), rtol=1e-6)


def test_gauss_hermite_points_are_symmetric_and_its_domain_is_the_line():
    rule = gauss_hermite(201)
    assert rule.domain == (-math.inf, math.inf)
    assert rule.order == math.inf
    np.testing.assert_array_equal(rule.points, -rule.points[::-1])
    np.testing.assert_allclose(rule.weights, rule.weights[::-1], rtol=1e-15)


@each_finite
def test_placement_of_arrays_is_a_loop_of_placements(make):
    rng = np.random.default_rng(1)
    low, length = rng.normal(size=(4, 1, 3)), rng.exponential(size=(2, 3))
    grid = make(7).on(low, low + length)
    assert grid.points.shape == grid.weights.shape == (4, 2, 3, 7)
    highs = low + length
    for i, j, k in np.ndindex(4, 2, 3):
        single = make(7).on(low[i, 0, k], highs[i, j, k])
        np.testing.assert_array_equal(grid.points[i, j, k], single.points)
        np.testing.assert_array_equal(grid.weights[i, j, k], single.weights)


def test_gauss_hermite_placement_of_arrays_is_a_loop_of_placements():
    rng = np.random.default_rng(2)
    mean, std = rng.normal(size=(5, 1)), rng.exponential(size=2)
    grid = gauss_hermite(6).at(mean, std)
    assert grid.points.shape == grid.weights.shape == (5, 2, 6)
    for i, j in np.ndindex(5, 2):
        single = gauss_hermite(6).at(mean[i, 0], std[j])
        np.testing.assert_array_equal(grid.points[i, j], single.points)
        np.testing.assert_array_equal(grid.weights[i, j], single.weights)


def test_scalars_give_a_flat_grid_and_no_interval_gives_none():
    assert midpoint(4).on(0, 1).points.shape == (4,)
    assert gauss_hermite(4).at(0, 1).weights.shape == (4,)
    assert midpoint(4).on(np.zeros((0, 2)), 1.0).points.shape == (0, 2, 4)


@each_finite
def test_placement_on_the_reference_domain_changes_nothing(make):
    rule = make(33)
    np.testing.assert_array_equal(rule.on(-1, 1).points, rule.points)
    np.testing.assert_array_equal(rule.on(-1, 1).weights, rule.weights)


@given(
    low=st.floats(-1e6, 1e6),
    length=st.floats(1e-3, 1e6),
    scale=st.floats(1e-3, 1e3),
    offset=st.floats(-1e3, 1e3),
    index=st.integers(0, len(FINITE) - 1),
)
def test_placement_is_affine(low, length, scale, offset, index):
    """The grid of the mapped interval is the mapped grid; it stays inside and its mass is the length."""
    rule, high = FINITE[index](7), low + length
    grid = rule.on(low, high)
    assert np.all((low <= grid.points) & (grid.points <= high))
    assert np.sum(grid.weights) == pytest.approx(high - low, rel=1e-12)
    mapped = rule.on(scale * low + offset, scale * high + offset)
    size = scale * max(abs(low), abs(high)) + abs(offset)
    np.testing.assert_allclose(mapped.points, scale * grid.points + offset, rtol=0, atol=1e-15 * 8 * size)
    np.testing.assert_allclose(mapped.weights, scale * grid.weights, rtol=0, atol=1e-15 * 8 * size)


def test_a_rule_made_by_hand_may_live_on_another_domain():
    """Simpson's rule on [0, 1], placed like any other."""
    rule = Rule("own", np.array([0, 0.5, 1]), np.array([1, 4, 1]) / 6, (0.0, 1.0), 4.0)
    grid, twin = rule.on(2, 8), simpson(3).on(2, 8)
    np.testing.assert_allclose(grid.points, twin.points, rtol=1e-15)
    np.testing.assert_allclose(grid.weights, twin.weights, rtol=1e-15)
    for change in (lambda: rule.resize(5), rule.refine):
        with pytest.raises(ArgumentError, match="made by hand"):
            change()


@each_rule
def test_resize_and_refine_stay_in_the_family(make):
    rule = make(5)
    for n in range(1, 12):
        resized = rule.resize(n)
        assert resized.name == rule.name == make.__name__
        assert n <= len(resized) <= max(n + 1, 3)
        twin = make(len(resized))
        np.testing.assert_array_equal(resized.points, twin.points)
        np.testing.assert_array_equal(resized.weights, twin.weights)
    assert len(rule.resize(64)) == (65 if make is simpson else 64)
    closed = make in (trapezoidal, simpson, clenshaw_curtis)
    assert len(rule.refine()) == (9 if closed else 10)
    if closed:  # every old point is a new point
        np.testing.assert_allclose(rule.refine().points[::2], rule.points, atol=1e-15)


def test_shifted_points_lie_at_one_fraction_of_every_cell():
    rule = shifted(8).draw(0.3)
    np.testing.assert_allclose(rule.points, -1 + (np.arange(8) + 0.3) * 0.25, atol=1e-15)
    np.testing.assert_array_equal(rule.weights, np.full(8, 0.25))
    np.testing.assert_allclose(rule.resize(4).points, shifted(4).draw(0.3).points)


def test_shifted_is_the_midpoint_rule_in_the_middle():
    random = shifted(8)
    assert isinstance(random, RandomRule)
    assert len(random) == len(random.rule) == 8
    assert len(random.resize(5)) == 5
    assert random == shifted(8) != shifted(9)
    assert random.rule.name == "midpoint"
    assert random.rule.order == 2
    np.testing.assert_array_equal(random.rule.points, midpoint(8).points)


@given(shift=st.floats(0, 1, exclude_max=True), n=st.integers(1, 300))
def test_every_shift_gives_a_rule_inside_the_domain(shift, n):
    rule = shifted(n).draw(shift)
    assert rule.points[0] >= -1
    assert rule.points[-1] <= 1
    assert np.sum(rule.weights) == pytest.approx(2, rel=1e-13)


def test_the_mean_over_shifts_is_the_integral():
    """M shifts in the middles of M parts of a cell make the midpoint rule with N·M points."""
    n, m = 5, 64
    draws = [shifted(n).draw((j + 0.5) / m) for j in range(m)]
    mean = np.mean([integral(rule, np.exp(rule.points)) for rule in draws])
    fine = midpoint(n * m)
    assert mean == pytest.approx(integral(fine, np.exp(fine.points)), rel=1e-14)
    assert mean == pytest.approx(math.e - 1 / math.e, rel=1e-5)


@pytest.mark.parametrize("make", [*ALL, shifted], ids=lambda make: make.__name__)
@pytest.mark.parametrize("n", [0, -1, 2.0, True, "3", None, math.nan])
def test_the_number_of_points_must_be_a_positive_integer(make, n):
    for attempt in (make, make(5).resize):
        with pytest.raises(ArgumentError, match=r"^n: expected an? .*integer") as caught:
            attempt(n)
        assert caught.value.argument == "n"


def test_the_number_of_points_may_be_a_numpy_integer():
    assert len(simpson(np.int64(5))) == len(shifted(np.int32(5))) == 5


@pytest.mark.parametrize(("make", "n"), [(trapezoidal, 1), (clenshaw_curtis, 1), (simpson, 1), (simpson, 2)])
def test_too_few_points(make, n):
    with pytest.raises(ArgumentError, match="at least"):
        make(n)


def test_simpson_with_an_even_number_names_the_next_odd_one():
    with pytest.raises(ArgumentError, match=r"n: expected an odd number of points, got 8; take simpson\(9\)"):
        simpson(8)


@each_finite
@pytest.mark.parametrize(
    ("low", "high", "argument"),
    [
        (1, 1, "low, high"),
        (2, 1, "low, high"),
        ([0, 3], [1, 2], "low, high"),
        (-1.7e308, 1.7e308, "low, high"),
        (np.zeros(2), np.ones(3), "low, high"),
        (math.nan, 1, "low"),
        (0, math.nan, "high"),
        (-math.inf, 1, "low"),
        (0, [1, math.inf], "high"),
        ("0", 1, "low"),
        (0, 1j, "high"),
    ],
)
def test_bad_intervals(make, low, high, argument):
    with pytest.raises(ArgumentError) as caught:
        make(5).on(low, high)
    assert caught.value.argument == argument


@pytest.mark.parametrize(
    ("mean", "std", "argument"),
    [
        (0, 0, "std"),
        (0, [1, -1], "std"),
        (0, math.nan, "std"),
        (0, math.inf, "std"),
        (math.nan, 1, "mean"),
        (math.inf, 1, "mean"),
        (np.zeros(2), np.ones(3), "mean, std"),
    ],
)
def test_bad_normals(mean, std, argument):
    with pytest.raises(ArgumentError) as caught:
        gauss_hermite(5).at(mean, std)
    assert caught.value.argument == argument


def test_gauss_hermite_refuses_an_interval():
    with pytest.raises(ArgumentError, match=r"gauss_hermite.*\.at\(mean, std\).*gauss_legendre"):
        gauss_hermite(5).on(-1, 1)


@each_finite
def test_rules_on_an_interval_refuse_a_normal(make):
    with pytest.raises(ArgumentError, match=r"\.on\(mean - k\*std, mean \+ k\*std\)"):
        make(5).at(0, 1)


@pytest.mark.parametrize("shift", [-0.1, 1, 1.5, math.nan, math.inf, True, "0.5", [0.1, 0.2]])
def test_bad_shifts(shift):
    with pytest.raises(ArgumentError) as caught:
        shifted(4).draw(shift)
    assert caught.value.argument == "shift"


@pytest.mark.parametrize(
    ("points", "weights", "domain"),
    [
        ([0, 1], [1], (-1, 1)),
        ([], [], (-1, 1)),
        ([[0]], [[1]], (-1, 1)),
        ([1, 0], [1, 1], (-1, 1)),
        ([0, 0], [1, 1], (-1, 1)),
        ([0, 2], [1, 1], (-1, 1)),
        ([-2, 0], [1, 1], (-1, 1)),
        ([0, math.nan], [1, 1], (-1, 1)),
        ([0, 1], [1, math.inf], (-1, 1)),
        ([0], [1], (1, -1)),
        ([0], [1], (math.nan, 1)),
    ],
)
def test_bad_rules_made_by_hand(points, weights, domain):
    with pytest.raises(ArgumentError):
        Rule("own", np.array(points, dtype=float), np.array(weights, dtype=float), domain, 1.0)


def test_rules_are_values():
    own = np.array([0.0])
    rule = Rule("own", own, np.array([2.0]), (-1.0, 1.0), 2.0)
    own[0] = 0.5
    assert rule.points[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        rule.points[0] = 0.5
    with pytest.raises(AttributeError):
        rule.name = "other"
    copy = pickle.loads(pickle.dumps(shifted(3).draw(0.1)))
    np.testing.assert_array_equal(copy.refine().points, shifted(6).draw(0.1).points)


def moments(rule: pc.VectorRule) -> tuple[np.ndarray, np.ndarray]:
    mean = rule.weights @ rule.points
    return mean, (rule.points - mean).T @ (rule.weights[:, None] * (rule.points - mean))


@pytest.mark.parametrize(("measure", "variance"), [("normal", 1.0), ("uniform", 1 / 3)])
@pytest.mark.parametrize("dims", [1, 2, 5])
def test_sobol_points_have_the_moments_of_their_measure(measure, variance, dims):
    rule = pc.sobol(4096, dims, measure)
    mean, covariance = moments(rule)
    np.testing.assert_allclose(mean, 0, atol=2e-3)
    np.testing.assert_allclose(covariance, variance * np.eye(dims), atol=0.01)
    assert rule.weights.sum() == pytest.approx(1)


def test_the_error_of_sobol_points_falls_almost_linearly():
    """E[Π cos z_i] = exp(−d/2) for normal z; random points would gain a factor 8 from 64 times as many."""

    def error(n: int) -> float:
        values = [np.prod(np.cos(pc.sobol(n, 3, seed=seed).points), 1).mean() for seed in range(20)]
        return float(np.sqrt(np.mean((np.array(values) - math.exp(-1.5)) ** 2)))

    assert error(64) / error(4096) > 24


@pytest.mark.parametrize("base", [pc.sobol(16, 3), pc.sobol(8, 2, "uniform"), pc.tensor_grid(pc.midpoint(3), 2)])
def test_randomly_shifted_points_are_unbiased(base):
    rule, rng = pc.shifted(base), np.random.default_rng(0)
    truth = 1.0 if base.measure == "normal" else 1 / 3
    found = [r.weights @ r.points[:, 0] ** 2 for r in (rule.random(rng) for _ in range(4000))]
    assert np.mean(found) == pytest.approx(truth, abs=4 * np.std(found) / math.sqrt(len(found)) + 1e-3)
    assert len(rule) == len(base)
    assert rule.dims == base.dims
    assert rule.rule is base


@pytest.mark.parametrize("points", [8, pc.sobol(8, 2), pc.tensor_grid(pc.midpoint(3), 2)])
def test_points_that_settle_end_at_those_of_their_rule(points):
    rule, rng = pc.shifted(points, settle=True), np.random.default_rng(0)
    np.testing.assert_allclose(rule.random(rng, 0.0).points, rule.rule.points, atol=1e-12)
    far, near = (np.random.default_rng(1) for _ in range(2))
    wide, narrow = rule.random(far), rule.random(near, 1e-3)
    assert np.abs(narrow.points - rule.rule.points).max() < 0.1 * np.abs(wide.points - rule.rule.points).max()
    np.testing.assert_array_equal(wide.points, pc.shifted(points).random(np.random.default_rng(1)).points)
    assert rule.resize(16).settle
    assert rule != pc.shifted(points)
    assert "settling" in repr(rule)


def test_a_tensor_grid_is_the_product_of_its_rules():
    rule = pc.tensor_grid(pc.gauss_hermite(5), 2)
    mean, covariance = moments(rule)
    np.testing.assert_allclose(mean, 0, atol=1e-12)
    np.testing.assert_allclose(covariance, np.eye(2), atol=1e-12)
    fourth = rule.weights @ (rule.points[:, 0] ** 4 * rule.points[:, 1] ** 2)
    assert fourth == pytest.approx(3)
    uniform = pc.tensor_grid(pc.gauss_legendre(4), 3)
    assert uniform.measure == "uniform"
    assert uniform.weights @ np.prod(uniform.points**2, 1) == pytest.approx(1 / 27)


@pytest.mark.parametrize("rule", [pc.sobol(16, 3), pc.tensor_grid(pc.midpoint(4), 2)])
def test_vector_rules_are_refined(rule):
    assert len(rule.refine()) >= 2 * len(rule)
    assert rule.refine().dims == rule.dims
    assert len(pc.shifted(rule).resize(64)) == 64


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pc.sobol(0, 2), "n: expected"),
        (lambda: pc.sobol(8, 0), "dims: expected a positive integer"),
        (lambda: pc.sobol(8, 2, "cauchy"), "measure: expected 'normal' or 'uniform'"),
        (lambda: pc.VectorRule("mine", np.zeros((3, 2)), np.ones(2)), "points, weights: expected arrays of shapes"),
        (lambda: pc.VectorRule("mine", np.zeros((3, 2)), np.ones(3)).refine(), "made by hand"),
        (lambda: pc.shifted(pc.sobol(8, 2)).draw(0.5), r"shift: expected 2 numbers in \[0, 1\)"),
        (lambda: pc.shifted(8, settle="no"), "settle: expected True or False, got 'no'"),
    ],
)
def test_wrong_vector_rules_are_refused(make, message):
    with pytest.raises(pc.ArgumentError, match=message):
        make()
