"""The tensor program: two traversals of a folded schedule.

``up`` computes the log-value of the root for a batch. Rows hold log-values while their factors are multiplied in; then
each is scaled by its maximum, exponentiated in place and contracted with the sum weights, and the logarithm of the
result is added to the rows above. The maxima travel separately, one number a row and data point, in double precision.

``down`` computes *flows*, the derivatives of the root's log-value with respect to the rows' log-values, in the reverse
order and in the same buffers. In a tree the flow of a state is its posterior probability given the data point.
Gradients, expected counts, marginals, latent posteriors and samples are all read off the flows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from picirc.native import MOST_PARTS, Kernels, kernels_for
from picirc.qpc.layers import contract_down, gather_back, least_flow, mix_down, mix_up, scale_rows, spread
from picirc.qpc.steps import Flags, Kinds, MixStep, PassStep, Rows, Schedule, Send, Step, SumStep
from picirc.qpc.trace import Flows, Trace
from picirc.qpc.workspace import Lease, Workspace
from picirc.recycling import recycled

# About the second-level caches of two cores: a step works on its rows and its results.
_CACHE_BYTES = 2**22
# A step's scratch is at most such a part of everything, so that in small circuits it does not outweigh the rest.
_LARGEST_PART = 1 / 32

Fill = Callable[[list[Tensor]], None]


@dataclass(frozen=True)
class Parameters:
    """The numbers of a circuit.

    Attributes:
        weights: For each block of sum weights ``(rows, g, o, z)``.
        mixtures: For each block of mixing weights ``(fold, arity, states or 1)``.
        inputs: For each group of input distributions ``(fold or 1, states, P)``.
        correlations: For each block of correlated inputs its matrix ``(m, m)``.
    """

    weights: tuple[Tensor, ...]
    mixtures: tuple[Tensor, ...]
    inputs: tuple[Tensor, ...]
    correlations: tuple[Tensor, ...] = ()

    @property
    def like(self) -> Tensor:
        """A tensor of the circuit's dtype and device."""
        return self.inputs[0]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All of them."""
        return (*self.weights, *self.mixtures, *self.inputs, *self.correlations)

    def detach(self) -> Parameters:
        """The same numbers, cut off from the graph that made them."""
        parts = (self.weights, self.mixtures, self.inputs, self.correlations)
        return Parameters(*(tuple(t.detach() for t in part) for part in parts))


class Program:
    """A schedule with the numbers of states filled in.

    Args:
        schedule: The instructions.
        sizes: The number of states of each kind of axis.
    """

    def __init__(self, schedule: Schedule, sizes: Mapping[Hashable, int]) -> None:
        self.schedule = schedule
        self._sizes = dict(sizes)
        self.shapes = [self.sizes(pool.kinds) for pool in schedule.pools]
        self._simple = schedule.simple
        self.workspace = Workspace()
        self._indices: dict[tuple[int, torch.device], Tensor] = {}
        self._pieces: dict[int, list[Step]] = {}
        self._dims: dict[tuple[Kinds, Kinds, Kinds, Kinds], tuple[int, int, int, int]] = {}

    def sizes(self, kinds: Sequence[Hashable]) -> tuple[int, ...]:
        """The numbers of states of some axes."""
        return tuple(self._sizes[kind] for kind in kinds)

    def dims(self, step: SumStep) -> tuple[int, int, int, int]:
        """The numbers of states g, o, z, r of a sum step."""
        axes = (step.shared, step.new, step.integrated, step.passed)
        if axes not in self._dims:
            g, o, z, r = (math.prod(self.sizes(kinds)) for kinds in axes)
            self._dims[axes] = (g, o, z, r)
        return self._dims[axes]

    def result_shape(self, step: SumStep) -> tuple[int, ...]:
        """The state axes of a sum step's results."""
        return self.sizes(step.shared + step.new + step.passed)

    def elements(self) -> int:
        """The number of values that a pass keeps for one data point: the rows, and the sums for the way down."""
        rows = sum(p.rows * math.prod(s) for p, s in zip(self.schedule.pools, self.shapes, strict=True))
        return rows + sum(self._result_elements(step) for step in self.schedule.steps if isinstance(step, SumStep))

    def steps(self, bytes_per_state: int) -> list[Step]:
        """The steps, with those that would leave the processor's cache cut into pieces that do not.

        Args:
            bytes_per_state: The size of one state of a row for the whole batch.
        """
        if bytes_per_state not in self._pieces:
            pieces: list[Step] = []
            most = min(_CACHE_BYTES, int(_LARGEST_PART * self.elements() * bytes_per_state))
            for step in self.schedule.steps:
                if isinstance(step, PassStep):
                    pieces.append(step)
                else:
                    pieces += step.split(max(1, most // (self._row_elements(step) * bytes_per_state)))
            self._pieces[bytes_per_state] = pieces
        return self._pieces[bytes_per_state]

    def index(self, rows: Rows | Flags, device: torch.device) -> Tensor:
        """Row numbers as a tensor on the device, made once."""
        key = (id(rows), device)
        if key not in self._indices:
            self._indices[key] = torch.as_tensor(rows, device=device)
        return self._indices[key]

    def up(self, fill: Fill, parameters: Parameters, batch: int, keep: bool = True) -> Trace:
        """Compute all rows for a batch.

        Args:
            fill: Puts the log-values of the inputs into the rows, and log 1 where nothing else comes first.
            parameters: The weights.
            batch: The number of data points.
            keep: Remember what ``down`` needs.
        """
        trace = self.fresh_trace(parameters.like, batch)
        fill(trace.rows)
        self.climb(trace, parameters, batch, keep)
        return trace

    def climb(self, trace: Trace, parameters: Parameters, batch: int, keep: bool = True) -> None:
        """The part of ``up`` that is left when the inputs are in their rows."""
        steps = self.steps(batch * parameters.like.element_size())
        scratch = trace.lease(self._scratch_elements(steps) * batch)
        if keep:
            trace.sums = self._sum_buffers(steps, trace.lease, batch)
        for number, step in enumerate(steps):
            match step:
                case SumStep():
                    self._sum_up(step, trace, trace.sums.get(number), parameters.weights[step.block], scratch)
                case MixStep():
                    self._mix_up(step, trace, parameters.mixtures[step.block], scratch)
                case PassStep():
                    # Copies, because rows of the same pool are written.
                    rows, scales = (rows_of(pools, step).clone() for pools in (trace.rows, trace.scales))
                    self.send(step.sends, self.shapes[step.pool], rows, scales, trace)

    def root(self, trace: Trace) -> Tensor:
        """The log-value of the root, ``(batch,)``, in double precision."""
        pool, row = self.schedule.root
        if self._simple:
            scale = sum(scales.sum(0, dtype=torch.float64) for scales in trace.scales)
        else:
            scale = trace.scales[pool][row]
        return trace.rows[pool][row, 0] + scale

    def down(self, trace: Trace, parameters: Parameters, flow: Tensor, gradients: bool = True) -> Flows:
        """Turn the rows of a trace into flows, in place; the trace cannot be used again.

        Args:
            trace: What ``up`` left behind.
            parameters: As in ``up``.
            flow: The flow into the root, ``(batch,)``: ones, or the derivative of a loss.
            gradients: Compute the derivatives with respect to weights and mixtures too.
        """
        pool, row = self.schedule.root
        # Nothing flows from a data point of probability zero; a quotient of zeros further down would poison the others.
        trace.rows[pool][row, 0] = torch.where(torch.isneginf(self.root(trace)), 0.0, flow)
        flows = Flows(
            trace.rows,
            [recycled(w.shape, w) for w in parameters.weights] if gradients else [],
            [torch.zeros_like(w) for w in parameters.mixtures] if gradients else [],
        )
        smallest = least_flow(flow)
        steps = self.steps(len(flow) * parameters.like.element_size())
        scratch = [trace.lease(self._scratch_elements(steps) * len(flow)) for _ in range(2)]
        for number, step in reversed(list(enumerate(steps))):
            match step:
                case SumStep():
                    gradient = flows.weights[step.block] if gradients else None
                    weights = parameters.weights[step.block]
                    self._sum_down(step, trace, trace.sums[number], weights, gradient, scratch, smallest)
                case MixStep():
                    gradient = flows.mixtures[step.block] if gradients else None
                    self._mix_down(step, trace, parameters.mixtures[step.block], gradient, scratch[0])
                case PassStep():
                    rows = rows_of(trace.rows, step)
                    incoming = torch.empty_like(rows)  # not the rows themselves, because rows of the same pool are read
                    self._collect(step.sends, self.shapes[step.pool], trace.rows, incoming)
                    rows.copy_(incoming)
        return flows

    def matrices(self, step: SumStep, weights: Tensor) -> Tensor:
        """The weights of a sum step as matrices ``(fold * g, edges * o, z)``; one of g and edges is 1."""
        g, o, z, _ = self.dims(step)
        fold = step.stop - step.start
        rows = weights.narrow(0, step.first, fold * step.edges)
        return rows.reshape(fold * g, step.edges * o, z)

    def _sum_up(self, step: SumStep, trace: Trace, sums: Tensor | None, weights: Tensor, scratch: Tensor) -> None:
        g, o, z, r = self.dims(step)
        fold, edges = step.stop - step.start, step.edges
        rows, scales = rows_of(trace.rows, step), rows_of(trace.scales, step)
        batch = rows.shape[-1]
        cells = rows.view(fold * g, z, r * batch)
        shift = scale_rows(cells, scales.unsqueeze(1) if self._simple else None)
        logs = _shaped(scratch, fold * g, edges * o, r * batch)
        sums = logs if sums is None else sums.view_as(logs)
        torch.bmm(self.matrices(step, weights), cells, out=sums)
        if native := self._kernels(step, sums):
            for send in step.sends:
                rows, sources = self._indices_of(send, sums.device)
                native.add_logs(trace.rows[send.pool], rows, sources, sums, self._fresh(send, sums.device))
                if not self._simple:
                    native.add_scales(trace.scales[send.pool], rows, sources, scales, shift, edges)
            return
        torch.log(sums, out=logs)
        results = logs.view(fold * edges, g * o * r, batch)
        if self._simple:
            self.send(step.sends, self.result_shape(step), results, None, trace)
            return
        if g == r == 1:
            scales = scales + shift.view(fold, batch)
        else:
            logs += shift  # the maxima differ between the states of a row
            scales = scales.clone()  # they may be sent to rows of the same pool
        if edges > 1:
            scales = scales.repeat_interleave(edges, 0)
        self.send(step.sends, self.result_shape(step), results, scales, trace)

    def _kernels(self, step: SumStep, sums: Tensor) -> Kernels | None:
        """Compiled loops, for a step whose results go to rows of the same shape, scaled as a whole."""
        whole = not (step.shared or step.passed) and all(send.axes is None for send in step.sends)
        return kernels_for(sums) if whole else None

    def _sum_down(
        self,
        step: SumStep,
        trace: Trace,
        sums: Tensor,
        weights: Tensor,
        gradient: Tensor | None,
        scratch: Sequence[Tensor],
        smallest: float,
    ) -> None:
        g, o, z, r = self.dims(step)
        fold, edges = step.stop - step.start, step.edges
        rows = rows_of(trace.rows, step)
        batch = rows.shape[-1]
        flow = _shaped(scratch[0], fold * edges, g * o * r, batch)
        native = self._kernels(step, flow)
        if native and len(step.sends) == 1 and step.sends[0].sources is None:
            (send,) = step.sends
            native.collect_quotients(flow, trace.rows[send.pool], self.index(send.rows, flow.device), sums)
        else:
            self._collect(step.sends, self.result_shape(step), trace.rows, flow)
            flow.view(-1).div_(sums.clamp_(min=torch.finfo(sums.dtype).tiny))
        contract_down(
            self.matrices(step, weights),
            rows.view(fold * g, z, r * batch),
            flow.view(fold * g, edges * o, r * batch),
            _shaped(scratch[1], fold * g, z, r * batch),
            None if gradient is None else self.matrices(step, gradient),
            smallest,
        )

    def _mix_up(self, step: MixStep, trace: Trace, weights: Tensor, scratch: Tensor) -> None:
        fold, arity = step.sources.shape
        weights = weights[step.first : step.first + fold]
        out, out_scales = rows_of(trace.rows, step), rows_of(trace.scales, step)
        if arity <= MOST_PARTS and (native := kernels_for(out, weights)):
            rows, scales, sources = trace.rows[step.pool], trace.scales[step.pool], self.index(step.sources, out.device)
            native.mix_up(out, out_scales, rows, scales, sources, weights)
            return
        parts, scales = self.parts(step, trace, scratch)
        out_scales.copy_(mix_up(parts, scales, weights, out))

    def _mix_down(self, step: MixStep, trace: Trace, weights: Tensor, gradient: Tensor | None, scratch: Tensor) -> None:
        parts, scales = self.parts(step, trace, scratch)
        own = slice(step.first, step.first + len(parts))
        flows = mix_down(
            parts, scales, weights[own], rows_of(trace.rows, step), None if gradient is None else gradient[own]
        )
        sources = self.index(step.sources, flows.device).flatten()
        trace.rows[step.pool].index_copy_(0, sources, flows.flatten(0, 1))

    def parts(self, step: MixStep, trace: Trace, scratch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Copies of the parts of mixtures ``(fold, arity, states, batch)``, and scales ``(fold, arity, batch)``."""
        rows, scales = trace.rows[step.pool], trace.scales[step.pool]
        sources = self.index(step.sources, rows.device)
        shape = (*sources.shape, *rows.shape[1:])
        out = rows.new_empty(shape) if scratch is None else _shaped(scratch, *shape)
        torch.index_select(rows, 0, sources.flatten(), out=out.flatten(0, 1))
        return out, scales[sources]

    def send(
        self, sends: Sequence[Send], shape: tuple[int, ...], results: Tensor, scales: Tensor | None, trace: Trace
    ) -> None:
        """Multiply results into the rows that use them, which means adding logarithms; and scales, if they travel."""
        for send in sends:
            rows, sources = self._indices_of(send, results.device)
            chosen = results if sources is None else results[sources]
            target = trace.rows[send.pool]
            if send.axes is None:
                if (fresh := self._fresh(send, target.device)) is not None:
                    target.index_fill_(0, rows[fresh], 0.0)
                target.index_add_(0, rows, chosen)
            else:
                into = self.shapes[send.pool]
                viewed = target.unflatten(1, into or (1,))
                viewed.index_add_(0, rows, spread(chosen, send.axes, shape, into).reshape(-1, *viewed.shape[1:]))
            if scales is not None:
                trace.scales[send.pool].index_add_(0, rows, scales if sources is None else scales[sources])

    def _indices_of(self, send: Send, device: torch.device) -> tuple[Tensor, Tensor | None]:
        """The rows that results go to, and the results that do, unless all of them do."""
        return self.index(send.rows, device), None if send.sources is None else self.index(send.sources, device)

    def _fresh(self, send: Send, device: torch.device) -> Tensor | None:
        return None if send.fresh is None else self.index(send.fresh, device)

    def _collect(self, sends: Sequence[Send], shape: tuple[int, ...], rows: Sequence[Tensor], out: Tensor) -> None:
        """Reverse of ``send``: the flow of a result is the sum of the flows of the rows that use it."""
        for number, send in enumerate(sends):
            used = self.index(send.rows, out.device)
            first_of_all = number == 0 and send.sources is None
            if send.axes is None and first_of_all:
                torch.index_select(rows[send.pool], 0, used, out=out)
                continue
            if number == 0:
                out.zero_()
            flows = rows[send.pool].index_select(0, used)
            if send.axes is not None:
                flows = gather_back(flows, send.axes, shape, self.shapes[send.pool])
            if send.sources is None:
                out += flows
            else:
                out.index_add_(0, self.index(send.sources, out.device), flows)

    def fresh_trace(self, like: Tensor, batch: int) -> Trace:
        """Rows that nothing has been written to, and scales of zero."""
        lease = self.workspace.lease(like.dtype, like.device)
        pools = self.schedule.pools
        rows = [lease(p.rows, math.prod(shape), batch) for p, shape in zip(pools, self.shapes, strict=True)]
        if self._simple:
            scales = [lease(p.rows, batch).zero_() for p in pools]
        else:
            # Sums of many maxima, and differences of such sums where rows are mixed.
            scales = [torch.zeros(p.rows, batch, dtype=torch.float64, device=like.device) for p in pools]
        return Trace(rows, scales, lease)

    def _sum_buffers(self, steps: Sequence[Step], lease: Lease, batch: int) -> dict[int, Tensor]:
        """Room for the results of every sum step, all of it in one piece."""
        sizes = {i: self._result_elements(step) * batch for i, step in enumerate(steps) if isinstance(step, SumStep)}
        parts = lease(sum(sizes.values())).split(list(sizes.values()))
        return dict(zip(sizes, parts, strict=True))

    def _row_elements(self, step: SumStep | MixStep) -> int:
        """What one row of a step works on, for one data point."""
        row = math.prod(self.shapes[step.pool])
        if isinstance(step, MixStep):
            return row * int(step.sources.shape[1])
        return max(row, self._result_elements(step) // (step.stop - step.start))

    def _result_elements(self, step: SumStep) -> int:
        return (step.stop - step.start) * step.edges * math.prod(self.result_shape(step))

    def _scratch_elements(self, steps: Sequence[Step]) -> int:
        """The elements of the largest step's rows or results for one data point."""
        return max([1, *((s.stop - s.start) * self._row_elements(s) for s in steps if not isinstance(s, PassStep))])


def rows_of(pools: Sequence[Tensor], step: SumStep | MixStep | PassStep) -> Tensor:
    """The rows of a step, a view."""
    return pools[step.pool].narrow(0, step.start, step.stop - step.start)


def _shaped(buffer: Tensor, *shape: int) -> Tensor:
    return buffer.narrow(0, 0, math.prod(shape)).view(shape)
