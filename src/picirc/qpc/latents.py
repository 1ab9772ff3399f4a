"""Posteriors of the continuous latents: what a data point says about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from picirc.errors import ArgumentError
from picirc.qpc.evidence import Points
from picirc.qpc.likelihood import Engine
from picirc.qpc.program import Parameters
from picirc.qpc.queries import check_possible


@dataclass(frozen=True)
class LatentGrid:
    """The grid of a continuous latent, and the row and axis of the program where its states are.

    Attributes:
        name: The latent.
        pool: The pool of the row.
        row: The row.
        axis: The axis of the row that is the latent's.
        points: The points, in a shape that broadcasts over the row's axes; None when the states have no values.
        weights: The quadrature weights, likewise.
    """

    name: str
    pool: int
    row: int
    axis: int
    points: Tensor | None
    weights: Tensor | None


@dataclass(frozen=True)
class LatentPosterior:
    """What is known about one latent given each data point.

    Attributes:
        name: The latent.
        probabilities: ``(batch, N)``, the posterior probabilities of its states.
        grid: The points of its states ``(N,)``; None when they have no values, or when they move with other latents.
        mean: ``(batch,)``, the posterior mean; None when the states have no values.
        variance: ``(batch,)``, likewise.
        weights: ``(N,)``, the quadrature weights of the grid.
    """

    name: str
    probabilities: Tensor
    grid: Tensor | None
    mean: Tensor | None
    variance: Tensor | None
    weights: Tensor | None

    @property
    def density(self) -> Tensor:
        """``p(z | x)`` at the points of the grid, ``(batch, N)``: probabilities divided by quadrature weights."""
        if self.weights is None:
            raise ArgumentError(
                "latent", f"a latent with a fixed grid, for a density of {self.name!r}",
                "states without values, or points that move with other latents", "use .probabilities",
            )  # fmt: skip
        return self.probabilities / self.weights

    @property
    def entropy(self) -> Tensor:
        """``(batch,)``: the differential entropy ``−∫ p log p`` on the grid; of the states when they have no values."""
        density = self.probabilities if self.weights is None else self.density
        terms: Tensor = torch.special.xlogy(self.probabilities, density)
        return -terms.sum(1)


def latent_posteriors(
    engine: Engine, parameters: Parameters, grids: Sequence[LatentGrid], points: Points
) -> tuple[dict[str, LatentPosterior], Tensor]:
    """The posterior of every latent, and the log-values of the data points."""
    like = parameters.like
    shapes = engine.program.shapes
    values = like.new_empty(points.batch)
    states = {g.name: like.new_zeros(points.batch, shapes[g.pool][g.axis]) for g in grids}
    first, second = ({g.name: like.new_zeros(points.batch) for g in grids} for _ in range(2))
    for where, value, flows in engine.flows(points, parameters):
        values[where] = value.to(like.dtype)
        for grid in grids:
            flow = flows.rows[grid.pool][grid.row].unflatten(0, shapes[grid.pool])  # (*states, batch)
            others = [axis for axis in range(flow.ndim - 1) if axis != grid.axis]
            states[grid.name][where] += (flow.sum(others) if others else flow).T
            if grid.points is not None:
                at = grid.points.unsqueeze(-1)
                axes = list(range(flow.ndim - 1))
                first[grid.name][where] += (flow * at).sum(axes)
                second[grid.name][where] += (flow * at.square()).sum(axes)
    check_possible(values)
    found = {}
    for grid in grids:
        name = grid.name
        # A latent that occurs in some parts of a mixture only is present with less than certainty.
        total = states[name].sum(1)
        mean, square = first[name] / total, second[name] / total
        fixed = grid.points is not None and grid.points.numel() == states[name].shape[1]
        found[name] = LatentPosterior(
            name,
            states[name] / total.unsqueeze(1),
            grid.points.flatten() if fixed and grid.points is not None else None,
            None if grid.points is None else mean,
            None if grid.points is None else (square - mean.square()).clamp(min=0.0),
            grid.weights.flatten() if fixed and grid.weights is not None else None,
        )
    return found, values
