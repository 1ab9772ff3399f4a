"""Columns as plain JSON values, and back from a file that may say anything."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from picirc.errors import ArgumentError
from picirc.inputs import Bernoulli, Categorical, Family
from picirc.io.describe import build_family, choice, describe_family, only, take
from picirc.tables.columns import Column
from picirc.tables.frames import CONTAINERS, DTYPES, Label

_SCHEMA = {"columns", "rows", "container", "unseen"}
_COLUMN = {field.name for field in fields(Column)}


def column_to_json(column: Column) -> dict[str, Any]:
    """A column as plain JSON values."""
    found = {field.name: getattr(column, field.name) for field in fields(column)}
    return found | {"family": describe_family(column.family), "categories": list(column.categories)}


def schema_entries(value: Any) -> tuple[list[Any], int, str, str]:
    """The columns of a schema as they stand in a file, the number of rows, the kind of table, and ``unseen``."""
    with _refusing():
        if not isinstance(value, Mapping):
            raise ArgumentError("schema", "an object", repr(value)[:80])
        only(value, _SCHEMA, "schema")
        columns = take(value, "columns", list)
        names = [entry.get("name") if isinstance(entry, Mapping) else None for entry in columns]
        texts = [name for name in names if isinstance(name, str)]
        if not columns or len(set(texts)) != len(columns):
            raise ArgumentError("columns", "objects with a name of its own each, at least one", "others")
        rows = take(value, "rows", int)
        if rows < 0:
            raise ArgumentError("rows", "a number that is not negative", rows)
        container = choice(value, "container", {name: name for name in CONTAINERS})
        return columns, rows, container, take(value, "unseen", str)


def column_from_json(entry: Any, families: Sequence[type[Family]]) -> Column:
    """The column that ``column_to_json`` wrote."""
    with _refusing():
        if not isinstance(entry, Mapping):
            raise ArgumentError("columns", "an object for each column", repr(entry)[:80])
        only(entry, _COLUMN, "columns")
        dtype = choice(entry, "dtype", {name: name for name in DTYPES})
        labels = take(entry, "categories", list)
        missing = take(entry, "missing", int)
        scale = _number(entry, "scale")
        if missing < 0 or not scale > 0:
            raise ArgumentError("columns", "a positive scale and a number of rows", f"{scale} and {missing}")
        low, high = (None if entry.get(name) is None else _number(entry, name) for name in ("low", "high"))
        family = build_family(take(entry, "family", dict), families)
        name, location = take(entry, "name", str), _number(entry, "location")
        column = Column(name, family, dtype, tuple(labels), location, scale, low, high, missing)
        _check_labels(column)
        return column


def _check_labels(column: Column) -> None:
    """Raise unless there is a distinct label of the column's type for each code of the family."""
    labels = column.categories
    wanted = (str,) if column.dtype == "text" else (bool,) if column.dtype == "boolean" else (int, float)
    if any(type(label) not in wanted for label in labels) or len(set(labels)) != len(labels):
        raise ArgumentError("categories", f"distinct values of type {column.dtype}", repr(labels)[:80])
    if any(not _is_finite(label) for label in labels if not isinstance(label, str)):
        raise ArgumentError("categories", "finite numbers", repr(labels)[:80])
    codes = 0
    if isinstance(column.family, Categorical):
        codes = column.family.categories
    elif isinstance(column.family, Bernoulli):
        codes = 2
    if len(labels) != codes and not (column.coded and not labels and codes == 1):
        raise ArgumentError("categories", f"{codes} labels for {column.family!r}", f"{len(labels)}")


def _number(entry: Mapping[str, Any], name: str) -> float:
    value = entry.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
        raise ArgumentError(name, "a finite number", repr(value)[:80])
    return float(value)


def _is_finite(value: Label) -> bool:
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


@contextmanager
def _refusing() -> Iterator[None]:
    """Turn whatever a wrong value causes into an ArgumentError."""
    try:
        yield
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError("schema", "the description of a table", str(error) or type(error).__name__) from error
