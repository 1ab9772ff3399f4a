# SPDX-License-Identifier: Apache-2.0
"""Clusters of rows by k-means, from which the training of mixtures starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from picirc.checks import check_integer
from picirc.inputs import Family, as_columns
from picirc.inputs.discrete import FiniteFamily
from picirc.inputs.family import observed_mean, observed_std
from picirc.qpc.validation import as_rows, as_tensor

_ROUNDS = 10
_MOST_INDICATORS = 64  # categories of a variable with more categories are compared as numbers


@dataclass(frozen=True, eq=False)
class Clusters:
    """Centres of clusters; a row belongs to the nearest one. Categories are compared by indicators.

    Attributes:
        families: The family of each variable.
        middle: The value in place of a missing one, ``(variables,)``.
        scale: The unit of each variable, ``(variables,)``.
        centres: The centres, ``(clusters, features)``.
    """

    families: Sequence[Family]
    middle: Tensor
    scale: Tensor
    centres: Tensor

    @staticmethod
    def find(
        x: Tensor,
        inputs: Family | Sequence[Family],
        count: int,
        generator: torch.Generator | None = None,
        starts: int = 8,
    ) -> Clusters:
        """Find clusters of rows by k-means, with initial centres by k-means++.

        Args:
            x: The rows ``(rows, variables)``; NaN is missing.
            inputs: The family of all variables, or one for each.
            count: The number of clusters. Some are empty if there are fewer distinct rows.
            generator: The source of the initial centres; by default that of torch.
            starts: How often k-means starts. The closest clusters are kept; mixtures of trees that begin with poor ones
                stay behind.

        Example:
            >>> import picirc as pc
            >>> rows = torch.tensor([[0.0], [0.1], [5.0], [5.1]])
            >>> found = pc.Clusters.find(rows, pc.Gaussian(), 2, torch.Generator().manual_seed(0))
            >>> found.of(rows).unique().tolist()
            [0, 1]
        """
        check_integer("count", count)
        check_integer("starts", starts)
        x = as_tensor(x, "x")
        x = x if x.is_floating_point() else x.float()
        families = as_columns(inputs, x.shape[-1] if x.ndim else 0)
        x = as_rows(x, "x", len(families))
        middle, scale = observed_mean(x.T, 0.0).squeeze(1), observed_std(x.T).squeeze(1)
        if len(set(families)) == 1 and isinstance(families[0], FiniteFamily):
            scale = torch.ones_like(scale)  # all variables have the same units, as pixels do
        found = Clusters(families, middle, scale, x[:0])
        rows = found._features(x)
        trials = [_means(rows, _far_apart(rows, count, generator)) for _ in range(starts)]
        centres = min(trials, key=lambda own: float(torch.cdist(rows, own).amin(1).square().sum()))
        return Clusters(families, middle, scale, centres)

    def of(self, x: Tensor) -> Tensor:
        """The cluster of each row of ``(rows, variables)``."""
        x = as_rows(x, "x", len(self.families))
        return torch.cdist(self._features(x.to(self.centres)), self.centres).argmin(1)

    def _features(self, x: Tensor) -> Tensor:
        """Numbers in comparable units and indicators of categories, with missing values in the middle."""
        missing = x.isnan()
        plain = ((x - self.middle) / self.scale).masked_fill(missing, 0.0)
        parts = []
        for number, family in enumerate(self.families):
            if isinstance(family, FiniteFamily) and 2 < family.values <= _MOST_INDICATORS:
                codes = one_hot(x[:, number].nan_to_num(0.0).long(), family.values).to(x.dtype)
                parts.append(codes.masked_fill(missing[:, number, None], 1 / family.values))
            else:
                parts.append(plain[:, number, None])
        return torch.cat(parts, 1)


def _means(x: Tensor, centres: Tensor) -> Tensor:
    """The centres after some rounds of k-means."""
    for _ in range(_ROUNDS):
        nearest = torch.cdist(x, centres).argmin(1)
        sizes = torch.bincount(nearest, minlength=len(centres)).unsqueeze(1)
        sums = torch.zeros_like(centres).index_add_(0, nearest, x)
        centres = torch.where(sizes > 0, sums / sizes.clamp(min=1), centres)
    return centres


def _far_apart(x: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
    """Rows drawn one by one, in proportion to their squared distances from the nearest one drawn before."""
    chosen = [int(torch.randint(len(x), (), generator=generator))]
    distance = (x - x[chosen[0]]).square().sum(1)
    for _ in range(count - 1):
        weights = distance if float(distance.sum()) > 0 else torch.ones_like(distance)
        chosen.append(int(torch.multinomial(weights, 1, generator=generator)))
        distance = torch.minimum(distance, (x - x[chosen[-1]]).square().sum(1))
    return x[chosen].clone()
