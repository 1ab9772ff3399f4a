# SPDX-License-Identifier: Apache-2.0
"""PICs with neural functions: what they materialise is the paper's, and any rule will do."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

import picirc as pc
from neural import (
    FAMILIES,
    MIXED,
    RULES,
    SHARING,
    STRUCTURES,
    Shape,
    data_for,
    each_family,
    each_sharing,
    each_structure,
    make_hclt,
    make_pic,
)
from oracles import enumerate_values

ALL_MISSING = torch.full((1, 4), math.nan)


def near(dtype: torch.dtype) -> dict[str, float]:
    return {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 1e-11, "atol": 1e-13}


@each_structure
@each_sharing
def test_sum_weights_add_to_one_for_every_rule(shape, sharing):
    pic = make_pic(shape, sharing=sharing)
    for rule in RULES.values():
        with torch.no_grad():
            parameters = pic(rule).parameters
        for weights in parameters.weights:
            assert bool((weights > 0).all())
            torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]), **near(torch.float32))
        for mixture in parameters.mixtures:
            torch.testing.assert_close(mixture.sum(1), torch.ones(mixture[:, 0].shape))


@each_structure
@each_sharing
def test_the_total_mass_is_one(shape, sharing):
    pic = make_pic(shape, pc.Categorical(3), sharing).double()
    everything = enumerate_values([3] * 4)
    for rule in RULES.values():
        with torch.no_grad():
            qpc = pic(rule)
        assert float(qpc.log_prob(everything).exp().sum()) == pytest.approx(1.0, abs=1e-12)
        assert float(qpc.log_prob(ALL_MISSING)) == pytest.approx(0.0, abs=1e-12)


def energy(pic: pc.PIC, block: int, row: int, *z: float) -> float:
    """The energy of one integral unit at one point, the latents conditioned on first."""
    bank = pic.integrals[block]
    point = torch.tensor([z], dtype=torch.float64)
    value = bank(point, lambda values: values.mT).detach()
    net = float(value[row % len(value), 0, 0])
    return math.log1p(math.exp(net)) if pic.energy == "softplus" else 3 * net


@pytest.mark.parametrize("name", ["tree", "quad_graph", "quad_graph_tucker", "random_regions_tucker"])
@each_sharing
@pytest.mark.parametrize("kind", ["unbounded", "softplus"])
def test_materialisation_follows_the_equations(name, sharing, kind):
    """E, N, P and S of the paper for one latent or two that are integrated, with an arbitrary number above."""
    pic = make_pic(STRUCTURES[name], sharing=sharing, energy=kind).double()
    rule = pc.simpson(3)
    found = pic(rule).parameters.weights
    states = list(zip(rule.points, rule.weights, strict=True))
    for block, plan in enumerate(pic.plan.blocks):
        below = list(itertools.product(states, repeat=len(plan.integrated)))
        above = list(itertools.product(rule.points, repeat=len(plan.new)))
        for row in range(len(plan.integrals)):
            for j, given in enumerate(above):
                e = [energy(pic, block, row, *given, *(z for z, _ in k)) for k in below]
                if given:  # relative to a reference in which latents are near their parents
                    pull = [pic.affinity * sum((z - given[0]) ** 2 for z, _ in k) for k in below]
                    e = [ek + pk for ek, pk in zip(e, pull, strict=True)]
                w = [math.prod(weight for _, weight in k) for k in below]
                n = sum(wk * math.exp(-ek) for wk, ek in zip(w, e, strict=True))
                p = [math.exp(-ek) / n for ek in e]
                s = [wk * pk for wk, pk in zip(w, p, strict=True)]
                np.testing.assert_allclose(found[block][row, 0, j].detach(), s, rtol=1e-11)


@each_sharing
def test_the_likelihood_is_the_sum_over_all_points_of_all_latents(sharing):
    """Equation 3 for a tree, with every combination of the latents' points written out."""
    tree = pc.random_tree(4, 0)
    pic = make_pic(Shape(tree), MIXED, sharing).double()
    rule = pc.gauss_legendre(3)
    with torch.no_grad():
        qpc = pic(rule)
    x = data_for(MIXED, rows=5)
    conditionals = {
        unit.variables[0]: qpc.parameters.weights[block][row, 0]
        for block, plan in enumerate(pic.plan.blocks)
        for row, (unit, _, _) in enumerate(plan.integrals)
    }
    inputs: dict[int, Tensor] = {}  # log p(x_i | z), (states, batch)
    for group in pic.plan.inputs:
        params = qpc.parameters.inputs[group.params]
        for row, column in enumerate(group.columns):
            one = params[row % len(params)][None]
            inputs[int(column)] = group.family.log_prob(one, x[None, :, column])[0]
    total = torch.zeros(len(x), dtype=torch.float64)
    for state in itertools.product(range(3), repeat=4):
        term = torch.ones(len(x), dtype=torch.float64)
        for latent, parent in enumerate(tree.parents):
            term = term * conditionals[f"z{latent}"][state[parent] if parent >= 0 else 0, state[latent]]
            for variable in tree.variables[latent]:
                term = term * inputs[variable][state[latent]].exp()
        total += term
    torch.testing.assert_close(qpc.log_prob(x), total.log(), rtol=1e-10, atol=1e-11)


@each_family
@each_sharing
def test_input_parameters_are_valid_and_those_of_the_nets(inputs, sharing):
    pic = make_pic(STRUCTURES["random_regions"], inputs, sharing).double()
    rule = pc.midpoint(7)
    qpc = pic(rule)
    points = torch.tensor(rule.points).unsqueeze(1)
    for group in pic.plan.inputs:
        params = qpc.parameters.inputs[group.params].detach()
        assert params.shape == (1 if sharing == "full" else len(group.rows), 7, group.family.size)
        raw = pic.inputs[group.params](points, lambda values: values)
        torch.testing.assert_close(params, group.family.constrain(raw).detach(), rtol=1e-12, atol=1e-13)
        assert bool((group.family.variance(params) > 0).all())
        assert bool(group.family.mean(params).isfinite().all())
        table = group.family.table(params)
        if table is not None:
            torch.testing.assert_close(table.exp().sum(-1), torch.ones(table.shape[:-1], dtype=torch.float64))


@each_family
@each_structure
def test_every_family_on_every_structure_has_a_likelihood_and_a_gradient(inputs, shape):
    pic = make_pic(shape, inputs)
    value = pic(pc.trapezoidal(4)).log_prob(data_for(inputs, rows=6, missing=0.3)).sum()
    value.backward()
    assert bool(value.detach().isfinite())
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in pic.parameters())
    moved = {name: bool(p.grad.abs().sum() > 0) for name, p in pic.integrals.named_parameters()}
    # A constant added to an unbounded energy changes nothing.
    assert moved == {name: not name.endswith("head_bias") for name in moved}


@pytest.mark.parametrize("name", ["tree", "quad_graph_tucker"])
@each_sharing
def test_gradients_agree_with_finite_differences(name, sharing):
    pic = make_pic(STRUCTURES[name], pc.Bernoulli(), sharing, width=2, learnable=True).double()
    x = data_for(pc.Bernoulli(), rows=3)
    pic(pc.gauss_legendre(3)).log_prob(x).sum().backward()
    for parameter in pic.parameters():
        flat, gradient = parameter.data.view(-1), parameter.grad.view(-1)
        ends, place, step = [], len(flat) // 2, 1e-6
        for sign in (1, -1):
            flat[place] += sign * step
            with torch.no_grad():
                ends.append(float(pic(pc.gauss_legendre(3)).log_prob(x).sum()))
            flat[place] -= sign * step
        assert float(gradient[place]) == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-6, abs=1e-8)


def far_from_zero(inputs: pc.Family | tuple[pc.Family, ...], x: Tensor) -> Tensor:
    """Columns of reals and counts at a scale that the nets do not begin with; what is bounded stays."""
    families = [inputs] * 4 if isinstance(inputs, pc.Family) else inputs
    bounded = torch.tensor([isinstance(f, pc.Bernoulli | pc.Categorical | pc.Binomial) for f in families])
    return torch.where(bounded, x, (1000 * x).round())


@pytest.mark.filterwarnings("ignore::picirc.learning.loop.CollapseWarning")  # batches of a few rows differ
@each_sharing
@each_family
@pytest.mark.parametrize("far", [False, True])
def test_the_first_steps_with_defaults_are_finite(inputs, sharing, far):
    x = data_for(inputs, rows=16)
    x = far_from_zero(inputs, x) if far else x
    pic = pc.PIC(
        pc.chain(4), inputs, sharing=sharing, input_sharing=sharing, generator=torch.Generator().manual_seed(0)
    )
    for n in (2, 32):
        _, history = pc.fit(pic, x, rule=pc.shifted(n), steps=2, validate_every=1)
        assert all(math.isfinite(record["train"]) for record in history.records)


@pytest.mark.parametrize("fourier", [True, False])
@pytest.mark.parametrize("learnable", [True, False])
def test_fourier_features_are_an_option(fourier, learnable):
    pic = make_pic(fourier=fourier, learnable=learnable)
    frequencies = {name for name in pic.state_dict() if name.endswith("frequencies")}
    assert len(frequencies) == len(pic.integrals) + len(pic.inputs)
    trained = {name for name, _ in pic.named_parameters()}
    assert frequencies <= trained if learnable or not fourier else not frequencies & trained
    x = data_for(rows=16)
    fitted, _ = pc.fit(pic, x, rule=pc.shifted(4), steps=3)
    moved = [not torch.equal(fitted.state_dict()[name], pic.state_dict()[name]) for name in frequencies]
    assert all(moved) if learnable or not fourier else not any(moved)


@pytest.mark.parametrize("shared", [None, 2])
def test_neighbouring_grey_values_begin_alike(shared):
    pic = pc.PIC(pc.chain(2), pc.Categorical(256), width=64, shared=shared, generator=torch.Generator().manual_seed(0))

    def table():
        circuit = pic(pc.midpoint(64)).parameters.inputs[0]  # (…, states, values)
        return circuit.detach().reshape(-1, 256).T.corrcoef()

    def neighbours(correlations):
        return correlations.diagonal(1)[1:]

    assert float(neighbours(table()).mean()) < 0.5
    pic.begin_training(torch.randint(256, (8, 2)).float(), torch.Generator())
    begun = table()
    assert float(neighbours(begun).mean()) > 0.9
    assert float(begun[100, 200].abs()) < 0.8
    assert float(begun[0, 1]) < 0.8, "the background begins apart from the darkest grey"
    pic.end_training()
    pic.begin_training(torch.randint(256, (8, 2)).float(), torch.Generator())
    torch.testing.assert_close(table(), begun, msg="a trained table is kept")


@pytest.mark.parametrize("name", ["tree", "quad_graph", "quad_tree_tucker"])
def test_a_trained_model_takes_any_rule(name):
    x = data_for(rows=32)
    pic, _ = pc.fit(make_pic(STRUCTURES[name]), x, rule=pc.shifted(4), steps=10)
    n = 30 if "tucker" in name else 200
    for rule in (pc.gauss_legendre(n), pc.midpoint(1), pc.trapezoidal(2), pc.simpson(31), pc.shifted(9)):
        with torch.no_grad():
            qpc = pic(rule)
        assert float(qpc.log_prob(ALL_MISSING)) == pytest.approx(0.0, abs=1e-4)
        assert bool(qpc.log_prob(x).isfinite().all())


def test_the_error_of_the_quadrature_is_estimated_and_falls():
    x = data_for(rows=8)
    pic = make_pic(sigma=0.25).double()
    with torch.no_grad():
        limit = pic(pc.gauss_legendre(64)).log_prob(x)
        errors = {}
        for n in (6, 9, 14):
            qpc = pic(pc.gauss_legendre(n))
            actual = (qpc.log_prob(x) - limit).abs()
            errors[n] = float(actual.max())
            # The finer circuit is so much nearer to the limit that the estimate is the error.
            torch.testing.assert_close(qpc.error(x), actual, rtol=0.2, atol=1e-9)
    assert errors[14] < (6 / 14) ** 4 * errors[6]  # faster than a rule of order four


def test_a_random_rule_stands_for_its_middle():
    pic, x = make_pic(), data_for(rows=4)
    assert torch.equal(pic(pc.shifted(6)).log_prob(x), pic(pc.midpoint(6)).log_prob(x))


def test_precision_follows_the_module():
    pic, x = make_pic(), data_for(rows=4)
    single, double = pic(pc.midpoint(6)), pic.double()(pc.midpoint(6))
    assert (single.dtype, double.dtype) == (torch.float32, torch.float64)
    torch.testing.assert_close(single.log_prob(x).double(), double.log_prob(x), rtol=1e-5, atol=1e-5)


def test_the_latents_have_values_on_the_grid():
    pic, x = make_pic(Shape(pc.chain(4))), data_for(rows=3)
    rule = pc.gauss_legendre(9)
    posterior = pic(rule).latents(x)["z2"]
    assert posterior.mean.shape == (3,)
    assert bool((posterior.mean.abs() < 1).all())


@each_sharing
def test_the_same_seed_gives_the_same_model(sharing):
    x, rule = data_for(rows=4), pc.midpoint(4)
    one, same, other = (make_pic(sharing=sharing, seed=seed)(rule).log_prob(x) for seed in (3, 3, 4))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_shared_inputs_are_one_table():
    pic = make_pic(input_sharing="full", sharing="composite")
    (params,) = pic(pc.midpoint(4)).parameters.inputs
    assert params.shape == (1, 4, 5)


def test_the_number_of_parameters_does_not_depend_on_the_rule():
    pic = make_pic()
    before = sum(p.numel() for p in pic.parameters())
    assert pic(pc.midpoint(4)).size < pic(pc.midpoint(40)).size
    assert sum(p.numel() for p in pic.parameters()) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sharing": "some"}, "sharing: expected 'none' or 'composite' or 'full', got some"),
        ({"input_sharing": "some"}, "input_sharing: expected"),
        ({"width": 3}, "width: expected an even integer"),
        ({"width": 0}, "width: expected"),
        ({"sigma": 0.0}, "sigma: expected a positive number"),
        ({"sigma": math.nan}, "sigma: expected a positive number"),
        ({"inputs": [pc.Bernoulli()] * 3}, "inputs: expected one family for each of the 4 variables"),
    ],
)
def test_wrong_arguments_are_refused(options, message):
    arguments = {"inputs": pc.Bernoulli(), **options}
    with pytest.raises(pc.ArgumentError, match=message):
        pc.PIC(pc.chain(4), **arguments)


def test_a_wrong_product_is_refused():
    with pytest.raises(pc.ArgumentError, match='product: expected "cp" or "tucker"'):
        pc.PIC(pc.quad_graph(2, 2), pc.Bernoulli(), product="sum")


@pytest.mark.parametrize("rule", [pc.gauss_hermite(4), 16, None, "trapezoidal"])
def test_what_is_no_rule_on_an_interval_is_refused(rule):
    with pytest.raises(pc.ArgumentError, match="rule: expected a quadrature rule on an interval"):
        make_pic()(rule)


def test_weights_that_are_not_positive_are_refused():
    rule = pc.Rule("own", [-0.5, 0.0, 0.5], [1.5, -1.0, 1.5], (-1.0, 1.0), 2.0)
    with pytest.raises(pc.ArgumentError, match="rule: expected positive weights"):
        make_pic()(rule)


@each_structure
def test_tables_have_the_same_circuit(shape):
    """With the weights of a PIC an HCLT is the same distribution, so that the two can be compared."""
    x, states = data_for(rows=5), 3
    pic, hclt = make_pic(shape).double(), make_hclt(shape, states=states, dtype=torch.float64)
    with torch.no_grad():
        qpc = pic(pc.gauss_legendre(states))
        parameters = qpc.parameters
        for table, weights in zip(hclt.weights, parameters.weights, strict=True):
            table.copy_(weights.log())
        for table, mixture in zip(hclt.mixtures, parameters.mixtures, strict=True):
            table.copy_(mixture.log().expand_as(table))
        for table, group in zip(hclt.inputs, hclt.plan.inputs, strict=True):
            table.copy_(group.family.unconstrain(parameters.inputs[group.params]))
        torch.testing.assert_close(hclt().log_prob(x), qpc.log_prob(x))


@pytest.mark.parametrize("states", [0, -1, 2.0, True])
def test_a_wrong_number_of_states_is_refused(states):
    with pytest.raises(pc.ArgumentError, match="states: expected a positive integer"):
        pc.HCLT(pc.chain(3), pc.Bernoulli(), states)


@each_family
def test_tables_begin_with_a_finite_likelihood(inputs):
    x = data_for(inputs, rows=8, missing=0.2)
    for states in (1, 2, 16, 64):
        assert bool(make_hclt(inputs=inputs, states=states)().log_prob(x).isfinite().all())


def test_every_kind_of_sharing_and_family_is_covered():
    assert tuple(SHARING) == ("none", "composite", "full")
    used = {type(f) for entry in FAMILIES.values() for f in (entry if isinstance(entry, tuple) else (entry,))}
    assert {family.__name__ for family in used} == {
        name for name in pc.__all__ if isinstance(getattr(pc, name), type) and issubclass(getattr(pc, name), pc.Family)
    } - {"Family"}


@pytest.mark.parametrize("deep", [400])
def test_a_model_of_a_deep_tree_can_be_copied_and_trained(deep):
    tree, generator = pc.chain(deep), torch.Generator().manual_seed(0)
    pic = pc.PIC(tree, pc.Gaussian(), width=4, generator=generator)
    x = torch.randn(6, deep, generator=generator)
    trained, _ = pc.fit(pic, x, rule=pc.shifted(4), steps=2, batch_size=3)
    moved = [not torch.equal(a, b) for a, b in zip(pic.parameters(), trained.parameters(), strict=True)]
    assert any(moved), "training changes the copy and not the model"
    assert trained.plan is pic.plan
