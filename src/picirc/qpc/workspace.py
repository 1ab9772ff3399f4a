"""Buffers that are kept and used again.

On a CPU every large temporary is mapped and page-faulted anew, which can cost more than the arithmetic. A workspace
hands out flat buffers and takes them back when their last user is gone.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Sequence

import torch
from torch import Tensor

_KEPT_BYTES = 2**30


class Workspace:
    """A stock of flat buffers, safe to use from several threads."""

    def __init__(self) -> None:
        self._free: list[Tensor] = []
        # Re-entrant: the garbage collector may find a forgotten lease while this thread holds the lock.
        self._lock = threading.RLock()

    def lease(self, dtype: torch.dtype, device: torch.device) -> Lease:
        """A handle whose buffers return to the stock when it is released or forgotten."""
        return Lease(self, dtype, device)

    def take(self, elements: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """The smallest fitting buffer of the stock, or a new one."""
        with self._lock:
            fitting = [
                b
                for b in self._free
                if b.dtype == dtype and b.device == device and elements <= b.numel() <= 2 * elements + 1024
            ]
            if fitting:
                best = min(fitting, key=Tensor.numel)
                self._free = [b for b in self._free if b is not best]
                return best
        return torch.empty(elements, dtype=dtype, device=device)

    def give(self, buffers: Sequence[Tensor]) -> None:
        """Take buffers back, dropping the oldest ones beyond what is worth keeping."""
        with self._lock:
            self._free.extend(buffers)
            while self._free and sum(b.numel() * b.element_size() for b in self._free) > _KEPT_BYTES:
                self._free.pop(0)


class Lease:
    """Buffers borrowed from a workspace."""

    def __init__(self, workspace: Workspace, dtype: torch.dtype, device: torch.device) -> None:
        self._dtype, self._device = dtype, device
        self._workspace = workspace
        self._taken: list[Tensor] = []
        self._return = weakref.finalize(self, workspace.give, self._taken)
        self._return.atexit = False

    def __call__(self, *shape: int) -> Tensor:
        """An uninitialised tensor."""
        flat = self._workspace.take(math.prod(shape), self._dtype, self._device)
        self._taken.append(flat)
        return flat[: math.prod(shape)].view(shape)

    def release(self) -> None:
        """Give everything back now; the tensors must not be used any more."""
        self._return()
