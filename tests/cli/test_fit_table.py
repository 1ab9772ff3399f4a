# SPDX-License-Identifier: Apache-2.0
"""``picirc fit TABLE``."""

from __future__ import annotations

import json
import shlex

import numpy as np
import pytest
import torch

import picirc as pc
from cli.table_cases import COLUMNS, QUICK, ROWS, rows, text
from picirc.cli import main
from picirc.data.tables import read_file
from picirc.tables import TableModel, fit_table


def same(a: TableModel, b: TableModel) -> bool:
    mine, theirs = a.pic.state_dict(), b.pic.state_dict()
    return a.schema == b.schema and all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_the_summary_comes_first(run, table, tmp_path):
    code, printed, told = run("fit", table, "--out", tmp_path / "m", *QUICK)
    assert code == 0
    first, head, *lines = told.splitlines()
    assert first == f"{ROWS} rows, {len(COLUMNS)} columns"
    assert head.split() == ["name", "type", "values", "missing"]
    kinds = ["gaussian", "categorical (3)", "bernoulli", "gaussian", "categorical (3)", "categorical (2)"]
    missing = [2, 2, 1, 2, 1, 1]
    for name, kind, count, line in zip(COLUMNS, kinds, missing, lines, strict=False):
        assert line.startswith(name)
        assert kind in line
        assert line.endswith(f" {count}")
    assert "émeu, large" in told
    assert lines[len(COLUMNS)].startswith("about 0:00:0")
    assert lines[len(COLUMNS) + 1].startswith("step 3 of 12: ")  # four models
    assert printed.startswith("mean log density: training ")
    assert printed.endswith(f"saved {tmp_path / 'm'}\n")


def test_the_same_in_python(model):
    settings = {"batch_size": 16}
    again = fit_table(model.parent / "table.csv", seed=0, points=4, width=4, steps=3, settings=settings)
    assert same(TableModel.load(model), again)


def test_the_command_in_the_summary_gives_the_same_model(run, table, tmp_path):
    options = ["--columns", "count=poisson", "--categorical", "flag", "--drop", "length", "--unseen", "missing"]
    assert run("fit", table, "--out", tmp_path / "a", *QUICK, *options, "--seed", 3, "--patience", 0)[0] == 0
    summary = pc.io.describe(tmp_path / "a")["summary"]
    program, *arguments = shlex.split(summary["command"])
    assert program == "picirc"
    arguments[arguments.index("--out") + 1] = str(tmp_path / "b")
    assert run(*arguments)[0] == 0
    a, b = TableModel.load(tmp_path / "a"), TableModel.load(tmp_path / "b")
    assert same(a, b)
    assert a.schema.names == ("pet", "flag", "count", "code", "note, quoted")
    assert a.schema["flag"].categories == ("0", "1")  # what is declared a category is a text
    assert isinstance(a.schema["count"].family, pc.Poisson)
    assert a.schema.unseen == "missing"
    assert summary["versions"]["picirc"] == pc.__version__


def test_the_description_has_what_is_needed(model):
    found = json.loads((model / "model.json").read_text(encoding="utf-8"))
    assert found["format"] == 1
    assert found["structure"]["kind"] == "LatentTree"
    assert {"width", "sharing"} <= set(found["settings"])
    assert [column["name"] for column in found["table"]["schema"]["columns"]] == COLUMNS
    assert found["summary"]["training"]["stopped"]
    assert found == pc.io.describe(model)


def test_formats_of_the_file_make_no_difference(run, model, tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="needs the extra picirc[data]")
    parquet = pytest.importorskip("pyarrow.parquet")
    source = read_file(model.parent / "table.csv")
    cells = {name: source.cells(name).objects() for name in source.names}
    parquet.write_table(arrow.table(cells), tmp_path / "t.parquet")
    (tmp_path / "t.tsv").write_text(text(rows(), delimiter="\t"), encoding="utf-8-sig", newline="")
    (tmp_path / "semi.csv").write_text(text(rows(), delimiter=";"), encoding="utf-8", newline="")
    expected = TableModel.load(model)
    for name, options in (("t.parquet", []), ("t.tsv", []), ("semi.csv", ["--delimiter", ";"])):
        assert run("fit", tmp_path / name, "--out", tmp_path / f"{name}.model", *QUICK, *options)[0] == 0
        assert same(TableModel.load(tmp_path / f"{name}.model"), expected)


def test_an_array_has_numbered_columns(run, tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(20, 2)))
    assert run("fit", tmp_path / "x.npy", "--out", tmp_path / "m.safetensors", *QUICK)[0] == 0
    assert TableModel.load(tmp_path / "m.safetensors").schema.names == ("x0", "x1")


def test_a_model_is_not_overwritten_by_accident(run, table, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1.5,2\n2.5,3\n3.5,1\n")
    for name in ("m", "m.safetensors"):
        assert run("fit", other, "--out", tmp_path / name, *QUICK)[0] == 0
        code, _, error = run("fit", table, "--out", tmp_path / name, *QUICK)
        assert code == 2
        assert "--overwrite" in error
        assert TableModel.load(tmp_path / name).schema.names == ("a", "b")
        assert run("fit", table, "--out", tmp_path / name, *QUICK, "--overwrite")[0] == 0
        assert list(TableModel.load(tmp_path / name).schema.names) == COLUMNS


def test_a_configuration_file(run, table, tmp_path):
    config = tmp_path / "fit.toml"
    config.write_text('steps = 2\npoints = 4\nwidth = 4\ndrop = ["code"]\ncolumns = ["count=poisson"]\n')
    assert run("fit", table, "--out", tmp_path / "m", "--config", config, "--steps", 3)[0] == 0
    found = TableModel.load(tmp_path / "m")
    assert found.summary["settings"]["steps"] == 3
    assert found.points == 4
    assert "code" not in found.schema.names


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (["--data", "digits"], "either TABLE or --data"),
        (["--structure", "chain"], "--structure"),
        (["--model", "hclt"], "--model"),
        (["--em"], "--em"),
        (["--tensorboard"], "--tensorboard"),
        (["--columns", "count"], "NAME=KIND"),
        (["--columns", "cuont=poisson"], "names among length, pet"),
        (["--columns", "count=poison"], "poison"),
        (["--columns", "count=poisson", "--categorical", "count"], "one kind for count"),
        (["--columns", "pet=gaussian"], "line 2: expected a finite number in column pet, got"),
        (["--drop", "pets"], "--drop"),
        ([part for name in COLUMNS for part in ("--drop", name)], "at least one column left"),
        (["--points", "0"], "points"),
        (["--threads", "0"], "--threads"),
        (["--seed", "-1"], "--seed"),
        (["--delimiter", "||"], "--delimiter"),
        (["--delimiter", ";"], "several columns"),
        (["--missing"], "--missing"),
    ],
)
def test_mistakes_are_one_line(options, match, run, table, tmp_path):
    code, printed, error = run("fit", table, "--out", tmp_path / "m", *options)
    assert (code, printed) == (2, "")
    (line,) = [line for line in error.splitlines() if line.startswith("picirc: error: ")]
    assert match in line
    assert "Traceback" not in error
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    "option", [["--delimiter", ";"], ["--missing", "x"], ["--drop", "a"], ["--columns", "a=b"], ["--sequences"]]
)
def test_options_of_tables_need_a_table(option, run, tmp_path):
    code, _, error = run("fit", "--data", "digits", "--out", tmp_path / "m", *option)
    assert code == 2
    assert "picirc fit TABLE" in error


def test_the_place_of_the_model_is_checked_first(run, table, tmp_path):
    (tmp_path / "file").write_text("")
    for out, match in (("file", "a folder"), ("file/m", "a folder"), ("none/m.safetensors", "a folder")):
        code, _, error = run("fit", table, "--out", tmp_path / out)
        assert code == 2
        assert match in error


def test_cells_cannot_write_to_the_terminal(run, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a\n1\n2\n\x1b[31m\u202ered\n")
    code, _, error = run("fit", path, "--out", tmp_path / "m")
    assert code == 2
    assert "\x1b" not in error
    assert r"\x1b[31m\u202ered" in error


def test_an_interrupted_training_is_saved(run, table, tmp_path, monkeypatch):
    from picirc.learning.history import Progress

    real = Progress.__call__

    def interrupt(self, record) -> None:
        real(self, record)
        raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "__call__", interrupt)
    code, printed, _ = run("fit", table, "--out", tmp_path / "m", *QUICK, "--validate-every", 1)
    assert code == 130
    assert "interrupted" in printed
    assert TableModel.load(tmp_path / "m").summary["training"]["stopped"] == "interrupted"


def test_main_returns_what_the_process_exits_with(table, tmp_path, capsys):
    assert main(["fit", str(table), "--out", str(tmp_path / "m"), "--nonsense"]) == 2
    assert capsys.readouterr().err.startswith("picirc: error: ")
