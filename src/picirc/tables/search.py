# SPDX-License-Identifier: Apache-2.0
"""The search for the best mixture of a table.

The number of states, the smoothing and the columns that share a latent are chosen by rows held out. The members at the
best place are then averaged.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch

from picirc.hclt import HCLT
from picirc.learning.history import History
from picirc.model import Model
from picirc.tables import mixtures
from picirc.tables.defaults import (
    BLOCK_STATES,
    BLOCKS,
    ERRORS_BEHIND,
    FINAL_PART,
    LEAST_GAIN,
    LEAST_TARGET_GAIN,
    MOST_AVERAGED,
    MOST_BLOCK_STATES,
    MOST_EDGE_WEIGHTS,
    MOST_STATES,
    MOST_TREE_COLUMNS,
    MOST_WORK,
    ROWS_PER_BLOCK_STATE,
    SEARCHED_ROWS,
    TARGET_SMOOTHING,
    Defaults,
)
from picirc.tables.task import Fitted, Task, averaged, score_of

_STARTS = 1009  # between the seeds of mixtures that are averaged


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

    def trial(self) -> float:
        """The score of small mixtures for a category to predict, to compare codings of the other columns by."""
        own = self.chosen
        sizes = [states for states in (1, 4) if states == 1 or states * self.classes <= own.states]
        places = [Place(states, own.smoothing * TARGET_SMOOTHING) for states in sizes]
        return max(self._at(place, done, own.em_passes).worth for done, place in enumerate(places))

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
        first = Place(1, chosen.smoothing * (TARGET_SMOOTHING if self.widens else 1.0))
        wider = [_times(spread=2.0)] if self.widens else []
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
        if self.widens:
            return self._repeated(best, found, len(tried))
        if task.judged and whole and self.classes:
            found = self._averaged(found, [one for place, one in tried.items() if not place.block], least)
        if task.sharpens and not self.classes:
            pairs = [task.sharpened(m, number, found.chosen.polishing) for number, m in enumerate(found.members)]
            return Fitted.of(task, "mixture", found.chosen, pairs)
        if self.classes:
            return found
        if chosen.members == 1:
            # In a large table the rows held out are too few to matter.
            return self._joined(best, found, tried, least) if task.judged and whole else found
        steps = max(1, round(statistics.median(history.best["step"] for history in found.histories)))
        members = mixtures.refit(task.schema, task.rows, best.states, found.chosen, task.seed, steps)
        return replace(found, model=averaged(members))

    @property
    def widens(self) -> bool:
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

        A place is given up as soon as a member is clearly worse than that of a rival and all so far are worse on
        average: what is given up is never the best, so that a rival, the best of before, has all its members.
        """
        own = replace(self.chosen, smoothing=place.smoothing, em_passes=passes)
        pairs = []
        for number in range(own.members):
            pairs.append(self._member(place, number, own, done * own.members + number))
            found = Fitted.of(self.task, "mixture", own, pairs)
            if rival is None or not rival.scores or number + 1 == own.members:
                continue
            expected = found.unfinished(rival)
            if expected.worth < rival.worth and self._is_behind(pairs[-1][0], rival.members[number], number):
                return expected
        return found

    def _repeated(self, place: Place, first: Fitted, done: int) -> Fitted:
        """The average of a member and of others at the same place, each with other rows held out, all polished."""
        own = first.chosen
        more = [self._member(place, number, own, done + number) for number in range(1, MOST_AVERAGED)]
        pairs = [*zip(first.members, first.histories, strict=True), *more]
        done += len(pairs)
        polished = [self._sharpened(m, number, own.polishing, done + number) for number, (m, _) in enumerate(pairs)]
        best = [max(both, key=lambda one: score_of(one[1])) for both in zip(pairs, polished, strict=True)]
        return Fitted.of(self.task, "mixture", own, best)

    def _joined(self, place: Place, found: Fitted, tried: Mapping[Place, Fitted], least: float) -> Fitted:
        """The average of mixtures that began elsewhere, one more as long as rows held out are more probable by that."""
        pairs: list[tuple[Any, History]] = list(zip(found.members, found.histories, strict=True))
        for number in range(1, self._repeats(place, tried)):
            more = [*pairs, self._member(place, 0, found.chosen, len(tried) + number, _STARTS * number)]
            joined = averaged([member for member, _ in more])
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
        harmed = [score_of(history) > history.records[-1]["valid"] + LEAST_GAIN for _, history in pairs]
        return averaged(
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
        if self.classes:
            assert task.target is not None
            member = mixtures.of_classes(*table, task.target, place.states, own, task.seed + number)
            if not task.sharpens:
                return member, History()
            wider = mixtures.widened(member, place.spread, task.target)
            return self._sharpened(wider, number, own.sharpening, done)
        callbacks = task.counted(self._before(done), own.em_steps, own.em_steps)
        tree = task.tree(self._blocks(place)) if place.block else None
        return mixtures.train(*table, place.states, own, task.seed + number + start, tree, callbacks=callbacks)

    def _before(self, done: int) -> int:
        """The steps that callbacks have seen after so many trainings; a longer search stands still at its end."""
        own = self.chosen
        return min(own.em_steps * done, own.planned_em - own.em_steps)

    def _sharpened(self, member: Any, number: int, own: Defaults, done: int) -> tuple[HCLT, History]:
        """A member after training for the sake of the category to predict, after so many others were trained."""
        shown = self.task.counted(self._before(done), self.chosen.em_steps, own.steps, target=True)
        return self.task.sharpened(member, number, own, shown)

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
            averaged([complete[place].members[number] for place in group]) for number in range(len(best.members))
        ]
        return replace(complete[group[0]], model=averaged(members), members=members, scores=scores(group))


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
