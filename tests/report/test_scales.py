# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from picirc.report.drawing import Scale, label, nice_step, percent, span

NUMBERS = st.floats(-1e12, 1e12)


@given(NUMBERS, st.floats(1e-6, 1e12), st.integers(2, 8))
def test_ticks_are_round_evenly_spaced_and_on_the_axis(low, extent, count):
    high = low + extent
    if not (high - low) > 1e-9 * max(abs(low), abs(high)):
        return  # too narrow for its numbers to be told apart
    scale = Scale(low, high, 0, 100)
    ticks, step = scale.ticks(count), nice_step(high - low, count)
    assert round(step / 10.0 ** math.floor(math.log10(step) + 1e-9)) in (1, 2, 5)
    assert all(-0.1 <= scale(tick) <= 100.1 for tick in ticks)
    assert all(math.isclose(b - a, step, rel_tol=1e-3) for a, b in pairwise(ticks))
    assert len(ticks) <= 2 * count + 1


@given(NUMBERS, NUMBERS)
def test_a_span_is_never_empty(a, b):
    low, high = span(min(a, b), max(a, b))
    assert low < high
    assert low <= min(a, b)
    assert high >= max(a, b)


def test_an_axis_may_point_up():
    up = Scale(0, 10, 200, 0)
    assert (up(0), up(10), up(5)) == (200, 0, 100)


@given(st.floats(-1e15, 1e15, allow_subnormal=False))
def test_a_label_reads_back_as_nearly_the_same_number(value):
    text = label(value).replace("−", "-").replace(",", "")
    assert float(text) == pytest.approx(value, rel=6e-3, abs=1e-300)
    assert "-0" not in text.split("e")[0] or value != 0


@pytest.mark.parametrize(
    ("value", "step", "text"),
    [(0.0, 0.2, "0.0"), (-0.0, None, "0"), (1500.0, 500, "1,500"), (-0.5, 0.5, "−0.5"), (1e6, 5e5, "1.0e6")],
)
def test_labels_of_an_axis_have_as_many_digits_as_their_step(value, step, text):
    assert label(value, step) in (text, text.replace(".0e", "e"))


def test_a_share_is_nothing_or_all_only_when_it_is():
    assert percent(1e-9) != percent(0.0)
    assert percent(1 - 1e-9) != percent(1.0)
