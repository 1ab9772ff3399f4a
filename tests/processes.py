# SPDX-License-Identifier: Apache-2.0
"""Other processes. They are forked from one that has imported torch already, because importing it takes seconds."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch._dynamo", "picirc.cli.fit", "picirc.cli.use", "picirc.tables"])


class Done(NamedTuple):
    """How a program ended, and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


def in_process(function: Callable[..., object], *arguments: Any) -> int:
    """Call a function of a module in another process, and return that process's exit code."""
    process = CONTEXT.Process(target=_quiet, args=(function, arguments))
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def _quiet(function: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    import torch

    torch.set_num_threads(1)
    function(*arguments)


class Program:
    """The program ``picirc`` in another process, in front of a terminal that knows ASCII alone.

    What it writes goes to files or named pipes ``out`` and ``err``, which are gone when it has ended.
    """

    def __init__(
        self, folder: Path, *arguments: object, out: Path | None = None, err: Path | None = None, **environment: str
    ) -> None:
        name = f".{len(multiprocessing.active_children())}"
        self.out, self.err = out or folder / f"{name}.out", err or folder / f"{name}.err"
        given = (folder, [str(argument) for argument in arguments], self.out, self.err, environment)
        self.process = CONTEXT.Process(target=_program, args=given)
        self.process.start()

    def wait(self) -> Done:
        """Wait for the end."""
        self.process.join()
        assert self.process.exitcode is not None
        written = ["" if path.is_fifo() else path.read_text(encoding="ascii") for path in (self.out, self.err)]
        self.out.unlink()
        self.err.unlink()
        return Done(self.process.exitcode, *written)


def _program(folder: Path, arguments: list[str], out: Path, err: Path, environment: dict[str, str]) -> None:
    import torch

    from picirc.__main__ import main

    torch.set_num_threads(1)
    os.chdir(folder)
    os.environ |= environment
    os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT), 1)
    os.dup2(os.open(err, os.O_WRONLY | os.O_CREAT), 2)
    sys.stdout = open(1, "w", encoding="ascii", closefd=False)  # noqa: SIM115 - until the process ends
    sys.stderr = open(2, "w", encoding="ascii", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115 - until the process ends
    sys.argv = ["picirc", *arguments]
    sys.exit(main())
