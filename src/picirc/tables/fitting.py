# SPDX-License-Identifier: Apache-2.0
"""Fitting a model to a table."""

from __future__ import annotations

import math
import statistics
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from picirc.checks import check_integer
from picirc.data.dataset import hold_out
from picirc.data.frames import few
from picirc.errors import ArgumentError
from picirc.inputs import Gaussian
from picirc.learning import Cosine, fit
from picirc.learning.history import Callback, History, Progress
from picirc.learning.processes import Processes
from picirc.model import Model
from picirc.pic import PIC, Ensemble
from picirc.quadrature import shifted
from picirc.structure.information import mutual_information
from picirc.structure.trees import LatentTree, latent_tree
from picirc.tables import mixtures
from picirc.tables.calibration import calibrated, marginals, recoded
from picirc.tables.column import EMPTY, Declared, Numbers
from picirc.tables.defaults import CALIBRATED, LEAST_GAIN, MOST_TREE_COLUMNS, ROWS_PER_KNOT, Defaults, choose
from picirc.tables.inference import AUTO, declarations, far_values, unhelpful_columns
from picirc.tables.model import TableModel
from picirc.tables.schema import Schema
from picirc.tables.streaming import StreamRows, TableData, read_data

_SCORED = 10_000  # rows, enough for a summary
_SPLITS = 1_000_003  # added to the seed, as synthetic tables often come from the generator with the same small seed


class ColumnWarning(UserWarning):
    """A table has columns from which nothing can be learned, or values that may stand for missing ones."""


Member = tuple[PIC, History]  # a model, and how it was trained


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

    Two kinds of models are trained, and the better one is kept. A *mixture* has a single latent, and correlations of
    the Gaussian columns in each of its states; it is trained by EM, with as many states as rows that are held out ask
    for. A *tree* is a probabilistic integral circuit: Gaussian columns share a latent, given which they are correlated,
    every other column has a latent of its own, and the tree of the latents is the Chow–Liu tree of the columns; its
    training stops when the likelihood of the rows held out no longer improves. For a small table several models are
    trained, each with other rows held out, and averaged. In the end the marginals of the model are made those of the
    table, if rows held out are more probable with that. Everything that is not given is chosen from the size of the
    table. If settings of the nets are given (``points``, ``width``, ``steps``, …), the model is a tree.

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
    schema = data.schema(columns, unseen, chosen.floor).with_missingness(missingness)
    if all(column.kind == EMPTY for column in schema.columns):
        raise ArgumentError("table", "a value in at least one column", "missing cells or identifiers only")
    for message, remarks in (
        ("nothing can be learned from some columns, drop them", unhelpful_columns(frame, schema.columns)),
        (
            "values far from all others may stand for missing ones; if so, remove them",
            far_values(frame, schema.columns),
        ),
    ):
        if remarks:
            warnings.warn(f"{message}: {'; '.join(remarks)}.", ColumnWarning, stacklevel=2)
    rows = schema.encode(frame)
    checkpoints = {"out": None if out is None else Path(out), "checkpoint_every": checkpoint_every, "resume": resume}
    if target is not None and target not in schema.names:
        raise ArgumentError("target", f"the name of a column ({few(schema.names)})", repr(target)[:80])
    place = None if target is None else schema.index(target)
    task = _Task(data, schema, rows, chosen, seed, place, checkpoints)
    with ExitStack() as stack:
        if sys.stderr.isatty() and not callbacks if progress is None else progress:
            callbacks = [*callbacks, stack.enter_context(Progress(chosen.planned))]
        fitted = _fitted(replace(task, callbacks=callbacks))
    declared = declarations(columns, frame.names)
    model, valid = _calibrated(task, fitted, [name for name in schema.names if declared[name] != AUTO])
    kept, held = task.split(0)
    rows = recoded(schema.columns, model.schema.columns, rows)
    model.summary = {
        "rows": {"train": data.rows - len(held), "valid": len(held)},
        "columns": len(schema.columns),
        "seed": seed,
        "settings": asdict(chosen),
        "kind": fitted.kind,
        "scores": fitted.scores,
        "training": _training(fitted.histories[0]) | {"stopped": fitted.histories[-1].stopped},
        # Several models have learned from every row, a single one only from those kept.
        "log_density": {"train": _mean(model, rows if chosen.members > 1 else rows[kept]), "valid": valid},
        "seconds": {"training": time.perf_counter() - started},
    }
    return model


@dataclass(frozen=True)
class _Task:
    """What is to be fitted, and how.

    Attributes:
        data: The table.
        schema: Its columns.
        rows: Its rows, encoded; or a sample of them.
        chosen: The settings.
        seed: The seed.
        target: The place of a column to predict, if there is one.
        checkpoints: Where checkpoints go.
        callbacks: Called with every record.
    """

    data: TableData
    schema: Schema
    rows: Numbers
    chosen: Defaults
    seed: int
    target: int | None
    checkpoints: dict[str, Any]
    callbacks: Sequence[Callback] = field(default=())

    def split(self, member: int) -> tuple[Any, Any]:
        """The rows that a member learns from, and those held out, of the table or of its sample."""
        rows, share = self.data.frame.rows, self.chosen.held_out
        if share == 0 or rows < 2:
            return np.arange(rows), np.arange(0)
        if self.data.stream:
            share = min(share * self.data.rows / rows, 0.5)
        return hold_out(rows, share, _SPLITS + self.seed + member)

    @property
    def splits(self) -> list[tuple[Any, Any]]:
        """The splits of all members."""
        return [self.split(member) for member in range(self.chosen.members)]

    @property
    def sharpens(self) -> bool:
        """Whether training goes on for the sake of a column to predict."""
        return self.target is not None and self.data.stream is None and len(self.split(0)[1]) > 0

    @property
    def kinds(self) -> list[str]:
        """The kinds of models to try: those that can be trained in reasonable time, if none is asked for."""
        if self.chosen.kind != "auto":
            return [self.chosen.kind]
        lasting = self.data.stream is not None or self.checkpoints["out"] is not None or Processes.current().count > 1
        if lasting or not mixtures.is_affordable(self.schema, self.rows):
            return ["tree"]
        # Without rows held out there is nothing to choose by; a mixture with a single state is hardly ever wrong.
        wide = len(self.schema.columns) > MOST_TREE_COLUMNS
        return ["mixture"] if wide or not len(self.split(0)[1]) else ["mixture", "tree"]


@dataclass(frozen=True)
class _Fitted:
    """A trained model.

    Attributes:
        kind: What it is: ``"tree"`` or ``"mixture"``.
        model: The model.
        members: Models that have not seen the rows that their split holds out.
        histories: How these were trained.
        scores: The mean log-density of encoded rows held out, for each kind that was tried; None without such rows.
    """

    kind: str
    model: Model
    members: Sequence[Model]
    histories: Sequence[History]
    scores: dict[str, float | None]

    @property
    def score(self) -> float:
        found = self.scores[self.kind]
        return -math.inf if found is None else found


def _fitted(task: _Task) -> _Fitted:
    """The best model on the rows held out, of the kinds that can be had."""
    found: list[_Fitted] = []
    rival = -math.inf  # what the first member of a tree has to reach for others to be trained
    for kind in task.kinds:
        if kind == "tree":
            found.append(_trees(task, rival))
        elif task.target is None:
            found.append(_mixtures(task))
        elif task.schema.columns[task.target].categories:
            found.append(_mixtures_of_classes(task, task.target))
        else:
            found.append(_sharpened(_mixtures(task), task))
        if found[-1].histories[-1].stopped == "interrupted":
            break
        if found[-1].histories[0].records:  # a mixture of classes that is not trained further has none
            rival = found[-1].histories[0].best["valid"]
    best = max(found, key=lambda fitted: fitted.score)
    return replace(best, scores={kind: score for fitted in found for kind, score in fitted.scores.items()})


def _sharpened(fitted: _Fitted, task: _Task) -> _Fitted:
    """Go on with the training of every member, now for the sake of a column to predict."""
    if not task.sharpens:
        return fitted
    pairs = [_sharpen(member, task, number) for number, member in enumerate(fitted.members)]
    members, histories = [member for member, _ in pairs], [history for _, history in pairs]
    score = statistics.mean(history.best["valid"] for history in histories)
    return _Fitted(fitted.kind, _averaged(members), members, histories, {fitted.kind: score})


def _sharpen(member: Any, task: _Task, number: int) -> tuple[Any, History]:
    chosen, steps, rate = task.chosen, task.chosen.target_steps, task.chosen.target_rate
    kept, held = task.split(number)
    return fit(
        member,
        task.rows[kept],
        task.rows[held],
        rule=shifted(chosen.points) if member.has_rule else None,
        batch_size=chosen.batch_size,
        steps=steps,
        schedule=Cosine(rate, rate / 30, period=None, warmup=steps // 20),
        clip=chosen.clip,
        target=task.target,
        emphasis=chosen.emphasis,
        validate_every=max(1, steps // 20),
        patience=max(1, steps // 4),
        seed=task.seed + number,
    )


def _averaged(members: Sequence[Any]) -> Model:
    """The average of trained models of one kind."""
    if len(members) == 1:
        found: Model = members[0]
        return found
    return Ensemble(members) if members[0].has_rule else mixtures.average(members)


def _mixtures(task: _Task) -> _Fitted:
    best = mixtures.search(task.schema, task.rows, task.splits, task.chosen, task.seed, task.callbacks)
    members = best.members
    if task.chosen.members > 1:
        members = mixtures.refit(task.schema, task.rows, best, task.chosen, task.seed)
    score = best.score if len(task.split(0)[1]) else None
    return _Fitted("mixture", _averaged(members), best.members, best.histories, {"mixture": score})


def _mixtures_of_classes(task: _Task, target: int) -> _Fitted:
    """Mixtures trained for a column to predict: the states of each category and the smoothing that are best at that."""
    tried: dict[tuple[int, float], _Fitted] = {}
    classes = len(task.schema.columns[target].categories)

    def score(states: int, smoothing: float) -> float:
        if states > 1 and states * classes > task.chosen.states:
            return -math.inf
        if (states, smoothing) not in tried:
            own = replace(task.chosen, smoothing=smoothing)
            members = mixtures.of_classes(task.schema, task.rows, task.splits, target, states, own, task.seed)
            begun = _Fitted("mixture", _averaged(members), members, [History()], {"mixture": None})
            tried[states, smoothing] = _sharpened(begun, task)
        return tried[states, smoothing].score

    states, smoothing = 1, task.chosen.smoothing
    while score(4 * states, smoothing) > score(states, smoothing) + LEAST_GAIN:
        states *= 4
    while score(states, 3 * smoothing) > score(states, smoothing) + LEAST_GAIN:
        smoothing *= 3
    return tried[states, smoothing]


def _trees(task: _Task, rival: float) -> _Fitted:
    members = _members(task, _tree(task), rival)
    pics, histories = [pic for pic, _ in members], [history for _, history in members]
    score = statistics.mean(history.best["valid"] for history in histories) if len(task.split(0)[1]) else None
    return _Fitted("tree", _averaged(pics), pics, histories, {"tree": score})


def _members(task: _Task, tree: LatentTree, rival: float) -> list[Member]:
    """Train the models to average, or one only if that is worse than a rival.

    The callbacks count their steps consecutively.
    """
    found: list[Member] = []
    chosen, out = task.chosen, task.checkpoints["out"]
    for number in range(chosen.members):
        kept, held = task.split(number)

        def count_on(record: Mapping[str, float], done: int = chosen.planned_em + number * chosen.steps) -> None:
            for callback in task.callbacks:
                callback({**record, "step": record["step"] + done})

        own = [count_on] if task.callbacks else []
        seed = task.seed + number
        train = task.data.training(task.schema, task.rows, kept, held, chosen.batch_size, seed)
        places = task.checkpoints | {"out": None if out is None else out / f"member{number}"}
        pic, history = _train(task.schema, tree, train, task.rows[held], chosen, seed, own, places)
        if task.sharpens and history.stopped != "interrupted":
            pic, history = _sharpen(pic, task, number)
        found.append((pic, history))
        if found[-1][1].stopped == "interrupted" or found[-1][1].best["valid"] < rival:
            break
    return found


def _tree(task: _Task) -> LatentTree:
    """The tree of the rows that the members learn from."""
    schema, chosen = task.schema, task.chosen
    if schema.width == 1:
        return LatentTree((-1,), ((0,),))
    kinds = ["categorical" if c.coded else chosen.tree_reals if c.real else "ordinal" for c in schema.columns]
    kinds += ["categorical"] * len(schema.indicators)
    weights = mutual_information(_tree_rows(task), kinds, bins=chosen.tree_bins, smoothing=chosen.tree_smoothing)
    return latent_tree(weights, _groups(schema, weights, chosen.block))


def _tree_rows(task: _Task) -> Numbers | StreamRows:
    held = task.split(0)[1] if task.chosen.members == 1 else np.arange(0)
    if task.data.stream is not None:
        return task.data.parts(task.schema, task.rows, held)
    rows = np.delete(task.rows, held, 0)
    chosen = np.random.default_rng(task.seed).permutation(len(rows))[: task.chosen.tree_rows]
    return rows if len(chosen) == len(rows) else rows[np.sort(chosen)]


def _groups(schema: Schema, weights: Numbers, most: int) -> list[list[int]]:
    """The columns of each latent: Gaussian ones together, those that know most of each other first, up to ``most``."""
    groups = [[column] for column in range(schema.width)]
    joint = [i for i, column in enumerate(schema.columns) if isinstance(column.family, Gaussian)]
    if len(joint) > 1 and most > 1:
        between = weights[np.ix_(joint, joint)]
        for i, j in np.dstack(np.unravel_index(np.argsort(-between, None, kind="stable"), between.shape))[0]:
            a, b = groups[joint[i]], groups[joint[j]]
            alike = schema.columns[a[0]].family == schema.columns[b[0]].family
            if a is not b and alike and len(a) + len(b) <= most:
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


def _calibrated(task: _Task, fitted: _Fitted, declared: Sequence[str]) -> tuple[TableModel, float | None]:
    """The model, calibrated if rows held out are then more probable, and their mean log-density.

    Each of these rows is judged by the models that have not seen it.
    """
    schema, points = task.schema, task.chosen.points
    members = [TableModel(schema, member, points) for member in fitted.members]
    known = [marginals(member) for member in members]

    def score(pieces: int) -> float:
        scores = []
        for number, member in enumerate(members):
            kept, held = task.split(number)
            found = calibrated(member, known[number], task.rows[kept], pieces, declared) if pieces else member
            scores.append(_mean(found, recoded(schema.columns, found.schema.columns, task.rows[held])))
        values = [value for value in scores if value is not None]
        return sum(values) / len(values) if values else -math.inf

    model = TableModel(schema, fitted.model, points)
    # Codes that were trained to predict a column stay as they are.
    tried = [pieces for pieces in CALIBRATED if pieces * ROWS_PER_KNOT <= len(task.rows) and not task.sharpens]
    scores = {pieces: score(pieces) for pieces in (0, *tried)}
    best = max(scores, key=lambda pieces: scores[pieces])
    valid = scores[best] if math.isfinite(scores[best]) else None
    return (calibrated(model, marginals(model), task.rows, best, declared) if best else model), valid


def _mean(model: TableModel, rows: Numbers) -> float | None:
    """The mean log-density of encoded rows, in the units of the table."""
    if not len(rows):
        return None
    found = float(model.log_density_of_encoded(rows[:_SCORED]).mean())
    return found if math.isfinite(found) else None
