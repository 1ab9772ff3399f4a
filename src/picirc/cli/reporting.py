"""``picirc report``: a page about a model of a table."""

from __future__ import annotations

from pathlib import Path

from picirc.cli.checks import check_output
from picirc.cli.options import TableOptions
from picirc.cli.table_files import ask
from picirc.report import write_report


def write_page(model: Path, table: Path, options: TableOptions, out: Path, seed: int) -> None:
    """Write a page that compares a model with a table."""
    check_output(out, model, table, endings=(".html", ".htm"))
    question = ask(model, table, options)
    write_report(question.model, question.table, out, seed=seed)
    print(f"saved {out}")
