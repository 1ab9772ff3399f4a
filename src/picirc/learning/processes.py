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

    The batch of a step is cut into equal parts, one a process; gradients are averaged, so that the model is the same
    everywhere and the same as one process would have trained with the whole batch.
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
        """This process's rows of a batch."""
        size = len(batch) // self.count
        return batch if self.count == 1 else batch[self.rank * size : (self.rank + 1) * size]

    def share(self, model: nn.Module) -> None:
        """Give all processes the first one's parameters."""
        if self.count > 1:
            for tensor in model.state_dict().values():
                dist.broadcast(tensor, 0)

    def average(self, model: nn.Module) -> None:
        """Average the gradients, all of them in one message."""
        if self.count == 1:
            return
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        flat = torch.cat([g.flatten() for g in gradients])
        dist.all_reduce(flat)
        flat /= self.count
        start = 0
        for gradient in gradients:
            gradient.copy_(flat[start : start + gradient.numel()].view_as(gradient))
            start += gradient.numel()

    def mean(self, value: float) -> float:
        """The mean of a number over all processes."""
        if self.count == 1:
            return value
        total = torch.tensor(value, dtype=torch.float64)
        dist.all_reduce(total)
        return float(total) / self.count
