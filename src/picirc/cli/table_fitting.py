"""``picirc fit TABLE``: learn a model of a table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from picirc.cli.options import (
    ColumnOptions,
    DataOptions,
    ModelOptions,
    OutputOptions,
    TableOptions,
    TrainingOptions,
    command_line,
    differing,
)
from picirc.cli.saved import MAKER
from picirc.cli.table_files import say
from picirc.cli.versions import versions
from picirc.data.columns import Columns
from picirc.errors import ArgumentError
from picirc.learning.progress import Progress
from picirc.tables.defaults import choose
from picirc.tables.fitting import fit_table
from picirc.tables.frames import read_frame
from picirc.tables.schema import Schema

_DONE, _INTERRUPTED = 0, 130
_NEVER = 10**9  # steps, more than any training has

# The options that hold for a table too: arguments of ``fit_table``, and what its other settings are called.
_ARGUMENTS = ("points", "width", "steps", "seed")
_MODEL = {"sharing": "sharing", "input_sharing": "input_sharing"}
_TRAINING = {
    "batch": "batch_size",
    "lr": "rate",
    "lr_min": "final_rate",
    "weight_decay": "weight_decay",
    "clip": "clip",
    "patience": "patience",
    "validate_every": "validate_every",
}


def train_table(
    source: Columns,
    declared: Mapping[str, str],
    data: DataOptions,
    reading: TableOptions,
    columns: ColumnOptions,
    model: ModelOptions,
    training: TrainingOptions,
    output: OutputOptions,
) -> int:
    """Fit a model to a table and save it; the exit code.

    Args:
        source: The table.
        declared: The kinds of columns that the user declared.
        data: Options, as are the others.
        reading: How the table was read.
        columns: What its columns are.
        model: Which model.
        training: How it is trained.
        output: Where the results go.
    """
    _refuse_others(data, model, training, output)
    if training.threads is not None:
        torch.set_num_threads(training.threads)
    frame = read_frame(source.values)
    say(Schema.infer(frame, declared, unseen=columns.unseen))
    size = {"points": model.points, "width": model.width, "steps": training.steps}
    settings = _settings(model, training)
    chosen = choose(frame.rows, len(frame.columns), **settings, **size)
    with Progress(chosen.members * chosen.steps) as progress:
        found = fit_table(
            frame, declared, seed=training.seed, unseen=columns.unseen, settings=settings, callbacks=[progress], **size
        )
    command = command_line("fit", data, reading, columns, model, training, output, arguments=[str(source.path)])
    found.summary |= {"maker": MAKER, "command": command, "versions": versions()}
    found.save(output.out)
    return _conclude(found.summary, output.out)


def _conclude(summary: dict[str, Any], out: Path) -> int:
    scores = {"training": summary["log_density"]["train"], "held out": summary["log_density"]["valid"]}
    shown = ", ".join(f"{name} {value:.4f}" for name, value in scores.items() if value is not None)
    stopped = summary["training"]["stopped"]
    print(f"mean log density: {shown} ({stopped}); saved {out}")
    return _INTERRUPTED if stopped == "interrupted" else _DONE


def _settings(model: ModelOptions, training: TrainingOptions) -> dict[str, Any]:
    found = {name: getattr(model, option) for option, name in _MODEL.items()}
    found |= {name: getattr(training, option) for option, name in _TRAINING.items()}
    if found["patience"] == 0:
        found["patience"] = _NEVER
    return {name: value for name, value in found.items() if value is not None}


def _refuse_others(data: DataOptions, model: ModelOptions, training: TrainingOptions, output: OutputOptions) -> None:
    """Raise if an option is given that has no meaning for a table."""
    if data.data is not None:
        raise ArgumentError("--data", "either TABLE or --data", "both", "leave one out")
    meant = {*_ARGUMENTS, *_MODEL, *_TRAINING, "categorical", "threads", "out", "overwrite"}
    for part in (data, model, training, output):
        for name in differing(part):
            if name not in meant:
                flag = f"--{name.replace('_', '-')}"
                remedy = "leave it out, or give the data by --data instead of TABLE"
                raise ArgumentError(flag, "an option that suits a table", "one for --data", remedy)
    if training.threads is not None and training.threads < 1:
        raise ArgumentError("--threads", "a positive whole number", training.threads)
