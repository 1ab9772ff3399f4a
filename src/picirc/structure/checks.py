"""Checks of arguments that several structures share."""

from __future__ import annotations

import operator

from picirc.errors import ArgumentError


def whole_number(argument: str, value: object, least: int) -> int:
    """Return ``value`` as an ``int`` that is at least ``least``.

    Args:
        argument: The name of the argument as the user wrote it.
        value: A Python or NumPy integer.
        least: The smallest value accepted.

    Raises:
        ArgumentError: ``value`` is no integer (a ``bool`` is none either) or too small.
    """
    expected = f"a whole number, {least} or more"
    try:
        number = operator.index(value)  # type: ignore[arg-type]  # the point is to find out
    except TypeError:
        raise ArgumentError(argument, expected, value) from None
    if isinstance(value, bool) or number < least:
        raise ArgumentError(argument, expected, value)
    return number
