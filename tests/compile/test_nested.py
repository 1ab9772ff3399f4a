# SPDX-License-Identifier: Apache-2.0
"""Nested quadrature: points that follow the conditionals, their number, and where it does not apply."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import picirc as pc
from cases import CASES, LG, lg_chain, lg_dag, network
from oracles import nested_log_prob
from picirc.errors import ArgumentError, SizeError, StructureError


def test_points_follow_a_narrow_conditional():
    """A conditional a hundred times narrower than the marginal: fixed points miss it, moving points do not."""
    net = network({"a": LG(std=10.0), "b": LG({"a": 1.0}, std=0.05)}, {"x": LG({"b": 1.0}, std=1.0)})
    circuit = pc.from_bayesnet(net)
    x = torch.tensor([[0.4], [-12.0]])
    expected = circuit.exact().log_prob(x)
    rules = {"a": pc.gauss_legendre(240), "b": pc.gauss_legendre(30)}
    static = circuit.integrate(rules).log_prob(x)
    nested = circuit.integrate(rules, nested=True).log_prob(x)
    assert float((static - expected).abs().min()) > 1e-2
    torch.testing.assert_close(nested, expected, rtol=0, atol=1e-7)


def test_gauss_hermite_is_exact_where_the_likelihood_is_a_polynomial():
    """Nothing observed: the likelihood is one, and a single point integrates every conditional."""
    circuit = CASES["paper_ltm"].circuit
    nothing = torch.full((1, 4), math.nan)
    assert abs(float(circuit.integrate(pc.gauss_hermite(1), nested=True).log_prob(nothing))) < 1e-14


def test_moments_place_the_points_of_a_density():
    """A Student-like density with stated moments, against the plain recursion."""

    def log_density(v: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return -2 * torch.log1p((v - z).square()) + math.log(2 / math.pi)

    heavy = pc.Density(log_density, ["z"], domain=(-math.inf, math.inf), moments=lambda z: (z, torch.ones_like(z)))
    net = network({"z": LG(), "w": heavy}, {"x": LG({"w": 1.0}, std=0.7), "y": LG({"z": 1.0})})
    circuit = pc.from_bayesnet(net, ["w", "z"])
    x = torch.tensor([[0.3, -1.0], [2.0, math.nan]])
    rules = {"z": pc.gauss_hermite(5), "w": pc.gauss_legendre(6)}
    expected = nested_log_prob(circuit, rules, x.numpy(), sigmas=4.0)
    result = circuit.integrate(rules, nested=True, sigmas=4.0).log_prob(x)
    np.testing.assert_allclose(result, expected, atol=1e-12)


def test_a_density_without_moments_uses_its_domain():
    case = CASES["bimodal"]
    x = case.data()
    result = case.circuit.integrate({"z1": pc.gauss_legendre(60), "z2": pc.gauss_hermite(30)}, nested=True).log_prob(x)
    np.testing.assert_allclose(result, case.truth(x), atol=1e-5)


def test_the_moments_of_a_density_on_an_infinite_domain_are_found():
    wide = pc.Density(lambda v: -0.5 * (v - 2) ** 2 - 0.5 * math.log(2 * math.pi))
    circuit = pc.from_bayesnet(network({"z": wide}, {"x": LG({"z": 1.0})}))
    found = circuit.integrate(pc.gauss_hermite(40), nested=True).log_prob(torch.tensor([[1.0]], dtype=torch.float64))
    assert float(found) == pytest.approx(-0.25 - 0.5 * math.log(4 * math.pi), abs=1e-6)


def test_it_grows_exponentially_with_depth_and_says_so():
    circuit = pc.from_bayesnet(lg_chain())
    assert circuit.cost(pc.midpoint(3), nested=True).largest == 3**5
    with pytest.raises(SizeError, match=r"needs 1.07e\+09 numbers .*nested quadrature grows exponentially with depth"):
        circuit.integrate(pc.midpoint(64), nested=True)
    with pytest.raises(SizeError, match=r"needs 243 numbers .* the limit is 242"):
        circuit.integrate(pc.midpoint(3), nested=True, limit=242)


@pytest.mark.parametrize("order", [("z2", "z1", "z3", "z4"), ("z3", "z4", "z1", "z2")])
def test_parents_may_not_go_before_their_children(order):
    circuit = pc.from_bayesnet(lg_dag(), order)
    with pytest.raises(
        StructureError, match=rf"the unit ∫{order[0]} carries p\(.*children before parents: from_bayesnet"
    ):
        circuit.integrate(pc.gauss_hermite(3), nested=True)
    again = pc.from_bayesnet(lg_dag(), lg_dag().children_first)
    assert again.integrate(pc.gauss_hermite(3), nested=True).log_prob(torch.zeros(1, 4)).isfinite()


@pytest.mark.parametrize(
    ("name", "message"),
    [("tucker", "'z1' has a joint density with others only"), ("shared_by_integrals", "'z' has several densities")],
)
def test_a_latent_has_one_density(name, message):
    with pytest.raises(StructureError, match=f"nested quadrature places points .* {message}"):
        CASES[name].circuit.integrate(pc.gauss_legendre(4), nested=True)


@pytest.mark.parametrize("domain", ["worst", {"z1": (-3.0, 3.0)}])
def test_a_domain_makes_no_sense(domain):
    with pytest.raises(ArgumentError, match="domain: expected no domain with nested=True"):
        CASES["lg_tree"].circuit.integrate(pc.midpoint(4), nested=True, domain=domain)


@pytest.mark.parametrize("sigmas", [0.0, -1.0, math.nan])
@pytest.mark.parametrize("nested", [False, True])
def test_intervals_have_a_length(sigmas, nested):
    with pytest.raises(ArgumentError, match="sigmas: expected a positive number"):
        CASES["lg_tree"].circuit.integrate(pc.midpoint(4), nested=nested, sigmas=sigmas)


def test_single_precision():
    case, x = CASES["lg_tree"], CASES["lg_tree"].data()
    single = case.circuit.integrate(pc.gauss_hermite(8), nested=True, dtype=torch.float32).log_prob(x.float())
    double = case.circuit.integrate(pc.gauss_hermite(8), nested=True).log_prob(x)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), double, rtol=1e-5, atol=1e-5)
