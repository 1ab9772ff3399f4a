# SPDX-License-Identifier: Apache-2.0
"""The exceptions of the library.

Invalid input raises a ``ValueError`` that names the argument, what was expected, what was received, and the remedy.
"""

from __future__ import annotations


def printable(text: object) -> str:
    r"""Escape all non-printable characters but line breaks, for text that may come from a file.

    Example:
        >>> print(printable("\x1b[31mred"))
        \x1b[31mred
    """
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in shown)


class ArgumentError(ValueError):
    """An argument is invalid.

    Args:
        argument: The name of the argument as the user wrote it.
        expected: What would have been accepted.
        got: What was received: a description, or the value itself.
        remedy: What to do about it.

    Example:
        >>> raise ArgumentError("std", "a positive number", -1.0, "give the standard deviation, not its log")
        Traceback (most recent call last):
            ...
        picirc.errors.ArgumentError: std: expected a positive number, got -1.0; give the standard deviation,
        not its log.
    """

    def __init__(self, argument: str, expected: str, got: object, remedy: str = "") -> None:
        self.argument = argument
        came = got if isinstance(got, str) else repr(got)
        advice = f"; {remedy}" if remedy else ""
        super().__init__(f"{argument}: expected {expected}, got {came}{advice}.")


class StructureError(ValueError):
    """A circuit lacks the structural property that an operation needs; the message names the offending unit."""


class IntractableError(ValueError):
    """There is no closed form; the message names the unit that prevents it."""


class SizeError(ValueError):
    """A circuit would be too large to materialise; the message gives the size."""


class ImpossibleEvidenceError(ValueError):
    """The evidence has probability zero and cannot be conditioned on; the message names the rows."""
