# SPDX-License-Identifier: Apache-2.0
"""Training by gradient: ``fit``."""

from __future__ import annotations

import copy
import math
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

_NEGLIGIBLE = 1e-4  # a share of a row that does not count for the gradient of a slice

AnyModel = TypeVar("AnyModel", bound=Model | Circuit)


def fit(
    model: AnyModel,
    train: Any,
    valid: Any = None,
    *,
    rule: AnyRule | None = None,
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
    """Maximise the likelihood by gradient.

    A PIC is integrated anew at every step. With a random rule (``pc.shifted``, the default) the points are drawn anew
    too, so that the nets learn the integral and not one grid; validation uses twice the points of the rule.

    Args:
        model: A PIC, an HCLT or another model, or a circuit whose functions are modules; it is not changed. A PIC or
            HCLT that was never trained begins with input distributions that fit the columns of the data.
        train: ``(rows, variables)``: a tensor, an array, a memory-mapped file; or a loader of batches. NaN is missing.
        valid: The same kind of table, for stopping early; without it the training likelihood decides.
        rule: The quadrature rule of a PIC; by default ``pc.shifted(32)``, for vectors 1,024 shifted Sobol points.
        batch_size: Rows of a batch.
        steps: The largest number of steps.
        schedule: The step sizes; by default the model's own (``model.step_size``) and down to a hundredth of it by
            cosine, once over all steps, after a warm-up of 5 % of them.
        optimizer: ``"adam"`` or ``"adamw"``.
        betas: How much of the averages of gradients and of their squares the optimizer keeps at each step.
        weight_decay: Of the optimizer; by default the model's own, which for a PIC is 8,000 divided by the rows of the
            data, and at most 5: it pulls towards independent columns, and small data need that.
        clip: The largest norm of a gradient; None for no limit.
        accumulate: Parts that each batch is processed in, one after the other, to save memory.
        autocast: The type of the matrix products of the nets, such as ``torch.bfloat16``; None for full precision.
        target: The number of a column y to predict from the others: ``log p(y | others)``, times ``emphasis``, is added
            to the likelihood, and it alone is what validation judges.
        emphasis: The weight of that.
        validate_every: Steps between validations.
        patience: Steps without improvement after which training stops; None for never.
        seed: Decides the order of the data and the random points.
        out: The folder for checkpoints.
        checkpoint_every: Steps between checkpoints.
        resume: Continue from the checkpoint in ``out``, bit for bit as if training had never stopped; with the same
            settings, and from a loader that begins with the same seed.
        callbacks: Called with every record; one that raises ``StopIteration`` ends the training.

    Returns:
        A copy of the model with the parameters that were best on validation, and the history. Ctrl-C ends the training
        after the step in hand and returns the best so far.
    """
    own = _as_model(model)
    chosen = own.training_rule(rule)
    check_integer("accumulate", accumulate)
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

    folder = None if out is None else Path(out)
    settings = Settings(
        steps, validate_every, patience, folder, checkpoint_every, resume, callbacks, writes=processes.first
    )
    identity: dict[str, Any] = {
        "model": identity_of(own),
        "rule": repr(chosen),
        "schedule": repr(schedule),
        "autocast": str(autocast),
    }
    identity |= {"batch_size": batch_size, "steps": steps, "optimizer": optimizer, "betas": list(betas), "seed": seed}
    identity |= {} if target is None else {"target": target, "emphasis": emphasis}
    identity |= {"weight_decay": weight_decay, "clip": clip, "accumulate": accumulate, "validate_every": validate_every}
    loop = Loop(settings, own, solver, variables, identity)
    step = _Step(
        own, chosen, solver, batches, processes, clip, accumulate, autocast, seed, target, emphasis, steps // 4
    )
    history = loop.run(step, validate, lambda number: schedule(number, steps))
    own.end_training()
    result: Any = own.circuit if isinstance(own, CircuitModel) else own
    return result, history


def _as_model(model: object) -> Model:
    """A copy of a model to train, or a model of a copy of a circuit."""
    if isinstance(model, Circuit):
        return CircuitModel(copy.deepcopy(model))
    if not isinstance(model, Model):
        raise ArgumentError("model", "a model, such as a PIC, or a circuit", type(model).__name__)
    return copy.deepcopy(model)


@dataclass(frozen=True)
class _Step:
    """One step of gradient descent, shared by the processes that train together."""

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
    labelled: int = 0  # the number of steps in which the model says which slice learns which row

    def __call__(self, number: int, size: float) -> float:
        """Take a step, and return the mean log-likelihood of its batch."""
        for group in self.solver.param_groups:
            group["lr"] = size * group["speed"]
        self.solver.zero_grad(set_to_none=True)
        own, count = self.batches.part(number, self.processes)
        total = 0.0
        rule = _drawn(self.rule, self.seed, number)
        slices = self.model.slices(rule)
        for part in own.chunk(self.accumulate) if len(own) else ():  # a small batch has none for some processes
            total += self._backward(slices, part, count, number)
        self.processes.sum_gradients(self.model)
        total = self.processes.sum(total)
        check_finite(total, partial(self.model, rule), number)  # after the sum, so that all processes raise or none
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.solver.step()
        return total

    def _backward(
        self, slices: Sequence[tuple[float, Callable[[], QPC]]], part: Tensor, count: int, number: int
    ) -> float:
        """Add the gradient of some rows, and return the sum of their log-likelihoods divided by ``count``.

        The gradient of ``log Σ wₛ pₛ(x)`` is the sum of those of ``log pₛ(x)``, weighted with the posterior of s. That
        takes another pass up, but only one slice at a time needs memory, and only rows with a share in it. While rows
        have labels, the likelihood is that of rows and labels.
        """
        if self.target is not None:
            return self._backward_for(self.target, slices, part, count)
        if len(slices) == 1:
            value = self._log_prob(slices[0][1], part).sum() / count
            (-value).backward()
            return float(value.detach())
        labels = self.model.start_labels(part) if number < self.labelled else None
        if labels is None:
            with torch.no_grad():
                logs = torch.stack([self._log_prob(make, part) + math.log(weight) for weight, make in slices])
            shares = logs.softmax(0)
        else:
            shares = nn.functional.one_hot(labels, len(slices)).T.to(torch.get_default_dtype())
        total = 0.0
        for (weight, make), share in zip(slices, shares, strict=True):
            rows = share > _NEGLIGIBLE
            if bool(rows.any()):
                value = (share[rows] * self._log_prob(make, part[rows])).sum() / count
                (-value).backward()
                total += float(value.detach()) + float(share.sum()) * math.log(weight) / count
        return total if labels is not None else float(logs.logsumexp(0).sum()) / count

    def _backward_for(
        self, target: int, slices: Sequence[tuple[float, Callable[[], QPC]]], part: Tensor, count: int
    ) -> float:
        """The same with the log-likelihood of a column given the others beside that of the rows."""
        both = torch.cat((part, without(part, target)))
        logs = torch.stack([self._log_prob(make, both) + math.log(weight) for weight, make in slices])
        joint, others = (half.sum() for half in logs.logsumexp(0).chunk(2))
        value = (joint + self.emphasis * (joint - others)) / count
        (-value).backward()
        return float(value.detach())

    def _log_prob(self, make: Callable[[], QPC], part: Tensor) -> Tensor:
        with torch.autocast(part.device.type, dtype=self.autocast, enabled=self.autocast is not None):
            qpc = make()
        return qpc.log_prob(part)


def _drawn(rule: AnyRule | None, seed: int, step: int) -> AnyRule | None:
    """The rule of a step; a random one depends on seed and step only, so that it is the same after an interruption."""
    source = np.random.default_rng([seed, step, 1])
    return _each(rule, lambda one: one.random(source))


def _validation_rule(rule: AnyRule | None) -> AnyRule | None:
    """A fixed rule is judged on its own points, a random one where it will be used: on more of them."""
    return _each(rule, lambda one: one.resize(2 * len(one)).rule)


def _each(rule: AnyRule | None, change: Callable[[RandomRule], Rule | VectorRule]) -> AnyRule | None:
    """The rule, with what is random in it changed."""
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
    # Fused, an update is one pass over memory instead of ten; with many parameters that is a quarter of a step.
    return kinds[name](groups, lr=1e-2, betas=betas, fused=True)
