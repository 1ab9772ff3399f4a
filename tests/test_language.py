# SPDX-License-Identifier: Apache-2.0
"""Hybrid networks, observed parents, joint normals and vectors, against enumeration and dense integration by scipy."""

from __future__ import annotations

import itertools
import math
import pickle

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import expit, logsumexp
from torch import Tensor, nn

import picirc as pc
from cases import LG, network
from picirc.errors import ArgumentError, StructureError

F64 = torch.float64
NAN = math.nan

# A discrete latent above a continuous one above another discrete one; every density once more, from scipy.
PRIOR, MEANS, STDS = np.array([0.2, 0.3, 0.5]), np.array([-1.2, 0.3, 1.5]), np.array([0.7, 1.0, 0.8])


def hybrid() -> pc.BayesNet:
    means, stds = torch.tensor(MEANS), torch.tensor(STDS)
    return network(
        {
            "k": pc.Discrete(3, PRIOR.tolist()),
            "z": pc.Conditional(pc.Gaussian(), lambda k: torch.stack([means[k.long()], stds[k.long()]], -1), ["k"]),
            "j": pc.Discrete(2, lambda z: torch.stack([torch.sigmoid(z), torch.sigmoid(-z)], -1), ["z"]),
        },
        {
            "x": LG({"z": 1.0, "k": 0.3}, std=0.8),
            "y": pc.Conditional(pc.Bernoulli(), lambda j, k: 1.5 * j - k, ["j", "k"]),
            "w": LG({"j": -1.1}, std=0.9),
        },
    )


def hybrid_log_prob(row: np.ndarray) -> float:
    """Enumerate both discrete latents, and integrate the continuous one on 4,001 points."""
    z = np.linspace(-9, 9, 4001)
    x, y, w = row
    total = []
    for k, j in itertools.product(range(3), range(2)):
        logs = math.log(PRIOR[k]) + stats.norm.logpdf(z, MEANS[k], STDS[k]) + np.log(expit(z if j == 0 else -z))
        logs = logs + (0.0 if np.isnan(x) else stats.norm.logpdf(x, z + 0.3 * k, 0.8))
        logs = logs + (0.0 if np.isnan(y) else stats.bernoulli.logpmf(y, expit(1.5 * j - k)))
        logs = logs + (0.0 if np.isnan(w) else stats.norm.logpdf(w, -1.1 * j, 0.9))
        total.append(logsumexp(logs) + math.log(z[1] - z[0]))
    return float(logsumexp(total))


ROWS = np.array([[0.3, 1.0, -0.5], [NAN, 0.0, 0.2], [2.0, NAN, NAN], [-3.0, 1.0, NAN], [NAN, NAN, NAN]])


@pytest.mark.parametrize("order", list(itertools.permutations(["k", "z", "j"])))
def test_sums_and_integrals_mix_in_any_order(order):
    qpc = pc.from_bayesnet(hybrid(), order).integrate(pc.trapezoidal(160))
    expected = [hybrid_log_prob(row) for row in ROWS]
    np.testing.assert_allclose(qpc.log_prob(torch.tensor(ROWS)), expected, rtol=0, atol=1e-8)


def test_all_ways_to_integrate_agree_on_a_hybrid_network():
    circuit = pc.from_bayesnet(hybrid(), hybrid().children_first)
    x, expected = torch.tensor(ROWS), np.array([hybrid_log_prob(row) for row in ROWS])
    np.testing.assert_allclose(circuit.log_prob(x, tol=1e-8), expected, atol=1e-7)
    np.testing.assert_allclose(circuit.integrate(pc.whole_line(200)).log_prob(x), expected, atol=1e-7)
    nested = circuit.integrate(pc.gauss_hermite(60), nested=True)
    np.testing.assert_allclose(nested.log_prob(x), expected, atol=1e-6)


def test_the_posterior_of_a_discrete_latent_is_that_of_bayes():
    posterior = pc.from_bayesnet(hybrid()).integrate(pc.trapezoidal(160)).latents(torch.tensor(ROWS[:1]))["k"]
    x, y, w = ROWS[0]
    z = np.linspace(-9, 9, 4001)
    joint = []
    for k in range(3):
        total = 0.0
        for j in range(2):
            both = (
                stats.norm.pdf(z, MEANS[k], STDS[k]) * expit(z if j == 0 else -z) * stats.norm.pdf(x, z + 0.3 * k, 0.8)
            )
            total += both.sum() * stats.bernoulli.pmf(y, expit(1.5 * j - k)) * stats.norm.pdf(w, -1.1 * j, 0.9)
        joint.append(PRIOR[k] * total)
    np.testing.assert_allclose(posterior.probabilities[0], np.array(joint) / sum(joint), atol=1e-8)
    assert posterior.discrete
    draws = posterior.sample(4000, torch.Generator().manual_seed(0))
    counts = [(draws == k).double().mean() for k in range(3)]
    np.testing.assert_allclose(counts, posterior.probabilities[0], atol=0.03)


def test_a_purely_discrete_network_is_a_sum():
    table = [[0.9, 0.1], [0.3, 0.7]]
    net = network(
        {"a": pc.Discrete(2, [0.6, 0.4]), "b": pc.Discrete(2, table, ["a"])},
        {"x": pc.Discrete(3, [[0.2, 0.3, 0.5], [0.7, 0.2, 0.1]], ["b"])},
    )
    qpc = pc.from_bayesnet(net).integrate({})  # no rule is needed
    expected = np.array([0.6, 0.4]) @ np.array(table) @ np.array([[0.2, 0.3, 0.5], [0.7, 0.2, 0.1]])
    found = qpc.log_prob(torch.tensor([[0.0], [1.0], [2.0]])).exp()
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert str(pc.from_bayesnet(net)).startswith("Σa  p(a)")
    assert float(qpc.error(torch.zeros(1, 1)).max()) < 1e-12


def test_probabilities_are_checked():
    with pytest.raises(ArgumentError, match=r"probabilities: expected a table of shape \(k_1, 3\)"):
        pc.Discrete(3, [0.2, 0.3, 0.5], ["k"])
    with pytest.raises(ArgumentError, match=r"which add up to 1, got a total of 0.9"):
        pc.Discrete(2, [0.5, 0.4]).parameters()
    with pytest.raises(ArgumentError, match="probabilities for each value of the parents, got none"):
        pc.Discrete(2, None, ["k"])
    wide = network({"a": pc.Discrete(3), "b": pc.Discrete(2, [[0.5, 0.5]] * 2, ["a"])}, {"x": LG({"b": 1.0})})
    with pytest.raises(ArgumentError, match=r"rows for all values of the parent 'a', .* got a table of 2 rows"):
        pc.from_bayesnet(wide).integrate({})


def test_an_infinite_sum_is_named_as_not_expressible():
    net = network({"n": pc.Conditional(pc.Poisson(), lambda: torch.tensor(1.0))}, {"x": LG({"n": 1.0})})
    with pytest.raises(ArgumentError, match=r"infinitely many values; an infinite sum is not expressible.*pc.Discrete"):
        pc.from_bayesnet(net).integrate(pc.midpoint(8))


# The numbers that a person means.


def test_a_link_returns_mean_and_standard_deviation():
    """Stochastic volatility, against dense integration."""
    net = network({"h": LG(std=1.2)}, {"x": pc.Conditional(pc.Gaussian(), _shock, ["h"])})
    x = np.array([0.1, -2.0, 5.0])
    h = np.linspace(-12, 12, 8001)
    dense = stats.norm.pdf(h, 0, 1.2) * stats.norm.pdf(x[:, None], 0, np.exp(h / 2))
    found = pc.from_bayesnet(net).integrate(pc.trapezoidal(200), sigmas=9).log_prob(torch.tensor(x)[:, None])
    np.testing.assert_allclose(found, np.log(dense.sum(1) * (h[1] - h[0])), atol=1e-9)


def _shock(h: Tensor) -> Tensor:
    return torch.stack([torch.zeros_like(h), (h / 2).exp()], -1)


def test_a_tiny_deviation_is_kept():
    link = pc.Conditional(pc.Gaussian(), lambda: torch.tensor([0.5, 1e-8], dtype=F64))
    qpc = pc.from_bayesnet(network({}, {"x": link})).integrate(pc.midpoint(2))
    x = torch.tensor([[0.5 + 2e-8]], dtype=F64)
    assert float(qpc.log_prob(x)) == pytest.approx(stats.norm.logpdf(2.0) + 8 * math.log(10), rel=1e-6)
    learned = pc.Gaussian(min_std=1e-12)
    raw = learned.unconstrain(torch.tensor([0.0, 1e-8], dtype=F64))
    assert float(learned.constrain(raw)[1]) == pytest.approx(1e-8, rel=1e-6)


def test_a_link_of_unconstrained_numbers_has_to_say_so():
    net = nn.Linear(1, 2, dtype=F64)
    nn.init.constant_(net.bias, -3.0)

    def link(z: Tensor) -> Tensor:
        return net(z.unsqueeze(-1))

    with pytest.raises(
        ArgumentError, match=r"link: expected a finite location and a positive scale .*unconstrained=True"
    ):
        pc.Conditional(pc.Gaussian(), link, ["z"]).parameters(torch.zeros(3, dtype=F64))
    params = pc.Conditional(pc.Gaussian(), link, ["z"], unconstrained=True).parameters(torch.zeros(3, dtype=F64))
    torch.testing.assert_close(params[:, 1], torch.nn.functional.softplus(net.bias[1]).expand(3) + 1e-3)


class Former:
    """What was pickled before links returned valid parameters: no field says which kind it is."""

    def __reduce__(self) -> tuple[object, ...]:
        state = {"family": pc.Gaussian(), "link": nn.Identity(), "parents": ("z",)}
        return (object.__new__, (pc.Conditional,), state)


def test_stored_conditionals_keep_their_meaning():
    old = pickle.loads(pickle.dumps(Former()))
    assert old.unconstrained
    assert old.parents == ("z",)
    new = pickle.loads(pickle.dumps(pc.Conditional(pc.Gaussian(), nn.Identity(), ["z"])))
    assert not new.unconstrained


# Observed parents.


def autoregression() -> pc.BayesNet:
    return network(
        {"z": LG()},
        {
            "y1": LG({"z": 1.0}, std=0.5),
            "y2": LG({"z": 0.5, "y1": 0.7}, 0.1, 0.4),
            "y3": LG({"y2": -0.6, "y1": 0.2}, std=0.9),
        },
    )


def autoregressive_normal() -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the three, from the linear equations."""
    noise = np.diag([1.0, 0.5, 0.4, 0.9])
    mix = np.zeros((4, 4))
    mix[1, 0], mix[2, 0], mix[2, 1], mix[3, 2], mix[3, 1] = 1.0, 0.5, 0.7, -0.6, 0.2
    whole = np.linalg.inv(np.eye(4) - mix)
    mean = whole @ np.array([0.0, 0.0, 0.1, 0.0])
    return mean[1:], (whole @ noise @ noise @ whole.T)[1:, 1:]


def test_an_autoregression_is_the_normal_that_it_should_be():
    circuit = pc.from_bayesnet(autoregression())
    mean, cov = autoregressive_normal()
    x = np.random.default_rng(0).normal(size=(6, 3))
    qpc = circuit.integrate(pc.trapezoidal(80))
    expected = stats.multivariate_normal(mean, cov).logpdf(x)
    np.testing.assert_allclose(qpc.log_prob(torch.tensor(x)), expected, atol=1e-9)
    x[:, 2] = NAN
    expected = stats.multivariate_normal(mean[:2], cov[:2, :2]).logpdf(x[:, :2])
    np.testing.assert_allclose(qpc.log_prob(torch.tensor(x)), expected, atol=1e-9)
    exact = circuit.exact()
    np.testing.assert_allclose(exact.mean, mean, atol=1e-10)
    np.testing.assert_allclose(exact.covariance, cov, atol=1e-10)


def test_samples_of_an_autoregression_have_its_moments():
    mean, cov = autoregressive_normal()
    qpc = pc.from_bayesnet(autoregression()).integrate(pc.trapezoidal(80))
    drawn = qpc.sample(40_000, generator=torch.Generator().manual_seed(0))
    np.testing.assert_allclose(drawn.mean(0), mean, atol=0.02)
    np.testing.assert_allclose(drawn.T.cov(), cov, atol=0.04)
    given = torch.tensor([0.7, NAN, NAN], dtype=F64)
    drawn = qpc.sample(40_000, given=given, generator=torch.Generator().manual_seed(0))
    assert bool((drawn[:, 0] == 0.7).all())
    gain = cov[1:, 0] / cov[0, 0]
    np.testing.assert_allclose(drawn[:, 1:].mean(0), mean[1:] + gain * (0.7 - mean[0]), atol=0.03)


def test_moments_given_the_parents():
    mean, cov = autoregressive_normal()
    qpc = pc.from_bayesnet(autoregression()).integrate(pc.trapezoidal(80))
    given = torch.tensor([0.4, -0.3, NAN], dtype=F64)
    gain = np.linalg.solve(cov[:2, :2], cov[:2, 2])
    assert float(qpc.mean(given)[2]) == pytest.approx(mean[2] + gain @ (given[:2].numpy() - mean[:2]), abs=1e-8)
    assert float(qpc.variance(given)[2]) == pytest.approx(cov[2, 2] - gain @ cov[:2, 2], abs=1e-8)
    assert float(qpc.mpe(given)[2]) == pytest.approx(float(qpc.mean(given)[2]), abs=1e-6)


def test_what_is_no_longer_decomposable_is_said():
    circuit = pc.from_bayesnet(autoregression())
    assert not circuit.properties.decomposable
    assert "share {y1" in circuit.properties.violations["decomposable"]
    assert circuit.properties.conditions == {"y2": ("y1",), "y3": ("y2", "y1")}
    qpc = circuit.integrate(pc.trapezoidal(32))
    x = torch.tensor([[0.1, NAN, 0.3]], dtype=F64)
    for query in (qpc.log_prob, qpc.latents, qpc.sample):
        with pytest.raises(
            ArgumentError, match="a value of 'y2' in every row in which 'y3' is observed, got NaN in row 0"
        ):
            query(x) if query != qpc.sample else qpc.sample(1, given=x)
    for query in (qpc.marginals, qpc.mpe):
        with pytest.raises(ArgumentError, match="a value of 'y2' in every row, got NaN"):
            query()
    for query in (qpc.covariance, lambda: qpc.cdf(x), lambda: qpc.prune(0.1), lambda: pc.log_inner_product(qpc, qpc)):
        with pytest.raises(StructureError, match=r"needs a .*decomposable circuit, but two inputs of the product"):
            query()


def test_the_gradient_reaches_observed_parents():
    qpc = pc.from_bayesnet(autoregression()).integrate(pc.trapezoidal(48))
    x = torch.tensor([[0.2, -0.4, 0.3], [0.1, 0.5, NAN]], dtype=F64)
    probe = x.clone().requires_grad_()
    (found,) = torch.autograd.grad(qpc.log_prob(probe).sum(), probe)
    for row, column in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1)):
        step = torch.zeros_like(x)
        step[row, column] = 1e-5
        slope = (qpc.log_prob(x + step) - qpc.log_prob(x - step)).sum() / 2e-5
        assert float(found[row, column]) == pytest.approx(float(slope), abs=1e-7)


class Slope(nn.Module):
    """A standard normal around a learned multiple of the variable before, and of the latent."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([0.3, 0.5], dtype=F64))

    def forward(self, before: Tensor, z: Tensor) -> Tensor:
        mean = self.weight[0] * before + self.weight[1] * z
        return torch.stack([mean, torch.ones_like(mean)], -1)


def test_a_net_of_observed_parents_learns():
    link = Slope()
    net = network({"z": LG()}, {"y1": LG(), "y2": pc.Conditional(pc.Gaussian(), link, ["y1", "z"])})
    circuit = pc.from_bayesnet(net)
    x = torch.tensor([[0.5, 1.0], [-1.0, 0.4]], dtype=F64)
    circuit.integrate(pc.trapezoidal(40)).log_prob(x).sum().backward()
    found = link.weight.grad
    assert found is not None
    for i in range(2):
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                link.weight[i] += sign * 1e-5
                values.append(float(circuit.integrate(pc.trapezoidal(40)).log_prob(x).sum()))
                link.weight[i] -= sign * 1e-5
        assert float(found[i]) == pytest.approx((values[0] - values[1]) / 2e-5, abs=1e-6)


def test_discrete_variables_condition_each_other():
    table = torch.tensor([[0.8, 0.2], [0.3, 0.7]], dtype=F64)
    net = network({}, {"a": pc.Discrete(2, [0.4, 0.6]), "b": pc.Discrete(2, table, ["a"])})
    qpc = pc.from_bayesnet(net).integrate({})
    x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], dtype=F64)
    np.testing.assert_allclose(qpc.log_prob(x).exp(), [0.32, 0.08, 0.18, 0.42], atol=1e-12)
    given = torch.tensor([1.0, NAN], dtype=F64)
    np.testing.assert_allclose(qpc.marginals(given).probabilities("b"), [0.3, 0.7], atol=1e-12)


# Several observed variables with one normal density.

COVARIANCE = np.array([[1.0, 0.6, -0.2], [0.6, 2.0, 0.3], [-0.2, 0.3, 0.5]])


def joint_net(order_of_latents: bool = False) -> pc.BayesNet:
    def mean(z: Tensor) -> Tensor:
        return torch.stack([z, -0.5 * z, 0.2 + 0 * z], -1)

    net = network({"z": LG(), "w": LG({"z": 0.5}, std=0.7)}, {})
    net.observed(["a", "b", "c"], pc.MultivariateNormal(mean, COVARIANCE.tolist(), ["z"]))
    net.observed("d", LG({"z": 1.0, "w": -1.0}, std=0.6))
    return net


def joint_truth() -> tuple[np.ndarray, np.ndarray]:
    loading = np.array([[1.0, 0.0], [-0.5, 0.0], [0.0, 0.0], [1.0, -1.0]])
    latents = np.array([[1.0, 0.5], [0.5, 0.25 + 0.49]])
    noise = np.zeros((4, 4))
    noise[:3, :3], noise[3, 3] = COVARIANCE, 0.36
    return np.array([0.0, 0.0, 0.2, 0.0]), loading @ latents @ loading.T + noise


@pytest.mark.parametrize("order", [None, ("z", "w"), ("w", "z")])
def test_a_joint_normal_keeps_every_query(order):
    mean, cov = joint_truth()
    circuit = pc.from_bayesnet(joint_net(), order)
    assert circuit.properties.decomposable
    qpc = circuit.integrate(pc.trapezoidal(64), sigmas=8)
    x = np.random.default_rng(1).normal(size=(5, 4))
    x[1, 0] = x[2, [1, 3]] = x[3, :3] = NAN
    for row, found in zip(x, qpc.log_prob(torch.tensor(x)), strict=True):
        seen = ~np.isnan(row)
        expected = stats.multivariate_normal(mean[seen], cov[np.ix_(seen, seen)]).logpdf(row[seen])
        assert float(found) == pytest.approx(expected, abs=1e-8)
    np.testing.assert_allclose(qpc.covariance(), cov, atol=1e-8)
    given = torch.tensor([0.5, NAN, NAN, NAN], dtype=F64)
    np.testing.assert_allclose(qpc.mean(given)[1:], mean[1:] + cov[1:, 0] / cov[0, 0] * 0.5, atol=1e-8)
    drawn = qpc.sample(30_000, generator=torch.Generator().manual_seed(0))
    np.testing.assert_allclose(drawn.T.cov(), cov, atol=0.06)


def test_the_covariance_may_depend_on_the_latent():
    def covariance(k: Tensor) -> Tensor:
        scale = 1 + k
        off = 0.8 - 1.2 * k
        rows = [torch.stack([scale, off], -1), torch.stack([off, scale], -1)]
        return torch.stack(rows, -2)

    net = network({"k": pc.Discrete(2, [0.3, 0.7])}, {})
    net.observed(["a", "b"], pc.MultivariateNormal(None, covariance, ["k"], dims=2))
    x = np.array([[0.5, 0.4], [1.0, -1.5]])
    parts = [stats.multivariate_normal([0, 0], [[1 + k, 0.8 - 1.2 * k], [0.8 - 1.2 * k, 1 + k]]).pdf(x) for k in (0, 1)]
    found = pc.from_bayesnet(net).integrate({}).log_prob(torch.tensor(x))
    np.testing.assert_allclose(found, np.log(0.3 * parts[0] + 0.7 * parts[1]), atol=1e-10)


def test_joint_densities_are_checked():
    with pytest.raises(ArgumentError, match="covariance: expected symmetric positive definite"):
        pc.MultivariateNormal([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]])
    with pytest.raises(ArgumentError, match="variables: expected 2 names for MultivariateNormal"):
        pc.BayesNet().observed(["a"], pc.MultivariateNormal(dims=2))
    with pytest.raises(ArgumentError, match=r"one name for LinearGaussian.*a joint density of several"):
        pc.BayesNet().observed(["a", "b"], LG())
    net = network({}, {"y": LG()})
    net.observed(["a", "b"], pc.MultivariateNormal(lambda y: torch.stack([y, y], -1), None, ["y"], dims=2))
    with pytest.raises(ArgumentError, match="given latents only, got observed parents"):
        pc.from_bayesnet(net).integrate({})


# Latents that are vectors, and latents on the whole line.


def test_a_vector_latent_is_integrated_over_its_space():
    """A factor model with two factors is a normal with covariance L C Lᵀ + D."""
    loading, spread = np.array([[1.0, 0.3], [0.5, -0.8], [0.0, 1.1]]), np.array([[1.0, 0.4], [0.4, 0.8]])
    net = network({"z": pc.MultivariateNormal([0.5, -0.2], spread.tolist())}, {})
    for i, row in enumerate(torch.tensor(loading)):

        def link(z: Tensor, row: Tensor = row) -> Tensor:
            mean = z @ row
            return torch.stack([mean, torch.full_like(mean, 0.9)], -1)

        net.observed(f"x{i}", pc.Conditional(pc.Gaussian(), link, ["z"]))
    circuit = pc.from_bayesnet(net)
    mean, cov = loading @ [0.5, -0.2], loading @ spread @ loading.T + 0.81 * np.eye(3)
    x = np.random.default_rng(0).normal(size=(4, 3))
    expected = stats.multivariate_normal(mean, cov).logpdf(x)
    fine = circuit.integrate(pc.tensor_grid(pc.gauss_hermite(24), dims=2))
    np.testing.assert_allclose(fine.log_prob(torch.tensor(x)), expected, atol=1e-5)
    rough = circuit.integrate(pc.sobol(4096, dims=2))
    np.testing.assert_allclose(rough.log_prob(torch.tensor(x)), expected, atol=0.02)
    gain = spread @ loading.T @ np.linalg.inv(cov)
    posterior = fine.latents(torch.tensor(x))["z"]
    np.testing.assert_allclose(posterior.mean, [0.5, -0.2] + (x - mean) @ gain.T, atol=1e-4)
    assert posterior.sample(7).shape == (7, 4, 2)
    with pytest.raises(ArgumentError, match="the latent 'z', a vector of 2 dimensions, got Rule"):
        circuit.integrate(pc.trapezoidal(8))
    with pytest.raises(ArgumentError, match="latents that are numbers, for panels, got the vector 'z'"):
        circuit.log_prob(torch.tensor(x))


def test_vectors_depend_on_discrete_and_other_latents():
    """A mixture of two factor models; each component is a normal."""
    shift = torch.tensor([[-1.0, 0.0], [1.5, 0.5]], dtype=F64)

    def link(z: Tensor) -> Tensor:
        mean = z[..., 0] - z[..., 1]
        return torch.stack([mean, torch.full_like(mean, 0.8)], -1)

    net = network(
        {"k": pc.Discrete(2, [0.4, 0.6]), "z": pc.MultivariateNormal(lambda k: shift[k.long()], None, ["k"], dims=2)},
        {"x": pc.Conditional(pc.Gaussian(), link, ["z"]), "y": LG({"k": 1.0}, std=0.5)},
    )
    x = np.array([[0.3, 0.2], [2.0, NAN]])
    parts = [np.log(p) + stats.norm.logpdf(x[:, 0], m, math.sqrt(2.64)) for p, m in ((0.4, -1.0), (0.6, 1.0))]
    parts = [part + np.nan_to_num(stats.norm.logpdf(x[:, 1], k, 0.5)) for k, part in enumerate(parts)]
    rules = {"z": pc.tensor_grid(pc.gauss_hermite(28), dims=2)}
    for order in (("k", "z"), ("z", "k")):
        found = pc.from_bayesnet(net, order).integrate(rules).log_prob(torch.tensor(x))
        np.testing.assert_allclose(found, logsumexp(parts, axis=0), atol=1e-4)


def test_a_linear_gaussian_of_a_vector_is_refused():
    net = network({"z": pc.MultivariateNormal(dims=2)}, {"x": LG({"z": 1.0})})
    with pytest.raises(ArgumentError, match=r"parents of LinearGaussian.* that are numbers, got the vector 'z'"):
        pc.from_bayesnet(net).integrate(pc.sobol(16, dims=2))


@pytest.mark.parametrize("df", [1.0, 3.0])
def test_heavy_tails_need_the_whole_line(df):
    """A Student-t latent; one and three degrees of freedom have no variance or barely one."""
    prior = pc.Conditional(pc.StudentT(), lambda: torch.tensor([0.5, 1.0, df], dtype=F64))
    circuit = pc.from_bayesnet(network({"z": prior}, {"x": LG({"z": 1.0}, std=0.7)}))
    x = np.array([0.2, 8.0, -12.0])
    z = np.sinh(np.linspace(-16, 16, 400_001))
    slope = np.cosh(np.linspace(-16, 16, 400_001)) * (32 / 400_000)
    dense = [(stats.t.pdf(z - 0.5, df) * stats.norm.pdf(v, z, 0.7) * slope).sum() for v in x]
    found = circuit.integrate(pc.whole_line(1024)).log_prob(torch.tensor(x)[:, None])
    np.testing.assert_allclose(found, np.log(dense), atol=1e-6)


def test_a_link_may_return_a_tuple_of_tensors_and_numbers():
    z = torch.tensor([0.5, 2.0], dtype=torch.float64)
    tuple_of = pc.Conditional(pc.Gaussian(), lambda z: (z, 1.5), ["z"])
    stacked = pc.Conditional(pc.Gaussian(), lambda z: torch.stack([z, torch.full_like(z, 1.5)], -1), ["z"])
    assert torch.equal(tuple_of.parameters(z), stacked.parameters(z))
    with pytest.raises(pc.ArgumentError, match="2 parameters of Gaussian"):
        pc.Conditional(pc.Gaussian(), lambda z: (z, 1.5, 1.0), ["z"]).parameters(z)
