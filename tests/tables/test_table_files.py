# SPDX-License-Identifier: Apache-2.0
"""Models of tables in files: the same answers, or an error in words."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import mixed_tables
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load as load_tensors
from without_frames import use_a_model

import picirc as pc
from picirc.io import files
from processes import in_process

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def penguins() -> Any:
    return mixed_tables.penguin_table()


@pytest.fixture(scope="module")
def model() -> pc.TableModel:
    return mixed_tables.penguin_model()


@pytest.fixture(scope="module")
def small() -> pc.TableModel:
    """A model with a column of each way to be encoded."""
    table = {"a": ["x", "y"] * 10, "b": np.arange(20.0), "c": [True, False] * 10, "d": [None] * 20, "n": range(20)}
    return pc.fit_table(table, {"n": "poisson"}, points=3, width=2, steps=1, settings={"members": 1})


@pytest.fixture(scope="module")
def saved(small, tmp_path_factory) -> Path:
    path: Path = tmp_path_factory.mktemp("saved") / "m.safetensors"
    small.save(path)
    return path


def same(model: pc.TableModel, other: pc.TableModel) -> None:
    assert other.schema == model.schema
    assert other.summary == model.summary
    assert other.points == model.points
    rows = model.sample(5, seed=0)
    rows["a"][0] = None
    np.testing.assert_array_equal(model.log_density(rows), other.log_density(rows))


@pytest.mark.parametrize("name", ["model", "model.safetensors"])
def test_a_model_comes_back_with_its_schema_and_summary(name, model, penguins, tmp_path):
    model.save(tmp_path / name)
    found = pc.TableModel.load(tmp_path / name)
    assert found.schema == model.schema
    assert found.summary == model.summary
    np.testing.assert_array_equal(found.log_density(penguins), model.log_density(penguins))
    assert found.sample(3, seed=0).equals(model.sample(3, seed=0))
    assert torch.equal(pc.load(tmp_path / name)(pc.shifted(8)).mean, model.pic(pc.shifted(8)).mean)


def test_the_schema_can_be_read_by_people(model, tmp_path):
    model.save(tmp_path)
    description = json.loads((tmp_path / "model.json").read_text(encoding="utf-8"))
    assert pc.Schema.from_json(description["table"]["schema"]) == model.schema
    assert description["summary"] == model.summary


def test_a_model_without_a_table_is_refused_with_a_remedy(tmp_path):
    pc.save(pc.PIC(pc.chain(2), pc.Bernoulli(), width=2), tmp_path / "pic")
    pc.save(pc.HCLT(pc.chain(2), pc.Bernoulli(), states=2), tmp_path / "hclt")
    pc.save(pc.HCLT(pc.chain(2), pc.Bernoulli(), states=2), tmp_path / "half", table={"points": 3})
    for name in ("pic", "hclt"):
        with pytest.raises(pc.ArgumentError, match=r"pc\.load reads models without a table"):
            pc.TableModel.load(tmp_path / name)
    with pytest.raises(pc.ArgumentError, match="schema"):
        pc.TableModel.load(tmp_path / "half")


def loaded(path: Path) -> pc.TableModel | None:
    """The model in a file, or None if it is refused; nothing else may happen."""
    try:
        return pc.TableModel.load(path)
    except pc.ArgumentError:
        return None


def test_flipped_bytes_are_found(small, saved, tmp_path):
    content = saved.read_bytes()
    source = random.Random(0)
    for place in [*range(0, len(content), 401), *(source.randrange(len(content)) for _ in range(30))]:
        changed = bytearray(content)
        changed[place] ^= 1 << source.randrange(8)
        (tmp_path / "m.safetensors").write_bytes(changed)
        found = loaded(tmp_path / "m.safetensors")
        if found is not None:
            same(small, found)


def rewrite(path: Path, content: bytes, change: Any) -> None:
    """A file whose description is changed, and whose checksums agree with that."""
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    description = json.loads(header["__metadata__"]["picirc"])["description"]
    change(description)
    text = json.dumps({"sha256": files._sign(description), "description": description})
    path.write_bytes(files.save(load_tensors(content), metadata={"picirc": text}))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.pop("table"), "without a table"),
        (lambda d: d.update(table=3), "dict"),
        (lambda d: d["table"].pop("schema"), "schema"),
        (lambda d: d["table"].update(points=10**12), "at most"),
        (lambda d: d["table"].update(points=True), "int"),
        (lambda d: d["table"].update(more=1), "nothing besides points, schema"),
        (lambda d: d["table"]["schema"]["columns"].pop(), "families of the model"),
        (lambda d: d["table"]["schema"]["columns"].reverse(), "families of the model"),
        (lambda d: d["table"]["schema"]["columns"][0].update(categories=["x"]), "2 labels"),
        (lambda d: d["table"]["schema"]["columns"][0].update(categories=["x", "x"]), "distinct"),
        (lambda d: d["table"]["schema"]["columns"][0].update(categories=["x", 1]), "distinct values of type text"),
        (lambda d: d["table"]["schema"]["columns"][0].update(name="b"), "a unique name"),
        (lambda d: d["table"]["schema"]["columns"][1].update(scale=0.0), "positive scale"),
        (lambda d: d["table"]["schema"]["columns"][1].update(location=10**400), "finite number"),
        (lambda d: d["table"]["schema"]["columns"][1]["family"].update(name="os.system"), "os.system"),
        (lambda d: d["table"]["schema"]["columns"][1].update(dtype="object"), "dtype"),
        (lambda d: d["table"]["schema"].update(container="os"), "container"),
        (lambda d: d["table"]["schema"].update(unseen="guess"), "unseen"),
        (lambda d: d.update(summary=[1]), "dict"),
    ],
)
def test_a_hostile_description_is_refused(change, words, saved, tmp_path):
    path = tmp_path / "m.safetensors"
    rewrite(path, saved.read_bytes(), change)
    with pytest.raises(pc.ArgumentError) as caught:
        pc.TableModel.load(path)
    assert "m.safetensors" in str(caught.value)
    assert words in str(caught.value)


@given(data=st.data())
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_a_description_says_a_model_works_or_is_refused(data, saved, tmp_path):
    path = tmp_path / "m.safetensors"

    def change(description: dict[str, Any]) -> None:
        place: Any = description["table"]
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = data.draw(st.sampled_from(keys))
            if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.integers(0, 3)) == 0:
                break
            place = place[key]
        if data.draw(st.booleans()) and isinstance(place, dict):
            del place[key]
        else:
            place[key] = data.draw(JSON)

    rewrite(path, saved.read_bytes(), change)
    found = loaded(path)
    if found is not None and found.points < 20:
        assert str(found.schema)
        assert abs(found.log_density({name: [None] for name in found.schema.names})[0]) < 1e-4
        assert found.schema.encode(found.sample(2)).shape == (2, 5)


def test_a_summary_must_be_plain_and_nothing_is_left_behind(small, tmp_path):
    wrong = copy.copy(small)
    wrong.summary = {"x": object()}
    with pytest.raises(pc.ArgumentError, match="plain JSON"):
        wrong.save(tmp_path / "m.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_a_model_answers_where_no_data_frames_are_installed(model, tmp_path):
    """A table that was a data frame becomes a mapping there, and importing the estimators asks for none."""
    model.save(tmp_path)
    assert in_process(use_a_model, tmp_path) == 0
