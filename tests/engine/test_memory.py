# SPDX-License-Identifier: Apache-2.0
"""Memory that is used again and accounted for, and threads that do not disturb each other."""

from __future__ import annotations

import gc
import threading

import pytest
import torch
from torch.testing import assert_close

import picirc as pc
from cases import CASES
from picirc import memory
from picirc.engine import compiled as engine
from picirc.memory import Blocks
from table_circuits import TABLES, Table, each_table, evidences, holes, near

LIKE = torch.empty(0)
LARGE = 2**15  # elements that are worth keeping


def test_memory_is_used_again_once_nobody_holds_it():
    blocks = Blocks()
    first = blocks.empty((LARGE, 3), LIKE)
    place, part = first.data_ptr(), first[5:]
    del first
    other = blocks.empty((LARGE, 3), LIKE)
    assert other.data_ptr() != place  # a view still holds it
    del part
    again = blocks.empty((3, LARGE), LIKE)
    assert again.data_ptr() == place
    assert again.shape == (3, LARGE)
    assert again.dtype == LIKE.dtype


def test_autograd_holds_memory_too():
    blocks = Blocks()
    kept = blocks.empty((LARGE,), LIKE).fill_(2.0)
    weight = torch.ones(LARGE, requires_grad=True)
    loss = (weight * kept).sum()
    del kept
    blocks.empty((LARGE,), LIKE).fill_(7.0)
    loss.backward()
    assert weight.grad is not None
    assert_close(weight.grad, torch.full((LARGE,), 2.0))


def test_what_another_process_may_hold_is_not_overwritten():
    """A tensor in a queue of torch.multiprocessing lives in shared memory."""
    blocks = Blocks()
    sent = blocks.empty((LARGE,), LIKE).fill_(2.0).share_memory_()
    for _ in range(3):
        blocks.empty((LARGE,), LIKE).fill_(7.0)
    assert (sent == 2.0).all()


def test_the_smallest_that_fits_is_taken():
    blocks = Blocks()
    held = {n: blocks.empty((n,), LIKE) for n in (7 * LARGE // 2, 2 * LARGE, 3 * LARGE)}
    places = {n: tensor.data_ptr() for n, tensor in held.items()}
    held.clear()
    size = 5 * LARGE // 2
    taken = [blocks.empty((size,), LIKE) for _ in range(3)]
    assert [t.data_ptr() for t in taken[:2]] == [places[3 * LARGE], places[7 * LARGE // 2]]
    assert taken[2].data_ptr() not in places.values()
    assert blocks.empty((LARGE // 2,), LIKE).data_ptr() not in places.values()  # far too large to be worth it


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64])
def test_memory_has_no_dtype(dtype):
    blocks = Blocks()
    place = blocks.empty((8 * LARGE,), LIKE).data_ptr()
    found = blocks.empty((4 * LARGE,), torch.empty(0, dtype=dtype))
    assert found.dtype == dtype
    assert found.data_ptr() == place or found.element_size() < 4


def test_memory_that_the_garbage_collector_finds_does_not_block():
    """It may run at any time, also while free blocks are being searched."""
    blocks = Blocks()
    circle: list[object] = [blocks.empty((LARGE,), LIKE)]
    circle.append(circle)
    place = circle[0].data_ptr()
    del circle
    with blocks._lock:
        gc.collect()
    assert blocks.empty((LARGE,), LIKE).data_ptr() == place


def test_the_oldest_are_dropped(monkeypatch):
    monkeypatch.setattr(memory, "_KEPT", 10 * LARGE)
    blocks = Blocks()
    held = [blocks.empty((LARGE,), LIKE) for _ in range(4)]
    places = [tensor.data_ptr() for tensor in held]
    held.reverse()
    while held:
        held.pop()
    taken = [blocks.empty((LARGE,), LIKE) for _ in range(2)]
    assert {t.data_ptr() for t in taken} == set(places[2:])
    assert blocks.bytes == 0


def test_inference_mode_leaves_nothing_behind():
    table = TABLES["quad_graph"]
    model, x = table.model(), table.joint().x
    with torch.inference_mode():
        expected = model().log_prob(x)
    found = model().log_prob(x)
    found.sum().backward()
    assert_close(found.detach(), expected, rtol=0, atol=0)


@each_table
def test_the_elements_of_a_pass_are_what_it_keeps(table):
    """Batches are split by this number, so it may not be too small."""
    qpc = table.qpc()
    points = qpc._points(table.joint().x[:4])
    values = qpc.compiled.up(points, qpc.parameters, keep=True)
    kept = sum(t.numel() for t in values.rows) + values.sums.numel()
    elements = qpc.compiled.elements * points.batch
    assert kept <= elements <= 2 * kept


def watched(monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], list[bool]]:
    """The sizes of blocks that are taken from now on, in bytes, and whether each was there before."""
    sizes, known, take = list[int](), list[bool](), Blocks.take

    def noted(self: Blocks, size: int) -> torch.Tensor:
        self._sort_in()
        before = self.bytes
        block = take(self, size)
        sizes.append(size)
        known.append(self.bytes < before)
        return block

    monkeypatch.setattr(Blocks, "take", noted)
    return sizes, known


def test_evaluations_of_one_size_need_no_new_memory(monkeypatch):
    monkeypatch.setattr(memory, "_SMALL", 1)
    table = TABLES["quad_graph"]
    model, x = table.model(), table.joint().x
    for _ in range(2):
        model().log_prob(x).sum().backward()
    _, known = watched(monkeypatch)
    for _ in range(2):
        model().log_prob(x).sum().backward()
    assert len(known) > 0
    assert all(known)


def test_the_memory_of_a_large_batch_is_bounded(monkeypatch):
    """However many rows, a pass takes no more than the budget allows at a time."""
    table = Table(pc.random_tree(30, 0), pc.Categorical(4), 8)
    qpc, x = table.qpc(), torch.zeros(400, 30)
    budget = 20 * qpc.compiled.elements
    monkeypatch.setattr("picirc.engine.compiled.BUDGET", budget)
    monkeypatch.setattr(memory, "_SMALL", 1)
    sizes, _ = watched(monkeypatch)
    qpc.log_prob(x)
    qpc.marginals(x)
    qpc.sample(3, given=x.masked_fill(x == 0, torch.nan))
    qpc.mpe(x.masked_fill(x == 0, torch.nan))
    assert 0 < max(sizes) <= budget * qpc.parameters.like.element_size()


def test_few_batch_sizes_are_remembered():
    qpc = TABLES["tree"].qpc()
    for rows in range(1, 30):
        qpc.log_prob(torch.zeros(rows, *qpc.event_shape))
    assert len(qpc.compiled._ready) <= 8


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
        value = qpc.compiled.log_prob(qpc._points(x), parameters)
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
    monkeypatch.setattr(engine, "CACHE_BYTES", 1)
    for found, expected in zip(answers(), whole, strict=True):
        assert_close(found, expected, **near())


@pytest.mark.parametrize("name", CASES)
def test_steps_of_integral_circuits_in_pieces(name, monkeypatch):
    case = CASES[name]
    x = case.data()
    whole = case.integrate(pc.gauss_legendre(6))
    expected = whole.log_prob(x), whole.mean(x)
    monkeypatch.setattr(engine, "CACHE_BYTES", 1)
    pieces = case.integrate(pc.gauss_legendre(6))
    assert_close(pieces.log_prob(x), expected[0], **near())
    assert_close(pieces.mean(x), expected[1], **near())
