# SPDX-License-Identifier: Apache-2.0
"""Images with labels: MNIST, Fashion-MNIST and EMNIST from idx files, and the digits that come with the package."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np
import numpy.typing as npt

from picirc.data.dataset import Dataset, Labels, Provenance, hold_out
from picirc.data.files import read_idx
from picirc.errors import ArgumentError

Images = tuple[npt.NDArray[np.uint8], Labels]  # (row, line, column), (row,)

GREY_LEVELS = 256
DIGITS_GREY_LEVELS = 17
DIGITS_TEST_FRACTION = 300 / 1797
DIGITS_TEST_SEED = 0  # the test images never depend on the user's seed
DIGITS_SOURCE = (
    "Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, 1998, "
    "doi:10.24432/C50P49, CC BY 4.0; its test part, as scikit-learn distributes it; embedded in this package"
)


def read_images(
    name: str, paths: Sequence[Path], source: str, *, transposed: bool, seed: int, valid_fraction: float
) -> Dataset:
    """Read a data set of images from four idx files, and hold out some training images for validation.

    Args:
        name: The name of the data set.
        paths: Training images, training labels, test images, test labels.
        source: Origin and terms.
        transposed: Whether the files store every image with lines and columns exchanged, as EMNIST does.
        seed: Determines which images are held out.
        valid_fraction: The fraction held out.
    """
    train, test = (_read_pair(paths[0], paths[1], transposed), _read_pair(paths[2], paths[3], transposed))
    if train[0].shape[1:] != test[0].shape[1:]:
        expected = f"images of shape {train[0].shape[1:]}, as for training"
        raise ArgumentError(str(paths[2]), expected, test[0].shape[1:])
    return _split(name, train, test, GREY_LEVELS, Provenance(source, tuple(paths)), seed, valid_fraction)


def read_digits(seed: int, valid_fraction: float) -> Dataset:
    """Return 1,797 digits of 8×8 pixels: always the same 300 for testing, some for validation, the others to train."""
    with files("picirc.data").joinpath("embedded", "digits.npz").open("rb") as file, np.load(file) as arrays:
        images, labels = arrays["images"], arrays["labels"]
    rest, test = hold_out(len(images), DIGITS_TEST_FRACTION, DIGITS_TEST_SEED)
    first, second = ((images[rows], labels[rows]) for rows in (rest, test))
    return _split("digits", first, second, DIGITS_GREY_LEVELS, Provenance(DIGITS_SOURCE), seed, valid_fraction)


def _split(
    name: str, train: Images, test: Images, categories: int, provenance: Provenance, seed: int, valid_fraction: float
) -> Dataset:
    """Flatten the images, and hold out some of the training images."""
    height, width = train[0].shape[1:]
    rows, test_rows = (np.ascontiguousarray(part).reshape(len(part), -1) for part in (train[0], test[0]))
    kept, held = hold_out(len(rows), valid_fraction, seed)
    return Dataset(
        name=name,
        train=rows[kept],
        valid=rows[held],
        test=test_rows,
        categories=categories,
        provenance=provenance,
        image_shape=(height, width),
        train_labels=train[1][kept],
        valid_labels=train[1][held],
        test_labels=test[1],
    )


def _read_pair(images_path: Path, labels_path: Path, transposed: bool) -> Images:
    images, labels = read_idx(images_path, 3), read_idx(labels_path, 1)
    if len(images) != len(labels):
        expected = f"{len(images)} labels, one for each image of {images_path.name}"
        raise ArgumentError(str(labels_path), expected, len(labels), "both files must be of the same set")
    return images.transpose(0, 2, 1) if transposed else images, labels
