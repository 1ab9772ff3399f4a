# SPDX-License-Identifier: Apache-2.0
"""Closed forms against the joint normal assembled from ancestors to descendants."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch

import picirc as pc
from cases import CASES, LG, LINEAR_GAUSSIAN_NETS, network, paper_ltm
from oracles import joint_normal, normal_log_prob, observed_normal
from picirc.errors import ArgumentError, IntractableError, StructureError
from picirc.exact import _conditionals, _Rows

TOLERANCE = 1e-10


def random_net(seed: int, latents: int, most_parents: int) -> pc.BayesNet:
    """A random linear-Gaussian network; with at most one parent each, a tree."""
    rng = np.random.default_rng(seed)

    def function(parents: list[str]) -> pc.LinearGaussian:
        weights = {p: rng.uniform(0.3, 1.1) * rng.choice([-1, 1]) / max(1, len(parents)) for p in parents}
        return LG(weights, rng.normal(), rng.uniform(0.4, 1.2))

    def some(names: list[str], least: int) -> list[str]:
        count = int(rng.integers(least, most_parents + 1))
        return [str(name) for name in rng.choice(names, min(count, len(names)), replace=False)] if names else []

    names = [f"z{i}" for i in range(latents)]
    functions = {name: function(some(names[:i], min(i, 1))) for i, name in enumerate(names)}
    observed = {f"x{i}": function(some(names, 1)) for i in range(latents)}
    return network({name: functions[name] for name in rng.permutation(names)}, observed)


def check_against_oracle(net: pc.BayesNet, exact: pc.ExactGaussian, seed: int) -> None:
    mean, cov = observed_normal(net)
    np.testing.assert_allclose(exact.mean, mean, atol=TOLERANCE)
    np.testing.assert_allclose(exact.covariance, cov, atol=TOLERANCE)
    rng = np.random.default_rng(seed)
    x = rng.multivariate_normal(mean, cov, 8)
    x[2:] = np.where(rng.random((6, len(mean))) < 0.5, math.nan, x[2:])
    np.testing.assert_allclose(exact.log_prob(torch.tensor(x)), normal_log_prob(mean, cov, x), atol=TOLERANCE)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("most_parents", [1, 3], ids=["tree", "DAG"])
@pytest.mark.parametrize("latents", [1, 4, 12, 30])
def test_random_networks_are_joint_normals(latents, most_parents, seed):
    net = random_net(seed, latents, most_parents)
    rng = np.random.default_rng(seed)
    for order in (None, net.children_first, tuple(map(str, rng.permutation(list(net.latents))))):
        check_against_oracle(net, pc.from_bayesnet(net, order).exact(), seed)


@pytest.mark.parametrize("name", LINEAR_GAUSSIAN_NETS)
def test_cases_are_joint_normals(name):
    check_against_oracle(CASES[name].net, CASES[name].circuit.exact(), 0)


def test_the_papers_formulas_in_their_corrected_form():
    """Appendix C.1; the printed Cov(X1, X2), Cov(X2, X4 | z1) and Var(X4) are misprints."""
    z, x = paper_ltm().latents, paper_ltm().variables
    mu1, s1, s2, s3, s4 = z["z1"].bias, *(z[f"z{i}"].std ** 2 for i in (1, 2, 3, 4))
    a2, a3, a4 = z["z2"].weights["z1"], z["z3"].weights["z1"], z["z4"].weights["z2"]
    b2, b3, b4 = (z[f"z{i}"].bias for i in (2, 3, 4))
    c1, c2, c3, c4 = (x[f"x{i}"].weights[f"z{i}"] for i in (1, 2, 3, 4))
    d1, d2, d3, d4 = (x[f"x{i}"].bias for i in (1, 2, 3, 4))
    t1, t2, t3, t4 = (x[f"x{i}"].std ** 2 for i in (1, 2, 3, 4))
    c3_, d3_, t3_ = c3 * a3, c3 * b3 + d3, c3**2 * s3 + t3
    c4_, d4_, t4_ = c4 * a4, c4 * b4 + d4, c4**2 * s4 + t4
    mean = [c1 * mu1 + d1, c2 * (a2 * mu1 + b2) + d2, c3_ * mu1 + d3_, c4_ * (a2 * mu1 + b2) + d4_]
    lower = {
        (0, 0): c1**2 * s1 + t1,
        (1, 0): c1 * c2 * a2 * s1,
        (1, 1): a2**2 * c2**2 * s1 + c2**2 * s2 + t2,
        (2, 0): c1 * c3_ * s1,
        (2, 1): a2 * c2 * c3_ * s1,
        (2, 2): c3_**2 * s1 + t3_,
        (3, 0): a2 * c1 * c4_ * s1,
        (3, 1): a2**2 * c2 * c4_ * s1 + c2 * c4_ * s2,
        (3, 2): a2 * c3_ * c4_ * s1,
        (3, 3): a2**2 * c4_**2 * s1 + c4_**2 * s2 + t4_,
    }
    exact = CASES["paper_ltm"].circuit.exact()
    np.testing.assert_allclose(exact.mean, mean, atol=1e-12)
    for (i, j), value in lower.items():
        assert float(exact.covariance[i, j]) == pytest.approx(value, abs=1e-12)
        assert float(exact.covariance[j, i]) == pytest.approx(value, abs=1e-12)


def test_a_latent_can_be_observed_almost_exactly():
    """Small noise next to large: the precisions differ by ten orders of magnitude."""
    net = network(
        {"z1": LG(std=3.0), "z2": LG({"z1": 2.0}, std=1e-3)}, {"x1": LG({"z2": 1.0}, std=1e-4), "x2": LG({"z1": 1.0})}
    )
    mean, cov = observed_normal(net)
    exact = pc.from_bayesnet(net).exact()
    np.testing.assert_allclose(exact.covariance, cov, rtol=1e-5)
    np.testing.assert_allclose(exact.mean, mean, atol=1e-5)


def test_large_offsets():
    """Constants of the quadratic forms cancel to all but a few digits; the result does not suffer."""
    net = network({"z": LG(bias=1e6, std=0.5)}, {"x": LG({"z": 1.0}, std=0.1), "y": LG({"z": -2.0}, bias=3e6)})
    mean, cov = observed_normal(net)
    exact = pc.from_bayesnet(net).exact()
    np.testing.assert_allclose(exact.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(exact.covariance, cov, rtol=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_conditioning_agrees_with_the_precision_matrix(seed):
    net = random_net(seed, 8, 2)
    exact = pc.from_bayesnet(net).exact()
    mean, cov = observed_normal(net)
    known = [1, 4, 6]
    rest = [i for i in range(8) if i not in known]
    values = np.random.default_rng(seed).normal(size=3)
    precision = np.linalg.inv(cov)
    expected_cov = np.linalg.inv(precision[np.ix_(rest, rest)])
    expected_mean = mean[rest] - expected_cov @ precision[np.ix_(rest, known)] @ (values - mean[known])
    names = exact.variables
    given = exact.condition({names[i]: float(v) for i, v in zip(known, values, strict=True)})
    assert given.variables == tuple(names[i] for i in rest)
    np.testing.assert_allclose(given.mean, expected_mean, atol=TOLERANCE)
    np.testing.assert_allclose(given.covariance, expected_cov, atol=TOLERANCE)


def test_conditional_times_marginal_is_joint():
    exact = CASES["paper_ltm"].circuit.exact()
    x = CASES["paper_ltm"].complete(1)
    marginal = x.clone()
    marginal[:, [0, 2]] = math.nan
    given = exact.condition({"x4": float(x[0, 3]), "x2": float(x[0, 1])})
    conditional = given.log_prob(x[:, [0, 2]])
    torch.testing.assert_close(exact.log_prob(marginal) + conditional, exact.log_prob(x), rtol=0, atol=1e-12)


def test_all_missing_is_log_one():
    exact = CASES["lg_dag"].circuit.exact()
    assert exact.log_prob(torch.full((2, 4), math.nan)).tolist() == [0.0, 0.0]


def test_samples_have_the_moments(generator):
    exact = CASES["lg_dag"].circuit.exact()
    n = 40_000
    x = exact.sample(n, generator)
    assert x.shape == (n, 4)
    error = (x.mean(0) - exact.mean).abs() / (exact.covariance.diagonal() / n).sqrt()
    assert float(error.max()) < 4
    spread = torch.cov(x.T) - exact.covariance
    scale = torch.outer(exact.covariance.diagonal(), exact.covariance.diagonal()).sqrt()
    assert float((spread.abs() / scale).max()) < 4 * math.sqrt(2 / n)


def test_samples_depend_on_the_generator_alone():
    exact = CASES["lg_tree"].circuit.exact()
    seeds = (torch.Generator().manual_seed(seed) for seed in (3, 3, 4))
    one, same, other = (exact.sample(5, seed) for seed in seeds)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_latents_are_out_of_the_result():
    """The observed block of the joint over everything is the result."""
    names, mean, cov = joint_normal(CASES["lg_tree"].net)
    keep = [names.index(v) for v in ("x1", "x2", "x3")]
    np.testing.assert_allclose(CASES["lg_tree"].circuit.exact().covariance, cov[np.ix_(keep, keep)], atol=1e-12)
    np.testing.assert_allclose(CASES["lg_tree"].circuit.exact().mean, mean[keep], atol=1e-12)


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("bernoulli", r"the unit p\(x3 \| z2\) carries Conditional\(Bernoulli"),
        ("bimodal", r"the unit ∫z1 carries Density"),
        ("bounded_input", r"the unit p\(x1 \| z1\) carries Density"),
        ("sums", r"the sum unit ⊕\d makes a mixture"),
        ("tucker", "the unit ∫z1,z2 carries a joint density"),
    ],
)
def test_what_has_no_closed_form_is_named(name, unit):
    with pytest.raises(IntractableError, match=f"no closed form.*{unit}"):
        CASES[name].circuit.exact()


def test_an_integral_that_does_not_exist_is_named():
    below = pc.Input("x", LG({"z": 1.0}))
    with pytest.raises(IntractableError, match="nothing keeps the integral over w finite"):
        pc.Circuit(pc.Integral("z", pc.Integral("w", below, []), LG())).exact()


def test_a_circuit_that_is_no_density_is_refused():
    twice = [pc.Factor(("z",), LG()), pc.Factor(("z",), LG(bias=1.0))]
    with pytest.raises(IntractableError, match=r"∫z has the mass 0\.\d+ instead of one"):
        pc.Circuit(pc.Integral("z", pc.Input("x", LG({"z": 1.0})), twice)).exact()


def test_a_circuit_must_be_decomposable():
    unit = pc.Product(pc.Input("x", LG()), pc.Input("x", LG()))
    with pytest.raises(StructureError, match="exact integration needs a decomposable circuit"):
        pc.Circuit(unit).exact()


@pytest.mark.parametrize("evidence", [{}, {"x1": 0.0, "x2": 0.0, "x3": 0.0}, {"x9": 1.0}])
def test_evidence_is_for_some_variables(evidence):
    with pytest.raises(ArgumentError, match="evidence: expected values for some, not all, of x1, x2, x3"):
        CASES["lg_tree"].circuit.exact().condition(evidence)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_evidence_is_finite(value):
    with pytest.raises(ArgumentError, match="evidence: expected finite values"):
        CASES["lg_tree"].circuit.exact().condition({"x1": value})


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(3), r"a tensor \(batch, 3\), got shape \(3,\); a single data point is x\[None\]"),
        (torch.zeros(2, 4), r"a tensor \(batch, 3\), got shape \(2, 4\)"),
        (torch.tensor([[math.inf, 0.0, 0.0]]), "finite values, or NaN where missing"),
    ],
)
def test_data_have_a_column_per_variable(x, message):
    with pytest.raises(ArgumentError, match=message):
        CASES["lg_tree"].circuit.exact().log_prob(x)


@pytest.mark.parametrize("n", [0, -1, 2.5, True])
def test_a_number_of_samples_is_positive(n):
    with pytest.raises(ArgumentError, match="n: expected a positive integer"):
        CASES["lg_tree"].circuit.exact().sample(n)


def chain_net(length: int, weight: float = 0.9, noises: tuple[float, ...] = (0.5,)) -> pc.BayesNet:
    """A chain of latents, each with one observed child; the noise goes through the given values in turn."""
    latents, observed = {}, {}
    for i in range(length):
        std = noises[i % len(noises)]
        latents[f"z{i}"] = LG({f"z{i - 1}": weight} if i else {}, 0.1, std)
        observed[f"x{i}"] = LG({f"z{i}": 1.0}, -0.2, 0.3 * noises[(i + 1) % len(noises)])
    return network(latents, observed)


def precise_log_prob(net: pc.BayesNet, x: list[float]) -> float:
    """The log-density of a chain by Kalman's filter with sixty digits."""
    with mpmath.workdps(60):
        mean, var, total = mpmath.mpf(0), mpmath.mpf(0), mpmath.mpf(0)
        for latent, observed, value in zip(net.latents.values(), net.variables.values(), x, strict=True):
            a = mpmath.mpf(next(iter(latent.weights.values()), 0.0))
            mean, var = a * mean + mpmath.mpf(latent.bias), a * a * var + mpmath.mpf(latent.std) ** 2
            spread = var + mpmath.mpf(observed.std) ** 2
            error = mpmath.mpf(value) - mean - mpmath.mpf(observed.bias)
            total -= (error**2 / spread + mpmath.log(2 * mpmath.pi * spread)) / 2
            mean, var = mean + var / spread * error, var - var**2 / spread
        return float(total)


@pytest.mark.parametrize("order", ["default", "children first", "parents first"])
@pytest.mark.parametrize(
    ("weight", "noises"), [(2.0, (0.5,)), (0.9, (1e-6, 1.0, 1e6)), (0.5, (1e-9, 1e3)), (-3.0, (1e-2, 1e-4))]
)
def test_extreme_variances_lose_no_more_digits_than_the_data_have(weight, noises, order):
    """A value divided by the smallest noise has only so many digits behind the point."""
    net = chain_net(32 if weight > 0 else 16, weight, noises)
    orders = {"default": None, "children first": net.children_first, "parents first": net.children_first[::-1]}
    exact = pc.from_bayesnet(net, orders[order]).exact()
    x = exact.sample(3, torch.Generator().manual_seed(0))
    smallest = min(function.std for function in (*net.latents.values(), *net.variables.values()))
    for row, found in zip(x, exact.log_prob(x).tolist(), strict=True):
        rounding = 2.0**-52 * float(row.abs().max()) / smallest
        assert rounding < 1e-2
        assert found == pytest.approx(precise_log_prob(net, row.tolist()), rel=1e-12, abs=8 * rounding)
    mean, cov = observed_normal(net)
    np.testing.assert_allclose(exact.covariance, cov, rtol=1e-12)
    np.testing.assert_allclose(exact.mean, mean, rtol=1e-12)


def test_a_chain_of_a_thousand_agrees_with_the_filter():
    exact = pc.from_bayesnet(chain_net(1000)).exact()
    x = exact.sample(2, torch.Generator().manual_seed(0))
    expected = [precise_log_prob(chain_net(1000), row.tolist()) for row in x]
    np.testing.assert_allclose(exact.log_prob(x), expected, rtol=1e-12)


def test_elimination_keeps_intermediate_functions_small():
    """The rows of a step do not grow with the length of the chain, so the work is linear in it."""
    sizes = []

    class Watched(_Rows):
        def _triangular(self, row):
            sizes.append(row.left.numel())
            return super()._triangular(row)

    nodes, latents = _conditionals(pc.from_bayesnet(chain_net(200)))
    rows = Watched([node.row({f"x{i}": torch.zeros(1) for i in range(200)}, 1) for node in nodes])
    for latent in latents:
        rows.integrate(latent)
    assert max(sizes) <= 8


def test_integrals_over_latents_of_one_name_are_different_latents():
    parts = [pc.Integral("z", pc.Input(x, LG({"z": 2.0}, std=0.5)), LG(std=std)) for x, std in (("x", 1.0), ("y", 3.0))]
    exact = pc.Circuit(pc.Product(*parts)).exact()
    np.testing.assert_allclose(exact.covariance, np.diag([4.25, 36.25]), rtol=1e-12)


def test_densities_may_be_given_backwards():
    """``∫ N(z; w, 1) dw = 1`` is no density of w, and the whole is a normal density all the same."""
    inner = pc.Integral("w", pc.Input("x", LG({"z": 1.0})), [pc.Factor(("z",), LG({"w": 1.0}))])
    exact = pc.Circuit(pc.Integral("z", inner, LG(bias=2.0))).exact()
    assert float(exact.mean) == pytest.approx(2.0)
    assert float(exact.covariance) == pytest.approx(2.0)


def test_gradients_reach_the_data():
    exact = CASES["lg_dag"].circuit.exact()
    x = exact.sample(2, torch.Generator().manual_seed(1)).requires_grad_()
    exact.log_prob(x).sum().backward()
    expected = -torch.linalg.solve(exact.covariance, (x.detach() - exact.mean).T).T
    torch.testing.assert_close(x.grad, expected, rtol=1e-8, atol=1e-8)
