# SPDX-License-Identifier: Apache-2.0
"""Points at the posterior, and intervals that are widened: for data that the marginals do not expect."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

import picirc as pc
from cases import LG, network
from picirc.compile.integrate import integrate
from picirc.errors import ArgumentError


def chain(noise: float) -> pc.Circuit:
    net = network({"z": LG(), "w": LG({"z": 0.5})}, {"x": LG({"z": 1.0}, std=noise), "y": LG({"w": 1.0}, std=noise)})
    return pc.from_bayesnet(net)


def row(*values: float) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.float64)


@pytest.mark.parametrize("noise", [0.5, 1e-2, 1e-5])
@pytest.mark.parametrize("rule", [pc.gauss_hermite(16), pc.trapezoidal(40), pc.whole_line(80)], ids=lambda r: r.name)
@pytest.mark.parametrize("x", [row(0.3, 0.2), row(12.0, -0.5)], ids=["usual", "far"])
def test_few_points_at_the_posterior_are_enough(noise, rule, x):
    circuit = chain(noise)
    found = circuit.integrate(rule, domain="posterior", on=x).log_prob(x)
    covariance = np.array([[1.0, 0.5], [0.5, 1.25]]) + noise**2 * np.eye(2)
    truth = stats.multivariate_normal([0, 0], covariance).logpdf(x.numpy())
    assert float(found) == pytest.approx(float(truth), abs=1e-6)


def test_one_circuit_for_several_data_points():
    circuit = chain(0.3)
    x = torch.cat([row(0.3, 0.2), row(4.0, 1.0), row(-5.0, float("nan"))])
    qpc = circuit.integrate(pc.trapezoidal(120), domain="posterior", on=x)
    torch.testing.assert_close(qpc.log_prob(x), circuit.exact().log_prob(x), rtol=0, atol=1e-7)
    assert float(qpc.error(x).max()) < 1e-6


def test_a_stated_domain_is_not_left():
    prior = pc.Density(lambda z: torch.zeros_like(z), domain=(0.0, 1.0))
    circuit = pc.from_bayesnet(network({"z": prior}, {"x": LG({"z": 1.0}, std=0.05)}))
    x = row(1.2)
    expected = torch.special.log_ndtr(torch.tensor(-4.0, dtype=torch.float64))  # P(z < 1) for z ~ N(1.2, 0.05²)
    found = circuit.integrate(pc.gauss_legendre(40), domain="posterior", on=x, sigmas=20.0).log_prob(x)
    assert float(found) == pytest.approx(float(expected), abs=1e-6)


def test_discrete_latents_stay_as_they_are():
    net = network({"k": pc.Discrete(2, [0.4, 0.6]), "z": LG({"k": 3.0})}, {"x": LG({"z": 1.0}, std=0.01)})
    circuit, x = pc.from_bayesnet(net), row(2.9)
    expected = circuit.log_prob(x, tol=1e-9)
    found = circuit.integrate(pc.gauss_hermite(20), domain="posterior", on=x).log_prob(x)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-7)


def test_a_tolerance_widens_intervals_that_are_too_narrow():
    circuit, x = chain(0.5), row(16.0, 9.0)
    assert float(circuit.integrate(pc.gauss_legendre(400)).error(x)) > 1.0  # refining alone does not help
    qpc = circuit.integrate(tol=1e-6, on=x)
    assert float(qpc.log_prob(x)) == pytest.approx(float(circuit.exact().log_prob(x)), abs=1e-5)


def test_a_tolerance_that_cannot_be_reached_is_refused_with_numbers(monkeypatch):
    sizes = []

    def counted(circuit, rules, *arguments, **options):
        sizes.append(max(map(len, rules.values())))
        return integrate(circuit, rules, *arguments, **options)

    monkeypatch.setattr("picirc.circuit.integrate", counted)
    with pytest.raises(ArgumentError, match=r"'w' needs at least 1\d\d,\d\d\d points; .*domain=\"posterior\""):
        chain(1e-4).integrate(tol=1e-6, on=row(0.3, 0.2))
    assert max(sizes) < 100  # nothing large was tried


def test_the_posterior_needs_data():
    with pytest.raises(ArgumentError, match=r"on: expected the data for domain=\"posterior\""):
        chain(0.5).integrate(pc.gauss_hermite(8), domain="posterior")
    with pytest.raises(ArgumentError, match="tol, on: expected both or neither"):
        chain(0.5).integrate(pc.gauss_hermite(8), on=row(0.0, 0.0))
