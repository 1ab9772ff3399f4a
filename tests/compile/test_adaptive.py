# SPDX-License-Identifier: Apache-2.0
"""Adaptive quadrature: values, honest errors, and integrands that a fixed grid would miss."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

import picirc as pc
from cases import CASES, LG, Case, network
from picirc.errors import ArgumentError

NARROW = {name: case for name, case in CASES.items() if not name.startswith("lg_dag")}


@pytest.mark.parametrize("case", NARROW.values(), ids=NARROW)
@pytest.mark.parametrize("tol", [1e-3, 1e-8])
def test_values_and_errors(case: Case, tol: float):
    x = case.data()[::5]
    result = case.circuit.adaptive_log_prob(x, tol, domain=case.domain or "marginal")
    true = np.abs(result.value.numpy() - case.truth(x))
    assert result.error.shape == result.value.shape == (len(x),)
    assert float(result.error.max()) <= tol
    assert np.all(true <= tol)
    assert np.all(true <= 10 * result.error.numpy() + 1e-12)


def test_functions_of_three_latents():
    case = CASES["lg_dag"]
    x = case.data()[[0, -2]]
    result = case.circuit.adaptive_log_prob(x, tol=1e-4)
    assert float(result.error.max()) <= 1e-4
    np.testing.assert_allclose(result.value, case.truth(x), atol=1e-7)


def test_what_does_not_fit_is_not_claimed():
    """A function of four latents cannot be refined even once; the error says that it was not reached."""
    case = CASES["lg_dag_parents_first"]
    x = case.data()[[0]]
    result = case.circuit.adaptive_log_prob(x, tol=1e-8)
    assert float(result.error) > 1e-8
    np.testing.assert_allclose(result.value, case.truth(x), atol=1e-2)


@pytest.mark.parametrize("tol", [1e-3, 1e-6, 1e-9])
def test_narrow_likelihoods(tol):
    """Noise a hundred times smaller than the latents: where a rule with fifty points is off by hundreds."""
    net = network(
        {"z": LG(), "w": LG({"z": 0.9}, std=0.5)}, {"x": LG({"z": 1.0}, std=0.01), "y": LG({"w": 2.0}, std=0.01)}
    )
    circuit = pc.from_bayesnet(net)
    x = torch.tensor([[0.3, 0.5], [2.0, 5.0], [math.nan, -3.0], [-4.0, math.nan]], dtype=torch.float64)
    expected = circuit.exact().log_prob(x)
    assert float((circuit.integrate(pc.gauss_legendre(50)).log_prob(x) - expected).abs().max()) > 100
    result = circuit.adaptive_log_prob(x, tol)
    assert float(result.error.max()) <= tol
    assert float((result.value - expected).abs().max()) <= tol


def test_a_likelihood_with_edges():
    """A uniform density has no derivative to rely on."""
    box = pc.Density(
        lambda x, z: torch.where((x - z).abs() < 0.3, -math.log(0.6), -math.inf), ["z"], domain=(-9.0, 9.0)
    )
    circuit = pc.from_bayesnet(network({"z": LG()}, {"x": box}))
    x = torch.tensor([[0.2], [-1.7]], dtype=torch.float64)
    expected = np.log((norm.cdf(x + 0.3) - norm.cdf(x - 0.3)) / 0.6)[:, 0]
    result = circuit.adaptive_log_prob(x, tol=1e-6)
    np.testing.assert_allclose(result.value, expected, atol=1e-5)
    assert np.all(np.abs(result.value.numpy() - expected) <= 10 * result.error.numpy() + 1e-12)


def test_a_support_that_the_first_points_miss():
    box = pc.Density(
        lambda x, z: torch.where((x - z).abs() < 0.005, math.log(100.0), -math.inf), ["z"], domain=(-9.0, 9.0)
    )
    circuit = pc.from_bayesnet(network({"z": LG()}, {"x": box}))
    x = torch.tensor([[0.3]], dtype=torch.float64)
    expected = np.log((norm.cdf(0.305) - norm.cdf(0.295)) * 100)
    result = circuit.adaptive_log_prob(x, tol=1e-4)
    assert float(result.value) == pytest.approx(expected, abs=1e-4)


def test_missing_values_and_nothing_at_all():
    circuit = CASES["paper_ltm"].circuit
    x = torch.full((1, 4), math.nan)
    result = circuit.adaptive_log_prob(x, tol=1e-9)
    assert abs(float(result.value)) < 1e-9


def test_a_circuit_without_latents_is_exact():
    result = pc.Circuit(pc.Input("x", LG(bias=1.0))).adaptive_log_prob(torch.tensor([[3.0]]), tol=1e-12)
    assert float(result.value) == pytest.approx(norm.logpdf(3.0, 1.0), abs=1e-14)
    assert float(result.error) < 1e-14


def test_a_domain_can_be_given():
    circuit = CASES["tucker"].circuit
    x = torch.tensor([[0.4, -0.2]])
    with pytest.raises(ArgumentError, match=r"an interval for the latent 'z1'.*domain=\{'z1': \(low, high\)\}"):
        circuit.log_prob(x)
    result = circuit.adaptive_log_prob(x, domain={"z1": (-7.0, 7.0), "z2": (-7.0, 7.0)})
    np.testing.assert_allclose(result.value, CASES["tucker"].truth(x.double()), atol=1e-6)


@pytest.mark.parametrize("tol", [0.0, -1e-3, math.nan])
def test_a_tolerance_is_positive(tol):
    with pytest.raises(ArgumentError, match="tol: expected a positive number"):
        CASES["lg_tree"].circuit.log_prob(torch.zeros(1, 3), tol)


def test_data_are_checked_first():
    with pytest.raises(ArgumentError, match=r"x: expected a tensor \(\.\.\., 3\)"):
        CASES["lg_tree"].circuit.log_prob(torch.zeros(1, 2))


def test_an_unusual_data_point_widens_the_domain():
    net = pc.BayesNet()
    net.latent("z", pc.LinearGaussian(std=1.0))
    net.observed("x", pc.LinearGaussian({"z": 1.0}, std=0.3))
    circuit = pc.from_bayesnet(net)
    x = torch.tensor([[12.0], [-20.0], [0.1]], dtype=torch.float64)
    found = circuit.adaptive_log_prob(x, tol=1e-6)
    assert (found.value - circuit.exact().log_prob(x)).abs().max() < 1e-6


def test_the_values_alone_are_a_tensor():
    case = CASES["lg_tree"]
    x = case.complete(2).view(2, 1, 3)
    values = case.circuit.log_prob(x, tol=1e-4)
    assert values.shape == (2, 1)
    assert torch.equal(values, case.circuit.adaptive_log_prob(x, tol=1e-4).value)
