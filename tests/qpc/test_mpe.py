"""Probable completions: never worse than two slow decoders, and right where one assignment of the latents dominates."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import picirc as pc
from cases import CASES
from table_circuits import COLUMNS, TABLES, Unfolded, columns_data, each_of_columns, each_table, evidences, holes, near


def greedy(circuit: Unfolded, evidence: Tensor) -> Tensor:
    """From the root: the likeliest states given the evidence, one unit after the other, and modes at the bottom."""
    values = circuit.values(evidence[None])
    completed = evidence.clone()

    def at(unit: pc.Input | pc.Integral | pc.Sum | pc.Product, states: dict[str, int]) -> Tensor:
        names, table = values[id(unit)]
        for name in names:
            table = table[states[name]] if name in states else table.movedim(0, -2)
        return table[..., 0]

    def visit(unit: pc.Input | pc.Integral | pc.Sum | pc.Product, states: dict[str, int]) -> None:
        match unit:
            case pc.Input():
                family, params, column = circuit.inputs[id(unit)]
                (parent,) = unit.function.parents
                if math.isnan(evidence[column]):
                    completed[column] = family.mode(params[0, states[parent]])
            case pc.Product():
                for child in unit.inputs:
                    visit(child, states)
            case pc.Sum():
                (state,) = (states[name] for name in values[id(unit)][0])
                parts = torch.stack([at(child, states) for child in unit.inputs])
                best = int((parts * circuit.mixtures[id(unit)][:, state]).argmax())
                visit(unit.inputs[best], states)
            case pc.Integral():
                names, weights = circuit.weights[id(unit)]
                for name in names:
                    weights = weights[states[name]] if name not in unit.variables else weights.movedim(0, -2)
                scores = weights[..., 0] * below(unit, states)
                place = torch.unravel_index(scores.argmax(), scores.shape)
                visit(unit.child, states | dict(zip(unit.variables, map(int, place), strict=True)))

    def below(unit: pc.Integral, states: dict[str, int]) -> Tensor:
        """The values of what is integrated, with the axes in the order of the unit's variables."""
        names, table = values[id(unit.child)]
        free = [name for name in names if name in unit.variables]
        for name in names:
            table = table[states[name]] if name not in unit.variables else table.movedim(0, -2)
        return table[..., 0].permute([free.index(name) for name in unit.variables])

    visit(circuit.model.plan.circuit.root, {})
    return completed


@each_table
def test_never_worse_than_the_greedy_choice(table):
    qpc, circuit = table.qpc(), Unfolded(table.model())
    evidence = evidences(table)
    found = qpc.log_prob(qpc.mpe(evidence))
    for row, given in enumerate(evidence):
        assert float(found[row]) >= float(circuit.prob(greedy(circuit, given)[None]).log()) - 1e-9


@each_table
def test_never_worse_than_max_product(table):
    """The best joint assignment of values and latents: its values are at least as probable as it is."""
    qpc, joint = table.qpc(), table.joint()
    best = Unfolded(table.model(), best=True).prob(joint.x)
    found = qpc.log_prob(qpc.mpe(evidences(table))).exp()
    for row, evidence in enumerate(evidences(table)):
        matches = joint.matches(evidence)
        assert (
            float(best[matches].max()) * (1 - 1e-9) <= float(found[row]) <= float(joint.p[matches].max()) * (1 + 1e-9)
        )


@each_table
def test_exact_when_one_assignment_of_the_latents_dominates(table):
    """Sum weights and mixtures that are nearly certain make the circuit a product of its inputs."""
    model = table.model()
    with torch.no_grad():
        for parameter in (*model.weights, *model.mixtures):
            parameter *= 100.0
        qpc = model()
    joint = table.joint()
    p = Unfolded(model).prob(joint.x)
    for evidence in evidences(table):
        found = qpc.log_prob(qpc.mpe(evidence)[None])
        assert_close(found[0], p[joint.matches(evidence)].max().log(), rtol=1e-6, atol=1e-6)


def test_exact_with_one_state():
    table = TABLES["one_state"]
    joint = table.joint()
    for evidence in evidences(table):
        best = joint.x[(joint.p * joint.matches(evidence)).argmax()]
        assert_close(table.qpc().mpe(evidence), best, rtol=0, atol=0)


@each_table
def test_what_is_observed_stays(table):
    qpc, evidence = table.qpc(), evidences(table)
    found = qpc.mpe(evidence)
    known = ~evidence.isnan()
    assert (found[known] == evidence[known]).all()
    assert not found.isnan().any()
    assert_close(qpc.mpe(evidence[0]), found[0], rtol=0, atol=0)
    assert qpc.mpe().shape == (table.variables,)


@each_of_columns
def test_columns_of_all_families(table):
    """Completions are in the support, and no greedy choice beats them."""
    qpc, circuit = table.qpc(), Unfolded(table.model())
    evidence = holes(columns_data(6))
    found = qpc.mpe(evidence)
    assert (found[~evidence.isnan()] == evidence[~evidence.isnan()]).all()
    scores = qpc.log_prob(found)  # refuses what is not in the support
    for row, given in enumerate(evidence):
        assert float(scores[row]) >= float(circuit.prob(greedy(circuit, given)[None]).log()) - 1e-9


@pytest.mark.parametrize("name", CASES)
def test_integral_circuits(name):
    """A completion keeps what is known, is a value of the right kind, and not one from the tails."""
    case = CASES[name]
    qpc = case.integrate(pc.gauss_legendre(14))
    evidence = case.data()[4:]
    found = qpc.mpe(evidence)
    known = ~evidence.isnan()
    assert (found[known] == evidence[known]).all()
    for column, kind in zip(found.T, case.columns, strict=True):
        assert not isinstance(kind, int) or (column == column.round()).all()
    samples = qpc.sample(40, given=evidence, generator=torch.Generator().manual_seed(0))  # (40, rows, variables)
    drawn = qpc.log_prob(samples.flatten(0, 1)).view(samples.shape[:2])
    assert (qpc.log_prob(found) >= drawn.quantile(0.1, 0) - 1e-9).all()


def test_nothing_to_complete():
    for table in (TABLES["quad_graph"], TABLES["chain_mixed"]):
        x = table.joint().x[:4]
        assert_close(table.qpc().mpe(x), x, rtol=0, atol=0)


def test_the_same_in_single_precision():
    table = COLUMNS["tree_of_columns"]
    evidence = holes(columns_data(6))
    one, two = (table.qpc(dtype=dtype).mpe(evidence) for dtype in (torch.float32, torch.float64))
    assert_close(one.double(), two, **near(torch.float32))


def test_never_worse_than_the_mean_of_continuous_variables():
    net = pc.BayesNet()
    net.latent("z", pc.LinearGaussian(std=1.0))
    for j in range(4):
        net.observed(f"x{j}", pc.LinearGaussian({"z": 1.0 + j}, std=0.5))
    circuit = pc.from_bayesnet(net)
    qpc = circuit.integrate(pc.trapezoidal(16))
    evidence = torch.tensor([0.7, math.nan, math.nan, math.nan], dtype=torch.float64)
    found, mean = qpc.mpe(evidence), qpc.mean(given=evidence)
    assert qpc.log_prob(found[None]) >= qpc.log_prob(mean[None])
    assert found[0] == evidence[0]
