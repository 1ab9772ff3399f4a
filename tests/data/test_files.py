# SPDX-License-Identifier: Apache-2.0
"""Tables in files, read column by column with the types that they have."""

from __future__ import annotations

import gzip
import math

import numpy as np
import pytest
from data_files import write

import picirc as pc
from picirc.data.tables import encode_table, read_file
from picirc.errors import ArgumentError


def frame(folder, text: str | bytes, name: str = "t.csv", **options):
    return read_file(write(folder / name, text.encode() if isinstance(text, str) else text), **options)


def cells(folder, text: str | bytes, column: str, dtype: str | None = None, **options):
    return frame(folder, text, **options).cells(column, dtype)


def objects(*arguments, **options):
    return cells(*arguments, **options).objects()


def read_all(folder, text: str | bytes) -> None:
    found = frame(folder, text)
    for name in found.names:
        found.cells(name)


def test_columns_have_the_types_of_their_cells(tmp_path):
    found = frame(tmp_path, "i,f,t,m,e,b\n1,1.5,x,7,,0\n-2,2,y,,NA,1\n+3,1e3,z,9,?,1\n")
    assert found.names == ("i", "f", "t", "m", "e", "b")
    assert found.rows == 3
    types = {name: found.cells(name).dtype for name in found.names}
    expected = ["integer", "float", "text", "integer", "float", "integer"]
    assert list(types.values()) == expected
    assert found.cells("i").objects() == [1, -2, 3]
    assert found.cells("f").objects() == [1.5, 2.0, 1000.0]
    assert found.cells("t").objects() == ["x", "y", "z"]
    assert found.cells("m").objects() == [7, None, 9]
    assert all(isinstance(cell, int | None) for cell in found.cells("m").objects())
    assert found.cells("e").missing.all()


def test_cells_are_kept_as_they_were_written(tmp_path):
    found = frame(tmp_path, "a,b\n +1.50 ,x\nNA,\n1e3,y\n")
    assert found.written == {"a": ["+1.50", None, "1e3"], "b": ["x", None, "y"]}
    assert found.lines == [2, 3, 4]


def test_zeros_in_front_are_not_lost(tmp_path):
    assert objects(tmp_path, "zip\n01234\n99999\n", "zip") == ["01234", "99999"]
    assert objects(tmp_path, "n\n0\n-0\n0.5\n", "n") == [0.0, 0.0, 0.5]
    assert objects(tmp_path, "n\n007\n8\n", "n", "float") == [7, 8]


def test_the_expected_type_decides(tmp_path):
    text = "a,b\n1,TRUE\n2,0\n,false\nx,\n"
    assert objects(tmp_path, text, "a", "text") == ["1", "2", None, "x"]
    assert objects(tmp_path, text, "b", "boolean") == [True, False, False, None]
    for dtype, words in (("float", "a finite number in column a, got x"), ("boolean", "true or false in column a")):
        with pytest.raises(ArgumentError, match=f"line 3: expected {words}"):
            objects(tmp_path, "a\n1\nx\n", "a", dtype)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a\n1\n2\noops\n3\n", "line 4: expected a finite number in column a as in line 2, got oops"),
        ("a\nx\ny\n7\nz\n", "line 4: expected a string in column a as in line 2, got 7"),
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
        read_all(tmp_path, text)
    assert str(tmp_path / "t.csv") in str(caught.value)


def test_columns_that_are_not_asked_for_are_not_read(tmp_path):
    found = frame(tmp_path, "a,note\n1,2\n2,x\n").select(["a"])
    assert pc.Schema.infer(found).names == ("a",)


def test_encodings(tmp_path):
    assert frame(tmp_path, b"\xef\xbb\xbfa,b\n1,2\n").names == ("a", "b")
    for content in ("a\né\n".encode("latin-1"), "a\n1\n".encode("utf-16")):
        with pytest.raises(ArgumentError, match="text in UTF-8"):
            frame(tmp_path, content)


def test_ways_to_separate_and_to_compress(tmp_path):
    for name, text, options in (
        ("t.csv", "a;b\n1;2,5\n", {"delimiter": ";"}),
        ("t.tsv", "a\tb\n1\t2,5\n", {}),
        ("t.csv", "a|b\n1|2,5\n", {"delimiter": "|"}),
    ):
        assert frame(tmp_path, text, name=name, **options).written == {"a": ["1"], "b": ["2,5"]}
    packed = frame(tmp_path, gzip.compress(b"a,b\n1,x\n"), name="t.csv.gz")
    assert packed.written == {"a": ["1"], "b": ["x"]}


def test_what_is_missing(tmp_path):
    found = frame(tmp_path, "a,b\n-9,NA\n1,\n", missing=["-9"])
    assert found.cells("a").objects() == [None, 1]
    assert found.cells("b").objects() == ["NA", None]


def test_other_files(tmp_path):
    np.save(tmp_path / "t.npy", np.arange(6).reshape(3, 2))
    found = read_file(tmp_path / "t.npy")
    assert {name: found.cells(name).objects() for name in found.names} == {"x0": [0, 2, 4], "x1": [1, 3, 5]}
    for name, words in (("t.xlsx", r"ends in \.csv"), ("none.csv", "none there"), ("none.parquet", "none there")):
        with pytest.raises(ArgumentError, match=words):
            read_file(tmp_path / name)


def test_a_file_is_a_table_like_any_other(tmp_path):
    lines = [f"{i}.5,{'ab'[i % 2]},{i % 2:02}" for i in range(20)]
    path = write(tmp_path / "t.csv", "\n".join(["x,kind,code", *lines, ",,"]).encode())
    model = pc.fit_table(path, points=4, width=4, steps=2)
    assert [column.kind for column in model.schema.columns] == ["gaussian", "categorical", "categorical"]
    assert model.schema["code"].categories == ("00", "01")
    mapping = {"x": [i + 0.5 for i in range(20)], "kind": list("ab") * 10, "code": ["00", "01"] * 10}
    # Not to the last bit: products of other numbers of rows are rounded otherwise.
    np.testing.assert_allclose(model.log_density(path)[:20], model.log_density(mapping), rtol=1e-12)
    filled = model.impute(path)
    assert filled["x"][:3] == [0.5, 1.5, 2.5]
    assert filled["code"][-1] in ("00", "01")
    one = write(tmp_path / "one.csv", b"x,kind,code\n1,a,1\n")  # the schema says that the code is a string
    with pytest.raises(ArgumentError, match="'1' in row 0"):
        model.log_density(one)


def test_parquet_keeps_its_types(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="needs the extra picirc[data]")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {
        "i": arrow.array([1, None, 3], arrow.int16()),
        "f": arrow.array([0.5, None, math.nan], arrow.float32()),
        "b": arrow.array([True, None, False]),
        "t": arrow.array(["x", None, "y"]).dictionary_encode(),
        "whole": arrow.array([1, 2, 3]),
        "long": arrow.array([2**60 + 1, None, -5]),
    }
    parquet.write_table(arrow.table(columns), tmp_path / "t.parquet")
    found = read_file(tmp_path / "t.parquet")
    assert found.cells("i").objects() == [1, None, 3]
    assert found.cells("f").objects() == [0.5, None, None]
    assert found.cells("b").objects() == [True, None, False]
    assert found.cells("t").objects() == ["x", None, "y"]
    assert found.cells("whole").dtype == "integer"
    assert found.cells("long").objects() == [2**60, None, -5]  # numbers are floats in a model
    assert found.native.schema.types == [column.type for column in columns.values()]
    assert found.written is None
    parquet.write_table(arrow.table({"a": arrow.array([], arrow.int64())}), tmp_path / "t.parquet")
    with pytest.raises(ArgumentError, match="at least one row"):
        read_file(tmp_path / "t.parquet")
    (tmp_path / "t.parquet").write_text("a,b\n1,2\n")
    with pytest.raises(ArgumentError, match="a Parquet file"):
        read_file(tmp_path / "t.parquet")


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.tsv", "t.parquet"])
def test_what_is_written_is_read_back(tmp_path, name):
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow", reason="needs the extra picirc[data]")
    columns = {"f": np.array([0.1, math.nan, 1e-300]), "t": ["a,b", None, 'c"d\te'], "i": [1, None, 3]}
    (tmp_path / name).write_bytes(encode_table(name, columns))
    found = read_file(tmp_path / name)
    assert found.cells("f").objects() == [0.1, None, 1e-300]
    assert found.cells("t").objects() == ["a,b", None, 'c"d\te']
    assert found.cells("i").objects() == [1, None, 3]
