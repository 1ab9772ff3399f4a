"""Batches by the number of the step, so that a training can be continued anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from picirc.errors import ArgumentError


class Batches(Protocol):
    """Where training data come from."""

    def batch(self, step: int) -> Tensor:
        """The batch of a step, ``(batch, variables)``."""


class ArrayBatches:
    """Rows of an array in a random order that is new in every epoch and depends on nothing but the seed.

    Args:
        data: ``(rows, variables)``: a tensor, an array, or a memory-mapped file, of which only the batches are read.
        size: The number of rows of a batch.
        seed: Decides the order.
    """

    def __init__(self, data: Any, size: int, seed: int) -> None:
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ArgumentError("batch_size", "a positive whole number", size)
        self._data = as_rows("train", data)
        self._size = min(size, len(self._data))
        self._seed = seed
        self._epoch, self._order = -1, np.empty(0, dtype=np.int64)

    def batch(self, step: int) -> Tensor:
        """The batch of a step; an incomplete last batch of an epoch is left out."""
        per_epoch = len(self._data) // self._size
        epoch, place = divmod(step, per_epoch)
        if epoch != self._epoch:
            self._epoch = epoch
            self._order = np.random.default_rng([self._seed, epoch]).permutation(len(self._data))
        chosen = np.sort(self._order[place * self._size : (place + 1) * self._size])
        return rows_of(self._data, chosen)


class LoaderBatches:
    """Batches of any iterable, such as a ``DataLoader``, begun again when it ends.

    After an interruption the batches before the step are drawn and thrown away, so that a loader with a seeded order
    continues where it was.
    """

    def __init__(self, loader: Iterable[Any]) -> None:
        self._loader = loader
        self._iterator: Iterator[Any] = iter(())
        self._next = 0

    def batch(self, step: int) -> Tensor:
        """The batch of a step; steps must not go back."""
        if step < self._next:
            raise ArgumentError("step", f"a step from {self._next} on", step)
        while True:
            value = self._draw()
            self._next += 1
            if self._next > step:
                rows = value[0] if isinstance(value, list | tuple) else value
                return torch.as_tensor(rows).flatten(1)

    def _draw(self) -> Any:
        for _ in range(2):
            for value in self._iterator:
                return value
            self._iterator = iter(self._loader)
        raise ArgumentError("train", "a loader with at least one batch", "an empty one")


def as_batches(data: Any, size: int, seed: int) -> Batches:
    """Batches of an array, or of anything that can be iterated over."""
    if hasattr(data, "__getitem__") and hasattr(data, "shape"):
        return ArrayBatches(data, size, seed)
    if isinstance(data, list | tuple):
        return ArrayBatches(np.asarray(data), size, seed)
    if isinstance(data, Iterable):
        return LoaderBatches(data)
    raise ArgumentError("train", "an array (rows, variables), or a loader of such batches", type(data).__name__)


def as_rows(argument: str, data: Any) -> Any:
    """Check that data are a table with at least one row."""
    if len(data.shape) != 2 or 0 in data.shape:
        raise ArgumentError(argument, "a table (rows, variables) with at least one row", f"shape {tuple(data.shape)}")
    return data


def rows_of(data: Any, chosen: np.ndarray[Any, np.dtype[np.int64]] | slice) -> Tensor:
    """Some rows as a tensor of their own."""
    if isinstance(data, Tensor):
        return data[torch.as_tensor(chosen)] if not isinstance(chosen, slice) else data[chosen]
    return torch.tensor(np.ascontiguousarray(data[chosen]))
