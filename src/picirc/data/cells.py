"""Tables of numbers with named columns, and how cells of text become numbers.

Nothing is guessed: every column is numeric unless it is declared categorical, so that a slip of the pen in a number is
an error and not a new category. Missing values are NaN, which all queries marginalise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from picirc.errors import ArgumentError
from picirc.structure.columns import read_table

# The names of columns, or the levels of each as another table has them.
Categorical = Collection[str] | Mapping[str, Sequence[str]]
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Table:
    """A table of numbers with named columns.

    Attributes:
        columns: The names.
        values: (row, column), NaN where missing.
        levels: For every categorical column the texts that its values 0, 1, … stand for.
    """

    columns: tuple[str, ...]
    values: npt.NDArray[Any]
    levels: dict[str, tuple[str, ...]] = field(default_factory=dict)


def numbered(count: int) -> tuple[str, ...]:
    """Return names for columns that have none: x0, x1, …."""
    return tuple(f"x{index}" for index in range(count))


def check_names(path: Path, columns: Sequence[str], categorical: Categorical) -> None:
    """Raise unless the columns have distinct names, those declared categorical among them."""
    if isinstance(categorical, str):
        raise ArgumentError("categorical", "a collection of names", categorical, f"write [{categorical!r}]")
    for index, name in enumerate(columns):
        if not name or name in columns[:index]:
            got = f"{name!r} twice" if name else f"none for column {index}"
            raise ArgumentError(str(path), "a name of its own for every column", got)
    for name in categorical:
        if name not in columns:
            raise ArgumentError("categorical", f"names among {', '.join(columns)}", name)


def check_values(path: Path, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array if it is a table of finite numbers and NaN; the error names the file."""
    try:
        return read_table(array)
    except ArgumentError as error:
        raise ArgumentError(str(path), "a table of finite numbers, (row, column)", f"another one ({error})") from error


def numbers(name: str, cells: Sequence[str | None], place: Callable[[int], str]) -> Numbers:
    """Return the numbers that the cells of a column say, NaN where one is None; ``place`` names a row in an error."""
    values = np.full(len(cells), np.nan)
    for row, cell in enumerate(cells):
        if cell is None:
            continue
        try:
            values[row] = float(cell)
        except ValueError:
            values[row] = np.nan
        # float also reads "1_000", "inf" and spellings of NaN that were not declared to mean a missing value.
        if "_" in cell or not math.isfinite(values[row]):
            raise not_numeric(place(row), name, cell, "correct it, add it to missing=")
    return values


def codes(
    name: str, cells: Sequence[str | None], categorical: Categorical, place: Callable[[int], str]
) -> tuple[Numbers, tuple[str, ...]]:
    """Number the levels of a categorical column.

    Args:
        name: The name of the column.
        cells: Its texts, None where missing.
        categorical: If it maps the name to levels, these hold; else the levels are the texts that occur, in order.
        place: Names a row in an error.

    Returns:
        The level of every row, NaN where missing, and the text of every level.

    Example:
        >>> codes("pet", ["dog", None, "cat"], ["pet"], place=str)
        (array([ 1., nan,  0.]), ('cat', 'dog'))
    """
    if isinstance(categorical, Mapping):
        levels = tuple(categorical[name])
    else:
        levels = tuple(sorted({cell for cell in cells if cell is not None}))
    if not levels or len(set(levels)) < len(levels):
        raise ArgumentError("categorical", f"distinct levels for column {name}, at least one", levels)
    values = np.full(len(cells), np.nan)
    number = {level: code for code, level in enumerate(levels)}
    for row, cell in enumerate(cells):
        if cell is None:
            continue
        if cell not in number:
            raise ArgumentError(place(row), f"a known level of column {name} ({few(levels)})", cell)
        values[row] = number[cell]
    return values, levels


def not_numeric(place: str, name: str, got: str, way: str = "correct it") -> ArgumentError:
    """Return the error for something else than a number in a column that was not declared categorical."""
    remedy = f"{way}, or declare the column: categorical=[{name!r}]"
    return ArgumentError(place, f"a finite number in column {name}", got, remedy)


def few(names: Sequence[str], most: int = 10) -> str:
    """Return the first of many names, separated by commas."""
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")
