# SPDX-License-Identifier: Apache-2.0
"""Densities given as functions: domains, parents, and numbers that are none."""

from __future__ import annotations

import math

import pytest
import torch

import picirc as pc
from picirc.errors import ArgumentError


def test_outside_of_the_domain_the_density_is_zero_and_the_function_is_not_asked():
    asked = []

    def log_density(v: torch.Tensor) -> torch.Tensor:
        asked.append(v)
        return torch.log(2 * v)

    density = pc.Density(log_density, domain=(0.0, 1.0))
    result = density.log_density(torch.tensor([-0.5, 0.25, 1.0, 3.0]))
    torch.testing.assert_close(result, torch.tensor([-math.inf, math.log(0.5), math.log(2.0), -math.inf]))
    assert all(((v >= 0) & (v <= 1)).all() for v in asked)


def test_parents_arrive_in_their_order_and_broadcast():
    density = pc.Density(lambda v, a, b: v + 10 * a + 100 * b, ["a", "b"], domain=(-9.0, 9.0))
    v, a, b = torch.ones(2, 1, 1), 2 * torch.ones(3, 1), 3 * torch.ones(4)
    assert density.parents == ("a", "b")
    assert torch.equal(density.log_density(v, a, b), torch.full((2, 3, 4), 321.0))


@pytest.mark.parametrize("domain", [(0.0, math.inf), (-math.inf, 0.0), (-math.inf, math.inf)])
def test_an_infinite_domain_has_a_harmless_point(domain):
    density = pc.Density(lambda v: -v.abs(), domain=domain)
    assert density.log_density(torch.tensor([-2.0, 2.0])).isfinite().any()


@pytest.mark.parametrize("domain", [(1.0, 1.0), (2.0, 1.0), (math.nan, 1.0), (0.0, math.nan)])
def test_a_domain_is_an_interval(domain):
    with pytest.raises(ArgumentError, match="domain: expected an interval"):
        pc.Density(lambda v: v, domain=domain)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_logarithm_is_a_number(bad):
    density = pc.Density(lambda v: torch.where(v > 0.5, bad, 0.0), domain=(0.0, 1.0))
    with pytest.raises(ArgumentError, match=r"log_density: .*finite or -inf.*domain \[0, 1\]"):
        density.log_density(torch.tensor([0.2, 0.7]))


def test_a_logarithm_of_zero_is_one():
    density = pc.Density(lambda v: torch.where(v > 0.5, -math.inf, 0.0), domain=(0.0, 1.0))
    assert density.log_density(torch.tensor([0.2, 0.7])).tolist() == [0.0, -math.inf]


@pytest.mark.parametrize("parents", [["a", "a"], [""], [3]])
def test_parents_have_different_names(parents):
    with pytest.raises(ArgumentError, match="parents: expected different names"):
        pc.Density(lambda v, *z: v, parents, domain=(0.0, 1.0))


def test_a_density_is_a_function():
    with pytest.raises(ArgumentError, match="log_density: expected a function"):
        pc.Density(3.0, domain=(0.0, 1.0))  # type: ignore[arg-type]


def test_repr_shows_parents_and_domain():
    density = pc.Density(lambda v, z: v, "z", domain=(-1.0, 2.5))
    assert repr(density) == "Density(· | z on [-1, 2.5])"
