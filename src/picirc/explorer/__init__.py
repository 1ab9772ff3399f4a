# SPDX-License-Identifier: Apache-2.0
"""The explorer: a page in the browser that asks a model and shows what it answers."""

from __future__ import annotations

import sys
import webbrowser
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from picirc.circuit import Circuit
from picirc.data import Dataset
from picirc.errors import ArgumentError
from picirc.explorer.pages import CircuitQuestions, PictureQuestions, SequenceQuestions
from picirc.explorer.server import Explorer, Page
from picirc.explorer.tables import TableQuestions
from picirc.hclt import HCLT
from picirc.io import describe, load
from picirc.pic import PIC, Ensemble
from picirc.qpc.distribution import QPC
from picirc.sequences import SequenceModel
from picirc.sequences.neural import KIND
from picirc.structure.bayesnet import BayesNet
from picirc.structure.trees import LatentTree
from picirc.tables import TableModel

__all__ = ["Explorer", "explore", "make_page"]

Model = TableModel | SequenceModel | PIC | HCLT | Ensemble | QPC | BayesNet | Circuit

_POINTS, _VECTORS = 64, 256  # of a PIC of images, with numbers and with vectors as latents


def explore(
    model: Model | str | PathLike[str],
    data: Any = None,
    *,
    shape: tuple[int, int] | None = None,
    port: int = 0,
    browser: bool = True,
    wait: bool | None = None,
) -> Explorer:
    """Open a page in the browser that asks a model.

    The page comes from a server on this computer that answers nobody else; its address holds a random token. Nothing
    is written and nothing is loaded from elsewhere. It needs the extra ``web``.

    Args:
        model: A model of a table or of sequences, a PIC, HCLT, Ensemble or QPC of images, a Bayesian network, a
            circuit, or the path of a saved model.
        data: What to compare it with: a table, sequences, or images as an array or a ``pc.data.Dataset``.
        shape: Height and width of the images; by default square.
        port: The port of the server; 0 for a free one.
        browser: Open the page in a browser. In a notebook it is shown inline instead.
        wait: Wait until Ctrl-C; by default in scripts, where the server would end with the script.

    Returns:
        The running explorer: ``url`` is its address, ``stop()`` ends it.
    """
    inline = _in_notebook()
    explorer = Explorer(make_page(model, data, shape=shape), port, framed=inline)
    if browser and not inline:
        webbrowser.open(explorer.url)
    if wait if wait is not None else not (inline or hasattr(sys, "ps1")):
        explorer.wait()
    return explorer


def make_page(model: Any, data: Any = None, *, shape: tuple[int, int] | None = None, name: str = "") -> Page:
    """The page for a model of any kind; the arguments are those of ``explore``."""
    if isinstance(model, str | PathLike):
        path = Path(model)
        name = name or path.resolve().name
        model = _load(path)
    if isinstance(model, TableModel):
        return TableQuestions(model, data, name or "Table")
    if isinstance(model, SequenceModel):
        return SequenceQuestions(model, data, name or "Sequences")
    if isinstance(model, BayesNet | Circuit):
        return CircuitQuestions(model, name or ("Bayesian network" if isinstance(model, BayesNet) else "Circuit"))
    if isinstance(model, PIC | HCLT | Ensemble | QPC):
        return _images(model, data, shape, name)
    expected = "a TableModel, SequenceModel, PIC, HCLT, Ensemble, QPC, BayesNet, Circuit or the path of a saved model"
    raise ArgumentError("model", expected, type(model).__name__)


def _load(path: Path) -> Any:
    description = describe(path)
    if "table" in description:
        return TableModel.load(path)
    return SequenceModel.load(path) if description.get("kind") == KIND else load(path)


def _images(model: PIC | HCLT | Ensemble | QPC, data: Any, shape: tuple[int, int] | None, name: str) -> Page:
    tree = None if isinstance(model, QPC) else model.structure
    if isinstance(data, Dataset):
        shape, name, data = shape or data.image_shape, name or data.name, data.test
    with torch.no_grad():
        qpc = model if isinstance(model, QPC) else _integrated(model)
        tree = tree if isinstance(tree, LatentTree) else None
        return PictureQuestions(qpc, shape, tree, data, name or "Images")


def _integrated(model: PIC | HCLT | Ensemble) -> QPC:
    first, rule = model.parts[0], None
    if isinstance(first, PIC):
        rule = first.usual_rule(_POINTS, _VECTORS)
    found: QPC = model() if rule is None else model(rule)
    return found


def _in_notebook() -> bool:
    """Whether a notebook runs this, which can show a page inline."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"
