# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from report_cases import SVG, parsed

from picirc.report.sections import curves
from picirc.report.sections import training_section as section


class Stand:
    """Something with a model that has a summary."""

    def __init__(self, summary):
        self.model = self
        self.summary = summary


def test_curves_are_those_of_the_records():
    records = [{"step": 20, "train": -2.0, "valid": -2.5}, {"step": 10, "train": -3.0, "valid": None}]
    found = curves({"training": {"records": records}})
    assert found == {"train": [(10.0, -3.0), (20.0, -2.0)], "valid": [(20.0, -2.5)]}


@pytest.mark.parametrize(
    "summary",
    [
        {},
        {"training": None},
        {"training": {"records": "<script>"}},
        {"training": {"records": [1, None, {"step": "1", "train": "2"}, {"step": True, "train": float("nan")}]}},
        {"training": {"records": [{"train": 1.0}]}},
    ],
)
def test_a_summary_that_says_anything_else_is_no_record(summary):
    assert curves(summary) == {}
    assert "without a record" in section(Stand(summary))


def test_strange_entries_beside_good_ones_do_no_harm():
    summary = {
        "training": {"records": [{"step": 1, "train": -1.0}, 5], "best_step": [], "stopped": "<b>why</b>"},
        "rows": "none",
        "log_density": {"train": float("inf"), "valid": {}},
        "seconds": {"training": None},
        "settings": [1],
    }
    page = parsed(section(Stand(summary)))
    assert "Ended: <b>why</b>." in "".join(page.itertext())
    assert page.find(".//b") is None


def test_the_line_rises_where_the_likelihood_does():
    records = [{"step": 10 * i, "train": -5.0 + i, "valid": -6.0 + i} for i in range(1, 5)]
    page = parsed(section(Stand({"training": {"records": records, "best_step": 40}})))
    lines = [path.get("d") for path in page.iter(f"{SVG}path") if "line" in path.get("class")]
    assert len(lines) == 2
    for line in lines:
        heights = [float(point.split()[1]) for point in line[1:].split("L")]
        assert heights == sorted(heights, reverse=True)  # in drawings up is less
    dot = next(page.iter(f"{SVG}circle"))
    assert f"{float(dot.get('cx')):.0f}" == f"{float(lines[1].split('L')[-1].split()[0]):.0f}"
