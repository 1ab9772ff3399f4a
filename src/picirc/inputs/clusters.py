# SPDX-License-Identifier: Apache-2.0
"""Clusters of rows by k-means, where the states of a mixture begin."""

from __future__ import annotations

import torch
from torch import Tensor

_ROUNDS = 10


def clusters(x: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """The cluster of each row, ``(rows,)``: the first centres are far apart at random (k-means++), then they move.

    Args:
        x: ``(rows, columns)``, in comparable units and without NaN.
        count: The number of clusters; some are empty if there are fewer different rows.
        generator: The source of randomness.

    Example:
        >>> clusters(torch.tensor([[0.0], [0.1], [5.0], [5.1]]), 2, torch.Generator().manual_seed(0)).unique().tolist()
        [0, 1]
    """
    centres = _spread(x, count, generator)
    for _ in range(_ROUNDS):
        nearest = torch.cdist(x, centres).argmin(1)
        sizes = torch.bincount(nearest, minlength=count).unsqueeze(1)
        sums = torch.zeros_like(centres).index_add_(0, nearest, x)
        centres = torch.where(sizes > 0, sums / sizes.clamp(min=1), centres)
    return torch.cdist(x, centres).argmin(1)


def _spread(x: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Rows drawn one after the other, each in proportion to its squared distance from those before."""
    chosen = [int(torch.randint(len(x), (), generator=generator))]
    distance = (x - x[chosen[0]]).square().sum(1)
    for _ in range(count - 1):
        weights = distance if float(distance.sum()) > 0 else torch.ones_like(distance)
        chosen.append(int(torch.multinomial(weights, 1, generator=generator)))
        distance = torch.minimum(distance, (x - x[chosen[-1]]).square().sum(1))
    return x[chosen].clone()
