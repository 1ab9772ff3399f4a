# SPDX-License-Identifier: Apache-2.0
"""Static quadrature: rules, sizes, types, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import picirc as pc
from cases import CASES, LG, Case, network
from oracles import static_log_prob
from picirc.errors import ArgumentError, SizeError

each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@each_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_result_has_the_type_asked_for(case: Case, dtype: torch.dtype):
    qpc = case.integrate(pc.gauss_legendre(5), dtype=dtype)
    assert qpc.dtype == dtype
    assert all(t.dtype == dtype for t in qpc.parameters.tensors)
    for x in (case.data(), case.data().float()):
        assert qpc.log_prob(x).dtype == dtype
        assert qpc.error(x).dtype == dtype


def test_a_rule_for_each_latent():
    case, x = CASES["lg_tree"], CASES["lg_tree"].data()
    rules = {"z1": pc.gauss_hermite(40), "z2": pc.gauss_legendre(60), "z3": pc.trapezoidal(70)}
    np.testing.assert_allclose(case.circuit.integrate(rules).log_prob(x), case.truth(x), atol=1e-6)


def test_static_gauss_hermite_sits_at_the_marginals():
    case, x = CASES["lg_tree"], CASES["lg_tree"].data()
    for points, tolerance in ((10, 3e-1), (30, 2e-4), (60, 1e-7)):
        result = case.circuit.integrate(pc.gauss_hermite(points)).log_prob(x)
        np.testing.assert_allclose(result, case.truth(x), atol=tolerance)


def test_a_random_rule_is_no_rule():
    with pytest.raises(ArgumentError, match=r"rule: expected a quadrature rule such as pc.trapezoidal\(64\)"):
        CASES["lg_tree"].circuit.integrate(pc.shifted(8))  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", [64, "trapezoidal", [pc.trapezoidal(3)]])
def test_a_rule_is_a_rule(rule):
    with pytest.raises(ArgumentError, match="rule: expected a quadrature rule"):
        CASES["lg_tree"].circuit.integrate(rule)


def test_a_rule_has_no_negative_weights():
    rule = pc.Rule("odd", [-0.5, 0.0, 0.5], [1.5, -1.0, 1.5], (-1.0, 1.0), 2.0)
    with pytest.raises(ArgumentError, match=r"rule: expected weights that are not negative.* got odd"):
        CASES["lg_tree"].circuit.integrate(rule)


def test_a_rule_made_by_hand_works_but_cannot_be_refined():
    middle = pc.Rule("middle", [-2 / 3, 0.0, 2 / 3], [2 / 3] * 3, (-1.0, 1.0), 2.0)
    circuit, x = CASES["lg_tree"].circuit, CASES["lg_tree"].data()
    qpc = circuit.integrate(middle)
    torch.testing.assert_close(qpc.log_prob(x), circuit.integrate(pc.midpoint(3)).log_prob(x), rtol=0, atol=1e-12)
    with pytest.raises(ArgumentError, match="rule: expected a rule of a known family, got middle, made by hand"):
        qpc.error(x)


def test_the_type_is_a_floating_point_type():
    with pytest.raises(ArgumentError, match="dtype: expected a floating-point type"):
        CASES["lg_tree"].circuit.integrate(pc.midpoint(4), dtype=torch.int64)


def test_a_rule_is_needed():
    with pytest.raises(ArgumentError, match=r"rule: expected a quadrature rule .* or give tol and on"):
        CASES["lg_tree"].circuit.integrate()


@pytest.mark.parametrize("latents", [["z1", "z2"], ["z1", "z2", "z3", "z4"], []])
def test_every_latent_has_a_rule(latents):
    message = r"rule: expected a rule for each latent \(z\d, z\d, z\d\), got rules for"
    with pytest.raises(ArgumentError, match=message):
        CASES["lg_tree"].circuit.integrate(dict.fromkeys(latents, pc.midpoint(4)))


def test_a_circuit_that_is_too_wide_is_refused_with_the_figure():
    net = network({f"z{i}": LG() for i in range(6)}, {"x": LG({f"z{i}": 1.0 for i in range(6)}), "y": LG({"z0": 1.0})})
    circuit = pc.from_bayesnet(net)
    with pytest.raises(
        SizeError, match=r"p\(x \| .*\) needs 6.87e\+10 numbers \(512 GiB\), the limit is 1.34e\+08; use fewer"
    ):
        circuit.integrate(pc.trapezoidal(64))
    with pytest.raises(SizeError, match=r"needs 729 numbers .* the limit is 728"):
        circuit.integrate(pc.trapezoidal(3), limit=728)
    x = torch.tensor([[0.4, -0.2]])
    assert circuit.integrate(pc.trapezoidal(3), limit=729).log_prob(x).isfinite()


def test_a_refinement_obeys_the_limit():
    qpc = CASES["lg_tree"].circuit.integrate(pc.trapezoidal(10), limit=150)
    with pytest.raises(SizeError, match="the limit is 150"):
        qpc.error(torch.zeros(1, 3))


def test_an_integral_may_be_conditioned_on_several_latents():
    net = network(
        {"a": LG(), "b": LG(std=0.8), "c": LG({"a": 0.7, "b": -0.6}, 0.2, 0.7)},
        {"x": LG({"c": 1.0}, std=0.8), "y": LG({"a": 0.5}, std=0.9)},
    )
    x = torch.tensor([[0.3, 1.0], [math.nan, -0.5], [1.5, math.nan]])
    for order in (("c", "a", "b"), ("c", "b", "a"), ("b", "c", "a")):
        circuit = pc.from_bayesnet(net, order)
        result = circuit.integrate(pc.gauss_legendre(60), sigmas=8).log_prob(x)
        torch.testing.assert_close(result, circuit.exact().log_prob(x), rtol=0, atol=1e-10)


def test_a_joint_integral_of_three_latents():
    """A joint density under a tree of inputs, with rules of different lengths."""

    def log_density(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return torch.log1p(0.5 * a * b * c) - math.log(8)

    joint = pc.Density(log_density, domain=(-1.0, 1.0))
    inputs = [pc.Input(f"x{i}", LG({z: 1.0}, std=0.5)) for i, z in enumerate("abc")]
    circuit = pc.Circuit(pc.Integral(("a", "b", "c"), pc.Product(*inputs), joint))
    rules = {"a": pc.gauss_legendre(8), "b": pc.gauss_legendre(9), "c": pc.gauss_legendre(10)}
    domain = dict.fromkeys("abc", (-1.0, 1.0))
    x = torch.tensor([[0.3, -0.9, 0.5], [math.nan, 0.2, 1.5], [math.nan] * 3])
    grids = {z: rule.on(-1, 1) for z, rule in rules.items()}
    result = circuit.integrate(rules, domain=domain).log_prob(x)
    np.testing.assert_allclose(result, static_log_prob(circuit, grids, x.numpy()), atol=1e-12)
    assert abs(float(result[2])) < 1e-12


def test_a_density_that_vanishes_in_places():
    """Points outside of a latent's support count nothing."""
    half = pc.Density(lambda z: math.log(2) - 0.5 * z**2 - 0.5 * math.log(2 * math.pi), domain=(0.0, 9.0))
    net = network({"z": half}, {"x": LG({"z": 1.0}, std=1.0)})
    circuit = pc.from_bayesnet(net)
    x = torch.tensor([[0.7], [-2.0]])
    inside = circuit.integrate(pc.gauss_legendre(60)).log_prob(x)
    wider = circuit.integrate(pc.midpoint(3600), domain={"z": (-9.0, 9.0)}).log_prob(x)
    torch.testing.assert_close(wider, inside, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(4), r"x: expected a tensor \(..., 3\), one column per variable, got shape \(4,\)"),
        (torch.zeros(2, 4), r"got shape \(2, 4\)"),
        (torch.tensor([[0.0, 0.5, 1.0]]), "variable x2: expected integers from 0 to 1"),
        (torch.tensor([[0.0, 2.0, 1.0]]), "variable x2: .* got 2.0 in row 0"),
    ],
)
def test_data_are_checked(x, message):
    with pytest.raises(ArgumentError, match=message):
        CASES["bernoulli"].integrate(pc.midpoint(4)).log_prob(x)


def test_a_mask_marks_missing_values():
    case = CASES["mixed_columns"]
    qpc, x = case.integrate(pc.gauss_legendre(8)), case.complete(6)
    mask = torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < 0.5
    expected = qpc.log_prob(x.masked_fill(mask, math.nan))
    torch.testing.assert_close(qpc.log_prob(x, mask=mask), expected, rtol=0, atol=0)
    wrong = x.masked_fill(mask, 99.5)  # what is missing is not looked at
    torch.testing.assert_close(qpc.log_prob(wrong, mask=mask), expected, rtol=0, atol=0)
