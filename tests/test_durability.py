# SPDX-License-Identifier: Apache-2.0
"""What is left on the disk when it is full, or when a process is killed while it saves."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FrameType

import pytest
import torch

import picirc as pc
from picirc import atomic
from picirc.cli import main
from processes import CONTEXT, in_process

NAMES = ["model", "model.safetensors"]
SIZE = 256 * 1024  # of the small disk


@cache
def model(shift: float) -> pc.HCLT:
    found = pc.HCLT(pc.chain(4), pc.Bernoulli(), states=40, generator=torch.Generator().manual_seed(0))
    for weights in found.weights:
        weights.data += shift
    return found


def which(path: Path) -> float:
    """The shift of the one model that is there, whole."""
    found = pc.load(path).state_dict()
    (shift,) = [s for s in (0, 1) if all(torch.equal(found[name], v) for name, v in model(s).state_dict().items())]
    return shift


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    """A disk of a few blocks."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no small disk can be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(folder: Path, left: int) -> Path:
    """Leave so many bytes on a disk, in whole blocks."""
    ballast = folder / "ballast"
    free = os.statvfs(folder)
    ballast.write_bytes(bytes(max(0, free.f_bavail * free.f_frsize - left)))
    return ballast


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("left", [0, 4096, 16384])
def test_a_full_disk_leaves_the_old_model(name, left, disk):
    pc.save(model(0), disk / name)
    before = sorted(disk.rglob("*"))
    ballast = fill(disk, left)
    with pytest.raises(OSError, match="No space left"):
        pc.save(model(1), disk / name)
    ballast.unlink()
    assert sorted(disk.rglob("*")) == before
    assert which(disk / name) == 0
    pc.save(model(1), disk / name)
    assert which(disk / name) == 1


def test_room_for_the_tensors_alone_is_not_enough(disk):
    """The readable copy is written before the tensors take their place: both are new, or neither."""
    pc.save(model(0), disk / "model")
    old = (disk / "model" / "model.json").read_bytes()
    tensors = (disk / "model" / "model.safetensors").stat().st_size
    ballast = fill(disk, -(-tensors // 4096) * 4096)
    with pytest.raises(OSError, match="No space left"):
        pc.save(model(1), disk / "model", summary={"note": "x" * 8192})
    ballast.unlink()
    assert which(disk / "model") == 0
    assert (disk / "model" / "model.json").read_bytes() == old


def test_a_full_disk_leaves_the_old_table(disk, tmp_path, capsys):
    rows = "".join(f"{i / 7},{'ab'[i % 2]}\n" for i in range(20))
    (tmp_path / "t.csv").write_text(f"x,y\n{rows}")
    table, place = str(tmp_path / "t.csv"), str(tmp_path / "model")
    assert main(["fit", table, "--out", place, "--steps", "2", "--points", "2", "--width", "4"]) == 0
    (disk / "new.csv").write_text("old")
    before = sorted(disk.iterdir())
    fill(disk, 0)
    for command in (["sample", place, "-n", "2000"], ["impute", place, table], ["score", place, table]):
        assert main([*command, "-o", str(disk / "new.csv")]) == 2
        assert "No space left" in capsys.readouterr().err.splitlines()[-1]
        assert (disk / "new.csv").read_text() == "old"
    assert main(["fit", table, "--out", str(disk / "model"), "--steps", "1", "--width", "4"]) == 2
    assert sorted(path for path in disk.iterdir() if path.name not in ("ballast", "model")) == before
    assert list((disk / "model").iterdir()) == []


def save_line_by_line(path: Path, report: Path) -> None:
    """Run the lines of ``replacing`` one after the other, in a process each that is killed at that line."""
    seen, new = [], model(1)
    pc.save(model(0), path)
    for line in range(200):
        child = os.fork()
        if child == 0:
            sys.settrace(killer(line))
            pc.save(new, path)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        seen.append(which(path))
        copy = path / "model.json"
        assert not copy.exists() or json.loads(copy.read_text()) == pc.io.describe(path)
        for partial in path.glob(".*.partial"):
            partial.unlink()
        pc.save(model(0), path)
        if status == 0:
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
    report.write_text(json.dumps(seen))


def killer(last: int) -> Callable[[FrameType, str, object], object]:
    """A trace function that kills the process at a line of ``replacing``."""
    lines = itertools.count()

    def trace(frame: FrameType, event: str, argument: object) -> object:
        if (frame.f_code.co_filename, frame.f_code.co_name) != (atomic.__file__, "replacing"):
            return None
        if event == "line" and next(lines) == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    return trace


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
def test_a_process_killed_at_any_line_leaves_a_whole_model(tmp_path):
    assert in_process(save_line_by_line, tmp_path / "model", tmp_path / "seen") == 0
    seen = json.loads((tmp_path / "seen").read_text())
    assert len(seen) > 10
    assert seen == sorted(seen)  # the old model up to some line, the new one from there on
    assert set(seen) == {0, 1}


def save_in_turn(path: Path, saved: Path) -> None:
    """Save two models in turn until the process is killed."""
    both = [model(0), model(1)]
    for turn in itertools.count():
        pc.save(both[turn % 2], path)
        if turn == 1:
            saved.touch()


def test_whoever_reads_while_another_process_writes_gets_a_whole_model(tmp_path):
    path, saved = tmp_path / "model.safetensors", tmp_path / "saved"
    writer = CONTEXT.Process(target=save_in_turn, args=(path, saved))
    writer.start()
    try:
        while not saved.exists():
            assert writer.is_alive()
        for _ in range(50):
            assert which(path) in (0, 1)
    finally:
        writer.kill()  # at whatever it is doing
        writer.join()
    assert which(path) in (0, 1)
    pc.save(model(0), path)
    assert which(path) == 0
