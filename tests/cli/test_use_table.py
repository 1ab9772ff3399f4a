# SPDX-License-Identifier: Apache-2.0
"""``picirc score``, ``sample``, ``impute``, ``classify``, ``report`` and ``inspect`` for the model of a table."""

from __future__ import annotations

import math
import shutil

import numpy as np
import pytest

import picirc as pc
from cli.table_cases import COLUMNS, QUICK, ROWS, read, rows, text
from picirc.cli import main
from picirc.data.tables import read_file
from picirc.tables import TableModel, fit_table

MISSING = ("", "NA")
CATEGORIES = {
    "pet": {"cat", "dog", "émeu, large"},
    "flag": {"0", "1"},
    "code": {"01", "02", "10"},
    "note, quoted": {"a\nb", 'say "x"'},
}


def is_whole(cell: str) -> bool:
    return cell.lstrip("+-").isdigit()


# score


def test_score_writes_the_log_density_of_every_row(run, model, table, tmp_path):
    code, printed, told = run("score", model, table, "-o", tmp_path / "s.csv")
    assert code == 0
    assert told.startswith(f"{ROWS} rows, {len(COLUMNS)} columns")
    header, cells = read(tmp_path / "s.csv")
    assert header == ["row", "log_density"]
    assert [row[0] for row in cells] == [str(i) for i in range(ROWS)]
    expected = TableModel.load(model).log_density(table)
    np.testing.assert_array_equal([float(row[1]) for row in cells], expected)
    assert printed.splitlines()[0] == f"mean log density {expected.mean():.4f} of {ROWS} rows"
    assert run("score", model, table)[1].splitlines() == printed.splitlines()[:1]


@pytest.mark.parametrize(("share", "count"), [(0.1, 6), (0.001, 1), (0.99, 60)])
def test_anomalies_are_the_rows_of_least_density(share, count, run, model, table, tmp_path):
    code, printed, _ = run("score", model, table, "-o", tmp_path / "s.csv", "--anomalies", share)
    assert code == 0
    header, cells = read(tmp_path / "s.csv")
    assert header == ["row", "log_density", "anomaly"]
    marked = sorted(float(row[1]) for row in cells if row[2] == "1")
    assert marked == sorted(float(row[1]) for row in cells)[:count]
    assert printed.splitlines()[1].startswith(f"{count} anomalies")


def test_columns_are_found_by_name_and_others_ignored(run, model, table, tmp_path):
    header, cells = read(table)
    order = [5, 3, 1, 0, 2, 4]
    other = tmp_path / "other.csv"
    shuffled = [["x\ty", *(row[i] for i in order)] for row in cells]
    other.write_text(text(shuffled, ["id", *(header[i] for i in order)]), encoding="utf-8", newline="")
    _, expected, _ = run("score", model, table)
    code, printed, told = run("score", model, other)
    assert (code, printed) == (0, expected)
    assert told.splitlines()[-1] == "not in the model and ignored: id"


def test_a_number_where_a_text_was_is_a_text(run, model, tmp_path):
    changed = rows()
    changed[10][4] = "1"  # not a known code, and no number either
    path = tmp_path / "t.csv"
    path.write_text(text(changed), encoding="utf-8", newline="")
    code, _, error = run("score", model, path)
    assert code == 2
    assert "'1' in row 10" in error.splitlines()[-1]


# sample


def test_samples_look_like_the_table(run, model, tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert run("sample", model, "-n", 20, "-o", tmp_path / f"{name}.csv", "--seed", seed) == (0, "", "")
    a, b, c = ((tmp_path / f"{name}.csv").read_bytes() for name in "abc")
    assert a == b != c
    header, cells = read(tmp_path / "a.csv")
    assert header == COLUMNS
    assert len(cells) == 20
    for row in cells:
        found = dict(zip(header, row, strict=True))
        assert math.isfinite(float(found["length"]))
        assert is_whole(found["count"])
        assert all(found[name] in labels for name, labels in CATEGORIES.items())
    assert run("score", model, tmp_path / "a.csv")[0] == 0


def test_samples_agree_with_what_is_given(run, tmp_path):
    table = {"height": np.linspace(1.5, 2.0, 40), "sex": ["f", "m", "f", "d"] * 10, "fit": [True, False] * 20}
    fit_table(table, steps=2, settings={"members": 1}).save(tmp_path / "m")
    words = ["--given", "height=1.6..1.7", "--given", "sex=f|d", "--given", "fit=true"]
    code, _, _ = run("sample", tmp_path / "m", "-n", 50, "-o", tmp_path / "n.csv", *words)
    assert code == 0
    _, cells = read(tmp_path / "n.csv")
    assert all(1.6 <= float(row[0]) <= 1.7 for row in cells)
    assert {row[1] for row in cells} == {"f", "d"}
    assert {row[2] for row in cells} == {"True"}
    (tmp_path / "holes.csv").write_text("height,sex,fit\n,f,\n1.9,,true\n")
    holes = [tmp_path / "m", tmp_path / "holes.csv", "-o", tmp_path / "o.csv"]
    assert run("impute", *holes, "--how", "sample", "--given", "height=1.6..1.7", "--given", "sex=d")[0] == 0
    _, cells = read(tmp_path / "o.csv")
    assert 1.6 <= float(cells[0][0]) <= 1.7
    assert [row[1] for row in cells] == ["f", "d"]
    assert run("score", *holes, "--given", "height=1.6..2")[0] == 0
    conditional = [float(row[1]) for row in read(tmp_path / "o.csv")[1]]
    assert run("score", *holes)[0] == 0
    assert [float(row[1]) for row in read(tmp_path / "o.csv")[1]] != conditional
    assert run("classify", *holes, "--column", "fit", "--given", "sex=m")[0] == 0
    for wrong in ("height", "height=tall", "weight=3", "sex=x"):
        code, _, error = run("sample", tmp_path / "m", "-o", tmp_path / "n.csv", "--given", wrong)
        assert code == 2
        assert error


def test_samples_in_other_formats_are_the_same(run, model, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra picirc[data]")
    for name in ("s.csv", "s.csv.gz", "s.tsv", "s.parquet"):
        assert run("sample", model, "-n", 9, "--seed", 0, "-o", tmp_path / name)[0] == 0
    first, *others = (read_file(tmp_path / name) for name in ("s.csv", "s.csv.gz", "s.tsv", "s.parquet"))
    for other in others:
        for name in COLUMNS:
            assert other.cells(name).objects() == first.cells(name).objects()
    types = {field.name: str(field.type) for field in parquet.read_schema(tmp_path / "s.parquet")}
    assert [types[name] for name in COLUMNS] == ["double", "string", "int64", "int64", "string", "string"]


# impute


@pytest.mark.parametrize("how", ["mean", "mode", "sample"])
def test_imputed_cells_are_the_missing_ones(how, run, model, table, tmp_path):
    code, printed, _ = run("impute", model, table, "-o", tmp_path / "f.csv", "--how", how, "--seed", 4)
    assert code == 0
    assert printed.splitlines() == [f"saved {tmp_path / 'f.csv'}", f"filled 9 cells in 7 of {ROWS} rows"]
    header, filled = read(tmp_path / "f.csv")
    assert header == COLUMNS
    expected = TableModel.load(model).impute(table, how, 4)
    for i, (old, new) in enumerate(zip(rows(), filled, strict=True)):
        for name, before, after in zip(COLUMNS, old, new, strict=True):
            if before not in MISSING:
                assert after == before  # also "+1.50" and "1e1"
            elif name in CATEGORIES:
                assert after in CATEGORIES[name]
                assert after == str(expected[name][i])
            else:
                assert float(after) == expected[name][i]
                assert is_whole(after) == (name == "count")


def test_copies_differ_where_cells_are_missing(run, model, table, tmp_path):
    options = ["--how", "sample", "--seed", 7]
    assert run("impute", model, table, "-o", tmp_path / "f.csv", *options, "--copies", 3)[0] == 0
    assert not (tmp_path / "f.csv").exists()
    copies = [(tmp_path / f"f-{copy}.csv").read_bytes() for copy in (1, 2, 3)]
    assert len(set(copies)) == 3
    assert run("impute", model, table, "-o", tmp_path / "f.csv", *options)[0] == 0
    assert (tmp_path / "f.csv").read_bytes() == copies[0]


def test_unknown_columns_pass_through(run, model, table, tmp_path):
    header, cells = read(table)
    wider = [[f"{i:03}", *row, "" if i % 2 else "7"] for i, row in enumerate(cells)]
    (tmp_path / "w.csv").write_text(text(wider, ["id", *header, "extra"], ";"), encoding="utf-8", newline="")
    code, _, told = run("impute", model, tmp_path / "w.csv", "-o", tmp_path / "f.csv", "--delimiter", ";")
    assert code == 0
    assert "ignored: id, extra" in told
    head, filled = read(tmp_path / "f.csv", ";")
    assert head == ["id", *header, "extra"]
    assert [(row[0], row[-1]) for row in filled] == [(row[0], row[-1]) for row in wider]


def test_parquet_comes_back_with_its_types(run, model, table, tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="needs the extra picirc[data]")
    parquet = pytest.importorskip("pyarrow.parquet")
    source = read_file(table)
    cells = {name: source.cells(name).objects() for name in source.names}
    whole = arrow.table(cells)
    types = {"length": arrow.float32(), "count": arrow.int32(), "flag": arrow.int8()}
    whole = whole.cast(arrow.schema([arrow.field(f.name, types.get(f.name, f.type)) for f in whole.schema]))
    parquet.write_table(whole, tmp_path / "t.parquet")
    assert run("impute", model, tmp_path / "t.parquet", "-o", tmp_path / "f.parquet")[0] == 0
    filled = parquet.read_table(tmp_path / "f.parquet")
    assert filled.schema.equals(whole.schema)
    assert sum(column.null_count for column in filled.columns) == 0
    for name in COLUMNS:
        for before, after in zip(whole[name].to_pylist(), filled[name].to_pylist(), strict=True):
            assert before is None or before == after
    assert run("impute", model, tmp_path / "t.parquet", "-o", tmp_path / "f.csv")[0] == 0
    assert read(tmp_path / "f.csv")[0] == COLUMNS
    assert run("impute", model, table, "-o", tmp_path / "g.parquet")[0] == 0
    assert [str(field.type) for field in parquet.read_schema(tmp_path / "g.parquet")][:4] == [
        *("double", "string", "int64", "int64"),
    ]


# predict, probability, explain


def test_classify_writes_labels_and_probabilities(run, model, table, tmp_path):
    code, printed, _ = run("classify", model, table, "--column", "pet", "-o", tmp_path / "c.csv")
    assert code == 0
    header, cells = read(tmp_path / "c.csv")
    assert header == ["pet", "p(cat)", "p(dog)", "p(émeu, large)"]
    found = np.array([[float(cell) for cell in row[1:]] for row in cells])
    expected = TableModel.load(model).predict(table, "pet")
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(found.sum(1), 1)
    labels = [["cat", "dog", "émeu, large"][place] for place in found.argmax(1)]
    assert [row[0] for row in cells] == labels
    truth = [row[1] for row in rows()]
    known = [(said, true) for said, true in zip(labels, truth, strict=True) if true not in MISSING]
    right = sum(said == true for said, true in known)
    assert f"{right} of the {len(known)} rows with a known pet are right" in printed


def test_the_column_to_predict_does_not_count(run, model, tmp_path):
    whole, other, without = tmp_path / "w.csv", tmp_path / "o.csv", tmp_path / "a.csv"
    cells = rows()
    whole.write_text(text(cells), encoding="utf-8", newline="")
    other.write_text(text([[r[0], "unheard of", *r[2:]] for r in cells]), encoding="utf-8", newline="")
    rest = [[r[0], *r[2:]] for r in cells]
    without.write_text(text(rest, [COLUMNS[0], *COLUMNS[2:]]), encoding="utf-8", newline="")
    for path in (whole, other, without):
        assert run("classify", model, path, "--column", "pet", "-o", path.with_suffix(".tsv"))[0] == 0
    assert whole.with_suffix(".tsv").read_bytes() == other.with_suffix(".tsv").read_bytes()
    assert whole.with_suffix(".tsv").read_bytes() == without.with_suffix(".tsv").read_bytes()


def test_categories_that_are_numbers(run, model, table, tmp_path):
    code, printed, _ = run("classify", model, table, "--column", "flag", "-o", tmp_path / "c.csv")
    assert code == 0
    header, cells = read(tmp_path / "c.csv")
    assert header == ["flag", "p(0)", "p(1)"]
    assert {row[0] for row in cells} <= {"0", "1"}
    assert f"of the {ROWS - 1} rows with a known flag" in printed


def test_predictions_of_numbers_are_means_and_quantiles(run, model, table, tmp_path):
    words = ["--column", "length", "--quantiles", "0.1", "--quantiles", "0.9", "--given", "pet=cat|dog"]
    partial = tmp_path / "t.csv"
    partial.write_text(text([[row[0], "", *row[2:]] for row in rows()]), encoding="utf-8", newline="")
    assert run("predict", model, partial, *words, "-o", tmp_path / "p.csv")[0] == 0
    header, cells = read(tmp_path / "p.csv")
    assert header == ["length", "length 0.1", "length 0.9"]
    known, given = TableModel.load(model), {"pet": pc.one_of(["cat", "dog"])}
    found = np.array([[float(cell) for cell in row] for row in cells])
    np.testing.assert_allclose(found[:, 0], known.predict(partial, "length", given), rtol=1e-12)
    np.testing.assert_allclose(found[:, 1:], known.quantiles(partial, "length", [0.1, 0.9], given), rtol=1e-12)


def test_a_probability_is_printed(run, model):
    code, printed, _ = run("probability", model, "length=5..10", "flag=1", "--given", "pet=cat")
    event = {"length": pc.between(5, 10), "flag": 1}
    assert code == 0
    assert float(printed) == pytest.approx(TableModel.load(model).probability(event, {"pet": "cat"}), rel=1e-5)


def test_an_explanation_is_that_of_the_row_that_score_and_report_name(run, model, tmp_path):
    cells = rows()
    cells[7][0] = "9000.5"
    path = tmp_path / "t.csv"
    path.write_text(text(cells), encoding="utf-8", newline="")
    code, printed, _ = run("explain", model, path, "--row", 7)
    assert code == 0
    head, first, *_ = (line.split() for line in printed.splitlines())
    assert head == ["column", "value", "expected", "p"]
    assert first[:2] == ["length", "9000.5"]
    assert run("score", model, path, "--anomalies", "0.001")[1].rstrip().endswith("row 7")


def test_draws_differ_unless_there_is_a_seed(run, model, tmp_path):
    def drawn(*words):
        assert run("sample", model, "-n", 5, "-o", tmp_path / "s.csv", *words)[0] == 0
        return (tmp_path / "s.csv").read_text()

    assert drawn() != drawn()
    assert drawn("--seed", 3) == drawn("--seed", 3)


# The model called model, report and inspect


def test_the_model_may_be_left_out(run, model, table, tmp_path, monkeypatch):
    shutil.copytree(model, tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    assert run("score", "table.csv")[1] == run("score", model, table)[1]
    for command in (
        ["sample", "-n", 3, "-o", "new.csv"],
        ["impute", "table.csv", "-o", "filled.csv"],
        ["classify", "table.csv", "--column", "pet", "-o", "classes.csv"],
        ["report", "--data", "table.csv"],
        ["inspect"],
    ):
        assert run(*command)[0] == 0
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert len(read(tmp_path / "new.csv")[1]) == 3


def test_inspect_shows_the_columns(run, model):
    code, printed, _ = run("inspect", model)
    assert code == 0
    assert printed.splitlines()[0] == f"{ROWS} rows, {len(COLUMNS)} columns"
    assert "picirc fit" in printed
    assert "Ensemble of 4 PICs" in printed
    assert "with 8 states for each latent in each of 4 circuits" in printed


def test_models_of_data_and_of_tables_are_told_apart(run, model, table, tmp_path):
    code, _, error = run("eval", model, "--data", "digits")
    assert code == 2
    assert "use picirc score" in error
    assert run("sample", model, "-o", tmp_path / "s.png")[0] == 2
    assert run("sample", model, "-o", tmp_path / "s.csv", "--points", 3)[0] == 2
    options = ["--data", "digits", "--structure", "chain", "--points", 2, "--width", 4, "--steps", 1]
    assert main([str(word) for word in ("fit", *options, "--out", tmp_path / "run")]) == 0
    code, _, error = run("score", tmp_path / "run", table)
    assert code == 2
    assert "schema of a table" in error
    for place in (tmp_path / "run", tmp_path / "run" / "model"):  # the folder of the run is enough
        assert run("sample", place, "-n", 2, "-o", tmp_path / "s.npy")[0] == 0


def test_a_model_fitted_to_a_data_frame(run, tmp_path):
    pandas = pytest.importorskip("pandas", reason="needs the extra picirc[data]")
    from picirc.tables import fit_table

    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"x": rng.normal(size=30), "ok": rng.random(30) < 0.5})
    fit_table(frame, steps=2, points=2, width=4).save(tmp_path / "m")
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert run("score", tmp_path / "m", tmp_path / "t.csv")[0] == 0
    assert run("sample", tmp_path / "m", "-n", 4, "-o", tmp_path / "s.csv")[0] == 0
    header, cells = read(tmp_path / "s.csv")
    assert header == ["x", "ok"]
    assert {row[1] for row in cells} <= {"True", "False"}


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["score", "MODEL", "none.csv"], "none.csv: expected a file, got none there"),
        (["score", "none", "TABLE"], "none"),
        (["score", "TABLE", "MODEL"], "expected"),
        (["score", "MODEL", "TABLE", "--anomalies", "1"], "--anomalies"),
        (["score", "MODEL", "TABLE", "-o", "x.xlsx"], "ends in .csv"),
        (["score", "MODEL", "TABLE", "--delimiter", ";"], "cells"),
        (["impute", "MODEL", "TABLE"], "--out"),
        (["impute", "MODEL", "TABLE", "-o", "TABLE"], "another file than the one that is read"),
        (["impute", "MODEL", "TABLE", "-o", "none/f.csv"], "folder that exists"),
        (["impute", "MODEL", "TABLE", "-o", "folder.csv"], "the folder folder.csv"),
        (["impute", "MODEL", "TABLE", "-o", "f.csv", "--how", "best"], "--how"),
        (["impute", "MODEL", "TABLE", "-o", "f.csv", "--copies", "2"], "--how sample"),
        (["impute", "MODEL", "TABLE", "-o", "f.csv", "--how", "sample", "--copies", "0"], "--copies"),
        (["impute", "MODEL", "TABLE", "-o", "f.csv", "--seed", "x"], "--seed"),
        (["classify", "MODEL", "TABLE", "-o", "f.csv"], "--column"),
        (["classify", "MODEL", "TABLE", "--column", "pets", "-o", "f.csv"], "one of length, pet"),
        (["predict", "MODEL", "TABLE", "--column", "pet", "--quantiles", "0.5", "-o", "f.csv"], "a column of numbers"),
        (["predict", "MODEL", "TABLE", "--column", "length", "--quantiles", "5", "-o", "f.csv"], "between 0 and 1"),
        (["probability", "MODEL", "length"], "NAME=VALUE"),
        (["probability", "MODEL"], "a mapping"),
        (["explain", "MODEL", "TABLE", "--row", "9999"], "--row"),
        (["sample", "MODEL", "-o", "f.csv", "-n", "0"], "--count"),
        (["report", "MODEL"], "--data"),
        (["report", "MODEL", "--data", "TABLE", "-o", "r.pdf"], ".html"),
    ],
)
def test_mistakes_are_one_line(arguments, match, run, model, table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.csv").mkdir()
    before = sorted(tmp_path.iterdir())
    content = table.read_bytes()
    places = {"MODEL": str(model), "TABLE": str(table)}
    code, printed, error = run(*(places.get(word, word) for word in arguments))
    assert (code, printed) == (2, "")
    assert error.count("picirc: error: ") == 1
    assert error.splitlines()[-1].startswith("picirc: error: ")
    assert match in error.splitlines()[-1]
    assert "Traceback" not in error
    assert sorted(tmp_path.iterdir()) == before
    assert table.read_bytes() == content


@pytest.mark.parametrize("command", [["score"], ["impute"], ["classify", "--column", "pet"]])
def test_evidence_for_a_folder_is_refused(command, run, model, tmp_path):
    (tmp_path / "folder").mkdir()
    code, _, error = run(
        *command[:1], model, tmp_path / "folder", "-o", tmp_path / "out", *command[1:], "--given", "pet=cat"
    )
    assert code == 2
    assert "--given: expected a single table" in error


def test_columns_that_are_absent_are_missing(run, model, table, tmp_path):
    partial, absent = tmp_path / "partial.csv", [[*row[:1], *row[2:]] for row in rows()]
    partial.write_text(text(absent, [COLUMNS[0], *COLUMNS[2:]]), encoding="utf-8", newline="")
    code, _, told = run("score", model, partial, "-o", tmp_path / "s.csv")
    assert code == 0
    assert "not in the table and taken as missing: pet" in told
    assert run("impute", model, partial, "-o", tmp_path / "f.csv")[0] == 0
    header, cells = read(tmp_path / "f.csv")
    assert header == [COLUMNS[0], *COLUMNS[2:], "pet"]
    assert all(row[-1] in ("cat", "dog", "émeu, large") for row in cells)


def test_wrong_columns_are_named(run, model, tmp_path):
    cells = rows()
    path = tmp_path / "other.csv"
    path.write_text(text(cells, list("abcdef")), encoding="utf-8", newline="")
    code, _, error = run("score", model, path)
    assert code == 2
    assert "expected columns of the model (length, pet" in error
    assert "got a, b, c" in error
    path = tmp_path / "unseen.csv"
    path.write_text(text([[*row[:1], "unicorn", *row[2:]] for row in cells]), encoding="utf-8", newline="")
    code, _, error = run("score", model, path)
    assert code == 2
    assert "'pet'" in error
    assert "unicorn" in error


def test_unseen_categories_may_count_as_missing(run, table, tmp_path):
    assert run("fit", table, "--out", tmp_path / "m", *QUICK, "--unseen", "missing")[0] == 0
    cells, gaps = rows(), rows()
    cells[20][1], gaps[20][1] = "unicorn", ""
    for name, content in (("a", cells), ("b", gaps)):
        (tmp_path / f"{name}.csv").write_text(text(content), encoding="utf-8", newline="")
    first = run("score", tmp_path / "m", tmp_path / "a.csv")
    assert first[0] == 0
    assert first[1] == run("score", tmp_path / "m", tmp_path / "b.csv")[1]
    assert run("impute", tmp_path / "m", tmp_path / "a.csv", "-o", tmp_path / "f.csv")[0] == 0
    assert read(tmp_path / "f.csv")[1][20][1] == "unicorn"  # it was observed


# Missingness


def test_missing_cells_are_evidence_and_can_be_drawn(run, table, tmp_path):
    model = tmp_path / "gaps"
    code, _, told = run("fit", table, "--out", model, "--missingness", *QUICK)
    assert code == 0
    assert "2 modelled" in told
    out = tmp_path / "drawn.csv"
    assert (
        run("sample", model, "-n", 40, "-o", out, "--gaps", "--given", "pet=missing", "--given", "flag=observed")[0]
        == 0
    )
    _, cells = read(out)
    assert {row[1] for row in cells} == {""}
    assert {row[2] for row in cells} <= {"0", "1"}
    assert all(row[3] == "" or is_whole(row[3]) for row in cells)
    assert run("impute", model, table, "-o", tmp_path / "filled.csv")[0] == 0
    assert not any("" in row for row in read(tmp_path / "filled.csv")[1])


def test_a_model_without_missingness_says_so(run, model, tmp_path):
    code, _, told = run("sample", model, "-o", tmp_path / "x.csv", "--gaps")
    assert code != 0
    assert "missingness" in told
