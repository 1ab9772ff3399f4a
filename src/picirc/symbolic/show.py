"""Drawings of a circuit: indented text, and Graphviz's DOT language."""

from __future__ import annotations

from typing import TYPE_CHECKING

from picirc.symbolic.units import Input, Integral, Product, Sum, Unit

if TYPE_CHECKING:
    from picirc.symbolic.circuit import SymbolicCircuit


def to_text(circuit: SymbolicCircuit) -> str:
    """One line a unit, inputs indented below; a unit used again is named and not repeated."""
    lines: list[str] = []
    shown: set[int] = set()
    stack: list[tuple[Unit, int, str]] = [(circuit.root, 0, "")]
    while stack:
        unit, depth, note = stack.pop()
        label = "  " * depth + note + circuit.names[id(unit)] + _density(unit)
        if id(unit) in shown and unit.inputs:
            lines.append(label + "  (see above)")
            continue
        shown.add(id(unit))
        lines.append(label)
        notes = [f"{w:g} × " for w in unit.weights] if isinstance(unit, Sum) else [""] * len(unit.inputs)
        children = list(zip(unit.inputs, notes, strict=True))
        stack.extend((child, depth + 1, weight) for child, weight in reversed(children))
    return "\n".join(lines)


def to_dot(circuit: SymbolicCircuit) -> str:
    """A ``digraph`` with one node a unit; edges point from a unit to its inputs."""
    number = {id(unit): f"u{i}" for i, unit in enumerate(circuit.units)}
    lines = ["digraph circuit {", "  node [fontname=Helvetica];"]
    for unit in circuit.units:
        shape = {Input: "box", Integral: "doublecircle", Sum: "circle", Product: "circle"}[type(unit)]
        lines.append(f'  {number[id(unit)]} [label="{_escape(circuit.names[id(unit)])}", shape={shape}];')
    for unit in circuit.units:
        for i, child in enumerate(unit.inputs):
            label = f"{unit.weights[i]:g}" if isinstance(unit, Sum) else _density(unit).strip()
            mark = f' [label="{_escape(label)}"]' if label else ""
            lines.append(f"  {number[id(unit)]} -> {number[id(child)]}{mark};")
    return "\n".join([*lines, "}"])


def _density(unit: Unit) -> str:
    """The densities that an integral unit carries, as the paper labels its edges."""
    if not isinstance(unit, Integral):
        return ""
    factors = []
    for factor in unit.factors:
        own, parents = ", ".join(factor.variables), ", ".join(factor.function.parents)
        factors.append(f"p({own} | {parents})" if parents else f"p({own})")
    return "  " + " ".join(factors) if factors else ""


def _escape(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"')
