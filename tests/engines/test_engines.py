# SPDX-License-Identifier: Apache-2.0
"""The map of a model in real engines, each with two processes; `make test-engines` runs these.

The last bit of a result may depend on the rows that are computed with it, so each part that an engine made is computed
again in this process, and must then be the same bit for bit.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import picirc as pc

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("default")]
ROWS, FILES = 1200, 4


class Marked:
    """A map whose result also says which part each row was in, and where."""

    def __init__(self, mapper: pc.tables.Mapper) -> None:
        self.mapper = mapper

    def __call__(self, table: pa.Table) -> pa.Table:
        found = self.mapper(table)
        first = table["id"][0].as_py() if table.num_rows else 0
        return found.append_column("part", pa.array([first] * found.num_rows, pa.int64()))

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from self(pa.Table.from_batches([batch])).to_batches()

    def schema(self, given: pa.Schema) -> pa.Schema:
        return self.mapper.schema(given).append(pa.field("part", pa.int64()))


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=ROWS)
    real = np.where(rng.random(ROWS) < 0.2, np.nan, hidden + 0.3 * rng.normal(size=ROWS))
    kind = np.where(hidden + rng.normal(size=ROWS) > 0, "x", "y")
    columns = {"a": pa.array(real, from_pandas=True), "b": rng.exponential(size=ROWS), "k": kind}
    return pa.table({"id": np.arange(ROWS), **columns})


@pytest.fixture(scope="module")
def model(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("engines") / "model"
    pc.fit_table(table.drop_columns(["id"]), steps=20, points=8, width=8).save(path)
    return path


@pytest.fixture(scope="module")
def folder(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("engines") / "big"
    path.mkdir()
    for number in range(FILES):
        part = table.slice(number * ROWS // FILES, ROWS // FILES)
        pq.write_table(part, path / f"part-{number}.parquet")
    return path


@pytest.fixture(params=["score", "impute", "classify"])
def each(request, model):
    options = {"impute": {}, "score": {"keep": ["id"]}, "classify": {"keep": ["id"], "column": "k"}}[request.param]
    return Marked(pc.mapper(model, request.param, **options))


def check(found: pa.Table, table: pa.Table, each: Marked) -> None:
    """Every row once, and every part as this process computes it."""
    assert sorted(found["id"].to_pylist()) == table["id"].to_pylist()
    for first in set(found["part"].to_pylist()):
        part = found.filter(pa.compute.equal(found["part"], first))
        again = each(table.take(part["id"]))
        assert part.select(again.column_names).to_pydict() == again.to_pydict()


def test_polars(table, folder, each):
    pl = pytest.importorskip("polars")
    schema = pl.from_arrow(each.schema(table.schema).empty_table()).schema
    rows = pl.scan_parquet(folder)
    found = rows.map_batches(lambda part: pl.from_arrow(each(part.to_arrow())), schema=schema).collect()
    check(found.to_arrow(), table, each)


@pytest.fixture(scope="module")
def dask():
    pytest.importorskip("dask.dataframe")
    from dask.distributed import Client, LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        client.run(sys.path.extend, sys.path)  # the module of these tests
        yield client


def test_dask(dask, table, folder, each):
    import dask.dataframe as dd

    rows = dd.read_parquet(folder)

    def part(frame):
        return each(pa.Table.from_pandas(frame, preserve_index=False)).to_pandas()

    found = rows.map_partitions(part, meta=part(rows._meta)).compute()
    check(pa.Table.from_pandas(found, preserve_index=False), table, each)


@pytest.fixture(scope="module")
def ray():
    ray = pytest.importorskip("ray")
    path = os.pathsep.join(sys.path)
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", runtime_env={"env_vars": {"PYTHONPATH": path}})
    yield ray
    ray.shutdown()


def test_ray(ray, table, folder, each):
    rows = ray.data.read_parquet(str(folder))
    found = rows.map_batches(each, batch_format="pyarrow", batch_size=None)
    check(pa.concat_tables([ray.get(part) for part in found.to_arrow_refs()]), table, each)


@pytest.fixture(scope="module")
def spark():
    sql = pytest.importorskip("pyspark.sql")
    if shutil.which("java") is None:
        pytest.skip("Spark needs a Java runtime")
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    yield session
    session.stop()


def test_spark(spark, table, folder, each):
    from pyspark.sql.pandas.types import from_arrow_schema

    rows = spark.read.parquet(str(folder))
    found = rows.mapInArrow(each.batches, from_arrow_schema(each.schema(table.schema)))
    check(pa.Table.from_pandas(found.toPandas(), preserve_index=False), table, each)
