# SPDX-License-Identifier: Apache-2.0
"""Every experiment of the paper runs from its command, records what it must, and goes on after an interruption."""

from __future__ import annotations

import importlib
import json
import math
import threading
from pathlib import Path

import matplotlib.font_manager  # noqa: F401 - finds the user's fonts now, before the tests hide the cache
import pytest
import torch

import picirc as pc

ROOT = Path(__file__).parent.parent
EXPERIMENTS = ROOT / "experiments"
NAMES = (
    *("images", "best", "binomial", "steps", "seeds", "ptb", "cost", "fourier", "heatmaps"),
    *("binary", "grids", "regions", "search", "schedules"),
)
PICTURES = {
    "images": "scatter.png",
    "best": "best.png",
    "binomial": "scatter.png",
    "steps": "steps.png",
    "seeds": "seeds.png",
    "ptb": "bits.png",
    "cost": "cost.png",
    "fourier": "density.png",
    "heatmaps": "regions.png",
    "binary": "binary.png",
    "grids": "grids.png",
    "regions": "regions.png",
    "search": "search.png",
    "schedules": "schedules.png",
}
FIELDS = {
    *("key", "settings", "digest", "figures", "seed", "command", "revision", "date", "seconds", "peak_bytes"),
    *("versions", "threads", "processor", "cores"),
}


@pytest.fixture(autouse=True)
def _without_data(monkeypatch, tmp_path):
    """No data set but those that come with the package, so that every machine runs the same."""
    for folder in ("benchmarks", "experiments"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PICIRC_DATA", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))


def module(name: str):
    return importlib.import_module(name)


def reproduce(name: str, out: Path, *arguments: str) -> int:
    return module("reproduce").main([name, "--quick", "--out", str(out), *arguments])


def records(name: str, out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / name / "results.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_records_all_its_jobs_and_draws(name, tmp_path):
    assert reproduce(name, tmp_path) == 0
    found = records(name, tmp_path)
    jobs = module(f"{name}.run").jobs(quick=True)
    assert [record["key"] for record in found] == [job.key for job in jobs]
    for record, job in zip(found, jobs, strict=True):
        assert record.keys() >= FIELDS
        assert record["settings"] == json.loads(json.dumps(job.settings))
        assert record["seconds"] > 0
        assert record["command"].endswith(f"{name} --quick --only {job.key}")
        assert all(math.isfinite(value) for value in record["figures"].values() if isinstance(value, float))
    assert (tmp_path / name / PICTURES[name]).stat().st_size > 5000
    assert not any((tmp_path / "runs" / name).glob("*/**/checkpoint.safetensors")), "they are large"
    # What has been recorded is neither run nor recorded again.
    assert reproduce(name, tmp_path) == 0
    assert records(name, tmp_path) == found


def test_every_experiment_has_a_summary_and_a_table(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text((EXPERIMENTS / "README.md").read_text(encoding="utf-8"), encoding="utf-8")
    module("table").main(["--out", str(tmp_path), "--readme", str(readme)])
    text = readme.read_text(encoding="utf-8")
    assert text.count("not run yet") == len(NAMES)
    assert all(f"`make reproduce-{name}`" in text for name in NAMES)
    module("table").main(["--out", str(tmp_path), "--readme", str(readme)])
    assert readme.read_text(encoding="utf-8") == text, "writing it again changes nothing"


def test_the_figures_of_the_readme_come_from_the_records(tmp_path):
    ptb = module("ptb.run")
    reproduce("ptb", tmp_path, "--only", ptb.jobs(quick=True)[0].key)
    found = records("ptb", tmp_path)
    assert f"{found[0]['figures']['test']:.2f}" in ptb.summary(found)
    table = ptb.rows(found)
    assert len(table) == 1 + len(found)
    assert table[1][3] == f"{found[0]['figures']['test']:.3f}"


class Interruption:
    """Interrupts a training at its validation after a step, like Ctrl-C."""

    def __init__(self, at: int) -> None:
        self.at = at

    def __call__(self, record) -> None:
        if record["step"] == self.at:
            raise KeyboardInterrupt


@pytest.mark.parametrize("key", ["mnist-em-N4-B32-seed0", "mnist-pic-N4-B32-seed0"])
def test_an_interrupted_job_goes_on_as_if_never_stopped(key, tmp_path, monkeypatch, capsys):
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    reproduce("images", straight, "--only", key)
    with monkeypatch.context() as patch:
        patch.setattr(module("density"), "progress", lambda steps: Interruption(3))
        assert reproduce("images", stopped, "--only", key) == 130
    assert not (stopped / "images" / "results.jsonl").exists()
    assert any((stopped / "runs" / "images").glob("*/checkpoint.safetensors"))
    seen: list[float] = []
    monkeypatch.setattr(module("density"), "progress", lambda steps: lambda record: seen.append(record["step"]))
    assert reproduce("images", stopped, "--only", key) == 0
    assert seen == [6], "the first three steps are not done again"
    (expected,), (found,) = records("images", straight), records("images", stopped)
    timed = {"train_seconds", "test_seconds"}
    assert {k: v for k, v in found["figures"].items() if k not in timed} == {
        k: v for k, v in expected["figures"].items() if k not in timed
    }


def test_the_budget_interrupts_what_is_running():
    harness = module("harness")
    with pytest.raises(KeyboardInterrupt), harness.Budget(0).enforced():
        threading.Event().wait(60)


def test_the_budget_stops_before_the_next_job_and_says_how_to_go_on(tmp_path, capsys):
    assert reproduce("binary", tmp_path, "--minutes", "0") == 0
    assert not (tmp_path / "binary" / "results.jsonl").exists()
    assert "run it again to go on" in capsys.readouterr().out


def test_a_job_with_other_settings_is_run_again(tmp_path):
    harness = module("harness")

    def run(steps):
        job = harness.Job("one", {"steps": steps, "seed": 0}, lambda settings, context: {"test": settings["steps"]})
        runner = harness.Runner("trial", tmp_path)
        assert runner.run([job])
        return [record["figures"]["test"] for record in runner.records([job])]

    assert run(1) == [1]
    assert run(2) == [2]
    assert run(1) == [1]
    assert len(records("trial", tmp_path)) == 2


def test_a_job_that_fails_does_not_stop_the_others(tmp_path, capsys):
    harness = module("harness")

    def fail(settings, context):
        raise ZeroDivisionError("no luck")

    jobs = [harness.Job("bad", {}, fail), harness.Job("good", {}, lambda settings, context: {"test": 1.0})]
    assert not harness.Runner("trial", tmp_path).run(jobs)
    assert [record["key"] for record in records("trial", tmp_path)] == ["good"]
    assert "no luck" in capsys.readouterr().err


@pytest.mark.parametrize("name", NAMES)
def test_keys_are_unique_and_settings_plain(name):
    for quick in (False, True):
        jobs = module(f"{name}.run").jobs(quick)
        assert len({job.key for job in jobs}) == len(jobs)
        for job in jobs:
            assert json.loads(json.dumps(job.settings)) == job.settings
            assert all(character.isalnum() or character in "-_." for character in job.key), "it names a folder"


def test_the_region_of_a_latent_is_its_conditional_distribution():
    heatmaps = module("heatmaps.run")
    tree = pc.LatentTree((-1, 0, 1), ((0,), (1,), (2,)))
    model = pc.HCLT(tree, pc.Bernoulli(), states=3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad():
        qpc = model()
    nothing = torch.full((1, 3), torch.nan, dtype=torch.float64)
    prior = {name: posterior.probabilities[0] for name, posterior in qpc.latents(nothing).items()}
    for child, parent in (("z1", "z0"), ("z2", "z1")):
        weights = torch.tensor(heatmaps.region(model, qpc, child))
        torch.testing.assert_close(weights.sum(1), torch.ones(3, dtype=torch.float64))
        torch.testing.assert_close(prior[parent] @ weights, prior[child])


def test_roughness_is_one_for_noise_and_small_for_smooth_rows():
    heatmaps = module("heatmaps.run")
    noise = torch.rand(60, 200, generator=torch.Generator().manual_seed(0)).double().numpy()
    assert heatmaps.roughness(noise) == pytest.approx(1, abs=0.02)
    smooth = torch.linspace(0, 1, 200).double().expand(3, -1).numpy()
    assert heatmaps.roughness(smooth) == pytest.approx(3 / 201)
