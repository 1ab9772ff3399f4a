"""Images that are moved by a few pixels: where an image stands is one more thing that a mixture sums over.

A PIC of moved images is a PIC on a tree whose variables have changed places, so ``p(x) = Σ_km w_k v_m p_k(move_m x)``
is a mixture of PICs like any other, with parameters that some components share.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import picirc as pc

Orders = Sequence[NDArray[np.int64]]
COARSE = 32  # points that are enough to see which terms of a sum matter
COMPONENTS, TERMS = 4, 8  # that matter for a row, at most
BATCH = 256  # every component keeps the buffers of a batch, and there may be many of them


def orders(shape: Sequence[int], reach: int) -> Orders:
    """The pixels of an image that is moved by up to ``reach`` in every direction; first the one that is not.

    What leaves the image comes in again on the other side, so that nothing is lost.
    """
    pixels = np.arange(np.prod(shape)).reshape(tuple(shape))
    steps = sorted(product(range(-reach, reach + 1), repeat=2), key=lambda move: (abs(move[0]) + abs(move[1]), move))
    return [np.roll(pixels, move, (0, 1)).ravel() for move in steps]


def moved_logs(components: Sequence[pc.PIC], rows: Any, points: int, moves: Orders) -> torch.Tensor:
    """Log-likelihoods (row, component, move) in double precision, −∞ for those that do not matter.

    With few points all components are tried, then all moves for the best of them; the best terms of these are computed
    with all points. A sum that lacks the others is a lower bound.
    """
    coarse = min(COARSE, points)
    wanted = torch.zeros(len(rows), len(components), len(moves), dtype=torch.bool)
    wanted[:, :, 0] = True
    first = term_logs(components, rows, coarse, moves, wanted)[:, :, 0]
    wanted = _largest(first, COMPONENTS).unsqueeze(2).expand(wanted.shape)
    second = term_logs(components, rows, coarse, moves, wanted)
    return term_logs(components, rows, points, moves, _largest(second.flatten(1), TERMS).view(wanted.shape))


def aligned(component: pc.PIC, rows: Any, moves: Orders) -> Any:
    """The rows, each moved to where the component finds it most likely."""
    wanted = torch.ones(len(rows), 1, len(moves), dtype=torch.bool)
    best = term_logs([component], rows, COARSE, moves, wanted)[:, 0].argmax(1).numpy()
    return np.take_along_axis(rows, np.stack(moves)[best], 1)


def _largest(logs: torch.Tensor, count: int) -> torch.Tensor:
    """Where the largest numbers of every row are."""
    places = logs.topk(min(count, logs.shape[1]), 1).indices
    return torch.zeros_like(logs, dtype=torch.bool).scatter_(1, places, True)


@torch.no_grad()
def term_logs(
    components: Sequence[pc.PIC], rows: Any, points: int, moves: Orders, wanted: torch.Tensor
) -> torch.Tensor:
    """Log-likelihoods (row, component, move) in double precision where they are wanted, −∞ elsewhere."""
    found = torch.full(wanted.shape, -torch.inf, dtype=torch.float64)
    for number, component in enumerate(components):
        qpc = component(pc.midpoint(points))
        for move, order in enumerate(moves):
            places = wanted[:, number, move].nonzero().flatten()
            for part in places.split(BATCH) if len(places) else ():
                moved = torch.tensor(rows[part.numpy()][:, order])
                found[part, number, move] = qpc.log_prob(moved).double()
    return found
