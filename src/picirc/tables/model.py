# SPDX-License-Identifier: Apache-2.0
"""Models of tables: queries in the units and names of the table, answered with the same kind of table."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from picirc.checks import check_choice, check_integer
from picirc.data.frames import Array, plain, read_frame
from picirc.errors import ArgumentError
from picirc.inputs import Family
from picirc.io import load_described, save
from picirc.io.describe import only, take
from picirc.io.files import refusing
from picirc.model import Model
from picirc.qpc.distribution import QPC
from picirc.quadrature import shifted
from picirc.structure.trees import LatentTree
from picirc.tables.defaults import MOST_POINTS
from picirc.tables.schema import Numbers, Schema

HOW = ("mean", "mode", "sample")
_ROWS = 1024  # of a query at a time
# A saved model may ask for a circuit of this many weights, or of this many for each of its numbers.
_LEAST_WEIGHTS, _WEIGHTS_PER_NUMBER = 2**23, 1024


class TableModel:
    """A probabilistic integral circuit of a table.

    ``fit_table`` makes one. Every query takes tables of any kind with the columns of the schema, in which any cells may
    be missing, and is exact for the circuit unless it says otherwise. Queries are in double precision.

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

    @cached_property
    def qpc(self) -> QPC:
        """The circuit that answers all queries, in double precision; built on first use."""
        with torch.no_grad():
            circuit: QPC = copy.deepcopy(self.pic).double()(shifted(2 * self.points))
        return circuit

    def log_density(self, table: Any, given: Any = None) -> Numbers:
        """``log p(x)`` of every row, natural and in the units of the table; missing cells are integrated out.

        It is the logarithm of a density over the real columns times a probability over the others; 0 for a row without
        values.

        Args:
            table: The rows.
            given: Evidence, one row or as many as the table has; the result is then ``log p(x | given)``. Where both
                have a value it must be the same.
        """
        rows = self.schema.encode(table, absent=() if given is None else self.schema.names)
        if given is None:
            return self.log_density_of_encoded(rows)
        known, _ = self._evidence(given)
        if len(known) not in (1, len(rows)):
            raise ArgumentError("given", f"one row, or as many as the table ({len(rows)})", f"{len(known)} rows")
        known = np.broadcast_to(known, rows.shape)
        slopes = self._log_slopes(np.where(np.isnan(known), rows, np.nan))
        parts = [self.qpc.log_prob(x, given=e) for x, e in zip(_parts(rows), _parts(known), strict=True)]
        return _numbers(parts) - slopes

    def sample(self, n: int, given: Any = None, seed: int = 0) -> Any:
        """Draw rows, as a table of the kind that the model was fitted to.

        Args:
            n: The number of rows; with evidence, the number for each of its rows, in the order of these.
            given: Evidence: a mapping from some names to values, a row or a table with missing cells. Known cells come
                back as they are.
            seed: Determines the draws.
        """
        n, source = check_integer("n", n), _generator(seed)
        if given is None:
            drawn = self.qpc.sample(n, generator=source).numpy()
            return self.schema.decode(drawn)
        known, originals = self._evidence(given)
        draws = [self.qpc.sample(n, given=part, generator=source) for part in _parts(known)]
        drawn = torch.cat(draws, 1).transpose(0, 1).flatten(0, 1).numpy()  # (rows · n, columns)
        found = self.schema.decoded(drawn)
        for name, values in originals.items():
            found[name] = _overlaid(found[name], np.repeat(values, n))
        return self.schema.assemble(found, self.schema.container)

    def impute(self, table: Any, how: str = "mean", seed: int = 0) -> Any:
        """The table with its missing cells filled; observed cells stay as they are, bit for bit.

        Args:
            table: The table; a column that was empty when the model was fitted stays as it is.
            how: ``"mean"``: the expectation of real columns and counts given the row's other cells, and the most
                probable category of the others. ``"mode"``: values that are probable together, by max-product decoding
                (which is approximate). ``"sample"``: a draw from the joint distribution of the missing cells.
            seed: Determines the draws.
        """
        check_choice("how", how, HOW)
        frame = read_frame(table)
        rows = self.schema.encode(frame)
        gaps = np.flatnonzero(np.isnan(rows).any(1))
        source = _generator(seed)
        filled = rows.copy()
        for places in np.array_split(gaps, max(1, -(-len(gaps) // _ROWS))):
            if len(places):
                filled[places] = self._completed(torch.from_numpy(rows[places]), how, source)
        return self.schema.fill(frame, filled)

    def predict(self, table: Any, column: str) -> Numbers:
        """``p(column | the other cells of the row)``, ``(rows, categories)``, for a column of categories.

        Args:
            table: The rows; their values in that column are ignored, and it may be absent.
            column: The name; the probabilities are in the order of ``schema[column].categories``.
        """
        place = self.schema.index(column)
        if not self.schema.columns[place].categories:
            remedy = "use impute, or sample with given="
            kind = self.schema.columns[place].kind
            raise ArgumentError("column", "a column of categories", f"{column!r}, which is {kind}", remedy)
        rows = self.schema.encode(table, absent=(column,))
        rows[:, place] = np.nan
        name = self.qpc.variables[place]
        found = torch.cat([self.qpc.marginals(part).probabilities(name) for part in _parts(rows)])
        return (found / found.sum(1, keepdim=True)).numpy()

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
            if "table" not in description or not pic.has_rule:
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
        return f"TableModel({len(self.schema.columns)} columns, {models}{numbers:,} parameters, {self.points} points)"

    def log_density_of_encoded(self, rows: Numbers) -> Numbers:
        """``log_density`` of rows that the schema has encoded already."""
        return _numbers([self.qpc.log_prob(part) for part in _parts(rows)]) - self._log_slopes(rows)

    def _log_slopes(self, rows: Numbers) -> Numbers:
        """The sum of the log-slopes of the columns over the observed cells of each row."""
        found = np.zeros(len(rows))
        for place, column in enumerate(self.schema.columns):
            found += np.where(np.isnan(rows[:, place]), 0.0, column.log_slope(rows[:, place]))
        return found

    def _completed(self, rows: Tensor, how: str, source: torch.Generator) -> Array:
        if how == "sample":
            return self.qpc.sample(1, given=rows, generator=source)[0].numpy()
        if how == "mode":
            return self.qpc.mpe(given=rows).numpy()
        marginals = self.qpc.marginals(rows)
        found = marginals.mean.clone()
        for place, column in enumerate(self.schema.columns):
            if column.coded:
                found[:, place] = marginals.probabilities(self.qpc.variables[place]).argmax(1)
        return found.numpy()

    def _evidence(self, given: Any) -> tuple[Numbers, dict[str, Numbers]]:
        """Evidence, encoded; and the values of real columns as they came, which codes do not keep bit for bit."""
        if getattr(given, "ndim", 0) == 1 and hasattr(given, "to_dict"):
            given = given.to_dict()  # a row of a data frame
        if isinstance(given, Mapping):
            single = all(isinstance(value, str) or not hasattr(value, "__len__") for value in given.values())
            given = {name: [value] if single else value for name, value in given.items()}
        elif isinstance(given, np.ndarray | Tensor) and given.ndim == 1:
            given = given.reshape(1, -1)
        elif isinstance(given, list | tuple) and not any(isinstance(v, list | tuple | np.ndarray) for v in given):
            given = [given]
        frame = read_frame(given)
        encoded = self.schema.encode(frame, absent=self.schema.names)
        names = self.schema.match(frame, self.schema.names)
        return encoded, {name: frame.cells(names[name]).values for name in names if self.schema[name].real}


def _check_size(pic: Model, points: int) -> None:
    """Raise if the circuit of a saved model would be far larger than the model."""
    members = len(pic.parts)
    latents = pic.structure.n_latents if isinstance(pic.structure, LatentTree) else len(pic.structure.scopes)
    weights = latents * (2 * points * members) ** 2
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


def _overlaid(drawn: Array, known: Numbers) -> Array:
    """Known values in place of drawn ones, in the type of the latter if that can hold them."""
    found = np.where(np.isnan(known), drawn, known)
    same = found.astype(drawn.dtype)
    return same if np.array_equal(same, found) else found


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(check_integer("seed", seed, 0))


def _short(families: Sequence[Family]) -> str:
    return plain(", ".join(map(repr, families)), 120)
