# SPDX-License-Identifier: Apache-2.0
"""Hundreds of variables: nothing underflows and nothing overflows, in single precision as in double."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

import picirc as pc
from table_circuits import Table, holes

LONG = {
    "chain": Table(pc.chain(1000), pc.Categorical(4), 4),
    "tree": Table(pc.random_tree(500, 0), pc.Gaussian(), 4),
    "deep_tree": Table(pc.random_tree(300, 1, depth=100), pc.Poisson(), 3),
    "regions": Table(pc.quad_graph(16, 16), pc.Bernoulli(), 3),
}


@pytest.fixture(scope="module", params=LONG)
def circuits(request) -> tuple[pc.QPC, pc.QPC]:
    """One circuit in double and in single precision."""
    model = LONG[request.param].model()
    with torch.no_grad():
        return model(), model.to(torch.float32)()


@pytest.fixture(scope="module")
def rows(circuits) -> torch.Tensor:
    """Samples, the same with values missing, and a row of which nothing is known."""
    x = circuits[0].sample(4, generator=torch.Generator().manual_seed(0)).float().double()
    return torch.cat([x, holes(x)])


def test_likelihoods(circuits, rows):
    double, single = (qpc.log_prob(rows) for qpc in circuits)
    assert double.isfinite().all()
    assert float(double[:4].max()) < -100  # far below what a float can hold as a probability
    assert_close(single.double(), double, rtol=1e-6, atol=1e-3)


def test_nothing_known(circuits):
    nothing = torch.full((1, circuits[0].event_shape[0]), math.nan)
    for qpc, eps in zip(circuits, (1e-12, 1e-4), strict=True):
        assert abs(float(qpc.log_prob(nothing))) < eps


def test_unlikely_values(circuits):
    """All variables at a value that hardly ever comes: still finite, and both precisions agree."""
    unlikely = torch.zeros(1, circuits[0].event_shape[0])
    if isinstance(circuits[0].families[0], pc.Gaussian):
        unlikely += 20.0
    if isinstance(circuits[0].families[0], pc.Poisson):
        unlikely += 40.0
    double, single = (qpc.log_prob(unlikely) for qpc in circuits)
    assert double.isfinite().all()
    assert_close(single.double(), double, rtol=1e-5, atol=1e-2)


def test_gradients(circuits, rows):
    found = []
    for qpc in circuits:
        tensors = [t.detach().clone().requires_grad_() for t in qpc.parameters.tensors]
        counts = (len(qpc.parameters.weights), len(qpc.parameters.mixtures))
        a, b = counts[0], sum(counts)
        parameters = type(qpc.parameters)(tuple(tensors[:a]), tuple(tensors[a:b]), tuple(tensors[b:]))
        qpc.compiled.log_prob(qpc._points(rows), parameters).sum().backward()
        found.append([t.grad for t in tensors])
    for double, single in zip(*found, strict=True):
        assert double.isfinite().all()
        assert single.isfinite().all()
        scale = float(double.abs().max())
        assert_close(single.double() / scale, double / scale, rtol=1e-2, atol=1e-3)


def test_marginals_add_up_to_one(circuits, rows):
    for qpc, eps in zip(circuits, (1e-10, 1e-4), strict=True):
        marginals = qpc.marginals(rows[4:6])
        assert_close(marginals.mean[0], qpc.mean(rows[4]), rtol=eps, atol=eps)
        total = torch.zeros(len(qpc.variables), 2, dtype=qpc.dtype)
        for part in marginals._components:
            total.index_add_(0, part.columns, part.weights.sum(1))
        assert_close(total, torch.ones_like(total), rtol=0, atol=eps)


def test_samples_given_half_of_the_values(circuits, rows):
    given = rows[4:6]
    for qpc in circuits:
        samples = qpc.sample(given=given, generator=torch.Generator().manual_seed(0))
        known = ~given.isnan()
        assert (samples[known] == given[known].to(qpc.dtype)).all()
        assert qpc.log_prob(samples).isfinite().all()


def test_completions_are_better_than_samples(circuits, rows):
    qpc = circuits[1]
    best = qpc.log_prob(qpc.mpe(rows[4:6]))
    drawn = qpc.log_prob(qpc.sample(given=rows[4:6], generator=torch.Generator().manual_seed(0)))
    assert (best > drawn).all()
