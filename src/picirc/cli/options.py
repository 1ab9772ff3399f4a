# SPDX-License-Identifier: Apache-2.0
"""The options of the commands in groups. The name of an option is its flag and its key in a configuration file."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter, validators

from picirc.errors import ArgumentError

Rule = Literal["shifted", "midpoint", "trapezoidal", "simpson", "gauss-legendre", "clenshaw-curtis"]
Sharing = Literal["none", "composite", "full"]
Seed = Annotated[int, Parameter(validator=validators.Number(gte=0, lt=2**63))]


@Parameter(name="*", group=Group("Data other than TABLE", sort_key=5))
@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """The data if they are not a table.

    Attributes:
        data: The name of a data set, such as mnist, or a file of numbers (npy, npz, csv, parquet). Of a file a tenth is
            held out for testing, and a tenth of the rest for validation.
        data_dir: The folder of the data sets; by default PICIRC_DATA, then the cache.
        categorical: The categorical columns of a csv or parquet file; also for TABLE.
    """

    data: str | None = None
    data_dir: Path | None = None
    categorical: tuple[str, ...] = ()


@Parameter(name="*", group=Group("Table", sort_key=0))
@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """How a table is read and written.

    Attributes:
        delimiter: The separator of the cells of a csv file: one character, or tab; by default a comma.
        missing: Strings that mean a missing value, besides an empty cell; by default NA, N/A, NaN, NULL, None and ?.
        largest: The maximum size in MiB of a table after decompression; by default 20 times the size of the file, and
            at least 16 for text and 1024 for numbers.
        spreadsheet_safe: Write an apostrophe before strings that a spreadsheet program would take for formulas: those
            that begin with =, +, - or @.
    """

    delimiter: str | None = None
    missing: tuple[str, ...] | None = None
    largest: int | None = None
    spreadsheet_safe: bool = False


@Parameter(name="*", group=Group("Folders of Parquet files", sort_key=1))
@dataclass(frozen=True, kw_only=True)
class FolderOptions:
    """How a folder of Parquet files is processed.

    Attributes:
        workers: The number of processes; by default the number of cores.
        resume: Continue an interrupted run. Complete files are kept.
        overwrite: Replace the results of another run in the output folder.
    """

    workers: int | None = None
    resume: bool = False
    overwrite: bool = False


@Parameter(name="*", group=Group("Columns of TABLE", sort_key=2))
@dataclass(frozen=True, kw_only=True)
class ColumnOptions:
    """The columns of a table.

    Attributes:
        columns: NAME=KIND sets the kind of a column, where the inferred one is wrong: gaussian, scores (skewed), spiked
            (some values occur often), student, laplace, categorical, bernoulli, poisson or binomial.
        drop: The columns to leave out, such as identifiers.
        unseen: What to do with a category that is not in TABLE when the model is used.
        missingness: Also model which cells are missing, so that a missing cell is evidence.
    """

    columns: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    unseen: Literal["error", "missing"] = "error"
    missingness: bool = False


@Parameter(name="*", group=Group("Sequences in TABLE", sort_key=3))
@dataclass(frozen=True, kw_only=True)
class SequenceOptions:
    """Sequences in a table.

    Attributes:
        sequences: Treat the rows of TABLE as steps in time, not as independent rows.
        by: The column that identifies the sequence of each row; by default all rows are one sequence.
        time: The column of the times, numbers or dates; by default rows are in order and equally spaced.
        dims: The number of dimensions of the latent; by default the best of 1, 2 and 3 on held-out sequences.
    """

    sequences: bool = False
    by: str | None = None
    time: str | None = None
    dims: int | None = None


@Parameter(name="*", group=Group("Model", sort_key=6))
@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The model.

    Attributes:
        model: A probabilistic integral circuit (pic), or a hidden Chow-Liu tree with tables (hclt).
        structure: The dependencies: a tree learned from the data, or a fixed structure.
        product: How a region graph combines the parts of a region.
        points: Quadrature points of each latent of a pic, or states of each latent of an hclt; by default 32, or
            chosen by the size of TABLE.
        rule: The quadrature rule for training.
        width: The width of the neural nets; by default 256, or chosen by the size of TABLE.
        sharing: What the nets of integral units share; by default composite.
        input_sharing: What the nets of input units share; by default full for images with pixels of one finite family,
            else composite.
        inputs: The distribution of each variable. auto is bernoulli for zeros and ones, categorical for data sets and
            for columns with few different integers, else gaussian.
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


@Parameter(name="*", group=Group("Training", sort_key=7))
@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """The training. With TABLE most defaults depend on its size.

    Attributes:
        steps: The maximum number of steps; by default 5000, or chosen by the size of TABLE, like the next three.
        batch: The batch size; by default 128, with em 256.
        lr: The largest step size; by default 0.007, for an hclt 0.1, with em 0.5.
        lr_min: The smallest step size, at the end of the cosine schedule; by default a hundredth of the largest.
        restart: The number of steps after which the schedule starts again; by default it never does.
        optimizer: The optimizer for gradient training; by default adamw.
        weight_decay: The weight decay of the optimizer; by default 8000 / rows and at most 5, for an hclt 0, or chosen
            by the size of TABLE.
        clip: The maximum norm of a gradient; by default no limit, or chosen by the size of TABLE.
        em: Train an hclt by expectation-maximisation.
        smoothing: The pseudo-count that em adds to each distribution; by default 0.01.
        seed: The seed of the initial parameters, the order of the data and the random points.
        patience: The number of steps without improvement on the validation data after which training stops, 0 for
            never; by default 1250, or chosen by the size of TABLE.
        validate_every: The number of steps between validations; by default 250, or chosen by the size of TABLE.
        threads: The number of threads of torch.
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


@Parameter(name="*", group=Group("Output", sort_key=4))
@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """The output.

    Attributes:
        out: The folder for the model; with --data also for the metrics, the summary and the checkpoint.
        overwrite: Replace an existing model or existing results.
        checkpoint_every: The number of steps between checkpoints; by default 1000.
        resume: Continue from the checkpoint in the folder, if there is one.
        tensorboard: Also write the metrics for TensorBoard; with --data only.
    """

    out: Path
    overwrite: bool = False
    checkpoint_every: int | None = None
    resume: bool = False
    tensorboard: bool = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """The options of ``picirc fit`` besides those for the output, one of which is required."""

    sequences: SequenceOptions = SequenceOptions()
    data: DataOptions = DataOptions()
    reading: TableOptions = TableOptions()
    columns: ColumnOptions = ColumnOptions()
    model: ModelOptions = ModelOptions()
    training: TrainingOptions = TrainingOptions()

    def values(self) -> dict[str, Any]:
        """The values of the options in all groups by name."""
        return {name: value for group in vars(self).values() for name, value in vars(group).items()}

    def command(self, output: OutputOptions, *arguments: str) -> str:
        """The command line with these options.

        Example:
            >>> options = FitOptions(training=TrainingOptions(em=True, lr=0.1))
            >>> options.command(OutputOptions(out=Path("m")), "my table.csv")
            "picirc fit 'my table.csv' --lr 0.1 --em --out m"
        """
        words = ["picirc", "fit", *arguments]
        for group in (*vars(self).values(), output):
            for name, value in differing(group).items():
                for one in value if isinstance(value, tuple) else (value,):
                    words += [flag(name)] if one is True else [flag(name), str(one)]
        return shlex.join(words)


@Parameter(name="*", group=Group("Quadrature of a pic", sort_key=8))
@dataclass(frozen=True, kw_only=True)
class QueryOptions:
    """The quadrature of a PIC when it is used.

    Attributes:
        points: The number of points; by default the number used for validation.
        rule: The rule; shifted here means midpoint.
    """

    points: int | None = None
    rule: Rule | None = None


def differing(options: object) -> dict[str, Any]:
    """The values of options that are not their defaults, by name."""
    defaults = {field.name: field.default for field in fields(options)}  # type: ignore[arg-type]
    return {name: value for name, value in vars(options).items() if value != defaults[name]}


def flag(name: str) -> str:
    """The flag of an option."""
    return f"--{name.replace('_', '-')}"


def refuse(
    options: Iterable[object], expected: str, got: str, remedy: str = "omit it", known: Collection[str] = ()
) -> None:
    """Raise if an option is given that is not among ``known``."""
    for group in options:
        for name in differing(group):
            if name not in known:
                raise ArgumentError(flag(name), expected, got, remedy)
