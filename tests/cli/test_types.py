# SPDX-License-Identifier: Apache-2.0
"""Types of columns come back from models that the command line fitted, in CSV and in Parquet files."""

from __future__ import annotations

import csv
import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli.table_cases import QUICK

ROWS = 60


def frame() -> Any:
    rng = np.random.default_rng(0)
    size = pd.CategoricalDtype(["small", "middle", "large"], ordered=True)
    day = pd.Series(pd.to_datetime("2022-01-01") + pd.to_timedelta(rng.integers(0, 300, ROWS), "D"))
    return pd.DataFrame(
        {
            "size": pd.Series(["small", "large", "middle", None] * 15, dtype=size),
            "count": pd.Series([*range(ROWS - 1), None], dtype="Int64"),
            "flag": pd.Series([True, False, None, True] * 15, dtype="boolean"),
            "short": np.arange(ROWS, dtype=np.int16),
            "single": rng.normal(size=ROWS).astype(np.float32),
            "name": pd.Series(["a", "b"] * 30, dtype="string"),
            "day": day.astype("datetime64[us]").where(day.index != 5),
            "zoned": day.dt.tz_localize("Europe/Paris").astype("datetime64[us, Europe/Paris]"),
        }
    )


@pytest.fixture(scope="module")
def parquet(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("types") / "table.parquet"
    frame().to_parquet(path)
    return path


def test_parquet_files_of_pandas_keep_their_types(run, parquet, tmp_path):
    assert run("fit", parquet, "--out", tmp_path / "m", *QUICK)[0] == 0
    assert run("sample", tmp_path / "m", "-n", 30, "-o", tmp_path / "s.parquet")[0] == 0
    assert run("impute", tmp_path / "m", parquet, "-o", tmp_path / "f.parquet")[0] == 0
    for name in ("s", "f"):
        found = pd.read_parquet(tmp_path / f"{name}.parquet")
        assert found.dtypes.to_dict() == frame().dtypes.to_dict()
        assert list(found["size"].cat.categories) == ["small", "middle", "large"]
    pd.testing.assert_frame_equal(found.dropna(), found)
    known = frame()["count"].notna()
    pd.testing.assert_series_equal(found["count"][known], frame()["count"][known])


def test_draws_with_gaps_keep_their_types(run, parquet, tmp_path):
    assert run("fit", parquet, "--out", tmp_path / "m", "--missingness", *QUICK)[0] == 0
    assert run("sample", tmp_path / "m", "-n", 200, "--gaps", "-o", tmp_path / "s.parquet")[0] == 0
    found = pd.read_parquet(tmp_path / "s.parquet")
    assert found["flag"].isna().any()
    assert found.dtypes.to_dict() == frame().dtypes.to_dict()


def test_parquet_files_of_others_keep_their_types(run, tmp_path):
    table = pa.table(
        {
            "size": pa.array(["b", "a", None] * 20).dictionary_encode(),
            "count": pa.array([*range(ROWS - 1), None], pa.uint8()),
            "day": pa.array([datetime.date(2020, 1, 1 + row % 28) for row in range(ROWS)]),
            "flag": pa.array([True, None, False] * 20),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    assert run("fit", tmp_path / "t.parquet", "--out", tmp_path / "m", *QUICK)[0] == 0
    for command in (["sample", tmp_path / "m"], ["impute", tmp_path / "m", tmp_path / "t.parquet"]):
        assert run(*command, "-o", tmp_path / "o.parquet")[0] == 0
        found = pq.read_table(tmp_path / "o.parquet")
        assert [str(kind).replace("int32", "int8") for kind in found.schema.types] == [
            str(kind).replace("int32", "int8") for kind in table.schema.types
        ]


def test_models_of_python_write_the_same_types(run, tmp_path):
    import picirc as pc

    rows = pl.DataFrame(
        {"n": pl.Series(range(40), dtype=pl.Int16), "d": [datetime.date(2020, 1, 1)] * 20 + [None] * 20}
    )
    pc.fit_table(rows, points=4, width=4, steps=2, settings={"members": 1}).save(tmp_path / "m")
    assert run("sample", tmp_path / "m", "-o", tmp_path / "o.parquet")[0] == 0
    assert pl.read_parquet(tmp_path / "o.parquet").schema == rows.schema


CELLS = [
    ["2021-05-01", "2021-05-01 10:00:00", "true", "7", "1.5"],
    ["2021-06-11", "2021-06-01 11:30:00", "false", "8", "2.25"],
    ["", "2021-07-21 12:00:01", "", "", ""],
    ["2021-08-30", "", "true", "19", "3.5"],
]


def test_cells_of_csv_files_look_as_before(run, tmp_path):
    path = tmp_path / "t.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["day", "time", "flag", "n", "x"], *CELLS * 8])
    code, _, told = run("fit", path, "--out", tmp_path / "m", "--missingness", *QUICK)
    assert code == 0
    assert "2021-05-01 … 2021-08-30" in told
    shapes = [datetime.date.fromisoformat, datetime.datetime.fromisoformat, ["true", "false"].index, int, float]
    for command in (
        ["sample", tmp_path / "m", "--gaps", "-n", 50],
        ["impute", tmp_path / "m", path],
        ["sample", tmp_path / "m", "--given", "day=2021-06-01..2021-06-30", "--given", "time=2021-07-21 12:00:01"],
    ):
        assert run(*command, "-o", tmp_path / "o.csv")[0] == 0
        with (tmp_path / "o.csv").open(newline="") as file:
            rows = list(csv.reader(file))[1:]
        for row in rows:
            for cell, shape in zip(row, shapes, strict=True):
                assert cell == "" or shape(cell) is not None
    assert all("2021-06-01" <= row[0] <= "2021-06-30" and row[1] == "2021-07-21 12:00:01" for row in rows)
    assert run("impute", tmp_path / "m", path, "-o", tmp_path / "o.parquet")[0] == 0
    assert pq.read_schema(tmp_path / "o.parquet").field("day").type == pa.date32()


def test_a_mistake_among_dates_is_named_with_its_line(run, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("day,x\n" + "".join(f"2021-01-{day:02},1\n" for day in range(1, 29)) + "2021-02-30,1\n")
    code, _, told = run("fit", path, "--out", tmp_path / "m", *QUICK)
    assert code != 0
    assert "line 30" in told
    assert "2021-02-30" in told
