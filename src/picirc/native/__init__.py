# SPDX-License-Identifier: Apache-2.0
"""Inner loops in C, compiled on first use if there is a compiler; without them PyTorch computes the same.

The compiled library is kept in a folder that only the user can write to, under a name that contains a digest of its
content. If the folder belongs to somebody else, or others can write to it, nothing is loaded from it.
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


_FLAGS = ["-O3", "-std=c11", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC"]
if platform.machine() == "x86_64":
    _FLAGS.append("-mprefer-vector-width=512")
_SECONDS = 60  # time limit for the compiler, which needs about one second
# Errors of files, of the compiler, of a malformed CC, of a missing home folder, and of a library without a function.
_FAILURES = (OSError, subprocess.SubprocessError, RuntimeError, ValueError, AttributeError)
_LOG = logging.getLogger(__name__)


def library() -> ctypes.CDLL | None:
    """Load the compiled loops, after compiling them if necessary; return None if that is not possible.

    The environment variable ``PICIRC_NATIVE=0`` switches them off. They are cached in the folder ``kernels`` of
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
    """Return the function that starts PyTorch's threads if they are those of GNU OpenMP, as usual on Linux.

    A second team of threads would compete with PyTorch's, and one thread alone would often be slower than PyTorch.
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
    # Loading by descriptor guarantees that the verified file is loaded. The descriptor stays open, because the loader
    # identifies libraries by name and would take another file with the same descriptor for this one.
    loaded = ctypes.CDLL(f"/proc/self/fd/{found}")
    for name in re.findall(r"^void (picirc_\w+)\(", source, re.MULTILINE):
        getattr(loaded, name)
    return loaded


def _own_folder() -> Path:
    """Return the folder of the libraries, which only the user can write to."""
    folder = cache_folder() / "kernels"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(f"{folder} must be a folder of your own that nobody else can write to; remove it")
    return folder


def _open(folder: Path, start: str) -> int | None:
    """Open the library whose name begins with ``start``, or return None; a damaged file is removed."""
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
    """Compile in a temporary folder and move the result, so that no process loads an incomplete file."""
    with tempfile.TemporaryDirectory(dir=folder) as work:
        code, result = Path(work) / "kernels.c", Path(work) / "kernels.so"
        code.write_text(source, encoding="utf-8")
        _run([*compiler, *_FLAGS, str(code), "-o", str(result), "-lm"])
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
    """Run a compiler; after the time limit it is killed with all its children."""
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


def _key(source: str, compiler: Sequence[str]) -> str:
    """Return a digest of everything that the result depends on."""
    parts = [source, *compiler, *_FLAGS, platform.machine(), *_processor()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _processor() -> list[str]:
    """Return the features of the processor, because an unsupported instruction would kill the process."""
    cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
    return sorted(line for line in cpu.splitlines() if line.lower().startswith(("flags", "features", "model name")))


_INT, _SIZE, _FLOAT, _ARRAY = ctypes.c_int, ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
MOST_PARTS = 16  # of a mixture: ARITY in kernels.c
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
    "log_softmax_down": [_ARRAY] * 4 + [_SIZE] * 2 + [_FLOAT],
    "move_logs": [_ARRAY] * 4 + [_SIZE] * 3 + [_FLOAT, _INT],
    "look_up": [_ARRAY] * 3 + [_SIZE] * 4 + [_INT],
    "count_values": [_ARRAY] * 3 + [_SIZE] * 4 + [_INT],
}


class Kernels:
    """The loops in kernels.c as functions of tensors.

    All tensors are contiguous, on the CPU and in single precision unless stated otherwise. This is not checked here.
    """

    def __init__(self, compiled: ctypes.CDLL) -> None:
        self._functions = {name: compiled[f"picirc_{name}"] for name in _SIGNATURES}
        for name, function in self._functions.items():
            function.argtypes, function.restype = (*_SIGNATURES[name], _INT), None

    def scale_rows(self, rows: Tensor, shift: Tensor, headroom: float, least: float) -> None:
        """Compute ``rows ← exp(rows − shift)`` with ``shift = max(rows) − headroom`` over the states.

        ``rows`` is ``(fold, states, batch)``, ``shift`` is ``(fold, 1, batch)`` and overwritten. The exponential of
        anything below ``least`` is zero.
        """
        self._call("scale_rows", (rows, shift), *rows.shape, headroom, least)

    def add_logs(
        self, target: Tensor, rows: Tensor, sources: Tensor | None, sums: Tensor, fresh: Tensor | None = None
    ) -> None:
        """Compute ``target[rows[i]] += log(sums[sources[i]])`` for all i in order.

        ``target`` is ``(…, states, batch)``, ``sums`` holds as many numbers for each source, ``sources`` is None for
        0, 1, …. Where the booleans ``fresh`` are true, ``=`` replaces ``+=``.
        """
        self._call("add_logs", (target, rows, sources, fresh, sums), len(rows), target.shape[1] * target.shape[2])

    def add_scales(
        self, target: Tensor, rows: Tensor, sources: Tensor | None, scales: Tensor, shift: Tensor, edges: int
    ) -> None:
        """Compute ``target[rows[i]] += scales[sources[i] // edges] + shift[sources[i] // edges]``.

        ``target`` is ``(…, batch)`` and ``scales`` is ``(fold, batch)``, both in double precision and not overlapping;
        ``shift`` is ``(fold, 1, batch)``, ``sources`` is None for 0, 1, ….
        """
        self._call("add_scales", (target, rows, sources, scales, shift), len(rows), edges, target.shape[1])

    def mix_up(
        self, out: Tensor, out_scales: Tensor, rows: Tensor, scales: Tensor, sources: Tensor, weights: Tensor
    ) -> None:
        """Compute ``out[f] = log Σ_a weights[f, a] exp(rows[sources[f, a]] + scales[sources[f, a]] − out_scales[f])``.

        ``out`` is ``(fold, states, batch)``, ``rows`` is ``(…, states, batch)``, ``sources`` is ``(fold, arity)`` with
        an arity of at most ``MOST_PARTS``, ``weights`` is ``(fold, arity, states or 1)``. The scales ``(…, batch)`` are
        in double precision; those of ``out`` become the largest ones of the parts.
        """
        tensors = (out, out_scales, rows, scales, sources, weights)
        self._call("mix_up", tensors, *sources.shape, *out.shape[1:], weights.shape[2])

    def max_product(self, out: Tensor, weights: Tensor, rows: Tensor) -> None:
        """Compute ``out[f, o, b] = max_z (weights[f, o, z] + rows[f, z, b])``."""
        self._call("max_product", (out, weights, rows), *weights.shape, rows.shape[2])

    def bisect(self, out: Tensor, tables: Tensor, rows: Tensor, values: Tensor) -> None:
        """Find the first entry of ``tables[rows[i]]`` above ``values[i]``, or the last one if there is none.

        The tables ``(…, entries)`` are increasing; ``out`` has 64-bit integers.
        """
        self._call("bisect", (out, tables, rows, values), len(rows), tables.shape[1])

    def collect_quotients(self, out: Tensor, flows: Tensor, rows: Tensor, sums: Tensor) -> None:
        """Compute ``out[i] = flows[rows[i]] / sums[i]``, with sums of at least the smallest normal number.

        ``flows`` is ``(…, states, batch)``; ``sums`` has as many elements as ``out``, ``(n, states, batch)``.
        """
        self._call("collect_quotients", (out, flows, rows, sums), len(rows), flows.shape[1] * flows.shape[2])

    def multiply_flows(self, rows: Tensor, arriving: Tensor, smallest: float) -> None:
        """Compute ``rows ← rows · arriving``, or zero where the result is not larger than ``smallest``."""
        self._call("multiply_flows", (rows, arriving), rows.numel(), smallest)

    def look_up(self, table: Tensor, codes: Tensor, out: Tensor) -> None:
        """Compute ``out[f, s, b] = table[f, s, codes[f, b]]``.

        ``table`` is ``(fold or 1, states, values)``; ``codes`` has 32-bit integers.
        """
        fold, states, batch = out.shape
        self._call("look_up", (table, codes, out), fold, states, table.shape[2], batch, len(table) == 1)

    def count_values(self, out: Tensor, weights: Tensor, codes: Tensor) -> None:
        """Compute ``out[f, s, c]``, the sum of ``weights[f, s, b]`` over the b with ``codes[f, b] = c``.

        ``out`` is ``(fold or 1, states, values)``; one that is shared sums over all folds. ``codes`` has 32-bit
        integers.
        """
        fold, states, batch = weights.shape
        shared = len(out) < fold
        self._call("count_values", (out, weights, codes), fold, states, batch, out.shape[2], shared)

    def log_softmax(self, out: Tensor, raw: Tensor, limit: float) -> None:
        """Compute the logarithm of ``softmax`` over the last axis of ``raw``, clamped to ±limit."""
        self._call("log_softmax", (out, raw), raw.shape[:-1].numel(), raw.shape[-1], limit)

    def log_softmax_down(self, out: Tensor, raw: Tensor, logs: Tensor, flows: Tensor, limit: float) -> None:
        """Compute the gradient of ``log_softmax`` from its result and the gradient that arrives."""
        self._call("log_softmax_down", (out, raw, logs, flows), raw.shape[:-1].numel(), raw.shape[-1], limit)

    def move_logs(
        self, out: Tensor, old: Tensor, counts: Tensor, rates: Tensor, smoothing: float, *, flows: bool = False
    ) -> None:
        """Compute ``log((1 − rate) exp(old) + rate · new)`` over the last axis, where ``new`` are frequencies.

        ``new`` is proportional to ``counts + smoothing / values``; without counts the old distribution stays. ``rates``
        is ``(rows,)``, repeated for all that precede. If ``flows``, ``old`` holds probabilities, and the counts
        are ``old · counts``. The smallest normal number takes the place of smaller ones.
        """
        rows, values = old.shape[:-1].numel(), old.shape[-1]
        self._call("move_logs", (out, old, counts, rates), rows, values, rates.numel(), smoothing, flows)

    def _call(self, name: str, tensors: tuple[Tensor | None, ...], *numbers: float) -> None:
        pointers = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
        self._functions[name](*pointers, *numbers, torch.get_num_threads())


def kernels_for(*tensors: Tensor) -> Kernels | None:
    """Return the compiled loops, or None if there are none or they do not support these tensors."""
    for tensor in tensors:
        if tensor.dtype is not torch.float32 or tensor.device.type != "cpu" or not tensor.is_contiguous():
            return None
        if type(tensor) not in PLAIN:  # such as a FakeTensor, which has no data
            return None
    return _kernels()


@cache
def _kernels() -> Kernels | None:
    compiled = library()
    return None if compiled is None else Kernels(compiled)
