# SPDX-License-Identifier: Apache-2.0
"""The options of the commands, by subject; their names are the flags and the keys of a configuration file."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter, validators

Rule = Literal["shifted", "midpoint", "trapezoidal", "simpson", "gauss-legendre", "clenshaw-curtis"]
Sharing = Literal["none", "composite", "full"]
Seed = Annotated[int, Parameter(validator=validators.Number(gte=0, lt=2**63))]

# In the order of the help.
_TABLE, _FOLDER, _COLUMNS, _SEQUENCES, _OUTPUT, _DATA, _MODEL, _TRAINING, _QUADRATURE = (
    Group(name, sort_key=place)
    for place, name in enumerate(
        (
            *(
                "Table",
                "Folders of Parquet files",
                "Columns of TABLE",
                "Sequences in TABLE",
                "Output",
                "Data other than TABLE",
            ),
            *("Model", "Training", "Quadrature of a pic"),
        )
    )
)


@Parameter(name="*", group=_DATA)
@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Which data.

    Attributes:
        data: The name of a data set, such as mnist, or a file of numbers (npy, npz, csv, parquet), of which a tenth is
            held out for testing and a tenth of the rest for validation.
        data_dir: The folder of the data sets; by default PICIRC_DATA, then the cache.
        categorical: The columns of a csv or parquet file that hold categories; also for TABLE.
    """

    data: str | None = None
    data_dir: Path | None = None
    categorical: tuple[str, ...] = ()


@Parameter(name="*", group=_TABLE)
@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """How a table is read and written.

    Attributes:
        delimiter: What separates the cells of a csv file: one character, or tab; by default a comma.
        missing: What stands for a missing value besides an empty cell; by default NA, N/A, NaN, NULL, None and ?.
        largest: The megabytes to which a compressed or binary table may expand; by default 20 times its size, and at
            least 16 for text and 1024 for numbers.
        spreadsheet_safe: Write texts that a spreadsheet program would take for formulas, which begin with =, +, - or @,
            with an apostrophe in front.
    """

    delimiter: str | None = None
    missing: tuple[str, ...] | None = None
    largest: int | None = None
    spreadsheet_safe: bool = False


@Parameter(name="*", group=_FOLDER)
@dataclass(frozen=True, kw_only=True)
class FolderOptions:
    """How a folder of Parquet files is processed.

    Attributes:
        workers: The number of processes; by default the number of cores.
        resume: Continue a run that was interrupted; files that are complete are not made again.
        overwrite: Replace the results of another run in the output folder.
    """

    workers: int | None = None
    resume: bool = False
    overwrite: bool = False


@Parameter(name="*", group=_COLUMNS)
@dataclass(frozen=True, kw_only=True)
class ColumnOptions:
    """What the columns of a table are.

    Attributes:
        columns: NAME=KIND, where the inferred kind is wrong: gaussian, scores (skewed), spiked (some values occur
            often), student, laplace, categorical, bernoulli, poisson or binomial.
        drop: The columns to leave out, such as identifiers.
        unseen: How to treat a category that is not in TABLE when the model is used.
        missingness: Also model which cells are missing, so that a gap is evidence.
    """

    columns: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    unseen: Literal["error", "missing"] = "error"
    missingness: bool = False


@Parameter(name="*", group=_SEQUENCES)
@dataclass(frozen=True, kw_only=True)
class SequenceOptions:
    """Sequences in a table.

    Attributes:
        sequences: Treat the rows of TABLE as steps in time, not as independent of each other.
        by: The column that identifies the sequence of each row; by default all rows are one sequence.
        time: The column of the times, numbers or dates; by default rows are in order and equally far apart.
        dims: The number of dimensions of the latent; by default the best of 1, 2 and 3 on held-out sequences.
    """

    sequences: bool = False
    by: str | None = None
    time: str | None = None
    dims: int | None = None


@Parameter(name="*", group=_MODEL)
@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which model.

    Attributes:
        model: A probabilistic integral circuit, or tables with as many states as points.
        structure: The dependencies: a tree learned from the data, or a fixed structure.
        product: How a region graph combines the parts of a region.
        points: Quadrature points of each latent of a pic, or states of each latent of an hclt; by default 32, for TABLE
            by its size.
        rule: The quadrature rule of the training.
        width: The width of the neural nets; by default 256, for TABLE by its size.
        sharing: What the nets of integral units share; by default composite.
        input_sharing: What the nets of input units share; by default full for images whose pixels are of one finite
            family, else composite.
        inputs: The distribution of each variable; auto: bernoulli for zeros and ones, categorical for data sets and for
            columns with few different integers, else gaussian.
    """

    model: Literal["pic", "hclt"] = "pic"
    structure: Literal["hclt-tree", "chain", "quad-tree", "quad-graph", "random", "random-regions"] = "hclt-tree"
    product: Literal["cp", "tucker"] = "cp"
    points: Annotated[int | None, Parameter(name=("--points", "--states"))] = None
    rule: Rule = "shifted"
    width: int | None = None
    sharing: Sharing | None = None
    input_sharing: Sharing | None = None
    inputs: Literal["auto", "categorical", "binomial", "bernoulli", "gaussian"] = "auto"


@Parameter(name="*", group=_TRAINING)
@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How the model is trained.

    Attributes:
        steps: The largest number of steps; by default 5000, for TABLE by its size, like the next three.
        batch: Rows of a batch; by default 128, with em 256.
        lr: The largest step size; by default 0.007, for an hclt 0.1, with em 0.5.
        lr_min: The smallest step size, reached by cosine annealing; by default a hundredth of the largest.
        restart: Steps after which the annealing starts again; by default never.
        optimizer: The optimizer of gradient training; by default adamw.
        weight_decay: Weight decay of the optimizer; by default 8000 divided by the rows and at most 5, for an hclt 0,
            for TABLE by its size.
        clip: The largest norm of a gradient; by default no limit, for TABLE by its size.
        em: Train an hclt by expectation-maximisation.
        smoothing: Pseudo-observations added to each distribution by em; by default 0.01.
        seed: Determines the initial parameters, the order of the data and the random points.
        patience: Steps without improvement on the validation data after which training stops, 0 for never; by default
            1250, for TABLE by its size.
        validate_every: Steps between validations; by default 250, for TABLE by its size.
        threads: Threads of torch.
    """

    steps: int | None = None
    batch: int | None = None
    lr: float | None = None
    lr_min: float | None = None
    restart: int | None = None
    optimizer: Literal["adam", "adamw"] | None = None
    weight_decay: float | None = None
    clip: float | None = None
    em: bool = False
    smoothing: float | None = None
    seed: Seed = 0
    patience: int | None = None
    validate_every: int | None = None
    threads: int | None = None


@Parameter(name="*", group=_OUTPUT)
@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Where the results go.

    Attributes:
        out: The folder for the model; with --data also for the metrics, the summary and the checkpoint.
        overwrite: Replace the model or the results that are there.
        checkpoint_every: Steps between checkpoints; by default 1000.
        resume: Continue from the checkpoint in the folder, if there is one.
        tensorboard: Also write the metrics for TensorBoard; for --data.
    """

    out: Path
    overwrite: bool = False
    checkpoint_every: int | None = None
    resume: bool = False
    tensorboard: bool = False


@Parameter(name="*", group=_QUADRATURE)
@dataclass(frozen=True, kw_only=True)
class QueryOptions:
    """How a PIC is integrated when it is used.

    Attributes:
        points: The number of points; by default the number that the model was validated with.
        rule: The rule; for shifted, its middle draw.
    """

    points: int | None = None
    rule: Rule | None = None


def given(options: object) -> dict[str, Any]:
    """The values of options by their names."""
    return {field.name: getattr(options, field.name) for field in fields(options)}  # type: ignore[arg-type]


def differing(options: object) -> dict[str, Any]:
    """The values of options that are not their defaults, by their names."""
    defaults = {field.name: field.default for field in fields(options)}  # type: ignore[arg-type]
    return {name: value for name, value in given(options).items() if value != defaults[name]}


def command_line(name: str, *options: object, arguments: Sequence[str] = ()) -> str:
    """The command with all options that differ from their defaults, set by flags or by a file.

    Example:
        >>> command_line("fit", TrainingOptions(em=True, lr=0.1), arguments=["my table.csv"])
        "picirc fit 'my table.csv' --lr 0.1 --em"
    """
    words = ["picirc", name, *arguments]
    for part in options:
        for option, value in differing(part).items():
            flag = f"--{option.replace('_', '-')}"
            for one in value if isinstance(value, tuple) else (value,):
                words += [flag] if one is True else [flag, str(one)]
    return shlex.join(words)
