"""Mixtures of PICs, each trained on a cluster of the data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans  # type: ignore[import-untyped]

import picirc as pc

Labels = NDArray[np.int64]
CLUSTERING_ROWS = 10_000  # are enough to place a few centres
ROUNDS = 20  # of EM for the weights, which converge much sooner
BATCH = 1024


@dataclass(frozen=True)
class Mixture:
    """``p(x) = Σ_k w_k p_k(x)``.

    Attributes:
        components: The PICs.
        weights: Their probabilities.
        points: The number of points that they are integrated with.
    """

    components: tuple[pc.PIC, ...]
    weights: tuple[float, ...]
    points: int

    def mean_log_prob(self, rows: Any) -> float:
        """The mean log-likelihood of a table."""
        logs = component_logs(self.components, rows, self.points)
        return float(torch.logsumexp(logs + torch.tensor(self.weights).log(), 1).mean())

    def save(self, folder: Path) -> None:
        """Write the components into folders of their own."""
        for number, component in enumerate(self.components):
            pc.save(component, folder / str(number))
        (folder / "mixture.json").write_text(json.dumps({"weights": self.weights, "points": self.points}))

    @staticmethod
    def load(folder: Path) -> Mixture:
        """Read what ``save`` wrote."""
        found = json.loads((folder / "mixture.json").read_text())
        components = [pc.load(folder / str(number)) for number in range(len(found["weights"]))]
        assert all(isinstance(component, pc.PIC) for component in components)
        return Mixture(tuple(components), tuple(found["weights"]), found["points"])  # type: ignore[arg-type]


def component_logs(components: Sequence[pc.PIC], rows: Any, points: int) -> torch.Tensor:
    """Log-likelihoods (row, component) in double precision; one circuit at a time is in memory."""
    columns = []
    for component in components:
        with torch.no_grad():
            qpc = component(pc.midpoint(points))
            parts = [qpc.log_prob(torch.tensor(rows[i : i + BATCH])) for i in range(0, len(rows), BATCH)]
        columns.append(torch.cat(parts).double())
    return torch.stack(columns, 1)


def fitted_weights(logs: torch.Tensor) -> tuple[float, ...]:
    """The weights that maximise the likelihood of rows with these log-likelihoods (row, component), by EM."""
    weights = torch.full((logs.shape[1],), 1 / logs.shape[1], dtype=logs.dtype)
    for _ in range(ROUNDS):
        weights = (logs + weights.log()).softmax(1).mean(0).clamp(min=1e-12)
    return tuple((weights / weights.sum()).tolist())


def clusters(parts: Sequence[Any], count: int, seed: int) -> list[Labels]:
    """The cluster of every row of every part, by k-means on the first of them."""
    if count == 1:
        return [np.zeros(len(part), np.int64) for part in parts]
    chosen = np.random.default_rng(seed).permutation(len(parts[0]))[:CLUSTERING_ROWS]
    means = KMeans(count, n_init=4, random_state=seed).fit(np.asarray(parts[0][chosen], np.float32))
    return [means.predict(np.asarray(part, np.float32)).astype(np.int64) for part in parts]
