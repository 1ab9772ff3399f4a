"""The table of a command, read from a file; no torch, so that what is wrong with a file is said at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from picirc.cli.options import ColumnOptions, DataOptions, TableOptions
from picirc.data.cells import few
from picirc.data.columns import ENDINGS, Columns, Content, read_columns
from picirc.data.tables import MISSING
from picirc.errors import ArgumentError

_FOLDER = Path("model")  # where a model is if nothing else is said


def read_table(path: Path, options: TableOptions, contents: Mapping[str, Content] | None = None) -> Columns:
    """Read the table of a command."""
    missing = MISSING if options.missing is None else options.missing
    return read_columns(path, contents, delimiter=delimiter_of(options), missing=missing)


def delimiter_of(options: TableOptions) -> str | None:
    """What separates the cells."""
    if options.delimiter is None or len(options.delimiter) == 1:
        return options.delimiter
    if options.delimiter not in ("tab", r"\t"):
        raise ArgumentError("--delimiter", "one character, or tab", options.delimiter)
    return "\t"


def told_apart(first: Path, second: Path | None) -> tuple[Path, Path]:
    """The model and the table among the arguments of a command; a single one is the table."""
    return (first, second) if second is not None else (_FOLDER, first)


def declared_kinds(data: DataOptions, columns: ColumnOptions) -> dict[str, str]:
    """The kinds of columns that the user declares."""
    found = dict.fromkeys(data.categorical, "categorical")
    for text in columns.columns:
        name, equals, kind = text.rpartition("=")
        if not equals or not name:
            raise ArgumentError("--columns", "NAME=KIND, such as age=poisson", text)
        if found.get(name, kind) != kind:
            raise ArgumentError("--columns", f"one kind for {name}", f"{found[name]} and {kind}")
        found[name] = kind
    return found


def read_training_table(
    path: Path, options: TableOptions, declared: Mapping[str, str], dropped: Sequence[str]
) -> Columns:
    """Read a table to learn from, without the columns to leave out."""
    if not path.exists() and not path.name.lower().endswith(ENDINGS):
        remedy = f"write --data {path} if it is the name of a data set"
        raise ArgumentError("TABLE", f"a file that ends in {', '.join(ENDINGS)}", str(path), remedy)
    # A declared category may look like a number, and keeps its zeros in front then; any other kind is of numbers.
    contents: dict[str, Content] = {
        name: "texts" if kind == "categorical" else "numbers"
        for name, kind in declared.items()
        if kind not in ("auto", "bernoulli")
    }
    source = read_table(path, options, contents | dict.fromkeys(dropped, "texts"))
    names = list(source.values)
    wrong = [name for name in declared if name not in names]
    if wrong:
        raise ArgumentError("--columns, --categorical", f"names among {few(names)}", wrong[0])
    other = next((mark for mark in ";\t|," if mark in names[0]), None)
    if len(names) == 1 and source.texts and other is not None:
        remedy = f"--delimiter {'tab' if other == chr(9) else repr(other)} separates them otherwise"
        raise ArgumentError(str(path), "several columns", f"one, {names[0]!r}", remedy)
    for name in dropped:
        if name not in names:
            raise ArgumentError("--drop", f"names among {few(names)}", name)
    kept = {name: values for name, values in source.values.items() if name not in dropped}
    if not kept:
        raise ArgumentError("--drop", "at least one column left", "none")
    return Columns(path, kept)
