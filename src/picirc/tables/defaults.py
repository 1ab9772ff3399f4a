# SPDX-License-Identifier: Apache-2.0
"""The settings of a model of a table, chosen from the size of the table.

Every number that determines how large a model is, how long it is trained and how strongly it is smoothed is in this
file and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from picirc.checks import check_choice, check_integer
from picirc.errors import ArgumentError

# Columns of integers are categories, unless declared otherwise, if they have few different values: at most ten with
# four rows for each on average, or at most twenty with 100. Fewer rows say nothing about a single value. Other
# numbers are categories by the second rule alone, as rates of a few regions are.
INTEGER_CATEGORIES = ((10, 4), (20, 100))
MOST_INTEGER_CATEGORIES = max(number for number, _ in INTEGER_CATEGORIES)
# Integers that are categories, with so many of them, are treated as numbers if another column is predicted better then.
FEWEST_ORDERED = 6
LARGEST_STRAY_SHARE = 0.01  # of values unlike the others, in a column of numbers that are categories
FEWEST_OF_LEVEL = 5  # rows with a value that is no stray
FEWEST_NAMED = 100  # rows of a table whose constant columns are named in a warning
# A column with more different strings than both of these holds identifiers, not categories.
MOST_TEXT_CATEGORIES = 100
DISTINCT_TEXT_SHARE = 0.5
FEWEST_IDENTIFIERS = 25  # and one with so many strings that all differ

# A real column is divided by its robust spread, or by this part of its largest deviation if that is more.
LARGEST_STANDARDISED = 100.0

# Columns of numbers with fewer values are Gaussian. In others, a value is a spike if it occurs in more than this share
# of the rows and this many times as often as most; and they are transformed to normal scores if their 5 %, 50 % and
# 95 % quantiles are this asymmetric, or a value is this many times the distance of the outer two from the median.
FEWEST_SCORED = 200
SPIKE_SHARE, SPIKE_PROMINENCE, FEWEST_IN_SPIKE, MOST_SPIKES = 0.01, 5.0, 20, 16
LARGEST_SKEW, LARGEST_TAIL = 0.3, 3.0
# Spikes that hold a smaller share of a column whose values have a step are peaks of the transform instead, so that the
# column can be correlated with others; unless one is further from all other values, in units of the column's spread.
# In a column without a step, spikes of a smaller share than the second are ignored for the same reason.
LEAST_SPIKED, LEAST_SPIKED_REAL, FARTHEST_PEAK = 0.5, 0.1, 0.1
# Peaks of a transform are found among so many values on either side, and there are no more of them than this.
NEIGHBOURS, MOST_PEAKS = 8, 128
# Draws are multiples of a step, as the values seen are, if each of these occurs so often on average; or if there are so
# many different ones, of a power of ten.
ROWS_PER_STEP, MOST_STEPS, STEP_PRECISION = 2, 1e6, 1e-4
DECIMAL_STEPS, FEWEST_WRITTEN = (1.0, 0.1, 0.01, 0.001), 20
# If a column has no more different values than this, each occurs so often on average, and less than this share of the
# multiples of the step between them occur, draws are values seen.
MOST_LEVELS, ROWS_PER_LEVEL, LARGEST_LEVEL_SHARE = 256, 10, 0.5
# The transform is linear between knots; its slope is at least this part of the column's spread.
ROWS_PER_KNOT, FEWEST_KNOTS, MOST_KNOTS, STEEPEST, STEEPEST_PEAK = 20, 8, 32, 1e-3, 1e-6
FEWEST_BEYOND = 10  # rows in the first and in the last piece
# The numbers of pieces that are tried when the trained model is calibrated; with 0 only the ends of columns move.
CALIBRATED = (0, 8, 16, 32, 64, 128)

# In a table with no more columns than this, all Gaussian columns share one latent, with correlations; in a wider one,
# such as the pixels of images, columns with latents of their own fit better.
MOST_COLUMNS_TOGETHER = 40
SMALL_BLOCK = 4

KINDS = ("mixture", "tree", "trees", "star", "auto")
FEWEST_HELD_OUT = 100  # rows of a table of which some are held out to end the training of a tree
# Settings that have a meaning for any kind of model; who gives another one wants a tree.
_OF_ANY = {
    "kind",
    "held_out",
    "floor",
    "members",
    "states",
    "em_steps",
    "em_passes",
    "smoothing",
    "target_steps",
    "polish",
    "target_rate",
    "emphasis",
}

# A tree of more columns takes too long to be tried beside a mixture. A mixture takes too long if the number of patterns
# of missing cells times the cube of the number of correlated columns is above this.
MOST_TREE_COLUMNS = 200
MOST_PATTERN_WORK = 1e10
# A star is tried if so many columns, and this share of all, are categories; several trees instead of one, if there are
# so many columns and a single member: they take longer, and in narrow tables mixtures by EM were better (nltcs). A star
# and trees are trained for a part of the steps, and the better one in full.
FEWEST_STAR_COLUMNS, STAR_SHARE, FEWEST_TREES_COLUMNS = 8, 0.9, 40
RACE_PART = 5
# For the sake of a column to predict, a tree or star is trained in full unless its score is then worse than that of the
# mixture by more than this share.
FARTHEST_BEHIND = 0.25
# A mixture has at most this many states, and at least this many rows for each.
MOST_STATES, ROWS_PER_STATE = 256, 10
# In a table of more than 1,000 rows, blocks of up to so many related columns may have latents of their own, connected
# by a tree. Columns are related if their mutual information in nats is at least this. The search for the number of
# states of such latents begins with one for every 100 rows, between two limits, and ends with a third.
BLOCKS, LEAST_INFORMATION = (6, 4, 3, 1), 0.02
ROWS_PER_BLOCK_STATE, BLOCK_STATES, MOST_BLOCK_STATES = 100, (16, 64), 128
# The search for the best mixture takes minutes with so much work: for every state that was tried and every row that EM
# saw, the square of the number of correlated columns, and this for each column.
MOST_WORK, WORK_OF_COLUMN = 2e12, 32
SEARCHED_ROWS = 600_000  # that EM sees, some of them several times, before a mixture of a large table is judged
FINAL_PART = 0.5  # of the usual passes of EM, after the search, with the rows that were held out
# Mixtures that are averaged: equal ones that began elsewhere or, for a category to predict in a small table, some of
# those tried. The average has the states of all, and no more weights between latents than this.
MOST_AVERAGED, MOST_EDGE_WEIGHTS = 3, 4_000_000
# With more correlated columns, rows belong to one state nearly for certain, so that EM is done after a few steps; and
# single precision saves half of the time and memory.
FEWEST_WIDE = 100
# A place of the search with several members is given up if the first ones are worse on rows held out by more than so
# many standard errors of the difference.
ERRORS_BEHIND = 2.0
# Nats of a row held out, and of a column to predict in it, for which another size of a mixture is taken.
LEAST_GAIN, LEAST_TARGET_GAIN = 1e-2, 2e-3
# Training for the sake of a category to predict, in a table of 1,000 rows or more: the share of other classes in a
# state that belongs to a class, and the smoothing where the search begins, in units of the usual one.
LABEL_NOISE, TARGET_SMOOTHING = 0.05, 4.0
# What is chosen is then trained for several times as many steps of this part of the size: for so many times at least
# and at most, once for so many rows. Small tables are soon learned by heart, and take the same steps.
POLISHING_RATE, POLISHINGS, ROWS_PER_POLISHING = 0.3, (5, 20), 3200
# In a table with more rows, every step of EM sees a part of them: at least so many, and so many for each state; times
# the first size for a tree whose latents have a column each, the second for a tree of blocks, and the third for a
# single latent. The last steps, which see all rows, have the third size.
MOST_ROWS_AT_ONCE = 4000
FEWEST_IN_STEP, ROWS_OF_STATE, STEP_SIZES = 512, 4, (1, 2, 4)

# What the time of a fit is expected from, in seconds of one core: of EM for each row, state and pair of correlated
# columns, and for each row, state and column; of a step of a net, and of that for each column and squared point. The
# states that a search tries, all mixtures together.
EM_SECONDS, NET_SECONDS, USUAL_STATES = (1.4e-10, 2.1e-8), (8e-3, 1.7e-7), 400

# A file that asks for more could take all memory when the model is used.
MOST_POINTS = 1024


# What a star has in place of the settings of a tree. Columns are independent given its latent.
_STAR: dict[str, Any] = {"points": 512, "width": 128, "dims": 8, "rate": 3e-3, "final_rate": 3e-5, "block": 1}
_STAR_DECAY = 0.5
# What trees of categories that are mixed have: the defaults of ``PIC`` and ``fit``, which were chosen on such data.
_TREES: dict[str, Any] = {
    "trees": 4, "points": 32, "coarse": 0.7, "width": 256, "sigma": 2.0, "rate": 7e-3, "final_rate": 7e-5,
    "weight_decay": None, "block": 1, "members": 1, "polish": 2,
}  # fmt: skip


@dataclass(frozen=True)
class Defaults:
    """How a model of a table is made and trained.

    Attributes:
        points: The number N of quadrature points in training; twice as many are used afterwards.
        coarse: The fraction of the steps, at the beginning, that use half as many points.
        width: The width of the nets, an even number.
        dims: The number of dimensions of every latent.
        sigma: The standard deviation of the Fourier frequencies of the nets: how fast densities may change.
        sharing: What integral units share.
        input_sharing: What input units share.
        steps: The largest number of training steps.
        batch_size: Rows of a batch.
        rate: The step size at the start.
        final_rate: The step size at the end.
        weight_decay: Pulls the parameters of the nets towards zero; None for what ``pc.fit`` takes by default.
        clip: The largest norm of a gradient.
        validate_every: Steps between validations on the rows held out.
        patience: Steps without improvement after which training stops.
        held_out: The fraction of the rows held out for early stopping; 0 for none.
        floor: The smallest standard deviation (or scale) of an input, in units of the column's spread.
        members: The number of models that are averaged, each with other rows held out.
        block: The largest number of Gaussian columns that share a latent and a matrix of correlations; 1 for none.
        tree_rows: The largest number of rows of a table in memory that the tree is learned from.
        tree_reals: How the tree treats real columns: ``"gaussian"`` by correlations, ``"ordinal"`` by levels.
        tree_bins: The number of levels that columns of numbers are cut into when the tree is learned.
        tree_smoothing: Rows added to every cell of the tables of counts that the tree is learned from.
        trees: The number of trees that share their nets and are mixed.
        kind: ``"mixture"``, ``"tree"``, ``"trees"``, ``"star"``, or ``"auto"`` for the best on the rows held out.
        states: The largest number of states of a mixture.
        em_steps: The largest number of steps of EM, if each sees all rows.
        em_passes: How often EM sees every row of a table that is too large for that.
        smoothing: Pseudo-observations of each distribution in a state of a mixture; of correlated columns for each.
        target_steps: The largest number of steps of the training for a column to predict, of each model that is tried.
        polish: How many times as many steps the model that is chosen takes then, smaller ones; 1 for the same steps.
        target_rate: The step size at its start.
        emphasis: How much the likelihood of that column given the others weighs beside the likelihood of the rows.
    """

    points: int = 32
    coarse: float = 0.0
    width: int = 32
    dims: int = 1
    sigma: float = 1.0
    sharing: str = "composite"
    input_sharing: str = "composite"
    steps: int = 2000
    batch_size: int = 256
    rate: float = 1e-2
    final_rate: float = 1e-4
    weight_decay: float | None = 1e-3
    clip: float = 10.0
    validate_every: int = 50
    patience: int = 400
    held_out: float = 0.1
    floor: float = 0.01
    members: int = 1
    block: int = 64
    tree_rows: int = 50_000
    tree_reals: str = "gaussian"
    tree_bins: int = 8
    tree_smoothing: float = 1.0
    trees: int = 1
    kind: str = "auto"
    states: int = 64
    em_steps: int = 60
    em_passes: float = 8.0
    smoothing: float = 1.0
    target_steps: int = 200
    polish: int = 1
    target_rate: float = 1e-2
    emphasis: float = 10.0

    @property
    def planned_em(self) -> int:
        """The usual number of steps of all mixtures; a longer search is shown as if it stood still at its end."""
        searches = self.kind in ("mixture", "auto")
        return self.members * self.em_steps * (self.states.bit_length() // 2 + 6) if searches else 0

    @property
    def planned(self) -> int:
        """The largest number of steps of all trainings, as callbacks count them."""
        nets = 0 if self.kind == "mixture" else self.members * self.steps
        return self.planned_em + self.planned_race + nets

    @property
    def planned_race(self) -> int:
        """The steps of a race of a tree and a star."""
        return 2 * self.shortened.steps if self.kind == "auto" else 0

    @property
    def shortened(self) -> Defaults:
        """The same for a part of the steps."""
        steps = max(1, self.steps // RACE_PART)
        return replace(self, kind="tree", steps=steps, validate_every=min(self.validate_every, steps))

    @property
    def sharpening(self) -> Defaults:
        """The settings of the training for a column to predict, of a model that is tried."""
        return self._sharpening(self.target_steps, self.target_rate)

    @property
    def polishing(self) -> Defaults:
        """The settings of that training for a model that has been chosen: more steps, and smaller ones."""
        if self.polish == 1:
            return self.sharpening
        return self._sharpening(self.polish * self.target_steps, POLISHING_RATE * self.target_rate)

    def _sharpening(self, steps: int, rate: float) -> Defaults:
        return replace(
            self, steps=steps, rate=rate, final_rate=rate / 30, weight_decay=None,
            validate_every=max(1, steps // 20), patience=max(1, steps // 4),
        )  # fmt: skip

    def __post_init__(self) -> None:
        for name in (
            "points",
            "steps",
            "batch_size",
            "validate_every",
            "patience",
            "members",
            "block",
            "tree_rows",
            "dims",
            "trees",
            "polish",
        ):
            check_integer(name, getattr(self, name), most=MOST_POINTS if name == "points" else None)
        check_integer("states", self.states)
        check_integer("em_steps", self.em_steps)
        check_choice("kind", self.kind, KINDS)
        if self.trees > 1 and self.members > 1:
            raise ArgumentError("members", "1 with several trees, which are a mixture already", self.members)
        if not 0 <= self.held_out < 1:
            raise ArgumentError("held_out", "a fraction from 0 to below 1", self.held_out)


def choose(rows: int, columns: int, **given: Any) -> Defaults:
    """Choose the settings for a table of so many rows and columns.

    Args:
        rows: The number of rows, those to be held out included.
        columns: The number of columns.
        **given: Attributes of :class:`Defaults` that are fixed; None means not given.

    Example:
        >>> choose(10_000, 20).batch_size, choose(10_000, 20, batch_size=64).batch_size
        (256, 64)
    """
    names = [field.name for field in fields(Defaults)]
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise ArgumentError("settings", f"names among {', '.join(names)}", unknown[0])
    found = _for_size(rows, columns)
    if given.get("kind") == "star":
        found = replace(found, **_STAR, weight_decay=min(_STAR_DECAY, 8000 / max(1, rows)))
    if given.get("kind") == "trees":
        found = replace(found, **_TREES)
    if columns > MOST_COLUMNS_TOGETHER:
        found = replace(found, block=min(found.block, SMALL_BLOCK))
    decided = {name: value for name, value in given.items() if value is not None}
    if not set(decided) <= _OF_ANY:
        # Rows are held out of a very small table only to choose between kinds of models.
        found = replace(found, kind="tree", held_out=0.0 if rows < FEWEST_HELD_OUT else found.held_out)
    if "steps" in decided:
        steps = check_integer("steps", decided["steps"])
        shorter = min(found.target_steps, steps)
        found = replace(found, validate_every=min(found.validate_every, steps), steps=steps, target_steps=shorter)
    return replace(found, **decided)


def _for_size(rows: int, columns: int) -> Defaults:
    """Small tables get small models, wide inputs, few steps, and an average over several trainings.

    Nothing is held out of a table so small that the part held out would say nothing.
    """
    if rows < FEWEST_HELD_OUT:
        return Defaults(
            points=8, width=16, steps=100, rate=1e-2, weight_decay=1e-2, validate_every=25, patience=100,
            held_out=0.2 if rows >= 25 else 0.0, floor=0.3, members=4, states=8 if rows >= 25 else 1, target_steps=80,
        )  # fmt: skip
    if rows < 1000:
        return Defaults(
            points=16, steps=600, rate=2e-2, weight_decay=0.3, patience=200, held_out=0.15, floor=0.1, members=4,
            target_steps=80,
        )  # fmt: skip
    passes = 12.0 if rows < 20_000 else 8.0 if rows < 200_000 else 3.0
    return Defaults(
        points=16 if columns > 64 else 32 if rows < 5000 else 64, held_out=min(0.1, 5000 / rows),
        steps=min(4000, 1200 + rows // 40),
        states=min(MOST_STATES, rows // ROWS_PER_STATE), em_passes=passes, width=64, emphasis=100.0,
        polish=min(max(rows // ROWS_PER_POLISHING, POLISHINGS[0]), POLISHINGS[1]),
    )  # fmt: skip
