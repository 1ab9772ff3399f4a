# SPDX-License-Identifier: Apache-2.0
"""Memory of large tensors, reused after the tensors are gone.

On a CPU the memory of every large tensor is mapped and page-faulted anew, which can cost more than the arithmetic. This
module keeps blocks of memory and hands them out again. A tensor owns its block until the last reference to its storage
is gone, including those of autograd and of other threads. It is an ordinary tensor that nothing overwrites.
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

_SMALL = 2**16  # bytes below which the allocator is fast
_KEPT = 2**30  # bytes of free blocks that are kept


class Blocks:
    """A thread-safe pool of free blocks of memory."""

    def __init__(self) -> None:
        self._free: list[tuple[int, int, Tensor]] = []  # sorted by size and age
        self._returned: deque[Tensor] = deque()  # not yet sorted in
        self._lock = threading.Lock()
        self._age = 0
        self.bytes = 0

    def empty(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """Return an uninitialised tensor with the dtype and device of ``like``."""
        size = math.prod(shape) * like.element_size()
        if size < _SMALL or like.device.type != "cpu" or not has_values(like):
            return like.new_empty(tuple(shape))
        block = self.take(size)
        lent = block.numpy()[:size]
        # The storage of the tensor holds a reference to ``lent``.
        weakref.finalize(lent, self._returned.append, block).atexit = False
        return torch.from_numpy(lent).view(like.dtype).view(tuple(shape))

    def take(self, size: int) -> Tensor:
        """Return the smallest free block that fits, or a new one."""
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
        """Sort in the returned blocks, and drop the oldest ones beyond the limit."""
        while self._returned:  # filled without the lock, which this thread may hold when the garbage collector runs
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
    """Return whether a tensor has data, unlike one on the device ``meta`` or a ``FakeTensor``."""
    return tensor.device.type != "meta" and type(tensor) in PLAIN


PLAIN = (Tensor, torch.nn.Parameter, torch.nn.Buffer)
