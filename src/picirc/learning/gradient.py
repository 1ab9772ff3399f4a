# SPDX-License-Identifier: Apache-2.0
"""Training by gradient: ``fit``."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from picirc.checks import check_integer
from picirc.circuit import Circuit
from picirc.errors import ArgumentError
from picirc.learning.batches import Batches, as_batches, as_rows
from picirc.learning.history import Callback, History
from picirc.learning.loop import (
    Cosine,
    Loop,
    Settings,
    begin_training,
    check_finite,
    identity_of,
    mean_log_prob,
    without,
)
from picirc.learning.processes import Processes
from picirc.model import AnyRule, CircuitModel, Model
from picirc.qpc.distribution import QPC
from picirc.quadrature import RandomRule, Rule, Rules, VectorRule

_NEGLIGIBLE = 1e-4  # a slice skips the rows whose posterior probability of it is smaller

AnyModel = TypeVar("AnyModel", bound=Model | Circuit)


def fit(
    model: AnyModel,
    train: Any,
    valid: Any = None,
    *,
    rule: AnyRule | None = None,
    coarse: float = 0.0,
    batch_size: int = 128,
    steps: int = 5000,
    schedule: Cosine | None = None,
    optimizer: str = "adamw",
    betas: tuple[float, float] = (0.9, 0.95),
    weight_decay: float | None = None,
    clip: float | None = None,
    accumulate: int = 1,
    autocast: torch.dtype | None = None,
    target: int | None = None,
    emphasis: float = 1.0,
    validate_every: int = 250,
    patience: int | None = 1250,
    seed: int = 0,
    out: str | Path | None = None,
    checkpoint_every: int = 1000,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
) -> tuple[AnyModel, History]:
    """Maximise the likelihood by gradient ascent.

    Each step integrates a PIC anew. A random rule (``pc.shifted``) also draws new points, so that the nets learn the
    integral instead of one grid. Validation uses twice as many points, or as many if they settle.

    Args:
        model: A PIC, an HCLT, any other model, or a circuit whose functions are modules. It is not changed. A PIC
            or HCLT without training starts from input distributions that fit the columns of the data.
        train: ``(rows, variables)``: a tensor, an array, a memory-mapped file, or a loader of batches. NaN is missing.
        valid: Data of the same form for early stopping. Without it the training likelihood decides.
        rule: The quadrature rule of a PIC. By default ``pc.shifted(32, settle=True)``, and the model is then best with
            ``pc.midpoint(32)``; for vectors 1,024 shifted Sobol points.
        coarse: The fraction of the steps, at the beginning, that use half as many points of a random rule. Such a step
            takes a quarter of the time, so with 64 points or more ``coarse=0.7`` reaches the same quality sooner.
        batch_size: Rows per batch.
        steps: The largest number of steps.
        schedule: The step sizes. The default starts at ``model.step_size`` and falls to a hundredth of it along one
            cosine, after a warm-up of 5 % of the steps.
        optimizer: ``"adam"`` or ``"adamw"``.
        betas: The decay rates of the optimizer's averages of gradients and squared gradients.
        weight_decay: The optimizer's weight decay. The default is the model's own; for a PIC it is 8,000 divided by the
            number of rows, at most 5. It pulls towards independent columns, which small data sets need.
        clip: The largest norm of a gradient; None for no limit.
        accumulate: The number of parts that each batch is split into to save memory.
        autocast: The type of the nets' matrix products, such as ``torch.bfloat16``; None for full precision.
        target: The number of a column y to predict from the others. ``emphasis · log p(y | others)`` is added to the
            objective, and validation measures ``log p(y | others)`` alone.
        emphasis: The weight of that term.
        validate_every: Steps between validations.
        patience: After this many steps without improvement, training anneals for as many steps from the best
            parameters, and stops; None for never.
        seed: Determines the order of the data and the random points.
        out: The folder for checkpoints.
        checkpoint_every: Steps between checkpoints.
        resume: Continue from the checkpoint in ``out``, with bitwise the same result as an uninterrupted training. The
            settings must be the same, and a loader must start from the same seed.
        callbacks: Called with every record; one that raises ``StopIteration`` ends the training.

    Returns:
        A copy of the model with the parameters that were best on validation, and the history. Ctrl-C ends training
        after the current step and returns the best parameters so far.
    """
    own = _as_model(model)
    chosen = own.training_rule(rule)
    check_integer("accumulate", accumulate)
    if not 0 <= coarse < 1:
        raise ArgumentError("coarse", "a fraction from 0 to below 1", coarse)
    if coarse and not any(
        isinstance(one, RandomRule) for one in (chosen.rules if isinstance(chosen, Rules) else [chosen])
    ):
        raise ArgumentError("coarse", "0 without a random rule", coarse, "use rule=pc.shifted(64)")
    if clip is not None and not clip > 0:
        raise ArgumentError("clip", "a positive number, or None", clip)
    variables = len(own.families)
    if target is not None and check_integer("target", target, 0) >= variables:
        raise ArgumentError("target", f"the number of one of {variables} columns, from 0", target)
    size = own.step_size
    schedule = schedule or Cosine(size, size / 100, period=None, warmup=min(steps // 2, max(20, min(100, steps // 20))))
    batches = as_batches(train, variables, batch_size, seed)
    table = None if valid is None else as_rows("valid", valid, variables)
    if weight_decay is None:
        weight_decay = 0.0 if batches.rows is None else own.weight_decay(batches.rows)
    processes = Processes.current()
    solver = _optimizer(optimizer, own, betas, weight_decay)
    begin_training(own, batches.some(), seed)
    processes.share(own)
    judged = _validation_rule(chosen)

    def validate() -> float | None:
        if table is None:
            return None
        with torch.no_grad():
            circuit = own(judged)
            joint = mean_log_prob(circuit, table)
            return joint if target is None else joint - mean_log_prob(circuit, table, target)

    settings = Settings(steps, validate_every, patience, out, checkpoint_every, resume, callbacks, processes.first)
    identity: dict[str, Any] = {
        "model": identity_of(own),
        "rule": repr(chosen),
        "schedule": repr(schedule),
        "autocast": str(autocast),
    }
    identity |= {"batch_size": batch_size, "steps": steps, "optimizer": optimizer, "betas": list(betas), "seed": seed}
    identity |= {"coarse": coarse} if coarse else {}
    identity |= {} if target is None else {"target": target, "emphasis": emphasis}
    identity |= {"weight_decay": weight_decay, "clip": clip, "accumulate": accumulate, "validate_every": validate_every}
    loop = Loop(settings, own, solver, variables, identity)
    step = _Step(
        own, chosen, solver, batches, processes, clip, accumulate, autocast, seed, target, emphasis, steps // 4,
        round(coarse * steps), schedule.high,
    )  # fmt: skip
    history = loop.run(step, validate, lambda number: schedule(number, steps))
    own.end_training()
    result: Any = own.circuit if isinstance(own, CircuitModel) else own
    return result, history


def _as_model(model: object) -> Model:
    """A copy of a model, or a model around a copy of a circuit."""
    if isinstance(model, Circuit):
        return CircuitModel(copy.deepcopy(model))
    if not isinstance(model, Model):
        raise ArgumentError("model", "a model, such as a PIC, or a circuit", type(model).__name__)
    return copy.deepcopy(model)


@dataclass(frozen=True)
class _Step:
    """One step of gradient ascent, computed jointly by the processes that train together."""

    model: Model
    rule: AnyRule | None
    solver: torch.optim.Optimizer
    batches: Batches
    processes: Processes
    clip: float | None
    accumulate: int
    autocast: torch.dtype | None
    seed: int
    target: int | None = None
    emphasis: float = 1.0
    labelled: int = 0  # for this many steps the model decides which slice learns which row
    coarse: int = 0  # so many steps have half the points
    high: float = 1.0  # the largest step size; points that settle come to rest as steps fall from half of it to zero

    def __call__(self, number: int, size: float) -> float:
        """Take a step and return the mean log-likelihood of its batch."""
        for group in self.solver.param_groups:
            group["lr"] = size * group["speed"]
        self.solver.zero_grad(set_to_none=True)
        own, count = self.batches.part(number, self.processes)
        total = 0.0
        spread = min(1.0, 2 * size / self.high)
        rule = _drawn(self.rule if number >= self.coarse else _coarser(self.rule), self.seed, number, spread)
        slices = self.model.slices(rule)
        for part in own.chunk(self.accumulate) if len(own) else ():  # a small batch leaves some processes without rows
            total += self._backward(slices, part, count, number)
        self.processes.sum_gradients(self.model)
        total = self.processes.sum(total)
        check_finite(total, partial(self.model, rule), number)  # after the sum: either all processes raise or none
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.solver.step()
        return total

    def _backward(self, slices: Sequence[Callable[[], QPC]], part: Tensor, count: int, number: int) -> float:
        """Add the gradient of some rows, and return the sum of their log-likelihoods divided by ``count``.

        The gradient of ``log Σ wₛ pₛ(x)`` is the sum of the gradients of ``log pₛ(x)``, weighted by the posterior of s.
        This takes a second upward pass, but only one slice occupies memory at a time, and a slice skips the rows that
        it hardly contributes to. While rows have labels, the likelihood is the joint one of rows and labels.
        """
        if self.target is not None:
            return self._backward_for(self.target, slices, part, count)
        if len(slices) == 1:
            return self._ascend(self._log_prob(slices[0], part).sum() / count)
        labels = self.model.start_labels(part) if number < self.labelled else None
        if labels is None:
            with torch.no_grad():
                logs = self._joint(slices, part)
            shares = logs.softmax(0)
        else:
            shares = nn.functional.one_hot(labels, len(slices)).T.to(torch.get_default_dtype())
        total = self._ascend((shares.sum(1) * self.model.log_shares()).sum() / count)
        for make, share in zip(slices, shares, strict=True):
            rows = share > _NEGLIGIBLE
            if bool(rows.any()):
                total += self._ascend((share[rows] * self._log_prob(make, part[rows])).sum() / count)
        return total if labels is not None else float(logs.logsumexp(0).sum()) / count

    def _backward_for(self, target: int, slices: Sequence[Callable[[], QPC]], part: Tensor, count: int) -> float:
        """The same for the objective with a target column."""
        logs = self._joint(slices, torch.cat((part, without(part, target))))
        joint, others = (half.sum() for half in logs.logsumexp(0).chunk(2))
        return self._ascend((joint + self.emphasis * (joint - others)) / count)

    def _joint(self, slices: Sequence[Callable[[], QPC]], part: Tensor) -> Tensor:
        """The joint log-probabilities of slices and rows, ``(slices, rows)``."""
        return torch.stack([self._log_prob(make, part) for make in slices]) + self.model.log_shares().unsqueeze(1)

    def _ascend(self, value: Tensor) -> float:
        """Add the gradient of a value."""
        if value.requires_grad:  # weights that are given have none
            (-value).backward()
        return float(value.detach())

    def _log_prob(self, make: Callable[[], QPC], part: Tensor) -> Tensor:
        with torch.autocast(part.device.type, dtype=self.autocast, enabled=self.autocast is not None):
            qpc = make()
        return qpc.log_prob(part)


def _drawn(rule: AnyRule | None, seed: int, step: int, spread: float) -> AnyRule | None:
    """The rule of a step. A random one depends on seed and step only, so that resumed trainings draw the same."""
    source = np.random.default_rng([seed, step, 1])
    return _each(rule, lambda one: one.random(source, spread if one.settle else 1.0))


def _validation_rule(rule: AnyRule | None) -> AnyRule | None:
    """The rule as it is used after training: with more points if it is random and they do not settle."""
    return _each(rule, lambda one: (one if one.settle else one.resize(2 * len(one))).rule)


def _coarser(rule: AnyRule | None) -> AnyRule | None:
    """The rule with half the points in its random parts."""
    return _each(rule, lambda one: one.resize(max(1, len(one) // 2)))


def _each(rule: AnyRule | None, change: Callable[[RandomRule], Rule | VectorRule | RandomRule]) -> AnyRule | None:
    """The rule with its random parts changed."""
    if isinstance(rule, Rules):
        return rule.map(lambda one: _each(one, change))
    return change(rule) if isinstance(rule, RandomRule) else rule


def _optimizer(name: str, model: Model, betas: tuple[float, float], weight_decay: float) -> torch.optim.Optimizer:
    kinds: dict[str, type[torch.optim.Adam | torch.optim.AdamW]] = {
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
    }
    if name not in kinds:
        raise ArgumentError("optimizer", '"adam" or "adamw"', name)
    if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
        raise ArgumentError("betas", "two numbers from 0 to below 1", betas)
    groups = [
        {"params": group.parameters, "weight_decay": weight_decay if group.decay else 0.0, "speed": group.speed}
        for group in model.parameter_groups()
        if group.parameters
    ]
    # A fused update is one pass over memory instead of ten, which saves a quarter of a step with many parameters.
    return kinds[name](groups, lr=1e-2, betas=betas, fused=True)
