"""``picirc sample``: rows drawn from a model, as an image, a table or an array."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from picirc.cli.checks import ENDINGS, check_output
from picirc.cli.options import QueryOptions
from picirc.cli.outputs import encode_csv
from picirc.cli.png import encode_png
from picirc.cli.saved import make_circuit, open_model
from picirc.cli.table_queries import write_table_samples
from picirc.errors import ArgumentError
from picirc.inputs import Family
from picirc.inputs.finite import FiniteFamily
from picirc.io.files import replace_files
from picirc.qpc.distribution import QPC

Array = npt.NDArray[Any]

_ROWS = 1024  # drawn at a time
_FRAME = 64  # a dark grey


def write_samples(path: Path, out: Path, count: int, seed: int, query: QueryOptions) -> None:
    """Draw rows and write them."""
    if count < 1:
        raise ArgumentError("--count", "a positive whole number", count)
    suffix = out.suffix.lower()
    check_output(out, path, endings=sorted({*_ENCODERS, *ENDINGS}))
    saved = open_model(path)
    if saved.of_table:
        if query != QueryOptions():
            raise ArgumentError("--points, --rule", "neither for the model of a table", "one of them")
        write_table_samples(path, out, count, seed)
        return
    check_output(out, path, endings=tuple(_ENCODERS))
    about = saved.notes.get("data") or {}
    if suffix == ".png" and not about.get("image_shape"):
        raise ArgumentError("--out", "a .csv or .npy file for rows that are not images", str(out))
    rows = _draw(make_circuit(saved.model, query, saved.query), count, seed)
    replace_files({out: _ENCODERS[suffix](rows, saved.model.families, about)})


@torch.no_grad()
def _draw(circuit: QPC, count: int, seed: int) -> Array:
    generator = torch.Generator().manual_seed(seed)
    sizes = [min(_ROWS, count - start) for start in range(0, count, _ROWS)]
    return np.concatenate([circuit.sample(size, generator=generator).numpy() for size in sizes])


def _png(rows: Array, families: Sequence[Family], about: Mapping[str, Any]) -> bytes:
    """Images side by side, from black for the smallest value to white for the largest."""
    height, width = about["image_shape"]
    finite = [family.values - 1 if isinstance(family, FiniteFamily) else None for family in families]
    low = np.array([rows.min() if top is None else 0 for top in finite])
    high = np.array([rows.max() if top is None else top for top in finite])
    grey = np.rint(255 * (rows - low) / np.maximum(high - low, 1e-9)).astype(np.uint8)
    across = math.ceil(math.sqrt(len(rows)))
    down = math.ceil(len(rows) / across)
    cells = np.zeros((down * across, height, width), dtype=np.uint8)
    cells[: len(rows)] = grey.reshape(-1, height, width)
    framed = np.pad(cells, ((0, 0), (1, 1), (1, 1)), constant_values=_FRAME)
    grid = framed.reshape(down, across, height + 2, width + 2).transpose(0, 2, 1, 3)
    return encode_png(grid.reshape(down * (height + 2), across * (width + 2)))


def _csv(rows: Array, families: Sequence[Family], about: Mapping[str, Any]) -> bytes:
    columns = about.get("columns") or [f"x{i}" for i in range(len(families))]
    levels = about.get("levels") or {}
    parts = zip(columns, rows.T.tolist(), families, strict=True)
    return encode_csv(
        {name: [_cell(value, family, levels.get(name)) for value in cells] for name, cells, family in parts}
    )


def _cell(value: float, family: Family, levels: Sequence[str] | None) -> object:
    if levels is not None:
        return levels[int(value)]
    return int(value) if family.discrete else value


def _npy(rows: Array, families: Sequence[Family], _: Mapping[str, Any]) -> bytes:
    if all(family.discrete for family in families):
        rows = rows.astype(np.uint8 if rows.min() >= 0 and rows.max() < 256 else np.int64)
    content = io.BytesIO()
    np.save(content, rows, allow_pickle=False)
    return content.getvalue()


_ENCODERS = {".png": _png, ".csv": _csv, ".npy": _npy}
