# SPDX-License-Identifier: Apache-2.0
"""Several processes that train one model, started by ``torchrun``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

# After a restart processes may wait for each other in vain; then all of them fail, and torchrun starts them again.
_PATIENCE = timedelta(minutes=5)


@dataclass(frozen=True)
class Processes:
    """This process among those that train together.

    The batch of a step is cut into parts, one per process. Each process divides by the rows of the whole batch, and the
    gradients are added up, so that the model is the same everywhere and the same as one process would have trained.
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
            dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo", timeout=_PATIENCE)
        return Processes(dist.get_rank(), dist.get_world_size())

    @property
    def first(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def part(self, batch: Tensor) -> Tensor:
        """This process's rows of a batch; the parts differ by one row at most, and together they are the batch."""
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
        """Add up the gradients of all processes, all of them in one message."""
        if self.count == 1:
            return
        parameters = [p for p in model.parameters() if p.requires_grad]
        for parameter in parameters:
            if parameter.grad is None:  # this process had no rows
                parameter.grad = torch.zeros_like(parameter)
        self.add_up([p.grad for p in parameters if p.grad is not None])

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Add up tensors over all processes in place, all of them in one message."""
        if self.count == 1:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        with _together():
            dist.all_reduce(flat)
        for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def sum(self, value: float) -> float:
        """The sum of a number over all processes."""
        if self.count == 1:
            return value
        total = torch.tensor(value, dtype=torch.float64)
        with _together():
            dist.all_reduce(total)
        return float(total)


@contextmanager
def _together() -> Iterator[None]:
    """Say it plainly when another process is gone, instead of how the connection to it ended."""
    try:
        yield
    except RuntimeError as error:
        raise ConnectionError(
            "another process of this training has ended or cannot be reached; start all of them again with --resume "
            f"to continue from the last checkpoint ({str(error).splitlines()[0][:200]})"
        ) from error
