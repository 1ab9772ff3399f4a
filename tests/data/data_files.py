# SPDX-License-Identifier: Apache-2.0
"""Small files in every format that the readers read, written by code that shares nothing with them."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np

PARTS = ("train", "valid", "test")


def idx_bytes(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}i", *array.shape) + array.tobytes()


def write(path: Path, content: bytes, packed: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content, mtime=0) if packed else content)
    return path


def random_images(rows: int, seed: int, height: int = 4, width: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Images without symmetry, each marked in its first pixel by its label."""
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (rows, height, width), dtype=np.uint8)
    labels = np.arange(rows, dtype=np.uint8)
    images[:, 0, 0] = labels
    return images, labels


def write_images(folder: Path, train, test, prefix: str = "", test_name: str = "t10k", packed: bool = True) -> None:
    """Write four idx files; ``train`` and ``test`` are pairs of images and labels."""
    for part, (images, labels) in {"train": train, test_name: test}.items():
        ending = ".gz" if packed else ""
        write(folder / f"{prefix}{part}-images-idx3-ubyte{ending}", idx_bytes(images), packed)
        write(folder / f"{prefix}{part}-labels-idx1-ubyte{ending}", idx_bytes(labels), packed)


def write_text(folder: Path, train: str, valid: str, test: str, packed: bool = True) -> None:
    for part, text in zip(PARTS, (train, valid, test), strict=True):
        write(folder / f"ptb.{part}.txt{'.gz' if packed else ''}", text.encode(), packed)


def binary_bytes(rows: np.ndarray) -> bytes:
    return "".join(",".join(str(value) for value in row) + "\n" for row in rows.tolist()).encode()


def write_binary(folder: Path, name: str, parts, packed: bool = True) -> None:
    for part, rows in zip(PARTS, parts, strict=True):
        write(folder / f"{name}.{part}.data{'.gz' if packed else ''}", binary_bytes(rows), packed)


def binary_rows(seed: int, variables: int = 5) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.integers(0, 2, (rows, variables), dtype=np.uint8) for rows in (7, 3, 4)]
