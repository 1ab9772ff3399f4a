# SPDX-License-Identifier: Apache-2.0
"""The command line, called in this process wherever that is the same."""

from __future__ import annotations

import inspect
import json
import math
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import picirc as pc
from picirc.cli import main
from picirc.cli.commands import TrainingOptions
from picirc.cli.files import encode_png
from picirc.learning import loop
from processes import Program

SMALL = ["--points", "4", "--width", "4", "--steps", "6", "--batch", "32", "--validate-every", "2"]
DIGITS = ["--data", "digits", "--structure", "quad-tree", *SMALL]


@pytest.fixture
def table(tmp_path) -> Path:
    """A file with a number, a category, a truth value, a count and missing cells."""
    rng = np.random.default_rng(0)
    lines = ["length,colour,flag,count"]
    for i in range(60):
        colour = "" if i == 3 else ["red", "green", "blue"][rng.integers(3)]
        length = "NA" if i == 5 else f"{rng.normal():.4f}"
        lines.append(f"{length},{colour},{rng.integers(2)},{rng.integers(5)}")
    path = tmp_path / "table.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def records(out: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def without_time(found: list[dict[str, float]]) -> list[dict[str, float]]:
    return [{name: value for name, value in record.items() if name != "seconds"} for record in found]


def same_parameters(a: Path, b: Path) -> bool:
    mine, theirs = pc.load(a).state_dict(), pc.load(b).state_dict()
    return list(mine) == list(theirs) and all(torch.equal(mine[name], theirs[name]) for name in mine)


# Help and errors


def test_help_does_not_import_torch():
    commands = ["fit", "score", "sample", "impute", "predict", "probability", "explain", "report", "eval", "inspect"]
    asked = [["--help"], ["--version"], *([command, "--help"] for command in commands)]
    code = f"import sys; from picirc.cli import main; [main(a) for a in {asked}]; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(done.stderr.split())
    assert "picirc.cli" in modules
    assert not modules & {"torch", "numpy", "scipy", "safetensors"}
    assert "--lr-min" in done.stdout
    groups = ["Arguments", "Columns of TABLE", "Output", "Data other than TABLE", "Model", "Training"]
    shown = done.stdout[done.stdout.index("Usage: picirc fit ") :]
    places = [shown.index(f" {group} ─") for group in groups]
    assert places == sorted(places)  # tables come first
    assert pc.__version__ in done.stdout


def test_a_stored_model_is_used_without_the_compiler_of_torch(tmp_path):
    """Arithmetic with tensors on "meta" would import it, which takes longer than the answer."""
    pc.fit_table({"a": np.arange(30.0), "b": np.arange(30.0)}, points=4, width=4, steps=2).save(tmp_path / "model")
    code = "import sys; from picirc.tables import TableModel; model = TableModel.load(sys.argv[1]); model.sample(2)"
    code += "; model.impute({'a': [1.0], 'b': [None]}); assert 'torch._dynamo' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, tmp_path / "model"], check=True)


def test_python_dash_m():
    done = subprocess.run([sys.executable, "-m", "picirc", "nonsense"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("picirc: error: Unknown command")


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["fit"], "--out"),
        (["fit", "--out", "o"], "--data"),
        (["fit", "--data", "digits"], "--out"),
        (["fit", "--data", "nothing-of-the-kind", "--out", "o"], "one of digits"),
        (["fit", "--data", "none.csv", "--out", "o"], "none.csv"),
        (["fit", "--data", "digits", "--out", "o", "--points", "many"], "--points"),
        (["fit", "--data", "digits", "--out", "o", "--rule", "magic"], "--rule"),
        (["fit", "--data", "digits", "--out", "o", "--rule", "simpson", "--points", "4"], "n: expected"),
        (["fit", "--data", "digits", "--out", "o", "--em"], "--model hclt"),
        (["fit", "--data", "digits", "--out", "o", "--threads", "0"], "--threads"),
        (["fit", "--data", "digits", "--out", "o", "--patience", "-1"], "--patience"),
        (["fit", "--data", "digits", "--out", "o", "--lr", "1e-5", "--lr-min", "1e-4"], "low"),
        (["fit", "--data", "digits", "--out", "o", "--lr", "0"], "low"),
        (["fit", "--data", "digits", "--out", "o", "--restart", "0"], "period"),
        (["fit", "--data", "digits", "--out", "o", "--inputs", "bernoulli"], "17 values"),
        (["fit", "--data", "digits", "--out", "o", "--nonsense", "1"], "--nonsense"),
        (["fit", "--data", "digits", "--out", "o", "--config", "none.toml"], "none.toml"),
        (["eval", "none", "--data", "digits"], "none"),
        (["sample", "none", "-o", "x.png"], "none"),
        (["sample", "none", "-o", "x.gif"], ".png"),
        (["sample", "none", "-o", "x.png", "-n", "0"], "--count"),
        (["inspect", "none"], "none"),
        (["inspect", "none", "--batch", "0"], "--batch"),
    ],
)
def test_mistakes_are_one_line(arguments, match, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PICIRC_DATA", str(tmp_path))
    code, _, error = run(*arguments)
    assert code == 2
    (line,) = error.splitlines()
    assert line.startswith("picirc: error: ")
    assert match in line


def test_debug_shows_where_an_error_came_from(run):
    code, _, error = run("eval", "none", "--data", "digits", "--debug")
    assert code == 2
    assert "Traceback" in error
    assert error.splitlines()[-1].startswith("picirc: error: ")


# fit


def test_fit_leaves_everything_that_is_needed(run, tmp_path):
    out = tmp_path / "run"
    code, printed, error = run("fit", *DIGITS, "--out", out, "--seed", 3)
    assert code == 0
    assert [record["step"] for record in records(out)] == [2, 4, 6]
    assert error.count("bits per dimension") == 3
    summary = json.loads((out / "summary.json").read_text())
    assert summary == pc.io.describe(out / "model")["summary"]
    assert summary["configuration"]["seed"] == 3
    assert summary["data"]["image_shape"] == [8, 8]
    assert summary["query"] == {"rule": "settling", "points": 4}
    model = pc.load(out / "model")
    assert isinstance(model, pc.PIC)
    assert model.input_sharing == "full"  # the pixels of an image are of one finite family
    data = pc.data.load("digits")
    mean = pc.mean_log_prob(model(pc.midpoint(4)), data.test)
    assert summary["test"]["bits"] == pytest.approx(pc.bits_per_dimension(mean, 64))
    assert f"{summary['test']['bits']:.4f} bits per dimension" in printed
    assert summary["seconds"] > 0


def test_the_command_in_the_summary_gives_the_same_model(run, tmp_path):
    run("fit", *DIGITS, "--out", tmp_path / "a", "--optimizer", "adamw", "--clip", 1.5)
    command = json.loads((tmp_path / "a" / "summary.json").read_text())["command"]
    program, *arguments = shlex.split(command)
    assert program == "picirc"
    assert run(*arguments, "--out", tmp_path / "b")[0] == 2  # an option twice
    arguments[arguments.index("--out") + 1] = str(tmp_path / "b")
    assert run(*arguments)[0] == 0
    assert same_parameters(tmp_path / "a" / "model", tmp_path / "b" / "model")


def test_the_same_training_in_python_gives_the_same_model(run, tmp_path):
    run("fit", *DIGITS, "--out", tmp_path, "--rule", "trapezoidal", "--lr", "0.02", "--restart", "3")
    data = pc.data.load("digits")
    source = torch.Generator().manual_seed(0)
    pic = pc.PIC(pc.quad_tree(8, 8), pc.Categorical(17), width=4, input_sharing="full", generator=source)
    options = {"rule": pc.trapezoidal(4), "batch_size": 32, "steps": 6, "validate_every": 2}
    pic, _ = pc.fit(pic, data.train, data.valid, schedule=pc.Cosine(0.02, 2e-4, 3), **options)
    found = pc.load(tmp_path / "model").state_dict()
    assert all(torch.equal(value, found[name]) for name, value in pic.state_dict().items())


def test_the_help_states_the_defaults_of_fit():
    described = " ".join((TrainingOptions.__doc__ or "").split())
    given = inspect.signature(pc.fit).parameters
    for option, name in {
        "steps": "steps",
        "batch": "batch_size",
        "optimizer": "optimizer",
        "patience": "patience",
    }.items():
        entry = described.partition(f" {option}: ")[2]
        assert f"by default {given[name].default}" in entry[: entry.index(".") + 1], option
    sizes = pc.PIC(pc.chain(2), pc.Bernoulli(), 2).step_size, pc.HCLT(pc.chain(2), pc.Bernoulli(), 2).step_size
    assert "by default {:g}, for an hclt {:g}, with em 0.5".format(*sizes) in described


def test_the_defaults_are_those_of_fit(run, tmp_path):
    assert run("fit", "--data", "digits", "--structure", "chain", "--steps", 1, "--out", tmp_path)[0] == 0
    data = pc.data.load("digits")
    source = torch.Generator().manual_seed(0)
    pic = pc.PIC(pc.chain(64), pc.Categorical(17), input_sharing="full", generator=source)
    pic, _ = pc.fit(pic, data.train, data.valid, steps=1)
    found = pc.load(tmp_path / "model").state_dict()
    assert all(torch.equal(value, found[name]) for name, value in pic.state_dict().items())


@pytest.mark.parametrize(
    ("structure", "model"),
    [
        ("hclt-tree", ["pic"]),
        ("chain", ["hclt"]),
        ("quad-graph", ["hclt", "--em"]),
        ("quad-graph", ["pic", "--product", "tucker"]),
        ("random", ["hclt", "--em"]),
        ("random-regions", ["pic"]),
    ],
)
def test_every_structure_and_model_trains(structure, model, run, tmp_path):
    options = ["--data", "digits", "--structure", structure, "--model", *model, "--steps", 2, "--batch", 16]
    options += ["--points", 3, "--width", 4]
    assert run("fit", *options, "--out", tmp_path)[0] == 0
    found = pc.load(tmp_path / "model")
    assert isinstance(found, pc.PIC if model[0] == "pic" else pc.HCLT)


def test_a_table_of_mixed_columns(run, table, tmp_path):
    out = tmp_path / "run"
    options = ["--data", table, "--categorical", "colour", *SMALL]
    assert run("fit", *options, "--out", out)[0] == 0
    model = pc.load(out / "model")
    assert model.families == (pc.Gaussian(), pc.Categorical(3), pc.Bernoulli(), pc.Categorical(5))
    assert isinstance(model, pc.PIC)
    assert model.input_sharing == "composite"
    code, printed, _ = run("eval", out / "model", "--data", table)  # the categories are known by now
    assert code == 0
    rows = {line.split()[0]: int(line.split()[1]) for line in printed.splitlines()[1:]}
    assert rows == {"train": 49, "valid": 5, "test": 6}
    test = json.loads((out / "summary.json").read_text())["test"]
    assert f"{test['log_likelihood']:.4f}" in printed
    assert run("sample", out / "model", "-n", 5, "-o", tmp_path / "s.csv")[0] == 0
    head, *lines = (tmp_path / "s.csv").read_text().splitlines()
    assert head == "length,colour,flag,count"
    assert {line.split(",")[1] for line in lines} <= {"red", "green", "blue"}
    assert all(line.split(",")[2] in "01" for line in lines)
    assert run("sample", out / "model", "-o", tmp_path / "s.png")[0] == 2


def test_another_table_is_refused(run, table, tmp_path):
    run("fit", "--data", table, "--categorical", "colour", *SMALL, "--out", tmp_path / "run")
    other = tmp_path / "other.csv"
    other.write_text("a,b\n" + "1,2\n" * 9)
    code, _, error = run("eval", tmp_path / "run" / "model", "--data", other)
    assert code == 2
    assert "colour" in error


@pytest.mark.parametrize(
    ("inputs", "family"),
    [("auto", pc.Categorical(9)), ("binomial", pc.Binomial(8)), ("gaussian", pc.Gaussian())],
)
def test_inputs_of_an_array(inputs, family, run, tmp_path):
    rng = np.random.default_rng(1)
    np.save(tmp_path / "x.npy", np.concatenate([rng.integers(9, size=(60, 3)), np.full((1, 3), 8)]))
    assert run("fit", "--data", tmp_path / "x.npy", *SMALL, "--inputs", inputs, "--out", tmp_path / "run")[0] == 0
    assert pc.load(tmp_path / "run" / "model").families == (family,) * 3


def test_a_configuration_file_is_merged_under_the_flags(run, tmp_path):
    config = tmp_path / "run.toml"
    config.write_text(
        'data = "digits"\nstructure = "chain"\npoints = 4\nwidth = 6\nsteps = 3\nlr-min = 0.001\n'
        f'out = "{(tmp_path / "run").as_posix()}"\nvalidate-every = 1\nmodel = "pic"\n'
    )
    assert run("fit", "--config", config, "--steps", 2, "--width", 4)[0] == 0
    found = json.loads((tmp_path / "run" / "summary.json").read_text())["configuration"]
    assert (found["steps"], found["width"], found["points"], found["lr_min"]) == (2, 4, 4, 0.001)
    config.write_text("stepps = 3\n")
    code, _, error = run("fit", *DIGITS, "--out", tmp_path / "b", "--config", config)
    assert code == 2
    assert "stepps" in error


def test_a_configuration_file_is_forgotten_after_its_command(run, tmp_path):
    config = tmp_path / "run.toml"
    config.write_text("width = 6\n")
    run("fit", *DIGITS, "--out", tmp_path / "a", "--config", config)
    assert run("fit", *DIGITS, "--out", tmp_path / "b")[0] == 0
    assert pc.io.describe(tmp_path / "b" / "model")["settings"]["width"] == 4


def test_results_are_not_overwritten_by_accident(run, tmp_path):
    assert run("fit", *DIGITS, "--out", tmp_path)[0] == 0
    code, _, error = run("fit", *DIGITS, "--out", tmp_path)
    assert code == 2
    assert "--resume" in error
    assert run("fit", *DIGITS, "--out", tmp_path, "--overwrite", "--seed", 1)[0] == 0
    assert [record["step"] for record in records(tmp_path)] == [2, 4, 6]


class Interruption:
    """Ctrl-C when a training has come to a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def __call__(self, path: Path):
        def callback(record) -> None:
            with path.open("a") as file:
                file.write(json.dumps(dict(record)) + "\n")
            if record["step"] == self.step:
                raise KeyboardInterrupt

        return callback


def test_an_interrupted_training_leaves_a_model_and_is_continued(run, tmp_path, monkeypatch):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run("fit", *DIGITS, "--out", whole)
    with monkeypatch.context() as patch:
        patch.setattr("picirc.cli.fit.json_lines", Interruption(4))
        code, printed, _ = run("fit", *DIGITS, "--out", parts)
    assert code == 130
    assert "--resume" in printed
    assert json.loads((parts / "summary.json").read_text())["stopped"] == "interrupted"
    assert "test" not in json.loads((parts / "summary.json").read_text())
    assert run("eval", parts / "model", "--data", "digits")[0] == 0
    code, _, _ = run("fit", *DIGITS, "--out", parts, "--resume")
    assert code == 0
    assert without_time(records(parts)) == without_time(records(whole))
    assert same_parameters(whole / "model", parts / "model")


def test_metrics_after_the_checkpoint_are_dropped_on_resume(run, tmp_path):
    run("fit", *DIGITS, "--out", tmp_path)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 8}\n{"ste')  # written between the last checkpoint and a crash
    assert run("fit", *DIGITS, "--out", tmp_path, "--resume")[0] == 0
    assert [record["step"] for record in records(tmp_path)] == [2, 4, 6]


def test_an_interruption_elsewhere_is_quiet(run, monkeypatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("picirc.cli.use.open_model", interrupt)
    assert run("eval", "model", "--data", "digits") == (130, "", "picirc: interrupted\n")


def test_settings_that_differ_are_refused_on_resume(run, tmp_path):
    run("fit", *DIGITS, "--out", tmp_path)
    code, _, error = run("fit", *DIGITS, "--out", tmp_path, "--resume", "--seed", 9)
    assert code == 2
    assert "seed" in error


def test_tensorboard_is_asked_for_by_name(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    code, _, error = run("fit", *DIGITS, "--out", tmp_path, "--tensorboard")
    assert code == 2
    assert "picirc[tracking]" in error


def test_patience_zero_never_stops(run, tmp_path, monkeypatch):
    seen = []
    real = loop.Settings
    monkeypatch.setattr("picirc.learning.gradient.Settings", lambda *a, **k: seen.append(a[2]) or real(*a, **k))
    run("fit", *DIGITS, "--out", tmp_path, "--patience", 0)
    assert seen == [None]


# eval, sample, inspect


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("run")
    assert main(["fit", *DIGITS, "--out", str(out)]) == 0
    return out / "model"


def test_eval_with_another_rule(trained, run):
    code, printed, _ = run("eval", trained, "--data", "digits", "--points", 6, "--rule", "gauss-legendre")
    assert code == 0
    model = pc.load(trained)
    mean = pc.mean_log_prob(model(pc.gauss_legendre(6)), pc.data.load("digits").valid)
    (line,) = [line for line in printed.splitlines() if line.startswith("valid")]
    assert line.split() == ["valid", "75", f"{mean:.4f}", f"{pc.bits_per_dimension(mean, 64):.4f}"]


def test_an_hclt_has_no_rule(run, tmp_path):
    pc.save(pc.HCLT(pc.quad_tree(8, 8), pc.Categorical(17), states=2), tmp_path / "m")
    assert run("eval", tmp_path / "m", "--data", "digits")[0] == 0
    code, _, error = run("eval", tmp_path / "m", "--data", "digits", "--points", 3)
    assert code == 2
    assert "states are not points" in error


def test_models_saved_in_python_with_notes_of_their_own(run, tmp_path):
    pic = pc.PIC(pc.quad_tree(8, 8), pc.Categorical(17), width=4)
    pc.save(pic, tmp_path / "m.safetensors", summary={"data": "mine", "query": 3, "test": "good"})
    for command in (["eval", "--data", "digits"], ["sample", "-n", "2", "-o", str(tmp_path / "s.csv")], ["inspect"]):
        assert run(command[0], tmp_path / "m.safetensors", *command[1:])[0] == 0
    assert (tmp_path / "s.csv").read_text().startswith("x0,x1,")


def test_samples_depend_on_the_seed_alone(trained, run, tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert run("sample", trained, "-n", 10, "-o", tmp_path / f"{name}.npy", "--seed", seed)[0] == 0
    a, b, c = (np.load(tmp_path / f"{name}.npy") for name in "abc")
    assert a.shape == (10, 64)
    assert a.dtype == np.uint8
    assert a.max() <= 16
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)


def test_samples_as_an_image(trained, run, tmp_path):
    run("sample", trained, "-n", 5, "--seed", 0, "-o", tmp_path / "s.npy")
    assert run("sample", trained, "-n", 5, "--seed", 0, "-o", tmp_path / "s.png")[0] == 0
    image = pytest.importorskip("PIL.Image").open(tmp_path / "s.png")
    assert image.size == (30, 20)  # three by two cells of 8 by 8 pixels with a frame
    rows = np.load(tmp_path / "s.npy")
    second = np.asarray(image)[1:9, 11:19]
    np.testing.assert_array_equal(second, np.rint(rows[1].reshape(8, 8) * (255 / 16)).astype(np.uint8))


def test_png_comes_back(tmp_path):
    image = np.random.default_rng(0).integers(256, size=(7, 13)).astype(np.uint8)
    (tmp_path / "x.png").write_bytes(encode_png(image))
    found = np.asarray(pytest.importorskip("PIL.Image").open(tmp_path / "x.png"))
    np.testing.assert_array_equal(found, image)


def test_inspect_counts(trained, run):
    code, printed, _ = run("inspect", trained, "--points", 5, "--batch", 7)
    assert code == 0
    found = dict(line.split(maxsplit=1) for line in printed.splitlines())
    model = pc.load(trained)
    assert found["model"] == "PIC"
    assert found["parameters"].startswith(f"{sum(p.numel() for p in model.parameters()):,} float32")
    assert found["weights"].startswith(f"{model(pc.midpoint(5)).size:,} numbers")
    assert found["inputs"].startswith(f"{5 * 17:,} numbers")
    assert found["structure"] == "127 regions with 63 partitions, depth 6"
    assert math.isclose(
        float(found["test"].split()[0]), pc.io.describe(trained)["summary"]["test"]["bits"], abs_tol=1e-4
    )


def test_inspect_a_region_graph(run, tmp_path):
    pc.save(pc.HCLT(pc.quad_graph(2, 2), pc.Bernoulli(), states=3), tmp_path / "m")
    code, printed, _ = run("inspect", tmp_path / "m")
    assert code == 0
    assert "9 regions with 6 partitions" in printed
    assert "with 3 states" in printed


# Progress


class Terminal:
    """A stream that claims to be a terminal."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal():
    stream = Terminal()
    with pc.Progress(100, stream=stream) as show:  # type: ignore[arg-type]
        show({"step": 50, "bits": 1.25, "seconds": 2.0})
    assert "50/100" in stream.text
    assert "1.2500 bits per dimension" in stream.text
    assert "0:00:02 left" in stream.text


def test_the_time_that_is_expected_is_shown_on_a_terminal():
    stream = Terminal()
    with pc.Progress(100, stream=stream) as show:  # type: ignore[arg-type]
        show.expect(90.0)
    assert "about 0:01:30 left" in stream.text


def test_the_time_left_follows_the_present_pace(capsys):
    show = pc.Progress(100)
    show({"step": 10, "bits": 1.0, "seconds": 100.0})
    show({"step": 20, "bits": 1.0, "seconds": 110.0})
    assert [line.split(", ")[1] for line in capsys.readouterr().err.splitlines()] == ["0:15:00 left", "0:01:20 left"]


# Several processes


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_two_processes_train_the_model_of_one(run, tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.normal(size=(90, 3)) + rng.normal(size=(90, 1)))
    options = ["--data", str(tmp_path / "x.npy"), *SMALL]
    assert run("fit", *options, "--out", tmp_path / "one")[0] == 0
    # What torchrun tells the processes that it starts.
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "GLOO_SOCKET_IFNAME": "lo"}
    programs = []
    for rank in ("0", "1"):
        (tmp_path / rank).mkdir()
        programs.append(Program(tmp_path / rank, "fit", *options, "--out", tmp_path / "two", RANK=rank, **group))
    first, second = (program.wait() for program in programs)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert (first.stdout + second.stdout).count("bits per dimension") == 1  # one of the two speaks
    assert [record["step"] for record in records(tmp_path / "two")] == [2, 4, 6]
    mine, theirs = (pc.load(tmp_path / name / "model").state_dict() for name in ("one", "two"))
    for name, value in mine.items():
        torch.testing.assert_close(theirs[name], value, rtol=1e-5, atol=1e-6)
