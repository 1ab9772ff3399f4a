# SPDX-License-Identifier: Apache-2.0
"""Gradients of the log-likelihood against finite differences, and the buffers behind them."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.testing import assert_close

import picirc as pc
from picirc.inputs import Bernoulli, Binomial, Categorical, Family, Gaussian, Laplace, Poisson, StudentT
from table_circuits import (
    COLUMNS,
    TABLES,
    Table,
    columns_data,
    each_of_columns,
    each_table,
    holes,
    near,
    with_parameters,
)

FAMILIES = [Bernoulli(), Binomial(3), Categorical(3), Gaussian(), Laplace(), StudentT(), Poisson()]


def check(model: pc.HCLT, x: Tensor) -> None:
    """Finite differences with respect to every parameter of the model."""
    names, tensors = zip(*model.named_parameters(), strict=True)

    def log_prob(*values: Tensor) -> Tensor:
        qpc = torch.func.functional_call(model, dict(zip(names, values, strict=True)), ())
        return qpc.log_prob(x)

    assert gradcheck(log_prob, tensors, fast_mode=True)


def gradients(qpc: pc.QPC, loss: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, qpc.parameters.tensors)


def free(qpc: pc.QPC) -> pc.QPC:
    """The same circuit with parameters that want a gradient."""
    p = qpc.parameters
    parts = {"weights": p.weights, "mixtures": p.mixtures, "inputs": p.inputs}
    return with_parameters(qpc, **{k: [t.detach().clone().requires_grad_() for t in v] for k, v in parts.items()})


def some(table: Table) -> Tensor:
    """Complete rows, rows with values missing, and one of which nothing is known."""
    x = table.joint().x
    x = x[:: max(1, len(x) // 5)]
    return torch.cat([x, holes(x)])


@each_table
def test_finite_differences(table):
    check(table.model(), some(table))


@each_of_columns
def test_finite_differences_with_columns_of_all_families(table):
    x = columns_data(4)
    check(table.model(), torch.cat([x, holes(x)]))


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_finite_differences_with_one_family(family: Family):
    table = Table(pc.chain(3), family, 2)
    x = torch.tensor([[0.0, 1.0, 1.0], [1.0, math.nan, 0.0], [math.nan, math.nan, 1.0]], dtype=torch.float64)
    check(table.model(), x)


def test_finite_differences_of_a_conditional():
    table = TABLES["quad_graph"]
    model, x = table.model(), table.joint().x[::9]
    names, tensors = zip(*model.named_parameters(), strict=True)
    given = holes(x, seed=4)

    def log_prob(*values: Tensor) -> Tensor:
        qpc = torch.func.functional_call(model, dict(zip(names, values, strict=True)), ())
        return qpc.log_prob(x, given=given)

    assert gradcheck(log_prob, tensors, fast_mode=True)


def test_finite_differences_of_shared_inputs():
    """One table for all variables: its gradient is the sum over them."""
    table = TABLES["tree"]
    qpc, x = table.qpc(), some(table)
    shared = qpc.parameters.inputs[0][:1].clone().requires_grad_()
    assert gradcheck(lambda t: with_parameters(qpc, inputs=[t]).log_prob(x), (shared,), fast_mode=True)


@each_table
def test_without_a_gradient_the_values_are_the_same(table):
    model, x = table.model(), some(table)
    with_gradient = model().log_prob(x)
    assert with_gradient.requires_grad
    with torch.no_grad():
        without = model().log_prob(x)
    assert not without.requires_grad
    assert_close(with_gradient.detach(), without, rtol=0, atol=1e-13)


def test_other_queries_have_no_gradient():
    table = TABLES["tree"]
    qpc, x = table.model()(), table.joint().x[:3]
    marginals = qpc.marginals(x[0].masked_fill(x[0] == 0, math.nan))
    for value in (qpc.mean(), qpc.covariance(), qpc.cdf(x), qpc.sample(2), qpc.mpe(), marginals.log_prob(x[0])):
        assert not value.requires_grad
    assert not pc.log_inner_product(qpc, qpc).requires_grad
    assert not qpc.latents(x)["z0"].probabilities.requires_grad


@pytest.mark.parametrize("name", ["tree", "quad_graph", "hand_made_tucker", "chain_mixed"])
def test_backward_twice(name):
    table = TABLES[name]
    qpc = free(table.qpc())
    loss = qpc.log_prob(some(table)).sum()
    first = torch.autograd.grad(loss, qpc.parameters.tensors, retain_graph=True)
    second = torch.autograd.grad(loss, qpc.parameters.tensors)
    for a, b in zip(first, second, strict=True):
        assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["tree", "quad_graph", "hand_made_tucker", "chain_mixed"])
def test_two_forwards_before_one_backward(name):
    """Also with evaluations, samples and other queries between forward and backward."""
    table = TABLES[name]
    qpc, x = free(table.qpc()), some(table)
    half = len(x) // 2
    expected = gradients(qpc, (qpc.log_prob(x) * torch.arange(len(x))).sum())
    first = qpc.log_prob(x[:half])
    with torch.no_grad():
        qpc.log_prob(x)
    second = qpc.log_prob(x[half:])
    qpc.sample(7)
    qpc.marginals(x[:5]).mean  # noqa: B018
    qpc.mpe(x[:5])
    forgotten = qpc.log_prob(x)
    del forgotten
    found = gradients(qpc, (torch.cat([first, second]) * torch.arange(len(x))).sum())
    for a, b in zip(found, expected, strict=True):
        assert_close(a, b, **near())


@pytest.mark.parametrize("name", ["tree", "quad_graph", "hand_made_tucker", "chain_mixed"])
@pytest.mark.parametrize("rows", [1, 3])
def test_in_parts(name, rows, monkeypatch):
    """A batch that does not fit is split: the same values and the same gradients."""
    table = TABLES[name]
    qpc, x = free(table.qpc()), some(table)
    values = qpc.log_prob(x)
    expected = gradients(qpc, values.square().sum())
    monkeypatch.setattr("picirc.engine.compiled.BUDGET", rows * qpc.compiled.elements)
    assert len(list(qpc.compiled.parts(qpc._points(x)))) == -(-len(x) // rows)
    found = qpc.log_prob(x)
    assert_close(found, values, rtol=0, atol=1e-13)
    loss = found.square().sum()
    first = torch.autograd.grad(loss, qpc.parameters.tensors, retain_graph=True)
    for a, b, c in zip(first, gradients(qpc, loss), expected, strict=True):
        assert_close(a, c, **near())
        assert_close(b, c, **near())


@each_table
def test_single_precision_is_close(table):
    x = some(table)
    one, two = free(table.qpc(dtype=torch.float32)), free(table.qpc())
    found, expected = (gradients(qpc, qpc.log_prob(x).sum()) for qpc in (one, two))
    for a, b in zip(found, expected, strict=True):
        assert_close(a.double(), b, rtol=1e-3, atol=1e-3 * float(b.abs().max().clamp(min=1)))


def test_changed_parameters_are_noticed():
    """A backward pass with other numbers than the forward pass had would be silently wrong."""
    qpc = free(TABLES["tree"].qpc())
    loss = qpc.log_prob(TABLES["tree"].joint().x[:3]).sum()
    with torch.no_grad():
        qpc.parameters.weights[0].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_columns_in_parts_of_the_input_layer(monkeypatch):
    """Input values are computed a few variables at a time."""
    from picirc.engine import inputs as evaluation

    table = Table(pc.random_tree(7, 0), Gaussian(), 3)
    qpc, x = free(table.qpc()), torch.randn(4, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = gradients(qpc, qpc.log_prob(x).sum())
    monkeypatch.setattr(evaluation, "_CHUNK_ELEMENTS", 20)
    for a, b in zip(gradients(qpc, qpc.log_prob(x).sum()), expected, strict=True):
        assert_close(a, b, **near())


def test_all_of_a_mixed_model_learns():
    model = COLUMNS["graph_of_columns"].model()
    model().log_prob(holes(columns_data(10))).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert float(parameter.grad.abs().max()) > 0, name
