# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C: delayed while work must not be interrupted, and reported in one line instead of a traceback."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from types import FrameType, TracebackType
from typing import ClassVar

EXIT_CODE = 130  # by convention, for a program ended by Ctrl-C


class Interrupts:
    """A context in which ``check`` raises the ``KeyboardInterrupt`` of Ctrl-C; a second Ctrl-C interrupts at once.

    It keeps a training step from stopping half-way, with parameters that belong to no checkpoint. Nested contexts share
    one state. A signal handler that is neither Python's nor picirc's is left alone.
    """

    _outermost: ClassVar[ContextVar[Interrupts | None]] = ContextVar("outermost", default=None)  # of each thread

    def __init__(self) -> None:
        self._asked = False
        self._holder = self
        self._former: Callable[[int, FrameType | None], object] | None = None

    def __enter__(self) -> Interrupts:
        self._holder = self._outermost.get() or self
        if self._holder is not self:
            return self
        self._outermost.set(self)
        # In Python only the main thread can handle signals.
        if threading.current_thread() is threading.main_thread():
            handler = signal.getsignal(signal.SIGINT)
            ours = isinstance(getattr(handler, "__self__", None), _Ending)
            if callable(handler) and (handler is signal.default_int_handler or ours):
                self._former = handler
                signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._holder is self:
            self._outermost.set(None)
        if self._former is not None:
            signal.signal(signal.SIGINT, self._former)

    @property
    def asked(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return self._holder._asked

    def ask(self) -> None:
        """End all that goes on in this context and in those around it, as Ctrl-C does."""
        self._holder._asked = True

    def check(self) -> None:
        """Raise ``KeyboardInterrupt`` if Ctrl-C was pressed."""
        if self.asked:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.check()
        self.ask()


class _Ending:
    """Whether Ctrl-C was pressed, even if a library has caught or replaced the exception."""

    def __init__(self) -> None:
        self.asked = False

    def note(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        raise KeyboardInterrupt


def run_to_the_end(program: Callable[[], int]) -> int:
    """Run a program. If Ctrl-C ends it, print one line and return the exit code 130.

    Other exceptions that an interrupted library raises are not shown. Afterwards Ctrl-C is ignored, because the process
    is about to end.
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
