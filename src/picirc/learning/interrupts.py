"""Interruptions from the keyboard, held back until the work in hand is whole."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType


class Interrupts:
    """While entered, Ctrl-C only leaves a note, which ``check`` raises; a second Ctrl-C interrupts at once.

    A step that stopped half-way would leave parameters that no training goes through, and no checkpoint could continue
    from them as if nothing had happened. Another handler than Python's own is left alone.
    """

    def __init__(self) -> None:
        self._asked = False
        self._replaced = False

    def __enter__(self) -> Interrupts:
        # Python lets the main thread alone handle signals.
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._note)
            self._replaced = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._replaced:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def check(self) -> None:
        """Raise ``KeyboardInterrupt`` if Ctrl-C was pressed."""
        if self._asked:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.check()
        self._asked = True
