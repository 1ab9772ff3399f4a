# SPDX-License-Identifier: Apache-2.0
"""EM against its definition: all assignments of the latents written out, and a likelihood that never falls."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import picirc as pc
from neural import (
    FAMILIES,
    STRUCTURES,
    Shape,
    bits,
    data_for,
    each_structure,
    make_hclt,
    make_pic,
    same_bits,
    without_time,
)
from picirc.learning import em_step

X = data_for()


def rising(history: pc.History) -> None:
    """The likelihood never falls, and it rises in all."""
    values = np.array([record["train"] for record in history.records])
    assert np.all(np.diff(values) > -1e-9 * np.abs(values[1:]))
    assert values[-1] > values[0] + 0.05


FULL = {"batch_size": None, "smoothing": 0.0, "validate_every": 1, "steps": 12}


@pytest.mark.parametrize("inputs", FAMILIES.values(), ids=FAMILIES.keys())
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_the_likelihood_never_falls(inputs, missing):
    model = make_hclt(inputs=inputs, dtype=torch.float64)
    rising(pc.fit_em(model, data_for(inputs, missing=missing), **FULL)[1])


@each_structure
@pytest.mark.parametrize("inputs", [FAMILIES["categorical"], FAMILIES["mixed"]], ids=["categorical", "mixed"])
def test_the_likelihood_never_falls_on_any_structure(shape, inputs):
    model = make_hclt(shape, inputs, dtype=torch.float64)
    rising(pc.fit_em(model, data_for(inputs, missing=0.1), **FULL)[1])


@pytest.mark.parametrize("seed", range(4))
def test_the_likelihood_never_falls_from_any_initialisation(seed):
    model = make_hclt(STRUCTURES["quad_graph"], seed=seed, states=5, dtype=torch.float64)
    rising(pc.fit_em(model, X, **FULL)[1])


def test_the_likelihood_does_not_fall_in_single_precision_either():
    _, history = pc.fit_em(make_hclt(), X, **FULL)
    values = np.array([record["train"] for record in history.records])
    assert np.all(np.diff(values) > -1e-5)


class Enumerated:
    """A latent tree with tables, and one EM step by going through all assignments of the latents.

    Attributes:
        conditionals: ``p(z | parent)`` of each latent, ``(parent's states, states)``.
        inputs: ``p(x | z)`` of each variable, ``(states, categories)``.
    """

    def __init__(self, model: pc.HCLT) -> None:
        assert isinstance(model.structure, pc.LatentTree)
        self.tree, self.states = model.structure, model.states
        parameters = model.parameters_of_circuit().detach()
        self.conditionals = {
            int(unit.variables[0][1:]): parameters.weights[block][row, 0].numpy()
            for block, plan in enumerate(model.plan.blocks)
            for row, (unit, _, _) in enumerate(plan.integrals)
        }
        self.inputs = {
            int(column): group.family.table(parameters.inputs[group.params])[row].exp().numpy()
            for group in model.plan.inputs
            for row, column in enumerate(group.columns)
        }

    def joint(self, z: tuple[int, ...], x: np.ndarray) -> float:
        """``p(z, x)`` with missing values left out."""
        total = 1.0
        for latent, parent in enumerate(self.tree.parents):
            total *= self.conditionals[latent][z[parent] if parent >= 0 else 0, z[latent]]
            for variable in self.tree.variables[latent]:
                if not math.isnan(x[variable]):
                    total *= self.inputs[variable][z[latent], int(x[variable])]
        return total

    def step(self, data: np.ndarray, smoothing: float) -> float:
        """Replace all tables by their expected counts; the mean log-likelihood before that."""
        counts = {latent: np.zeros_like(table) for latent, table in self.conditionals.items()}
        seen = {variable: np.zeros_like(table) for variable, table in self.inputs.items()}
        assignments = list(itertools.product(range(self.states), repeat=self.tree.n_latents))
        likelihood = 0.0
        for x in data:
            joint = np.array([self.joint(z, x) for z in assignments])
            likelihood += math.log(joint.sum()) / len(data)
            for z, posterior in zip(assignments, joint / joint.sum(), strict=True):
                for latent, parent in enumerate(self.tree.parents):
                    counts[latent][z[parent] if parent >= 0 else 0, z[latent]] += posterior
                    for variable in self.tree.variables[latent]:
                        if not math.isnan(x[variable]):
                            seen[variable][z[latent], int(x[variable])] += posterior
        for tables, found in ((self.conditionals, counts), (self.inputs, seen)):
            for name, count in found.items():
                smoothed = count + smoothing / count.shape[1]
                tables[name] = smoothed / smoothed.sum(1, keepdims=True)
        return likelihood


TREES = {
    "chain": pc.chain(3),
    "star": pc.LatentTree(parents=(-1, 0, 0), variables=((), (0, 1), (2,))),
    "several": pc.LatentTree(parents=(1, -1), variables=((0, 2), (1,))),
}


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES.keys())
@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("smoothing", [0.0, 0.7])
def test_a_step_is_that_of_the_definition(tree, missing, smoothing):
    x = data_for(pc.Categorical(3), rows=12, missing=missing)[:, :3]
    model = make_hclt(Shape(tree), pc.Categorical(3), states=2, dtype=torch.float64)
    slow = Enumerated(model)
    for _ in range(3):
        expected = slow.step(x.numpy(), smoothing)
        assert em_step(model, x, 1.0, smoothing) == pytest.approx(expected, rel=1e-10)
        fast = Enumerated(model)
        for name, table in slow.conditionals.items():
            np.testing.assert_allclose(fast.conditionals[name], table, rtol=1e-8, atol=1e-12)
        for variable, table in slow.inputs.items():
            np.testing.assert_allclose(fast.inputs[variable], table, rtol=1e-8, atol=1e-12)


def test_the_weights_of_partitions_are_counted_too():
    """The share of a component is its mean posterior: with one region it is a plain mixture of its splits."""
    shape, x = STRUCTURES["quad_graph"], X[:, :4]
    model = make_hclt(shape, states=1, dtype=torch.float64)  # one state: nothing but the mixture is left
    (mixture,) = model.parameters_of_circuit().detach().mixtures
    assert mixture.shape[1] > 1
    parts = []
    for component in range(mixture.shape[1]):
        alone = make_hclt(shape, states=1, dtype=torch.float64)
        with torch.no_grad():
            alone.mixtures[0].fill_(-1e9)
            alone.mixtures[0][:, component] = 0.0
            parts.append(mixture[0, component, 0].log() + alone().log_prob(x))
    posterior = torch.stack(parts).softmax(0)  # (arity, batch)
    em_step(model, x, 1.0)
    found = model.parameters_of_circuit().mixtures[0][0, :, 0].detach()
    torch.testing.assert_close(found, posterior.mean(1), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rate", [0.1, 0.5, 1.0])
def test_a_smaller_step_goes_part_of_the_way(rate):
    whole, part = (make_hclt(inputs=pc.Categorical(5), dtype=torch.float64) for _ in range(2))
    old = part.parameters_of_circuit().detach()
    em_step(whole, X, 1.0)
    em_step(part, X, rate)
    full, found = whole.parameters_of_circuit().detach(), part.parameters_of_circuit().detach()
    for before, after, moved in zip(old.weights, full.weights, found.weights, strict=True):
        torch.testing.assert_close(moved, (1 - rate) * before + rate * after)
    for before, after, moved in zip(old.inputs, full.inputs, found.inputs, strict=True):
        torch.testing.assert_close(moved.exp(), (1 - rate) * before.exp() + rate * after.exp())


def test_smoothing_leaves_nothing_impossible():
    x = torch.zeros(20, 4)
    model, _ = pc.fit_em(make_hclt(), x, batch_size=None, steps=30, smoothing=0.5)
    parameters = model.parameters_of_circuit()
    assert min(float(t.detach().exp().min()) for t in parameters.inputs) > 0.5 / 5 / 21
    assert bool(torch.isfinite(model().log_prob(torch.full((1, 4), 4.0))).all())


@pytest.mark.parametrize("inputs", FAMILIES.values(), ids=FAMILIES.keys())
def test_mini_batches_improve(inputs):
    x, model = data_for(inputs, rows=200), make_hclt(inputs=inputs)
    trained, _ = pc.fit_em(model, x, batch_size=20, steps=40, schedule=pc.Cosine(0.5, 0.05, None))
    assert pc.mean_log_prob(trained(), x) > pc.mean_log_prob(model(), x) + 0.05


def test_em_and_gradients_reach_about_the_same_likelihood():
    x, model = data_for(pc.Binomial(6)), make_hclt(inputs=pc.Binomial(6), states=2, dtype=torch.float64)
    em, _ = pc.fit_em(model, x, batch_size=None, steps=100, smoothing=0.0)
    adam, _ = pc.fit(model, x, batch_size=len(x), steps=200, schedule=pc.Cosine(0.1, 0.001, None))
    found = [pc.mean_log_prob(m(), x) for m in (em, adam)]
    assert min(found) > pc.mean_log_prob(model(), x) + 1
    assert found[0] == pytest.approx(found[1], abs=0.02)


def test_the_gradient_vanishes_where_em_ends():
    model = make_hclt(Shape(pc.chain(2)), pc.Bernoulli(), states=2, dtype=torch.float64)
    x = data_for(pc.Bernoulli(), rows=40)[:, :2]
    model, _ = pc.fit_em(model, x, batch_size=None, steps=200, smoothing=0.0, patience=None)
    model().log_prob(x).mean().backward()
    assert max(float(p.grad.abs().max()) for p in model.parameters()) < 1e-3


def test_the_best_parameters_on_validation_are_returned_and_training_stops_early():
    train, valid = data_for(rows=12, seed=1), data_for(rows=200, seed=2)
    options = {"batch_size": None, "steps": 300, "validate_every": 2, "patience": 8, "smoothing": 0.0}
    model, history = pc.fit_em(make_hclt(states=6), train, valid, **options)
    scores = [record["valid"] for record in history.records]
    assert max(scores) > scores[-1]
    assert pc.mean_log_prob(model(), valid) == pytest.approx(max(scores), abs=1e-6)
    assert history.stopped == "no improvement in 8 steps"


def test_the_given_model_is_not_changed():
    model = make_hclt()
    before = bits(model)
    trained, _ = pc.fit_em(model, X, steps=2)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not same_bits(model, trained)


def test_the_seed_decides_everything():
    options = {"steps": 10, "batch_size": 8, "schedule": pc.Cosine(0.5, 0.1, None)}
    one, same, other = (pc.fit_em(make_hclt(), X, seed=seed, **options)[0] for seed in (0, 0, 1))
    assert same_bits(one, same)
    assert not same_bits(one, other)


def interrupt_at(step: int):
    def callback(record: dict[str, float]) -> None:
        if record["step"] == step:
            raise KeyboardInterrupt

    return callback


@pytest.mark.parametrize("batch_size", [None, 10])
def test_a_training_continues_bit_for_bit(tmp_path, batch_size):
    model, valid = make_hclt(STRUCTURES["random_regions"]), X[:20]
    options = {"steps": 20, "batch_size": batch_size, "validate_every": 5}
    expected, straight = pc.fit_em(model, X, valid, **options)
    pc.fit_em(model, X, valid, out=tmp_path, callbacks=[interrupt_at(10)], **options)
    resumed, whole = pc.fit_em(model, X, valid, out=tmp_path, resume=True, **options)
    assert same_bits(resumed, expected)
    assert without_time(whole) == without_time(straight)


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    options = {"steps": 6, "validate_every": 3, "out": tmp_path}
    pc.fit_em(make_hclt(), X, callbacks=[interrupt_at(3)], **options)
    for changed, name in (({"smoothing": 1.0}, "smoothing"), ({"schedule": pc.Cosine(1.0, 0.1)}, "schedule")):
        with pytest.raises(pc.ArgumentError, match=f"got other values of {name}; use"):
            pc.fit_em(make_hclt(), X, resume=True, **{**options, **changed})
    with pytest.raises(pc.ArgumentError, match=r"got other values of .*optimizer"):
        pc.fit(make_hclt(), X, resume=True, **options)


def test_a_loader_serves_for_mini_batches_only():
    loader = DataLoader(TensorDataset(X), batch_size=16)
    trained, _ = pc.fit_em(make_hclt(), loader, steps=8, schedule=pc.Cosine(0.5, 0.1, None))
    assert pc.mean_log_prob(trained(), X) > pc.mean_log_prob(make_hclt()(), X)
    with pytest.raises(pc.ArgumentError, match=r"train: expected a table \(rows, variables\), got DataLoader"):
        pc.fit_em(make_hclt(), loader, batch_size=None)


def test_a_list_is_a_table():
    one, other = (pc.fit_em(make_hclt(), data, data, batch_size=None, steps=2)[0] for data in (X, X.tolist()))
    assert same_bits(one, other)


@pytest.mark.parametrize("model", [make_pic(), make_pic()(pc.midpoint(3)), None])
def test_only_tables_are_trained_by_em(model):
    with pytest.raises(pc.ArgumentError, match=r"model: expected an HCLT.*a PIC is trained with pc\.fit"):
        pc.fit_em(model, X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"smoothing": -1.0}, "smoothing: expected a number that is not negative"),
        ({"smoothing": math.nan}, "smoothing: expected a number that is not negative"),
        ({"steps": 0}, "steps: expected"),
        ({"batch_size": 0}, "batch_size: expected"),
        ({"valid": X[:, :2]}, r"valid: expected a table \(rows, 4\)"),
        ({"schedule": pc.Cosine(2.0, 0.1)}, "schedule: expected step sizes of at most 1"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(pc.ArgumentError, match=message):
        pc.fit_em(make_hclt(), X, **options)


class Heads(pc.Bernoulli):
    """A coin that never shows tails, whatever its parameter."""

    def table(self, params: Tensor) -> Tensor:
        return super().table(params) * torch.tensor([torch.inf, 1.0])


def test_a_row_with_probability_zero_stops_the_training():
    with pytest.raises(pc.ArgumentError, match=r"-inf at step 0 \(the parameters are finite, but a row has prob"):
        pc.fit_em(make_hclt(inputs=Heads()), data_for(pc.Bernoulli()))


def test_parameters_that_are_no_numbers_stop_the_training():
    model = make_hclt()
    with torch.no_grad():
        model.weights[0].fill_(math.nan)
    with pytest.raises(pc.ArgumentError, match=r"nan at step 0 \(not finite: sum weights\)"):
        pc.fit_em(model, X)
