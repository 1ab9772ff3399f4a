"""The table of a command: read from a file, and told apart into what the model knows and the rest."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from picirc.cli.options import TableOptions
from picirc.cli.saved import find_model
from picirc.cli.table_reading import read_table, told_apart
from picirc.data.cells import few
from picirc.data.columns import Array, Columns, Content
from picirc.errors import ArgumentError
from picirc.tables.frames import read_frame
from picirc.tables.model import TableModel
from picirc.tables.schema import Schema


@dataclass(frozen=True, eq=False)
class Question:
    """A model and the table that it is asked about.

    Attributes:
        model: The model, which answers with mappings from names to columns.
        source: The table as it is in the file.
        table: The columns that the model knows.
    """

    model: TableModel
    source: Columns
    table: dict[str, Array]


def open_table_model(path: Path) -> TableModel:
    """Load the model of a table; its answers are mappings, whatever kind of table it was fitted to."""
    model = TableModel.load(find_model(path))
    return TableModel(replace(model.schema, container="mapping"), model.pic, model.points, model.summary)


def ask(first: Path, second: Path | None, options: TableOptions, absent: tuple[str, ...] = ()) -> Question:
    """Load a model, read a table and say what is in it.

    Args:
        first: The model, or the table if there is no other argument.
        second: The table.
        options: How the table is read.
        absent: Columns that the table need not have, and whose cells do not count.
    """
    path, file = told_apart(first, second)
    model = open_table_model(path)
    columns = {column.name: column for column in model.schema.columns}
    for name in absent:
        model.schema.index(name)
    known: dict[str, Content] = {"text": "texts", "boolean": "truths", "integer": "numbers", "float": "numbers"}
    contents = {name: known[column.dtype] for name, column in columns.items() if column.kind != "empty"}
    source = read_table(file, options, contents)
    lacking = [name for name in columns if name not in source.values and name not in absent]
    if lacking:
        remedy = "add it with empty cells if it is unknown"
        if len(source.values) == 1:
            remedy = "say what separates the cells with --delimiter"
        raise ArgumentError(str(file), f"the column {lacking[0]}", f"only {few(list(source.values))}", remedy)
    table = {name: source.values[name] for name in columns if name in source.values}
    _summarise(model.schema, table, source)
    return Question(model, source, {name: values for name, values in table.items() if name not in absent})


def _summarise(schema: Schema, table: Mapping[str, Array], source: Columns) -> None:
    """Print the columns, their types and the number of missing cells."""
    missing = missing_cells(table)
    gone = {name: int(missing[name].sum()) if name in missing else source.rows for name in schema.names}
    say(Schema(tuple(replace(column, missing=gone[column.name]) for column in schema.columns), source.rows))
    ignored = [name for name in source.values if name not in schema.names]
    if ignored:
        say(f"not in the model and ignored: {few(ignored)}")


def missing_cells(table: Mapping[str, Array]) -> dict[str, npt.NDArray[np.bool_]]:
    """Where there is no value, for each column."""
    return {cells.name: cells.missing for cells in read_frame(dict(table)).columns} if table else {}


def say(text: Any) -> None:
    """Print something that is no result."""
    print(text, file=sys.stderr)
