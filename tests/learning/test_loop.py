# SPDX-License-Identifier: Apache-2.0
"""The loop that all trainings share, with steps that only count."""

from __future__ import annotations

import json
import math
import signal
import sys
import threading
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import picirc as pc
from neural import STRUCTURES, Shape, data_for, make_hclt, make_pic
from picirc.learning.loop import CollapseWarning, Loop, NotFiniteError, Settings, identity_of


class Counter(nn.Module):
    """A model whose only parameter is the number of steps that it went through."""

    def __init__(self) -> None:
        super().__init__()
        self.count = nn.Parameter(torch.zeros((), dtype=torch.float64))

    def step(self, number: int, size: float) -> float:
        assert int(self.count) <= number  # fewer after a return to the best parameters
        with torch.no_grad():
            self.count += 1
        return -number / 1000


def run(scores, model=None, step=None, identity=None, **settings):
    """Train a counter whose validation score after step n is ``scores(n)``; the model, the history and the loop."""
    model = model or Counter()
    settings = {"steps": 20, "validate_every": 2, "patience": None, **settings}
    loop = Loop(Settings(**settings), model, None, 2, identity or {"seed": 0})
    validate = (lambda: None) if scores is None else (lambda: scores(int(model.count)))
    return model, loop.run(step or model.step, validate, lambda number: 1.0 / (1 + number))


def peak(at: int):
    return lambda n: -abs(n - at) / 1000


def test_the_best_parameters_on_validation_are_returned():
    model, history = run(peak(6))
    assert int(model.count) == 6
    assert history.best["step"] == 6
    assert history.stopped == "all steps done"
    assert [record["step"] for record in history.records] == list(range(2, 21, 2))


def test_training_anneals_from_the_best_parameters_when_nothing_improves():
    model, sizes = Counter(), []

    def step(number: int, size: float) -> float:
        sizes.append(size)
        return model.step(number, size)

    model, history = run(peak(6), model, step, patience=5, steps=40)
    # At step 12 patience has run out; five steps from the best parameters follow, none of them an improvement.
    assert int(model.count) == 6
    assert [record["step"] for record in history.records] == [2, 4, 6, 8, 10, 12, 14, 16, 17]
    assert history.records[6]["valid"] == peak(6)(8)
    assert history.stopped == "no improvement in 5 steps"
    start, end = 1 / 13, 1 / 40
    falling = [end + (start - end) * (1 + math.cos(math.pi * n / 5)) / 2 for n in range(5)]
    assert sizes[12:] == pytest.approx([min(1 / (13 + n), size) for n, size in enumerate(falling)])


def test_annealing_may_improve_the_model():
    scores = iter([0.1, 0.2, 0.1, 0.1, 0.3, 0.4])  # patience runs out after the fourth
    model, history = run(lambda n: next(scores), patience=4, steps=40)
    assert history.best["step"] == 12
    assert int(model.count) == 4 + 4  # from the best parameters of step 4, four steps more
    assert history.records[-1]["step"] == 12


def test_without_smaller_steps_to_come_training_stops_when_nothing_improves():
    model = Counter()
    loop = Loop(Settings(steps=20, validate_every=2, patience=5), model, None, 2, {})
    history = loop.run(model.step, lambda: peak(6)(int(model.count)), lambda number: 1.0)
    assert history.records[-1]["step"] == 12  # the first validation with at least five steps without improvement
    assert history.stopped == "no improvement in 6 steps"


def test_without_validation_the_training_likelihood_decides():
    model, history = run(None, validate_every=5)
    assert int(model.count) == 5  # it gets worse with every step
    assert all(math.isnan(record["valid"]) for record in history.records)
    assert history.best["step"] == 5


def test_records_say_what_happened():
    _, history = run(peak(6), steps=5)
    assert [record["step"] for record in history.records] == [2, 4, 5]  # and one at the end
    assert [record["train"] for record in history.records] == [-0.0005, -0.0025, -0.004]  # means since the last record
    assert [record["valid"] for record in history.records] == [-0.004, -0.002, -0.001]
    assert [record["rate"] for record in history.records] == [1 / 2, 1 / 4, 1 / 5]
    assert history.records[0]["bits"] == pytest.approx(0.004 / 2 / math.log(2))
    seconds = [record["seconds"] for record in history.records]
    assert seconds == sorted(seconds)
    assert repr(history) == f"History(5 steps, best bits {0.001 / 2 / math.log(2):.4f}, stopped: all steps done)"


def rising(n: int) -> float:
    return n / 10


@pytest.mark.parametrize("fallen", [-5.0, math.nan, -math.inf])
def test_a_collapse_goes_back_to_the_best_parameters_with_smaller_steps(fallen):
    model, sizes = Counter(), {}

    def step(number: int, size: float) -> float:
        sizes[number] = size
        with torch.no_grad():
            model.count += 1
        return -9.0 if number in (6, 7) else 0.0

    scores = iter([0.2, 0.4, 0.6, fallen, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3])  # at validations
    with pytest.warns(CollapseWarning, match="fell from 0.6 .* at step 8: back to the parameters of step 6"):
        model, history = run(lambda n: next(scores), model, step)
    assert int(model.count) == 18  # of 20 steps two were lost
    assert len(history.collapses) == 1
    assert sizes[7] == 1 / 8
    assert sizes[8] == pytest.approx(0.3 / 9)
    assert history.best["step"] == 20


def test_a_collapse_does_not_count_as_a_lack_of_improvement():
    scores = iter([0.2, 0.4, -9.0, 0.3, 0.3, 0.5, 0.5, 0.5, 0.5, 0.5])
    model = Counter()
    with pytest.warns(CollapseWarning):
        _, history = run(lambda n: next(scores), model, lambda number, size: -float(number in (4, 5)), patience=5)
    assert history.best["step"] == 12  # five steps after the best one, and less after going back


def test_a_likelihood_that_is_not_finite_goes_back_unless_no_step_was_taken():
    model, calls = Counter(), []

    def step(number: int, size: float) -> float:
        calls.append(number)
        if number == bad:
            raise NotFiniteError("train", "a finite log-likelihood", "nan")
        return model.step(int(model.count), size)

    bad = 5
    with pytest.warns(CollapseWarning, match="was not finite at step 5: back to the parameters of step 4"):
        run(rising, model, step, steps=10)
    assert calls == list(range(10))
    bad, model = 0, Counter()
    with pytest.raises(NotFiniteError):
        run(rising, model, step)


def test_overfitting_is_not_a_collapse():
    scores = iter([-3.0, -1.0, 0.0, *range(-1, -8, -1)])
    _, history = run(lambda n: next(scores), step=lambda number, size: float(number))
    assert history.collapses == []
    assert history.best["step"] == 6


def test_a_likelihood_that_keeps_collapsing_is_an_error():
    def score(n: int) -> float:
        calls.append(n)
        return 0.0 if len(calls) == 1 else -9.0

    calls: list[int] = []
    message = "valid: expected a log-likelihood that does not collapse.*smaller steps"
    with pytest.warns(CollapseWarning), pytest.raises(pc.ArgumentError, match=message):
        run(score, step=lambda number, size: -float(number > 1))


def test_collapses_survive_an_interruption(tmp_path):
    def play(**options):
        model = Counter()
        values = {6: 0.6, 8: -9.0}
        seen = iter(range(2, 21, 2))
        if options.get("resume"):
            seen = iter(range(12, 21, 2))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CollapseWarning)
            return run(
                lambda n: values.get(step := next(seen), step / 1000),
                model,
                lambda number, size: model.step(int(model.count), size) - (number in (6, 7)),
                **options,
            )

    options = {"out": tmp_path, "checkpoint_every": 2}
    play(callbacks=[Interrupt(10)], **options)
    _, resumed = play(resume=True, **options)
    _, straight = play()
    assert resumed.collapses == straight.collapses
    assert [r["rate"] for r in resumed.records] == [r["rate"] for r in straight.records]


def test_a_score_of_minus_infinity_is_never_the_best():
    model, history = run(lambda n: -5.0 if n == 4 else -math.inf)
    assert int(model.count) == 4
    assert history.best["step"] == 4


class Interrupt:
    """A callback that interrupts at a step."""

    def __init__(self, at: int, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.at, self.error = at, error

    def __call__(self, record: pc.learning.history.Record) -> None:
        if record["step"] == self.at:
            raise self.error


def test_an_interrupted_training_returns_the_best_so_far():
    model, history = run(peak(6), callbacks=[Interrupt(10)])
    assert int(model.count) == 6
    assert history.stopped == "interrupted"
    assert history.records[-1]["step"] == 10


def test_a_callback_ends_a_training():
    model, history = run(peak(6), callbacks=[Interrupt(10, StopIteration)])
    assert int(model.count) == 6
    assert (history.stopped, history.records[-1]["step"]) == ("ended by a callback", 10)


def test_an_interruption_before_the_first_record_returns_what_there_is():
    def step(number: int, size: float) -> float:
        if number == 5:
            raise KeyboardInterrupt
        return model.step(number, size)

    model = Counter()
    _, history = run(peak(6), model, step, validate_every=10)
    assert int(model.count) == 5
    assert repr(history) == "History(empty)"
    with pytest.raises(pc.ArgumentError, match="history: expected at least one record"):
        _ = history.best


@pytest.mark.parametrize("at", [2, 6, 10, 18, 20])
@pytest.mark.parametrize("scores", [peak(6), peak(14), None], ids=["peak", "late", "none"])
def test_a_training_continues_as_if_never_stopped(tmp_path, at, scores):
    options = {"patience": 9, "out": tmp_path}
    expected, straight = run(scores, patience=9)
    run(scores, callbacks=[Interrupt(at)], **options)
    for _ in range(2):  # also when it was finished already
        model, history = run(scores, resume=True, **options)
        assert torch.equal(model.count, expected.count)
        assert history.stopped == straight.stopped
        assert without_seconds(history) == without_seconds(straight)


def without_seconds(history: pc.History) -> str:
    return json.dumps([{**record, "seconds": 0} for record in history.records])  # a text, in which NaN equals NaN


def test_a_crash_continues_from_the_last_checkpoint(tmp_path):
    options = {"out": tmp_path, "checkpoint_every": 3}
    with pytest.raises(ZeroDivisionError):
        run(peak(14), callbacks=[Interrupt(8, ZeroDivisionError)], **options)
    model, history = run(peak(14), resume=True, **options)
    expected, straight = run(peak(14))
    assert torch.equal(model.count, expected.count)
    assert without_seconds(history) == without_seconds(straight)


def test_the_middle_of_a_step_is_never_a_checkpoint(tmp_path):
    def step(number: int, size: float) -> float:
        value = model.step(number, size)
        if number == 7:
            raise KeyboardInterrupt  # the parameters have changed, but the step has not ended
        return value

    model = Counter()
    run(peak(14), model, step, out=tmp_path, checkpoint_every=3)
    model, _ = run(peak(14), out=tmp_path, checkpoint_every=3, resume=True)
    assert int(model.count) == 14


@pytest.fixture
def pythons_own_handler():
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals are for the main thread")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("pythons_own_handler")
def test_control_c_lets_a_step_end(tmp_path):
    ended = []

    def step(number: int, size: float) -> float:
        if number == 7:
            signal.raise_signal(signal.SIGINT)
        ended.append(number)
        return model.step(number, size)

    model = Counter()
    _, history = run(peak(14), model, step, out=tmp_path)
    assert ended[-1] == 7
    assert history.stopped == "interrupted"
    assert history.records[-1]["step"] == 8  # what was due after the step was done too
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    model, _ = run(peak(14), out=tmp_path, resume=True)
    assert int(model.count) == 14


@pytest.mark.usefixtures("pythons_own_handler")
def test_a_second_control_c_does_not_wait():
    def step(number: int, size: float) -> float:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("not reached")

    _, history = run(peak(6), step=step)
    assert history.stopped == "interrupted"


@pytest.mark.usefixtures("pythons_own_handler")
def test_another_handler_is_left_alone():
    asked = []
    signal.signal(signal.SIGINT, lambda *_: asked.append(True))

    def step(number: int, size: float) -> float:
        signal.raise_signal(signal.SIGINT)
        return 0.0

    _, history = run(lambda n: 0.0, step=step, steps=3)
    assert history.stopped == "all steps done"
    assert asked == [True] * 3


def test_training_works_outside_the_main_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(run(peak(6))))
    thread.start()
    thread.join()
    assert int(found[0][0].count) == 6


@pytest.mark.parametrize(
    ("name", "value"),
    [(n, v) for n in ("steps", "validate_every", "checkpoint_every", "patience") for v in (0, -1, 1.5, True)],
)
def test_wrong_numbers_are_refused(name, value):
    with pytest.raises(pc.ArgumentError, match=f"{name}: expected a positive integer, got {value}"):
        run(peak(6), **{name: value})


def test_resuming_needs_a_folder():
    with pytest.raises(pc.ArgumentError, match="resume: expected a folder to resume from, got none; give out="):
        run(peak(6), resume=True)


def test_resuming_without_a_checkpoint_begins(tmp_path):
    model, _ = run(peak(6), out=tmp_path, resume=True)
    assert int(model.count) == 6


@pytest.mark.parametrize("other", [{"seed": 1, "rule": "a"}, {"seed": 0}, {"seed": 0, "rule": "a", "clip": None}])
def test_other_settings_are_refused(tmp_path, other):
    run(peak(6), out=tmp_path, identity={"seed": 0, "rule": "a"})
    changed = {"seed": "seed", "rule": "rule", "clip": "clip"}
    (name,) = [n for n in changed if other.get(n, "?") != {"seed": 0, "rule": "a"}.get(n, "?")]
    with pytest.raises(pc.ArgumentError, match=f"resume: expected the settings .* got other values of {name}; use"):
        run(peak(6), out=tmp_path, resume=True, identity=other)


def test_the_identity_of_a_model_is_its_structure_and_its_kinds_of_parameters():
    base = identity_of(make_pic(seed=0))
    assert identity_of(make_pic(seed=1)) == base
    others = [
        make_pic(Shape(pc.random_tree(4, 3))),  # tensors of the same shapes
        make_pic(learnable=False),
        make_pic(inputs=pc.Bernoulli()),
        make_pic(sharing="none"),
        make_hclt(),
        make_hclt(STRUCTURES["quad_graph"]),
        make_hclt(STRUCTURES["quad_graph_tucker"]),
    ]
    assert pc.random_tree(4, 3) != pc.random_tree(4, 0)
    assert len({base, *map(identity_of, others)}) == len(others) + 1


def test_metrics_become_lines_of_json(tmp_path):
    path = tmp_path / "metrics.jsonl"
    _, first = run(peak(6), steps=4, callbacks=[pc.json_lines(path)])
    _, second = run(None, steps=2, callbacks=[pc.json_lines(str(path))])

    def refuse(constant: str) -> float:
        raise AssertionError(f"{constant} is not JSON")

    lines = [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]
    assert lines[:2] == first.records
    assert lines[2] == {**second.records[0], "valid": None}


def test_tensorboard_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match=r'pip install "picirc\[tracking\]"'):
        pc.tensorboard(tmp_path)


def test_tensorboard_gets_every_number(tmp_path, monkeypatch):
    written = []

    class Writer:
        def __init__(self, folder: str) -> None:
            assert Path(folder) == tmp_path

        def add_scalar(self, name: str, value: float, step: int) -> None:
            written.append((name, value, step))

        def flush(self) -> None:
            pass

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", type(sys)("tensorboard"))
    monkeypatch.setattr(sys.modules["torch.utils.tensorboard"], "SummaryWriter", Writer, raising=False)
    _, history = run(peak(6), steps=4, callbacks=[pc.tensorboard(tmp_path)])
    expected = [(n, v, r["step"]) for r in history.records for n, v in r.items() if n != "step"]
    assert written == expected


def test_the_mean_over_a_table_is_the_mean_of_its_rows():
    model, x = make_hclt(), data_for(rows=2500)
    expected = float(model().log_prob(x).detach().double().mean())
    for data in (x, x.numpy(), x.tolist()):
        assert pc.mean_log_prob(model(), data) == pytest.approx(expected, rel=1e-6)
    with pytest.raises(pc.ArgumentError, match=r"data: expected a table \(rows, 4\)"):
        pc.mean_log_prob(model(), x[:, :3])


def test_bits_per_dimension():
    assert pc.bits_per_dimension(-64 * math.log(2) * 3, 64) == pytest.approx(3.0)
