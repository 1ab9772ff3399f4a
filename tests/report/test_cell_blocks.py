# SPDX-License-Identifier: Apache-2.0
"""Every cell given the others when some columns are correlated, against an enumeration of all states."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import picirc as pc
from block_circuits import KIND, enumerate_states, make_qpc
from picirc.tables.answers import given_others
from picirc.tables.column import Column


def some_rows(qpc: pc.QPC, count: int = 8) -> torch.Tensor:
    """Complete rows, and rows with gaps."""
    generator = torch.Generator().manual_seed(1)
    rows = qpc.sample(count, generator=generator)
    gaps = torch.rand(rows.shape, generator=generator) < 0.35
    gaps[:2] = False
    return rows.masked_fill(gaps, math.nan)


@pytest.mark.parametrize("sharing", ["composite", "full"])
def test_the_distribution_of_a_cell_given_the_others(sharing):
    qpc = make_qpc(input_sharing=sharing)
    truth, rows = enumerate_states(qpc), some_rows(qpc)
    found = given_others(qpc, rows)
    assert [cells.column for cells in found] == list(range(7))
    for cells in found:
        assert torch.equal(cells.rows, (~rows[:, cells.column].isnan()).nonzero().flatten())
        assert torch.equal(cells.values, rows[cells.rows, cells.column])
        at_most, at_least, mean = cells.at_most(), cells.at_least(), cells.mean(Column("x", pc.Gaussian(), "float"))
        for number, row in enumerate(rows[cells.rows]):
            value = float(row[cells.column])
            rest = row.clone()
            rest[cells.column] = math.nan
            given = truth.given(rest)
            assert float(mean[number]) == pytest.approx(float(given.moments()[0][cells.column]), rel=1e-8, abs=1e-10)
            if cells.column == KIND:
                np.testing.assert_allclose(cells.probabilities()[number].numpy(), given.p @ given.table, rtol=1e-8)
                continue
            below, above = (float(given.p @ given.between(cells.column, *ends)) for ends in ends_at(value))
            assert float(at_most[number]) == pytest.approx(below, rel=1e-8, abs=1e-10)
            assert float(at_least[number]) == pytest.approx(above, rel=1e-8, abs=1e-10)


def ends_at(value: float) -> tuple[tuple[float, float], tuple[float, float]]:
    return (-math.inf, value), (value, math.inf)


@pytest.mark.parametrize("strength", [0.0, 0.6])
def test_a_wild_value_in_a_block_does_not_decide_what_the_others_say(strength):
    """A value thousands of spreads away leaves next to nothing of the states that its own block asks for."""
    qpc = make_qpc(points=2, structure=pc.LatentTree((-1,), ((0, 1),)), inputs=pc.Gaussian())
    params = torch.tensor([[[0.0, 0.01], [5000.0, 5000.0]], [[0.0, 0.01], [50.0, 0.01]]], dtype=torch.float64)
    matrix = torch.tensor([[1.0, strength], [strength, 1.0]], dtype=torch.float64)
    parameters = replace(qpc.parameters, inputs=(params,), correlations=(matrix,))
    qpc = pc.QPC(qpc.compiled, parameters, qpc.variables, qpc.families, qpc.grids, qpc.properties)
    rows = torch.tensor([[4000.0, 0.0]], dtype=torch.float64)  # by the second column it is the first state, by far
    cells = given_others(qpc, rows)[0]
    assert float(cells.mean(Column("x", pc.Gaussian(), "float"))) == pytest.approx(0.0, abs=1e-6)
    assert float(cells.at_least()) < 1e-30
