"""Circuits as values: traversal, scopes, structural properties and the cost of static quadrature."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from picirc.errors import ArgumentError, StructureError
from picirc.structure.bayesnet import Function
from picirc.structure.dag import topological_order
from picirc.symbolic.show import to_dot, to_text
from picirc.symbolic.units import Input, Integral, Product, Sum, Unit


class Sized(Protocol):
    """A rule, of which only the number of points matters here."""

    def __len__(self) -> int:
        """The number of points."""


@dataclass(frozen=True)
class Properties:
    """What holds for a circuit; ``violations`` says for each property that fails which unit breaks it."""

    smooth: bool
    decomposable: bool
    structured_decomposable: bool
    tree_shaped: bool
    violations: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def require(self, *names: str, purpose: str) -> None:
        """Raise a StructureError that names the offending unit unless all the named properties hold."""
        for name in names:
            if not getattr(self, name):
                word = name.replace("_", " ").replace("structured decomposable", "structured-decomposable")
                raise StructureError(f"{purpose} needs a {word} circuit, but {self.violations[name]}.")


@dataclass(frozen=True)
class Cost:
    """The sizes that quadrature will need, in numbers of elements.

    Attributes:
        weights: Elements of all sum weights together.
        values: Values computed per data point.
        largest: Elements of the largest single tensor (weights, or values of one data point).
        widest: The unit that needs it, by name.
    """

    weights: int
    values: int
    largest: int
    widest: str


class SymbolicCircuit:
    """An integral circuit: a DAG of units below one root, and the order of the observed variables.

    Args:
        root: The unit whose function the circuit stands for. It may have no free latents.
        variables: The observed variables in the order of the data's columns; by default in the order in which a
            depth-first traversal meets them.
    """

    def __init__(self, root: Unit, variables: Sequence[str] | None = None) -> None:
        if not isinstance(root, Input | Integral | Sum | Product):
            raise ArgumentError("root", "a unit (Input, Integral, Sum, Product)", type(root).__name__)
        self.root = root
        self.units: tuple[Unit, ...] = _children_first(root)
        self._scope, self._free = _scopes(self.units)
        self.variables = self._columns(variables)
        self._check_latents()

    def scope(self, unit: Unit) -> frozenset[str]:
        """The observed variables of a unit's function."""
        return self._scope[id(unit)]

    def free(self, unit: Unit) -> frozenset[str]:
        """The latents that a unit's function still depends on."""
        return self._free[id(unit)]

    @cached_property
    def latents(self) -> tuple[str, ...]:
        """The latents that are integrated out, the innermost first."""
        seen: dict[str, None] = {}
        for unit in self.units:
            if isinstance(unit, Integral):
                seen.update(dict.fromkeys(unit.variables))
        return tuple(seen)

    @cached_property
    def names(self) -> Mapping[int, str]:
        """A readable name for every unit, by its ``id``."""
        counts = {"⊕": 0, "⊗": 0}
        names = {}
        for unit in reversed(self.units):
            match unit:
                case Input():
                    names[id(unit)] = f"p({_given(unit.variable, unit.function.parents)})"
                case Integral():
                    names[id(unit)] = f"∫{','.join(unit.variables)}"
                case Sum() | Product():
                    sign = "⊕" if isinstance(unit, Sum) else "⊗"
                    counts[sign] += 1
                    names[id(unit)] = f"{sign}{counts[sign]}"
        return names

    @cached_property
    def properties(self) -> Properties:
        """The structural properties, computed from the graph."""
        found = {
            "smooth": self._unsmooth(),
            "decomposable": self._overlapping(),
            "structured_decomposable": self._overlapping() or self._unstructured(),
            "tree_shaped": self._shared(),
        }
        violations = {name: reason for name, reason in found.items() if reason}
        return Properties(**{name: not reason for name, reason in found.items()}, violations=violations)

    @cached_property
    def densities(self) -> Mapping[str, tuple[Function, ...]]:
        """For each latent the densities ``p(z | parents)`` that the integral units carry for it."""
        found: dict[str, list[Function]] = {z: [] for z in self.latents}
        for unit in self.units:
            if isinstance(unit, Integral):
                for factor in unit.factors:
                    if len(factor.variables) == 1 and factor.function not in found[factor.variables[0]]:
                        found[factor.variables[0]].append(factor.function)
        return {z: tuple(functions) for z, functions in found.items()}

    @cached_property
    def lineage(self) -> Mapping[str, frozenset[str]]:
        """Each latent with all its ancestors: what its points depend on in nested quadrature."""
        lineage: dict[str, frozenset[str]] = {}
        for z in self.parents_first:
            above = (lineage[parent] for function in self.densities[z] for parent in function.parents)
            lineage[z] = frozenset((z,)).union(*above)
        return lineage

    @cached_property
    def parents_first(self) -> tuple[str, ...]:
        """The latents, every parent before its children."""
        parents = {z: [p for f in functions for p in f.parents] for z, functions in self.densities.items()}
        return tuple(topological_order(parents))

    def cost(self, rule: Sized | Mapping[str, Sized], nested: bool = False) -> Cost:
        """The sizes that quadrature with ``rule`` will need, before anything is allocated.

        Args:
            rule: A rule (its number of points matters), or one for each latent.
            nested: Count for nested quadrature, where the states of a latent multiply with its ancestors'.
        """
        missing = [z for z in self.latents if isinstance(rule, Mapping) and z not in rule]
        if missing:
            raise ArgumentError(
                "rule", f"a rule for each latent ({', '.join(self.latents)})", f"none for {missing[0]!r}"
            )
        counts = {z: len(rule[z] if isinstance(rule, Mapping) else rule) for z in self.latents}

        def size(latents: AbstractSet[str]) -> int:
            axes = {axis for z in latents for axis in self.lineage[z]} if nested else latents
            return math.prod(counts[z] for z in axes)

        weights = values = largest = 0
        widest = self.names[id(self.root)]
        for unit in self.units:
            states = size(self.free(unit))
            values += states
            if isinstance(unit, Integral):
                factor = {*unit.variables, *(z for f in unit.factors for z in f.latents)}
                weights += size(factor)
                # The product under the integral ranges over the free latents and the integrated ones.
                states = max(states, size(factor), size(self.free(unit.child) | set(unit.variables)))
            if states > largest:
                largest, widest = states, self.names[id(unit)]
        return Cost(weights, values, largest, widest)

    def __repr__(self) -> str:
        kinds = [type(unit).__name__.lower() for unit in self.units]
        counts = ", ".join(f"{kinds.count(k)} {k}" for k in ("input", "integral", "sum", "product") if k in kinds)
        return f"{type(self).__name__}({len(self.variables)} variables; units: {counts})"

    def __str__(self) -> str:
        return to_text(self)

    def to_dot(self) -> str:
        """The circuit as a drawing in Graphviz's DOT language."""
        return to_dot(self)

    def _columns(self, variables: Sequence[str] | None) -> tuple[str, ...]:
        met = dict.fromkeys(unit.variable for unit in self.units if isinstance(unit, Input))
        columns = tuple(met) if variables is None else tuple(variables)
        if len(set(columns)) != len(columns) or set(columns) != set(met):
            raise ArgumentError(
                "variables", f"each observed variable once ({', '.join(met)})", ", ".join(columns) or "none"
            )
        if not columns:
            raise ArgumentError("root", "a circuit with at least one input unit", "none", "add pc.Input units")
        return columns

    def _check_latents(self) -> None:
        clash = set(self.latents) & set(self.variables)
        if clash:
            raise ArgumentError("root", "different names for latents and observed variables", sorted(clash))
        free = self.free(self.root)
        if free:
            raise ArgumentError(
                "root",
                "a circuit without free latents",
                f"{', '.join(sorted(free))} free at {self.names[id(self.root)]}",
                "integrate them out with pc.Integral units above their last use",
            )

    def _unsmooth(self) -> str:
        for unit in self.units:
            if isinstance(unit, Sum):
                first, *others = (self.scope(child) for child in unit.inputs)
                for child, scope in zip(unit.inputs[1:], others, strict=True):
                    if scope != first:
                        return (
                            f"the sum {self.names[id(unit)]} adds functions of different variables: "
                            f"{_set(first)} and {_set(scope)} (at {self.names[id(child)]})"
                        )
        return ""

    def _overlapping(self) -> str:
        for unit in self.units:
            if isinstance(unit, Product):
                seen: set[str] = set()
                for child in unit.inputs:
                    shared = seen & self.scope(child)
                    if shared:
                        return (
                            f"two inputs of the product {self.names[id(unit)]} share {_set(shared)} "
                            f"(the second is {self.names[id(child)]})"
                        )
                    seen |= self.scope(child)
        return ""

    def _unstructured(self) -> str:
        splits: dict[frozenset[str], tuple[frozenset[frozenset[str]], Unit]] = {}
        for unit in self.units:
            if not isinstance(unit, Product):
                continue
            parts = frozenset(self.scope(child) for child in unit.inputs if self.scope(child))
            if len(parts) < 2:
                continue  # nothing is split
            known, other = splits.setdefault(self.scope(unit), (parts, unit))
            if known != parts:
                return (
                    f"the products {self.names[id(other)]} and {self.names[id(unit)]} split "
                    f"{_set(self.scope(unit))} differently"
                )
        return ""

    def _shared(self) -> str:
        uses: dict[int, int] = {}
        for unit in self.units:
            for child in unit.inputs:
                uses[id(child)] = uses.get(id(child), 0) + 1
                if uses[id(child)] > 1:
                    return f"the unit {self.names[id(child)]} is used more than once"
        return ""


def _children_first(root: Unit) -> tuple[Unit, ...]:
    """Every unit once, its inputs before it; iterative, because circuits can be thousands of units deep."""
    order: list[Unit] = []
    done: set[int] = set()
    stack: list[tuple[Unit, bool]] = [(root, False)]
    while stack:
        unit, expanded = stack.pop()
        if id(unit) in done:
            continue
        if expanded:
            done.add(id(unit))
            order.append(unit)
        else:
            stack.append((unit, True))
            stack.extend((child, False) for child in reversed(unit.inputs))
    return tuple(order)


def _scopes(units: Iterable[Unit]) -> tuple[dict[int, frozenset[str]], dict[int, frozenset[str]]]:
    scope: dict[int, frozenset[str]] = {}
    free: dict[int, frozenset[str]] = {}
    for unit in units:
        if isinstance(unit, Input):
            scope[id(unit)] = frozenset((unit.variable,))
            free[id(unit)] = frozenset(unit.function.parents)
            continue
        scope[id(unit)] = frozenset().union(*(scope[id(child)] for child in unit.inputs))
        free[id(unit)] = frozenset().union(*(free[id(child)] for child in unit.inputs))
        if isinstance(unit, Integral):
            mentioned = {z for factor in unit.factors for z in factor.latents}
            free[id(unit)] = (free[id(unit)] | mentioned) - set(unit.variables)
    return scope, free


def _given(variable: str, parents: Sequence[str]) -> str:
    return f"{variable} | {', '.join(parents)}" if parents else variable


def _set(names: Iterable[str]) -> str:
    return "{" + ", ".join(sorted(names)) + "}"
