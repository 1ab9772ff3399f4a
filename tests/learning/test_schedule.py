# SPDX-License-Identifier: Apache-2.0
"""Step sizes against torch's own scheduler."""

from __future__ import annotations

import math

import pytest
import torch

import picirc as pc


@pytest.mark.parametrize(("high", "low", "period"), [(1e-2, 1e-4, 500), (0.3, 0.3, 7), (1.0, 1e-3, 1)])
def test_restarts_are_those_of_torch(high, low, period):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=high)
    reference = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, period, eta_min=low)
    schedule = pc.Cosine(high, low, period)
    for step in range(3 * period + 2):
        assert schedule(step, 10_000) == pytest.approx(reference.get_last_lr()[0], rel=1e-12)
        optimizer.step()
        reference.step()


def test_without_a_period_the_whole_training_is_one():
    schedule = pc.Cosine(1.0, 0.1, None)
    sizes = [schedule(step, 40) for step in range(40)]
    assert sizes[0] == 1.0
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[20] == pytest.approx(0.55)
    assert sizes[-1] == pytest.approx(0.1 + 0.45 * (1 + math.cos(math.pi * 39 / 40)))


def test_a_warm_up_rises_in_a_line_and_then_changes_nothing():
    cold, warm = pc.Cosine(1.0, 0.1, 8), pc.Cosine(1.0, 0.1, 8, warmup=5)
    factors = [warm(step, 40) / cold(step, 40) for step in range(40)]
    assert factors[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert factors[5:] == [1.0] * 35


def test_defaults_are_those_of_the_paper():
    schedule = pc.Cosine()
    assert (schedule.high, schedule.low, schedule.period) == (1e-2, 1e-4, 500)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((0.1, 0.2), "high, low"),
        ((0.1, 0.0), "high, low"),
        ((math.nan, 0.1), "high, low"),
        ((0.1, 0.01, 0), "period"),
        ((0.1, 0.01, 5, -1), "warmup"),
    ],
)
def test_wrong_arguments_are_refused(arguments, name):
    with pytest.raises(pc.ArgumentError, match=f"{name}: expected"):
        pc.Cosine(*arguments)
