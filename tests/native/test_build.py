# SPDX-License-Identifier: Apache-2.0
"""Compiling on the first use, and doing without where that fails: nothing is ever raised."""

from __future__ import annotations

import logging
import os
import platform
import shutil
import sys
import time
from pathlib import Path

import pytest
import torch

from picirc import native as build
from picirc.native import kernels_for
from processes import CONTEXT

COMPILER = os.environ.get("CC", "cc")
needs_a_compiler = pytest.mark.skipif(
    platform.system() != "Linux" or shutil.which(COMPILER) is None,
    reason=f"needs Linux and a C compiler, looked for {COMPILER!r}",
)
# A machine that is busy is no reason to fail, and nothing here needs optimised code.
BUILD = {"_SECONDS": 600, "_FLAGS": ["-O0", *build._FLAGS[1:]]}


@pytest.fixture(autouse=True)
def _switched_on(monkeypatch):
    """Whatever the environment of the tests says; a test that needs a compiler sets CC itself if it wants another."""
    monkeypatch.delenv("PICIRC_NATIVE", raising=False)
    for name, value in BUILD.items():
        monkeypatch.setattr(build, name, value)


def fill(cache: Path) -> None:
    """Compile into a cache, in a process of its own."""
    os.environ |= {"XDG_CACHE_HOME": str(cache), "PICIRC_NATIVE": "1"}
    for name, value in BUILD.items():
        setattr(build, name, value)
    sys.exit(build.library() is None)


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> Path:
    """A cache that two processes have filled at the same time."""
    cache = tmp_path_factory.mktemp("cache")
    both = [CONTEXT.Process(target=fill, args=(cache,)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    return cache


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Makes a compiler of its own the one that is used; it notes each of its calls in a file."""

    def write(body: str) -> Path:
        compiler, calls = tmp_path / "compiler", tmp_path / "calls"
        compiler.write_text(f'#!/bin/sh\necho call >> "{calls}"\n{body}\n', encoding="utf-8")
        compiler.chmod(0o755)
        monkeypatch.setenv("CC", str(compiler))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        return calls

    return write


def warnings(caplog) -> list[str]:
    """What was logged as a warning, and nothing else was."""
    assert all(record.levelno == logging.WARNING and record.name == build.__name__ for record in caplog.records)
    return [record.getMessage() for record in caplog.records]


def assert_unavailable(caplog, reason: str) -> None:
    assert build.library() is None
    (line,) = warnings(caplog)
    assert "PyTorch computes everything" in line
    assert reason in line


@needs_a_compiler
def test_two_processes_that_compile_at_once_leave_one_library(filled):
    place = cached(filled)
    assert place.name.startswith("kernels-")
    assert place.suffix == ".so"


@needs_a_compiler
def test_a_library_in_the_cache_is_not_compiled_again(filled, monkeypatch, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", str(filled))
    monkeypatch.setattr(build, "_run", lambda _: pytest.fail("compiled again"))
    place = cached(filled)
    before = place.stat()
    assert build.library() is not None
    assert cached(filled) == place
    assert (place.stat().st_mtime_ns, place.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    assert warnings(caplog) == []


@needs_a_compiler
def test_the_compiler_is_called_once(script, tmp_path, caplog):
    """The first time; what it was given to work with is gone afterwards."""
    calls = script(f'exec "{shutil.which(COMPILER)}" "$@"')
    assert build.library() is not None
    assert build.library() is not None
    assert calls.read_text(encoding="utf-8") == "call\n"
    assert cached(tmp_path / "cache").suffix == ".so"
    assert warnings(caplog) == []


def test_switched_off(monkeypatch, script, caplog):
    calls = script("exit 1")
    monkeypatch.setenv("PICIRC_NATIVE", "0")
    assert build.library() is None
    assert not calls.exists()
    assert warnings(caplog) == []


@needs_a_compiler
def test_a_compiler_with_options(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("CC", f"{COMPILER} -O1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build.library() is not None
    assert warnings(caplog) == []


def test_without_a_compiler(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build.library() is None
    assert not any(tmp_path.iterdir())
    assert warnings(caplog) == []


@needs_a_compiler
@pytest.mark.parametrize(
    ("body", "reason"), [("exit 1", "exit status 1"), ("exit 0", "kernels.so"), ("kill -9 $$", "SIGKILL")]
)
def test_a_compiler_that_fails(script, tmp_path, caplog, body, reason):
    """It says so, it writes nothing, or it is killed."""
    script(body)
    assert_unavailable(caplog, reason)
    assert not any((tmp_path / "cache" / "picirc" / "kernels").iterdir())


@needs_a_compiler
def test_a_compiler_that_takes_too_long(script, tmp_path, caplog, monkeypatch):
    script("while :; do :; done")
    monkeypatch.setattr(build, "_SECONDS", 0.1)
    assert_unavailable(caplog, "timed out")
    assert not any((tmp_path / "cache" / "picirc" / "kernels").iterdir())


@needs_a_compiler
def test_a_cache_that_cannot_be_written(script, tmp_path, caplog, monkeypatch):
    calls = script("exit 1")
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert_unavailable(caplog, "file")
    assert not calls.exists()


def cached(cache: Path) -> Path:
    """The one library of a cache."""
    (place,) = (cache / "picirc" / "kernels").iterdir()
    return place


@needs_a_compiler
@pytest.mark.parametrize("damage", ["cut", "zeros", "flipped", "empty", "other"])
def test_a_damaged_library_is_compiled_again(filled, tmp_path, caplog, monkeypatch, damage):
    """To load it could kill the process, and to keep it would do so every time."""
    whole = cached(filled).read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 3] ^= 16
    damaged = {
        "cut": whole[:20_000],
        "zeros": bytes(len(whole)),
        "flipped": bytes(flipped),
        "empty": b"",
        "other": b"a text",
    }
    folder = tmp_path / "picirc" / "kernels"
    folder.mkdir(parents=True, mode=0o700)
    (folder / cached(filled).name).write_bytes(damaged[damage])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build.library() is not None
    assert cached(tmp_path).read_bytes() == whole
    assert warnings(caplog) == []


@needs_a_compiler
def test_the_folder_belongs_to_the_user_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    mask = os.umask(0)
    try:
        assert build.library() is not None
    finally:
        os.umask(mask)
    assert cached(tmp_path).parent.stat().st_mode & 0o777 == 0o700
    assert cached(tmp_path).stat().st_mode & 0o777 == 0o600


@needs_a_compiler
@pytest.mark.parametrize("how", ["writable", "link", "other owner"])
def test_a_folder_of_others_is_not_used(filled, tmp_path, caplog, monkeypatch, how):
    """Neither loaded from nor written to: whoever can write there could run code here."""
    folder = tmp_path / "picirc" / "kernels"
    folder.mkdir(parents=True, mode=0o700)
    if how == "writable":
        folder.chmod(0o777)
    elif how == "link":
        folder.rmdir()
        folder.symlink_to(filled / "picirc" / "kernels")
    elif os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    else:
        os.chown(folder, 12345, 12345)
    before = sorted(folder.iterdir())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build, "_open", lambda *_: pytest.fail("opened"))
    assert_unavailable(caplog, "nobody else can write to")
    assert sorted(folder.iterdir()) == before


@needs_a_compiler
def test_a_library_that_another_user_planted_is_not_loaded(filled, tmp_path, monkeypatch):
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    folder = tmp_path / "picirc" / "kernels"
    folder.mkdir(parents=True, mode=0o700)
    planted = folder / cached(filled).name
    planted.write_bytes(cached(filled).read_bytes())
    os.chown(planted, 12345, 12345)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build.library() is not None
    assert cached(tmp_path).stat().st_uid == 0  # compiled again


@needs_a_compiler
def test_another_processor_gets_another_library(filled, monkeypatch, tmp_path):
    """In a cache that machines share, code for one of them can be an illegal instruction for the other."""
    own = build._key("source", ["cc"])
    flags = build._processor()
    assert any(line.lower().startswith(("flags", "features")) for line in flags)
    monkeypatch.setattr(build, "_processor", lambda: [line.replace("avx2", "") + " other" for line in flags])
    assert build._key("source", ["cc"]) != own


@needs_a_compiler
@pytest.mark.parametrize("compiler", ['cc "', "'", "cc \\"])
def test_a_malformed_name_of_a_compiler(monkeypatch, caplog, compiler):
    monkeypatch.setenv("CC", compiler)
    assert_unavailable(caplog, "No ")


@needs_a_compiler
def test_a_library_without_the_functions(script, tmp_path, caplog):
    (tmp_path / "empty.c").write_text("int nothing;")
    find = 'while [ "$1" != "-o" ]; do shift; done'
    script(f'{find}; exec "{shutil.which(COMPILER)}" -shared -fPIC "{tmp_path}/empty.c" -o "$2"')
    assert_unavailable(caplog, "picirc_")


@needs_a_compiler
def test_what_a_slow_compiler_has_started_ends_with_it(script, tmp_path, caplog, monkeypatch):
    script(f"sh -c 'echo $$ > \"{tmp_path}/child\"; while :; do :; done' & while :; do :; done")
    monkeypatch.setattr(build, "_SECONDS", 1)
    assert_unavailable(caplog, "timed out")
    status = Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/stat")
    for _ in range(200):  # the signal is sent; when it arrives is up to the system
        if not status.exists() or status.read_text().split()[2] == "Z":
            return
        time.sleep(0.05)
    pytest.fail("the child is still running")


@pytest.mark.parametrize(
    "tensor",
    [torch.empty(1).double(), torch.empty(1).half(), torch.empty(4, 4).T, torch.empty(1, device="meta")],
    ids=["double", "half", "not contiguous", "elsewhere"],
)
def test_tensors_that_the_loops_cannot_work_on(tensor):
    assert kernels_for(tensor) is None
    assert kernels_for(torch.empty(1), tensor) is None
