"""Parts of the images: the rows of each component of a mixture, and what its training begins with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import picirc as pc
from best.mixture import Labels, Mixture, component_logs
from best.moves import COARSE, aligned, orders
from best.recipes import Recipe
from best.value_types import types
from density import Structure
from picirc.data import Dataset


@dataclass(frozen=True, eq=False)
class Part:
    """What a component is trained on.

    Attributes:
        rows: The training images.
        valid: The validation images, or None where there is none.
        structure: Of the component.
        first: The PIC whose nets it begins with, or None.
    """

    rows: Any
    valid: Any
    structure: Structure
    first: pc.PIC | None


def split(mixture: Mixture, data: Dataset, recipe: Recipe) -> Iterator[Part]:
    """The parts of a mixture that goes on.

    A component begins as a copy of one of those there are, and has the images of one type that are most likely under
    that one, each moved to where it is most likely.
    """
    tables = (data.train, data.valid)
    kinds = types(tables, recipe.types, data.categories, recipe.seed)
    homes = _homes(mixture, tables, kinds, recipe)
    moves = orders(data.image_shape or (), recipe.reach)
    for kind in range(recipe.types):
        for number, component in enumerate(mixture.components):
            chosen = [
                table[(types_of == kind) & (home == number)]
                for table, types_of, home in zip(tables, kinds, homes, strict=True)
            ]
            if len(chosen[0]):
                rows, valid = (aligned(component, part, moves) if len(part) else None for part in chosen)
                yield Part(rows, valid, component.structure, component)


def _homes(mixture: Mixture, tables: tuple[Any, Any], kinds: list[Labels], recipe: Recipe) -> list[Labels]:
    """The component that every row belongs to: the most likely one of those with most training images of its type."""
    logs = [component_logs(mixture.components, table, COARSE).numpy() for table in tables]
    for kind in range(recipe.types):
        best = logs[0][kinds[0] == kind].argmax(1)
        count = max(1, min(len(mixture.components), len(best) // recipe.rows))
        popular = np.bincount(best, minlength=len(mixture.components)).argsort()[::-1][:count]
        others = np.setdiff1d(np.arange(len(mixture.components)), popular)
        for found, types_of in zip(logs, kinds, strict=True):
            found[np.ix_(types_of == kind, others)] = -np.inf
    return [found.argmax(1) for found in logs]
