# SPDX-License-Identifier: Apache-2.0
"""Data sets with rows for training, validation and testing, read from images and text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from picirc.checks import check_integer
from picirc.data.files import open_unpacked, read_idx, read_text, sha256
from picirc.errors import ArgumentError

Rows = npt.NDArray[Any]  # (row, variable)
Labels = npt.NDArray[np.uint8]  # (row,)
Indices = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Provenance:
    """The origin of a data set.

    Attributes:
        source: The origin and terms, in words.
        files: The files that were read.
    """

    source: str
    files: tuple[Path, ...] = ()

    def sha256(self) -> dict[str, str]:
        """Return the SHA-256 of the decompressed content of every file, by its path."""
        return {str(path): sha256(path) for path in self.files}


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Rows for training, validation and testing.

    Attributes:
        name: The name that was loaded.
        train: Training rows, (row, variable).
        valid: Validation rows.
        test: Test rows.
        categories: The number K of values 0, …, K - 1 of every variable; None for a table of numbers.
        image_shape: Height and width if the rows are images, flattened line by line, else None.
        train_labels: The class of every row of ``train``, numbered as in the source (EMNIST letters from 1), or None.
        valid_labels: The same for ``valid``.
        test_labels: The same for ``test``.
        symbols: The character of every category if the rows are text, else empty.
        columns: The names of the variables of a table, else empty.
        levels: The strings that the values of each categorical column of a table stand for.
        provenance: The origin.
    """

    name: str
    train: Rows
    valid: Rows
    test: Rows
    categories: int | None
    provenance: Provenance
    image_shape: tuple[int, int] | None = None
    train_labels: Labels | None = None
    valid_labels: Labels | None = None
    test_labels: Labels | None = None
    symbols: str = ""
    columns: tuple[str, ...] = ()
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __repr__(self) -> str:
        parts = ", ".join(f"{part}={getattr(self, part).shape}" for part in ("train", "valid", "test"))
        return f"Dataset({self.name!r}, {parts}, categories={self.categories})"


def hold_out(rows: int, fraction: float, seed: int) -> tuple[Indices, Indices]:
    """Choose rows to hold out, at least one; a seed gives the same rows on every machine and in every version.

    Returns:
        The rows kept and the rows held out, both in ascending order.

    Example:
        >>> kept, held = hold_out(10, 0.2, seed=0)
        >>> kept, held
        (array([0, 1, 4, 5, 6, 7, 8, 9]), array([2, 3]))
    """
    if not 0 < fraction < 1:
        raise ArgumentError("valid_fraction", "a number between 0 and 1", fraction)
    if rows < 2:
        raise ArgumentError("rows", "at least two, one to keep and one to hold out", rows)
    check_integer("seed", seed, 0)
    count = min(max(round(fraction * rows), 1), rows - 1)
    # NumPy guarantees only the raw bits of its generators to stay the same in later versions.
    order = np.argsort(np.random.PCG64(seed).random_raw(rows), kind="stable")
    return np.sort(order[count:]), np.sort(order[:count])


# Images with labels


Images = tuple[npt.NDArray[np.uint8], Labels]  # (row, line, column), (row,)

GREY_LEVELS = 256
DIGITS_GREY_LEVELS = 17
DIGITS_TEST_FRACTION = 300 / 1797
DIGITS_TEST_SEED = 0  # the test images do not depend on the user's seed
DIGITS_SOURCE = (
    "Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, 1998, "
    "doi:10.24432/C50P49, CC BY 4.0; its test part, as scikit-learn distributes it; embedded in this package"
)


def read_images(
    name: str, paths: Sequence[Path], source: str, *, transposed: bool, seed: int, valid_fraction: float
) -> Dataset:
    """Read a data set of images from four idx files, and hold out some training images for validation.

    The files are training images, training labels, test images and test labels. ``transposed`` means that lines and
    columns of every image are exchanged, as in EMNIST.
    """
    train, test = (_read_pair(paths[0], paths[1], transposed), _read_pair(paths[2], paths[3], transposed))
    if train[0].shape[1:] != test[0].shape[1:]:
        expected = f"images of shape {train[0].shape[1:]}, as for training"
        raise ArgumentError(str(paths[2]), expected, test[0].shape[1:])
    return _split(name, train, test, GREY_LEVELS, Provenance(source, tuple(paths)), seed, valid_fraction)


def read_digits(seed: int, valid_fraction: float) -> Dataset:
    """Return the 1,797 digits of 8×8 pixels. The 300 test images are always the same."""
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


# Text: sentences, and zeros and ones separated by commas


PADDING = "@"  # category 0; it does not occur in the Penn Tree Bank
LENGTH = 288
MOST_SYMBOLS = 256  # a category is one byte


def read_sentences_set(name: str, paths: Sequence[Path], source: str, length: int = LENGTH) -> Dataset:
    """Read a data set of sentences, one on each line, as rows of characters.

    White space at both ends of a sentence is removed. It is cut to ``length`` characters, or padded with ``@``. The
    categories are ``@`` = 0, then the characters in the order of their first occurrence in the training sentences.
    No token is special: ``<unk>`` is five characters, and ``N``, which stands for a number, is one. The Penn Tree
    Bank has 49 characters, hence 50 categories.
    """
    parts = [read_sentences(path) for path in paths]
    symbols = PADDING + "".join(dict.fromkeys("".join(parts[0].values())))
    if len(symbols) > MOST_SYMBOLS:
        raise ArgumentError(str(paths[0]), f"at most {MOST_SYMBOLS - 1} characters", f"{len(symbols) - 1} of them")
    train, valid, test = (encode(part, symbols, length, path) for part, path in zip(parts, paths, strict=True))
    provenance = Provenance(source, tuple(paths))
    return Dataset(name, train, valid, test, categories=len(symbols), provenance=provenance, symbols=symbols)


def read_sentences(path: Path) -> dict[int, str]:
    """Return the sentences of a file by line number, from 1; empty lines are skipped."""
    lines = enumerate(read_text(path).split("\n"), start=1)
    sentences = {number: sentence for number, line in lines if (sentence := line.strip())}
    if not sentences:
        raise ArgumentError(str(path), "at least one sentence", "an empty file")
    for number, sentence in sentences.items():
        if PADDING in sentence:
            raise ArgumentError(f"{path}, line {number}", "text without @, which marks padding", sentence)
    return sentences


def encode(sentences: dict[int, str], symbols: str, length: int, path: Path) -> Rows:
    """Encode sentences, given by line number, as an array (sentence, position) of indices into ``symbols``."""
    known = set(symbols)
    for number, sentence in sentences.items():
        if strange := set(sentence) - known:
            expected = "characters that occur in the training text"
            raise ArgumentError(f"{path}, line {number}", expected, f"{min(strange)!r}")
    padded = "".join(sentence[:length].ljust(length, PADDING) for sentence in sentences.values())
    codes = str.maketrans({symbol: chr(category) for category, symbol in enumerate(symbols)})
    coded = bytearray(padded.translate(codes), "latin-1")  # which maps the first 256 characters to their numbers
    return np.frombuffer(coded, np.uint8).reshape(-1, length)


def decode(rows: npt.ArrayLike, symbols: str) -> list[str]:
    """Return the text of encoded rows, without the padding at the end.

    Args:
        rows: Categories, (row, position).
        symbols: The character of every category, as in :attr:`Dataset.symbols`.

    Example:
        >>> decode([[2, 1, 2, 0, 0], [1, 0, 2, 0, 0]], symbols="@ab")
        ['bab', 'a@b']
    """
    codes = np.asarray(rows)
    if codes.ndim != 2 or codes.dtype.kind not in "iu":
        raise ArgumentError("rows", "integers (row, position)", f"{codes.dtype} of shape {codes.shape}")
    if codes.size and not (codes.min() >= 0 and codes.max() < len(symbols)):
        raise ArgumentError("rows", f"categories 0 to {len(symbols) - 1}", f"{codes.min()} to {codes.max()}")
    return ["".join(symbols[code] for code in row).rstrip(PADDING) for row in codes]


def read_binary_set(name: str, paths: Sequence[Path], source: str) -> Dataset:
    """Read a binary data set from its files for training, validation and testing."""
    train, valid, test = (read_binary(path) for path in paths)
    for path, rows in zip(paths[1:], (valid, test), strict=True):
        if rows.shape[1] != train.shape[1]:
            raise ArgumentError(str(path), f"{train.shape[1]} variables, as for training", rows.shape[1])
    return Dataset(name, train, valid, test, categories=2, provenance=Provenance(source, tuple(paths)))


def read_binary(path: Path) -> Rows:
    """Read lines of equal length such as ``0,1,1,0``; errors name the line."""
    with open_unpacked(path) as file:
        lines = [line.rstrip() for line in file.read().rstrip().split(b"\n")]
    width = len(lines[0])
    # With lines of one length the file is a matrix of characters, in which every second column has commas.
    for number, line in enumerate(lines, start=1):
        if len(line) != width or not width:
            raise _malformed(path, number, line, width)
    characters = np.frombuffer(b",".join(lines) + b",", np.uint8).reshape(len(lines), -1)
    values, commas = characters[:, ::2], characters[:, 1::2]
    if values.shape != commas.shape:
        raise _malformed(path, 1, lines[0], width)
    wrong = ((values != ord("0")) & (values != ord("1"))).any(axis=1) | (commas != ord(",")).any(axis=1)
    if wrong.any():
        row = int(wrong.argmax())
        raise _malformed(path, row + 1, lines[row], width)
    return values - np.uint8(ord("0"))


def _malformed(path: Path, number: int, line: bytes, width: int) -> ArgumentError:
    expected = f"{(width + 1) // 2} zeros and ones separated by commas"
    shown = line.decode("ascii", "backslashreplace")
    return ArgumentError(f"{path}, line {number}", expected, shown if len(shown) <= 60 else f"{shown[:60]}…")
