# SPDX-License-Identifier: Apache-2.0
"""Calibration: the marginals of a trained model are those of the table, and densities stay densities."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import picirc as pc
from picirc.tables.calibration import Marginal, calibrated, marginals, recoded
from picirc.tables.fitting import fit_table
from picirc.tables.model import TableModel

SETTINGS = {"kind": "mixture", "states": 4, "members": 1, "em_steps": 10}


def rows_of(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """A column with a shape that few Gaussians do not have, one that depends on it, and one that is often zero."""
    source = np.random.default_rng([seed, 7])
    peaks = source.choice([0.0, 1.0, 3.0, 7.0, 8.0], count) + source.uniform(-0.3, 0.3, count)
    rain = np.where(source.random(count) < 0.4, 0.0, source.gamma(1.0, 20.0, count) + 5.0)
    return {"peaks": peaks, "follows": peaks + source.standard_t(3, count), "rain": rain}


@pytest.fixture(scope="module")
def model() -> TableModel:
    return fit_table(rows_of(3000), settings=SETTINGS)


def test_quantiles_of_a_mixture_are_those_of_its_distribution_function():
    marginal = Marginal(np.array([0.3, 0.7]), np.array([-1.0, 2.0]), np.array([0.5, 1.5]))
    levels = np.array([1e-4, 0.2, 0.5, 0.999])
    normals = torch.distributions.Normal(torch.tensor([-1.0, 2.0]).double(), torch.tensor([0.5, 1.5]).double())
    below = normals.cdf(torch.from_numpy(marginal.quantiles(levels))[:, None]) @ torch.tensor([0.3, 0.7]).double()
    assert np.allclose(below.numpy(), levels, atol=1e-12)


def test_the_marginals_of_the_model_are_those_of_the_table(model):
    table, levels = rows_of(3000), np.linspace(0.05, 0.95, 19)
    nothing = {"peaks": [np.nan], "follows": [np.nan], "rain": [np.nan]}
    for name in ("peaks", "follows"):
        found = model.quantiles(nothing, name, levels.tolist())[0]
        shares = (table[name][:, None] <= found).mean(0)
        assert np.abs(shares - levels).max() < 0.02
    assert len(model.schema["peaks"].knots) > 16  # a Gaussian column was not good enough
    wet = table["rain"][table["rain"] > 0]
    drawn = np.asarray(model.sample(20_000, seed=0)["rain"])
    assert abs((drawn == 0).mean() - 0.4) < 0.03
    for level in (0.1, 0.5, 0.9):
        assert (drawn[drawn > 0] <= np.quantile(wet, level)).mean() == pytest.approx(level, abs=0.03)


def test_rows_held_out_are_more_probable_with_it(model):
    unlike = fit_table(rows_of(3000), dict.fromkeys(rows_of(1), "gaussian"), settings=SETTINGS)
    # Without the rain: a narrow Gaussian at its zeros has a high density where the atom has a probability.
    test = {name: column for name, column in rows_of(2000, seed=1).items() if name != "rain"}
    assert model.log_density(test).mean() > unlike.log_density(test).mean() + 0.3
    assert all(not column.knots for column in unlike.schema.columns)  # what a user declares stays as it is


def test_the_density_integrates_to_one(model):
    grid = np.linspace(-3, 12, 30_001)
    density = np.exp(model.log_density({"peaks": grid}))
    assert (density.sum() * (grid[1] - grid[0])) == pytest.approx(1.0, abs=2e-3)


def test_codes_keep_the_order_of_the_values_also_around_spikes(model):
    column = model.schema["rain"]
    assert column.spikes == (0.0,)
    values = np.sort(np.r_[0.0, np.geomspace(6.0, 140.0, 50)])
    codes = model.schema.encode({"rain": values}, absent=("peaks", "follows"))[:, 2]
    assert (np.diff(codes) > 0).all()
    assert np.allclose(column.decode(codes), values)


def test_rows_are_recoded_as_the_new_columns_encode_them(model):
    table = rows_of(200, seed=2)
    plain = model.with_schema(pc.Schema.infer(rows_of(3000), linear=False))
    new = calibrated(plain, marginals(plain), plain.schema.encode(rows_of(3000)), 32, ["follows"])
    found = recoded(plain.schema.columns, new.schema.columns, plain.schema.encode(table))
    assert np.allclose(found, new.schema.encode(table), atol=1e-9)
    assert new.schema["follows"] == plain.schema["follows"] != new.schema["peaks"]


def test_draws_are_beyond_the_ends_as_often_as_the_table_has_them(model):
    for name in ("peaks", "follows", "rain"):
        column = model.schema[name]
        assert model.probability({name: pc.between(column.high, None)}) == pytest.approx(1 / 3000, rel=0.05)
    assert model.probability({"follows": pc.between(None, model.schema["follows"].low)}) == pytest.approx(1 / 3000)


def test_without_pieces_only_the_ends_are_moved():
    """A column that is 0 in a third of the rows, a peak at its lower end, and has a tail at the upper one."""
    source = np.random.default_rng(0)
    table = {"x": np.where(source.random(2000) < 1 / 3, 0.0, np.rint(np.exp(source.normal(3, 1.5, 2000))))}
    plain = fit_table(table, {"x": "scores"}, settings=SETTINGS)  # what is declared is not calibrated
    rows = plain.schema.encode(table)
    column, knots = plain.schema["x"], plain.schema["x"].knots
    found = calibrated(plain, marginals(plain), rows, 0, []).schema["x"]
    assert found.knots[:-1] == knots[:-1]
    assert found.knots[-1][0] == knots[-1][0] == column.high
    (marginal,) = marginals(plain).values()
    assert found.knots[-1][1] == pytest.approx(marginal.quantiles(np.array([1 - 1 / 2000]))[0])


def test_a_value_beyond_all_others_is_not_infinitely_improbable(model):
    column = model.schema["follows"]
    beyond = column.high + 2 * (column.high - column.low)
    assert float(model.log_density({"follows": [beyond]})[0]) > -1000


def test_a_model_trained_for_a_target_keeps_its_codes():
    table = rows_of(400) | {"label": np.where(rows_of(400)["peaks"] > 2, "high", "low")}
    found = fit_table(table, settings=SETTINGS | {"target_steps": 5}, target="label")
    expected = pc.Schema.infer(table, floor=found.schema["peaks"].family.min_std)
    assert found.schema.columns == replace(expected).columns


def test_a_target_that_is_no_column_is_named():
    with pytest.raises(pc.ArgumentError, match="target: expected the name of a column"):
        fit_table(rows_of(20), target="nope")
