# SPDX-License-Identifier: Apache-2.0
"""The folded plan and the sizes announced before anything is allocated."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch

import picirc as pc
from cases import CASES, LG, Case
from picirc.compile.integrate import family_of
from picirc.compile.plan import make_plan
from picirc.engine.schedule import SumStep
from picirc.errors import StructureError

each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def largest_tensor(qpc: pc.QPC) -> int:
    """Elements of the largest weights of one integral, or of the largest row for one data point."""
    weights = [t[0].numel() for t in qpc.parameters.weights]
    return max([math.prod(shape) for shape in qpc.compiled.shapes] + weights)


@each_case
def test_the_cost_is_that_of_the_tensors_built(case: Case):
    rules = {z: pc.gauss_legendre(3 + i) for i, z in enumerate(case.circuit.latents)}
    cost, qpc = case.circuit.cost(rules), case.integrate(rules)
    assert cost.weights == sum(t.numel() for t in qpc.parameters.weights)
    assert cost.largest == largest_tensor(qpc)
    circuit = case.circuit
    sizes = {z: len(rule) for z, rule in rules.items()} | dict(circuit.discrete)
    assert cost.values == sum(math.prod(sizes[z] for z in circuit.free(unit)) for unit in circuit.units)
    assert cost.widest in circuit.names.values()


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.nested])
def test_the_nested_cost_is_that_of_the_tensors_built(name: str):
    circuit = CASES[name].circuit
    rules = {z: pc.gauss_legendre(2 + i) for i, z in enumerate(circuit.latents)}
    cost, qpc = circuit.cost(rules, nested=True), circuit.integrate(rules, nested=True)
    assert cost.weights == sum(t.numel() for t in qpc.parameters.weights)
    assert cost.largest == largest_tensor(qpc)


def test_the_cost_of_a_tree_is_quadratic():
    circuit = CASES["lg_tree"].circuit
    assert circuit.cost(pc.trapezoidal(50)) == pc.Cost(
        weights=50 + 2 * 50**2, values=3 * 50 + 2 * 50 + 50 + 1, largest=2500, widest=circuit.cost(range(50)).widest
    )


@each_case
def test_a_plan_knows_nothing_of_the_rule(case: Case):
    """Latents of one kind fold; which kinds there are does not change with the number of points."""
    circuit = case.circuit
    one, other = (
        make_plan(circuit, dict.fromkeys(circuit.latents, kind), partial(family_of, circuit)) for kind in ("N", 17)
    )
    assert len(one.schedule.steps) == len(other.schedule.steps)
    assert [pool.rows for pool in one.schedule.pools] == [pool.rows for pool in other.schedule.pools]


def test_the_latents_of_one_height_are_one_step():
    tree = pc.LatentTree((-1, *[0] * 20), ((), *((i,) for i in range(20))))
    circuit = pc.from_tree(tree, lambda i, p: LG({p: 0.5} if p else None), lambda j, p: LG({p: 1.0}))
    plan = make_plan(circuit, dict.fromkeys(circuit.latents, "N"), partial(family_of, circuit))
    sums = [step for step in plan.schedule.steps if isinstance(step, SumStep)]
    assert [step.stop - step.start for step in sums] == [20, 1]


def test_integrals_over_one_unit_are_one_product():
    """Three integrals of the same function: one row, three edges."""
    circuit = CASES["shared_by_integrals"].circuit
    plan = make_plan(circuit, {"z": "N"}, partial(family_of, circuit))
    (step,) = [step for step in plan.schedule.steps if isinstance(step, SumStep)]
    assert (step.stop - step.start, step.edges) == (1, 3)


def test_shared_sums_do_not_multiply():
    unit = pc.Sum([pc.Input("x", LG()), pc.Input("x", LG(bias=1.0))], [0.5, 0.5])
    for _ in range(12):
        unit = pc.Sum([unit, unit], [0.25, 0.75])
    qpc = pc.Circuit(unit).integrate({})
    assert qpc.size < 200
    x = torch.tensor([[0.4]])
    expected = torch.logsumexp(torch.tensor([-0.5 * 0.16, -0.5 * 0.36]), 0) - math.log(2) - 0.5 * math.log(2 * math.pi)
    assert float(qpc.log_prob(x)) == pytest.approx(float(expected), abs=1e-6)


def test_a_plan_needs_a_smooth_and_decomposable_circuit():
    twice = pc.Circuit(pc.Product(pc.Input("x", LG()), pc.Input("x", LG())))
    with pytest.raises(StructureError, match="quadrature needs a decomposable circuit"):
        make_plan(twice, {}, partial(family_of, twice))
