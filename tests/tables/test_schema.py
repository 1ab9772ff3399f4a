# SPDX-License-Identifier: Apache-2.0
"""What the columns of a table are taken to be, and the way to numbers and back."""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import mixed_tables
import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import picirc as pc
from picirc.data.frames import read_frame
from picirc.inputs.continuous import LocationScale
from picirc.tables import Column
from picirc.tables.fitting import ColumnWarning

FIVE = [1.5, 2.5, 3.5, 4.5, 5.5]


@pytest.fixture(scope="module")
def penguins() -> Any:
    return mixed_tables.penguin_table()


@pytest.fixture(scope="module")
def mixed() -> dict[str, Any]:
    return mixed_tables.mixed_table()


def kinds(table: Any, columns: Any = None) -> list[str]:
    return [column.kind for column in pc.Schema.infer(table, columns).columns]


# What a column is


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (FIVE, "gaussian"),
        ([1.0, 2.0, 3.0] * 4, "gaussian"),  # floats, whole or not
        (np.array([1.0, 2.0, 3.0, math.nan] * 4), "categorical"),  # integers, but for the missing ones
        ([0.0, 1.0, None], "bernoulli"),
        ([0, 1, 1], "bernoulli"),
        ([True, None, False], "bernoulli"),
        ([True, True, True], "bernoulli"),
        ([1, 2] * 4, "categorical"),
        ([1, 2] * 3, "gaussian"),  # three rows for each
        (list(range(10)) * 4, "categorical"),
        (list(range(11)) * 4, "gaussian"),
        ([2**60, 2**60 + 512] * 9, "gaussian"),
        ([7] * 40, "gaussian"),
        (["a", "b", None], "categorical"),
        (["a"], "categorical"),
        ([None, None], "empty"),
        ([float("nan")] * 3, "empty"),
        ([Decimal("1.5"), Decimal("2")], "gaussian"),
        (np.array([1.5, 2.5], dtype=np.float16), "gaussian"),
        (np.array(["a", "b"]), "categorical"),
    ],
)
def test_columns_are_judged_by_their_values(values, kind):
    assert kinds({"x": values}) == [kind]


def test_the_kinds_of_real_tables(penguins):
    found = dict(zip(penguins.columns, kinds(penguins), strict=True))
    assert {name for name, kind in found.items() if kind == "categorical"} == {"species", "island", "sex", "year"}
    assert set(found.values()) == {"categorical", "gaussian"}
    assert kinds(pl.from_pandas(penguins)) == kinds(penguins)
    assert kinds(penguins.to_numpy(dtype=object))[:2] == ["categorical", "categorical"]


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (np.array([[0, 1], [1, 0], [0, 0]]), "bernoulli"),
        (np.array([[0.0, 1.0], [1.0, 0.0], [0.0, math.nan]]), "bernoulli"),
        (np.array([[0, 2], [1, 0]] * 10), "categorical"),
        (np.array([[0, 16], [1, 7]] * 10) + np.arange(20)[:, None] * [0, 1], "gaussian"),
        (np.array([[0, 0.5], [1, 0.25]] * 10), None),
    ],
)
def test_an_array_of_whole_numbers_is_judged_as_a_whole(array, kind):
    """Else a pixel that is 0 or 1 in all rows for training could not be 2 in another."""
    found = pc.Schema.infer(array)
    assert [column.kind for column in found.columns] == (["bernoulli", "gaussian"] if kind is None else [kind] * 2)
    if kind in ("bernoulli", "categorical"):
        first, second = found.columns
        assert first.categories == second.categories == tuple(np.unique(array[~np.isnan(array)]).astype(int).tolist())


@pytest.mark.parametrize(
    ("declared", "values", "family"),
    [
        ("student", FIVE, pc.StudentT(min_scale=0.3)),
        ("laplace", FIVE, pc.Laplace(min_scale=0.3)),
        ("gaussian", [0, 1, 1], pc.Gaussian(min_std=0.3)),
        (pc.Gaussian(min_std=0.01), FIVE, pc.Gaussian(min_std=0.01)),
        ("categorical", FIVE, pc.Categorical(5)),
        ("categorical", [0, 1], pc.Categorical(2)),
        (pc.Categorical(7), [0, 3], pc.Categorical(7)),
        ("bernoulli", ["no", "yes"], pc.Bernoulli()),
        ("bernoulli", [1, 1], pc.Bernoulli()),
        ("poisson", [0, 12, None], pc.Poisson()),
        ("binomial", [0, 12, None], pc.Binomial(12)),
        (pc.Binomial(20), [0, 12], pc.Binomial(20)),
        ("auto", ["a"], pc.Categorical(1)),
    ],
)
def test_a_declaration_decides(declared, values, family):
    schema = pc.Schema.infer({"x": values, "other": [0.5] * len(values)}, {"x": declared}, floor=0.3)
    assert schema["x"].family == family
    assert pc.Schema.infer({"x": values}, declared, floor=0.3)["x"].family == family


def test_columns_of_arrays_are_declared_by_number_or_name():
    array = np.arange(40.0).reshape(20, 2)
    for columns in ({1: "poisson"}, {-1: "poisson"}, {"x1": "poisson"}):
        assert kinds(array, columns) == ["gaussian", "poisson"]


def test_categories_that_a_table_declares_count_without_a_row():
    column = pd.Series(pd.Categorical(["b", "a", "b"], categories=["c", "b", "a"]))
    assert pc.Schema.infer(pd.DataFrame({"x": column}))["x"].categories == ("c", "b", "a")
    column = pl.Series(["b", "a"], dtype=pl.Enum(["c", "b", "a"]))
    assert pc.Schema.infer(pl.DataFrame({"x": column}))["x"].categories == ("c", "b", "a")
    assert pc.Schema.infer(pl.DataFrame({"x": pl.Series(["b", "a"], dtype=pl.Categorical)}))["x"].kind == "categorical"
    table = pc.data.Table(("x",), np.array([[1.0], [0.0]]), {"x": ("a", "b", "c")})
    assert pc.Schema.infer(table)["x"].categories == ("a", "b", "c")


# What is refused


@pytest.mark.parametrize(
    ("table", "columns", "words"),
    [
        ({"x": [1.0, math.inf]}, None, ["'x'", "inf in row 1", "NaN"]),
        ({"x": [10**400, 1]}, None, ["'x'", "inf in row 0"]),
        ({"x": [1, "a"]}, None, ["'x'", "'a' and 1", "turn the numbers into strings"]),
        (pl.DataFrame({"x": [datetime.timedelta(1)]}), None, ["durations"]),
        (pl.DataFrame({"x": [[1, 2]]}), None, ["'x'", "[1, 2]", "drop it"]),
        ({"x": [{"a": 1}]}, None, ["'x'", "type dict"]),
        ({"x": [1 + 2j]}, None, ["'x'", "complex"]),
        (np.ones((2, 2), complex), None, ["'x0'", "complex"]),
        ({"x": ["a", "b"]}, {"x": "gaussian"}, ["'x'", "strings", "'categorical'"]),
        ({"x": [1.5, 2.0]}, {"x": "poisson"}, ["'x'", "1.5 in row 0"]),
        ({"x": [1.5, 2.5]}, {"x": "binomial"}, ["'x'", "2.5", "gaussian"]),
        ({"x": [-1, 2]}, {"x": "binomial"}, ["'x'", "-1"]),
        ({"x": ["a", "b", "c"]}, {"x": "bernoulli"}, ["'x'", "2 different values", "categorical"]),
        ({"x": ["a", "b"]}, {"x": pc.Categorical(3)}, ["'x'", "3 different values"]),
        ({"x": [2**60, 1]}, {"x": "categorical"}, ["'x'", "2⁵³"]),
        ({"x": [1.0]}, {"y": "gaussian"}, ["columns", "among x", "'y'"]),
        ({"x": [1.0]}, {"x": "normal"}, ["columns['x']", "'gaussian'", "'normal'"]),
        ({"x": [1.0]}, {"x": pc.Gaussian}, ["columns['x']", "Gaussian(...)"]),
        ({"x": [1.0]}, ["gaussian"], ["columns", "a mapping"]),
        ({"x": [1.0], "y": [1.0, 2.0]}, None, ["equal length"]),
        ({"x": []}, None, ["no rows"]),
        ({}, None, ["no columns"]),
        (np.ones((3, 0)), None, ["no columns"]),
        (np.ones(3), None, ["(3,)", "reshape"]),
        ([[1], [1, 2]], None, ["equal length"]),
        ({"x": 1.0}, None, ["'x'", "lists"]),
        ({"x": np.ones((2, 2))}, None, ["'x'", "shape (2, 2)"]),
        ({1: [1.0], "1": [2.0]}, None, ["'1' twice"]),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), None, ["table", "a"]),
        (pl.DataFrame({"x": [1]}).lazy(), None, ["LazyFrame", "collect()"]),
        (3.0, None, ["a data frame", "float"]),
    ],
)
def test_what_cannot_be_a_table_is_refused_with_a_remedy(table, columns, words):
    with pytest.raises(pc.ArgumentError) as caught:
        pc.Schema.infer(table, columns)
    for word in words:
        assert word in str(caught.value)


def test_identifiers_are_left_out_unless_declared():
    texts = [f"name {i}" for i in range(101)]
    assert kinds({"x": texts}) == ["empty"]
    assert kinds({"x": texts[:30]}) == ["empty"]
    assert kinds({"x": texts[:5]}) == ["categorical"]
    assert "left out" in str(pc.Schema.infer({"x": texts}))
    assert kinds({"x": texts}, {"x": "categorical"}) == ["categorical"]
    assert kinds({"x": texts + texts[:1] * 200}) == ["categorical"]


def test_sparse_matrices_are_refused_with_a_remedy():
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(pc.ArgumentError, match=r"toarray\(\)"):
        pc.Schema.infer(sparse.csr_array(np.eye(2)))


def test_unseen_must_be_a_word():
    with pytest.raises(pc.ArgumentError, match="unseen: expected 'error' or 'missing'"):
        pc.Schema.infer({"x": FIVE}, unseen="ignore")


# Numbers, and back


def test_reals_are_standardised_robustly():
    values = np.r_[np.random.default_rng(0).normal(50, 4, 1000), [300, -200, 300]]
    (column,) = pc.Schema.infer({"x": values}, {"x": "gaussian"}).columns
    assert column.location == np.median(values)
    assert column.scale == pytest.approx(np.subtract(*np.quantile(values, [0.75, 0.25])) / 1.349)
    assert np.std(values) > 3 * column.scale
    np.testing.assert_allclose(column.decode(column.encode(cells(values))), values, rtol=1e-15)


@pytest.mark.parametrize(
    ("values", "location", "scale"),
    [
        ([3.0, 3.0], 3.0, 1.0),
        ([-5e9, -5e9], -5e9, 5e3),
        ([0.0] * 98 + [1.0, 3.0], 0.0, np.std([0.0] * 98 + [1.0, 3.0])),  # no distance between the quartiles
        ([1.0, 2.0, 3.0] * 5 + [1e300], 2.0, 1e298),  # nothing stands further than 100 from the centre
    ],
)
def test_the_spread_of_unusual_columns(values, location, scale):
    (column,) = pc.Schema.infer({"x": values}, "gaussian").columns
    assert column.location == pytest.approx(location)
    assert column.scale == pytest.approx(scale)


@given(
    hnp.arrays(np.float64, st.integers(1, 30), elements=st.floats(allow_nan=False, allow_infinity=False, width=64)),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_standardised_values_are_within_bounds_whatever_they_were(values, other):
    (column,) = pc.Schema.infer({"x": values}, "gaussian").columns
    assert math.isfinite(column.location)
    assert 0 < column.scale < math.inf
    found = column.encode(cells(values))
    assert np.abs(found).max() <= 101
    assert np.abs(column.encode(cells(np.array([other, math.nan])))[0]) <= 1e12
    back = column.decode(found)
    assert np.isfinite(back).all()
    np.testing.assert_allclose(back, values, rtol=1e-9, atol=1e-9 * column.scale)
    order = np.argsort(values, kind="stable")
    assert (np.diff(found[order]) >= 0).all()


@pytest.mark.parametrize("extreme", [1.7e308, -1.7e308, 1e300, 3e38])
def test_huge_values_are_numbers_like_others(extreme):
    schema = pc.Schema.infer({"x": [extreme, 0.0, -extreme, 1.0]}, "gaussian")
    found = schema.encode({"x": [extreme, None, -extreme]})[:, 0]
    assert np.isfinite(found[[0, 2]]).all()
    assert math.isnan(found[1])
    assert found[0] == pytest.approx(-found[2])
    np.testing.assert_allclose(schema.decode(found[:, None])["x"][[0, 2]], [extreme, -extreme])
    assert math.isfinite(schema.decode([[1e12]])["x"][0])


def cells(values: Any) -> Any:
    return read_frame({"x": values}).cells("x")


def frame_of(kind: str, columns: dict[str, Any]) -> Any:
    """The same table as another kind."""
    lists = {name: list(values) for name, values in columns.items()}
    if kind == "pandas":
        return pd.DataFrame(lists)
    if kind == "polars":
        return pl.DataFrame({name: [None if v is None else v for v in values] for name, values in lists.items()})
    if kind == "pyarrow":
        return frame_of("polars", columns).to_arrow()
    if kind == "numpy":
        array = np.empty((len(lists["real"]), len(lists)), dtype=object)
        for place, values in enumerate(lists.values()):
            array[:, place] = values
        return array
    return lists


KINDS = ["mapping", "pandas", "polars", "pyarrow", "numpy"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_table_has_the_same_numbers(kind, mixed):
    expected = pc.Schema.infer(mixed, {"count": "poisson"})
    table = frame_of(kind, mixed)
    places = {name: place for place, name in enumerate(mixed)}
    schema = pc.Schema.infer(table, {places["count"] if kind == "numpy" else "count": "poisson"})
    assert schema.container == kind
    assert [c.kind for c in schema.columns] == [c.kind for c in expected.columns]
    np.testing.assert_array_equal(schema.encode(table), expected.encode(mixed))
    np.testing.assert_array_equal(
        expected.encode(table), schema.encode(mixed) if kind != "numpy" else schema.encode(table)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_undoes_encoding(kind, mixed):
    schema = pc.Schema.infer(mixed, {"count": "poisson"})
    like = frame_of(kind, mixed)
    codes = schema.encode(mixed)
    back = schema.decode(codes, like)
    assert type(back) is type(like) or kind == "mapping"
    np.testing.assert_array_equal(
        schema.encode(back if kind != "numpy" else dict(zip(mixed, back.T, strict=True))), codes
    )
    whole = schema.decode(codes[~np.isnan(codes).any(1)])
    assert {name: whole[name].dtype.kind for name in mixed} == {
        "real": "f", "text": "O", "flag": "b", "count": "i", "level": "i",
    }  # fmt: skip


def test_decoding_rounds_whole_numbers():
    schema = pc.Schema.infer({"x": list(range(100)), "y": [0.5] * 100})
    assert schema.decode([[0.01, 0.01]])["x"].tolist() == [round(49.5 + 0.01 * schema["x"].scale)]
    with pytest.raises(pc.ArgumentError, match=r"shape \(rows, 2\)"):
        schema.decode([[1.0]])


def test_decoding_refuses_codes_without_a_category():
    schema = pc.Schema.infer({"x": ["a", "b"]})
    for code in (2.0, -1.0, 0.5):
        with pytest.raises(pc.ArgumentError, match="codes from 0 to 1"):
            schema.decode([[code]])


def test_columns_of_frames_are_found_by_name_and_those_of_arrays_by_place():
    schema = pc.Schema.infer(pd.DataFrame({"a": FIVE, "b": ["x", "y", "x", "y", "x"]}))
    swapped = pl.DataFrame({"b": ["y"], "a": [3.5]})
    np.testing.assert_array_equal(schema.encode(swapped), [[0.0, 1.0]])
    np.testing.assert_array_equal(schema.encode(np.array([[3.5, "y"]], dtype=object)), [[0.0, 1.0]])
    np.testing.assert_array_equal(schema.encode([[3.5, "y"]]), [[0.0, 1.0]])
    np.testing.assert_array_equal(schema.encode({"a": [3.5]}, absent=["b"]), [[0.0, math.nan]])
    np.testing.assert_array_equal(schema.encode(np.array([[3.5]]), absent=["b"]), [[0.0, math.nan]])
    with pytest.raises(pc.ArgumentError, match="no b; add them with missing values"):
        schema.encode({"a": [3.5]})
    with pytest.raises(pc.ArgumentError, match="also c; drop columns"):
        schema.encode({"a": [3.5], "b": ["x"], "c": [1]})
    with pytest.raises(pc.ArgumentError, match=r"2 columns \(a, b\), got 3"):
        schema.encode(np.ones((1, 3)))


def test_frames_with_numbers_for_names():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(9, 2)), index=[5] * 9)
    schema = pc.Schema.infer(frame, {1: "student"})
    assert schema.names == ("0", "1")
    assert schema["1"].kind == "student"
    back = schema.decode(schema.encode(frame), frame)
    assert list(back.columns) == [0, 1]


def test_masked_arrays_and_tensors_are_tables():
    masked = np.ma.masked_array([[1, 2], [3, 4]], [[False, True], [False, False]])
    schema = pc.Schema.infer(masked, "gaussian")
    np.testing.assert_array_equal(np.isnan(schema.encode(masked)), [[False, True], [False, False]])
    np.testing.assert_array_equal(
        schema.encode(torch.tensor([[1.0, math.nan]])), schema.encode(np.array([[1.0, math.nan]]))
    )


def test_every_way_to_write_a_missing_value():
    cells = [None, float("nan"), np.nan, pd.NA, pd.NaT]
    for present in ("a", 1.5, True):
        schema = pc.Schema.infer({"x": np.array([*cells, present, present], dtype=object)})
        assert schema["x"].missing == 5
    frame = pl.DataFrame({"x": [1.0, None, math.nan]})
    assert pc.Schema.infer(frame)["x"].missing == 2
    frame = pd.DataFrame({"x": pd.array([1, None, 3], dtype="Int64"), "y": pd.array([True, None, False])})
    assert [column.missing for column in pc.Schema.infer(frame).columns] == [1, 1]


# The unusual


def test_a_category_that_was_not_there_is_an_error_with_a_remedy():
    schema = pc.Schema.infer({"x": ["a", "b"], "n": [1, 2]}, {"n": "categorical"})
    with pytest.raises(pc.ArgumentError, match=r"column 'x'.*\(a, b\), got 'c' in row 1; fit with unseen='missing'"):
        schema.encode({"x": ["a", "c"], "n": [1, 2]})
    with pytest.raises(pc.ArgumentError, match=r"got 3 in row 0.*'gaussian'"):
        schema.encode({"x": ["a"], "n": [3]})
    with pytest.raises(pc.ArgumentError, match="numbers, as when the model was fitted, got strings"):
        schema.encode({"x": ["a"], "n": ["1"]})


def test_a_category_that_was_not_there_may_count_as_missing():
    schema = pc.Schema.infer({"x": ["a", "b"], "n": [True, False]}, unseen="missing")
    np.testing.assert_array_equal(schema.encode({"x": ["c", "b"], "n": [2, 1]}), [[math.nan, math.nan], [1.0, 1.0]])


def test_truth_values_may_come_back_as_numbers():
    schema = pc.Schema.infer({"x": [True, False]})
    np.testing.assert_array_equal(schema.encode({"x": [0.0, 1.0, math.nan]})[:, 0], [0.0, 1.0, math.nan])
    assert schema.decode([[0.0], [1.0]])["x"].tolist() == [False, True]


def test_an_empty_column_says_nothing():
    schema = pc.Schema.infer({"x": [None, None], "y": [1.0, 2.5]})
    assert schema["x"].kind == "empty"
    np.testing.assert_array_equal(schema.encode({"x": ["new", 2][:1], "y": [1.0]})[:, 0], [math.nan])
    assert np.isnan(schema.decode([[0.0, 0.0]])["x"]).all()


# Printing


def test_a_schema_prints_its_columns(penguins):
    assert str(pc.Schema.infer(penguins)).splitlines()[:5] == [
        "344 rows, 8 columns",
        "name               type             values                     missing",
        "species            categorical (3)  Adelie, Chinstrap, Gentoo",
        "island             categorical (3)  Biscoe, Dream, Torgersen",
        "bill_length_mm     gaussian         32.1 … 59.6                      2",
    ]
    assert repr(pc.Schema.infer(penguins)) == "Schema(4 categorical, 4 gaussian)"


def test_what_a_terminal_would_obey_is_shown_as_text():
    nasty = "\x1b[2Jname\n" + "x" * 100
    shown = str(pc.Schema.infer({nasty: [nasty, nasty]}))
    assert "\x1b" not in shown
    assert len(shown.splitlines()) == 3
    assert max(map(len, shown.splitlines())) < 120


# JSON


@dataclass(frozen=True, repr=False)
class Own(LocationScale):
    """A family of one's own, of which only the name and the fields matter here."""

    weight: float = 1.0

    _floor = 0.1
    _log_density = _log_cdf = _noise = _statistics = None  # type: ignore[assignment]

    def variance(self, params: torch.Tensor) -> torch.Tensor:
        return params[..., 1]


def test_a_schema_comes_back_from_json(mixed):
    import json

    own = Own(weight=2.0)  # type: ignore[abstract]
    schema = pc.Schema.infer(mixed | {"own": [1.0] * 60, "none": [None] * 60}, {"count": "poisson", "own": own})
    value = json.loads(json.dumps(schema.to_json(), allow_nan=False))
    assert pc.Schema.from_json(value, families=[Own]) == schema
    with pytest.raises(pc.ArgumentError, match="Own"):
        pc.Schema.from_json(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@given(JSON)
def test_nonsense_is_no_schema(value):
    with pytest.raises(pc.ArgumentError):
        pc.Schema.from_json(value)


@given(st.data())
def test_a_changed_entry_is_refused_or_still_a_schema(data):
    """Whatever stands in one place of a schema, there is an ArgumentError or a schema that works."""
    schema = pc.Schema.infer({"a": ["x", "y", "x"], "b": FIVE[:3], "c": [True, False, True]})
    value = schema.to_json()
    place: Any = value
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    if data.draw(st.booleans()) and isinstance(place, dict):
        del place[key]
    else:
        place[key] = data.draw(JSON)
    try:
        found = pc.Schema.from_json(value)
    except pc.ArgumentError:
        return
    assert str(found)
    assert all(isinstance(column, Column) for column in found.columns)
    codes = np.zeros((2, len(found.columns)))
    back = found.encode(found.decode(codes, like={"x": [1]}))
    assert back.shape == codes.shape


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["5.1.2024", "11.12.2023"], "dates such as '5.1.2024'; turn them into dates"),
        (["2024-01-05T10:00:00Z", "2024-01-06 11:00"], "dates"),
        (["10:30", "9:45:10"], "times"),
        (["37%", "4.5 %"], "percentages such as '37%'; remove the signs"),
        (["1,234", "12,345.5"], "thousands separators"),
        (["1,234", "999"], "thousands separators such as '1,234'; remove the commas"),
        (["1,5", "12"], "decimal commas such as '1,5'"),
        (["37%", "4"], "percentages"),
        (["$1.50", "€ 12,000.00", "3 £"], "amounts of money"),
        (["1,5", "12,25"], "decimal commas"),
    ],
)
def test_numbers_and_dates_in_disguise_are_named(cells, words, tmp_path):
    table = {"x": cells * 4}
    with pytest.raises(pc.ArgumentError, match=words):
        pc.Schema.infer(table)
    path = tmp_path / "t.csv"
    path.write_text("x;y\n" + "".join(f"{cell};1\n" for cell in table["x"]))
    with pytest.raises(pc.ArgumentError, match=words):
        pc.Schema.infer(pc.data.tables.read_file(path, delimiter=";"))
    assert pc.Schema.infer(table, "categorical")["x"].kind == "categorical"


def test_a_stray_value_does_not_make_a_code_a_quantity():
    codes = np.tile([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 50)
    codes[17] = 2.116
    assert pc.Schema.infer({"x": codes})["x"].kind == "categorical"
    codes[:40] += 0.5
    assert pc.Schema.infer({"x": codes})["x"].kind != "categorical"


def test_columns_that_say_nothing_are_named():
    table = {"id": np.arange(120), "same": ["a"] * 120, "x": np.random.default_rng(0).normal(size=120)}
    with pytest.warns(UserWarning, match="column 'id' counts the rows; column 'same' is constant"):
        pc.fit_table(table, steps=1, points=2, width=2)


@pytest.mark.parametrize("stray", [2.116, 99])
def test_one_stray_value_does_not_change_the_type_of_a_code(stray):
    codes = [*([1, 2, 3, 4, 5, 6, 7, 8, 9, 10] * 30), stray]
    assert kinds({"x": np.array(codes)}) == ["categorical"]
    assert kinds({"x": codes}) == ["categorical"]


def test_columns_that_do_not_help_are_named():
    rng = np.random.default_rng(5)
    rows = {
        "name": [f"person {i}" for i in range(120)],
        "one": [1.0] * 120,
        "number": rng.permutation(120),
        "level": np.where(rng.random(120) < 0.2, -999.0, rng.normal(50, 10, 120)),
        "value": rng.normal(size=120),
    }
    with pytest.warns(ColumnWarning) as caught:
        model = pc.fit_table(rows, points=4, width=4, steps=2, settings={"members": 1})
    unhelpful, far = (str(warning.message) for warning in caught)
    assert "'name' has 120 different strings in 120 rows, such as 'person 0', and is left out" in unhelpful
    assert "'one' is constant" in unhelpful
    assert "'number' counts the rows" in unhelpful
    assert "'value'" not in unhelpful + far
    assert "'level' has -999 in " in far
    assert "'number'" not in far
    drawn = model.sample(3, seed=0)
    assert drawn["name"].tolist() == [None] * 3
    assert model.impute({**rows, "value": [None] * 120})["name"] == rows["name"]
    np.testing.assert_array_equal(model.log_density(rows), model.log_density({**rows, "name": ["x"] * 120}))


def test_a_few_values_are_categories_whatever_they_are():
    rates = np.array([1.8, 2.0, 3.1, 3.2, 10.6] * 120 + [3.77])
    column = pc.Schema.infer({"rate": rates})["rate"]
    assert column.kind == "categorical"
    assert column.ordered
    assert pc.Schema.infer({"rate": rates[:400]})["rate"].kind != "categorical"
    assert pc.Schema.infer({"rate": np.full(500, 2.5)})["rate"].kind == "gaussian"
    drawn = pc.fit_table({"rate": rates}, settings={"kind": "mixture", "states": 1}).sample(50, seed=0)
    assert set(drawn["rate"]) <= set(rates)


@pytest.mark.parametrize(
    ("values", "rows", "kind"), [(16, 1600, "categorical"), (16, 1599, "other"), (21, 9000, "other")]
)
def test_integers_with_many_rows_for_each_value_are_categories(values, rows, kind):
    column = pc.Schema.infer({"grade": np.arange(rows) % values})["grade"]
    assert (column.kind == "categorical") == (kind == "categorical")
    assert column.ordered


@pytest.mark.parametrize(
    ("values", "step"),
    [
        (np.arange(300) % 40 * 10_000, 10_000.0),
        (np.arange(300) % 40 * 0.1 + 0.3, 0.1),
        (np.array([0, 4, 10] * 100 + list(range(20, 100, 2)) * 3), 2.0),  # the least gap
        (np.array([0, 4, 10, 16, 26, 36, 42, 52, 62, 68, 78] * 50) + 0.5, 2.0),  # half of it
        (np.arange(300) % 150 * 1.0, 1.0),
        (np.arange(300) * 1.0, 1.0),  # values that are not repeated, but whole numbers
        (np.arange(300) * 0.25, 0.01),
        (np.arange(300) / 3, 0.0),
        ((np.arange(900) % 300 / 9).round(6), 1 / 9),  # gaps of 0.111111 and 0.111112
        (np.r_[np.arange(600) % 40 * 10_000, 327_680], 10_000.0),  # a stray value
        (np.random.default_rng(0).normal(size=50).repeat(4), 0.0),
        (np.array([1e308, -1e308, 0.0, 5.0] * 50), 0.0),
    ],
)
def test_the_step_of_values_that_are_repeated(values, step):
    column = pc.Schema.infer({"a": values}, {"a": "gaussian"})["a"]
    assert column.step == pytest.approx(step)
    assert Column.from_json(column.to_json()) == column


def test_draws_are_multiples_of_the_step():
    source = np.random.default_rng(3)
    table = {"limit": source.poisson(8, 400) * 500, "rate": np.round(source.gamma(3.0, 1.0, 400), 1)}
    model = pc.fit_table(table, settings={"kind": "mixture", "states": 2, "em_steps": 5})
    drawn = model.sample(500, seed=0)
    assert (drawn["limit"] % 500 == 0).all()
    assert np.array_equal(drawn["rate"], np.round(drawn["rate"], 1))
    filled = model.impute({"limit": [None] * 20, "rate": [None] * 20}, "sample", seed=0)
    assert all(value % 500 == 0 for value in filled["limit"])
    mean = model.impute({"limit": [None], "rate": [None]})["limit"][0]
    assert mean % 500 != 0  # a mean is no draw


def test_draws_have_as_many_digits_as_the_values_seen():
    source = np.random.default_rng(4)
    raw = source.normal(3000, 1000, 60)
    table = {"days": np.round(raw), "price": np.round(raw / 7, 2), "weight": raw / 3}  # hardly any value is repeated
    schema = pc.Schema.infer(table)
    assert [column.step for column in schema.columns] == [1.0, 0.01, 0.0]
    drawn = pc.fit_table(table, settings={"kind": "mixture", "states": 1, "em_steps": 2}).sample(50, seed=0)
    assert np.array_equal(drawn["days"], np.rint(drawn["days"]))
    assert np.array_equal(drawn["price"], np.round(drawn["price"], 2))
    assert not np.array_equal(drawn["weight"], np.round(drawn["weight"], 3))


def test_values_to_fill_in_are_given_for_every_column():
    schema = pc.Schema.infer({"a": np.arange(30.0), "b": np.arange(30.0) ** 2})
    table = {"a": [1.0, None], "b": [None, 4.0]}
    values = {"a": np.array([7.0, 8.0]), "b": np.array([9.0, 10.0])}
    assert schema.fill(table, values) == {"a": [1.0, 8.0], "b": [9.0, 4.0]}
    with pytest.raises(pc.ArgumentError, match=r"values: .*none of b"):
        schema.fill(table, {"a": values["a"]})


def sizes_of_disks(rows: int = 600) -> np.ndarray:
    """Whole numbers, few of which occur."""
    sizes = np.array([80, 107, 120, 170, 212, 245, 340, 426, 528, 720, 850, 1000, 1200, 1600, 2100])
    return np.concatenate([sizes, np.random.default_rng(0).choice(sizes, rows - len(sizes))])


@pytest.mark.parametrize("values", [sizes_of_disks(), sizes_of_disks() / 7])
def test_draws_are_values_seen_if_these_are_few(tmp_path, values):
    rng = np.random.default_rng(1)
    table = {"disk": values, "price": 100 + values + rng.normal(0, 20, len(values))}
    model = pc.fit_table(table, {"disk": "scores"}, settings={"kind": "mixture", "states": 4, "em_steps": 5})
    levels = np.unique(values)
    assert model.schema["disk"].levels == tuple(levels)
    assert model.schema["price"].levels == ()
    model.save(tmp_path / "model")
    drawn = pc.TableModel.load(tmp_path / "model").sample(500, seed=0)["disk"]
    assert np.isin(drawn, levels).all()
    assert drawn.dtype == values.dtype
    inside = model.sample(100, seed=0, given={"disk": pc.between(levels[3] + 1, levels[4] - 1)})["disk"]
    assert ((inside > levels[3]) & (inside < levels[4])).all()  # what is asked for counts more
    assert not np.isin(model.sample(500, seed=0, beyond=True)["disk"], levels).all()


def test_values_that_fill_their_range_have_no_levels():
    ages = np.random.default_rng(0).integers(18, 60, 900)
    assert pc.Schema.infer({"age": ages}, {"age": "gaussian"})["age"].levels == ()


def test_levels_of_a_file_ascend():
    column = pc.Schema.infer({"disk": sizes_of_disks()}, {"disk": "scores"})["disk"]
    entry = column.to_json()
    assert type(column).from_json(entry) == column
    with pytest.raises(pc.ArgumentError, match="levels"):
        type(column).from_json(entry | {"levels": [2.0, 1.0]})
