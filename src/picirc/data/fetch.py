"""Downloads: whole, verified, and never half there.

A file arrives under a temporary name beside its place, is verified, and only then takes its name.
"""

from __future__ import annotations

import http.client
import os
import secrets
import shutil
import ssl
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from picirc.data.idx import idx_shape
from picirc.data.sources import PublicFile
from picirc.data.unpacked import sha256
from picirc.errors import ArgumentError

TIMEOUT = 60.0  # seconds without any byte
CHUNK = 2**20


class DownloadError(OSError):
    """A file could not be fetched whole and as expected; the message gives each address and the reason."""


def fetch(urls: Sequence[str], target: Path, verify: Callable[[Path], None]) -> None:
    """Download a file from the first address that delivers it.

    Args:
        urls: Addresses of the same file.
        target: Where to put it; what is there stays until the new file is verified.
        verify: Raises if the file, given by its temporary path, is not as expected.

    Raises:
        DownloadError: No address delivered the file; nothing is left behind.
    """
    reasons = []
    for url in urls:
        try:
            with arriving(target) as temporary:
                transfer(url, temporary)
                verify(temporary)
            return
        except DownloadError as error:
            reasons.append(f"{url}: {error}")
    advice = f"get it by other means and put it into {target.parent}"
    raise DownloadError(f"could not fetch {target.name} ({'; '.join(reasons)}); {advice}.")


@contextmanager
def arriving(target: Path) -> Iterator[Path]:
    """Yield a temporary path that becomes ``target`` if all goes well, and else is removed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        yield temporary
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def transfer(url: str, path: Path) -> None:
    """Write what an address delivers into a file, and make sure that all of it came."""
    request = urllib.request.Request(url, headers={"User-Agent": "picirc"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response, path.open("wb") as file:
            promised = response.headers.get("Content-Length")
            shutil.copyfileobj(response, file, CHUNK)
            came = file.tell()
    except urllib.error.HTTPError as error:
        error.close()
        raise DownloadError(f"the server answered {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise DownloadError(f"no connection ({error.reason})") from error
    except (TimeoutError, ConnectionError, ssl.SSLError, http.client.HTTPException) as error:
        raise DownloadError(f"the connection broke ({error!r})") from error
    if promised is not None and came != int(promised):
        raise DownloadError(f"truncated: {came} of {promised} bytes came")


def verify_file(path: Path, file: PublicFile) -> None:
    """Raise unless a file has the known checksum or, where none is known, the expected idx header."""
    try:
        if file.sha256 and (found := sha256(path)) != file.sha256:
            raise DownloadError(f"wrong checksum: expected sha256 {file.sha256} of the content, got {found}")
        if file.shape and (shape := idx_shape(path, len(file.shape))) != file.shape:
            raise DownloadError(f"wrong shape: expected {file.shape}, got {shape}")
    except ArgumentError as error:
        raise DownloadError(f"corrupted: {error}") from error


def verify_zip(path: Path) -> None:
    """Raise unless a file ends as a zip file does: its directory stands at the end."""
    if not zipfile.is_zipfile(path):
        raise DownloadError("corrupted: no zip file, or a truncated one")


def unpack(archive: Path, file: PublicFile, packing: str, target: Path) -> None:
    """Extract one file from a zip file, from whichever folder in it, and verify it."""
    try:
        with zipfile.ZipFile(archive) as members, arriving(target) as temporary:
            name = f"{file.name}{packing}"
            member = next((member for member in members.namelist() if member.split("/")[-1] == name), None)
            if member is None:
                raise DownloadError(f"{archive}: expected a zip file that holds {name}, got one without it")
            with members.open(member) as packed, temporary.open("wb") as unpacked:
                shutil.copyfileobj(packed, unpacked, CHUNK)  # verifies the checksum of the member
            verify_file(temporary, file)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DownloadError(f"{archive}: corrupted zip file ({error}); remove it, and it is fetched anew") from error
