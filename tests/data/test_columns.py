from __future__ import annotations

import gzip
import math

import numpy as np
import pytest
from data_files import write

from picirc.data.columns import read_columns
from picirc.errors import ArgumentError


def columns(folder, text: str | bytes, contents=None, name: str = "t.csv", **options):
    path = write(folder / name, text.encode() if isinstance(text, str) else text)
    return read_columns(path, contents, **options)


def test_columns_have_the_types_of_their_cells(tmp_path):
    found = columns(tmp_path, "i,f,t,m,e,b\n1,1.5,x,7,,0\n-2,2,y,,NA,1\n+3,1e3,z,9,?,1\n")
    assert list(found.values) == ["i", "f", "t", "m", "e", "b"]
    assert found.rows == 3
    assert {name: values.dtype.kind for name, values in found.values.items()} == dict(
        zip("iftmeb", "ifOOfi", strict=True)
    )
    assert found.values["i"].tolist() == [1, -2, 3]
    assert found.values["f"].tolist() == [1.5, 2.0, 1000.0]
    assert found.values["t"].tolist() == ["x", "y", "z"]
    assert found.values["m"].tolist() == [7, None, 9]
    assert all(isinstance(cell, int | None) for cell in found.values["m"].tolist())
    assert np.isnan(found.values["e"]).all()


def test_the_texts_are_kept_as_they_were_written(tmp_path):
    found = columns(tmp_path, "a,b\n +1.50 ,x\nNA,\n1e3,y\n")
    assert found.texts == {"a": ["+1.50", None, "1e3"], "b": ["x", None, "y"]}


def test_zeros_in_front_are_not_lost(tmp_path):
    assert columns(tmp_path, "zip\n01234\n99999\n").values["zip"].tolist() == ["01234", "99999"]
    assert columns(tmp_path, "n\n0\n-0\n0.5\n").values["n"].tolist() == [0.0, 0.0, 0.5]
    assert columns(tmp_path, "n\n007\n8\n", {"n": "numbers"}).values["n"].tolist() == [7, 8]


def test_whole_numbers_of_any_length(tmp_path):
    assert columns(tmp_path, f"n\n{2**63}\n-5\n").values["n"].tolist() == [2**63, -5]
    assert columns(tmp_path, f"n\n{2**63 - 1}\n-5\n").values["n"].dtype == np.int64


def test_declared_columns(tmp_path):
    found = columns(tmp_path, "a,b\n1,TRUE\n2,0\n,false\nx,\n", {"a": "texts", "b": "truths"})
    assert found.values["a"].tolist() == ["1", "2", None, "x"]
    assert found.values["b"].tolist() == [True, False, False, None]
    for content, words in (("numbers", "a finite number in column a, got x"), ("truths", "true or false in column a")):
        with pytest.raises(ArgumentError, match=f"line 3: expected {words}"):
            columns(tmp_path, "a\n1\nx\n", {"a": content})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a\n1\n2\noops\n3\n", "line 4: expected a finite number in column a as in line 2, got oops"),
        ("a\nx\ny\n7\nz\n", "line 4: expected a text in column a as in line 2, got 7"),
        ("a\n1\ninf\n2\n", "line 3: expected a finite number"),
        ("a\n1\n1_000\n2\n", "line 3: expected a finite number"),
        ("a\n1\n1e999\n2\n", "line 3: expected a finite number"),
        ("a,b\n1,2\n\n1\n", "line 4: expected 2 cells, as in line 1, got 1"),
        ('a,b\n"1\n2",x\n3\n', "line 4: expected 2 cells"),
        ('a,b\n1,"2\n', "line 2: expected a row of a CSV file"),
        ('a,b\n1,"x\n\ny"\n2,3\n', "line 2: expected a finite number in column b as in line 5"),
        ("a,b,a\n1,2,3\n", "'a' twice"),
        ("a,,c\n1,2,3\n", "none for column 1"),
        ("a,b\n", "a header alone"),
        ("", "an empty one"),
    ],
)
def test_a_malformed_file_is_an_error_with_its_place(tmp_path, text, words):
    with pytest.raises(ArgumentError, match=words) as caught:
        columns(tmp_path, text)
    assert str(tmp_path / "t.csv") in str(caught.value)


def test_encodings(tmp_path):
    assert list(columns(tmp_path, b"\xef\xbb\xbfa,b\n1,2\n").values) == ["a", "b"]
    for content in ("a\né\n".encode("latin-1"), "a\n1\n".encode("utf-16")):
        with pytest.raises(ArgumentError, match="text in UTF-8"):
            columns(tmp_path, content)


def test_ways_to_separate_and_to_pack(tmp_path):
    for name, text, options in (
        ("t.csv", "a;b\n1;2,5\n", {"delimiter": ";"}),
        ("t.tsv", "a\tb\n1\t2,5\n", {}),
        ("t.csv", "a|b\n1|2,5\n", {"delimiter": "|"}),
    ):
        assert columns(tmp_path, text, name=name, **options).texts == {"a": ["1"], "b": ["2,5"]}
    packed = columns(tmp_path, gzip.compress(b"a,b\n1,x\n"), name="t.csv.gz")
    assert packed.texts == {"a": ["1"], "b": ["x"]}


def test_what_is_missing(tmp_path):
    found = columns(tmp_path, "a,b\n-9,NA\n1,\n", missing=["-9"])
    assert found.values["a"].tolist() == [None, 1]
    assert found.values["b"].tolist() == ["NA", None]


def test_other_files(tmp_path):
    np.save(tmp_path / "t.npy", np.arange(6).reshape(3, 2))
    found = read_columns(tmp_path / "t.npy")
    assert {name: values.tolist() for name, values in found.values.items()} == {"x0": [0, 2, 4], "x1": [1, 3, 5]}
    for name, words in (("t.xlsx", r"ends in \.csv"), ("none.csv", "none there"), ("none.parquet", "none there")):
        with pytest.raises(ArgumentError, match=words):
            read_columns(tmp_path / name)


def test_parquet_keeps_its_types(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="needs the extra picirc[data]")
    parquet = pytest.importorskip("pyarrow.parquet")
    cells = {
        "i": arrow.array([1, None, 3], arrow.int16()),
        "f": arrow.array([0.5, None, math.nan], arrow.float32()),
        "b": arrow.array([True, None, False]),
        "t": arrow.array(["x", None, "y"]).dictionary_encode(),
        "whole": arrow.array([1, 2, 3]),
    }
    parquet.write_table(arrow.table(cells), tmp_path / "t.parquet")
    found = read_columns(tmp_path / "t.parquet")
    assert found.values["i"].tolist() == [1, None, 3]
    np.testing.assert_array_equal(found.values["f"], [0.5, math.nan, math.nan])
    assert found.values["b"].tolist() == [True, None, False]
    assert found.values["t"].tolist() == ["x", None, "y"]
    assert found.values["whole"].dtype == np.int64
    assert found.types == {name: column.type for name, column in cells.items()}
    assert found.texts == {}
    parquet.write_table(arrow.table({"a": arrow.array([], arrow.int64())}), tmp_path / "t.parquet")
    with pytest.raises(ArgumentError, match="at least one row"):
        read_columns(tmp_path / "t.parquet")
    (tmp_path / "t.parquet").write_text("a,b\n1,2\n")
    with pytest.raises(ArgumentError, match="a Parquet file"):
        read_columns(tmp_path / "t.parquet")
