# SPDX-License-Identifier: Apache-2.0
"""Fitting a model to a table."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from picirc.checks import check_integer
from picirc.data.dataset import hold_out
from picirc.ensemble import Ensemble
from picirc.errors import ArgumentError
from picirc.inputs import Gaussian
from picirc.learning import Cosine, fit
from picirc.learning.history import Callback, History
from picirc.pic import PIC
from picirc.quadrature import shifted
from picirc.structure.chow_liu import hidden_chow_liu
from picirc.structure.information import mutual_information
from picirc.structure.trees import LatentTree
from picirc.tables.defaults import FEWEST_NAMED, Defaults, choose
from picirc.tables.inference import unhelpful_columns
from picirc.tables.model import TableModel
from picirc.tables.schema import EMPTY, Declared, Numbers, Schema
from picirc.tables.streaming import TableData, read_data

_SCORED = 10_000  # rows, enough for a summary


class ColumnWarning(UserWarning):
    """A table has columns from which nothing can be learned."""


Member = tuple[PIC, History, Any]  # a model, how it was trained, and the rows held out from it


def fit_table(
    table: Any,
    columns: Declared | Mapping[Any, Declared] | None = None,
    *,
    seed: int = 0,
    unseen: str = "error",
    points: int | None = None,
    width: int | None = None,
    steps: int | None = None,
    settings: Mapping[str, Any] | None = None,
    callbacks: Sequence[Callback] = (),
    out: str | Path | None = None,
    checkpoint_every: int = 1000,
    resume: bool = False,
) -> TableModel:
    """Fit a probabilistic integral circuit to a table.

    Gaussian columns share a latent, given which they are correlated; every other column has a latent of its own. The
    tree of the latents is the Chow–Liu tree of the columns. Everything that is not given is chosen from the size of the
    table. If it has enough rows, a fraction of them is held out, and training stops when the likelihood of these rows
    no longer improves. For a small table several models are trained, each with other rows held out, and averaged.

    A table in Parquet files that is larger than 16 million cells is never in memory as a whole: one pass keeps a sample
    of its rows, from which follow the columns and the tree, and the training reads row groups in random order. Several
    processes that ``torchrun`` has started train one model together, each with row groups of its own.

    Args:
        table: A data frame (pandas, polars, pyarrow), an array, nested lists, a mapping from names to columns, the path
            of a file or of a folder of Parquet files, a ``pyarrow.dataset`` of such files, or what ``picirc.data.read``
            returns; any cells may be missing.
        columns: What is known of some columns, as for :meth:`Schema.infer`.
        seed: Determines everything random: the same seed gives the same model.
        unseen: What to do later with categories that are not in the table: ``"error"`` or ``"missing"``.
        points: The number of quadrature points.
        width: The width of the nets, an even number.
        steps: The largest number of training steps.
        settings: Other attributes of :class:`~picirc.tables.defaults.Defaults`, by name.
        callbacks: Called with every record of the training.
        out: The folder for checkpoints of the training; None for none.
        checkpoint_every: Steps between checkpoints.
        resume: Continue from the checkpoints in ``out``, if there are any.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> height = rng.normal(1.7, 0.1, 80)
        >>> people = {"height": height, "weight": 22 * height**2 + rng.normal(0, 5, 80)}
        >>> model = fit_table(people, points=8, width=16, steps=20)
        >>> model
        TableModel(2 columns, 4 models, 2,520 parameters, 8 points)
        >>> bool(model.impute({"height": [1.9], "weight": [None]})["weight"][0] > 50)
        True
    """
    started, seed = time.perf_counter(), check_integer("seed", seed, 0)
    data = read_data(table, seed)
    frame = data.frame
    named = {"points": points, "width": width, "steps": steps}
    given = dict(settings or {}) | {name: value for name, value in named.items() if value is not None}
    chosen = choose(data.rows, len(frame.names), **given)
    schema = data.schema(columns, unseen, chosen.floor)
    if all(column.kind == EMPTY for column in schema.columns):
        raise ArgumentError("table", "a value in at least one column", "missing cells only")
    unhelpful = unhelpful_columns(frame, schema.columns) if frame.named and frame.rows >= FEWEST_NAMED else []
    if unhelpful:
        message = f"nothing can be learned from some columns, drop them: {'; '.join(unhelpful)}."
        warnings.warn(message, ColumnWarning, stacklevel=2)
    rows = schema.encode(frame)
    kept, held = _split(data, chosen, seed)
    tree = _tree(schema, rows if chosen.members > 1 else rows[kept], chosen, seed)
    structured = time.perf_counter()
    checkpoints = {"out": None if out is None else Path(out), "checkpoint_every": checkpoint_every, "resume": resume}
    members = _members(data, schema, tree, rows, chosen, seed, callbacks, checkpoints)
    pics = [pic for pic, _, _ in members]
    model = TableModel(schema, pics[0] if len(pics) == 1 else Ensemble(pics), chosen.points)
    trained = time.perf_counter()
    model.summary = {
        "rows": {"train": data.rows - len(held), "valid": len(held)},
        "columns": len(schema.columns),
        "seed": seed,
        "settings": asdict(chosen),
        "training": _training(members[0][1]) | {"stopped": members[-1][1].stopped},
        # Several models have learned from every row, a single one only from those kept.
        "log_density": {
            "train": _mean(model, rows if len(pics) > 1 else rows[kept]),
            "valid": _mean_held_out(schema, rows, members, chosen),
        },
        "seconds": {"structure": structured - started, "training": trained - structured},
    }
    return model


def _members(
    data: TableData,
    schema: Schema,
    tree: LatentTree,
    rows: Numbers,
    chosen: Defaults,
    seed: int,
    callbacks: Sequence[Callback],
    checkpoints: dict[str, Any],
) -> list[Member]:
    """Train the models to average; the callbacks count their steps consecutively."""
    found: list[Member] = []
    out = checkpoints["out"]
    for number in range(chosen.members):
        kept, held = _split(data, chosen, seed + number)

        def count_on(record: Mapping[str, float], done: int = number * chosen.steps) -> None:
            for callback in callbacks:
                callback({**record, "step": record["step"] + done})

        own = [count_on] if callbacks else []
        train = data.training(schema, rows, kept, held, chosen.batch_size, seed + number)
        folder = None if out is None else out / f"member{number}"
        places = checkpoints | {"out": folder}
        found.append((*_train(schema, tree, train, rows[held], chosen, seed + number, own, places), held))
        if found[-1][1].stopped == "interrupted":
            break
    return found


def _split(data: TableData, chosen: Defaults, seed: int) -> tuple[Any, Any]:
    """The rows to learn from, and those held out, of the table or of its sample."""
    rows = data.frame.rows
    if chosen.held_out == 0 or rows < 2:
        return np.arange(rows), np.arange(0)
    return hold_out(rows, min(chosen.held_out * data.rows / rows, 0.5) if data.stream else chosen.held_out, seed)


def _tree(schema: Schema, rows: Numbers, chosen: Defaults, seed: int) -> LatentTree:
    if len(schema.columns) == 1:
        return LatentTree((-1,), ((0,),))
    if len(rows) > chosen.tree_rows:
        rows = rows[np.sort(np.random.default_rng(seed).permutation(len(rows))[: chosen.tree_rows])]
    kinds = ["categorical" if c.coded else chosen.tree_reals if c.real else "ordinal" for c in schema.columns]
    groups = _groups(schema, rows, chosen)
    return hidden_chow_liu(rows, kinds, groups=groups, bins=chosen.tree_bins, smoothing=chosen.tree_smoothing)


def _groups(schema: Schema, rows: Numbers, chosen: Defaults) -> list[list[int]]:
    """The columns of each latent: Gaussian ones together, the most correlated first if there are too many."""
    groups = [[column] for column in range(len(schema.columns))]
    joint = [i for i, column in enumerate(schema.columns) if isinstance(column.family, Gaussian)]
    if len(joint) > 1 and chosen.block > 1:
        weights = mutual_information(rows[:, joint], ["gaussian"] * len(joint), smoothing=chosen.tree_smoothing)
        for i, j in np.dstack(np.unravel_index(np.argsort(-weights, None, kind="stable"), weights.shape))[0]:
            a, b = groups[joint[i]], groups[joint[j]]
            alike = schema.columns[a[0]].family == schema.columns[b[0]].family
            if a is not b and alike and len(a) + len(b) <= chosen.block:
                a += b
                for column in b:
                    groups[column] = a
    return list({id(group): group for group in groups}.values())


def _train(
    schema: Schema,
    tree: LatentTree,
    train: Any,
    valid: Numbers,
    chosen: Defaults,
    seed: int,
    callbacks: Sequence[Callback],
    checkpoints: Mapping[str, Any],
) -> tuple[PIC, History]:
    source = torch.Generator().manual_seed(seed)
    pic = PIC(
        tree, schema.families, chosen.width, chosen.sharing, chosen.input_sharing, sigma=chosen.sigma,
        correlated=chosen.block > 1, generator=source,
    )  # fmt: skip
    return fit(
        pic,
        train,
        valid.astype(np.float32) if len(valid) else None,
        rule=shifted(chosen.points),
        batch_size=chosen.batch_size,
        steps=chosen.steps,
        schedule=Cosine(chosen.rate, chosen.final_rate, period=None, warmup=min(20, chosen.steps // 10)),
        optimizer="adamw",
        weight_decay=chosen.weight_decay,
        clip=chosen.clip,
        validate_every=chosen.validate_every,
        patience=chosen.patience,
        seed=seed,
        callbacks=callbacks,
        **checkpoints,
    )


def _training(history: History) -> dict[str, Any]:
    """The history as plain JSON values, with null for numbers that are not finite."""
    records = [{k: v if math.isfinite(v) else None for k, v in record.items()} for record in history.records]
    best = int(history.best["step"]) if history.records else 0
    return {"stopped": history.stopped, "best_step": best, "records": records}


def _mean_held_out(schema: Schema, rows: Numbers, members: Sequence[Member], chosen: Defaults) -> float | None:
    """The mean log-density of the rows held out, each under the models that have not seen it."""
    scores = [_mean(TableModel(schema, pic, chosen.points), rows[held]) for pic, _, held in members]
    known = [score for score in scores if score is not None]
    return sum(known) / len(known) if known else None


def _mean(model: TableModel, rows: Numbers) -> float | None:
    """The mean log-density of encoded rows, in the units of the table."""
    if not len(rows):
        return None
    found = float(model.log_density_of_encoded(rows[:_SCORED]).mean())
    return found if math.isfinite(found) else None
