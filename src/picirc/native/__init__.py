# SPDX-License-Identifier: Apache-2.0
"""Inner loops in C, compiled on the first use where a compiler is at hand; PyTorch computes the same without them.

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
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from picirc.atomic import cache_folder
from picirc.memory import PLAIN

__all__ = ["MOST_PARTS", "Kernels", "kernels_for"]


# Compiling, once for each processor, compiler and version


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


# The loops as functions of tensors


_INT, _SIZE, _FLOAT, _ARRAY = ctypes.c_int, ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
MOST_PARTS = 16  # of a mixture; as in kernels.c
_SIGNATURES: dict[str, list[Any]] = {
    "scale_rows": [_ARRAY] * 2 + [_SIZE] * 3 + [_FLOAT] * 2,
    "add_logs": [_ARRAY] * 5 + [_SIZE] * 2,
    "add_scales": [_ARRAY] * 5 + [_SIZE] * 3,
    "mix_up": [_ARRAY] * 6 + [_SIZE] * 5,
    "max_product": [_ARRAY] * 3 + [_SIZE] * 4,
    "bisect": [_ARRAY] * 4 + [_SIZE] * 2,
    "collect_quotients": [_ARRAY] * 4 + [_SIZE] * 2,
    "multiply_flows": [_ARRAY] * 2 + [_SIZE] + [_FLOAT],
    "log_softmax": [_ARRAY] * 2 + [_SIZE] * 2 + [_FLOAT],
    "look_up": [_ARRAY] * 3 + [_SIZE] * 4 + [_INT],
}


class Kernels:
    """The loops of a compiled library; kernels.c has them.

    All arguments are contiguous tensors in main memory, with floating-point numbers of single precision unless it is
    said otherwise. Nothing of that is checked here.
    """

    def __init__(self, compiled: ctypes.CDLL) -> None:
        self._functions = {name: compiled[f"picirc_{name}"] for name in _SIGNATURES}
        for name, function in self._functions.items():
            function.argtypes, function.restype = (*_SIGNATURES[name], _INT), None

    def scale_rows(self, rows: Tensor, shift: Tensor, headroom: float, least: float) -> None:
        """``rows ← exp(rows − shift)`` with ``shift = max(rows) − headroom`` over the second axis.

        Args:
            rows: ``(fold, states, batch)``.
            shift: ``(fold, 1, batch)``, overwritten.
            headroom: The logarithm that the maxima become.
            least: Smaller logarithms become those of zero.
        """
        self._call("scale_rows", (rows, shift), *rows.shape, headroom, least)

    def add_logs(
        self, target: Tensor, rows: Tensor, sources: Tensor | None, sums: Tensor, fresh: Tensor | None = None
    ) -> None:
        """``target[rows[i]] += log(sums[sources[i]])``, for all i one after the other.

        Args:
            target: ``(…, states, batch)``.
            rows: ``(n,)``.
            sources: ``(n,)``, or None for 0, 1, ….
            sums: ``(…, states, batch)``, or the same numbers in other shapes.
            fresh: ``(n,)``, booleans: where ``=`` takes the place of ``+=``; None for nowhere.
        """
        self._call("add_logs", (target, rows, sources, fresh, sums), len(rows), target.shape[1] * target.shape[2])

    def add_scales(
        self, target: Tensor, rows: Tensor, sources: Tensor | None, scales: Tensor, shift: Tensor, edges: int
    ) -> None:
        """``target[rows[i]] += scales[sources[i] // edges] + shift[sources[i] // edges]``.

        Args:
            target: ``(…, batch)``, double precision.
            rows: ``(n,)``.
            sources: ``(n,)``, or None for 0, 1, ….
            scales: ``(fold, batch)``, double precision; not among the rows that are written.
            shift: ``(fold, 1, batch)``.
            edges: How many results each row has.
        """
        self._call("add_scales", (target, rows, sources, scales, shift), len(rows), edges, target.shape[1])

    def mix_up(
        self, out: Tensor, out_scales: Tensor, rows: Tensor, scales: Tensor, sources: Tensor, weights: Tensor
    ) -> None:
        """``out[f] = log Σ_a weights[f, a] exp(rows[sources[f, a]] + scales[sources[f, a]] − out_scales[f])``.

        Args:
            out: ``(fold, states, batch)``.
            out_scales: ``(fold, batch)``, double precision; overwritten with the largest of the parts' scales.
            rows: ``(…, states, batch)``.
            scales: ``(…, batch)``, double precision.
            sources: ``(fold, arity)``, with an arity of at most ``MOST_PARTS``.
            weights: ``(fold, arity, states or 1)``.
        """
        tensors = (out, out_scales, rows, scales, sources, weights)
        self._call("mix_up", tensors, *sources.shape, *out.shape[1:], weights.shape[2])

    def max_product(self, out: Tensor, weights: Tensor, rows: Tensor) -> None:
        """``out[f, o, b] = max_z (weights[f, o, z] + rows[f, z, b])``.

        Args:
            out: ``(fold, o, batch)``.
            weights: ``(fold, o, z)``.
            rows: ``(fold, z, batch)``.
        """
        self._call("max_product", (out, weights, rows), *weights.shape, rows.shape[2])

    def bisect(self, out: Tensor, tables: Tensor, rows: Tensor, values: Tensor) -> None:
        """The first entry of ``tables[rows[i]]`` above ``values[i]``, or the last one if there is none.

        Args:
            out: ``(n,)``, 64-bit integers.
            tables: ``(…, entries)``, increasing.
            rows: ``(n,)``.
            values: ``(n,)``.
        """
        self._call("bisect", (out, tables, rows, values), len(rows), tables.shape[1])

    def collect_quotients(self, out: Tensor, flows: Tensor, rows: Tensor, sums: Tensor) -> None:
        """``out[i] = flows[rows[i]] / sums[i]``; in place of smaller sums the least normal number divides.

        Args:
            out: ``(n, states, batch)``.
            flows: ``(…, states, batch)``.
            rows: ``(n,)``.
            sums: As many numbers as ``out``.
        """
        self._call("collect_quotients", (out, flows, rows, sums), len(rows), flows.shape[1] * flows.shape[2])

    def multiply_flows(self, rows: Tensor, arriving: Tensor, smallest: float) -> None:
        """``rows ← rows · arriving``, or zero where that is not larger than the smallest flow."""
        self._call("multiply_flows", (rows, arriving), rows.numel(), smallest)

    def look_up(self, table: Tensor, codes: Tensor, out: Tensor) -> None:
        """``out[f, s, b] = table[f, s, codes[f, b]]``.

        Args:
            table: ``(fold or 1, states, values)``.
            codes: ``(fold, batch)``, 32-bit integers.
            out: ``(fold, states, batch)``.
        """
        fold, states, batch = out.shape
        self._call("look_up", (table, codes, out), fold, states, table.shape[2], batch, len(table) == 1)

    def log_softmax(self, out: Tensor, raw: Tensor, limit: float) -> None:
        """The logarithm of ``softmax`` over the last axis of values kept within ±limit.

        Args:
            out: As ``raw``.
            raw: ``(…, values)``.
            limit: Values beyond it are taken for it.
        """
        self._call("log_softmax", (out, raw), raw.shape[:-1].numel(), raw.shape[-1], limit)

    def _call(self, name: str, tensors: tuple[Tensor | None, ...], *numbers: float) -> None:
        pointers = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
        self._functions[name](*pointers, *numbers, torch.get_num_threads())


def kernels_for(*tensors: Tensor) -> Kernels | None:
    """The compiled loops, if there are any and they can work on these tensors."""
    for tensor in tensors:
        if tensor.dtype is not torch.float32 or tensor.device.type != "cpu" or not tensor.is_contiguous():
            return None
        if type(tensor) not in PLAIN:  # a stand-in without numbers has no address either
            return None
    return _kernels()


@cache
def _kernels() -> Kernels | None:
    compiled = library()
    return None if compiled is None else Kernels(compiled)
