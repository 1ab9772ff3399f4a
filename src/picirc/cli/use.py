# SPDX-License-Identifier: Apache-2.0
"""The commands that use a model."""

from __future__ import annotations

import io
import math
import sys
import time
import webbrowser
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TextIO, TypeGuard

import numpy as np
import numpy.typing as npt
import torch

from picirc.atomic import replace_files
from picirc.checks import check_integer
from picirc.cli.commands import DataOptions, FolderOptions, QueryOptions, TableOptions, refuse
from picirc.cli.files import (
    WRITABLE,
    check_output,
    delimiter_of,
    encode_png,
    read_data,
    read_table,
)
from picirc.compile.integrate import compiled_of
from picirc.data.frames import Frame, few, numbered
from picirc.data.tables import cell_text, dtype_for, encode_table, typed_cells
from picirc.errors import ArgumentError, printable
from picirc.explorer import Explorer, make_page
from picirc.inputs import Family
from picirc.inputs.discrete import FiniteFamily
from picirc.io import describe, load
from picirc.io.describe import choice, take
from picirc.learning import bits_per_dimension, mean_log_prob
from picirc.model import Model
from picirc.qpc.distribution import QPC
from picirc.quadrature import (
    RandomRule,
    Rule,
    clenshaw_curtis,
    gauss_legendre,
    midpoint,
    shifted,
    simpson,
    trapezoidal,
)
from picirc.report import write_report
from picirc.sequences import SequenceModel, write_sequence_report
from picirc.sequences.dynamics import KIND
from picirc.structure.regions import RegionGraph
from picirc.structure.trees import LatentTree
from picirc.tables.column import EMPTY, Column
from picirc.tables.evidence import between, missing, observed, one_of
from picirc.tables.mapping import mapper, plan_spread
from picirc.tables.model import TableModel
from picirc.tables.schema import Schema

How = Literal["mean", "median", "mode", "sample"]
Array = npt.NDArray[Any]

MAKER = "picirc fit"  # marks summaries that this command line wrote and can read

RULES: dict[str, Callable[[int], Rule | RandomRule]] = {
    "shifted": shifted,
    "settling": partial(shifted, settle=True),
    "midpoint": midpoint,
    "trapezoidal": trapezoidal,
    "simpson": simpson,
    "gauss-legendre": gauss_legendre,
    "clenshaw-curtis": clenshaw_curtis,
}
_MOST_POINTS = 2**16  # that a file may ask for
_LISTED = 10  # anomalies that are printed
_ROWS = 1024  # drawn at a time
_FRAME_GREY = 64
_PRESENCES = {"missing": missing, "observed": observed}


def say(text: Any) -> None:
    """Print a result. Control characters, which may come from files, are escaped."""
    print(printable(text))


def tell(text: Any) -> None:
    """Print a message that is not a result, to the error stream."""
    print(printable(text), file=sys.stderr)


# Models


@dataclass(frozen=True)
class Saved:
    """A saved model and its description."""

    model: Model
    description: dict[str, Any]  # what `pc.io.describe` returns
    notes: dict[str, Any]  # the summary if `picirc fit` wrote it, else empty

    @property
    def of_table(self) -> bool:
        """Whether it is a model of a table."""
        return "table" in self.description

    @property
    def query(self) -> QueryOptions:
        """The quadrature with which a PIC was validated; by default that of a training with the defaults."""
        if self.of_table:
            return QueryOptions(rule="shifted", points=2 * take(take(self.description, "table", dict), "points", int))
        if not self.notes.get("query"):
            return QueryOptions(rule="settling", points=32)
        noted = take(self.notes, "query", dict)
        points = check_integer("points", noted.get("points"), most=_MOST_POINTS)
        choice(noted, "rule", RULES)
        return QueryOptions(rule=noted["rule"], points=points)

    @property
    def data(self) -> dict[str, Any]:
        """The result of ``describe_data`` for the training data; empty if it was not saved."""
        if not self.notes.get("data"):
            return {}
        noted, count = take(self.notes, "data", dict), len(self.model.families)
        columns, levels, shape = (noted.get(name) for name in ("columns", "levels", "image_shape"))
        if not _are_strings(columns) or len(set(columns)) != count:
            raise ArgumentError("columns", f"{count} names", repr(columns)[:80])
        if not isinstance(levels, dict) or not all(map(_are_strings, levels.values())):
            raise ArgumentError("levels", "names for each column of categories", repr(levels)[:80])
        for column, family in zip(columns, self.model.families, strict=True):
            if column in levels and getattr(family, "values", 0) != len(levels[column]):
                raise ArgumentError("levels", f"as many names as {family!r} has values", repr(levels[column])[:80])
        if shape is not None and not _is_shape(shape, count):
            raise ArgumentError("image_shape", f"two sizes with {count} pixels", repr(shape)[:80])
        return noted


def _are_strings(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_shape(value: object, pixels: int) -> bool:
    sizes = value if isinstance(value, list) else []
    return len(sizes) == 2 and all(type(size) is int and size > 0 for size in sizes) and math.prod(sizes) == pixels


def find_model(path: Path) -> Path:
    """The model at a path, or in its folder ``model``, where ``picirc fit --data`` puts it."""
    inside = path / "model"
    return inside if not (path / "model.safetensors").exists() and inside.is_dir() else path


def open_model(path: Path) -> Saved:
    """Load a model with its description."""
    path = find_model(path)
    description = describe(path)
    summary = description.get("summary")
    notes = summary if isinstance(summary, dict) and summary.get("maker") == MAKER else {}
    return Saved(load(path), description, notes)


def make_circuit(model: Model, options: QueryOptions, usual: QueryOptions) -> QPC:
    """The circuit of a model. A PIC is integrated with ``options``, and with ``usual`` where these have no value."""
    if not model.has_rule:
        if options != QueryOptions():
            raise ArgumentError("--points, --rule", "neither for an hclt, whose states are not points", "one of them")
        table: QPC = model()
        return table
    name, points = options.rule or usual.rule, options.points or usual.points
    assert name is not None
    assert points is not None
    circuit: QPC = model(RULES[name](points))
    return circuit


def _open_table_model(path: Path) -> TableModel:
    """Load the model of a table. Its answers are mappings, whatever kind of table it was fitted to."""
    model = TableModel.load(find_model(path))
    return TableModel(replace(model.schema, container="mapping"), model.pic, model.points, model.summary)


def _open_both(path: Path, file: Path, options: TableOptions, target: str | None = None) -> tuple[TableModel, Frame]:
    """Load a model, read a table, and print its columns, of which ``target`` is to be predicted."""
    model = _open_table_model(path)
    if target is not None:
        model.schema.index(target)
    frame = read_table(file, options)
    lacking = [name for name in model.schema.names if name not in frame.names and name != target]
    if len(lacking) == len(model.schema.names) - (target is not None) > 0:
        remedy = "set the separator of the cells with --delimiter" if len(frame.names) == 1 else ""
        raise ArgumentError(str(file), f"columns of the model ({few(model.schema.names)})", few(frame.names), remedy)
    if lacking:
        tell(f"not in the table and taken as missing: {few(lacking)}")
    gaps = _gaps(model.schema, frame)
    counts = {name: int(gaps[name].sum()) if name in gaps else frame.rows for name in model.schema.names}
    tell(Schema(tuple(replace(column, missing=counts[column.name]) for column in model.schema.columns), frame.rows))
    ignored = [name for name in frame.names if name not in model.schema.names]
    if ignored:
        tell(f"not in the model and ignored: {few(ignored)}")
    return model, frame


def _known(model: TableModel, frame: Frame, *left_out: str) -> Frame:
    """The columns of a table that the model knows."""
    return frame.select([name for name in frame.names if name in model.schema.names and name not in left_out])


def _gaps(schema: Schema, frame: Frame) -> dict[str, npt.NDArray[np.bool_]]:
    """Where there is no value, for each column that the model knows."""
    columns = [column for column in schema.columns if column.name in frame.names]
    return {c.name: frame.cells(c.name, None if c.kind == EMPTY else c.dtype).missing for c in columns}


def _open_sequences(path: Path, file: Path, options: TableOptions) -> tuple[SequenceModel, dict[str, Any]]:
    """Load a model of sequences and read a table of them."""
    model = SequenceModel.load(find_model(path))
    frame = read_table(file, options)
    if lacking := [name for name in (model.by, model.time) if name is not None and name not in frame.names]:
        raise ArgumentError(str(file), f"the column {lacking[0]}", f"only {few(frame.names)}")
    known = {*model.columns.names, model.by, model.time}
    return model, as_columns(frame.select([name for name in frame.names if name in known]), {})


def as_columns(frame: Frame, declared: Mapping[str, str]) -> dict[str, Any]:
    """The columns of a table as arrays of their own types."""
    return {name: frame.cells(name, dtype_for(declared.get(name, "auto"))).array for name in frame.names}


def _write(out: Path, columns: Any, options: TableOptions) -> None:
    replace_files({out: encode_table(out.name, columns, delimiter_of(options), options.spreadsheet_safe)})


# score


def score_rows(
    path: Path, file: Path, options: TableOptions, out: Path | None, share: float | None, given: Sequence[str]
) -> None:
    """Print the mean log-density of a table, and write that of every row."""
    if share is not None and not 0 < share < 1:
        raise ArgumentError("--anomalies", "a fraction of the rows between 0 and 1, such as 0.01", share)
    if out is not None:
        check_output(out, path, file)
    model, frame = _open_both(path, file, options)
    found = model.log_density(_known(model, frame), read_given(model.schema, given))
    columns: dict[str, Any] = {"row": np.arange(len(found)), "log_density": found}
    say(f"mean log density {found.mean():.4f} of {len(found):,} rows")
    if share is not None:
        columns["anomaly"] = _mark(found, share)
    if out is not None:
        _write(out, columns, options)
        say(f"saved {out}")


def _mark(log_density: npt.NDArray[np.float64], share: float) -> npt.NDArray[np.int64]:
    """1 for the rows of lowest density, 0 for the others."""
    threshold = np.quantile(log_density, share, method="inverted_cdf")
    marks = log_density <= threshold
    worst = np.flatnonzero(marks)[np.argsort(log_density[marks], kind="stable")]
    listed = ", ".join(str(row) for row in worst[:_LISTED].tolist()) + (", …" if len(worst) > _LISTED else "")
    say(f"{len(worst):,} anomalies, with a log density of at most {threshold:.4f}: row {listed}")
    return marks.astype(np.int64)


# impute


def write_filled(
    path: Path,
    file: Path,
    options: TableOptions,
    out: Path,
    how: How,
    seed: int | None,
    copies: int | None,
    given: Sequence[str],
) -> None:
    """Fill the missing cells of a table and write it, once or several times."""
    if copies is not None:
        check_integer("--copies", copies)
        if how != "sample":
            raise ArgumentError("--copies", "--how sample, as they would all be the same", f"--how {how}")
    targets = [out] if copies is None else [_numbered(out, copy) for copy in range(1, copies + 1)]
    for target in targets:
        check_output(target, path, file)
    model, frame = _open_both(path, file, options)
    gaps = _gaps(model.schema, frame)
    for copy, target in enumerate(targets):
        own = None if seed is None else seed + copy
        filled = model.impute(_known(model, frame), how, own, given=read_given(model.schema, given))
        if frame.written is not None:
            filled = _as_written(frame, filled, gaps, target)
        _write(target, filled, options)
        say(f"saved {target}")
    count = sum(int(gap.sum()) for gap in gaps.values())
    rows = int(np.any(list(gaps.values()), axis=0).sum())
    say(f"filled {count:,} cells in {rows:,} of {frame.rows:,} rows")


def _numbered(out: Path, copy: int) -> Path:
    """The name of a copy.

    Example:
        >>> str(_numbered(Path("a.csv.gz"), 2))
        'a-2.csv.gz'
    """
    name, dot, ending = out.name.partition(".")
    return out.with_name(f"{name}-{copy}{dot}{ending}")


def _as_written(
    frame: Frame, filled: Mapping[str, Any], gaps: Mapping[str, npt.NDArray[np.bool_]], target: Path
) -> dict[str, Any]:
    """All columns of a CSV file. Observed cells keep their text in a CSV file, and get a type in a Parquet file."""
    assert frame.written is not None
    if target.name.lower().endswith(".parquet"):
        return {name: filled.get(name, typed_cells(texts)) for name, texts in frame.written.items()}
    columns: dict[str, Any] = dict(frame.written)
    for name, values in filled.items():
        if name not in gaps:  # a column that is absent is filled and added
            columns[name] = values
            continue
        cells = zip(columns[name], gaps[name].tolist(), values, strict=True)
        columns[name] = [value if gap else text for text, gap, value in cells]
    return columns


# predict, probability, explain


def write_predictions(
    path: Path,
    file: Path,
    options: TableOptions,
    out: Path,
    column: str,
    quantiles: Sequence[float],
    given: Sequence[str],
) -> None:
    """Write the mean of a column for every row, or its most probable category and the probabilities of all."""
    check_output(out, path, file)
    model, frame = _open_both(path, file, options, target=column)
    labels, evidence = model.schema[column].categories, read_given(model.schema, given)
    known = _known(model, frame, column)
    table = known if known.names else {column: [None] * frame.rows}
    predicted = model.predict(table, column, evidence)
    columns: dict[str, Any] = {column: predicted}
    if labels:
        columns = {column: [labels[place] for place in predicted.argmax(1).tolist()]}
        columns |= {f"p({cell_text(label)})": predicted[:, place] for place, label in enumerate(labels)}
    if quantiles:
        ends = model.quantiles(table, column, quantiles, evidence)
        columns |= {f"{column} {level:g}": ends[:, place] for place, level in enumerate(quantiles)}
    _write(out, columns, options)
    say(f"predicted {column} of {frame.rows:,} rows; saved {out}")
    if column in frame.names and labels:
        _compare(column, columns[column], frame.cells(column, model.schema[column].dtype).objects())


def _compare(column: str, chosen: Sequence[Any], truth: Sequence[Any]) -> None:
    pairs = [(said, true) for said, true in zip(chosen, truth, strict=True) if true is not None]
    if pairs:
        right = sum(said == true for said, true in pairs)
        say(f"{right:,} of the {len(pairs):,} rows with a known {column} are right ({right / len(pairs):.1%})")


def print_probability(path: Path, event: Sequence[str], given: Sequence[str]) -> None:
    """Print the probability of an event."""
    model = _open_table_model(path)
    wanted = read_given(model.schema, event, "event") or {}
    say(f"{model.probability(wanted, read_given(model.schema, given)):.6g}")


def print_explanation(path: Path, file: Path, options: TableOptions, row: int) -> None:
    """Print the cells of a row, the most surprising one first."""
    model, frame = _open_both(path, file, options)
    check_integer("--row", row, 0, most=frame.rows - 1)
    known = {name: frame.cells(name, model.schema[name].dtype).objects()[row] for name in _known(model, frame).names}
    lines = [("column", "value", "expected", "p")]
    for cell in model.explain(known):
        value, expected = (
            f"{cell[key]:g}" if isinstance(cell[key], float) else str(cell[key]) for key in lines[0][1:3]
        )
        lines.append((cell["column"], value, expected, f"{cell['tail']:.2g}"))
    widths = [max(map(len, part)) for part in zip(*lines, strict=True)]
    for line in lines:
        say("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


# forecast


def write_forecast(
    path: Path, file: Path, options: TableOptions, steps: int, quantiles: tuple[float, ...], out: Path
) -> None:
    """Forecast every sequence of a table and write the forecasts."""
    check_output(out, path, file)
    model, data = _open_sequences(path, file, options)
    found = model.forecast(data, steps, quantiles)
    forecasts = found if isinstance(found, dict) else {None: found}
    parts = {key: forecast.columns() for key, forecast in forecasts.items()}
    columns = {name: np.concatenate([part[name] for part in parts.values()]) for name in next(iter(parts.values()))}
    if isinstance(found, dict):
        keys = [np.repeat(np.array([key]), len(part["time"])) for key, part in parts.items()]
        columns = {model.by or "sequence": np.concatenate(keys)} | columns
    for name, values in columns.items():
        if values.dtype.kind == "M":  # every kind of file can hold strings
            columns[name] = np.datetime_as_string(values, "s").astype(object)
    replace_files({out: encode_table(out.name, columns, delimiter_of(options))})
    say(f"forecast {steps:,} steps of {len(parts):,} sequences; saved {out}")


# report


def write_page(path: Path, file: Path, options: TableOptions, out: Path, seed: int) -> None:
    """Write a page that compares a model with a table or with sequences."""
    check_output(out, path, file, endings=(".html", ".htm"))
    if _is_of_sequences(path):
        write_sequence_report(*_open_sequences(path, file, options), out, seed=seed)
    else:
        model, frame = _open_both(path, file, options)
        write_report(model, _known(model, frame), out, seed=seed)
    say(f"saved {out}")


def _is_of_sequences(path: Path) -> bool:
    return describe(find_model(path)).get("kind") == KIND


# explore


def serve_page(path: Path, source: str | None, options: TableOptions, port: int, *, browser: bool) -> None:
    """Show a model in the browser until Ctrl-C, beside a table in a file or, for images, a data set by its name."""
    model: Any
    data: Any = None
    shape: Any = None
    if _is_of_sequences(path):
        model = SequenceModel.load(find_model(path))
        if source is not None:
            model, data = _open_sequences(path, Path(source), options)
    elif (saved := open_model(path)).of_table:
        model = _open_table_model(path)
        if source is not None:
            model, frame = _open_both(path, Path(source), options)
            data = _known(model, frame)
    else:
        model, shape = saved.model, saved.data.get("image_shape")
        data = None if source is None else read_data(DataOptions(data=source))
    page = make_page(model, data, shape=tuple(shape) if shape else None, name=path.resolve().name)
    explorer = Explorer(page, port)
    print(f"The explorer is at {explorer.url}\nCtrl-C ends it.", flush=True)
    if browser:
        webbrowser.open(explorer.url)
    explorer.wait()


# sample


def read_given(schema: Schema, words: Sequence[str], option: str = "--given") -> dict[str, Any] | None:
    """Read evidence: NAME=VALUE, NAME=LOW..HIGH, NAME=VALUE|VALUE, NAME=missing or NAME=observed."""
    found: dict[str, Any] = {}
    for word in words:
        name, sign, text = word.partition("=")
        if not sign or not text:
            raise ArgumentError(option, "NAME=VALUE, NAME=LOW..HIGH or NAME=VALUE|VALUE", word)
        column, (low, dots, high) = schema[name], text.partition("..")
        if text in _PRESENCES and column.indicator and text not in column.categories:
            found[name] = _PRESENCES[text]
        elif dots and column.dtype != "text":
            found[name] = between(*(_cell(column, end) if end else None for end in (low, high)))
        elif "|" in text:
            found[name] = one_of([_cell(column, part) for part in text.split("|")])
        else:
            found[name] = _cell(column, text)
    return found or None


def _cell(column: Column, text: str) -> Any:
    """Read a value of a column."""
    if column.dtype == "text" or column.dated:
        return text
    if column.dtype == "boolean" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return float(text)
    except ValueError:
        raise ArgumentError("--given", f"a number for {column.name}", text) from None


def write_samples(
    path: Path,
    out: Path,
    count: int,
    seed: int | None,
    query: QueryOptions,
    safe: bool,
    given: Sequence[str],
    gaps: bool,
) -> None:
    """Draw rows and write them."""
    check_integer("--count", count)
    suffix = out.suffix.lower()
    check_output(out, path, endings=sorted({*_ENCODERS, *WRITABLE}))
    saved = open_model(path)
    if saved.of_table:
        if query != QueryOptions():
            raise ArgumentError("--points, --rule", "neither for the model of a table", "one of them")
        check_output(out, path)
        model = _open_table_model(path)
        drawn = model.sample(count, given=read_given(model.schema, given), seed=seed, gaps=gaps)
        columns = model.schema.arrow(drawn) if suffix == ".parquet" else model.schema.objects(drawn)
        replace_files({out: encode_table(out.name, columns, safe=safe)})
        return
    if given or gaps:
        raise ArgumentError("--given" if given else "--gaps", "the model of a table", "another")
    check_output(out, path, endings=tuple(_ENCODERS))
    about = saved.data
    if suffix == ".png" and not about.get("image_shape"):
        raise ArgumentError("--out", "a .csv or .npy file for rows that are not images", str(out))
    rows = _draw(make_circuit(saved.model, query, saved.query), count, seed)
    replace_files({out: _ENCODERS[suffix](rows, saved.model.families, about, safe)})


@torch.no_grad()
def _draw(circuit: QPC, count: int, seed: int | None) -> Array:
    generator = torch.Generator()
    generator.seed() if seed is None else generator.manual_seed(seed)
    sizes = [min(_ROWS, count - start) for start in range(0, count, _ROWS)]
    return np.concatenate([circuit.sample(size, generator=generator).numpy() for size in sizes])


def _png(rows: Array, families: Sequence[Family], about: Mapping[str, Any], _: bool) -> bytes:
    """A grid of images, with the smallest value black and the largest white."""
    height, width = about["image_shape"]
    finite = [family.values - 1 if isinstance(family, FiniteFamily) else None for family in families]
    low = np.array([rows.min() if top is None else 0 for top in finite])
    high = np.array([rows.max() if top is None else top for top in finite])
    grey = np.rint(255 * (rows - low) / np.maximum(high - low, 1e-9)).astype(np.uint8)
    across = math.ceil(math.sqrt(len(rows)))
    down = math.ceil(len(rows) / across)
    cells = np.zeros((down * across, height, width), dtype=np.uint8)
    cells[: len(rows)] = grey.reshape(-1, height, width)
    framed = np.pad(cells, ((0, 0), (1, 1), (1, 1)), constant_values=_FRAME_GREY)
    grid = framed.reshape(down, across, height + 2, width + 2).transpose(0, 2, 1, 3)
    return encode_png(grid.reshape(down * (height + 2), across * (width + 2)))


def _csv(rows: Array, families: Sequence[Family], about: Mapping[str, Any], safe: bool) -> bytes:
    names = about.get("columns") or numbered(len(families))
    levels = about.get("levels") or {}
    columns: dict[str, list[Any]] = {}
    for name, cells, family in zip(names, rows.T.tolist(), families, strict=True):
        columns[name] = [int(cell) for cell in cells] if family.discrete else cells
        if name in levels:
            columns[name] = [levels[name][code] for code in columns[name]]
    return encode_table("samples.csv", columns, safe=safe)


def _npy(rows: Array, families: Sequence[Family], about: Mapping[str, Any], _: bool) -> bytes:
    if all(family.discrete for family in families):
        rows = rows.astype(np.uint8 if rows.min() >= 0 and rows.max() < 256 else np.int64)
    content = io.BytesIO()
    np.save(content, rows, allow_pickle=False)
    return content.getvalue()


_ENCODERS = {".png": _png, ".csv": _csv, ".npy": _npy}


# eval


def print_scores(path: Path, data: DataOptions, query: QueryOptions) -> None:
    """Print a line for each part of the data."""
    saved = open_model(path)
    if saved.of_table:
        raise ArgumentError("model", "a model of data", f"{path}, the model of a table", "use picirc score")
    circuit = make_circuit(saved.model, query, saved.query)
    found = read_data(data, saved.data or None)
    say(f"{'part':<8}{'rows':>8}{'log-likelihood':>18}{'bits per dimension':>22}")
    for name, part in (("train", found.train), ("valid", found.valid), ("test", found.test)):
        score = scores(circuit, part)
        say(f"{name:<8}{score['rows']:>8}{score['log_likelihood']:>18.4f}{score['bits']:>22.4f}")


def scores(circuit: QPC, rows: Any) -> dict[str, float]:
    """The number of rows, their mean log-likelihood in nats, and their bits per dimension."""
    mean = mean_log_prob(circuit, rows)
    return {"rows": len(rows), "log_likelihood": mean, "bits": bits_per_dimension(mean, rows.shape[1])}


# inspect


def print_sizes(path: Path, points: int | None, batch: int) -> None:
    """Print the structure and the size of a model, and the memory that it needs."""
    check_integer("--batch", batch)
    if points is not None:
        check_integer("--points", points)
    saved = open_model(path)
    if saved.of_table:
        say(TableModel.load(find_model(path)).schema)
    states = saved.model.states_of(points or saved.query.points or 0)
    for name, text in (*_model_lines(saved), *_memory_lines(saved.model, states, batch)):
        say(f"{name:<14}{text}")


def _model_lines(saved: Saved) -> Iterator[tuple[str, str]]:
    model, description = saved.model, saved.description
    numbers = sum(p.numel() for p in model.parameters())
    size = next(model.parameters()).element_size()
    families = Counter(map(repr, model.families))
    members = f" of {description['members']} PICs" if "members" in description else ""
    yield "model", description["kind"] + members
    yield "structure", _structure(*model.structures)
    if not saved.of_table:  # its columns are listed
        yield "variables", f"{len(model.families)}: " + ", ".join(f"{n} {name}" for name, n in families.items())
    yield "settings", ", ".join(f"{name} {value}" for name, value in description["settings"].items())
    yield "parameters", f"{numbers:,} {description['dtype']}, {_bytes(numbers * size)}"
    for name in ("command", "stopped"):
        if isinstance(saved.notes.get(name), str):
            yield name, saved.notes[name].replace("\n", " ")
    test = saved.notes.get("test")
    if isinstance(test, dict) and isinstance(test.get("bits"), float):
        yield "test", f"{test['bits']:.4f} bits per dimension"


def _structure(structure: LatentTree | RegionGraph, *others: LatentTree | RegionGraph) -> str:
    if others:
        depths = [own.depth for own in (structure, *others)]
        return f"{len(depths)} trees, depth {min(depths)} to {max(depths)}"
    if isinstance(structure, LatentTree):
        return f"tree of {structure.n_latents} latents, depth {structure.depth}"
    partitions = sum(map(len, structure.partitions))
    return f"{len(structure.scopes)} regions with {partitions} partitions, depth {structure.depth}"


def _memory_lines(model: Model, states: int, batch: int) -> Iterator[tuple[str, str]]:
    plan, size = model.plan, next(model.parameters()).element_size()
    shapes = [*plan.weight_shapes(states), *plan.mixture_shapes(states)]
    weights = sum(map(math.prod, shapes))
    inputs = sum(len(group.rows) * states * group.family.size for group in plan.inputs)
    if getattr(model.parts[0], "input_sharing", None) == "full":
        inputs = sum(states * group.family.size for group in plan.inputs)
    values = compiled_of(plan, dict.fromkeys(plan.kinds, states)).elements * batch
    weights, inputs, values = (model.copies * count for count in (weights, inputs, values))
    several = f" in each of {model.copies} circuits" if model.copies > 1 else ""
    yield "", f"with {states} states for each latent{several} and {batch} rows in a batch:"
    yield "  weights", f"{weights:,} numbers, {_bytes(weights * size)}"
    yield "  inputs", f"{inputs:,} numbers, {_bytes(inputs * size)}"
    yield "  values", f"{values:,} numbers, {_bytes(values * size)}"
    yield "  use", f"about {_bytes((weights + inputs + values) * size)}"
    yield "  training", f"about {_bytes((2 * (weights + inputs) + values) * size)}, with the gradients"


def _bytes(count: float) -> str:
    """A number of bytes in a unit that is easy to read.

    Example:
        >>> _bytes(300), _bytes(5 * 2**20)
        ('300 B', '5.0 MiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


# score, impute and classify for a folder of Parquet files


_SECONDS_PER_LINE = 10.0


def map_folder(
    model: Path,
    source: Path,
    out: Path | None,
    files: FolderOptions,
    reading: TableOptions,
    task: str,
    refused: Mapping[str, Any],
    **options: Any,
) -> None:
    """Map a folder of Parquet files to another one.

    ``task`` and ``options`` are arguments of ``pc.mapper``. Options in ``reading`` and ``refused`` do not apply to
    Parquet files, and raise an error if they are given.
    """
    got = "a folder of Parquet files"
    refuse((reading,), "a single table", got)
    for name, value in refused.items():
        if value not in (None, ()):
            raise ArgumentError(name, "a single table", got, "omit it")
    if out is None:
        raise ArgumentError("--out", "a folder for the results", "none", "add -o and the name of a folder")
    if options.get("how") != "sample" or options.get("seed") is None:
        options.pop("seed", None)
    spread = plan_spread(
        mapper(find_model(model), task, **options), source, out,
        workers=files.workers, resume=files.resume, overwrite=files.overwrite,
    )  # fmt: skip
    rows, todo = (sum(each.rows for each in part) for part in (spread.fragments, spread.pending))
    tell(f"{rows:,} rows in {len(spread.fragments):,} files; to do: {todo:,} rows in {len(spread.pending):,} files")
    tell(f"{spread.workers} processes, which need less than {spread.ceiling / 2**30:.1f} GiB of memory together")
    started = time.perf_counter()
    with _progress(todo, sys.stderr) as progress:
        spread.run(progress)
    pace = todo / max(time.perf_counter() - started, 1e-9)
    say(f"{task}: {todo:,} rows, {pace:,.0f} rows per second; saved {out}")


@contextmanager
def _progress(rows: int, stream: TextIO) -> Iterator[Any]:
    """Show the progress and the speed: as a bar on a terminal, elsewhere as a line every ten seconds."""
    last = started = time.perf_counter()

    def pace(done: int) -> str:
        return f"{done / (time.perf_counter() - started):,.0f} rows per second"

    def show(done: int) -> None:
        nonlocal last
        if time.perf_counter() - last >= _SECONDS_PER_LINE:
            last = time.perf_counter()
            print(f"{done:,} of {rows:,} rows, {pace(done)}", file=stream)

    if not stream.isatty():
        yield show
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (MofNCompleteColumn(), TextColumn("rows"), BarColumn(), TextColumn("{task.fields[pace]}"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(file=stream)) as bar:
        task = bar.add_task("", total=rows, pace="…")
        yield lambda done: bar.update(task, completed=done, pace=pace(done))
