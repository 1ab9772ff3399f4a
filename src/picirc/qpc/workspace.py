"""Buffers that are kept and used again.

On a CPU every large temporary is mapped and page-faulted anew, which can cost more than the arithmetic. A workspace
hands out flat buffers and takes them back when their last user is gone.
"""

from __future__ import annotations

import math
import threading
import weakref
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor

_KEPT_BYTES = 2**30


class Workspace:
    """A stock of flat buffers, safe to use from several threads."""

    def __init__(self) -> None:
        # By size and age, so that a fitting buffer is found at once: a long chain holds thousands of them.
        self._free: dict[tuple[torch.dtype, torch.device], list[tuple[int, int, Tensor]]] = {}
        self._returned: deque[Tensor] = deque()  # not sorted in yet
        self._bytes = 0
        self._age = 0
        self._lock = threading.Lock()

    def lease(self, dtype: torch.dtype, device: torch.device) -> Lease:
        """A handle whose buffers return to the stock when it is released or forgotten."""
        return Lease(self, dtype, device)

    def take(self, elements: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """The smallest fitting buffer of the stock, or a new one."""
        with self._lock:
            self._sort_in()
            stock = self._free.get((dtype, device), [])
            place = bisect_left(stock, (elements,))
            if place < len(stock) and stock[place][0] <= 2 * elements + 1024:
                _, _, buffer = stock.pop(place)
                self._bytes -= buffer.nbytes
                return buffer
        return torch.empty(elements, dtype=dtype, device=device)

    def give(self, buffers: Sequence[Tensor]) -> None:
        """Take buffers back; the oldest ones beyond what is worth keeping are dropped."""
        self._returned.extend(buffers)
        # Never waits: the garbage collector may find a forgotten lease while this very thread holds the lock.
        if self._lock.acquire(blocking=False):
            self._sort_in()
            self._lock.release()

    def _sort_in(self) -> None:
        while self._returned:
            buffer = self._returned.popleft()
            self._age += 1
            insort(self._free.setdefault((buffer.dtype, buffer.device), []), (buffer.numel(), self._age, buffer))
            self._bytes += buffer.nbytes
        while self._bytes > _KEPT_BYTES:
            entries = ((age, key) for key, stock in self._free.items() for _, age, _ in stock)
            oldest, key = min(entries, key=lambda entry: entry[0])
            (place,) = [i for i, (_, age, _) in enumerate(self._free[key]) if age == oldest]
            self._bytes -= self._free[key].pop(place)[2].nbytes


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
