"""Grey images as PNG files."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt

_GREY_8_BITS = (8, 0, 0, 0, 0)  # depth, colour type, compression, filter, interlace


def encode_png(image: npt.NDArray[np.uint8]) -> bytes:
    """The bytes of a PNG file.

    Args:
        image: ``(height, width)``, 0 is black and 255 white.
    """
    height, width = image.shape
    lines = np.pad(image, ((0, 0), (1, 0)))  # each line begins with its filter: none
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, *_GREY_8_BITS)),
            _chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)),
            _chunk(b"IEND", b""),
        ]
    )


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
