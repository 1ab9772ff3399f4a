# SPDX-License-Identifier: Apache-2.0
"""Circuits of neural functions, with shared and separate nets, answer every query like any other."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

import picirc as pc
from oracles import enumerate_values
from table_circuits import Joint, holes, near

STRUCTURES = {
    "tree": (pc.random_tree(4, 0), "cp"),
    "quad_tree": (pc.quad_tree(2, 2), "cp"),
    "quad_graph": (pc.quad_graph(2, 2), "cp"),
    "wide_leaves": (pc.random_regions(4, 1, repetitions=2, depth=1), "cp"),
    "tucker": (pc.quad_graph(2, 2), "tucker"),
}
SHARING = [("none", "none"), ("composite", "composite"), ("full", "full")]


def circuit(name: str, sharing: str, input_sharing: str, points: int = 6) -> pc.QPC:
    structure, product = STRUCTURES[name]
    pic = pc.PIC(
        structure,
        inputs=[pc.Categorical(3), pc.Bernoulli(), pc.Categorical(3), pc.Binomial(2)],
        width=8,
        sharing=sharing,
        input_sharing=input_sharing,
        product=product,
        generator=torch.Generator().manual_seed(0),
    ).double()
    with torch.no_grad():
        for parameter in pic.parameters():
            parameter *= 3.0  # states that differ
        return pic(pc.gauss_legendre(points))


@pytest.mark.parametrize("name", STRUCTURES)
@pytest.mark.parametrize(("sharing", "input_sharing"), SHARING)
def test_every_query(name, sharing, input_sharing):
    qpc = circuit(name, sharing, input_sharing)
    x = enumerate_values([3, 2, 3, 3])
    joint = Joint(x, p=qpc.log_prob(x).exp())
    assert_close(joint.p.sum(), torch.ones((), dtype=torch.float64), **near())
    for evidence in holes(x[::11]):
        conditional = joint.given(evidence)
        assert_close(qpc.log_prob(evidence[None])[0].exp(), joint.prob(evidence), **near())
        assert_close(qpc.mean(evidence), conditional.mean, **near())
        assert_close(qpc.covariance(evidence), conditional.covariance, **near())
        expected = torch.stack([conditional.marginal(0, value) for value in range(3)])
        assert_close(qpc.marginals(evidence).probabilities("x0"), expected, **near())
        assert_close(qpc.cdf(x[30:31], given=evidence)[0], conditional.p[(x <= x[30]).all(1)].sum(), **near())
        best = float(qpc.log_prob(qpc.mpe(evidence)[None]).exp())
        assert best <= float(joint.p[joint.matches(evidence)].max()) * (1 + 1e-9)
    samples = qpc.sample(2000, generator=torch.Generator().manual_seed(0))
    frequencies = joint.counts(samples) / 2000
    assert float((frequencies - joint.p).abs().max()) < 4 * math.sqrt(0.25 / 2000)
    for posterior in qpc.latents(x[:3]).values():
        assert_close(posterior.density @ posterior.weights, torch.ones(3, dtype=torch.float64), **near())


@pytest.mark.parametrize("name", [name for name, (_, product) in STRUCTURES.items() if product == "cp"])
@pytest.mark.parametrize(("sharing", "input_sharing"), SHARING)
def test_pruning(name, sharing, input_sharing):
    qpc = circuit(name, sharing, input_sharing, points=24)
    x = enumerate_values([3, 2, 3, 3])
    pruned, bound = qpc.prune(0.04)
    p, q = qpc.log_prob(x).exp(), pruned.log_prob(x).exp()
    assert_close(q.sum(), torch.ones((), dtype=torch.float64), **near())
    assert float((p - q).abs().sum()) / 2 <= bound + 1e-12
    assert pruned.size <= qpc.size
    joint = Joint(x, p=q)
    assert_close(pruned.mean + 0, joint.mean, **near())


@pytest.mark.parametrize("name", ["tree", "quad_tree"])
@pytest.mark.parametrize(("sharing", "input_sharing"), SHARING)
def test_inner_products_between_rules(name, sharing, input_sharing):
    left, right = (circuit(name, sharing, input_sharing, points) for points in (6, 9))
    x = enumerate_values([3, 2, 3, 3])
    expected = (left.log_prob(x) + right.log_prob(x)).exp().sum().log()
    assert_close(pc.log_inner_product(left, right), expected, **near())
