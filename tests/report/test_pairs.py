# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
from report_cases import SVG, parsed

from picirc.report.sections import Field, densities, edges_of, gather, strongest_pairs
from picirc.report.sections import pairs_section as section
from picirc.structure.information import mutual_information
from picirc.tables import fit_table


def test_pairs_are_neighbours_in_the_tree_the_strongest_first(material):
    tree = material.tree
    pairs = strongest_pairs(material)
    own = {latent: variables[0] for latent, variables in enumerate(tree.variables)}
    edges = {tuple(sorted((own[c], own[p]))) for c, p in enumerate(tree.parents) if p >= 0}
    assert set(pairs) == edges
    strengths = [material.information[pair] for pair in pairs]
    assert strengths == sorted(strengths, reverse=True)
    assert strongest_pairs(material, most=2) == pairs[:2]


def test_the_strength_is_the_mutual_information_of_the_table(material):
    kinds = ["categorical", "ordinal", "ordinal", "ordinal", "categorical"]
    np.testing.assert_array_equal(material.information, mutual_information(material.encoded.numpy(), kinds))


def test_dots_are_the_rows_of_the_table():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, 60)
    table = {"x": x.tolist(), "y": (x + rng.uniform(-1, 1, 60)).tolist()}
    table["y"][7] = None
    page = parsed(section(gather(fit_table(table, steps=2, settings={"members": 1}), table, seed=0)))
    data, drawn = (group for group in page.iter(f"{SVG}g") if "dots" in group.get("class"))
    assert len(list(data)) == 59
    assert 0 < len(list(drawn)) <= 59
    # Places from left to right are in the order of the values.
    places = np.array([float(circle.get("cx")) for circle in data])
    assert np.corrcoef(places, np.delete(x, 7))[0, 1] > 0.9999


def test_grouped_bars_are_the_shares():
    one = ["a"] * 40 + ["b"] * 60
    two = ["u"] * 10 + ["v"] * 30 + ["u"] * 60
    table = {"one": one, "two": two}
    page = parsed(section(gather(fit_table(table, steps=2, settings={"members": 1}), table, seed=0)))
    titles = [title.text for title in page.iter(f"{SVG}title")]
    assert "two, one = a" in titles
    texts = ["".join(text.itertext()) for text in page.iter(f"{SVG}text") if text.get("class") == "value"]
    assert texts[0::2] == ["25 %", "75 %", "100 %", "0 %"]  # u and v for a, then for b; every other one is a sample's


def test_a_single_column_has_no_pair():
    table = {"x": [0.1, 0.4, 0.2, 0.9]}
    assert "no two columns" in section(gather(fit_table(table, steps=2, settings={"members": 1}), table, seed=0))


def field(data, **changes):
    values = np.asarray(data, np.float64)
    given = {"labels": (), "whole": False, "drawn": values} | changes
    return Field("x", "gaussian", given["labels"], given["whole"], values, given["drawn"])


def test_a_wild_value_does_not_squeeze_the_axis():
    rng = np.random.default_rng(0)
    low, high = field(np.append(rng.normal(size=2000), 1e9)).limits()
    assert high < 10
    assert low > -10
    low, high = field(rng.normal(size=2000)).limits()
    assert high - low > 4


def test_counts_lie_in_the_middle_of_their_bins():
    edges = edges_of(field([0, 1, 1, 2, 5], whole=True), most=24)
    assert set(np.diff(edges)) == {1.0}
    heights = densities(np.array([0, 1, 1, 2, 5.0]), edges)
    assert heights[np.searchsorted(edges, 1.0) - 1] == 0.4
    np.testing.assert_allclose(heights.sum(), 1.0)


def test_values_outside_count_for_the_total():
    assert densities(np.array([0.5, 3.0]), np.array([0.0, 1.0, 2.0])).tolist() == [0.5, 0.0]
