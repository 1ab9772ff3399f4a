# SPDX-License-Identifier: Apache-2.0
"""Batches by the number of the step, so that training can resume anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from picirc.checks import check_integer
from picirc.errors import ArgumentError
from picirc.learning.processes import Processes

_SOME = 10_000  # rows for start values


@runtime_checkable
class Batches(Protocol):
    """A source of training data."""

    @property
    def rows(self) -> int | None:
        """The number of rows; None if it is unknown."""

    def batch(self, step: int) -> Tensor:
        """The batch of a step, ``(batch, variables)``."""

    def part(self, step: int, processes: Processes) -> tuple[Tensor, int]:
        """This process's rows of the batch of a step, and the number of rows of the whole batch."""
        batch = self.batch(step)
        return processes.part(batch), len(batch)

    def some(self) -> Tensor:
        """Some rows, for start values."""


class ArrayBatches(Batches):
    """Rows of an array in a random order that is new in every epoch and depends only on the seed.

    Args:
        data: ``(rows, variables)``, checked by ``as_rows``. A memory-mapped file is read batch by batch.
        size: The number of rows of a batch.
        seed: Determines the order.
    """

    def __init__(self, data: Any, size: int, seed: int) -> None:
        self._data = data
        self._size = min(check_integer("batch_size", size), len(data))
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

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self._data)

    def some(self) -> Tensor:
        """Up to 10,000 rows from all over the data."""
        chosen = np.unique(np.linspace(0, len(self._data) - 1, min(_SOME, len(self._data))).astype(np.int64))
        return rows_of(self._data, chosen)


class LoaderBatches(Batches):
    """Batches of any iterable, such as a ``DataLoader``, restarted when it ends.

    A resumed training draws and discards the batches before its step, so that a loader with a seeded order continues
    where it was.
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
                return _as_batch(value)

    @property
    def rows(self) -> None:
        """Unknown."""
        return

    def some(self) -> Tensor:
        """The first batches, up to 10,000 rows, which the first steps draw again."""
        found: list[Tensor] = []
        for value in self._loader:
            found.append(_as_batch(value))
            if sum(map(len, found)) >= _SOME:
                break
        if not found:
            raise ArgumentError("train", "a loader that gives batches every time", "one that is empty or used up")
        return torch.cat(found)

    def _draw(self) -> Any:
        for _ in range(2):
            for value in self._iterator:
                return value
            self._iterator = iter(self._loader)
        raise ArgumentError("train", "a loader that gives batches every time", "one that is empty or used up")


def as_batches(data: Any, variables: int, size: int, seed: int) -> Batches:
    """Batches of a table or of an iterable; an object that is a source of batches is returned as it is."""
    seed = check_integer("seed", seed, 0)
    if isinstance(data, Batches):
        return data
    if isinstance(data, Iterable) and not _is_table(data):
        return LoaderBatches(data)
    return ArrayBatches(as_rows("train", data, variables), size, seed)


def as_rows(argument: str, data: Any, variables: int) -> Any:
    """Check that data are a table of numbers with at least one row. Lists and data frames become arrays."""
    if not _is_table(data):
        raise ArgumentError(argument, "a table (rows, variables)", type(data).__name__)
    if hasattr(data, "to_numpy"):
        data = data.to_numpy()
    elif isinstance(data, list | tuple):
        data = _as_array(argument, data)
    shape = tuple(data.shape)
    if len(shape) != 2 or shape[0] == 0 or shape[1] != variables:
        raise ArgumentError(argument, f"a table (rows, {variables}) with at least one row", f"shape {shape}")
    if not isinstance(data, Tensor) and np.dtype(data.dtype).kind not in "biuf":
        raise ArgumentError(argument, "numbers", f"values of type {data.dtype}", "give categories the codes 0, 1, 2 …")
    return data


def _is_table(data: Any) -> bool:
    return isinstance(data, list | tuple) or (hasattr(data, "__getitem__") and hasattr(data, "shape"))


def _as_array(argument: str, data: Any) -> Any:
    try:
        return np.asarray(data)
    except ValueError as error:
        raise ArgumentError(argument, "rows of equal length", "others") from error


def _as_batch(value: Any) -> Tensor:
    """A loader's batch as ``(batch, variables)``: the first item of a tuple, and images flattened."""
    rows = value[0] if isinstance(value, list | tuple) and value else value
    expected = "a loader of batches (batch, variables)"
    try:
        batch = torch.as_tensor(rows)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError("train", expected, f"one of {type(rows).__name__}") from error
    if batch.ndim < 2:
        raise ArgumentError("train", expected, f"shape {tuple(batch.shape)}", "give the loader a batch size")
    return batch.flatten(1)


def rows_of(data: Any, chosen: np.ndarray[Any, np.dtype[np.int64]] | slice) -> Tensor:
    """Some rows as a new tensor."""
    if isinstance(data, Tensor):
        return data[torch.as_tensor(chosen)] if not isinstance(chosen, slice) else data[chosen]
    return torch.tensor(np.ascontiguousarray(data[chosen]))
