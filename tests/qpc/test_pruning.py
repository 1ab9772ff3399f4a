# SPDX-License-Identifier: Apache-2.0
"""Pruning: what it costs is bounded, and what is left is a circuit like any other."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

import picirc as pc
from cases import CASES, LG
from table_circuits import TABLES, Table, evidences, holes, near

CP = [name for name, table in TABLES.items() if table.product == "cp"]
each_cp = pytest.mark.parametrize("name", CP)


def sharp(table: Table) -> pc.QPC:
    """A circuit with some states that are hardly used."""
    model = table.model()
    with torch.no_grad():
        for weights in model.weights:
            weights *= 3.0
        return model()


@each_cp
@pytest.mark.parametrize("threshold", [1e-3, 0.05, 0.3])
def test_the_bound_holds(name, threshold):
    table = TABLES[name]
    qpc, x = sharp(table), table.joint().x
    pruned, bound = qpc.prune(threshold)
    p, q = qpc.log_prob(x).exp(), pruned.log_prob(x).exp()
    assert_close(q.sum(), torch.ones((), dtype=torch.float64), **near())
    assert float((p - q).abs().sum()) / 2 <= bound + 1e-12
    assert 0 <= bound < 1
    assert pruned.size <= qpc.size


def test_something_is_pruned():
    qpc = sharp(TABLES["tree"])
    pruned, bound = qpc.prune(0.05)
    assert pruned.size < qpc.size
    assert 0 < bound < 0.9


@each_cp
def test_nothing_is_pruned_at_zero(name):
    table = TABLES[name]
    qpc, x = table.qpc(), holes(table.joint().x)
    pruned, bound = qpc.prune(0.0)
    assert pruned.size == qpc.size
    assert bound < 1e-12
    assert_close(pruned.log_prob(x), qpc.log_prob(x), rtol=0, atol=1e-13)


@each_cp
def test_what_is_left_answers_all_queries(name):
    """The pruned circuit is consistent with its own joint distribution."""
    table = TABLES[name]
    pruned, _ = sharp(table).prune(0.1)
    joint = table.joint()
    joint.p = pruned.log_prob(joint.x).exp()
    for evidence in evidences(table)[:3]:
        conditional = joint.given(evidence)
        assert_close(pruned.mean(evidence), conditional.mean, **near())
        assert_close(pruned.covariance(evidence), conditional.covariance, **near())
        high = joint.x[len(joint.x) // 2][None]
        assert_close(pruned.cdf(high, given=evidence)[0], conditional.p[(joint.x <= high).all(1)].sum(), **near())
        assert float(pruned.log_prob(pruned.mpe(evidence)[None])) > -math.inf
    samples = pruned.sample(20, generator=torch.Generator().manual_seed(0))
    assert (pruned.log_prob(samples) > -math.inf).all()
    for posterior in pruned.latents(evidences(table)).values():
        assert_close(posterior.probabilities.sum(1), torch.ones(len(evidences(table))).double(), **near())
    again, bound = pruned.prune(0.0)
    assert again.size == pruned.size
    assert bound < 1e-12
    if pruned.properties.structured_decomposable:
        assert_close(pc.log_inner_product(pruned, pruned), joint.p.square().sum().log(), **near())


def test_gradients_stop_at_a_pruned_circuit():
    pruned, _ = TABLES["tree"].model()().prune(0.1)
    assert not any(t.requires_grad for t in pruned.parameters.tensors)


@pytest.mark.parametrize(
    "name", ["lg_tree", "lg_chain", "disconnected", "bare_latent", "bernoulli", "sums", "two_structures"]
)
def test_integral_circuits(name):
    """Grid points in the tails carry nothing: most can go at almost no cost, and latents keep their values."""
    case = CASES[name]
    qpc, x = case.integrate(pc.gauss_legendre(48)), case.data()
    pruned, bound = qpc.prune(1e-7)
    assert pruned.size < 0.9 * qpc.size
    assert bound < 1e-4
    assert_close(pruned.log_prob(x), qpc.log_prob(x), rtol=0, atol=1e-2)
    nothing = torch.full((1, len(case.columns)), math.nan)
    assert_close(pruned.log_prob(nothing), qpc.log_prob(nothing), **near())
    before, after = qpc.latents(x), pruned.latents(x)
    for latent, posterior in after.items():
        assert_close(posterior.mean, before[latent].mean, rtol=1e-3, atol=1e-3)
        assert posterior.grid.shape == posterior.probabilities.shape[1:]


def test_a_product_of_mixtures_keeps_its_mass():
    """The root has no integral of its own that could be divided by the mass."""

    def mixture(x: str) -> pc.Sum:
        names = [f"{x}{k}" for k in range(2)]
        parts = [pc.Integral(z, pc.Input(x, LG({z: 1.0}, std=0.5)), LG(bias=float(k))) for k, z in enumerate(names)]
        return pc.Sum(parts, [0.4, 0.6])

    qpc = pc.Circuit(pc.Product(mixture("x"), mixture("y"))).integrate(pc.gauss_legendre(24))
    pruned, bound = qpc.prune(1e-2)
    assert bound > 1e-3
    nothing = torch.full((1, 2), math.nan)
    assert_close(pruned.log_prob(nothing), qpc.log_prob(nothing), **near())


def test_a_latent_with_different_states_in_different_places_has_no_grid():
    parts = [pc.Integral("z", pc.Input("x", LG({"z": a})), LG(bias=b, std=0.7)) for a, b in ((1.0, 2.0), (0.5, -2.0))]
    qpc = pc.Circuit(pc.Sum(parts, [0.5, 0.5])).integrate(pc.gauss_legendre(40), domain={"z": (-6.0, 6.0)})
    x = torch.tensor([[0.0], [1.0]])
    pruned, _ = qpc.prune(1e-5)
    posterior, expected = pruned.latents(x)["z"], qpc.latents(x)["z"]
    assert posterior.grid is None
    assert expected.grid is not None
    assert_close(posterior.mean, expected.mean, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["quad_graph_tucker", "three_parts_tucker", "quad_tree_tucker"])
def test_functions_of_several_latents_are_refused(name):
    with pytest.raises(pc.StructureError, match=r"pruning needs a circuit in which every function has one latent"):
        TABLES[name].qpc().prune(0.1)


@pytest.mark.parametrize("name", ["lg_dag", "shared_by_sums"])
def test_other_circuits_are_refused(name):
    with pytest.raises(pc.StructureError, match="pruning needs a circuit"):
        CASES[name].integrate(pc.gauss_legendre(6)).prune(0.1)


@pytest.mark.parametrize("threshold", [-0.1, 1.0, math.nan, "0.1", True])
def test_wrong_thresholds_are_refused(threshold):
    with pytest.raises(pc.ArgumentError, match="threshold: expected a probability from 0 to below 1"):
        TABLES["tree"].qpc().prune(threshold)
