# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C: exit code 130, one line, and never in the middle of what must stay whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from picirc.interrupts import EXIT_CODE, Interrupts, run_to_the_end

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs signals that a process can send itself")


@pytest.fixture(autouse=True)
def _handler():
    """Python's own handler, before and after."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_first_is_held_back_and_the_second_is_not():
    with Interrupts() as held:
        held.check()
        press()
        with pytest.raises(KeyboardInterrupt):
            held.check()
        with pytest.raises(KeyboardInterrupt):
            press()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_one_inside_another_shares_its_note():
    with Interrupts() as outer:
        with Interrupts() as inner:
            press()
            with pytest.raises(KeyboardInterrupt):
                inner.check()
        with pytest.raises(KeyboardInterrupt):
            outer.check()
        with Interrupts() as later, pytest.raises(KeyboardInterrupt):
            later.check()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_one_that_is_asked_to_end_ends_those_around_it():
    with Interrupts() as outer:
        assert not outer.asked
        with Interrupts() as inner:
            inner.ask()
        assert outer.asked
        assert Interrupts().asked is False


def test_one_ends_those_around_it_where_ctrl_c_is_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a program in the background
    with Interrupts() as outer:
        with Interrupts() as inner:
            inner.ask()
        assert outer.asked
    with Interrupts() as later:
        assert not later.asked
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_handler_of_somebody_else_is_left_alone():
    pressed = []
    signal.signal(signal.SIGINT, lambda *_: pressed.append(1))
    with Interrupts() as held:
        press()
        held.check()
    assert pressed == [1]


def swallowed() -> int:
    try:
        press()
    except KeyboardInterrupt:
        raise ImportError("numpy could not be imported") from None
    return 0


def held() -> int:
    with Interrupts() as interrupts:
        press()
        interrupts.check()
    return 0


@pytest.mark.parametrize("program", [press, swallowed, held])
def test_a_program_ends_in_one_line(program, capsys):
    assert run_to_the_end(program) == EXIT_CODE
    assert capsys.readouterr().err == "picirc: interrupted\n"
    press()  # has no effect any more


def test_a_program_that_was_not_interrupted_returns_or_raises(capsys):
    assert run_to_the_end(lambda: 3) == 3
    with pytest.raises(RuntimeError):
        run_to_the_end(lambda: (_ for _ in ()).throw(RuntimeError("real")))
    assert capsys.readouterr().err == ""


# Presses Ctrl-C when a module is looked for.
DURING_IMPORT = """
import os, signal, sys
from picirc.__main__ import main

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
sys.argv[1:] = ["inspect", "nowhere"]
sys.exit(main())
"""


@pytest.mark.parametrize("module", ["cyclopts", "torch", "numpy"])
def test_an_import_that_is_interrupted_ends_in_one_line(module):
    code = DURING_IMPORT.replace("MODULE", repr(module))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()) == (EXIT_CODE, ["picirc: interrupted"])
