# SPDX-License-Identifier: Apache-2.0
"""Correlated Gaussian columns in the leaves of region graphs: below mixtures, and in leaves that are used twice."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.autograd import gradcheck
from torch.testing import assert_close

import picirc as pc
from block_circuits import make_pic
from picirc.inputs.correlated import Block
from table_circuits import Named, Unfolded, _ordered, _product, holes, near

TINY = 1e-4  # a p-value below this is a failure
REACH = 14.0
CLOSE = {"rtol": 1e-6, "atol": 1e-7}  # for numerical integrals

GRAPHS = {
    "two_halves": pc.random_regions(6, 0, repetitions=1, depth=1),
    "wide_leaves": pc.random_regions(6, 0, repetitions=2, depth=1),
    "one_region": pc.random_regions(3, 0, depth=0),
    "shared_leaf": pc.RegionGraph(
        scopes=((0, 1), (2,), (3, 4, 5), (2, 3, 4, 5), (0, 1, 2), (0, 1, 2, 3, 4, 5)),
        partitions=((), (), (), ((1, 2),), ((0, 1),), ((0, 3), (2, 4), (0, 1, 2))),
    ),
}
each_graph = pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)


def graph_circuit(graph: pc.RegionGraph) -> tuple[pc.PIC, pc.QPC]:
    model = make_pic(structure=graph, inputs=pc.Gaussian(min_std=0.3))
    with torch.no_grad():
        return model, model(pc.gauss_legendre(4))


def joint_density(block: Block, x: Tensor) -> Tensor:
    """The density of the observed columns in every state, by scipy: ``(states, batch)``."""
    found = torch.ones(block.params.shape[1], len(x), dtype=torch.float64)
    for k, b in np.ndindex(*found.shape):
        mean, std = block.params[:, k].T.numpy()
        seen = ~x[b].isnan().numpy()
        cov = (std[:, None] * block.matrix.numpy() * std)[np.ix_(seen, seen)]
        if seen.any():
            found[k, b] = stats.multivariate_normal(mean[seen], cov).pdf(x[b].numpy()[seen])
    return found


def graph_prob(model: pc.PIC, qpc: pc.QPC, x: Tensor) -> Tensor:
    """The value of the root by recursion; the first column of a block stands for all of them."""
    parameters = qpc.parameters.detach()
    states = len(parameters.inputs[0][0])
    view = SimpleNamespace(plan=model.plan, states=states, parameters_of_circuit=lambda: parameters)
    tables = Unfolded(view)  # type: ignore[arg-type]
    names = {(grid.pool, grid.row): grid.name for grid in qpc.grids}
    inputs: dict[tuple[str, int], Tensor] = {}
    for group in qpc.compiled.inputs:
        for slot, (column, row) in enumerate(zip(group.columns.tolist(), group.rows.tolist(), strict=True)):
            key = names[group.pool, row], column
            if group.correlation is None:
                params = parameters.inputs[group.params][slot : slot + 1]
                inputs[key] = joint_density(Block(pc.Gaussian(), params, torch.eye(1).double()), x[:, [column]])
            elif slot == 0:
                inputs[key] = joint_density(qpc.compiled.block(group, parameters), x[:, group.columns])
            else:
                inputs[key] = torch.ones(states, len(x), dtype=torch.float64)
    values: dict[int, Named] = {}
    for unit in model.plan.circuit.units:
        below = [values[id(child)] for child in unit.inputs]
        match unit:
            case pc.Input():
                (latent,) = unit.function.parents
                values[id(unit)] = (latent,), inputs[latent, int(unit.variable[1:])]
            case pc.Product():
                values[id(unit)] = _product(below)
            case pc.Sum():
                latents = below[0][0]
                parts = torch.stack([_ordered(part, latents) for part in below])
                weights = tables.mixtures[id(unit)][:, :1].view(-1, *(1 for _ in latents), 1)  # the same in all states
                values[id(unit)] = latents, (parts * weights).sum(0)
            case pc.Integral():
                latents, product = _product([*below, tables.weights[id(unit)]])
                rest = tuple(z for z in latents if z not in unit.variables)
                values[id(unit)] = rest, product.sum([latents.index(z) for z in unit.variables])
    return values[id(model.plan.circuit.root)][1]


@each_graph
def test_the_likelihood_of_a_region_graph(graph):
    model, qpc = graph_circuit(graph)
    assert qpc.parameters.correlations
    x = qpc.sample(5, generator=torch.Generator().manual_seed(0))
    x = torch.cat([x, holes(x)])
    assert_close(qpc.log_prob(x).exp(), graph_prob(model, qpc, x), **near())


def some_evidence(qpc: pc.QPC) -> Tensor:
    """One row, with the first two columns missing."""
    row = qpc.sample(generator=torch.Generator().manual_seed(2))
    row[:2] = math.nan
    return row


def nodes(low: float, high: float, count: int = 160) -> tuple[Tensor, Tensor]:
    points, weights = map(torch.tensor, np.polynomial.legendre.leggauss(count))
    half = (high - low) / 2
    return low + half * (points + 1), half * weights


@each_graph
def test_moments_of_a_region_graph(graph):
    """Against numerical integrals of its likelihood."""
    _, qpc = graph_circuit(graph)
    row = some_evidence(qpc)
    points, weights = nodes(-REACH, REACH)
    x = row.repeat(len(points) ** 2, 1)
    x[:, :2] = torch.cartesian_prod(points, points)
    p = qpc.log_prob(x, given=row).exp() * torch.cartesian_prod(weights, weights).prod(1)
    assert_close(float(p.sum()), 1.0, **CLOSE)
    mean = p @ x[:, :2]
    centred = x[:, :2] - mean
    cov = (centred.T * p) @ centred
    assert_close(qpc.mean(row)[:2], mean, **CLOSE)
    assert_close(qpc.variance(row)[:2], cov.diagonal(), **CLOSE)
    assert_close(qpc.covariance(row)[:2, :2], cov, **CLOSE)


@each_graph
def test_the_distribution_function_of_a_region_graph(graph):
    _, qpc = graph_circuit(graph)
    row = some_evidence(qpc)
    for column, end in ((0, -0.4), (1, 0.7)):
        points, weights = nodes(-REACH, end)
        x = row.repeat(len(points), 1)
        x[:, column] = points
        ends = torch.full((1, len(row)), math.nan, dtype=torch.float64)
        ends[0, column] = end
        assert_close(qpc.cdf(ends, given=row)[0], qpc.log_prob(x, given=row).exp() @ weights, **CLOSE)


@each_graph
def test_completions_of_a_region_graph(graph):
    """The first column is drawn from its distribution, and the second from its own given the first."""
    _, qpc = graph_circuit(graph)
    row = some_evidence(qpc)
    drawn = qpc.sample(2000, given=row, generator=torch.Generator().manual_seed(3))
    assert (drawn[:, 2:] == row[2:]).all()
    known = row.expand_as(drawn).clone()
    for column in (0, 1):
        ends = torch.full_like(drawn, math.nan)
        ends[:, column] = drawn[:, column]
        assert stats.kstest(qpc.cdf(ends, given=known).numpy(), "uniform").pvalue > TINY
        known[:, column] = drawn[:, column]
    best = torch.stack([qpc.mpe(row), qpc.mean(row)])
    assert torch.equal(best[0, 2:], row[2:])
    found, mean = qpc.log_prob(best)
    assert float(found) >= float(mean) - 1e-12


def test_gradients_of_a_region_graph():
    model = make_pic(structure=GRAPHS["shared_leaf"], inputs=pc.Gaussian(min_std=0.3), width=4)
    with torch.no_grad():
        x = model(pc.gauss_legendre(3)).sample(4, generator=torch.Generator().manual_seed(0))
    x = torch.cat([x, holes(x)])
    names, tensors = zip(*model.named_parameters(), strict=True)

    def log_prob(*values: Tensor) -> Tensor:
        parameters = dict(zip(names, values, strict=True))
        return torch.func.functional_call(model, parameters, (pc.gauss_legendre(3),)).log_prob(x)

    assert gradcheck(log_prob, tensors, fast_mode=True)


def test_tucker_products_are_refused():
    with pytest.raises(pc.ArgumentError, match="tucker"):
        pc.PIC(pc.quad_tree(2, 2), pc.Gaussian(), width=4, product="tucker", correlated=True)
