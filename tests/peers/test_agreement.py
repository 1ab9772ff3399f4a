# SPDX-License-Identifier: Apache-2.0
"""Other libraries, where they are installed, give the same answers for the same circuits with the same parameters.

``make bench-peers`` runs these tests in an environment that has the libraries.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch

import picirc as pc

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
STATES, CATEGORIES, ROWS = 3, 5, 6  # all different, so that a confusion of axes cannot go unnoticed
TOLERANCE = 1e-10

TREES = {
    "one variable": pc.chain(1),
    "chain": pc.chain(6),
    "star": pc.LatentTree.from_edges([(0, i) for i in range(1, 6)]),
    "random": pc.random_tree(30, seed=3),
    "deep": pc.random_tree(40, seed=4, depth=15),
}
IMAGES = [(1, 2), (2, 2), (3, 3), (4, 4), (5, 7), (8, 3)]
CIRCUITS = [
    *(("cirkit", image) for image in IMAGES),
    *(("cirkit", tree) for tree in TREES if tree != "one variable"),  # there cirkit has no sum
    *(("spflow", tree) for tree in TREES),
]

pytestmark = pytest.mark.filterwarnings("default")  # the other libraries' warnings are not ours to fix


@pytest.fixture(autouse=True)
def _double_precision():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def cirkit(monkeypatch):
    pytest.importorskip("cirkit", reason="libcirkit is not installed; make bench-peers installs it")
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("peer_cirkit")


@pytest.fixture
def spflow(monkeypatch):
    pytest.importorskip("spflow", reason="spflow is not installed; make bench-peers installs it")
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("peer_spflow")


@pytest.fixture(params=CIRCUITS, ids=str)
def pair(request):
    """One circuit in picirc and in another library."""
    peer, structure = request.param
    module = request.getfixturevalue(peer)
    if peer == "spflow":
        return module.pair(TREES[structure], STATES, CATEGORIES)
    graph = module.quad_graph(*structure) if isinstance(structure, tuple) else module.chow_liu(TREES[structure])
    return module.pair(graph, STATES, CATEGORIES)


def points(pair, generator):
    shape = (ROWS, len(pair.ours.families))
    return torch.randint(CATEGORIES, shape, generator=generator).to(torch.get_default_dtype())


def input_gradients(module):
    """The derivatives of all tables of categories, in ascending order."""
    found = [p.grad.flatten() for p in module.parameters() if p.shape[-1] == CATEGORIES]
    return torch.cat(found).sort().values


def test_the_log_likelihoods_agree(pair, generator):
    x = points(pair, generator)
    mine, theirs = pair.ours().log_prob(x), pair.log_prob(x)
    assert theirs.dtype == torch.float64
    torch.testing.assert_close(mine, theirs, rtol=TOLERANCE, atol=0)


def test_the_gradients_agree(pair, generator):
    x = points(pair, generator)
    pair.ours().log_prob(x).sum().backward()
    pair.log_prob(x).sum().backward()
    mine, theirs = input_gradients(pair.ours), input_gradients(pair.theirs)
    assert len(mine) == x.shape[1] * STATES * CATEGORIES
    torch.testing.assert_close(mine, theirs, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("shape", [*IMAGES, (28, 28)])
def test_quad_graphs_are_the_same(cirkit, shape):
    def ways(graph):
        scope = graph.scopes.__getitem__
        return {
            scope(region): {frozenset(map(scope, partition)) for partition in partitions}
            for region, partitions in enumerate(graph.partitions)
        }

    assert ways(cirkit.as_regions(cirkit.quad_graph(*shape))) == ways(pc.quad_graph(*shape))


@pytest.mark.parametrize("shape", [(3, 3), (4, 4)])
def test_marginals_agree_with_cirkit(cirkit, shape, generator):
    queries = importlib.import_module("cirkit.backend.torch.queries")
    pair = cirkit.pair(cirkit.quad_graph(*shape), STATES, CATEGORIES)
    x = points(pair, generator)
    missing = torch.rand(x.shape, generator=generator) < 0.5
    mine = pair.ours().log_prob(x, mask=missing)
    theirs = queries.IntegrateQuery(pair.theirs)(x.long(), integrate_vars=missing)[:, 0, 0]
    torch.testing.assert_close(mine, theirs, rtol=TOLERANCE, atol=0)


@pytest.mark.parametrize("name", TREES)
def test_marginals_agree_with_spflow(spflow, name, generator):
    pair = spflow.pair(TREES[name], STATES, CATEGORIES)
    x = points(pair, generator)
    x[torch.rand(x.shape, generator=generator) < 0.5] = torch.nan
    torch.testing.assert_close(pair.ours().log_prob(x), pair.log_prob(x), rtol=TOLERANCE, atol=TOLERANCE)
