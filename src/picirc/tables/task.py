# SPDX-License-Identifier: Apache-2.0
"""What is to be fitted to a table, and what has been."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from picirc.data.datasets import hold_out
from picirc.interrupts import Interrupts
from picirc.learning import Cosine, fit
from picirc.learning.history import Callback, History, Record
from picirc.learning.loop import without
from picirc.learning.processes import Processes
from picirc.model import Model
from picirc.pic import Ensemble
from picirc.structure.information import mutual_information
from picirc.structure.trees import LatentTree, latent_tree
from picirc.tables import mixtures
from picirc.tables.column import Numbers
from picirc.tables.defaults import (
    FEWEST_STAR_COLUMNS,
    FEWEST_TREES_COLUMNS,
    MOST_AVERAGED,
    MOST_TREE_COLUMNS,
    MOST_WORK,
    NET_SECONDS,
    SEARCHED_ROWS,
    STAR_SHARE,
    USUAL_STATES,
    Defaults,
)
from picirc.tables.model import rule_of
from picirc.tables.schema import Schema
from picirc.tables.streaming import StreamRows, TableData

_SPLITS = 1_000_003  # added to the seed, as synthetic tables often come from the generator with the same small seed


@dataclass(frozen=True)
class Task:
    """What is to be fitted, and how.

    Attributes:
        data: The table.
        schema: Its columns.
        rows: Its rows, encoded; or a sample of them.
        settings: The settings of each kind.
        kind: The kind that is asked for, or ``"auto"``.
        seed: The seed.
        target: The place of a column to predict, if there is one.
        checkpoints: Where checkpoints go.
        callbacks: Called with every record.
        interrupts: Whether the user ended the fit.
    """

    data: TableData
    schema: Schema
    rows: Numbers
    settings: Callable[[str], Defaults]
    kind: str
    seed: int
    target: int | None
    checkpoints: dict[str, Any]
    callbacks: Sequence[Callback] = field(default=())
    interrupts: Interrupts = field(default_factory=Interrupts)

    @cached_property
    def chosen(self) -> Defaults:
        """The settings that all kinds have in common."""
        return self.settings(self.kind)

    def split(self, member: int) -> tuple[Any, Any]:
        """The rows that a member learns from, and those held out, of the table or of its sample."""
        rows, share = self.data.frame.rows, self.chosen.held_out
        if share == 0 or rows < 2:
            return np.arange(rows), np.arange(0)
        if self.data.stream:
            share = min(share * self.data.rows / rows, 0.5)
        return hold_out(rows, share, _SPLITS + self.seed + member)

    @property
    def judged(self) -> bool:
        """Whether there are rows held out."""
        return len(self.split(0)[1]) > 0

    @property
    def sharpens(self) -> bool:
        """Whether training goes on for the sake of a column to predict."""
        return self.target is not None and self.data.stream is None and self.judged

    @property
    def kinds(self) -> list[str]:
        """The kinds of models to try: those that can be trained in reasonable time, if none is asked for."""
        if self.kind != "auto":
            return [self.kind]
        lasting = self.data.stream is not None or self.checkpoints["out"] is not None or Processes.current().count > 1
        if lasting or not mixtures.is_affordable(self.schema, self.rows):
            return ["tree"]
        # Without rows held out there is nothing to choose by; a mixture with a single state is hardly ever wrong.
        if not self.judged:
            return ["mixture"]
        columns = self.schema.columns
        coded = sum(column.coded for column in columns)
        if coded < max(FEWEST_STAR_COLUMNS, STAR_SHARE * len(columns)):
            nets = ["tree"]  # numbers that are independent given a vector were never ahead of those that are correlated
        else:
            several = self.chosen.members == 1 and len(columns) >= FEWEST_TREES_COLUMNS
            nets = ["trees" if several else "tree", "star"]
        return ["mixture", *(kind for kind in nets if kind == "star" or len(columns) <= MOST_TREE_COLUMNS)]

    @property
    def expected(self) -> float:
        """A rough estimate of the seconds that the fit will take."""
        own, kinds = self.chosen, self.kinds
        found = 0.0
        if "mixture" in kinds:
            searched = replace(own, em_passes=min(own.em_passes, SEARCHED_ROWS / len(self.rows)))
            states = min(USUAL_STATES, 1 + MOST_WORK / mixtures.work_of_state(self.schema, self.rows, searched))
            found += states * mixtures.seconds_of_state(self.schema, self.rows, searched)
        polished = own.polishing.steps if self.sharpens else 0
        if "mixture" in kinds:
            found += MOST_AVERAGED * polished * NET_SECONDS[0]
        if nets := [kind for kind in kinds if kind != "mixture"]:
            step, column = NET_SECONDS
            steps = own.members * (own.steps + polished) + (len(nets) - 1) * own.shortened.steps
            first = self.settings(nets[0])
            squares = first.trees * (1 - 0.75 * first.coarse) * first.points**2  # half the points are a quarter
            found += steps * (step + column * self.schema.width * squares)
        return found

    @cached_property
    def information(self) -> Numbers:
        """The mutual information of all pairs of columns, in nats, by the rows that the members learn from."""
        chosen, columns = self.chosen, self.schema.columns
        kinds = ["categorical" if c.coded else chosen.tree_reals if c.real else "ordinal" for c in columns]
        kinds += ["categorical"] * len(self.schema.indicators)
        return mutual_information(self._seen, kinds, bins=chosen.tree_bins, smoothing=chosen.tree_smoothing)

    @property
    def _seen(self) -> Numbers | StreamRows:
        """Rows that all members learn from, or all rows where each member sees others."""
        held = self.split(0)[1] if self.chosen.members == 1 else np.arange(0)
        if self.data.stream is not None:
            return self.data.parts(self.schema, self.rows, held)
        rows = np.delete(self.rows, held, 0)
        some = np.random.default_rng(self.seed).permutation(len(rows))[: self.chosen.tree_rows]
        return rows if len(some) == len(rows) else rows[np.sort(some)]

    def tree(self, groups: Sequence[Sequence[int]]) -> LatentTree:
        """The tree of latents with the columns of a group each."""
        if len(groups) == 1:  # no pairs to compare
            return LatentTree((-1,), (tuple(sorted(groups[0])),))
        return latent_tree(self.information, groups)

    def train_member(
        self, model: Any, number: int, own: Defaults, target: int | None, callbacks: Sequence[Callback], **places: Any
    ) -> tuple[Any, History]:
        """Train a model by gradient, as the member with some number."""
        kept, held = self.split(number)
        seed = self.seed + number
        return fit(
            model,
            self.data.training(self.schema, self.rows, kept, held, own.batch_size, seed),
            self.rows[held].astype(np.float32) if len(held) else None,
            rule=rule_of(model, own.points),
            coarse=own.coarse if model.has_rule else 0.0,
            batch_size=own.batch_size,
            steps=own.steps,
            schedule=Cosine(own.rate, own.final_rate, period=None, warmup=min(20, own.steps // 10)),
            optimizer="adamw",
            weight_decay=own.weight_decay,
            clip=own.clip,
            target=target,
            emphasis=own.emphasis,
            validate_every=own.validate_every,
            patience=own.patience,
            seed=seed,
            callbacks=callbacks,
            **places,
        )

    def counted(self, done: float, steps: float, taken: int, target: bool = False) -> list[Callback]:
        """Callbacks that count a training of ``taken`` steps as ``steps`` of them, after those done before.

        The scores of a column to predict are not those of whole rows, and are not shown.
        """

        def counting(callback: Callback) -> Callback:
            def call(record: Record) -> None:
                own = min(steps, math.ceil(steps * record["step"] / taken))
                callback({**record, "step": round(done + own)} | ({"bits": math.nan} if target else {}))

            return call

        return [counting(callback) for callback in self.callbacks]

    def sharpened(
        self, member: Any, number: int, own: Defaults, callbacks: Sequence[Callback] = ()
    ) -> tuple[Any, History]:
        """Go on with the training of a member, now for the sake of a column to predict; single precision will do."""
        return self.train_member(member.float(), number, own, self.target, callbacks)

    def log_densities(self, model: Model, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Two log-densities of each row that a member has not seen, the difference of which is its score.

        The second is zero, or that of the columns beside the one to predict, if training is for its sake.
        """
        rows = torch.as_tensor(self.rows[self.split(number)[1]])
        with torch.no_grad():
            joint = model().log_prob(rows).double()
            if self.target is None or not self.sharpens:
                return joint, torch.zeros_like(joint)
            return joint, model().log_prob(without(rows, self.target)).double()


@dataclass(frozen=True)
class Fitted:
    """A trained model.

    Attributes:
        kind: What it is.
        chosen: Its settings.
        model: The model.
        members: Models that have not seen the rows that their split holds out.
        histories: How these were trained.
        scores: For each split the mean log-density of encoded rows held out; of a column to predict given the others,
            if there is one; nothing without such rows.
        finish: Trains the model with all rows, if it is worth it: for the winner only.
    """

    kind: str
    chosen: Defaults
    model: Model
    members: Sequence[Model]
    histories: Sequence[History]
    scores: Sequence[float]
    finish: Callable[[], Model] | None = None

    @staticmethod
    def of(task: Task, kind: str, chosen: Defaults, pairs: Sequence[tuple[Any, History]]) -> Fitted:
        """The average of trained members."""
        members, histories = [member for member, _ in pairs], [history for _, history in pairs]
        scores = [score_of(history) for history in histories if task.judged]
        return Fitted(kind, chosen, averaged(members), members, histories, scores)

    @property
    def score(self) -> float | None:
        """The mean of the scores."""
        return statistics.mean(self.scores) if self.scores else None

    @property
    def worth(self) -> float:
        """The score as a number."""
        return -math.inf if self.score is None else self.score

    def unfinished(self, rival: Fitted) -> Fitted:
        """The same with the scores to be expected of all members: those of a rival and what the first members lack."""
        lead = statistics.mean(own - other for own, other in zip(self.scores, rival.scores, strict=False))
        return replace(self, scores=[other + lead for other in rival.scores])


def score_of(history: History) -> float:
    """The best score of a training; the least possible if it was interrupted before the first."""
    return history.best["valid"] if history.records else -math.inf


def averaged(members: Sequence[Any]) -> Model:
    """The average of trained models of one kind."""
    if len(members) == 1:
        found: Model = members[0]
        return found
    return Ensemble(members) if members[0].has_rule else mixtures.average(members)
