# SPDX-License-Identifier: Apache-2.0
"""The compiled circuit: a schedule with numbers of states, which it runs up and down.

``up`` computes the log-value of the root for a batch. Rows hold log-values while their factors are multiplied in. Then
each row is divided by its maximum, exponentiated in place and contracted with the sum weights, and the logarithm of the
result is added to the rows above. The maxima, one for each row and data point, are kept separately.

``down`` computes *flows*, the derivatives of the log-value of the root with respect to the log-values of the rows, in
reverse order and in the same tensors. In a tree the flow of a state is its posterior probability given the data point.
Gradients, expected counts, marginals, posteriors of latents and samples all follow from the flows.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from picirc.autograd import first_order
from picirc.engine import inputs as evaluation
from picirc.engine.contraction import contract_down, gather_back, least_flow, mix_down, mix_up, scale_rows, spread
from picirc.engine.evidence import Evidence, Points
from picirc.engine.inputs import FEWEST
from picirc.engine.schedule import Flags, InputStep, MixStep, Rows, Schedule, Step, SumStep
from picirc.inputs import Gaussian
from picirc.inputs.correlated import Block
from picirc.memory import empty
from picirc.native import MOST_PARTS, Kernels, kernels_for

# Steps prepared for execution: numbers of states, pieces that fit into the cache, indices on a device

CACHE_BYTES = 2**22  # about the second-level caches of two cores
# The scratch of a step is at most this fraction of all values, so that it takes little memory beside them. Pieces with
# fewer bytes than the second number save little memory and take longer.
_LARGEST_PART, _LEAST_PIECE = 1 / 32, 2**18


@dataclass(frozen=True)
class Target:
    """A ``Send`` with its indices on a device."""

    pool: int
    rows: Tensor
    sources: Tensor | None
    axes: tuple[int, ...] | None
    fresh: Tensor | None
    begun: Tensor | None  # the fresh rows


@dataclass(frozen=True)
class Ready:
    """A step with its indices on a device."""

    step: Step
    targets: tuple[Target, ...] = ()  # the rows that its results go to
    index: Tensor = field(
        default_factory=lambda: torch.empty(0)
    )  # the parts of a mixture `(fold, arity)`, or input rows
    columns: Tensor = field(default_factory=lambda: torch.empty(0))  # the columns of inputs
    stars: tuple[tuple[Tensor, Tensor], ...] = ()  # the inputs `(rows, inputs)` that share rows, and the rows
    span: tuple[int, int] | None = None  # start and stop of the rows of inputs, if they are consecutive
    dims: tuple[int, int, int, int] = (1, 1, 1, 1)  # the numbers of states g, o, z, r of a sum step
    shape: tuple[int, ...] = ()  # the state axes of its results
    # Whether its results go to rows of the same shape and are scaled as a whole, as the compiled loops require.
    whole: bool = False
    weights: slice = field(default_factory=lambda: slice(0))  # the part of its block of weights
    matrices: tuple[int, int, int] = (1, 1, 1)  # the shape of its weights as matrices `(fold * g, edges * o, z)`
    results: int = 0  # the number of its results for one data point
    offset: int = 0  # the number of results of the steps before it
    scratch: int = 1  # the elements that it works on for one data point


class Layout:
    """A schedule with numbers of states.

    Args:
        schedule: The steps.
        sizes: The number of states of each kind of axis.

    Attributes:
        shapes: The numbers of states of the rows of each pool.
        inputs: The input steps, in the order of their parameters.
        results: The number of results of all sum steps for one data point.
        elements: The number of values that a pass keeps for one data point: rows, and results for the pass down.
    """

    def __init__(self, schedule: Schedule, sizes: Mapping[Hashable, int]) -> None:
        self.schedule = schedule
        self.sizes = dict(sizes)
        self.shapes = [self.shape(pool.kinds) for pool in schedule.pools]
        self.inputs = schedule.inputs
        rows = sum(p.rows * math.prod(s) for p, s in zip(schedule.pools, self.shapes, strict=True))
        self.results = sum(self._results(step) for step in schedule.steps if isinstance(step, SumStep))
        self.elements = rows + self.results

    def shape(self, kinds: Sequence[Hashable]) -> tuple[int, ...]:
        """Return the numbers of states of some axes."""
        return tuple(self.sizes[kind] for kind in kinds)

    def dims(self, step: SumStep) -> tuple[int, int, int, int]:
        """Return the numbers of states g, o, z, r of a sum step."""
        g, o, z, r = (math.prod(self.shape(k)) for k in (step.shared, step.new, step.integrated, step.passed))
        return g, o, z, r

    def result_shape(self, step: SumStep) -> tuple[int, ...]:
        """Return the state axes of the results of a sum step."""
        return self.shape(step.shared + step.new + step.passed)

    def ready(self, width: int, device: torch.device) -> list[Ready]:
        """Return the steps with their indices on a device, in pieces that fit into the cache.

        Args:
            width: The bytes of one state of a row for a whole batch; 0 for whole steps.
            device: The device of the indices.
        """
        most = min(CACHE_BYTES, max(_LEAST_PIECE, int(_LARGEST_PART * self.elements * width)))
        steps: list[Ready] = []
        offset = 0
        with torch.inference_mode(False):
            for step in self.schedule.steps:
                pieces: Iterable[Step] = [step]
                if width and isinstance(step, SumStep | MixStep):
                    pieces = step.split(max(1, most // (self._row_elements(step) * width)))
                for piece in pieces:
                    steps.append(self._prepare(piece, offset, device))
                    offset += steps[-1].results
        return steps

    def _prepare(self, step: Step, offset: int, device: torch.device) -> Ready:
        def index(rows: Rows | Flags) -> Tensor:
            return torch.as_tensor(rows, device=device)

        if isinstance(step, InputStep):
            stars = tuple((index(members), index(rows)) for members, rows in _stars(step))
            return Ready(step, (), index(step.rows), index(step.columns), stars, span_of(step.rows))
        targets = tuple(
            Target(
                send.pool,
                index(send.rows),
                None if send.sources is None else index(send.sources),
                send.axes,
                None if send.fresh is None else index(send.fresh),
                None if send.fresh is None else index(send.rows[send.fresh]),
            )
            for send in step.sends
        )
        rows = step.stop - step.start
        scratch = rows * self._row_elements(step)
        if isinstance(step, MixStep):
            return Ready(step, targets, index(step.sources), shape=self.shapes[step.pool], scratch=scratch)
        g, o, z, r = self.dims(step)
        return Ready(
            step,
            targets,
            dims=(g, o, z, r),
            shape=self.result_shape(step),
            whole=not (step.shared or step.passed) and all(send.axes is None for send in step.sends),
            weights=slice(step.first, step.first + step.results),
            matrices=(rows * g, step.edges * o, z),  # one of g and edges is 1
            results=self._results(step),
            offset=offset,
            scratch=scratch,
        )

    def _row_elements(self, step: SumStep | MixStep) -> int:
        """Return the number of elements that one row of a step works on, for one data point."""
        row = math.prod(self.shapes[step.pool])
        if isinstance(step, MixStep):
            return row * int(step.sources.shape[1])
        return max(row, self._results(step) // (step.stop - step.start))

    def _results(self, step: SumStep) -> int:
        return step.results * math.prod(self.result_shape(step))


def span_of(rows: Rows) -> tuple[int, int] | None:
    """Return start and stop of consecutive rows, or None if they are not consecutive."""
    consecutive = len(rows) > 0 and bool((np.diff(rows) == 1).all())
    return (int(rows[0]), int(rows[-1]) + 1) if consecutive else None


def _stars(step: InputStep) -> Iterator[tuple[Rows, Rows]]:
    """Yield the inputs ``(rows, inputs)`` that share rows, and the rows, for each number of inputs at a row."""
    rows, counts = np.unique(step.rows, return_counts=True)
    if step.axes is not None or step.parents or step.correlation is not None or counts.max() < FEWEST:
        return
    order = np.argsort(step.rows, kind="stable")
    first = np.cumsum(counts) - counts
    for count in np.unique(counts):
        own = counts == count
        yield order[first[own][:, None] + np.arange(count)], rows[own]


BUDGET = 2**28  # elements, a gigabyte of floats; a batch that needs more is split
# The circuit

_INPUT_ELEMENTS = 2**24  # of the values of inputs that are computed at a time
_KEPT_SIZES = 8  # batch sizes for which prepared steps are kept


@dataclass(frozen=True)
class Parameters:
    """The parameters of a circuit."""

    weights: tuple[Tensor, ...]  # for each block of sum weights `(rows, g, o, z)`
    mixtures: tuple[Tensor, ...]  # for each block of mixing weights `(fold, arity, states or 1)`
    inputs: tuple[Tensor, ...]  # for each input step `(inputs or 1, states, P)`
    correlations: tuple[Tensor, ...] = ()  # for each block of correlated inputs its matrix `(m, m)`

    @property
    def like(self) -> Tensor:
        """A tensor of the circuit's dtype and device."""
        return self.inputs[0]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors."""
        return (*self.weights, *self.mixtures, *self.inputs, *self.correlations)

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """The numbers of weights, mixtures, inputs and correlations."""
        return len(self.weights), len(self.mixtures), len(self.inputs), len(self.correlations)

    @staticmethod
    def of(tensors: Sequence[Tensor], counts: Sequence[int]) -> Parameters:
        """Reverse ``tensors`` and ``counts``."""
        ends = list(accumulate(counts))
        return Parameters(*(tuple(tensors[end - count : end]) for end, count in zip(ends, counts, strict=True)))

    def detach(self) -> Parameters:
        """Return the same parameters, detached from the graph."""
        return Parameters.of([t.detach() for t in self.tensors], self.counts)


@dataclass
class Values:
    """What ``up`` computes."""

    rows: list[Tensor]  # for each pool `(rows, states, batch)`
    # For each pool `(rows, batch)`: the logarithms that the rows were divided by. In a simple schedule they are those
    # of the row alone, otherwise also those of all rows below.
    scales: list[Tensor]
    native: Kernels | None = None  # the compiled loops, if they support the rows
    sums: Tensor | None = None  # for `down`: the results of all sum steps before the logarithm, one after another


@dataclass
class Flows:
    """What ``down`` computes."""

    rows: list[Tensor]  # for each pool the flow of every row, `(rows, states, batch)`
    gradient: Parameters | None = None  # the derivatives with respect to the parameters, summed over the batch
    values: Tensor | None = None  # the derivative with respect to the data `(variables, batch)`
    # By input step, the derivatives with respect to its parameters and to those of its family.
    inputs: dict[int, Tensor] = field(default_factory=dict)
    families: dict[int, tuple[Tensor, ...]] = field(default_factory=dict)


class CompiledCircuit(Layout):
    """A circuit without its parameters, ready to run. It is immutable and may be shared between threads.

    Args:
        schedule: The steps.
        sizes: The number of states of each kind of axis.
    """

    def __init__(self, schedule: Schedule, sizes: Mapping[Hashable, int]) -> None:
        super().__init__(schedule, sizes)
        self._ready: OrderedDict[tuple[int, torch.device], tuple[list[Ready], int]] = OrderedDict()
        self._simple = schedule.simple
        self._learnable = [tensor for step in self.inputs for tensor in step.family.learnable]

    def __reduce__(self) -> Any:
        return CompiledCircuit, (self.schedule, self.sizes)

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledCircuit:
        return self

    def parts(self, evidence: Evidence) -> Iterator[tuple[slice, Evidence]]:
        """Yield the batch in parts that fit into memory."""
        size = max(1, BUDGET // self.elements)
        if size >= evidence.batch:
            yield slice(0, evidence.batch), evidence
            return
        for start in range(0, evidence.batch, size):
            stop = min(start + size, evidence.batch)
            yield slice(start, stop), evidence.part(start, stop)

    def start(self, like: Tensor, batch: int) -> Values:
        """Return empty rows, with log 1 where no step overwrites them, and scales of zero."""
        rows: list[Tensor] = []
        scales: list[Tensor] = []
        # Mixtures take differences of sums of many maxima, which need double precision.
        dtype = like.dtype if self._simple else torch.float64
        for pool, shape in zip(self.schedule.pools, self.shapes, strict=True):
            rows.append(empty((pool.rows, math.prod(shape), batch), like))
            scales.append(torch.zeros(pool.rows, batch, dtype=dtype, device=like.device))
            for start, stop in pool.blank:
                rows[-1][start:stop].zero_()
        return Values(rows, scales, kernels_for(*rows))

    def steps(self, like: Tensor, batch: int | None = None) -> tuple[list[Ready], int]:
        """Return the prepared steps, and the largest number of elements that one of them works on.

        Args:
            like: A tensor of the circuit's dtype and device.
            batch: The number of data points, for steps in pieces that fit into the cache; None for whole steps.
        """
        key = (0 if batch is None else batch * like.element_size(), like.device)
        found = self._ready.get(key)
        if found is None:
            steps = self.ready(*key)
            found = self._ready[key] = steps, max(ready.scratch for ready in steps)
            while len(self._ready) > _KEPT_SIZES:
                self._ready.popitem(last=False)
        return found

    def up(self, evidence: Evidence, parameters: Parameters, keep: bool = False) -> Values:
        """Compute all rows for a batch that fits into memory; ``keep`` what ``down`` needs."""
        like, batch = parameters.like, evidence.batch
        (steps, most), values = self.steps(like, batch), self.start(like, batch)
        scratch = empty((most * batch,), like)
        if keep:
            values.sums = empty((self.results * batch,), like)
        for ready in steps:
            match ready.step:
                case InputStep():
                    self.input_up(ready, values, evidence, parameters)
                case SumStep(block=block):
                    self.sum_up(ready, values, parameters.weights[block], scratch)
                case MixStep(block=block):
                    self._mix_up(ready, values, parameters.mixtures[block], scratch)
        return values

    def root(self, values: Values) -> Tensor:
        """Return the log-value of the root, ``(batch,)``, in double precision."""
        pool, row = self.schedule.root
        if not self._simple:
            return values.rows[pool][row, 0] + values.scales[pool][row]
        total = values.rows[pool][row, 0].double()
        for scales in values.scales:
            total = total + scales.sum(0, dtype=torch.float64)
        return total

    def down(
        self,
        values: Values,
        parameters: Parameters,
        flow: Tensor,
        gradient: bool = False,
        evidence: Points | None = None,
        to_data: bool = False,
    ) -> Flows:
        """Replace the rows of a pass up by flows, in place; the values cannot be used again.

        Args:
            values: What ``up`` computed, with ``keep``.
            parameters: The same as in ``up``.
            flow: The flow into the root, ``(batch,)``: ones, or the derivative of a loss.
            gradient: Compute the derivatives with respect to weights and mixtures.
            evidence: The same as in ``up``, for the derivatives with respect to the parameters of the inputs.
            to_data: Compute the derivative with respect to the data.
        """
        pool, row = self.schedule.root
        # A data point of probability zero has no flow, because 0 / 0 further down would spoil the sums over the batch.
        values.rows[pool][row, 0] = torch.where(torch.isneginf(self.root(values)), 0.0, flow)
        found: Parameters | None = None
        if gradient:  # all sum weights are overwritten, the others are added to
            weights = tuple(empty(w.shape, w) for w in parameters.weights)
            others = (parameters.mixtures, (), parameters.correlations if evidence is not None else ())
            found = Parameters(weights, *(tuple(torch.zeros_like(t) for t in part) for part in others))
        flows = Flows(values.rows, found)
        if evidence is not None and to_data:
            flows.values = torch.zeros_like(evidence.values)
        smallest = least_flow(flow)
        steps, most = self.steps(parameters.like, len(flow))
        scratch = [empty((most * len(flow),), parameters.like) for _ in range(2)]
        for ready in reversed(steps):
            match ready.step:
                case InputStep() as step:
                    if evidence is not None:
                        self._input_down(ready, step, flows, evidence, parameters)
                case SumStep(block=block):
                    to_weights = found.weights[block] if found else None
                    self._sum_down(ready, values, parameters.weights[block], to_weights, scratch, smallest)
                case MixStep(block=block):
                    to_mixture = found.mixtures[block] if found else None
                    self._mix_down(ready, values, parameters.mixtures[block], to_mixture, scratch[0])
        if found is not None:
            flows.gradient = replace(found, inputs=tuple(flows.inputs[i] for i in sorted(flows.inputs)))
        return flows

    def log_prob(self, evidence: Evidence, parameters: Parameters) -> Tensor:
        """Return the log-value of the root for every data point ``(batch,)``, with a gradient if one is required."""
        if isinstance(evidence, Points) and torch.is_grad_enabled():
            tensors = (evidence.values, *parameters.tensors, *self._learnable)
            if any(tensor.requires_grad for tensor in tensors):
                # For autograd this is one operation; it does not record the steps.
                found: Tensor = _LogProb.apply(self, evidence, parameters, *tensors)  # type: ignore[no-untyped-call]
                return found
        with torch.no_grad():
            values = [self.root(self.up(part, parameters)) for _, part in self.parts(evidence)]
            return torch.cat(values).to(parameters.like.dtype)

    def flows(self, evidence: Evidence, parameters: Parameters) -> Iterator[tuple[slice, Tensor, Flows]]:
        """Yield for each part of the batch its log-values and the flows, with a flow of one into the root."""
        parameters = parameters.detach()
        for where, part in self.parts(evidence):
            values = self.up(part, parameters, keep=True)
            value = self.root(values)
            ones = torch.ones(part.batch, dtype=parameters.like.dtype, device=parameters.like.device)
            yield where, value, self.down(values, parameters, ones)

    def input_flows(self, number: int, rows: Sequence[Tensor]) -> Tensor:
        """Return the flows ``(inputs, states, batch)`` into an input step, from those of all rows."""
        step, pool = self.inputs[number], rows[self.inputs[number].pool]
        span = span_of(step.rows)
        if span is not None:
            flow = pool[span[0] : span[1]]
        elif (step.rows == step.rows[0]).all():
            flow = pool[int(step.rows[0])].expand(len(step.rows), -1, -1)
        else:
            flow = pool.index_select(0, torch.as_tensor(step.rows, device=pool.device))
        if step.axes is None:
            return flow
        return gather_back(flow, step.axes, self.shape(step.kinds), self.shapes[step.pool])

    def block(self, step: InputStep, parameters: Parameters) -> Block:
        """Return the joint distribution of correlated inputs."""
        assert step.correlation is not None
        assert isinstance(step.family, Gaussian)
        params = parameters.inputs[step.params].expand(len(step.columns), -1, -1)  # they may share parameters
        return Block(step.family, params, parameters.correlations[step.correlation])

    def _observed(
        self, step: InputStep, columns: Tensor, evidence: Points, rows: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return the values of inputs ``(inputs, batch)`` and their flows, zero where a value is missing."""
        x, missing = evidence.columns(step.family, columns)
        flow = self.input_flows(step.params, rows)
        return x, flow if missing is None else flow.masked_fill(missing.unsqueeze(1), 0.0)

    def statistics(self, evidence: Points, parameters: Parameters, rows: Sequence[Tensor]) -> list[Tensor]:
        """Return the statistics for EM of each input step, weighted by the flows of the rows."""
        found = []
        for step in self.inputs:
            columns = torch.as_tensor(step.columns, device=parameters.like.device)
            if step.correlation is not None:
                flow = self.input_flows(step.params, rows)[0]
                found.append(self.block(step, parameters).statistics(evidence.values[columns], flow))
            else:
                x, flow = self._observed(step, columns, evidence, rows)
                found.append(evaluation.statistics(step.family, parameters.inputs[step.params], x, flow))
        return found

    def send(
        self,
        targets: Iterable[Target],
        shape: tuple[int, ...],
        results: Tensor,
        scales: Tensor | None,
        values: Values,
    ) -> None:
        """Add log-results to the rows that use them, and their scales, if any, to those of the rows."""
        for target in targets:
            chosen = results if target.sources is None else results[target.sources]
            pool = values.rows[target.pool]
            if target.axes is None:
                if target.begun is not None:
                    pool.index_fill_(0, target.begun, 0.0)
                pool.index_add_(0, target.rows, chosen)
            else:
                into = self.shapes[target.pool]
                viewed = pool.unflatten(1, into or (1,))
                wide = spread(chosen, target.axes, shape, into).reshape(-1, *viewed.shape[1:])
                viewed.index_add_(0, target.rows, wide)
            if scales is not None:
                sent = scales if target.sources is None else scales[target.sources]
                values.scales[target.pool].index_add_(0, target.rows, sent)

    def mixed(self, ready: Ready, values: Values, scratch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return copies of the parts of mixtures ``(fold, arity, states, batch)``, and their scales."""
        rows, scales = values.rows[ready.step.pool], values.scales[ready.step.pool]
        shape = (*ready.index.shape, *rows.shape[1:])
        out = rows.new_empty(shape) if scratch is None else scratch[: math.prod(shape)].view(shape)
        torch.index_select(rows, 0, ready.index.flatten(), out=out.flatten(0, 1))
        return out, scales[ready.index]

    def input_up(self, ready: Ready, values: Values, evidence: Evidence, parameters: Parameters) -> None:
        """Add the log-probabilities of inputs to their rows."""
        step, pool = ready.step, values.rows[ready.step.pool]
        assert isinstance(step, InputStep)
        params = parameters.inputs[step.params]
        if step.correlation is not None:
            found = evidence.joint(self.block(step, parameters), ready.columns)
            if step.axes is not None:
                found = spread(found.unsqueeze(0), step.axes, self.shape(step.kinds), self.shapes[step.pool])
            row = pool[int(step.rows[0])]
            row += found.reshape(row.shape)
            return
        if step.parents:
            params = evaluation.with_parents(params, step.parents, evidence.points.values)
        if ready.stars and type(evidence) is Points and (stars := self._stars(ready, evidence, params)) is not None:
            add = pool.index_copy_ if step.fresh else pool.index_add_
            for (_, rows), star in zip(ready.stars, stars, strict=True):
                add(0, rows, star.log_prob())
            return
        if step.fresh and ready.span:
            evidence.write(step.family, params, ready.columns, pool[ready.span[0] : ready.span[1]])
            return
        if step.fresh:
            pool.index_fill_(0, ready.index, 0.0)
        states, batch = params.shape[1], pool.shape[-1]
        for part in evaluation.pieces(len(step.rows), states * batch, _INPUT_ELEMENTS):
            found = empty((part.stop - part.start, states, batch), pool)
            evidence.write(step.family, evaluation.fold(params, part), ready.columns[part], found)
            if step.axes is not None:
                wide = spread(found, step.axes, self.shape(step.kinds), self.shapes[step.pool])
                found = wide.reshape(len(found), *pool.shape[1:])
            pool.index_add_(0, ready.index[part], found)

    def _input_down(
        self, ready: Ready, step: InputStep, flows: Flows, evidence: Points, parameters: Parameters
    ) -> None:
        assert flows.gradient is not None
        params = parameters.inputs[step.params]
        if step.correlation is not None:
            block = self.block(step, parameters)
            flow = self.input_flows(step.params, flows.rows)[0]
            values = evidence.values[ready.columns]
            found, matrix = block.gradients(values, flow)
            flows.inputs[step.params] = found.sum_to_size(params.shape)
            flows.gradient.correlations[step.correlation].copy_(matrix)
            if flows.values is not None:
                to_x = block.value_gradient(values, flow)
        elif ready.stars and (stars := self._stars(ready, evidence, params)) is not None:
            total = flows.inputs[step.params] = torch.zeros_like(params)
            to_x = torch.empty(len(step.rows), evidence.batch, dtype=params.dtype, device=params.device)
            for (members, rows), star in zip(ready.stars, stars, strict=True):
                flow = flows.rows[step.pool].index_select(0, rows)
                found = star.gradient(flow).flatten(0, 1)
                own = members if len(params) > 1 else torch.zeros_like(members)
                total.index_add_(0, own.flatten(), found)
                if flows.values is not None:
                    to_x[members.flatten()] = star.value_gradient(flow).flatten(0, 1).to(to_x.dtype)
        elif step.parents:
            to_x = self._conditioned_down(ready, step, flows, evidence, params)
        else:
            x, flow = self._observed(step, ready.columns, evidence, flows.rows)
            flows.inputs[step.params] = evaluation.gradient(step.family, params, x, flow)
            flows.families[step.params] = evaluation.learnable_gradient(step.family, params, x, flow)
            if flows.values is not None:
                to_x = evaluation.value_gradient(step.family, params, x, flow)
        if flows.values is not None:
            flows.values.index_add_(0, ready.columns, to_x)

    def _conditioned_down(
        self, ready: Ready, step: InputStep, flows: Flows, evidence: Points, params: Tensor
    ) -> Tensor:
        """Compute the derivatives of inputs with observed parents, with each data point as a variable of its own.

        Returns:
            The derivative with respect to the values of the inputs, ``(inputs, batch)``. The derivative with respect to
            the values of the parents is added to the flows.
        """
        x, flow = self._observed(step, ready.columns, evidence, flows.rows)
        wide = evaluation.with_parents(params, step.parents, evidence.values.detach())
        alone, value = wide.transpose(1, 2).flatten(0, 1), x.reshape(-1, 1)  # (fold * batch, states, P)
        own = flow.mT.reshape(len(alone), -1, 1)
        flows.inputs[step.params] = torch.zeros_like(params)  # the points of latents are not learned
        flows.families[step.params] = evaluation.learnable_gradient(step.family, alone, value, own)
        if flows.values is not None:
            to_parents = evaluation.gradient(step.family, alone, value, own).view(*x.shape, *params.shape[1:])
            for place, column in step.parents:
                flows.values[column] += to_parents[..., place].sum((0, 2))
        return evaluation.value_gradient(step.family, alone, value, own).view_as(x)

    def _stars(self, ready: Ready, evidence: Points, params: Tensor) -> list[evaluation.Star] | None:
        """Return the inputs that share rows in natural form, or None if they have none."""
        step, stars = ready.step, []
        assert isinstance(step, InputStep)
        x, missing = evidence.columns(step.family, ready.columns)
        every = params.expand(len(x), -1, -1)
        for members, _ in ready.stars:
            whole = members.numel() == len(x)  # in order, so a view suffices
            own, values = (t.view(*members.shape, *t.shape[1:]) if whole else t[members] for t in (every, x))
            star = evaluation.Star(step.family, own, values, None if missing is None else missing[members])
            if not star.usable:
                return None
            stars.append(star)
        return stars

    def sum_up(self, ready: Ready, values: Values, weights: Tensor, scratch: Tensor) -> None:
        """Scale rows, contract them with the weights, and add the log-results to the rows that use them."""
        step, (g, o, z, r) = ready.step, ready.dims
        assert isinstance(step, SumStep)
        fold, edges = step.stop - step.start, step.edges
        rows, scales = values.rows[step.pool][step.start : step.stop], values.scales[step.pool][step.start : step.stop]
        batch = rows.shape[-1]
        cells = rows.view(fold * g, z, r * batch)
        shift = scale_rows(cells, scales.unsqueeze(1) if self._simple else None, values.native)
        logs = scratch[: ready.results * batch].view(fold * g, edges * o, r * batch)
        sums = logs
        if values.sums is not None:
            sums = values.sums[ready.offset * batch : (ready.offset + ready.results) * batch].view_as(logs)
        torch.bmm(weights[ready.weights].reshape(ready.matrices), cells, out=sums)
        if ready.whole and (native := values.native):
            for target in ready.targets:
                native.add_logs(values.rows[target.pool], target.rows, target.sources, sums, target.fresh)
                if not self._simple:
                    native.add_scales(values.scales[target.pool], target.rows, target.sources, scales, shift, edges)
            return
        torch.log(sums, out=logs)
        results = logs.view(fold * edges, g * o * r, batch)
        if self._simple:
            self.send(ready.targets, ready.shape, results, None, values)
            return
        if g == r == 1:
            scales = scales + shift.view(fold, batch)
        else:
            logs += shift  # it differs between the states of a row
            scales = scales.clone()  # because rows of the same pool are written
        if edges > 1:
            scales = scales.repeat_interleave(edges, 0)
        self.send(ready.targets, ready.shape, results, scales, values)

    def _sum_down(
        self,
        ready: Ready,
        values: Values,
        weights: Tensor,
        gradient: Tensor | None,
        scratch: Sequence[Tensor],
        smallest: float,
    ) -> None:
        step, (g, o, z, r) = ready.step, ready.dims
        assert isinstance(step, SumStep)
        assert values.sums is not None
        fold, edges = step.stop - step.start, step.edges
        rows = values.rows[step.pool][step.start : step.stop]
        batch = rows.shape[-1]
        sums = values.sums[ready.offset * batch : (ready.offset + ready.results) * batch]
        flow = scratch[0][: len(sums)].view(fold * edges, g * o * r, batch)
        native = values.native if ready.whole else None
        if native and len(ready.targets) == 1 and ready.targets[0].sources is None:
            (target,) = ready.targets
            native.collect_quotients(flow, values.rows[target.pool], target.rows, sums)
        else:
            self._collect(ready.targets, ready.shape, values.rows, flow)
            flow.view(-1).div_(sums.clamp_(min=torch.finfo(sums.dtype).tiny))
        contract_down(
            weights[ready.weights].reshape(ready.matrices),
            rows.view(fold * g, z, r * batch),
            flow.view(fold * g, edges * o, r * batch),
            scratch[1][: rows.numel()].view(fold * g, z, r * batch),
            None if gradient is None else gradient[ready.weights].view(ready.matrices),
            smallest,
            values.native,
        )

    def _mix_up(self, ready: Ready, values: Values, weights: Tensor, scratch: Tensor) -> None:
        step = ready.step
        assert isinstance(step, MixStep)
        weights = weights[step.first : step.first + len(ready.index)]
        out, out_scales = (pools[step.pool][step.start : step.stop] for pools in (values.rows, values.scales))
        if ready.index.shape[1] <= MOST_PARTS and (native := kernels_for(out, weights)):
            rows, scales = values.rows[step.pool], values.scales[step.pool]
            native.mix_up(out, out_scales, rows, scales, ready.index, weights)
        else:
            parts, scales = self.mixed(ready, values, scratch)
            out_scales.copy_(mix_up(parts, scales, weights, out))
        if ready.targets:  # copies, because rows of the same pool are overwritten
            self.send(ready.targets, ready.shape, out.clone(), out_scales.clone(), values)

    def _mix_down(
        self, ready: Ready, values: Values, weights: Tensor, gradient: Tensor | None, scratch: Tensor
    ) -> None:
        step = ready.step
        assert isinstance(step, MixStep)
        parts, scales = self.mixed(ready, values, scratch)
        own = slice(step.first, step.first + len(parts))
        found = None if gradient is None else gradient[own]
        rows = values.rows[step.pool][step.start : step.stop]
        if ready.targets:
            incoming = torch.empty_like(rows)  # a copy, because rows of the same pool are read
            self._collect(ready.targets, ready.shape, values.rows, incoming)
            rows.copy_(incoming)
        flows = mix_down(parts, scales, weights[own], rows, found)
        values.rows[step.pool].index_copy_(0, ready.index.flatten(), flows.flatten(0, 1))

    def _collect(self, targets: Sequence[Target], shape: tuple[int, ...], rows: Sequence[Tensor], out: Tensor) -> None:
        """Reverse ``send``: the flow of a result is the sum of the flows of the rows that use it."""
        for number, target in enumerate(targets):
            if target.axes is None and number == 0 and target.sources is None:
                torch.index_select(rows[target.pool], 0, target.rows, out=out)
                continue
            if number == 0:
                out.zero_()
            flows = rows[target.pool].index_select(0, target.rows)
            if target.axes is not None:
                flows = gather_back(flows, target.axes, shape, self.shapes[target.pool])
            if target.sources is None:
                out += flows
            else:
                out.index_add_(0, target.sources, flows)


class _LogProb(torch.autograd.Function):
    """The log-value of the root: ``up`` is its forward pass and ``down`` its backward pass."""

    @staticmethod
    def forward(
        ctx: Any, compiled: CompiledCircuit, points: Points, parameters: Parameters, *tensors: Tensor
    ) -> Tensor:
        ctx.compiled, ctx.missing, ctx.counts = compiled, points.missing, parameters.counts
        ctx.save_for_backward(*tensors)
        parts = list(compiled.parts(points))
        found, ctx.values = [], None
        for _, part in parts:
            # The values of several parts would not fit into memory, so backward computes them again.
            values = compiled.up(part, parameters, keep=len(parts) == 1)
            ctx.values = values if len(parts) == 1 else None
            found.append(compiled.root(values))
        return torch.cat(found).to(parameters.like.dtype)

    @staticmethod
    @first_order
    def backward(ctx: Any, *flow: Tensor) -> tuple[Tensor | None, ...]:
        compiled, (x, *tensors) = ctx.compiled, ctx.saved_tensors
        parameters = Parameters.of(tensors, ctx.counts)
        values, ctx.values = ctx.values, None
        to_data = ctx.needs_input_grad[3]
        to_x: list[Tensor] = []
        totals: list[Tensor] = []
        for where, part in compiled.parts(Points(x, ctx.missing)):
            # A second call of backward has to compute the values again, too.
            values = values or compiled.up(part, parameters, keep=True)
            flows = compiled.down(values, parameters, flow[0][where].contiguous(), True, part, to_data)
            values = None
            found = [*flows.gradient.tensors, *(t for i in sorted(flows.families) for t in flows.families[i])]
            totals = [a.add_(b) for a, b in zip(totals, found, strict=True)] if totals else found
            to_x.append(flows.values)
        return (None, None, None, torch.cat(to_x, 1) if to_data else None, *totals)
