# SPDX-License-Identifier: Apache-2.0
"""The commands: their arguments and their help."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from picirc.cli.options import (
    DataOptions,
    FitOptions,
    FolderOptions,
    OutputOptions,
    QueryOptions,
    Seed,
    TableOptions,
    refuse,
)

_FIT, _DATA, _TABLE, _QUERY, _FILES = FitOptions(), DataOptions(), TableOptions(), QueryOptions(), FolderOptions()
_FOLDER, _PAGE = Path("model"), Path("report.html")

Out = Annotated[Path, Parameter(name=("--out", "-o"))]


def fit(table: Path | None = None, /, *, output: OutputOptions, options: FitOptions = _FIT) -> int:
    """Learn a model of a table, or of a data set.

    picirc fit TABLE --out model learns a model of a table in a file. Its columns may be of any kind. Use the model with
    score, sample, impute, classify, report and explore.

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
        from picirc.cli.folders import map_folder

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
    seed: Seed = 0,
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
        seed: The random seed.
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
    seed: Seed = 0,
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
        seed: The random seed; copy k uses the seed plus k - 1.
        reading: How the table is read.
        files: How a folder of Parquet files is processed.
    """
    model, table = _both(model, table)
    if _is_folder(table, files):
        from picirc.cli.folders import map_folder

        refused = {"--copies": copies, "--given": given}
        map_folder(model, table, out, files, reading, "impute", refused, how=how, seed=seed)
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
    """Predict a categorical column from the others.

    The table need not have that column. If it does, its values are only compared with the predictions.

    For a folder of Parquet files --out is a folder with a file for each of them.

    Args:
        model: The model. If there is only one argument, it is the table, and the model is in the folder model.
        table: The table, or a folder of Parquet files.
        column: The column to predict.
        out: A csv or parquet file for the most probable category of every row and the probabilities of all.
        given: Evidence for all rows besides their cells, as for sample.
        reading: How the table is read.
        files: How a folder of Parquet files is processed.
    """
    model, table = _both(model, table)
    if _is_folder(table, files):
        from picirc.cli.folders import map_folder

        map_folder(model, table, out, files, reading, "classify", {"--given": given}, column=column)
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
    *(fit, score, sample, impute, classify, forecast, report, explore, evaluate, inspect),
)
