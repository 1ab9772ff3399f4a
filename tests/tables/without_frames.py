# SPDX-License-Identifier: Apache-2.0
"""What a user does who has installed none of the libraries of data frames; this module imports none either."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import picirc as pc

HIDDEN = ("pandas", "polars", "pyarrow")


class Hide:
    """Makes the libraries look as if they were not installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.split(".")[0] in HIDDEN:
            raise ImportError(name)


def use_a_model(path: Path) -> None:
    assert not any(name in sys.modules for name in HIDDEN)
    find = importlib.util.find_spec
    for module in list(sys.modules.values()):
        if getattr(module, "find_spec", None) is find:
            module.find_spec = lambda name: None if name in HIDDEN else find(name)  # type: ignore[attr-defined]
    sys.meta_path.insert(0, Hide())  # type: ignore[arg-type]
    model = pc.TableModel.load(path)
    drawn = model.sample(2)
    assert type(drawn) is dict
    assert len(drawn["species"]) == 2
    filled = model.impute({name: [None] for name in model.schema.names})
    assert filled["species"][0] in model.schema["species"].categories
    pc.PICDensity(steps=2, settings={"members": 1}).fit([[1.0, 2.5], [2.0, 3.5], [1.5, 0.5]])
    assert not any(name in sys.modules for name in HIDDEN)
