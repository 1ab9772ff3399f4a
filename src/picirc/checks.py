# SPDX-License-Identifier: Apache-2.0
"""Checks of single arguments. Each returns the value or raises an ``ArgumentError``."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from numbers import Real
from typing import TypeGuard, TypeVar

from picirc.errors import ArgumentError

Choice = TypeVar("Choice", bound=str)


def check_integer(argument: str, value: object, least: int = 1, most: int | None = None) -> int:
    """Return ``value`` as an ``int`` between ``least`` and ``most``; raise if it is not an integer, or a ``bool``.

    Example:
        >>> import numpy as np
        >>> check_integer("states", np.int64(3))
        3
        >>> check_integer("states", 2.0)
        Traceback (most recent call last):
            ...
        picirc.errors.ArgumentError: states: expected a positive integer, got 2.0.
    """
    expected = {0: "a non-negative integer", 1: "a positive integer"}.get(least, f"an integer of at least {least}")
    if most is not None:
        expected = f"an integer from {least:,} to {most:,}"
    try:
        number = operator.index(value)  # type: ignore[arg-type]  # other types raise a TypeError
    except TypeError:
        raise ArgumentError(argument, expected, value) from None
    if isinstance(value, bool) or number < least or (most is not None and number > most):
        raise ArgumentError(argument, expected, value)
    return number


def check_positive(argument: str, value: object) -> float:
    """Return ``value`` as a positive, finite ``float``.

    Example:
        >>> check_positive("sigma", 2)
        2.0
    """
    if not is_number(value) or not 0 < float(value) < math.inf:
        raise ArgumentError(argument, "a positive number", value)
    return float(value)


def check_choice(argument: str, value: object, options: Sequence[Choice]) -> Choice:
    """Return ``value`` if it is one of the strings in ``options``.

    Example:
        >>> check_choice("product", "cp", ["cp", "tucker"])
        'cp'
    """
    for option in options:
        if isinstance(value, str) and value == option:
            return option
    raise ArgumentError(argument, " or ".join(map(repr, options)), value)


def check_boolean(argument: str, value: object) -> bool:
    """Return ``value`` if it is True or False."""
    if not isinstance(value, bool):
        raise ArgumentError(argument, "True or False", value)
    return value


def is_number(value: object) -> TypeGuard[Real]:
    """Whether ``value`` is a real number of Python or NumPy, and not a boolean."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_even(argument: str, value: int) -> int:
    """Return ``value`` if it is a positive even integer."""
    if check_integer(argument, value, 2) % 2:
        raise ArgumentError(argument, "an even integer", value)
    return int(value)
