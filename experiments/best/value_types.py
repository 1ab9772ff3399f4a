"""Types of images by how often each value occurs in them, wherever it does.

Scanned and rescaled images differ in the values that they use: in one the strokes end at 252, in another at 254, and a
third has only a few shades. A latent tree hands such a thing on from pixel to pixel and forgets it on the way; a
mixture with components for every type does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from best.mixture import Labels

TRIES = 4
ROUNDS = 60
BRIGHT = 32  # one in so many values is among the brightest
BATCH = 1024


def types(parts: Sequence[Any], count: int, categories: int, seed: int) -> list[Labels]:
    """The type of every row of every part, by a mixture that the first part is fitted with by EM.

    A type has two distributions of values, one for the brightest and one for the shades below them, so that thick and
    thin strokes are no types of their own.

    Args:
        parts: Tables of whole numbers.
        count: The number of types.
        categories: The number of values; 0, the background, does not count.
        seed: Of the random starts, of which the best is taken.
    """
    rng = np.random.default_rng(seed)
    tables = [value_counts(part, categories)[:, 1:] for part in parts]
    starts = (torch.tensor(rng.dirichlet([0.3] * count, len(tables[0])), dtype=torch.float32) for _ in range(TRIES))
    _, logs = max((_fitted(tables[0], start) for start in starts), key=lambda found: found[0])
    return [_scores(table, logs).argmax(1).numpy() for table in tables]


def value_counts(rows: Any, categories: int) -> torch.Tensor:
    """How often each value occurs in a row, (row, value)."""
    counts = []
    for start in range(0, len(rows), BATCH):
        batch = torch.tensor(rows[start : start + BATCH], dtype=torch.int64)
        counts.append(torch.zeros(len(batch), categories).scatter_add_(1, batch, torch.ones(batch.shape)))
    return torch.cat(counts)


Logs = tuple[torch.Tensor, torch.Tensor]


def _fitted(counts: torch.Tensor, shares: torch.Tensor) -> tuple[float, Logs]:
    """The log-likelihood of a mixture after EM, and the logarithms of its weights and of its probabilities."""
    values = counts.shape[1]
    sizes = [values - values // BRIGHT, values // BRIGHT]
    for _ in range(ROUNDS):
        groups = (shares.T @ counts + 0.5).split(sizes, 1)  # half an occurrence of everything in every type
        probabilities = torch.cat([group / group.sum(1, keepdim=True) for group in groups], 1)
        logs = (shares.mean(0) + 1e-9).log(), probabilities.log()
        scores = _scores(counts, logs)
        shares = scores.softmax(1)
    return float(scores.logsumexp(1).mean()), logs


def _scores(counts: torch.Tensor, logs: Logs) -> torch.Tensor:
    """``log w_k + Σ_v n_v log p_kv``, (row, type)."""
    weights, values = logs
    return torch.addmm(weights, counts, values.T)
