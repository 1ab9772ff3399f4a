"""One file of tensors and a description, written whole or not at all, and read without running anything."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from picirc.errors import ArgumentError
from picirc.io.describe import Description

FORMAT = 1
_KEY = "picirc"  # of the description among the metadata of the file
_TYPES = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64}
# What reading can raise when a file is not what it says it is.
_FAILURES = (SafetensorError, OSError, ValueError, TypeError, LookupError, RuntimeError, RecursionError, OverflowError)


def pack(description: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> tuple[bytes, str]:
    """The bytes of a file, and the description in it as a text for people.

    The description gets the version of the format and the checksum of the tensors; it has a checksum of its own beside
    it.
    """
    full = {"format": FORMAT, **description, "sha256": _checksum(tensors)}
    try:
        envelope = {"sha256": _sign(full), "description": full}
        text = json.dumps(envelope, allow_nan=False)
        readable = json.dumps(full, allow_nan=False, indent=1, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError("summary", "plain JSON values, finite and with texts as keys", str(error)) from error
    return save(dict(tensors), metadata={_KEY: text}), readable


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that at every moment either the old content or the new one is there, whole."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with partial.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    if os.name == "posix":  # elsewhere a folder cannot be opened
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Turn whatever a broken file causes into one error that names the file."""
    try:
        yield
    except _FAILURES as error:
        reason = str(error) or type(error).__name__
        raise ArgumentError(str(path), "a model that picirc saved", f"something else: {reason}") from error


def read_description(path: Path) -> Description:
    """The description in a file, as it was written."""
    with refusing(path):
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(_KEY)
        if text is None:
            raise ArgumentError("file", "a description of a model", "tensors alone")
        envelope = json.loads(text, parse_constant=_no_constant)
        description: Description = envelope["description"]
        version = description["format"]
        if type(version) is not int or version < 1:
            raise ArgumentError("format", "a number from 1 on", version)
        if version > FORMAT:
            raise ArgumentError("format", f"at most {FORMAT}", version, "a later picirc wrote it: upgrade")
        if envelope["sha256"] != _sign(description):
            raise ArgumentError("sha256", "the checksum of the description", "another", "the file is damaged")
        return description


def read_tensors(path: Path, description: Description, shapes: Mapping[str, Tensor], dtype: torch.dtype) -> Any:
    """The tensors of a file, after a look at what it says that they are.

    Args:
        path: The file.
        description: Its description.
        shapes: Tensors of the names and shapes that the file must have, whatever their content.
        dtype: The floating-point type that they must have.
    """
    with refusing(path):
        with safe_open(path, framework="pt", device="cpu") as file:
            names = set(file.keys())
            if names != set(shapes):
                odd = sorted(names ^ set(shapes))
                raise ArgumentError("tensors", "those of the description", f"missing or unknown: {odd[0][:80]}")
            for name, wanted in shapes.items():
                entry = file.get_slice(name)
                shape, kind = tuple(entry.get_shape()), _TYPES.get(entry.get_dtype())
                if shape != tuple(wanted.shape) or kind != dtype:
                    expected = f"shape {tuple(wanted.shape)} and {dtype}"
                    raise ArgumentError(name, expected, f"{shape} and {entry.get_dtype()}")
            tensors = {name: file.get_tensor(name) for name in shapes}
        if description["sha256"] != _checksum(tensors):
            raise ArgumentError("sha256", "the checksum of the tensors", "another", "the file is damaged")
        return tensors


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of the names and contents."""
    found = hashlib.sha256()
    for name in sorted(tensors):
        found.update(f"{name}\n".encode())
        found.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def _sign(description: Mapping[str, Any]) -> str:
    """SHA-256 of a description, whatever the order of its keys and its white space."""
    text = json.dumps(description, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _no_constant(name: str) -> float:
    raise ArgumentError("description", "finite numbers", name)
