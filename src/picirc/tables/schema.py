# SPDX-License-Identifier: Apache-2.0
"""Schemas: the columns of a table, and the conversion between a table and an array of numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from picirc.checks import check_choice
from picirc.data.frames import (
    CONTAINERS,
    Array,
    Cells,
    Frame,
    arrow_table,
    assemble,
    column_named,
    extended,
    few,
    fill,
    objects_of,
    plain,
    read_frame,
)
from picirc.errors import ArgumentError
from picirc.inputs import Bernoulli, Family
from picirc.io.describe import choice, only, take
from picirc.tables.column import EMPTY, Column, Declared, Numbers

UNSEEN = ("error", "missing")


@dataclass(frozen=True)
class Schema:
    """What the columns of a table are.

    Real columns (Gaussian, Student-t, Laplace) are standardised by their median and their spread, or transformed to
    normal scores by a function that is linear between knots; values that occur often are atoms of their own. Integers
    with many different values are treated as real and rounded in answers; the knots lie between them, so that the
    density of an integer is about the probability of the unit interval around it, or more if it occurs very often.
    Columns of categories become the codes 0, 1, …; columns of counts stay as they are. Missing values (NaN, None, NaT,
    null) become NaN.

    Behind the columns an encoded row has an *indicator* for each column whose missingness is modelled: 1 if the cell
    is missing, 0 if it has a value, and NaN if nothing is known about it.

    Special cases:

    - A *category that did not occur* when the schema was inferred is an error; with ``unseen="missing"`` it is treated
      as missing. Its probability under the model would be zero, which helps nobody.
    - A *constant* column of numbers is Gaussian around its value with a spread of 1 (10⁻⁶ of a value above a million).
    - A column with *no value at all* is "empty": it takes no part in the model, whatever it holds later, and stays
      missing. So does a column of *identifiers or free text*: strings that nearly all differ. Declare it
      ``"categorical"`` to keep it.
    - *Huge* values do no harm to the arithmetic: up to the largest float64 they are standardised without overflow.
      Values further than 10¹² spreads from the centre are treated as that far away.
    - *Dates* and times are numbers of days since 1970 in the model, and dates in every answer. Times with a zone are
      counted in UTC. Samples of whole days are whole days, and of whole seconds whole seconds.
    - *Infinite* numbers, times without a date, and cells that are neither numbers nor strings are errors.

    Attributes:
        columns: The columns, in the order of the table.
        rows: The number of rows of the table that it was inferred from.
        container: The kind of that table: ``"numpy"``, ``"pandas"``, ``"polars"`` and so on.
        unseen: What to do with a category that did not occur: ``"error"`` or ``"missing"``.

    Example:
        >>> schema = Schema.infer({"pet": ["cat", "dog", None, "cat"], "weight": [4.0, 20.5, 11.0, 5.5]})
        >>> print(schema)
        4 rows, 2 columns
        name    type             values    missing
        pet     categorical (2)  cat, dog        1
        weight  gaussian         4 … 20.5
        >>> schema.encode({"pet": ["dog", None], "weight": [8.25, None]})
        array([[ 1.,  0.],
               [nan, nan]])
    """

    columns: tuple[Column, ...]
    rows: int = 0
    container: str = "mapping"
    unseen: str = "error"

    @classmethod
    def infer(
        cls,
        table: Any,
        columns: Declared | Mapping[Any, Declared] | None = None,
        *,
        unseen: str = "error",
        floor: float | None = None,
        linear: bool = False,
    ) -> Schema:
        """Infer a schema from a table.

        Args:
            table: A data frame (pandas, polars, pyarrow), an array, nested lists, a mapping from names to columns, a
                file, or what ``picirc.data.read`` returns.
            columns: What is known of some columns, by name (or by number for an array): ``"gaussian"``, ``"scores"``,
                ``"spiked"``, ``"student"``, ``"laplace"``, ``"categorical"``, ``"bernoulli"``, ``"poisson"``,
                ``"binomial"``, ``"auto"`` or a family such as ``pc.Gaussian(min_std=0.01)``, whose scale is in units of
                the column's spread. A single word or family holds for all columns.
            unseen: What to do later with categories that do not occur now: ``"error"`` or ``"missing"``.
            floor: The smallest scale of real columns in units of their spread; chosen by the number of rows by default.
            linear: Infer neither spikes nor normal scores, so that values outside the range seen keep their distance.

        Columns that are not declared are judged by their values: strings are categories; booleans, and numbers that are
        all 0 or 1, are Bernoulli; numbers of an integer type (and integers that are floats because some are missing)
        are categories if there are at most ten different ones, each in four rows on average; any numbers, if there are
        at most twenty, each in 100. Of the other numbers, if there are enough, a column with values that occur often is
        spiked (if they are less than half of a column whose values are multiples of a step, they are peaks of a
        transform to normal scores), a skewed or heavy-tailed one is transformed to normal scores, and all others, and
        constant ones, are Gaussian. An array that holds integers only is judged as a whole: its columns share their
        categories, or are all Gaussian.
        """
        from picirc.tables.inference import infer_columns

        check_choice("unseen", unseen, UNSEEN)
        frame = read_frame(table)
        return cls(infer_columns(frame, columns, floor, linear), frame.rows, frame.container, unseen)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def families(self) -> tuple[Family, ...]:
        """The family of each column, and of each indicator of missingness behind them."""
        return (*(column.family for column in self.columns), *(Bernoulli() for _ in self.indicators))

    @property
    def indicators(self) -> dict[str, int]:
        """The places in encoded rows of the indicators of missingness, by the names of their columns."""
        modelled = [column.name for column in self.columns if column.indicator]
        return {name: len(self.columns) + number for number, name in enumerate(modelled)}

    @property
    def width(self) -> int:
        """The number of entries of an encoded row: the columns and the indicators."""
        return len(self.columns) + sum(column.indicator for column in self.columns)

    def with_missingness(self, missingness: bool | Sequence[str]) -> Schema:
        """The schema with indicators of missingness for some columns, by name, or for all that have missing cells."""
        gaps = [column.name for column in self.columns if column.missing and column.kind != EMPTY]
        if isinstance(missingness, str):
            raise ArgumentError("missingness", "a list of names", missingness, f"write [{missingness!r}]")
        chosen = [str(name) for name in missingness] if not isinstance(missingness, bool) else gaps * missingness
        for name in chosen:
            if name not in gaps:
                got = f"{name!r}, which has none" if name in self.names else repr(name)
                raise ArgumentError("missingness", f"columns with missing cells ({few(gaps) or 'none'})", got)
        columns = tuple(replace(column, indicator=column.name in chosen) for column in self.columns)
        return replace(self, columns=columns)

    def indicator(self, name: str) -> int:
        """The place of the indicator of a column in encoded rows."""
        if not self[name].indicator:
            remedy = f"fit with missingness=[{name!r}], on rows in which some of its cells are missing"
            raise ArgumentError(column_named(name), "a column whose missingness is modelled", "another", remedy)
        return self.indicators[name]

    def index(self, name: str) -> int:
        """The position of a column."""
        if name not in self.names:
            raise ArgumentError("column", f"one of {', '.join(map(plain, self.names))}", name)
        return self.names.index(name)

    def __getitem__(self, name: str) -> Column:
        return self.columns[self.index(name)]

    def encode(self, table: Any, *, absent: Collection[str] = ()) -> Numbers:
        """The table as numbers, ``(rows, width)``: codes for categories, standardised reals, NaN where missing.

        Columns of data frames are matched by name, in any order; those of arrays by position. The indicators of
        missingness follow; those of columns that are absent are NaN.

        Args:
            table: A table of any kind.
            absent: The names of columns that may be absent altogether, and then are missing.
        """
        frame = read_frame(table)
        names = self.match(frame, absent)
        found, indicators = np.full((frame.rows, self.width), np.nan), self.indicators
        for place, column in enumerate(self.columns):
            if column.name in names and column.kind != EMPTY:
                cells = frame.cells(names[column.name], column.dtype)
                found[:, place] = column.encode(cells, self.unseen)
                if column.indicator:
                    found[:, indicators[column.name]] = cells.missing
        return found

    def decode(self, array: Any, like: Any = None) -> Any:
        """The table that numbers stand for, the inverse of ``encode``.

        Columns of integers get integers, also where the numbers come from a mean.

        Args:
            array: ``(rows, columns)``, with or without indicators; NaN stays missing.
            like: A table of the kind to return; by default the kind that the schema was inferred from, or a mapping
                from names to arrays where the library for that is not installed.
        """
        container = self.container if like is None else read_frame(like).container
        return self.assemble(self.decoded(array), container, like)

    def decoded(self, array: Any, means: bool = False, beyond: bool = False) -> dict[str, Array]:
        """The columns of ``decode``, by name; see :meth:`Column.decode` for ``means`` and ``beyond``."""
        codes = np.asarray(array, np.float64)
        if codes.ndim != 2 or codes.shape[1] not in (len(self.columns), self.width):
            raise ArgumentError("array", f"shape (rows, {len(self.columns)})", f"shape {codes.shape}")
        return {c.name: c.decode(codes[:, place], means=means, beyond=beyond) for place, c in enumerate(self.columns)}

    def assemble(self, columns: Mapping[str, Array], container: str, like: Any = None) -> Any:
        """A table of a given kind from decoded columns."""
        levels = {c.name: c.categories for c in self.columns if c.categories and isinstance(c.categories[0], str)}
        if container == "pyarrow" and find_spec("pyarrow") is not None:
            return self.arrow(columns)
        types = {c.name: c.native for c in self.columns if c.native and (container == self.container or c.dated)}
        made = assemble(container, columns, levels, like, types)  # type: ignore[arg-type]
        if container == "pandas" and like is None and hasattr(made, "rename"):
            made = made.rename(columns={column.name: int(column.name) for column in self.columns if column.counted})
        return made

    def arrow(self, columns: Mapping[str, Array]) -> Any:
        """A pyarrow table from decoded columns, in the types that the columns had, as far as it has them."""
        texts = {c.name: [label for label in c.categories if isinstance(label, str)] for c in self.columns}
        return arrow_table(columns, {c.name: (c.dtype, c.native, texts[c.name]) for c in self.columns})

    def objects(self, columns: Mapping[str, Array]) -> dict[str, list[Any]]:
        """Decoded columns as lists of Python values, None where missing: integers stay integers beside gaps."""
        found = {}
        for column in self.columns:
            values = columns[column.name]
            if column.dated and values.dtype.kind == "M":
                found[column.name] = objects_of(values, column.native)
                continue
            cells = Cells(column.name, column.dtype, values)
            found[column.name] = cells.objects() if column.dtype in ("integer", "boolean") else values.tolist()
        return found

    def fill(self, table: Any, values: Mapping[str, Array]) -> Any:
        """The table with decoded values in its missing cells, which are given for every column of the schema.

        Observed cells stay as they are, bit for bit; empty columns stay empty. Columns that are absent are added.
        """
        frame = read_frame(table)
        names = self.match(frame, self.names if frame.named else ())
        kept = [column for column in self.columns if column.kind != EMPTY and column.name in names]
        if without := [column.name for column in kept if column.name not in values]:
            raise ArgumentError("values", f"those of all columns ({few(self.names)})", f"none of {few(without)}")
        filled = fill(frame, {names[c.name]: (frame.cells(names[c.name], c.dtype), values[c.name]) for c in kept})
        lacking = {name: own for name, own in values.items() if name not in names}
        return extended(filled, self.assemble(lacking, frame.container)) if lacking else filled

    def match(self, frame: Frame, absent: Collection[str] = ()) -> dict[str, str]:
        """For each column of the schema that the table has, what it is called there."""
        if not frame.named:
            wanted = self.names
            if len(frame.names) == len(wanted) - len(absent):
                wanted = tuple(name for name in wanted if name not in absent)
            if len(frame.names) != len(wanted):
                raise ArgumentError("table", f"{len(wanted)} columns ({few(wanted)})", f"{len(frame.names)}")
            return dict(zip(wanted, frame.names, strict=True))
        expected = f"the columns of the schema ({few(self.names)})"
        unknown = sorted(set(frame.names) - set(self.names), key=frame.names.index)
        if unknown:
            raise ArgumentError("table", expected, f"also {few(unknown)}", "drop columns that the model does not know")
        given = set(frame.names)
        lacking = [name for name in self.names if name not in given and name not in absent]
        if lacking:
            remedy = "add them with missing values if they are unknown"
            raise ArgumentError("table", expected, f"no {few(lacking)}", remedy)
        return {name: name for name in frame.names}

    def to_json(self) -> dict[str, Any]:
        """The schema as plain JSON values."""
        return {
            "columns": [column.to_json() for column in self.columns],
            "rows": self.rows,
            "container": self.container,
            "unseen": self.unseen,
        }

    @classmethod
    def from_json(cls, value: Any, families: Sequence[type[Family]] = ()) -> Schema:
        """The schema that ``to_json`` wrote.

        Args:
            value: Plain JSON values, from a file that may hold anything.
            families: The classes of the user's own families that the columns have.

        Raises:
            ArgumentError: The value is not a schema.
        """
        try:
            if not isinstance(value, Mapping):
                raise ArgumentError("schema", "an object", repr(value)[:80])
            only(value, {field.name for field in fields(cls)}, "schema")
            columns = tuple(Column.from_json(entry, families) for entry in take(value, "columns", list))
            if not columns or len({column.name for column in columns}) != len(columns):
                raise ArgumentError("columns", "at least one object, each with a unique name", "others")
            rows = take(value, "rows", int)
            if rows < 0:
                raise ArgumentError("rows", "a non-negative integer", rows)
            container = choice(value, "container", {name: name for name in CONTAINERS})
            return cls(columns, rows, container, check_choice("unseen", value.get("unseen"), UNSEEN))
        except ArgumentError:
            raise
        except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
            raise ArgumentError("schema", "the description of a table", str(error) or type(error).__name__) from error

    def __repr__(self) -> str:
        kinds = Counter(column.kind for column in self.columns)
        return f"Schema({', '.join(f'{count} {plain(kind)}' for kind, count in kinds.items())})"

    def __str__(self) -> str:
        lines = [("name", "type", "values", "missing")]
        lines += [(plain(column.name), *column.summary()) for column in self.columns]
        widths = [max(map(len, parts)) for parts in zip(*lines, strict=True)]
        shown = [
            f"{a:{widths[0]}}  {b:{widths[1]}}  {c:{widths[2]}}  {d:>{widths[3]}}".rstrip() for a, b, c, d in lines
        ]
        return "\n".join([f"{self.rows:,} rows, {len(self.columns):,} columns", *shown])
