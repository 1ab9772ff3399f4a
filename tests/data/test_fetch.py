# SPDX-License-Identifier: Apache-2.0
"""Downloads from a server on this machine, which behaves well or badly on purpose."""

from __future__ import annotations

import gzip
import hashlib
import io
import socket
import zipfile

import numpy as np
import pytest
from data_files import binary_bytes, binary_rows, idx_bytes

from picirc import data
from picirc.atomic import replacing
from picirc.data import DownloadError, datasets
from picirc.data.datasets import SETS, FileSet, PublicFile, obtain
from picirc.errors import ArgumentError

CONTENT = b"0,1\n1,0\n"
CHECKSUM = hashlib.sha256(CONTENT).hexdigest()


def file_set(*homes: str, packing: str = "", checksum: str = CHECKSUM) -> FileSet:
    files = tuple(PublicFile(name, checksum) for name in ("one.data", "two.data"))
    return FileSet("binary", files, folders=("set", "other"), source="", homes=homes, packing=packing)


def everything_in(folder) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("packing", ["", ".gz"])
def test_files_are_fetched_once(server, tmp_path, packing):
    content = gzip.compress(CONTENT, mtime=0) if packing else CONTENT
    server.answers = {f"/home/{name}.data{packing}": content for name in ("one", "two")}
    files = file_set(f"{server.url}/home", packing=packing)
    paths = obtain(files, tmp_path)
    assert paths == [tmp_path / "set" / f"{name}.data{packing}" for name in ("one", "two")]
    assert all(path.read_bytes() == content for path in paths)
    assert len(server.requests) == 2
    assert obtain(files, tmp_path) == paths
    assert len(server.requests) == 2
    assert len(everything_in(tmp_path)) == 2


def test_only_what_is_missing_is_fetched(server, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "one.data").write_bytes(b"my own")
    server.answers = {"/two.data": CONTENT}
    one, _ = obtain(file_set(server.url), tmp_path)
    assert one.read_bytes() == b"my own"
    assert server.requests == ["/two.data"]


def test_without_a_data_folder_downloads_go_to_the_cache(server, alone):
    server.answers = {"/one.data": CONTENT, "/two.data": CONTENT}
    one, _ = obtain(file_set(server.url))
    assert one == alone / "set" / "one.data"


def test_a_given_address_replaces_the_public_home(server, tmp_path):
    server.answers = {"/mirror/one.data": CONTENT, "/mirror/two.data": CONTENT}
    obtain(file_set("http://127.0.0.1:9/never"), tmp_path, base_url=f"{server.url}/mirror/")
    assert server.requests == ["/mirror/one.data", "/mirror/two.data"]


def test_a_second_home_helps_out(server, tmp_path):
    server.answers = {"/a/one.data": 503, "/b/one.data": CONTENT, "/a/two.data": b"wrong", "/b/two.data": CONTENT}
    one, two = obtain(file_set(f"{server.url}/a", f"{server.url}/b"), tmp_path)
    assert one.read_bytes() == two.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("answer", "packing", "words"),
    [
        (404, "", "answered 404"),
        (500, "", "answered 500"),
        ((CONTENT, 1000), "", "truncated: received 8 of 1000 bytes"),
        (CONTENT[:-1], "", f"wrong checksum: expected sha256 {CHECKSUM}"),
        ((CONTENT[:-1], -1), "", "wrong checksum"),
        ((CONTENT[:-1], "many"), "", "wrong checksum"),
        ((CONTENT[:-1], "9" * 5000), "", "wrong checksum"),
        (b"", "", "wrong checksum"),
        (b"<html>not here</html>", ".gz", "wrong checksum"),
        (gzip.compress(CONTENT, mtime=0)[:-3], ".gz", "corrupted"),
        (gzip.compress(CONTENT, mtime=0)[:12] + b"\xff" * 20, ".gz", "corrupted"),
    ],
)
def test_a_bad_answer_is_an_error_and_leaves_nothing(server, tmp_path, answer, packing, words):
    server.answers = {f"/one.data{packing}": answer}
    with pytest.raises(DownloadError, match=words) as caught:
        obtain(file_set(server.url, packing=packing), tmp_path)
    assert f"{server.url}/one.data{packing}" in str(caught.value)
    assert f"put it into {tmp_path / 'set'}" in str(caught.value)
    assert everything_in(tmp_path) == []


def test_no_network(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as unused:  # a port on which nobody listens
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(DownloadError, match="no connection"):
            obtain(file_set(url), tmp_path)
    assert everything_in(tmp_path) == []


@pytest.mark.parametrize("url", ["file:///etc", "ftp://127.0.0.1", "127.0.0.1/data", ""])
def test_only_web_addresses_will_do(tmp_path, url):
    with pytest.raises(ArgumentError, match="base_url"):
        obtain(file_set(), tmp_path, base_url=url)


def test_an_old_file_stays_until_the_new_one_is_whole(tmp_path):
    target = tmp_path / "file"
    target.write_bytes(b"old")

    def interrupted() -> None:
        with replacing(target) as (temporary,):
            temporary.write_bytes(b"half")
            assert target.read_bytes() == b"old"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert everything_in(tmp_path) == ["file"]
    with replacing(target) as (temporary,):
        temporary.write_bytes(b"new")
    assert target.read_bytes() == b"new"
    assert everything_in(tmp_path) == ["file"]


@pytest.mark.checksums
def test_a_file_that_is_there_already_is_verified_once(tmp_path, monkeypatch):
    (tmp_path / "set").mkdir()
    one, two = (tmp_path / "set" / f"{name}.data" for name in ("one", "two"))
    one.write_bytes(CONTENT)
    two.write_bytes(CONTENT[:-1])
    with pytest.raises(ArgumentError, match=r"two\.data: expected .*wrong checksum.*remove it"):
        obtain(file_set(), tmp_path)
    two.write_bytes(CONTENT)
    read = []
    monkeypatch.setattr(datasets, "verify_file", lambda path, file: read.append(path))
    for _ in range(3):
        assert obtain(file_set(), tmp_path) == [one, two]
    assert read == [two]  # the other was read before


@pytest.mark.checksums
def test_every_set_with_a_public_home_has_a_checksum():
    for known in SETS.values():
        assert known.archive_sha256 if known.archive else all(file.sha256 for file in known.files)


@pytest.mark.checksums
def test_an_archive_with_another_checksum_is_refused(server, tmp_path):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a", "b")
    server.answers = {"/gzip.zip": packed.getvalue()}
    with pytest.raises(DownloadError, match=r"gzip\.zip.*wrong checksum"):
        data.load("emnist-letters", tmp_path, base_url=server.url)
    assert everything_in(tmp_path) == []


# Through the front door.


def test_a_known_set_is_not_taken_with_another_checksum(server, tmp_path):
    server.answers = {"/nltcs.train.data": binary_bytes(binary_rows(0)[0])}
    with pytest.raises(DownloadError, match=r"could not fetch nltcs\.train\.data .*wrong checksum"):
        data.load("nltcs", tmp_path, base_url=server.url)
    assert everything_in(tmp_path) == []


def zip_bytes(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def emnist_members(rows: tuple[int, int]) -> dict[str, bytes]:
    members = {"gzip/emnist-letters-mapping.txt": b"1 65 97\n"}
    for part, count in zip(("train", "test"), rows, strict=True):
        images, labels = np.zeros((count, 28, 28), np.uint8), np.zeros(count, np.uint8)
        members[f"gzip/emnist-letters-{part}-images-idx3-ubyte.gz"] = gzip.compress(idx_bytes(images), 1)
        members[f"gzip/emnist-letters-{part}-labels-idx1-ubyte.gz"] = gzip.compress(idx_bytes(labels), 1)
    return members


@pytest.fixture(scope="module")
def emnist() -> bytes:
    return zip_bytes(emnist_members((124_800, 20_800)))


def test_emnist_comes_out_of_its_archive(server, tmp_path, emnist):
    server.answers = {"/gzip.zip": emnist}
    result = data.load("emnist-letters", tmp_path, base_url=server.url)
    assert (result.train.shape, result.valid.shape, result.test.shape) == ((118_560, 784), (6240, 784), (20_800, 784))
    assert server.requests == ["/gzip.zip"]
    kept = everything_in(tmp_path)
    assert len(kept) == 5
    assert "emnist/gzip.zip" in kept


def test_an_archive_on_disk_is_used(tmp_path, emnist):
    (tmp_path / "EMNIST").mkdir()
    (tmp_path / "EMNIST" / "gzip.zip").write_bytes(emnist)
    assert data.load("emnist-letters", tmp_path, download=False).test.shape == (20_800, 784)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (zip_bytes(emnist_members((3, 2))), r"wrong shape: expected \(124800, 28, 28\), got \(3, 28, 28\)"),
        (zip_bytes({"gzip/readme": b""}), "holds emnist-letters-train-images-idx3-ubyte.gz, got one without"),
        (zip_bytes(emnist_members((3, 2)))[:-30], "corrupted: not a zip file"),
        (404, "answered 404"),
    ],
)
def test_a_bad_archive_is_an_error(server, tmp_path, content, words):
    server.answers = {"/gzip.zip": content}
    with pytest.raises(DownloadError, match=words):
        data.load("emnist-letters", tmp_path, base_url=server.url)
    assert everything_in(tmp_path) in ([], ["emnist/gzip.zip"])


def test_damage_inside_an_archive_is_an_error(tmp_path, emnist):
    damaged = bytearray(emnist)
    damaged[500:600] = bytes(100)
    (tmp_path / "emnist").mkdir()
    (tmp_path / "emnist" / "gzip.zip").write_bytes(damaged)
    with pytest.raises(DownloadError, match=r"corrupted zip file .*remove it"):
        data.load("emnist-letters", tmp_path, download=False)
    assert everything_in(tmp_path) == ["emnist/gzip.zip"]
