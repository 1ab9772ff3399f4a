# SPDX-License-Identifier: Apache-2.0
"""Dates and times are numbers of days in the model, and dates and times in tables."""

from __future__ import annotations

import datetime
import math
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import picirc as pc
from picirc.data.frames import days_of, is_iso, moments_of, objects_of, read_dates, read_frame
from picirc.tables import Schema

ROWS = 60
QUICK: dict[str, Any] = {"points": 4, "width": 4, "steps": 3, "settings": {"members": 1}}
START = np.datetime64("2021-03-01")


def days() -> Any:
    """Whole days; every eighth is missing."""
    found = START + np.random.default_rng(0).integers(0, 200, ROWS).astype("timedelta64[D]")
    found[::8] = np.datetime64("NaT")
    return found


def times() -> Any:
    """Whole seconds, none missing but the third."""
    found = START.astype("datetime64[s]") + np.random.default_rng(1).integers(0, 10**7, ROWS).astype("timedelta64[s]")
    found[3] = np.datetime64("NaT")
    return found


def value() -> Any:
    return np.random.default_rng(2).normal(size=ROWS)


def pandas_table() -> Any:
    zoned = pd.Series(times()).dt.tz_localize("UTC").dt.tz_convert("Europe/Paris")
    plain = pd.Series([None if pd.isna(day) else day.date() for day in pd.Series(days())], dtype=object)
    frame = {"day": pd.Series(days()).astype("datetime64[ns]"), "time": times(), "zoned": zoned, "date": plain}
    return pd.DataFrame({**frame, "x": value()})


def polars_table() -> Any:
    frame = pl.DataFrame({"day": days(), "time": times().astype("datetime64[us]"), "x": value()})
    zoned = pl.col("time").dt.replace_time_zone("UTC").dt.convert_time_zone("Asia/Tokyo").alias("zoned")
    return frame.with_columns(zoned)


def arrow_table() -> Any:
    return pa.table(
        {
            "day": pa.array(days(), pa.date32()),
            "time": pa.array(times(), pa.timestamp("ms")),
            "zoned": pa.array(times(), pa.timestamp("us", "America/New_York")),
            "x": value(),
        }
    )


def mapping_table() -> Any:
    zone = ZoneInfo("Europe/Paris")
    zoned = [None if t is None else t.replace(tzinfo=zone) for t in times().astype("datetime64[us]").tolist()]
    return {"day": days().tolist(), "time": times(), "zoned": zoned, "x": value()}


def types_of(table: Any) -> Any:
    if isinstance(table, pd.DataFrame):
        return table.dtypes.to_dict()
    return table.schema


TABLES = {"pandas": pandas_table, "polars": polars_table, "pyarrow": arrow_table}


@pytest.mark.parametrize("name", TABLES)
def test_types_and_values_come_back(name, tmp_path):
    table = TABLES[name]()
    model = pc.fit_table(table, **QUICK)
    model.save(tmp_path / "m")
    for each in (model, pc.TableModel.load(tmp_path / "m")):
        drawn = each.sample(20, seed=0)
        assert types_of(drawn) == types_of(table)
        filled = each.impute(table)
        assert types_of(filled) == types_of(table)
    drawn, before, after = (read_frame(t) for t in (drawn, table, filled))
    for column in ("day", "time", "zoned"):
        seen, found = before.cells(column), after.cells(column)
        np.testing.assert_array_equal(seen.values[~seen.missing], found.values[~seen.missing])
        assert not found.missing.any()
        low, high = np.nanmin(seen.values), np.nanmax(seen.values)
        own = drawn.cells(column).values
        assert low <= own.min()
        assert own.max() <= high
        whole = own if column == "day" else own * 86_400
        np.testing.assert_allclose(whole, np.rint(whole), atol=1e-5)


def test_lists_and_arrays_have_dates():
    table = mapping_table()
    model = pc.fit_table(table, **QUICK)
    filled = model.impute(table)
    assert all(isinstance(day, datetime.date) for day in filled["day"])
    assert filled["time"].dtype == table["time"].dtype
    assert filled["zoned"][3].tzinfo == ZoneInfo("Europe/Paris")
    drawn = model.sample(5, seed=0)
    assert drawn["day"].dtype == "datetime64[D]"
    array = np.stack([days(), days()], 1)
    assert pc.fit_table(array, **QUICK).sample(3, seed=0).dtype == "datetime64[D]"


def test_answers_are_dates():
    model = pc.fit_table(pandas_table(), **QUICK)
    rows = pandas_table().head(3)
    mean = model.predict(rows, "day")
    assert mean.dtype == "datetime64[D]"
    low, high = model.quantiles(rows, "time", [0.1, 0.9]).T
    assert (low < high).all()
    assert START - 300 < mean.min() < START + 500
    first = model.explain(rows.iloc[1])[0]
    assert set(first) >= {"column", "value", "expected"}
    assert "2021-03-" in str(model.schema)


def test_ranges_of_dates_are_evidence():
    model = pc.fit_table(pandas_table(), **QUICK)
    june = pc.between("2021-06-01", datetime.date(2021, 6, 30))
    drawn = model.sample(50, given={"day": june, "time": june}, seed=0)
    assert drawn["day"].between("2021-06-01", "2021-06-30").all()
    assert drawn["time"].between("2021-06-01", "2021-06-30 23:59:59").all()
    parts = [(None, "2021-05-31"), ("2021-06-01", "2021-06-30"), ("2021-07-01", None)]
    for column in ("day", "time"):
        total = sum(model.probability({column: pc.between(*part)}) for part in parts)
        assert total == pytest.approx(1.0, abs=1e-6)
    one = model.probability({"day": "2021-06-10"})
    assert one == pytest.approx(model.probability({"day": pc.one_of([datetime.date(2021, 6, 10)])}))
    assert 0 < one < 0.1
    assert (model.sample(3, given={"day": "2021-06-10"}, seed=0)["day"] == pd.Timestamp("2021-06-10")).all()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda model: model.sample(1, {"day": 5.0}), "dates, as when the model was fitted"),
        (lambda model: model.sample(1, {"day": pc.between(5, None)}), "a date for pc.between"),
        (lambda model: model.sample(1, {"x": pc.between("2021-01-01", None)}), "a number for pc.between"),
        (lambda model: model.sample(1, {"x": datetime.date(2021, 1, 1)}), "numbers, as when the model was fitted"),
        (lambda model: model.sample(1, {"day": "soon"}), "'day'.*dates"),
        (lambda model: model.sample(1, {"day": pc.between("2021-02-01", datetime.date(2021, 1, 1))}), "low end"),
    ],
)
def test_what_is_no_date_is_refused(call, words):
    model = pc.fit_table({"day": days(), "x": value()}, **QUICK)
    with pytest.raises(pc.ArgumentError, match=words):
        call(model)


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ([datetime.time(10), None], "times or durations"),
        ([datetime.timedelta(1)], "times or durations"),
        ([datetime.date(2020, 1, 1), 5], "values of one type"),
        ([datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), datetime.datetime(2020, 1, 1)], "with a zone"),
    ],
)
def test_other_columns_are_refused(cells, words):
    with pytest.raises(pc.ArgumentError, match=words):
        Schema.infer({"x": cells})
    with pytest.raises(pc.ArgumentError, match="turn them into strings"):
        Schema.infer({"x": days()}, {"x": "categorical"})


def test_numbers_and_dates_are_the_same_moment():
    moments = np.array(["1999-12-31T23:59:59.999999", "2024-02-29", "NaT"], "datetime64[us]")
    found = moments_of(days_of(moments), "datetime")
    np.testing.assert_array_equal(found, moments)
    assert math.isnan(days_of(moments)[2])
    read, calendar = read_dates(["2024-07-01T12:00:00+02:00", None])
    assert read[0] == (datetime.date(2024, 7, 1) - datetime.date(1970, 1, 1)).days + 10 / 24
    assert calendar == "datetime[us, UTC]"
    assert objects_of(moments_of(read, "datetime"), calendar)[0].isoformat() == "2024-07-01T10:00:00+00:00"
    assert [is_iso(text) for text in ("2024-02-30", "2024-2-3", "2024-02-03 10:00", "2024")] == [
        False,
        False,
        True,
        False,
    ]


def test_a_damaged_calendar_is_refused():
    description = Schema.infer({"day": days()}).to_json()
    description["columns"][0]["native"] = "datetime[us, " + "x" * 60 + "]"
    with pytest.raises(pc.ArgumentError, match="native"):
        Schema.from_json(description)


def test_columns_that_are_added_have_their_types():
    table = pandas_table()
    filled = pc.fit_table(table, **QUICK).impute(table[["x"]].set_index(table.index + 5))
    assert filled.dtypes.to_dict() == {name: table.dtypes[name] for name in filled}
    assert filled.index.tolist() == (table.index + 5).tolist()
    assert not filled.isna().any(axis=None)


def test_a_mapping_of_single_values_is_a_row():
    model = pc.fit_table(pandas_table(), **QUICK)
    several, one = {"x": [0.5], "day": ["2021-05-01"]}, {"x": 0.5, "day": "2021-05-01"}
    series = pd.Series({"x": 0.5, "day": pd.Timestamp("2021-05-01")})
    for row in (one, series):
        np.testing.assert_array_equal(model.log_density(row), model.log_density(several))
        np.testing.assert_array_equal(model.predict(row, "time"), model.predict(several, "time"))
    assert len(model.impute(one)["time"]) == 1
