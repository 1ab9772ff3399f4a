"""Compiling the loops, once for each machine and version."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from importlib.resources import files
from pathlib import Path

import torch

_FLAGS = ["-O3", "-std=c11", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC"]
_SECONDS = 60  # that a compiler may take; it needs about one
_LOG = logging.getLogger(__name__)


def library() -> ctypes.CDLL | None:
    """The compiled loops, from the cache or compiled now; None where that is not possible.

    ``PICIRC_NATIVE=0`` in the environment switches them off. The cache is the folder ``picirc`` in
    ``XDG_CACHE_HOME``, by default ``~/.cache``.
    """
    compiler, threads = shutil.which(os.environ.get("CC", "cc")), _threads()
    if os.environ.get("PICIRC_NATIVE") == "0" or compiler is None or threads is None:
        return None
    try:
        source = files("picirc.native").joinpath("kernels.c").read_text(encoding="utf-8")
        place = _cache() / f"kernels-{_digest(source, compiler)}.so"
        if not place.exists():
            _compile(compiler, source, place)
        loaded = ctypes.CDLL(str(place))
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:  # without a home folder, a RuntimeError
        _LOG.warning("compiled loops are not available, PyTorch computes everything: %s", error)
        return None
    loaded.picirc_use_threads(threads)
    return loaded


def _threads() -> ctypes.c_void_p | None:
    """The function by which PyTorch starts its team of threads, where that is GNU's: on Linux, as a rule.

    Two teams would get into each other's way, and one thread alone would often be slower than PyTorch.
    """
    for found in (Path(torch.__file__).parent / "lib").glob("libgomp*"):
        return ctypes.cast(ctypes.CDLL(str(found)).GOMP_parallel, ctypes.c_void_p)
    return None


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "picirc"


def _flags() -> list[str]:
    wide = ["-mprefer-vector-width=512"] if platform.machine() == "x86_64" else []
    return _FLAGS + wide


def _digest(source: str, compiler: str) -> str:
    """Of everything that the result depends on, the processor included."""
    cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0]
    features = sorted(line for line in cpu.splitlines() if line.startswith(("flags", "Features", "model name")))
    parts = [source, compiler, *_flags(), *features]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _compile(compiler: str, source: str, place: Path) -> None:
    """Write the library next to its place and then move it there, so that nobody loads half of it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        code, result = Path(folder) / "kernels.c", Path(folder) / "kernels.so"
        code.write_text(source, encoding="utf-8")
        command = [compiler, *_flags(), str(code), "-o", str(result), "-lm"]
        subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)
        result.replace(place)
