# SPDX-License-Identifier: Apache-2.0
"""Processes that are killed, interrupted, out of disk, or two at once: what is on the disk is always whole."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

import picirc as pc
from count import Count, SkippedError
from picirc.cli import main
from picirc.interrupts import run_to_the_end

SIZE = 256 * 1024  # of the small disk


def killed_saving(seed: int, scale: float) -> Count:
    """The old model or the new one, and a description that belongs to it."""
    source, count = random.Random(seed), Count()
    with TemporaryDirectory() as name:
        path = Path(name) / "model"
        pc.save(_model(0), path)
        whole = _seconds(lambda: pc.save(_model(1), path))
        pc.save(_model(0), path)
        for number in range(int(30 * scale) or 1):
            with count.attempt(f"kill {number}"):
                _kill(lambda: pc.save(_model(1), path), source.random() * 1.2 * whole)
                count.check(_which(path) in (0, 1), "another model")
                copy = path / "model.json"
                belongs = not copy.exists() or json.loads(copy.read_text()) == pc.io.describe(path)
                count.check(belongs, "model.json of another save")
                pc.save(_model(0), path)
                count.check(_which(path) == 0, "not saved after a kill")
    return count


def killed_fitting(seed: int, scale: float) -> Count:
    """No model, or a whole one; a table that is fitted again over what is left."""
    source, count = random.Random(seed), Count()
    with TemporaryDirectory() as name:
        table, model = _table(Path(name)), Path(name) / "model"
        command = ["fit", str(table), "--out", str(model), *["--steps", "10", "--points", "3", "--width", "4"]]
        whole = _seconds(lambda: _main(command))
        for number in range(int(10 * scale) or 1):
            with count.attempt(f"kill {number}"):
                _kill(lambda: _main(command), source.random() * 1.2 * whole)
                pc.load(model)
    return count


def killed_scoring(seed: int, scale: float) -> Count:
    """The old table of scores or the new one."""
    source, count = random.Random(seed), Count()
    with TemporaryDirectory() as name:
        table, model, out = _table(Path(name), 3000), Path(name) / "model", Path(name) / "out.csv"
        _main(["fit", str(table), "--out", str(model), *["--steps", "3", "--points", "3", "--width", "4"]])
        command = ["score", str(model), str(table), "-o", str(out)]
        whole = _seconds(lambda: _main(command))
        complete = out.read_bytes()
        for number in range(int(12 * scale) or 1):
            with count.attempt(f"kill {number}"):
                old = source.choice([b"old", complete])
                out.write_bytes(old)
                _kill(lambda: _main(command), source.random() * 1.2 * whole)
                count.check(out.read_bytes() in (old, complete), "half a table")
    return count


def killed_resuming(seed: int, scale: float) -> Count:
    """Whatever the moments of the kills, the training ends with the model of one that was not killed."""
    source, count = random.Random(seed), Count()
    train = _rows(0)

    def fit(folder: Path, resume: bool = True) -> pc.HCLT:
        model = pc.HCLT(pc.chain(6), pc.Bernoulli(), states=3, generator=torch.Generator().manual_seed(0))
        options = {"steps": 60, "checkpoint_every": 4, "validate_every": 20, "out": folder, "resume": resume}
        return pc.fit(model, train, batch_size=16, **options)[0]

    with TemporaryDirectory() as name:
        whole = _seconds(lambda: fit(Path(name) / "whole", resume=False))
        expected = fit(Path(name) / "whole").state_dict()  # resumed at its end
        for number in range(int(6 * scale) or 1):
            folder = Path(name) / f"run{number}"
            with count.attempt(f"kill {number}"):
                for _ in range(2):
                    _kill(lambda folder=folder: fit(folder), source.random() * whole)
                found = fit(folder).state_dict()
                same = all(torch.equal(value, expected[key]) for key, value in found.items())
                count.check(same, "another model after a resumed training")
    return count


def interrupted(seed: int, scale: float) -> Count:
    """Ctrl-C at any moment from the first import on: exit code 130 and one line, or the work is done."""
    source, count = random.Random(seed), Count()
    with TemporaryDirectory() as name:
        folder = Path(name)
        table, model, out = _table(folder), folder / "model", folder / "out.csv"
        fit = ["fit", str(table), "--out", str(model), *["--steps", "20", "--points", "3", "--width", "4"]]
        score = ["score", str(model), str(table), "-o", str(out)]
        whole = _seconds(lambda: _main(fit))
        for number in range(int(16 * scale) or 1):
            command = source.choice([fit, score])
            errors = folder / "errors"
            with count.attempt(f"Ctrl-C {number}"):
                code = _interrupt(command, source.random() * 1.2 * whole, errors)
                _check_interrupted(count, code, errors.read_text(), command[0])
                pc.load(model)
        for number in range(int(9 * scale) or 1):
            with count.attempt(f"Ctrl-C during the start {number}"):
                code, said = _interrupt_start(score, source.random() * 3)
                _check_interrupted(count, code, said, "score")
    return count


def full_disk(seed: int, scale: float) -> Count:
    """One line, the old files, and nothing left over."""
    source, count = random.Random(seed), Count()
    with TemporaryDirectory() as name, _small_disk(Path(name) / "disk") as disk:
        table, model = _table(Path(name)), Path(name) / "model"
        _main(["fit", str(table), "--out", str(model), *["--steps", "3", "--points", "3", "--width", "4"]])
        (disk / "out.csv").write_text("old")
        pc.save(_model(0), disk / "model")
        optimizer = torch.optim.Adam(_model(0).parameters())
        from picirc.learning.loop import load_checkpoint, save_checkpoint

        save_checkpoint(disk, _model(0), {}, optimizer, {"identity": 0})
        before = sorted(disk.rglob("*"))
        for number in range(int(6 * scale) or 1):
            ballast = _fill(disk, source.choice([0, 4096, 8192]))
            with count.attempt(f"save {number}", (OSError,)):
                pc.save(_model(1), disk / "model", summary={"note": "x" * 8192})
                count.check(False, "a save that had no room")
            with count.attempt(f"checkpoint {number}", (OSError,)):
                save_checkpoint(disk, _model(1), {"x": torch.zeros(9999)}, optimizer, {"identity": 1})
                count.check(False, "a checkpoint that had no room")
            with count.attempt(f"sample {number}"):
                code, said = _main(["sample", str(model), "-n", "3000", "-o", str(disk / "out.csv")])
                count.check(code == 2 and "No space left" in said.splitlines()[-1], f"{code}: {said[-200:]}")
            ballast.unlink()
            with count.attempt(f"afterwards {number}"):
                count.check(sorted(disk.rglob("*")) == before, "other files than before")
                count.check((disk / "out.csv").read_text() == "old" and _which(disk / "model") == 0, "other contents")
                found = load_checkpoint(disk)
                count.check(found is not None and found.state["identity"] == 0, "another checkpoint")
    return count


def two_writers(seed: int, scale: float) -> Count:
    """Whoever reads while two processes write gets a whole model; at the end the files belong together."""
    count = Count()
    with TemporaryDirectory() as name:
        path, turns = Path(name) / "model", int(150 * scale) or 1
        pc.save(_model(0), path)

        def write(which: int) -> None:
            for _ in range(turns):
                pc.save(_model(which), path, summary={"who": which})

        writers = [_fork(lambda which=which: write(which)) for which in (0, 1)]
        for number in range(turns):
            with count.attempt(f"read {number}"):
                count.check(_which(path) in (0, 1), "another model")
        ends = [os.waitpid(writer, 0)[1] for writer in writers]
        count.check(ends == [0, 0], f"writers ended with {ends}")
        with count.attempt("the end"):
            count.check(json.loads((path / "model.json").read_text()) == pc.io.describe(path), "model.json of another")
            count.check(len(list(path.iterdir())) == 2, "files left over")
    return count


def _model(shift: int) -> pc.HCLT:
    found = pc.HCLT(pc.chain(4), pc.Bernoulli(), states=40, generator=torch.Generator().manual_seed(0))
    for weights in found.weights:
        weights.data += shift
    return found


def _which(path: Path) -> int | None:
    found = pc.load(path).state_dict()
    known = (i for i in (0, 1) if all(torch.equal(found[k], v) for k, v in _model(i).state_dict().items()))
    return next(known, None)


def _rows(seed: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 2, (200, 6))).float()


def _table(folder: Path, rows: int = 60) -> Path:
    path = folder / "t.csv"
    path.write_text("x,y,z\n" + "".join(f"{i / 7},{i % 5},{'ab'[i % 2]}\n" for i in range(rows)))
    return path


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _main(command: list[str]) -> tuple[int, str]:
    errors = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
        return main(command), errors.getvalue()


def _fork(work: Callable[[], object]) -> int:
    """Run something in a copy of this process, which has imported everything already."""
    torch.set_num_threads(1)
    child = os.fork()
    if child:
        return child
    try:
        work()
        os._exit(0)
    except BaseException:
        os._exit(1)


def _kill(work: Callable[[], object], after: float) -> None:
    child = _fork(work)
    time.sleep(after)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _interrupt(command: list[str], after: float, errors: Path) -> int:
    """The exit code of a command that gets Ctrl-C after some time."""
    ready, told = os.pipe()

    def work() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (1, 2):
            os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)

        def program() -> int:
            os.write(told, b".")
            return main([*command, *(["--overwrite"] if command[0] == "fit" else [])])

        code = run_to_the_end(program)
        sys.stderr.flush()
        os._exit(code)

    child = _fork(work)
    os.read(ready, 1)
    time.sleep(after)
    os.kill(child, signal.SIGINT)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


STARTING = """
import os, sys
from picirc.interrupts import run_to_the_end

def program():
    os.write(1, b".")
    from picirc.cli import main
    return main(sys.argv[1:])

sys.exit(run_to_the_end(program))
"""


def _interrupt_start(command: list[str], after: float) -> tuple[int, str]:
    """The same for a new process, from its first import of the command line on."""
    arguments = [sys.executable, "-c", STARTING, *command]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read(1)
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    return process.returncode, said.decode()


def _check_interrupted(count: Count, code: int, said: str, command: str) -> None:
    lines = [line for line in said.splitlines() if "interrupted" in line]
    held = code == 0 or (code == 130 and len(lines) == 1)
    count.check(held and "Traceback" not in said, f"{command}: {code}, {said[-300:]!r}")


@contextmanager
def _small_disk(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        raise SkippedError("only root can mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _fill(folder: Path, left: int) -> Path:
    ballast, free = folder / "ballast", os.statvfs(folder)
    ballast.write_bytes(bytes(max(0, free.f_bavail * free.f_frsize - left)))
    return ballast
