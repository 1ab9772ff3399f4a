# SPDX-License-Identifier: Apache-2.0
"""Data sets in text files: sentences as rows of characters, and zeros and ones separated by commas."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from picirc.data.dataset import Dataset, Provenance, Rows
from picirc.data.files import open_unpacked, read_text
from picirc.errors import ArgumentError

PADDING = "@"  # category 0; it does not occur in the Penn Tree Bank
LENGTH = 288
MOST_SYMBOLS = 256  # a category is one byte


def read_sentences_set(name: str, paths: Sequence[Path], source: str, length: int = LENGTH) -> Dataset:
    """Read a data set of sentences, one a line, and code its characters.

    A sentence is stripped of white space at both ends, cut to ``length`` characters and padded with ``@`` to that
    length. The categories are ``@`` = 0, then the characters by their first occurrence in the stripped training
    sentences. No token is special: ``<unk>`` is five characters, and ``N``, which stands for a number, is one. The
    Penn Tree Bank has 49 characters, hence 50 categories, and ``train != 0`` tells characters from padding.

    Args:
        name: The name of the data set.
        paths: Files for training, validation and testing.
        source: Origin and terms.
        length: The number of variables.

    Raises:
        ArgumentError: A file has no sentence, a sentence contains ``@`` or a character that the training text lacks,
            or there are too many characters.
    """
    parts = [read_sentences(path) for path in paths]
    symbols = PADDING + "".join(dict.fromkeys("".join(parts[0].values())))
    if len(symbols) > MOST_SYMBOLS:
        raise ArgumentError(str(paths[0]), f"at most {MOST_SYMBOLS - 1} characters", f"{len(symbols) - 1} of them")
    train, valid, test = (encode(part, symbols, length, path) for part, path in zip(parts, paths, strict=True))
    provenance = Provenance(source, tuple(paths))
    return Dataset(name, train, valid, test, categories=len(symbols), provenance=provenance, symbols=symbols)


def read_sentences(path: Path) -> dict[int, str]:
    """Return the stripped sentences of a file by line number, from 1; empty lines are skipped."""
    lines = enumerate(read_text(path).split("\n"), start=1)
    sentences = {number: sentence for number, line in lines if (sentence := line.strip())}
    if not sentences:
        raise ArgumentError(str(path), "at least one sentence", "an empty file")
    for number, sentence in sentences.items():
        if PADDING in sentence:
            raise ArgumentError(f"{path}, line {number}", "text without @, which marks padding", sentence)
    return sentences


def encode(sentences: dict[int, str], symbols: str, length: int, path: Path) -> Rows:
    """Code sentences, given by their line, as rows (sentence, position) of positions in ``symbols``."""
    known = set(symbols)
    for number, sentence in sentences.items():
        if strange := set(sentence) - known:
            expected = "characters that occur in the training text"
            raise ArgumentError(f"{path}, line {number}", expected, f"{min(strange)!r}")
    padded = "".join(sentence[:length].ljust(length, PADDING) for sentence in sentences.values())
    codes = str.maketrans({symbol: chr(category) for category, symbol in enumerate(symbols)})
    coded = bytearray(padded.translate(codes), "latin-1")  # Latin-1 is the code whose bytes are the first 256
    return np.frombuffer(coded, np.uint8).reshape(-1, length)


def decode(rows: npt.ArrayLike, symbols: str) -> list[str]:
    """Return the text of coded rows, without the padding at the end.

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
    """Read lines such as ``0,1,1,0``, compressed with gzip or not.

    Raises:
        ArgumentError: A line is not of that form or of another length than the first; the error names the line.
    """
    with open_unpacked(path) as file:
        lines = [line.rstrip() for line in file.read().rstrip().split(b"\n")]
    width = len(lines[0])
    # All lines of one width: the file is a matrix of characters, every second one a comma.
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
