# SPDX-License-Identifier: Apache-2.0
"""Latents that are vectors: every query against enumeration over the points, and continuous mixtures that learn."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

import picirc as pc

STRUCTURES = {"star": pc.star(3), "chain": pc.chain(3), "region": pc.random_regions(3, seed=0)}
each_structure = pytest.mark.parametrize("structure", STRUCTURES.values(), ids=STRUCTURES)


def make(structure=STRUCTURES["star"], dims: int = 2, inputs=None, **options) -> pc.PIC:
    generator = torch.Generator().manual_seed(0)
    return pc.PIC(structure, inputs or pc.Bernoulli(), width=8, dims=dims, generator=generator, **options).double()


def everything(categories: int = 2, variables: int = 3) -> torch.Tensor:
    return torch.tensor(list(itertools.product(range(categories), repeat=variables)), dtype=torch.float64)


def mean(qpc: pc.QPC, x: np.ndarray) -> float:
    return float(qpc.log_prob(torch.tensor(x)).detach().mean())


@each_structure
@pytest.mark.parametrize("dims", [1, 3])
@pytest.mark.parametrize("measure", ["normal", "uniform"])
def test_the_mass_is_one_for_every_rule(structure, dims, measure):
    pic = make(structure, dims)
    for rule in (
        pc.sobol(8, dims, measure),
        pc.shifted(pc.sobol(8, dims, measure)),
        pc.tensor_grid(pc.midpoint(2), dims),
    ):
        assert float(pic(rule).log_prob(everything()).detach().exp().sum()) == pytest.approx(1.0, abs=1e-12)


def test_a_star_is_the_mixture_over_its_points():
    """Written out: p(x) = Σ_n S_n Π_d p(x_d | z_n) with S_n ∝ w_n exp(−3 f(z_n))."""
    pic, rule = make(), pc.sobol(16, 2)
    z = torch.tensor(np.array(rule.points))
    energy = 3 * pic.integrals[0](z, lambda values: values)[0, :, 0]
    prior = (torch.tensor(np.array(rule.weights)).log() - energy).log_softmax(0)
    logits = pic.inputs[0](z, lambda raw: raw)[..., 0]  # (variables, points)
    x = everything()
    inputs = torch.nn.functional.logsigmoid(
        torch.where(x.T.unsqueeze(1) == 1, logits.unsqueeze(2), -logits.unsqueeze(2))
    )
    expected = (prior.unsqueeze(1) + inputs.sum(0)).logsumexp(0)
    torch.testing.assert_close(pic(rule).log_prob(x), expected)


def test_a_chain_of_vectors_is_the_sum_over_all_combinations():
    pic, rule = make(STRUCTURES["chain"]), pc.sobol(4, 2)
    parameters = pic(rule).parameters
    x = torch.tensor([[1.0, 0.0, 1.0]], dtype=torch.float64)
    tables = [pic(rule).latents(x)[f"z{i}"] for i in range(3)]
    assert all(table.mean.shape == (1, 2) for table in tables)
    assert sum(w.numel() for w in parameters.weights) == 4 + 2 * 16


@each_structure
def test_missing_values_are_summed_out(structure):
    qpc = make(structure)(pc.sobol(8, 2))
    x = everything()
    joint = qpc.log_prob(x).detach().exp()
    hidden = x.clone()
    hidden[:, 1] = math.nan
    for row, value in zip(hidden, qpc.log_prob(hidden).detach().exp(), strict=True):
        same = ((x == row) | row.isnan()).all(1)
        assert float(value) == pytest.approx(float(joint[same].sum()))


def test_the_posterior_of_a_vector_has_a_mean_and_a_variance_for_each_component():
    pic, rule = make(dims=3), pc.sobol(32, 3)
    x = everything()[:4]
    found = pic(rule).latents(x)["z0"]
    points = torch.tensor(np.array(rule.points))
    mean = found.probabilities @ points
    torch.testing.assert_close(found.mean, mean)
    for row in range(4):
        spread = (found.probabilities[row].unsqueeze(1) * (points - mean[row]) ** 2).sum(0)
        torch.testing.assert_close(found.variance[row], spread)
    torch.testing.assert_close(found.density, found.probabilities / torch.tensor(np.array(rule.weights)))
    assert found.grid.shape == (32, 3)


def test_samples_come_from_the_distribution():
    qpc = make()(pc.sobol(16, 2))
    drawn = qpc.sample(4000, generator=torch.Generator().manual_seed(1))
    for row, value in zip(everything(), qpc.log_prob(everything()).detach().exp(), strict=True):
        share = float((drawn == row).all(1).double().mean())
        assert share == pytest.approx(float(value), abs=4 * math.sqrt(float(value) / 4000) + 1e-3)


def test_the_error_is_judged_by_other_points():
    coarse, fine = (make()(pc.sobol(n, 2)).error(everything()) for n in (8, 4096))
    assert float(fine.max()) < float(coarse.max()) / 10


def test_a_model_of_vectors_survives_a_file(tmp_path):
    pic = make(dims=3)
    pc.save(pic, tmp_path / "model")
    loaded = pc.load(tmp_path / "model")
    assert loaded.dims == 3
    rule = pc.sobol(8, 3)
    assert torch.equal(loaded(rule).log_prob(everything()), pic(rule).log_prob(everything()))


@pytest.mark.parametrize("rule", [pc.trapezoidal(8), pc.sobol(8, 3), pc.shifted(8), None, 32])
def test_a_rule_of_another_dimension_is_refused(rule):
    with pytest.raises(pc.ArgumentError, match="rule: expected a rule for vectors of 2 dimensions"):
        make()(rule)


def test_a_continuous_mixture_learns_what_a_product_cannot():
    """Two copies of one fair coin: independent columns have −2 log 2 a row, the truth −log 2."""
    rng = np.random.default_rng(0)
    x = np.repeat(rng.integers(0, 2, (500, 1)), 2, axis=1).astype(np.float32)
    pic = pc.PIC(pc.star(2), inputs=pc.Bernoulli(), dims=2, width=16, generator=torch.Generator().manual_seed(0))
    schedule = pc.Cosine(2e-2, 2e-4, None, 20)
    trained, history = pc.fit(pic, x, rule=pc.shifted(pc.sobol(64, 2)), steps=200, schedule=schedule, weight_decay=0.0)
    assert history.best["train"] > -1.0
    found = trained(pc.sobol(256, 2)).log_prob(torch.tensor([[0.0, 0.0], [0.0, 1.0]]))
    assert float((found[0] - found[1]).detach()) > 2


def test_columns_of_any_scale_train():
    """Means of 5e4 and deviations of 1e-3: start values are in the units of each column."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal((400, 1))
    x = np.concatenate([5e4 + 1e3 * (z + 0.3 * rng.standard_normal((400, 1))), 1e-3 * z], 1).astype(np.float64)
    product = -0.5 * np.log(2 * np.pi * np.e * x.var(0)).sum()
    family = pc.Gaussian(min_std=1e-6)
    pic, history = pc.fit(pc.PIC(pc.chain(2), inputs=family, width=32).double(), x, steps=150, batch_size=100)
    assert history.best["train"] > product + 0.3
    assert mean(pic(pc.trapezoidal(64)), x) > history.best["train"] - 0.1
    hclt, _ = pc.fit_em(pc.HCLT(pc.chain(2), inputs=family, states=8, dtype=torch.float64), x, steps=100)
    assert mean(hclt(), x) > product + 0.3


def test_training_again_goes_on_from_where_it_was():
    """A model that was trained keeps its distribution when training begins again."""
    x = np.random.default_rng(0).normal(100, 5, (200, 2)).astype(np.float32)
    trained, _ = pc.fit(pc.PIC(pc.chain(2), inputs=pc.Gaussian(), width=8), x, steps=40)
    again, _ = pc.fit(trained, x, steps=1, schedule=pc.Cosine(1e-12, 1e-12, None), weight_decay=0.0)
    assert not trained.fresh
    before, after = (
        float(model(pc.midpoint(16)).log_prob(torch.tensor(x)).detach().mean()) for model in (trained, again)
    )
    assert after == pytest.approx(before, abs=1e-3)


class Bump(torch.nn.Module):
    """Energies of one's own: (z − a z')², with one number a for each unit."""

    def __init__(self, rows: int, arguments: int) -> None:
        super().__init__()
        self.slope = torch.nn.Parameter(torch.linspace(0.5, 1.0, rows))
        self.arguments = arguments

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        given = z[:, 0] if self.arguments > 1 else torch.zeros_like(z[:, 0])
        return (z[:, -1] - self.slope.unsqueeze(1) * given) ** 2


def test_integral_units_take_functions_of_ones_own():
    pic = pc.PIC(pc.chain(3), inputs=pc.Bernoulli(), width=8, nets=Bump)
    assert float(pic(pc.midpoint(16)).log_prob(everything().float()).detach().exp().sum()) == pytest.approx(
        1.0, abs=1e-5
    )
    x = np.random.default_rng(0).integers(0, 2, (50, 3)).astype(np.float32)
    trained, _ = pc.fit(pic, x, steps=5)
    slopes = [module.slope for model in (pic, trained) for module in model.integrals if module.arguments > 1]
    assert not torch.equal(slopes[0], slopes[1])
    with pytest.raises(pc.ArgumentError, match="nets of the library"):
        pc.save(pic, "never")


# Latents that differ in their dimensions

MIXED = pc.LatentTree((-1, 0, 0, 2), ((0,), (1,), (2,), (3,)))
MIXED_RULES = [pc.midpoint(5), pc.sobol(6, 2), pc.sobol(7, 3)]


def test_a_tree_of_numbers_and_vectors_is_the_sum_over_all_combinations():
    """The slow twin: each function evaluated on its own at every combination of points."""
    pic = make(MIXED, [2, 1, 3, 1])
    grids = [MIXED_RULES[k] for k in (1, 0, 2, 0)]
    points = [torch.tensor(np.array(rule.points)).view(len(rule), -1) for rule in grids]
    weights = [torch.tensor(np.array(rule.weights)) for rule in grids]
    parents = {1: 0, 2: 0, 3: 2}
    tables = {}
    for bank, block in zip(pic.integrals, pic.plan.blocks, strict=True):
        for row, (unit, _, new) in enumerate(block.integrals):
            own = int(unit.variables[0][1:])
            given = [points[int(name[1:])] for name in new]
            pairs = list(itertools.product(*given, points[own]))
            values = bank(torch.stack([torch.cat(pair) for pair in pairs]), lambda raw: raw)[row, :, 0]
            logs = weights[own].log() - 3 * values.view(-1, len(points[own]))
            tables[own] = logs.softmax(-1)  # (given or 1, own)
    logits = {}
    for bank, step in zip(pic.inputs, pic.plan.inputs, strict=True):
        for row, column in enumerate(step.columns):
            logits[int(column)] = bank(points[column], lambda raw: raw)[row, :, 0]
    x = everything(variables=4)
    total = torch.zeros(len(x), dtype=torch.float64)
    for states in itertools.product(*(range(len(own)) for own in points)):
        mass = tables[0][0, states[0]]
        for own, parent in parents.items():
            mass = mass * tables[own][states[parent], states[own]]
        one = torch.stack([logits[v][states[v]] for v in range(4)]).sigmoid()
        total = total + mass * torch.where(x == 1, one, 1 - one).prod(1)
    torch.testing.assert_close(pic(MIXED_RULES).log_prob(x), total.log())


def test_queries_training_and_files_of_latents_that_differ(tmp_path):
    pic = make(MIXED, {0: 3})
    rules = [pc.sobol(7, 3), pc.midpoint(5)]  # in any order
    qpc, x = pic(rules), everything(variables=4)
    assert float(qpc.log_prob(x).detach().exp().sum()) == pytest.approx(1.0, abs=1e-12)
    found = qpc.latents(x[:2])
    assert (found["z0"].mean.shape, found["z1"].mean.shape) == ((2, 3), (2,))
    assert len(qpc.sample(3)) == 3
    assert float(qpc.error(x).max()) > 0
    pc.save(pic, tmp_path)
    assert torch.equal(pc.load(tmp_path)(rules).log_prob(x), qpc.log_prob(x))
    shifted = [pc.shifted(4), pc.shifted(pc.sobol(8, 3))]
    trained, history = pc.fit(pic, x, x, rule=shifted, batch_size=8, steps=20, validate_every=10)
    assert trained.dims == (3, 1, 1, 1)
    assert history.records[-1]["valid"] > mean(pic([pc.midpoint(8), pc.sobol(16, 3)]), x.numpy())


def test_a_shared_latent_goes_with_latents_that_differ():
    pic = make(MIXED, [2, 1, 3, 1], shared=3)
    mass = pic(MIXED_RULES).log_prob(everything(variables=4)).detach().exp().sum()
    assert float(mass) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(
    ("dims", "said"), [([1, 2], "each of 4 latents"), ({4: 2}, "from 0 to 3"), ([1, 0, 1, 1], "dims")]
)
def test_dimensions_that_do_not_fit_are_refused(dims, said):
    with pytest.raises(pc.ArgumentError, match=said):
        make(MIXED, dims)


def test_a_rule_for_each_number_of_dimensions_is_asked_for():
    with pytest.raises(pc.ArgumentError, match="a rule for each number of dimensions, 1, 2, 3"):
        make(MIXED, [2, 1, 3, 1])(pc.midpoint(4))
    with pytest.raises(pc.ArgumentError, match="vectors of 3 dimensions"):
        make(MIXED, [2, 1, 3, 1])([pc.midpoint(4), pc.sobol(4, 2), pc.sobol(4, 2)])
    with pytest.raises(pc.ArgumentError, match="region graph"):
        make(STRUCTURES["region"], [1, 2, 1])


def test_equal_dimensions_are_one_number():
    assert make(MIXED, [2] * 4).dims == 2
