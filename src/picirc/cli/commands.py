# SPDX-License-Identifier: Apache-2.0
"""The commands: their arguments and their help."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from picirc.cli.options import (
    ColumnOptions,
    DataOptions,
    FolderOptions,
    ModelOptions,
    OutputOptions,
    QueryOptions,
    Seed,
    SequenceOptions,
    TableOptions,
    TrainingOptions,
    differing,
)
from picirc.errors import ArgumentError

_DATA, _TABLE, _COLUMNS = DataOptions(), TableOptions(), ColumnOptions()
_MODEL, _TRAINING, _QUERY = ModelOptions(), TrainingOptions(), QueryOptions()
_SEQUENCES, _FILES = SequenceOptions(), FolderOptions()
_FOLDER, _PAGE = Path("model"), Path("report.html")

Out = Annotated[Path, Parameter(name=("--out", "-o"))]


def fit(
    table: Path | None = None,
    /,
    *,
    output: OutputOptions,
    reading: TableOptions = _TABLE,
    columns: ColumnOptions = _COLUMNS,
    sequences: SequenceOptions = _SEQUENCES,
    data: DataOptions = _DATA,
    model: ModelOptions = _MODEL,
    training: TrainingOptions = _TRAINING,
) -> int:
    """Learn a model of a table, or of a data set.

    picirc fit TABLE --out model learns a model of a table in a file, with named columns of any kind; score, sample,
    impute, classify and report use it.

    picirc fit TABLE --sequences --by NAME --time NAME --out model learns a model of the sequences in a table; forecast
    and report use it.

    picirc fit --data NAME --out runs/name learns a model of images, text or other data of one kind; eval and sample use
    it. The folder also gets metrics.jsonl with a line for every validation, summary.json and a checkpoint, from which
    --resume continues. Several processes train together when started by torchrun, as in: torchrun --nproc-per-node 2 -m
    picirc fit big/ --out model

    Ctrl-C ends the training early and saves the best model so far.

    Args:
        table: A table in a file (csv, csv.gz, tsv, parquet, npy, npz), with the names of its columns in the first line;
            or a folder of Parquet files, which may be larger than the memory.
        output: Where the results go.
        reading: How the table is read.
        columns: What its columns are.
        sequences: Whether its rows are steps in time.
        data: Which data.
        model: Which model.
        training: How it is trained.
    """
    if table is None:
        from picirc.cli.fit import check_no_table, train

        check_no_table(reading, columns)
        return train(data, model, training, output)
    from picirc.cli.files import check_no_sequences, check_place, declared_kinds, read_training_table

    check_place(output.out, output.overwrite)
    declared = declared_kinds(data, columns)
    frame = read_training_table(table, reading, declared, columns.drop)
    if sequences.sequences:
        from picirc.cli.sequences import train_sequences
        from picirc.data.frames import Frame, read_frame

        rows = frame if isinstance(frame, Frame) else read_frame(frame.read())
        return train_sequences(table, rows, declared, sequences, data, reading, columns, model, training, output)
    check_no_sequences(sequences)
    from picirc.cli.fit import train_table  # torch is slow to import, so mistakes are reported before

    return train_table(table, frame, declared, data, reading, columns, model, training, output)


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
    """Score the rows of a table by their log density.

    Prints the mean log density, in nats and in the units of the table. Missing cells are integrated out.

    For a folder of Parquet files, with a process for each core, --out is a folder with a file for each of them.

    Args:
        model: The model. A single argument is the table, and the model is in the folder called model.
        table: The table.
        out: A csv or parquet file for the log density of every row.
        anomalies: Mark this fraction of the rows, those of lowest density, such as 0.01.
        given: Evidence for all rows, as for sample; the density is then conditional on it.
        reading: How the table is read.
        files: How a folder of Parquet files is processed.
    """
    if _is_folder(model, table, files):
        from picirc.cli.folders import map_folder

        map_folder(model, table, out, files, reading, "score", refused={"--anomalies": anomalies})
        return
    from picirc.cli.use import score_rows

    score_rows(model, table, reading, out, anomalies, given)


def _is_folder(model: Path, table: Path | None, files: FolderOptions) -> bool:
    """Whether the table among the arguments is a folder; raise if it is not, but has options for one."""
    if (model if table is None else table).is_dir():
        return True
    for name in differing(files):
        raise ArgumentError(f"--{name}", "a folder of Parquet files", "a single file", "omit it")
    return False


def sample(
    model: Path = _FOLDER,
    /,
    *,
    out: Out,
    count: Annotated[int, Parameter(name=("--count", "-n"))] = 64,
    given: tuple[str, ...] = (),
    gaps: bool = False,
    seed: Seed = 0,
    spreadsheet_safe: bool = False,
    query: QueryOptions = _QUERY,
) -> None:
    """Draw rows from a model.

    Args:
        model: The folder or file of the model.
        out: Where to write: a csv or parquet file for a model of a table; for others a png file with a grid of images,
            a csv or an npy file.
        count: The number of rows.
        given: Evidence on a column of a table: NAME=VALUE, NAME=LOW..HIGH (either end may be omitted), or
            NAME=VALUE|VALUE|... for one of several; NAME=missing or NAME=observed for a model with --missingness.
        gaps: Leave cells empty that are drawn to be missing, for a model with --missingness.
        seed: Determines the rows.
        spreadsheet_safe: Write texts that a spreadsheet program would take for formulas, which begin with =, +, - or @,
            with an apostrophe in front.
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
    seed: Seed = 0,
    reading: TableOptions = _TABLE,
    files: FolderOptions = _FILES,
) -> None:
    """Fill the missing cells of a table.

    All other cells stay as they are, as do columns that the model does not know. For a folder of Parquet files --out is
    a folder with a file for each of them.

    Args:
        model: The model. A single argument is the table, and the model is in the folder called model.
        table: The table.
        out: A csv or parquet file for the filled table.
        how: With means or medians and the most probable categories, with jointly probable values, or with random
            draws.
        copies: Write this many tables of random draws, to filled-1.csv and so on for filled.csv.
        given: Evidence for all rows besides their cells, as for sample.
        seed: Determines the draws; copy k has the seed plus k - 1.
        reading: How the table is read.
        files: How a folder of Parquet files is processed.
    """
    if _is_folder(model, table, files):
        from picirc.cli.folders import map_folder

        map_folder(model, table, out, files, reading, "impute", refused={"--copies": copies}, how=how, seed=seed)
        return
    from picirc.cli.use import write_filled

    write_filled(model, table, reading, out, how, seed, copies, given)


def classify(
    model: Path,
    table: Path | None = None,
    /,
    *,
    column: str,
    out: Out,
    given: tuple[str, ...] = (),
    reading: TableOptions = _TABLE,
    files: FolderOptions = _FILES,
) -> None:
    """Predict a column of categories from the others.

    The values of the table in that column are only compared with the predictions; it may be absent. For a folder of
    Parquet files --out is a folder with a file for each of them.

    Args:
        model: The model. A single argument is the table, and the model is in the folder called model.
        table: The table.
        column: The column to predict.
        out: A csv or parquet file for the most probable category of every row and the probabilities of all.
        given: Evidence for all rows besides their cells, as for sample.
        reading: How the table is read.
        files: How a folder of Parquet files is processed.
    """
    if _is_folder(model, table, files):
        from picirc.cli.folders import map_folder

        map_folder(model, table, out, files, reading, "classify", column=column)
        return
    from picirc.cli.use import write_classes

    write_classes(model, table, reading, out, column, given)


def report(
    model: Path = _FOLDER,
    /,
    *,
    data: Path,
    out: Out = _PAGE,
    seed: Seed = 0,
    reading: TableOptions = _TABLE,
) -> None:
    """Write a page that shows how well a model of a table or of sequences fits, and where it does not.

    Args:
        model: The folder or file of the model.
        data: The table to compare it with; rows that it has not learned from are more informative.
        out: The html file.
        seed: Determines what is drawn from the model.
        reading: How the table is read.
    """
    from picirc.cli.sequences import is_sequence_model, write_sequence_page

    if is_sequence_model(model):
        write_sequence_page(model, data, reading, out, seed)
        return
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
    """Open a page in the browser to query a model; Ctrl-C ends it.

    The page is served from this computer only. Nothing is written.

    Args:
        model: The folder or file of the model.
        data: What to compare it with: the file of a table, or for a model of images the name of a data set.
        port: The port of the page; by default a free one.
        browser: Open the browser.
        reading: How the table is read.
    """
    from picirc.cli.sequences import is_sequence_model, serve_sequence_page

    if is_sequence_model(model):
        serve_sequence_page(model, data, reading, port, browser=browser)
        return
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
        model: The model, learned with --sequences.
        table: The table with the sequences so far.
        out: A csv or parquet file for the mean and the quantiles of every column at each step.
        steps: The number of steps.
        quantiles: The levels of the quantiles.
        reading: How the table is read.
    """
    from picirc.cli.sequences import write_forecast

    write_forecast(model, table, reading, steps, quantiles, out)


def evaluate(model: Path, /, *, data: DataOptions = _DATA, query: QueryOptions = _QUERY) -> None:
    """Print the mean log-likelihood and the bits per dimension of each part of the data.

    Args:
        model: The folder or file of the model.
        data: The data.
        query: The quadrature.
    """
    from picirc.cli.use import print_scores

    print_scores(model, data, query)


def inspect(model: Path = _FOLDER, /, *, points: int | None = None, batch: int = 256) -> None:
    """Print the columns and the structure of a model, its size, and an estimate of the memory it needs.

    Args:
        model: The folder or file of the model.
        points: The number of quadrature points of a pic; by default what it was validated with.
        batch: The number of rows of a batch.
    """
    from picirc.cli.use import print_sizes

    print_sizes(model, points, batch)


# In the order of the help.
ALL: tuple[Callable[..., int | None], ...] = (
    *(fit, score, sample, impute, classify, forecast, report, explore, evaluate, inspect),
)
