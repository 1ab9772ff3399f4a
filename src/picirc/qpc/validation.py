# SPDX-License-Identifier: Apache-2.0
"""Checks of what users give: data, masks, evidence and bounds, brought into the layout of the program."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions import constraints

from picirc.engine.evidence import Points
from picirc.errors import ArgumentError, ImpossibleEvidenceError
from picirc.inputs import Family, group_columns
from picirc.memory import has_values


def as_rows(x: Tensor, argument: str, variables: int, single: bool = False, gradient: bool = False) -> Tensor:
    """Check the shape ``(batch, variables)`` of something from a user.

    Args:
        x: What the user gave.
        argument: What the user calls it.
        variables: The number of columns.
        single: Accept one row ``(variables,)`` as well.
        gradient: Accept a tensor that requires a gradient.
    """
    x = as_tensor(x, argument)
    one_row = x.shape == (variables,)
    if x.ndim != 2 or x.shape[1] != variables:
        if single and one_row:
            return as_rows(x.unsqueeze(0), argument, variables, gradient=gradient)
        shapes = f"(batch, {variables}) or ({variables},)" if single else f"(batch, {variables})"
        remedy = f"a single data point is {argument}[None]" if one_row else ""
        expected = f"a tensor {shapes}, one column per variable"
        raise ArgumentError(argument, expected, f"shape {tuple(x.shape)}", remedy)
    if len(x) == 0:
        raise ArgumentError(argument, "at least one data point", "an empty batch")
    if not gradient:
        _refuse_gradient(x, argument)
    return x


def _refuse_gradient(x: Tensor, argument: str) -> None:
    if x.requires_grad and torch.is_grad_enabled():
        remedy = f"only log_prob has a gradient to the data, use {argument}.detach()"
        raise ArgumentError(argument, "data that need no gradient", "a tensor that requires one", remedy)


def as_batch(x: Tensor, argument: str, variables: int, gradient: bool = False) -> tuple[Tensor, torch.Size]:
    """Check the shape ``(..., variables)`` of something from a user: its rows, and the shape of the batch."""
    x = as_tensor(x, argument)
    if x.ndim == 0 or x.shape[-1] != variables:
        expected = f"a tensor (..., {variables}), one column per variable"
        raise ArgumentError(argument, expected, f"shape {tuple(x.shape)}")
    if not gradient:
        _refuse_gradient(x, argument)
    return x.reshape(-1, variables), x.shape[:-1]


def as_tensor(x: Tensor, argument: str) -> Tensor:
    """What a user gave as a tensor of real numbers."""
    try:
        x = torch.as_tensor(x)
    except (TypeError, ValueError, RuntimeError):
        raise ArgumentError(argument, "a tensor, or an array of numbers", type(x).__name__) from None
    if x.is_complex():
        raise ArgumentError(argument, "real numbers", str(x.dtype))
    return x


def as_bounds(low: Tensor, high: Tensor, variables: int, like: Tensor) -> tuple[Tensor, Tensor, torch.Size]:
    """Check bounds from a user, ``(..., variables)`` each: in the layout of the program, and the shape of the batch."""
    (below, shape), (above, other) = (as_batch(b, name, variables) for b, name in ((low, "low"), (high, "high")))
    if shape != other:
        raise ArgumentError("low", f"as many rows as high ({len(above)})", f"{len(below)} rows")
    below, above = below.to(like), above.to(like)
    for name, bound in (("low", below), ("high", above)):
        if has_values(bound) and bool(bound.isnan().any()):
            raise ArgumentError(name, "numbers", "NaN", "an infinite bound leaves a variable unrestricted")
    wrong = (below > above).nonzero() if has_values(below) else below[:0]
    if len(wrong):
        row, column = wrong[0].tolist()
        got = f"{below[row, column]:g} above {above[row, column]:g} in row {row}, column {column}"
        raise ArgumentError("low", "bounds with low ≤ high", got)
    return below.T.contiguous(), above.T.contiguous(), shape


def as_points(
    rows: Tensor,
    mask: Tensor | None,
    families: Sequence[Family],
    names: Sequence[str],
    like: Tensor,
    argument: str = "x",
) -> Points:
    """Check the values of rows from a user, and bring them into the layout of the program.

    Args:
        rows: ``(batch, variables)``, as ``as_rows`` returns them; NaN is missing.
        mask: True where a value is missing, in addition.
        families: The family of each variable.
        names: What the user calls the variables.
        like: A tensor of the program's dtype and device.
        argument: What the user calls the data.
    """
    values = rows.to(like).T.contiguous()
    if values.requires_grad and all(family.discrete for family in families):
        remedy = f"the variables are discrete, use {argument}.detach()"
        raise ArgumentError(argument, "data that need no gradient", "a tensor that requires one", remedy)
    missing = values.isnan()
    if mask is not None:
        mask = torch.as_tensor(mask, device=values.device)
        if mask.dtype != torch.bool or mask.shape != rows.shape:
            expected = f"a boolean tensor of x's shape {tuple(rows.shape)}, True where a value is missing"
            raise ArgumentError("mask", expected, f"{mask.dtype} of shape {tuple(mask.shape)}")
        missing |= mask.T
        values = values.masked_fill(missing, torch.nan)
    check_values(values.detach(), families, names)
    return Points(values, missing if not has_values(missing) or bool(missing.any()) else None)


class Support(constraints.Constraint):
    """Rows whose values the families of the variables accept; NaN, which is missing, is accepted everywhere.

    Args:
        families: The family of each variable.
    """

    event_dim = 1

    def __init__(self, families: Sequence[Family]) -> None:
        self._families = tuple(families)
        super().__init__()

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        """Whether all variables are discrete."""
        return all(family.discrete for family in self._families)

    def check(self, value: Tensor) -> Tensor:
        """Whether each row ``(..., variables)`` lies in the support, ``(...)``."""
        rows, shape = as_batch(value.detach(), "value", len(self._families))
        valid = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
        for family, columns in group_columns(self._families):
            for column in columns:
                valid &= _accepted(family, rows[:, column])
        return valid.view(shape)


def _accepted(family: Family, x: Tensor) -> Tensor:
    """Whether a family accepts each of the values ``(n,)``; those that differ are tried one by one."""
    different, which = x.unique(return_inverse=True)
    found = torch.ones(len(different), dtype=torch.bool, device=x.device)
    for number, value in enumerate(different.split(1)):
        try:
            family.check(value, "")
        except ArgumentError:
            found[number] = False
    return found[which]


def check_values(values: Tensor, families: Sequence[Family], names: Sequence[str]) -> None:
    """Check values ``(variables, batch)`` against their families, all of one family at once."""
    for family, columns in group_columns(families):
        own = values if len(columns) == len(values) else values[columns]
        try:
            family.check(own.flatten(), names[columns[0]])
        except ArgumentError:
            for column in columns:  # which one it was
                family.check(values[column], names[column])
            raise


def check_possible(values: Tensor, argument: str = "given", first: int = 0) -> None:
    """Refuse evidence of probability zero.

    Args:
        values: The log-values of the data points, ``(batch,)``.
        argument: What the user calls them.
        first: The number of the first of them.
    """
    wrong = (first + torch.isneginf(values).nonzero().flatten()).tolist() if has_values(values) else []
    if wrong:
        rows = ", ".join(map(str, wrong[:5])) + (", …" if len(wrong) > 5 else "")
        raise ImpossibleEvidenceError(
            f"{argument}: expected evidence that the circuit can produce, got probability zero in {len(wrong)} "
            f"row(s): {rows}; check the values, or leave those that are uncertain out as NaN."
        )
