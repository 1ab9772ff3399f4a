# SPDX-License-Identifier: Apache-2.0
"""Where latents are integrated: derived intervals, given ones, and what cannot be derived."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

import picirc as pc
from cases import CASES, LG, LINEAR_GAUSSIAN_NETS, lg_dag, network, two_bumps
from oracles import joint_normal
from picirc.compile.place import place, rules_of, spreads
from picirc.errors import ArgumentError
from picirc.symbolic.build import Open


def ends(circuit: pc.Circuit, domain: object, sigmas: float | None = None) -> dict[str, tuple[float, float]]:
    """The intervals on which the trapezoidal rule is placed."""
    grids = place(circuit, rules_of(circuit, pc.trapezoidal(5)), domain, sigmas)  # type: ignore[arg-type]
    return {z: (grid.points[0], grid.points[-1]) for z, grid in grids.items()}


def chain(length: int, a: float) -> pc.BayesNet:
    """Large coefficients, with noise that grows with them."""
    latents = {"z0": LG()} | {f"z{i}": LG({f"z{i - 1}": a}, std=a**i) for i in range(1, length)}
    return network(latents, {f"x{i}": LG({f"z{i}": 1.0}, std=a**i) for i in range(length)})


@pytest.mark.parametrize("name", LINEAR_GAUSSIAN_NETS)
def test_marginal_intervals_are_those_of_the_joint_normal(name):
    names, mean, cov = joint_normal(CASES[name].net)
    for z, (low, high) in ends(CASES[name].circuit, "marginal", 5.0).items():
        i = names.index(z)
        std = math.sqrt(cov[i, i])
        assert (low, high) == pytest.approx((mean[i] - 5 * std, mean[i] + 5 * std), abs=1e-12)


def test_worst_case_intervals_are_those_of_the_paper():
    """Appendix C.2: beyond the smallest and the largest conditional mean at the parents' points."""
    net = network(
        {"a": LG(bias=1.0, std=0.5), "b": LG(std=2.0), "c": LG({"a": 2.0, "b": -1.0}, 0.5, 0.1)},
        {"x": LG({"c": 1.0})},
    )
    found = ends(pc.from_bayesnet(net), "worst")
    assert found["a"] == pytest.approx((1 - 1.5, 1 + 1.5))
    assert found["b"] == pytest.approx((-6, 6))
    assert found["c"] == pytest.approx((0.5 + 2 * -0.5 - 6 - 0.3, 0.5 + 2 * 2.5 + 6 + 0.3))


def test_the_marginal_stays_right_where_the_worst_case_fails():
    """Down a long chain worst cases add up, where standard deviations add in squares."""
    circuit = pc.from_bayesnet(chain(26, a=2.5))
    x = circuit.exact().sample(3, torch.Generator().manual_seed(0))
    expected = circuit.exact().log_prob(x)
    marginal = circuit.integrate(pc.trapezoidal(64)).log_prob(x)
    worst = circuit.integrate(pc.trapezoidal(64), domain="worst").log_prob(x)
    torch.testing.assert_close(marginal, expected, rtol=0, atol=1e-3)
    assert float((worst - expected).abs().max()) > 0.1
    wide, narrow = (ends(circuit, domain, 3.0)["z25"][1] for domain in ("worst", "marginal"))
    assert wide > 5 * narrow


def test_both_agree_where_coefficients_are_small():
    circuit = CASES["lg_tree"].circuit
    x = CASES["lg_tree"].data()
    for domain in ("marginal", "worst"):
        result = circuit.integrate(pc.trapezoidal(64), domain=domain, sigmas=6.0).log_prob(x)
        torch.testing.assert_close(result, circuit.exact().log_prob(x), rtol=0, atol=1e-7)


def test_by_default_the_worst_case_reaches_three_and_the_marginal_six_deviations():
    circuit = pc.from_bayesnet(network({"z": LG(bias=1.0, std=2.0)}, {"x": LG({"z": 1.0})}))
    assert ends(circuit, "worst")["z"] == pytest.approx((-5, 7))
    assert ends(circuit, "marginal")["z"] == pytest.approx((-11, 13))
    assert ends(circuit, "worst", 1.0)["z"] == pytest.approx((-1, 3))


def test_some_intervals_may_be_given():
    circuit = CASES["lg_tree"].circuit
    found = ends(circuit, {"z2": (-3.0, 4.0)})
    assert found["z2"] == (-3.0, 4.0)
    assert found["z1"] == ends(circuit, "marginal")["z1"]


def test_a_given_interval_is_what_is_integrated_over():
    """A narrow interval gives the probability of the latent being in it, no more."""
    circuit = pc.from_bayesnet(network({"z": LG()}, {"x": LG({"z": 1.0})}))
    qpc = circuit.integrate(pc.gauss_legendre(30), domain={"z": (-1.0, 0.5)})
    mass = float(qpc.log_prob(torch.tensor([[math.nan]])).exp())
    assert mass == pytest.approx(norm.cdf(0.5) - norm.cdf(-1.0), abs=1e-12)


def test_a_bounded_ancestor_shifts_the_interval():
    """A linear-Gaussian child of a latent on an interval reaches its deviations beyond both ends."""
    net = network(
        {
            "b": pc.Density(two_bumps, domain=(-2.0, 3.0)),
            "c": LG({"b": -2.0}, 1.0, 0.5),
            "d": LG({"c": 1.0, "b": 2.0}, std=1.2),
        },
        {"x": LG({"d": 1.0})},
    )
    found = ends(pc.from_bayesnet(net), "marginal", 4.0)
    assert found["b"] == (-2.0, 3.0)
    assert found["c"] == pytest.approx((1 - 6 - 2, 1 + 4 + 2))
    assert found["d"] == pytest.approx((1 - 4 * 1.3, 1 + 4 * 1.3))  # what depends on b cancels


def test_parents_with_common_ancestors_are_correlated():
    """z2 and z3 are nearly the same variable: their difference is narrow, their sum is wide."""
    net = network(
        {
            "z1": LG(),
            "z2": LG({"z1": 1.0}, std=0.1),
            "z3": LG({"z1": 1.0}, std=0.1),
            "z4": LG({"z2": 1.0, "z3": -1.0}, std=0.1),
        },
        {"x": LG({"z4": 1.0})},
    )
    assert ends(pc.from_bayesnet(net), "marginal", 1.0)["z4"][1] == pytest.approx(math.sqrt(0.03))


def test_several_densities_on_intervals_are_covered_together():
    below = pc.Input("x", LG({"z": 1.0}))
    domains = [(-1.0, 0.5), (0.0, 2.0)]
    flat = [pc.Density(lambda z, a=a, b=b: 0 * z - math.log(b - a), domain=(a, b)) for a, b in domains]
    circuit = pc.Circuit(pc.Sum([pc.Integral("z", below, f) for f in flat], [0.5, 0.5]))
    assert ends(circuit, "marginal")["z"] == (-1.0, 2.0)


@pytest.mark.parametrize("domain", ["wide", 3.0, None])
def test_unknown_choices(domain):
    with pytest.raises(ArgumentError, match='domain: expected "marginal", "worst", or intervals'):
        CASES["lg_tree"].circuit.integrate(pc.midpoint(4), domain=domain)


def test_unknown_latents():
    with pytest.raises(ArgumentError, match=r"domain: .*intervals for latents .* got z7"):
        CASES["lg_tree"].circuit.integrate(pc.midpoint(4), domain={"z1": (0.0, 1.0), "z7": (0.0, 1.0)})


@pytest.mark.parametrize("interval", [(1.0, 1.0), (2.0, 1.0), (0.0, math.inf), (math.nan, 1.0), (1, 2, 3), 3.0, "ab"])
def test_an_interval_is_finite_and_has_a_length(interval):
    with pytest.raises(ArgumentError, match=r"domain: expected a finite interval \(low, high\) for the latent 'z1'"):
        CASES["lg_tree"].circuit.integrate(pc.midpoint(4), domain={"z1": interval})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("shared_by_integrals", "the latent 'z', which has several densities"),
        ("tucker", "the latent 'z1', which has no density of its own"),
        ("opposite_directions", "which has several densities"),
    ],
)
@pytest.mark.parametrize("domain", ["marginal", "worst"])
def test_what_cannot_be_derived_is_asked_for(name, message, domain):
    with pytest.raises(ArgumentError, match=message):
        CASES[name].circuit.integrate(pc.midpoint(4), domain=domain)


def test_a_latent_has_a_density():
    prior = Open(())
    circuit = pc.from_bayesnet(network({"z": prior}, {"x": LG({"z": 1.0})}))
    with pytest.raises(ArgumentError, match="the latent 'z', which has a density without a domain"):
        circuit.integrate(pc.midpoint(4))
    with pytest.raises(ArgumentError, match="a density with a method log_density at the unit ∫z"):
        circuit.integrate(pc.midpoint(4), domain={"z": (-1.0, 1.0)})


@pytest.mark.parametrize(
    "options",
    [
        {"rule": pc.gauss_legendre(90), "domain": {"z": (-8.0, 8.0)}},
        {"rule": pc.gauss_legendre(90), "sigmas": 8.0},
        {"rule": pc.gauss_hermite(40)},
        {"rule": pc.whole_line(64)},
    ],
    ids=["given", "derived", "gauss_hermite", "whole_line"],
)
def test_a_density_on_the_whole_line(options):
    wide = pc.Density(lambda z: -0.5 * z**2 - 0.5 * math.log(2 * math.pi))
    circuit = pc.from_bayesnet(network({"z": wide}, {"x": LG({"z": 1.0})}))
    x = torch.tensor([[0.7]], dtype=torch.float64)
    result = circuit.integrate(**options).log_prob(x)
    assert float(result) == pytest.approx(-0.5 * 0.49 / 2 - 0.5 * math.log(4 * math.pi), abs=1e-6)


def test_a_density_whose_mass_is_not_found_says_so():
    far = pc.Density(lambda z: -0.5 * ((z - 900) / 0.01) ** 2 - math.log(0.01) - 0.5 * math.log(2 * math.pi))
    circuit = pc.from_bayesnet(network({"z": far}, {"x": LG({"z": 1.0})}))
    with pytest.raises(ArgumentError, match=r"log_density: expected a density with the mass 1.*moments="):
        circuit.integrate(pc.whole_line(32))


def test_gauss_hermite_needs_a_gaussian_marginal():
    with pytest.raises(ArgumentError, match="rule: expected a rule on an interval for the latent 'z1', whose marginal"):
        CASES["bimodal"].circuit.integrate(pc.gauss_hermite(8))
    with pytest.raises(ArgumentError, match=r"rule: .*latent 'z2', whose marginal is not Gaussian"):
        CASES["bimodal"].circuit.integrate({"z1": pc.gauss_legendre(9), "z2": pc.gauss_hermite(8)})


def test_gauss_hermite_does_not_ignore_an_interval():
    for domain in ({"z1": (-3.0, 3.0)}, "worst"):
        with pytest.raises(ArgumentError, match="rule: expected a rule on a finite domain, got gauss_hermite"):
            CASES["lg_tree"].circuit.integrate(pc.gauss_hermite(8), domain=domain)


def test_intervals_do_not_depend_on_the_order_of_elimination():
    one, other = (pc.from_bayesnet(lg_dag(), order) for order in (None, ("z1", "z2", "z3", "z4")))
    for domain in ("marginal", "worst"):
        for z, interval in ends(one, domain).items():
            assert interval == pytest.approx(ends(other, domain)[z])


def test_a_wider_interval_makes_the_truncation_smaller():
    circuit = pc.from_bayesnet(network({"z": LG()}, {"x": LG({"z": 1.0})}))
    nothing = torch.tensor([[math.nan]])
    masses = [-float(circuit.integrate(pc.gauss_legendre(60), sigmas=s).log_prob(nothing)) for s in (2.0, 4.0, 6.0)]
    np.testing.assert_allclose(masses, [-math.log(math.erf(s / math.sqrt(2))) for s in (2.0, 4.0, 6.0)], rtol=1e-4)


@pytest.mark.parametrize("name", LINEAR_GAUSSIAN_NETS)
def test_spreads_are_the_marginals_of_the_latents(name):
    case = CASES[name]
    names, mean, cov = joint_normal(case.net)
    for z, spread in spreads(case.circuit).items():
        place = names.index(z)
        assert spread.constant == pytest.approx(mean[place], abs=1e-12)
        assert spread.std == pytest.approx(math.sqrt(cov[place, place]), rel=1e-12)


def test_the_noises_of_a_chain_are_passed_on_as_one():
    net = pc.BayesNet()
    for i in range(50):
        net.latent(f"z{i}", pc.LinearGaussian({f"z{i - 1}": 0.9} if i else {}, std=0.5))
    net.observed("x", pc.LinearGaussian({"z49": 1.0}))
    assert all(len(spread.noise) == 1 for spread in spreads(pc.from_bayesnet(net)).values())
