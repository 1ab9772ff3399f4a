"""Models that a command reads, and what ``picirc fit`` noted about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from picirc.cli.options import QueryOptions
from picirc.errors import ArgumentError
from picirc.io import describe, load
from picirc.pic import HCLT, PIC
from picirc.qpc.distribution import QPC
from picirc.quadrature import (
    RandomRule,
    Rule,
    clenshaw_curtis,
    gauss_legendre,
    midpoint,
    shifted,
    simpson,
    trapezoidal,
)

MAKER = "picirc fit"  # marks summaries that this command line wrote and can read
_RULES: dict[str, Callable[[int], Rule | RandomRule]] = {
    "shifted": shifted,
    "midpoint": midpoint,
    "trapezoidal": trapezoidal,
    "simpson": simpson,
    "gauss-legendre": gauss_legendre,
    "clenshaw-curtis": clenshaw_curtis,
}


@dataclass(frozen=True)
class Saved:
    """A model and its notes.

    Attributes:
        model: The model.
        description: What ``pc.io.describe`` says.
        notes: The summary if ``picirc fit`` wrote it, else empty.
    """

    model: PIC | HCLT
    description: dict[str, Any]
    notes: dict[str, Any]

    @property
    def of_table(self) -> bool:
        """Whether it is the model of a table, with a schema."""
        return "table" in self.description

    @property
    def query(self) -> QueryOptions:
        """How a PIC was validated, or else how one with the usual training would have been."""
        if self.of_table:
            return QueryOptions(rule="shifted", points=2 * self.description["table"]["points"])
        return QueryOptions(**(self.notes.get("query") or {"rule": "shifted", "points": 64}))


def find_model(path: Path) -> Path:
    """The model at a path, or in the folder ``model`` there, where ``picirc fit --data`` puts it."""
    inside = path / "model"
    return inside if not (path / "model.safetensors").exists() and inside.is_dir() else path


def open_model(path: Path) -> Saved:
    """Load a model for a command."""
    path = find_model(path)
    description = describe(path)
    summary = description.get("summary") or {}
    return Saved(load(path), description, summary if summary.get("maker") == MAKER else {})


def make_rule(name: str, points: int) -> Rule | RandomRule:
    """A rule by its name."""
    return _RULES[name](points)


def make_circuit(model: PIC | HCLT, options: QueryOptions, usual: QueryOptions) -> QPC:
    """The circuit of a model, a PIC integrated as asked or as usual."""
    if isinstance(model, HCLT):
        if options != QueryOptions():
            raise ArgumentError("--points, --rule", "neither for an hclt, whose states are not points", "one of them")
        table: QPC = model()
        return table
    name, points = options.rule or usual.rule, options.points or usual.points
    assert name is not None
    assert points is not None
    circuit: QPC = model(make_rule(name, points))
    return circuit
