# SPDX-License-Identifier: Apache-2.0
"""What the page about a circuit asks: the graph, and the quadrature with N points beside its error."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from picirc.circuit import Circuit, from_bayesnet
from picirc.errors import ArgumentError, ImpossibleEvidenceError, IntractableError
from picirc.exact import ExactGaussian
from picirc.explorer.server import Answer, Question, count_of
from picirc.quadrature import Rule, clenshaw_curtis, gauss_hermite, gauss_legendre, midpoint, trapezoidal
from picirc.structure.bayesnet import BayesNet
from picirc.symbolic.units import Input, Integral, Product, Sum, Unit

RULES: Mapping[str, Callable[[int], Rule]] = {
    "trapezoidal": trapezoidal,
    "midpoint": midpoint,
    "Gauss–Legendre": gauss_legendre,
    "Gauss–Hermite": gauss_hermite,
    "Clenshaw–Curtis": clenshaw_curtis,
}
LEAST, MOST = 4, 128  # points
CURVE = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
_LARGEST = 2**24  # elements of one tensor
_MOST_UNITS = 400  # of a circuit that is drawn


class CircuitQuestions:
    """The questions that can be asked about a Bayesian network or a circuit.

    Args:
        model: The network or the circuit.
        name: What the page is called.
    """

    def __init__(self, model: BayesNet | Circuit, name: str = "circuit") -> None:
        self.net = model if isinstance(model, BayesNet) else None
        self.circuit = from_bayesnet(model) if isinstance(model, BayesNet) else model
        self.name = name
        if len(self.circuit.units) > _MOST_UNITS:
            raise ArgumentError("model", f"a circuit of at most {_MOST_UNITS} units", f"{len(self.circuit.units)}")
        self.exact: ExactGaussian | None = None
        with suppress(IntractableError):
            self.exact = self.circuit.exact()

    @property
    def questions(self) -> Mapping[str, Question]:
        """The questions by name."""
        return {"integrate": self.integrate, "curve": self.curve}

    def describe(self) -> Answer:
        """What the page needs to know once."""
        properties = self.circuit.properties
        names = ("smooth", "decomposable", "structured_decomposable", "tree_shaped")
        start = dict.fromkeys(self.circuit.variables, 0.0)
        if self.exact is not None:
            means = self.exact.mean.tolist()
            start = {name: round(mean, 3) for name, mean in zip(self.circuit.variables, means, strict=True)}
        return {
            "kind": "circuit",
            "name": self.name,
            "variables": list(self.circuit.variables),
            "start": start,
            "rules": list(RULES),
            "least": LEAST,
            "most": MOST,
            "exact": self.exact is not None,
            "net": None if self.net is None else _network(self.net),
            "units": _units(self.circuit),
            "properties": {name: properties.violations.get(name, "") for name in names},
        }

    def integrate(self, request: Answer) -> Answer:
        """The log-likelihood by quadrature with N points, its error and the cost."""
        x = self._point(request.get("x"))
        rule = self._rule(request, count_of(request, "n", 16, least=LEAST, most=MOST))
        qpc = self.circuit.integrate(rule, limit=_LARGEST)
        cost = self.circuit.cost(rule)
        truth = self._truth(x)
        value = float(qpc.log_prob(x))
        return {
            "log_prob": value if math.isfinite(value) else None,
            "estimate": _finite(float(qpc.error(x))),
            "exact": truth,
            "error": None if truth is None or not math.isfinite(value) else abs(value - truth),
            "cost": {"weights": cost.weights, "values": cost.values, "largest": cost.largest, "widest": cost.widest},
            "points": len(rule),
            "latents": _posteriors(qpc, x),
        }

    def curve(self, request: Answer) -> Answer:
        """The error against the number of points."""
        x = self._point(request.get("x"))
        truth = self._truth(x)
        found: Answer = {"points": [], "estimate": [], "error": []}
        for n in CURVE:
            qpc = self.circuit.integrate(self._rule(request, n), limit=_LARGEST)
            value = float(qpc.log_prob(x))
            found["points"].append(n)
            found["estimate"].append(_finite(float(qpc.error(x))))
            found["error"].append(None if truth is None else _finite(abs(value - truth)))
        return found

    def _rule(self, request: Answer, n: int) -> Rule:
        name = request.get("rule", "trapezoidal")
        if not isinstance(name, str) or name not in RULES:
            raise ArgumentError("rule", f"one of {', '.join(RULES)}", repr(name)[:80])
        return RULES[name](n)

    def _point(self, x: Any) -> Tensor:
        if not isinstance(x, dict) or set(x) - set(self.circuit.variables):
            raise ArgumentError("x", f"values of {', '.join(self.circuit.variables)}", repr(x)[:80])
        values = []
        for name in self.circuit.variables:
            value = x.get(name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise ArgumentError(name, "a number, or null where it is unknown", repr(value)[:80])
            values.append(math.nan if value is None else float(value))
        return torch.tensor([values], dtype=torch.float64)

    def _truth(self, x: Tensor) -> float | None:
        return None if self.exact is None else float(self.exact.log_prob(x))


def _posteriors(qpc: Any, x: Tensor) -> list[Answer]:
    """The posterior of every latent whose points are fixed."""
    try:
        found = qpc.latents(x).values()
    except ImpossibleEvidenceError:
        return []
    return [
        {"name": z.name, "grid": z.grid.tolist(), "density": z.density[0].tolist(), "mean": float(z.mean[0])}
        for z in found
        if z.grid is not None and z.weights is not None and z.mean is not None
    ]


def _network(net: BayesNet) -> Answer:
    functions = dict(net.latents) | dict(net.variables)
    nodes = [{"name": name, "observed": name in net.variables} for name in functions]
    edges = [[parent, name] for name, function in functions.items() for parent in function.parents]
    return {"nodes": nodes, "edges": edges}


def _units(circuit: Circuit) -> Answer:
    """The units as a graph, the root first; edges point from a unit to its inputs."""
    units = tuple(reversed(circuit.units))
    number = {id(unit): place for place, unit in enumerate(units)}
    kinds: dict[type[Unit], str] = {Input: "input", Integral: "integral", Sum: "sum", Product: "product"}
    nodes = []
    for unit in units:
        free, scope = sorted(circuit.free(unit)), sorted(circuit.scope(unit))
        nodes.append({"name": circuit.names[unit], "kind": kinds[type(unit)], "free": free, "scope": scope})
    edges = [[number[id(unit)], number[id(child)]] for unit in units for child in unit.inputs]
    return {"nodes": nodes, "edges": edges}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
