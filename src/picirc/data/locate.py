"""Where the files of a data set lie on this machine, and what to do if they do not."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from picirc.data.fetch import fetch, unpack, verify_file, verify_zip
from picirc.data.sources import FileSet, PublicFile
from picirc.errors import ArgumentError

VARIABLE = "PICIRC_DATA"

DataDir = str | os.PathLike[str] | None


def cache_folder() -> Path:
    """Return the folder for downloads: ``picirc`` in the user's cache, where the platform has it.

    ``XDG_CACHE_HOME`` comes first on every platform.
    """
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(chosen):  # the XDG convention: relative paths are to be ignored
        return Path(chosen) / "picirc"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "picirc" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "picirc"
    return Path.home() / ".cache" / "picirc"


def data_folders(data_dir: DataDir) -> list[Path]:
    """Return the folders to search: ``data_dir`` alone if given, else that of PICIRC_DATA and the cache.

    Downloads go to the last of them.
    """
    if data_dir is not None:
        return [_existing("data_dir", Path(data_dir))]
    chosen = os.environ.get(VARIABLE)
    return [_existing(VARIABLE, Path(chosen)), cache_folder()] if chosen else [cache_folder()]


def find(files: FileSet, roots: Sequence[Path]) -> list[Path] | None:
    """Return the paths of all files of a set, from the first folder that has them all, or None."""
    for folder in _candidates(files, roots):
        paths = [_find_file(folder, file) for file in files.files]
        if all(paths):
            return [path for path in paths if path is not None]
    return None


def obtain(
    files: FileSet, data_dir: DataDir = None, *, download: bool = True, base_url: str | None = None
) -> list[Path]:
    """Return the paths of the files of a set, and download what is missing.

    Args:
        files: The set.
        data_dir: The only folder to search and to download to; None for that of the environment variable
            ``PICIRC_DATA``, then the cache.
        download: Whether to download at all.
        base_url: A folder on a server that holds the files, instead of the public home.

    Raises:
        ArgumentError: The files are missing and may not be, or cannot be, downloaded.
        DownloadError: The download failed.
    """
    roots = data_folders(data_dir)
    if (paths := find(files, roots)) is not None:
        return paths
    target = roots[-1] / files.folders[0]
    homes = files.homes if base_url is None else (_checked_url(base_url),)
    if files.archive:
        archive = _find_archive(files, roots)
        if archive is None:
            _allow(files, roots, homes, download)
            archive = target / files.archive
            fetch([f"{home}/{files.archive}" for home in homes], archive, verify_zip)
        for file in _missing(files, target):
            unpack(archive, file, files.packing, target / f"{file.name}{files.packing}")
    else:
        _allow(files, roots, homes, download)
        for file in _missing(files, target):
            name = f"{file.name}{files.packing}"
            fetch([f"{home}/{name}" for home in homes], target / name, partial(verify_file, file=file))
    found = find(files, roots[-1:])
    assert found is not None
    return found


def _existing(argument: str, folder: Path) -> Path:
    folder = folder.expanduser()
    if not folder.is_dir():
        raise ArgumentError(argument, "an existing folder", str(folder), "make it, or correct the path")
    return folder


def _checked_url(url: str) -> str:
    if urlsplit(url).scheme not in ("http", "https"):
        raise ArgumentError("base_url", "an address that begins with http:// or https://", url)
    return url.rstrip("/")


def _candidates(files: FileSet, roots: Sequence[Path]) -> list[Path]:
    return [root / folder for root in roots for folder in files.folders]


def _find_file(folder: Path, file: PublicFile) -> Path | None:
    """Find a file, packed or not; some copies of idx files have a dot for the last dash but one."""
    names = dict.fromkeys((file.name, file.name.replace("-idx", ".idx")))
    paths = (folder / f"{name}{packing}" for name in names for packing in ("", ".gz"))
    return next((path for path in paths if path.is_file()), None)


def _find_archive(files: FileSet, roots: Sequence[Path]) -> Path | None:
    paths = (folder / files.archive for folder in _candidates(files, roots))
    return next((path for path in paths if path.is_file()), None)


def _missing(files: FileSet, target: Path) -> list[PublicFile]:
    return [file for file in files.files if _find_file(target, file) is None]


def _allow(files: FileSet, roots: Sequence[Path], homes: Sequence[str], download: bool) -> None:
    """Raise, with all places searched, if the files may not or cannot be downloaded."""
    if download and homes:
        return
    names = ", ".join(f"{file.name}[.gz]" for file in files.files)
    searched = ", ".join(str(folder) for folder in _candidates(files, roots))
    ways = [f"put them into {roots[0] / files.folders[0]}", f"name their folder by data_dir= or {VARIABLE}"]
    if homes:
        ways.append(f"pass download=True to fetch them from {homes[0]}")
    raise ArgumentError(
        "data_dir", f"a folder with {names}", f"not all of them in any of {searched}", ", or ".join(ways)
    )
