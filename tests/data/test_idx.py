# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gzip

import numpy as np
import pytest
from data_files import idx_bytes, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from picirc.data.datasets import idx_shape, read_idx
from picirc.errors import ArgumentError

IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
GOOD = idx_bytes(IMAGES)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("shape", [(1,), (300,), (2, 3), (2, 3, 4), (1, 28, 28)])
def test_what_was_written_is_read(tmp_path, shape, packed):
    array = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    path = write(tmp_path / "file", idx_bytes(array), packed)
    result = read_idx(path, len(shape))
    np.testing.assert_array_equal(result, array)
    assert result.dtype == np.uint8
    assert result.flags.writeable
    assert idx_shape(path, len(shape)) == shape


def test_the_header_is_read_as_the_format_says(tmp_path):
    # Written by hand: 258 = 0x0102 labels show that the most significant byte comes first.
    path = write(tmp_path / "labels", b"\x00\x00\x08\x01\x00\x00\x01\x02" + b"\x07" * 258)
    assert idx_shape(path, 1) == (258,)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "an empty file"),
        (GOOD[:3], "begins 00 00 08"),
        (b"\x00\x00\x0d\x03" + GOOD[4:], "begins 00 00 0d 03"),
        (b"PK\x03\x04" + GOOD[4:], "begins 50 4b 03 04"),
        (GOOD[:9], "truncated header"),
        (GOOD[:-1], r"24 values, .*\(2, 3, 4\), got 23 values; the file is truncated"),
        (GOOD[:16], "got 0 values"),
        (GOOD + b"\x00", "more than that"),
        (idx_bytes(IMAGES[:0]), "at least one value"),
        (b"\x00\x00\x08\x03" + b"\xff" * 12 + GOOD[16:], "a smaller file"),
    ],
)
def test_a_wrong_file_is_an_error_that_names_it(tmp_path, content, words):
    path = write(tmp_path / "broken-idx3-ubyte", content)
    with pytest.raises(ArgumentError, match=words) as caught:
        read_idx(path, 3)
    assert str(path) in str(caught.value)


def test_the_number_of_dimensions_must_be_as_asked(tmp_path):
    path = write(tmp_path / "images", GOOD)
    with pytest.raises(ArgumentError, match=r"1 dimensions \(it begins 00 00 08 01\), got one that begins 00 00 08 03"):
        read_idx(path, 1)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ArgumentError, match="none there"):
        read_idx(tmp_path / "nowhere", 1)
    with pytest.raises(ArgumentError, match="none there"):
        read_idx(tmp_path, 1)


PACKED = gzip.compress(GOOD, mtime=0)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, len(PACKED) - 1), flip=st.integers(1, 255), length=st.integers(0, len(PACKED)))
def test_damage_to_a_packed_file_never_passes_unseen(tmp_path, place, flip, length):
    damaged = bytearray(PACKED[:length])
    if place < length:
        damaged[place] ^= flip
    path = write(tmp_path / "damaged.gz", bytes(damaged))
    try:
        result = read_idx(path, 3)
    except ArgumentError:
        return
    # Only bytes of the gzip header that carry no meaning (time, system) can change without harm.
    np.testing.assert_array_equal(result, IMAGES)
    assert length == len(PACKED)
