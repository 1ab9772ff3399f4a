# SPDX-License-Identifier: Apache-2.0
"""Evidence by range and set, against enumeration, integrals and rejection."""

from __future__ import annotations

import math
from typing import Any

import mixed_tables
import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

import picirc as pc
from picirc.engine.evidence import Points, Region, Restricted
from picirc.inputs.correlated import Block


@pytest.fixture(scope="module")
def model() -> pc.TableModel:
    return mixed_tables.penguin_model()


@pytest.fixture(scope="module")
def mixed_model() -> pc.TableModel:
    return mixed_tables.mixed_model()


@pytest.fixture(scope="module")
def drawn(model: pc.TableModel) -> pd.DataFrame:
    return model.sample(20_000, seed=0)


def inside(table: pd.DataFrame, **known: Any) -> pd.DataFrame:
    for name, (low, high) in known.items():
        table = table[(table[name] >= low) & (table[name] <= high)]
    return table


def close_share(found: float, hits: int, total: int) -> bool:
    """Whether a probability agrees with a frequency, within four standard errors."""
    return abs(found - hits / total) < 4 * np.sqrt(max(found * (1 - found), 1e-4) / total)


def test_a_range_is_the_integral_of_the_density(model):
    given = {"species": "Gentoo", "flipper_length_mm": 215.0}
    grid = np.linspace(4500, 5500, 2001)
    expected = np.trapezoid(np.exp(model.log_density({"bill_length_mm": grid / 100}, given=given)), grid / 100)
    found = model.probability({"bill_length_mm": pc.between(45.0, 55.0)}, given=given)
    assert found == pytest.approx(expected, rel=1e-6)
    total = [model.probability({"bill_length_mm": r}) for r in (pc.between(None, 45.0), pc.between(45.0, None))]
    assert sum(total) == pytest.approx(1.0, rel=1e-9)


def test_a_set_is_the_sum_of_its_values(model, mixed_model):
    each = [model.probability({"island": name}, given={"sex": "male"}) for name in ("Dream", "Biscoe")]
    both = model.probability({"island": pc.one_of(["Biscoe", "Dream"])}, given={"sex": "male"})
    assert both == pytest.approx(sum(each), rel=1e-9)
    assert model.probability({"year": pc.between(2008, None)}) == pytest.approx(
        sum(model.probability({"year": year}) for year in (2008, 2009)), rel=1e-9
    )
    counts = [mixed_model.probability({"count": n}, given={"flag": True}) for n in range(3)]
    assert mixed_model.probability({"count": pc.between(None, 2.5)}, given={"flag": True}) == pytest.approx(sum(counts))


def test_two_ranges_of_correlated_columns_are_a_double_integral(model):
    low, high = (40.0, 17.0), (48.0, 20.0)
    x, y = (np.linspace(a, b, 161) for a, b in zip(low, high, strict=True))
    points = {"bill_length_mm": np.repeat(x, 161), "bill_depth_mm": np.tile(y, 161)}
    density = np.exp(model.log_density(points)).reshape(161, 161)
    expected = np.trapezoid(np.trapezoid(density, y, axis=1), x)
    event = {"bill_length_mm": pc.between(40.0, 48.0), "bill_depth_mm": pc.between(17.0, 20.0)}
    assert model.probability(event) == pytest.approx(expected, rel=2e-4)


def test_three_ranges_agree_with_rejection(model, drawn):
    # Draws are multiples of 0.1 and 1 as in the table, so the ends lie halfway between two.
    box = {"bill_length_mm": (37.95, 50.05), "bill_depth_mm": (15.95, 20.05), "flipper_length_mm": (179.5, 210.5)}
    found = model.probability({name: pc.between(*ends) for name, ends in box.items()})
    assert close_share(found, len(inside(drawn, **box)), len(drawn))


def test_answers_given_ranges_agree_with_rejection(model, drawn):
    given = {"body_mass_g": pc.between(4500, None), "sex": pc.one_of(["male", "female"]), "year": 2008}
    kept = inside(drawn, body_mass_g=(4500, np.inf), year=(2008, 2008))
    rows = {"year": [None]}
    labels = model.schema["species"].categories
    p = model.predict(rows, "species", given=given)[0]
    assert all(close_share(p[i], (kept.species == label).sum(), len(kept)) for i, label in enumerate(labels))
    for name in ("bill_length_mm", "body_mass_g"):  # correlated with the range, and the range itself
        error = kept[name].std() / np.sqrt(len(kept))
        assert abs(model.predict(rows, name, given=given)[0] - kept[name].mean()) < 4 * error
        middle = model.quantiles(rows, name, [0.5], given=given)[0, 0]
        assert close_share(0.5, (kept[name] <= middle).sum(), len(kept))


def test_draws_given_ranges_are_inside_and_agree_with_rejection(model, drawn):
    given = {
        "bill_length_mm": pc.between(40.0, 46.0),
        "body_mass_g": pc.between(None, 4000),
        "island": pc.one_of(["Dream", "Torgersen"]),
    }
    found = model.sample(3000, given=given, seed=1)
    kept = inside(drawn, bill_length_mm=(40.0, 46.0), body_mass_g=(-np.inf, 4000))
    kept = kept[kept.island.isin(["Dream", "Torgersen"])]
    assert len(inside(found, bill_length_mm=(40.0, 46.0), body_mass_g=(-np.inf, 4000))) == 3000
    assert set(found.island) == {"Dream", "Torgersen"}
    for name in ("bill_length_mm", "body_mass_g", "flipper_length_mm"):
        assert stats.ks_2samp(found[name], kept[name]).pvalue > 1e-3
    counts = [(frame.species == "Adelie").sum() for frame in (found, kept)]
    assert (
        close_share(counts[0] / 3000, counts[1], len(kept))
        or stats.fisher_exact([[counts[0], 3000 - counts[0]], [counts[1], len(kept) - counts[1]]]).pvalue > 1e-3
    )


def test_draws_of_every_kind_of_column_stay_inside(mixed_model):
    given = {"count": pc.between(1, 3), "level": pc.one_of([0, 2]), "real": pc.between(95.0, 101.0), "flag": True}
    found = mixed_model.sample(300, given=given, seed=0)
    assert set(found["count"]) <= {1, 2, 3}
    assert set(found["level"]) == {0, 2}
    assert found["real"].min() >= 95
    assert found["real"].max() <= 101
    shares = [mixed_model.probability({"count": n}, given=given) for n in (1, 2, 3)]
    assert sum(shares) == pytest.approx(1.0)
    assert stats.chisquare([(found["count"] == n).sum() for n in (1, 2, 3)], 300 * np.array(shares)).pvalue > 1e-3


def test_a_density_given_a_range_is_cut_off(model):
    given = {"bill_length_mm": pc.between(40.0, 50.0)}
    logs = model.log_density({"bill_length_mm": [39.0, 45.0]}, given=given)
    alone = model.log_density({"bill_length_mm": [45.0]})[0]
    inside_it = model.probability({"bill_length_mm": pc.between(40.0, 50.0)})
    assert logs[0] == -np.inf
    assert logs[1] == pytest.approx(alone - np.log(inside_it), rel=1e-9)


@pytest.mark.parametrize("value", [(5000, 6000), [1, 2], {1, 2}])
def test_a_bare_range_or_set_is_refused(model, value):
    for call in (model.sample, model.probability):
        with pytest.raises(pc.ArgumentError, match=r"body_mass_g.*pc\.between.*pc\.one_of"):
            call(3, given={"body_mass_g": value}) if call == model.sample else call({"body_mass_g": value})


@pytest.mark.parametrize("value", [(5000, 6000), pc.between(5000, 6000), pc.one_of([5000])])
def test_a_range_is_no_cell_of_a_row(model, value):
    row = {"body_mass_g": value, "sex": "male"}
    for call in (model.log_density, model.impute, lambda row: model.predict(row, "species")):
        with pytest.raises(pc.ArgumentError, match=r"body_mass_g.*given=.*pc\.between"):
            call(row)


def test_ranges_that_only_touch_have_nothing_in_common(model):
    for low, high in ((None, 4999), (3000, 4999), (None, 10)):
        event, known = {"body_mass_g": pc.between(low, high)}, {"body_mass_g": pc.between(5000, 6000)}
        assert model.probability(event, given=known) == 0
    at = {"bill_length_mm": pc.between(40.0, 40.0), "body_mass_g": pc.between(4000, None)}
    assert (model.sample(3, given=at, seed=0)["bill_length_mm"] == 40).all()
    with pytest.raises(pc.ArgumentError, match="single values have a density"):
        model.probability({"bill_length_mm": pc.between(40.0, 40.0)})


def test_a_list_of_rows_is_a_table(model):
    rows = [{"sex": "male", "body_mass_g": 5000.0}, {"sex": "female"}]
    table = {"sex": ["male", "female"], "body_mass_g": [5000.0, None]}
    np.testing.assert_array_equal(model.predict(rows, "species"), model.predict(table, "species"))
    assert len(model.probability({"species": "Gentoo"}, given=rows)) == 2


def test_a_row_of_which_nothing_is_known(model):
    assert model.log_density({}) == 0.0
    p = model.predict({}, "species")[0]
    assert p[0] == pytest.approx(model.probability({"species": model.schema["species"].categories[0]}), rel=1e-9)
    assert set(model.impute({})) == set(model.schema.names)


def test_draws_in_a_range_are_like_the_values_seen():
    """Multiples of their step, and in the range seen, unless the evidence says otherwise."""
    values = np.random.default_rng(0).normal(70, 12, 200).round() / 2
    model = pc.fit_table({"half": values}, points=4, width=4, steps=2)
    drawn = model.sample(200, given={"half": pc.between(30, None)}, seed=0)["half"]
    np.testing.assert_array_equal(drawn, np.round(2 * drawn) / 2)
    assert drawn.min() >= 30
    assert drawn.max() <= values.max()
    beyond = model.sample(20, given={"half": pc.between(values.max() + 0.1, None)}, seed=0)["half"]
    assert beyond.min() > values.max()
    third = model.sample(2, given={"half": pc.one_of([31.3])}, seed=0)["half"]
    np.testing.assert_allclose(third, 31.3, rtol=1e-12)


def test_draws_of_single_reals_in_a_mixture_with_covariances():
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    settings = {"kind": "mixture", "states": 4, "members": 1, "em_steps": 2}
    model = pc.fit_table({"x": x, "y": np.abs(x) + rng.normal(size=200)}, settings=settings)
    drawn = model.sample(3, given={"x": pc.one_of([0.5, -0.6])}, seed=0)["x"]
    assert set(np.round(drawn, 9)) <= {0.5, -0.6}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: pc.between(3, 1), "at most high"),
        (lambda m: pc.between("a", None), "a number or a date"),
        (lambda m: pc.between(3, 1.5), "at most high"),
        (lambda m: pc.one_of("male"), "a list of values"),
        (lambda m: pc.one_of([]), "at least one value"),
        (lambda m: m.probability({"bill_depth_mm": 18.0}), "pc.between"),
        (lambda m: m.probability({}), "a mapping"),
        (lambda m: m.probability({"wing": 1}), "column: expected one of"),
        (lambda m: m.sample(1, given={"wing": pc.between(1, 2)}), "given: expected names of columns"),
        (lambda m: m.sample(1, given={"sex": pc.between(1, 2)}), "pc.one_of"),
        (lambda m: m.sample(1, given={"sex": pc.one_of(["x"])}), "'x'"),
    ],
)
def test_mistakes_are_named(model, call, words):
    with pytest.raises(pc.ArgumentError, match=words):
        call(model)


def test_impossible_evidence_is_refused(model):
    with pytest.raises(pc.ImpossibleEvidenceError):
        model.sample(1, given={"year": pc.between(1990, 1991)})


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_the_agreement_of_correlated_columns_is_their_probability_given_the_values(parts):
    """With one matrix for all states, or several; by the joint density of values and ranges divided by the values'."""
    source = torch.Generator().manual_seed(0)
    raw = torch.randn(parts, 3, 5, generator=source, dtype=torch.float64)
    spread = raw @ raw.mT
    scale = spread.diagonal(dim1=1, dim2=2).rsqrt()
    matrix = spread * scale.unsqueeze(1) * scale.unsqueeze(2)
    params = torch.rand(3, 4, 2, generator=source, dtype=torch.float64) + 0.5
    block = Block(pc.Gaussian(), params, matrix)
    x = torch.tensor([[0.2, 1.0], [math.nan, math.nan], [math.nan, math.nan]], dtype=torch.float64)
    columns, weights = torch.arange(3), torch.full((4,), 0.25, dtype=torch.float64)
    for regions in ({1: Region(((0.0, 1.0),))}, {1: Region(((0.0, 1.0),)), 2: Region(((-math.inf, 0.7),))}):
        known = Restricted(Points(x, x.isnan()), regions)
        wanted = known.joint(block, columns) - block.log_prob(x)
        torch.testing.assert_close(known.agreement(block, columns, weights), wanted, rtol=0, atol=1e-3)
