# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

import picirc as pc
from picirc.report import sections
from picirc.report.sections import Ranks, all_ranks, calibration_section, conditional_ranks, gather
from picirc.tables import fit_table
from picirc.tables.answers import given_others


def ranks_of(qpc, rows, seed=0):
    rng = np.random.default_rng(seed)
    return [
        conditional_ranks(cells, torch.as_tensor(rng.random(len(cells.values)))).numpy()
        for cells in given_others(qpc, rows)
    ]


def test_rows_of_the_circuit_itself_are_calibrated():
    """Also where columns are discrete, and where cells are missing."""
    families = [pc.Gaussian(), pc.Categorical(3), pc.Poisson(), pc.Bernoulli(), pc.Laplace()]
    generator = torch.Generator().manual_seed(2)
    qpc = pc.HCLT(pc.random_tree(5, seed=1), families, states=4, generator=generator).double()()
    rows = qpc.sample(3000, generator=generator)
    rows[torch.rand(rows.shape, generator=generator) < 0.2] = math.nan
    for ranks in ranks_of(qpc, rows):
        assert stats.kstest(ranks, "uniform").pvalue > 1e-3
        assert not Ranks("", ranks).off


def test_the_transform_of_a_known_normal():
    rng = np.random.default_rng(0)
    x = rng.normal(3.0, 2.0, 400)
    model = pc.HCLT(pc.chain(1), pc.Gaussian(), states=1).double()
    family = pc.Gaussian()
    with torch.no_grad():
        model.inputs[0].copy_(family.unconstrain(torch.tensor([[[3.0, 2.0]]], dtype=torch.float64)))
    (ranks,) = ranks_of(model(), torch.as_tensor(x)[:, None])
    np.testing.assert_allclose(ranks, stats.norm.cdf(x, 3.0, 2.0), atol=1e-9)


def test_a_model_that_is_too_sure_or_not_sure_enough_is_off():
    rng = np.random.default_rng(0)
    x = torch.as_tensor(rng.normal(0.0, 1.0, (500, 1)))
    for std, low_middle in ((0.5, True), (2.0, False)):
        model = pc.HCLT(pc.chain(1), pc.Gaussian(), states=1).double()
        with torch.no_grad():
            model.inputs[0].copy_(pc.Gaussian().unconstrain(torch.tensor([[[0.0, std]]], dtype=torch.float64)))
        (ranks,) = ranks_of(model(), x)
        heights = np.histogram(ranks, 10, (0, 1))[0]
        assert Ranks("", ranks).off
        assert (heights[4:6].sum() < heights[[0, -1]].sum()) == low_middle


def test_the_distance_is_that_of_kolmogorov_and_smirnov():
    for count in (1, 2, 7, 300):
        values = np.random.default_rng(count).beta(2, 1, count)
        assert Ranks("", values).distance == pytest.approx(stats.kstest(values, "uniform").statistic, rel=1e-12)


def test_every_column_with_different_values_is_judged(material):
    found, without = all_ranks(material)
    assert [ranks.name for ranks in found] == [field.name for field in material.fields]
    assert [len(ranks.values) for ranks in found] == [len(field.observed) for field in material.fields]
    assert without == []


def test_constant_and_empty_columns_are_not_judged():
    table = {"x": [0.1, 0.5, 1.2, 2.0, 3.3], "constant": [2.5] * 5, "empty": [None] * 5}
    found, _ = all_ranks(gather(fit_table(table, steps=2, settings={"members": 1}), table, seed=0))
    assert [ranks.name for ranks in found] == ["x"]


def test_of_many_columns_the_worst_are_in_view(monkeypatch, material):
    monkeypatch.setattr(sections, "_SHOWN", 2)
    page = calibration_section(material)
    found, _ = all_ranks(material)
    worst = sorted(found, key=lambda ranks: -ranks.distance * math.sqrt(len(ranks.values)))
    shown, folded = page.split("<details>")
    assert [f"Calibration of {ranks.name}" in shown for ranks in worst] == [True, True, False, False, False]
    assert all(f"Calibration of {ranks.name}" in folded for ranks in worst[2:])
