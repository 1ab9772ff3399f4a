"""Every experiment of the paper runs from its command, records what it must, and goes on after an interruption."""

from __future__ import annotations

import importlib
import json
import math
import threading
from pathlib import Path

import matplotlib.font_manager  # noqa: F401 - finds the user's fonts now, before the tests hide the cache
import numpy as np
import pytest
import torch

import picirc as pc

ROOT = Path(__file__).parent.parent
EXPERIMENTS = ROOT / "experiments"
NAMES = (
    *("images", "best", "binomial", "steps", "seeds", "ptb", "cost", "fourier", "heatmaps"),
    *("binary", "grids", "regions", "search"),
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


def test_a_mixture_goes_on_in_its_second_component(tmp_path, monkeypatch):
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    reproduce("best", straight, "--only", "mnist-mixture")
    made = []

    def second(steps):
        made.append(steps)
        return Interruption(3) if len(made) == 2 else lambda record: None

    with monkeypatch.context() as patch:
        patch.setattr(module("density"), "progress", second)
        assert reproduce("best", stopped, "--only", "mnist-mixture") == 130
    assert reproduce("best", stopped, "--only", "mnist-mixture") == 0
    (expected,), (found,) = records("best", straight), records("best", stopped)
    for name in ("valid", "weights", "model"):
        assert found["figures"][name] == expected["figures"][name]


def test_the_test_waits_for_all_candidates(tmp_path, capsys):
    reproduce("best", tmp_path, "--only", "mnist-tree", "mnist-test")
    assert [record["key"] for record in records("best", tmp_path)] == ["mnist-tree"]
    assert "mnist-test waits for mnist-quad, mnist-mixture" in capsys.readouterr().out


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


def test_an_averaged_pic_is_judged_by_its_average():
    averaged = module("best.averaged").AveragedPIC(0.5, pc.chain(3), pc.Bernoulli(), width=4)
    rule, x = pc.midpoint(5), torch.tensor([[0.0, 1.0, 1.0]])
    start = [parameter.detach().clone() for parameter in averaged.parameters()]
    averaged(rule)  # with gradients: a step of a training
    with torch.no_grad():
        for parameter in averaged.parameters():
            parameter += 1.0
    averaged(rule)
    decay = 2 / 12  # of the second step: the average begins with a small memory
    for average, first in zip(averaged.averages, start, strict=True):
        torch.testing.assert_close(average, first + (1 - decay))
    with torch.no_grad():
        expected = averaged.plain()(rule).log_prob(x)
        torch.testing.assert_close(averaged(rule).log_prob(x), expected)
    for parameter, first in zip(averaged.parameters(), start, strict=True):
        torch.testing.assert_close(parameter.detach(), first + 1.0), "the parameters themselves are back"


def test_mixture_weights_maximise_the_likelihood():
    logs = torch.tensor([[0.0, -50.0]] * 3 + [[-50.0, 0.0]], dtype=torch.float64)  # three rows of one, one of the other
    weights, moves = module("best.mixture").fitted_weights(logs.unsqueeze(2))
    assert weights == pytest.approx((0.75, 0.25))
    assert moves == (1.0,)
    other, swapped = module("best.mixture").fitted_weights(logs.unsqueeze(1))
    assert other == (1.0,)
    assert swapped == pytest.approx((0.75, 0.25))


def test_a_mixture_is_the_sum_of_its_components(tmp_path):
    mixture = module("best.mixture")
    components = tuple(
        pc.PIC(pc.chain(2), pc.Bernoulli(), width=4, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1)
    )
    rows = torch.tensor([[0, 1], [1, 1], [0, 0]], dtype=torch.uint8).numpy()
    with torch.no_grad():
        parts = [component(pc.midpoint(8)).log_prob(torch.tensor(rows)).exp() for component in components]
    expected = (0.3 * parts[0] + 0.7 * parts[1]).log().mean()
    made = mixture.Mixture(components, (0.3, 0.7), 8)
    made.save(tmp_path)
    for found in (made, mixture.Mixture.load(tmp_path)):
        assert found.mean_log_prob(rows) == pytest.approx(float(expected), rel=1e-5)


def test_a_mixture_sums_over_the_places_of_an_image(tmp_path, monkeypatch):
    mixture, moves = module("best.mixture"), module("best.moves")
    component = pc.PIC(pc.chain(6), pc.Bernoulli(), width=4, generator=torch.Generator().manual_seed(0))
    rows = np.random.default_rng(0).integers(0, 2, (5, 6), dtype=np.uint8)
    weights = torch.arange(1.0, 10.0) / 45
    with torch.no_grad():
        qpc = component(pc.midpoint(8))
        places = [(0, 0), (-1, 0), (0, -1), (0, 1), (1, 0), (-1, -1), (-1, 1), (1, -1), (1, 1)]
        images = [np.roll(rows.reshape(-1, 2, 3), place, (1, 2)).reshape(5, 6) for place in places]
        logs = torch.stack([qpc.log_prob(torch.tensor(image)) for image in images], 1).double()
    expected = float((logs + weights.log()).logsumexp(1).mean())
    made = mixture.Mixture((component,), (1.0,), 8, (2, 3), 1, tuple(weights.tolist()))
    made.save(tmp_path)
    loaded = mixture.Mixture.load(tmp_path)
    assert loaded.mean_log_prob(rows) < expected, "the least of nine terms is left out"
    monkeypatch.setattr(moves, "TERMS", 9)
    assert loaded.mean_log_prob(rows) == pytest.approx(expected, rel=1e-5)
    best = moves.aligned(component, rows, moves.orders((2, 3), 1))
    with torch.no_grad():
        qpc = component(pc.midpoint(moves.COARSE))
        highest = torch.stack([qpc.log_prob(torch.tensor(image)) for image in images]).amax(0)
        torch.testing.assert_close(qpc.log_prob(torch.tensor(best)), highest)


def test_images_have_types_by_their_values():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 200)
    rows = np.where(rng.random((200, 30)) < 0.5, 0, rng.choice([3, 5], (200, 30), p=[0.9, 0.1]))
    rows = np.where((truth == 1)[:, None] & (rows > 0), 8 - rows, rows).astype(np.uint8)  # 3 and 5 exchanged
    found, again = module("best.value_types").types((rows, rows[:50]), 2, 8, seed=0)
    assert (found == truth).all() or (found == 1 - truth).all()
    assert (again == found[:50]).all()


def test_rare_types_have_few_parts():
    recipes, parts = module("best.recipes"), module("best.parts")
    components = tuple(
        pc.PIC(pc.chain(4), pc.Categorical(8), width=4, generator=torch.Generator().manual_seed(seed))
        for seed in (0, 1)
    )
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.integers(1, 4, (300, 4)), rng.integers(5, 8, (40, 4))]).astype(np.uint8)
    data = pc.data.Dataset("trial", rows, rows[:10], rows[:10], 8, pc.data.Provenance("invented"), image_shape=(2, 2))
    mixture = module("best.mixture").Mixture(components, (0.5, 0.5), 8)
    found = list(parts.split(mixture, data, recipes.Recipe(after="mixture", types=2, rows=50, reach=1)))
    assert sorted(len(part.rows) for part in found)[0] == 40
    assert len(found) == 3
    assert sum(len(part.rows) for part in found) == len(rows)
    assert sum(len(part.valid) for part in found if part.valid is not None) == len(data.valid)
    for part in found:
        assert any(part.first is component for component in components)


def test_a_warm_start_copies_the_nets_of_namesakes():
    options = {"width": 4, "input_sharing": "full"}
    trees = [pc.LatentTree(parents, ((0,), (1,), (2,))) for parents in ((-1, 0, 1), (2, 0, -1))]
    source, same = (
        pc.PIC(trees[0], pc.Bernoulli(), generator=torch.Generator().manual_seed(seed), **options) for seed in (0, 1)
    )
    other = pc.PIC(trees[1], pc.Bernoulli(), generator=torch.Generator().manual_seed(2), **options)
    begin_with = module("best.warm").begin_with
    begin_with(same, source)
    begin_with(other, source)
    x = torch.tensor([[0.0, 1.0, 1.0]])
    with torch.no_grad():
        rule = pc.midpoint(5)
        torch.testing.assert_close(same(rule).log_prob(x), source(rule).log_prob(x), rtol=0, atol=0)
        # z1 hangs on z0 in both trees.
        region = module("heatmaps.run").region
        assert region(other, other(rule), "z1") == pytest.approx(region(source, source(rule), "z1"), rel=1e-5)


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
