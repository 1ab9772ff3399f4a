"""Families for the columns of a table: one for all, or one each."""

from __future__ import annotations

from collections.abc import Sequence

from picirc.errors import ArgumentError
from picirc.inputs.family import Family


def as_columns(inputs: Family | Sequence[Family], n: int) -> tuple[Family, ...]:
    """Return one family a variable.

    Args:
        inputs: One family for all variables, or a sequence with one for each.
        n: Number of variables.

    Example:
        >>> from picirc.inputs import Bernoulli, Gaussian
        >>> as_columns(Bernoulli(), 2)
        (Bernoulli(), Bernoulli())
        >>> as_columns([Bernoulli(), Gaussian()], 2)
        (Bernoulli(), Gaussian())
    """
    expected = "a family, or a sequence with one for each variable"
    if isinstance(inputs, Family):
        return (inputs,) * n
    if isinstance(inputs, type) and issubclass(inputs, Family):
        raise ArgumentError("inputs", expected, f"the class {inputs.__name__}", f"write {inputs.__name__}(...)")
    if not isinstance(inputs, Sequence):
        raise ArgumentError("inputs", expected, inputs)
    for column, family in enumerate(inputs):
        if not isinstance(family, Family):
            raise ArgumentError(f"inputs[{column}]", "a family", repr(family), "write for example Gaussian()")
    if len(inputs) != n:
        raise ArgumentError("inputs", f"one family for each of the {n} variables", f"{len(inputs)} families")
    return tuple(inputs)


def group_columns(families: Sequence[Family]) -> list[tuple[Family, list[int]]]:
    """Group the variables whose families are equal, in order of first appearance.

    Example:
        >>> from picirc.inputs import Bernoulli, Gaussian
        >>> group_columns([Gaussian(), Bernoulli(), Gaussian()])
        [(Gaussian(), [0, 2]), (Bernoulli(), [1])]
    """
    if families and all(family is families[0] for family in families):
        return [(families[0], list(range(len(families))))]  # the usual case, without hashing each of them
    groups: dict[Family, list[int]] = {}
    for column, family in enumerate(families):
        groups.setdefault(family, []).append(column)
    return list(groups.items())
