# SPDX-License-Identifier: Apache-2.0
"""The map over Arrow tables: its parts against the model itself, and what it does in other processes."""

from __future__ import annotations

import pickle
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
import torch
from mixed_tables import mixed_model, mixed_table

import picirc as pc
from picirc.errors import ArgumentError
from processes import CONTEXT


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mapper") / "model"
    mixed_model().save(folder)
    return folder


@pytest.fixture(scope="module")
def rows():
    table = pa.table(mixed_table())
    return table.append_column("id", pa.array(range(table.num_rows)))


def test_scores_are_those_of_the_model(path, rows):
    found = pc.mapper(path, "score", keep=["id"])(rows)
    assert found.column_names == ["id", "log_density"]
    assert found["id"].to_pylist() == rows["id"].to_pylist()
    assert np.array_equal(found["log_density"].to_numpy(), mixed_model().log_density(mixed_table()))


@pytest.mark.parametrize("how", ["mean", "median", "mode", "sample"])
def test_imputed_tables_have_the_same_columns_and_types_and_no_gaps(path, rows, how):
    found = pc.mapper(path, "impute", how=how)(rows)
    assert found.schema == rows.schema
    assert not any(column.null_count for column in found)
    for name in rows.column_names:
        for before, after in zip(rows[name].to_pylist(), found[name].to_pylist(), strict=True):
            assert before is None or before == after


def test_imputed_means_are_those_of_the_model(path, rows):
    found, expected = pc.mapper(path, "impute")(rows), mixed_model().impute(pa.table(mixed_table()))
    assert found.drop_columns(["id"]).to_pydict() == expected.to_pydict()


def test_a_column_of_categories_stays_one_of_a_dictionary_type(path, rows):
    coded = rows.set_column(1, "text", rows["text"].dictionary_encode())
    found = pc.mapper(path, "impute")(coded)
    assert found.schema == coded.schema
    assert found["text"].cast("string").to_pylist() == pc.mapper(path, "impute")(rows)["text"].to_pylist()


def test_classes_are_those_of_the_model(path, rows):
    found = pc.mapper(path, "classify", column="text")(rows)
    without = {name: cells for name, cells in mixed_table().items() if name != "text"}
    expected = mixed_model().predict(without, "text")
    assert found.column_names == ["text", "p(high)", "p(low)", "p(middle)"]
    assert np.array_equal(np.column_stack([found[name] for name in found.column_names[1:]]), expected)
    assert found["text"].to_pylist() == [("high", "low", "middle")[place] for place in expected.argmax(1)]


def test_draws_keep_what_is_known_and_repeat_with_the_same_rows(path, rows):
    draw = pc.mapper(path, "sample", n=3, keep=["id"], seed=4)
    found = draw(rows)
    assert found["id"].to_pylist() == [row for row in rows["id"].to_pylist() for _ in range(3)]
    for before, after in zip(rows["text"].to_pylist(), found["text"].to_pylist()[::3], strict=True):
        assert before is None or before == after
    assert not any(column.null_count for column in found)
    assert draw(rows).equals(found)
    assert not pc.mapper(path, "sample", n=3, keep=["id"], seed=5)(rows).equals(found)


def test_rows_of_which_nothing_is_known_are_drawn_from_the_whole_distribution(path):
    found = pc.mapper(path, "sample", keep=["id"])(pa.table({"id": range(50)}))
    assert found.num_rows == 50
    assert len(set(found["real"].to_pylist())) == 50


@pytest.mark.parametrize("options", [{"task": "score"}, {"task": "impute"}, {"task": "classify", "column": "text"},
                                     {"task": "sample", "n": 2}])  # fmt: skip
def test_parts_give_the_result_of_the_whole_and_empty_ones_its_types(path, rows, options):
    each = pc.mapper(path, **options)
    whole, empty = each(rows), each(rows.slice(0, 0))
    assert empty.schema == whole.schema == each.schema(rows.schema)
    assert empty.num_rows == 0
    parts = list(each.batches(rows.to_batches(max_chunksize=17)))
    assert all(isinstance(part, pa.RecordBatch) for part in parts)
    joined = pa.Table.from_batches(parts)
    assert joined.schema == whole.schema
    if options["task"] != "sample":  # whose draws depend on the part
        for name in whole.column_names:
            cells = whole[name].to_pylist(), joined[name].to_pylist()
            np.testing.assert_array_equal(
                *([c if isinstance(c, str | int) else round(c, 10) for c in p] for p in cells)
            )


def test_another_process_computes_the_same_bits(path, rows):
    each = pickle.loads(pickle.dumps(pc.mapper(path, "score")))
    with ProcessPoolExecutor(1, CONTEXT) as pool:
        assert pool.submit(each, rows).result().equals(each(rows))


def test_the_number_of_threads_is_as_before(path, rows):
    torch.set_num_threads(2)
    try:
        pc.mapper(path, "score")(rows)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_a_model_that_changes_is_loaded_again(tmp_path, rows):
    mixed_model().save(tmp_path / "model")
    score = pc.mapper(tmp_path / "model", "score")
    before = score(rows)
    other = pc.fit_table(mixed_table(), {"count": "poisson"}, points=8, width=8, steps=3, settings={"members": 1})
    other.save(tmp_path / "model")
    assert not score(rows).equals(before)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"task": "guess"}, "task"),
        ({"task": "score", "how": "mean"}, "how.*task 'impute'"),
        ({"task": "score", "n": 2}, "n.*task 'sample'"),
        ({"task": "score", "keep": "id"}, r"write \['id'\]"),
        ({"task": "impute", "keep": ["id"]}, "keep"),
        ({"task": "sample", "keep": ["real"]}, "rename"),
        ({"task": "classify"}, "column"),
        ({"task": "classify", "column": "real"}, "which is"),
        ({"task": "impute", "how": "best"}, "how"),
        ({"task": "sample", "n": -1}, "n"),
    ],
)
def test_mistakes_are_reported_where_the_map_is_made(path, options, words):
    with pytest.raises(ArgumentError, match=words):
        pc.mapper(path, **options)


def test_mistakes_in_a_part_are_reported(path, rows, tmp_path):
    score = pc.mapper(path, "score", keep=["id"])
    with pytest.raises(ArgumentError, match=r"from_pandas"):
        score(rows.to_pandas())
    with pytest.raises(ArgumentError, match="to be kept"):
        score(rows.drop_columns(["id"]))
    with pytest.raises(ArgumentError, match="columns of the model"):
        score(rows.select(["id"]))
    with pytest.raises(ArgumentError, match="all processes must reach it"):
        pc.mapper(tmp_path / "none", "score")
