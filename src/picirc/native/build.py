# SPDX-License-Identifier: Apache-2.0
"""Compiling the loops, once for each processor, compiler and version.

The compiled library is kept in a folder that belongs to the user alone, under a name that holds a digest of its
content. Where the folder is not the user's, or others can write to it, nothing is loaded from it and PyTorch computes
everything.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import logging
import os
import platform
import re
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import torch

from picirc.atomic import cache_folder

_FLAGS = ["-O3", "-std=c11", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC"]
_SECONDS = 60  # that a compiler may take; it needs about one
# Of files, of the compiler, of a malformed CC, without a home folder, and of a library that lacks a function.
_FAILURES = (OSError, subprocess.SubprocessError, RuntimeError, ValueError, AttributeError)
_LOG = logging.getLogger(__name__)


def library() -> ctypes.CDLL | None:
    """The compiled loops, from the cache or compiled now; None where that is not possible.

    ``PICIRC_NATIVE=0`` in the environment switches them off. The cache is the folder ``kernels`` in
    ``picirc.data.cache_folder()``.
    """
    if os.environ.get("PICIRC_NATIVE") == "0":
        return None
    try:
        name, *options = shlex.split(os.environ.get("CC", "cc")) or ["cc"]
        compiler, threads = shutil.which(name), _threads()
        if compiler is None or threads is None:
            return None
        loaded = _load([compiler, *options])
        loaded.picirc_use_threads(threads)
    except _FAILURES as error:
        reason = getattr(error, "stderr", None) or error
        _LOG.warning("compiled loops are not available, PyTorch computes everything: %s", reason)
        return None
    return loaded


def _threads() -> ctypes.c_void_p | None:
    """The function by which PyTorch starts its team of threads, where that is GNU's: on Linux, as a rule.

    Two teams would get into each other's way, and one thread alone would often be slower than PyTorch.
    """
    for found in (Path(torch.__file__).parent / "lib").glob("libgomp*"):
        return ctypes.cast(ctypes.CDLL(str(found)).GOMP_parallel, ctypes.c_void_p)
    return None


def _load(compiler: Sequence[str]) -> ctypes.CDLL:
    source = files("picirc.native").joinpath("kernels.c").read_text(encoding="utf-8")
    folder = _own_folder()
    start = f"kernels-{_key(source, compiler)}-"
    found = _open(folder, start)
    if found is None:
        found = _compile(compiler, source, folder, start)
    # By its descriptor: what was verified is what is loaded, whatever happens to the path. It stays open, because the
    # loader knows libraries by their names and would take another file with the same number for this one.
    loaded = ctypes.CDLL(f"/proc/self/fd/{found}")
    for name in re.findall(r"^void (picirc_\w+)\(", source, re.MULTILINE):
        getattr(loaded, name)
    return loaded


def _own_folder() -> Path:
    """The folder of the libraries, which only the user can write to."""
    folder = cache_folder() / "kernels"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(f"{folder} must be a folder of your own that nobody else can write to; remove it")
    return folder


def _open(folder: Path, start: str) -> int | None:
    """A descriptor of the library whose name begins so, if there is one; a damaged one is removed."""
    for place in sorted(folder.glob(f"{start}*.so")):
        descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "rb", closefd=False) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if os.fstat(descriptor).st_uid == os.geteuid() and place.name == f"{start}{digest}.so":
            return descriptor
        os.close(descriptor)
        place.unlink(missing_ok=True)
    return None


def _compile(compiler: Sequence[str], source: str, folder: Path, start: str) -> int:
    """Compile next to the place and then move the result there, so that no process loads half of it."""
    with tempfile.TemporaryDirectory(dir=folder) as work:
        code, result = Path(work) / "kernels.c", Path(work) / "kernels.so"
        code.write_text(source, encoding="utf-8")
        _run([*compiler, *_flags(), str(code), "-o", str(result), "-lm"])
        result.chmod(0o600)
        with result.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
        result.replace(folder / f"{start}{digest}.so")
    found = _open(folder, start)
    if found is None:
        raise FileNotFoundError(f"{folder / start}….so is gone")
    return found


def _run(command: Sequence[str]) -> None:
    """Run a compiler; when it takes too long it is ended with everything that it has started."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True
    )
    with process:
        try:
            _, errors = process.communicate(timeout=_SECONDS)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, stderr=errors)


def _flags() -> list[str]:
    wide = ["-mprefer-vector-width=512"] if platform.machine() == "x86_64" else []
    return _FLAGS + wide


def _key(source: str, compiler: Sequence[str]) -> str:
    """A digest of everything that the result depends on."""
    parts = [source, *compiler, *_flags(), platform.machine(), *_processor()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _processor() -> list[str]:
    """What the processor is and can do: code for one with more instructions would end the process."""
    cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
    return sorted(line for line in cpu.splitlines() if line.lower().startswith(("flags", "features", "model name")))
