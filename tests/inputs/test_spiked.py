# SPDX-License-Identifier: Apache-2.0
"""Gaussians with atoms, against sums over the atoms and integrals over the rest."""

from __future__ import annotations

import itertools

import pytest
import torch
from scipy import integrate

import picirc as pc
from picirc.inputs import Spiked

FAMILY = Spiked((-3.0, 0.5), min_std=0.1)


@pytest.fixture
def params() -> torch.Tensor:
    raw = torch.randn(2, 3, FAMILY.size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return FAMILY.constrain(raw)


def integral(params: torch.Tensor, power: int, low: float = -20.0, high: float = 20.0) -> float:
    """``E[X^power; low ≤ X ≤ high]`` of one state."""
    one = params.view(1, 1, -1)

    def density(x: float) -> float:
        return float(x**power * FAMILY.log_prob(one, torch.tensor([[x]], dtype=torch.float64)).exp())

    kinks = [a for a in FAMILY.atoms if low < a < high]
    atoms = sum(density(a) for a in FAMILY.atoms if low <= a <= high)
    edges = [low, *kinks, high]
    parts = [integrate.quad(density, a + 1e-9, b - 1e-9, limit=200)[0] for a, b in itertools.pairwise(edges)]
    return atoms + sum(parts)


def test_mass_mean_and_variance_are_those_of_atoms_and_density(params):
    for state in params.view(-1, FAMILY.size):
        mean = integral(state, 1)
        assert integral(state, 0) == pytest.approx(1.0, rel=1e-6)
        assert float(FAMILY.mean(state)) == pytest.approx(mean, abs=1e-6)
        assert float(FAMILY.variance(state)) == pytest.approx(integral(state, 2) - mean**2, rel=1e-5)


@pytest.mark.parametrize(("low", "high"), [(-3.0, 0.5), (-2.9, 0.4), (0.5, 0.5), (-20.0, 0.0)])
def test_intervals_include_the_atoms_at_their_ends(params, low, high):
    ends = (torch.full((2, 1), end, dtype=torch.float64) for end in (low, high))
    found = FAMILY.log_interval(params, *ends).exp()
    for fold in range(2):
        for state in range(3):
            expected = integral(params[fold, state], 0, low, high)
            assert float(found[fold, state, 0]) == pytest.approx(expected, rel=1e-5, abs=1e-7)


def test_the_distribution_function_jumps_at_atoms(params):
    x = torch.tensor([[0.5 - 1e-12, 0.5]] * 2, dtype=torch.float64)
    jump = FAMILY.cdf(params, x).diff(dim=-1).squeeze(-1)
    torch.testing.assert_close(jump, params[..., 2].exp(), rtol=1e-6, atol=1e-9)


def test_draws_have_the_frequencies_of_the_atoms(params):
    many = params[0, 0].expand(20_000, -1)
    drawn = FAMILY.sample(many, torch.Generator().manual_seed(0))
    for place, atom in enumerate(FAMILY.atoms, 1):
        p = float(many[0, place].exp())
        assert float((drawn == atom).double().mean()) == pytest.approx(p, abs=4 * (p * (1 - p) / 20_000) ** 0.5)
    assert float(drawn.mean()) == pytest.approx(float(FAMILY.mean(many[0])), abs=0.1)


def test_raw_numbers_and_start_values():
    x = torch.tensor([[0.5, 0.5, 0.5, -3.0, 1.0, 2.0, 3.0, float("nan")]], dtype=torch.float64)
    start, gain = FAMILY.raw_start(x)
    params = FAMILY.constrain(start)
    assert gain.shape == start.shape == (1, FAMILY.size)
    torch.testing.assert_close(params[0, :3].exp(), torch.tensor([4.0, 2.0, 4.0], dtype=torch.float64) / 10)
    assert float(params[0, -2]) == pytest.approx(2.0)
    torch.testing.assert_close(FAMILY.constrain(FAMILY.unconstrain(params)), params)
    assert float(FAMILY.mode(params)) in (2.0, 0.5)


def test_single_precision_finds_its_atoms():
    family = Spiked((0.1,))
    params = family.constrain(torch.zeros(1, 1, family.size))
    x = torch.tensor([[family.atoms[0]]], dtype=torch.float32)
    assert float(family.log_prob(params, x).exp()) == pytest.approx(0.5)
    assert family == Spiked([0.1])


@pytest.mark.parametrize("atoms", [(), (1.0, 1.0), (2.0, 1.0), (float("nan"),), "ab", (True,), (1e300,)])
def test_atoms_are_checked(atoms):
    with pytest.raises(pc.ArgumentError, match="atoms"):
        Spiked(atoms)


def test_a_step_of_em_finds_shares_and_moments(params):
    source = torch.Generator().manual_seed(1)
    x = torch.randn(2, 60, generator=source, dtype=torch.float64)
    x[:, ::3], x[:, 1::9] = -3.0, 0.5
    flows = torch.rand(2, 3, 60, generator=source, dtype=torch.float64)
    found = FAMILY.from_statistics(params, FAMILY.expected_statistics(params, x, flows))
    for fold, state in itertools.product(range(2), range(3)):
        weights, values = flows[fold, state], x[fold]
        rest = (values != -3.0) & (values != 0.5)
        shares = torch.stack([weights[rest].sum(), weights[values == -3.0].sum(), weights[values == 0.5].sum()])
        torch.testing.assert_close(found[fold, state, :3].exp(), shares / weights.sum())
        own = weights[rest] / weights[rest].sum()
        mean = (own * values[rest]).sum()
        spread = (own * (values[rest] - mean).square()).sum().sqrt()
        torch.testing.assert_close(found[fold, state, 3:], torch.stack((mean, spread)))
    halfway = FAMILY.mix(params, found, 0.5)
    torch.testing.assert_close(halfway[..., :3].exp(), (params[..., :3].exp() + found[..., :3].exp()) / 2)
