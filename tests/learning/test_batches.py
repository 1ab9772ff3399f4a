# SPDX-License-Identifier: Apache-2.0
"""Batches: every row once an epoch, in an order that only the seed decides, from anywhere data come from."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import picirc as pc
from picirc.learning.batches import ArrayBatches, LoaderBatches, as_batches, as_rows, rows_of

TABLE = np.arange(40.0).reshape(20, 2)


class Frame:
    """What a data frame looks like from outside: rows and columns, but an index means columns."""

    def __init__(self, values: np.ndarray) -> None:
        self._values = values
        self.shape = values.shape

    def __getitem__(self, column: object) -> object:
        raise KeyError(column)

    def to_numpy(self) -> np.ndarray:
        return self._values


def memory_map(tmp_path, values: np.ndarray) -> np.memmap:
    path = tmp_path / "rows.bin"
    np.asarray(values).tofile(path)
    return np.memmap(path, values.dtype, "r", shape=values.shape)


@pytest.mark.parametrize("size", [1, 4, 7, 20, 100])
def test_every_row_comes_at_most_once_an_epoch(size):
    batches = ArrayBatches(TABLE, size, seed=0)
    used = min(size, 20)
    orders = []
    for epoch in range(3):
        steps = range(epoch * (20 // used), (epoch + 1) * (20 // used))
        rows = torch.cat([batches.batch(step) for step in steps])[:, 0].tolist()
        assert len(set(rows)) == len(rows) == used * (20 // used)
        assert set(rows) <= set(TABLE[:, 0])
        orders.append([sorted(batches.batch(step)[:, 0].tolist()) for step in steps])
    if 1 < 20 // used < 20:
        assert orders[0] != orders[1] != orders[2]


def test_a_batch_depends_on_the_seed_and_its_number_only():
    straight = [ArrayBatches(TABLE, 6, seed=3).batch(step) for step in range(9)]
    mixed = ArrayBatches(TABLE, 6, seed=3)
    for step in (8, 0, 4, 3, 7, 1):
        assert torch.equal(mixed.batch(step), straight[step])
    other = ArrayBatches(TABLE, 6, seed=4)
    assert any(not torch.equal(other.batch(step), straight[step]) for step in range(9))


def test_all_kinds_of_tables_give_the_same_batches(tmp_path):
    kinds = {
        "array": TABLE,
        "tensor": torch.tensor(TABLE),
        "memmap": memory_map(tmp_path, TABLE),
        "list": TABLE.tolist(),
        "tuple": tuple(map(tuple, TABLE)),
        "frame": Frame(TABLE),
        "fortran": np.asfortranarray(TABLE),
        "strided": np.repeat(TABLE, 2, 0)[::2],
    }
    expected = [ArrayBatches(TABLE, 6, 0).batch(step) for step in range(5)]
    for name, data in kinds.items():
        batches = as_batches(data, 2, 6, 0)
        for step, batch in enumerate(expected):
            assert torch.equal(batches.batch(step), batch), name


def test_of_a_file_only_the_batches_are_read(tmp_path):
    read = []

    class Watched(np.memmap):
        def __getitem__(self, index: object) -> object:
            read.append(len(index))  # type: ignore[arg-type]
            return np.asarray(self)[index]

    batches = as_batches(memory_map(tmp_path, TABLE).view(Watched), 2, 6, 0)
    batches.batch(0)
    batches.batch(1)
    assert read == [6, 6]


def test_batches_are_copies():
    data = torch.tensor(TABLE)
    ArrayBatches(data, 5, 0).batch(0).zero_()
    assert torch.equal(data, torch.tensor(TABLE))
    array = TABLE.copy()
    rows_of(array, slice(0, 3)).zero_()
    assert np.array_equal(array, TABLE)


def loader(shuffle: bool = True, seed: int = 0) -> DataLoader:
    generator = torch.Generator().manual_seed(seed)
    return DataLoader(TensorDataset(torch.tensor(TABLE)), batch_size=6, shuffle=shuffle, generator=generator)


def test_a_loader_begins_again_when_it_ends():
    batches = as_batches(loader(shuffle=False), 2, 99, 0)
    sizes = [len(batches.batch(step)) for step in range(9)]
    assert sizes == [6, 6, 6, 2] * 2 + [6]


def test_a_loader_with_a_seed_continues_where_it_was():
    through = as_batches(loader(), 2, 6, 0)
    expected = [through.batch(step) for step in range(11)]
    assert torch.equal(as_batches(loader(), 2, 6, 0).batch(10), expected[10])
    assert len({tuple(batch.flatten().tolist()) for batch in expected}) == 11  # a new order in every epoch


def test_images_of_a_loader_become_rows():
    images = torch.zeros(5, 1, 4, 4)
    assert LoaderBatches([images]).batch(0).shape == (5, 16)
    assert LoaderBatches([(images, torch.zeros(5))]).batch(0).shape == (5, 16)
    assert LoaderBatches([images.numpy()]).batch(0).shape == (5, 16)


def test_a_loader_does_not_go_back():
    batches = LoaderBatches([torch.zeros(2, 2)] * 3)
    batches.batch(1)
    with pytest.raises(pc.ArgumentError, match="step: expected a step from 2 on, got 1"):
        batches.batch(1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (iter(()), "one that is empty or used up"),
        (iter([torch.zeros(2, 2)]), "one that is empty or used up"),
        (DataLoader(TensorDataset(torch.zeros(4, 2)), batch_size=None), "give the loader a batch size"),
        (iter([{"x": 1}] * 2), "a loader of batches .* got one of dict"),
        (iter([["a", "b"]] * 2), "a loader of batches .* got one of str"),
    ],
)
def test_loaders_without_batches_are_refused(given, message):
    with pytest.raises(pc.ArgumentError, match=message):
        as_batches(given, 2, 4, 0).batch(1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.zeros(5), r"a table \(rows, 2\) with at least one row, got shape \(5,\)"),
        (np.zeros((5, 3)), r"got shape \(5, 3\)"),
        (np.zeros((0, 2)), r"got shape \(0, 2\)"),
        (torch.zeros(2, 2, 2), r"got shape \(2, 2, 2\)"),
        ([], r"got shape \(0,\)"),
        ([[1, 2], [3]], "rows of equal length"),
        ([["a", "b"]], "numbers, got values of type <U1"),
        (np.array([[None, 1.0]], dtype=object), "numbers, got values of type object"),
        (np.zeros((2, 2), dtype=complex), "numbers, got values of type complex128"),
        (7, "got int"),
        (None, "got NoneType"),
        (TensorDataset(torch.zeros(3, 2)), "got TensorDataset"),
    ],
)
def test_what_is_no_table_is_refused(data, message):
    for argument in ("train", "valid"):
        with pytest.raises(pc.ArgumentError, match=f"^{argument}: expected .*{message}"):
            as_rows(argument, data, 2)
    with pytest.raises(pc.ArgumentError, match=r"^train: "):
        as_batches(data, 2, 4, 0)


@pytest.mark.parametrize("size", [0, -3, 2.0, True, None])
def test_wrong_sizes_are_refused(size):
    with pytest.raises(pc.ArgumentError, match="batch_size: expected a positive integer"):
        as_batches(TABLE, 2, size, 0)


@pytest.mark.parametrize("seed", [-1, 0.5, None, True])
def test_wrong_seeds_are_refused(seed):
    with pytest.raises(pc.ArgumentError, match="seed: expected a non-negative integer"):
        as_batches(TABLE, 2, 4, seed)
