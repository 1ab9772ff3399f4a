"""The idx format of the MNIST family: a magic number, big-endian sizes, then the bytes.

=======  ======================================================
bytes    meaning
=======  ======================================================
0, 1     zero
2        type of the values; 8 is unsigned bytes, all we need
3        number d of dimensions
4d       the d sizes, four bytes each, the most significant first
rest     the values, the last dimension running fastest
=======  ======================================================
"""

from __future__ import annotations

import io
import math
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from picirc.data.unpacked import open_unpacked
from picirc.errors import ArgumentError

UNSIGNED_BYTES = 8

# No deflate stream unpacks to more than 1032 times its size; a header that claims more than that is wrong, and
# must not decide how much memory is asked for.
LARGEST_RATIO = 1100


def idx_shape(path: Path, dimensions: int) -> tuple[int, ...]:
    """Return the shape that the header of an idx file claims.

    Raises:
        ArgumentError: It is no idx file of unsigned bytes with that many dimensions, or one without values.
    """
    with open_unpacked(path) as file:
        return _read_header(file, path, dimensions)


def read_idx(path: Path, dimensions: int) -> npt.NDArray[np.uint8]:
    """Read an idx file of unsigned bytes, packed with gzip or not.

    Args:
        path: The file.
        dimensions: The number of dimensions it must have: 3 for images, 1 for labels.

    Raises:
        ArgumentError: Wrong magic number, wrong number of dimensions, truncated, too long, or corrupted.
    """
    with open_unpacked(path) as file:
        shape = _read_header(file, path, dimensions)
        size = math.prod(shape)
        claim = f"{size} values, as the header says {shape}"
        if size > LARGEST_RATIO * path.stat().st_size:
            raise ArgumentError(str(path), claim, "a smaller file", "it is truncated or corrupted: get it anew")
        values = np.empty(shape, np.uint8)
        came = file.readinto(values.data.cast("B"))
        if came != size:
            raise ArgumentError(str(path), claim, f"{came} values", "the file is truncated: get it anew")
        if file.read(1):  # reading to the end also makes gzip compare its checksum
            raise ArgumentError(str(path), claim, "more than that", "the file is corrupted: get it anew")
    return values


def _read_header(file: io.BufferedIOBase, path: Path, dimensions: int) -> tuple[int, ...]:
    head = file.read(4)
    expected = bytes([0, 0, UNSIGNED_BYTES, dimensions])
    if head != expected:
        wanted = f"an idx file of bytes in {dimensions} dimensions (it begins {expected.hex(' ')})"
        raise ArgumentError(str(path), wanted, f"one that begins {head.hex(' ')}" if head else "an empty file")
    sizes = file.read(4 * dimensions)
    if len(sizes) != 4 * dimensions:
        raise ArgumentError(str(path), f"{dimensions} sizes in the header", "a truncated header", "get the file anew")
    shape = struct.unpack(f">{dimensions}I", sizes)
    if 0 in shape:
        raise ArgumentError(str(path), "at least one value", f"shape {shape}")
    return shape
