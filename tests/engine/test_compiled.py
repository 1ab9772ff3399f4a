# SPDX-License-Identifier: Apache-2.0
"""The compiled circuit against plain recursion over the units, its gradients, and its bookkeeping."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

import picirc as pc
from cases import CASES, LG, Case, network
from oracles import nested_log_prob, posterior, static_log_prob
from picirc.engine.compiled import CompiledCircuit, Parameters
from picirc.engine.evidence import Evidence

each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5}


def parameters_with_gradient(qpc: pc.QPC) -> Parameters:
    parts = (qpc.parameters.weights, qpc.parameters.mixtures, qpc.parameters.inputs)
    return Parameters(*(tuple(t.detach().clone().requires_grad_() for t in part) for part in parts))


def far_from_zero(qpc: pc.QPC) -> tuple[Tensor, ...]:
    """The parameters with random weights that a finite difference does not make negative."""
    rng = torch.Generator().manual_seed(0)
    weights = (*qpc.parameters.weights, *qpc.parameters.mixtures)
    random = (torch.rand(t.shape, generator=rng, dtype=t.dtype) + 0.5 for t in weights)
    return tuple(t.clone().requires_grad_() for t in (*random, *qpc.parameters.inputs))


def split_batches(monkeypatch: pytest.MonkeyPatch, budget: int) -> list[int]:
    """Make every circuit split its batches; the sizes of the parts are noted in the list."""
    whole, sizes = CompiledCircuit.parts, list[int]()

    def parts(self: CompiledCircuit, evidence: Evidence) -> Iterator[tuple[slice, Evidence]]:
        for where, part in whole(self, evidence):
            sizes.append(part.batch)
            yield where, part

    monkeypatch.setattr(CompiledCircuit, "parts", parts)
    monkeypatch.setattr("picirc.engine.compiled.BUDGET", budget)
    return sizes


@each_case
@pytest.mark.parametrize("rule", [pc.gauss_legendre(7), pc.trapezoidal(12), pc.simpson(5)], ids=repr)
def test_folded_equals_unfolded(case: Case, rule: pc.Rule):
    x = case.data()
    expected = static_log_prob(case.circuit, case.grids(rule), x.numpy())
    np.testing.assert_allclose(case.integrate(rule).log_prob(x), expected, atol=1e-11)


@each_case
def test_folded_equals_unfolded_with_a_rule_per_latent(case: Case):
    """Axes of different lengths fold differently, and a mistake in their order cannot hide."""
    circuit = case.circuit
    rules = {z: pc.gauss_legendre(4 + i) for i, z in enumerate(circuit.latents)}
    x = case.data()
    expected = static_log_prob(circuit, case.grids(rules), x.numpy())
    np.testing.assert_allclose(case.integrate(rules).log_prob(x), expected, atol=1e-11)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.nested])
def test_nested_equals_unfolded(name: str):
    case, x = CASES[name], CASES[name].data()
    circuit = case.circuit
    sizes = (2, 3) if len(circuit.latents) > 4 else (4, 3)
    rules = {z: pc.gauss_legendre(sizes[i % 2]) for i, z in enumerate(circuit.latents)}
    expected = nested_log_prob(circuit, rules, x.numpy())
    np.testing.assert_allclose(circuit.integrate(rules, nested=True).log_prob(x), expected, atol=1e-11)


@pytest.mark.parametrize("name", ["lg_tree", "lg_dag", "paper_ltm", "mixed_columns", "sums", "disconnected"])
def test_nested_gauss_hermite_equals_unfolded(name: str):
    case, x = CASES[name], CASES[name].data()
    rules = dict.fromkeys(case.circuit.latents, pc.gauss_hermite(4))
    expected = nested_log_prob(case.circuit, rules, x.numpy())
    result = case.circuit.integrate(rules, nested=True).log_prob(x)
    np.testing.assert_allclose(result, expected, atol=1e-11)


@each_case
def test_single_precision_agrees_with_double(case: Case):
    rule = pc.gauss_legendre(12)
    x = case.data()
    single = case.integrate(rule, dtype=torch.float32).log_prob(x.float())
    assert single.dtype == torch.float32
    np.testing.assert_allclose(single, case.integrate(rule).log_prob(x), rtol=TOLERANCE[torch.float32], atol=2e-5)


@each_case
def test_gradients_agree_with_finite_differences(case: Case):
    qpc = case.integrate({z: pc.gauss_legendre(3 + i % 2) for i, z in enumerate(case.circuit.latents)})
    points = qpc._points(case.data()[1::2])
    counts = len(qpc.parameters.weights), len(qpc.parameters.weights) + len(qpc.parameters.mixtures)

    def log_prob(*tensors: Tensor) -> Tensor:
        parts = tensors[: counts[0]], tensors[counts[0] : counts[1]], tensors[counts[1] :]
        return qpc.compiled.log_prob(points, Parameters(*parts))

    assert torch.autograd.gradcheck(log_prob, far_from_zero(qpc), fast_mode=True)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.once])
def test_flows_are_posterior_probabilities(name: str):
    case, rule = CASES[name], pc.gauss_legendre(5)
    x, circuit, grids = case.data(), case.circuit, case.grids(rule)
    latents = case.integrate(rule).latents(x)
    for z in circuit.latents:
        expected = posterior(circuit, grids, x.numpy(), z)
        np.testing.assert_allclose(latents[z].probabilities, expected, atol=1e-10)


def test_the_posterior_of_a_name_is_that_of_its_variables_on_average():
    case, rule, prior = CASES["same_name"], pc.gauss_legendre(5), LG(std=0.9)
    x = case.data()
    (found,) = case.integrate(rule).latents(x).values()
    below = pc.Integral("b", pc.Input("x2", LG({"b": 0.7}, std=0.9)), prior)
    above = pc.Product(pc.Input("x1", LG({"a": 1.1}, std=0.8)), below)
    apart = pc.Circuit(pc.Integral("a", above, prior), ["x1", "x2"])
    grids = dict.fromkeys("ab", case.grids(rule)["z"])
    expected = (posterior(apart, grids, x.numpy(), "a") + posterior(apart, grids, x.numpy(), "b")) / 2
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-10)


@each_case
@pytest.mark.parametrize("rows", [1, 3])
def test_a_split_batch_gives_the_same(case: Case, rows: int, monkeypatch: pytest.MonkeyPatch):
    qpc, x = case.integrate(pc.gauss_legendre(5)), case.data()
    whole, parts = parameters_with_gradient(qpc), parameters_with_gradient(qpc)
    points = qpc._points(x)
    expected = qpc.compiled.log_prob(points, whole)
    expected.square().sum().backward()
    sizes = split_batches(monkeypatch, rows * qpc.compiled.elements)
    torch.testing.assert_close(qpc.log_prob(x), expected.detach(), rtol=0, atol=1e-13)
    assert max(sizes) == rows
    assert sum(sizes) == len(x)
    result = qpc.compiled.log_prob(points, parts)
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-13)
    result.square().sum().backward()
    for a, b in zip(parts.tensors, whole.tensors, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-10, atol=1e-12)


def test_gradients_add_up_over_two_backward_passes():
    qpc = CASES["lg_tree"].integrate(pc.gauss_legendre(5))
    parameters, points = parameters_with_gradient(qpc), qpc._points(CASES["lg_tree"].data())
    values = qpc.compiled.log_prob(points, parameters)
    values.sum().backward(retain_graph=True)
    once = [t.grad.clone() for t in parameters.tensors if t.grad is not None]
    values.sum().backward()
    for t, first in zip(parameters.tensors, once, strict=True):
        torch.testing.assert_close(t.grad, 2 * first)


def test_two_passes_can_be_under_way_at_once():
    """The buffers of a pass that still waits for its way back are not used by another."""
    case = CASES["lg_dag"]
    qpc = case.integrate(pc.gauss_legendre(4))
    one, two = qpc._points(case.complete(3, seed=1)), qpc._points(case.complete(3, seed=2))
    parameters = parameters_with_gradient(qpc)
    first = qpc.compiled.log_prob(one, parameters)
    second = qpc.compiled.log_prob(two, parameters)
    qpc.log_prob(case.complete(3, seed=3))
    (first.sum() + second.sum()).backward()
    apart = parameters_with_gradient(qpc)
    qpc.compiled.log_prob(one, apart).sum().backward()
    qpc.compiled.log_prob(two, apart).sum().backward()
    for a, b in zip(parameters.tensors, apart.tensors, strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def test_gradients_reach_what_the_functions_are_made_of():
    """A parameter inside a user's density is learned through the quadrature."""
    a = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    prior = pc.Density(lambda z: a * z - torch.log(2 * torch.sinh(a) / a), domain=(-1.0, 1.0))
    net = network({"z": prior}, {"x": LG({"z": 1.0}, std=0.6)})
    x = torch.tensor([[0.3], [-0.8]], dtype=torch.float64)

    def log_prob(value: Tensor) -> Tensor:
        grid = pc.gauss_legendre(20).on(-1, 1)
        z, w = torch.as_tensor(grid.points), torch.as_tensor(grid.weights)
        tilt = value * z - torch.log(2 * torch.sinh(value) / value)
        likelihood = -0.5 * ((x - z) / 0.6) ** 2 - math.log(0.6) - 0.5 * math.log(2 * math.pi)
        return (likelihood + tilt + w.log()).logsumexp(1)

    result = pc.from_bayesnet(net).integrate(pc.gauss_legendre(20)).log_prob(x)
    (found,) = torch.autograd.grad(result.sum(), a)
    (expected,) = torch.autograd.grad(log_prob(a).sum(), a)
    torch.testing.assert_close(found, expected)


class Bump(torch.nn.Module):
    """A normal density about a learned multiple of its parent."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = torch.nn.Parameter(torch.tensor(0.7, dtype=torch.float64))

    def forward(self, value: Tensor, z: Tensor) -> Tensor:
        return -0.5 * (value - self.slope * z) ** 2 - 0.5 * math.log(2 * math.pi)


@pytest.mark.parametrize("observed", [False, True])
def test_modules_in_a_circuit_are_found_and_learned(observed: bool):
    """A module that computes a density of a latent, or of an observed variable."""
    bump = Bump()
    density = pc.Density(bump, ["z"], domain=(-9.0, 9.0))
    latents = {"z": LG()} if observed else {"z": LG(), "u": density}
    circuit = pc.from_bayesnet(network(latents, {"x": density if observed else LG({"u": 1.0}), "y": LG({"z": 0.5})}))
    (module,) = circuit.functions
    assert module is bump
    x = torch.tensor([[0.3, 0.1], [-0.8, math.nan]], dtype=torch.float64)

    def log_prob(slope: Tensor) -> Tensor:
        with torch.no_grad():
            bump.slope.copy_(slope)
        return circuit.integrate(pc.gauss_legendre(24)).log_prob(x).sum()

    (found,) = torch.autograd.grad(log_prob(torch.tensor(0.7)), bump.slope)
    step = 1e-5
    high, low = (float(log_prob(torch.tensor(0.7 + d, dtype=torch.float64)).detach()) for d in (step, -step))
    assert float(found) == pytest.approx((high - low) / (2 * step), rel=1e-6)


def test_a_density_of_data_that_hides_its_parameters_is_refused():
    slope = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    density = pc.Density(lambda x, z: -0.5 * (x - slope * z) ** 2, ["z"], domain=(-9.0, 9.0))
    with pytest.raises(pc.ArgumentError, match=r"log_density: expected a torch\.nn\.Module"):
        pc.from_bayesnet(network({"z": LG()}, {"x": density})).integrate(pc.midpoint(8))


def test_a_parameter_that_is_given_needs_no_gradient():
    qpc = CASES["lg_tree"].integrate(pc.gauss_legendre(5))
    assert not qpc.log_prob(CASES["lg_tree"].data()).requires_grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_far_away_data_stay_finite(dtype: torch.dtype):
    """Outliers whose density underflows by far, in agreement with the evidence of each other."""
    circuit = CASES["lg_chain"].circuit
    x = torch.full((1, 5), 60.0, dtype=dtype)
    grids = CASES["lg_chain"].grids(pc.gauss_legendre(24))
    expected = static_log_prob(circuit, grids, x.double().numpy())
    assert expected[0] < -5000
    result = circuit.integrate(pc.gauss_legendre(24), dtype=dtype).log_prob(x)
    np.testing.assert_allclose(result, expected, rtol=TOLERANCE[dtype])


def test_impossible_values_have_log_zero_and_no_nan():
    late = pc.Density(lambda x, z: torch.where(x < z, -math.inf, z - x), ["z"], domain=(-5.0, 50.0))
    uniform = pc.Density(lambda z: 0 * z - math.log(2), domain=(0.0, 2.0))
    circuit = pc.from_bayesnet(network({"z": uniform}, {"x": late, "y": LG({"z": 1.0})}))
    qpc = circuit.integrate(pc.gauss_legendre(20))
    x = torch.tensor([[-1.0, 0.5], [3.0, 0.5]])
    values = qpc.log_prob(x)
    assert values[0] == -math.inf
    assert values[1].isfinite()
    parameters = parameters_with_gradient(qpc)
    qpc.compiled.log_prob(qpc._points(x), parameters)[1].backward()
    assert all(t.grad.isfinite().all() for t in parameters.tensors)
