# SPDX-License-Identifier: Apache-2.0
"""Commands on models from others: one line that says what is wrong, and nothing that controls the terminal."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load as load_tensors

import picirc as pc
from cli.table_cases import QUICK
from picirc.cli import fit as cli_fit
from picirc.cli import main
from picirc.io import files

ESCAPE = "\x1b[31mred\x07\u202e"
SUMMARIES: list[Any] = [
    *(None, 3, [], "text", {"maker": "picirc fit", "query": 7}, {"maker": ["picirc fit"]}),
    {"maker": "picirc fit", "query": {"rule": "shifted", "points": 10**12}},
    {"maker": "picirc fit", "query": {"rule": ["x"], "points": 8}},
    {"maker": "picirc fit", "query": {"rule": "shifted", "points": "8", "extra": 1}},
    {"maker": "picirc fit", "test": 4, "command": 5, "stopped": {}},
    {"maker": "picirc fit", "test": {"bits": 10**400}},
    {"maker": "picirc fit", "test": {"bits": "many"}, "command": ESCAPE, "stopped": f"a\n{ESCAPE}"},
    {"maker": "picirc fit", "data": {"columns": 3, "levels": [], "image_shape": [2]}},
    {"maker": "picirc fit", "data": {"columns": ["a", "b", ESCAPE], "levels": {"a": ["x"]}, "image_shape": None}},
    {"maker": "picirc fit", "data": {"columns": ["a", "b", "c"], "levels": {}, "image_shape": [10**6, 10**6]}},
]


def write(path: Path, model: pc.PIC, **changes: Any) -> None:
    """A file that says anything, with checksums that agree."""
    pc.save(model, path)
    tensors = load_tensors(path.read_bytes())
    full = pc.io.describe(path) | changes
    text = json.dumps({"sha256": files._sign(full), "description": full})
    path.write_bytes(files.save(tensors, metadata={"picirc": text}))


@pytest.mark.parametrize("summary", SUMMARIES, ids=range(len(SUMMARIES)))
@pytest.mark.parametrize("command", [["inspect"], ["sample", "-n", "2", "--out", "out.png"]], ids=lambda c: c[0])
def test_a_summary_may_say_anything(command, summary, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "m.safetensors", pc.PIC(pc.chain(3), pc.Bernoulli(), width=4), summary=summary)
    assert main([command[0], "m.safetensors", *command[1:]]) in (0, 2)
    out, err = capsys.readouterr()
    assert err.count("\n") <= 1
    assert all(letter.isprintable() or letter == "\n" for letter in out + err)


@pytest.mark.parametrize("table", [None, 3, [], {}, {"points": 8}, {"points": "8", "schema": ESCAPE}])
def test_a_table_may_be_none(table, tmp_path, capsys):
    path = tmp_path / "m.safetensors"
    write(path, pc.PIC(pc.chain(3), pc.Bernoulli(), width=4), table=table)
    assert main(["inspect", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_points_for_a_far_larger_circuit_are_refused(tmp_path):
    from picirc.tables import TableModel, fit_table

    table = {"x": [0.1 * i for i in range(40)], "y": list("abcd") * 10}
    model = fit_table(table, steps=2, points=3, width=4)
    model.save(tmp_path / "m.safetensors")
    description = pc.io.describe(tmp_path / "m.safetensors")
    changed = description["table"] | {"points": 1016}
    write(tmp_path / "m.safetensors", model.pic, table=changed)
    with pytest.raises(pc.ArgumentError, match=r"points: expected points for at most"):
        TableModel.load(tmp_path / "m.safetensors")


def test_names_of_columns_cannot_control_the_terminal(tmp_path, capsys):
    path = tmp_path / "t.csv"
    path.write_text(f"{ESCAPE},y\n" + "".join(f"{i},{'ab'[i % 2]}{ESCAPE}\n" for i in range(20)), encoding="utf-8")
    assert main(["fit", str(path), "--out", str(tmp_path / "model"), *QUICK]) == 0
    for command in (
        ["inspect"],
        ["score", str(path)],
        ["classify", str(path), "--column", "y", "-o", f"{tmp_path}/o.csv"],
    ):
        assert main([command[0], str(tmp_path / "model"), *command[1:]]) == 0
        out, err = capsys.readouterr()
        assert all(letter.isprintable() or letter == "\n" for letter in out + err)


def test_formulas_are_marked_on_request(tmp_path):
    path, model, out = tmp_path / "t.csv", tmp_path / "model", tmp_path / "out.csv"
    path.write_text("x,y\n" + "".join(f"{i},{'=1+1' if i % 2 else ''}\n" for i in range(20)))
    assert main(["fit", str(path), "--out", str(model), *QUICK]) == 0
    for command in (["impute", str(model), str(path)], ["sample", str(model), "-n", "5"]):
        assert main([*command, "-o", str(out)]) == 0
        assert ",=1+1\n" in out.read_text()
        assert main([*command, "-o", str(out), "--spreadsheet-safe"]) == 0
        assert ",'=1+1\n" in out.read_text()
        assert ",=1+1\n" not in out.read_text()


@pytest.mark.skipif(os.name != "posix", reason="needs signals that a process can send itself")
@pytest.mark.parametrize("moment", ["before saving", "while saving"])
def test_what_was_learned_is_saved_before_an_interrupt_ends_the_program(moment, tmp_path, monkeypatch, capsys):
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + "".join(f"{i},{'ab'[i % 2]}\n" for i in range(20)))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    fsync, versions = os.fsync, cli_fit._versions

    def press(value: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return fsync(value) if isinstance(value, int) else value

    if moment == "before saving":
        monkeypatch.setattr(cli_fit, "_versions", lambda: press(versions()))
    else:
        monkeypatch.setattr(os, "fsync", lambda number: (press(number), monkeypatch.setattr(os, "fsync", fsync)))
    try:
        assert main(["fit", str(path), "--out", str(tmp_path / "model"), *QUICK]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err.splitlines()[-1] == "picirc: interrupted"
    assert isinstance(pc.load(tmp_path / "model"), torch.nn.Module)
