# SPDX-License-Identifier: Apache-2.0
"""The compiled loops as functions of tensors."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch
from torch import Tensor

from picirc.memory import PLAIN
from picirc.native.build import library

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
