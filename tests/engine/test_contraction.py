# SPDX-License-Identifier: Apache-2.0
"""Single steps: scaling of rows over huge ranges, and products with maxima in pieces of every size."""

from __future__ import annotations

import math

import pytest
import torch

import picirc as pc
from cases import CASES, Case
from picirc.engine.contraction import LEAST, mix_down, mix_up, scale_rows
from picirc.qpc import mpe


@pytest.mark.parametrize("states", [5, 64, 72])  # maxima in one stage and in two
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spread", [1.0, 1e3])  # with nothing below the smallest number that counts, and with much
def test_scaled_rows_with_their_shifts_are_the_rows(states: int, dtype: torch.dtype, spread: float):
    rng = torch.Generator().manual_seed(0)
    rows = spread * torch.randn(4, states, 3, generator=rng, dtype=dtype)
    rows[1, 0], rows[2, :, 1] = -math.inf, -math.inf  # an impossible state, and a row without a possible one
    scaled, pool = rows.clone(), torch.full((6, 3), math.nan, dtype=dtype)
    shift = scale_rows(scaled, pool[1:5].unsqueeze(1))
    assert torch.equal(shift.squeeze(1), pool[1:5])  # written in place
    assert pool[[0, 5]].isnan().all()
    assert torch.equal(scale_rows(rows.clone()), shift)
    exact = (rows.double() - shift.double()).exp()
    assert not scaled[2, :, 1].any()
    counts = exact > 1.01 * LEAST[dtype]
    torch.testing.assert_close(scaled[counts].double(), exact[counts], rtol=1e3 * torch.finfo(dtype).eps, atol=0)
    assert not scaled[exact < 0.99 * LEAST[dtype]].any()
    assert (scaled[scaled > 0] >= torch.finfo(dtype).tiny).all()  # no denormal number


@pytest.mark.parametrize("elements", [1, 40, 300])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_maxima_do_not_depend_on_the_pieces(case: Case, elements: int, monkeypatch: pytest.MonkeyPatch):
    qpc = case.integrate({z: pc.gauss_legendre(3 + i % 2) for i, z in enumerate(case.circuit.latents)})
    points = qpc._points(case.data())
    parameters, compiled = qpc.parameters.detach(), qpc.compiled

    def root() -> torch.Tensor:
        return compiled.root(mpe.max_up(compiled, points, parameters))

    whole = root()
    monkeypatch.setattr(mpe, "_CHUNK_ELEMENTS", elements)
    monkeypatch.setattr("picirc.engine.compiled.CACHE_BYTES", elements)
    compiled._ready.clear()
    assert torch.equal(root(), whole)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("states", [1, 3])
def test_a_part_without_weight_does_not_hide_the_others(dtype: torch.dtype, states: int):
    """The part without weight is the larger one by far: in the first row by its values, in the second by its scale."""
    parts = torch.randn(2, 2, 3, 5, generator=torch.Generator().manual_seed(0)).to(dtype)
    scales = torch.zeros(2, 2, 5, dtype=torch.float64)
    parts[0, 0], scales[1, 0] = 1e5, 1e5
    weights = torch.tensor([0.0, 0.25], dtype=dtype).view(1, 2, 1).expand(2, 2, states).contiguous()
    out = parts.new_empty(2, 3, 5)
    scale = mix_up(parts.clone(), scales, weights, out)
    expected = parts[:, 1].double() + math.log(0.25)
    torch.testing.assert_close(out + scale.unsqueeze(1), expected, rtol=0, atol=1e-6)
    flow, gradient = torch.ones(2, 3, 5, dtype=dtype), torch.zeros_like(weights)
    flows = mix_down(parts.clone(), scales, weights, flow, gradient)
    assert not flows[:, 0].any()
    torch.testing.assert_close(flows[:, 1], flow)
    assert not gradient[:, 0].any()
    torch.testing.assert_close(gradient[:, 1], torch.full_like(gradient[:, 1], 15 / states / 0.25))
