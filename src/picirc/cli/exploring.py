"""``picirc explore``: a page in the browser that asks a model."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Any

from picirc.cli.options import TableOptions
from picirc.cli.saved import open_model
from picirc.cli.table_files import ask, open_table_model
from picirc.data import load
from picirc.explorer import Explorer, make_page


def serve(model: Path, data: str | None, options: TableOptions, port: int, *, browser: bool) -> None:
    """Show a model in the browser until Ctrl-C."""
    page = make_page(*_material(model, data, options), name=model.resolve().name)
    explorer = Explorer(page, port)
    print(f"The explorer is at {explorer.url}\nCtrl-C ends it.", flush=True)
    if browser:
        webbrowser.open(explorer.url)
    explorer.wait()


def _material(path: Path, data: str | None, options: TableOptions) -> tuple[Any, Any]:
    """The model, and what to compare it with: the table of a file, or a data set by its name."""
    saved = open_model(path)
    if not saved.of_table:
        return saved.model, None if data is None else load(data)
    if data is None:
        return open_table_model(path), None
    question = ask(path, Path(data), options)
    return question.model, question.table
