# SPDX-License-Identifier: Apache-2.0
"""Normalising tables, their gradients and steps of EM against double precision, with and without the compiled loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from picirc import native
from picirc.inputs import Categorical
from picirc.inputs.family import log_probabilities, probabilities

LIMIT = 1000.0

each_shape = pytest.mark.parametrize(
    "shape", [(1, 1), (3, 2), (5, 15), (4, 16), (7, 17), (2, 3, 100), (600, 256), (3000, 64)]
)


@pytest.fixture(params=[False, True], ids=["PyTorch", "compiled"], autouse=True)
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(native, "_kernels", lambda: None)


def table(*shape: int) -> Tensor:
    """Values of all sizes, some beyond the limit."""
    generator = torch.Generator().manual_seed(0)
    size = 10.0 ** torch.randint(-2, 4, (*shape[:-1], 1), generator=generator)
    return torch.randn(shape, generator=generator) * size


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found.double(), expected, rtol=2e-6, atol=2e-6)


@each_shape
def test_logarithms(shape: tuple[int, ...]):
    raw = table(*shape).requires_grad_()
    exact = raw.detach().double().requires_grad_()
    flow = table(*shape[:-1], shape[-1]).clamp(-1, 1)
    found, expected = log_probabilities(raw, LIMIT), exact.clamp(-LIMIT, LIMIT).log_softmax(-1)
    close(found, expected)
    (gradient,), (right,) = (
        torch.autograd.grad(value, at, flow.to(value.dtype)) for value, at in ((found, raw), (expected, exact))
    )
    torch.testing.assert_close(gradient.double(), right, rtol=1e-4, atol=2e-5)


@each_shape
def test_probabilities(shape: tuple[int, ...]):
    raw = table(*shape).requires_grad_()
    exact = raw.detach().double().requires_grad_()
    flow = table(*shape).clamp(-1, 1)
    found, expected = probabilities(raw), exact.softmax(-1)
    close(found, expected)
    (gradient,), (right,) = (
        torch.autograd.grad(value, at, flow.to(value.dtype)) for value, at in ((found, raw), (expected, exact))
    )
    torch.testing.assert_close(gradient.double(), right, rtol=1e-4, atol=2e-5)


@each_shape
@pytest.mark.parametrize("smoothing", [0.0, 0.01])
@pytest.mark.parametrize("step", [0.3, 1.0, "each"])
def test_steps_of_em(shape: tuple[int, ...], smoothing: float, step: float | str):
    """Towards the frequencies; a state that was never seen stays as it was if nothing is added to its counts."""
    generator = torch.Generator().manual_seed(1)
    old = table(1, *shape).reshape(-1, *shape[-2:]).clamp(-20, 20).log_softmax(-1)
    counts = torch.rand(old.shape, generator=generator) * (torch.rand(old.shape, generator=generator) < 0.5)
    counts[0, 0] = 0.0
    steps = torch.rand(1, old.shape[1], generator=generator) if step == "each" else step
    raw, family = torch.empty_like(old), Categorical(old.shape[-1])
    family.move(raw, old, counts, smoothing, steps)
    new = counts.double() + smoothing / old.shape[-1]
    total = new.sum(-1, keepdim=True)
    new = torch.where(total > 0, new / total.clamp(min=1e-300), old.double().exp())
    rates = torch.as_tensor(steps).double().unsqueeze(-1)
    expected = ((1 - rates) * old.double().exp() + rates * new).clamp(min=torch.finfo(torch.float32).tiny).log()
    torch.testing.assert_close(raw.double(), expected, rtol=5e-6, atol=5e-6)


def test_a_step_of_em_shows_what_is_not_a_number():
    old = torch.zeros(1, 2, 4).log_softmax(-1)
    old[0, 1, 2] = math.nan
    raw = torch.empty_like(old)
    Categorical(4).move(raw, old, torch.ones(1, 2, 4), 0.0, 0.5)
    assert raw[0, 1, 2].isnan()
    assert raw[0, 0].isfinite().all()


def test_gradients_in_double_precision():
    raw = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    assert torch.autograd.gradcheck(probabilities, raw)
    assert torch.autograd.gradcheck(lambda values: log_probabilities(values, LIMIT), raw)


@pytest.mark.parametrize("values", [3, 16, 40])
def test_what_is_not_a_number_shows(values: int):
    """In its own row, wherever it stands; an infinite value is one at the limit."""
    for place in range(values):
        raw = torch.zeros(2, values)
        raw[1, place] = math.nan
        found = log_probabilities(raw, LIMIT)
        assert found[1].isnan().all()
        torch.testing.assert_close(found[0], torch.full((values,), -math.log(values)))
        raw[1, place] = -math.inf
        found = log_probabilities(raw, LIMIT)
        assert float(found[1, place]) == pytest.approx(-LIMIT - math.log(values - 1))
        raw[1, place] = math.inf
        assert float(log_probabilities(raw, LIMIT)[1, place]) == 0.0


def test_one_thread_or_two():
    raw, before = table(700, 50), torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(log_probabilities(raw, LIMIT).clone())
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)
