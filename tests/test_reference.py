# SPDX-License-Identifier: Apache-2.0
"""The engine against the method as it is written down in ``picirc/reference.py``, and that against closed forms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import picirc as pc
from cases import CASES
from oracles import static_log_prob
from picirc import quadrature, reference
from picirc.symbolic import units

each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@each_case
def test_the_engine_computes_what_the_reference_says(case):
    rules = {z: pc.gauss_legendre(4 + i) for i, z in enumerate(case.circuit.latents)}
    x, grids = case.data(), case.grids(rules)
    expected = reference.log_prob(case.circuit, grids, x.numpy())
    np.testing.assert_allclose(case.integrate(rules).log_prob(x), expected, atol=1e-11)
    np.testing.assert_allclose(static_log_prob(case.circuit, grids, x.numpy()), expected, atol=1e-11)


def test_the_reference_agrees_with_the_closed_form():
    case = CASES["lg_tree"]
    x = case.data()
    found = reference.log_prob(case.circuit, case.grids(pc.gauss_legendre(50), sigmas=7.0), x.numpy())
    np.testing.assert_allclose(found, case.circuit.exact().log_prob(x), atol=1e-6)


def test_the_way_from_a_network_to_a_number_is_short():
    """What a newcomer reads: units, rules, and the reference."""
    lines = [Path(str(module.__file__)).read_text().count("\n") for module in (units, quadrature, reference)]
    assert sum(lines) < 1000
