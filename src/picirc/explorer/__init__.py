# SPDX-License-Identifier: Apache-2.0
"""The explorer: a page in the browser that queries a model."""

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
from picirc.explorer.pages import CircuitQuestions, PictureQuestions, SequenceQuestions, TableQuestions
from picirc.explorer.server import Explorer, Page
from picirc.io import describe, load
from picirc.model import Model
from picirc.qpc.distribution import QPC
from picirc.sequences import SequenceModel
from picirc.sequences.dynamics import KIND
from picirc.structure.bayesnet import BayesNet
from picirc.structure.trees import LatentTree
from picirc.tables import TableModel

__all__ = ["Explorer", "explore", "make_page"]

_POINTS, _VECTORS = 64, 256  # quadrature points of a PIC of images, for scalar and for vector latents


def explore(
    model: Model | QPC | TableModel | SequenceModel | BayesNet | Circuit | str | PathLike[str],
    data: Any = None,
    *,
    shape: tuple[int, int] | None = None,
    port: int = 0,
    browser: bool = True,
    wait: bool | None = None,
) -> Explorer:
    """Open a page in the browser that queries a model.

    The page is served to this computer only, and its address contains a random token. Nothing is written, and nothing
    is loaded from elsewhere. It needs the extra ``web``.

    Args:
        model: A model of a table or of sequences, a PIC, HCLT, Ensemble or QPC of images, a Bayesian network, a
            circuit, or the path of a saved model.
        data: The data to compare it with: a table, sequences, or images as an array or a ``pc.data.Dataset``.
        shape: Height and width of the images; by default they are square.
        port: The port of the server; 0 for a free one.
        browser: Whether to open the page in a browser. A notebook shows it inline instead.
        wait: Whether to wait until Ctrl-C; by default only in scripts, where the server would end with the script.

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
    """The page for a model; the arguments are those of ``explore``, and the title."""
    if isinstance(model, str | PathLike):
        name, about = name or Path(model).resolve().name, describe(model)
        of_sequences = about.get("kind") == KIND
        model = (TableModel.load if "table" in about else SequenceModel.load if of_sequences else load)(model)
    if isinstance(model, TableModel):
        return TableQuestions(model, data, name or "Table")
    if isinstance(model, SequenceModel):
        return SequenceQuestions(model, data, name or "Sequences")
    if isinstance(model, BayesNet | Circuit):
        return CircuitQuestions(model, name or ("Bayesian network" if isinstance(model, BayesNet) else "Circuit"))
    if isinstance(model, Model | QPC):
        return _images(model, data, shape, name)
    expected = "a model, QPC, BayesNet or Circuit, or the path of a saved model"
    raise ArgumentError("model", expected, type(model).__name__)


def _images(model: Model | QPC, data: Any, shape: tuple[int, int] | None, name: str) -> Page:
    tree = getattr(model, "structure", None)
    if isinstance(data, Dataset):
        shape, name, data = shape or data.image_shape, name or data.name, data.test
    with torch.no_grad():
        circuit = model if isinstance(model, QPC) else model(model.parts[0].usual_rule(_POINTS, _VECTORS))
        return PictureQuestions(circuit, shape, tree if isinstance(tree, LatentTree) else None, data, name or "Images")


def _in_notebook() -> bool:
    """Whether this runs in a notebook, which can show a page inline."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"
