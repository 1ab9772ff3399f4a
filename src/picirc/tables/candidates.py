# SPDX-License-Identifier: Apache-2.0
"""The kinds of models that compete for a table.

A candidate trains its members, each without some rows, tells how probable these are, and is finished as the average of
its members. `Mixtures` are trained by EM, `Nets` (trees and stars) by gradient.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from picirc.data.datasets import hold_out
from picirc.hclt import HCLT
from picirc.inputs import Gaussian
from picirc.interrupts import Interrupts
from picirc.learning import Cosine, fit
from picirc.learning.history import Callback, History, Record
from picirc.learning.loop import without
from picirc.learning.processes import Processes
from picirc.model import Model
from picirc.pic import PIC, Ensemble
from picirc.structure.information import mutual_information
from picirc.structure.trees import LatentTree, latent_tree, star
from picirc.tables import mixtures
from picirc.tables.column import Numbers
from picirc.tables.defaults import (
    BLOCK_STATES,
    BLOCKS,
    ERRORS_BEHIND,
    FARTHEST_BEHIND,
    FEWEST_STAR_COLUMNS,
    FINAL_PART,
    LEAST_GAIN,
    LEAST_TARGET_GAIN,
    MOST_AVERAGED,
    MOST_BLOCK_STATES,
    MOST_EDGE_WEIGHTS,
    MOST_STATES,
    MOST_TREE_COLUMNS,
    MOST_WORK,
    NET_SECONDS,
    RACE_PART,
    ROWS_PER_BLOCK_STATE,
    SEARCHED_ROWS,
    STAR_SHARE,
    TARGET_SMOOTHING,
    USUAL_STATES,
    Defaults,
)
from picirc.tables.model import rule_of
from picirc.tables.schema import Schema
from picirc.tables.streaming import StreamRows, TableData

_STARTS = 1009  # between the seeds of mixtures that are averaged
_SPLITS = 1_000_003  # added to the seed, as synthetic tables often come from the generator with the same small seed


class Place(NamedTuple):
    """A point in the search for a mixture.

    Attributes:
        states: The number of states of each latent.
        smoothing: Pseudo-observations of each distribution.
        block: The largest number of columns that share a latent; 0 for a single latent of all columns.
        spread: How many times as wide states are when the training for a category to predict begins.
    """

    states: int
    smoothing: float
    block: int = 0
    spread: float = 1.0


Move = Callable[[Place], Place]


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
            nets = ["trees" if self.chosen.members == 1 else "tree", "star"]
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
        if nets := [kind for kind in kinds if kind != "mixture"]:
            step, column = NET_SECONDS
            steps = own.members * own.steps + (len(nets) - 1) * own.shortened.steps
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

    def sharpened(
        self, member: Any, number: int, own: Defaults, callbacks: Sequence[Callback] = ()
    ) -> tuple[Any, History]:
        """Go on with the training of a member, now for the sake of a column to predict; single precision will do."""
        return self.train_member(member.float(), number, own.sharpening, self.target, callbacks)

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
        scores = [_score(history) for history in histories if task.judged]
        return Fitted(kind, chosen, _averaged(members), members, histories, scores)

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


class Candidate(Protocol):
    """A kind of models."""

    def fitted(self, rival: Fitted | None) -> Fitted:
        """Train the members, as long as they are better than those of a rival, and finish their average."""


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
    winner = max(found, key=lambda one: one.worth)
    return winner, {one.kind: one.score for one in found}, race


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
        return _score(self._member(0, self.chosen.shortened, done, self.task.checkpoints)[1])

    def fitted(self, rival: Fitted | None) -> Fitted:
        """Train the members, as long as they are better than those of a rival; callbacks count consecutively."""
        pairs: list[tuple[PIC, History]] = []
        out = self.task.checkpoints["out"]
        for number in range(self.chosen.members):
            places = self.task.checkpoints | {"out": None if out is None else out / f"member{number}"}
            done = self.done + number * self.chosen.steps
            known = rival.scores[number] if rival else -math.inf
            pairs.append(self._member(number, self.chosen, done, places, [out_of_reach(known, self.chosen.steps)]))
            found = Fitted.of(self.task, self.kind, self.chosen, pairs)
            if self.task.interrupts.asked:
                break
            if rival and found.unfinished(rival).worth < rival.worth:
                return found.unfinished(rival)
        return found

    def _member(
        self, number: int, own: Defaults, done: int, places: Mapping[str, Any], ends: Sequence[Callback] = ()
    ) -> tuple[PIC, History]:
        task = self.task
        pic = PIC(
            self.structure, task.schema.families, own.width, own.sharing, own.input_sharing, dims=own.dims,
            shared=own.trees if own.trees > 1 else None, sigma=own.sigma, correlated=own.block > 1,
            generator=torch.Generator().manual_seed(task.seed + number),
        )  # fmt: skip
        callbacks = [mixtures.counted(callback, own.steps, done) for callback in task.callbacks]
        # Whole rows say little about how well a column will be predicted in the end.
        callbacks += () if task.sharpens else ends
        found, history = task.train_member(pic, number, own, None, callbacks, **places)
        if task.sharpens and not task.interrupts.asked:
            found, history = task.sharpened(found, number, own)
        return found, history


@dataclass(frozen=True)
class Mixtures:
    """Mixtures by EM, with the number of states and the smoothing that are best on the rows held out.

    For a category to predict, every state belongs to one of its values.

    Attributes:
        task: What is to be fitted.
    """

    task: Task

    @cached_property
    def chosen(self) -> Defaults:
        """The settings of the kind."""
        return self.task.settings("mixture")

    @cached_property
    def classes(self) -> int:
        """The number of categories to predict, zero if there are none."""
        task = self.task
        return 0 if task.target is None else len(task.schema.columns[task.target].categories)

    def fitted(self, rival: Fitted | None = None) -> Fitted:
        """Train the members; ``rival`` makes no difference, as mixtures take little time."""
        task, chosen = self.task, self.chosen
        # A search need not see every row of a large table several times.
        passes = min(chosen.em_passes, SEARCHED_ROWS / len(task.rows))
        tried: dict[Place, Fitted] = {}
        groups = max(1, self.classes)
        work = groups * mixtures.work_of_state(task.schema, task.rows, replace(chosen, em_passes=passes))

        def score(place: Place) -> float:
            if place in tried:
                return tried[place].worth
            if tried and task.interrupts.asked:
                return -math.inf
            states, before = place.states, sum(other.states for other in tried)
            most = MOST_BLOCK_STATES if place.block else chosen.states
            allowed = groups * states <= min(most, chosen.states) and work * (before + states) <= MOST_WORK
            if states < 1 or (states > 1 and not allowed):
                return -math.inf
            rival = max(tried.values(), key=lambda one: one.worth, default=None)
            # Larger blocks may be those of before, if no more columns are related.
            alike = [other for other in tried if other._replace(block=place.block) == place]
            same = [other for other in alike if self._blocks(other) == self._blocks(place)]
            tried[place] = tried[same[0]] if same else self._at(place, len(tried), passes, rival)
            return tried[place].worth

        # Blocks, which may need fewer states, are tried before a single latent gets very many.
        least = LEAST_TARGET_GAIN if task.sharpens and self.classes else LEAST_GAIN
        first = Place(1, chosen.smoothing * (TARGET_SMOOTHING if self._widens else 1.0))
        wider = [_times(spread=2.0)] if self._widens else []
        best = search(score, first, [_times(states=4.0, most=BLOCK_STATES[1]), *wider], least)
        for moves in self._moves if task.judged else ():
            best = search(score, best, moves, least)
        better = None if task.interrupts.asked else self._completed(best, tried, passes, least)
        so_far = max(tried.values(), key=lambda one: one.worth)
        return so_far if better is None or task.interrupts.asked else better

    def _completed(self, best: Place, tried: Mapping[Place, Fitted], passes: float, least: float) -> Fitted:
        """The members at the best place after all that is done once a place is chosen."""
        task, chosen = self.task, self.chosen
        whole = passes == chosen.em_passes
        found = tried[best] if whole else self._at(best, len(tried), chosen.em_passes)
        if self._widens:
            return self._repeated(best, found, len(tried))
        if task.judged and whole and self.classes:
            found = self._averaged(found, [one for place, one in tried.items() if not place.block], least)
        if task.sharpens and not self.classes:
            pairs = [task.sharpened(member, number, found.chosen) for number, member in enumerate(found.members)]
            return Fitted.of(task, "mixture", found.chosen, pairs)
        if self.classes:
            return found
        if chosen.members == 1:
            # In a large table the rows held out are too few to matter.
            return self._joined(best, found, tried, least) if task.judged and whole else found
        steps = max(1, round(statistics.median(history.best["step"] for history in found.histories)))
        members = mixtures.refit(task.schema, task.rows, best.states, found.chosen, task.seed, steps)
        return replace(found, model=_averaged(members))

    @property
    def _widens(self) -> bool:
        """Whether there are classes with so many rows that their states may begin wider than EM makes them."""
        return bool(self.classes) and self.task.sharpens and self.chosen.members == 1

    @property
    def _moves(self) -> list[list[Move]]:
        """How the search goes on from the best number of states: into blocks, then to the best numbers for them."""
        if self.classes:
            smoother = [_times(smoothing=4.0), _times(spread=2.0), _times(smoothing=0.25)]
            return [[*smoother, _times(states=2.0), _times(states=0.5)]]
        sizes = [_times(states=2.0), _times(states=0.5), _times(smoothing=0.25), _times(smoothing=4.0)]
        width = self.task.schema.width
        # In tables with several members, which are small, rows held out did not choose well between blocks.
        if self.chosen.members > 1 or width > MOST_TREE_COLUMNS:
            return [sizes]
        states = min(BLOCK_STATES[1], max(BLOCK_STATES[0], len(self.task.rows) // ROWS_PER_BLOCK_STATE))
        return [[_into_blocks(block, states) for block in BLOCKS if block < width], sizes]

    def _at(self, place: Place, done: int, passes: float, rival: Fitted | None = None) -> Fitted:
        """The members at a place, after so many others were tried, that see every row so often.

        A place is given up as soon as a member is clearly worse than that of a rival.
        """
        own = replace(self.chosen, smoothing=place.smoothing, em_passes=passes)
        pairs = []
        for number in range(own.members):
            pairs.append(self._member(place, number, own, done * own.members + number))
            found = Fitted.of(self.task, "mixture", own, pairs)
            last = number + 1 == own.members
            if rival and not last and self._is_behind(pairs[-1][0], rival.members[number], number):
                return found.unfinished(rival)
        return found

    def _repeated(self, place: Place, first: Fitted, done: int) -> Fitted:
        """The average of a member and of others at the same place, each with other rows held out."""
        more = [self._member(place, number, first.chosen, done + number) for number in range(1, MOST_AVERAGED)]
        return Fitted.of(self.task, "mixture", first.chosen, [*zip(first.members, first.histories, strict=True), *more])

    def _joined(self, place: Place, found: Fitted, tried: Mapping[Place, Fitted], least: float) -> Fitted:
        """The average of mixtures that began elsewhere, one more as long as rows held out are more probable by that."""
        pairs: list[tuple[Any, History]] = list(zip(found.members, found.histories, strict=True))
        for number in range(1, self._repeats(place, tried)):
            more = [*pairs, self._member(place, 0, found.chosen, len(tried) + number, _STARTS * number)]
            joined = _averaged([member for member, _ in more])
            score = float(self.task.log_densities(joined, 0)[0].mean())
            if score < found.worth + least:
                break
            pairs, found = more, replace(found, model=joined, members=[joined], scores=[score])
        return replace(found, finish=partial(self._finished, pairs, found.chosen))

    def _finished(self, pairs: Sequence[tuple[HCLT, History]], own: Defaults) -> Model:
        """The average of mixtures after they have learned from the rows held out, too, which have chosen them.

        Those that validation stopped early stay as they are: more steps of EM were harmful.
        """
        rows, seed = self.task.rows, self.task.seed
        harmed = [_score(history) > history.records[-1]["valid"] + LEAST_GAIN for _, history in pairs]
        return _averaged(
            [
                member if worse else mixtures.finished(member, rows, own, seed + number)
                for number, ((member, _), worse) in enumerate(zip(pairs, harmed, strict=True))
            ]
        )

    def _repeats(self, place: Place, tried: Iterable[Place]) -> int:
        """How many mixtures to average at a place: fewer if they would take too long, or together be too large."""
        task = self.task
        left = MOST_WORK / mixtures.work_of_state(task.schema, task.rows, self.chosen)
        left -= sum(other.states for other in tried)
        edges = len(self._blocks(place))
        counts = range(MOST_AVERAGED, 1, -1)
        fitting = (n for n in counts if edges * (n * place.states) ** 2 <= MOST_EDGE_WEIGHTS)
        return next((n for n in fitting if (1 + FINAL_PART) * (n - 1) * place.states <= left), 1)

    def _member(self, place: Place, number: int, own: Defaults, done: int, start: int = 0) -> tuple[HCLT, History]:
        """One member, after so many others were trained; ``start`` is added to the seed of its first values."""
        task = self.task
        table = (task.schema, task.rows, task.split(number))
        before = min(own.em_steps * done, own.planned_em - own.em_steps)
        if self.classes:
            assert task.target is not None
            member = mixtures.of_classes(*table, task.target, place.states, own, task.seed + number)
            if not task.sharpens:
                return member, History()
            taken = own.sharpening.steps
            shown = [mixtures.counted(callback, own.em_steps, before, taken) for callback in task.callbacks]
            callbacks = [_without_bits(callback) for callback in shown]
            return task.sharpened(mixtures.widened(member, place.spread, task.target), number, own, callbacks)
        callbacks = [mixtures.counted(callback, own.em_steps, before) for callback in task.callbacks]
        tree = task.tree(self._blocks(place)) if place.block else None
        return mixtures.train(*table, place.states, own, task.seed + number + start, tree, callbacks=callbacks)

    def _blocks(self, place: Place) -> list[list[int]]:
        """The columns of each latent; none stands for a single latent."""
        return mixtures.blocks_of(self.task.information, place.block) if place.block else []

    def _is_behind(self, member: Model, rival: Model, number: int) -> bool:
        """Whether rows that neither has seen are less probable, by more than chance explains."""
        if not self.task.judged:
            return False
        own, other = (joint - base for joint, base in (self.task.log_densities(m, number) for m in (member, rival)))
        gap = own - other
        return bool(gap.mean() < -ERRORS_BEHIND * gap.std() / len(gap) ** 0.5)

    def _averaged(self, best: Fitted, tried: Sequence[Fitted], least: float) -> Fitted:
        """The best mixture, or the average of some with a single latent, if rows held out are more probable by that.

        To the best one are added those that help most, one after the other.
        """
        complete = [one for one in tried if len(one.members) == len(best.members)]
        known = [[self.task.log_densities(m, number) for number, m in enumerate(one.members)] for one in complete]

        def scores(group: Sequence[int]) -> list[float]:
            pairs = ([known[place][number] for place in group] for number in range(len(best.members)))
            logs = ((torch.stack(part).logsumexp(0) for part in zip(*pair, strict=True)) for pair in pairs)
            return [float((joint - base).mean()) for joint, base in logs]

        group: list[int] = []
        found = -math.inf
        while len(group) < MOST_AVERAGED:
            others = [place for place in range(len(complete)) if place not in group]
            more = max(others, key=lambda place: statistics.mean(scores([*group, place])), default=None)
            if more is None or statistics.mean(scores([*group, more])) < found + least:
                break
            group.append(more)
            found = statistics.mean(scores(group))
        if len(group) < 2 or found < best.worth + least:
            return best
        members = [
            _averaged([complete[place].members[number] for place in group]) for number in range(len(best.members))
        ]
        return replace(complete[group[0]], model=_averaged(members), members=members, scores=scores(group))


def _score(history: History) -> float:
    """The best score of a training; the least possible if it was interrupted before the first."""
    return history.best["valid"] if history.records else -math.inf


def _without_bits(callback: Callback) -> Callback:
    """For the training for a column to predict, whose scores are not those of whole rows."""
    return lambda record: callback({**record, "bits": math.nan})


def out_of_reach(rival: float, steps: int) -> Callback:
    """A callback that ends a training of so many steps if it will not reach the score of a rival.

    That is what follows from twice the gain since half as many steps, each time that their number doubles.
    """
    best: dict[float, float] = {}

    def call(record: Record) -> None:
        step = record["step"]
        best[step] = max(record["valid"], *best.values()) if best else record["valid"]
        before = [score for at, score in best.items() if at <= step / 2]
        if before and step * RACE_PART >= steps:
            gain = best[step] - before[-1]
            if best[step] + 2 * gain * math.log2(steps / step) < rival:
                raise StopIteration("the score of another model is out of reach")

    return call


def search(score: Callable[[Place], float], best: Place, moves: Sequence[Move], least: float = LEAST_GAIN) -> Place:
    """Move from a place, each way as often as this gains so much, until no move does."""
    waiting = list(moves)
    while waiting:
        there = waiting[0](best)
        if score(there) > score(best) + least:
            best, waiting = there, [waiting[0], *(move for move in moves if move != waiting[0])]
        else:
            waiting.pop(0)
    return best


def _times(states: float = 1.0, smoothing: float = 1.0, spread: float = 1.0, most: int = MOST_STATES) -> Move:
    return lambda place: place._replace(
        states=min(int(place.states * states), most),
        smoothing=place.smoothing * smoothing,
        spread=place.spread * spread,
    )


def _into_blocks(block: int, states: int) -> Move:
    return lambda place: place._replace(block=block, states=min(place.states, states))


def _averaged(members: Sequence[Any]) -> Model:
    """The average of trained models of one kind."""
    if len(members) == 1:
        found: Model = members[0]
        return found
    return Ensemble(members) if members[0].has_rule else mixtures.average(members)


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
