# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C: held back while work must stay whole, and one line at the end instead of a traceback."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

EXIT_CODE = 130  # what shells report for a program that Ctrl-C has ended


class Interrupts:
    """While entered, Ctrl-C only leaves a note, which ``check`` raises; a second Ctrl-C interrupts at once.

    A step that stopped half-way would leave parameters that no training goes through, and no checkpoint could continue
    from them as if nothing had happened. Inside another one, both share the note. A handler that is not Python's or
    picirc's own is left alone.
    """

    def __init__(self) -> None:
        self._asked = False
        self._holder = self
        self._former: Callable[[int, FrameType | None], object] | None = None

    def __enter__(self) -> Interrupts:
        # Python lets the main thread alone handle signals.
        if threading.current_thread() is not threading.main_thread():
            return self
        handler = signal.getsignal(signal.SIGINT)
        around = getattr(handler, "__self__", None)
        if isinstance(around, Interrupts):
            self._holder = around
        elif callable(handler) and (handler is signal.default_int_handler or isinstance(around, _Ending)):
            self._former = handler
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._former is not None:
            signal.signal(signal.SIGINT, self._former)

    def check(self) -> None:
        """Raise ``KeyboardInterrupt`` if Ctrl-C was pressed."""
        if self._holder._asked:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.check()
        self._asked = True


class _Ending:
    """Whether Ctrl-C was pressed, even if somebody has caught the exception or made another of it."""

    def __init__(self) -> None:
        self.asked = False

    def note(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        raise KeyboardInterrupt


def run_to_the_end(program: Callable[[], int]) -> int:
    """Run a program; when Ctrl-C ends it, say so in one line and return the exit code 130.

    Whatever an interrupted import or library makes of the exception is not shown. Afterwards Ctrl-C is ignored: there
    is nothing left but the end of the process.
    """
    ending = _Ending()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, ending.note)
    try:
        code = program()
    except BaseException as error:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if not ending.asked and not isinstance(error, KeyboardInterrupt):
            raise
        print("picirc: interrupted", file=sys.stderr)
        return EXIT_CODE
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code
