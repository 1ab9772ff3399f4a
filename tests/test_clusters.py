# SPDX-License-Identifier: Apache-2.0
"""Clusters of rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import picirc as pc

KINDS = np.repeat([0, 1, 2], 40)


def find(x, inputs, count=3):
    return pc.Clusters.find(x, inputs, count, torch.Generator().manual_seed(0)).of(x)


def agree(labels):
    """Whether the rows of each kind, and only these, have one label."""
    return len({*zip(labels.tolist(), KINDS, strict=True)}) == len(set(labels.tolist())) == 3


def test_kinds_of_rows_are_found_in_any_units_and_with_gaps():
    source = np.random.default_rng(0)
    x = KINDS[:, None] * np.array([1e4, 1e-4, 10.0]) + source.normal(size=(120, 3)) * [1e2, 1e-6, 0.1]
    x[source.random(x.shape) < 0.05] = np.nan
    assert agree(find(x, pc.Gaussian()))


def test_integers_are_numbers_and_categories_are_not():
    pixels = np.stack([KINDS * 100, 200 - KINDS * 100], 1).astype(np.uint8)
    assert agree(find(pixels, pc.Categorical(256)))
    codes = np.stack([KINDS, (KINDS + 1) % 3], 1)
    assert agree(find(codes, [pc.Categorical(3), pc.Categorical(3)]))


@pytest.mark.parametrize(
    ("x", "inputs", "count", "words"),
    [
        (torch.zeros(4), pc.Gaussian(), 2, "x: expected a tensor"),
        (torch.zeros(0, 3), pc.Gaussian(), 2, "x: expected at least one"),
        (torch.tensor(1.0), pc.Gaussian(), 2, "x: expected"),
        ("rows", pc.Gaussian(), 2, "x: expected"),
        (torch.zeros(4, 3), [pc.Gaussian()], 2, "inputs"),
        (torch.zeros(4, 3), pc.Gaussian(), 0, "count: expected a positive integer"),
    ],
)
def test_wrong_arguments_are_refused(x, inputs, count, words):
    with pytest.raises(pc.ArgumentError, match=words):
        pc.Clusters.find(x, inputs, count)


def test_rows_of_another_width_are_refused():
    with pytest.raises(pc.ArgumentError, match="x: expected a tensor"):
        pc.Clusters.find(torch.rand(9, 3), pc.Gaussian(), 2).of(torch.rand(9, 2))


def test_poor_starts_are_not_kept():
    """A single start often joins two of twelve clusters and divides another."""
    centres = torch.tensor([[i, j] for i in range(4) for j in range(3)], dtype=torch.float32)
    kinds = torch.arange(12).repeat_interleave(20)
    for seed in range(10):
        source = torch.Generator().manual_seed(seed)
        x = centres[kinds] + 0.05 * torch.randn(240, 2, generator=source)
        labels = pc.Clusters.find(x, pc.Gaussian(), 12, source).of(x)
        assert len(set(zip(labels.tolist(), kinds.tolist(), strict=True))) == 12
