# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io

import numpy as np
import pytest
from data_files import binary_bytes, binary_rows, write, write_binary

from picirc import data
from picirc.data.datasets import read_binary
from picirc.errors import ArgumentError


@pytest.mark.parametrize("folder", ["debd/nltcs", "DEBD/datasets/nltcs", "nltcs", "."])
@pytest.mark.parametrize("packed", [False, True])
def test_a_known_set_is_read_from_its_three_files(tmp_path, folder, packed):
    parts = binary_rows(0)
    write_binary(tmp_path / folder, "nltcs", parts, packed)
    result = data.load("nltcs", tmp_path, download=False)
    for part, rows in zip(parts, (result.train, result.valid, result.test), strict=True):
        np.testing.assert_array_equal(rows, part)
        assert rows.dtype == np.uint8
        assert rows.flags.c_contiguous
        assert rows.flags.writeable
    assert (result.categories, result.image_shape, result.train_labels) == (2, None, None)


def test_any_name_will_do(tmp_path):
    parts = binary_rows(1, variables=1)
    write_binary(tmp_path / "debd" / "my_set-2", "my_set-2", parts)
    np.testing.assert_array_equal(data.load("my_set-2", tmp_path).valid, parts[1])


@pytest.mark.parametrize("ending", ["", "\n", "\r\n", "\n\n"])
def test_it_agrees_with_a_general_reader(tmp_path, ending):
    text = "0,1,1\r\n1,0,0\n0,0,1" + ending
    result = read_binary(write(tmp_path / "x.train.data", text.encode()))
    np.testing.assert_array_equal(result, np.loadtxt(io.StringIO(text), delimiter=",", dtype=np.uint8))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("0,1\n0,2\n", 2),
        ("0,1\n0,1\n0,1,1\n", 3),
        ("0,1\n1\n", 2),
        ("0,1\n\n0,1\n", 2),
        ("0,1\n0;1\n", 2),
        ("0,1\n,01\n", 2),
        ("0,1,\n0,1,\n", 1),
        ("0 1\n0 1\n", 1),
        ("a,b\n0,1\n", 1),
        ("0,1\n0,\u0661\n", 2),
        ("0,1\n0,-1\n", 2),
        ("01\n01\n", 1),
    ],
)
def test_a_malformed_line_is_named(tmp_path, text, line):
    path = write(tmp_path / "x.train.data", text.encode())
    with pytest.raises(ArgumentError, match=rf"x\.train\.data, line {line}: expected \d+ zeros and ones"):
        read_binary(path)


def test_a_long_line_is_not_shown_whole(tmp_path):
    rows = np.zeros((2, 1000), np.uint8)
    path = write(tmp_path / "x.train.data", binary_bytes(rows) + b"2" * 1999)
    with pytest.raises(ArgumentError, match="line 3: expected 1000 zeros") as caught:
        read_binary(path)
    assert len(str(caught.value)) < 400


def test_all_parts_have_the_same_variables(tmp_path):
    parts = binary_rows(2)
    write_binary(tmp_path, "x", [parts[0], parts[1], parts[2][:, 1:]])
    with pytest.raises(ArgumentError, match=r"x\.test\.data\.gz: expected 5 variables.*got 4"):
        data.load("x", tmp_path)


def test_all_parts_must_be_there(tmp_path):
    write_binary(tmp_path, "nltcs", binary_rows(3))
    (tmp_path / "nltcs.valid.data.gz").unlink()
    with pytest.raises(ArgumentError, match="not all of them"):
        data.load("nltcs", tmp_path, download=False)
