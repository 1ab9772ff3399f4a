# SPDX-License-Identifier: Apache-2.0
"""Symbolic circuits: scopes, structural properties, the cost of quadrature, and drawings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import or_
from typing import Any

from picirc.errors import ArgumentError, StructureError
from picirc.structure.bayesnet import Function, topological_order
from picirc.symbolic.units import Input, Integral, Product, Sum, Unit


@dataclass(frozen=True)
class Properties:
    """The structural properties of a circuit.

    Attributes:
        smooth: All inputs of a sum depend on the same variables.
        decomposable: The inputs of a product depend on disjoint sets of variables.
        structured_decomposable: All products over the same variables split them in the same way.
        tree_shaped: No unit is used twice.
        violations: An explanation of each property that does not hold.
        conditions: The observed parents of each observed variable that has any. Such a circuit is not decomposable:
            the density of the variable depends on others whose values must be known.
    """

    smooth: bool
    decomposable: bool
    structured_decomposable: bool
    tree_shaped: bool
    violations: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    conditions: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)

    def require(self, *names: str, purpose: str) -> None:
        """Raise a StructureError that names the offending unit unless all named properties hold."""
        for name in names:
            if not getattr(self, name):
                word = name.replace("_", " ").replace("structured decomposable", "structured-decomposable")
                raise StructureError(f"{purpose} needs a {word} circuit, but {self.violations[name]}.")


@dataclass(frozen=True)
class Cost:
    """The size of a circuit after quadrature, in numbers of elements.

    Attributes:
        weights: The total number of sum weights.
        values: The number of values computed per data point.
        largest: The size of the largest single tensor (weights, or values of one data point).
        widest: The name of the unit that needs this tensor.
    """

    weights: int
    values: int
    largest: int
    widest: str


class SymbolicCircuit:
    """An integral circuit: a DAG of units below one root, and the order of the observed variables.

    Args:
        root: The unit whose function the circuit represents. It must not have free latents.
        variables: The observed variables in the order of the columns of the data; by default in the order of a
            depth-first traversal.
    """

    def __init__(self, root: Unit, variables: Sequence[str] | None = None) -> None:
        if not isinstance(root, Input | Integral | Sum | Product):
            raise ArgumentError("root", "a unit (Input, Integral, Sum, Product)", type(root).__name__)
        self.root = root
        self.units: tuple[Unit, ...] = _children_first(root)
        self._names: tuple[str, ...] = tuple(
            dict.fromkeys(name for unit in self.units if isinstance(unit, Input) for name in unit.variables)
        )
        self._scope, self._free = _scopes(self.units, self._names)
        self.variables = self._names if variables is None else tuple(variables)
        self._check()

    def scope(self, unit: Unit) -> frozenset[str]:
        """The observed variables that a unit's function depends on."""
        bits = bin(self._scope[unit])[:1:-1]
        return frozenset(name for name, bit in zip(self._names, bits, strict=False) if bit == "1")

    def free(self, unit: Unit) -> frozenset[str]:
        """The latents that a unit's function depends on."""
        return self._free[unit]

    @cached_property
    def latents(self) -> tuple[str, ...]:
        """The latents that are integrated out, innermost first."""
        seen: dict[str, None] = {}
        for unit in self.units:
            if isinstance(unit, Integral):
                seen.update(dict.fromkeys(unit.variables))
        return tuple(seen)

    @cached_property
    def names(self) -> Mapping[Unit, str]:
        """A readable name for every unit."""
        counts = {"⊕": 0, "⊗": 0}
        names: dict[Unit, str] = {}
        for unit in reversed(self.units):
            match unit:
                case Input():
                    names[unit] = _density(unit.variables, unit.function)
                case Integral():
                    sign = "Σ" if all(z in self.discrete for z in unit.variables) else "∫"
                    names[unit] = f"{sign}{','.join(unit.variables)}"
                case Sum() | Product():
                    sign = "⊕" if isinstance(unit, Sum) else "⊗"
                    counts[sign] += 1
                    names[unit] = f"{sign}{counts[sign]}"
        return names

    @cached_property
    def properties(self) -> Properties:
        """The structural properties, computed from the graph."""
        overlap = next(self._overlaps(), "")
        found = {
            "smooth": next(self._mixed_scopes(), ""),
            "decomposable": overlap,
            "structured_decomposable": overlap or next(self._different_splits(), ""),
            "tree_shaped": next(self._shared_units(), ""),
        }
        violations = {name: reason for name, reason in found.items() if reason}
        held = {name: not reason for name, reason in found.items()}
        return Properties(**held, violations=violations, conditions=self.conditions)

    @cached_property
    def conditions(self) -> Mapping[str, tuple[str, ...]]:
        """For each observed variable that is conditioned on others, its observed parents."""
        found: dict[str, dict[str, None]] = {}
        for unit in self.units:
            if isinstance(unit, Input):
                parents = [parent for parent in unit.function.parents if parent in self.variables]
                for variable in unit.variables if parents else ():
                    found.setdefault(variable, {}).update(dict.fromkeys(parents))
        return {variable: tuple(parents) for variable, parents in found.items()}

    @cached_property
    def discrete(self) -> Mapping[str, int]:
        """The number of values of each discrete latent."""
        found = {}
        for z, functions in self.densities.items():
            sizes = {getattr(function, "values", None) for function in functions}
            if len(sizes) == 1 and (size := sizes.pop()) is not None:
                found[z] = size
        return found

    @cached_property
    def dims(self) -> Mapping[str, int]:
        """The number of components of each latent that is a vector."""
        return {
            z: dims for z, functions in self.densities.items() for f in functions if (dims := getattr(f, "dims", 0))
        }

    def check_products(self, purpose: str) -> None:
        """Raise an error if two inputs of a product both contain a distribution of the same variable.

        This is decomposability, except that a variable may be conditioned on variables of other inputs.
        """
        own: dict[Unit, frozenset[str]] = {}
        for unit in () if self.properties.decomposable else self.units:
            below = [own[child] for child in unit.inputs]
            own[unit] = frozenset(unit.variables) if isinstance(unit, Input) else frozenset().union(*below)
            if isinstance(unit, Product) and sum(map(len, below)) > len(own[unit]):
                self.properties.require("decomposable", purpose=purpose)

    @cached_property
    def densities(self) -> Mapping[str, tuple[Function, ...]]:
        """For each latent, the densities ``p(z | parents)`` that the integral units carry."""
        found: dict[str, list[Function]] = {z: [] for z in self.latents}
        for unit in self.units:
            if isinstance(unit, Integral):
                for factor in unit.factors:
                    if len(factor.variables) == 1 and factor.function not in found[factor.variables[0]]:
                        found[factor.variables[0]].append(factor.function)
        return {z: tuple(functions) for z, functions in found.items()}

    @cached_property
    def lineage(self) -> Mapping[str, frozenset[str]]:
        """Each latent with all its ancestors, on which its points depend in nested quadrature."""
        lineage: dict[str, frozenset[str]] = {}
        for z in self.parents_first:
            above = (lineage[parent] for function in self.densities[z] for parent in function.parents)
            lineage[z] = frozenset((z,)).union(*above)
        return lineage

    @cached_property
    def parents_first(self) -> tuple[str, ...]:
        """The latents, each parent before its children."""
        parents = {z: [p for f in functions for p in f.parents] for z, functions in self.densities.items()}
        return tuple(topological_order(parents))

    def cost(self, rule: Sized | Mapping[str, Sized], nested: bool = False) -> Cost:
        """The size of the circuit after quadrature with ``rule``, computed without allocating anything.

        Args:
            rule: A rule, of which only the number of points is used, or a mapping with a rule for each latent.
            nested: Whether quadrature is nested. A latent then has states for each combination of its ancestors'
                states.
        """
        counts = dict(self.discrete)
        for z in self.latents:
            if z not in counts:
                if isinstance(rule, Mapping) and z not in rule:
                    expected = f"a rule for each latent ({', '.join(self.latents)})"
                    raise ArgumentError("rule", expected, f"none for {z!r}")
                counts[z] = len(rule[z] if isinstance(rule, Mapping) else rule)

        def size(latents: AbstractSet[str]) -> int:
            axes = {axis for z in latents for axis in self.lineage[z]} if nested else latents
            return math.prod(counts[z] for z in axes)

        weights = values = largest = 0
        widest = self.names[self.root]
        for unit in self.units:
            states = size(self.free(unit))
            values += states
            if isinstance(unit, Integral):
                factor = {*unit.variables, *(z for f in unit.factors for z in f.latents)}
                weights += size(factor)
                # The product under the integral depends on the free latents and on the integrated ones.
                states = max(states, size(factor), size(self.free(unit.child) | set(unit.variables)))
            if states > largest:
                largest, widest = states, self.names[unit]
        return Cost(weights, values, largest, widest)

    def __reduce__(self) -> Any:
        """Pickle the units as a flat list, children first; recursive pickling fails for deep circuits."""
        number = {unit: i for i, unit in enumerate(self.units)}
        flat = [(unit, [number[child] for child in unit.inputs]) for unit in self.units]
        parts = [(type(unit), _fields(unit), children) for unit, children in flat]
        return _rebuilt, (type(self), parts, self.variables)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Return the circuit itself, which is immutable."""
        return self

    def __repr__(self) -> str:
        kinds = [type(unit).__name__.lower() for unit in self.units]
        counts = ", ".join(f"{kinds.count(k)} {k}" for k in ("input", "integral", "sum", "product") if k in kinds)
        return f"{type(self).__name__}({len(self.variables)} variables; units: {counts})"

    def __str__(self) -> str:
        """One line per unit, with its inputs indented below; the inputs of a shared unit are shown once."""
        lines: list[str] = []
        shown: set[Unit] = set()
        stack: list[tuple[Unit, int, str]] = [(self.root, 0, "")]
        while stack:
            unit, depth, note = stack.pop()
            carried = _carried(unit)
            line = "  " * depth + note + self.names[unit] + (f"  {carried}" if carried else "")
            if unit in shown and unit.inputs:
                lines.append(line + "  (see above)")
                continue
            shown.add(unit)
            lines.append(line)
            notes = [f"{w:g} × " for w in unit.weights] if isinstance(unit, Sum) else [""] * len(unit.inputs)
            children = list(zip(unit.inputs, notes, strict=True))
            stack.extend((child, depth + 1, weight) for child, weight in reversed(children))
        return "\n".join(lines)

    def to_dot(self) -> str:
        """The circuit as a drawing in Graphviz's DOT language; edges point from a unit to its inputs."""
        number = {unit: f"u{i}" for i, unit in enumerate(self.units)}
        lines = ["digraph circuit {", "  node [fontname=Helvetica];"]
        for unit in self.units:
            shape = {Input: "box", Integral: "doublecircle", Sum: "circle", Product: "circle"}[type(unit)]
            lines.append(f'  {number[unit]} [label="{_escape(self.names[unit])}", shape={shape}];')
        for unit in self.units:
            for i, child in enumerate(unit.inputs):
                label = f"{unit.weights[i]:g}" if isinstance(unit, Sum) else _carried(unit)
                mark = f' [label="{_escape(label)}"]' if label else ""
                lines.append(f"  {number[unit]} -> {number[child]}{mark};")
        return "\n".join([*lines, "}"])

    def _check(self) -> None:
        met, columns = self._names, self.variables
        if len(set(columns)) != len(columns) or set(columns) != set(met):
            expected = f"each observed variable once ({', '.join(met)})"
            raise ArgumentError("variables", expected, ", ".join(columns) or "none")
        if not columns:
            raise ArgumentError("root", "a circuit with at least one input unit", "none", "add pc.Input units")
        if clash := set(self.latents) & set(columns):
            raise ArgumentError("root", "different names for latents and observed variables", sorted(clash))
        if free := self.free(self.root):
            got = f"{', '.join(sorted(free))} free at {self.names[self.root]}"
            remedy = "integrate them out with pc.Integral units above their last use"
            raise ArgumentError("root", "a circuit without free latents", got, remedy)

    # Each of the following yields an explanation for every violation of a structural property.

    def _mixed_scopes(self) -> Iterator[str]:
        for unit in self.units:
            first = unit.inputs[0] if isinstance(unit, Sum) else unit
            for child in unit.inputs if isinstance(unit, Sum) else ():
                if self._scope[child] != self._scope[first]:
                    yield (
                        f"the sum {self.names[unit]} adds functions of different variables: "
                        f"{_set(self.scope(first))} and {_set(self.scope(child))} (at {self.names[child]})"
                    )

    def _overlaps(self) -> Iterator[str]:
        for unit in self.units:
            seen = 0
            for place, child in enumerate(unit.inputs if isinstance(unit, Product) else ()):
                if seen & self._scope[child]:
                    before = frozenset().union(*(self.scope(other) for other in unit.inputs[:place]))
                    yield (
                        f"two inputs of the product {self.names[unit]} share {_set(before & self.scope(child))} "
                        f"(the second is {self.names[child]})"
                    )
                seen |= self._scope[child]

    def _different_splits(self) -> Iterator[str]:
        splits: dict[int, tuple[frozenset[int], Unit]] = {}
        for unit in self.units:
            parts = frozenset(self._scope[child] for child in unit.inputs if self._scope[child])
            if isinstance(unit, Product) and len(parts) > 1:
                known, other = splits.setdefault(self._scope[unit], (parts, unit))
                if known != parts:
                    yield (
                        f"the products {self.names[other]} and {self.names[unit]} split "
                        f"{_set(self.scope(unit))} differently"
                    )

    def _shared_units(self) -> Iterator[str]:
        used: set[Unit] = set()
        for unit in self.units:
            for child in unit.inputs:
                if child in used:
                    yield f"the unit {self.names[child]} is used more than once"
                used.add(child)


def _children_first(root: Unit) -> tuple[Unit, ...]:
    """Every unit once, after its inputs; iterative, because circuits can be thousands of units deep."""
    order: list[Unit] = []
    done: set[Unit] = set()
    stack: list[tuple[Unit, bool]] = [(root, False)]
    while stack:
        unit, expanded = stack.pop()
        if unit in done:
            continue
        if expanded:
            done.add(unit)
            order.append(unit)
        else:
            stack.append((unit, True))
            stack.extend((child, False) for child in reversed(unit.inputs))
    return tuple(order)


def _scopes(units: Iterable[Unit], names: Sequence[str]) -> tuple[dict[Unit, int], dict[Unit, frozenset[str]]]:
    """The scope of every unit, as the bits of an integer, and its free latents.

    In a chain of thousands of variables most scopes are large. As bits they take little memory.
    """
    bit = {name: 1 << place for place, name in enumerate(names)}
    scope: dict[Unit, int] = {}
    free: dict[Unit, frozenset[str]] = {}
    for unit in units:
        if isinstance(unit, Input):
            parents = unit.function.parents
            scope[unit] = reduce(or_, (bit[name] for name in (*unit.variables, *parents) if name in bit))
            free[unit] = frozenset(name for name in parents if name not in bit)
            continue
        scope[unit] = reduce(or_, (scope[child] for child in unit.inputs), 0)
        free[unit] = frozenset().union(*(free[child] for child in unit.inputs))
        if isinstance(unit, Integral):
            mentioned = {z for factor in unit.factors for z in factor.latents}
            free[unit] = (free[unit] | mentioned) - set(unit.variables)
    return scope, free


def _fields(unit: Unit) -> tuple[Any, ...]:
    """The arguments of a unit, without the units below it."""
    match unit:
        case Input():
            return unit.variables, unit.function
        case Integral():
            return unit.variables, unit.factors
        case Sum():
            return (unit.weights,)
        case Product():
            return ()


def _rebuilt(
    kind: type[SymbolicCircuit], parts: Sequence[tuple[type, tuple[Any, ...], list[int]]], variables: Sequence[str]
) -> SymbolicCircuit:
    """The circuit with these units, children first: the inverse of ``SymbolicCircuit.__reduce__``."""
    units: list[Unit] = []
    for unit, fields, numbers in parts:
        below = [units[number] for number in numbers]
        if unit is Input:
            units.append(Input(*fields))
        elif unit is Integral:
            units.append(Integral(fields[0], below[0], fields[1]))
        else:
            units.append(Sum(below, *fields) if unit is Sum else Product(*below))
    return kind(units[-1], variables)


def _set(names: Iterable[str]) -> str:
    return "{" + ", ".join(sorted(names)) + "}"


def _density(variables: Sequence[str], function: Function) -> str:
    """A density in the notation of the paper's figures."""
    own, parents = ", ".join(variables), ", ".join(function.parents)
    return f"p({own} | {parents})" if parents else f"p({own})"


def _carried(unit: Unit) -> str:
    """The densities that an integral unit carries."""
    factors = unit.factors if isinstance(unit, Integral) else ()
    return " ".join(_density(factor.variables, factor.function) for factor in factors)


def _escape(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"')
