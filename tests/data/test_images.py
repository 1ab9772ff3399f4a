# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from data_files import idx_bytes, random_images, write, write_images

from picirc import data
from picirc.data.datasets import hold_out
from picirc.errors import ArgumentError

TRAIN, TEST = random_images(60, seed=1), random_images(10, seed=2)


def rows_of(images: np.ndarray) -> list[tuple[int, ...]]:
    """Each image line by line, without numpy's ideas of order."""
    return [tuple(int(pixel) for line in image for pixel in line) for image in images]


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("mnist", "mnist"),
        ("mnist", "MNIST/raw"),
        ("fashion-mnist", "fashion-mnist"),
        ("fashion-mnist", "FashionMNIST/raw"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_every_image_is_read_once_with_its_label(tmp_path, name, folder, packed):
    write_images(tmp_path / folder, TRAIN, TEST, packed=packed)
    result = data.load(name, tmp_path, download=False)
    assert (result.name, result.categories, result.image_shape) == (name, 256, (4, 3))
    assert (len(result.train), len(result.valid), len(result.test)) == (57, 3, 10)
    together = np.concatenate([result.train, result.valid])
    labels = np.concatenate([result.train_labels, result.valid_labels])
    np.testing.assert_array_equal(together[:, 0], labels)
    assert sorted(map(tuple, together.tolist())) == sorted(rows_of(TRAIN[0]))
    assert list(map(tuple, result.test.tolist())) == rows_of(TEST[0])
    np.testing.assert_array_equal(result.test_labels, TEST[1])


def test_arrays_are_plain_bytes_that_torch_can_share(tmp_path):
    write_images(tmp_path / "emnist", TRAIN, TEST, prefix="emnist-letters-", test_name="test")
    result = data.load("emnist-letters", tmp_path, download=False)
    for part in (result.train, result.valid, result.test, result.train_labels, result.test_labels):
        assert part.dtype == np.uint8
        assert part.flags.c_contiguous
        assert part.flags.writeable


@pytest.mark.parametrize("split", ["balanced", "byclass", "bymerge", "digits", "letters", "mnist"])
@pytest.mark.parametrize("folder", ["emnist", "EMNIST/raw", "emnist/gzip", "."])
def test_emnist_images_stand_upright(tmp_path, split, folder):
    upright = np.array([[[1, 2, 3], [4, 5, 6], [7, 8, 9]]] * 3, np.uint8)
    stored = np.array([[[1, 4, 7], [2, 5, 8], [3, 6, 9]]] * 3, np.uint8)
    labels = np.arange(3, dtype=np.uint8)
    write_images(tmp_path / folder, (stored, labels), (stored, labels), prefix=f"emnist-{split}-", test_name="test")
    result = data.load(f"emnist-{split}", tmp_path, download=False)
    for part in (result.train, result.valid, result.test):
        np.testing.assert_array_equal(part, upright.reshape(3, 9)[: len(part)])
    assert result.image_shape == (3, 3)


def test_names_with_a_dot_are_known_too(tmp_path):
    for part, (images, labels) in {"train": TRAIN, "t10k": TEST}.items():
        write(tmp_path / "mnist" / f"{part}-images.idx3-ubyte", idx_bytes(images))
        write(tmp_path / "mnist" / f"{part}-labels.idx1-ubyte.gz", idx_bytes(labels), packed=True)
    assert data.load("mnist", tmp_path, download=False).train.shape == (57, 12)


def test_images_of_one_set_are_not_taken_for_another(tmp_path):
    # Both sets give their files the same names, so a folder of files alone does not say which set it is.
    write_images(tmp_path, TRAIN, TEST)
    write_images(tmp_path / "fashion-mnist", TRAIN, TEST)
    with pytest.raises(ArgumentError, match="not all of them"):
        data.load("mnist", tmp_path, download=False)


def test_labels_must_match_the_images(tmp_path):
    write_images(tmp_path / "mnist", (TRAIN[0], TRAIN[1][:-1]), TEST)
    with pytest.raises(ArgumentError, match=r"train-labels.*expected 60 labels.*got 59"):
        data.load("mnist", tmp_path)


def test_test_images_must_have_the_shape_of_the_training_images(tmp_path):
    write_images(tmp_path / "mnist", TRAIN, random_images(10, seed=2, height=5))
    with pytest.raises(ArgumentError, match=r"t10k-images.*\(4, 3\).*\(5, 3\)"):
        data.load("mnist", tmp_path)


def test_the_seed_alone_decides_what_is_held_out(tmp_path):
    write_images(tmp_path / "mnist", TRAIN, TEST)
    first, again, other = (data.load("mnist", tmp_path, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.valid, again.valid)
    np.testing.assert_array_equal(first.train, again.train)
    assert set(first.valid_labels) != set(other.valid_labels)
    np.testing.assert_array_equal(first.test, other.test)


@pytest.mark.parametrize(
    ("rows", "fraction", "count"), [(60_000, 0.05, 3000), (10, 0.01, 1), (2, 0.99, 1), (40, 0.25, 10)]
)
def test_a_part_is_held_out(rows, fraction, count):
    kept, held = hold_out(rows, fraction, seed=0)
    assert len(held) == count
    assert sorted([*kept, *held]) == list(range(rows))
    assert (np.diff(kept) > 0).all()
    assert (np.diff(held) > 0).all()


def test_every_row_is_as_likely_to_be_held_out():
    counts = np.zeros(20)
    for seed in range(2000):
        counts[hold_out(20, 0.25, seed)[1]] += 1
    # 500 expected in each place with a standard deviation of 19.4.
    assert abs(counts - 500).max() < 5 * 19.4


def test_the_choice_never_changes():
    # Other figures here would mean other published results.
    assert hold_out(20, 0.2, seed=0)[1].tolist() == [2, 3, 11, 13]
    assert hold_out(20, 0.2, seed=1)[1].tolist() == [2, 9, 16, 18]


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, float("nan"), 2])
def test_a_fraction_is_between_0_and_1(fraction):
    with pytest.raises(ArgumentError, match="valid_fraction"):
        data.load("digits", valid_fraction=fraction)


def test_other_wrong_arguments():
    with pytest.raises(ArgumentError, match="seed"):
        hold_out(10, 0.5, -1)
    with pytest.raises(ArgumentError, match="at least two"):
        hold_out(1, 0.5, 0)
