# SPDX-License-Identifier: Apache-2.0
"""Evidence of probability zero: a likelihood of zero, an error where it would be conditioned on, no harm to others."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import picirc as pc
from cases import LG
from table_circuits import TABLES, Table, near, with_parameters

GRAPH = pc.RegionGraph(
    scopes=((0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)),
    partitions=((), (), (), ((0, 1),), ((1, 2),), ((3, 2), (0, 4))),
)
COPIES = {
    "chain": Table(pc.chain(3), pc.Categorical(3), 3),
    "mixture": Table(GRAPH, pc.Categorical(3), 3),
    "tucker": Table(pc.quad_tree(1, 3), pc.Categorical(3), 3, "tucker"),
}
each_copy = pytest.mark.parametrize("name", COPIES)

# Three variables that are all equal: the last two rows are impossible, the one before has nothing known.
ROWS = torch.tensor([[0, 0, 0], [2, 2, math.nan], [math.nan] * 3, [0, 1, math.nan], [1, 1, 2]], dtype=torch.float64)


def copies(name: str, dtype: torch.dtype = torch.float64, requires_grad: bool = False) -> pc.QPC:
    """All latents are copies of the root, and all variables of the latents; the root is uniform."""
    qpc = COPIES[name].qpc(dtype=dtype)
    weights = []
    for tensor in qpc.parameters.weights:
        _, _, o, z = tensor.shape
        if o == 1:
            weights.append(torch.full_like(tensor, 1 / z) if z == 3 else _diagonal(tensor))
        else:
            weights.append(torch.eye(3, dtype=dtype).expand_as(tensor) if z == 3 else _diagonal(tensor))
    inputs = [torch.eye(3, dtype=dtype).log().expand_as(tensor) for tensor in qpc.parameters.inputs]
    parts = {"weights": weights, "mixtures": qpc.parameters.mixtures, "inputs": inputs}
    parts = {k: [t.clone().requires_grad_(requires_grad) for t in v] for k, v in parts.items()}
    return with_parameters(qpc, **parts)


def _diagonal(tensor: Tensor) -> Tensor:
    """For a Tucker sum: both parts are copies of the region above."""
    table = torch.zeros_like(tensor).unflatten(-1, (3, 3))
    for state in range(3):
        if tensor.shape[2] == 1:
            table[..., state, state] = 1 / 3
        else:
            table[:, :, state, state, state] = 1.0
    return table.flatten(-2)


@each_copy
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_likelihood_is_zero(name, dtype):
    expected = torch.tensor([1 / 3, 1 / 3, 1.0, 0.0, 0.0], dtype=dtype).log()
    assert_close(copies(name, dtype).log_prob(ROWS), expected, **near(dtype))
    qpc = copies(name, dtype, requires_grad=True)
    assert_close(qpc.log_prob(ROWS).detach(), expected, **near(dtype))


@each_copy
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("factor", [1.0, 1e6])
def test_gradients_are_those_of_the_possible_rows(name, dtype, factor):
    """Whether the loss leaves the impossible rows out or not; their own gradient is zero."""
    qpc = copies(name, dtype, requires_grad=True)
    tensors = qpc.parameters.tensors
    expected = torch.autograd.grad(factor * qpc.log_prob(ROWS[:3]).sum(), tensors)
    values = qpc.log_prob(ROWS)
    chosen = torch.autograd.grad(factor * values[values > -math.inf].sum(), tensors, retain_graph=True)
    whole = torch.autograd.grad(factor * values.sum(), tensors)
    for a, b, c in zip(expected, chosen, whole, strict=True):
        assert a.isfinite().all()
        assert_close(b, a, **near(dtype))
        assert_close(c, a, **near(dtype))


@each_copy
def test_conditioning_on_it_is_an_error_that_names_the_rows(name):
    qpc = copies(name)
    pattern = r"{}: expected evidence that the circuit can produce, got probability zero in 2 row\(s\): 3, 4; check"
    queries = [
        lambda: qpc.sample(2, given=ROWS),
        lambda: qpc.marginals(ROWS),
        lambda: qpc.mean(ROWS),
        lambda: qpc.variance(ROWS),
        lambda: qpc.covariance(ROWS),
        lambda: qpc.mpe(ROWS),
        lambda: qpc.log_prob(torch.full_like(ROWS, math.nan), given=ROWS),
        lambda: qpc.cdf(ROWS, given=ROWS),
        lambda: qpc.log_interval(ROWS.nan_to_num(0), ROWS.nan_to_num(9), given=ROWS),
    ]
    for query in queries:
        with pytest.raises(pc.ImpossibleEvidenceError, match=pattern.format("given")):
            query()
    with pytest.raises(pc.ImpossibleEvidenceError, match=pattern.format("x")):
        qpc.latents(ROWS)


@each_copy
def test_rows_are_numbered_in_the_whole_batch(name, monkeypatch):
    qpc = copies(name)
    monkeypatch.setattr("picirc.engine.compiled.BUDGET", 2 * qpc.compiled.elements)
    for query in (lambda: qpc.sample(given=ROWS), lambda: qpc.mpe(ROWS), lambda: qpc.marginals(ROWS)):
        with pytest.raises(pc.ImpossibleEvidenceError, match=r"row\(s\): 3"):
            query()


@each_copy
def test_the_possible_rows_by_themselves(name):
    """Zeros in the tables do no harm to evidence that is possible."""
    qpc = copies(name)
    given = ROWS[:2]
    same = torch.tensor([[0.0] * 3, [2.0] * 3], dtype=torch.float64)
    assert_close(qpc.mpe(given), same, rtol=0, atol=0)
    assert_close(qpc.sample(3, given=given), same.expand(3, 2, 3), rtol=0, atol=0)
    assert_close(qpc.mean(given), same, **near())
    assert_close(qpc.covariance(), torch.full((3, 3), 2 / 3, dtype=torch.float64), **near())
    assert_close(qpc.cdf(torch.tensor([[1.0, 0.0, 2.0]])), torch.tensor([1 / 3], dtype=torch.float64), **near())
    assert_close(qpc.log_prob(same, given=given), torch.zeros(2, dtype=torch.float64), **near())
    assert qpc.log_prob(torch.tensor([[math.nan, math.nan, 1.0]]), given=given[1]).tolist() == [-math.inf]
    for posterior in qpc.latents(given).values():
        if float(posterior.presence.min()) > 0:
            expected = torch.eye(3, dtype=torch.float64)[[0, 2]]
            assert_close(posterior.probabilities, expected, **near())
    samples = qpc.sample(50, generator=torch.Generator().manual_seed(0))
    assert (samples == samples[:, :1]).all()


def test_many_impossible_rows_are_not_all_listed():
    qpc = copies("chain")
    rows = torch.tensor([[0.0, 1.0, math.nan]]).expand(9, 3)
    with pytest.raises(pc.ImpossibleEvidenceError, match=r"in 9 row\(s\): 0, 1, 2, 3, 4, …;"):
        qpc.mean(rows)


def test_it_is_a_value_error():
    assert issubclass(pc.ImpossibleEvidenceError, ValueError)


def test_outside_the_domain_of_a_density():
    flat = pc.Density(lambda x, z: torch.where(x.abs() <= 1, 0 * z - math.log(2), -math.inf), ["z"], domain=(-1.0, 1.0))
    net = pc.BayesNet()
    net.latent("z", LG())
    net.observed("x", flat)
    net.observed("y", LG({"z": 1.0}))
    qpc = pc.from_bayesnet(net).integrate(pc.gauss_legendre(12))
    x = torch.tensor([[0.5, 0.0], [1.5, 0.0]])
    values = qpc.log_prob(x)
    assert values.isfinite().tolist() == [True, False]
    with pytest.raises(pc.ImpossibleEvidenceError, match=r"row\(s\): 1;"):
        qpc.mean(x)


def test_a_conditional_of_zero_is_no_error():
    """The evidence is possible, the question is not."""
    qpc = copies("chain")
    given = torch.tensor([0.0, math.nan, math.nan])
    values = qpc.log_prob(torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), given=given)
    assert_close(values, torch.tensor([0.0, -math.inf], dtype=torch.float64), **near())


def test_tables_without_zeros_find_everything_possible():
    for table in TABLES.values():
        assert table.qpc().log_prob(table.joint().x).isfinite().all()
