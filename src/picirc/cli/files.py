# SPDX-License-Identifier: Apache-2.0
"""The files that commands read and write.

Nothing here imports torch, so that mistakes in options and files are reported at once.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from picirc import data
from picirc.checks import check_integer
from picirc.cli.commands import DataOptions, FitOptions, TableOptions
from picirc.data.datasets import Dataset, Provenance, hold_out
from picirc.data.frames import Frame, few, numbered
from picirc.data.tables import ENDINGS, MISSING, Stream, dtype_for, open_stream, read_file
from picirc.errors import ArgumentError

WRITABLE = (".csv", ".csv.gz", ".tsv", ".parquet")

_HELD_OUT, _SEED = 0.1, 0  # the parts of a file depend only on its number of rows
_GREY_8_BITS = (8, 0, 0, 0, 0)  # depth, colour type, compression, filter, interlace


# Checks before any work is done


def check_output(out: Path, *read: Path, endings: Sequence[str] = WRITABLE) -> None:
    """Raise unless a file can be written at ``out``. It may exist, but must not be one that the command reads."""
    if not out.name.lower().endswith(tuple(endings)):
        raise ArgumentError("--out", f"a file that ends in {', '.join(endings)}", str(out))
    if out.name.lower().endswith(".parquet") and find_spec("pyarrow") is None:
        raise ArgumentError("--out", "a .csv file without pyarrow", str(out), "install the extra picirc[data]")
    if out.is_dir():
        raise ArgumentError("--out", "a file", f"the folder {out}")
    if not out.parent.is_dir():
        raise ArgumentError("--out", "a file in a folder that exists", str(out), f"make {out.parent} first")
    for path in read:
        if out.exists() and path.exists() and out.samefile(path):
            raise ArgumentError("--out", "another file than the one that is read", str(out), "choose another name")


def check_place(out: Path, overwrite: bool) -> None:
    """Raise unless a model can be saved there."""
    single = out.suffix == ".safetensors"
    if out.exists() and out.is_dir() == single:
        expected = "a file" if single else "a folder, or a file that ends in .safetensors"
        raise ArgumentError("--out", expected, str(out), "choose another name")
    if (out if single else out / "model.safetensors").exists() and not overwrite:
        raise ArgumentError("--out", "a place without a model", str(out), "--overwrite replaces the model there")
    parent = next((folder for folder in out.parents if folder.exists()), out.parent)
    if not parent.is_dir() or (single and not out.parent.is_dir()):
        raise ArgumentError("--out", "a folder to save the model in", str(out), f"{out.parent} is not a folder")


# Tables


def read_table(path: Path, options: TableOptions) -> Frame:
    """Read the table of a command."""
    missing = MISSING if options.missing is None else options.missing
    largest = None if options.largest is None else 2**20 * check_integer("--largest", options.largest)
    return read_file(path, delimiter=delimiter_of(options), missing=missing, largest=largest)


def delimiter_of(options: TableOptions) -> str | None:
    """The separator of the cells; None for the default."""
    if options.delimiter is None or len(options.delimiter) == 1:
        return options.delimiter
    if options.delimiter not in ("tab", r"\t"):
        raise ArgumentError("--delimiter", "one character, or tab", options.delimiter)
    return "\t"


def declared_kinds(options: FitOptions) -> dict[str, str]:
    """The kinds of columns that the user declares."""
    found = dict.fromkeys(options.data.categorical, "categorical")
    for text in options.columns.columns:
        name, equals, kind = text.rpartition("=")
        if not equals or not name:
            raise ArgumentError("--columns", "NAME=KIND, such as age=poisson", text)
        if found.get(name, kind) != kind:
            raise ArgumentError("--columns", f"one kind for {name}", f"{found[name]} and {kind}")
        found[name] = kind
    return found


def read_training_table(path: Path, options: FitOptions, declared: Mapping[str, str]) -> Frame | Stream:
    """Read the table to learn from, without dropped columns. Of Parquet files only the footers are read."""
    ending = path.name.lower()
    if not path.exists() and not ending.endswith(ENDINGS):
        remedy = f"write --data {path} if it is the name of a data set"
        raise ArgumentError("TABLE", f"a file that ends in {', '.join(ENDINGS)}", str(path), remedy)
    streamed = ending.endswith(".parquet") or not ending.endswith(ENDINGS)  # a Parquet file, or a folder of them
    table = (open_stream(path) if streamed else None) or read_table(path, options.reading)
    dropped = options.columns.drop
    for option, names in (("--columns, --categorical", declared), ("--drop", dropped)):
        for name in names:
            if name not in table.names:
                raise ArgumentError(option, f"names among {few(table.names)}", name)
    kept = [name for name in table.names if name not in dropped]
    if not kept:
        raise ArgumentError("--drop", "at least one column left", "none")
    if isinstance(table, Frame):
        other = next((mark for mark in ";\t|," if mark in table.names[0]), None)
        if len(table.names) == 1 and table.written is not None and other is not None:
            remedy = f"set the separator with --delimiter {'tab' if other == chr(9) else repr(other)}"
            raise ArgumentError(str(path), "several columns", f"one, {table.names[0]!r}", remedy)
        for name in kept:  # so that malformed cells are reported before torch is imported
            table.cells(name, dtype_for(declared.get(name, "auto")))
    return table.select(kept)


# Data other than tables


def read_data(options: DataOptions, about: Mapping[str, Any] | None = None) -> Dataset:
    """Read a data set or a file.

    Args:
        options: The name of the data set or the file.
        about: What :func:`describe_data` returned for the training data of a model. A file must have the same columns.
    """
    if options.data is None:
        raise ArgumentError("--data", "the name of a data set", "none", "or give a table: picirc fit TABLE --out …")
    if not options.data.lower().endswith(ENDINGS):
        return data.load(options.data, options.data_dir)
    known = (about or {}).get("levels") or {}
    table = data.read(Path(options.data), known or options.categorical)
    if about is not None and list(table.columns) != about["columns"]:
        expected = f"the columns of the model's data ({few(about['columns'])})"
        raise ArgumentError("--data", expected, few(table.columns))
    if len(table.values) < 3:
        raise ArgumentError("--data", "at least three rows, one for each part", f"{len(table.values)}")
    rest, test = hold_out(len(table.values), _HELD_OUT, _SEED)
    train, valid = hold_out(len(rest), _HELD_OUT, _SEED)
    return Dataset(
        name=options.data,
        train=table.values[rest[train]],
        valid=table.values[rest[valid]],
        test=table.values[test],
        categories=None,
        provenance=Provenance("a table of the user", (Path(options.data),)),
        columns=table.columns,
        levels=table.levels,
    )


def describe_data(found: Dataset) -> dict[str, Any]:
    """What a model of these data needs to be used, as JSON values."""
    return {
        "columns": list(found.columns or numbered(found.train.shape[1])),
        "levels": {name: list(levels) for name, levels in found.levels.items()},
        "image_shape": None if found.image_shape is None else list(found.image_shape),
    }


# Images


def encode_png(image: npt.NDArray[np.uint8]) -> bytes:
    """The PNG file of an image ``(height, width)``, where 0 is black and 255 white."""
    height, width = image.shape
    header = struct.pack(">IIBBBBB", width, height, *_GREY_8_BITS)
    lines = np.pad(image, ((0, 0), (1, 0)))  # each line begins with its filter: none
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
