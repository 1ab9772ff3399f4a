# SPDX-License-Identifier: Apache-2.0
"""Models in files: safetensors and JSON, never pickle.

A model is one ``.safetensors`` file whose metadata hold a JSON description, or a folder with that file and a readable
copy of the description beside it. Only the file is read, so a folder is replaced in one move like the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from picirc.inputs import Family
from picirc.io.describe import (
    Description,
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

    What was there before stays until the new model is written completely, also when the disk is full or the process
    is killed.

    Args:
        model: The model, on any device.
        path: A folder, which is made if it is not there; or a file that ends in ``.safetensors``.
        summary: Anything to keep with the model, as plain JSON values: how it was trained, on what, how good it is.
        table: The table that the model is of, as plain JSON values; ``TableModel`` writes and reads it.

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
    check_size(model.structure, len(content))
    write(path, content, readable)


def load(path: FilePath, families: Sequence[type[Family]] = ()) -> Model:
    """Load a model that ``save`` wrote, on the CPU, with the same bits.

    Loading runs no code from the file. A file that is damaged, incomplete or not what it claims to be raises an
    ``ArgumentError``. Time and memory stay in proportion to the size of the file.

    Args:
        path: The folder or the file.
        families: Your own classes of input families that the model uses. They are frozen dataclasses whose fields are
            plain JSON values; ``save`` refuses others.
    """
    return load_described(path, families)[0]


def load_described(path: FilePath, families: Sequence[type[Family]] = ()) -> tuple[Model, Description]:
    """Load a model together with its description, which were written together."""
    file = file_of(path)
    with refusing(file):
        metadata, tensors, size = read_file(file)
        description = read_description(metadata)
        model = build_model(description, families, size, count_members(tensors))
        check_tensors(tensors, description, shapes_in_file(model), dtype_of(description))
        model.load_state_dict(from_file(model, tensors), assign=True)
    for part in (model, *model.parts):
        part.fresh = False
    return model, description


def describe(path: FilePath) -> Description:
    """The description of a saved model: kind, structure, families, settings and summary, without its tensors."""
    file = file_of(path)
    with refusing(file):
        return read_description(read_metadata(file))
