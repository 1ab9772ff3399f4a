# SPDX-License-Identifier: Apache-2.0
"""A QPC as one of torch's distributions."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch.distributions import Distribution
from torch.testing import assert_close

import picirc as pc
from cases import CASES
from table_circuits import TABLES, each_table, near

QPC = TABLES["tree"].qpc()


def test_it_is_a_distribution():
    assert isinstance(QPC, Distribution)
    assert QPC.event_shape == torch.Size([5])
    assert QPC.batch_shape == torch.Size([])
    assert not QPC.has_rsample
    assert not QPC.has_enumerate_support
    assert QPC.arg_constraints == {}


def test_the_support():
    x = QPC.sample((2, 3))
    assert torch.equal(QPC.support.check(x), torch.ones(2, 3, dtype=torch.bool))
    x[0, 1, 0], x[1, 2, 1] = math.nan, 0.5
    expected = torch.ones(2, 3, dtype=torch.bool)
    expected[1, 2] = False  # NaN is missing, a fraction is not a category
    assert torch.equal(QPC.support.check(x), expected)
    assert QPC.support.is_discrete
    assert QPC.support.event_dim == 1


def test_samples_and_likelihoods_fit_together():
    x = QPC.sample(torch.Size([7]))
    assert QPC.log_prob(x).shape == (7,)
    assert QPC.sample().shape == QPC.event_shape


@each_table
def test_moments(table):
    qpc, joint = table.qpc(), table.joint()
    for found, expected in (
        (qpc.mean, joint.mean),
        (qpc.variance, joint.covariance.diagonal()),
        (qpc.stddev, joint.covariance.diagonal().sqrt()),
    ):
        assert found.shape == qpc.event_shape
        assert_close(found + 0, expected, **near())


def test_a_moment_is_a_tensor_that_can_be_called():
    mean = QPC.mean
    assert isinstance(mean, torch.Tensor)
    assert repr(mean).startswith("tensor([")
    assert type(mean * 2) is torch.Tensor
    assert mean.tolist() == QPC.mean().tolist()
    assert mean.sum().item() == pytest.approx(sum(mean.tolist()))
    evidence = torch.tensor([1.0, math.nan, math.nan, math.nan, math.nan])
    assert mean(evidence)[0] == 1.0
    assert_close(QPC.mean(given=evidence), mean(evidence), rtol=0, atol=0)


@pytest.mark.parametrize("query", ["entropy", "perplexity"])
def test_there_is_no_entropy(query):
    with pytest.raises(NotImplementedError, match=r"entropy of a circuit has no closed form; estimate it by"):
        getattr(QPC, query)()


def test_it_cannot_be_expanded():
    with pytest.raises(NotImplementedError, match=r"a circuit is one distribution without a batch shape; use"):
        QPC.expand((3,))


def test_there_is_no_inverse():
    with pytest.raises(NotImplementedError, match=r"several variables has no inverse; draw with qpc\.sample\(n\)"):
        QPC.icdf(torch.tensor(0.5))


@pytest.mark.parametrize("query", [lambda q: q.rsample(), lambda q: q.enumerate_support()])
def test_what_torch_has_and_circuits_have_not(query):
    with pytest.raises(NotImplementedError):
        query(QPC)


def test_a_monte_carlo_estimate_of_the_entropy():
    """The remedy that the error names."""
    p = TABLES["tree"].joint().p
    entropy = -(p * p.log()).sum()
    estimate = -QPC.log_prob(QPC.sample(20000, generator=torch.Generator().manual_seed(0))).mean()
    assert float(estimate) == pytest.approx(float(entropy), abs=0.03)


def test_the_representation():
    assert repr(QPC) == "QPC(5 variables, 68 weights, float64)"
    assert QPC.size == sum(t.numel() for t in (*QPC.parameters.weights, *QPC.parameters.mixtures))
    large = pc.HCLT(pc.chain(40), pc.Bernoulli(), states=8)()
    assert repr(large) == "QPC(40 variables, 2,504 weights, float32)"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_and_device_follow_the_module(dtype):
    model = TABLES["quad_graph"].model().to(dtype)
    qpc = model()
    assert qpc.dtype == dtype
    assert qpc.device == torch.device("cpu")
    x = TABLES["quad_graph"].joint().x[:2]  # double, whatever the circuit is
    results = [qpc.log_prob(x), qpc.sample(2), qpc.mean(), qpc.covariance(), qpc.mpe(), qpc.cdf(x)]
    results += [qpc.marginals().log_prob(x), qpc.marginals().probabilities("x0")]
    results += [p.probabilities for p in qpc.latents(x).values()]
    assert {t.dtype for t in results} == {dtype}
    assert model.to("meta")().device == torch.device("meta")


def test_quadrature_in_single_precision():
    qpc = CASES["lg_tree"].circuit.integrate(pc.gauss_legendre(16), dtype=torch.float32)
    assert qpc.dtype == qpc.log_prob(torch.zeros(1, 3)).dtype == qpc.mean().dtype == torch.float32


def test_queries_change_nothing():
    """A circuit gives the same answer whatever it was asked before."""
    table = TABLES["hand_made"]
    qpc, x = table.qpc(), table.joint().x
    before = [t.clone() for t in qpc.parameters.tensors]
    expected = qpc.log_prob(x)
    data, evidence = x.clone(), torch.full((2, 5), math.nan, dtype=torch.float64)
    evidence[0, 1] = 1.0
    known = evidence.clone()
    qpc.sample(5, given=evidence)
    qpc.marginals(evidence).log_prob(x[0])
    qpc.covariance(evidence)
    qpc.mpe(evidence)
    qpc.latents(evidence)
    qpc.cdf(x, given=evidence[0])
    qpc.prune(0.2)
    assert_close(qpc.log_prob(x), expected, rtol=0, atol=0)
    assert torch.equal(x, data)
    assert_close(evidence, known, rtol=0, atol=0, equal_nan=True)
    for a, b in zip(qpc.parameters.tensors, before, strict=True):
        assert torch.equal(a, b)


def test_a_circuit_keeps_the_numbers_that_it_was_made_with():
    model = TABLES["tree"].model()
    qpc, x = model(), TABLES["tree"].joint().x[:5]
    before = qpc.log_prob(x).detach()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
    assert_close(qpc.log_prob(x).detach(), before, rtol=0, atol=0)
    assert not torch.allclose(model().log_prob(x).detach(), before)


def test_a_model_can_be_copied():
    model = TABLES["quad_graph_mixed"].model()
    x = TABLES["quad_graph_mixed"].joint().x
    assert_close(copy.deepcopy(model)().log_prob(x), model().log_prob(x), rtol=0, atol=0)


def test_a_model_with_the_same_state_is_the_same():
    table = TABLES["hand_made_tucker"]
    first, second = table.model(seed=0), table.model(seed=1)
    second.load_state_dict(first.state_dict())
    assert_close(second().log_prob(table.joint().x), first().log_prob(table.joint().x), rtol=0, atol=0)


def test_initial_parameters_come_from_the_generator():
    def weights(seed: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        return pc.HCLT(pc.chain(3), pc.Categorical(4), states=3, generator=generator).inputs[0]

    before = torch.get_rng_state()
    assert torch.equal(weights(0), weights(0))
    assert not torch.equal(weights(0), weights(1))
    assert torch.equal(torch.get_rng_state(), before)
