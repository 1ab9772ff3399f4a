"""Compiling on the first use, and doing without where that fails: nothing is ever raised."""

from __future__ import annotations

import logging
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from picirc.native import build, kernels_for

COMPILER = os.environ.get("CC", "cc")
needs_a_compiler = pytest.mark.skipif(
    platform.system() != "Linux" or shutil.which(COMPILER) is None,
    reason=f"needs Linux and a C compiler, looked for {COMPILER!r}",
)
LOAD = "from picirc.native import build; build._SECONDS = 600; raise SystemExit(build.library() is None)"


@pytest.fixture(autouse=True)
def _switched_on(monkeypatch):
    """Whatever the environment of the tests says; a test that needs a compiler sets CC itself if it wants another."""
    monkeypatch.delenv("PICIRC_NATIVE", raising=False)
    monkeypatch.setattr(build, "_SECONDS", 600)  # a machine that is busy is no reason to fail


def start(cache: Path, code: str = LOAD) -> subprocess.Popen[str]:
    """Another process with a cache of its own."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "PICIRC_NATIVE": "1"}
    return subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> Path:
    """A cache that two processes have filled at the same time."""
    cache = tmp_path_factory.mktemp("cache")
    both = [start(cache), start(cache)]
    results = [process.communicate(timeout=1200) for process in both]
    assert [process.returncode for process in both] == [0, 0], results
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
    (place,) = (filled / "picirc").iterdir()
    assert place.name.startswith("kernels-")
    assert place.suffix == ".so"


@needs_a_compiler
def test_a_library_in_the_cache_is_not_compiled_again(filled, monkeypatch, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", str(filled))
    monkeypatch.setattr(build.subprocess, "run", lambda *_, **__: pytest.fail("compiled again"))
    (place,) = (filled / "picirc").iterdir()
    before = place.stat()
    loaded = build.library()
    assert loaded is not None
    assert loaded._name == str(place)
    assert [*(filled / "picirc").iterdir()] == [place]
    assert (place.stat().st_mtime_ns, place.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    assert warnings(caplog) == []


@needs_a_compiler
def test_the_compiler_is_called_once(script, tmp_path, caplog):
    """The first time; what it was given to work with is gone afterwards."""
    calls = script(f'exec "{shutil.which(COMPILER)}" "$@"')
    assert build.library() is not None
    assert build.library() is not None
    assert calls.read_text(encoding="utf-8") == "call\n"
    (place,) = (tmp_path / "cache" / "picirc").iterdir()
    assert place.suffix == ".so"
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
    assert not any((tmp_path / "cache" / "picirc").iterdir())


@needs_a_compiler
def test_a_compiler_that_takes_too_long(script, tmp_path, caplog, monkeypatch):
    script("while :; do :; done")
    monkeypatch.setattr(build, "_SECONDS", 0.1)
    assert_unavailable(caplog, "timed out")
    assert not any((tmp_path / "cache" / "picirc").iterdir())


@needs_a_compiler
def test_a_cache_that_cannot_be_written(script, tmp_path, caplog, monkeypatch):
    calls = script("exit 1")
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert_unavailable(caplog, "file")
    assert not calls.exists()


@needs_a_compiler
@pytest.mark.parametrize("size", [0, 1, 100, 20_000])
def test_a_library_of_which_only_the_beginning_is_there(filled, tmp_path, caplog, monkeypatch, size):
    """It is compiled again; to load it could kill the process."""
    cut(filled, tmp_path, size)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build.library() is not None
    (place,) = (tmp_path / "picirc").iterdir()
    assert place.stat().st_size > 20_000
    assert warnings(caplog) == []


def cut(source: Path, target: Path, size: int) -> None:
    """Put the first bytes of a cached library into another cache."""
    (place,) = (source / "picirc").iterdir()
    (target / "picirc").mkdir()
    (target / "picirc" / place.name).write_bytes(place.read_bytes()[:size])


@pytest.mark.parametrize(
    "tensor",
    [torch.empty(1).double(), torch.empty(1).half(), torch.empty(4, 4).T, torch.empty(1, device="meta")],
    ids=["double", "half", "not contiguous", "elsewhere"],
)
def test_tensors_that_the_loops_cannot_work_on(tensor):
    assert kernels_for(tensor) is None
    assert kernels_for(torch.empty(1), tensor) is None
