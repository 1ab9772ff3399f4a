# SPDX-License-Identifier: Apache-2.0
"""``picirc fit --sequences``, ``forecast``, ``report`` and ``explore`` for models of sequences."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from picirc.atomic import replace_files
from picirc.cli.files import check_output, delimiter_of, read_table
from picirc.cli.options import (
    ColumnOptions,
    DataOptions,
    ModelOptions,
    OutputOptions,
    SequenceOptions,
    TableOptions,
    TrainingOptions,
    command_line,
    differing,
)
from picirc.cli.use import MAKER, find_model, serve, tell
from picirc.data.frames import Frame
from picirc.data.tables import dtype_for, encode_table
from picirc.errors import ArgumentError
from picirc.explorer import make_page
from picirc.io import describe
from picirc.learning.history import Progress
from picirc.sequences import Forecast, SequenceModel, Settings, fit_sequences, write_sequence_report
from picirc.sequences.neural import KIND

# The options that apply to sequences: arguments of ``fit_sequences``, and attributes of ``picirc.sequences.Settings``.
_ARGUMENTS = {"points": "points", "steps": "steps"}
_SETTINGS = {
    "width": "width",
    "batch": "batch",
    "lr": "rate",
    "lr_min": "final_rate",
    "clip": "clip",
    "patience": "patience",
    "validate_every": "validate_every",
}
_OTHER = {"seed", "threads", "categorical", "out", "overwrite"}


def train_sequences(
    path: Path,
    frame: Frame,
    declared: Mapping[str, str],
    sequences: SequenceOptions,
    data: DataOptions,
    reading: TableOptions,
    columns: ColumnOptions,
    model: ModelOptions,
    training: TrainingOptions,
    output: OutputOptions,
) -> int:
    """Fit a model to the sequences in a table and save it; the exit code."""
    if columns.missingness:
        raise ArgumentError("--missingness", "a table of independent rows", "--sequences", "omit it")
    chosen = _chosen(data, model, training, output)
    if training.threads is not None:
        torch.set_num_threads(training.threads)
    steps = training.steps or Settings().steps
    with Progress(steps) as progress:
        found = fit_sequences(
            as_columns(frame, declared), sequences.by, sequences.time, dict(declared) or None, seed=training.seed,
            dims=sequences.dims, unseen=columns.unseen, callbacks=[progress],
            settings={name: chosen[option] for option, name in _SETTINGS.items() if option in chosen},
            **{name: chosen[option] for option, name in _ARGUMENTS.items() if option in chosen},
        )  # fmt: skip
    command = command_line("fit", sequences, data, reading, columns, model, training, output, arguments=[str(path)])
    found.summary |= {"maker": MAKER, "command": command}
    found.save(output.out)
    summary = found.summary
    valid = summary["log_density"]["valid"]
    shown = "" if valid is None else f", held-out log density of a standardised row {valid:.4f}"
    tell(repr(found))
    print(f"{summary['sequences']:,} sequences, {summary['rows']:,} rows{shown}; saved {output.out}")
    return 0


def write_forecast(
    path: Path, table: Path, reading: TableOptions, steps: int, quantiles: tuple[float, ...], out: Path
) -> None:
    """Forecast every sequence of a table and write what was found."""
    check_output(out, path, table)
    model, data = _open(path, table, reading)
    found = model.forecast(data, steps, quantiles)
    columns = _stacked(found, model.by) if isinstance(found, dict) else found.columns()
    replace_files({out: encode_table(out.name, _texts(columns), delimiter_of(reading))})
    count = len(found) if isinstance(found, dict) else 1
    print(f"forecast {steps:,} steps of {count:,} sequences; saved {out}")


def is_sequence_model(path: Path) -> bool:
    """Whether a saved model is one of sequences."""
    return describe(find_model(path)).get("kind") == KIND


def write_sequence_page(path: Path, table: Path, reading: TableOptions, out: Path, seed: int) -> None:
    """Write a page that shows what a model makes of the sequences in a table."""
    check_output(out, path, table, endings=(".html", ".htm"))
    model, data = _open(path, table, reading)
    write_sequence_report(model, data, out, seed=seed)
    print(f"saved {out}")


def serve_sequence_page(path: Path, source: str | None, reading: TableOptions, port: int, *, browser: bool) -> None:
    """Show a model of sequences in the browser until Ctrl-C."""
    model, data = (SequenceModel.load(find_model(path)), None) if source is None else _open(path, Path(source), reading)
    serve(make_page(model, data, name=path.resolve().name), port, browser=browser)


def as_columns(frame: Frame, declared: Mapping[str, str]) -> dict[str, Any]:
    """The columns of a table as arrays of their own types."""
    return {name: frame.cells(name, dtype_for(declared.get(name, "auto"))).array for name in frame.names}


def _open(path: Path, table: Path, reading: TableOptions) -> tuple[SequenceModel, dict[str, Any]]:
    model = SequenceModel.load(find_model(path))
    frame = read_table(table, reading)
    known = {*model.columns.names, model.by, model.time}
    if lacking := [name for name in (model.by, model.time) if name is not None and name not in frame.names]:
        raise ArgumentError(str(table), f"the column {lacking[0]}", f"only {', '.join(frame.names)}")
    return model, as_columns(frame.select([name for name in frame.names if name in known]), {})


def _chosen(data: DataOptions, model: ModelOptions, training: TrainingOptions, output: OutputOptions) -> dict[str, Any]:
    """The options that were given and apply to sequences."""
    found = {name: value for part in (data, model, training, output) for name, value in differing(part).items()}
    for name in found:
        if name not in {*_ARGUMENTS, *_SETTINGS, *_OTHER}:
            flag = f"--{name.replace('_', '-')}"
            raise ArgumentError(flag, "an option for sequences", "one for other models", "omit it")
    return found


def _stacked(found: Mapping[Any, Forecast], by: str | None) -> dict[str, Any]:
    """The forecasts of several sequences below each other."""
    parts = [(key, forecast.columns()) for key, forecast in found.items()]
    first = {by or "sequence": np.concatenate([np.repeat(np.array([key]), len(c["time"])) for key, c in parts])}
    return first | {name: np.concatenate([columns[name] for _, columns in parts]) for name in parts[0][1]}


def _texts(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Dates as texts, which every file can hold."""
    return {n: np.datetime_as_string(v, "s").astype(object) if v.dtype.kind == "M" else v for n, v in columns.items()}
