# SPDX-License-Identifier: Apache-2.0
"""Quadrature against closed forms and dense integration: orders, error estimates, and tolerances."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate

import picirc as pc
from cases import CASES, LG, LINEAR_GAUSSIAN_NETS, Case, network
from oracles import dense_log_prob
from picirc.errors import ArgumentError

each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
ROUNDING = 1e-12
RULES = [pc.midpoint, pc.trapezoidal, pc.simpson, pc.gauss_legendre, pc.clenshaw_curtis]


def tilted() -> pc.BayesNet:
    """Smooth densities on finite intervals that do not vanish at their ends, so that nothing is periodic."""
    prior = pc.Density(lambda z: z - math.log(math.e - 1), domain=(0.0, 1.0))
    slope = pc.Density(lambda v, z: (1 + z) * v + torch.log((1 + z) / torch.expm1(1 + z)), ["z1"], domain=(0.0, 1.0))
    positive = pc.Density(lambda z: torch.log((1 + z) / 1.5), domain=(0.0, 1.0))
    return network(
        {"z1": positive, "z2": slope, "z3": prior},
        {"x1": LG({"z2": 1.0}, std=0.6), "x2": LG({"z3": 1.2, "z1": -0.7}, std=0.7)},
    )


@pytest.mark.parametrize("make", [pc.midpoint, pc.trapezoidal, pc.simpson])
def test_the_error_falls_at_the_order_of_the_rule(make):
    circuit = pc.from_bayesnet(tilted())
    x = torch.tensor([[0.3, -0.4], [1.5, 0.6], [math.nan, 0.2]])
    truth = circuit.integrate(pc.gauss_legendre(40)).log_prob(x)
    errors, rule = [], make(9)
    for _ in range(4):
        errors.append((circuit.integrate(rule).log_prob(x) - truth).abs())
        rule = rule.refine()
    orders = (torch.stack(errors[:-1]) / torch.stack(errors[1:])).log2()
    np.testing.assert_allclose(orders[1:], rule.order, atol=0.1)


@pytest.mark.parametrize("make", [pc.gauss_legendre, pc.clenshaw_curtis])
def test_spectral_rules_need_few_points(make):
    x = np.array([[0.3, -0.4], [1.5, 0.6], [math.nan, 0.2]])
    unit = dict.fromkeys(("z1", "z2", "z3"), (0.0, 1.0))
    circuit = pc.from_bayesnet(tilted())
    truth = circuit.integrate(pc.gauss_legendre(40)).log_prob(torch.tensor(x))
    np.testing.assert_allclose(truth, dense_log_prob(tilted(), x, unit, points=101), atol=1e-8)
    torch.testing.assert_close(circuit.integrate(make(17)).log_prob(torch.tensor(x)), truth, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", LINEAR_GAUSSIAN_NETS)
def test_static_quadrature_converges_to_the_closed_form(name):
    case, x = CASES[name], CASES[name].data()
    expected = case.circuit.exact().log_prob(x)
    points = 56 if name == "lg_dag_parents_first" else 80
    for make in (pc.gauss_legendre, pc.trapezoidal):
        result = case.integrate(make(points), sigmas=8.0).log_prob(x)
        torch.testing.assert_close(result, expected, rtol=0, atol=1e-10 if points == 80 else 1e-7)


@pytest.mark.parametrize(
    "name", [n for n in LINEAR_GAUSSIAN_NETS if CASES[n].nested and n not in ("lg_chain", "lg_dag")]
)
def test_nested_quadrature_converges_to_the_closed_form(name):
    case, x = CASES[name], CASES[name].data()
    expected = case.circuit.exact().log_prob(x)
    result = case.circuit.integrate(pc.gauss_legendre(44), nested=True, sigmas=7.0).log_prob(x)
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["lg_dag", "lg_chain"])
def test_nested_quadrature_of_deeper_networks_approaches_the_closed_form(name):
    case, x = CASES[name], CASES[name].data()
    expected = case.circuit.exact().log_prob(x)
    errors = []
    for points in (5, 9, 13):
        result = case.circuit.integrate(pc.gauss_hermite(points), nested=True).log_prob(x)
        errors.append(float((result - expected).abs().max()))
    assert errors[0] > 3 * errors[1] > 9 * errors[2]
    assert errors[2] < 2e-2


@each_case
@pytest.mark.parametrize("make", RULES)
def test_the_error_estimate_is_within_a_factor_of_ten(case: Case, make):
    x = case.data()
    truth = case.truth(x)
    for points in (13, 25):
        qpc = case.integrate(make(points))
        true = np.abs(qpc.log_prob(x).numpy() - truth)
        estimate = qpc.error(x).numpy()
        above = true > ROUNDING
        assert np.all(estimate[above] < 10 * true[above])
        assert np.all(estimate[above] > true[above] / 10)


def test_the_error_estimate_of_nested_quadrature():
    case = CASES["paper_ltm"]
    x = case.data()
    for rule in (pc.gauss_legendre(12), pc.gauss_hermite(8)):
        qpc = case.circuit.integrate(rule, nested=True)
        true = (qpc.log_prob(x) - torch.tensor(case.truth(x))).abs()
        ratio = (qpc.error(x) / true)[true > ROUNDING]
        assert float(ratio.min()) > 0.1
        assert float(ratio.max()) < 10


def test_the_error_of_a_circuit_without_latents_is_rounding():
    circuit = pc.Circuit(pc.Input("x", LG()))
    assert float(circuit.integrate({}).error(torch.tensor([[3.0]]))) < 1e-14


@each_case
@pytest.mark.parametrize("tol", [1e-2, 1e-6])
def test_a_tolerance_is_reached(case: Case, tol: float):
    if case is CASES["lg_dag_parents_first"]:
        tol = max(tol, 1e-4)  # its tables have three latents as axes, and more points would take half a minute
    x = case.data()
    domain = "marginal" if case.domain is None else case.domain
    qpc = case.circuit.integrate(tol=tol, on=x, domain=domain)
    assert float(qpc.error(x).max()) <= tol
    assert np.abs(qpc.log_prob(x).numpy() - case.truth(x)).max() <= 2 * tol


def test_a_tolerance_starts_from_the_rule_given():
    case = CASES["lg_tree"]
    x = case.data()
    rules = {"z1": pc.trapezoidal(9), "z2": pc.trapezoidal(5), "z3": pc.trapezoidal(5)}
    qpc = case.circuit.integrate(rules, tol=1e-5, on=x)
    sizes = {grid.name: qpc.latents(x)[grid.name].probabilities.shape[1] for grid in qpc.grids}
    assert all(sizes[z] > len(rule) for z, rule in rules.items())
    assert np.abs(qpc.log_prob(x).numpy() - case.truth(x)).max() <= 2e-5


def test_a_tolerance_for_nested_quadrature():
    case = CASES["lg_tree"]
    x = case.data()
    qpc = case.circuit.integrate(pc.gauss_hermite(4), nested=True, tol=1e-4, on=x)
    assert np.abs(qpc.log_prob(x).numpy() - case.truth(x)).max() <= 2e-4


def test_an_interval_that_cuts_off_more_than_the_tolerance_is_widened():
    circuit = pc.from_bayesnet(network({"z": LG()}, {"x": LG({"z": 1.0}, std=0.5)}))
    x = torch.tensor([[3.0]], dtype=torch.float64)
    qpc = circuit.integrate(pc.trapezoidal(9), tol=1e-8, on=x, sigmas=3.0)
    assert float(qpc.log_prob(x)) == pytest.approx(float(circuit.exact().log_prob(x)), abs=2e-8)


@pytest.mark.parametrize("options", [{"tol": 1e-3}, {"on": torch.zeros(1, 3)}])
def test_a_tolerance_needs_data(options):
    with pytest.raises(ArgumentError, match="tol, on: expected both or neither"):
        CASES["lg_tree"].circuit.integrate(**options)


@pytest.mark.parametrize("tol", [0.0, -1.0, math.nan])
def test_a_tolerance_is_positive(tol):
    with pytest.raises(ArgumentError, match="tol: expected a positive number"):
        CASES["lg_tree"].circuit.integrate(tol=tol, on=torch.zeros(1, 3))


def test_a_nonlinear_network_agrees_with_adaptive_integration():
    """Two logistic inputs and a bimodal latent, written out for scipy."""

    def bump(z: float, mean: float, std: float) -> float:
        return math.exp(-0.5 * ((z - mean) / std) ** 2) / (std * math.sqrt(2 * math.pi))

    def log_bumps(z: torch.Tensor) -> torch.Tensor:
        parts = [math.log(w / s) - 0.5 * ((z - m) / s) ** 2 for w, m, s in ((1, 1.5, 0.4), (2, -1.0, 0.5))]
        return torch.logaddexp(*parts) - math.log(3) - 0.5 * math.log(2 * math.pi)

    net = network(
        {"z1": pc.Density(log_bumps, domain=(-5.0, 5.0)), "z2": LG({"z1": 0.8}, 0.3, 0.6)},
        {
            "x1": pc.Conditional(pc.Bernoulli(), lambda z: 3 * z - 0.5, ["z1"]),
            "x2": pc.Conditional(pc.Bernoulli(), lambda a, b: a * b, ["z1", "z2"]),
            "x3": LG({"z2": 1.0}, std=0.7),
        },
    )

    def joint(z2: float, z1: float, x: tuple[float, float, float]) -> float:
        density = (bump(z1, 1.5, 0.4) + 2 * bump(z1, -1.0, 0.5)) / 3
        density *= bump(z2, 0.8 * z1 + 0.3, 0.6) * bump(x[2], z2, 0.7)
        for value, logit in zip(x, (3 * z1 - 0.5, z1 * z2), strict=False):
            density /= 1 + math.exp(-logit if value else logit)
        return density

    rows = [(0.0, 1.0, 0.4), (1.0, 0.0, 2.0)]
    expected = [math.log(integrate.dblquad(joint, -5, 5, -7, 7, args=(row,), epsrel=1e-8, epsabs=0)[0]) for row in rows]
    result = pc.from_bayesnet(net).integrate(pc.gauss_legendre(80)).log_prob(torch.tensor(rows))
    np.testing.assert_allclose(result, expected, atol=1e-7)
    adaptive = pc.from_bayesnet(net).log_prob(torch.tensor(rows), tol=1e-9)
    np.testing.assert_allclose(adaptive, expected, atol=1e-7)


@pytest.mark.parametrize("name", ["bernoulli", "bimodal", "mixed_columns", "many_inputs", "bounded_input"])
def test_networks_agree_with_dense_integration(name):
    case, x = CASES[name], CASES[name].data()
    ranges = dict.fromkeys(case.net.latents, (-8.0, 8.0)) | ({"z1": (-5.2, 5.2)} if name == "bimodal" else {})
    expected = dense_log_prob(case.net, x.numpy(), ranges)
    np.testing.assert_allclose(case.integrate(sigmas=7.5).log_prob(x), expected, atol=1e-9)
