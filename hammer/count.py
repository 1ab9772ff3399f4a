# SPDX-License-Identifier: Apache-2.0
"""What an attack reports: how often it was tried, and what did not hold."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

PERMITTED_SECONDS = 5.0  # of the processor, for one small file


class SkippedError(Exception):
    """An attack cannot be made on this machine; the message says what is missing."""


@dataclass
class Count:
    """The outcome of an attack.

    Attributes:
        tried: How many times.
        failures: What did not hold, each in a line.
        note: Anything worth knowing beside the numbers.
    """

    tried: int = 0
    failures: list[str] = field(default_factory=list)
    note: str = ""

    def check(self, holds: bool, words: str) -> None:
        """Count a failure unless something holds."""
        if not holds:
            self.failures.append(words)

    @contextmanager
    def attempt(self, words: str, permitted: tuple[type[BaseException], ...] = ()) -> Iterator[None]:
        """Count a try, which may raise what is permitted and nothing else, and may not take long."""
        self.tried += 1
        started = time.process_time()
        try:
            yield
        except permitted:
            pass
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            self.failures.append(
                f"{words}: {type(error).__name__}: {str(error)[:200]} ({place.filename}:{place.lineno})"
            )
        if (seconds := time.process_time() - started) > PERMITTED_SECONDS:
            self.failures.append(f"{words}: {seconds:.1f} s")


Attack = Callable[[int, float], Count]
