# SPDX-License-Identifier: Apache-2.0
"""Files that are written whole or not at all, and the folder for those that can be made again.

A file is written under a temporary name beside its target, flushed to the disk, and renamed. A reader of the target
finds the old content or the new content, also after a crash, a kill or a full disk. Models, checkpoints, tables,
reports and downloads are all written this way.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from picirc.errors import ArgumentError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_SUFFIX = ".partial"
_STALE = 3600.0  # seconds without a write after which the writer of a partial file is taken to be dead


def replace_files(contents: Mapping[Path, bytes]) -> None:
    """Replace one file, or several of one folder; see ``replacing``."""
    with replacing(*contents) as partial:
        for path, content in zip(partial, contents.values(), strict=True):
            path.write_bytes(content)


@contextmanager
def replacing(*targets: Path) -> Iterator[list[Path]]:
    """Yield a path to write for each target; afterwards each file takes its target's place.

    After an exception the targets are as before, and nothing is left over. The first target counts: the others belong
    to it, and are removed before it changes, so that they never stand beside a file that they do not belong to.

    Args:
        targets: Files of one folder, which must exist.
    """
    folder = targets[0].parent
    for target in targets:
        _check_target(target)
        remove_partial(target, _STALE)
    token = secrets.token_hex(8)
    partial = [target.with_name(f".{target.name}.{token}{_SUFFIX}") for target in targets]
    try:
        yield partial
        for path in partial:
            _flush(path)
        with _locked(folder, len(targets) > 1):
            for target in targets[1:]:
                target.unlink(missing_ok=True)
            if len(targets) > 1:
                _flush_folder(folder)
            for path, target in zip(partial, targets, strict=True):
                os.replace(path, target)
            _flush_folder(folder)
    except OSError as error:
        if error.errno is not None and error.filename is None:  # a full disk does not say what was being written
            error.filename = str(targets[0])
        raise
    finally:
        for path in partial:
            path.unlink(missing_ok=True)


def _check_target(target: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(target.stat().st_mode):
            raise ArgumentError(str(target), "a file, or nothing there", "a folder or a device")


def remove_partial(target: Path, older: float = 0.0) -> None:
    """Remove what writers of a file that have died left over, unless it was written in the last so many seconds."""
    for path in target.parent.glob(f".{_literal(target.name)}.*{_SUFFIX}"):
        with contextlib.suppress(OSError):  # another process may be faster
            if time.time() - path.stat().st_mtime >= older:
                path.unlink()


def _literal(name: str) -> str:
    """A name as a pattern that matches it alone."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _flush_folder(folder: Path) -> None:
    if os.name != "posix":  # elsewhere a folder cannot be opened
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems cannot flush a folder
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _locked(folder: Path, wanted: bool) -> Iterator[None]:
    """Keep other processes that replace several files of a folder waiting, where the file system has locks."""
    if fcntl is None or not wanted:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def cache_folder() -> Path:
    """Return the folder for downloads and compiled code: ``picirc`` in the user's cache folder.

    ``XDG_CACHE_HOME`` comes first on every platform.
    """
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(chosen):  # the XDG convention: relative paths are ignored
        return Path(chosen) / "picirc"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "picirc" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "picirc"
    return Path.home() / ".cache" / "picirc"
