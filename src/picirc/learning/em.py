# SPDX-License-Identifier: Apache-2.0
"""Training by expectation-maximisation: ``fit_em``."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from picirc.engine.compiled import Parameters
from picirc.engine.evidence import Points
from picirc.engine.inputs import chunks
from picirc.errors import ArgumentError
from picirc.hclt import HCLT
from picirc.inputs import Family
from picirc.inputs.correlated import raw_correlation
from picirc.learning.batches import as_batches, as_rows
from picirc.learning.history import Callback, History
from picirc.learning.loop import Cosine, Loop, Settings, begin_training, check_finite, identity_of, mean_log_prob
from picirc.learning.processes import Processes
from picirc.model import Model
from picirc.native import kernels_for
from picirc.qpc.distribution import QPC
from picirc.structure.trees import LatentTree

# Elements of a table that are updated at a time, so that temporaries stay in the cache.
_PIECE = 2**16
_ALONE = Processes(0, 1)


def fit_em(
    model: Model,
    train: Any,
    valid: Any = None,
    *,
    batch_size: int | None = 256,
    steps: int = 5000,
    schedule: Cosine | None = None,
    smoothing: float = 0.01,
    validate_every: int = 250,
    patience: int | None = 1250,
    seed: int = 0,
    out: str | Path | None = None,
    checkpoint_every: int = 1000,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
) -> tuple[HCLT, History]:
    """Maximise the likelihood of a table circuit by expectation-maximisation.

    One upward and one downward pass give the expected number of uses of each sum weight and each input state. The new
    parameters are those counts, normalised. With mini-batches the parameters move towards them:
    ``θ ← (1 − η) θ + η θ_new``.

    Args:
        model: The model. It is not changed.
        train: ``(rows, variables)``: a tensor, an array, a memory-mapped file, or a loader of batches. NaN is missing.
        valid: Data of the same form for early stopping.
        batch_size: Rows per batch; None for all rows and full steps, which never lower the likelihood if ``smoothing``
            is zero.
        steps: The largest number of steps.
        schedule: The step sizes η for mini-batches, by default one cosine from 0.5 to 0.005.
        smoothing: Pseudo-observations added to each distribution; for correlated columns, to each column.
        validate_every: Steps between validations.
        patience: After this many steps without improvement, training anneals for as many steps from the best
            parameters, and stops; None for never.
        seed: Determines the order of the data.
        out: The folder for checkpoints.
        checkpoint_every: Steps between checkpoints.
        resume: Continue from the checkpoint in ``out``.
        callbacks: Called with every record; one that raises ``StopIteration`` ends the training.

    Returns:
        A copy of the model with the parameters that were best on validation, and the history.
    """
    if not isinstance(model, HCLT):
        remedy = "a PIC is trained with pc.fit"
        raise ArgumentError("model", "an HCLT, whose parameters are tables", type(model).__name__, remedy)
    if not smoothing >= 0:
        raise ArgumentError("smoothing", "a number that is not negative", smoothing)
    model = copy.deepcopy(model)
    variables = len(model.families)
    schedule = schedule or Cosine(0.5, 0.005, period=None)
    if schedule(0, steps) > 1:
        raise ArgumentError("schedule", "step sizes of at most 1, which is a full step", schedule)
    processes = Processes.current()
    if batch_size is None:
        train = as_rows("train", train, variables)
    batches = as_batches(train, variables, len(train) if batch_size is None else batch_size, seed)
    table = None if valid is None else as_rows("valid", valid, variables)
    begin_training(model, batches.some(), seed)
    processes.share(model)

    def rate(number: int) -> float:
        return 1.0 if batch_size is None else schedule(number, steps)

    def step(number: int, size: float) -> float:
        own, count = batches.part(number, processes)
        return em_step(model, own, size, smoothing, number, processes, count)

    def validate() -> float | None:
        return None if table is None else mean_log_prob(model(), table)

    settings = Settings(steps, validate_every, patience, out, checkpoint_every, resume, callbacks, processes.first)
    identity = {
        "model": identity_of(model),
        "batch_size": batch_size,
        "steps": steps,
        "schedule": repr(schedule),
        "smoothing": smoothing,
        "validate_every": validate_every,
        "seed": seed,
    }
    history = Loop(settings, model, None, variables, identity).run(step, validate, rate)
    model.end_training()
    return model, history


@torch.no_grad()
def em_step(
    model: HCLT,
    batch: Tensor,
    rate: float,
    smoothing: float = 0.0,
    number: int = 0,
    processes: Processes = _ALONE,
    count: int | None = None,
) -> float:
    """Move the parameters of a model towards their expected counts, and return the mean log-likelihood before.

    Args:
        model: The model, changed in place.
        batch: ``(batch, variables)``; NaN is missing.
        rate: The step size η.
        smoothing: Pseudo-observations added to each distribution.
        number: The number of the step, for messages.
        processes: The processes whose counts are added up.
        count: The number of rows of all processes, by default those of this one.
    """
    qpc = model()
    counts = _Counts(qpc)
    # A process without rows still takes part: with one empty row, whose counts become zero.
    total = float(counts.add(qpc._points(batch if len(batch) else batch.new_full((1, batch.shape[1]), math.nan))))
    for tensor in counts.all if not len(batch) else ():
        tensor.zero_()
    processes.add_up(counts.all)
    total = processes.sum(total if len(batch) else 0.0)
    check_finite(total, lambda: qpc, number)
    old = qpc.parameters
    rates = _rates(model, old, counts, rate, count or len(batch))
    for table, weights, used in zip(model.weights, old.weights, counts.weights, strict=True):
        _move(table, weights, used, rate, smoothing, -1)
    for table, weights, used in zip(model.mixtures, old.mixtures, counts.mixtures, strict=True):
        _move(table, weights, used, rate, smoothing, 1)
    for group, statistics in zip(model.plan.inputs, counts.inputs, strict=True):
        table, params = model.inputs[group.params], old.inputs[group.params]
        if group.correlation is None:
            _move_inputs(group.family, table, params, statistics, rates, smoothing)
        else:
            moved = qpc.compiled.block(group, old).from_statistics(statistics, smoothing, rates)
            table.copy_(group.family.unconstrain(moved.params))
            model.correlations[group.correlation].copy_(raw_correlation(moved.matrix))
    return total / (count or len(batch))


class _Counts:
    """Expected uses of all parameters, summed over rows."""

    def __init__(self, qpc: QPC) -> None:
        self._compiled, self._parameters = qpc.compiled, qpc.parameters.detach()
        self.weights: list[Tensor] = []
        self.mixtures: list[Tensor] = []
        self.inputs: list[Tensor] = []

    @property
    def all(self) -> list[Tensor]:
        """All counts."""
        return [*self.weights, *self.mixtures, *self.inputs]

    def add(self, points: Points) -> Tensor:
        """Count a batch and return the sum of its log-likelihoods."""
        total = torch.zeros((), dtype=torch.float64)
        parameters: Parameters = self._parameters
        for _, part in self._compiled.parts(points):
            assert isinstance(part, Points)
            values = self._compiled.up(part, parameters, keep=True)
            total = total + self._compiled.root(values).sum().cpu()
            ones = parameters.like.new_ones(part.batch)
            flows = self._compiled.down(values, parameters, ones, gradient=True)
            assert flows.gradient is not None
            self.weights = _total(self.weights, list(flows.gradient.weights))
            self.mixtures = _total(self.mixtures, list(flows.gradient.mixtures))
            self.inputs = _total(self.inputs, self._compiled.statistics(part, parameters, flows.rows))
        return total


def _total(sums: list[Tensor], found: list[Tensor]) -> list[Tensor]:
    """Add tensors to running sums in place; the first tensors become the sums."""
    return [one.add_(other) for one, other in zip(sums, found, strict=True)] if sums else found


def _move(table: Tensor, old: Tensor, used: Tensor, rate: float, smoothing: float, axis: int) -> None:
    """``(1 − η) old + η new`` with new weights proportional to their counts. Rows without counts keep the old ones."""
    if axis == -1 and (native := kernels_for(table, old, used)):
        native.move_logs(table, old, used, old.new_full((1,), rate), smoothing, flows=True)
        return
    tiny = torch.finfo(old.dtype).tiny
    for part in chunks(old, _PIECE):
        counts = (old[part] * used[part]).add_(smoothing / old.shape[axis])
        total = counts.sum(axis, keepdim=True)
        new = torch.where(total > tiny, counts.div_(total.clamp(min=tiny)), old[part])
        table[part] = torch.lerp(old[part], new, rate).clamp_(min=tiny).log_()


def _rates(model: HCLT, old: Parameters, counts: _Counts, rate: float, batch: int) -> float | Tensor:
    """The step size of the inputs; in a mixture one for each state, ``(1, states)``, as if statistics were averaged.

    A state with half its usual share of a batch takes about half a step.
    """
    if rate == 1 or not isinstance(model.structure, LatentTree) or model.structure.n_latents > 1:
        return rate
    usual, found = batch * old.weights[0].view(1, -1), (old.weights[0] * counts.weights[0]).view(1, -1)
    return rate * found / torch.lerp(usual, found, rate).clamp(min=torch.finfo(found.dtype).tiny)


def _move_inputs(
    family: Family, table: Tensor, old: Tensor, statistics: Tensor, rate: float | Tensor, smoothing: float
) -> None:
    """The same for the distributions of a group of inputs."""
    for part in chunks(old, _PIECE):
        family.move(table[part], old[part], statistics[part], smoothing, rate)
