# SPDX-License-Identifier: Apache-2.0
"""Learning from Parquet files a part at a time: the same columns, the same rows, and as good a model."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

import picirc as pc
from picirc.data.tables import open_stream
from picirc.errors import ArgumentError
from picirc.learning.processes import Processes
from picirc.structure.information import mutual_information
from picirc.tables import streaming
from picirc.tables.schema import Schema
from picirc.tables.streaming import StreamBatches, StreamRows, read_data

ROWS = 6000


@pytest.fixture(scope="module")
def table():
    """Sorted by its first column, so that rows that follow each other are alike."""
    rng = np.random.default_rng(0)
    hidden = np.sort(rng.normal(size=ROWS))
    kind = np.where(hidden + rng.normal(size=ROWS) > 0, "up", "down")
    kind[17] = "seldom"
    real = np.where(rng.random(ROWS) < 0.1, np.nan, hidden + 0.5 * rng.normal(size=ROWS))
    return pa.table({
        "real": pa.array(real, from_pandas=True),
        "kind": kind,
        "skewed": np.exp(hidden + 0.3 * rng.normal(size=ROWS)),
        "level": np.clip(np.rint(hidden), -2, 2).astype(np.int64),
    })  # fmt: skip


@pytest.fixture(scope="module")
def folder(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("streaming")
    for number in range(3):
        pq.write_table(table.slice(number * 2000, 2000), path / f"{number}.parquet", row_group_size=300)
    return path


@pytest.fixture
def streamed(monkeypatch):
    """Streams tables of any size, with a sample and a buffer that are smaller than the table."""
    monkeypatch.setattr(streaming, "MOST_CELLS", 0)
    monkeypatch.setattr(streaming, "_FEWEST_SAMPLED", 1500)
    monkeypatch.setattr(streaming, "_SAMPLED_CELLS", 6000)
    monkeypatch.setattr(streaming, "_FEWEST_POOLED", 400)
    monkeypatch.setattr(streaming, "_POOLED_CELLS", 0)


def test_a_stream_has_the_rows_of_the_files_in_order(table, folder):
    for source in (folder, str(folder), ds.dataset(folder, format="parquet")):
        stream = open_stream(source)
        assert stream.rows == ROWS
        assert stream.read().equals(table)
        assert [group.start for group in stream.groups[:3]] == [0, 300, 600]
    assert open_stream(folder / "1.parquet").read().equals(table.slice(2000, 2000))
    assert open_stream({"a": [1]}) is None


def test_columns_of_partitioned_folders_are_read(tmp_path):
    rows = pa.table({"where": ["a", "b"] * 3, "value": np.arange(6.0)})
    pq.write_to_dataset(rows, tmp_path, partition_cols=["where"])
    found = open_stream(tmp_path).read()
    assert sorted(found["value"].to_pylist()) == list(range(6))
    assert all(
        where == "ab"[int(value) % 2]
        for where, value in zip(found["where"].to_pylist(), found["value"].to_pylist(), strict=True)
    )


def test_the_sample_knows_all_categories_ends_and_gaps(table, folder, streamed):
    data = read_data(folder, 0)
    assert 1500 <= data.frame.rows <= 1520
    found, whole = data.schema(None, "error", 0.05), Schema.infer(table, floor=0.05)
    assert found.rows == ROWS
    for one, other in zip(found.columns, whole.columns, strict=True):
        same = ("name", "dtype", "categories", "low", "high", "missing", "kind")
        assert [getattr(one, name) for name in same] == [getattr(other, name) for name in same]


def test_a_sample_of_all_rows_gives_the_schema_of_the_table(table, folder, streamed, monkeypatch):
    monkeypatch.setattr(streaming, "_FEWEST_SAMPLED", ROWS)
    monkeypatch.setattr(streaming, "_SAMPLED_CELLS", 10**9)
    data = read_data(folder, 0)
    whole = Schema.infer(table, floor=0.05)
    assert data.schema(None, "error", 0.05).columns == whole.columns


class Whole:
    """A table in memory, with levels that follow from some of its rows."""

    def __init__(self, rows, some):
        self.rows, self.some = rows, some

    def __iter__(self):
        yield self.rows

    def add_up(self, sums):
        pass


@pytest.mark.parametrize("reals", ["gaussian", "ordinal"])
@pytest.mark.parametrize("chunk", [2**23, 40])  # in one pass over the files, or in several
def test_the_mutual_information_is_that_of_all_rows_but_those_held_out(
    table, folder, streamed, monkeypatch, reals, chunk
):
    monkeypatch.setattr(streaming, "_SCANNED", 128)
    data = read_data(folder, 0)
    schema = data.schema(None, "error", 0.05)
    kinds, options = [reals, "categorical", reals, "ordinal"], {"bins": 6, "smoothing": 0.5}
    some, held = schema.encode(data.frame), np.array([3, 1, 700])
    rows = np.delete(schema.encode(table), data.indices[held], 0)
    found = mutual_information(data.parts(schema, some, held), kinds, chunk=chunk, **options)
    np.testing.assert_allclose(found, mutual_information(Whole(rows, some), kinds, **options), atol=1e-9)
    np.testing.assert_allclose(found, mutual_information(rows, kinds, **options), atol=0.02)  # with levels of all rows
    assert np.abs(found - mutual_information(some, kinds, **options)).max() > 1e-3


def test_the_mutual_information_of_a_sample_of_all_rows_is_that_of_the_table(table, folder, streamed, monkeypatch):
    monkeypatch.setattr(streaming, "_FEWEST_SAMPLED", ROWS)
    monkeypatch.setattr(streaming, "_SAMPLED_CELLS", 10**9)
    data = read_data(folder, 0)
    schema, kinds = data.schema(None, "error", 0.05), ["gaussian", "categorical", "ordinal", "ordinal"]
    found = mutual_information(data.parts(schema, schema.encode(data.frame), np.arange(0)), kinds)
    np.testing.assert_allclose(found, mutual_information(schema.encode(table), kinds), atol=1e-9)


def batches(folder, shards, size=100, held=()):
    stream = open_stream(folder)
    schema = read_data(folder, 0).schema(None, "error", 0.05)
    some = np.zeros((1, 4), np.float32)
    rows = StreamRows(stream, schema.encode, np.array(held, np.int64), some)
    return StreamBatches(rows, some, size, 0, shards), schema


@pytest.mark.parametrize("shards", [1, 2, 7, 40])
def test_an_epoch_has_every_row_once_but_those_held_out(table, folder, streamed, shards):
    held = np.array([0, 5, 299, 300, 4000, ROWS - 1])
    source, schema = batches(folder, shards, held=held)
    expected = np.delete(schema.encode(table).astype(np.float32), held, 0)
    found = []
    for shard in range(shards):
        reader = source._reader(shard)
        epoch = sum(len(rows) for rows in reader._interleaved(np.random.default_rng(0)))
        found.append(reader.take(epoch))
    found = np.concatenate(found)
    assert len(found) == len(expected)
    assert np.array_equal(found[np.lexsort(found.T)], expected[np.lexsort(expected.T)], equal_nan=True)


@pytest.mark.parametrize("size", [1, 7, 100])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_parts_of_the_processes_are_the_batch_of_one(folder, streamed, size, count):
    alone, parts = batches(folder, 3, size)[0], [batches(folder, 3, size)[0] for _ in range(count)]
    for step in (0, 1, 4):
        whole = alone.batch(step)
        own = [source.part(step, Processes(rank, count)) for rank, source in enumerate(parts)]
        assert all(total == size == len(whole) for _, total in own)
        joined = np.concatenate([rows.numpy() for rows, _ in own])
        assert np.array_equal(joined[np.lexsort(joined.T)], whole.numpy()[np.lexsort(whole.numpy().T)], equal_nan=True)


def test_batches_of_a_sorted_table_are_mixed(folder, streamed, monkeypatch):
    """The level goes from −2 to 2 along the table; a batch of neighbours would have one level, or two."""
    monkeypatch.setattr(streaming, "_FEWEST_POOLED", 1200)
    source, _ = batches(folder, 1, 200)
    assert all(len(np.unique(source.batch(step)[:, 3])) >= 3 for step in range(5))


def test_a_training_can_go_on_anywhere(folder, streamed):
    one, other = batches(folder, 2)[0], batches(folder, 2)[0]
    one.batch(0)
    one.batch(1)
    assert np.array_equal(one.batch(2), other.batch(2), equal_nan=True)
    with pytest.raises(ArgumentError, match="a step from 3 on"):
        one.batch(2)


def test_a_streamed_training_is_as_good_as_one_in_memory(table, folder, streamed):
    options = {"points": 8, "width": 8, "steps": 80, "settings": {"members": 1}}
    rng = np.random.default_rng(1)
    test = table.take(rng.choice(ROWS, 1000, replace=False))
    inside = [pc.fit_table(table, seed=seed, **options).log_density(test).mean() for seed in range(2)]
    streamed = pc.fit_table(folder, seed=0, **options)
    assert streamed.summary["rows"]["train"] + streamed.summary["rows"]["valid"] == ROWS
    spread = max(inside) - min(inside)
    assert abs(streamed.log_density(test).mean() - np.mean(inside)) < max(3 * spread, 0.05)


def test_small_files_are_read_as_a_whole(table, folder, tmp_path):
    small = table.take(np.arange(0, ROWS, 20))
    pq.write_table(small, tmp_path / "small.parquet")
    options = {"points": 4, "width": 8, "steps": 5, "settings": {"members": 1}}
    expected = pc.fit_table(small, **options).log_density(small)
    for source in (tmp_path, tmp_path / "small.parquet", ds.dataset(tmp_path, format="parquet")):
        assert np.array_equal(pc.fit_table(source, **options).log_density(small), expected)


def test_what_cannot_be_streamed_is_named(tmp_path):
    with pytest.raises(ArgumentError, match="none there"):
        pc.fit_table(tmp_path)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(ArgumentError, match="Parquet"):
        pc.fit_table(tmp_path)
    csv.write_csv(pa.table({"a": [1.0]}), tmp_path / "t.csv")
    with pytest.raises(ArgumentError, match="a dataset of Parquet files"):
        pc.fit_table(ds.dataset(tmp_path / "t.csv", format="csv"))


def test_checkpoints_of_a_table_continue(table, folder, streamed, tmp_path):
    options = {"points": 4, "width": 8, "steps": 30, "settings": {"members": 1, "validate_every": 10}}
    whole = pc.fit_table(folder, **options)

    def stop(record):
        if record["step"] == 20:
            raise RuntimeError("gone")

    with pytest.raises(RuntimeError, match="gone"):
        pc.fit_table(folder, out=tmp_path / "run", checkpoint_every=5, callbacks=[stop], **options)
    found = pc.fit_table(folder, out=tmp_path / "run", checkpoint_every=5, resume=True, **options)
    assert np.array_equal(found.log_density(table), whole.log_density(table))
