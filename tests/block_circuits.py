# SPDX-License-Identifier: Apache-2.0
"""Small circuits with correlated Gaussian columns, and their distribution by enumerating all states of all latents."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import torch
from scipy import special, stats
from torch import Tensor

import picirc as pc
from oracles import LOG_TWO_PI

Array = np.ndarray

# Two blocks, their columns in disorder; a categorical column beside one of them, and a Gaussian that stands alone.
TREE = pc.LatentTree(parents=(-1, 0, 0), variables=((6,), (4, 0, 1, 2), (5, 3)))
FAMILIES = (pc.Categorical(3), *[pc.Gaussian()] * 6)
KIND = 0
NORMAL = (1, 2, 3, 4, 5, 6)
BLOCKS = ((1, 2, 4), (3, 5))


def make_pic(seed: int = 0, **options: object) -> pc.PIC:
    """A model in double precision with states that differ and with correlations that are not zero."""
    structure = options.pop("structure", TREE)
    families = options.pop("inputs", FAMILIES)
    source = torch.Generator().manual_seed(seed)
    model = pc.PIC(structure, families, **{"width": 8, "correlated": True, "generator": source} | options).double()  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 2.0
        for raw in model.correlations:
            raw += torch.randn(raw.shape, generator=source, dtype=raw.dtype)
    return model


def make_qpc(seed: int = 0, points: int = 4, **options: object) -> pc.QPC:
    with torch.no_grad():
        return make_pic(seed, **options)(pc.gauss_legendre(points))


def normal_logs(x: Array, cov: Array) -> Array:
    """The logarithms of centred normal densities, many at once: scipy does one covariance at a time, slowly."""
    square = np.einsum("...i,...i->...", x, np.linalg.solve(cov, x[..., None])[..., 0])
    return -0.5 * (square + np.linalg.slogdet(cov)[1] + x.shape[-1] * LOG_TWO_PI)


@dataclass(frozen=True)
class Mixture:
    """One normal distribution, and one table of the categorical column, for every state of all latents together.

    Attributes:
        logs: The logarithms of the probabilities of the states, ``(states,)``.
        mean: ``(states, normal columns)``.
        cov: ``(states, normal columns, normal columns)``.
        table: ``(states, kinds)``.
        places: The state of every latent, ``(states, latents)``.
    """

    logs: Array
    mean: Array
    cov: Array
    table: Array
    places: Array

    def state_logs(self, row: Array) -> Array:
        """``log p(state, what is observed)``."""
        total = self.logs.copy()
        if not np.isnan(row[KIND]):
            total += np.log(self.table[:, int(row[KIND])])
        values = row[list(NORMAL)]
        seen = ~np.isnan(values)
        return total + normal_logs(values[seen] - self.mean[:, seen], self.cov[:, seen][:, :, seen])

    def log_prob(self, x: Tensor) -> Tensor:
        """``log p(observed)`` of every row."""
        return torch.tensor([special.logsumexp(self.state_logs(row)) for row in x.numpy()])

    def given(self, row: Tensor) -> Mixture:
        """The same with what is observed; an observed column has the variance zero."""
        logs = self.state_logs(row.numpy())
        values = row.numpy()[list(NORMAL)]
        seen = ~np.isnan(values)
        mean, cov = self.mean.copy(), self.cov.copy()
        for s in range(len(logs)):
            gain = self.cov[s][:, seen] @ np.linalg.inv(self.cov[s][np.ix_(seen, seen)])
            mean[s] += gain @ (values - self.mean[s])[seen]
            cov[s] -= gain @ self.cov[s][seen]
        mean[:, seen] = values[seen]
        cov[:, seen] = cov[:, :, seen] = 0.0
        table = self.table
        if not row[KIND].isnan():
            table = np.broadcast_to(np.eye(table.shape[1])[int(row[KIND])], table.shape)
        return Mixture(logs - special.logsumexp(logs), mean, cov, table, self.places)

    @property
    def p(self) -> Array:
        """The probabilities of the states."""
        return np.exp(self.logs)

    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and covariance of all columns; the kind is the number that it has."""
        kinds = np.arange(self.table.shape[1])
        kind = self.table @ kinds
        centres = np.insert(self.mean, KIND, kind, axis=1)  # (states, columns)
        within = np.zeros((len(kind), 7, 7))
        within[np.ix_(range(len(kind)), NORMAL, NORMAL)] = self.cov
        within[:, KIND, KIND] = self.table @ kinds**2 - kind**2
        mean = self.p @ centres
        between = np.einsum("s,si,sj->ij", self.p, centres - mean, centres - mean)
        return torch.tensor(mean), torch.tensor(np.einsum("s,sij->ij", self.p, within) + between)

    def project(self, direction: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of a combination of the normal columns in every state."""
        return self.mean @ direction, np.sqrt(np.einsum("i,sij,j->s", direction, self.cov, direction))

    def between(self, column: int, low: float, high: float) -> Array:
        """``P(low ≤ X_column ≤ high | state)``."""
        mean, std = self.project(np.eye(len(NORMAL))[NORMAL.index(column)])
        return stats.norm.cdf(high, mean, std) - stats.norm.cdf(low, mean, std)

    def inner(self, other: Mixture) -> float:
        """``log ∫ p q``: a normal density with both covariances at the difference of the means, for every pair."""
        total = self.logs[:, None] + other.logs + np.log(self.table @ other.table.T)
        normal = normal_logs(self.mean[:, None] - other.mean, self.cov[:, None] + other.cov)
        return float(special.logsumexp(total + normal))


def enumerate_states(qpc: pc.QPC) -> Mixture:
    """All states of a circuit with the structure and the columns above, from its parameters."""
    parameters = qpc.parameters.detach()
    states = len(parameters.inputs[0][0])
    places = np.array(list(itertools.product(range(states), repeat=len(TREE.parents))))  # (all, latents)
    above = {z: column for column, own in enumerate(TREE.variables) for z in own}
    mean, std = np.zeros((len(places), 7)), np.ones((len(places), 7))
    correlation, table = np.eye(7), np.zeros(0)
    for group in qpc.compiled.inputs:
        columns = group.columns.tolist()
        params = parameters.inputs[group.params].expand(len(columns), -1, -1).numpy()
        for column, own in zip(columns, params, strict=True):
            here = own[places[:, above[column]]]  # (all, P)
            if column == KIND:
                table = special.softmax(here, axis=1)
            else:
                mean[:, column], std[:, column] = here.T
        if group.correlation is not None:
            correlation[np.ix_(columns, columns)] = parameters.correlations[group.correlation].numpy()
    cov = std[:, :, None] * correlation * std[:, None, :]
    keep = list(NORMAL)
    return Mixture(_prior(qpc, places), mean[:, keep], cov[np.ix_(range(len(places)), keep, keep)], table, places)


def _prior(qpc: pc.QPC, places: Array) -> Array:
    """``log p(states)``: the root's table, and one for each of the other latents given the root."""
    first, rest = (weights.detach().numpy() for weights in sorted(qpc.parameters.weights, key=len))
    assert (len(first), len(rest)) == (1, 2)
    assert TREE.parents == (-1, 0, 0)
    order = _latents(qpc)
    total = np.log(first[0, 0, 0, places[:, 0]])
    for row, latent in enumerate(order):
        total += np.log(rest[row, 0, places[:, 0], places[:, latent]])
    return total


def _latents(qpc: pc.QPC) -> list[int]:
    """The latents below the root in the order of their sum weights, which is that of their rows in the program."""
    below = [grid for grid in qpc.grids if grid.name != "z0"]
    return [int(grid.name[1:]) for grid in sorted(below, key=lambda grid: grid.row)]


def patterns(row: Tensor) -> Tensor:
    """The row with every set of columns missing, from none to all."""
    sets = torch.tensor(list(itertools.product([False, True], repeat=len(row))))
    return row.expand(len(sets), -1).masked_fill(sets, torch.nan)
