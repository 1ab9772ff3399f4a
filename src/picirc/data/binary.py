"""Binary density-estimation sets: zeros and ones separated by commas, in ``NAME.{train,valid,test}.data``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from picirc.data.dataset import Dataset, Provenance, Rows
from picirc.data.unpacked import open_unpacked
from picirc.errors import ArgumentError


def read_binary_set(name: str, paths: Sequence[Path], source: str) -> Dataset:
    """Read a binary data set from its files for training, validation and testing."""
    train, valid, test = (read_binary(path) for path in paths)
    for path, rows in zip(paths[1:], (valid, test), strict=True):
        if rows.shape[1] != train.shape[1]:
            raise ArgumentError(str(path), f"{train.shape[1]} variables, as for training", rows.shape[1])
    return Dataset(name, train, valid, test, categories=2, provenance=Provenance(source, tuple(paths)))


def read_binary(path: Path) -> Rows:
    """Read lines such as ``0,1,1,0``, packed with gzip or not.

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
