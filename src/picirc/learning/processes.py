# SPDX-License-Identifier: Apache-2.0
"""Several processes that train one model, started by ``torchrun``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor, nn

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

_PATIENCE, _PAUSE = 1800.0, 0.01  # seconds until all processes must have started, and between two looks for them


@dataclass(frozen=True)
class Processes:
    """This process among those that train together.

    The batch of a step is split into parts, one per process. Each process divides by the rows of the whole batch, and
    gradients are summed, so that all processes hold the model that a single process would have trained.
    """

    rank: int
    count: int

    @staticmethod
    def current() -> Processes:
        """Join the group that ``torchrun`` describes in the environment, or be alone."""
        count = int(os.environ.get("WORLD_SIZE", "1"))
        if count == 1:
            return Processes(0, 1)
        if not dist.is_initialized():
            _join()
        return Processes(dist.get_rank(), dist.get_world_size())

    @property
    def first(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def part(self, batch: Tensor) -> Tensor:
        """This process's rows of a batch. The sizes of the parts differ by at most one row."""
        return batch[len(batch) * self.rank // self.count : len(batch) * (self.rank + 1) // self.count]

    def share(self, model: nn.Module) -> None:
        """Give all processes the first one's parameters."""
        if self.count > 1:
            with _together():
                for tensor in model.state_dict().values():
                    dist.broadcast(tensor, 0)

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, in their order."""
        if self.count == 1:
            return [value]
        found: list[Any] = [None] * self.count
        with _together():
            dist.all_gather_object(found, value)
        return found

    def sum_gradients(self, model: nn.Module) -> None:
        """Sum the gradients over all processes in one message."""
        if self.count == 1:
            return
        parameters = [p for p in model.parameters() if p.requires_grad]
        for parameter in parameters:
            if parameter.grad is None:  # this process had no rows
                parameter.grad = torch.zeros_like(parameter)
        self.add_up([p.grad for p in parameters if p.grad is not None])

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Sum tensors over all processes, in place and in one message."""
        if self.count == 1:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        with _together():
            dist.all_reduce(flat)
        for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def sum(self, value: float) -> float:
        """The sum of a number over all processes."""
        total = torch.tensor(value, dtype=torch.float64)
        self.add_up([total])
        return float(total)


def _join() -> None:
    """Join the group of processes, in a part of torchrun's store that is new."""
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    backend = "nccl" if torch.cuda.is_available() else "gloo"
    with _together():
        store, rank, count = next(rendezvous("env://"))
        store = PrefixStore("picirc", store)
        own = PrefixStore(name_of_start(store, rank, count), store)
        dist.init_process_group(backend, store=own, rank=rank, world_size=count)


def name_of_start(store: Store, rank: int, count: int) -> str:
    """A name that all processes of this start agree on, and no earlier process has used; all call this together.

    ``torchrun`` keeps its store when it restarts processes, and with it the addresses of those that have ended. A
    process that reads such an address waits forever. Each machine counts restarts for itself, so their number does not
    tell old entries from new ones. Therefore the first process draws a name for this start, and the others ask for it
    with questions of random names, which nobody can have answered before.
    """
    own = uuid4().hex
    if rank > 0:
        store.set(f"question/{rank}", own)
        name = store.get(f"answer/{own}").decode()
        store.add(f"{name}/informed", 1)
        return name
    end = time.monotonic() + _PATIENCE
    while store.add(f"{own}/informed", 0) < count - 1:
        for question in (f"question/{other}" for other in range(1, count)):
            if store.check([question]):
                store.set(f"answer/{store.get(question).decode()}", own)
        if time.monotonic() > end:
            raise RuntimeError(f"not all of {count} processes have started")
        time.sleep(_PAUSE)
    return own


@contextmanager
def _together() -> Iterator[None]:
    """Report that another process is gone instead of how the connection to it ended."""
    try:
        yield
    except RuntimeError as error:
        raise ConnectionError(
            "another process of this training has ended or cannot be reached; start all of them again with --resume "
            f"to continue from the last checkpoint ({str(error).splitlines()[0][:200]})"
        ) from error
