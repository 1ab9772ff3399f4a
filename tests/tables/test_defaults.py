# SPDX-License-Identifier: Apache-2.0
"""The settings that the size of a table chooses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import picirc as pc
from picirc.data.datasets import hold_out
from picirc.tables import Defaults, choose


@given(st.integers(1, 10**7), st.integers(1, 10**4))
def test_every_size_has_settings(rows, columns):
    found = choose(rows, columns)
    assert found.width % 2 == 0
    assert found.patience >= found.validate_every
    assert found.steps >= found.validate_every
    assert 0 < found.final_rate <= found.rate
    assert 0 < found.floor < 1
    assert found.points >= 4
    if found.held_out and rows < 10**5:
        kept, held = hold_out(rows, found.held_out, seed=0)
        assert len(held) >= 5  # fewer rows say nothing about when to stop
        assert len(kept) > len(held)


@given(st.integers(1, 10**6))
def test_what_is_given_is_kept(rows):
    found = choose(rows, 5, points=7, steps=3, width=None, floor=0.125)
    assert (found.points, found.steps, found.floor) == (7, 3, 0.125)
    assert found.width == choose(rows, 5).width
    assert found.validate_every <= 3


@pytest.mark.parametrize(
    "wrong", [{"points": 0}, {"points": 2000}, {"steps": 1.5}, {"held_out": 1.0}, {"batch_size": True}, {"speed": 1}]
)
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(pc.ArgumentError):
        choose(1000, 5, **wrong)
    if "speed" not in wrong:
        with pytest.raises(pc.ArgumentError):
            Defaults(**wrong)
