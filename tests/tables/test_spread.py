# SPDX-License-Identifier: Apache-2.0
"""A map over a folder of Parquet files: nothing is lost, nothing is done twice, and mistakes are found beforehand."""

from __future__ import annotations

import json
import multiprocessing

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mixed_tables import mixed_model, mixed_table

import picirc as pc
from picirc.errors import ArgumentError
from picirc.tables import mapping as module
from picirc.tables.mapping import MANIFEST, find_fragments, plan_spread
from processes import CONTEXT


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("spread") / "model"
    mixed_model().save(path)
    return path


@pytest.fixture
def big(tmp_path):
    """Files of different sizes, one empty, one in a subfolder, and one that other readers ignore too."""
    table, folder = pa.table(mixed_table()), tmp_path / "big"
    (folder / "sub").mkdir(parents=True)
    for name, start, rows in (("a", 0, 25), ("b", 25, 10), ("empty", 0, 0), ("sub/c", 35, 25)):
        pq.write_table(table.slice(start, rows), folder / f"{name}.parquet", row_group_size=10)
    (folder / "_ignored.parquet").write_bytes(b"")
    return folder


@pytest.fixture
def here(monkeypatch):
    """Maps in this process, and the names of the files that were made."""
    made = []

    class Pool:
        def __init__(self, workers, context, initializer, arguments):
            self._processes = {}
            module._done = arguments[0]

        def submit(self, call, *arguments):
            future = module.Future()
            made.append(arguments[-1].name)
            try:
                future.set_result(call(*arguments))
            except BaseException as error:
                future.set_exception(error)
            return future

        def shutdown(self, cancel_futures=False):
            pass

    monkeypatch.setattr(module, "ProcessPoolExecutor", Pool)
    return made


def outputs(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.parquet")}


def test_every_file_gives_one_with_the_same_rows(model, big, tmp_path, here):
    score = pc.mapper(model, "score")
    seen = []
    plan_spread(score, big, tmp_path / "out", workers=1).run(seen.append)
    assert sorted(outputs(tmp_path / "out")) == ["a.parquet", "b.parquet", "empty.parquet", "sub/c.parquet"]
    for each in find_fragments(big):
        found = pq.read_table(tmp_path / "out" / each.name)
        assert found.equals(score(pq.read_table(big / each.name)))
    assert seen[-1] == 60
    assert json.loads((tmp_path / "out" / MANIFEST).read_text())["complete"] is True


def test_batches_of_a_file_do_not_change_the_number_or_order_of_rows(model, big, tmp_path, here, monkeypatch):
    monkeypatch.setattr(module, "_ROWS", 7)
    plan_spread(pc.mapper(model, "score"), big, tmp_path / "out", workers=1).run()
    expected = mixed_model().log_density(mixed_table())
    found = np.concatenate([pq.read_table(tmp_path / "out" / name)["log_density"] for name in
                            ("a.parquet", "b.parquet", "sub/c.parquet")])  # fmt: skip
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_real_processes_write_the_same_bytes(model, big, tmp_path, here, monkeypatch):
    impute = pc.mapper(model, "impute")
    plan_spread(impute, big, tmp_path / "one", workers=1).run()
    monkeypatch.undo()
    monkeypatch.setattr(multiprocessing, "get_context", lambda kind: CONTEXT)  # faster than to spawn, else the same
    plan_spread(impute, big, tmp_path / "two", workers=2).run()
    assert outputs(tmp_path / "two") == outputs(tmp_path / "one")


def test_resuming_makes_only_what_is_not_there(model, big, tmp_path, here):
    score, out = pc.mapper(model, "score"), tmp_path / "out"
    plan_spread(score, big, out, workers=1).run()
    before = outputs(out)
    (out / "b.parquet").unlink()
    (out / "sub/c.parquet").write_bytes(before["sub/c.parquet"][:40])
    (out / ".b.parquet.0123456789abcdef.partial").write_bytes(b"left over")
    here.clear()
    plan_spread(score, big, out, workers=1, resume=True).run()
    assert sorted(here) == ["b.parquet", "c.parquet"]
    assert outputs(out) == before
    assert not list(out.rglob("*.partial"))


def test_an_error_leaves_no_half_file_and_can_be_resumed(model, big, tmp_path, here, monkeypatch):
    score, out = pc.mapper(model, "score"), tmp_path / "out"
    calls, call = [], type(score).__call__

    def failing(self, table):
        calls.append(table.num_rows)
        if len(calls) == 2:
            raise RuntimeError("gone")
        return call(self, table)

    monkeypatch.setattr(module, "_ROWS", 10)
    with monkeypatch.context() as patch:
        patch.setattr(type(score), "__call__", failing)
        with pytest.raises(RuntimeError, match="gone"):
            plan_spread(score, big, out, workers=1).run()
    assert "a.parquet" not in outputs(out)
    assert json.loads((out / MANIFEST).read_text())["complete"] is False
    plan_spread(score, big, out, workers=1, resume=True).run()
    assert sum(len(pq.read_table(out / each.name)) for each in find_fragments(big)) == 60


def test_other_results_are_neither_mixed_nor_overwritten_unasked(model, big, tmp_path, here):
    out = tmp_path / "out"
    plan_spread(pc.mapper(model, "score"), big, out, workers=1).run()
    with pytest.raises(ArgumentError, match="--resume continues there"):
        plan_spread(pc.mapper(model, "score"), big, out)
    with pytest.raises(ArgumentError, match="another task"):
        plan_spread(pc.mapper(model, "impute"), big, out, resume=True)
    pq.write_table(pa.table(mixed_table()), big / "more.parquet")
    with pytest.raises(ArgumentError, match="another set of input files"):
        plan_spread(pc.mapper(model, "score"), big, out, resume=True)
    plan_spread(pc.mapper(model, "score"), big, out, workers=1, overwrite=True).run()
    assert "more.parquet" in outputs(out)


def test_mistakes_are_found_before_any_work(model, big, tmp_path):
    score = pc.mapper(model, "score")
    with pytest.raises(ArgumentError, match="another folder"):
        plan_spread(score, big, big)
    with pytest.raises(ArgumentError, match="none there"):
        plan_spread(score, tmp_path / "nothing", tmp_path / "out")
    pq.write_table(pa.table({"real": [1.0]}), big / "d.parquet")
    with pytest.raises(ArgumentError, match=r"the columns and types of a\.parquet"):
        plan_spread(score, big, tmp_path / "out")
    (big / "d.parquet").write_bytes(b"PAR1")
    with pytest.raises(ArgumentError, match="a Parquet file"):
        plan_spread(score, big, tmp_path / "out")


def test_the_command_line(model, big, tmp_path, here, run):
    out = tmp_path / "out"
    code, said, told = run("score", model, big, "-o", out, "--workers", "1")
    assert code == 0
    assert "score: 60 rows" in said
    assert "GiB of memory together" in told
    code, said, _ = run("score", model, big, "-o", out, "--resume")
    assert "score: 0 rows" in said
    assert run("impute", model, big, "-o", tmp_path / "filled")[0] == 0
    assert run("classify", model, big, "-o", tmp_path / "classes", "--column", "text")[0] == 0
    code, _, told = run("score", model, big, "-o", out, "--anomalies", "0.1")
    assert (code, "--anomalies" in told) == (2, True)
    code, _, told = run("score", model, big / "a.parquet", "--resume")
    assert (code, "a single file" in told) == (2, True)
    assert run("score", model, big)[0] == 2
