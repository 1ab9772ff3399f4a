# SPDX-License-Identifier: Apache-2.0
"""Saving and loading models with correlated columns."""

from __future__ import annotations

import math

import pytest
import torch

import picirc as pc
from block_circuits import TREE, make_pic
from picirc.io.describe import from_file, to_file
from test_io import assert_same, broken, read, rewrite

SHARING = ("none", "composite", "full")
GRAPH = pc.random_regions(7, 0, repetitions=2, depth=1)


@pytest.mark.parametrize("sharing", SHARING)
@pytest.mark.parametrize("structure", [TREE, GRAPH], ids=["tree", "graph"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_correlated_model_comes_back_with_the_same_bits(structure, sharing, dtype, tmp_path):
    model = make_pic(structure=structure, input_sharing=sharing).to(dtype)
    assert len(model.correlations) > 1
    pc.save(model, tmp_path / "model")
    found = pc.load(tmp_path / "model")
    assert found.correlated is True
    assert_same(model, found)
    stored = to_file(model)
    back = from_file(model, stored)
    assert all(torch.equal(value, back[name]) for name, value in model.state_dict().items())
    assert sum(t.numel() for t in stored.values()) == sum(t.numel() for t in model.state_dict().values())


def test_blocks_stand_by_their_first_variable():
    model = make_pic()
    for raw, size in zip(model.correlations, model.blocks, strict=True):
        raw.data.fill_(size)
    stored = to_file(model)
    assert stored["correlations.block0"].tolist() == [3.0, 3.0, 3.0]  # columns 1, 2 and 4
    assert stored["correlations.block1"].tolist() == [2.0]  # columns 3 and 5
    assert len(stored["inputs.1.1.0.block0.head"]) == 3
    assert len(stored["inputs.1.1.0.block1.head"]) == 2


@pytest.mark.parametrize("correlated", [True, False])
def test_the_description_says_it(correlated, tmp_path):
    pc.save(make_pic(correlated=correlated), tmp_path)
    assert pc.io.describe(tmp_path)["settings"]["correlated"] is correlated
    assert pc.load(tmp_path).correlated is correlated


def without(description: dict, name: str) -> dict:
    settings = {key: value for key, value in description["settings"].items() if key != name}
    return description | {"settings": settings}


def test_a_description_from_before_there_were_correlations(tmp_path):
    path = tmp_path / "m.safetensors"
    model = make_pic(correlated=False)
    pc.save(model, path)
    description, tensors = read(path)
    rewrite(path, without(description, "correlated"), tensors)
    found = pc.load(path)
    assert found.correlated is False
    assert_same(model, found)


def test_other_settings_may_not_be_left_out(tmp_path):
    path = tmp_path / "m.safetensors"
    pc.save(make_pic(), path)
    description, tensors = read(path)
    for name in ("width", "fourier"):
        rewrite(path, without(description, name), tensors)
        assert name in broken(path)
    rewrite(path, without(description, "correlated"), tensors)  # then the tensors are not those of the model
    broken(path)


@pytest.mark.parametrize("value", [1, 0, "true", None, [True]])
def test_the_option_is_a_truth_value(value, tmp_path):
    path = tmp_path / "m.safetensors"
    pc.save(make_pic(), path)
    description, tensors = read(path)
    settings = description["settings"] | {"correlated": value}
    rewrite(path, description | {"settings": settings}, tensors)
    assert "correlated" in broken(path)


def test_tables_of_earlier_versions_have_no_correlations(tmp_path):
    path = tmp_path / "m.safetensors"
    pc.save(pc.HCLT(pc.chain(3), pc.Gaussian(), states=2), path)
    description, tensors = read(path)
    earlier = {name: value for name, value in description["settings"].items() if name != "correlated"}
    rewrite(path, description | {"settings": earlier}, tensors)
    assert pc.load(path).correlated is False


def test_correlations_that_do_not_fit_are_refused(tmp_path):
    path = tmp_path / "m.safetensors"
    pc.save(make_pic(), path)
    description, tensors = read(path)
    name = "correlations.block0"
    good = tensors[name]
    for changed in (
        tensors | {name: good[:2].contiguous()},
        tensors | {name: torch.cat([good, good])},
        tensors | {name: good.unsqueeze(0)},
        tensors | {name: torch.eye(3, dtype=good.dtype)},
        tensors | {name: good.float()},
        tensors | {name: torch.full_like(good, math.nan)},
        tensors | {"correlations.block2": good.clone()},
        {key: value for key, value in tensors.items() if key != name},
    ):
        rewrite(path, description, changed)
        broken(path)
