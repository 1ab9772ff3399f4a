"""Compiling the loops, once for each machine and version."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shlex
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import torch

from picirc.folders import cache_folder

_FLAGS = ["-O3", "-std=c11", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC"]
_SECONDS = 60  # that a compiler may take; it needs about one
# Of files, of the compiler, without a home folder, and where PyTorch's threads are of another kind than they seem.
_FAILURES = (OSError, subprocess.SubprocessError, RuntimeError, AttributeError)
_LOG = logging.getLogger(__name__)


def library() -> ctypes.CDLL | None:
    """The compiled loops, from the cache or compiled now; None where that is not possible.

    ``PICIRC_NATIVE=0`` in the environment switches them off. The cache is ``picirc.data.cache_folder()``.
    """
    if os.environ.get("PICIRC_NATIVE") == "0":
        return None
    name, *options = shlex.split(os.environ.get("CC", "cc")) or ["cc"]
    try:
        compiler, threads = shutil.which(name), _threads()
        if compiler is None or threads is None:
            return None
        loaded = _load([compiler, *options])
    except _FAILURES as error:
        reason = getattr(error, "stderr", None) or error
        _LOG.warning("compiled loops are not available, PyTorch computes everything: %s", reason)
        return None
    loaded.picirc_use_threads(threads)
    return loaded


def _load(compiler: Sequence[str]) -> ctypes.CDLL:
    source = files("picirc.native").joinpath("kernels.c").read_text(encoding="utf-8")
    place = cache_folder() / f"kernels-{_digest(source, compiler)}.so"
    if not _is_whole(place):
        _compile(compiler, source, place)
    return ctypes.CDLL(str(place))


def _is_whole(place: Path) -> bool:
    """Whether a library is there to its end, which its header tells; to load half of one can kill the process."""
    if not place.exists():
        return False
    with place.open("rb") as file:
        header = file.read(64)
    if len(header) < 64:
        return False
    (start,) = struct.unpack_from("=Q", header, 0x28)  # of the table of sections, which comes last
    size, count = struct.unpack_from("=HH", header, 0x3A)
    return bool(place.stat().st_size >= start + size * count)


def _threads() -> ctypes.c_void_p | None:
    """The function by which PyTorch starts its team of threads, where that is GNU's: on Linux, as a rule.

    Two teams would get into each other's way, and one thread alone would often be slower than PyTorch.
    """
    for found in (Path(torch.__file__).parent / "lib").glob("libgomp*"):
        return ctypes.cast(ctypes.CDLL(str(found)).GOMP_parallel, ctypes.c_void_p)
    return None


def _flags() -> list[str]:
    wide = ["-mprefer-vector-width=512"] if platform.machine() == "x86_64" else []
    return _FLAGS + wide


def _digest(source: str, compiler: Sequence[str]) -> str:
    """Of everything that the result depends on, the processor included."""
    cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0]
    features = sorted(line for line in cpu.splitlines() if line.startswith(("flags", "Features", "model name")))
    parts = [source, *compiler, *_flags(), *features]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _compile(compiler: Sequence[str], source: str, place: Path) -> None:
    """Write the library next to its place and then move it there, so that nobody loads half of it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        code, result = Path(folder) / "kernels.c", Path(folder) / "kernels.so"
        code.write_text(source, encoding="utf-8")
        command = [*compiler, *_flags(), str(code), "-o", str(result), "-lm"]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_SECONDS)
        with result.open("rb") as file:
            os.fsync(file.fileno())
        result.replace(place)
