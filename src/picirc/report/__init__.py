"""A report of a model of a table: one page that shows how well the model fits, and where it does not."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from picirc.checks import check_integer
from picirc.io.files import replace_files
from picirc.report.material import gather
from picirc.report.page import page
from picirc.tables import TableModel

__all__ = ["write_report"]


def write_report(model: TableModel, table: Any, path: str | PathLike[str], *, seed: int = 0) -> None:
    """Write a page of HTML that compares a model with a table.

    The page holds everything that it shows and loads nothing. It has the training curve, the tree of dependencies,
    pairs of columns in the data and among samples, the calibration of the conditional distributions, the rows that
    surprise the model most, and a summary of the columns and of what is missing. A page that was there before is
    replaced in one move.

    Args:
        model: What ``fit_table`` returned.
        table: The table to compare it with, of any kind, with the columns of the model. Rows that the model has not
            learned from say more.
        path: The file to write, such as ``"report.html"``.
        seed: Decides what is drawn from the model: the same seed, the same page.

    Example:
        >>> import tempfile
        >>> from picirc.tables import fit_table
        >>> table = {"x": [0.1, 0.9, 1.7, 2.2, 3.1, 3.8], "y": [0.0, 1.2, 1.5, 2.3, 2.9, None]}
        >>> model = fit_table(table, steps=5)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_report(model, table, f"{folder}/report.html")
        ...     Path(folder, "report.html").read_text(encoding="utf-8")[:15]
        '<!DOCTYPE html>'
    """
    content = page(gather(model, table, check_integer("seed", seed, 0))).encode("utf-8")
    replace_files({Path(path): content})
