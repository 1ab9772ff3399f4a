"""What the flows say about the inputs: the posterior states of every variable, and its marginal distribution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from picirc.errors import ArgumentError, ImpossibleEvidenceError
from picirc.inputs import Family
from picirc.qpc.evidence import Evidence, Points, Tilted, as_rows
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
        params: ``(fold or 1, states, P)``, or ``(fold, states, batch, P)`` if they depend on the evidence.
        columns: The variables, ``(fold,)``.
        weights: The mixture weights ``(fold, states, batch)``.
    """

    family: Family
    params: Tensor
    columns: Tensor
    weights: Tensor

    def over_batch(self, moment: Callable[[Tensor], Tensor]) -> Tensor:
        """A moment of every state, ``(fold or 1, states, batch or 1)``."""
        found = moment(self.params)
        return found if found.ndim == 3 else found.unsqueeze(-1)


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
        """``log p(X_i = x_i | e)`` for every variable by itself; NaN gives log 1.

        Args:
            x: One row ``(variables,)``, or ``(batch, variables)``: one row for each data point of the evidence, or any
                number of them for a single one.

        Returns:
            The shape of ``x``, with one row for each data point of the evidence.
        """
        rows = self._rows(x)  # (variables, n)
        given = Points(rows, rows.isnan() if bool(rows.isnan().any()) else None)
        parts = []
        for part in self._components:
            for column in part.columns.tolist():
                part.family.check(rows[column], self._variables[column])
            logs = part.weights.new_empty(*part.weights.shape[:2], rows.shape[1])
            given.write(part.family, part.params, part.columns, logs)
            parts.append((logs + part.weights.log()).logsumexp(1))
        total = _log_add(torch.cat([part.columns for part in self._components]), torch.cat(parts), len(rows))
        seen = self._points.values
        certain = torch.where(rows == seen, 0.0, -torch.inf)
        total = torch.where(seen.isnan(), total, certain).masked_fill(rows.isnan(), 0.0)
        return total.T if len(self._shape) == 2 or torch.as_tensor(x).ndim == 2 else total[:, 0]

    def _rows(self, x: Tensor) -> Tensor:
        """Check values from a user: ``(variables, n)``, with one column for each data point."""
        size, batch = len(self._variables), self._points.batch
        values = as_rows(x, "x", size, single=True).to(self._points.values)
        if batch != 1 and len(values) not in (1, batch):
            raise ArgumentError("x", f"one row, or as many as there are data points ({batch})", f"{len(values)} rows")
        return values.T.expand(-1, max(batch, len(values))).contiguous()

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
        seen = self._points.values
        mean = torch.where(seen.isnan(), means(self._components, seen), seen)
        # About the mean, because the difference of E[X²] and E[X]² would have no digits left for narrow distributions.
        variance = torch.zeros_like(mean)
        for part in self._components:
            mu, within = (part.over_batch(f) for f in (part.family.mean, part.family.variance))
            square = (mu - mean[part.columns].unsqueeze(1)).square_().add_(within)  # (fold, states, batch)
            variance.index_add_(0, part.columns, square.mul_(part.weights).sum(1))
        variance.masked_fill_(~seen.isnan(), 0.0)
        return mean.T.reshape(self._shape), variance.T.reshape(self._shape)


def components(engine: Engine, parameters: Parameters, evidence: Points | Tilted) -> tuple[list[Component], Tensor]:
    """Every variable as a mixture over its states given the evidence, and the log-values."""
    flows, values = input_flows(engine, parameters, evidence)
    found = []
    parameters = parameters.detach()
    for group, flow in zip(engine.layer.groups, flows, strict=True):
        columns = engine.program.index(group.columns, flow.device)
        if group.correlation is None:
            params = engine.layer.select(group, parameters.inputs[group.params])
        else:
            params = evidence.conditionals(engine.layer.block(group, parameters), columns)
        found.append(Component(group.family, params, columns, flow))
    return found, values


def means(parts: Sequence[Component], like: Tensor) -> Tensor:
    """``E[X_i]`` of mixtures, ``(variables, batch)`` like ``like``."""
    result = torch.zeros_like(like)
    for part in parts:
        result.index_add_(0, part.columns, (part.weights * part.over_batch(part.family.mean)).sum(1))
    return result


def _log_add(columns: Tensor, logs: Tensor, variables: int) -> Tensor:
    """Add probabilities, given as logarithms ``(parts, batch)``, for each variable: ``(variables, batch)``."""
    top = logs.new_full((variables, logs.shape[1]), torch.finfo(logs.dtype).min)
    top.scatter_reduce_(0, columns.unsqueeze(1).expand_as(logs), logs, "amax")
    total = torch.zeros_like(top).index_add_(0, columns, (logs - top[columns]).exp())
    return total.log_().add_(top)
