# SPDX-License-Identifier: Apache-2.0
"""Models in files: safetensors and JSON, never pickle.

A model is one ``.safetensors`` file with a JSON description in its metadata, or a folder with that file and a readable
copy of the description. Only the file is read, so that both are replaced atomically.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from picirc.inputs import Family
from picirc.io.describe import (
    Description,
    added_since,
    build_model,
    check_size,
    check_values,
    count_members,
    describe_model,
    dtype_of,
    from_file,
    shapes_in_file,
    to_file,
)
from picirc.io.files import (
    FilePath,
    check_numbers,
    check_tensors,
    file_of,
    pack,
    read_description,
    read_file,
    read_metadata,
    refusing,
    write,
)
from picirc.model import Model

__all__ = ["describe", "load", "save"]


def save(
    model: Model,
    path: FilePath,
    summary: Mapping[str, Any] | None = None,
    table: Mapping[str, Any] | None = None,
) -> None:
    """Save a model.

    An existing model is replaced atomically. It stays intact if the disk is full or the process is killed.

    Args:
        model: The model, on any device.
        path: A folder, which is created if necessary, or a file that ends in ``.safetensors``.
        summary: JSON values to keep with the model, such as how it was trained.
        table: The schema of a table, as JSON values; for ``TableModel``.

    Example:
        >>> import picirc as pc, tempfile
        >>> model = pc.HCLT(pc.chain(3), inputs=pc.Bernoulli(), states=4)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pc.save(model, folder, summary={"note": "not trained"})
        ...     pc.load(folder)(), pc.io.describe(folder)["summary"]
        (QPC(3 variables, 36 weights, float32), {'note': 'not trained'})
    """
    description = describe_model(model)
    if summary is not None:
        description["summary"] = dict(summary)
    if table is not None:
        description["table"] = dict(table)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in to_file(model).items()}
    check_numbers(tensors)
    check_values(model.families)
    content, readable = pack(description, tensors)
    check_size(model.structures, len(content))
    write(path, content, readable)


def load(path: FilePath, families: Sequence[type[Family]] = ()) -> Model:
    """Load a saved model to the CPU. Its parameters are the same, bit for bit.

    Loading runs no code from the file. A damaged or inconsistent file raises an ``ArgumentError``. Time and memory are
    proportional to the size of the file.

    Args:
        path: The folder or the file.
        families: Your own classes of input families that the model uses: frozen dataclasses whose fields are JSON
            values.
    """
    return load_described(path, families)[0]


def load_described(path: FilePath, families: Sequence[type[Family]] = ()) -> tuple[Model, Description]:
    """Load a model and its description from one read of the file."""
    file = file_of(path)
    with refusing(file):
        metadata, tensors, size = read_file(file)
        description = read_description(metadata)
        model = build_model(description, families, size, count_members(tensors))
        shapes, dtype = shapes_in_file(model), dtype_of(description)
        lacking = {name: tensor.to(dtype) for name, tensor in added_since(model, tensors).items()}
        check_tensors(tensors, description, {name: shapes[name] for name in shapes if name not in lacking}, dtype)
        model.load_state_dict(from_file(model, tensors | lacking), assign=True)
    for part in (model, *model.parts):
        part.fresh = False
    return model, description


def describe(path: FilePath) -> Description:
    """The description of a saved model: kind, structure, families, settings and summary."""
    file = file_of(path)
    with refusing(file):
        return read_description(read_metadata(file))
