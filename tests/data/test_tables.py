# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import gzip
import io
import sys

import numpy as np
import pytest
from data_files import write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from picirc import data
from picirc.data import datasets, tables
from picirc.errors import ArgumentError

NAN = float("nan")


def csv_file(folder, text: str, name: str = "table.csv"):
    return write(folder / name, text.encode())


def test_numbers_and_missing_values(tmp_path):
    path = csv_file(tmp_path, 'a, "b, c",d\n1,2.5,-3e2\n,NA, ? \nnan,0,"7"\n')
    table = data.read(path)
    assert table.columns == ("a", "b, c", "d")
    np.testing.assert_array_equal(table.values, [[1, 2.5, -300], [NAN, NAN, NAN], [NAN, 0, 7]])
    assert table.levels == {}


def test_declared_columns_are_coded(tmp_path):
    path = csv_file(tmp_path, "pet,age\ndog,3\ncat,4\n,5\ndog,NA\n")
    table = data.read(path, categorical=["pet"])
    np.testing.assert_array_equal(table.values, [[1, 3], [0, 4], [NAN, 5], [1, NAN]])
    assert table.levels == {"pet": ("cat", "dog")}


def test_levels_of_the_training_table_hold_for_the_test_table(tmp_path):
    train = data.read(csv_file(tmp_path, "pet\ndog\ncat\nant\n"), categorical={"pet"})
    test = csv_file(tmp_path, "pet\ndog\n\ncat\n", "test.csv")
    np.testing.assert_array_equal(data.read(test, categorical=train.levels).values, [[2], [1]])
    test = csv_file(tmp_path, "pet\ndog\n\ncow\n", "test.csv")
    with pytest.raises(ArgumentError, match=r"test\.csv, line 4: expected a known level of column pet .*, got cow"):
        data.read(test, categorical=train.levels)


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_line_ends_and_byte_order_marks(tmp_path, ending, start):
    path = csv_file(tmp_path, start + ending.join(["a,b", "1,2", "", "3,4", ""]))
    table = data.read_csv(path)
    assert table.columns == ("a", "b")
    np.testing.assert_array_equal(table.values, [[1, 2], [3, 4]])


def test_options(tmp_path):
    path = csv_file(tmp_path, "1;-\n2;x\n")
    table = data.read_csv(path, ["x1"], header=False, delimiter=";", missing={"-"})
    assert table.columns == ("x0", "x1")
    np.testing.assert_array_equal(table.values, [[1, NAN], [2, 0]])


def test_a_packed_file(tmp_path):
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress(b"a\n1\n"))
    assert data.read(path).values.tolist() == [[1.0]]
    path.write_bytes(gzip.compress(b"a\n1\n")[:-6])
    with pytest.raises(ArgumentError, match="corrupted"):
        data.read(str(path))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n1\n", "line 3: expected 2 cells, as in line 1, got 1"),
        ("a,b\n1,2\n\n1,2,3\n", "line 4: expected 2 cells, as in line 1, got 3"),
        ("a;b\n1,5;2,5\n", "line 2: expected 1 cells, as in line 1, got 3; set the delimiter to ';'"),
        ("a,b\n1,2\n1,two\n", r"line 3: expected a finite number in column b, got two; .*categorical=\['b'\]"),
        ("a,b\n1,1.2.3\n", "line 2: expected a finite number in column b"),
        ("a,b\n1,inf\n", "line 2: expected a finite number in column b, got inf"),
        ("a,b\n1,-nan\n", "line 2: expected a finite number in column b, got -nan"),
        ("a,b\n1,1_000\n", "line 2: expected a finite number in column b, got 1_000"),
        ('a,b\n1,"2\n', "line 2: expected a row of a CSV file"),
        ('a,b\n1,"2"3\n', "line 2: expected a row of a CSV file"),
        ("a,a\n1,2\n", "unique name for every column, got 'a' twice"),
        ("a,\n1,2\n", "unique name for every column, got none for column 1"),
        ("a,b\n", "at least one row, got a header alone"),
        ("", "expected a CSV file, got an empty one"),
        ("\n\n", "expected a CSV file, got an empty one"),
    ],
)
def test_a_malformed_file_is_an_error_with_its_place(tmp_path, text, words):
    path = csv_file(tmp_path, text)
    with pytest.raises(ArgumentError, match=words) as caught:
        data.read(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("categorical", "words"),
    [
        ("pet", r"write \['pet'\]"),
        (["cat"], "names among pet, age, got cat"),
        ({"pet": ["dog", "dog"]}, "distinct levels for column pet"),
        ({"pet": []}, "distinct levels for column pet"),
    ],
)
def test_wrong_declarations(tmp_path, categorical, words):
    path = csv_file(tmp_path, "pet,age\ndog,1\n")
    with pytest.raises(ArgumentError, match=words):
        data.read(path, categorical)


def test_a_categorical_column_without_any_value_is_an_error(tmp_path):
    with pytest.raises(ArgumentError, match="distinct levels for column pet, at least one"):
        data.read(csv_file(tmp_path, "pet,age\n,1\n"), ["pet"])


def test_other_wrong_arguments(tmp_path):
    path = csv_file(tmp_path, "a\n1\n")
    with pytest.raises(ArgumentError, match="delimiter"):
        data.read_csv(path, delimiter="||")
    with pytest.raises(ArgumentError, match=r"\.parquet"):
        data.read(tmp_path / "table.xlsx")
    with pytest.raises(ArgumentError, match="none there"):
        data.read(tmp_path / "nowhere.csv")


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.tuples(
            st.none() | st.floats(allow_nan=False, allow_infinity=False),
            st.none() | st.text("ab \"',;\n\té", min_size=1).filter(lambda text: text.strip()),
        ),
        min_size=1,
    ).filter(lambda rows: any(text is not None for _, text in rows))
)
def test_what_the_standard_library_writes_is_read_back(tmp_path, rows):
    stream = io.StringIO(newline="")
    writer = csv.writer(stream)
    writer.writerows([["number", "text"], *rows])
    table = data.read(csv_file(tmp_path, stream.getvalue()), ["text"])
    for values, (number, text) in zip(table.values, rows, strict=True):
        assert values[0] == number or (number is None and np.isnan(values[0]))
        if text is None:
            assert np.isnan(values[1])
        else:
            assert table.levels["text"][int(values[1])] == text.strip()


# NumPy.


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32, np.float64])
def test_arrays_keep_their_type(tmp_path, dtype):
    array = np.arange(6).reshape(3, 2).astype(dtype)
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", only=array)
    for name in ("a.npy", "a.npz"):
        table = data.read(tmp_path / name)
        assert table.columns == ("x0", "x1")
        assert table.values.dtype == dtype
        np.testing.assert_array_equal(table.values, array)


def test_one_of_several_arrays(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros((2, 2)), y=np.ones((1, 3)))
    np.testing.assert_array_equal(data.read_numpy(tmp_path / "a.npz", "y").values, np.ones((1, 3)))
    for key in (None, "z"):
        with pytest.raises(ArgumentError, match="key: expected one of x, y"):
            data.read_numpy(tmp_path / "a.npz", key)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros(3), "two dimensions"),
        (np.zeros((2, 2, 2)), "two dimensions"),
        (np.zeros((0, 2)), "at least one row"),
        (np.array([[1.0, np.inf]]), "finite"),
        (np.array([["a"]]), "numbers"),
        (np.array([[1j]]), "numbers"),
        (np.array([[None]]), "plain numbers"),
    ],
)
def test_an_array_that_is_no_table(tmp_path, array, words):
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(ArgumentError, match=words) as caught:
        data.read(tmp_path / "a.npy")
    assert "a.npy" in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"text", b"\x93NUMPY\x01\x00", b"PK\x03\x04 and no more"])
@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_a_file_that_is_none_of_numpy(tmp_path, name, content):
    write(tmp_path / name, content)
    with pytest.raises(ArgumentError, match=name):
        data.read(tmp_path / name)


def test_truncated_arrays(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((9, 9)))
    write(tmp_path / "a.npy", (tmp_path / "a.npy").read_bytes()[:-1])
    np.savez(tmp_path / "a.npz", np.zeros((9, 9)))
    write(tmp_path / "a.npz", (tmp_path / "a.npz").read_bytes()[:-9])
    for name in ("a.npy", "a.npz", "nowhere.npy"):
        with pytest.raises(ArgumentError, match=name):
            data.read(tmp_path / name)


def test_arrays_have_no_categorical_columns(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((2, 2)))
    with pytest.raises(ArgumentError, match="categorical"):
        data.read(tmp_path / "a.npy", ["x0"])


# Parquet.


def test_without_pyarrow_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ArgumentError, match=r"picirc\[data\]"):
        data.read(tmp_path / "table.parquet")


@pytest.fixture
def arrow():
    pytest.importorskip("pyarrow", reason="needs the extra picirc[data]")
    import pyarrow
    import pyarrow.parquet

    return pyarrow


def test_parquet_with_nulls(tmp_path, arrow):
    columns = {
        "count": arrow.array([1, None, 3]),
        "size": arrow.array([0.5, None, NAN], arrow.float32()),
        "flag": arrow.array([True, None, False]),
        "pet": arrow.array(["dog", None, "cat"]),
        "code": arrow.array([30, 4, 30]).dictionary_encode(),
    }
    arrow.parquet.write_table(arrow.table(columns), tmp_path / "table.parquet")
    table = data.read(tmp_path / "table.parquet", ["pet", "code"])
    assert table.columns == tuple(columns)
    np.testing.assert_array_equal(table.values, [[1, 0.5, 1, 1, 0], [NAN, NAN, NAN, NAN, 1], [3, NAN, 0, 0, 0]])
    assert table.levels == {"pet": ("cat", "dog"), "code": ("30", "4")}


def test_parquet_columns_that_are_not_numeric(tmp_path, arrow):
    for cells in (
        arrow.array(["1"]),
        arrow.array([[1]]),
        arrow.array([1], arrow.timestamp("s")),
        arrow.array(["1"]).dictionary_encode(),
    ):
        arrow.parquet.write_table(arrow.table({"a": cells}), tmp_path / "table.parquet")
        with pytest.raises(ArgumentError, match=r"column a, got .*categorical=\['a'\]"):
            data.read(tmp_path / "table.parquet")
    arrow.parquet.write_table(arrow.table({"a": [2**53 + 1]}), tmp_path / "table.parquet")
    with pytest.raises(ArgumentError, match="column a, got one that no float holds exactly"):
        data.read(tmp_path / "table.parquet")
    arrow.parquet.write_table(arrow.table({"a": [float("inf")]}), tmp_path / "table.parquet")
    with pytest.raises(ArgumentError, match="finite"):
        data.read(tmp_path / "table.parquet")


def test_a_file_that_is_no_parquet(tmp_path, arrow):
    write(tmp_path / "table.parquet", b"text")
    for name in ("table.parquet", "nowhere.parquet"):
        with pytest.raises(ArgumentError, match=name):
            data.read(tmp_path / name)


# Files that are larger in memory than on the disk


def test_a_million_names_are_checked_in_no_time(tmp_path):
    """A second look at all earlier names for each one would take an hour."""
    path = tmp_path / "wide.csv"
    names = [f"c{i}" for i in range(300_000)]
    path.write_text(",".join(names) + "\n" + ",".join(["1"] * len(names)) + "\n")
    assert tables.read_file(path).names == tuple(names)
    path.write_text(",".join([*names, "c7"]) + "\n")
    with pytest.raises(ArgumentError, match="row"):
        tables.read_file(path)


def test_a_compressed_file_expands_only_so_far(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "_USUAL_TEXT", 1000)
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(b"x,y\n" + b"1,2\n" * 100_000))
    with pytest.raises(ArgumentError, match=r"expands to at most .*--largest.*decompress it first"):
        tables.read_file(path)
    assert tables.read_file(path, largest=10**6).rows == 100_000
    path.write_bytes(gzip.compress(b"x,y\n" + b"1,2\n" * 200))  # small ones may
    assert tables.read_file(path).rows == 200


def test_an_archive_of_arrays_expands_only_so_far(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "_USUAL_NUMBERS", 1000)
    np.savez_compressed(tmp_path / "bomb.npz", x=np.zeros((1000, 100)))
    with pytest.raises(ArgumentError, match="expands to at most"):
        tables.read_file(tmp_path / "bomb.npz")
    assert tables.read_file(tmp_path / "bomb.npz", largest=10**7).rows == 1000


def test_a_parquet_file_expands_only_so_far(tmp_path, monkeypatch):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(tables, "_USUAL_NUMBERS", 1000)
    parquet.write_table(arrow.table({"x": np.zeros(100_000)}), tmp_path / "bomb.parquet")
    with pytest.raises(ArgumentError, match="expands to at most"):
        tables.read_file(tmp_path / "bomb.parquet")
    assert tables.read_file(tmp_path / "bomb.parquet", largest=10**7).rows == 100_000


@pytest.mark.parametrize(
    "shape", ["(10000000000, 1000)", f"({10**30}, 2)", "(-1, 2)", "(2, 2", "(2, 5\t, }", "(" * 500, "x", "(1e3, 2)"]
)
def test_an_array_that_claims_what_it_does_not_have(tmp_path, shape):
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (64 - (len(header) + 11) % 64) + b"\n"
    path = tmp_path / "claim.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64))
    with pytest.raises(ArgumentError, match="a whole NumPy file"):
        tables.read_file(path)


def test_texts_that_a_spreadsheet_would_compute(tmp_path):
    columns = {"=name": ["=1+1", "+a", "-b", "@c", "-1.5", "a=b", None], "x": [-1.0, 2, 3, 4, 5, 6, 7]}
    plain = tables.encode_table("t.csv", columns).decode()
    assert plain.splitlines()[1] == "=1+1,-1.0"
    safe = tables.encode_table("t.csv", columns, safe=True).decode().splitlines()
    assert safe == ["'=name,x", "'=1+1,-1.0", "'+a,2", "'-b,3", "'@c,4", "-1.5,5", "a=b,6", ",7"]
