# SPDX-License-Identifier: Apache-2.0
"""Rows that hold nothing before their first result: what was in the memory does not show."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

import picirc as pc
from cases import CASES, Case
from picirc import native as native_module
from picirc.engine import compiled
from picirc.engine.schedule import InputStep, MixStep
from picirc.inputs import discrete, family
from picirc.native import Kernels

each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@pytest.mark.parametrize("size", [1, 5, 64, 200])
def test_a_fresh_target_is_overwritten(native: Kernels, size: int):
    sums = torch.rand(4, 1, size, generator=torch.Generator().manual_seed(0))
    sums[1, 0, -1] = 0.0
    rows, fresh = torch.tensor([2, 0, 2, 1]), torch.tensor([True, True, False, False])
    found, expected = torch.full((3, 1, size), math.nan), torch.zeros(3, 1, size)
    found[1] = expected[1] = 7.0
    native.add_logs(found, rows, None, sums, fresh)
    native.add_logs(expected, rows, None, sums)
    assert_array_equal(found.numpy(), expected.numpy())


@pytest.fixture(params=[False, True], ids=["PyTorch", "compiled"])
def garbage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All buffers of all passes are full of NaN; with and without the compiled loops."""
    if not request.param:
        monkeypatch.setattr(native_module, "_kernels", lambda: None)
    for module in (compiled, discrete, family):
        monkeypatch.setattr(module, "empty", lambda shape, like: like.new_full(tuple(shape), math.nan))


def circuits(dtype: torch.dtype) -> list[pc.QPC]:
    families = (pc.Categorical(3), pc.Gaussian())
    structures = (pc.chain(5), pc.quad_tree(3, 3), pc.quad_graph(3, 4), pc.random_tree(9, 1))
    return [
        pc.HCLT(structure, family, 3, product=product, dtype=dtype)()
        for structure in structures
        for family in families
        for product in (("cp",) if isinstance(structure, pc.LatentTree) else ("cp", "tucker"))
    ]


@pytest.mark.usefixtures("garbage")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_garbage_shows_in_structures(dtype: torch.dtype):
    for qpc in circuits(dtype):
        x = torch.zeros(2, *qpc.event_shape, dtype=dtype)
        x[1] = math.nan
        found = qpc.log_prob(x)
        assert found.isfinite().all()
        assert abs(float(found[1].detach())) < 1e-5
        assert qpc.mpe(x).isfinite().all()
        assert qpc.sample(3, given=x).isfinite().all()


@pytest.mark.usefixtures("garbage")
@each_case
def test_no_garbage_shows_in_networks(case: Case):
    rule = pc.gauss_legendre(5)
    made = [case.integrate(rule), *([case.circuit.integrate(rule, nested=True)] if case.nested else [])]
    for qpc in made:
        assert qpc.log_prob(case.data()).isnan().sum() == 0


def test_every_row_is_begun_once():
    """By its inputs, by a mixture, or by the first of the results that arrive there."""
    schedule = pc.HCLT(pc.quad_graph(4, 4), pc.Bernoulli(), 2)().compiled.schedule
    begun = [np.zeros(pool.rows, dtype=int) for pool in schedule.pools]
    for step in schedule.steps:
        if isinstance(step, InputStep):
            begun[step.pool][step.rows] += 1
            continue
        if isinstance(step, MixStep):
            begun[step.pool][step.start : step.stop] += 1
        for send in step.sends:
            if send.fresh is not None:
                np.add.at(begun[send.pool], send.rows[send.fresh], 1)
    assert all((counts == 1).all() for counts in begun)
