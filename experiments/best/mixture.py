"""Mixtures of PICs, each trained on a cluster of the data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans  # type: ignore[import-untyped]

import picirc as pc
from best.moves import moved_logs, orders, term_logs

Labels = NDArray[np.int64]
CLUSTERING_ROWS = 10_000  # are enough to place a few centres
ROUNDS = 20  # of EM for the weights, which converge much sooner


@dataclass(frozen=True)
class Mixture:
    """``p(x) = Σ_km w_k v_m p_k(move_m x)``, or ``Σ_k w_k p_k(x)`` where nothing is moved.

    Attributes:
        components: The PICs.
        weights: Their probabilities.
        points: The number of points that they are integrated with.
        shape: Of an image, if images are moved.
        reach: By how many pixels they are moved at most.
        move_weights: The probabilities of the moves.
    """

    components: tuple[pc.PIC, ...]
    weights: tuple[float, ...]
    points: int
    shape: tuple[int, ...] = ()
    reach: int = 0
    move_weights: tuple[float, ...] = (1.0,)

    def mean_log_prob(self, rows: Any) -> float:
        """The mean log-likelihood of a table; with moves a lower bound of it, which lacks what hardly counts."""
        weights = torch.outer(torch.tensor(self.weights), torch.tensor(self.move_weights))
        return float(torch.logsumexp(self.logs(rows) + weights.log(), (1, 2)).mean())

    def logs(self, rows: Any) -> torch.Tensor:
        """The log-likelihoods (row, component, move)."""
        if self.reach:
            return moved_logs(self.components, rows, self.points, orders(self.shape, self.reach))
        return component_logs(self.components, rows, self.points).unsqueeze(2)

    def weighed(self, rows: Any) -> Mixture:
        """The same with the weights that maximise the likelihood of some rows."""
        weights, move_weights = fitted_weights(self.logs(rows))
        return replace(self, weights=weights, move_weights=move_weights)

    def save(self, folder: Path) -> None:
        """Write the components into folders of their own."""
        for number, component in enumerate(self.components):
            pc.save(component, folder / str(number))
        own = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "components"}
        (folder / "mixture.json").write_text(json.dumps(own))

    @staticmethod
    def load(folder: Path) -> Mixture:
        """Read what ``save`` wrote."""
        found = json.loads((folder / "mixture.json").read_text())
        own = {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
        components = [pc.load(folder / str(number)) for number in range(len(found["weights"]))]
        assert all(isinstance(component, pc.PIC) for component in components)
        return Mixture(tuple(components), **own)  # type: ignore[arg-type]


def component_logs(components: Sequence[pc.PIC], rows: Any, points: int) -> torch.Tensor:
    """Log-likelihoods (row, component)."""
    everything = torch.ones(len(rows), len(components), 1, dtype=torch.bool)
    return term_logs(components, rows, points, [np.arange(rows.shape[1])], everything)[:, :, 0]


def fitted_weights(logs: torch.Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The weights of components and of moves that maximise the likelihood of rows, by EM.

    Args:
        logs: The log-likelihoods (row, component, move) of the rows.
    """
    weights = [torch.full((count,), 1 / count, dtype=logs.dtype) for count in logs.shape[1:]]
    for _ in range(ROUNDS):
        scores = logs + torch.outer(*weights).log()
        shares = scores.flatten(1).softmax(1).mean(0).view(scores.shape[1:])
        weights = [shares.sum(axis).clamp(min=1e-12) for axis in (1, 0)]
    components, moves = (tuple((found / found.sum()).tolist()) for found in weights)
    return components, moves


def clusters(parts: Sequence[Any], count: int, seed: int) -> list[Labels]:
    """The cluster of every row of every part, by k-means on the first of them."""
    if count == 1:
        return [np.zeros(len(part), np.int64) for part in parts]
    chosen = np.random.default_rng(seed).permutation(len(parts[0]))[:CLUSTERING_ROWS]
    means = KMeans(count, n_init=4, random_state=seed).fit(np.asarray(parts[0][chosen], np.float32))
    return [means.predict(np.asarray(part, np.float32)).astype(np.int64) for part in parts]
