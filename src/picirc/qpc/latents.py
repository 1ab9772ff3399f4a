# SPDX-License-Identifier: Apache-2.0
"""Posteriors of the continuous latents: what a data point says about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from picirc.checks import check_integer
from picirc.engine.compiled import CompiledCircuit, Parameters
from picirc.engine.evidence import Points
from picirc.errors import ArgumentError
from picirc.qpc.validation import check_possible


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
        vectors: The points ``(N, dims)`` of a latent that is a vector, in place of ``points``.
        discrete: Whether the points are the values of a discrete latent.
    """

    name: str
    pool: int
    row: int
    axis: int
    points: Tensor | None
    weights: Tensor | None
    vectors: Tensor | None = None
    discrete: bool = False


@dataclass(frozen=True)
class LatentPosterior:
    """What is known about one latent given each data point.

    Attributes:
        name: The latent.
        probabilities: ``(batch, N)``, the posterior probabilities of its states.
        grid: The points of its states ``(N,)``, of a vector ``(N, dims)``; None when they have no values, or when they
            move with other latents.
        mean: ``(batch,)``, of a vector ``(batch, dims)``: the posterior mean; None when the states have no values.
        variance: The same shape: the posterior variance, of a vector that of each component.
        weights: ``(N,)``, the quadrature weights of the grid.
        presence: ``(batch,)``, the posterior probability that the latent has a value at all: 1, but below sum units it
            may be less, and where it is 0 everything else is NaN.
        discrete: Whether the points are the values of a discrete latent.
    """

    name: str
    probabilities: Tensor
    grid: Tensor | None
    mean: Tensor | None
    variance: Tensor | None
    weights: Tensor | None
    presence: Tensor
    discrete: bool = False

    def sample(self, n: int = 1, generator: torch.Generator | None = None) -> Tensor:
        """Draw from the posterior of each data point: ``(n, batch)``, of a vector ``(n, batch, dims)``.

        A state is drawn, and for a continuous latent with a fixed grid a value in the cell around its point, whose
        width is the quadrature weight. Vectors, and points that move with other latents, are drawn as they are. When
        states have no values, their numbers are returned.

        Args:
            n: The number of draws.
            generator: The source of randomness, torch's own by default.
        """
        check_integer("n", n)
        if bool(self.presence.eq(0).any()):
            expected = f"data points for which the latent {self.name!r} has a value"
            raise ArgumentError("latent", expected, "one for which it has none", "look at .presence")
        state = torch.multinomial(self.probabilities, n, replacement=True, generator=generator).T  # (n, batch)
        if self.grid is None:
            return state
        if self.discrete or self.weights is None or self.grid.ndim == 2:
            return self.grid[state]
        edges = _cell_edges(self.grid, self.weights)
        low, high = edges[:-1][state], edges[1:][state]
        return low + (high - low) * torch.rand(state.shape, generator=generator).to(low)

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


def _cell_edges(points: Tensor, weights: Tensor) -> Tensor:
    """The ends ``(N + 1,)`` of cells whose lengths are the weights; each cell contains its point."""
    ends = torch.cat([weights.new_zeros(1), weights.cumsum(0)])
    # The sums of weights interlace with the points of a Gauss rule; the origin makes them fit best.
    origin = (points - (ends[:-1] + ends[1:]) / 2) @ weights / weights.sum()
    edges = origin + ends
    inside = (edges[:-1] <= points) & (points <= edges[1:])
    middles = torch.cat([points[:1], (points[:-1] + points[1:]) / 2, points[-1:]])
    return edges if bool(inside.all()) else middles


def latent_posteriors(
    compiled: CompiledCircuit, parameters: Parameters, grids: Sequence[LatentGrid], points: Points
) -> dict[str, LatentPosterior]:
    """The posterior of every latent given each data point."""
    like = parameters.like
    shapes = compiled.shapes
    values = like.new_empty(points.batch)
    states = {g.name: like.new_zeros(points.batch, shapes[g.pool][g.axis]) for g in grids}
    moments = {g.name: like.new_zeros(2, points.batch) for g in grids}  # sums of z and z²
    for where, value, flows in compiled.flows(points, parameters):
        values[where] = value.to(like.dtype)
        for grid in grids:
            flow = flows.rows[grid.pool][grid.row].unflatten(0, shapes[grid.pool])  # (*states, batch)
            others = [axis for axis in range(flow.ndim - 1) if axis != grid.axis]
            states[grid.name][where] += (flow.sum(others) if others else flow).T
            if grid.points is not None:
                powers = torch.stack([grid.points, grid.points.square()]).unsqueeze(-1)
                moments[grid.name][:, where] += (flow * powers).flatten(1, -2).sum(1)
    check_possible(values, argument="x")
    places: dict[str, list[LatentGrid]] = {}
    for grid in grids:
        places.setdefault(grid.name, []).append(grid)
    return {name: _posterior(own, states[name], moments[name]) for name, own in places.items()}


def _posterior(places: Sequence[LatentGrid], states: Tensor, moments: Tensor) -> LatentPosterior:
    """Put together what the rows of one latent say, from the sums over them ``(batch, N)`` and ``(2, batch)``."""
    presence = states.sum(1)
    probabilities = states / presence.unsqueeze(1)
    points, weights = _fixed(places)
    vectors = places[0].vectors
    mean = variance = None
    if vectors is not None:
        mean = probabilities @ vectors
        variance = (probabilities @ vectors.square() - mean.square()).clamp(min=0.0)
        points, weights = vectors, places[0].weights
        weights = None if weights is None else weights.flatten()
    elif points is not None:
        mean = probabilities @ points
        variance = (probabilities * (points - mean.unsqueeze(1)).square()).sum(1)
    elif places[0].points is not None:
        mean, square = moments / presence
        variance = (square - mean.square()).clamp(min=0.0)
    parts = (probabilities, points, mean, variance, weights, presence)
    return LatentPosterior(places[0].name, *parts, discrete=places[0].discrete)


def _fixed(places: Sequence[LatentGrid]) -> tuple[Tensor | None, Tensor | None]:
    """Points and weights ``(N,)`` of a latent's states, if it has the same ones wherever it occurs."""
    points, weights, axis = places[0].points, places[0].weights, places[0].axis
    if points is None or weights is None or points.numel() != points.shape[axis]:
        return None, None
    points = points.flatten()
    if not all(grid.points is not None and torch.equal(grid.points.flatten(), points) for grid in places):
        return None, None
    return points, weights.flatten()
