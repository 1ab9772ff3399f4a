# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: everything comes back, nothing half-written stays, and what does not fit is refused."""

from __future__ import annotations

import os

import pytest
import torch
from safetensors.torch import save_file

import picirc as pc
from neural import bits, make_hclt, make_pic, same_bits
from picirc.learning import loop as module
from picirc.learning.loop import load_checkpoint, load_parameters, restore, save_checkpoint

STATE = {"step": 7, "best_score": -1.25, "records": [{"step": 5, "valid": float("nan")}], "identity": {"seed": 0}}


def trained(kind=torch.optim.Adam) -> tuple[pc.PIC, torch.optim.Optimizer]:
    """A model after two steps, with an optimizer that remembers them."""
    model = make_pic()
    optimizer = kind(model.parameters(), lr=0.1)
    for _ in range(2):
        sum(p.square().sum() for p in model.parameters()).backward()
        optimizer.step()
    return model, optimizer


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_everything_comes_back_bit_for_bit(tmp_path, kind):
    model, optimizer = trained(kind)
    best = bits(make_pic(seed=5))
    save_checkpoint(tmp_path / "new" / "folder", model, best, optimizer, STATE)
    found = load_checkpoint(tmp_path / "new" / "folder")
    assert found is not None
    assert found.state["step"] == 7
    assert found.state["best_score"] == -1.25
    assert found.part("best.").keys() == best.keys()
    assert all(torch.equal(value, best[name]) for name, value in found.part("best.").items())
    other = make_pic(seed=9)
    again = kind(other.parameters(), lr=0.1)
    restore(found, other, again)
    assert same_bits(model, other)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        first, second = optimizer.state[one], again.state[two]
        assert first.keys() == second.keys() == {"step", "exp_avg", "exp_avg_sq"}
        assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_restored_optimizer_takes_the_same_steps(tmp_path):
    model, optimizer = trained()
    save_checkpoint(tmp_path, model, {}, optimizer, STATE)
    other = make_pic(seed=9)
    again = torch.optim.Adam(other.parameters(), lr=0.1)
    found = load_checkpoint(tmp_path)
    assert found is not None
    restore(found, other, again)
    for one, solver in ((model, optimizer), (other, again)):
        solver.zero_grad()
        sum(p.sin().sum() for p in one.parameters()).backward()
        solver.step()
    assert same_bits(model, other)


def test_there_may_be_none(tmp_path):
    assert load_checkpoint(tmp_path) is None
    assert load_checkpoint(tmp_path / "nowhere") is None


def written(tmp_path) -> bytes:
    model, optimizer = trained()
    save_checkpoint(tmp_path, model, {}, optimizer, STATE)
    (path,) = tmp_path.iterdir()
    return path.read_bytes()


@pytest.mark.parametrize("where", ["writing", "moving"])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, where):
    before = written(tmp_path)

    def half(tensors, path, metadata=None):
        path.write_bytes(before[: len(before) // 2])
        raise OSError("no space left on device")

    def refuse(source, target):
        raise OSError("no space left on device")

    if where == "writing":
        monkeypatch.setattr(module, "save_file", half)
    else:
        monkeypatch.setattr(os, "replace", refuse)
    model = make_pic(seed=2)
    with pytest.raises(OSError, match="no space left"):
        save_checkpoint(tmp_path, model, {}, None, STATE)
    (path,) = tmp_path.iterdir()
    assert path.read_bytes() == before


def test_the_file_is_replaced_in_one_move(tmp_path, monkeypatch):
    before = written(tmp_path)
    seen = []
    replace = os.replace

    def watch(source, target):
        seen.append((target.read_bytes() == before, source.parent == target.parent))
        replace(source, target)

    monkeypatch.setattr(os, "replace", watch)
    save_checkpoint(tmp_path, make_pic(seed=2), {}, None, STATE)
    assert seen == [(True, True)]  # the old one is whole until then, and the new one is on the same disk
    (path,) = tmp_path.iterdir()
    assert path.read_bytes() != before


def damage(data: bytes, kind: str) -> bytes:
    return {"empty": b"", "half": data[: len(data) // 2], "header": b"\xff" * 64 + data[64:], "text": b"hello"}[kind]


@pytest.mark.parametrize("kind", ["empty", "half", "header", "text"])
def test_a_damaged_file_is_refused(tmp_path, kind):
    data = written(tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage(data, kind))
    with pytest.raises(pc.ArgumentError, match=r"resume: expected a checkpoint that was written completely.*delete it"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("metadata", [None, {}, {"state": "{"}, {"state": "[]"}, {"state": "{}"}])
def test_a_file_of_something_else_is_refused(tmp_path, metadata):
    save_file({"a": torch.zeros(2)}, tmp_path / "checkpoint.safetensors", metadata=metadata)
    with pytest.raises(pc.ArgumentError, match="resume: expected a checkpoint"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize(
    "other", [make_hclt(), make_pic(width=4), make_pic(sharing="none"), make_pic(inputs=pc.Bernoulli())]
)
def test_tensors_of_another_model_are_refused_and_change_nothing(other):
    model = make_pic()
    before = bits(model)
    with pytest.raises(pc.ArgumentError, match=r"resume: expected a checkpoint of this model.*use another folder"):
        load_parameters(model, bits(other))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
