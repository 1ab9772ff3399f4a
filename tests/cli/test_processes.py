# SPDX-License-Identifier: Apache-2.0
"""The program as a user starts it: exit codes, and errors of one line."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from cli.table_cases import QUICK, read, rows, text
from picirc.tables import TableModel
from processes import Done, Program

STORED = Path(__file__).parent.parent / "data" / "models" / "table"


def picirc(folder: Path, *arguments: object) -> Done:
    return Program(folder, *arguments).wait()


def refused(done: Done) -> str:
    """The one line of an error."""
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("picirc: error: ")
    return line


FILES = {
    "ragged": (b"a,b\n1,2\n3\n4,5\n", "t.csv, line 3: expected 2 cells, as in line 1, got 1"),
    "wide": (b"a,b\n1,2\n3,4,5\n", "t.csv, line 3: expected 2 cells, as in line 1, got 3"),
    "open quote": (b'a,b\n1,2\n3,"4\n5,6\n', "t.csv, line 3: expected a row of a CSV file"),
    "slip": (b"a,b\n1,2\n3,4\n5,6x\n", "t.csv, line 4: expected a finite number in column b as in line 2, got 6x"),
    "latin-1": ("a,b\n1,x\n2,é\n".encode("latin-1"), "t.csv, line 3: expected text in UTF-8"),
    "utf-16": ("a,b\n1,2\n".encode("utf-16"), "t.csv, line 1: expected text in UTF-8"),
    "empty": (b"", "t.csv: expected a CSV file, got an empty one"),
    "blank": (b"\n \n\n", "t.csv"),
    "header": (b"a,b\n", "t.csv: expected at least one row, got a header alone"),
    "twice": (b"a,b,a\n1,2,3\n", "t.csv: expected a unique name for every column, got 'a' twice"),
    "unnamed": (b"a,,c\n1,2,3\n", "t.csv: expected a unique name for every column, got none for column 1"),
    "semicolons": (b"a;b\n1;2\n", "--delimiter ';'"),
    "binary": (bytes(range(256)), "t.csv"),
}


@pytest.mark.parametrize(("content", "match"), FILES.values(), ids=FILES)
def test_a_file_that_is_wrong(content, match, tmp_path):
    (tmp_path / "t.csv").write_bytes(content)
    assert match in refused(picirc(tmp_path, "fit", "t.csv", "--out", "model"))
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_a_missing_file_a_folder_and_a_name(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    assert "none.csv: expected a file" in refused(picirc(tmp_path, "fit", "none.csv", "--out", "model"))
    assert "folder.csv: expected a file" in refused(picirc(tmp_path, "fit", "folder.csv", "--out", "model"))
    assert "--data mnist" in refused(picirc(tmp_path, "fit", "mnist", "--out", "model"))


def test_from_a_table_to_a_model_and_back(tmp_path):
    """A byte-order mark, quoted cells with line breaks, semicolons, and letters that the terminal does not have."""
    content = "\ufeff" + text(rows(), delimiter=";")
    (tmp_path / "tablé.csv").write_text(content, encoding="utf-8", newline="")
    done = picirc(tmp_path, "fit", "tablé.csv", "--out", "model", "--delimiter", ";", *QUICK)
    assert done.returncode == 0, done.stderr
    assert "missing" in done.stderr.splitlines()[1]
    done = picirc(tmp_path, "impute", "tablé.csv", "-o", "filled.csv", "--delimiter", ";")
    assert done.returncode == 0, done.stderr
    header, cells = read(tmp_path / "filled.csv", ";")
    assert header[0] == "length"
    assert "a\nb" in {row[-1] for row in cells}
    assert "cells" in refused(picirc(tmp_path, "score", "model", "filled.csv"))  # which has semicolons, too


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_ctrl_c_saves_what_was_best_so_far(tmp_path):
    (tmp_path / "t.csv").write_text(text(rows()), encoding="utf-8", newline="")
    os.mkfifo(tmp_path / "progress")
    options = ["--steps", "1000000", "--points", "4", "--width", "4", "--validate-every", "1", "--patience", "0"]
    program = Program(tmp_path, "fit", "t.csv", "--out", "model", *options, err=tmp_path / "progress")
    with (tmp_path / "progress").open("rb") as lines:
        for line in lines:
            if line.startswith(b"step "):
                break
        assert program.process.pid is not None
        os.kill(program.process.pid, signal.SIGINT)
        rest = lines.read()
    done = program.wait()
    assert done.returncode == 130, rest
    assert "interrupted" in done.stdout
    assert TableModel.load(tmp_path / "model").summary["training"]["stopped"] == "interrupted"


@pytest.mark.skipif(os.name != "posix", reason="needs pipes that break")
def test_a_reader_that_goes_away_is_no_error(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    program = Program(tmp_path, "inspect", STORED, out=tmp_path / "pipe")
    os.close(os.open(tmp_path / "pipe", os.O_RDONLY))
    assert program.wait() == Done(141, "", "")
