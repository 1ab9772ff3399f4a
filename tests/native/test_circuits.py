# SPDX-License-Identifier: Apache-2.0
"""Whole circuits with the compiled loops and without, in single precision."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import picirc as pc
from cases import CASES, Case
from picirc.learning.em import em_step
from picirc.native import Kernels, kernels_for
from table_circuits import Table, holes, near, with_parameters

CIRCUITS = {
    "tree": Table(pc.random_tree(12, 0), pc.Categorical(3), 16),
    "graph": Table(pc.quad_graph(4, 4), pc.Categorical(3), 7),
    "tucker": Table(pc.quad_tree(3, 3), pc.Categorical(3), 4, "tucker"),
    "tucker_graph": Table(pc.quad_graph(2, 3), pc.Categorical(3), 3, "tucker"),
    "many_parts": Table(pc.random_regions(8, 0, repetitions=6), pc.Categorical(3), 4),
    "chain": Table(pc.chain(300), pc.Categorical(3), 4),
    "columns": Table(pc.random_tree(6, 1), (pc.Gaussian(), pc.Poisson(), pc.Bernoulli()) * 2, 5),
}
LOOPS = {
    *("scale_rows", "add_logs", "add_scales", "mix_up"),
    *("collect_quotients", "multiply_flows", "look_up", "count_values", "max_product", "bisect"),
    *("log_softmax", "log_softmax_down", "move_logs"),
}
Results = list[Tensor]

each_circuit = pytest.mark.parametrize("name", CIRCUITS)
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@pytest.fixture
def both(native: Kernels, monkeypatch) -> Callable[[Callable[[], Results]], tuple[Results, Results, set[str]]]:
    """Computes with the loops and without: both results, and the names of the loops that were used."""
    used, call = set[str](), Kernels._call

    def noted(self: Kernels, name: str, *arguments: object) -> None:
        used.add(name)
        call(self, name, *arguments)

    monkeypatch.setattr(Kernels, "_call", noted)

    def compute(results: Callable[[], Results]) -> tuple[Results, Results, set[str]]:
        fast, names = results(), set(used)
        used.clear()
        with monkeypatch.context() as patch:
            patch.setattr("picirc.native._kernels", lambda: None)
            slow = results()
        assert not used
        return fast, slow, names

    return compute


def data(table: Table, rows: int = 70) -> Tensor:
    """Complete rows, the same with values missing, and one of which nothing is known."""
    x = torch.randint(2, (rows, table.variables), generator=torch.Generator().manual_seed(1)).float()
    return torch.cat([x, holes(x)])


def free(qpc: pc.QPC) -> pc.QPC:
    """The same circuit with parameters that want a gradient."""
    parts = {name: getattr(qpc.parameters, name) for name in ("weights", "mixtures", "inputs")}
    return with_parameters(qpc, **{k: [t.detach().clone().requires_grad_() for t in v] for k, v in parts.items()})


def gradients(qpc: pc.QPC, x: Tensor) -> Results:
    """Those of a loss in which every data point has another weight, in units of the largest."""
    values = qpc.log_prob(x)
    loss = (values * torch.linspace(-1, 2, len(x))).masked_fill(values.isneginf(), 0.0).sum()
    found = torch.autograd.grad(loss, qpc.parameters.tensors)
    return [gradient / gradient.abs().max().clamp(min=1e-30) for gradient in found]


def assert_same(fast: Results, slow: Results, rtol: float = 2e-4, atol: float = 2e-5) -> None:
    assert len(fast) == len(slow)
    for a, b in zip(fast, slow, strict=True):
        assert a.dtype == torch.float32
        assert not a.isnan().any()
        assert_close(a, b, rtol=rtol, atol=atol)


@each_circuit
def test_likelihoods(both, name):
    table = CIRCUITS[name]
    qpc, x = table.qpc(dtype=torch.float32), data(table)
    fast, slow, names = both(lambda: [qpc.log_prob(x), *(qpc.log_prob(x[:rows]) for rows in (1, 2, 5))])
    assert_same(fast, slow, rtol=2e-6, atol=1e-5)
    assert "scale_rows" in names
    assert float(fast[0][-1].abs()) < 1e-3  # nothing known
    for part in fast[1:]:
        assert_close(part, fast[0][: len(part)], rtol=2e-6, atol=1e-5)


@each_circuit
def test_gradients(both, name):
    table = CIRCUITS[name]
    qpc, x = free(table.qpc(dtype=torch.float32)), data(table, 20)
    fast, slow, names = both(lambda: gradients(qpc, x))
    assert_same(fast, slow, rtol=1e-3, atol=1e-4)
    assert "multiply_flows" in names


@each_circuit
def test_marginals_and_latents(both, name):
    table = CIRCUITS[name]
    qpc, x = table.qpc(dtype=torch.float32), data(table, 6)

    def compute() -> Results:
        latents = qpc.latents(x)
        some = list(latents)[:: max(1, len(latents) // 40)]
        return [qpc.mean(x), qpc.marginals(x).log_prob(x[0]), *(latents[z].probabilities for z in some)]

    fast, slow, names = both(compute)
    assert_same(fast, slow, **near(torch.float32))
    assert "multiply_flows" in names


@each_circuit
def test_completions(both, name):
    """Sums of the same logarithms and their maxima: exactly the same."""
    table = CIRCUITS[name]
    qpc, x = table.qpc(dtype=torch.float32), data(table, 6)
    (fast,), (slow,), names = both(lambda: [qpc.mpe(x)])
    assert torch.equal(fast, slow)
    assert "max_product" in names


def impossible(name: str) -> tuple[pc.QPC, Tensor, Tensor]:
    """A circuit in which no variable can be 2 and not every state can be 0; rows, and which of them are possible."""
    table = CIRCUITS[name]
    qpc = table.qpc(dtype=torch.float32)
    inputs = [tensor.clone() for tensor in qpc.parameters.inputs]
    for tensor in inputs:
        tensor[..., 2] = tensor[:, 0, 0] = -math.inf
    x = data(table, 40)
    x[::3, 0] = x[1::7, -1] = 2.0
    return free(with_parameters(qpc, inputs=inputs)), x, ~(x == 2).any(1)


@pytest.mark.parametrize("name", [name for name in CIRCUITS if name != "columns"])
def test_impossible_rows(both, name):
    """They have probability zero, no gradient, and do no harm to the others."""
    qpc, x, possible = impossible(name)
    fast, slow, _ = both(lambda: [qpc.log_prob(x).detach(), *gradients(qpc, x)])
    assert_same(fast[:1], slow[:1], rtol=2e-6, atol=1e-5)
    assert_same(fast[1:], slow[1:], rtol=1e-3, atol=1e-4)
    assert torch.equal(fast[0].isneginf(), ~possible)
    some = x[possible][:5]
    fast, slow, _ = both(lambda: [next(iter(qpc.latents(some).values())).probabilities])
    assert_same(fast, slow, **near(torch.float32))
    for query in (qpc.marginals, qpc.latents):
        with pytest.raises(pc.ImpossibleEvidenceError):
            query(x)


@each_case
def test_cases(both, case: Case):
    """Every kind of circuit, with rows of which much, little or nothing is missing."""
    qpc, x = case.integrate(pc.gauss_legendre(6), dtype=torch.float32), case.data().float()
    wanting = free(qpc)

    def compute() -> Results:
        return [qpc.log_prob(x), *(latent.probabilities for latent in qpc.latents(x).values())]

    fast, slow, _ = both(compute)
    assert_same(fast, slow, **near(torch.float32))
    fast, slow, _ = both(lambda: gradients(wanting, x))
    assert_same(fast, slow, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["tree", "graph", "tucker"])
def test_samples(both, name: str):
    """The same ones from the same random numbers."""
    qpc = CIRCUITS[name].qpc(dtype=torch.float32)
    fast, slow, _ = both(lambda: [qpc.sample(200, generator=torch.Generator().manual_seed(3))])
    assert torch.equal(fast[0], slow[0])


def after_steps(name: str) -> Results:
    """The parameters after a step of EM and another of gradient ascent."""
    table = CIRCUITS[name]
    model, x = table.model().float(), data(table, 40)
    em_step(model, x, 0.3, 0.01)
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    (-model().log_prob(x).mean()).backward()
    optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


@pytest.mark.parametrize("name", CIRCUITS)
def test_steps_of_training(both, name):
    fast, slow, names = both(lambda: after_steps(name))
    assert_same(fast, slow, rtol=1e-4, atol=1e-4)
    assert "move_logs" in names
    assert ("log_softmax_down" in names) == (name != "columns")  # which has no categories


def test_every_loop_is_used(both):
    """By circuits that are compared here, none of them in vain; and there are no others."""
    assert set(kernels_for(torch.empty(1))._functions) == LOOPS
    used = set[str]()
    for name in ("tree", "graph"):
        qpc, x = free(CIRCUITS[name].qpc(dtype=torch.float32)), data(CIRCUITS[name], 3)
        used |= both(lambda qpc=qpc, x=x: [*gradients(qpc, x), qpc.mpe(x), qpc.sample(1000)])[2]
        used |= both(partial(after_steps, name))[2]
    assert used == LOOPS
