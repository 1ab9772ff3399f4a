# SPDX-License-Identifier: Apache-2.0
"""Tables that are damaged, malformed or far too large: a result, or one line that says what is wrong."""

from __future__ import annotations

import contextlib
import gzip
import io
import random
import resource
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow
import pyarrow.parquet

from count import Count
from model_files import small_table_model
from picirc.cli import main

PERMITTED_MEMORY = 2**30
CELLS = [
    "",
    "1",
    "-1e999",
    "nan",
    "inf",
    "0x10",
    "1_000",
    "٣",
    "true",
    "a,b",
    '"',
    "\x00",
    "\x1b[2J",
    "=cmd()",
    "é" * 50,
]


def hostile_files(seed: int, scale: float) -> Count:
    """Mutated CSV, TSV, gzip, Parquet and NumPy files, scored by a model."""
    source, count = random.Random(seed), Count()
    with TemporaryDirectory() as name:
        folder = Path(name)
        small_table_model().save(folder / "model")
        originals = _originals(folder)
        for _ in range(int(2200 * scale)):
            ending, content = source.choice(originals)
            _score(folder, ending, _mutate(ending, content, source), count)
    return count


def enormous_files(seed: int, scale: float) -> Count:
    """Files that are small on the disk, or not so small, and too large in memory."""
    count = Count()
    with TemporaryDirectory() as name:
        folder = Path(name)
        small_table_model().save(folder / "model")
        for ending, make in ENORMOUS.items():
            _score(folder, ending.split(" ")[-1], make(), count)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    count.check(peak < PERMITTED_MEMORY, f"{peak / 2**30:.2f} GiB of memory")
    count.note = f"{peak / 2**20:.0f} MiB at most"
    return count


def _npy(shape: str, dtype: str = "<f8") -> bytes:
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (64 - (len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


ENORMOUS: dict[str, Callable[[], bytes]] = {
    "many columns .csv": lambda: _wide(10**6, "c"),
    "equal columns .csv": lambda: _wide(10**5, ""),
    "bomb .csv.gz": lambda: gzip.compress(b"size,pet\n") + gzip.compress(b"1,cat\n" * 2**18, 9) * 512,
    "bomb of one line .csv.gz": lambda: gzip.compress(b"1" * 2**20, 9) * 1024,
    "claim .npy": lambda: _npy("(10000000000, 1000)") + bytes(64),
    "claim beyond numbers .npy": lambda: _npy(f"({10**30}, 5)") + bytes(64),
    "negative claim .npy": lambda: _npy("(-1, 5)") + bytes(64),
    "objects .npy": lambda: _npy("(2, 2)", "|O") + bytes(64),
}


def _wide(columns: int, start: str) -> bytes:
    names = ",".join(f"{start}{i}" if start else "same" for i in range(columns))
    return f"{names}\n{','.join(['1'] * columns)}\n".encode()


def _originals(folder: Path) -> list[tuple[str, bytes]]:
    text = "size,weight,pet,count,flag,rain,pay\n" + "".join(
        f"{i / 7},{i},{'cat' if i % 2 else ''},{i},true,{i % 3},{i + 1}\n" for i in range(9)
    )
    columns = {"size": [1.0, None], "weight": [2.0, 1.0], "pet": ["cat", "dog"], "count": [1, 2], "flag": [True, None]}
    columns |= {"rain": [0.0, 0.5], "pay": [None, 3.0]}
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "t.parquet")
    np.save(folder / "t.npy", np.arange(14.0).reshape(2, 7))
    np.savez(folder / "t.npz", x=np.arange(14.0).reshape(2, 7))
    found = [(".csv", text.encode())] * 4 + [(".tsv", text.replace(",", "\t").encode())]
    found.append((".csv.gz", gzip.compress(text.encode(), mtime=0)))
    return found + [(ending, (folder / f"t{ending}").read_bytes()) for ending in (".parquet", ".npy", ".npz")]


def _mutate(ending: str, content: bytes, source: random.Random) -> bytes:
    if ending in (".csv", ".tsv") and source.random() < 0.7:
        rows = [line.split(b",") for line in content.split(b"\n")]
        row = source.choice(rows)
        row[source.randrange(len(row))] = source.choice(CELLS).encode()
        if source.random() < 0.3:
            row.append(source.choice(CELLS).encode())
        return b"\n".join(b",".join(cells) for cells in rows)
    changed = bytearray(content)
    for _ in range(source.choice([1, 2, 8])):
        place = source.randrange(len(changed))
        match source.randrange(3):
            case 0:
                changed[place] ^= 1 << source.randrange(8)
            case 1:
                changed[place:place] = source.randbytes(source.randrange(5))
            case 2:
                del changed[place : place + source.randrange(20)]
                changed = changed or bytearray(b" ")
    return bytes(changed)


def _score(folder: Path, ending: str, content: bytes, count: Count) -> None:
    """Score a file from the command line: exit code 0 or 2, and then one line and no output."""
    path, out = folder / f"rows{ending}", folder / "out.csv"
    path.write_bytes(content)
    out.unlink(missing_ok=True)
    words = f"{ending} {content[:80]!r}…"
    errors = io.StringIO()
    with (
        count.attempt(words),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(errors),
    ):
        code = main(["score", str(folder / "model"), str(path), "-o", str(out)])
        said = errors.getvalue()
        last = said.splitlines()[-1:] or [""]
        plain = all(letter.isprintable() for letter in said.replace("\n", ""))
        held = code == 0 if out.exists() else code == 2 and last[0].startswith("picirc: error: ")
        count.check(held and plain, f"{words}: {code}, {said[:200]!r}")
    path.unlink()
