# SPDX-License-Identifier: Apache-2.0
"""The memory of large tensors, reused once nothing refers to them.

On a CPU the memory of every large tensor is mapped and page-faulted anew, which can cost more than the arithmetic. So
blocks of memory are kept when their tensors are gone, and handed out again: a tensor made here owns its block until the
last reference to its storage goes, whether Python, autograd or another thread holds it. It is an ordinary tensor, which
nothing overwrites.
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

_SMALL = 2**16  # bytes; the allocator is fast for less
_KEPT = 2**30  # bytes


class Blocks:
    """Free blocks of memory, safe to use from several threads."""

    def __init__(self) -> None:
        self._free: list[tuple[int, int, Tensor]] = []  # by size and age, so that a fitting one is found at once
        self._returned: deque[Tensor] = deque()  # not sorted in yet
        self._lock = threading.Lock()
        self._age = 0
        self.bytes = 0

    def empty(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """An uninitialised tensor with the dtype and the device of ``like``."""
        size = math.prod(shape) * like.element_size()
        if size < _SMALL or like.device.type != "cpu" or not has_values(like):
            return like.new_empty(tuple(shape))
        block = self.take(size)
        lent = block.numpy()[:size]
        # The tensor holds ``lent`` for as long as its storage lives.
        weakref.finalize(lent, self._returned.append, block).atexit = False
        return torch.from_numpy(lent).view(like.dtype).view(tuple(shape))

    def take(self, size: int) -> Tensor:
        """The smallest free block that fits, or a new one."""
        with self._lock:
            self._sort_in()
            place = bisect_left(self._free, (size,))
            if place < len(self._free) and self._free[place][0] <= size + size // 2:
                found = self._free.pop(place)
                self.bytes -= found[0]
                return found[2]
        with torch.inference_mode(False):
            return torch.empty(size, dtype=torch.uint8)

    def _sort_in(self) -> None:
        """Sort returned blocks in, and drop the oldest ones beyond what is worth keeping."""
        while self._returned:  # filled without the lock: the garbage collector may run while this thread holds it
            block = self._returned.popleft()
            self._age += 1
            insort(self._free, (block.numel(), self._age, block))
            self.bytes += block.numel()
        while self.bytes > _KEPT:
            oldest = min(range(len(self._free)), key=lambda i: self._free[i][1])
            self.bytes -= self._free.pop(oldest)[0]


_blocks = Blocks()
empty = _blocks.empty


def has_values(tensor: Tensor) -> bool:
    """Whether a tensor holds numbers: not one on the device ``meta``, nor a stand-in that only knows its shape."""
    return tensor.device.type != "meta" and type(tensor) in PLAIN


PLAIN = (Tensor, torch.nn.Parameter, torch.nn.Buffer)
