# SPDX-License-Identifier: Apache-2.0
"""Circuits as values: traversal, scopes, free latents, and structural properties with the unit that breaks them."""

from __future__ import annotations

import pytest

import picirc as pc
from cases import CASES, LG
from picirc.errors import ArgumentError, StructureError

each_case = pytest.mark.parametrize("name", CASES)


def x(name: str, *parents: str) -> pc.Input:
    return pc.Input(name, LG(dict.fromkeys(parents, 1.0)))


@each_case
def test_every_unit_comes_once_and_after_its_inputs(name):
    circuit = CASES[name].circuit
    seen = set()
    for unit in circuit.units:
        assert id(unit) not in seen
        assert all(id(child) in seen for child in unit.inputs)
        seen.add(id(unit))
    assert circuit.units[-1] is circuit.root


@each_case
def test_scopes_and_free_latents(name):
    """The scope of a unit is the union of its inputs'; an integral closes its latents and opens its parents."""
    circuit = CASES[name].circuit
    for unit in circuit.units:
        if isinstance(unit, pc.Input):
            assert circuit.scope(unit) == {unit.variable}
            assert circuit.free(unit) == set(unit.function.parents)
            continue
        assert circuit.scope(unit) == {v for child in unit.inputs for v in circuit.scope(child)}
        free = {z for child in unit.inputs for z in circuit.free(child)}
        if isinstance(unit, pc.Integral):
            free |= {z for factor in unit.factors for z in factor.latents}
            free -= set(unit.variables)
        assert circuit.free(unit) == free
    assert circuit.scope(circuit.root) == set(circuit.variables)
    assert circuit.free(circuit.root) == set()


@each_case
def test_properties_of_the_cases(name):
    circuit = CASES[name].circuit
    shared = {"shared_by_integrals", "shared_by_sums", "shared_bounded_input"}
    unstructured = {"two_structures"}
    assert circuit.properties == pc.Properties(
        smooth=True,
        decomposable=True,
        structured_decomposable=name not in unstructured,
        tree_shaped=name not in shared,
    )
    circuit.properties.require("smooth", "decomposable", purpose="a test")


def test_a_sum_over_different_scopes_is_not_smooth():
    circuit = pc.Circuit(pc.Product(x("c"), pc.Sum([x("a"), x("b")], [0.5, 0.5])))
    assert not circuit.properties.smooth
    assert (
        "the sum ⊕1 adds functions of different variables: {a} and {b} (at p(b))"
        in circuit.properties.violations["smooth"]
    )
    assert circuit.properties.decomposable
    for use in (circuit.exact, lambda: circuit.integrate({})):
        with pytest.raises(StructureError, match=r"needs a smooth circuit, but the sum ⊕1 adds"):
            use()


def test_a_product_with_a_common_variable_is_not_decomposable():
    inner = pc.Product(x("a"), x("b"))
    circuit = pc.Circuit(pc.Product(x("c"), inner, pc.Product(x("b"), x("d"))))
    assert not circuit.properties.decomposable
    assert not circuit.properties.structured_decomposable
    assert "inputs of the product ⊗1 share {b}" in circuit.properties.violations["decomposable"]
    with pytest.raises(StructureError, match=r"quadrature needs a decomposable circuit.*⊗1 share \{b\}"):
        circuit.integrate({})


def test_products_that_split_alike_are_structured():
    parts = [pc.Product(x("a"), pc.Product(x("b"), x("c"))) for _ in range(2)]
    assert pc.Circuit(pc.Sum(parts, [0.5, 0.5])).properties.structured_decomposable
    turned = [pc.Product(pc.Product(x("c"), x("b")), x("a")), parts[0]]
    assert pc.Circuit(pc.Sum(turned, [0.5, 0.5])).properties.structured_decomposable


def test_products_that_split_differently_are_named():
    circuit = CASES["two_structures"].circuit
    message = circuit.properties.violations["structured_decomposable"]
    assert "split {x1, x2, x3} differently" in message
    assert message.count("⊗") == 2
    with pytest.raises(StructureError, match="squaring needs a structured-decomposable circuit, but the products"):
        circuit.properties.require("structured_decomposable", purpose="squaring")


def test_a_unit_used_twice_is_named():
    shared = x("a")
    circuit = pc.Circuit(pc.Sum([shared, shared], [0.3, 0.7]))
    assert not circuit.properties.tree_shaped
    assert circuit.properties.violations["tree_shaped"] == "the unit p(a) is used more than once"


def test_constants_do_not_count_as_parts():
    """A barren integral is a factor without a scope, which breaks no property."""
    barren = pc.Integral("w", pc.Product(), LG())
    circuit = pc.Circuit(pc.Integral("z", pc.Product(x("a", "z"), barren, barren), LG()))
    assert circuit.properties.smooth
    assert circuit.properties.structured_decomposable


def test_columns_come_in_the_order_met_or_in_the_order_given():
    root = pc.Product(x("b"), pc.Product(x("a"), x("c")))
    assert pc.Circuit(root).variables == ("b", "a", "c")
    assert pc.Circuit(root, ["a", "b", "c"]).variables == ("a", "b", "c")


@pytest.mark.parametrize("variables", [["a"], ["a", "b", "b"], ["a", "b", "d"], []])
def test_columns_are_the_observed_variables(variables):
    with pytest.raises(ArgumentError, match=r"variables: expected each observed variable once \(a, b\)"):
        pc.Circuit(pc.Product(x("a"), x("b")), variables)


@pytest.mark.parametrize(
    ("root", "message"),
    [
        (pc.Product(), "a circuit with at least one input unit"),
        (x("a", "z"), r"a circuit without free latents, got z free at p\(a \| z\)"),
        (pc.Integral("z", x("a", "z"), LG({"w": 1.0})), "got w free at ∫z"),
        (pc.Integral("a", pc.Product(x("a"), x("b", "a")), LG()), "different names for latents and observed"),
    ],
)
def test_roots_that_are_no_circuit(root, message):
    with pytest.raises(ArgumentError, match=message):
        pc.Circuit(root)


def test_a_root_is_a_unit():
    with pytest.raises(ArgumentError, match="root: expected a unit"):
        pc.Circuit(LG())  # type: ignore[arg-type]


def test_a_deep_circuit_is_no_problem():
    unit: object = x("a", "z0")
    for i in range(3000):
        unit = pc.Integral(f"z{i}", unit, LG({f"z{i + 1}": 0.5} if i < 2999 else None))  # type: ignore[arg-type]
    circuit = pc.Circuit(unit)  # type: ignore[arg-type]
    assert len(circuit.units) == 3001
    assert circuit.properties.tree_shaped
    assert len(str(circuit).splitlines()) == 3001
