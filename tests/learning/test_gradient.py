# SPDX-License-Identifier: Apache-2.0
"""Training by gradient: it gets better, it can be repeated, and it can be continued."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import DataLoader, TensorDataset

import picirc as pc
from neural import (
    FAMILIES,
    SHARING,
    STRUCTURES,
    bits,
    data_for,
    each_family,
    each_rule,
    each_sharing,
    each_structure,
    make_hclt,
    make_pic,
    plain_products,
    same_bits,
    without_time,
)
from picirc.learning.loop import CollapseWarning

FAST = pc.Cosine(2e-2, 1e-3, None)
X = data_for()


def likelihood(model: pc.PIC | pc.HCLT, x: Tensor) -> float:
    """On a grid that training does not use."""
    with torch.no_grad():
        qpc = model() if isinstance(model, pc.HCLT) else model(pc.gauss_legendre(11))
        return pc.mean_log_prob(qpc, x)


def improves(model: pc.PIC | pc.HCLT, x: Tensor, **options: object) -> bool:
    options = {"steps": 15, "batch_size": 32, "schedule": FAST, **options}
    trained, _ = pc.fit(model, x, **options)  # type: ignore[arg-type]
    return likelihood(trained, x) > likelihood(model, x) + 0.01


SMALL = pc.shifted(4)


def rule_of(model: pc.PIC | pc.HCLT) -> pc.RandomRule | None:
    return SMALL if isinstance(model, pc.PIC) else None


@each_family
def test_every_family_learns(inputs):
    sharing = SHARING[list(FAMILIES.values()).index(inputs) % 3]
    assert improves(make_pic(inputs=inputs, sharing=sharing), data_for(inputs), rule=SMALL)


@each_structure
@each_sharing
def test_every_structure_learns(shape, sharing):
    assert improves(make_pic(shape, sharing=sharing), X, rule=SMALL)


@each_rule
def test_every_rule_teaches(rule):
    assert improves(make_pic(), X, rule=rule)


@pytest.mark.parametrize("seed", range(6))
def test_every_initialisation_learns(seed):
    assert improves(make_pic(seed=seed, sharing=SHARING[seed % 3]), X, rule=SMALL)


@each_family
def test_tables_learn(inputs):
    assert improves(make_hclt(inputs=inputs), data_for(inputs))


def test_training_with_missing_values():
    """Half of the values are missing, yet what is learned helps on complete rows."""
    x, complete = data_for(rows=400, missing=0.5), data_for(rows=400)
    assert 0.4 < float(x.isnan().double().mean()) < 0.6
    for model in (make_pic(), make_hclt()):
        trained, history = pc.fit(model, x, x, steps=60, validate_every=20, schedule=FAST, rule=rule_of(model))
        assert likelihood(trained, complete) > likelihood(model, complete) + 0.01
        assert all(math.isfinite(record["valid"]) for record in history.records)


def test_the_given_model_is_not_changed():
    for model in (make_pic(), make_hclt()):
        before = bits(model)
        trained, _ = pc.fit(model, X, steps=3)
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
        assert not same_bits(model, trained)
        assert all(p.grad is None for p in model.parameters())


def test_the_best_parameters_on_validation_are_returned():
    """Trained on other data than validated on, a model gets worse in the end."""
    train, valid = data_for(rows=16, seed=1), data_for(rows=200, seed=2)
    trained, history = pc.fit(make_hclt(), train, valid, steps=60, validate_every=4, schedule=pc.Cosine(0.3, 0.1, None))
    scores = [record["valid"] for record in history.records]
    assert max(scores) > scores[-1] + 0.1
    assert pc.mean_log_prob(trained(), valid) == pytest.approx(max(scores), abs=1e-6)


def test_training_stops_early():
    train, valid = data_for(rows=16, seed=1), data_for(rows=200, seed=2)
    options = {"steps": 400, "validate_every": 4, "patience": 12, "schedule": pc.Cosine(0.3, 0.1, None)}
    _, history = pc.fit(make_hclt(), train, valid, **options)
    best, last = history.best["step"], history.records[-1]["step"]
    assert best <= last <= best + 24 < 400  # twelve steps without improvement, and twelve to anneal
    assert history.stopped == "no improvement in 12 steps"


@dataclass
class Gradients:
    """The gradients that the optimizer was given, one list for every step."""

    steps: list[list[Tensor]]

    @property
    def norms(self) -> list[float]:
        return [math.sqrt(sum(float(g.square().sum()) for g in gradients)) for gradients in self.steps]


@pytest.fixture
def gradients() -> Iterator[Gradients]:
    seen = Gradients([])

    def note(optimizer: torch.optim.Optimizer, *_: object) -> None:
        seen.steps.append([p.grad.clone() for group in optimizer.param_groups for p in group["params"]])

    handle = register_optimizer_step_pre_hook(note)
    yield seen
    handle.remove()


@pytest.mark.parametrize("accumulate", [2, 3, 7, 100])
@pytest.mark.parametrize("model", [make_pic().double(), make_hclt(dtype=torch.float64)], ids=["pic", "hclt"])
def test_accumulated_gradients_are_those_of_the_whole_batch(model, accumulate, gradients):
    options = {"batch_size": 10, "steps": 2}
    whole, _ = pc.fit(model, X, **options)
    parts, _ = pc.fit(model, X, accumulate=accumulate, **options)
    for one, other in zip(gradients.steps[0], gradients.steps[2], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-13)
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(parts.state_dict()[name], value, rtol=1e-6, atol=1e-9)


def test_the_gradient_is_that_of_the_mean_over_the_batch(gradients):
    model = make_hclt(dtype=torch.float64)
    pc.fit(model, X, batch_size=len(X), steps=1)
    (-model().log_prob(X).mean()).backward()
    for found, parameter in zip(gradients.steps[0], model.parameters(), strict=True):
        torch.testing.assert_close(found, parameter.grad, rtol=1e-10, atol=1e-12)


def test_long_gradients_are_clipped(gradients):
    model = make_pic()
    pc.fit(model, X, steps=4)
    free = gradients.norms
    pc.fit(model, X, steps=4, clip=free[0] / 2)
    clipped = gradients.norms[4:]
    assert clipped[0] == pytest.approx(free[0] / 2, rel=1e-5)
    assert max(clipped) <= free[0] / 2 * (1 + 1e-5)
    torch.testing.assert_close(2 * gradients.steps[4][0], gradients.steps[0][0], rtol=1e-4, atol=1e-7)


def test_a_limit_that_is_never_reached_changes_nothing():
    one, other = (pc.fit(make_pic(), X, steps=3, clip=clip)[0] for clip in (None, 1e9))
    assert same_bits(one, other)


@each_sharing
def test_low_precision_trains(sharing):
    with plain_products():
        model = make_pic(sharing=sharing)
        assert improves(model, X, rule=SMALL, autocast=torch.bfloat16)
        low, high = (pc.fit(model, X, rule=SMALL, steps=3, autocast=t)[0] for t in (torch.bfloat16, None))
    assert all(p.dtype == torch.float32 for p in low.parameters())
    assert not same_bits(low, high)
    assert likelihood(low, X) == pytest.approx(likelihood(high, X), abs=0.05)


def test_low_precision_keeps_distributions_exact():
    pic = make_pic(STRUCTURES["quad_graph_tucker"], sharing="none")
    with plain_products(), torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        qpc = pic(pc.midpoint(5))
    assert {t.dtype for t in qpc.parameters.tensors} == {torch.float32}
    for weights in qpc.parameters.weights:
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))


def test_input_nets_decay_only_if_no_latent_has_a_parent():
    tree, star = pc.PIC(pc.chain(3), pc.Bernoulli(), width=4), pc.PIC(pc.star(3), pc.Bernoulli(), width=4, dims=2)
    for model, decays in ((tree, False), (star, True)):
        decaying = {id(p) for group in model.parameter_groups() if group.decay for p in group.parameters}
        assert (id(model.inputs[0].head) in decaying) is decays
        assert (id(model.inputs[0].hidden) in decaying) is decays
    assert id(tree.integrals[0].head) in {id(p) for g in tree.parameter_groups() if g.decay for p in g.parameters}


def test_every_parameter_is_in_one_group():
    pic = pc.PIC(pc.LatentTree((-1, 0), ((0, 1), (2,))), pc.Gaussian(), width=4, correlated=True)
    both = pc.Ensemble([pic, copy.deepcopy(pic)])
    for model, correlations in ((make_hclt(), []), (pic, [*pic.correlations]), (both, both.parts[0].correlations)):
        groups = model.parameter_groups()
        assert sorted(id(p) for group in groups for p in group.parameters) == sorted(map(id, model.parameters()))
        quick = {id(p) for group in groups for p in group.parameters if group.speed > 1}
        assert quick >= {id(p) for p in correlations}
        decaying = {id(p) for group in groups if group.decay for p in group.parameters}
        assert decaying
        assert not decaying & quick
        spared = ("bias", "features.frequencies")
        assert not decaying & {id(p) for name, p in model.named_parameters() if name.endswith(spared)}


def test_the_optimizers_differ_by_their_decay():
    one, other = (pc.fit(make_pic(), X, steps=4, optimizer=o, weight_decay=0.5)[0] for o in ("adam", "adamw"))
    assert not same_bits(one, other)
    one, other = (pc.fit(make_pic(), X, steps=4, optimizer=o, weight_decay=0.0)[0] for o in ("adam", "adamw"))
    assert same_bits(one, other)
    usual, small = (pc.fit(make_pic(), x, steps=4)[0] for x in (X, X[:20]))
    assert not same_bits(usual, pc.fit(make_pic(), X, steps=4, weight_decay=0.0)[0])
    assert not same_bits(small, usual)


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_the_steps_are_those_of_the_formula(optimizer, gradients):
    model, rate, decay, betas = make_hclt(dtype=torch.float64), 0.05, 0.1, (0.8, 0.95)
    options = {"schedule": pc.Cosine(rate, rate, None), "weight_decay": decay, "betas": betas}
    trained, _ = pc.fit(model, X, steps=5, optimizer=optimizer, **options)
    for number, start in enumerate(model.parameters()):
        value, first, second = start.detach().clone(), torch.zeros_like(start), torch.zeros_like(start)
        for step, found in enumerate(gradients.steps, start=1):
            slope = found[number] + (decay * value if optimizer == "adam" else 0)
            value = value * (1 - rate * decay if optimizer == "adamw" else 1)
            first = betas[0] * first + (1 - betas[0]) * slope
            second = betas[1] * second + (1 - betas[1]) * slope**2
            spread = (second / (1 - betas[1] ** step)).sqrt() + 1e-8
            value = value - rate * first / (1 - betas[0] ** step) / spread
        torch.testing.assert_close(list(trained.parameters())[number].detach(), value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("model", [make_pic(), make_hclt()], ids=["pic", "hclt"])
def test_the_seed_decides_everything(model):
    options = {"steps": 12, "batch_size": 8, "validate_every": 5}
    one, first = pc.fit(model, X, X, seed=3, **options)
    torch.manual_seed(99)  # of no effect
    same, second = pc.fit(model, X, X, seed=3, **options)
    other, _ = pc.fit(model, X, X, seed=4, **options)
    assert same_bits(one, same)
    assert without_time(first) == without_time(second)
    assert not same_bits(one, other)


@pytest.fixture
def shifts(monkeypatch) -> list[float]:
    """The shifts that random rules are drawn with, except the middle one that stands for them all."""
    seen: list[float] = []
    draw = pc.RandomRule.draw

    def note(rule: pc.RandomRule, shift: float) -> pc.Rule:
        if shift != 0.5:
            seen.append(shift)
        return draw(rule, shift)

    monkeypatch.setattr(pc.RandomRule, "draw", note)
    return seen


def test_the_shifts_of_a_random_rule_follow_from_the_seed(shifts):
    for seed in (0, 0, 1):
        pc.fit(make_pic(), X, rule=pc.shifted(4), steps=100 if not shifts else 20, seed=seed)
    first, again, other = shifts[:100], shifts[100:120], shifts[120:]
    assert first[:20] == again
    assert not set(first) & set(other)
    assert len(set(first)) == 100
    assert np.mean(first) == pytest.approx(0.5, abs=0.1)  # uniform: the standard error is 0.03
    assert np.var(first) == pytest.approx(1 / 12, abs=0.02)


def test_the_parts_of_a_batch_share_their_points(shifts):
    pc.fit(make_pic(), X, rule=pc.shifted(4), steps=3, batch_size=16, accumulate=4)
    assert len(shifts) == len(set(shifts)) == 3  # one for each step


def test_a_random_rule_is_validated_on_twice_the_points():
    model = make_pic()
    trained, history = pc.fit(model, X, X, rule=pc.shifted(5), steps=1)
    with torch.no_grad():
        assert history.records[0]["valid"] == pc.mean_log_prob(trained(pc.midpoint(10)), X)
    trained, history = pc.fit(model, X, X, rule=pc.simpson(5), steps=1)
    with torch.no_grad():
        assert history.records[0]["valid"] == pc.mean_log_prob(trained(pc.simpson(5)), X)


def test_points_settle_as_steps_become_small(monkeypatch):
    shifts: list[float] = []
    draw = pc.RandomRule.draw

    def noted(rule, shift):
        shifts.append(abs(float(shift) - 0.5))
        return draw(rule, shift)

    monkeypatch.setattr(pc.RandomRule, "draw", noted)
    pic, history = pc.fit(make_pic(), X, X, rule=pc.shifted(6, settle=True), schedule=FAST, steps=40, validate_every=40)
    judged, *moved = shifts
    assert len(moved) == 40
    assert max(moved[5:20]) > 0.3  # as far as without settling
    assert max(moved[-4:]) < 0.08  # a tenth of a cell: FAST ends at a twentieth of its first step
    assert judged == 0  # validation takes the points that the model will be used with
    with torch.no_grad():
        found = pc.mean_log_prob(pic(pc.midpoint(6)), X)
    assert history.records[-1]["valid"] == pytest.approx(found, rel=1e-6)


def test_a_coarse_beginning_has_half_the_points(monkeypatch):
    sizes: list[int] = []
    draw = pc.RandomRule.random
    monkeypatch.setattr(pc.RandomRule, "random", lambda rule, *how: sizes.append(len(rule)) or draw(rule, *how))
    pc.fit(make_pic(), X, rule=pc.shifted(8), coarse=0.6, steps=5)
    assert sizes == [4, 4, 4, 8, 8]


@pytest.mark.parametrize(("coarse", "rule"), [(1.0, SMALL), (-0.1, SMALL), (0.5, pc.midpoint(4))])
def test_a_coarse_beginning_is_a_fraction_and_needs_a_random_rule(coarse, rule):
    with pytest.raises(ValueError, match="coarse"):
        pc.fit(make_pic(), X, rule=rule, coarse=coarse, steps=1)


def loader() -> DataLoader:
    return DataLoader(TensorDataset(X), batch_size=10, shuffle=True, generator=torch.Generator().manual_seed(5))


def test_all_kinds_of_data_train_the_same_model(tmp_path):
    path = tmp_path / "rows.bin"
    X.numpy().tofile(path)
    kinds = [X, X.numpy(), X.float(), X.int(), X.tolist(), np.memmap(path, np.float64, "r", shape=tuple(X.shape))]
    models = [pc.fit(make_pic(), data, data, steps=4, batch_size=8, rule=SMALL)[0] for data in kinds]
    assert all(same_bits(models[0], model) for model in models[1:])


def test_a_loader_trains():
    trained, _ = pc.fit(make_pic(), loader(), steps=25, schedule=FAST, rule=SMALL)
    assert likelihood(trained, X) > likelihood(make_pic(), X) + 0.01


@pytest.mark.parametrize(
    ("train", "valid", "message"),
    [
        (X[:, :3], None, r"train: expected a table \(rows, 4\)"),
        (X, X[:, :3], r"valid: expected a table \(rows, 4\)"),
        (X, X[:0], r"valid: expected a table \(rows, 4\)"),
        (X, 3, "valid: expected a table"),
        (X + 3, None, r"variable x\d: expected"),
        (X + 0.5, None, r"variable x\d: expected"),
        ([torch.zeros(4, 3)], None, "train: expected a table"),
        (DataLoader(TensorDataset(torch.zeros(4, 3)), batch_size=2), None, r"a tensor \(\.\.\., 4\)"),
        (None, None, "train: expected a table"),
    ],
)
def test_wrong_data_are_refused_before_the_first_step(train, valid, message):
    with pytest.raises(pc.ArgumentError, match=message):
        pc.fit(make_pic(), train, valid, steps=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": "sgd"}, 'optimizer: expected "adam" or "adamw", got sgd'),
        ({"rule": 32}, "rule: expected a quadrature rule"),
        ({"accumulate": 0}, "accumulate: expected a positive integer"),
        ({"clip": 0.0}, "clip: expected a positive number"),
        ({"clip": math.nan}, "clip: expected a positive number"),
        ({"batch_size": 0}, "batch_size: expected"),
        ({"steps": 0}, "steps: expected"),
        ({"validate_every": 0}, "validate_every: expected"),
        ({"patience": 0}, "patience: expected"),
        ({"seed": -1}, "seed: expected"),
        ({"resume": True}, "resume: expected a folder"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(pc.ArgumentError, match=message):
        pc.fit(make_pic(), X, **options)


def test_tables_have_no_rule():
    with pytest.raises(pc.ArgumentError, match="rule: expected no rule for an HCLT"):
        pc.fit(make_hclt(), X, rule=pc.shifted(4))


@pytest.mark.parametrize("model", [torch.nn.Linear(2, 2), make_pic()(pc.midpoint(3)), None])
def test_what_is_no_model_is_refused(model):
    with pytest.raises(pc.ArgumentError, match="model: expected a model, such as a PIC"):
        pc.fit(model, X)


@pytest.mark.parametrize(
    ("part", "words"), [("integrals", "sum weights"), ("inputs", "inputs"), ("mixtures", "mixtures")]
)
def test_a_loss_that_is_no_number_says_where_it_arose(part, words):
    model = make_pic(STRUCTURES["quad_graph"])
    with torch.no_grad():
        for parameter in getattr(model, part).parameters():
            parameter.fill_(math.nan)
    with pytest.raises(pc.ArgumentError, match=rf"train: expected a finite .* at step 0 \(not finite: {words}\)"):
        pc.fit(model, X, rule=SMALL)


def test_steps_that_are_far_too_long_stop_the_training():
    options = {"schedule": pc.Cosine(1e37, 1e37), "steps": 30}
    with (
        pytest.warns(CollapseWarning, match="was not finite"),
        pytest.raises(pc.ArgumentError, match="smaller st"),
    ):
        pc.fit(make_pic(inputs=pc.Gaussian()), data_for(pc.Gaussian()), **options)


class Heads(pc.Bernoulli):
    """A coin that never shows tails, whatever its parameter."""

    def table(self, params: Tensor) -> Tensor:
        return super().table(params) * torch.tensor([torch.inf, 1.0])


def test_a_row_with_probability_zero_is_named_as_such():
    for model in (make_pic(inputs=Heads()), make_hclt(inputs=Heads())):
        with pytest.raises(pc.ArgumentError, match=r"-inf at step 0 \(the parameters are finite, but a row has prob"):
            pc.fit(model, data_for(pc.Bernoulli()))
