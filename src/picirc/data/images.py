"""Images with labels from idx files: MNIST, Fashion-MNIST and EMNIST."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from picirc.data.dataset import Dataset, Labels, Provenance, Rows, hold_out
from picirc.data.idx import read_idx
from picirc.errors import ArgumentError

GREY_LEVELS = 256


def read_images(
    name: str,
    paths: Sequence[Path],
    source: str,
    *,
    transposed: bool,
    seed: int,
    valid_fraction: float,
) -> Dataset:
    """Read a data set of images from four idx files, and hold out some training images for validation.

    Args:
        name: The name of the data set.
        paths: Training images, training labels, test images, test labels.
        source: Origin and terms.
        transposed: Whether the files store every image with lines and columns exchanged, as EMNIST does.
        seed: Which images are held out.
        valid_fraction: How many are.
    """
    train, train_labels = _read_pair(paths[0], paths[1], transposed)
    test, test_labels = _read_pair(paths[2], paths[3], transposed)
    if train.shape[1:] != test.shape[1:]:
        raise ArgumentError(str(paths[2]), f"images of shape {train.shape[1:]}, as for training", test.shape[1:])
    return split_images(
        name,
        (train, train_labels),
        (test, test_labels),
        categories=GREY_LEVELS,
        provenance=Provenance(source, tuple(paths)),
        seed=seed,
        valid_fraction=valid_fraction,
    )


def split_images(
    name: str,
    train: tuple[npt.NDArray[np.uint8], Labels],
    test: tuple[npt.NDArray[np.uint8], Labels],
    *,
    categories: int,
    provenance: Provenance,
    seed: int,
    valid_fraction: float,
) -> Dataset:
    """Flatten images (row, line, column) with their labels, and hold out some of the training images."""
    height, width = train[0].shape[1:]
    rows = _flatten(train[0])
    kept, held = hold_out(len(rows), valid_fraction, seed)
    return Dataset(
        name=name,
        train=rows[kept],
        valid=rows[held],
        test=_flatten(test[0]),
        categories=categories,
        provenance=provenance,
        image_shape=(height, width),
        train_labels=train[1][kept],
        valid_labels=train[1][held],
        test_labels=test[1],
    )


def _read_pair(images_path: Path, labels_path: Path, transposed: bool) -> tuple[npt.NDArray[np.uint8], Labels]:
    images, labels = read_idx(images_path, 3), read_idx(labels_path, 1)
    if len(images) != len(labels):
        expected = f"{len(images)} labels, one for each image of {images_path.name}"
        raise ArgumentError(str(labels_path), expected, len(labels), "both files must be of the same set")
    return images.transpose(0, 2, 1) if transposed else images, labels


def _flatten(images: npt.NDArray[np.uint8]) -> Rows:
    return np.ascontiguousarray(images).reshape(len(images), -1)
