# SPDX-License-Identifier: Apache-2.0
"""Fitting chains to sequences."""

from __future__ import annotations

import copy
import math
import time as clock
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from picirc.checks import check_integer
from picirc.errors import ArgumentError
from picirc.sequences.chain import Batch
from picirc.sequences.data import SchemaColumns, gaps_of, read_sequences, step_length
from picirc.sequences.dynamics import SequencePIC, initialise, normal_points
from picirc.sequences.model import SequenceModel
from picirc.tables import Schema

Callback = Callable[[Mapping[str, float]], None]
Part = tuple[list[Tensor], list[Tensor]]  # sequences and their gaps

_ENOUGH = 8  # with this many sequences, whole sequences are held out
_LEAST_HELD = 40  # rows to hold out of a long sequence, at least
POINTS = {1: 64, 2: 192, 3: 256}  # by the number of dimensions


@dataclass(frozen=True)
class Settings:
    """How a chain is trained. The defaults were chosen over five series (see ``benchmarks/README.md``).

    Attributes:
        dims: The number of dimensions of the latent; 0 for the best of 1, 2 and 3.
        points: The number of points of the grids; 0 for a number that depends on ``dims``.
        width: The number of hidden units of each net.
        rank: The number of features of the correction of the transition.
        steps: The largest number of training steps.
        rate: The largest step size of Adam, reached after a warm-up; it then decreases along a cosine.
        final_rate: The last step size.
        prior: The precision of a normal prior of every parameter around its initial value.
        clip: The largest norm of a gradient.
        batch: The approximate number of rows in one training step.
        window: The longest piece of a sequence in one training step.
        held_out: The fraction of the sequences, or of the last steps of a few, held out for early stopping.
        validate_every: The number of steps between validations.
        patience: The number of validations without improvement that ends the training.
        refit: Whether to train again on all data, for the best number of steps.
        floor: The smallest scale of real columns given the latent, in units of their spread.
        margin: The improvement, in standard errors, that a later state or a larger latent must show.
    """

    dims: int = 0
    points: int = 0
    width: int = 32
    rank: int = 16
    steps: int = 600
    rate: float = 5e-3
    final_rate: float = 5e-5
    prior: float = 10.0
    clip: float = 1.0
    batch: int = 4096
    window: int = 512
    held_out: float = 0.15
    validate_every: int = 20
    patience: int = 8
    refit: bool = True
    floor: float = 0.1
    margin: float = 0.3


@dataclass
class Record:
    """The validations of a training run, and why it ended."""

    records: list[dict[str, float]] = field(default_factory=list)
    stopped: str = "all steps done"
    best_step: int = 0
    scores: Tensor = field(default_factory=lambda: torch.empty(0))

    @property
    def best(self) -> float:
        """The mean score of the held-out steps; NaN if there are none."""
        return float(self.scores.mean())


def better(new: Tensor, old: Tensor, margin: float) -> bool:
    """Whether scores of the same steps are better by more than ``margin`` standard errors of the difference.

    The scores of a short series are noisy, and the best of many noisy scores is often only lucky.
    """
    gain = new - old
    error = gain.std() / math.sqrt(len(gain)) if len(gain) > 1 else gain.new_zeros(())
    return bool(gain.mean() > margin * error)


def fit_sequences(
    data: Any,
    by: str | None = None,
    time: str | None = None,
    columns: Any = None,
    *,
    seed: int = 0,
    dims: int | None = None,
    points: int | None = None,
    steps: int | None = None,
    unseen: str = "error",
    settings: Mapping[str, Any] | None = None,
    callbacks: Sequence[Callback] = (),
) -> SequenceModel:
    """Fit a homogeneous chain with continuous latents to sequences.

    All steps share one transition net, and every column has one emission net. Whole sequences, or the last steps of a
    few, are held out, and training stops when their likelihood no longer improves. Then the model is trained again on
    all data, for the same number of steps.

    Args:
        data: A list of tables (data frames, arrays, mappings from names to columns) of any lengths, one table, or one
            long table with ``by``. Any cells may be missing.
        by: The column of a long table that identifies the sequences.
        time: The column of the times, numbers or dates. If all steps are whole multiples of their median, a longer one
            counts as several; otherwise the transition depends on the length of each step.
        columns: Declarations of some columns, as for ``pc.Schema.infer``.
        seed: The seed of all random numbers.
        dims: The number of dimensions of the latent; by default the best of 1, 2 and 3 on the held-out data.
        points: The number of points of the grids; queries use twice as many.
        steps: The largest number of training steps.
        unseen: How queries treat categories that are not in the data: ``"error"`` or ``"missing"``.
        settings: Other attributes of ``Settings``, by name.
        callbacks: Functions to call with every record of the training.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> series = [np.cumsum(rng.normal(size=length)) * 0.1 for length in (30, 50, 40)]
        >>> model = fit_sequences(series, dims=1, points=16, steps=20)
        >>> model.forecast(series[0], steps=3).quantiles["x"].shape
        (3, 3)
    """
    started = clock.perf_counter()
    seed = check_integer("seed", seed, 0)
    chosen = _settings(settings, dims=dims, points=points, steps=steps)
    sequences = read_sequences(data, by, time)
    unit, timed = step_length(sequences.times)
    tables = sequences.tables
    joined = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    schema = Schema.infer(joined, columns, unseen=unseen, floor=chosen.floor, linear=True)
    known = SchemaColumns(schema)
    whole = [known.encode(table) for table in tables], gaps_of(sequences, unit, timed)
    rows = sum(map(len, whole[0]))
    if rows < 3:
        raise ArgumentError("data", "at least three rows", f"{rows}")
    candidates = [_candidate(schema, sizes, timed, whole, seed, callbacks) for sizes in _sizes(chosen)]
    model, record, used = candidates[0]
    for other in candidates[1:]:
        if len(record.scores) and better(other[1].scores, record.scores, used.margin):
            model, record, used = other
    if record.best_step and used.refit:
        model = _made(schema, used, timed, seed)
        initialise(model, whole[0])
        train(model, whole, used, seed, steps=record.best_step)
    summary = {
        "sequences": len(whole[0]),
        "rows": rows,
        "seed": seed,
        "settings": asdict(used),
        "training": {"stopped": record.stopped, "best_step": record.best_step, "records": record.records},
        "log_density": {"valid": record.best if len(record.scores) else None},
        "seconds": clock.perf_counter() - started,
    }
    return SequenceModel(
        known, model, by=by, time=time, unit=unit, container=sequences.container, dates=sequences.dates,
        summary=summary,
    )  # fmt: skip


def _settings(given: Mapping[str, Any] | None, **named: int | None) -> Settings:
    values = dict(given or {}) | {name: value for name, value in named.items() if value is not None}
    for name, value in values.items():
        if name not in {entry.name for entry in fields(Settings)}:
            expected = ", ".join(entry.name for entry in fields(Settings))
            raise ArgumentError("settings", f"names among {expected}", repr(name))
        if isinstance(getattr(Settings, name), int) and not isinstance(getattr(Settings, name), bool):
            values[name] = check_integer(name, value, 0 if name in ("dims", "rank") else 1)
    return Settings(**values)


def _sizes(chosen: Settings) -> list[Settings]:
    """The settings to try."""
    if chosen.dims:
        return [replace(chosen, points=chosen.points or POINTS[min(chosen.dims, 3)])]
    return [replace(chosen, dims=dims, points=chosen.points or POINTS[dims]) for dims in (1, 2, 3)]


def _made(schema: Schema, used: Settings, timed: bool, seed: int) -> SequencePIC:
    source = torch.Generator().manual_seed(seed)
    return SequencePIC(schema.families, used.dims, used.width, used.rank, used.points, timed, source)


def _candidate(
    schema: Schema, used: Settings, timed: bool, whole: Part, seed: int, callbacks: Sequence[Callback]
) -> tuple[SequencePIC, Record, Settings]:
    """A model trained on a part of the data, with early stopping on the rest."""
    kept, judged, places = _split(whole, used.held_out, seed)
    model = _made(schema, used, timed, seed)
    initialise(model, kept[0])
    batch = Batch.of(*judged) if places else None

    def valid(some: SequencePIC) -> Tensor:
        assert batch is not None
        with torch.no_grad():
            logs = some(normal_points(2 * some.points, some.dims)).log_steps(batch)
        parts = [part[first:] for part, first in zip(batch.split(logs), places, strict=True)]
        return torch.cat(parts).double()

    record = train(model, kept, used, seed, valid=valid if batch is not None else None, callbacks=callbacks)
    return model, record, used


def _split(whole: Part, share: float, seed: int) -> tuple[Part, Part, list[int]]:
    """The training part, the validation part, and the first step of each validation sequence that counts."""
    xs, gaps = whole
    if len(xs) >= _ENOUGH:
        order = torch.randperm(len(xs), generator=torch.Generator().manual_seed(seed)).tolist()
        judged = sorted(order[: max(1, round(share * len(xs)))])
        kept = [i for i in range(len(xs)) if i not in judged]
        return _some(whole, kept), _some(whole, judged), [0] * len(judged)
    # A larger fraction of a short series is held out, because few steps are a noisy score.
    held = [max(1, round(share * len(x)), min(_LEAST_HELD, round(2 * share * len(x)))) for x in xs]
    firsts = [len(x) - rows for x, rows in zip(xs, held, strict=True)]
    some = [i for i, first in enumerate(firsts) if first >= 2]
    if not some or share == 0:
        return whole, whole, []
    kept_part = [x[:first] for x, first in zip(xs, firsts, strict=True) if first >= 1]
    kept_gaps = [dt[:first] for dt, first in zip(gaps, firsts, strict=True) if first >= 1]
    return (kept_part, kept_gaps), _some(whole, some), [firsts[i] for i in some]


def _some(whole: Part, numbers: Sequence[int]) -> Part:
    return [whole[0][i] for i in numbers], [whole[1][i] for i in numbers]


def train(
    model: SequencePIC,
    part: Part,
    settings: Settings,
    seed: int = 0,
    steps: int | None = None,
    valid: Callable[[SequencePIC], Tensor] | None = None,
    callbacks: Sequence[Callback] = (),
) -> Record:
    """Maximise the likelihood of sequences; with ``valid``, keep the parameters with the best score."""
    source = torch.Generator().manual_seed(seed)
    pieces = _pieces(part, settings.window)
    optimizer = torch.optim.Adam(model.parameters(), settings.rate, (0.9, 0.98))
    initial = [parameter.detach().clone() for parameter in model.parameters()]
    rows = sum(len(x) for x, _ in pieces)
    record, kept, bad = Record(), copy.deepcopy(model.state_dict()), 0
    if valid is not None:
        record.scores = valid(model)
        record.records.append({"step": 0, "valid": record.best})
    batch = Batch.of(*zip(*pieces, strict=True)) if rows <= settings.batch else None
    for step in range(1, (steps or settings.steps) + 1):
        for group in optimizer.param_groups:
            group["lr"] = _rate(step, settings)
        some = batch or _draw(pieces, settings.batch, source)
        shift = torch.rand(model.dims, generator=source)
        chain = model(normal_points(model.points, model.dims, shift))
        loss = -chain.log_steps(some).sum() / len(some.x)
        moved = sum((p - q).square().sum() for p, q in zip(model.parameters(), initial, strict=True))
        loss = loss + 0.5 * settings.prior / rows * moved
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        if bool(norm.isfinite()):
            optimizer.step()
        if valid is not None and step % settings.validate_every == 0:
            scores = valid(model)
            record.records.append({"step": step, "train": -float(loss.detach()), "valid": float(scores.mean())})
            for callback in callbacks:
                callback(record.records[-1])
            if better(scores, record.scores, settings.margin):
                kept, bad = copy.deepcopy(model.state_dict()), 0
                record.scores, record.best_step = scores, step
            else:
                bad += 1
                if bad >= settings.patience:
                    record.stopped = "no improvement"
                    break
    if valid is not None:
        model.load_state_dict(kept)
    return record


def _rate(step: int, settings: Settings) -> float:
    warmup = max(1, settings.steps // 20)
    if step <= warmup:
        return settings.rate * step / warmup
    turn = min(1.0, (step - warmup) / max(1, settings.steps - warmup))
    return settings.final_rate + (settings.rate - settings.final_rate) * (1 + math.cos(math.pi * turn)) / 2


def _pieces(part: Part, window: int) -> list[tuple[Tensor, Tensor]]:
    return [
        (x[start : start + window].float(), dt[start : start + window])
        for x, dt in zip(*part, strict=True)
        for start in range(0, len(x), window)
    ]


def _draw(pieces: Sequence[tuple[Tensor, Tensor]], most: int, source: torch.Generator) -> Batch:
    """Random pieces with about ``most`` rows."""
    chosen: list[tuple[Tensor, Tensor]] = []
    for number in torch.randperm(len(pieces), generator=source).tolist():
        chosen.append(pieces[number])
        if sum(len(x) for x, _ in chosen) >= most:
            break
    return Batch.of(*zip(*chosen, strict=True))
