# SPDX-License-Identifier: Apache-2.0
"""Fitting a model to a table."""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from picirc.checks import check_integer
from picirc.data.frames import Frame, few
from picirc.errors import ArgumentError
from picirc.learning.history import Callback, History, Progress
from picirc.tables.calibration import Marginal, calibrated, marginals, recoded
from picirc.tables.candidates import compete
from picirc.tables.column import EMPTY, SCORES, Declared, Numbers
from picirc.tables.defaults import CALIBRATED, FEWEST_ORDERED, LEAST_GAIN, ROWS_PER_KNOT, Defaults, choose
from picirc.tables.inference import AUTO, declarations, far_values, unhelpful_columns
from picirc.tables.model import TableModel
from picirc.tables.schema import Schema
from picirc.tables.search import Mixtures
from picirc.tables.streaming import read_data
from picirc.tables.task import Fitted, Task

_SCORED = 10_000  # rows, enough for a summary


class ColumnWarning(UserWarning):
    """A table has columns from which nothing can be learned, or values that may stand for missing ones."""


def fit_table(
    table: Any,
    columns: Declared | Mapping[Any, Declared] | None = None,
    *,
    seed: int = 0,
    unseen: str = "error",
    missingness: bool | Sequence[str] = False,
    points: int | None = None,
    width: int | None = None,
    steps: int | None = None,
    settings: Mapping[str, Any] | None = None,
    target: str | None = None,
    progress: bool | None = None,
    callbacks: Sequence[Callback] = (),
    out: str | Path | None = None,
    checkpoint_every: int = 1000,
    resume: bool = False,
) -> TableModel:
    """Fit a circuit to a table.

    Several kinds of models are trained, and the best on held-out rows is kept:

    - A *mixture* has one latent, in each state of which the Gaussian columns have a covariance of their own. In a table
      of 1,000 rows or more, blocks of related columns may have a latent each, connected by a Chow–Liu tree. EM trains
      it. Held-out rows choose the blocks, the number of states and the smoothing; several such mixtures may be
      averaged.
    - A *tree* is a probabilistic integral circuit. The Gaussian columns share a latent, given which they are
      correlated, every other column has a latent of its own, and a Chow–Liu tree connects the latents. If nearly all
      of 40 columns or more are categories, and there are 1,000 rows or more, four *trees* that share their nets are
      mixed.
    - A *star* is a probabilistic integral circuit in which all columns depend on one vector latent. It is tried if
      nearly all columns are categories.

    Trees and star, if both are tried, are trained for a fifth of the steps, and the better one in full, unless it
    cannot reach the score of the mixture. For a small table, several models with different held-out rows are averaged.
    Finally, the marginals of the model are matched to those of the table if that makes held-out rows more probable.
    Whatever is not given is chosen from the size of the table. If settings of the nets are given (``points``,
    ``width``, ``steps``, …) and no ``kind``, the model is a tree.

    Ctrl-C ends the fit with the best model so far, or with a ``KeyboardInterrupt`` if nothing has been learned yet.

    A table in Parquet files that is larger than 16 million cells is never in memory as a whole: one pass keeps a sample
    of its rows, from which follow the columns, one counts what the tree follows from, and the training reads row groups
    in random order. Several processes that ``torchrun`` has started train one model together, each with row groups of
    its own. In both cases, and with checkpoints, the model is a tree.

    Args:
        table: A data frame (pandas, polars, pyarrow), an array, nested lists, a mapping from names to columns, the path
            of a file or of a folder of Parquet files, a ``pyarrow.dataset`` of such files, or what ``picirc.data.read``
            returns; any cells may be missing.
        columns: What is known of some columns, as for :meth:`Schema.infer`.
        seed: Determines everything random: the same seed gives the same model.
        unseen: What to do later with categories that are not in the table: ``"error"`` or ``"missing"``.
        missingness: Also model whether cells are missing: of the columns named, or with True of all that have missing
            cells. What is missing then tells something about the other cells, ``pc.missing`` is evidence, and samples
            can have gaps.
        points: The number of quadrature points.
        width: The width of the nets, an even number.
        steps: The largest number of training steps.
        settings: Other attributes of :class:`~picirc.tables.defaults.Defaults`, by name.
        target: The name of a column that is to be predicted from the others. Training then goes on with the likelihood
            of that column given the others beside the likelihood of whole rows.
        progress: Show a bar with the time left on the error stream; by default on a terminal only.
        callbacks: Called with every record of the training.
        out: The folder for checkpoints of the training; None for none.
        checkpoint_every: Steps between checkpoints.
        resume: Continue from the checkpoints in ``out``, if there are any.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> height = rng.normal(1.7, 0.1, 80)
        >>> people = {"height": height, "weight": 22 * height**2 + rng.normal(0, 5, 80)}
        >>> model = fit_table(people, points=8, width=16, steps=20)
        >>> model
        TableModel(2 columns, 4 models, 2,584 parameters, 8 points)
        >>> bool(model.impute({"height": [1.9], "weight": [None]})["weight"][0] > 50)
        True
    """
    started, seed = time.perf_counter(), check_integer("seed", seed, 0)
    data = read_data(table, seed)
    frame = data.frame
    named = {"points": points, "width": width, "steps": steps}
    given = dict(settings or {}) | {name: value for name, value in named.items() if value is not None}
    chosen = choose(data.rows, len(frame.names), **given)
    declared = declarations(columns, frame.names)

    def inferred(declared: Mapping[Any, Declared]) -> Schema:
        return data.schema(declared, unseen, chosen.floor).with_missingness(missingness)

    schema = inferred(declared)
    if all(column.kind == EMPTY for column in schema.columns):
        raise ArgumentError("table", "a value in at least one column", "missing cells or identifiers only")
    _warn(frame, schema)
    rows = schema.encode(frame)
    checkpoints = {"out": None if out is None else Path(out), "checkpoint_every": checkpoint_every, "resume": resume}
    if target is not None and target not in schema.names:
        raise ArgumentError("target", f"the name of a column ({few(schema.names)})", repr(target)[:80])
    place = None if target is None else schema.index(target)

    def settings_of(kind: str) -> Defaults:
        return choose(data.rows, len(frame.names), **given | {"kind": kind})

    task = Task(data, schema, rows, settings_of, chosen.kind, seed, place, checkpoints)
    with ExitStack() as stack:
        if sys.stderr.isatty() and not callbacks if progress is None else progress:
            callbacks = [*callbacks, stack.enter_context(Progress(chosen.planned))]
        for shown in callbacks:
            if isinstance(shown, Progress):
                shown.expect(task.expected)
        callbacks = [_clocked(call, started) if isinstance(call, Progress) else call for call in callbacks]
        task = _in_order(replace(task, callbacks=callbacks), declared, inferred)
        fitted, scores, race = compete(task)
    schema = task.schema
    model, valid = _calibrated(task, fitted, [name for name in schema.names if declared[name] != AUTO])
    kept, held = task.split(0)
    rows = recoded(schema.columns, model.schema.columns, task.rows)
    stopped = "interrupted" if task.interrupts.asked else fitted.histories[-1].stopped
    model.summary = {
        "rows": {"train": data.rows - len(held), "valid": len(held)},
        "columns": len(schema.columns),
        "seed": seed,
        "settings": asdict(fitted.chosen) | {"kind": chosen.kind},
        "kind": fitted.kind,
        "scores": scores,
        "race": race,
        "training": _training(fitted.histories[0]) | {"stopped": stopped},
        # Several models have learned from every row, a single net only from those kept.
        "log_density": {"train": _mean(model, rows if chosen.members > 1 else rows[kept]), "valid": valid},
        "seconds": {"training": time.perf_counter() - started},
    }
    return model


def _warn(frame: Frame, schema: Schema) -> None:
    """Say what the user should know of the columns before anything is learned."""
    for message, remarks in (
        ("nothing can be learned from some columns, drop them", unhelpful_columns(frame, schema.columns)),
        (
            "values far from all others may stand for missing ones; if so, remove them",
            far_values(frame, schema.columns),
        ),
    ):
        if remarks:
            warnings.warn(f"{message}: {'; '.join(remarks)}.", ColumnWarning, stacklevel=3)


def _in_order(
    task: Task, declared: Mapping[str, Declared], inferred: Callable[[Mapping[str, Declared]], Schema]
) -> Task:
    """The task with integers of several values as numbers instead of categories, if small mixtures predict better then.

    So they can be correlated with each other, as the marks of an examiner or the grey values of a scan are.
    """
    own = Mixtures(task)
    free = [column for place, column in enumerate(task.schema.columns) if place != task.target]
    several = [
        column.name
        for column in free
        if column.ordered and len(column.categories) >= FEWEST_ORDERED and declared[column.name] == AUTO
    ]
    if not several or "mixture" not in task.kinds or not own.widens:
        return task
    schema = inferred({**declared, **dict.fromkeys(several, SCORES)})
    other = replace(task, schema=schema, rows=schema.encode(task.data.frame))
    with task.interrupts:
        gain = Mixtures(other).trial() - own.trial()
    return other if gain > LEAST_GAIN else task


def _clocked(progress: Callback, started: float) -> Callback:
    """The same with the seconds since the fit began: each training that it consists of counts its own."""
    return lambda record: progress({**record, "seconds": time.perf_counter() - started})


def _training(history: History) -> dict[str, Any]:
    """The history as plain JSON values, with null for numbers that are not finite."""
    records = [{k: v if math.isfinite(v) else None for k, v in record.items()} for record in history.records]
    best = int(history.best["step"]) if history.records else 0
    return {"stopped": history.stopped, "best_step": best, "records": records}


def _calibrated(task: Task, fitted: Fitted, declared: Sequence[str]) -> tuple[TableModel, float | None]:
    """The model, calibrated if rows held out are then more probable, and their mean log-density.

    Each of these rows is judged by the models that have not seen it. Otherwise only the ends of columns are moved, if
    that costs next to nothing.
    """
    schema, points = task.schema, fitted.chosen.points
    members = [TableModel(schema, member, points) for member in fitted.members]
    known = [marginals(member) for member in members]

    def coded(model: TableModel, known: dict[int, Marginal], rows: Numbers, pieces: int | None) -> TableModel:
        return model if pieces is None else calibrated(model, known, rows, pieces, declared)

    def score(pieces: int | None) -> float:
        scores = []
        for number, member in enumerate(members):
            kept, held = task.split(number)
            found = coded(member, known[number], task.rows[kept], pieces)
            scores.append(_mean(found, recoded(schema.columns, found.schema.columns, task.rows[held])))
        values = [value for value in scores if value is not None]
        return sum(values) / len(values) if values else -math.inf

    scores: dict[int | None, float] = {None: score(None)}
    # Codes that were trained to predict a column stay as they are, and so do those that nothing can be judged by.
    if task.judged and not task.sharpens:
        tried = (pieces for pieces in CALIBRATED if pieces * ROWS_PER_KNOT <= len(task.rows))
        scores |= {pieces: score(pieces) for pieces in tried}
    best = max(scores, key=lambda pieces: scores[pieces])
    if best is None and scores.get(0, -math.inf) > scores[None] - LEAST_GAIN:
        best = 0  # draws that reach the ends are worth as much
    model = TableModel(schema, fitted.model, points)
    valid = scores[best] if math.isfinite(scores[best]) else None
    return coded(model, marginals(model), task.rows, best), valid


def _mean(model: TableModel, rows: Numbers) -> float | None:
    """The mean log-density of encoded rows, in the units of the table."""
    if not len(rows):
        return None
    found = float(model.log_density_of_encoded(rows[:_SCORED]).mean())
    return found if math.isfinite(found) else None
