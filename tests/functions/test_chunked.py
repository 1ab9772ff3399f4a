# SPDX-License-Identifier: Apache-2.0
"""Piece by piece is the same as at once, and keeps nothing in between."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from neural import plain_products
from picirc.functions.nets import chunked

ROWS, WIDTH, POINTS = 5, 3, 4


def net(weights: Tensor, bias: Tensor, shared: Tensor) -> Tensor:
    """(rows, 3, 3), (rows, 3) and (3, points) to (rows, points), with two layers of activations in between."""
    hidden = torch.tanh(weights @ shared + bias.unsqueeze(-1))
    return torch.nn.functional.softplus(hidden).sum(1).log_softmax(-1)


@pytest.fixture
def tensors(generator) -> list[Tensor]:
    shapes = [(ROWS, WIDTH, WIDTH), (ROWS, WIDTH), (WIDTH, POINTS)]
    return [torch.randn(s, generator=generator, dtype=torch.float64, requires_grad=True) for s in shapes]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_value_and_gradients_are_those_of_the_whole(tensors, size):
    *rows, shared = tensors
    at_once, in_pieces = net(*tensors), chunked(net, rows, [shared], size)
    assert torch.equal(at_once, in_pieces) or torch.allclose(at_once, in_pieces, rtol=1e-14, atol=0)
    flow = torch.linspace(-1, 2, at_once.numel(), dtype=torch.float64).view_as(at_once)
    for one, other in zip(
        torch.autograd.grad(at_once, tensors, flow), torch.autograd.grad(in_pieces, tensors, flow), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("size", [1, 2, 100])
def test_gradients_agree_with_finite_differences(tensors, size):
    assert torch.autograd.gradcheck(lambda *t: chunked(net, t[:2], t[2:], size), tensors)


@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_only_what_is_wanted_gets_a_gradient(tensors, wanted):
    leaves = [t.detach().requires_grad_(i == wanted) for i, t in enumerate(tensors)]
    chunked(net, leaves[:2], leaves[2:], 2).sum().backward()
    net(*tensors).sum().backward()
    for i, (leaf, whole) in enumerate(zip(leaves, tensors, strict=True)):
        if i == wanted:
            torch.testing.assert_close(leaf.grad, whole.grad)
        else:
            assert leaf.grad is None


def test_nothing_is_recorded_when_nothing_is_wanted(tensors):
    leaves = [t.detach() for t in tensors]
    assert not chunked(net, leaves[:2], leaves[2:], 2).requires_grad


@pytest.mark.parametrize("size", [1, 2, 100])
def test_no_activations_are_kept(tensors, size):
    kept: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        chunked(net, tensors[:2], tensors[2:], size)
    assert {t.data_ptr() for t in kept} == {t.data_ptr() for t in tensors}


def test_a_piece_is_never_larger_than_asked(tensors):
    seen = []

    def piece(weights: Tensor, bias: Tensor, shared: Tensor) -> Tensor:
        seen.append(len(weights))
        return net(weights, bias, shared)

    chunked(piece, tensors[:2], tensors[2:], 2).sum().backward()
    assert seen == [2, 2, 1, 2, 2, 1]  # forward, and again on the way back


def test_the_way_back_computes_in_the_precision_of_the_way_up():
    seen = []

    def piece(weights: Tensor, shared: Tensor) -> Tensor:
        product = weights @ shared
        seen.append(product.dtype)
        return product.float()

    weights, shared = torch.ones(3, 2, 2, requires_grad=True), torch.ones(2, 2)
    with plain_products():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result = chunked(piece, [weights], [shared], 2)
        result.sum().backward()
    assert seen == [torch.bfloat16] * 4
    assert weights.grad is not None
    assert weights.grad.dtype == torch.float32
