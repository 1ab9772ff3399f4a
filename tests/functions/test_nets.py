# SPDX-License-Identifier: Apache-2.0
"""Banks of nets against the formulas written out, one function and one point at a time."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

import picirc as pc
from neural import SHARING, each_sharing
from picirc.functions import energy, nets
from picirc.functions.energy import ENERGIES, composite_weights, separate_weights
from picirc.functions.nets import Bank, Features

WIDTH, ROWS = 6, 5
each_energy = pytest.mark.parametrize("name", list(ENERGIES))


def features_of(features: Features, z: np.ndarray) -> np.ndarray:
    """The first layer at one point, in the order of the implementation: all cosines, then all sines."""
    rows = features.frequencies.detach().numpy()
    if not features.fourier:
        return np.tanh(rows @ z + features.bias.detach().numpy())
    angle = 2 * np.pi * np.array([f @ z for f in rows])
    return math.sqrt(2) * np.concatenate([np.cos(angle), np.sin(angle)])


def value_of(bank: Bank, row: int, z: np.ndarray) -> np.ndarray:
    """All outputs of one function at one point."""
    own, head = (row % len(t) for t in (bank.hidden, bank.head))  # a single one stands for all
    parameters = (bank.hidden[own], bank.hidden_bias[own], bank.head[head], bank.head_bias[head])
    w, b, v, c = (p.detach().numpy() for p in parameters)
    return v @ np.tanh(w @ features_of(bank.features, z) + b) + c


def make(sharing: str, arguments: int = 2, outputs: int = 1, fourier: bool = True, learnable: bool = False) -> Bank:
    generator = torch.Generator().manual_seed(1)
    return Bank(ROWS, arguments, outputs, WIDTH, sharing, fourier, 1.0, learnable, generator).double()


def grid(points: int, arguments: int) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return 2 * torch.rand(points, arguments, generator=generator, dtype=torch.float64) - 1


@each_sharing
@pytest.mark.parametrize("fourier", [True, False])
@pytest.mark.parametrize("arguments", [1, 2, 3])
def test_a_bank_evaluates_every_function_at_every_point(sharing, fourier, arguments):
    bank, z = make(sharing, arguments, 4, fourier), grid(7, arguments)
    found = bank(z, lambda values: values.mT).detach()
    assert found.shape == (1 if sharing == "full" else ROWS, 4, 7)
    for row in range(ROWS):
        for point in range(7):
            expected = value_of(bank, row, z[point].numpy())
            np.testing.assert_allclose(found[row % len(found), :, point], expected, rtol=1e-11, atol=1e-12)


@each_sharing
@pytest.mark.parametrize("piece", [1, 3 * WIDTH * 7, 10**6])
def test_the_size_of_a_piece_changes_nothing(sharing, piece, monkeypatch):
    z, target = grid(7, 2), torch.linspace(0, 1, 7, dtype=torch.float64)

    def outcome() -> list[Tensor]:
        bank = make(sharing, learnable=True)
        found = bank(z, lambda values: (values.mT * target).sin())
        found.sum().backward()
        return [found.detach(), *(p.grad for p in bank.parameters())]

    expected = outcome()
    monkeypatch.setattr(nets, "_PIECE_ELEMENTS", piece)
    for one, other in zip(expected, outcome(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13)


@each_sharing
@each_energy
@pytest.mark.parametrize("integrated", [1, 2])
def test_sum_weights_are_those_of_the_paper(sharing, name, integrated):
    """Equations 5 to 8: energies, normalisation constants, densities, sum parameters."""
    energy_of = {"unbounded": lambda f: 3 * f, "softplus": lambda f: np.logaddexp(0, f)}[name]
    bank = make(sharing, 1 + integrated)
    rule = pc.gauss_legendre(4)
    k = np.stack(np.meshgrid(*[rule.points] * integrated, indexing="ij"), -1).reshape(-1, integrated)
    weights = rule.weights if integrated == 1 else np.outer(rule.weights, rule.weights).ravel()
    z = np.array([[point, *rest] for point in rule.points for rest in k])
    found = bank.sum_weights(torch.tensor(z), torch.tensor(weights).log(), ENERGIES[name]).detach()
    assert found.shape == (1 if sharing == "full" else ROWS, 1, 4, len(k))
    for i in range(len(found)):
        for j, given in enumerate(rule.points):
            energy = np.array([energy_of(value_of(bank, i, np.array([given, *rest]))[0]) for rest in k])
            constant = sum(w * math.exp(-e) for w, e in zip(weights, energy, strict=True))
            density = np.exp(-energy) / constant
            np.testing.assert_allclose(found[i, 0, j], weights * density, rtol=1e-11)


def parameters_of_weights(rows: int = 3, given: int = 2, states: int = 4) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = [(rows, WIDTH), (rows,), (WIDTH, given * states)]
    return [torch.randn(s, generator=generator, dtype=torch.float64, requires_grad=True) for s in shapes]


LOG_WEIGHTS = torch.tensor([0.1, 0.4, 0.4, 0.1], dtype=torch.float64).log()


@each_energy
@pytest.mark.parametrize(("elements", "points"), [(1, 1), (17, 9), (1000, 9), (17, 1000), (1000, 1000)])
def test_weights_of_shared_nets_have_the_right_gradient(name, elements, points, monkeypatch):
    kind = ENERGIES[name]
    monkeypatch.setattr(energy, "_TILE_POINTS", points)  # tiles of some functions, at some of the given states
    tensors = parameters_of_weights(given=5)
    assert torch.autograd.gradcheck(lambda *t: composite_weights(*t, LOG_WEIGHTS, kind, elements), tensors)
    head, bias, hidden = tensors
    values = (head @ hidden + bias.unsqueeze(1)).view(3, 5, 4)
    found = composite_weights(*tensors, LOG_WEIGHTS, kind, elements)
    torch.testing.assert_close(found, kind.normalise(values, LOG_WEIGHTS))


@each_energy
@pytest.mark.parametrize("size", [1, 2, 10])
def test_weights_of_separate_nets_have_the_right_gradient(name, size):
    kind = ENERGIES[name]
    generator = torch.Generator().manual_seed(4)
    shapes = [(3, WIDTH, WIDTH), (3, WIDTH), (3, WIDTH), (3,), (WIDTH, 8)]
    tensors = [torch.randn(s, generator=generator, dtype=torch.float64, requires_grad=True) for s in shapes]
    assert torch.autograd.gradcheck(lambda *t: separate_weights(*t, LOG_WEIGHTS, kind, size), tensors)
    hidden, hidden_bias, head, bias, features = tensors
    active = torch.tanh(hidden @ features + hidden_bias.unsqueeze(2))
    values = (torch.einsum("rw,rwp->rp", head, active) + bias.unsqueeze(1)).view(3, 2, 4)
    found = separate_weights(*tensors, LOG_WEIGHTS, kind, size)
    torch.testing.assert_close(found, kind.normalise(values, LOG_WEIGHTS))


@each_energy
@pytest.mark.parametrize("scale", [1e-6, 1.0, 40.0, 1e4])
def test_weights_of_shared_nets_stay_finite_in_single_precision(name, scale):
    kind = ENERGIES[name]
    head, bias, hidden = (t.detach().float() for t in parameters_of_weights())
    tensors = [(scale * head).requires_grad_(), bias.requires_grad_(), hidden.requires_grad_()]
    flow = torch.linspace(-1, 1, 3 * 2 * 4).view(3, 2, 4)
    found = composite_weights(*tensors, LOG_WEIGHTS.float(), kind, 16)
    torch.testing.assert_close(found.sum(-1), torch.ones(3, 2))
    wide = [t.detach().double().requires_grad_() for t in tensors]
    values = (wide[0] @ wide[2] + wide[1].unsqueeze(1)).view(3, 2, 4)
    exact = torch.autograd.grad(kind.normalise(values, LOG_WEIGHTS), wide, flow.double())
    for one, other in zip(torch.autograd.grad(found, tensors, flow), exact, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-6 * max(1.0, scale))


@each_energy
@pytest.mark.parametrize("level", [-1e4, -100.0, 0.0, 60.0, 80.0, 100.0, 1e4])
def test_only_differences_of_large_energies_count(name, level):
    """Also where exp(−energy) is no number any more, for all points of a row or for all but some rows."""
    kind = ENERGIES[name]
    values = level + torch.linspace(-3, 3, 24).view(3, 2, 4)
    values[1] -= level
    nets = [torch.eye(3), torch.zeros(3), values.flatten(1)]
    expected = kind.normalise(values.double(), LOG_WEIGHTS)
    tensors = [t.requires_grad_() for t in nets]
    found = composite_weights(*tensors, LOG_WEIGHTS.float(), kind, 16)
    rounding = max(1.0, abs(level)) * 6e-7  # energies are up to three times the level
    torch.testing.assert_close(found.double(), expected, rtol=4 * rounding, atol=1e-7)
    flow = torch.linspace(-1, 1, 24).view(3, 2, 4)
    wide = values.double().requires_grad_()
    (exact,) = torch.autograd.grad(kind.normalise(wide, LOG_WEIGHTS), wide, flow.double())
    (hidden,) = torch.autograd.grad(found, tensors[2], flow)
    torch.testing.assert_close(hidden.double().view(3, 2, 4), exact, rtol=1e-4, atol=1e-6 + rounding)


@pytest.mark.parametrize("fourier", [True, False])
@pytest.mark.parametrize("learnable", [True, False])
def test_frequencies_are_trained_only_when_asked(fourier, learnable):
    bank = make("composite", fourier=fourier, learnable=learnable)
    trained = {name for name, _ in bank.features.named_parameters()}
    fixed = {name for name, _ in bank.features.named_buffers()}
    if not fourier:  # an ordinary layer
        assert (trained, fixed) == ({"frequencies", "bias"}, set())
    elif learnable:
        assert (trained, fixed) == ({"frequencies"}, set())
    else:
        assert (trained, fixed) == (set(), {"frequencies"})
    bank(grid(4, 2), lambda values: values).sum().backward()
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in bank.parameters())


def test_sigma_scales_the_frequencies():
    one, three = (Features(2, 400, True, sigma, False, torch.Generator().manual_seed(0)) for sigma in (1.0, 3.0))
    torch.testing.assert_close(3 * one.frequencies, three.frequencies)
    assert one.frequencies.std() == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("arguments", [1, 2, 3])
def test_frequencies_are_spread_evenly_whatever_the_seed(arguments):
    """Normal quantiles of scrambled Sobol points: each seed has its own, and none is lucky."""
    drawn = [Features(arguments, 256, True, 1.0, False, torch.Generator().manual_seed(seed)) for seed in range(5)]
    for one, other in itertools.pairwise(drawn):
        assert not torch.equal(one.frequencies, other.frequencies)
    for features in drawn:
        quantiles = torch.special.ndtr(features.frequencies)
        for axis in quantiles.T:  # one point in each of 128 cells
            assert len({int(128 * q) for q in axis}) == 128


def test_the_sizes_of_the_three_kinds_of_sharing():
    sizes = [sum(p.numel() for p in make(sharing, outputs=3).parameters()) for sharing in SHARING]
    hidden, head = WIDTH * WIDTH + WIDTH, 3 * WIDTH + 3
    assert sizes == [ROWS * (hidden + head), hidden + ROWS * head, hidden + head]


@each_sharing
def test_the_activations_of_the_functions_are_not_kept(sharing):
    """What autograd keeps must not grow with the number of functions times their width times the points."""
    points, rows, width = 400, 40, 16
    bank = Bank(rows, 2, 1, width, sharing)
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    log_weights = torch.full((20,), 0.1).log()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        bank.sum_weights(grid(points, 2).float(), log_weights, ENERGIES["unbounded"])
    parameters = sum(p.numel() for p in bank.parameters())
    once, result = width * points, rows * points
    assert sum(kept.values()) <= parameters + 4 * once + 2 * result
    assert parameters + 4 * once + 2 * result < rows * width * points  # so that the line above says something


def test_the_same_seed_gives_the_same_functions():
    def bank(seed: int) -> Bank:
        return Bank(2, 1, 1, 4, "none", generator=torch.Generator().manual_seed(seed))

    assert all(
        torch.equal(a, b) for a, b in zip(bank(0).state_dict().values(), bank(0).state_dict().values(), strict=True)
    )
    assert not torch.equal(bank(0).hidden, bank(1).hidden)


def test_an_unknown_kind_of_sharing_is_refused():
    with pytest.raises(pc.ArgumentError, match=r"sharing: expected 'none' or 'composite' or 'full', got all"):
        Bank(1, 1, 1, 2, "all")
