# SPDX-License-Identifier: Apache-2.0
"""The kinds of models that compete for a table: mixtures by EM, and nets (trees and stars) by gradient.

A candidate trains its members, each without some rows, tells how probable these are, and is finished as the average of
its members.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from picirc.inputs import Gaussian
from picirc.learning.history import Callback, History, Record
from picirc.pic import PIC
from picirc.structure.trees import LatentTree, star
from picirc.tables.column import Numbers
from picirc.tables.defaults import FARTHEST_BEHIND, LEAST_GAIN, RACE_PART, Defaults
from picirc.tables.schema import Schema
from picirc.tables.search import Mixtures
from picirc.tables.task import Fitted, Task, score_of


def compete(task: Task) -> tuple[Fitted, dict[str, float | None], dict[str, float]]:
    """The best model on the rows held out, of the kinds that are tried.

    Nets take longest. If there are several, they race first: the one that is ahead after a part of the steps is
    trained. For the sake of a column to predict it is not trained if it is then far behind the mixture.

    If the user ends the fit, the best model so far is returned.

    Returns:
        The model, the scores of all kinds that were trained, and those in the race.

    Raises:
        KeyboardInterrupt: The user ended the fit before anything was learned.
    """
    with task.interrupts:
        winner, scores, race = _compete(task)
        if task.judged and not math.isfinite(winner.worth):
            task.interrupts.check()
        if winner.finish and not task.interrupts.asked:
            model = winner.finish()
            winner = winner if task.interrupts.asked else replace(winner, model=model)
    return winner, scores, race


def _compete(task: Task) -> tuple[Fitted, dict[str, float | None], dict[str, float]]:
    kinds = task.kinds
    nets = {kind: Nets(task, kind) for kind in kinds if kind != "mixture"}
    found: list[Fitted] = [Mixtures(task).fitted()] if "mixture" in kinds else []
    race: dict[str, float] = {}
    if nets and not task.interrupts.asked:
        done, rival = task.chosen.planned_em, found[-1] if found else None
        # How well whole rows are learned says little about how well a column will be predicted in the end.
        hopeless = -math.inf
        if rival and task.sharpens:
            hopeless = rival.scores[0] - FARTHEST_BEHIND * abs(rival.scores[0])
        if len(nets) > 1 or math.isfinite(hopeless):
            for kind, net in nets.items():
                race[kind] = net.sprint(done)
                done += net.chosen.shortened.steps
        best = max(nets, key=lambda kind: race.get(kind, 0.0))
        if race.get(best, 0.0) > hopeless:
            found.append(replace(nets[best], done=done).fitted(rival))
    return max(found, key=_merit(found)), {one.kind: one.score for one in found}, race


def _merit(found: Sequence[Fitted]) -> Callable[[Fitted], float]:
    """What to choose by: the mean score on the splits that all have, as another split may be easier.

    An average of several members predicts better than each of them, which the scores do not show.
    """
    splits = min(len(one.scores) for one in found)
    return lambda one: sum(one.scores[:splits]) / max(1, splits) + (LEAST_GAIN if len(one.scores) > splits else 0.0)


@dataclass(frozen=True)
class Nets:
    """PICs: one tree of scalar latents, several that are mixed, or a star, in which all columns depend on one vector.

    Attributes:
        task: What is to be fitted.
        kind: ``"tree"``, ``"trees"`` or ``"star"``.
        done: The number of steps that callbacks have seen before.
    """

    task: Task
    kind: str
    done: int = 0

    @cached_property
    def chosen(self) -> Defaults:
        """The settings of the kind."""
        return self.task.settings(self.kind)

    @cached_property
    def structure(self) -> LatentTree:
        """The tree of the rows that the members learn from, or the star."""
        task = self.task
        if self.kind == "star":
            return star(task.schema.width)
        return task.tree(_groups(task.schema, task.information, self.chosen.block) if task.schema.width > 1 else [[0]])

    def sprint(self, done: int) -> float:
        """The score of a member after a part of the steps."""
        short = self.chosen.shortened
        return score_of(self._member(0, short, short.sharpening, done, self.task.checkpoints)[1])

    def fitted(self, rival: Fitted | None) -> Fitted:
        """Train the members, as long as they are better than those of a rival; callbacks count consecutively."""
        pairs: list[tuple[PIC, History]] = []
        out = self.task.checkpoints["out"]
        for number in range(self.chosen.members):
            places = self.task.checkpoints | {"out": None if out is None else out / f"member{number}"}
            done = self.done + number * self.chosen.steps
            known = rival.scores[number] if rival else -math.inf
            # Trees that are mixed learn a cluster of rows each at first, and their scores then say little.
            least = self.chosen.steps / (2 if self.chosen.trees > 1 else RACE_PART)
            ends = [out_of_reach(known, self.chosen.steps, least)]
            pairs.append(self._member(number, self.chosen, self.chosen.polishing, done, places, ends))
            found = Fitted.of(self.task, self.kind, self.chosen, pairs)
            if self.task.interrupts.asked:
                break
            if rival and found.unfinished(rival).worth < rival.worth:
                return found.unfinished(rival)
        return found

    def _member(
        self,
        number: int,
        own: Defaults,
        sharpening: Defaults,
        done: int,
        places: Mapping[str, Any],
        ends: Sequence[Callback] = (),
    ) -> tuple[PIC, History]:
        task = self.task
        pic = PIC(
            self.structure, task.schema.families, own.width, own.sharing, own.input_sharing, dims=own.dims,
            shared=own.trees if own.trees > 1 else None, sigma=own.sigma, correlated=own.block > 1,
            generator=torch.Generator().manual_seed(task.seed + number),
        )  # fmt: skip
        # Of the steps that are counted, some are for the column to predict.
        share = own.steps / (own.steps + sharpening.steps) if task.sharpens else 1.0
        callbacks = task.counted(done, share * own.steps, own.steps)
        # Whole rows say little about how well a column will be predicted in the end.
        callbacks += () if task.sharpens else ends
        found, history = task.train_member(pic, number, own, None, callbacks, **places)
        if task.sharpens and not task.interrupts.asked:
            callbacks = task.counted(done + share * own.steps, (1 - share) * own.steps, sharpening.steps, target=True)
            found, history = task.sharpened(found, number, sharpening, callbacks)
        return found, history


def out_of_reach(rival: float, steps: int, least: float) -> Callback:
    """A callback that ends a training of so many steps, after the least number, if it will not reach a rival's score.

    That is what follows from twice the gain since half as many steps, each time that their number doubles.
    """
    best: dict[float, float] = {}

    def call(record: Record) -> None:
        step = record["step"]
        best[step] = max(record["valid"], *best.values()) if best else record["valid"]
        before = [score for at, score in best.items() if at <= step / 2]
        if before and step >= least:
            gain = best[step] - before[-1]
            if best[step] + 2 * gain * math.log2(steps / step) < rival:
                raise StopIteration("the score of another model is out of reach")

    return call


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
