# SPDX-License-Identifier: Apache-2.0
"""Interrupted trainings continue as if they had never stopped; what does not belong together is refused."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import picirc as pc
from neural import STRUCTURES, Shape, data_for, make_hclt, make_pic, same_bits, without_time

X = data_for()
SMALL = pc.shifted(4)


class Interrupt:
    def __init__(self, at: int) -> None:
        self.at = at

    def __call__(self, record: dict[str, float]) -> None:
        if record["step"] == self.at:
            raise KeyboardInterrupt


RESUMED = {
    "shifted": (make_pic(), {"rule": pc.shifted(4)}),
    "fixed": (make_pic(sharing="none"), {"rule": pc.trapezoidal(4), "optimizer": "adamw", "weight_decay": 0.1}),
    "graph": (make_pic(STRUCTURES["quad_graph"]), {"clip": 0.5, "accumulate": 2, "rule": pc.shifted(3)}),
    "learnable": (make_pic(learnable=True), {"schedule": pc.Cosine(0.1, 0.01, 7)}),
    "tables": (make_hclt(STRUCTURES["random_regions_tucker"]), {}),
}


@pytest.mark.parametrize("at", [4, 12])
@pytest.mark.parametrize(("model", "options"), RESUMED.values(), ids=RESUMED.keys())
def test_a_training_continues_bit_for_bit(tmp_path, model, options, at):
    options = {"steps": 24, "batch_size": 10, "validate_every": 4, **options}
    expected, straight = pc.fit(model, X, X[:20], **options)
    partial, history = pc.fit(model, X, X[:20], out=tmp_path, callbacks=[Interrupt(at)], **options)
    assert history.stopped == "interrupted"
    assert without_time(history) == without_time(straight)[: at // 4]
    assert bool(partial(pc.midpoint(3)).log_prob(X).isfinite().all() if isinstance(partial, pc.PIC) else True)
    resumed, whole = pc.fit(model, X, X[:20], out=tmp_path, resume=True, **options)
    assert same_bits(resumed, expected)
    assert without_time(whole) == without_time(straight)
    assert whole.stopped == "all steps done"


def test_a_training_can_be_interrupted_again_and_again(tmp_path):
    options = {"steps": 15, "batch_size": 10, "validate_every": 3, "rule": SMALL}
    expected, straight = pc.fit(make_pic(), X, **options)
    pc.fit(make_pic(), X, out=tmp_path, callbacks=[Interrupt(3)], **options)
    for at in (6, 12, 15):
        model, history = pc.fit(make_pic(), X, out=tmp_path, resume=True, callbacks=[Interrupt(at)], **options)
    assert same_bits(model, expected)
    assert without_time(history) == without_time(straight)


def loader() -> DataLoader:
    return DataLoader(TensorDataset(X), batch_size=10, shuffle=True, generator=torch.Generator().manual_seed(5))


def test_a_training_from_a_loader_continues_bit_for_bit(tmp_path):
    options = {"steps": 16, "validate_every": 4, "rule": SMALL}
    expected, straight = pc.fit(make_pic(), loader(), **options)
    pc.fit(make_pic(), loader(), out=tmp_path, callbacks=[Interrupt(8)], **options)
    resumed, whole = pc.fit(make_pic(), loader(), out=tmp_path, resume=True, **options)
    assert same_bits(resumed, expected)
    assert without_time(whole) == without_time(straight)


def test_the_initial_model_of_a_resumed_training_does_not_matter(tmp_path):
    """Everything comes from the checkpoint, the fixed frequencies included."""
    options = {"steps": 8, "validate_every": 4, "rule": SMALL}
    expected, _ = pc.fit(make_pic(), X, **options)
    pc.fit(make_pic(), X, out=tmp_path, callbacks=[Interrupt(4)], **options)
    resumed, _ = pc.fit(make_pic(seed=8), X, out=tmp_path, resume=True, **options)
    assert same_bits(resumed, expected)


@pytest.mark.parametrize(
    ("model", "changed", "name"),
    [
        (make_pic(), {"seed": 1}, "seed"),
        (make_pic(), {"batch_size": 8}, "batch_size"),
        (make_pic(), {"steps": 9}, "steps"),
        (make_pic(), {"rule": pc.shifted(5)}, "rule"),
        (make_pic(), {"rule": pc.midpoint(4)}, "rule"),
        (make_pic(), {"schedule": pc.Cosine(0.1, 0.01)}, "schedule"),
        (make_pic(), {"optimizer": "adam"}, "optimizer"),
        (make_pic(), {"weight_decay": 0.1}, "weight_decay"),
        (make_pic(), {"clip": 1.0}, "clip"),
        (make_pic(), {"accumulate": 2}, "accumulate"),
        (make_pic(), {"validate_every": 2}, "validate_every"),
        (make_pic(width=4), {}, "model"),
        (make_pic(Shape(pc.random_tree(4, 3))), {}, "model"),
        (make_pic(learnable=False), {}, "model"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(tmp_path, model, changed, name):
    options = {"steps": 8, "batch_size": 16, "validate_every": 4, "rule": SMALL}
    pc.fit(make_pic(), X, out=tmp_path, callbacks=[Interrupt(4)], **options)
    with pytest.raises(pc.ArgumentError, match=f"resume: expected the settings .* got other values of {name}; use"):
        pc.fit(model, X, out=tmp_path, resume=True, **{**options, **changed})


def test_a_damaged_checkpoint_is_refused(tmp_path):
    pc.fit(make_pic(), X, out=tmp_path, steps=2)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(pc.ArgumentError, match="resume: expected a checkpoint that was written completely"):
        pc.fit(make_pic(), X, out=tmp_path, steps=2, resume=True)


def test_without_resume_a_training_begins_anew(tmp_path):
    first, _ = pc.fit(make_pic(), X, out=tmp_path, steps=3)
    again, _ = pc.fit(make_pic(), X, out=tmp_path, steps=3)
    assert same_bits(first, again)
