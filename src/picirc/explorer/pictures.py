# SPDX-License-Identifier: Apache-2.0
"""What the page about images asks: an image with gaps, and what a circuit makes of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from picirc.errors import ArgumentError
from picirc.explorer.server import Answer, Question, count_of
from picirc.qpc.distribution import QPC
from picirc.qpc.marginals import LatentPosterior
from picirc.structure.trees import LatentTree

_MOST_SAMPLES = 16


class PictureQuestions:
    """The questions that can be asked about a circuit of images.

    Args:
        qpc: The circuit; its variables are the pixels, line by line.
        shape: Height and width; by default that of a square.
        tree: The latent tree, if the circuit has one: says which pixels a latent belongs to.
        examples: Images ``(n, pixels)`` to start from; NaN is missing.
        name: What the page is called.
    """

    def __init__(
        self,
        qpc: QPC,
        shape: tuple[int, int] | None = None,
        tree: LatentTree | None = None,
        examples: Any = None,
        name: str = "images",
    ) -> None:
        self.qpc, self.name = qpc, name
        pixels = len(qpc.variables)
        side = math.isqrt(pixels)
        self.shape = shape or (side, side)
        if math.prod(self.shape) != pixels:
            remedy = "give the height and width of the images as shape"
            raise ArgumentError("shape", f"a height and width with {pixels} pixels", self.shape, remedy)
        self.levels = _levels(qpc)
        self.tree = tree
        self.examples = np.zeros((0, pixels)) if examples is None else np.asarray(examples, np.float64)

    @property
    def questions(self) -> Mapping[str, Question]:
        """The questions by name."""
        return {"complete": self.complete, "example": self.example}

    def describe(self) -> Answer:
        """What the page needs to know once."""
        height, width = self.shape
        edges = [] if self.tree is None else self._edges(self.tree)
        size = {"height": height, "width": width, "levels": self.levels}
        return {"kind": "image", "name": self.name, **size, "examples": len(self.examples), "edges": edges}

    def example(self, request: Answer) -> Answer:
        """One of the images."""
        if not len(self.examples):
            remedy = "start the explorer with --data digits, or pc.explore(model, data=images)"
            raise ArgumentError("example", "images to choose from", "none", remedy)
        number = count_of(request, "number", 0, least=0, most=len(self.examples) - 1)
        return {"pixels": _numbers(torch.from_numpy(self.examples[number]))}

    def complete(self, request: Answer) -> Answer:
        """The mean, the spread and draws of what is missing in an image, and the posterior of the latents."""
        known = self._image(request.get("pixels"))
        seed = count_of(request, "seed", 0, least=0, most=2**31)
        n = count_of(request, "samples", 6, most=_MOST_SAMPLES)
        source = torch.Generator(device=self.qpc.device).manual_seed(seed)
        marginals = self.qpc.marginals(given=known)
        log_prob = float(self.qpc.log_prob(known[None]))
        seen = int((~known.isnan()).sum())
        return {
            "log_prob": log_prob,
            "bits": -log_prob / seen / math.log(2) if seen else None,
            "missing": len(known) - seen,
            "mean": _numbers(marginals.mean),
            "spread": _numbers(marginals.variance.clamp(min=0).sqrt()),
            "samples": [_numbers(image) for image in self.qpc.sample(n, given=known, generator=source)],
            "latents": self._latents(known),
        }

    def _image(self, pixels: Any) -> Tensor:
        size = len(self.qpc.variables)
        if not isinstance(pixels, list) or len(pixels) != size:
            raise ArgumentError("pixels", f"a list of {size} numbers, null where unknown", type(pixels).__name__)
        if not all(p is None or (isinstance(p, int) and 0 <= p < self.levels) for p in pixels):
            raise ArgumentError("pixels", f"whole numbers from 0 to {self.levels - 1}, or null", "others")
        values = [math.nan if p is None else float(p) for p in pixels]
        return torch.tensor(values, dtype=self.qpc.dtype, device=self.qpc.device)

    def _latents(self, known: Tensor) -> list[list[float]] | None:
        """For each pixel where the posterior of its latent lies between 0 and 1, and how certain it is."""
        if self.tree is None:
            return None
        posteriors = self.qpc.latents(known[None])
        named = {latent: posteriors.get(f"z{latent}") for latent, pixels in enumerate(self.tree.variables) if pixels}
        own = {latent: posterior for latent, posterior in named.items() if posterior is not None}
        found = np.zeros((len(known), 2))
        if own:
            for latent, place in zip(own, _places(list(own.values())), strict=True):
                found[list(self.tree.variables[latent])] = place
        rounded: list[list[float]] = np.round(found, 4).tolist()
        return rounded

    def _edges(self, tree: LatentTree) -> list[list[int]]:
        """The edges between latents as pairs of pixels, for latents that have pixels."""
        return [
            [tree.variables[parent][0], tree.variables[latent][0]]
            for latent, parent in enumerate(tree.parents)
            if parent >= 0 and tree.variables[parent] and tree.variables[latent]
        ]


def _places(posteriors: Sequence[LatentPosterior]) -> npt.NDArray[np.float64]:
    """Where each posterior lies on its grid, from 0 to 1, and one minus its entropy as a part of the largest."""
    chances = torch.stack([posterior.probabilities[0] for posterior in posteriors]).double().cpu()  # (latents, states)
    states = chances.shape[1]
    numbers = torch.arange(states, dtype=torch.float64)  # of states without values, or with vectors as values
    lines = [posterior.grid for posterior in posteriors]
    grid = torch.stack([numbers if line is None or line.ndim > 1 else line.double().cpu() for line in lines])
    low, high = grid.amin(1, keepdim=True), grid.amax(1, keepdim=True)
    span = torch.where(high > low, high - low, 1.0)
    middle = (chances * (grid - low) / span).sum(1)
    entropy = -torch.special.xlogy(chances, chances).sum(1) / math.log(max(2, states))
    return torch.stack((middle, 1 - entropy), 1).numpy()


def _levels(qpc: QPC) -> int:
    """The number of values of a pixel."""
    try:
        return len(qpc.marginals().probabilities(qpc.variables[0]))
    except ArgumentError:
        remedy = "the explorer shows tables, images of finitely many levels, Bayesian networks and circuits"
        raise ArgumentError("model", "pixels with finitely many values", repr(qpc.families[0]), remedy) from None


def _numbers(values: Tensor) -> list[float | None]:
    found: npt.NDArray[np.float64] = values.double().cpu().numpy()
    return [None if math.isnan(value) else round(value, 3) for value in found.tolist()]
