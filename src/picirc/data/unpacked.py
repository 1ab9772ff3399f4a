"""Files that may or may not be packed with gzip, read as if they were not."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from picirc.errors import ArgumentError

GZIP_MAGIC = b"\x1f\x8b"


@contextmanager
def open_unpacked(path: Path) -> Iterator[io.BufferedIOBase]:
    """Open a file to read its unpacked content; the content tells whether it is packed, not the name.

    Raises:
        ArgumentError: The file does not exist, or is packed and corrupted (found while reading).
    """
    try:
        with path.open("rb") as raw:
            packed = raw.read(len(GZIP_MAGIC)) == GZIP_MAGIC
            raw.seek(0)
            if packed:
                with gzip.GzipFile(fileobj=raw) as file:
                    yield file
            else:
                yield raw
    except (FileNotFoundError, IsADirectoryError) as error:
        raise ArgumentError(str(path), "a file", "none there") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ArgumentError(str(path), "a whole gzip file", f"a corrupted one ({error})", "get it anew") from error


def read_text(path: Path) -> str:
    """Return the unpacked content of a file in UTF-8, without a byte-order mark."""
    with open_unpacked(path) as file:
        content = file.read()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ArgumentError(f"{path}, line {line}", "text in UTF-8", error.reason) from error


def sha256(path: Path) -> str:
    """Return the SHA-256 of the unpacked content: the same for a file and for any way to pack it."""
    with open_unpacked(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
