# SPDX-License-Identifier: Apache-2.0
"""The whole page: well-formed, self-contained, escaped, the same every time, and written whole or not at all."""

from __future__ import annotations

import os
import re
from xml.etree import ElementTree

import numpy as np
import pandas
import polars
import pytest
import torch

import picirc as pc
from picirc.report import SECTIONS, write_report
from picirc.tables import TableModel, fit_table

RNG = np.random.default_rng(0)
HOSTILE = "<script>alert('x')</script>\"&\u202e\x00'"


def odd_table(rows: int = 30) -> dict[str, object]:
    """Constants, nothing, one category, many categories, hardly any values, huge ones, and names that mean harm."""
    return {
        HOSTILE: RNG.normal(size=rows),
        "constant": np.full(rows, 3.0),
        "empty": [None] * rows,
        "one text": ["a"] * rows,
        "hostile": [(HOSTILE, "b" * 90, "漢字" * 20, "")[i % 4] for i in range(rows)],
        "many": [f"value {i}" for i in range(rows)],
        "mostly missing": [1.5 if i == 3 else None for i in range(rows)],
        "huge": RNG.lognormal(20, 9, rows),
        "yes": RNG.random(rows) < 0.5,
    }


TABLES = {
    "odd": lambda: odd_table(),
    "one column": lambda: {"x": [0.5, 1.5, 2.0]},
    "two rows": lambda: {"x": [0.5, 1.5], "y": ["a", "b"]},
    "constant": lambda: {"x": [1.0] * 5, "y": ["a"] * 5},
    "array": lambda: RNG.normal(size=(20, 3)),
    "polars": lambda: polars.DataFrame({"a": [1, 2, 3, None, 5] * 4, "b": ["u", "v", None, "u", "u"] * 4}),
    "pandas": lambda: pandas.DataFrame({"a": [1.5, None] * 10, "b": pandas.Categorical(["u", "v"] * 10)}),
}


def written(model, table, path, **options) -> str:
    write_report(model, table, path, **options)
    return path.read_text(encoding="utf-8")


def tree_of(page: str) -> ElementTree.Element:
    start, body = page.split("\n", 1)
    assert start == "<!DOCTYPE html>"
    return ElementTree.fromstring(body)


@pytest.mark.parametrize("name", TABLES)
def test_every_table_has_a_well_formed_page(name, tmp_path):
    table = TABLES[name]()
    model = fit_table(table, {"many": "categorical"} if name == "odd" else None, steps=2, points=4, width=4)
    page = tree_of(written(model, table, tmp_path / "report.html"))
    sections = [section.get("id") for section in page.iter("section")]
    assert sections == [section.anchor for section in SECTIONS]
    assert all(len(list(section)) >= 3 for section in page.iter("section"))
    assert "nan" not in " ".join(page.itertext()).lower().split()
    for element in page.iter():
        for key, value in element.attrib.items():
            assert key == "content" or not re.search(r"\b(nan|inf)\b", value), (element.tag, key, value)


def test_many_columns(tmp_path):
    values = RNG.normal(size=(40, 1)) + RNG.normal(size=(40, 80))
    table = {f"column {i}": values[:, i] for i in range(80)}
    model = fit_table(table, steps=1, points=4, width=4, settings={"members": 1})
    page = tree_of(written(model, table, tmp_path / "report.html"))
    assert sum(row.find("th") is not None for row in page.iter("tr")) >= 80
    assert len(list(page.iter("figure"))) == 6


def test_nothing_is_loaded_and_nothing_runs(mixed, tmp_path):
    text = written(*mixed, tmp_path / "report.html")
    page = tree_of(text)
    tags = {element.tag.split("}")[-1] for element in page.iter()}
    assert not tags & {"script", "img", "iframe", "object", "embed", "image", "use", "base", "form", "foreignObject"}
    for element in page.iter():
        for key, value in element.attrib.items():
            assert not key.startswith("on")
            if key in ("href", "src"):
                assert value == "data:," or value.startswith("#")
    assert "url(" not in text
    assert "@import" not in text
    assert set(re.findall(r"https?://[^\s\"']+", text)) == {"http://www.w3.org/2000/svg"}  # the name of a language
    policy = next(meta for meta in page.iter("meta") if meta.get("http-equiv"))
    assert policy.get("content").startswith("default-src 'none'")


def test_names_that_mean_harm_are_text(tmp_path):
    table = odd_table()
    model = fit_table(table, {"many": "categorical"}, steps=2, points=4, width=4)
    model.summary["training"]["stopped"] = HOSTILE
    text = written(model, table, tmp_path / "report.html")
    page = tree_of(text)
    assert page.find(".//script") is None
    assert "<script" not in text
    shown = HOSTILE.replace("\u202e", "\ufffd").replace("\x00", "\ufffd")
    assert any(element.get("title") == shown for element in page.iter("th"))


def test_the_same_seed_gives_the_same_page(mixed, tmp_path):
    pages = [written(*mixed, tmp_path / f"{i}.html", seed=seed) for i, seed in enumerate((5, 5, 6))]
    assert pages[0] == pages[1]
    assert pages[0] != pages[2]


@pytest.mark.parametrize("seed", [-1, 1.5, "a"])
def test_a_seed_is_a_check_integer(mixed, tmp_path, seed):
    with pytest.raises(pc.ArgumentError, match="seed"):
        write_report(*mixed, tmp_path / "report.html", seed=seed)


def test_a_saved_model_gives_the_same_page(mixed, tmp_path):
    model, table = mixed
    model.save(tmp_path / "model")
    before = written(model, table, tmp_path / "a.html")
    assert written(TableModel.load(tmp_path / "model"), table, tmp_path / "b.html") == before


def test_neither_the_model_nor_the_global_randomness_changes(mixed, tmp_path):
    model, table = mixed
    state, numbers = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    before = model.log_density(table)
    write_report(model, table, tmp_path / "report.html")
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(np.random.get_state()[1], numbers)  # noqa: NPY002
    assert np.array_equal(model.log_density(table), before)


def test_another_table_than_that_of_the_training(mixed, tmp_path):
    model, table = mixed
    few = {name: column[:3] for name, column in table.items()}
    page = tree_of(written(model, few, tmp_path / "report.html"))
    tiles = next(div for div in page.iter("div") if div.get("class") == "tiles")
    assert "".join(tiles[0].itertext()) == "3rows"


def test_a_table_without_a_single_value(mixed, tmp_path):
    model, table = mixed
    page = written(model, {key: [None, None] for key in table}, tmp_path / "report.html")
    tree_of(page)
    assert "There are no two columns with values" in page
    assert "No column has enough different values" in page
    assert "0 of 2 rows" in page


def test_a_page_that_was_there_stays_when_writing_fails(mixed, tmp_path, monkeypatch):
    model, table = mixed
    path = tmp_path / "report.html"
    path.write_text("before")
    with pytest.raises(pc.ArgumentError):
        write_report(model, {"other": [1.0]}, path)
    assert path.read_text() == "before"

    def full(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="full"):
        write_report(model, table, path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_wrong_path_is_an_error(mixed, tmp_path):
    with pytest.raises(OSError, match="nowhere"):
        write_report(*mixed, tmp_path / "nowhere" / "report.html")
