# SPDX-License-Identifier: Apache-2.0
"""``picirc fit``: learn a model of a table, of sequences, or of other data.

Options that are not given are not passed on, so that the defaults are those of the library.
"""

from __future__ import annotations

import inspect
import json
import platform
import shutil
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from picirc import __version__
from picirc.atomic import replace_files
from picirc.checks import check_integer
from picirc.cli.commands import (
    FitOptions,
    ModelOptions,
    OutputOptions,
    QueryOptions,
    TrainingOptions,
    differing,
    refuse,
)
from picirc.cli.files import describe_data, read_data
from picirc.cli.use import MAKER, RULES, as_columns, make_circuit, scores, tell
from picirc.data.datasets import Dataset
from picirc.data.frames import Frame, Table, numbered, read_frame
from picirc.data.tables import Stream
from picirc.errors import ArgumentError
from picirc.hclt import HCLT
from picirc.inputs import Bernoulli, Binomial, Categorical, Family, Gaussian
from picirc.interrupts import EXIT_CODE, Interrupts
from picirc.io import save
from picirc.learning import Cosine, History, fit, fit_em, json_lines, tensorboard
from picirc.learning.history import Callback, Progress
from picirc.learning.loop import load_checkpoint
from picirc.learning.processes import Processes
from picirc.model import Model
from picirc.pic import PIC
from picirc.sequences import Settings, fit_sequences
from picirc.structure import (
    LatentTree,
    RegionGraph,
    chain,
    hidden_chow_liu,
    quad_graph,
    quad_tree,
    random_regions,
    random_tree,
)
from picirc.tables.defaults import choose
from picirc.tables.fitting import fit_table
from picirc.tables.inference import infer_columns
from picirc.tables.streaming import read_data as read_table_data

_DONE = 0
_NEVER = 10**9  # steps, more than any training has
_POINTS = 32  # as in ``pc.fit``
_MODEL, _METRICS, _SUMMARY, _CHECKPOINT = "model", "metrics.jsonl", "summary.json", "checkpoint.safetensors"
_TRAINING = "training"  # the folder of the checkpoints of a table


def _names(*same: str, **others: str) -> dict[str, str]:
    """What options are called as arguments or attributes elsewhere."""
    return {name: name for name in same} | others


# Arguments of ``pc.fit`` and ``pc.fit_em``.
_ARGUMENTS = _names(
    "steps", "optimizer", "weight_decay", "clip", "smoothing", "validate_every", "patience", "seed", batch="batch_size"
)
# Arguments of ``fit_table``, attributes of ``picirc.tables.Defaults``, and other options that apply to tables.
_TABLE_ARGUMENTS = ("points", "width", "steps")
_TABLE_SETTINGS = _names(
    *("sharing", "input_sharing", "weight_decay", "clip", "patience", "validate_every"),
    batch="batch_size",
    lr="rate",
    lr_min="final_rate",
)
_TABLE_OTHER = ("seed", "categorical", "threads", "out", "overwrite", "resume", "checkpoint_every")
# Arguments of ``fit_sequences``, attributes of ``picirc.sequences.Settings``, and other options for sequences.
_SEQUENCE_ARGUMENTS = ("points", "steps")
_SEQUENCE_SETTINGS = _names("width", "batch", "clip", "patience", "validate_every", lr="rate", lr_min="final_rate")
_SEQUENCE_OTHER = ("seed", "threads", "categorical", "out", "overwrite")


# Tables


def train_table(
    path: Path, table: Frame | Stream, declared: Mapping[str, str], options: FitOptions, output: OutputOptions
) -> int:
    """Fit a model to a table, read from ``path``, and save it; return the exit code."""
    data, training = options.data, options.training
    if data.data is not None:
        raise ArgumentError("--data", "either TABLE or --data", "both", "omit one")
    remedy = "omit it, or give the data by --data instead of TABLE"
    known = {*_TABLE_ARGUMENTS, *_TABLE_SETTINGS, *_TABLE_OTHER}
    refuse((data, options.model, training, output), "an option for tables", "one for --data", remedy, known)
    _set_threads(training)
    processes, source = Processes.current(), read_table_data(table, training.seed)
    values = options.values()
    size = {name: values[name] for name in _TABLE_ARGUMENTS}
    settings = {name: values[option] for option, name in _TABLE_SETTINGS.items() if values[option] is not None}
    if training.patience == 0:
        settings["patience"] = _NEVER
    columns = options.columns
    chosen = choose(source.rows, len(source.frame.names), **settings, **size)
    if processes.first:
        tell(source.schema(declared, columns.unseen, chosen.floor).with_missingness(columns.missingness))
    checkpoints = _table_checkpoints(output, lasting=source.stream is not None or processes.count > 1)
    with Interrupts() as interrupts:  # what was learned is saved before Ctrl-C ends the program
        with ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            warnings.showwarning = lambda message, *_: tell(f"warning: {message}")
            bars = [stack.enter_context(Progress(chosen.planned))] if processes.first else []
            found = fit_table(
                source, declared, seed=training.seed, unseen=columns.unseen, missingness=columns.missingness,
                settings=settings, callbacks=bars, **size, **checkpoints,
            )  # fmt: skip
        if processes.count > 1:
            torch.distributed.destroy_process_group()
        if not processes.first:
            return _DONE
        found.summary |= {"maker": MAKER, "command": options.command(output, str(path)), "versions": _versions()}
        found.save(output.out)
    stopped = found.summary["training"]["stopped"]
    if stopped != "interrupted":
        interrupts.check()
        shutil.rmtree(output.out / _TRAINING, ignore_errors=True)
    density = found.summary["log_density"]
    named = {"training": density["train"], "held out": density["valid"]}
    densities = ", ".join(f"{name} {value:.4f}" for name, value in named.items() if value is not None)
    print(f"mean log density: {densities} ({stopped}); saved {output.out}")
    return EXIT_CODE if stopped == "interrupted" else _DONE


def _table_checkpoints(output: OutputOptions, lasting: bool) -> dict[str, Any]:
    """The arguments for checkpoints, which are written if the training is long or if the user asks for them."""
    asked = output.resume or output.checkpoint_every is not None
    if output.out.suffix == ".safetensors":
        if asked:
            raise ArgumentError("--resume", "a folder for the model, with checkpoints in it", str(output.out))
        return {}
    if not asked and not lasting:
        return {}
    every = {} if output.checkpoint_every is None else {"checkpoint_every": output.checkpoint_every}
    return {"out": output.out / _TRAINING, "resume": output.resume, **every}


# Sequences


def train_sequences(
    path: Path, table: Frame | Stream, declared: Mapping[str, str], options: FitOptions, output: OutputOptions
) -> int:
    """Fit a model to the sequences in a table, read from ``path``, and save it; return the exit code."""
    training, sequences = options.training, options.sequences
    if options.columns.missingness:
        raise ArgumentError("--missingness", "a table of independent rows", "--sequences", "omit it")
    groups = (options.data, options.model, training, output)
    known = {*_SEQUENCE_ARGUMENTS, *_SEQUENCE_SETTINGS, *_SEQUENCE_OTHER}
    refuse(groups, "an option for sequences", "one for other models", known=known)
    asked = {name: value for group in groups for name, value in differing(group).items()}
    _set_threads(training)
    frame = table if isinstance(table, Frame) else read_frame(table.read())
    with Progress(training.steps or Settings().steps) as progress:
        found = fit_sequences(
            as_columns(frame, declared), sequences.by, sequences.time, dict(declared) or None, seed=training.seed,
            dims=sequences.dims, unseen=options.columns.unseen, callbacks=[progress],
            settings={name: asked[option] for option, name in _SEQUENCE_SETTINGS.items() if option in asked},
            **{name: asked[name] for name in _SEQUENCE_ARGUMENTS if name in asked},
        )  # fmt: skip
    summary = found.summary
    summary |= {"maker": MAKER, "command": options.command(output, str(path))}
    found.save(output.out)
    valid = summary["log_density"]["valid"]
    shown = "" if valid is None else f", held-out log density of a standardised row {valid:.4f}"
    tell(repr(found))
    print(f"{summary['sequences']:,} sequences, {summary['rows']:,} rows{shown}; saved {output.out}")
    return _DONE


# Other data


def train(options: FitOptions, output: OutputOptions) -> int:
    """Train, save and evaluate a model; return the exit code."""
    started = time.perf_counter()
    model, training = options.model, options.training
    if training.em and model.model != "hclt":
        raise ArgumentError("--em", "an hclt, whose parameters are tables", model.model, "add --model hclt")
    points = _POINTS if model.points is None else check_integer("--points", model.points)
    if training.patience is not None:
        check_integer("--patience", training.patience, 0)
    _set_threads(training)
    processes = Processes.current()
    if processes.first:
        _prepare(output)
    found = read_data(options.data)
    query = QueryOptions(rule=model.rule, points=(2 if model.rule == "shifted" else 1) * points)
    start = make_model(found, model, training.seed)
    with Interrupts() as interrupts:  # what was learned is saved before Ctrl-C ends the program
        with ExitStack() as stack:
            callbacks = _callbacks(output, training, stack) if processes.first else []
            trained, history = _run(start, found, options, output, callbacks)
        if processes.count > 1:
            torch.distributed.destroy_process_group()
        if not processes.first:
            return _DONE
        settings = vars(options.data) | vars(model) | vars(training) | vars(output)
        summary = {
            "maker": MAKER,
            "parameters": sum(p.numel() for p in trained.parameters()),
            "stopped": history.stopped,
            "best": history.best if history.records else None,
            "versions": _versions(),
            "command": options.command(output),
            "seed": training.seed,
            "configuration": {n: str(value) if isinstance(value, Path) else value for n, value in settings.items()},
            "data": describe_data(found),
            "query": asdict(query) if trained.has_rule else None,
        }
        save(trained, output.out / _MODEL, summary)
    if history.stopped != "interrupted":
        interrupts.check()
    return _finish(trained, found, query, summary, output.out, started)


def _set_threads(training: TrainingOptions) -> None:
    if training.threads is not None:
        torch.set_num_threads(check_integer("--threads", training.threads))


def _prepare(output: OutputOptions) -> None:
    """Make the folder, or check that its content may be replaced or continued."""
    names = (_CHECKPOINT, _METRICS, _SUMMARY)
    left = [name for name in (*names, _MODEL) if (output.out / name).exists()]
    if left and not (output.resume or output.overwrite):
        remedy = "--resume continues there, --overwrite starts again"
        raise ArgumentError("--out", "a folder without results", f"{output.out} with {left[0]}", remedy)
    output.out.mkdir(parents=True, exist_ok=True)
    if not output.resume:
        for name in names:
            (output.out / name).unlink(missing_ok=True)
        return
    # Records of steps after the checkpoint are dropped, because these steps are repeated.
    found = load_checkpoint(output.out)
    records = [] if found is None else found.state["records"]
    replace_files({output.out / _METRICS: "".join(json.dumps(record) + "\n" for record in records).encode()})


def _callbacks(output: OutputOptions, training: TrainingOptions, stack: ExitStack) -> list[Callback]:
    found: list[Callback] = [json_lines(output.out / _METRICS)]
    if output.tensorboard:
        try:
            found.append(tensorboard(output.out / "tensorboard"))
        except ImportError as error:
            raise ArgumentError("--tensorboard", "TensorBoard to be installed", "none", str(error)) from error
    return [*found, stack.enter_context(Progress(_steps(training)))]


def _run(
    model: Model, data: Dataset, options: FitOptions, output: OutputOptions, callbacks: list[Callback]
) -> tuple[Model, History]:
    training = options.training
    arguments = {name: getattr(training, option) for option, name in _ARGUMENTS.items()}
    arguments |= {
        "schedule": _schedule(training, 0.5 if training.em else model.step_size),
        "checkpoint_every": output.checkpoint_every,
    }
    arguments = {name: value for name, value in arguments.items() if value is not None}
    arguments |= {"out": output.out, "resume": output.resume, "callbacks": callbacks}
    if training.patience == 0:
        arguments["patience"] = None
    for name in ("optimizer", "weight_decay", "clip") if training.em else ("smoothing",):
        arguments.pop(name, None)
    if training.em:
        return fit_em(model, data.train, data.valid, **arguments)
    rule = RULES[options.model.rule](options.model.points or _POINTS) if model.has_rule else None
    return fit(model, data.train, data.valid, rule=rule, **arguments)


def _steps(training: TrainingOptions) -> int:
    return training.steps or int(inspect.signature(fit).parameters["steps"].default)


def _schedule(training: TrainingOptions, usual: float) -> Cosine | None:
    """The schedule of step sizes, which begins with ``usual`` unless another is given; None for the default."""
    if training.lr is None and training.lr_min is None and training.restart is None:
        return None
    high = usual if training.lr is None else training.lr
    warmup = 0 if training.restart or training.em else min(_steps(training) // 2, 50)
    return Cosine(high, high / 100 if training.lr_min is None else training.lr_min, training.restart, warmup)


def _finish(
    model: Model, data: Dataset, query: QueryOptions, summary: dict[str, Any], out: Path, started: float
) -> int:
    """Evaluate the model on the test data, unless the training was interrupted, and save it with the result."""
    interrupted = summary["stopped"] == "interrupted"
    if not interrupted:
        summary["test"] = scores(make_circuit(model, QueryOptions(), query), data.test)
    summary["seconds"] = time.perf_counter() - started
    save(model, out / _MODEL, summary)
    replace_files({out / _SUMMARY: (json.dumps(summary, indent=1) + "\n").encode()})
    if interrupted:
        print(f"interrupted; the best model so far is in {out / _MODEL}, and --resume continues")
        return EXIT_CODE
    print(f"test: {summary['test']['bits']:.4f} bits per dimension ({summary['stopped']}); saved {out / _MODEL}")
    return _DONE


def _versions() -> dict[str, str]:
    python, numpy = platform.python_version(), np.__version__
    return {"picirc": __version__, "python": python, "torch": torch.__version__, "numpy": numpy}


# Models of other data


def make_model(data: Dataset, options: ModelOptions, seed: int) -> Model:
    """The model that the options describe, with random parameters."""
    families = make_families(data, options.inputs)
    structure = make_structure(data, options.structure, seed)
    generator = torch.Generator().manual_seed(seed)
    if options.model == "hclt":
        return HCLT(structure, families, options.points or _POINTS, options.product, generator)
    asked = {"width": options.width, "sharing": options.sharing, "input_sharing": options.input_sharing}
    asked = {name: value for name, value in asked.items() if value is not None}
    return PIC(structure, families, product=options.product, generator=generator, **asked)  # type: ignore[arg-type]


def make_structure(data: Dataset, name: str, seed: int) -> LatentTree | RegionGraph:
    """A structure by its name."""
    variables = data.train.shape[1]
    match name:
        case "chain":
            return chain(variables)
        case "random":
            return random_tree(variables, seed)
        case "random-regions":
            return random_regions(variables, seed=seed)
        case "quad-tree" | "quad-graph":
            if data.image_shape is None:
                raise ArgumentError("--structure", "a structure for rows that are not images", name, "try hclt-tree")
            return (quad_tree if name == "quad-tree" else quad_graph)(*data.image_shape)
    names = data.columns or numbered(variables)
    return hidden_chow_liu(data.train, ["categorical" if column in data.levels else "auto" for column in names])


def make_families(data: Dataset, choice: str) -> list[Family]:
    """The family of each variable."""
    if data.categories is not None:
        return [_finite(choice, data.categories)] * data.train.shape[1]
    # The support of a variable is not learned: it covers the values in all parts of the data.
    whole = np.concatenate([data.train, data.valid, data.test])
    empty = np.flatnonzero(np.isnan(whole).all(0))
    if len(empty):
        raise ArgumentError("--data", "a value in every column", f"none in {data.columns[empty[0]]}")
    kinds = _inferred(data, whole) if choice == "auto" else [choice] * len(data.columns)
    found: list[Family] = []
    for column, kind, top in zip(data.columns, kinds, np.nanmax(whole, 0), strict=True):
        if column in data.levels:
            found.append(Categorical(len(data.levels[column])))
        else:
            found.append(_finite(kind, 2 if kind in ("gaussian", "bernoulli") else max(int(top) + 1, 2)))
    return found


def _inferred(data: Dataset, whole: Any) -> Sequence[str]:
    """The inferred kinds. Integers are their own codes here, so negative ones cannot be categories."""
    columns = infer_columns(read_frame(Table(data.columns, whole, dict(data.levels))), linear=True)
    kinds = zip((column.kind for column in columns), np.nanmin(whole, 0), strict=True)
    return ["gaussian" if kind == "categorical" and low < 0 else kind for kind, low in kinds]


def _finite(choice: str, values: int) -> Family:
    """A family with the values 0, …, ``values`` - 1, or the Gaussian family."""
    match choice:
        case "gaussian":
            return Gaussian()
        case "binomial":
            return Binomial(values - 1)
        case "categorical":
            return Categorical(values)
        case "bernoulli" if values > 2:
            raise ArgumentError("--inputs", f"a family for {values} values", choice, "try categorical")
    return Bernoulli() if values == 2 else Categorical(values)
