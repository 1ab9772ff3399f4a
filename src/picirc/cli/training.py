"""``picirc fit``: learn a model from data."""

from __future__ import annotations

import json
import os
import time
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from picirc.cli.evaluation import scores
from picirc.cli.models import make_model
from picirc.cli.options import (
    ColumnOptions,
    DataModelOptions,
    DataOptions,
    DataTrainingOptions,
    ModelOptions,
    OutputOptions,
    QueryOptions,
    TableOptions,
    TrainingOptions,
    command_line,
    differing,
    settle,
)
from picirc.cli.saved import MAKER, make_circuit, make_rule
from picirc.cli.tables import Tables, read_tables
from picirc.cli.versions import versions
from picirc.errors import ArgumentError
from picirc.io import save
from picirc.io.files import replace_files
from picirc.learning import Cosine, History, fit, fit_em, json_lines, tensorboard
from picirc.learning.checkpoint import load_checkpoint
from picirc.learning.history import Callback
from picirc.learning.processes import Processes
from picirc.learning.progress import Progress
from picirc.pic import HCLT, PIC

_MODEL, _METRICS, _SUMMARY, _CHECKPOINT = "model", "metrics.jsonl", "summary.json", "checkpoint.safetensors"
_DONE, _INTERRUPTED = 0, 130


def train(data: DataOptions, asked: ModelOptions, how: TrainingOptions, output: OutputOptions) -> int:
    """Train, save and judge a model; the exit code."""
    started = time.perf_counter()
    model, training = settle(asked, DataModelOptions), settle(how, DataTrainingOptions)
    _check(model, training)
    if training.threads is not None:
        torch.set_num_threads(training.threads)
    processes = Processes.current()
    if processes.first:
        _prepare(output)
    tables = read_tables(data)
    query = _query(model)
    start = make_model(tables, model, training)
    with ExitStack() as stack:
        callbacks = _callbacks(output, training, stack) if processes.first else []
        trained, history = _run(start, tables, model, training, output, callbacks)
    if processes.count > 1:
        torch.distributed.destroy_process_group()
    if not processes.first:
        return _DONE
    summary = _notes(trained, history) | {
        "command": command_line("fit", data, model, training, output),
        "seed": training.seed,
        "configuration": _plain(asdict(data) | asdict(model) | asdict(training) | asdict(output)),
        "data": tables.about(),
        "query": asdict(query) if isinstance(trained, PIC) else None,
    }
    return _finish(trained, tables, query, summary, output.out, started)


def check_no_table(reading: TableOptions, columns: ColumnOptions) -> None:
    """Raise if an option is given that has a meaning for a table alone."""
    for name in (*differing(reading), *differing(columns)):
        raise ArgumentError(f"--{name}", "a table", "none", "write picirc fit TABLE --out …")


def _check(model: DataModelOptions, training: DataTrainingOptions) -> None:
    if training.em and model.model != "hclt":
        raise ArgumentError("--em", "an hclt, whose parameters are tables", model.model, "add --model hclt")
    if training.em and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ArgumentError("--em", "one process", os.environ["WORLD_SIZE"], "only gradients can be shared")
    if training.threads is not None and training.threads < 1:
        raise ArgumentError("--threads", "a positive whole number", training.threads)
    if training.patience < 0:
        raise ArgumentError("--patience", "a number of steps, or 0 for never", training.patience)


def _prepare(output: OutputOptions) -> None:
    """Make the folder, or see that what is in it is meant to go or to be continued."""
    names = (_CHECKPOINT, _METRICS, _SUMMARY)
    left = [name for name in (*names, _MODEL) if (output.out / name).exists()]
    if left and not (output.resume or output.overwrite):
        remedy = "--resume continues there, --overwrite starts anew"
        raise ArgumentError("--out", "a folder without results", f"{output.out} with {left[0]}", remedy)
    output.out.mkdir(parents=True, exist_ok=True)
    if output.resume:
        _rewind_metrics(output.out)
    else:
        for name in names:
            (output.out / name).unlink(missing_ok=True)


def _rewind_metrics(out: Path) -> None:
    """Drop the records of steps after the checkpoint, which will be taken again."""
    found = load_checkpoint(out)
    records = [] if found is None else found.state["records"]
    replace_files({out / _METRICS: "".join(json.dumps(record) + "\n" for record in records).encode()})


def _callbacks(output: OutputOptions, training: DataTrainingOptions, stack: ExitStack) -> list[Callback]:
    found: list[Callback] = [json_lines(output.out / _METRICS)]
    if output.tensorboard:
        try:
            found.append(tensorboard(output.out / "tensorboard"))
        except ImportError as error:
            raise ArgumentError("--tensorboard", "TensorBoard to be installed", "none", str(error)) from error
    return [*found, stack.enter_context(Progress(training.steps))]


def _run(
    model: PIC | HCLT,
    tables: Tables,
    options: DataModelOptions,
    training: DataTrainingOptions,
    output: OutputOptions,
    callbacks: list[Callback],
) -> tuple[PIC | HCLT, History]:
    common: dict[str, Any] = {
        "batch_size": training.batch,
        "steps": training.steps,
        "schedule": _schedule(training),
        "validate_every": training.validate_every,
        "patience": training.patience or None,
        "seed": training.seed,
        "out": output.out,
        "checkpoint_every": output.checkpoint_every,
        "resume": output.resume,
        "callbacks": callbacks,
    }
    rows = (tables.parts["train"], tables.parts["valid"])
    if training.em:
        assert isinstance(model, HCLT)
        return fit_em(model, *rows, smoothing=training.smoothing, **common)
    common |= {"optimizer": training.optimizer, "weight_decay": training.weight_decay, "clip": training.clip}
    if isinstance(model, HCLT):
        return fit(model, *rows, **common)
    return fit(model, *rows, rule=make_rule(options.rule, options.points), **common)


def _schedule(training: DataTrainingOptions) -> Cosine:
    """The step sizes: the paper's for em, one period after a warm-up for gradients."""
    usual = Cosine(1e-2, 1e-4, 500) if training.em else Cosine(2e-2, 2e-4, None, min(50, training.steps // 10))
    asked: dict[str, Any] = {"high": training.lr, "low": training.lr_min, "period": training.restart}
    return replace(usual, **{name: value for name, value in asked.items() if value is not None})


def _query(model: DataModelOptions) -> QueryOptions:
    """How the model is validated: a random rule with twice its points."""
    return QueryOptions(rule=model.rule, points=(2 if model.rule == "shifted" else 1) * model.points)


def _notes(model: PIC | HCLT, history: History) -> dict[str, Any]:
    return {
        "maker": MAKER,
        "parameters": sum(p.numel() for p in model.parameters()),
        "stopped": history.stopped,
        "best": history.best if history.records else None,
        "versions": versions(),
    }


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}


def _finish(
    model: PIC | HCLT, tables: Tables, query: QueryOptions, summary: dict[str, Any], out: Path, started: float
) -> int:
    """Save the model, and judge it on the test data unless the user wants to leave."""
    interrupted = summary["stopped"] == "interrupted"
    save(model, out / _MODEL, summary)
    if not interrupted:
        summary["test"] = scores(make_circuit(model, QueryOptions(), query), tables.parts["test"])
    summary["seconds"] = time.perf_counter() - started
    save(model, out / _MODEL, summary)
    replace_files({out / _SUMMARY: (json.dumps(summary, indent=1) + "\n").encode()})
    if interrupted:
        print(f"interrupted; the best model so far is in {out / _MODEL}, and --resume continues")
        return _INTERRUPTED
    print(f"test: {summary['test']['bits']:.4f} bits per dimension ({summary['stopped']}); saved {out / _MODEL}")
    return _DONE
