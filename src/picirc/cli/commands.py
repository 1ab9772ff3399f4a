"""What can be asked on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from picirc.cli.options import DataOptions, ModelOptions, OutputOptions, QueryOptions, TrainingOptions

_MODEL, _TRAINING, _QUERY = ModelOptions(), TrainingOptions(), QueryOptions()


def fit(
    data: DataOptions,
    output: OutputOptions,
    *,
    model: ModelOptions = _MODEL,
    training: TrainingOptions = _TRAINING,
) -> int:
    """Learn a model from data.

    The folder gets the model, metrics.jsonl with a line for every validation, summary.json and the checkpoint. Ctrl-C
    ends the training early; what was best so far is saved, and --resume continues. Several processes train together
    when started by torchrun, as in: torchrun --nproc-per-node 2 -m picirc fit …
    """
    from picirc.cli.training import train

    return train(data, model, training, output)


def evaluate(model: Path, data: DataOptions, *, query: QueryOptions = _QUERY) -> None:
    """Print how probable data are: the mean log-likelihood and the bits per dimension of each part.

    Args:
        model: The folder or file of the model.
        data: The data.
        query: The quadrature.
    """
    from picirc.cli.evaluation import print_scores

    print_scores(model, data, query)


def sample(
    model: Path,
    *,
    out: Annotated[Path, Parameter(name=("--out", "-o"))],
    count: Annotated[int, Parameter(name=("--count", "-n"))] = 64,
    seed: int = 0,
    query: QueryOptions = _QUERY,
) -> None:
    """Draw rows from a model.

    Args:
        model: The folder or file of the model.
        out: Where to write: a .png with a grid of images, a .csv with a header, or a .npy array.
        count: The number of rows.
        seed: Decides the rows.
        query: The quadrature.
    """
    from picirc.cli.sampling import write_samples

    write_samples(model, out, count, seed, query)


def inspect(model: Path, *, points: int | None = None, batch: int = 256) -> None:
    """Print the structure of a model, its sizes, and an estimate of the memory that it needs.

    Args:
        model: The folder or file of the model.
        points: The number of quadrature points of a pic; by default what it was validated with.
        batch: The number of rows of a batch.
    """
    from picirc.cli.inspection import print_sizes

    print_sizes(model, points, batch)
