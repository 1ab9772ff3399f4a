"""Whether results can be written where the user wants them, before any work is done; no torch."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from picirc.errors import ArgumentError

ENDINGS = (".csv", ".csv.gz", ".tsv", ".parquet")


def check_output(out: Path, *read: Path, endings: Sequence[str] = ENDINGS) -> None:
    """Raise unless a file can be written there without a surprise, before any work is done.

    A file that is there is replaced, but not one that the command reads.

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
    """Raise unless a model can be saved there without a surprise."""
    single = out.suffix == ".safetensors"
    if out.exists() and out.is_dir() == single:
        expected = "a file" if single else "a folder, or a file that ends in .safetensors"
        raise ArgumentError("--out", expected, str(out), "choose another name")
    if (out if single else out / "model.safetensors").exists() and not overwrite:
        raise ArgumentError("--out", "a place without a model", str(out), "--overwrite replaces the model there")
    parent = next((folder for folder in out.parents if folder.exists()), out.parent)
    if not parent.is_dir() or (single and not out.parent.is_dir()):
        raise ArgumentError("--out", "a folder to save the model in", str(out), f"{out.parent} is none")
