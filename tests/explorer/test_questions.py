# SPDX-License-Identifier: Apache-2.0
"""Distributions given values, ranges and sets, against enumeration and dense integration by other queries."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

import picirc as pc
from picirc.explorer import make_page
from picirc.explorer.pages import TableQuestions


@pytest.fixture(scope="module")
def page(mixed):
    return TableQuestions(*mixed)


def card(page, answer, name):
    return answer["cards"][page.schema.index(name)]


def density(model, table):
    """``p`` of partial rows by the model's own query."""
    absent = {name: [None] * len(next(iter(table.values()))) for name in model.schema.names if name not in table}
    return np.exp(model.log_density(table | absent))


def test_without_evidence_the_marginals_are_those_of_the_circuit(page):
    answer = page.given({})
    assert answer["log_evidence"] == pytest.approx(0.0, abs=1e-9)
    assert answer["matching"] == 120
    marginals = page.model.qpc.marginals()
    wanted = marginals.probabilities(page.model.qpc.variables[0])
    np.testing.assert_allclose(card(page, answer, "kind")["heights"], wanted, atol=1e-9)
    place = page.schema.index("length")
    column = page.schema.columns[place]
    mean = column.location + column.scale * float(marginals.mean[place])
    spread = column.scale * float(marginals.variance[place]) ** 0.5
    assert card(page, answer, "length")["mean"] == pytest.approx(mean, abs=0.01 * spread)


def test_given_values_agree_with_the_model(page):
    answer = page.given({"kind": {"is": "cedar"}, "length": {"is": 15.5}})
    assert answer["density"]
    assert answer["cards"][0] is None
    wanted = density(page.model, {"kind": ["cedar"], "length": [15.5]})
    assert math.exp(answer["log_evidence"]) == pytest.approx(page.schema["length"].scale * wanted[0], rel=1e-6)
    asked = {"kind": ["cedar"], "length": [15.5], "weight": [None], "rings": [None], "old": [None]}
    np.testing.assert_allclose(card(page, answer, "old")["heights"], page.model.predict(asked, "old")[0], atol=1e-9)


def test_quantiles_are_those_of_the_distribution_function(page):
    found = card(page, page.given({"kind": {"is": "ash"}}), "weight")
    place = page.schema.index("weight")
    column = page.schema.columns[place]
    given = torch.full((1, 5), math.nan, dtype=torch.float64)
    given[0, 0] = 0
    high = torch.full((5, 5), math.inf, dtype=torch.float64)
    high[:, place] = (torch.tensor(found["quantiles"], dtype=torch.float64) - column.location) / column.scale
    below = page.model.qpc.log_interval(torch.full_like(high, -math.inf), high, given=given).exp()
    np.testing.assert_allclose(below, [0.05, 0.25, 0.5, 0.75, 0.95], atol=5e-3)


def test_a_set_is_the_sum_over_its_values(page):
    answer = page.given({"kind": {"in": ["ash", "cedar"]}, "old": {"is": True}})
    parts = density(page.model, {"kind": ["ash", "cedar"], "old": [True, True]})
    assert math.exp(answer["log_evidence"]) == pytest.approx(parts.sum(), rel=1e-6)
    np.testing.assert_allclose(
        card(page, answer, "kind")["heights"], [parts[0] / parts.sum(), 0, parts[1] / parts.sum()]
    )
    mixture = sum(
        part * np.array(card(page, page.given({"kind": {"is": kind}, "old": {"is": True}}), "weight")["heights"])
        for part, kind in zip(parts / parts.sum(), ("ash", "cedar"), strict=True)
    )
    np.testing.assert_allclose(card(page, answer, "weight")["heights"], mixture, atol=2e-4)


@pytest.mark.parametrize(("low", "high"), [(11.0, 14.0), (None, 9.0), (16.5, None)])
def test_a_range_is_the_integral_over_it(page, low, high):
    answer = page.given({"length": {"from": low, "to": high}})
    grid = np.linspace(-10.0 if low is None else low, 40.0 if high is None else high, 1501)
    absent = [None] * len(grid)
    values = density(page.model, {"length": grid.tolist()})
    total = np.trapezoid(values, grid)
    assert math.exp(answer["log_evidence"]) == pytest.approx(total, rel=1e-4)
    table = {"length": grid.tolist(), "kind": absent, "weight": absent, "rings": absent, "old": absent}
    chances = page.model.predict(table, "kind")
    wanted = np.trapezoid(chances * values[:, None], grid, axis=0) / total
    np.testing.assert_allclose(card(page, answer, "kind")["heights"], wanted, atol=5e-3)
    mean = np.trapezoid(grid * values, grid) / total
    assert card(page, answer, "length")["mean"] == pytest.approx(mean, abs=0.02)
    mean = np.trapezoid(page.model.predict(table, "weight") * values, grid) / total
    assert card(page, answer, "weight")["mean"] == pytest.approx(mean, abs=0.02)


def test_two_ranges_and_a_set_together(page):
    answer = page.given({
        "length": {"from": 11.0, "to": 14.0}, "weight": {"from": None, "to": 24.0}, "kind": {"in": ["ash", "birch"]},
    })  # fmt: skip
    x, y = np.linspace(11.0, 14.0, 41), np.linspace(0.0, 24.0, 121)
    grid = np.stack(np.meshgrid(x, y, indexing="ij")).reshape(2, -1).tolist()
    parts = []
    for kind in ("ash", "birch"):
        table = {"length": grid[0], "weight": grid[1], "kind": [kind] * len(grid[0])}
        values = density(page.model, table).reshape(len(x), len(y))
        parts.append(np.trapezoid(np.trapezoid(values, y), x))
    assert math.exp(answer["log_evidence"]) == pytest.approx(sum(parts), rel=0.03)
    wanted = [parts[0] / sum(parts), parts[1] / sum(parts), 0.0]
    np.testing.assert_allclose(card(page, answer, "kind")["heights"], wanted, atol=0.02)


def test_ranges_of_several_correlated_columns_agree_with_draws():
    rng = np.random.default_rng(3)
    values = rng.normal(size=(150, 4)) @ (np.eye(4) + 0.8)
    table = dict(zip("abcd", values.T, strict=True))
    model = pc.fit_table(table, steps=30, points=4, width=8, settings={"members": 2})
    evidence = {"a": {"from": 0.0, "to": 1.0}, "b": {"from": -1.0, "to": 2.0}, "c": {"from": None, "to": 1.5}}
    page = TableQuestions(model, table)
    cards = page.given(evidence)["cards"]
    given = {"a": pc.between(0, 1), "b": pc.between(-1, 2), "c": pc.between(None, 1.5)}
    drawn = model.sample(4000, given, seed=0)
    for name, found in zip("abcd", cards, strict=True):
        spread = np.std(drawn[name])
        assert found["mean"] == pytest.approx(np.mean(drawn[name]), abs=0.08 * spread)
        np.testing.assert_allclose(
            found["quantiles"], np.quantile(drawn[name], [0.05, 0.25, 0.5, 0.75, 0.95]), atol=0.15 * spread
        )


def test_single_values_of_a_column_of_numbers_are_told_apart():
    rng = np.random.default_rng(4)
    rain = np.where(rng.random(400) < 0.6, 0.0, np.exp(rng.normal(size=400)))
    table = {"rain": rain, "wet": (rain > rng.random(400)).tolist()}
    model = pc.fit_table(table, steps=60, points=6, width=8, settings={"members": 1})
    page = TableQuestions(model, table)
    described = page.describe()["columns"][0]
    assert described["spikes"] == [0.0]
    assert described["single"] == [np.mean(rain == 0)]
    assert sum(described["data"]) <= 1 - described["single"][0] + 1e-9
    found = page.given({})["cards"][0]
    assert found["spikes"][0] == pytest.approx(model.probability({"rain": pc.one_of([0.0])}), abs=1e-9)
    shown = model.probability({"rain": pc.between(described["low"], described["high"])})
    assert sum(found["heights"]) + found["spikes"][0] == pytest.approx(shown, abs=1e-4)
    np.testing.assert_allclose(
        found["quantiles"], model.quantiles({"wet": [None]}, "rain", [0.05, 0.25, 0.5, 0.75, 0.95])[0], atol=0.05
    )
    assert found["quantiles"][1] == 0.0
    assert found["mean"] == pytest.approx(model.expectation({"wet": [None]}, "rain")[0], rel=1e-6)
    exact = page.given({"rain": {"is": 0.0}})
    assert not exact["density"]  # it has a probability
    assert exact["log_evidence"] == pytest.approx(math.log(found["spikes"][0]))
    assert exact["matching"] == int(np.sum(rain == 0))
    above = page.given({"rain": {"from": 0.5, "to": None}})["cards"][0]
    assert above["spikes"] == [0.0]
    assert above["quantiles"][0] >= 0.5


def test_a_range_far_from_all_data_is_answered(page):
    answer = page.given({"length": {"from": 90, "to": 91}})
    assert answer["log_evidence"] < -100
    assert 90 <= card(page, answer, "length")["mean"] <= 91
    assert sum(card(page, answer, "kind")["heights"]) == pytest.approx(1.0)
    drawn = page.sample({"evidence": {"length": {"from": 90, "to": 91}}, "n": 5})["rows"]
    assert all(90 <= row[1] <= 91 for row in drawn)


def test_a_range_of_counts_is_a_sum(page):
    answer = page.given({"rings": {"from": 2, "to": 5}})
    parts = density(page.model, {"rings": [2, 3, 4, 5]})
    assert math.exp(answer["log_evidence"]) == pytest.approx(parts.sum(), rel=1e-6)
    assert card(page, answer, "rings")["mean"] == pytest.approx(float(parts @ [2, 3, 4, 5] / parts.sum()), rel=1e-6)


def test_rows_drawn_agree_with_the_evidence_and_the_distribution(page):
    evidence = {"length": {"from": 11.0, "to": 14.0}, "kind": {"in": ["ash", "birch"]}}
    drawn = page.sample({"evidence": evidence, "n": 400, "seed": 1})
    rows = dict(zip(drawn["columns"], zip(*drawn["rows"], strict=True), strict=True))
    assert set(rows["kind"]) == {"ash", "birch"}
    assert min(rows["length"]) >= 11.0
    assert max(rows["length"]) <= 14.0
    found = card(page, page.given(evidence), "weight")
    spread = np.std(rows["weight"]) / math.sqrt(400)
    assert np.mean(rows["weight"]) == pytest.approx(found["mean"], abs=4 * spread)
    assert page.sample({"evidence": evidence, "n": 400, "seed": 1}) == drawn


def test_a_row_says_what_its_other_cells_let_expect(page):
    found = page.row({"row": 10})
    assert len(found["cells"]) == 5
    assert {cell["column"] for cell in found["surprises"]} == set(range(5))
    tails = [cell["tail"] for cell in found["surprises"]]
    assert tails == sorted(tails)
    assert page.row({"row": 0})["cells"][1] is None


def test_the_most_surprising_rows_come_first(mixed):
    model, table = mixed
    odd = {name: [*values[:20]] for name, values in table.items()}
    odd["weight"][7] = 90.0
    found = TableQuestions(model, odd).surprising({"n": 3})["rows"]
    assert found[0]["row"] == 7
    assert len(found) == 3


def test_the_description_is_plain_json(page, mixed):
    described = page.describe()
    json.dumps(described, allow_nan=False)
    assert [column["kind"] for column in described["columns"]] == ["category", "number", "number", "count", "category"]
    assert sum(described["columns"][0]["data"]) == pytest.approx(1.0)
    assert len(described["edges"]) == 4
    alone = TableQuestions(mixed[0]).describe()
    assert alone["rows"] is None
    assert "data" not in alone["columns"][0]


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        ([], "evidence: expected a mapping"),
        ({"colour": {"is": 1}}, "column: expected one of kind, length"),
        ({"kind": {"is": "oak"}}, "a category that occurred"),
        ({"kind": {"from": 1, "to": 2}}, 'expected {"is": value}'),
        ({"kind": {"in": []}}, "expected"),
        ({"kind": {"is": None}}, "values of the column"),
        ({"length": {"from": 3, "to": 1}}, "the smaller one first"),
        ({"length": {"from": "a", "to": 1}}, "two numbers"),
        ({"length": {"is": "many"}}, "length"),
        ({"length": "many"}, "length"),
        ({"rings": {"from": -9, "to": -3}}, "widen its ranges"),
    ],
)
def test_bad_evidence_is_refused_in_words(page, evidence, words):
    with pytest.raises(ValueError) as error:
        page.given(evidence)
    assert words in str(error.value)


def test_bad_requests_are_refused_in_words(page, mixed):
    for ask, request, words in (
        (page.answer, {}, "one or two sets"),
        (page.sample, {"n": 0}, "from 1 to 1,000"),
        (page.row, {"row": 120}, "from 0 to 119"),
        (TableQuestions(mixed[0]).row, {"row": 0}, "--data"),
        (page.sample, {"evidence": {"rings": {"from": -9, "to": -3}}}, "widen"),
    ):
        with pytest.raises(ValueError, match=words):
            ask(request)


def test_images_are_completed(images):
    model, examples = images
    page = make_page(model, examples)
    assert page.describe() | {"edges": []} == {
        "kind": "image", "name": "Images", "height": 4, "width": 4, "levels": 3, "examples": 5, "edges": [],
    }  # fmt: skip
    pixels = [0, 1, 2, 0] + [None] * 12
    found = page.complete({"pixels": pixels, "samples": 3})
    with torch.no_grad():
        qpc = model(pc.shifted(64))
    x = torch.tensor([[math.nan if p is None else p for p in pixels]], dtype=torch.float32)
    assert found["log_prob"] == pytest.approx(float(qpc.log_prob(x)), rel=1e-5)
    np.testing.assert_allclose(found["mean"], qpc.mean(given=x)[0].detach(), atol=2e-3)
    assert found["mean"][:4] == pixels[:4]
    assert all(sample[:4] == pixels[:4] for sample in found["samples"])
    assert found["missing"] == 12
    assert np.shape(found["latents"]) == (16, 2)
    assert page.example({"number": 2})["pixels"] == examples[2].tolist()


def test_images_of_the_size_of_mnist(large_images):
    model, examples = large_images
    page = make_page(model, examples)
    pixels = [None if number < 392 else int(value) for number, value in enumerate(examples[0])]
    found = page.complete({"pixels": pixels, "samples": 2})
    assert found["missing"] == 392
    assert math.isfinite(found["log_prob"])
    assert found["mean"][392:] == pixels[392:]
    assert np.shape(found["samples"]) == (2, 784)
    places = np.array(found["latents"])
    assert places.min() >= 0
    assert places.max() <= 1


@pytest.mark.parametrize("kind", ["vectors", "average"])
def test_images_by_other_models(kind):
    source = torch.Generator().manual_seed(0)
    dims = 2 if kind == "vectors" else 1
    models = [pc.PIC(pc.chain(4), inputs=pc.Bernoulli(), width=4, dims=dims, generator=source) for _ in range(2)]
    page = make_page(pc.Ensemble(models) if kind == "average" else models[0])
    found = page.complete({"pixels": [0, 1, None, None]})
    assert math.isfinite(found["log_prob"])
    assert np.shape(found["latents"]) == (4, 2)


@pytest.mark.parametrize("pixels", [None, [0] * 15, [0] * 15 + [3], [0] * 15 + [0.5], [0] * 15 + ["x"]])
def test_bad_images_are_refused(images, pixels):
    with pytest.raises(pc.ArgumentError, match="pixels"):
        make_page(images[0]).complete({"pixels": pixels})


def test_quadrature_of_a_network_has_an_error_and_a_cost(two_latents):
    page = make_page(two_latents)
    described = page.describe()
    assert described["exact"]
    assert len(described["net"]["edges"]) == 4
    assert {unit["kind"] for unit in described["units"]["nodes"]} == {"input", "integral", "product"}
    answers = [page.integrate({"x": {"x1": 0.5, "x2": None}, "n": n}) for n in (16, 64)]
    assert answers[1]["error"] < 1e-9 < answers[0]["error"]
    assert answers[0]["estimate"] == pytest.approx(answers[0]["error"], rel=0.2)
    assert answers[0]["cost"]["weights"] < answers[1]["cost"]["weights"]
    assert [len(z["grid"]) for z in answers[0]["latents"]] == [16, 16]
    curve = page.curve({"x": {"x1": 0.5, "x2": 1.0}, "rule": "Gauss–Legendre"})
    assert curve["error"][-1] < 1e-9 < curve["error"][0]


def test_other_models_are_refused():
    with pytest.raises(pc.ArgumentError, match="expected a model, QPC, BayesNet or Circuit"):
        make_page(3)
    with pytest.raises(pc.ArgumentError, match="finitely many"):
        make_page(pc.PIC(pc.chain(4), inputs=pc.Gaussian(), width=8))
    with pytest.raises(pc.ArgumentError, match="shape"):
        make_page(pc.PIC(pc.chain(3), inputs=pc.Bernoulli(), width=8))


def test_a_sequence_is_filtered_and_forecast_from_what_is_known(weather):
    model, table = weather
    page = make_page(model, table)
    described = page.describe()
    json.dumps(described, allow_nan=False)
    assert described["sequences"] == ["north", "south"]
    assert [column["labels"] for column in described["columns"]] == [None, ["rain", "sun"]]
    rows = page.series({"sequence": 1})
    assert rows["times"][0] == "2024-03-01"
    assert rows["values"]["degrees"] == table["degrees"][24:].tolist()
    assert page.series({})["values"]["degrees"][5] is None
    found = page.look({"sequence": 1, "until": 10, "steps": 4})
    json.dumps(found, allow_nan=False)
    first = {name: np.asarray(values)[24:34] for name, values in table.items() if name != "place"}
    wanted = model.forecast(first, 4, [0.05, 0.25, 0.5, 0.75, 0.95])
    np.testing.assert_allclose(found["numbers"]["degrees"]["mean"], wanted.mean["degrees"])
    np.testing.assert_allclose(np.transpose(found["numbers"]["degrees"]["quantiles"]), wanted.quantiles["degrees"])
    np.testing.assert_allclose(np.transpose(found["categories"]["sky"]), wanted.probabilities["sky"])
    np.testing.assert_allclose(np.transpose(found["filter"]["mean"]), model.filter(first).mean)
    assert found["log_prob"] == pytest.approx(model.log_prob(first)[0])
    assert found["times"] == ["2024-03-11", "2024-03-12", "2024-03-13", "2024-03-14"]


def test_changed_cells_of_a_sequence_are_evidence(weather):
    model, table = weather
    page = make_page(model, table)
    plain = page.look({"until": 10, "steps": 2})
    assert page.look({"until": 10, "steps": 2, "cells": {"12": {"degrees": 1.0}}}) == plain  # not known yet
    changed = page.look({"until": 10, "steps": 2, "cells": {"9": {"degrees": 30.0, "sky": None}}})
    first = {name: np.asarray(values)[:10].copy() for name, values in table.items() if name != "place"}
    first["degrees"][9], first["sky"][9] = 30.0, None
    assert changed["log_prob"] == pytest.approx(model.log_prob(first)[0])
    assert changed["numbers"] != plain["numbers"]


def test_a_sequence_is_drawn_where_there_are_no_data(weather):
    page = make_page(weather[0])
    assert page.describe()["drawn"]
    assert math.isfinite(page.look({})["log_prob"])


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"sequence": 2}, "sequence: expected an integer from 0 to 1"),
        ({"until": 0}, "until"),
        ({"until": 25}, "until"),
        ({"steps": 10**9}, "steps"),
        ({"cells": []}, "cells"),
        ({"cells": {"1": 3}}, "cells"),
        ({"cells": {"x": {}}}, "row"),
        ({"cells": {"1": {"colour": 1}}}, "names among degrees, sky"),
        ({"cells": {"1": {"degrees": "warm"}}}, "degrees: expected a number"),
        ({"cells": {"1": {"sky": "green"}}}, "sky: expected one of rain, sun"),
    ],
)
def test_bad_requests_about_sequences_are_refused(weather, request_, words):
    with pytest.raises(pc.ArgumentError) as error:
        make_page(*weather).look(request_)
    assert words in str(error.value)


def test_a_known_chain_has_a_page_too():
    net = pc.BayesNet()
    net.latent("z", pc.LinearGaussian(std=1.0))
    net.observed("x", pc.LinearGaussian({"z": 1.0}, std=0.5))
    model = pc.state_space(net, {"z": pc.LinearGaussian({"z": 0.9}, std=0.4)})
    page = make_page(model, np.array([0.1, 0.4, np.nan, 0.2]))
    assert page.series({})["values"]["x"] == [0.1, 0.4, None, 0.2]
    assert page.look({"until": 4})["log_prob"] == pytest.approx(model.log_prob(np.array([0.1, 0.4, np.nan, 0.2]))[0])


def test_a_page_for_every_kind_of_model():
    """Whatever follows the protocol of models has a page; only the number of values must be finite."""
    for model in (pc.HCLT(pc.chain(4), pc.Bernoulli(), 2), pc.TreeMixture(pc.chain(4), pc.Bernoulli(), 8, dims=2)):
        assert make_page(model, shape=(2, 2)).questions
