# SPDX-License-Identifier: Apache-2.0
"""A report on a model of a table: one HTML page that shows how well the model fits."""

from __future__ import annotations

import math
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from picirc.atomic import replace_files
from picirc.checks import check_integer
from picirc.report.drawing import Markup, label, percent, section, tag, tiles
from picirc.report.drawing import page as framed
from picirc.report.sections import (
    Material,
    anomalies_section,
    calibration_section,
    columns_section,
    gather,
    pairs_section,
    training_section,
    tree_section,
)
from picirc.tables import TableModel

__all__ = ["write_report"]


class Section(NamedTuple):
    """A section of the page: its anchor, its title, an explanation, and the function that makes it."""

    anchor: str
    title: str
    words: str
    make: Callable[[Material], Markup]


SECTIONS = (
    Section(
        "training", "Training", "The log-likelihood of the training rows and of the held-out rows.", training_section
    ),
    Section(
        "tree",
        "Dependencies",
        "The maximum spanning tree of the mutual information between the columns of this table.",
        tree_section,
    ),
    Section(
        "pairs",
        "Data and samples",
        "Neighbours in the tree with the largest mutual information, in the data and in rows drawn from the model. "
        "They should look alike.",
        pairs_section,
    ),
    Section(
        "calibration",
        "Calibration",
        "For every cell, the probability of a smaller value given the other cells of its row. If the conditional "
        "distributions are right, these probabilities are uniform between 0 and 1. A valley in the middle means that "
        "the model is overconfident, a hill that it is underconfident, and a slope that it is biased.",
        calibration_section,
    ),
    Section(
        "anomalies",
        "Most surprising rows",
        "The surprise of a row is the difference between the log-density that the model expects of rows with the same "
        "missing cells, and the log-density of the row. Rows are counted from 0; p is the probability of a value at "
        "least as extreme, given the rest of the row.",
        anomalies_section,
    ),
    Section("columns", "Columns and missing values", "All columns of the table.", columns_section),
)


def write_report(model: TableModel, table: Any, path: str | PathLike[str], *, seed: int = 0) -> None:
    """Write an HTML page that compares a model with a table.

    The page is self-contained. It has the training curve, the tree of dependencies, pairs of columns in the data and in
    samples, the calibration of the conditional distributions, the most surprising rows, and a summary of the columns
    and their missing values. An existing page is replaced atomically.

    Args:
        model: The result of ``fit_table``.
        table: A table of any kind with the columns of the model. Rows that were not used for training are more
            informative.
        path: The file to write, such as ``"report.html"``.
        seed: The random seed. The same seed gives the same page.

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


def page(material: Material) -> Markup:
    """The whole page."""
    links = [tag("a", part.title, href=f"#{part.anchor}") for part in SECTIONS]
    top = tag("header", tag("h1", "Model report"), tag("p", _subtitle(material)), _tiles(material), tag("nav", *links))
    sections = [section(part.anchor, part.title, part.words, part.make(material)) for part in SECTIONS]
    return framed("Model report", top, sections, "the table")


def _subtitle(material: Material) -> str:
    model = material.model.pic
    count = sum(p.numel() for p in model.parameters())
    if not model.has_rule:
        states = model.states_of(material.model.points)
        return f"A mixture with {count:,} parameters and {states} states, compared with a table."
    kind = "A probabilistic integral circuit"
    if len(model.parts) > 1:
        kind = f"The average of {len(model.parts)} probabilistic integral circuits"
    return f"{kind} with {count:,} parameters and {material.model.points} quadrature points, compared with a table."


def _tiles(material: Material) -> Markup:
    gone = float(material.encoded[:, : len(material.fields)].isnan().double().mean())
    mean = float(np.mean(material.log_densities))
    return tiles([
        ("rows", f"{material.rows:,}"),
        ("columns", f"{len(material.fields):,}"),
        ("missing cells", percent(gone)),
        ("mean log-density of a row", label(mean, 0.1) if math.isfinite(mean) else "−∞"),
    ])  # fmt: skip
