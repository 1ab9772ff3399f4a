# SPDX-License-Identifier: Apache-2.0
"""Checks of data, masks, evidence and bounds from users, and their conversion to the layout of the engine."""

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
    """Check the shape ``(batch, variables)``.

    Args:
        x: The data.
        argument: The name of the argument.
        variables: The number of columns.
        single: Accept a single row ``(variables,)``.
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
    """Check the shape ``(..., variables)``; return the rows and the shape of the batch."""
    x = as_tensor(x, argument)
    if x.ndim == 0 or x.shape[-1] != variables:
        expected = f"a tensor (..., {variables}), one column per variable"
        raise ArgumentError(argument, expected, f"shape {tuple(x.shape)}")
    if not gradient:
        _refuse_gradient(x, argument)
    return x.reshape(-1, variables), x.shape[:-1]


def as_tensor(x: Tensor, argument: str) -> Tensor:
    """Convert to a tensor of real numbers."""
    try:
        x = torch.as_tensor(x)
    except (TypeError, ValueError, RuntimeError):
        raise ArgumentError(argument, "a tensor, or an array of numbers", type(x).__name__) from None
    if x.is_complex():
        raise ArgumentError(argument, "real numbers", str(x.dtype))
    return x


def as_bounds(low: Tensor, high: Tensor, variables: int, like: Tensor) -> tuple[Tensor, Tensor, torch.Size]:
    """Check bounds ``(..., variables)``; return them as ``(variables, batch)``, and the shape of the batch."""
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
    """Check the values of rows and convert them to evidence.

    Args:
        rows: ``(batch, variables)``; NaN is missing.
        mask: True where a value is missing, in addition to NaN.
        families: The family of each variable.
        names: The names of the variables.
        like: A tensor of the circuit's dtype and device.
        argument: The name of the argument.
    """
    values = rows.to(like).T.contiguous()
    if values.requires_grad and all(family.discrete for family in families):
        remedy = f"the variables are discrete, use {argument}.detach()"
        raise ArgumentError(argument, "data that need no gradient", "a tensor that requires one", remedy)
    missing = values.isnan()
    if mask is not None:
        missing |= as_mask(mask, rows.shape).to(values.device).T
        values = values.masked_fill(missing, torch.nan)
    check_values(values.detach(), families, names)
    return Points(values, missing if not has_values(missing) or bool(missing.any()) else None)


def as_mask(mask: Tensor, shape: Sequence[int]) -> Tensor:
    """Check a mask; return its rows ``(batch, variables)``."""
    mask = torch.as_tensor(mask)
    if mask.dtype != torch.bool or mask.shape != tuple(shape):
        expected = f"a boolean tensor of x's shape {tuple(shape)}, True where a value is missing"
        raise ArgumentError("mask", expected, f"{mask.dtype} of shape {tuple(mask.shape)}")
    return mask.reshape(-1, shape[-1])


class Support(constraints.Constraint):
    """Rows that the families of the variables accept; NaN is accepted everywhere.

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
        """Return whether each row ``(..., variables)`` is in the support, ``(...)``."""
        rows, shape = as_batch(value.detach(), "value", len(self._families))
        valid = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
        for family, x in zip(self._families, rows.T, strict=True):
            valid &= _accepted(family, x)
        return valid.view(shape)


def _accepted(family: Family, x: Tensor) -> Tensor:
    """Return whether a family accepts each of the values ``(n,)``; each distinct value is tried once."""
    different, which = x.unique(return_inverse=True)
    found = torch.ones(len(different), dtype=torch.bool, device=x.device)
    for number, value in enumerate(different.split(1)):
        try:
            family.check(value, "")
        except ArgumentError:
            found[number] = False
    return found[which]


def check_values(values: Tensor, families: Sequence[Family], names: Sequence[str]) -> None:
    """Check values ``(variables, batch)`` against their families, all variables of one family at once."""
    for family, columns in group_columns(families):
        own = values if len(columns) == len(values) else values[columns]
        try:
            family.check(own.flatten(), names[columns[0]])
        except ArgumentError:
            for column in columns:  # find the variable
                family.check(values[column], names[column])
            raise


def check_possible(values: Tensor, argument: str = "given", first: int = 0) -> None:
    """Raise if the evidence has probability zero.

    Args:
        values: The log-probabilities of the rows, ``(batch,)``.
        argument: The name of the argument.
        first: The number of the first row.
    """
    wrong = (first + torch.isneginf(values).nonzero().flatten()).tolist() if has_values(values) else []
    if wrong:
        rows = ", ".join(map(str, wrong[:5])) + (", …" if len(wrong) > 5 else "")
        raise ImpossibleEvidenceError(
            f"{argument}: expected evidence that the circuit can produce, got probability zero in {len(wrong)} "
            f"row(s): {rows}; check the values, or replace uncertain ones by NaN."
        )
