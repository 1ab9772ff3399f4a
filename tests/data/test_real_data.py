# SPDX-License-Identifier: Apache-2.0
"""The real files, where there are any: set PICIRC_DATA to the folder that holds them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from picirc import data
from picirc.data.datasets import SETS, find, open_unpacked

FOLDER = os.environ.get("PICIRC_DATA")

pytestmark = pytest.mark.skipif(not FOLDER, reason="PICIRC_DATA names no folder with the data sets")

BINARY = {
    "nltcs": (16, 16181, 2157, 3236),
    "baudio": (100, 15000, 2000, 3000),
    "jester": (100, 9000, 1000, 4116),
    "accidents": (111, 12758, 1700, 2551),
    "dna": (180, 1600, 400, 1186),
    "bbc": (1058, 1670, 225, 330),
    "plants": (69, 17412, 2321, 3482),
    "bnetflix": (100, 15000, 2000, 3000),
    "pumsb_star": (163, 12262, 1635, 2452),
    "mushrooms": (112, 2000, 500, 5624),
}


def load(name: str) -> data.Dataset:
    if find(SETS[name], [Path(FOLDER)]) is None:
        pytest.skip(f"PICIRC_DATA ({FOLDER}) does not hold {name}")
    return data.load(name, FOLDER, download=False)


@pytest.mark.parametrize("name", [name for name, files in SETS.items() if files.files[0].sha256])
def test_the_content_is_the_published_one(name):
    result = load(name)
    assert list(result.provenance.sha256().values()) == [file.sha256 for file in SETS[name].files]


# The number of test images of every class, and the mean brightness of the training images.
IMAGES = {
    "mnist": ([980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009], 0.1307),
    "fashion-mnist": ([1000] * 10, 0.2860),
}


@pytest.mark.parametrize("name", IMAGES)
def test_images(name):
    result = load(name)
    assert (result.train.shape, result.valid.shape, result.test.shape) == ((57_000, 784), (3_000, 784), (10_000, 784))
    assert (result.categories, result.image_shape) == (256, (28, 28))
    counts, brightness = IMAGES[name]
    assert np.bincount(result.test_labels).tolist() == counts
    total = int(result.train.sum(dtype=np.int64) + result.valid.sum(dtype=np.int64))
    assert total / 60_000 / 784 / 255 == pytest.approx(brightness, abs=5e-5)


@pytest.mark.parametrize("split", ["balanced", "byclass", "bymerge", "digits", "letters", "mnist"])
def test_emnist(split):
    result = load(f"emnist-{split}")
    rows = SETS[f"emnist-{split}"].files[0].shape[0], SETS[f"emnist-{split}"].files[2].shape[0]
    assert (len(result.train) + len(result.valid), len(result.test)) == rows


def test_ptb():
    result = load("ptb-288")
    assert (result.train.shape, result.valid.shape, result.test.shape) == ((42_068, 288), (3_370, 288), (3_761, 288))
    assert result.categories == 50
    # The order of the vocabulary that published files of this set have.
    assert result.symbols == "@aer bnkotlizcwyusfmghd-qpx<>Njv.'1950&$324867#\\/*"
    assert 0.58 < (result.test == 0).mean() < 0.61
    assert data.decode(result.test[:1], result.symbols) == ["no it was n't black monday"]
    # Padding stands at the end only.
    for part in (result.train, result.valid, result.test):
        assert (np.diff((part == 0).astype(np.int8), axis=1) >= 0).all()


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    result = load(name)
    variables, *rows = BINARY[name]
    assert [part.shape for part in (result.train, result.valid, result.test)] == [(count, variables) for count in rows]
    with open_unpacked(result.provenance.files[2]) as file:
        np.testing.assert_array_equal(result.test, np.loadtxt(file, delimiter=",", dtype=np.uint8))


def test_a_public_file_passes_the_checks_of_a_download(server, tmp_path):
    for path in load("nltcs").provenance.files:
        with open_unpacked(path) as file:
            server.answers[f"/{path.name.removesuffix('.gz')}"] = file.read()
    fetched = data.load("nltcs", tmp_path, base_url=server.url)
    np.testing.assert_array_equal(fetched.train, load("nltcs").train)
    assert len(server.requests) == 3
