"""Buffers that are used again, memory that is accounted for, and threads that do not disturb each other."""

from __future__ import annotations

import gc
import threading

import pytest
import torch
from table_circuits import TABLES, Table, each_table, evidences, holes, near
from torch.testing import assert_close

import picirc as pc
from cases import CASES
from picirc.qpc import program, workspace
from picirc.qpc.workspace import Workspace

CPU = torch.device("cpu")


def test_a_buffer_comes_back():
    stock = Workspace()
    lease = stock.lease(torch.float32, CPU)
    first = lease(10, 3)
    place = first.data_ptr()
    lease.release()
    again = stock.lease(torch.float32, CPU)(5, 6)
    assert again.data_ptr() == place
    assert again.shape == (5, 6)


def test_the_smallest_that_fits_is_taken():
    stock = Workspace()
    lease = stock.lease(torch.float32, CPU)
    places = {n: lease(n).data_ptr() for n in (4000, 2000, 3000)}
    lease.release()
    other = stock.lease(torch.float32, CPU)
    assert other(2500).data_ptr() == places[3000]
    assert other(2500).data_ptr() == places[4000]
    assert other(2500).data_ptr() not in places.values()
    assert other(100).data_ptr() not in places.values()  # far too large to be worth it


def test_dtypes_are_kept_apart():
    stock = Workspace()
    lease = stock.lease(torch.float32, CPU)
    place = lease(50).data_ptr()
    lease.release()
    assert stock.lease(torch.float64, CPU)(50).dtype == torch.float64
    assert stock.lease(torch.float32, CPU)(50).data_ptr() == place


def test_a_lease_that_is_forgotten_comes_back():
    stock = Workspace()
    lease = stock.lease(torch.float32, CPU)
    place = lease(7).data_ptr()
    del lease
    assert stock.lease(torch.float32, CPU)(7).data_ptr() == place


def test_a_lease_that_the_garbage_collector_finds_does_not_block():
    """It may run at any time, also while the stock is being searched."""
    stock = Workspace()
    lease = stock.lease(torch.float32, CPU)
    place = lease(7).data_ptr()
    lease.circle = lease
    del lease
    with stock._lock:
        gc.collect()
    assert stock.lease(torch.float32, CPU)(7).data_ptr() == place


def test_the_oldest_are_dropped(monkeypatch):
    monkeypatch.setattr(workspace, "_KEPT_BYTES", 4 * 5000)
    stock = Workspace()
    lease = stock.lease(torch.float32, CPU)
    places = [lease(2000).data_ptr() for _ in range(4)]
    lease.release()
    kept = stock.lease(torch.float32, CPU)
    taken = [kept(2000) for _ in range(2)]
    assert {t.data_ptr() for t in taken} == set(places[2:])
    assert stock._bytes == 0


@each_table
def test_the_elements_of_a_pass_are_what_it_keeps(table):
    """Batches are split by this number, so it may not be too small."""
    qpc = table.qpc()
    points = qpc._points(table.joint().x[:4])
    trace = qpc.engine.up(points, qpc.parameters, keep=True)
    kept = sum(t.numel() for t in trace.rows) + sum(t.numel() for t in trace.sums.values())
    elements = qpc.engine.program.elements() * points.batch
    assert kept <= elements <= 2 * kept


def test_evaluations_of_one_size_need_no_new_buffers(monkeypatch):
    table = TABLES["quad_graph"]
    model, x = table.model(), table.joint().x
    model().log_prob(x).sum().backward()
    taken: list[int] = []
    take = Workspace.take

    def watched(self: Workspace, elements: int, *kind: object) -> torch.Tensor:
        before = self._bytes
        buffer = take(self, elements, *kind)
        taken.append(before - self._bytes)
        return buffer

    monkeypatch.setattr(Workspace, "take", watched)
    for _ in range(2):
        model().log_prob(x).sum().backward()
    assert len(taken) > 0
    assert all(size > 0 for size in taken)


def test_the_memory_of_a_large_batch_is_bounded(monkeypatch):
    """However many rows, a pass takes no more than the budget allows at a time."""
    from picirc.qpc.likelihood import Engine

    table = Table(pc.random_tree(30, 0), pc.Categorical(4), 8)
    qpc, x = table.qpc(), torch.zeros(400, 30)
    budget = 20 * qpc.engine.program.elements()
    monkeypatch.setattr(Engine.parts, "__defaults__", (budget,))
    largest = 0
    take = Workspace.take

    def watched(self: Workspace, elements: int, *kind: object) -> torch.Tensor:
        nonlocal largest
        largest = max(largest, elements)
        return take(self, elements, *kind)

    monkeypatch.setattr(Workspace, "take", watched)
    qpc.log_prob(x)
    qpc.marginals(x)
    qpc.sample(3, given=x.masked_fill(x == 0, torch.nan))
    qpc.mpe(x.masked_fill(x == 0, torch.nan))
    assert 0 < largest <= budget


@pytest.mark.parametrize("name", ["tree", "quad_graph", "hand_made_tucker"])
def test_two_threads_may_use_one_circuit(name):
    table = TABLES[name]
    qpc, x = table.qpc(), holes(table.joint().x)
    expected = {part: (qpc.log_prob(x[part::2]), qpc.mean(evidences(table)[part:])) for part in range(2)}
    failures: list[BaseException] = []

    def work(part: int) -> None:
        try:
            for _ in range(8):
                assert_close(qpc.log_prob(x[part::2]), expected[part][0], rtol=0, atol=0)
                assert_close(qpc.mean(evidences(table)[part:]), expected[part][1], rtol=0, atol=0)
                qpc.sample(3, generator=torch.Generator().manual_seed(0))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(part,)) for part in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_two_threads_may_learn_from_one_circuit():
    case = CASES["lg_dag"]
    qpc, x = case.integrate(pc.gauss_legendre(6)), case.data()
    leaf = qpc.parameters.weights[0].clone().requires_grad_()
    parameters = type(qpc.parameters)((leaf, *qpc.parameters.weights[1:]), (), qpc.parameters.inputs)
    found: list[torch.Tensor] = []

    def work() -> None:
        value = qpc.engine.differentiable_log_prob(qpc._points(x), parameters)
        found.extend(torch.autograd.grad(value.sum(), leaf))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for gradient in found[1:]:
        assert_close(gradient, found[0], **near())


@each_table
def test_steps_in_pieces(table, monkeypatch):
    """However little fits into the cache: values, gradients, marginals and posteriors stay the same."""

    def answers() -> list[torch.Tensor]:
        model, x = table.model(), holes(table.joint().x[:20])
        values = model().log_prob(x)
        gradients = torch.autograd.grad(values.sum(), list(model.parameters()))
        posteriors = [posterior.probabilities for posterior in model().latents(x).values()]
        return [values.detach(), *gradients, model().mean(x), *posteriors]

    whole = answers()
    monkeypatch.setattr(program, "_CACHE_BYTES", 1)
    for found, expected in zip(answers(), whole, strict=True):
        assert_close(found, expected, **near())


@pytest.mark.parametrize("name", CASES)
def test_steps_of_integral_circuits_in_pieces(name, monkeypatch):
    case = CASES[name]
    x = case.data()
    whole = case.integrate(pc.gauss_legendre(6))
    expected = whole.log_prob(x), whole.mean(x)
    monkeypatch.setattr(program, "_CACHE_BYTES", 1)
    pieces = case.integrate(pc.gauss_legendre(6))
    assert_close(pieces.log_prob(x), expected[0], **near())
    assert_close(pieces.mean(x), expected[1], **near())
