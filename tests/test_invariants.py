"""What holds for the quadrature of every circuit, whatever the rule."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import logsumexp

import picirc as pc
from cases import ANGLE, CASES, REAL, Case
from oracles import enumerate_values, integrate_out

each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
NETWORKS = {name: case for name, case in CASES.items() if isinstance(case.build(), pc.BayesNet)}
COARSE = pc.gauss_legendre(6)


@each_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nothing_observed_is_log_one(case: Case, dtype: torch.dtype):
    nothing = torch.full((1, len(case.columns)), math.nan)
    value = float(case.integrate(dtype=dtype).log_prob(nothing))
    assert abs(value) < (1e-5 if dtype == torch.float32 else 1e-6)


@each_case
def test_a_marginal_is_the_integral_of_the_joint(case: Case):
    """Exactly so for the circuit that quadrature makes, because inputs are normalised; the rule may be coarse."""
    qpc, x = case.integrate(COARSE), case.data()[:-1:2]
    for column, kind in enumerate(case.columns):
        missing = x.clone()
        missing[:, column] = math.nan
        if isinstance(kind, str):
            reach = {REAL: 14.0, ANGLE: math.pi}[kind]
            total = integrate_out(qpc.log_prob, x, column, reach)
        else:
            counts = range(60 if case is CASES["mixed_columns"] and column == 0 else kind)  # Poisson has no end
            values = [x.clone().index_fill_(1, torch.tensor(column), float(v)) for v in counts]
            total = logsumexp([qpc.log_prob(v).numpy() for v in values], axis=0)
        np.testing.assert_allclose(total, qpc.log_prob(missing), atol=1e-8)


@each_case
def test_rows_do_not_influence_each_other(case: Case):
    qpc, x = case.integrate(COARSE), case.data()
    alone = torch.cat([qpc.log_prob(row[None]) for row in x])
    torch.testing.assert_close(alone, qpc.log_prob(x), rtol=0, atol=1e-13)
    turned = qpc.log_prob(x.flip(0)).flip(0)
    torch.testing.assert_close(turned, qpc.log_prob(x), rtol=0, atol=1e-13)


@each_case
def test_asking_twice_gives_the_same_bits(case: Case):
    """Buffers are used again; nothing of the last pass may shine through."""
    qpc, x = case.integrate(COARSE), case.data()
    first = qpc.log_prob(x)
    qpc.log_prob(case.complete(7, seed=5))
    assert torch.equal(qpc.log_prob(x), first)
    assert torch.equal(case.integrate(COARSE).log_prob(x), first)


@each_case
def test_the_order_of_the_columns_is_a_matter_of_labels(case: Case):
    circuit, x = case.circuit, case.data()
    turned = pc.Circuit(circuit.root, circuit.variables[::-1])
    domain = "marginal" if case.domain is None else case.domain
    result = turned.integrate(COARSE, domain=domain).log_prob(x.flip(1))
    torch.testing.assert_close(result, case.integrate(COARSE).log_prob(x), rtol=0, atol=1e-13)


def renamed(function: object, names: dict[str, str]) -> object:
    """The same function with other names for its parents."""
    parents = [names[p] for p in function.parents]  # type: ignore[attr-defined]
    match function:
        case pc.LinearGaussian():
            weights = dict(zip(parents, function.weights.values(), strict=True))
            return pc.LinearGaussian(weights, function.bias, function.std)
        case pc.Conditional():
            return pc.Conditional(function.family, function.link, parents)
        case pc.Density():
            return pc.Density(function.log_density, parents, domain=function.domain)
    raise AssertionError(function)


@pytest.mark.parametrize("case", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("seed", [0, 1])
def test_names_and_the_order_of_declaration_change_nothing(case: Case, seed: int):
    net, rng = case.net, np.random.default_rng(seed)
    everything = [*net.latents, *net.variables]
    names = dict(zip(everything, (f"v{i}" for i in rng.permutation(len(everything))), strict=True))
    other = pc.BayesNet()
    for name in rng.permutation(everything):
        if name in net.latents:
            other.latent(names[name], renamed(net.latents[name], names))  # type: ignore[arg-type]
        else:
            other.observed(names[name], renamed(net.variables[name], names))  # type: ignore[arg-type]
    x = case.data()
    back = {new: old for old, new in names.items()}
    columns = [list(net.variables).index(back[name]) for name in other.variables]
    result = pc.from_bayesnet(other).integrate(COARSE).log_prob(x[:, columns])
    expected = pc.from_bayesnet(net).integrate(COARSE).log_prob(x)
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_discrete_circuit_adds_to_one(dtype: torch.dtype):
    case = CASES["bernoulli"]
    qpc = case.integrate(dtype=dtype)
    everything = enumerate_values([2, 2, 2])
    log_prob = qpc.log_prob(everything)
    assert float(log_prob.double().logsumexp(0)) == pytest.approx(0.0, abs=1e-5 if dtype == torch.float32 else 1e-7)
    for column in range(3):
        for value in (0.0, 1.0):
            known = torch.full((1, 3), math.nan)
            known[0, column] = value
            matching = log_prob[everything[:, column] == value].logsumexp(0)
            torch.testing.assert_close(
                qpc.log_prob(known)[0], matching, rtol=0, atol=1e-5 if dtype == torch.float32 else 1e-12
            )
