# SPDX-License-Identifier: Apache-2.0
"""Mixtures: one latent, or a tree of latents with a block of related columns each.

Every state of a latent has a covariance of its own. EM trains such models in a fraction of the time that nets take.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from picirc.hclt import HCLT
from picirc.inputs import Bernoulli, Categorical, Gaussian
from picirc.learning import Cosine, fit_em
from picirc.learning.history import Callback, History
from picirc.structure.trees import LatentTree, star
from picirc.tables.column import Numbers
from picirc.tables.defaults import (
    EM_SECONDS,
    FEWEST_IN_STEP,
    FEWEST_WIDE,
    FINAL_PART,
    LABEL_NOISE,
    LEAST_INFORMATION,
    MOST_PATTERN_WORK,
    MOST_ROWS_AT_ONCE,
    ROWS_OF_STATE,
    STEP_SIZES,
    WORK_OF_COLUMN,
    Defaults,
)
from picirc.tables.schema import Schema

Split = tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]  # the rows to learn from, and those held out

_ROWS_PER_STATE = 5  # of a class
_USUAL_STEPS = 20  # of EM, if each sees all rows
_NEVER = -1e4  # the logarithm of a probability that is zero in double precision too
_JOINT_STEPS = 5  # of EM for the states of all classes together
_SCHEDULE = Cosine(0.9, 0.02, period=None)


def work_of_state(schema: Schema, rows: Numbers, chosen: Defaults) -> float:
    """An estimate of the multiplications that EM takes for each state of one mixture, all members included."""
    return _seen(rows, chosen) * (len(_joint(schema)) ** 2 + WORK_OF_COLUMN * schema.width)


def seconds_of_state(schema: Schema, rows: Numbers, chosen: Defaults) -> float:
    """An estimate of the seconds that EM takes for each state of one mixture, all members included."""
    pair, column = EM_SECONDS
    return _seen(rows, chosen) * (pair * len(_joint(schema)) ** 2 + column * schema.width)


def _seen(rows: Numbers, chosen: Defaults) -> float:
    """How many rows the steps of EM see, all members included."""
    passes = _USUAL_STEPS if len(rows) <= MOST_ROWS_AT_ONCE else chosen.em_passes
    return len(rows) * passes * chosen.members


def is_affordable(schema: Schema, rows: Numbers) -> bool:
    """Whether the patterns of missing cells are few enough for the number of correlated columns."""
    joint = _joint(schema)
    gaps = np.packbits(np.isnan(rows[:, joint]), axis=1)
    return len(np.unique(gaps, axis=0)) * len(joint) ** 3 <= MOST_PATTERN_WORK


def _joint(schema: Schema) -> list[int]:
    """The places of the columns that are correlated."""
    return [place for place, family in enumerate(schema.families) if isinstance(family, Gaussian)]


def blocks_of(information: Numbers, most: int) -> list[list[int]]:
    """Blocks of up to ``most`` related columns.

    Blocks are merged, the pair with the largest mean mutual information first, as long as it is worth it.

    Args:
        information: The mutual information of all pairs of columns, in nats.
        most: The largest number of columns of a block.

    Example:
        >>> blocks_of(np.array([[0.0, 0.5, 0.0], [0.5, 0.0, 0.0], [0.0, 0.0, 0.0]]), 2)
        [[0, 1], [2]]
    """
    total = np.array(information, np.float64)  # between blocks
    blocks = [[column] for column in range(len(total))]
    while True:
        sizes = np.array([len(block) for block in blocks])
        mean = total / np.outer(sizes, sizes)
        mean[np.add.outer(sizes, sizes) > most] = 0.0
        np.fill_diagonal(mean, 0.0)
        a, b = sorted(np.unravel_index(mean.argmax(), mean.shape))
        if mean[a, b] < LEAST_INFORMATION:
            return blocks
        blocks[a] += blocks.pop(b)
        total[a] += total[b]
        total[:, a] += total[:, b]
        total = np.delete(np.delete(total, b, 0), b, 1)


def refit(schema: Schema, rows: Numbers, states: int, chosen: Defaults, seed: int, steps: int) -> list[HCLT]:
    """Members trained anew on all rows, for a number of steps."""
    split = (np.arange(len(rows)), np.arange(0))
    seeds = range(seed, seed + chosen.members)
    return [train(schema, rows, split, states, chosen, one, steps=steps)[0] for one in seeds]


def average(members: Sequence[HCLT], shares: Sequence[float] | None = None) -> HCLT:
    """The average of mixtures on one tree, which is a mixture with all their states.

    A state of a latent is followed by states of the same member only.

    Args:
        members: The mixtures.
        shares: Their weights; equal by default.
    """
    first = members[0]
    states = sum(member.states for member in members)
    found = HCLT(first.structure, first.families, states, correlated=True, dtype=first.weights[0].dtype)
    logs = torch.tensor(shares or [1.0] * len(members), dtype=torch.float64).log().tolist()
    ends = np.cumsum([member.states for member in members]).tolist()
    with torch.no_grad():
        for number, table in enumerate(found.weights):  # (edges, 1, states above, states), or one state above the root
            root = table.shape[-2] == 1
            table.fill_(_NEVER)
            for member, end, log in zip(members, ends, logs, strict=True):
                own = slice(end - member.states, end)
                weights = member.weights[number].log_softmax(-1)
                table[..., slice(None) if root else own, own] = weights + log if root else weights
        for number, table in enumerate(found.inputs):
            table.copy_(torch.cat([member.inputs[number] for member in members], 1))
        for number, table in enumerate(found.correlations):
            table.copy_(torch.cat([member.correlations[number] for member in members]))
    found.fresh = False
    return found


def of_classes(
    schema: Schema, rows: Numbers, split: Split, target: int, states: int, chosen: Defaults, seed: int
) -> HCLT:
    """A mixture whose states belong to a class each: so many for each category of a column."""
    kept, _ = split
    parts, shares, classes = [], [], []
    for code in np.unique(rows[kept, target][~np.isnan(rows[kept, target])]):
        own, others = (part[rows[part, target] == code] for part in split)
        count = max(1, min(states, len(own) // _ROWS_PER_STATE))
        parts.append(train(schema, rows, (own, others), count, chosen, seed)[0].double())
        shares.append(float(len(own)))
        classes += count * [int(code)]
    joined = average(parts, shares)
    if len(kept) <= MOST_ROWS_AT_ONCE:
        # With few rows, covariances are drawn towards what the states of all classes have in common.
        return fit_em(joined, rows[kept], batch_size=None, steps=_JOINT_STEPS, smoothing=chosen.smoothing)[0]
    _assign(joined, target, torch.tensor(classes))
    return joined


@torch.no_grad()
def _assign(model: HCLT, target: int, classes: Tensor) -> None:
    """Make states belong to their classes nearly for certain, however strongly their distributions were smoothed."""
    for group in model.plan.inputs:
        for place in np.flatnonzero(group.columns == target):
            table = model.inputs[group.params][place]
            binary = isinstance(group.family, Bernoulli)
            own = one_hot(classes, 2 if binary else table.shape[-1]).to(table)  # (states, classes)
            shares = model.weights[0].softmax(-1).view(1, -1).to(table) @ own
            logs = torch.lerp(own, shares, LABEL_NOISE).clamp(min=torch.finfo(table.dtype).tiny).log()
            table.copy_(logs[:, 1:] - logs[:, :1] if binary else logs)


@torch.no_grad()
def widened(model: HCLT, factor: float, target: int) -> HCLT:
    """The same with wider states.

    Correlated columns have so many times the standard deviation. The logits of categories, apart from those of the
    column to predict, are divided by the same factor.

    States that were placed among the rows of their class are too sure of them. Training for the sake of a column to
    predict does not see that, as it learns from the same rows.
    """
    if factor == 1:
        return model
    wider = copy.deepcopy(model)
    for group in wider.plan.inputs:
        table = wider.inputs[group.params]
        if group.correlation is not None:
            mean, std = group.family.constrain(table).unbind(-1)
            table.copy_(group.family.unconstrain(torch.stack((mean, factor * std), -1)))
        elif isinstance(group.family, Bernoulli | Categorical):  # whose parameters are logits
            table[torch.as_tensor(group.columns != target)] /= factor
    return wider


def finished(model: HCLT, rows: Numbers, chosen: Defaults, seed: int) -> HCLT:
    """A trained mixture after some more steps of EM that see all rows, also those that were held out before."""
    batch, share = _batch(len(rows), model.states)
    steps = max(1, round(FINAL_PART * chosen.em_passes / share))
    smoothing = chosen.smoothing * share
    return fit_em(model, rows, batch_size=batch, steps=steps, schedule=_SCHEDULE, smoothing=smoothing, seed=seed)[0]


def _batch(rows: int, states: int, size: int = STEP_SIZES[-1]) -> tuple[int | None, float]:
    """How many of so many rows a step of EM sees, None for all, and their share; ``size`` is one of ``STEP_SIZES``."""
    if rows <= MOST_ROWS_AT_ONCE:
        return None, 1.0
    found = size * max(FEWEST_IN_STEP, ROWS_OF_STATE * states)
    return found, min(1.0, found / rows)


def _step_size(structure: LatentTree) -> int:
    """Many small steps are better for trees of single columns; covariances of more columns need more rows."""
    if structure.n_latents == 1:
        return STEP_SIZES[2]
    return STEP_SIZES[1 if max(map(len, structure.variables)) > 1 else 0]


def train(
    schema: Schema,
    rows: Numbers,
    split: Split,
    states: int,
    chosen: Defaults,
    seed: int,
    structure: LatentTree | None = None,
    steps: int | None = None,
    callbacks: Sequence[Callback] = (),
) -> tuple[HCLT, History]:
    """Train a mixture, for a number of steps if it is given. The structure is a single latent by default."""
    kept, held = split
    structure = structure or star(schema.width)
    whole = len(kept) <= MOST_ROWS_AT_ONCE
    wide = len(_joint(schema)) > FEWEST_WIDE
    dtype = torch.float64 if whole and not wide else torch.float32
    source = torch.Generator().manual_seed(seed)
    model = HCLT(structure, schema.families, states, correlated=True, generator=source, dtype=dtype)
    batch, share = _batch(len(kept), states, _step_size(structure))
    most = chosen.em_steps if whole else max(80, round(chosen.em_passes / share))
    every = (2 if wide else 5) if whole else max(1, most // 10)
    return fit_em(
        model,
        rows[kept],
        rows[held] if len(held) else None,
        batch_size=batch,
        steps=steps or most,
        schedule=_SCHEDULE,
        smoothing=chosen.smoothing * share,
        validate_every=min(every, steps or most),
        patience=2 * every if whole else most // 4,
        seed=seed,
        callbacks=callbacks,
    )
