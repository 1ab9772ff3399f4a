# SPDX-License-Identifier: Apache-2.0
"""Families whose parameters are a function of the latents."""

from __future__ import annotations

import pytest
import torch

import picirc as pc
from picirc.errors import ArgumentError


@pytest.mark.parametrize("link", [lambda z: 2 * z, lambda z: (2 * z).unsqueeze(-1)], ids=["(...)", "(..., 1)"])
def test_one_parameter_may_come_with_or_without_its_axis(link):
    z = torch.linspace(-1, 1, 5)
    function = pc.Conditional(pc.Bernoulli(), link, ["z"])
    assert torch.equal(function.parameters(z), (2 * z).unsqueeze(-1))


def test_parameters_are_valid():
    function = pc.Conditional(pc.Categorical(3), lambda z: torch.stack([z, z * z, 0 * z], -1), ["z"])
    parameters = function.parameters(torch.linspace(-1, 1, 4))
    assert parameters.shape == (4, 3)
    torch.testing.assert_close(parameters.exp().sum(-1), torch.ones(4))


def test_several_parents_broadcast():
    function = pc.Conditional(pc.Poisson(), lambda a, b: a + b, ["a", "b"])
    assert function.parameters(torch.zeros(3, 1), torch.ones(1, 4)).shape == (3, 4, 1)


def test_without_parents_the_parameters_are_constant():
    function = pc.Conditional(pc.Bernoulli(), lambda: torch.tensor(0.3), [])
    assert function.parents == ()
    torch.testing.assert_close(function.parameters(), torch.tensor([0.3]))


def test_the_number_of_parameters_is_checked():
    function = pc.Conditional(pc.Categorical(3), lambda z: torch.stack([z, z], -1), ["z"])
    with pytest.raises(ArgumentError, match=r"link: expected 3 parameters of Categorical\(3\).*shape \(4, 2\)"):
        function.parameters(torch.zeros(4))


def test_a_link_is_a_function():
    with pytest.raises(ArgumentError, match="link: expected a function"):
        pc.Conditional(pc.Bernoulli(), 0.5, ["z"])  # type: ignore[arg-type]


def test_repr_names_the_family_and_the_parents():
    assert repr(pc.Conditional(pc.Binomial(4), lambda a, b: a, ["a", "b"])) == "Conditional(Binomial(4) | a, b)"
