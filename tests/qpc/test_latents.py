# SPDX-License-Identifier: Apache-2.0
"""Posteriors of the latents: by restricting one to a single state, and in closed form where there is one."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from normals import each_net, given
from torch.testing import assert_close

import picirc as pc
from cases import CASES
from oracles import joint_normal
from table_circuits import TABLES, Unfolded, each_table, evidences, near


def close(found: torch.Tensor, expected: torch.Tensor, tol: float = 1e-6) -> None:
    assert_close(found, expected, rtol=tol, atol=tol)


@each_table
def test_states_of_table_circuits(table):
    """A latent below a sum unit need not have a value; its states are then those given that it has one."""
    qpc, model, x = table.qpc(), table.model(), evidences(table)
    found = qpc.latents(x)
    total = Unfolded(model).prob(x)
    assert set(found) == set(model.plan.circuit.latents)
    for name, posterior in found.items():
        without = Unfolded(model, only={name: -1}).prob(x)
        shares = [Unfolded(model, only={name: s}).prob(x) - without for s in range(model.states)]
        expected = torch.stack(shares, 1)
        assert_close(posterior.presence, 1 - without / total, **near())
        assert_close(posterior.probabilities, expected / (total - without).unsqueeze(1), **near())


def test_states_without_values_have_no_moments():
    posterior = TABLES["tree"].qpc().latents(torch.zeros(2, 5))["z1"]
    assert posterior.mean is posterior.variance is posterior.grid is posterior.weights is None
    assert posterior.entropy.shape == (2,)
    p = posterior.probabilities
    assert_close(posterior.entropy, -(p * p.log()).sum(1), **near())
    with pytest.raises(
        pc.ArgumentError, match=r"a latent with a fixed grid, for a density of 'z1'.*use .probabilities"
    ):
        _ = posterior.density


@each_net
def test_a_linear_gaussian(name):
    """The posterior given some observations is normal."""
    case = CASES[name]
    qpc = case.integrate()
    names, mean, cov = joint_normal(case.net)
    x = case.data()
    found = qpc.latents(x)
    for row in range(len(x)):
        known = torch.full((len(names),), math.nan, dtype=torch.float64)
        known[[names.index(v) for v in qpc.variables]] = x[row]
        centre, spread = given(torch.as_tensor(mean), torch.as_tensor(cov), known)
        for latent, posterior in found.items():
            i = names.index(latent)
            mu, var = centre[i], spread[i, i]
            close(posterior.mean[row], mu)
            close(posterior.variance[row], var)
            close(posterior.entropy[row], 0.5 * torch.log(2 * math.pi * math.e * var))
            density = torch.exp(-0.5 * (posterior.grid - mu) ** 2 / var) / torch.sqrt(2 * math.pi * var)
            close(posterior.density[row], density, 1e-5)
            close(posterior.density[row] @ posterior.weights, torch.ones((), dtype=torch.float64))


@pytest.mark.parametrize("name", CASES)
def test_densities_integrate_to_one(name):
    case = CASES[name]
    qpc = case.integrate(pc.gauss_legendre(12))
    x = case.data()
    for posterior in qpc.latents(x).values():
        ones = torch.ones(len(x), dtype=torch.float64)
        assert_close(posterior.probabilities.sum(1), ones, **near())
        assert_close(posterior.density @ posterior.weights, ones, **near())
        assert_close(posterior.mean, posterior.probabilities @ posterior.grid, **near())
        centred = posterior.grid - posterior.mean.unsqueeze(1)
        assert_close(posterior.variance, (posterior.probabilities * centred**2).sum(1), **near())


def test_points_that_move_have_moments_but_no_grid():
    case = CASES["lg_tree"]
    nested = case.circuit.integrate(pc.gauss_hermite(24), nested=True)
    x = case.data()
    exact, found = case.integrate().latents(x), nested.latents(x)
    for name in ("z1", "z2", "z3"):
        close(found[name].mean, exact[name].mean, 1e-3)
        close(found[name].variance, exact[name].variance, 1e-3)
    assert found["z1"].grid is not None  # the root's points do not move
    assert found["z2"].grid is None
    with pytest.raises(pc.ArgumentError, match="points that move"):
        _ = found["z2"].density


def test_a_mask_hides_values():
    qpc, x = TABLES["tree"].qpc(), torch.zeros(3, 5)
    mask = torch.tensor([[False, True, False, False, True]] * 3)
    masked, missing = qpc.latents(x, mask=mask), qpc.latents(x.masked_fill(mask, math.nan))
    for name, posterior in masked.items():
        assert_close(posterior.probabilities, missing[name].probabilities, rtol=0, atol=0)


def test_the_values_of_a_learned_latent():
    """A neural circuit has the grid of its rule."""
    qpc = pc.PIC(pc.chain(3), inputs=pc.Bernoulli(), width=8)(pc.trapezoidal(16))
    posterior = qpc.latents(torch.tensor([[0.0, 1.0, math.nan]]))["z1"]
    assert_close(posterior.grid, torch.linspace(-1, 1, 16), **near(torch.float32))
    assert_close(posterior.density @ posterior.weights, torch.ones(1), **near(torch.float32))


def test_absent_without_doubt():
    """A component that cannot have produced a data point: its latent has no posterior, the others do."""

    def component(z: str, shift: float) -> pc.Integral:
        x = pc.Input("x", pc.LinearGaussian({z: 1.0}, std=0.1))
        return pc.Integral(z, x, pc.LinearGaussian(bias=shift, std=0.1))

    circuit = pc.Circuit(pc.Sum([component("near", 0.0), component("far", 50.0)], [0.5, 0.5]))
    found = circuit.integrate(pc.gauss_legendre(24)).latents(torch.tensor([[0.1]]))
    assert found["far"].presence.item() == 0.0
    assert found["far"].mean.isnan().all()
    assert found["near"].presence.item() == pytest.approx(1.0)
    assert found["near"].mean.item() == pytest.approx(0.05, abs=1e-6)


def test_in_parts(monkeypatch):

    qpc, x = CASES["lg_dag"].circuit.integrate(pc.gauss_legendre(8)), CASES["lg_dag"].data()
    whole = qpc.latents(x)
    monkeypatch.setattr("picirc.engine.compiled.BUDGET", 3 * qpc.compiled.elements)
    for name, posterior in qpc.latents(x).items():
        assert_close(posterior.probabilities, whole[name].probabilities, **near())
        assert_close(posterior.mean, whole[name].mean, **near())


def test_numpy_is_welcome():
    qpc = TABLES["tree"].qpc()
    assert_close(qpc.latents(np.zeros((2, 5)))["z0"].probabilities, qpc.latents(torch.zeros(2, 5))["z0"].probabilities)
