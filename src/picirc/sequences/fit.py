"""Training of chains."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from picirc.sequences.chain import Batch
from picirc.sequences.neural import SequencePIC, initialise, normal_points

Callback = Callable[[Mapping[str, float]], None]


@dataclass(frozen=True)
class Settings:
    """How a chain is trained; chosen over several series by held-out likelihood.

    Attributes:
        dims: The number of dimensions of the latent.
        points: The number of points of the grids.
        width: The number of hidden units of each net.
        rank: The number of features of the correction of the transition.
        steps: The largest number of training steps.
        rate: The largest step size of Adam; reached after a warm-up, then falling along a cosine.
        final_rate: The last step size.
        weight_decay: Of AdamW.
        clip: The largest norm of a gradient.
        batch: About how many rows of data one training step sees.
        window: The longest piece of a sequence in one training step.
        held_out: The share of the sequences, or of the last steps of a few, that decides when to stop.
        validate_every: After how many steps the held-out part is looked at.
        patience: How many such looks without improvement end the training.
    """

    dims: int = 2
    points: int = 128
    width: int = 32
    rank: int = 16
    steps: int = 600
    rate: float = 5e-3
    final_rate: float = 5e-5
    weight_decay: float = 1e-2
    clip: float = 1.0
    batch: int = 4096
    window: int = 512
    held_out: float = 0.15
    validate_every: int = 20
    patience: int = 8


@dataclass
class Record:
    """What happened during a training: validations, and why it ended."""

    records: list[dict[str, float]] = field(default_factory=list)
    stopped: str = "all steps done"
    best_step: int = 0


def train(
    model: SequencePIC,
    sequences: Sequence[Tensor],
    gaps: Sequence[Tensor],
    settings: Settings,
    seed: int = 0,
    steps: int | None = None,
    valid: Callable[[SequencePIC], float] | None = None,
    callbacks: Sequence[Callback] = (),
) -> Record:
    """Maximise the likelihood of sequences; with ``valid``, keep the parameters that it likes best."""
    source = torch.Generator().manual_seed(seed)
    pieces = _pieces(sequences, gaps, settings.window)
    optimizer = torch.optim.AdamW(model.parameters(), settings.rate, (0.9, 0.98), weight_decay=settings.weight_decay)
    record, best, kept, bad = Record(), -math.inf, copy.deepcopy(model.state_dict()), 0
    if valid is not None:
        best = valid(model)
        record.records.append({"step": 0, "valid": best})
    whole = _fits(pieces, settings.batch)
    batch = Batch.of(*zip(*pieces, strict=True)) if whole else None  # type: ignore[arg-type]
    for step in range(1, (steps or settings.steps) + 1):
        for group in optimizer.param_groups:
            group["lr"] = _rate(step, settings)
        some = batch or _draw(pieces, settings.batch, source)
        shift = torch.rand(model.dims, generator=source)
        chain = model(normal_points(model.points, model.dims, shift))
        loss = -chain.log_steps(some).sum() / len(some.x)
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        if bool(norm.isfinite()):
            optimizer.step()
        if valid is not None and step % settings.validate_every == 0:
            score = valid(model)
            record.records.append({"step": step, "train": -float(loss.detach()), "valid": score})
            for callback in callbacks:
                callback(record.records[-1])
            if score > best:
                best, kept, bad, record.best_step = score, copy.deepcopy(model.state_dict()), 0, step
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


def _pieces(sequences: Sequence[Tensor], gaps: Sequence[Tensor], window: int) -> list[tuple[Tensor, Tensor]]:
    return [
        (x[start : start + window], dt[start : start + window])
        for x, dt in zip(sequences, gaps, strict=True)
        for start in range(0, len(x), window)
    ]


def _fits(pieces: Sequence[tuple[Tensor, Tensor]], most: int) -> bool:
    return sum(len(x) for x, _ in pieces) <= most


def _draw(pieces: Sequence[tuple[Tensor, Tensor]], most: int, source: torch.Generator) -> Batch:
    """Random pieces with about so many rows."""
    chosen: list[tuple[Tensor, Tensor]] = []
    for number in torch.randperm(len(pieces), generator=source).tolist():
        chosen.append(pieces[number])
        if sum(len(x) for x, _ in chosen) >= most:
            break
    return Batch.of(*zip(*chosen, strict=True))  # type: ignore[arg-type]


__all__ = ["Settings", "asdict", "initialise", "train", "Any"]
