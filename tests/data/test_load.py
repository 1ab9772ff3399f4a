# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from data_files import binary_rows, write_binary

from picirc import data
from picirc.data.datasets import SETS
from picirc.errors import ArgumentError


def test_the_names():
    known = data.names()
    assert len(set(known)) == len(known)
    assert {
        "digits",
        "mnist",
        "fashion-mnist",
        "ptb-288",
        "nltcs",
        "baudio",
        "jester",
        "accidents",
        "dna",
        "bbc",
        "plants",
        "bnetflix",
        "pumsb_star",
        "mushrooms",
    } < set(known)
    splits = {"balanced", "byclass", "bymerge", "digits", "letters", "mnist"}
    assert {name for name in known if name.startswith("emnist")} == {f"emnist-{split}" for split in splits}


@pytest.mark.parametrize("files", SETS.values(), ids=SETS)
def test_every_known_file_can_be_verified(files):
    assert files.homes
    for file in files.files:
        assert len(file.sha256) == 64 or (file.shape and file.shape[0] > 0)
    checksums = [file.sha256 for other in SETS.values() for file in other.files if file.sha256]
    assert len(set(checksums)) == len(checksums)


def test_an_unknown_name_lists_the_known_ones(alone):
    with pytest.raises(ArgumentError, match=r"name: .*digits, mnist, .*ptb-288, .*got mnits") as caught:
        data.load("mnits")
    for name in data.names():
        assert name in str(caught.value)
    with pytest.raises(ArgumentError, match=r"picirc\.data\.read"):
        data.load("table.csv")


# The digits.


def test_the_digits_need_no_file_and_are_the_default(alone):
    result = data.load()
    assert repr(result) == "Dataset('digits', train=(1422, 64), valid=(75, 64), test=(300, 64), categories=17)"
    assert result.image_shape == (8, 8)
    assert not alone.exists()


def test_the_digits_are_those_of_scikit_learn():
    datasets = pytest.importorskip("sklearn.datasets")
    original = datasets.load_digits()
    expected = sorted(
        [*row, label] for row, label in zip(original.data.tolist(), original.target.tolist(), strict=True)
    )
    ours = data.load("digits")
    pairs = [(ours.train, ours.train_labels), (ours.valid, ours.valid_labels), (ours.test, ours.test_labels)]
    found = sorted(
        [*row, label] for rows, labels in pairs for row, label in zip(rows.tolist(), labels.tolist(), strict=True)
    )
    assert found == expected


def test_the_test_digits_do_not_depend_on_the_seed():
    first, other = data.load(seed=0), data.load(seed=1, valid_fraction=0.2)
    np.testing.assert_array_equal(first.test, other.test)
    assert len(other.valid) == 299
    assert 0 <= first.train.min() < first.train.max() == 16


def test_torch_takes_the_arrays_as_they_are():
    result = data.load()
    assert torch.as_tensor(result.train).shape == (1422, 64)
    assert torch.as_tensor(result.valid_labels).dtype == torch.uint8


# Where files are looked for.


@pytest.fixture
def sets(tmp_path):
    """Three data folders with the same set but for its values."""
    folders = [tmp_path / "given", tmp_path / "variable", tmp_path / "cache" / "picirc"]
    for seed, folder in enumerate(folders):
        write_binary(folder / "debd" / "nltcs", "nltcs", binary_rows(seed))
    return folders


def test_the_order_of_places(sets, alone, monkeypatch):
    def seed_of(result) -> int:
        return next(seed for seed in range(3) if np.array_equal(result.train, binary_rows(seed)[0]))

    assert seed_of(data.load("nltcs")) == 2
    monkeypatch.setenv("PICIRC_DATA", str(sets[1]))
    assert seed_of(data.load("nltcs")) == 1
    assert seed_of(data.load("nltcs", sets[0])) == 0
    assert seed_of(data.load("nltcs", str(sets[0]))) == 0
    monkeypatch.setenv("PICIRC_DATA", str(sets[1].parent))
    assert seed_of(data.load("nltcs")) == 2


def test_the_parts_of_a_set_are_never_mixed(sets, alone, monkeypatch):
    (sets[1] / "debd" / "nltcs" / "nltcs.test.data.gz").unlink()
    monkeypatch.setenv("PICIRC_DATA", str(sets[1]))
    result = data.load("nltcs", download=False)
    assert all(path.is_relative_to(sets[2]) for path in result.provenance.files)


def test_missing_files_say_where_they_were_looked_for_and_how_to_get_them(tmp_path, alone, monkeypatch):
    with pytest.raises(ArgumentError) as caught:
        data.load("mnist", tmp_path, download=False)
    message = str(caught.value)
    assert str(tmp_path / "mnist") in message
    assert str(tmp_path / "MNIST" / "raw") in message
    assert str(alone) not in message
    for words in ("train-images-idx3-ubyte[.gz]", "PICIRC_DATA", "data_dir=", "download=True", "https://"):
        assert words in message
    monkeypatch.setenv("PICIRC_DATA", str(tmp_path))
    with pytest.raises(ArgumentError) as caught:
        data.load("mnist", download=False)
    assert str(alone / "mnist") in str(caught.value)


def test_a_folder_that_does_not_exist_is_an_error_and_is_not_made(tmp_path, alone, monkeypatch):
    nowhere = tmp_path / "nowhere"
    with pytest.raises(ArgumentError, match="data_dir: expected an existing folder"):
        data.load("mnist", nowhere)
    monkeypatch.setenv("PICIRC_DATA", str(nowhere))
    with pytest.raises(ArgumentError, match="PICIRC_DATA: expected an existing folder"):
        data.load("mnist")
    assert not nowhere.exists()


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, "~/.cache/picirc"),
        ("linux", {"XDG_CACHE_HOME": "/somewhere"}, "/somewhere/picirc"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "~/.cache/picirc"),
        ("darwin", {}, "~/Library/Caches/picirc"),
        ("darwin", {"XDG_CACHE_HOME": "/somewhere"}, "/somewhere/picirc"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/picirc/Cache"),
        ("win32", {}, "~/AppData/Local/picirc/Cache"),
    ],
)
def test_the_cache_lies_where_the_platform_has_it(monkeypatch, platform, variables, expected):
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert data.cache_folder() == Path(expected).expanduser()


def test_provenance(tmp_path):
    write_binary(tmp_path, "own", binary_rows(0), packed=True)
    packed = data.load("own", tmp_path).provenance
    assert [path.name for path in packed.files] == ["own.train.data.gz", "own.valid.data.gz", "own.test.data.gz"]
    (tmp_path / "plain").mkdir()
    write_binary(tmp_path / "plain", "own", binary_rows(0), packed=False)
    plain = data.load("own", tmp_path / "plain").provenance
    expected = [hashlib.sha256(path.read_bytes()).hexdigest() for path in plain.files]
    assert list(plain.sha256().values()) == list(packed.sha256().values()) == expected
    assert "UCI" in data.load("digits").provenance.source
