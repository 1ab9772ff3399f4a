"""``picirc score``, ``sample``, ``impute`` and ``classify``: what a model says about tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from picirc.cli.checks import check_output
from picirc.cli.options import TableOptions
from picirc.cli.outputs import text_of, write_columns
from picirc.cli.table_files import ask, missing_cells, open_table_model
from picirc.cli.table_reading import delimiter_of, told_apart
from picirc.data.columns import Columns
from picirc.errors import ArgumentError

How = Literal["mean", "mode", "sample"]

_LISTED = 10


def score_rows(first: Path, second: Path | None, options: TableOptions, out: Path | None, share: float | None) -> None:
    """Print the mean log-density of a table, and write that of every row."""
    if share is not None and not 0 < share < 1:
        raise ArgumentError("--anomalies", "a part of the rows between 0 and 1, such as 0.01", share)
    if out is not None:
        check_output(out, *told_apart(first, second))
    question = ask(first, second, options)
    found = question.model.log_density(question.table)
    columns: dict[str, Any] = {"row": np.arange(1, len(found) + 1), "log_density": found}
    print(f"mean log density {found.mean():.4f} of {len(found):,} rows")
    if share is not None:
        columns["anomaly"] = _mark(found, share)
    if out is not None:
        write_columns(out, columns, delimiter=delimiter_of(options))
        print(f"saved {out}")


def _mark(log_density: npt.NDArray[np.float64], share: float) -> npt.NDArray[np.int64]:
    """1 for the rows of least density, 0 for the others."""
    threshold = np.quantile(log_density, share, method="inverted_cdf")
    marks = log_density <= threshold
    worst = np.flatnonzero(marks)[np.argsort(log_density[marks], kind="stable")]
    listed = ", ".join(str(row + 1) for row in worst[:_LISTED].tolist()) + (", …" if len(worst) > _LISTED else "")
    print(f"{len(worst):,} anomalies, with a log density of at most {threshold:.4f}: row {listed}")
    return marks.astype(np.int64)


def write_table_samples(path: Path, out: Path, count: int, seed: int) -> None:
    """Draw rows from the model of a table and write them."""
    check_output(out, path)
    write_columns(out, open_table_model(path).sample(count, seed=seed))


def write_filled(
    first: Path, second: Path | None, options: TableOptions, out: Path, how: How, seed: int, copies: int | None
) -> None:
    """Fill the missing cells of a table and write it, once or several times."""
    if copies is not None and copies < 1:
        raise ArgumentError("--copies", "a positive whole number", copies)
    if copies is not None and how != "sample":
        raise ArgumentError("--copies", "--how sample, as they would all be the same", f"--how {how}")
    targets = [out] if copies is None else [_numbered(out, copy) for copy in range(1, copies + 1)]
    for target in targets:
        check_output(target, *told_apart(first, second))
    question = ask(first, second, options)
    gaps = missing_cells(question.table)
    for copy, target in enumerate(targets):
        filled = question.model.impute(question.table, how, seed + copy)
        columns = question.source.values | filled
        if not target.name.lower().endswith(".parquet"):
            columns = _as_written(question.source, filled, gaps)
        write_columns(target, columns, question.source.types, delimiter_of(options))
        print(f"saved {target}")
    count = sum(int(gap.sum()) for gap in gaps.values())
    rows = int(np.any(list(gaps.values()), axis=0).sum())
    print(f"filled {count:,} cells in {rows:,} of {question.source.rows:,} rows")


def _numbered(out: Path, copy: int) -> Path:
    """The name of a copy.

    Example:
        >>> str(_numbered(Path("a.csv.gz"), 2))
        'a-2.csv.gz'
    """
    name, dot, ending = out.name.partition(".")
    return out.with_name(f"{name}-{copy}{dot}{ending}")


def _as_written(source: Columns, filled: dict[str, Any], gaps: dict[str, npt.NDArray[np.bool_]]) -> dict[str, Any]:
    """The columns with the texts that stand in a CSV file, and the new values where nothing stood."""
    columns: dict[str, Any] = source.values | filled
    for name, texts in source.texts.items():
        columns[name] = texts
        if name in filled:
            cells = zip(texts, gaps[name].tolist(), filled[name].tolist(), strict=True)
            columns[name] = [value if gap else text for text, gap, value in cells]
    return columns


def write_classes(first: Path, second: Path | None, options: TableOptions, out: Path, column: str) -> None:
    """Write the most probable category of a column for every row, and the probabilities of all."""
    check_output(out, *told_apart(first, second))
    question = ask(first, second, options, absent=(column,))
    labels = question.model.schema[column].categories
    table = question.table or {column: np.full(question.source.rows, None, dtype=object)}
    probabilities = question.model.predict(table, column)
    chosen = [labels[place] for place in probabilities.argmax(1).tolist()]
    columns: dict[str, Any] = {column: chosen}
    columns |= {f"p({text_of(label)})": probabilities[:, place] for place, label in enumerate(labels)}
    write_columns(out, columns, delimiter=delimiter_of(options))
    print(f"classified {len(chosen):,} rows; saved {out}")
    truth = question.source.values.get(column)
    if truth is None:
        return
    known = [(said, true) for said, true in zip(chosen, truth.tolist(), strict=True) if text_of(true)]
    if known:
        right = sum(said == true for said, true in known)
        print(f"{right:,} of the {len(known):,} rows with a known {column} are right ({right / len(known):.1%})")
