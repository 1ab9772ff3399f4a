# SPDX-License-Identifier: Apache-2.0
"""What the columns of a table are, from what was declared of them and from their values.

This is the only place where the type of a column is inferred.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from picirc.data.frames import Cells, Frame, Label, column_named, few, native_type
from picirc.data.tables import disguised, dtype_for
from picirc.errors import ArgumentError
from picirc.inputs import Bernoulli, Binomial, Categorical, Family, Gaussian, Laplace, Poisson, Spiked, StudentT
from picirc.inputs.continuous import LocationScale
from picirc.tables.column import EMPTY, KINDS, SCORES, Column, Declared, Numbers
from picirc.tables.defaults import (
    DECIMAL_STEPS,
    DISTINCT_TEXT_SHARE,
    FARTHEST_PEAK,
    FEWEST_BEYOND,
    FEWEST_IDENTIFIERS,
    FEWEST_IN_SPIKE,
    FEWEST_KNOTS,
    FEWEST_NAMED,
    FEWEST_OF_LEVEL,
    FEWEST_SCORED,
    FEWEST_WRITTEN,
    INTEGER_CATEGORIES,
    LARGEST_LEVEL_SHARE,
    LARGEST_SKEW,
    LARGEST_STANDARDISED,
    LARGEST_STRAY_SHARE,
    LARGEST_TAIL,
    LEAST_SPIKED,
    LEAST_SPIKED_REAL,
    MOST_KNOTS,
    MOST_LEVELS,
    MOST_PEAKS,
    MOST_SPIKES,
    MOST_STEPS,
    MOST_TEXT_CATEGORIES,
    NEIGHBOURS,
    ROWS_PER_KNOT,
    ROWS_PER_LEVEL,
    ROWS_PER_STEP,
    SPIKE_PROMINENCE,
    SPIKE_SHARE,
    STEEPEST,
    STEEPEST_PEAK,
    STEP_PRECISION,
    choose,
)

AUTO = "auto"
WORDS = (AUTO, SCORES, *KINDS.values())
_LARGEST_INTEGER = 2.0**53  # below, every integer is a float
_NORMAL_QUARTILES = 1.349  # the distance between the quartiles of a standard normal
_CLOSEST_SCORES = 1e-6  # of two knots
_CONSTANT_PRECISION = 1e-6  # the spread of a constant column, relative to a large value


def infer_columns(
    frame: Frame,
    columns: Declared | Mapping[Any, Declared] | None = None,
    floor: float | None = None,
    linear: bool = False,
) -> tuple[Column, ...]:
    """The columns of a table; see ``Schema.infer`` for the arguments and the rules."""
    declared = declarations(columns, frame.names)
    least = choose(frame.rows, len(frame.names), floor=floor).floor
    said = {name: word for name, word in declared.items() if isinstance(word, str)}
    cells = [frame.cells(name, dtype_for(said.get(name, AUTO))) for name in frame.names]
    undeclared = [part for part in cells if declared[part.name] == AUTO]
    word, shared = _array_of_integers(undeclared) if undeclared and not frame.named else (AUTO, None)
    found = []
    for part in cells:
        if declared[part.name] != AUTO:
            found.append(infer_column(part, declared[part.name], least, linear))
        else:
            found.append(infer_column(replace(part, categories=shared) if shared else part, word, least, linear))
    words = {part.name: part.calendar or native_type(frame, part.name) for part in cells}
    names = getattr(frame.native, "columns", ()) if frame.container == "pandas" else ()
    counted = {str(name) for name in names if isinstance(name, int) and not isinstance(name, bool)}
    return tuple(replace(c, native=words[c.name], counted=c.name in counted) for c in found)


def declarations(columns: Declared | Mapping[Any, Declared] | None, names: Sequence[str]) -> dict[str, Declared]:
    """What is declared of each column of a table, by name; see ``Schema.infer`` for what can be."""
    if isinstance(columns, str | Family):
        return dict.fromkeys(names, columns)
    if columns is not None and not isinstance(columns, Mapping):
        expected = f"a mapping from names to {', '.join(map(repr, WORDS))}, or one of these"  # type: ignore[unreachable]
        raise ArgumentError("columns", expected, repr(columns)[:80])
    found: dict[str, Declared] = dict.fromkeys(names, AUTO)
    for key, declared in (columns or {}).items():
        name = key
        if isinstance(key, int) and not isinstance(key, bool) and -len(names) <= key < len(names):
            name = names[key] if str(key) not in found else str(key)
        if name not in found:
            raise ArgumentError("columns", f"names among {few(names)}", repr(key)[:80])
        found[name] = declared
    return found


def infer_column(cells: Cells, declared: Declared, floor: float, linear: bool = False) -> Column:
    """The column that cells form.

    Args:
        cells: The values.
        declared: One of ``WORDS``, or a family.
        floor: The smallest scale of a real family, in units of the column's spread.
        linear: Infer neither spikes nor normal scores.
    """
    _check_declared(cells.name, declared)
    missing = int(cells.missing.sum())
    if missing == len(cells.values):
        return Column(cells.name, Categorical(1), cells.dtype, missing=missing)
    if declared == AUTO:
        declared = _inferred_kind(cells)
        if declared == EMPTY:
            return Column(cells.name, Categorical(1), cells.dtype, missing=missing)
        if linear and declared in (SCORES, "spiked"):
            declared = "gaussian"
    if isinstance(declared, Categorical | Bernoulli) or declared in ("categorical", "bernoulli"):
        if cells.calendar:
            raise ArgumentError(column_named(cells.name), "strings or numbers as categories", "dates",
                                "turn them into strings")  # fmt: skip
        return _coded(cells, declared, missing)
    if cells.dtype == "text":
        word = declared if isinstance(declared, str) else repr(declared)
        remedy = "convert the column to numbers, or declare it 'categorical'"
        raise ArgumentError(column_named(cells.name), f"numbers for {word}", "strings", remedy)
    observed: Numbers = cells.values[~cells.missing]
    low, high = float(observed.min()), float(observed.max())
    if declared in (SCORES, "spiked"):
        return _scored(cells, observed, floor, missing, declared == "spiked")
    family = declared if isinstance(declared, Family) else _family(cells.name, declared, floor, high)
    if isinstance(family, LocationScale):
        location, scale = _spread(observed)
        return Column(
            cells.name, family, cells.dtype, (), location, scale, low, high, missing, **_lattice(cells, observed)
        )
    column = Column(cells.name, family, cells.dtype, low=low, high=high, missing=missing)
    column.encode(cells)  # raises if the family does not take the values
    return column


def _array_of_integers(columns: Sequence[Cells]) -> tuple[str, tuple[Label, ...] | None]:
    """What all columns of an array are together: a word, and the categories that they share.

    The columns of an array have one type. If all its values are integers, it is judged as a whole, so that a pixel that
    happens to be 0 or 1 in every row is treated like its neighbours.
    """
    if any(cells.dtype not in ("integer", "float") for cells in columns):
        return AUTO, None
    values = np.unique(np.concatenate([cells.values[~cells.missing] for cells in columns]))
    if not len(values) or (values != np.floor(values)).any():
        return AUTO, None
    if not _are_categories(values, len(columns[0].values)):
        return "gaussian", None
    labels = tuple(int(value) for value in values)
    return ("bernoulli" if labels == (0, 1) else "categorical"), labels


def _check_declared(name: str, declared: object) -> None:
    if isinstance(declared, Family) or (isinstance(declared, str) and declared in WORDS):
        return
    expected = f"one of {', '.join(map(repr, WORDS))}, or a family such as pc.Gaussian()"
    remedy = f"write {declared.__name__}(...)" if isinstance(declared, type) else ""
    raise ArgumentError(f"columns[{name!r}]", expected, repr(declared)[:80], remedy)


def _inferred_kind(cells: Cells) -> str:
    if cells.dtype == "boolean":
        return "bernoulli"
    if cells.dtype == "text":
        if cells.categories is not None:
            return "categorical"
        _refuse_disguised(cells)
        return EMPTY if _are_identifiers(cells) else "categorical"
    observed = cells.values[~cells.missing]
    different = np.unique(observed)
    if different.tolist() == [0.0, 1.0] and not cells.calendar:
        return "bernoulli"
    integers = cells.dtype == "integer" or cells.whole
    codes = integers and _are_categories(different, len(observed))
    codes = codes or _are_codes_but_for_strays(observed, integers) or _are_levels(observed)
    if codes and not cells.calendar:
        return "categorical"
    spikes = _spikes(observed)
    too_few = len(observed) < FEWEST_SCORED and not np.isin(_far_ends(different), spikes).any()
    if too_few or len(different) < FEWEST_KNOTS:
        return "gaussian"
    if len(spikes) and not _are_peaks(observed, spikes):
        return "spiked"
    return SCORES if len(spikes) or _is_skewed(observed) else "gaussian"


def _are_categories(different: Numbers, rows: int) -> bool:
    """Whether these integers, which are all that occur in so many rows, are categories rather than quantities."""
    if different.tolist() == [0.0, 1.0]:
        return True
    most = max(min(number, rows // each) for number, each in INTEGER_CATEGORIES)
    return 1 < len(different) <= most and float(np.abs(different).max()) < _LARGEST_INTEGER


def _are_codes_but_for_strays(observed: Numbers, integers: bool) -> bool:
    """Whether the values are categories but for very few that are no integers, or one that is rare.

    These do not make a code a quantity.
    """
    whole = observed[observed == np.floor(observed)]
    strays = len(observed) - len(whole)
    if integers:  # one of them that is rare may be a stray, too
        values, counts = np.unique(whole, return_counts=True)
        strays = int(counts.min())
        whole = whole[whole != values[counts.argmin()]]
    few_strays = 0 < strays <= LARGEST_STRAY_SHARE * len(observed)
    return few_strays and _are_categories(np.unique(whole), len(whole))


def _are_levels(observed: Numbers) -> bool:
    """Whether a few values, integers or not, are nearly all that occurs."""
    counts = np.unique(observed, return_counts=True)[1]
    frequent = counts[counts >= FEWEST_OF_LEVEL]
    strays = len(observed) - int(frequent.sum())
    number, each = INTEGER_CATEGORIES[-1]
    few = 1 < len(frequent) <= min(number, len(observed) // each)
    return few and len(counts) <= number and strays <= LARGEST_STRAY_SHARE * len(observed)


def _refuse_disguised(cells: Cells) -> None:
    """Raise for strings that are all dates, times, percentages or numbers in another notation."""
    found = disguised([text for text in cells.values if text is not None])
    if found is not None:
        remedy = f"{found[1]}, or declare columns={{{cells.name!r}: 'categorical'}}"
        raise ArgumentError(column_named(cells.name), "numbers, or strings that are categories", found[0], remedy)


def unhelpful_columns(frame: Frame, columns: Sequence[Column]) -> list[str]:
    """What should be said about columns from which nothing can be learned.

    These are identifiers and free text, which are left out, constant columns and numbers of rows.
    """
    found = []
    for column in columns:
        if column.left_out:
            texts = [text for text in frame.cells(column.name, "text").values if text is not None]
            words = f"{len(set(texts)):,} different strings in {len(texts):,} rows, such as {texts[0]!r:.40}"
            found.append(f"{column_named(column.name)} has {words}, and is left out of the model")
        elif not frame.named or frame.rows < FEWEST_NAMED:
            continue
        elif (column.low is not None and column.low == column.high) or len(column.categories) == 1:
            found.append(f"{column_named(column.name)} is constant")
        elif column.dtype == "integer" and column.low is not None and not column.missing:
            steps = np.diff(np.sort(frame.cells(column.name).values))
            if len(steps) and (steps == 1).all():
                found.append(f"{column_named(column.name)} counts the rows")
    return found


def far_values(frame: Frame, columns: Sequence[Column]) -> list[str]:
    """What should be said about repeated values that are far from all others of their column, such as −999."""
    found = []
    for column in columns:
        if column.low is None or column.dated:
            continue
        cells = frame.cells(column.name, column.dtype)
        values, counts = np.unique(cells.values[~cells.missing], return_counts=True)
        for value in _far_ends(values):
            others, count = values[values != value], int(counts[values == value][0])
            if count >= (2 if frame.rows >= FEWEST_NAMED else FEWEST_OF_LEVEL):
                words = f"{value:g} in {count:,} rows, and else {others[0]:g} … {others[-1]:g}"
                found.append(f"{column_named(column.name)} has {words}")
    return found


def _far_ends(values: Numbers) -> Numbers:
    """The smallest and the largest of different values, in order, if further from the next than all others spread."""
    if len(values) < FEWEST_KNOTS:
        return values[:0]
    gaps, length = np.diff(values), values[-1] - values[0]
    far = [gaps[0] > length - gaps[0], gaps[-1] > length - gaps[-1]]
    found: Numbers = values[[0, -1]][far]
    return found


def _are_identifiers(cells: Cells) -> bool:
    """Whether strings differ in most rows: they name the rows, and nothing can be learned from them."""
    texts = [text for text in cells.values if text is not None]
    different = len(set(texts))
    if different == len(texts) >= FEWEST_IDENTIFIERS:
        return True
    return different > MOST_TEXT_CATEGORIES and different > DISTINCT_TEXT_SHARE * len(texts)


def _coded(cells: Cells, declared: Declared, missing: int) -> Column:
    """A column of categories: those that the table declares, or else those that occur, in order."""
    labels = cells.categories if cells.categories is not None else _labels(cells)
    if isinstance(declared, Categorical) and all(type(v) is int and 0 <= v < declared.categories for v in labels):
        labels = tuple(range(declared.categories))
    binary = declared == "bernoulli" or isinstance(declared, Bernoulli)
    if binary and set(labels) <= {0, 1}:
        labels = (False, True) if cells.dtype == "boolean" else (0, 1)
    family: Family = Bernoulli() if binary else Categorical(len(labels))
    if (binary and len(labels) != 2) or (isinstance(declared, Categorical) and declared != family):
        wanted = 2 if binary else declared.categories if isinstance(declared, Categorical) else 0
        remedy = "declare it 'categorical'"
        raise ArgumentError(column_named(cells.name), f"{wanted} different values", f"{len(labels)}", remedy)
    return Column(cells.name, family, cells.dtype, labels, missing=missing)


def _labels(cells: Cells) -> tuple[Label, ...]:
    present = cells.values[~cells.missing]
    if cells.dtype == "text":
        return tuple(sorted(set(present)))
    if cells.dtype == "boolean":
        return (False, True)
    values = np.unique(present)
    if cells.dtype == "integer" and float(np.abs(values).max()) >= _LARGEST_INTEGER:
        remedy = "turn the numbers into strings, or declare the column 'gaussian'"
        raise ArgumentError(column_named(cells.name), "categories below 2⁵³", f"{values[-1]:g}", remedy)
    if all(value == np.floor(value) and abs(value) < _LARGEST_INTEGER for value in values):
        return tuple(int(value) for value in values)
    return tuple(float(value) for value in values)


def _family(name: str, word: str, floor: float, high: float) -> Family:
    match word:
        case "gaussian":
            return Gaussian(min_std=floor)
        case "student":
            return StudentT(min_scale=floor)
        case "laplace":
            return Laplace(min_scale=floor)
        case "poisson":
            return Poisson()
    if high != np.floor(high) or abs(high) > _LARGEST_INTEGER:
        raise ArgumentError(column_named(name), "integers for 'binomial'", f"{high:g}", "declare it 'gaussian'")
    return Binomial(max(1, int(high)))


def _spikes(observed: Numbers) -> Numbers:
    """Values that occur far more often than the others of a column, ascending; none if they are nearly all of it.

    One that is far from all others need not occur as often.
    """
    values, counts = np.unique(observed, return_counts=True)
    often = counts > max(SPIKE_SHARE * len(observed), SPIKE_PROMINENCE * float(np.median(counts)), FEWEST_IN_SPIKE)
    often |= np.isin(values, _far_ends(values)) & (counts >= FEWEST_OF_LEVEL)
    often[np.argsort(-counts, kind="stable")[MOST_SPIKES:]] = False
    rest = counts[~often]
    if not often.any() or rest.sum() < FEWEST_KNOTS or len(rest) < FEWEST_KNOTS:
        return values[:0]
    return values[often]


def _peaks(observed: Numbers, step: float) -> Numbers:
    """Values of a column with a step that occur more often than their neighbours explain, ascending.

    Two knots for a value are worth it if they raise the log-likelihood by more than the criterion of Schwarz asks for,
    and the values that gain most come first. What neighbours explain is the usual count of a value near it, spread over
    all multiples of the step there.
    """
    values, counts = np.unique(observed, return_counts=True)
    reach = min(NEIGHBOURS, (len(values) - 1) // 2)
    width = 2 * reach + 1
    first = np.clip(np.arange(len(values)) - reach, 0, len(values) - width)
    near = first[:, None] + np.arange(width)
    span = np.rint((values[near[:, -1]] - values[near[:, 0]]) / step) + 1
    expected = np.median(counts[near], 1) * width / span
    gains = counts * np.log(counts / expected) - (counts - expected)
    gains[counts <= expected] = 0.0
    best = np.argsort(-gains, kind="stable")[:MOST_PEAKS]
    # One factor is for the two knots, and one because the best of many values are taken.
    return np.asarray(values[np.sort(best[gains[best] > 2 * np.log(len(observed))])], np.float64)


def _are_peaks(observed: Numbers, spikes: Numbers) -> bool:
    """Whether spikes can be steep pieces of a transform: a part of a column with a step, and each among other values.

    Correlations are of more use than exact atoms then. Without a step there are no such pieces, so spikes are ignored
    only if they are a small part of the column.
    """
    step = _step(observed)
    if np.isin(observed, spikes).mean() >= (LEAST_SPIKED if step else LEAST_SPIKED_REAL):
        return False
    values = np.unique(observed)
    gaps = np.concatenate([[np.inf], np.diff(values), [np.inf]])
    places = np.searchsorted(values, spikes)
    nearest = np.minimum(gaps[places], gaps[places + 1])
    return bool((nearest <= max(2 * step, FARTHEST_PEAK * _spread(observed)[1])).all())


def _is_skewed(observed: Numbers) -> bool:
    """Whether the values are far from symmetric, or have tails far heavier than those of a normal distribution."""
    low, middle, high = np.quantile(observed, [0.05, 0.5, 0.95])
    if not np.isfinite(high - low) or high <= low:
        return False
    skew = abs(float(high + low - 2 * middle)) / float(high - low)
    farthest = max(float(observed.max() - middle), float(middle - observed.min()))
    return skew > LARGEST_SKEW or farthest > LARGEST_TAIL * float(high - low)


def _scored(cells: Cells, observed: Numbers, floor: float, missing: int, spiked: bool) -> Column:
    """A column whose values are transformed to normal scores, with its spikes apart if there are any."""
    location, scale = _spread(observed)
    spikes = _spikes(observed) if spiked else observed[:0]
    rest = observed[~np.isin(observed, spikes)]
    low, high = float(observed.min()), float(observed.max())
    if spiked and not len(spikes):
        raise ArgumentError(
            column_named(cells.name), "values that occur often, for 'spiked'", "none", "declare it 'scores'"
        )
    pieces = int(np.clip(len(rest) // ROWS_PER_KNOT, FEWEST_KNOTS, MOST_KNOTS))
    knots = knots_of(rest, scale, pieces, lambda _, levels: ndtri(levels))
    if len(knots) < 2:
        raise ArgumentError(column_named(cells.name), "different numbers for 'scores'", f"{low:g} … {high:g}")
    plain = Column(
        cells.name, Gaussian(min_std=floor), cells.dtype, (), location, scale, low, high, missing, knots,
        **_lattice(cells, observed),
    )  # fmt: skip
    if not len(spikes):
        return plain
    codes = plain.encode(replace(cells, values=spikes))
    # The first atom is 0, so that columns with one spike have the same family, and the engine computes them together.
    moved = tuple((value, code - codes[0]) for value, code in knots)
    family = Spiked(tuple(_apart(codes - codes[0])), floor)
    return replace(plain, family=family, spikes=tuple(spikes.tolist()), knots=moved)


def knots_of(
    observed: Numbers, scale: float, pieces: int, coded: Callable[[Numbers, Numbers], Numbers]
) -> tuple[tuple[float, float], ...]:
    """Values and codes: knots lie between different values, at levels whose normal scores are evenly spaced.

    So a value that occurs often, such as an integer, has the density of the gap around it.

    Args:
        observed: The values of a column.
        scale: Their spread.
        pieces: The number of pieces, at most.
        coded: The codes of values and of the shares of the column below them.
    """
    values, counts = np.unique(observed, return_counts=True)
    if len(values) < 2:
        return ()
    shares = np.cumsum(counts) / len(observed)
    ends = (0.5 * counts[0] / len(observed), 1 - 0.5 * counts[-1] / len(observed))
    between, levels = (values[:-1] + values[1:]) / 2, shares[:-1]
    first, final = (float(ndtri(end)) for end in ends)
    wanted = ndtr(np.linspace(first, final, pieces + 1)[1:-1])
    chosen = np.unique(np.clip(np.searchsorted(levels, wanted), 0, len(levels) - 1))
    # A piece with few rows has a slope by chance.
    chosen = chosen[np.minimum(levels[chosen], 1 - levels[chosen]) * len(observed) >= FEWEST_BEYOND]
    inner = _with_peaks(observed, between[chosen], levels[chosen])
    at = np.concatenate([values[:1], inner[0], values[-1:]])
    scores = coded(at, np.concatenate([ends[:1], inner[1], ends[1:]]))
    # Steeper pieces would give values that happen to be close to each other a huge density.
    found, last = [(float(at[0]), float(scores[0]))], (float(at[-1]), float(scores[-1]))
    for value, score, peak in zip(at[1:-1].tolist(), scores[1:-1].tolist(), inner[2].tolist(), strict=True):
        rise, left = score - found[-1][1], last[1] - score
        steepest = STEEPEST_PEAK if peak else STEEPEST
        if min(rise, left) > _CLOSEST_SCORES and value - found[-1][0] >= steepest * scale * rise:
            found.append((value, score))
    return (*found, last)


def _with_peaks(observed: Numbers, at: Numbers, levels: Numbers) -> tuple[Numbers, Numbers, npt.NDArray[np.bool_]]:
    """Inner knots, with one on either side of each value that occurs often; of each, whether a peak ends there.

    Draws from between the two are rounded to that value. This needs a step that all values are multiples of.
    """
    step = _step(observed)
    peaks = _peaks(observed, step) if step else observed[:0]
    if not len(peaks):
        return at, levels, np.zeros(len(at), bool)
    order = np.sort(observed)
    lower, upper = peaks[peaks > order[0]], peaks[peaks < order[-1]]
    apart = (np.abs(at[:, None] - peaks) > 0.5 * step).all(1)
    places = np.concatenate([at[apart], lower - 0.5 * step, upper + 0.5 * step])
    left, right = np.searchsorted(order, lower, "left"), np.searchsorted(order, upper, "right")
    shares = np.concatenate([levels[apart], left / len(order), right / len(order)])
    ending = np.repeat([False, False, True], [apart.sum(), len(lower), len(upper)])
    places, first = np.unique(places, return_index=True)  # two peaks next to each other share a knot
    return places, shares[first], ending[first]


def _lattice(cells: Cells, observed: Numbers) -> dict[str, Any]:
    """The step of the values, and all of them, if they are few and far between."""
    step, values = _step(observed), np.unique(observed)
    few = not cells.calendar and 1 < len(values) <= MOST_LEVELS and ROWS_PER_LEVEL * len(values) <= len(observed)
    with np.errstate(over="ignore"):  # of huge numbers
        places = (values[-1] - values[0]) / step + 1 if step else np.inf
    sparse = len(values) < LARGEST_LEVEL_SHARE * places
    return {"step": step, "levels": tuple(values.tolist()) if few and sparse else ()}


def _step(observed: Numbers) -> float:
    """The distance that nearly all values are multiples of apart from the least; 0 if there is none.

    Where many values are repeated it may be any number, elsewhere a power of ten: the last digit that is written.
    """
    values, counts = np.unique(observed, return_counts=True)
    if len(values) < 3:
        return 0.0
    # The rarest values, few rows together, do not count.
    order = np.argsort(counts, kind="stable")
    rare = order[np.cumsum(counts[order]) <= LARGEST_STRAY_SHARE * len(observed)]
    usual = np.delete(values, rare)
    repeated = len(usual) > 2 and ROWS_PER_STEP * len(usual) <= len(observed)
    # The least gap may be several steps.
    gaps = [_exact(usual, float(np.diff(usual).min()) / parts) for parts in (1, 2, 3, 4, 5)] if repeated else []
    digits = list(DECIMAL_STEPS) if len(values) >= FEWEST_WRITTEN else []
    for step in gaps + digits:
        with np.errstate(over="ignore", invalid="ignore"):  # of huge numbers
            multiples = (usual - values[0]) / step
            near = np.abs(multiples - np.rint(multiples)).max() < STEP_PRECISION
        if near and (multiples[-1] < MOST_STEPS or step in digits):
            return step
    return 0.0


def _exact(values: Numbers, step: float) -> float:
    """A step that the range of the values is a multiple of: thirds written with six digits have inexact gaps."""
    whole = float(values[-1]) - float(values[0])
    count = round(whole / step) if whole < MOST_STEPS * step else 0
    return whole / count if count else step


def _apart(atoms: Numbers) -> list[float]:
    """Codes in single precision, each above the one before."""
    found: list[float] = []
    for atom in np.asarray(atoms, np.float32):
        above = atom if not found else max(atom, np.nextafter(np.float32(found[-1]), np.float32(np.inf)))
        found.append(float(above))
    return found


def _spread(observed: Numbers) -> tuple[float, float]:
    """The median, and a spread that outliers do not change unless they are extreme.

    It is the distance of the quartiles as if the values were normal, or the standard deviation if that is zero; and at
    least a hundredth of the largest deviation, so that nothing is further than 100 from the centre. A constant c gets
    ``max(1, 10⁻⁶ |c|)``.
    """
    largest = float(np.abs(observed).max())
    unit = math.ldexp(1.0, math.frexp(largest)[1] - 1)  # differences of huge values would overflow
    values = observed / unit
    lower, median, upper = np.quantile(values, [0.25, 0.5, 0.75])
    spread = float(upper - lower) / _NORMAL_QUARTILES or float(values.std())
    spread = max(spread, float(np.abs(values - median).max()) / LARGEST_STANDARDISED) * unit
    if not spread > 0 or observed.min() == observed.max():
        spread = max(1.0, _CONSTANT_PRECISION * largest)
    return float(median * unit), spread
