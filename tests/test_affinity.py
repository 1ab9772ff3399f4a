# SPDX-License-Identifier: Apache-2.0
"""Densities relative to a reference that draws latents to their parents."""

from __future__ import annotations

import itertools

import pytest
import torch

import picirc as pc

GRAPH = pc.quad_graph(2, 2)
RULE = pc.midpoint(5)


def make(**options) -> pc.PIC:
    generator = torch.Generator().manual_seed(0)
    return pc.PIC(GRAPH, pc.Bernoulli(), width=8, generator=generator, **options).double()


@pytest.mark.parametrize("sharing", ["none", "composite", "full"])
@pytest.mark.parametrize("energy", ["unbounded", "softplus"])
def test_weights_are_those_without_it_times_the_reference(sharing, energy):
    with_it, without = (make(sharing=sharing, energy=energy, affinity=a)(RULE).parameters.weights for a in (3.0, 0.0))
    z = torch.tensor(RULE.points)
    reference = (-3.0 * (z.unsqueeze(1) - z).square()).exp()
    compared = 0
    for found, plain in zip(with_it, without, strict=True):
        if found.shape[2] > 1:  # not at the root
            expected = plain * reference
            torch.testing.assert_close(found, expected / expected.sum(-1, keepdim=True))
            compared += 1
    assert compared


@pytest.mark.parametrize("product", ["cp", "tucker"])
@pytest.mark.parametrize("energy", ["unbounded", "softplus"])
def test_mass_and_gradients(product, energy):
    pic = make(product=product, energy=energy, affinity=3.0)
    x = torch.tensor(list(itertools.product([0.0, 1.0], repeat=4)), dtype=torch.float64)
    assert float(pic(RULE).log_prob(x).detach().exp().sum()) == pytest.approx(1.0, abs=1e-12)
    head = pic.integrals[0].head
    (slope,) = torch.autograd.grad(pic(RULE).log_prob(x[:3]).sum(), head)
    values = []
    for step in (1e-6, -1e-6):
        with torch.no_grad():
            head[0, 0, 0] += step
            values.append(float(pic(RULE).log_prob(x[:3]).sum()))
            head[0, 0, 0] -= step
    assert float(slope[0, 0, 0]) == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-4, abs=1e-9)


def test_region_graphs_have_it_by_default_and_trees_do_not():
    assert make().affinity > 0
    assert pc.PIC(pc.chain(3), pc.Bernoulli(), width=8).affinity == 0
    assert make(dims=2).affinity == 0


def test_a_negative_one_is_refused():
    with pytest.raises(pc.ArgumentError, match="affinity"):
        make(affinity=-1.0)
