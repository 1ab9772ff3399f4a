# SPDX-License-Identifier: Apache-2.0
"""Public data sets, and tables in files.

:func:`load` returns a :class:`Dataset` by name; :func:`read` returns a :class:`Table` from a file.
"""

from __future__ import annotations

from picirc.atomic import cache_folder
from picirc.data.datasets import (
    SETS,
    DataDir,
    Dataset,
    DownloadError,
    Provenance,
    binary_set,
    data_folders,
    decode,
    find,
    obtain,
    read_binary_set,
    read_digits,
    read_images,
    read_sentences_set,
)
from picirc.data.frames import Table
from picirc.data.tables import read, read_csv, read_numpy, read_parquet
from picirc.errors import ArgumentError

__all__ = [
    "Dataset",
    "DownloadError",
    "Provenance",
    "Table",
    "cache_folder",
    "decode",
    "load",
    "names",
    "read",
    "read_csv",
    "read_numpy",
    "read_parquet",
]


def names() -> tuple[str, ...]:
    """Return the names that :func:`load` knows.

    Example:
        >>> names()[:3]
        ('digits', 'mnist', 'fashion-mnist')
    """
    return ("digits", *SETS)


def load(
    name: str = "digits",
    data_dir: DataDir = None,
    *,
    seed: int = 0,
    valid_fraction: float = 0.05,
    download: bool = True,
    base_url: str | None = None,
) -> Dataset:
    """Load a data set by name.

    The digits are part of the package. The files of other sets are searched for in ``data_dir`` or, by default, in the
    folder of the environment variable ``PICIRC_DATA`` and in the user's cache. Besides ``mnist/``, ``debd/nltcs/`` and
    so on, other common folders such as ``MNIST/raw/`` are searched. Missing files are downloaded to ``data_dir`` or the
    cache, and verified. Files may be compressed with gzip.

    Args:
        name: One of :func:`names`, or the NAME of files ``NAME.{train,valid,test}.data`` of zeros and ones separated by
            commas, in ``debd/NAME/``, ``NAME/`` or the data folder itself.
        data_dir: The only folder to search and to download to.
        seed: The seed for choosing validation rows, if the source has none.
        valid_fraction: The fraction of training rows to hold out for validation.
        download: Whether to download missing files.
        base_url: The address of a folder with the files, instead of the public one.

    Raises:
        ArgumentError: The name is unknown, files are missing, or a file is corrupted.
        DownloadError: A download failed; nothing is left behind.

    Example:
        >>> load("digits")
        Dataset('digits', train=(1422, 64), valid=(75, 64), test=(300, 64), categories=17)
    """
    if name == "digits":
        return read_digits(seed, valid_fraction)
    files = SETS.get(name) or binary_set(name)
    if name not in SETS and find(files, data_folders(data_dir)) is None:
        expected = f"one of {', '.join(names())}, or NAME of files NAME.train.data and so on in the data folder"
        raise ArgumentError("name", expected, name, "picirc.data.read(path) reads a table from a file")
    paths = obtain(files, data_dir, download=download, base_url=base_url)
    match files.kind:
        case "sentences":
            return read_sentences_set(name, paths, files.source)
        case "binary":
            return read_binary_set(name, paths, files.source)
    transposed = files.kind == "transposed images"
    return read_images(name, paths, files.source, transposed=transposed, seed=seed, valid_fraction=valid_fraction)
