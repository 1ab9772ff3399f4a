# SPDX-License-Identifier: Apache-2.0
"""The file format: tensors and a description, each with a checksum. Reading runs no code from the file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from picirc.atomic import replace_files
from picirc.errors import ArgumentError
from picirc.io.describe import Description

FilePath = str | PathLike[str]

FORMAT = 1
_SUFFIX, _TENSORS, _COPY = ".safetensors", "model.safetensors", "model.json"
_LARGEST = 1e15  # parameter; trained ones are far smaller
_KEY = "picirc"  # of the description in the metadata
# What reading can raise for a damaged or inconsistent file.
_FAILURES = (
    *(SafetensorError, OSError, ValueError, TypeError, LookupError),
    *(RuntimeError, RecursionError, OverflowError, MemoryError),
)


def pack(description: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> tuple[bytes, str]:
    """The content of a file, and its description as readable text.

    The description includes the version of the format and the checksum of the tensors, and has a checksum of its own.
    """
    full = {"format": FORMAT, **description, "sha256": _checksum(tensors)}
    try:
        envelope = {"sha256": _sign(full), "description": full}
        text = json.dumps(envelope, allow_nan=False)
        readable = json.dumps(full, allow_nan=False, indent=1, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError("summary", "plain JSON values, finite and with strings as keys", str(error)) from error
    try:
        return save(dict(tensors), metadata={_KEY: text}), readable
    except SafetensorError as error:  # a header of more than 100 MB
        got = f"{len(text):,} characters ({error})"
        raise ArgumentError("model", "a description that fits into a file", got) from error


def write(path: FilePath, content: bytes, readable: str) -> None:
    """Write the result of ``pack`` atomically: to a ``.safetensors`` file, or with a readable copy to a folder."""
    target = Path(path)
    if target.suffix == _SUFFIX:
        replace_files({target: content})
        return
    target.mkdir(parents=True, exist_ok=True)
    replace_files({target / _TENSORS: content, target / _COPY: f"{readable}\n".encode(errors="backslashreplace")})


def file_of(path: FilePath, writer: str = "pc.save") -> Path:
    """The file of a model, given its path or its folder."""
    target = Path(path)
    found = target / _TENSORS if target.is_dir() else target
    if not found.is_file():
        raise ArgumentError("path", f"a folder or file that {writer} wrote", f"nothing at {found}")
    return found


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Convert whatever a damaged file raises into an error that names the file."""
    try:
        yield
    except _FAILURES as error:
        reason = str(error) or type(error).__name__
        raise ArgumentError(str(path), "a model that picirc saved", f"something else: {reason}") from error


def read_metadata(path: Path) -> dict[str, str]:
    """The metadata of a file."""
    with safe_open(path, framework="pt") as file:
        return file.metadata() or {}


def read_file(path: Path) -> tuple[dict[str, str], dict[str, Tensor], int]:
    """The metadata, the tensors and the size of a file, from one read, because the file may be replaced meanwhile."""
    content = path.read_bytes()
    tensors = load(content)  # checks the format
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return header.get("__metadata__") or {}, tensors, len(content)


def read_description(metadata: Mapping[str, str]) -> Description:
    """The verified description in the metadata of a file."""
    text = metadata.get(_KEY)
    if text is None:
        raise ArgumentError("file", "a description of a model", "tensors only")
    envelope = json.loads(text)
    description: Description | None = envelope.get("description") if isinstance(envelope, dict) else None
    if not isinstance(description, dict):
        raise ArgumentError("description", "an object", repr(envelope)[:80])
    version = description.get("format")
    if type(version) is not int or version < 1:
        raise ArgumentError("format", "a number from 1 on", version)
    if version > FORMAT:
        raise ArgumentError("format", f"at most {FORMAT}", version, "upgrade picirc")
    if envelope.get("sha256") != _sign(description):
        raise ArgumentError("sha256", "the checksum of the description", "another", "the file is damaged")
    return description


def check_tensors(
    tensors: Mapping[str, Tensor], description: Description, shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype
) -> None:
    """Raise unless the tensors of a file have the expected names, shapes, dtype and checksum, and finite values."""
    if odd := sorted(set(tensors) ^ set(shapes)):
        raise ArgumentError("tensors", "those of the description", f"missing or unknown: {odd[0][:80]}")
    for name, tensor in tensors.items():
        if tensor.shape != shapes[name] or tensor.dtype != dtype:
            expected = f"shape {shapes[name]} and {dtype}"
            raise ArgumentError(name, expected, f"{tuple(tensor.shape)} and {tensor.dtype}")
    if description.get("sha256") != _checksum(tensors):
        raise ArgumentError("sha256", "the checksum of the tensors", "another", "the file is damaged")
    check_numbers(tensors)


def check_numbers(tensors: Mapping[str, Tensor]) -> None:
    """Raise if a parameter is NaN, infinite, or so large that products of parameters overflow."""
    for name, tensor in tensors.items():
        if not bool((tensor.abs() <= _LARGEST).all()):
            raise ArgumentError(name, f"finite numbers within ±{_LARGEST:g}", "NaN or a larger number")


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of the names and contents."""
    found = hashlib.sha256()
    for name in sorted(tensors):
        found.update(f"{name}\n".encode())
        found.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def _sign(description: Mapping[str, Any]) -> str:
    """SHA-256 of a description, independent of the order of its keys. NaN and infinity raise a ``ValueError``."""
    text = json.dumps(description, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
