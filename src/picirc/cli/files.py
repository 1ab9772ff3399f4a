# SPDX-License-Identifier: Apache-2.0
"""The files that commands read and write.

Nothing here imports torch, so that a mistake in an option or in a file is reported at once.
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
from picirc.cli.options import ColumnOptions, DataOptions, SequenceOptions, TableOptions, differing
from picirc.data.dataset import Dataset, Provenance, hold_out
from picirc.data.frames import Frame, few, numbered
from picirc.data.streams import Stream, open_stream
from picirc.data.tables import ENDINGS, MISSING, dtype_for, read_file
from picirc.errors import ArgumentError

WRITABLE = (".csv", ".csv.gz", ".tsv", ".parquet")

_MODEL = Path("model")  # where a model is unless another path is given
_HELD_OUT, _SEED = 0.1, 0  # the parts of a file depend only on its number of rows
_GREY_8_BITS = (8, 0, 0, 0, 0)  # depth, colour type, compression, filter, interlace


# Checks before any work is done


def check_output(out: Path, *read: Path, endings: Sequence[str] = WRITABLE) -> None:
    """Raise unless a file can be written there.

    An existing file is replaced, unless the command reads it.

    Args:
        out: The file to write.
        *read: The files and folders that the command reads.
        endings: What its name may end in.
    """
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


def check_no_sequences(options: SequenceOptions) -> None:
    """Raise if an option is given that applies to sequences only."""
    for name in differing(options):
        raise ArgumentError(f"--{name}", "an option for sequences", "a table of independent rows", "add --sequences")


# Tables


def read_table(path: Path, options: TableOptions) -> Frame:
    """Read the table of a command."""
    missing = MISSING if options.missing is None else options.missing
    largest = None if options.largest is None else 2**20 * check_integer("--largest", options.largest)
    return read_file(path, delimiter=delimiter_of(options), missing=missing, largest=largest)


def delimiter_of(options: TableOptions) -> str | None:
    """What separates the cells."""
    if options.delimiter is None or len(options.delimiter) == 1:
        return options.delimiter
    if options.delimiter not in ("tab", r"\t"):
        raise ArgumentError("--delimiter", "one character, or tab", options.delimiter)
    return "\t"


def model_and_table(first: Path, second: Path | None) -> tuple[Path, Path]:
    """The model and the table among the arguments of a command; a single argument is the table."""
    return (first, second) if second is not None else (_MODEL, first)


def declared_kinds(data: DataOptions, columns: ColumnOptions) -> dict[str, str]:
    """The kinds of columns that the user declares."""
    found = dict.fromkeys(data.categorical, "categorical")
    for text in columns.columns:
        name, equals, kind = text.rpartition("=")
        if not equals or not name:
            raise ArgumentError("--columns", "NAME=KIND, such as age=poisson", text)
        if found.get(name, kind) != kind:
            raise ArgumentError("--columns", f"one kind for {name}", f"{found[name]} and {kind}")
        found[name] = kind
    return found


def read_training_table(
    path: Path, options: TableOptions, declared: Mapping[str, str], dropped: Sequence[str]
) -> Frame | Stream:
    """Read a table to learn from, without the columns to leave out; of Parquet files only what is in them."""
    if path.name.lower().endswith(".parquet") or (path.is_dir() and not path.name.lower().endswith(ENDINGS)):
        return _open_training_stream(path, declared, dropped)
    if not path.exists() and not path.name.lower().endswith(ENDINGS):
        remedy = f"write --data {path} if it is the name of a data set"
        raise ArgumentError("TABLE", f"a file that ends in {', '.join(ENDINGS)}", str(path), remedy)
    frame = read_table(path, options)
    _check_known(frame.names, declared, dropped)
    other = next((mark for mark in ";\t|," if mark in frame.names[0]), None)
    if len(frame.names) == 1 and frame.written is not None and other is not None:
        remedy = f"set the separator with --delimiter {'tab' if other == chr(9) else repr(other)}"
        raise ArgumentError(str(path), "several columns", f"one, {frame.names[0]!r}", remedy)
    kept = [name for name in frame.names if name not in dropped]
    for name in kept:  # so that malformed cells are reported before torch is imported
        frame.cells(name, dtype_for(declared.get(name, "auto")))
    return frame.select(kept)


def _open_training_stream(path: Path, declared: Mapping[str, str], dropped: Sequence[str]) -> Stream:
    stream = open_stream(path)
    assert stream is not None
    _check_known(stream.names, declared, dropped)
    return stream.select([name for name in stream.names if name not in dropped])


def _check_known(names: Sequence[str], declared: Mapping[str, str], dropped: Sequence[str]) -> None:
    """Raise if an option names a column that the table does not have, or if none is left."""
    for option, given in (("--columns, --categorical", declared), ("--drop", dropped)):
        for name in given:
            if name not in names:
                raise ArgumentError(option, f"names among {few(names)}", name)
    if not set(names) - set(dropped):
        raise ArgumentError("--drop", "at least one column left", "none")


# Data other than tables


def read_data(options: DataOptions, about: Mapping[str, Any] | None = None) -> Dataset:
    """Read a data set or a file.

    Args:
        options: Which one.
        about: What :func:`describe_data` returned for the data that a model was trained on; a file must have the same
            columns.
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
    """What is needed to use a model of these data, as JSON values."""
    return {
        "columns": list(found.columns or numbered(found.train.shape[1])),
        "levels": {name: list(levels) for name, levels in found.levels.items()},
        "image_shape": None if found.image_shape is None else list(found.image_shape),
    }


# Images


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
