# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from report_cases import cells_of

import picirc as pc
from picirc.report.sections import anomalies_section as section
from picirc.report.sections import gather, surprises
from picirc.tables.answers import strange_cells
from picirc.tables.column import Column


def circuit(seed: int = 0) -> pc.QPC:
    families = [pc.Gaussian(), pc.Gaussian(), pc.Categorical(3), pc.Poisson()]
    generator = torch.Generator().manual_seed(seed)
    return pc.HCLT(pc.chain(4), families, states=4, generator=generator).double()()


def surprises_of(qpc, rows, drawn):
    def log_density(x):
        return qpc.log_prob(torch.as_tensor(x)).detach().numpy()

    return surprises(log_density, rows.numpy(), log_density(rows), drawn.numpy())


def test_without_gaps_surprise_is_the_distance_from_the_expected_log_density():
    qpc = circuit()
    rows = qpc.sample(50, generator=torch.Generator().manual_seed(0))
    drawn = qpc.sample(2000, generator=torch.Generator().manual_seed(1))
    found, theirs = surprises_of(qpc, rows, drawn)
    expected = qpc.log_prob(drawn).mean()
    np.testing.assert_allclose(found, (expected - qpc.log_prob(rows)).detach().numpy(), atol=1e-4)
    assert abs(theirs.mean()) < 1e-4


def columns_of(qpc):
    """Columns whose codes are their values."""
    return [Column(name, family, "float") for name, family in zip(qpc.variables, qpc.families, strict=True)]


def test_rows_with_different_gaps_can_be_compared():
    """Rows of the model itself are on average as surprising as expected, whatever is missing."""
    qpc = circuit()
    rows = qpc.sample(4000, generator=torch.Generator().manual_seed(0))
    gaps = torch.zeros_like(rows, dtype=torch.bool)
    gaps[1000:2000, 0] = True
    gaps[2000:3000, 2:] = True
    gaps[3000:, :3] = True
    rows[gaps] = math.nan
    found, _ = surprises_of(qpc, rows, qpc.sample(4000, generator=torch.Generator().manual_seed(1)))
    means = [found[start : start + 1000].mean() for start in range(0, 4000, 1000)]
    assert np.abs(means).max() < 0.2
    plain = qpc.log_prob(rows).detach().numpy()
    assert np.ptp([plain[start : start + 1000].mean() for start in range(0, 4000, 1000)]) > 2


def test_a_row_without_any_value_does_not_surprise():
    qpc = circuit()
    rows = qpc.sample(200, generator=torch.Generator().manual_seed(0))
    rows[0] = math.nan
    found, _ = surprises_of(qpc, rows, qpc.sample(2000, generator=torch.Generator().manual_seed(1)))
    assert found[0] == pytest.approx(0.0, abs=1e-3)


def test_the_cell_that_does_not_fit_comes_first():
    qpc = circuit()
    rows = qpc.sample(6, generator=torch.Generator().manual_seed(0))
    rows[2, 1] = 40.0
    rows[4, 3] = 500.0
    found = strange_cells(qpc, rows, columns_of(qpc))
    assert found[2][0].column == 1
    assert found[2][0].tail < 1e-12
    assert abs(found[2][0].expected) < 5
    assert found[4][0].column == 3
    assert all(len(cells) == 4 for cells in found)


def test_the_tail_of_a_category_is_that_of_all_no_more_probable():
    qpc = circuit()
    rows = qpc.sample(20, generator=torch.Generator().manual_seed(0))
    for row, cells in zip(rows, strange_cells(qpc, rows, columns_of(qpc)), strict=True):
        cell = next(cell for cell in cells if cell.column == 2)
        rest = row.clone()
        rest[2] = math.nan
        chances = qpc.marginals(rest).probabilities("x2")
        mine = chances[int(row[2])]
        assert cell.tail == pytest.approx(float(chances[chances <= mine * (1 + 1e-9)].sum()), rel=1e-6)
        assert cell.expected == float(chances.argmax())


def test_the_page_names_the_row_and_the_cell_that_were_spoiled(mixed):
    model, table = mixed
    spoiled = {name: list(column) for name, column in table.items()}
    spoiled["length"][17] = 90.0
    material = gather(model, spoiled, seed=0)
    first = cells_of(section(material))[1]
    assert first[0] == "17"
    assert first[3].startswith("length is 90, expected ")
    assert float(first[1].replace("−", "-").replace(",", "")) == pytest.approx(
        model.log_density(spoiled)[17], abs=0.051
    )
