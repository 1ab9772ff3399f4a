# SPDX-License-Identifier: Apache-2.0
"""Several processes that train one model, started by ``torchrun``."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn


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
            dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
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
            for tensor in model.state_dict().values():
                dist.broadcast(tensor, 0)

    def sum_gradients(self, model: nn.Module) -> None:
        """Add up the gradients of all processes, all of them in one message."""
        if self.count == 1:
            return
        parameters = [p for p in model.parameters() if p.requires_grad]
        for parameter in parameters:
            if parameter.grad is None:  # this process had no rows
                parameter.grad = torch.zeros_like(parameter)
        gradients = [p.grad for p in parameters if p.grad is not None]
        flat = torch.cat([g.flatten() for g in gradients])
        dist.all_reduce(flat)
        for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def sum(self, value: float) -> float:
        """The sum of a number over all processes."""
        if self.count == 1:
            return value
        total = torch.tensor(value, dtype=torch.float64)
        dist.all_reduce(total)
        return float(total)
