# SPDX-License-Identifier: Apache-2.0
"""Atomic replacement of files, and the cache folder.

A file is written under a temporary name in the folder of its target, flushed to the disk, and renamed. A reader finds
the old or the new content, even after a crash or a full disk. Models, checkpoints, tables, reports and downloads are
all written this way.
"""

from __future__ import annotations

import contextlib
import glob
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
_STALE = 3600.0  # seconds without a write after which the writer of a temporary file is considered dead


def replace_files(contents: Mapping[Path, bytes]) -> None:
    """Replace one file, or several of one folder; see ``replacing``."""
    with replacing(*contents) as partial:
        for path, content in zip(partial, contents.values(), strict=True):
            path.write_bytes(content)


@contextmanager
def replacing(*targets: Path) -> Iterator[list[Path]]:
    """Yield a path to write for each target, then rename the files to the targets.

    After an exception the targets are unchanged and the temporary files are removed. If there are several targets, the
    others belong to the first. They are removed before it changes, so that the folder never has files of different
    versions. The folder must exist.
    """
    folder = targets[0].parent
    for target in targets:
        if not _replaceable(target):
            raise ArgumentError(str(target), "a file, or nothing there", "a folder or a device")
        remove_partial(target, _STALE)
    token = secrets.token_hex(8)
    partial = [target.with_name(f".{target.name}.{token}{_SUFFIX}") for target in targets]
    try:
        yield partial
        for path in partial:
            _flush(path, os.O_RDWR)
        with _locked(folder, len(targets) > 1):
            for target in targets[1:]:
                target.unlink(missing_ok=True)
            if len(targets) > 1:
                _flush_folder(folder)
            for path, target in zip(partial, targets, strict=True):
                os.replace(path, target)
            _flush_folder(folder)
    except OSError as error:
        if error.errno is not None and error.filename is None:  # the error for a full disk does not name the file
            error.filename = str(targets[0])
        raise
    finally:
        for path in partial:
            path.unlink(missing_ok=True)


def _replaceable(target: Path) -> bool:
    """Whether there is a file or nothing; one look, because another process may remove the file between two."""
    try:
        return stat.S_ISREG(target.stat().st_mode)
    except OSError:
        return True


def remove_partial(target: Path, older: float = 0.0) -> None:
    """Remove temporary files of a target that were not written to in the last ``older`` seconds."""
    for path in target.parent.glob(f".{glob.escape(target.name)}.*{_SUFFIX}"):
        with contextlib.suppress(OSError):  # another process may be faster
            if time.time() - path.stat().st_mtime >= older:
                path.unlink()


def _flush(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _flush_folder(folder: Path) -> None:
    if os.name == "posix":  # elsewhere a folder cannot be opened
        with contextlib.suppress(OSError):  # some network file systems cannot flush a folder
            _flush(folder, os.O_RDONLY)


@contextmanager
def _locked(folder: Path, wanted: bool) -> Iterator[None]:
    """Lock a folder against other processes that replace several files in it, if the file system has locks."""
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
    """Return the folder for downloads and compiled code: ``picirc`` in ``XDG_CACHE_HOME`` or the user's cache."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(chosen):  # the XDG convention: relative paths are ignored
        return Path(chosen) / "picirc"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "picirc" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "picirc"
    return Path.home() / ".cache" / "picirc"
