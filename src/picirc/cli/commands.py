# SPDX-License-Identifier: Apache-2.0
"""The commands, their options and their help."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter, validators

from picirc.errors import ArgumentError

Rule = Literal["shifted", "settling", "midpoint", "trapezoidal", "simpson", "gauss-legendre", "clenshaw-curtis"]
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
    rule: Rule = "settling"
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
        lr: The largest step size; by default 0.007, for an hclt 0.2, with em 0.5.
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


# The commands


_FIT, _DATA, _TABLE, _QUERY, _FILES = FitOptions(), DataOptions(), TableOptions(), QueryOptions(), FolderOptions()
_FOLDER, _PAGE = Path("model"), Path("report.html")

Out = Annotated[Path, Parameter(name=("--out", "-o"))]


def fit(table: Path | None = None, /, *, output: OutputOptions, options: FitOptions = _FIT) -> int:
    """Learn a model of a table, or of a data set.

    picirc fit TABLE --out model learns a model of a table in a file. Its columns may be of any kind. Use the model with
    score, sample, impute, predict, report and explore.

    picirc fit TABLE --sequences --by NAME --time NAME --out model learns a model of the sequences in a table. Use it
    with forecast, report and explore.

    picirc fit --data NAME --out runs/name learns a model of images, text or other data of one kind. Use it with eval,
    sample and explore. The folder also gets metrics.jsonl with a line for every validation, summary.json, and a
    checkpoint from which --resume continues.

    Several processes train together when started by torchrun: torchrun --nproc-per-node 2 -m picirc fit big/ --out
    model

    Ctrl-C ends the training early and saves the best model so far.

    Args:
        table: A table in a file (csv, csv.gz, tsv, parquet, npy, npz) with the column names in the first line, or a
            folder of Parquet files, which may be larger than memory.
        output: The output.
        options: All other options.
    """
    if table is None:
        remedy = "write picirc fit TABLE --out …"
        refuse((options.reading, options.columns, options.sequences), "a table", "none", remedy)
        from picirc.cli.fit import train

        return train(options, output)
    from picirc.cli.files import check_place, declared_kinds, read_training_table

    check_place(output.out, output.overwrite)
    declared = declared_kinds(options)
    rows = read_training_table(table, options, declared)
    if not options.sequences.sequences:
        refuse((options.sequences,), "an option for sequences", "a table of independent rows", "add --sequences")
    from picirc.cli.fit import train_sequences, train_table  # imports torch, which is slow, so mistakes come first

    return (train_sequences if options.sequences.sequences else train_table)(table, rows, declared, options, output)


def score(
    model: Path,
    table: Path | None = None,
    /,
    *,
    out: Annotated[Path | None, Parameter(name=("--out", "-o"))] = None,
    anomalies: float | None = None,
    given: tuple[str, ...] = (),
    reading: TableOptions = _TABLE,
    files: FolderOptions = _FILES,
) -> None:
    """Compute the log-density of the rows of a table.

    Prints the mean log-density, in nats and in the units of the table. Missing cells are integrated out.

    A folder of Parquet files is processed in parallel; --out is then a folder with a file for each of them.

    Args:
        model: The model. If there is only one argument, it is the table, and the model is in the folder model.
        table: The table, or a folder of Parquet files.
        out: A csv or parquet file for the log-density of every row.
        anomalies: Mark this fraction of the rows, those with the lowest density, such as 0.01.
        given: Evidence for all rows, as for sample. The density is then conditional on it.
        reading: How the table is read.
        files: How a folder of Parquet files is processed.
    """
    model, table = _both(model, table)
    if _is_folder(table, files):
        from picirc.cli.use import map_folder

        map_folder(model, table, out, files, reading, "score", {"--anomalies": anomalies, "--given": given})
        return
    from picirc.cli.use import score_rows

    score_rows(model, table, reading, out, anomalies, given)


def _both(model: Path, table: Path | None) -> tuple[Path, Path]:
    return (_FOLDER, model) if table is None else (model, table)


def _is_folder(table: Path, files: FolderOptions) -> bool:
    """Whether the table is a folder; raise if it is not but has options for one."""
    if not table.is_dir():
        refuse((files,), "a folder of Parquet files", "a single file")
    return table.is_dir()


def sample(
    model: Path = _FOLDER,
    /,
    *,
    out: Out,
    count: Annotated[int, Parameter(name=("--count", "-n"))] = 64,
    given: tuple[str, ...] = (),
    gaps: bool = False,
    seed: Seed | None = None,
    spreadsheet_safe: bool = False,
    query: QueryOptions = _QUERY,
) -> None:
    """Draw rows from a model.

    Args:
        model: The folder or file of the model.
        out: A csv or parquet file for the model of a table; for other models a csv or npy file, or a png file with a
            grid of images.
        count: The number of rows.
        given: Evidence on a column of a table: NAME=VALUE, NAME=LOW..HIGH (either end may be omitted), or
            NAME=VALUE|VALUE|... for one of several; NAME=missing or NAME=observed for a model with --missingness.
        gaps: Leave cells empty that are drawn as missing, for a model with --missingness.
        seed: The random seed; by default a new one every time.
        spreadsheet_safe: Write an apostrophe before strings that a spreadsheet program would take for formulas: those
            that begin with =, +, - or @.
        query: The quadrature.
    """
    from picirc.cli.use import write_samples

    write_samples(model, out, count, seed, query, spreadsheet_safe, given, gaps)


def impute(
    model: Path,
    table: Path | None = None,
    /,
    *,
    out: Out,
    how: Literal["mean", "median", "mode", "sample"] = "mean",
    copies: int | None = None,
    given: tuple[str, ...] = (),
    seed: Seed | None = None,
    reading: TableOptions = _TABLE,
    files: FolderOptions = _FILES,
) -> None:
    """Fill the missing cells of a table.

    All other cells, and columns that the model does not know, stay as they are.

    For a folder of Parquet files --out is a folder with a file for each of them.

    Args:
        model: The model. If there is only one argument, it is the table, and the model is in the folder model.
        table: The table, or a folder of Parquet files.
        out: A csv or parquet file for the filled table.
        how: mean and median fill numbers with their mean or median, and categories with the most probable one; mode
            fills in jointly probable values; sample fills in random draws.
        copies: Write this many tables of random draws: filled-1.csv and so on for filled.csv.
        given: Evidence for all rows besides their cells, as for sample.
        seed: The random seed; copy k uses the seed plus k - 1. By default a new one every time.
        reading: How the table is read.
        files: How a folder of Parquet files is processed.
    """
    model, table = _both(model, table)
    if _is_folder(table, files):
        from picirc.cli.use import map_folder

        refused = {"--copies": copies, "--given": given}
        map_folder(model, table, out, files, reading, "impute", refused, how=how, seed=seed)
        return
    from picirc.cli.use import write_filled

    write_filled(model, table, reading, out, how, seed, copies, given)


def predict(
    model: Path,
    table: Path | None = None,
    /,
    *,
    column: str,
    out: Out,
    quantiles: tuple[float, ...] = (),
    given: tuple[str, ...] = (),
    reading: TableOptions = _TABLE,
    files: FolderOptions = _FILES,
) -> None:
    """Predict a column from the others.

    Writes the mean of a column of numbers. Of a categorical column it writes the most probable category, and the
    probabilities of all. The table need not have the column. If it does, its categories are only compared with the
    predictions.

    For a folder of Parquet files --out is a folder with a file for each of them, and the column is categorical.

    Args:
        model: The model. If there is only one argument, it is the table, and the model is in the folder model.
        table: The table, or a folder of Parquet files.
        column: The column to predict.
        out: A csv or parquet file for the predictions.
        quantiles: Also write these quantiles of a column of numbers, such as 0.05 and 0.95.
        given: Evidence for all rows besides their cells, as for sample.
        reading: How the table is read.
        files: How a folder of Parquet files is processed.
    """
    model, table = _both(model, table)
    if _is_folder(table, files):
        from picirc.cli.use import map_folder

        refused = {"--given": given, "--quantiles": quantiles}
        map_folder(model, table, out, files, reading, "classify", refused, column=column)
        return
    from picirc.cli.use import write_predictions

    write_predictions(model, table, reading, out, column, quantiles, given)


def probability(model: Path, /, *event: str, given: tuple[str, ...] = ()) -> None:
    """Print how probable it is that columns of a table have certain values.

    picirc probability model age=50.. 'sex=f|d' --given income=1000..2000

    Args:
        model: The folder or file of the model.
        event: NAME=VALUE, NAME=LOW..HIGH or NAME=VALUE|VALUE for some columns, as --given of sample.
        given: Evidence, as for sample.
    """
    from picirc.cli.use import print_probability

    print_probability(model, event, given)


def explain(model: Path, table: Path | None = None, /, *, row: int, reading: TableOptions = _TABLE) -> None:
    """Print how surprising each cell of a row is given the others, the most surprising one first.

    Args:
        model: The model. If there is only one argument, it is the table, and the model is in the folder model.
        table: The table.
        row: The number of the row, from 0, as score and report count.
        reading: How the table is read.
    """
    from picirc.cli.use import print_explanation

    print_explanation(*_both(model, table), reading, row)


def report(
    model: Path = _FOLDER,
    /,
    *,
    data: Path,
    out: Out = _PAGE,
    seed: Seed = 0,
    reading: TableOptions = _TABLE,
) -> None:
    """Write an HTML report that shows how well a model fits a table or sequences.

    Args:
        model: The folder or file of the model.
        data: The table to compare it with. Rows that were not used for training are more informative.
        out: The html file.
        seed: The random seed.
        reading: How the table is read.
    """
    from picirc.cli.use import write_page

    write_page(model, data, reading, out, seed)


def explore(
    model: Path = _FOLDER,
    /,
    *,
    data: str | None = None,
    port: int = 0,
    browser: Annotated[bool, Parameter(negative="--no-browser")] = True,
    reading: TableOptions = _TABLE,
) -> None:
    """Query a model interactively in the browser, until Ctrl-C.

    The page is served to this computer only. No files are written.

    Args:
        model: The folder or file of the model.
        data: The data to compare it with: a table in a file, or for a model of images the name of a data set.
        port: The port of the page; by default a free one.
        browser: Open the browser.
        reading: How the table is read.
    """
    from picirc.cli.use import serve_page

    serve_page(model, data, reading, port, browser=browser)


def forecast(
    model: Path,
    table: Path,
    /,
    *,
    out: Out,
    steps: int = 12,
    quantiles: tuple[float, ...] = (0.05, 0.5, 0.95),
    reading: TableOptions = _TABLE,
) -> None:
    """Forecast how the sequences of a table continue.

    Args:
        model: A model learned with --sequences.
        table: The sequences so far.
        out: A csv or parquet file for the mean and the quantiles of every column at each step.
        steps: The number of steps.
        quantiles: The levels of the quantiles.
        reading: How the table is read.
    """
    from picirc.cli.use import write_forecast

    write_forecast(model, table, reading, steps, quantiles, out)


def evaluate(model: Path, /, *, data: DataOptions = _DATA, query: QueryOptions = _QUERY) -> None:
    """Print the mean log-likelihood and the bits per dimension of the training, validation and test data.

    Args:
        model: The folder or file of the model.
        data: The data.
        query: The quadrature.
    """
    from picirc.cli.use import print_scores

    print_scores(model, data, query)


def inspect(model: Path = _FOLDER, /, *, points: int | None = None, batch: int = 256) -> None:
    """Print the columns and the structure of a model, its size, and the memory that it needs.

    Args:
        model: The folder or file of the model.
        points: The number of quadrature points of a pic; by default the number used for validation.
        batch: The batch size.
    """
    from picirc.cli.use import print_sizes

    print_sizes(model, points, batch)


# In the order of the help.
ALL: tuple[Callable[..., int | None], ...] = (
    *(fit, score, sample, impute, predict, probability, explain, forecast, report, explore, evaluate, inspect),
)
