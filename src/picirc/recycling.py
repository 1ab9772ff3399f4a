"""Results that are given away and used again once nobody holds them.

Gradients and materialised weights are large, fresh in every training step, and dropped soon after. Mapping new memory
for them can take longer than computing them, so their storage is kept, and handed out again when it is not in use any
more: neither by Python nor by autograd.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

import torch
from torch import Tensor

_KEPT = 8  # storages
_SMALL = 2**18  # elements; the allocator is fast for less

_stock: list[Tensor] = []
_lock = threading.Lock()


def recycled(shape: Sequence[int], like: Tensor) -> Tensor:
    """An uninitialised tensor of a shape, in storage that was used before if there is some."""
    elements = math.prod(shape)
    if elements < _SMALL or like.device.type != "cpu":
        return like.new_empty(tuple(shape))
    with _lock:
        for buffer in _stock:
            if buffer.numel() == elements and buffer.dtype == like.dtype and _idle(buffer):
                return buffer.view(tuple(shape))
        fresh = like.new_empty(elements)
        _stock.append(fresh)
        while len(_stock) > _KEPT:
            _stock.pop(0)
        return fresh.view(tuple(shape))


def _idle(buffer: Tensor) -> bool:
    """Whether the stock alone holds a buffer's storage: once as the buffer, once while it is looked at here."""
    storage = buffer.untyped_storage()
    return int(torch._C._storage_Use_Count(storage._cdata)) <= 2
