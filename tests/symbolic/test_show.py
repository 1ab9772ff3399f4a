# SPDX-License-Identifier: Apache-2.0
"""Circuits as text and in the DOT language."""

from __future__ import annotations

import re

import pytest

import picirc as pc
from cases import CASES, LG

NODE = re.compile(r'^  (u\d+) \[label="((?:[^"\\]|\\.)*)", shape=(box|circle|doublecircle)\];$')
EDGE = re.compile(r'^  (u\d+) -> (u\d+)(?: \[label="((?:[^"\\]|\\.)*)"\])?;$')

each_case = pytest.mark.parametrize("name", CASES)


def test_text_of_the_papers_tree():
    assert str(CASES["paper_ltm"].circuit) == "\n".join(
        [
            "∫z1  p(z1)",
            "  ⊗1",
            "    p(x1 | z1)",
            "    ∫z2  p(z2 | z1)",
            "      ⊗2",
            "        p(x2 | z2)",
            "        ∫z4  p(z4 | z2)",
            "          p(x4 | z4)",
            "    ∫z3  p(z3 | z1)",
            "      p(x3 | z3)",
        ]
    )


def test_text_shows_weights_and_refers_to_what_was_shown():
    below = pc.Integral("z", pc.Input("x", LG({"z": 1.0})), LG())
    circuit = pc.Circuit(pc.Sum([below, pc.Sum([below, pc.Input("x", LG())], [0.5, 0.5])], [0.25, 0.75]))
    assert str(circuit).splitlines() == [
        "⊕1",
        "  0.25 × ∫z  p(z)",
        "    p(x | z)",
        "  0.75 × ⊕2",
        "    0.5 × ∫z  p(z)  (see above)",
        "    0.5 × p(x)",
    ]


@each_case
def test_text_has_a_line_for_every_use_of_a_unit(name):
    circuit = CASES[name].circuit
    uses = sum(len(unit.inputs) for unit in circuit.units)
    assert len(str(circuit).splitlines()) == 1 + uses
    assert ("see above" in str(circuit)) == any(
        unit.inputs and sum(unit in other.inputs for other in circuit.units) > 1 for unit in circuit.units
    )


@each_case
def test_dot_has_a_node_for_every_unit_and_an_edge_for_every_input(name):
    circuit = CASES[name].circuit
    first, style, *lines, last = circuit.to_dot().splitlines()
    assert (first, style, last) == ("digraph circuit {", "  node [fontname=Helvetica];", "}")
    nodes = [match for line in lines if (match := NODE.match(line))]
    edges = [match for line in lines if (match := EDGE.match(line))]
    assert len(nodes) + len(edges) == len(lines)
    assert len({match[1] for match in nodes}) == len(nodes) == len(circuit.units)
    assert len(edges) == sum(len(unit.inputs) for unit in circuit.units)
    number = {match[1]: unit for match, unit in zip(nodes, circuit.units, strict=True)}
    expected = [(unit, child) for unit in circuit.units for child in unit.inputs]
    assert [(number[match[1]], number[match[2]]) for match in edges] == expected


def test_dot_labels_are_quoted():
    circuit = pc.Circuit(pc.Integral('z"\\', pc.Input('x"', LG({'z"\\': 1.0})), LG()))
    nodes = [match for line in circuit.to_dot().splitlines() if (match := NODE.match(line))]
    assert [match[2] for match in nodes] == ['p(x\\" | z\\"\\\\)', '∫z\\"\\\\']


def test_dot_shows_weights_and_densities_on_the_edges():
    text = CASES["sums"].circuit.to_dot()
    assert '[label="0.75"]' in text
    assert '[label="p(z)"]' in text


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("lg_tree", "Circuit(3 variables; units: 3 input, 3 integral, 1 product)"),
        ("sums", "Circuit(2 variables; units: 7 input, 1 integral, 3 sum, 3 product)"),
    ],
)
def test_repr_counts_the_units(name, expected):
    assert repr(CASES[name].circuit) == expected
