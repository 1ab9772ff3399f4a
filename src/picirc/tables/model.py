# SPDX-License-Identifier: Apache-2.0
"""Models of tables: queries in the units and names of the table, answered with the same kind of table."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from picirc.checks import check_choice, check_integer
from picirc.data.frames import Array, Frame, objects_of, plain, read_frame
from picirc.engine.evidence import Region
from picirc.errors import ArgumentError
from picirc.inputs import Family
from picirc.io import load_described, save
from picirc.io.describe import only, take
from picirc.io.files import refusing
from picirc.model import AnyRule, Model
from picirc.qpc.distribution import QPC
from picirc.qpc.validation import check_possible
from picirc.quadrature import shifted, sobol
from picirc.structure.trees import LatentTree
from picirc.tables.answers import Answer, strange_cells
from picirc.tables.column import EMPTY, Column, Numbers
from picirc.tables.defaults import MOST_POINTS
from picirc.tables.evidence import check_cells, read_event, read_evidence
from picirc.tables.schema import Schema

HOW = ("mean", "median", "mode", "sample")
_ROWS = 1024  # of a query at a time
# A saved model may ask for a circuit of this many weights, or of this many for each of its numbers.
_LEAST_WEIGHTS, _WEIGHTS_PER_NUMBER = 2**23, 1024


class TableModel:
    """A probabilistic integral circuit of a table.

    ``fit_table`` makes one. Every query takes tables of any kind with columns of the schema, in which any cells may be
    missing, and is exact for the circuit unless it says otherwise. A mapping of single values is a table of one row.
    Queries are in double precision.

    In a model that was fitted with ``missingness=``, an empty cell of a row is known to be missing, and one with a
    value to be observed; this counts in ``log_density``, and tells ``impute`` and ``predict`` about the other cells.
    Nothing is known about a column that is absent. A mapping in ``given`` and an event speak of the values themselves,
    observed or not, unless they say ``pc.missing`` or ``pc.observed``.

    Args:
        schema: What the columns are.
        pic: The model of the encoded columns.
        points: The number of quadrature points of its training; queries use twice as many.
        summary: How it was trained, as plain JSON values.
    """

    def __init__(self, schema: Schema, pic: Model, points: int, summary: Mapping[str, Any] | None = None) -> None:
        if tuple(pic.families) != schema.families:
            raise ArgumentError("schema", f"the families of the model, {_short(pic.families)}", _short(schema.families))
        self.schema, self.pic = schema, pic
        self.points = check_integer("points", points, most=MOST_POINTS)
        self.summary: dict[str, Any] = dict(summary or {})

    def with_schema(self, schema: Schema) -> TableModel:
        """The same model of a table whose values have other codes."""
        found = TableModel(schema, self.pic, self.points, self.summary)
        found.qpc = self.qpc
        return found

    @cached_property
    def qpc(self) -> QPC:
        """The circuit that answers all queries, in double precision; built on first use."""
        with torch.no_grad():
            exact = copy.deepcopy(self.pic).double()
            circuit: QPC = exact(rule_of(exact, 2 * self.points))
        return circuit

    def log_density(self, table: Any, given: Any = None) -> Numbers:
        """``log p(x)`` of every row, natural and in the units of the table; missing cells are integrated out.

        It is the logarithm of a density over the real columns times a probability over the others; 0 for a row without
        values.

        Args:
            table: The rows; a column that is absent is missing.
            given: Evidence, one row or as many as the table has, with ranges and sets; the result is then
                ``log p(x | given)``. Where both have a value it must be the same.
        """
        rows = self._encoded(table)
        if given is None:
            return self.log_density_of_encoded(rows)
        evidence = read_evidence(self.schema, given)
        known = _as_many(evidence.rows, len(rows))
        self._check_agreement(rows, known)
        slopes = self._log_slopes(np.where(np.isnan(known), rows, np.nan))
        if not evidence.regions:
            parts = [self.qpc.log_prob(x, given=e) for x, e in zip(_parts(rows), _parts(known), strict=True)]
            return _numbers(parts) - slopes
        regions = self._named(evidence.regions)
        both = np.where(np.isnan(known), rows, known)
        joint = _numbers([self.qpc.log_evidence(part, regions) for part in _parts(both)])
        return joint - self._log_evidence(known, regions) - slopes

    def probability(self, event: Mapping[str, Any], given: Any = None) -> Any:
        """``P(event | given)``: that columns have values, or lie in ranges or sets.

        Args:
            event: For some names a value, ``pc.between(low, high)`` or ``pc.one_of([...])``. A column of reals needs a
                range.
            given: Evidence, with ranges and sets too.

        Returns:
            A number; one for each row if the evidence has several.
        """
        wanted, evidence = read_event(self.schema, event), read_evidence(self.schema, given)
        both = dict(evidence.regions)
        for place, region in wanted.items():
            both[place] = region.meet(both[place]) if place in both else region
        base = self._log_evidence(evidence.rows, self._named(evidence.regions))
        joint = _numbers([self.qpc.log_evidence(part, self._named(both)) for part in _parts(evidence.rows)])
        found = np.exp(joint - base).clip(0, 1)
        return float(found[0]) if len(found) == 1 else found

    def sample(
        self, n: int, given: Any = None, seed: int | None = None, beyond: bool = False, gaps: bool = False
    ) -> Any:
        """Draw rows, as a table of the kind that the model was fitted to.

        Args:
            n: The number of rows; with evidence, the number for each of its rows, in the order of these.
            given: Evidence: a mapping from some names to values, ranges and sets, or a row or a table with missing
                cells. Known cells come back as they are.
            seed: Determines the draws; without one they differ from call to call.
            beyond: Let numbers lie outside the range seen when the model was fitted. Otherwise they are moved to its
                ends, unless evidence says that they are outside.
            gaps: Leave cells empty that are drawn to be missing, for a model that was fitted with ``missingness=``.
                Otherwise they get the values that they would have.
        """
        if gaps and not self.schema.indicators:
            raise ArgumentError("gaps", "a model of missingness", "one without", "fit with missingness=True")
        n, source = check_integer("n", n), _generator(seed)
        evidence = read_evidence(self.schema, given)
        regions = self._named(evidence.regions)
        draws = [self.qpc.sample(n, part, source, regions) for part in _parts(evidence.rows)]
        drawn = torch.cat(draws, 1).transpose(0, 1).flatten(0, 1).numpy()  # (rows · n, columns)
        if gaps:
            unknown = np.repeat(np.isnan(evidence.rows), n, axis=0)
            for name, indicator in self.schema.indicators.items():
                place = self.schema.index(name)
                drawn[(drawn[:, indicator] == 1) & unknown[:, place], place] = np.nan
        found = self.schema.decoded(drawn, beyond=True) if beyond else self._decoded_draws(drawn, evidence.regions)
        for name, values in evidence.originals.items():
            known = np.repeat(values, n)
            found[name] = _overlaid(found[name], self.schema[name].dates(known) if self.schema[name].dated else known)
        return self.schema.assemble(found, self.schema.container)

    def impute(
        self, table: Any, how: str = "mean", seed: int | None = None, copies: int | None = None, given: Any = None
    ) -> Any:
        """The table with its missing cells filled; observed cells stay as they are, bit for bit.

        Args:
            table: The table; a column that was empty when the model was fitted stays as it is.
            how: ``"mean"``: the expectation of numbers given the row's other cells, for categories that are numbers the
                one nearest to it, and the most probable category of the others. ``"median"``: the same with the median.
                ``"mode"``: values that are probable together, by max-product decoding (which is approximate).
                ``"sample"``: a draw from the joint distribution of the missing cells.
            seed: Determines the draws; without one they differ from call to call.
            copies: Return a list of so many tables, each filled by draws of its own, for ``"sample"``.
            given: What else is known of all rows: values, ranges and sets by name. A value fills the missing cells of
                its column. An observed cell outside a range or set is an error; ``"mode"`` takes values only.
        """
        check_choice("how", how, HOW)
        if copies is not None and how != "sample":
            raise ArgumentError("copies", "how='sample', as they would all be the same", f"how={how!r}")
        frame = self._rows(table)
        absent = [name for name in self.schema.names if frame.named and name not in frame.names]
        evidence = read_evidence(self.schema, given)
        if evidence.regions and how == "mode":
            raise ArgumentError("given", "values only with how='mode'", "a range or a set", "use another how")
        rows, source = self.schema.encode(frame, absent=absent), _generator(seed)
        rows = np.where(np.isnan(rows), _as_many(evidence.rows, len(rows)), rows)
        count = check_integer("copies", copies or 1)
        found = []
        for _ in range(count):
            codes = self._filled(rows, how, source, evidence.regions)
            drawn = how == "sample"
            filled = (
                self._decoded_draws(codes, evidence.regions) if drawn else self.schema.decoded(codes, how == "mean")
            )
            found.append(self.schema.fill(frame, filled))
        return found[0] if copies is None else found

    def predict(self, table: Any, column: str, given: Any = None) -> Array:
        """What the other cells of every row say about a column.

        Args:
            table: The rows; their values in that column are ignored, and columns may be absent.
            column: The name.
            given: What else is known of all rows: values, ranges and sets by name.

        Returns:
            For categories their probabilities ``(rows, categories)``, in the order of ``schema[column].categories``;
            for numbers the mean ``(rows,)``; for dates too, as ``datetime64``.
        """
        answers = self._answers(table, column, given)
        coded = bool(self.schema[column].categories)
        return self._dated(column, [answer.probabilities() if coded else answer.mean() for answer in answers])

    def expectation(self, table: Any, column: str, given: Any = None) -> Array:
        """The mean of a column of numbers given the other cells of each row, ``(rows,)``, also of small integers."""
        self._check_ordered(column)
        return self._dated(column, [answer.mean() for answer in self._answers(table, column, given)])

    def quantiles(self, table: Any, column: str, levels: Sequence[float], given: Any = None) -> Array:
        """Quantiles of a column of numbers given the other cells of each row, ``(rows, levels)``.

        Args:
            table: The rows; their values in that column are ignored, and columns may be absent.
            column: The name.
            levels: Probabilities, such as ``[0.05, 0.5, 0.95]``.
            given: What else is known of all rows: values, ranges and sets by name.
        """
        self._check_ordered(column)
        wanted = np.atleast_1d(np.asarray(levels, np.float64))
        if not len(wanted) or not ((wanted > 0) & (wanted < 1)).all():
            raise ArgumentError("levels", "probabilities between 0 and 1", levels)
        answers = self._answers(table, column, given)
        return self._dated(column, [answer.quantiles(wanted.tolist()) for answer in answers])

    def _dated(self, column: str, parts: Sequence[Numbers]) -> Array:
        """Parts of an answer together, as dates if the column has dates."""
        found = np.concatenate(parts)
        return self.schema[column].dates(found) if self.schema[column].dated else found

    def explain(self, row: Any) -> list[dict[str, Any]]:
        """The cells of a row, the most surprising given the others first.

        Args:
            row: A row, in any form that evidence has.

        Returns:
            For each observed cell its ``column`` and ``value``, the value ``expected`` given the others (the mean, or
            the most probable category), the probability ``tail`` of a value at least as extreme, and ``surprise``, the
            negative logarithm of that. The report shows the same.
        """
        evidence = read_evidence(self.schema, row)
        if len(evidence.rows) != 1 or evidence.regions:
            raise ArgumentError("row", "one row of values", "ranges" if evidence.regions else "several rows")
        (cells,) = strange_cells(self.qpc, torch.tensor(evidence.rows), self.schema.columns)
        found = []
        for cell in cells:
            column = self.schema.columns[cell.column]
            known = evidence.originals.get(column.name)  # a code may stand for a value inside the range seen
            value = column.decode(evidence.rows[:, cell.column])[0] if known is None else known[0]
            found.append({
                "column": column.name,
                "value": _plain(column, value),
                "expected": _plain(column, column.categories[int(cell.expected)] if column.coded else cell.expected),
                "tail": cell.tail,
                "surprise": abs(math.log(max(cell.tail, math.ulp(0.0)))),
            })  # fmt: skip
        return found

    def save(self, path: str | PathLike[str]) -> None:
        """Save the model with its schema and summary; ``pc.load`` reads the circuit alone, ``load`` all of it."""
        _check_size(self.pic, self.points)
        table = {"schema": self.schema.to_json(), "points": self.points}
        save(self.pic, path, summary=self.summary, table=table)

    @classmethod
    def load(cls, path: str | PathLike[str], families: Sequence[type[Family]] = ()) -> TableModel:
        """Load a model that ``save`` wrote; this runs no code from the file.

        Args:
            path: The folder or the file.
            families: The classes of the user's own families that the columns have.
        """
        pic, description = load_described(path, families)
        with refusing(Path(path)):
            if "table" not in description:
                remedy = "pc.load reads models without a table"
                raise ArgumentError("table", "the schema of a table", "none", remedy)
            table = take(description, "table", dict)
            only(table, {"schema", "points"}, "table")
            schema = Schema.from_json(table.get("schema"), families)
            _check_size(pic, take(table, "points", int))
            return cls(schema, pic, take(table, "points", int), take({"summary": {}} | description, "summary", dict))

    def __repr__(self) -> str:
        numbers = sum(p.numel() for p in self.pic.parameters())
        models = f"{len(self.pic.parts)} models, " if len(self.pic.parts) > 1 else ""
        states = f"{self.points} points" if self.pic.has_rule else f"{self.pic.states_of(self.points)} states"
        return f"TableModel({len(self.schema.columns)} columns, {models}{numbers:,} parameters, {states})"

    def log_density_of_encoded(self, rows: Numbers) -> Numbers:
        """``log_density`` of rows that the schema has encoded already."""
        return _numbers([self.qpc.log_prob(part) for part in _parts(rows)]) - self._log_slopes(rows)

    def _log_slopes(self, rows: Numbers) -> Numbers:
        """The sum of the log-slopes of the columns over the observed cells of each row."""
        found = np.zeros(len(rows))
        for place, column in enumerate(self.schema.columns):
            found += np.where(np.isnan(rows[:, place]), 0.0, column.log_slope(rows[:, place]))
        return found

    def _decoded_draws(self, codes: Numbers, regions: Mapping[int, Region]) -> dict[str, Array]:
        """Decoded draws as the columns have values, but never outside a range or set of their own."""
        found = {name: self.schema[name].like_seen(values) for name, values in self.schema.decoded(codes).items()}
        for place, region in regions.items():
            column = self.schema.columns[place]
            if not column.real:
                continue
            values = found[column.name]
            drawn = column.decode(codes[:, place], beyond=True)
            if not column.dated:
                inside = region.holds(torch.from_numpy(column.nearest(values.astype(np.float64)))).numpy()
                drawn = np.where(inside, values, drawn)
            found[column.name] = drawn
        return found

    def _filled(self, rows: Numbers, how: str, source: torch.Generator, regions: Mapping[int, Region]) -> Numbers:
        gaps = np.flatnonzero(np.isnan(rows[:, : len(self.schema.columns)]).any(1))
        filled = rows.copy()
        for places in np.array_split(gaps, max(1, -(-len(gaps) // _ROWS))):
            if len(places):
                filled[places] = self._completed(torch.from_numpy(rows[places]), how, source, regions)
        return filled

    def _completed(self, rows: Tensor, how: str, source: torch.Generator, regions: Mapping[int, Region]) -> Array:
        if how == "sample":
            drawn: Array = self.qpc.sample(1, rows, source, self._named(regions))[0].numpy()
            return drawn
        if how == "mode":
            return self.qpc.mpe(given=rows).numpy()
        found = rows.numpy().copy()
        for place, column in enumerate(self.schema.columns):
            gone = np.flatnonzero(np.isnan(found[:, place]))
            if len(gone):
                answer = Answer(self.qpc, column, place, rows[gone], regions)
                if column.kind == EMPTY or not column.ordered:
                    found[gone, place] = answer.probabilities().argmax(1) if column.categories else 0.0
                else:
                    values = answer.mean() if how == "mean" else answer.quantiles([0.5])[:, 0]
                    found[gone, place] = column.nearest(values)
        return found

    def _answers(self, table: Any, column: str, given: Any) -> Iterator[Answer]:
        place = self.schema.index(column)
        if self.schema.columns[place].kind == EMPTY:
            raise ArgumentError("column", "a column with values", f"{column!r}, which takes no part in the model")
        evidence = read_evidence(self.schema, given)
        rows = self._encoded(table, column)
        if column in self.schema.indicators:
            rows[:, self.schema.indicators[column]] = np.nan
        known = _as_many(evidence.rows, len(rows))
        rows = np.where(np.isnan(rows), known, rows)
        for part in _parts(rows):
            yield Answer(self.qpc, self.schema.columns[place], place, part, evidence.regions)

    def _encoded(self, table: Any, *left_out: str) -> Numbers:
        """A table in which any columns may be absent; of an array, whose columns have no names, only those left out."""
        frame = self._rows(table)
        return self.schema.encode(frame, absent=self.schema.names if frame.named else left_out)

    def _rows(self, table: Any) -> Frame:
        """A table; a mapping of single values, or a row of a data frame, is a table of one row."""
        if getattr(table, "ndim", 0) == 1 and hasattr(table, "to_dict"):
            table = table.to_dict()
        if not isinstance(table, Mapping):
            return read_frame(table)
        check_cells(table)
        if not any(_has_length(cell) for cell in table.values()):
            table = {name: [cell] for name, cell in table.items()} or {self.schema.names[0]: [None]}
        return read_frame(table)

    def _check_ordered(self, column: str) -> None:
        found = self.schema[column]
        if not found.ordered:
            raise ArgumentError("column", "a column of numbers", f"{column!r}, which is {found.kind}", "use predict")

    def _check_agreement(self, rows: Numbers, known: Numbers) -> None:
        """Raise where rows and evidence have different values, or one has a value that is missing by the other."""
        wrong = np.argwhere(~np.isnan(rows) & ~np.isnan(known) & (rows != known))
        if len(wrong):
            row, place = wrong[0].tolist()
            names = (*self.schema.names, *self.schema.indicators)
            expected = f"in column {names[place]!r} what the rows have, or nothing"
            raise ArgumentError("given", expected, f"another value for row {row}", "remove the column from the rows")

    def _named(self, regions: Mapping[int, Region]) -> dict[str, Region]:
        return {self.qpc.variables[place]: region for place, region in regions.items()}

    def _log_evidence(self, rows: Numbers, regions: Mapping[str, Region]) -> Numbers:
        found = [self.qpc.log_evidence(part, regions) for part in _parts(rows)]
        check_possible(torch.cat(found))
        return _numbers(found)


def rule_of(pic: Model, points: int) -> AnyRule | None:
    """Points for the latents of a model of a table, moved at random in training; None for a mixture."""
    if not pic.has_rule:
        return None
    dims: int = getattr(pic, "dims", 1)
    return shifted(points if dims == 1 else sobol(points, dims))


def _has_length(cell: Any) -> bool:
    return hasattr(cell, "__len__") and not isinstance(cell, str)


def _plain(column: Column, value: Any) -> Any:
    """A value of a column as a Python object; of integers whole ones."""
    if column.dated:
        return objects_of(column.dates(np.array([value])), column.native)[0]
    number = value.item() if isinstance(value, np.generic) else value
    return int(number) if column.dtype == "integer" and number == math.floor(number) else number


def _as_many(known: Numbers, rows: int) -> Numbers:
    """Evidence for each of some rows."""
    if len(known) not in (1, rows):
        raise ArgumentError("given", f"one row, or as many as the table ({rows})", f"{len(known)} rows")
    return np.broadcast_to(known, (rows, known.shape[1]))


def _check_size(pic: Model, points: int) -> None:
    """Raise if the circuit of a saved model would be far larger than the model."""
    members = len(pic.parts)
    latents = max(s.n_latents if isinstance(s, LatentTree) else len(s.scopes) for s in pic.structures)
    states = 2 * points * members
    weights = (latents - 1) * states**2 + states if pic.has_rule else 0
    most = max(_LEAST_WEIGHTS, _WEIGHTS_PER_NUMBER * sum(p.numel() for p in pic.parameters()))
    if weights > most:
        expected = f"points for at most {most:,} weights"
        raise ArgumentError("points", expected, f"{points}, for {weights:,}", "use fewer points, or wider nets")


def _parts(rows: Numbers) -> Iterator[Tensor]:
    for start in range(0, len(rows), _ROWS):
        yield torch.tensor(rows[start : start + _ROWS])


def _numbers(parts: Sequence[Tensor]) -> Numbers:
    found: Numbers = torch.cat(list(parts)).numpy()
    return found


def _overlaid(drawn: Array, known: Array) -> Array:
    """Known values in place of drawn ones, in the type of the latter if that can hold them."""
    if known.dtype.kind == "M":
        return np.where(np.isnat(known), drawn, known)
    found = np.where(np.isnan(known), drawn, known)
    same = found.astype(drawn.dtype)
    return same if np.array_equal(same, found) else found


def _generator(seed: int | None) -> torch.Generator:
    source = torch.Generator()
    if seed is None:
        source.seed()
        return source
    return source.manual_seed(check_integer("seed", seed, 0))


def _short(families: Sequence[Family]) -> str:
    return plain(", ".join(map(repr, families)), 120)
