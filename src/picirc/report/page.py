"""The page: its head, its sections, its style; nothing in it is loaded from elsewhere, and nothing in it runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib.resources import files
from typing import NamedTuple

import numpy as np

from picirc import __version__
from picirc.ensemble import Ensemble
from picirc.report import anomalies, calibration, missing, pairs, training, tree
from picirc.report.markup import Markup, join, tag
from picirc.report.material import Material
from picirc.report.scales import label, percent

# Nothing may be loaded and nothing may run, whatever a name of a column tries.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


class Section(NamedTuple):
    """A section of the page: its anchor, its title, what it shows, in words, and what makes it."""

    anchor: str
    title: str
    words: str
    make: Callable[[Material], Markup]


SECTIONS = (
    Section("training", "Training", "The likelihood of the data and of the rows that were held out.", training.section),
    Section(
        "tree",
        "Dependencies",
        "The tree of the columns that tell most about each other in this table.",
        tree.section,
    ),
    Section(
        "pairs",
        "Data and samples",
        "The pairs of neighbours in the tree that tell most about each other, in the data and in rows that were drawn "
        "from the model. They should look alike.",
        pairs.section,
    ),
    Section(
        "calibration",
        "Calibration",
        "For every cell: how much of its distribution, given the other cells of its row, lies below its value? If the "
        "conditional distributions are right, the answers are evenly spread from 0 to 1. A valley in the middle: the "
        "model is too sure of itself. A hill: not sure enough. A slope: too high or too low.",
        calibration.section,
    ),
    Section(
        "anomalies",
        "Most surprising rows",
        "The surprise of a row is how far its log-density lies below what the model expects of rows with the same "
        "cells missing. Rows are counted from 0; p is the probability of a value at least as far off, given the rest "
        "of the row.",
        anomalies.section,
    ),
    Section("columns", "Columns and missing values", "Every column of the table, as it is.", missing.section),
)


def page(material: Material) -> Markup:
    """The whole page."""
    style = files("picirc.report").joinpath("style.css").read_text(encoding="utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="icon", href="data:,"),
        tag("title", "Report of a model of a table"),
        tag("style", Markup(style)),
    )
    links = [tag("a", section.title, href=f"#{section.anchor}") for section in SECTIONS]
    top = tag("header", tag("h1", "Model report"), tag("p", _subtitle(material)), _tiles(material), tag("nav", *links))
    sections = [_section(section, material) for section in SECTIONS]
    foot = tag(
        "footer",
        tag("p", f"Written by picirc {__version__}. Logarithms are natural; densities are in the units of the table."),
    )
    body = tag("body", top, tag("main", *sections), foot)
    return Markup(f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n")


def _section(section: Section, material: Material) -> Markup:
    heading, words = tag("h2", section.title), tag("p", section.words, class_="lead")
    return tag("section", heading, words, section.make(material), id=section.anchor)


def _subtitle(material: Material) -> str:
    model = material.model.pic
    count = sum(p.numel() for p in model.parameters())
    kind = "A probabilistic integral circuit"
    if isinstance(model, Ensemble):
        kind = f"The average of {len(model.members)} probabilistic integral circuits"
    return (
        f"{kind} with {count:,} parameters and "
        f"{material.model.points} quadrature points, and the table that it is compared with."
    )


def _tiles(material: Material) -> Markup:
    gone = float(material.encoded.isnan().double().mean())
    mean = float(np.mean(material.log_densities))
    tiles = [
        ("rows", f"{material.rows:,}"),
        ("columns", f"{len(material.fields):,}"),
        ("cells missing", percent(gone)),
        ("mean log-density of a row", label(mean, 0.1) if math.isfinite(mean) else "−∞"),
    ]
    return tag("div", *(tag("div", tag("b", value), join([name])) for name, value in tiles), class_="tiles")
