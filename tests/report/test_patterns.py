# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter

import numpy as np
from report_cases import cells_of, parsed

from picirc.report.sections import columns_section as section
from picirc.report.sections import gather, patterns
from picirc.tables import fit_table


def test_patterns_count_the_rows_with_the_same_gaps(mixed, material):
    _, table = mixed
    columns = list(table.values())
    rows = range(len(columns[0]))
    wanted = Counter(tuple(j for j, column in enumerate(columns) if column[row] is None) for row in rows)
    assert dict(patterns(material)) == wanted
    assert [count for _, count in patterns(material)] == sorted(wanted.values(), reverse=True)


def test_every_column_has_a_line_with_what_is_missing(mixed, material):
    _, table = mixed
    lines = cells_of(section(material))[1:]
    assert [line[0] for line in lines] == list(table)
    for line, column in zip(lines, table.values(), strict=True):
        gone = sum(cell is None for cell in column)
        assert line[-1].startswith(f"{gone} (") if gone else line[-1] == "none"


def test_complete_rows_are_counted(mixed, material):
    _, table = mixed
    complete = sum(all(cell is not None for cell in row) for row in zip(*table.values(), strict=True))
    assert f"{complete} of {material.rows} rows" in section(material)


def test_a_table_without_gaps_has_no_list():
    table = {"x": [1.0, 2.0, 3.5, 4.0]}
    page = parsed(section(gather(fit_table(table, steps=2, settings={"members": 1}), table, seed=0)))
    assert page.find("ul") is None
    assert any("4 of 4 rows (100 %)" in "".join(p.itertext()) for p in page.iter("p"))


def test_values_are_in_the_units_of_the_table():
    table = {"big": (1e6 + 1000 * np.arange(50.0)).tolist(), "few": ["<i>"] * 30 + ["b"] * 20}
    big, few = cells_of(section(gather(fit_table(table, steps=2, settings={"members": 1}), table, seed=0)))[1:]
    assert big[2] == "1e6 … 1.05e6"
    assert few[2] == "<i>, b"
