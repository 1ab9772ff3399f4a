# SPDX-License-Identifier: Apache-2.0
"""Heads of many categories: the gradient by hand against PyTorch's own."""

from __future__ import annotations

import pytest
import torch

from picirc.functions.nets import Bank
from picirc.inputs import Categorical


@pytest.mark.parametrize("sharing", ["composite", "full"])
@pytest.mark.parametrize("shared", [None, (2, 4)])
@pytest.mark.parametrize(("rows", "outputs", "points"), [(1, 2, 1), (5, 7, 3), (300, 256, 9)])
def test_it_is_the_softmax_of_the_values(sharing, shared, rows, outputs, points):
    generator = torch.Generator().manual_seed(0)
    bank = Bank(rows, 1, outputs, 6, sharing, generator=generator, shared=shared).double()
    z = torch.rand(points, 1, generator=generator, dtype=torch.float64)
    g = None if shared is None else torch.tensor([0.3, -0.2], dtype=torch.float64)
    plain = bank(z, Categorical(outputs).constrain, g)
    weights = torch.randn(plain.shape, generator=generator, dtype=torch.float64)
    found = bank.log_softmax(z, g)
    torch.testing.assert_close(found, plain, rtol=1e-12, atol=1e-12)
    parameters = [parameter for parameter in bank.parameters() if parameter.requires_grad]
    expected = torch.autograd.grad((plain * weights).sum(), parameters)
    for own, other in zip(torch.autograd.grad((found * weights).sum(), parameters), expected, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-10, atol=1e-10)


def test_second_derivatives_are_refused():
    bank = Bank(2, 1, 3, 4, "composite").double()
    (first,) = torch.autograd.grad(
        bank.log_softmax(torch.rand(2, 1, dtype=torch.float64))[0, 0, 0], bank.head, create_graph=True
    )
    with pytest.raises(RuntimeError):
        first.sum().backward()
