# SPDX-License-Identifier: Apache-2.0
"""Calibration: the marginals of a trained model are made those of the table.

Before training, the values of a column are mapped to codes as if these were normal. After it, the marginal
distribution of the codes under the model is known and is a little different. So values are mapped to codes once more:
what the share u of the column is below gets the code that the model is below with probability u, at some knots and
linearly between them. The circuit stays as it is, densities in the units of the table stay exact, and so does every
query; only the way from values to codes changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.special import ndtr

from picirc.inputs import Family, Gaussian, Spiked
from picirc.tables.answers import Conditional
from picirc.tables.column import Column, Numbers
from picirc.tables.inference import knots_of
from picirc.tables.model import TableModel

Knots = tuple[tuple[float, float], ...]

_BISECTIONS = 60
_FARTHEST = 12.0  # standard deviations: nothing is beyond
_APART = 1e-3  # the least distance of a code from that of a spike


@dataclass(frozen=True)
class Marginal:
    """The distribution of a code under a model: a mixture of Gaussians, without the atoms of a column with spikes.

    Attributes:
        weights: Of the Gaussians.
        means: Their means.
        stds: Their standard deviations.
    """

    weights: Numbers
    means: Numbers
    stds: Numbers

    def quantiles(self, levels: Numbers) -> Numbers:
        """The codes that the distribution is below with some probabilities, by bisection."""
        low = np.full(len(levels), (self.means - _FARTHEST * self.stds).min())
        high = np.full(len(levels), (self.means + _FARTHEST * self.stds).max())
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            below = ndtr((middle[:, None] - self.means) / self.stds) @ self.weights < levels
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return high


def marginals(model: TableModel) -> dict[int, Marginal]:
    """The marginals of the columns whose codes are continuous, by their places."""
    nothing = torch.full((model.schema.width,), torch.nan, dtype=torch.float64)
    found = {}
    for place, parts in Conditional(model.qpc, nothing, {}).mixtures.items():
        if all(isinstance(family, Gaussian | Spiked) for _, family, _, _ in parts):
            pieces = [_gaussians(family, params, weights) for _, family, params, weights in parts]
            weights, means, stds = (torch.cat(part).numpy() for part in zip(*pieces, strict=True))
            found[place] = Marginal(weights / weights.sum(), means, stds)
    return found


def calibrated(
    model: TableModel, known: dict[int, Marginal], rows: Numbers, pieces: int, kept: Collection[str]
) -> TableModel:
    """The model with other codes for the values of its columns.

    Args:
        model: The model.
        known: What ``marginals`` returns.
        rows: Encoded rows of the table.
        pieces: The number of pieces of the new transforms; 0 to move only the codes of the ends.
        kept: The names of columns to leave as they are.
    """
    columns = list(model.schema.columns)
    for place, marginal in known.items():
        if place < len(columns) and columns[place].name not in kept:
            columns[place] = _calibrated(columns[place], marginal, rows[:, place], pieces)
    return model.with_schema(replace(model.schema, columns=tuple(columns)))


def recoded(old: Sequence[Column], new: Sequence[Column], rows: Numbers) -> Numbers:
    """Rows encoded by some columns as others encode them."""
    found = rows.copy()
    for place, (before, after) in enumerate(zip(old, new, strict=True)):
        if before != after:
            found[:, place] = after.nearest(np.asarray(before.decode(rows[:, place], exact=True), np.float64))
    return found


def _calibrated(column: Column, marginal: Marginal, codes: Numbers, pieces: int) -> Column:
    atoms = np.array(getattr(column.family, "atoms", ()))
    values = column.decode(codes[~np.isnan(codes) & ~np.isin(codes, atoms)], exact=True)
    if column.step and not column.dated:
        values = column.like_seen(values)  # without the rounding errors of codes, so that equal values are equal

    def coded(at: Numbers, levels: Numbers) -> Numbers:
        found = marginal.quantiles(levels)
        for spike, atom in zip(column.spikes, atoms, strict=True):  # codes keep the order of the values
            found = np.where(at < spike, np.minimum(found, atom - _APART), np.maximum(found, atom + _APART))
        return found

    knots = knots_of(values, column.scale, pieces, coded) if pieces else ()
    rising = len(knots) > 3 and knots[0][1] < knots[-1][1]
    knots = knots if rising else column.knots
    return replace(column, knots=_with_ends(knots, values, column.step, coded)) if knots else column


def _with_ends(knots: Knots, values: Numbers, step: float, coded: Callable[[Numbers, Numbers], Numbers]) -> Knots:
    """Knots whose first and last codes the model is beyond as often as rows of the table have these values.

    Draws beyond an end are moved to it. The tail of a model is often thinner, so that draws would never come near the
    largest value. A peak at an end has its share by another knot.
    """
    shares = [float((values == end).mean()) for end in (values.min(), values.max())]
    low, high = coded(np.array([knots[0][0], knots[-1][0]]), np.array([shares[0], 1 - shares[1]])).tolist()
    first, *inner, last = knots
    if inner and inner[0][0] - first[0] > step and low < inner[0][1] - _APART:
        first = (first[0], low)
    if inner and last[0] - inner[-1][0] > step and high > inner[-1][1] + _APART:
        last = (last[0], high)
    return (first, *inner, last)


def _gaussians(family: Family, params: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
    shares = params[..., 0].exp() if isinstance(family, Spiked) else torch.ones_like(weights)
    return weights * shares, params[..., -2], params[..., -1]
