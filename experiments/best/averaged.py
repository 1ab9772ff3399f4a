"""Weight averaging: a PIC that is trained with its parameters and judged with their running average."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

import picirc as pc


class AveragedPIC(pc.PIC):
    """A PIC whose circuit, outside of training, is that of the averaged parameters.

    Every step ``a ← d a + (1 − d) θ`` with a smaller d in the first steps, so that the start is soon forgotten. The
    averages are buffers and therefore part of every checkpoint.

    Args:
        decay: The d.
        structure: As for ``pc.PIC``, like all further arguments.
        inputs: As for ``pc.PIC``.
        options: The other options of ``pc.PIC``.
    """

    count: torch.Tensor

    def __init__(self, decay: float, structure: Any, inputs: Any, **options: Any) -> None:
        super().__init__(structure, inputs, **options)
        self.decay = decay
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        for number, parameter in enumerate(self.parameters()):
            self.register_buffer(f"average_{number}", parameter.detach().clone())

    @property
    def averages(self) -> list[torch.Tensor]:
        """The average of every parameter."""
        return [self.get_buffer(f"average_{number}") for number, _ in enumerate(self.parameters())]

    def forward(self, rule: pc.Rule | pc.RandomRule) -> pc.QPC:
        """With gradients the circuit of the parameters, which join the average; without, that of the average."""
        if torch.is_grad_enabled():
            self._add()
            return super().forward(rule)
        with self._swapped():
            return super().forward(rule)

    @torch.no_grad()
    def end_training(self) -> None:
        """Keep the averages alone, in the units that the model ends with."""
        for parameter, average in zip(self.parameters(), self.averages, strict=True):
            parameter.copy_(average)
        super().end_training()
        for parameter, average in zip(self.parameters(), self.averages, strict=True):
            average.copy_(parameter)

    def plain(self) -> pc.PIC:
        """A PIC that has the averages as its parameters."""
        found = pc.PIC(self.structure, self.families, **{name: getattr(self, name) for name in self.STORED})
        tensors = {name: value for name, value in self.state_dict().items() if name in found.state_dict()}
        names = [name for name, _ in self.named_parameters()]
        found.load_state_dict(tensors | dict(zip(names, self.averages, strict=True)))
        return found

    @torch.no_grad()
    def _add(self) -> None:
        self.count += 1
        decay = min(self.decay, float(self.count / (self.count + 10)))
        for average, parameter in zip(self.averages, self.parameters(), strict=True):
            average.lerp_(parameter, 1 - decay)

    @contextmanager
    def _swapped(self) -> Iterator[None]:
        own = [parameter.data for parameter in self.parameters()]
        try:
            for parameter, average in zip(self.parameters(), self.averages, strict=True):
                parameter.data = average
            yield
        finally:
            for parameter, value in zip(self.parameters(), own, strict=True):
                parameter.data = value
