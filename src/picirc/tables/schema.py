"""Schemas: what the columns of a table are, and the way between a table and an array of numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from picirc.errors import ArgumentError
from picirc.inputs import Family
from picirc.tables.assemble import assemble, fill
from picirc.tables.columns import Column, Numbers, few, plain
from picirc.tables.defaults import choose
from picirc.tables.frames import Array, Cells, Frame, read_frame
from picirc.tables.inference import AUTO, WORDS, Declared, as_array_of_integers, infer_column
from picirc.tables.json_values import column_from_json, column_to_json, schema_entries

UNSEEN = ("error", "missing")


@dataclass(frozen=True)
class Schema:
    """What the columns of a table are.

    Real columns (Gaussian, Student-t, Laplace) are standardised by their median and their spread. Columns of categories
    become the codes 0, 1, …; columns of counts stay as they are. Missing values (NaN, None, NaT, null) become NaN.

    What happens to the unusual:

    - A *category that was not there* when the schema was inferred is an error; with ``unseen="missing"`` it counts as
      missing. Its probability under the model would be zero, and that helps nobody.
    - A *constant* column of numbers is Gaussian around its value with a spread of 1 (10⁻⁶ of a value above a million).
    - A column with *no value at all* is "empty": it takes no part in the model, whatever stands in it later, and stays
      missing.
    - *Huge* values do no harm to the arithmetic: up to the largest float64 they are standardised without overflow.
      Values further than 10¹² spreads from the centre count as that far away.
    - *Infinite* numbers, dates, and cells that are neither numbers nor texts are errors.

    Attributes:
        columns: The columns, in the order of the table.
        rows: The number of rows of the table that it was inferred from.
        container: The kind of that table: ``"numpy"``, ``"pandas"``, ``"polars"`` and so on.
        unseen: What to do with a category that was not there: ``"error"`` or ``"missing"``.

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
    ) -> Schema:
        """Infer a schema from a table.

        Args:
            table: A data frame (pandas, polars, pyarrow), an array, nested lists, a mapping from names to columns, or
                what ``picirc.data.read`` returns.
            columns: What is known of some columns, by name (or by number for an array): ``"gaussian"``, ``"student"``,
                ``"laplace"``, ``"categorical"``, ``"bernoulli"``, ``"poisson"``, ``"binomial"``, ``"auto"`` or a family
                such as ``pc.Gaussian(min_std=0.01)``, whose scale counts in units of the column's spread. One word or
                family alone holds for all columns.
            unseen: What to do later with categories that are not there now: ``"error"`` or ``"missing"``.
            floor: The least scale of real columns in units of their spread, chosen by the number of rows by default.

        Columns that are not declared are judged by their values: texts are categories; truth values, and numbers of
        which there are only 0 and 1, are Bernoulli; numbers of an integer type (and whole ones that are floats because
        some are missing) are categories if there are at most ten different ones, each in four rows on average; all
        other numbers, and constant ones, are Gaussian. An array that holds whole numbers only is judged as a whole: its
        columns share their categories, or are all Gaussian.
        """
        check_unseen(unseen)
        frame = read_frame(table)
        declared = declarations(columns, frame)
        least = choose(frame.rows, len(frame.columns), floor=floor).floor
        open_ones = [cells for cells in frame.columns if declared[cells.name] == AUTO]
        word, shared = as_array_of_integers(open_ones) if open_ones and not frame.named else (AUTO, None)
        found = [
            infer_column(replace(cells, categories=shared) if shared else cells, word, least)
            if declared[cells.name] == AUTO
            else infer_column(cells, declared[cells.name], least)
            for cells in frame.columns
        ]
        return cls(tuple(found), frame.rows, frame.container, unseen)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def families(self) -> tuple[Family, ...]:
        """The family of each column."""
        return tuple(column.family for column in self.columns)

    def index(self, name: str) -> int:
        """The place of a column."""
        if name not in self.names:
            raise ArgumentError("column", f"one of {', '.join(map(plain, self.names))}", name)
        return self.names.index(name)

    def __getitem__(self, name: str) -> Column:
        return self.columns[self.index(name)]

    def encode(self, table: Any, *, absent: Collection[str] = ()) -> Numbers:
        """The table as numbers, ``(rows, columns)``: codes for categories, standardised reals, NaN where missing.

        Columns of data frames are found by their names, in any order; those of arrays by their places.

        Args:
            table: A table of any kind.
            absent: The names of columns that may be absent altogether, which counts as missing.
        """
        frame = read_frame(table)
        cells = self._matched(frame, absent)
        found = np.full((frame.rows, len(self.columns)), np.nan)
        for place, column in enumerate(self.columns):
            if column.name in cells:
                found[:, place] = column.encode(cells[column.name], self.unseen)
        return found

    def decode(self, array: Any, like: Any = None) -> Any:
        """The table that numbers stand for; ``encode`` undone.

        Integer columns get whole numbers, also where the numbers come from a mean.

        Args:
            array: ``(rows, columns)``; NaN stays missing.
            like: A table of the kind to return; by default the kind that the schema was inferred from, or a mapping
                from names to arrays where the library for that is not installed.
        """
        container = self.container if like is None else read_frame(like).container
        return self.assemble(self.decoded(array), container, like)

    def decoded(self, array: Any) -> dict[str, Array]:
        """The columns of ``decode``, by name."""
        codes = np.asarray(array, np.float64)
        if codes.ndim != 2 or codes.shape[1] != len(self.columns):
            raise ArgumentError("array", f"shape (rows, {len(self.columns)})", f"shape {codes.shape}")
        return {column.name: column.decode(codes[:, place]) for place, column in enumerate(self.columns)}

    def assemble(self, columns: Mapping[str, Array], container: str, like: Any = None) -> Any:
        """A table of a kind from decoded columns."""
        levels = {c.name: c.categories for c in self.columns if c.categories and isinstance(c.categories[0], str)}
        return assemble(container, columns, levels, like)  # type: ignore[arg-type]

    def fill(self, table: Any, array: Any) -> Any:
        """The table with the values of an encoded array in its missing cells.

        Observed cells stay as they are, bit for bit; empty columns stay empty.
        """
        frame = read_frame(table)
        names = self._matched(frame, ())
        values = self.decoded(array)
        new = {cells.name: values[name] for name, cells in names.items() if self[name].kind != "empty"}
        return fill(frame, new)

    def to_json(self) -> dict[str, Any]:
        """The schema as plain JSON values."""
        return {
            "columns": [column_to_json(column) for column in self.columns],
            "rows": self.rows,
            "container": self.container,
            "unseen": self.unseen,
        }

    @classmethod
    def from_json(cls, value: Any, families: Sequence[type[Family]] = ()) -> Schema:
        """The schema that ``to_json`` wrote.

        Args:
            value: Plain JSON values, from a file that may say anything.
            families: The classes of families of one's own that the columns have.

        Raises:
            ArgumentError: The value is no schema.
        """
        columns, rows, container, unseen = schema_entries(value)
        check_unseen(unseen)
        return cls(tuple(column_from_json(entry, families) for entry in columns), rows, container, unseen)

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
        size = f"{self.rows:,} rows, {len(self.columns):,} columns"
        return "\n".join([size, *shown])

    def _matched(self, frame: Frame, absent: Collection[str]) -> dict[str, Cells]:
        """The cells of each column of the schema that the table has."""
        if not frame.named:
            wanted = self.names
            if len(frame.columns) == len(wanted) - len(absent):
                wanted = tuple(name for name in wanted if name not in absent)
            if len(frame.columns) != len(wanted):
                raise ArgumentError("table", f"{len(wanted)} columns ({few(wanted)})", f"{len(frame.columns)}")
            return dict(zip(wanted, frame.columns, strict=True))
        known, given = set(self.names), set(frame.names)
        unknown = [name for name in frame.names if name not in known]
        if unknown:
            expected = f"the columns of the schema ({few(self.names)})"
            raise ArgumentError("table", expected, f"also {few(unknown)}", "drop what the model does not know")
        lacking = [name for name in self.names if name not in given and name not in absent]
        if lacking:
            remedy = "add them with missing values if they are unknown"
            raise ArgumentError("table", f"the columns of the schema ({few(self.names)})", f"no {few(lacking)}", remedy)
        return {cells.name: cells for cells in frame.columns}


def check_unseen(unseen: object) -> None:
    """Raise unless it says what to do with categories that were not there."""
    if unseen not in UNSEEN:
        raise ArgumentError("unseen", " or ".join(map(repr, UNSEEN)), repr(unseen)[:80])


def declarations(columns: Declared | Mapping[Any, Declared] | None, frame: Frame) -> dict[str, Declared]:
    """What is declared of each column of a table, by name; see ``Schema.infer`` for what can be."""
    found: dict[str, Declared] = dict.fromkeys(frame.names, AUTO)
    if columns is None:
        return found
    if isinstance(columns, str | Family):
        return dict.fromkeys(frame.names, columns)
    if not isinstance(columns, Mapping):
        expected = f"a mapping from names to {', '.join(map(repr, WORDS))}, or one of these"  # type: ignore[unreachable]
        raise ArgumentError("columns", expected, repr(columns)[:80])
    for key, declared in columns.items():
        name = key
        if isinstance(key, int) and not isinstance(key, bool) and -len(found) <= key < len(found):
            name = frame.names[key] if str(key) not in found else str(key)
        if name not in found:
            raise ArgumentError("columns", f"names among {few(frame.names)}", repr(key)[:80])
        found[name] = declared
    return found
