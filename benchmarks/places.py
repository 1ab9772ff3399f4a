# SPDX-License-Identifier: Apache-2.0
"""Where the numbers of a circuit lie in the tensors of a model, to exchange them with other libraries."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

import picirc as pc
from picirc.symbolic.units import Integral, Sum, Unit


@dataclass(frozen=True)
class Places:
    """The tables of a model by the numbers of its latents (or regions) and variables.

    A table is a view of raw parameters; the probabilities are its softmax over the last axis.
    """

    model: pc.HCLT

    @cached_property
    def weights(self) -> dict[tuple[int, int | None], Tensor]:
        """``p(child | parent)`` as ``(states of the parent, states of the child)``; the root has no parent."""
        found = {}
        for block, table in zip(self.model.plan.blocks, self.model.weights, strict=True):
            for row, (unit, _, _) in enumerate(block.integrals):
                assert (_child(unit), _parent(unit)) not in found, "a region is part of another in one way only"
                found[_child(unit), _parent(unit)] = table.detach()[row, 0]
        return found

    @cached_property
    def mixtures(self) -> dict[int, Tensor]:
        """The weights of a region's partitions, ``(states, partitions)``."""
        found = {}
        for units, table in zip(self.model.plan.mixtures, self.model.mixtures, strict=True):
            for row, unit in enumerate(units):
                found[_region(unit)] = table.detach()[row].T
        return found

    @cached_property
    def inputs(self) -> dict[int, Tensor]:
        """The log-probabilities of a variable, ``(states, categories)``."""
        groups = zip(self.model.plan.inputs, self.model.inputs, strict=True)
        return {int(column): table.detach()[row] for group, table in groups for row, column in enumerate(group.columns)}

    def fill(self, table: Tensor, probabilities: Tensor) -> None:
        """Give a table its numbers."""
        table.copy_(torch.as_tensor(probabilities).log())


def _child(unit: Integral) -> int:
    (name,) = unit.variables
    return int(name[1:])


def _parent(unit: Integral) -> int | None:
    parents = unit.factors[0].function.parents
    return int(parents[0][1:]) if parents else None


def _region(unit: Sum) -> int:
    """The region that a mixture of partitions belongs to: the parent of what is integrated below."""
    below: list[Unit] = list(unit.inputs)
    while not isinstance(below[0], Integral):
        below = [u for part in below for u in part.inputs]
    region = _parent(below[0])
    assert region is not None
    return region
