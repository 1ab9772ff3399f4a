# SPDX-License-Identifier: Apache-2.0
"""Models of sequences: filtering, smoothing, forecasts, samples, imputation and surprise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from picirc.checks import check_choice, check_integer, is_number
from picirc.data.frames import assemble, fill
from picirc.errors import ArgumentError
from picirc.inputs import Family
from picirc.quadrature import Rule
from picirc.sequences.chain import Batch, Chain
from picirc.sequences.data import Columns, SchemaColumns, Sequences, as_times, frame_of, gaps_of, read_sequences
from picirc.sequences.dynamics import DEFAULT_RULE, SequencePIC, StateSpace, load_chain, normal_points, save_chain
from picirc.structure.bayesnet import BayesNet

Numbers = npt.NDArray[np.float64]

HOW = ("mean", "median", "sample")
QUANTILES = (0.05, 0.5, 0.95)
_MOST_NUMBERS = 2**24  # the largest number of probabilities that are computed at a time
_BISECTIONS = 60


@dataclass(frozen=True, eq=False)
class StatePosterior:
    """The distribution of the latent at every step of a sequence.

    Attributes:
        nodes: The values of the latent, ``(N, d)``.
        probabilities: The probability of each value, ``(T, N)``.
        times: The time of each step, ``(T,)``.
    """

    nodes: Numbers
    probabilities: Numbers
    times: Numbers

    @property
    def mean(self) -> Numbers:
        """The expectation of the latent, ``(T, d)``."""
        return np.asarray(self.probabilities @ self.nodes)

    @property
    def std(self) -> Numbers:
        """Its standard deviation, ``(T, d)``."""
        second = self.probabilities @ self.nodes**2
        return np.asarray(np.sqrt(np.maximum(second - self.mean**2, 0.0)))


@dataclass(frozen=True, eq=False)
class Forecast:
    """The distribution of every column at some steps.

    Attributes:
        times: The time of each step, ``(steps,)``.
        mean: The expectation of each column of numbers by name, ``(steps,)`` each.
        levels: The levels of the quantiles.
        quantiles: The quantiles of each column of numbers by name, ``(steps, levels)`` each.
        probabilities: The probability of every category of the other columns by name, ``(steps, categories)`` each.
        categories: The categories of these columns by name.
        container: The kind of table that ``table`` returns.
    """

    times: npt.NDArray[Any]
    mean: Mapping[str, Numbers]
    levels: tuple[float, ...]
    quantiles: Mapping[str, Numbers]
    probabilities: Mapping[str, Numbers]
    categories: Mapping[str, tuple[Any, ...]]
    container: str = "mapping"

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """The forecast as columns: time, ``name``, ``name 5%`` and so on; categories and their probabilities."""
        found: dict[str, npt.NDArray[Any]] = {"time": self.times}
        for name, mean in self.mean.items():
            found[name] = mean
            for level, values in zip(self.levels, self.quantiles[name].T, strict=True):
                found[f"{name} {100 * level:g}%"] = values
        for name, masses in self.probabilities.items():
            labels = np.array(self.categories[name], dtype=object)
            found[name] = labels[masses.argmax(1)]
            found |= {f"{name} = {label}": masses[:, i] for i, label in enumerate(labels)}
        return found

    def table(self) -> Any:
        """The forecast as a table of the kind that the model was fitted to; a mapping in place of an array."""
        return assemble("mapping" if self.container == "numpy" else self.container, self.columns(), {})


class SequenceModel:
    """A homogeneous chain with continuous latents: one transition and one emission for all steps.

    ``fit_sequences`` and ``state_space`` return one. Data are a table (one sequence), a list of tables, or one long
    table with the column ``by``. Queries return one result for each sequence: a single one, a list, or a mapping by
    key. Any cells may be missing; they are integrated out. Queries are in double precision.
    """

    def __init__(
        self,
        columns: Columns,  # the conversion between tables and numbers
        dynamics: SequencePIC | StateSpace,  # the functions of the chain
        *,
        rule: Rule = DEFAULT_RULE,  # for each latent of a known chain
        by: str | None = None,  # the column that identifies the sequences
        time: str | None = None,  # the column of the times
        unit: float = 1.0,  # the time of one step
        container: str = "mapping",  # the kind of table that was fitted
        dates: bool = False,  # whether times are dates
        summary: Mapping[str, Any] | None = None,  # facts about the training, as plain JSON values
    ) -> None:
        self.columns, self.dynamics, self.rule = columns, dynamics, rule
        self.by, self.time, self.unit, self.container, self.dates = by, time, unit, container, dates
        self.summary: dict[str, Any] = dict(summary or {})

    @cached_property
    def chain(self) -> Chain:
        """The chain on its grid, in double precision."""
        return self._chain_on(1)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the chain, which is evaluated again when it is needed."""
        return {name: value for name, value in self.__dict__.items() if name != "chain"}

    def _chain_on(self, refine: int) -> Chain:
        with torch.no_grad():
            if isinstance(self.dynamics, StateSpace):
                rule, widen = (self.rule, 1.0) if refine == 1 else (self.rule.resize(int(2.5 * len(self.rule))), 1.25)
                return self.dynamics.chain(rule, widen)
            double = SequencePIC(**self.dynamics.settings).double()
            double.load_state_dict({k: v.double() for k, v in self.dynamics.state_dict().items()})
            return double(normal_points(2 * refine * double.points, double.dims))  # type: ignore[no-any-return]

    def log_prob(self, data: Any) -> Numbers:
        """``log p(x)`` of each sequence, in nats and in the units of the data, ``(sequences,)``."""
        return np.array([steps.sum() for steps in self._steps(self._read(data))])

    def surprise(self, data: Any) -> Any:
        """``-log p(x_t | x_1 … x_{t-1})`` of every step: high for rows that are improbable given the past."""
        sequences = self._read(data)
        return sequences.shaped([-steps for steps in self._steps(sequences)])

    def error(self, data: Any) -> Numbers:
        """The change of ``log_prob`` on a finer grid, which is also wider for a known chain, ``(sequences,)``."""
        sequences = self._read(data)
        finer = SequenceModel(self.columns, self.dynamics, rule=self.rule, unit=self.unit)
        finer.chain = self._chain_on(2)
        return np.asarray(np.abs(finer.log_prob(sequences) - self.log_prob(sequences)))

    def filter(self, data: Any) -> Any:
        """The latent at each step given the rows up to it: a ``StatePosterior`` for each sequence."""
        return self._posteriors(data, smooth=False)

    def smooth(self, data: Any) -> Any:
        """The latent at each step given all rows: a ``StatePosterior`` for each sequence."""
        return self._posteriors(data, smooth=True)

    def _posteriors(self, data: Any, smooth: bool) -> Any:
        sequences, nodes = self._read(data), self.chain.nodes.numpy()
        found = [
            StatePosterior(nodes, probabilities.numpy(), self._times(sequences, i))
            for i, probabilities in self._states(sequences, smooth)
        ]
        return sequences.shaped(found)

    def predict(self, data: Any, quantiles: Sequence[float] = QUANTILES) -> Any:
        """The distribution of every row given the rows before it: a ``Forecast`` for each sequence."""
        sequences = self._read(data)
        levels = _levels(quantiles)
        found = [
            self._forecast(weights, levels, self._shown(self._times(sequences, i)))
            for i, weights in self._predicted(sequences)
        ]
        return sequences.shaped(found)

    def pit(self, data: Any, seed: int = 0) -> Any:
        """``P(X_t ≤ x_t | x_1 … x_{t-1})`` of every cell, ``(T, C)``: uniform if the forecasts are calibrated.

        A discrete value gets a random position in its jump of the distribution function. Missing cells are NaN.
        """
        sequences, source = self._read(data), _generator(seed)
        encoded = [self.columns.encode(table) for table in sequences.tables]
        return sequences.shaped([self._pit(encoded[i], w, source) for i, w in self._predicted(sequences)])

    def forecast(self, data: Any, steps: int, quantiles: Sequence[float] = QUANTILES) -> Any:
        """The distribution of every column at the next steps: a ``Forecast`` for each sequence.

        Args:
            data: The known rows.
            steps: The number of steps ahead, each one unit of time.
            quantiles: The levels of the quantiles.
        """
        steps, levels = check_integer("steps", steps), _levels(quantiles)
        sequences = self._read(data)
        found = []
        for i, filtered in self._states(sequences, False):
            weights = self.chain.ahead(filtered[-1:], torch.ones(steps, dtype=torch.float64))[:, 0]
            found.append(self._forecast(weights, levels, self._following(self._times(sequences, i), steps)))
        return sequences.shaped(found)

    def sample(self, length: int, n: int | None = None, given: Any = None, seed: int = 0) -> Any:
        """Draw sequences, or continuations of a sequence.

        Args:
            length: The number of steps.
            n: The number of sequences, which are returned in a list; None for a single one.
            given: The sequence to continue.
            seed: The seed of the draws.
        """
        length, count, source = check_integer("length", length), check_integer("n", n or 1), _generator(seed)
        gaps = torch.ones(length, dtype=torch.float64)
        if given is None:
            first = torch.multinomial(self.chain.start.expand(count, -1), 1, generator=source)
            ahead = [self.chain.draw_ahead(first[:, 0], gaps[1:], source)] if length > 1 else []
            states = torch.cat((first, *ahead), 1)
        else:
            sequences = self._read(given)
            if len(sequences.tables) != 1:
                raise ArgumentError("given", "one sequence", f"{len(sequences.tables)} of them")
            last = next(self._states(sequences, False))[1][-1]
            start = torch.multinomial(last.expand(count, -1), 1, generator=source)[:, 0]
            states = self.chain.draw_ahead(start, gaps, source)
        rows = self.chain.emit(states, source).numpy()
        drawn = [assemble(self.container, self.columns.decode(part), {}) for part in rows]
        return drawn[0] if n is None else drawn

    def impute(self, data: Any, how: str = "mean", seed: int = 0) -> Any:
        """The data with missing cells filled given all rows of their sequence; observed cells do not change.

        Args:
            data: The data.
            how: ``"mean"`` or ``"median"`` of numbers, with the most probable category; or ``"sample"``, a draw from
                the joint distribution of all missing cells.
            seed: The seed of the draws.
        """
        check_choice("how", how, HOW)
        sequences, source = self._read(data), _generator(seed)
        gaps = gaps_of(sequences, self.unit, self.dynamics.timed)
        filled = []
        for i, weights in self._states(sequences, how != "sample"):
            rows = self.columns.encode(sequences.tables[i])
            if how == "sample":
                new = self.chain.emit(self.chain.draw_states(weights, gaps[i], source, 1)[0], source)
            else:
                new = self._expected(weights, how)
            filled.append(self.columns.decode(torch.where(rows.isnan(), new, rows).numpy()))
        return _filled(data, sequences, filled)

    def online(self) -> OnlineFilter:
        """A filter that takes one row at a time."""
        return OnlineFilter(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Save a learned model and its columns as safetensors and JSON. ``load`` reads it."""
        if not isinstance(self.dynamics, SequencePIC) or not isinstance(self.columns, SchemaColumns):
            remedy = "keep the program that makes it"
            raise ArgumentError("model", "a learned model", "a model of functions, which cannot be saved", remedy)
        about = {"by": self.by, "time": self.time, "unit": self.unit, "container": self.container, "dates": self.dates}
        save_chain(self.dynamics, path, self.columns.schema.to_json(), about, self.summary)

    @classmethod
    def load(cls, path: str | PathLike[str], families: Sequence[type[Family]] = ()) -> SequenceModel:
        """Load a model that ``save`` wrote. This runs no code from the file.

        Args:
            path: The folder or the file.
            families: Custom classes of families of the columns.
        """
        dynamics, schema, about, summary = load_chain(Path(path), families)
        return cls(SchemaColumns(schema), dynamics, summary=summary, **about)

    def __repr__(self) -> str:
        size = len(self.chain.start)
        if isinstance(self.dynamics, StateSpace):
            return f"SequenceModel({', '.join(self.columns.names)}; known, {size} states)"
        count = sum(p.numel() for p in self.dynamics.parameters())
        dims = f"{self.dynamics.dims} dimensions" if self.dynamics.dims > 1 else "1 dimension"
        return f"SequenceModel({', '.join(self.columns.names)}; {dims}, {count:,} parameters, {size} states)"

    def _read(self, data: Any) -> Sequences:
        if isinstance(data, Sequences):
            sequences = data
        else:
            listed = isinstance(data, list | tuple)
            names = frame_of(data[0] if listed else data).names if not listed or data else ()
            if self.time is not None and self.time not in names and self.dynamics.timed:
                expected = f"the column {self.time!r} of the times"
                raise ArgumentError("data", expected, "none", "the steps differ in length")
            by = self.by if self.by in names and not listed else None
            sequences = read_sequences(data, by, self.time if self.time in names else None)
        for table in sequences.tables:
            if not len(next(iter(table.values()))):
                raise ArgumentError("data", "at least one row in every sequence", "an empty one")
        return sequences

    def _batches(self, sequences: Sequences) -> Iterator[tuple[Batch, list[int]]]:
        """Batches of sequences, and the numbers of these."""
        encoded = [self.columns.encode(table) for table in sequences.tables]
        gaps = gaps_of(sequences, self.unit, self.dynamics.timed)
        most = max(1, _MOST_NUMBERS // len(self.chain.start))
        start = 0
        while start < len(encoded):
            stop, rows = start + 1, len(encoded[start])
            while stop < len(encoded) and rows + len(encoded[stop]) <= most:
                rows += len(encoded[stop])
                stop += 1
            yield Batch.of(encoded[start:stop], gaps[start:stop]), list(range(start, stop))
            start = stop

    def _steps(self, sequences: Sequences) -> list[Numbers]:
        """``log p(x_t | x_<t)`` of each sequence in the units of the data."""
        found: list[Numbers] = []
        for batch, _ in self._batches(sequences):
            logs = self.chain.passes(batch)[0] - self.columns.log_slopes(batch.x)
            found += [part.numpy() for part in batch.split(logs)]
        return found

    def _states(self, sequences: Sequences, smooth: bool) -> Iterator[tuple[int, Tensor]]:
        """The filtered or smoothed probabilities ``(T, N)`` of each sequence, after its number."""
        for batch, numbers in self._batches(sequences):
            _, filtered, smoothed = self.chain.passes(batch, smooth=smooth)
            found = smoothed if smoothed is not None else filtered
            yield from zip(numbers, batch.split(found), strict=True)

    def _predicted(self, sequences: Sequences) -> Iterator[tuple[int, Tensor]]:
        """The probabilities ``(T, N)`` of the states of each sequence given the rows before, after its number."""
        gaps = gaps_of(sequences, self.unit, self.dynamics.timed)
        for i, filtered in self._states(sequences, False):
            found = torch.empty_like(filtered)
            found[0] = self.chain.start
            for gap in gaps[i][1:].unique():
                places = (gaps[i][1:] == gap).nonzero().squeeze(1)
                found[places + 1] = filtered[places] @ self.chain.transition(gap.reshape(1))[0]
            yield i, found

    def _times(self, sequences: Sequences, number: int) -> Numbers:
        if sequences.times is not None:
            return np.asarray(sequences.times[number])
        return np.arange(len(sequences.rows[number]), dtype=np.float64)

    def _following(self, times: Numbers, steps: int) -> npt.NDArray[Any]:
        """The times of the next steps; dates with a step of whole months keep their day of the month."""
        ahead = np.arange(1, steps + 1)
        days = times.astype(np.int64).astype("datetime64[D]")
        months = days.astype("datetime64[M]")
        within = (days - months.astype("datetime64[D]")).astype(int)
        whole = round(self.unit / 30.44)
        monthly = whole >= 1 and bool((within == within[0]).all()) and bool((times % 1 == 0).all()) and within[0] < 28
        if not (self.dates and monthly):
            return self._shown(times[-1] + self.unit * ahead)
        found: npt.NDArray[Any] = (months[-1] + whole * ahead).astype("datetime64[D]") + within[0]
        return found.astype("datetime64[ns]")

    def _shown(self, times: Numbers) -> npt.NDArray[Any]:
        return np.asarray(np.round(times * 86_400e9).astype("datetime64[ns]") if self.dates else times)

    def _forecast(self, weights: Tensor, levels: tuple[float, ...], times: npt.NDArray[Any]) -> Forecast:
        """The distributions of all columns if the states have the distributions ``weights`` ``(T, N)``."""
        mean, quantiles, masses, categories = {}, {}, {}, {}
        expected = self.chain.means(weights)
        for column, name in enumerate(self.columns.names):
            labels = self.columns.labels(column)
            family, params = self.chain.inputs[column]
            if labels:
                table = family.table(params[0])
                assert table is not None
                masses[name], categories[name] = (weights @ table.exp()).numpy(), labels
                continue
            mean[name] = self.columns.in_units(column, expected[:, column].numpy())
            found = mixture_quantiles(family, params, weights, levels)
            quantiles[name] = self.columns.in_units(column, found.numpy())
        return Forecast(times, mean, levels, quantiles, masses, categories, self.container)

    def _pit(self, x: Tensor, weights: Tensor, source: torch.Generator) -> Numbers:
        found = torch.full_like(x, torch.nan)
        for column, (family, params) in enumerate(self.chain.inputs):
            seen = (~x[:, column].isnan()).nonzero().squeeze(1)
            values = x[seen, column].unsqueeze(0)
            share = (family.cdf(params, values)[0] * weights[seen].T).sum(0)
            if family.discrete:
                mass = (family.log_prob(params, values)[0].exp() * weights[seen].T).sum(0)
                share = share - mass * torch.rand(len(mass), generator=source, dtype=mass.dtype)
            found[seen, column] = share.clamp(0, 1)
        return found.numpy()

    def _expected(self, weights: Tensor, how: str) -> Tensor:
        """The mean or median, or the most probable category, of all cells of a sequence, ``(T, C)``."""
        found = self.chain.means(weights)
        for column, (family, params) in enumerate(self.chain.inputs):
            table = family.table(params[0]) if self.columns.labels(column) else None
            if table is not None:
                found[:, column] = (weights @ table.exp()).argmax(1).double()
            elif how == "median":
                found[:, column] = mixture_quantiles(family, params, weights, (0.5,))[:, 0]
        return found


class OnlineFilter:
    """A filter that takes one row at a time.

    Attributes:
        surprise: ``-log p(x_t | x_1 … x_{t-1})`` of the last row.
    """

    def __init__(self, model: SequenceModel) -> None:
        self.model, self.surprise = model, 0.0
        self._state, self._begun = model.chain.start, False
        self._time = 0.0
        self._usual = None if model.dynamics.timed else model.chain.transition(torch.ones(1))[0]

    @torch.no_grad()
    def update(self, row: Any, time: Any = None) -> float:
        """Take the next row and return its surprise.

        Args:
            row: A mapping from names to values, or the values in the order of the columns; NaN is missing.
            time: Its time; by default one unit after the row before.
        """
        chain = self.model.chain
        x = self.model.columns.encode(_single(row, self.model.columns.names))
        state = self._state
        if self._begun:
            state = state @ self._table(time)
        elif time is not None:
            self._time = _moment(time)
        emission = chain.log_emission(x)[0]
        top = emission.max()
        joint = state.clamp(min=1e-200) * (emission - top).exp()
        total = joint.sum()
        self._state, self._begun = joint / total, True
        self.surprise = float(self.model.columns.log_slopes(x)[0] - total.log() - top)
        return self.surprise

    @property
    def state(self) -> StatePosterior:
        """The latent given the rows so far."""
        return StatePosterior(self.model.chain.nodes.numpy(), self._state[None].numpy(), np.array([self._time]))

    def forecast(self, steps: int, quantiles: Sequence[float] = QUANTILES) -> Forecast:
        """The distribution of every column at the next steps."""
        steps = check_integer("steps", steps)
        weights = self.model.chain.ahead(self._state[None], torch.ones(steps, dtype=torch.float64))[:, 0]
        times = self.model._following(np.array([self._time]), steps)
        return self.model._forecast(weights, _levels(quantiles), times)

    def _table(self, time: Any) -> Tensor:
        now = self._time + self.model.unit if time is None else _moment(time)
        gap = (now - self._time) / self.model.unit
        if gap <= 0:
            raise ArgumentError("time", f"a time after {self._time:g}", f"{now:g}")
        self._time = now
        if self._usual is not None:
            steps = max(1, round(gap))
            return self._usual if steps == 1 else torch.linalg.matrix_power(self._usual, steps)
        return self.model.chain.transition(torch.tensor([gap], dtype=torch.float64))[0]


def state_space(
    net: BayesNet,
    then: Mapping[str, Any],
    *,
    rule: Rule = DEFAULT_RULE,
    on: Mapping[str, tuple[float, float]] | None = None,
) -> SequenceModel:
    """A chain of known functions: the same network at every step, and the transition of each latent.

    Args:
        net: The first step: its latents with their densities, and the observed variables given the latents.
        then: For each latent its density given latents one step before. A parent called ``"dt"`` is the time between
            the steps; without it a time of k units is k steps.
        rule: The quadrature rule for each latent; the grid of d latents has N^d states.
        on: The interval of each latent. It can be left out if the chain is linear-Gaussian and stationary, or if the
            density has a finite domain.

    Example:
        >>> import picirc as pc
        >>> net = pc.BayesNet()
        >>> net.latent("level", pc.LinearGaussian(std=1.0))
        >>> net.observed("x", pc.LinearGaussian({"level": 1.0}, std=0.5))
        >>> model = pc.state_space(net, {"level": pc.LinearGaussian({"level": 0.9}, std=0.4)})
        >>> model.forecast({"x": [0.1, 0.3, 1.2]}, steps=2).mean["x"].round(3)
        array([0.642, 0.578])
    """
    if not isinstance(net, BayesNet):
        raise ArgumentError("net", "a pc.BayesNet of the first step", net)
    model = SequenceModel(Columns((), ()), StateSpace(net, then, on), rule=rule, time="time")
    model.columns = Columns(tuple(net.variables), [family for family, _ in model.chain.inputs])
    return model


@torch.no_grad()
def mixture_quantiles(family: Family, params: Tensor, weights: Tensor, levels: Sequence[float]) -> Tensor:
    """Quantiles ``(T, levels)`` of mixtures of one family with weights ``(T, N)``, by bisection."""
    steps, goal = len(weights), torch.tensor(levels, dtype=torch.float64).repeat(len(weights))  # (T · Q,)
    if not len(levels):
        return weights.new_empty(steps, 0)
    mean, std = family.mean(params[0]), family.variance(params[0]).sqrt()
    center = weights @ mean
    spread = (weights @ (mean.square() + std.square()) - center.square()).clamp(min=0).sqrt().clamp(min=1e-12)
    reach = (1 / torch.minimum(goal, 1 - goal)).sqrt() + 1  # Chebyshev's bound
    center, spread = (v.repeat_interleave(len(levels)) for v in (center, spread))
    low, high = center - reach * spread, center + reach * spread
    if family.discrete:
        low, high = low.floor().clamp(min=-1), high.ceil()
    mixing = weights.repeat_interleave(len(levels), 0).T  # (N, T · Q)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        middle = middle.floor() if family.discrete else middle
        below = (family.cdf(params, middle.unsqueeze(0))[0] * mixing).sum(0) < goal
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        if float((high - low - float(family.discrete)).max()) <= 1e-10 * float(spread.max()):
            break
    return high.reshape(steps, len(levels))


def _levels(quantiles: Sequence[float]) -> tuple[float, ...]:
    found = (quantiles,) if isinstance(quantiles, int | float) else tuple(quantiles)
    for level in found:
        if not is_number(level) or not 0 < float(level) < 1:
            raise ArgumentError("quantiles", "numbers between 0 and 1", level)
    return tuple(float(level) for level in found)


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(check_integer("seed", seed, 0))


def _single(row: Any, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """One row as a table."""
    if hasattr(row, "to_dict"):
        row = row.to_dict()
    if not isinstance(row, Mapping):
        values = list(row) if isinstance(row, list | tuple) else np.atleast_1d(np.asarray(row)).tolist()
        if len(values) != len(names):
            raise ArgumentError("row", f"{len(names)} values ({', '.join(names)})", f"{len(values)}")
        row = dict(zip(names, values, strict=True))
    return {str(name): np.array([value], dtype=object if value is None else None) for name, value in row.items()}


def _moment(time: Any) -> float:
    return float(as_times(np.atleast_1d(np.asarray(time)))[0][0])


def _filled(data: Any, sequences: Sequences, decoded: Sequence[Mapping[str, npt.NDArray[Any]]]) -> Any:
    """The data with new values for missing cells, in tables of their own kind; all other cells do not change."""
    if isinstance(data, list | tuple):
        parts = zip(data, decoded, sequences.rows, strict=True)
        return [_fill(table, [columns], [rows]) for table, columns, rows in parts]
    return _fill(data, decoded, sequences.rows)


def _fill(table: Any, decoded: Sequence[Mapping[str, npt.NDArray[Any]]], rows: Sequence[npt.NDArray[Any]]) -> Any:
    frame, order = frame_of(table), np.argsort(np.concatenate(rows), kind="stable")
    names = zip(frame.names, decoded[0], strict=False) if not frame.named else ((name, name) for name in frame.names)
    new = {
        own: (frame.cells(own), np.concatenate([part[name] for part in decoded])[order])
        for own, name in names
        if name in decoded[0]
    }
    made = fill(frame, new)
    return made[:, 0] if np.ndim(table) == 1 and frame.container == "numpy" else made
