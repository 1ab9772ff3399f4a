# SPDX-License-Identifier: Apache-2.0
"""The training loop that gradient descent and EM share: step sizes, validation, stopping early and checkpoints."""

from __future__ import annotations

import hashlib
import json
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from picirc.atomic import replacing
from picirc.checks import check_integer
from picirc.errors import ArgumentError
from picirc.interrupts import Interrupts
from picirc.learning.batches import as_rows, rows_of
from picirc.learning.history import Callback, History, bits_per_dimension
from picirc.model import Model
from picirc.qpc.distribution import QPC
from picirc.qpc.validation import as_batch, as_points

# Step sizes


@dataclass(frozen=True)
class Cosine:
    """``low + ½ (high − low) (1 + cos(π t / period))``, where ``t`` restarts at 0 after every period.

    During the warm-up the step size is multiplied by ``(step + 1) / warmup``.

    Args:
        high: The step size at the start of a period.
        low: The step size at its end.
        period: The number of steps between restarts; None for one period over the whole training.
        warmup: The number of steps of the initial warm-up.

    Example:
        >>> schedule = Cosine(1e-2, 1e-4, period=500)
        >>> round(schedule(0, 1000), 4), round(schedule(250, 1000), 5), round(schedule(500, 1000), 4)
        (0.01, 0.00505, 0.01)
    """

    high: float = 1e-2
    low: float = 1e-4
    period: int | None = 500
    warmup: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high:
            raise ArgumentError("high, low", "step sizes with 0 < low ≤ high", (self.high, self.low))
        if self.period is not None and self.period < 1:
            raise ArgumentError("period", "a positive number of steps, or None", self.period)
        if self.warmup < 0:
            raise ArgumentError("warmup", "a number of steps, 0 for none", self.warmup)

    def __call__(self, step: int, steps: int) -> float:
        """The step size at a step of a training of ``steps`` steps."""
        period = self.period or max(1, steps)
        size = self.low + 0.5 * (self.high - self.low) * (1 + math.cos(math.pi * (step % period) / period))
        return size * min(1.0, (step + 1) / max(1, self.warmup))


# The loop


Score = Callable[[], float | None]
TakeStep = Callable[[int, float], float]
Rate = Callable[[int], float]

_ROWS = 1024  # of validation data at a time
_SHRINK, _MOST_COLLAPSES = 0.3, 5
# A score has collapsed if it falls by more than this fraction of the total gain, and by more than this per variable.
_FALL, _FALL_PER_VARIABLE = 0.25, 0.1


class CollapseWarning(UserWarning):
    """The likelihood collapsed during training, which went back to its best parameters with smaller steps."""


class NotFiniteError(ArgumentError):
    """The likelihood of a batch is not a finite number."""


@dataclass(frozen=True)
class Settings:
    """When to validate, to save and to stop.

    Attributes:
        steps: The largest number of steps.
        validate_every: Steps between validations.
        patience: After this many steps without improvement, training returns to the best parameters, anneals for as
            many steps, and stops; None for never.
        out: The folder for checkpoints; None for no checkpoints.
        checkpoint_every: Steps between checkpoints.
        resume: Whether to continue from the folder's checkpoint.
        callbacks: Called with every record; one that raises ``StopIteration`` ends the training.
        writes: Whether this process writes checkpoints; only the first of several does.
    """

    steps: int
    validate_every: int = 250
    patience: int | None = 1250
    out: str | Path | None = None
    checkpoint_every: int = 1000
    resume: bool = False
    callbacks: Sequence[Callback] = ()
    writes: bool = True

    def __post_init__(self) -> None:
        for name in ("steps", "validate_every", "checkpoint_every"):
            check_integer(name, getattr(self, name))
        if self.patience is not None:
            check_integer("patience", self.patience)
        if self.resume and self.out is None:
            raise ArgumentError("resume", "a folder to resume from", "none", "give out=")


@dataclass
class _State:
    """Where a training stands between two steps, besides its tensors and records; a checkpoint stores all of it."""

    step: int = 0
    best_step: int = 0
    best_score: float = -math.inf
    best_train: float = -math.inf  # the training likelihood at the best step
    first_score: float = -math.inf
    patient_since: int = 0  # a lack of improvement counts from this step on
    annealed_from: int | None = None  # the step at which patience ran out
    unmoved: bool = True  # whether the parameters are the best ones, before any further step
    sum: float = 0.0  # of the training likelihoods since the last record
    count: int = 0
    seconds: float = 0.0


class Loop:
    """Runs steps until all are done, validation stops improving, or the user interrupts.

    When patience runs out, training returns to the best parameters, and the step size falls to its planned end within
    the same number of steps: the last steps of a schedule, small ones, gain most, and stopping early would miss them.

    When the likelihood collapses or is not finite, training returns to the best parameters, continues with smaller
    steps, and warns. A collapse does not count as a lack of improvement.

    Args:
        settings: When to validate, to save and to stop.
        model: The model. Steps change it in place; at the end it holds the best parameters.
        optimizer: Its state is part of a checkpoint.
        variables: The number of variables, for bits per dimension.
        identity: A checkpoint can be resumed only if these settings are unchanged.
    """

    def __init__(
        self,
        settings: Settings,
        model: nn.Module,
        optimizer: Optimizer | None,
        variables: int,
        identity: Mapping[str, Any],
    ) -> None:
        self.settings, self.model, self.optimizer = settings, model, optimizer
        self.history = History()
        self._variables, self._identity = variables, dict(identity)
        self._state, self._best = _State(), _copy(model)
        self._started = 0.0
        self._whole = True

    def run(self, step: TakeStep, validate: Score, rate: Rate) -> History:
        """Train.

        Args:
            step: Takes the step with the given number and size, and returns the mean log-likelihood of its batch.
            validate: Returns the mean log-likelihood of the validation data, or None without such data.
            rate: The planned size of a step.
        """
        if self.settings.resume:
            self._resume()
        self._started = time.perf_counter() - self._state.seconds
        with Interrupts() as interrupts:
            try:
                while not self.history.stopped:
                    self._advance(step, validate, rate)
                    interrupts.check()
            except KeyboardInterrupt:
                interrupts.ask()  # a training that is part of another task ends that too
                self.history.stopped = self.history.stopped or "interrupted"
                self._checkpoint()
        if self.history.records:
            load_parameters(self.model, self._best)
        return self.history

    def _advance(self, step: TakeStep, validate: Score, rate: Rate) -> None:
        """Take one step, then validate and save if it is time to."""
        self._whole, state = False, self._state
        size = self._size(rate)
        try:
            state.sum += step(state.step, size)
            state.count += 1
            state.unmoved = False
        except NotFiniteError as error:
            if state.unmoved:  # the steps are not the cause
                raise
            self._go_back(f"was not finite at step {state.step}", error)
        state.step += 1
        state.seconds = time.perf_counter() - self._started
        done = state.step >= self.settings.steps
        annealed = state.annealed_from is not None and state.step >= state.annealed_from + self._patience
        due = state.step % self.settings.validate_every == 0 or done or annealed
        if due:
            self._record(validate(), size, rate)
        if done and not self.history.stopped:
            self.history.stopped = "all steps done"
        elif annealed:
            self.history.stopped = f"no improvement in {self._patience} steps"
        self._whole = True
        for callback in self.settings.callbacks if due else ():
            try:
                callback(self.history.records[-1])
            except StopIteration as reason:
                self.history.stopped = self.history.stopped or str(reason) or "ended by a callback"
        if state.step % self.settings.checkpoint_every == 0 or self.history.stopped:
            self._checkpoint()

    @property
    def _patience(self) -> int:
        return self.settings.patience or self.settings.steps + 1

    def _size(self, rate: Rate) -> float:
        """The size of the next step."""
        state, planned = self._state, rate(self._state.step)
        if state.annealed_from is not None:
            first, last = rate(state.annealed_from), rate(self.settings.steps - 1)
            part = (state.step - state.annealed_from) / self._patience
            planned = min(planned, last + (first - last) * (1 + math.cos(math.pi * part)) / 2)
        return planned * _SHRINK ** len(self.history.collapses)

    def _record(self, valid: float | None, size: float, rate: Rate) -> None:
        state = self._state
        train = state.sum / state.count if state.count else math.nan
        state.sum, state.count = 0.0, 0
        score = train if valid is None else valid
        record = {"step": state.step, "train": train, "valid": math.nan if valid is None else valid}
        record |= {"bits": bits_per_dimension(score, self._variables), "rate": size, "seconds": state.seconds}
        self.history.records.append(record)
        if score > state.best_score:
            if not math.isfinite(state.best_score):
                state.first_score = score
            state.best_score, state.best_train, self._best = score, train, _copy(self.model)
            state.best_step = state.patient_since = state.step
        elif math.isnan(score) or (self._fell(score, state.best_score) and self._fell(train, state.best_train)):
            self._go_back(f"fell from {state.best_score:.4g} to {score:.4g} at step {state.step}")
        elif state.annealed_from is None and state.step - state.patient_since >= self._patience:
            if rate(state.step) > rate(self.settings.steps - 1):
                self._return_to_best()
                state.annealed_from = state.step
            else:
                self.history.stopped = f"no improvement in {state.step - state.best_step} steps"

    def _fell(self, score: float, best: float) -> bool:
        """Whether a score collapsed. Overfitting lowers the validation score too, but not the training likelihood."""
        if not math.isfinite(score):
            return math.isfinite(best)
        gained = self._state.best_score - self._state.first_score
        return best - score > max(_FALL * gained, _FALL_PER_VARIABLE * self._variables)

    def _go_back(self, what: str, error: ArgumentError | None = None) -> None:
        """Return to the best parameters and continue with smaller steps; give up after too many collapses."""
        if len(self.history.collapses) == _MOST_COLLAPSES:
            remedy = "use smaller steps, or check the data for extreme values"
            raise error or ArgumentError("valid", "a log-likelihood that does not collapse", f"one that {what}", remedy)
        self._return_to_best()
        best = self._state.best_step
        message = f"the log-likelihood {what}: back to the parameters of step {best}, with smaller steps"
        self.history.collapses.append(message)
        warnings.warn(f"{message}.", CollapseWarning, stacklevel=2)

    def _return_to_best(self) -> None:
        load_parameters(self.model, self._best)
        if self.optimizer is not None:
            self.optimizer.state.clear()
        self._state.patient_since, self._state.unmoved = self._state.step, True

    def _checkpoint(self) -> None:
        # A training that was interrupted in the middle of a step could not continue exactly.
        if self.settings.out is None or not self.settings.writes or not self._whole:
            return
        state = asdict(self._state) | asdict(self.history) | {"identity": self._identity}
        if self.history.stopped in ("interrupted", "all steps done"):  # more steps may follow
            state["stopped"] = ""
        save_checkpoint(Path(self.settings.out), self.model, self._best, self.optimizer, state)

    def _resume(self) -> None:
        assert self.settings.out is not None
        found = load_checkpoint(Path(self.settings.out))
        if found is None:
            return
        here, there = self._identity, found.state["identity"]
        changed = [name for name in here | there if here.get(name, ...) != there.get(name, ...)]
        if changed:
            raise ArgumentError(
                "resume", "the settings that the checkpoint was made with", f"other values of {', '.join(changed)}",
                "use another folder to start anew",
            )  # fmt: skip
        restore(found, self.model, self.optimizer)
        self._best = found.part("best.")
        self._state = _State(**{field.name: found.state[field.name] for field in fields(_State)})
        self.history = History(**{field.name: found.state[field.name] for field in fields(History)})
        if self._state.step >= self.settings.steps and not self.history.stopped:
            self.history.stopped = "all steps done"


def begin_training(model: Model, rows: Tensor, seed: int) -> None:
    """Check some rows of the data and choose start values from them."""
    values, _ = as_batch(rows, "x", len(model.families))
    like = next(model.parameters())
    points = as_points(values, None, model.families, model.variables, like)
    model.begin_training(points.values.T, torch.Generator().manual_seed(seed))


def mean_log_prob(qpc: QPC, data: Any, hidden: int | None = None) -> float:
    """The mean log-likelihood of a table, computed in parts; a hidden column counts as missing."""
    rows = as_rows("data", data, len(qpc.variables))
    total = 0.0
    with torch.no_grad():
        for start in range(0, len(rows), _ROWS):
            part = rows_of(rows, slice(start, start + _ROWS))
            total += float(qpc.log_prob(part if hidden is None else without(part, hidden)).double().sum())
    return total / len(rows)


def without(rows: Tensor, column: int) -> Tensor:
    """Rows in which a column is missing."""
    found = rows.clone() if rows.is_floating_point() else rows.double()
    found[:, column] = torch.nan
    return found


def check_finite(value: float, make: Callable[[], QPC], step: int) -> None:
    """Raise ``NotFiniteError`` if a likelihood is not finite, and name the parameters that are not."""
    if math.isfinite(value):
        return
    numbers = make().parameters
    parts = {"sum weights": numbers.weights, "inputs": numbers.inputs, "mixtures": numbers.mixtures}
    broken = [name for name, tensors in parts.items() if any(not bool(t.isfinite().all()) for t in tensors)]
    where = (
        f"not finite: {', '.join(broken)}" if broken else "the parameters are finite, but a row has probability zero"
    )
    raise NotFiniteError(
        "train",
        "a finite log-likelihood",
        f"{value} at step {step} ({where})",
        "use smaller steps (schedule=pc.Cosine(1e-3, 1e-5)) or clip=1.0, and check the data for extreme values",
    )


def identity_of(model: Model) -> str:
    """A short text that is equal for models with the same structure, families and shapes of parameters."""
    parameters = [(name, tuple(p.shape)) for name, p in model.named_parameters()]
    structure = getattr(model, "structure", None), getattr(model, "product", None)
    parts = (type(model).__name__, *structure, model.families, parameters)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _copy(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


# Checkpoints: one safetensors file, which is replaced atomically and loaded without running code


_NAME = "checkpoint.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """A training between two steps."""

    state: Mapping[str, Any]  # numbers and texts: the step, the best score, the records, the settings
    tensors: Mapping[str, Tensor]  # of the model, of the best model and of the optimizer, by name

    def part(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names begin with a prefix, without it."""
        return {n[len(prefix) :]: t for n, t in self.tensors.items() if n.startswith(prefix)}


def save_checkpoint(
    folder: Path, model: nn.Module, best: Mapping[str, Tensor], optimizer: Optimizer | None, state: Mapping[str, Any]
) -> None:
    """Write everything that an exact continuation needs."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    tensors |= {f"best.{name}": value for name, value in best.items()}
    if optimizer is not None:
        for number, parameter in enumerate(p for group in optimizer.param_groups for p in group["params"]):
            for name, value in optimizer.state.get(parameter, {}).items():
                tensors[f"optimizer.{number}.{name}"] = value
    flat = {name: value.detach().contiguous() for name, value in tensors.items()}
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / _NAME) as (partial,):
        try:
            save_file(flat, partial, metadata={"state": json.dumps(dict(state))})
        except SafetensorError as error:  # as it reports a full disk
            raise OSError(f"{folder / _NAME}: {error}") from error


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """The checkpoint of a folder; None when there is none."""
    path = folder / _NAME
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            state = _state(file.metadata())
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError, OSError) as error:
        expected = "a checkpoint that was written completely"
        raise ArgumentError("resume", expected, f"{path.name}: {error}", "delete it to start anew") from error
    return Checkpoint(state, tensors)


def _state(metadata: Mapping[str, str] | None) -> Mapping[str, Any]:
    found = json.loads((metadata or {}).get("state", "null"))
    if not isinstance(found, dict) or "identity" not in found:
        raise ValueError("it does not hold the state of a training")
    return found


def restore(checkpoint: Checkpoint, model: nn.Module, optimizer: Optimizer | None) -> None:
    """Put the tensors of a checkpoint back where they came from."""
    load_parameters(model, checkpoint.part("model."))
    if optimizer is None:
        return
    for number, parameter in enumerate(p for group in optimizer.param_groups for p in group["params"]):
        found = checkpoint.part(f"optimizer.{number}.")
        if found:
            optimizer.state[parameter] = {
                # Counts stay where they were; moments live with their parameter.
                name: value if value.ndim == 0 else value.to(parameter.device)
                for name, value in found.items()
            }


def load_parameters(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load a model's tensors; those of another model are an error."""
    own = model.state_dict()
    wrong = [n for n in own if n not in tensors or tensors[n].shape != own[n].shape] + [
        n for n in tensors if n not in own
    ]
    if wrong:
        raise ArgumentError(
            "resume", "a checkpoint of this model", f"other tensors: {', '.join(wrong[:3])}", "use another folder"
        )
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(tensors[name])
