"""What the flows say about the inputs: the posterior states of every variable, and its marginal distribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from picirc.errors import ArgumentError, ImpossibleEvidenceError
from picirc.inputs import Family
from picirc.qpc.evidence import Evidence, Points
from picirc.qpc.likelihood import Engine
from picirc.qpc.program import Parameters


def check_possible(values: Tensor, argument: str = "given", first: int = 0) -> None:
    """Refuse evidence of probability zero.

    Args:
        values: The log-values of the data points, ``(batch,)``.
        argument: What the user calls them.
        first: The number of the first of them.
    """
    wrong = (first + torch.isneginf(values).nonzero().flatten()).tolist()
    if wrong:
        rows = ", ".join(map(str, wrong[:5])) + (", …" if len(wrong) > 5 else "")
        raise ImpossibleEvidenceError(
            f"{argument}: expected evidence that the circuit can produce, got probability zero in {len(wrong)} "
            f"row(s): {rows}; check the values, or leave those that are uncertain out as NaN."
        )


def input_flows(engine: Engine, parameters: Parameters, evidence: Evidence) -> tuple[list[Tensor], Tensor]:
    """For each input group the flows of its states ``(fold, states, batch)``, and the log-values."""
    like = parameters.like
    values = like.new_empty(evidence.batch)
    found: list[Tensor] = []
    for where, value, flows in engine.flows(evidence, parameters):
        values[where] = value.to(like.dtype)
        for number, group in enumerate(engine.layer.groups):
            flow = engine.layer.flows(group, flows.rows)
            if number == len(found):
                found.append(like.new_empty(*flow.shape[:2], evidence.batch))
            found[number][:, :, where] = flow
    return found, values


@dataclass(frozen=True)
class Component:
    """Variables of one family as mixtures over their states.

    Attributes:
        family: The family.
        params: ``(fold or 1, states, P)``.
        columns: The variables, ``(fold,)``.
        weights: The mixture weights ``(fold, states, batch)``.
    """

    family: Family
    params: Tensor
    columns: Tensor
    weights: Tensor


class Marginals:
    """``p(X_i | e)`` for every variable and every data point, each a mixture over the states of its inputs.

    Args:
        components: The mixtures.
        points: The evidence; the marginal of an observed variable is a point mass.
        variables: The names of the variables.
        shape: The shape of results: ``(batch, variables)``, or ``(variables,)`` for a single data point.
    """

    def __init__(
        self, components: Sequence[Component], points: Points, variables: Sequence[str], shape: torch.Size
    ) -> None:
        self._components = tuple(components)
        self._points = points
        self._variables = tuple(variables)
        self._shape = shape

    def log_prob(self, x: Tensor) -> Tensor:
        """``log p(X_i = x_i | e)`` for every variable by itself, in the shape of ``x``; NaN gives log 1."""
        values = torch.as_tensor(x, dtype=self._points.values.dtype, device=self._points.values.device)
        rows = values.expand(self._shape).reshape(-1, len(self._variables)).T.contiguous()
        given = Points(rows, rows.isnan() if bool(rows.isnan().any()) else None)
        total = torch.full_like(rows, -torch.inf)
        for part in self._components:
            for family, name in ((part.family, self._variables[c]) for c in part.columns.tolist()):
                family.check(rows[self._variables.index(name)], name)
            logs = part.weights.new_empty(part.weights.shape)
            given.write(part.family, part.params, part.columns, logs)
            mixed = (logs + part.weights.log()).logsumexp(1)
            total[part.columns] = torch.logaddexp(total[part.columns], mixed)
        total = total.masked_fill(rows.isnan(), 0.0)
        if self._points.missing is None or not bool(self._points.missing.all()):
            known = ~self._points.values.isnan()
            certain = torch.where(rows == self._points.values, 0.0, -torch.inf).masked_fill(rows.isnan(), 0.0)
            total = torch.where(known, certain, total)
        return total.T.reshape(self._shape)

    def probabilities(self, variable: str) -> Tensor:
        """The probabilities of all values of a finite variable, ``(batch, values)`` or ``(values,)``."""
        column = self._column(variable)
        total: Tensor | None = None
        for part in self._components:
            table = part.family.table(part.params)
            for slot in (part.columns == column).nonzero().flatten().tolist():
                if table is None:
                    remedy = "use .log_prob, .mean or .variance"
                    raise ArgumentError("variable", "a variable with finitely many values", variable, remedy)
                found = part.weights[slot].T @ table[slot if len(table) > 1 else 0].exp()  # (batch, values)
                total = found if total is None else total + found
        assert total is not None, "every variable has an input"
        seen = self._points.values[column]
        known = ~seen.isnan()
        total[known] = torch.nn.functional.one_hot(seen[known].long(), total.shape[1]).to(total.dtype)
        return total if len(self._shape) == 2 else total[0]

    def _column(self, variable: str) -> int:
        if variable not in self._variables:
            raise ArgumentError("variable", f"one of {', '.join(self._variables)}", variable)
        return self._variables.index(variable)

    @property
    def mean(self) -> Tensor:
        """``E[X_i | e]``."""
        return self._moments()[0]

    @property
    def variance(self) -> Tensor:
        """``Var[X_i | e]``."""
        return self._moments()[1]

    def _moments(self) -> tuple[Tensor, Tensor]:
        first, second = raw_moments(self._components, self._points.values)
        observed = ~self._points.values.isnan()
        variance = (second - first.square()).clamp_(min=0.0).masked_fill_(observed, 0.0)
        mean = torch.where(observed, self._points.values, first)
        return mean.T.reshape(self._shape), variance.T.reshape(self._shape)


def components(engine: Engine, parameters: Parameters, evidence: Evidence) -> tuple[list[Component], Tensor]:
    """Every variable as a mixture over its states given the evidence, and the log-values."""
    flows, values = input_flows(engine, parameters, evidence)
    found = []
    for group, flow in zip(engine.layer.groups, flows, strict=True):
        params = engine.layer.select(group, parameters.inputs[group.params].detach())
        found.append(Component(group.family, params, engine.program.index(group.columns, flow.device), flow))
    return found, values


def raw_moments(parts: Sequence[Component], like: Tensor) -> tuple[Tensor, Tensor]:
    """``E[X_i]`` and ``E[X_i²]`` of mixtures, ``(variables, batch)`` like ``like``."""
    first, second = torch.zeros_like(like), torch.zeros_like(like)
    for part in parts:
        mean, variance = (
            part.family.mean(part.params),
            part.family.variance(part.params),
        )  # (fold or 1, states)
        first.index_add_(0, part.columns, (part.weights * mean.unsqueeze(-1)).sum(1))
        square = (variance + mean.square()).unsqueeze(-1)
        second.index_add_(0, part.columns, (part.weights * square).sum(1))
    return first, second
