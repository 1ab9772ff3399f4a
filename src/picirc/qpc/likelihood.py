"""The log-likelihood as one differentiable operation over the whole circuit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from picirc.qpc.evidence import Evidence, Points
from picirc.qpc.inputs import InputLayer
from picirc.qpc.program import Parameters, Program
from picirc.qpc.trace import Flows, Trace

# A batch that needs more elements than this is split; 2²⁸ floats are one gigabyte.
_BUDGET = 2**28

Counts = tuple[int, int, int]  # of weights, mixtures and inputs among the tensors


@dataclass(frozen=True)
class Engine:
    """A program with its input layer: everything of a circuit but its parameters."""

    program: Program
    layer: InputLayer

    def parts(self, evidence: Evidence, budget: int = _BUDGET) -> Iterator[tuple[slice, Evidence]]:
        """The batch in parts that fit into memory."""
        size = max(1, budget // self.program.elements())
        if size >= evidence.batch:
            yield slice(0, evidence.batch), evidence
            return
        for start in range(0, evidence.batch, size):
            stop = min(start + size, evidence.batch)
            yield slice(start, stop), evidence.part(start, stop)

    def up(self, evidence: Evidence, parameters: Parameters, keep: bool) -> Trace:
        """The upward pass for a batch that fits into memory."""
        return self.program.up(
            lambda rows: self.layer.fill(rows, evidence, parameters), parameters, evidence.batch, keep
        )

    def log_prob(self, evidence: Evidence, parameters: Parameters) -> Tensor:
        """The log-value of the root for every data point ``(batch,)``, without a gradient."""
        parameters = parameters.detach()
        values = []
        for _, part in self.parts(evidence):
            trace = self.up(part, parameters, keep=False)
            values.append(self.program.root(trace))
            trace.lease.release()
        return torch.cat(values).to(parameters.like.dtype)

    def flows(self, evidence: Evidence, parameters: Parameters) -> Iterator[tuple[slice, Tensor, Flows]]:
        """For each part of the batch its log-values and the flows with a unit flow into the root.

        The flows live in buffers that are used again for the next part.
        """
        parameters = parameters.detach()
        for where, part in self.parts(evidence):
            trace = self.up(part, parameters, keep=True)
            value = self.program.root(trace)
            ones = torch.ones(part.batch, dtype=parameters.like.dtype, device=parameters.like.device)
            flows = self.program.down(trace, parameters, ones, gradients=False)
            yield where, value, flows
            trace.lease.release()

    def differentiable_log_prob(self, evidence: Points, parameters: Parameters) -> Tensor:
        """As ``log_prob``, with a gradient to the parameters."""
        counts = (len(parameters.weights), len(parameters.mixtures), len(parameters.inputs))
        result: Tensor = _LogProb.apply(self, evidence, counts, *parameters.tensors)  # type: ignore[no-untyped-call]
        return result


class _LogProb(torch.autograd.Function):
    """``up`` forward, ``down`` backward; autograd never sees the levels in between."""

    @staticmethod
    def forward(ctx: Any, engine: Engine, evidence: Points, counts: Counts, *tensors: Tensor) -> Tensor:
        ctx.engine, ctx.evidence, ctx.counts = engine, evidence, counts
        ctx.save_for_backward(*tensors)
        parameters = _parameters(counts, tensors)
        values, ctx.trace = [], None
        parts = list(engine.parts(evidence))
        for _, part in parts:
            ctx.trace = engine.up(part, parameters, keep=len(parts) == 1)
            values.append(engine.program.root(ctx.trace))
            if len(parts) > 1:
                # The traces of all parts together would not fit; each is computed again on the way back.
                ctx.trace.lease.release()
                ctx.trace = None
        return torch.cat(values).to(parameters.like.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *flow: Tensor) -> tuple[Tensor | None, ...]:
        engine, parameters = ctx.engine, _parameters(ctx.counts, ctx.saved_tensors)
        trace, ctx.trace = ctx.trace, None
        totals: list[Tensor] = []
        for where, part in engine.parts(ctx.evidence):
            # A second call of backward finds the trace used up.
            trace = trace or engine.up(part, parameters, keep=True)
            flows = engine.program.down(trace, parameters, flow[0][where])
            inputs = engine.layer.gradients(flows.rows, part, parameters)
            trace.lease.release()
            trace = None
            found = [*flows.weights, *flows.mixtures, *inputs]
            totals = [a.add_(b) for a, b in zip(totals, found, strict=True)] if totals else found
        return (None, None, None, *totals)


def _parameters(counts: Counts, tensors: tuple[Tensor, ...]) -> Parameters:
    ends = list(accumulate(counts))
    starts = [0, *ends]
    return Parameters(*(tensors[start:end] for start, end in zip(starts, [*ends, None], strict=True)))
