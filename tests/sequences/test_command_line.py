# SPDX-License-Identifier: Apache-2.0
"""``picirc fit --sequences``, ``forecast`` and ``report``; the page and the estimator."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from sklearn.base import clone

import picirc as pc

QUICK = ("--points", 12, "--steps", 10, "--dims", 1, "--width", 4)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "weather.csv"
    rng = np.random.default_rng(0)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["town", "day", "warmth", "sky"])
        for town, days in (("Bern", 30), ("Lund", 20)):
            warmth = np.cumsum(rng.normal(size=days)) * 0.5 + 12
            for day in range(days):
                shown = "" if day == 7 else f"{warmth[day]:.2f}"
                writer.writerow([town, f"2024-03-{day + 1:02d}", shown, "clear" if warmth[day] > 12 else "grey"])
    return path


@pytest.fixture(scope="module")
def fitted(table):
    from picirc.cli import main

    out = table.parent / "model"
    arguments = ("fit", table, "--sequences", "--by", "town", "--time", "day", "--out", out, *QUICK)
    assert main([str(a) for a in arguments]) == 0
    return out


def test_a_model_of_sequences_forecasts_every_one(run, table, fitted, tmp_path):
    out = tmp_path / "forecast.csv"
    code, printed, _ = run(
        "forecast", fitted, table, "--steps", 3, "--quantiles", 0.1, "--quantiles", 0.9, "--out", out
    )
    assert (code, printed) == (0, f"forecast 3 steps of 2 sequences; saved {out}\n")
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["town"] for row in rows] == ["Bern"] * 3 + ["Lund"] * 3
    assert [row["time"][:10] for row in rows[:3]] == ["2024-03-31", "2024-04-01", "2024-04-02"]
    assert float(rows[0]["warmth 10%"]) < float(rows[0]["warmth"]) < float(rows[0]["warmth 90%"])
    assert float(rows[0]["sky = clear"]) + float(rows[0]["sky = grey"]) == pytest.approx(1.0, abs=1e-6)


def test_the_report_shows_series_states_and_surprises(run, table, fitted, tmp_path):
    out = tmp_path / "page.html"
    code, printed, _ = run("report", fitted, "--data", table, "--out", out)
    assert (code, printed) == (0, f"saved {out}\n")
    page = out.read_text(encoding="utf-8")
    for words in ("Series and forecasts", "Filtered state", "Surprises", "Calibration", "Bern · warmth", "latent 1"):
        assert words in page
    assert "<script" not in page
    assert "nan" not in page.replace("nanmean", "").lower().split("<main>")[1].split("<tbody>")[0]


def test_names_cannot_break_out_of_the_page(tmp_path):
    name = "<script>alert(1)</script>"
    model = pc.fit_sequences({name: np.sin(np.arange(30.0))}, dims=1, points=12, steps=5)
    pc.write_sequence_report(model, {name: np.sin(np.arange(30.0))}, tmp_path / "page.html", steps=2)
    assert "<script>" not in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--by", "town"), "add --sequences"),
        (("--sequences", "--by", "city"), "one of the columns"),
        (("--sequences", "--em"), "an option for sequences"),
    ],
)
def test_mistakes_are_named(run, table, tmp_path, arguments, message):
    code, _, error = run("fit", table, "--out", tmp_path / "m", *arguments)
    assert code != 0
    assert message in error


def test_a_table_without_the_times_is_refused(run, fitted, tmp_path):
    path = tmp_path / "other.csv"
    path.write_text("town,warmth\nBern,3\n")
    code, _, error = run("forecast", fitted, path, "--out", tmp_path / "f.csv")
    assert code != 0
    assert "the column day" in error


def test_the_estimator_follows_scikit_learn():
    series = [np.sin(np.arange(n) / 3) for n in (30, 40)]
    chain = clone(pc.PICSequences(dims=1, points=12, steps=5)).fit(series)
    rows = sum(map(len, series))
    assert chain.score(series) == pytest.approx(chain.score_samples(series).sum() / rows)
    assert [part.shape for part in chain.transform(series)] == [(30, 1), (40, 1)]
    assert chain.forecast(series[0], 2).mean["x"].shape == (2,)
    assert chain.get_params()["dims"] == 1
