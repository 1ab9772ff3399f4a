# SPDX-License-Identifier: Apache-2.0
"""Circuits whose functions are written in PyTorch are trained like models."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import picirc as pc


class Loading(nn.Module):
    """Mean ``a z`` and the standard deviation 1."""

    def __init__(self, loading: float) -> None:
        super().__init__()
        self.loading = nn.Parameter(torch.tensor(loading, dtype=torch.float64))

    def forward(self, z: Tensor) -> Tensor:
        return torch.stack([self.loading * z, torch.ones_like(z)], -1)


def factor_model(loading: float) -> pc.Circuit:
    link = Loading(loading)
    net = pc.BayesNet()
    net.latent("z", pc.LinearGaussian(std=1.0))
    for name in ("x", "y"):
        net.observed(name, pc.Conditional(pc.Gaussian(), link, ["z"]))
    return pc.from_bayesnet(net)


def test_a_circuit_learns_the_loading_of_its_factor():
    """Two columns with covariance a²: the maximum of the likelihood is near the a that made the data."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal((2000, 1))
    x = 1.5 * z + rng.standard_normal((2000, 2))
    circuit = factor_model(0.3)
    trained, history = pc.fit(
        circuit, x, steps=150, batch_size=500, rule=pc.gauss_legendre(24), schedule=pc.Cosine(0.05)
    )
    (found,), (start,) = (list(c.functions.parameters()) for c in (trained, circuit))
    assert float(found.detach()) == pytest.approx(1.5, abs=0.1)
    assert float(start.detach()) == pytest.approx(0.3)  # the circuit that was given is not changed
    assert isinstance(trained, pc.Circuit)
    assert len(trained.functions) == 1  # shared by both columns, and still so
    assert history.best["train"] > -3.85  # the truth has −3.69


def test_a_circuit_without_parameters_is_refused():
    net = pc.BayesNet()
    net.latent("z", pc.LinearGaussian(std=1.0))
    net.observed("x", pc.LinearGaussian({"z": 1.0}, std=0.3))
    with pytest.raises(pc.ArgumentError, match="model: expected a circuit with parameters to learn"):
        pc.fit(pc.from_bayesnet(net), np.zeros((4, 1)))


def test_a_circuit_is_trained_with_fixed_points():
    with pytest.raises(pc.ArgumentError, match="rule: expected a quadrature rule"):
        pc.fit(factor_model(1.0), np.zeros((4, 2)), rule=pc.shifted(8))
