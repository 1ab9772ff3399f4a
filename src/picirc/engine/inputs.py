# SPDX-License-Identifier: Apache-2.0
"""Derivatives of input distributions, their statistics for EM, and products of many inputs at one row.

Shapes: parameters are ``(fold or 1, states, P)``, for each of ``fold`` variables or shared by all of them. Values ``x``
are ``(fold, batch)``, with a neutral value where one is missing. Log-probabilities and flows are ``(fold, states,
batch)``; flows are zero where a value is missing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from picirc.inputs import Family
from picirc.inputs.discrete import count_values
from picirc.memory import has_values

_CHUNK_ELEMENTS = 2**19  # of temporaries, so that they stay in the cache
FEWEST = 8  # inputs at one row for which a matrix product pays off


def with_parents(params: Tensor, parents: Sequence[tuple[int, int]], values: Tensor) -> Tensor:
    """Fill the values of observed parents into parameters: ``(fold, states, P)`` to ``(fold, states, batch, P)``.

    Args:
        params: The values of all parents, with placeholders for the observed ones.
        parents: The position among the parameters and the column of each observed parent.
        values: The data, ``(variables, batch)``. If a parent is missing, so is the input, and zero takes its place.
    """
    wide = params.unsqueeze(2).repeat(1, 1, values.shape[1], 1)
    for place, column in parents:
        wide[..., place] = values[column].nan_to_num(0.0)
    return wide


def gradient(family: Family, params: Tensor, x: Tensor, flows: Tensor) -> Tensor:
    """Return ``Σ flow · d log p / d params`` over the batch, in the shape of ``params``."""
    with torch.enable_grad():
        leaf = params.detach().requires_grad_()
        table = family.table(leaf)
    if table is not None:
        counts = count_values(flows, x.long(), table.shape[-1], shared=len(params) == 1)
        if table is leaf or not table.requires_grad:
            return counts if table is leaf else torch.zeros_like(params)
        return torch.autograd.grad(table, leaf, counts)[0]
    total = torch.zeros_like(params)
    for part in chunks(flows):
        with torch.enable_grad():
            leaf = fold(params, part).detach().requires_grad_()
            values = family.log_prob(leaf, x[part])
        if values.requires_grad:  # a density may ignore its parameters
            (found,) = torch.autograd.grad(values, leaf, flows[part])
            fold(total, part).add_(found)
    return total


def value_gradient(family: Family, params: Tensor, x: Tensor, flows: Tensor) -> Tensor:
    """Return ``Σ flow · d log p / dx`` over the states, ``(fold, batch)``; zero for discrete families."""
    found = torch.zeros_like(x)
    for part in [] if family.discrete else chunks(flows):
        with torch.enable_grad():
            leaf = x[part].detach().requires_grad_()
            values = family.log_prob(fold(params, part).detach(), leaf)
        if values.requires_grad:
            (found[part],) = torch.autograd.grad(values, leaf, flows[part])
    return found


def learnable_gradient(family: Family, params: Tensor, x: Tensor, flows: Tensor) -> tuple[Tensor, ...]:
    """Return ``Σ flow · d log p`` with respect to the parameters of the family itself."""
    total = tuple(torch.zeros_like(tensor) for tensor in family.learnable)
    free = [(tensor, sums) for tensor, sums in zip(family.learnable, total, strict=True) if tensor.requires_grad]
    for part in chunks(flows) if free else []:
        with torch.enable_grad():
            values = family.log_prob(fold(params, part).detach(), x[part])
        found = torch.autograd.grad(values, [t for t, _ in free], flows[part].to(values.dtype), allow_unused=True)
        for (_, sums), one in zip(free, found, strict=True):
            if one is not None:
                sums += one
    return total


def statistics(family: Family, params: Tensor, x: Tensor, flows: Tensor) -> Tensor:
    """Return the sufficient statistics for EM, weighted by the flows."""
    if family.table(params[:1, :1]) is not None:
        return family.expected_statistics(params, x, flows)
    parts = [family.expected_statistics(fold(params, part), x[part], flows[part]) for part in chunks(flows)]
    return torch.stack(parts).sum(0) if len(params) == 1 else torch.cat(parts)


def chunks(values: Tensor, most: int = _CHUNK_ELEMENTS) -> list[slice]:
    """Return slices of the first axis that hold at most ``most`` elements each."""
    return pieces(len(values), values[:1].numel(), most)


def pieces(count: int, each: int, most: int) -> list[slice]:
    """Return slices of an axis whose entries have ``each`` elements, with one entry or at most ``most`` elements."""
    size = max(1, most // max(1, each))
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def fold(params: Tensor, part: slice) -> Tensor:
    """Return the parameters of some variables; shared parameters are those of all."""
    return params if params.shape[0] == 1 else params[part]


class Star:
    """Many independent inputs of one exponential family at the same row, as one matrix product.

    In natural form the sum over the inputs d of a row is ``Σ_d T(x_d)·η_d[s] − A_d[s] + h(x_d)``. The terms of a
    missing value are zero.

    Args:
        family: The family.
        params: ``(rows, inputs, states, P)``.
        x: ``(rows, inputs, batch)``.
        missing: ``(rows, inputs, batch)``; None if nothing is missing.
    """

    def __init__(self, family: Family, params: Tensor, x: Tensor, missing: Tensor | None) -> None:
        self._leaf = params.detach().requires_grad_()
        with torch.enable_grad():
            self._natural = family.natural(self._leaf)
        self._x, self._missing = x, missing

    @property
    def usable(self) -> bool:
        """Whether the family has a natural form, with finite numbers."""
        found = self._natural
        # One sum is cheaper than a test of every number. If it overflows, the inputs are evaluated one by one.
        return found is not None and has_values(found.base) and bool((found.base.sum() + found.eta.sum()).isfinite())

    def log_prob(self) -> Tensor:
        """Return the sum of the log-probabilities of the inputs of each row, ``(rows, states, batch)``."""
        assert self._natural is not None
        statistics, measure = self._statistics()
        base = self._natural.base.detach()  # (rows, inputs, states)
        found = self._matrix() @ statistics.flatten(1, 2)
        seen = self._seen(found.dtype)
        found -= base.sum(1).unsqueeze(2) if seen is None else base.mT @ seen
        found += measure.sum(1, keepdim=True)
        return found.to(self._leaf.dtype)

    def gradient(self, flows: Tensor) -> Tensor:
        """Return ``Σ flow · d log p / d params`` over the batch; flows are ``(rows, states, batch)``."""
        assert self._natural is not None
        eta, base = self._natural.eta, self._natural.base
        rows, inputs, states, size = eta.shape
        flow, (statistics, _) = flows.to(eta.dtype), self._statistics()
        found = (statistics.flatten(1, 2) @ flow.mT).view(rows, inputs, size, states).mT
        seen = self._seen(eta.dtype)
        total = flow.sum(2).unsqueeze(1).expand_as(base) if seen is None else seen @ flow.mT
        (result,) = torch.autograd.grad((eta, base), self._leaf, (found, -total))
        return result

    def value_gradient(self, flows: Tensor) -> Tensor:
        """Return ``Σ flow · d log p / dx`` over the states, ``(rows, inputs, batch)``."""
        assert self._natural is not None
        with torch.enable_grad():
            leaf = self._x.detach().requires_grad_()
            statistics, measure = self._natural.statistics(leaf)
        flow = flows.to(statistics.dtype)
        arriving = (self._matrix().mT @ flow).view_as(statistics)
        total = flow.sum(1, keepdim=True).expand_as(measure)
        parts = [(t, g) for t, g in ((statistics, arriving), (measure, total)) if t.requires_grad]
        if not parts:  # of a discrete family
            return torch.zeros_like(leaf)
        (found,) = torch.autograd.grad([t for t, _ in parts], leaf, [g for _, g in parts])
        return found if self._missing is None else found.masked_fill(self._missing, 0.0)

    def _matrix(self) -> Tensor:
        """Return ``η`` as matrices ``(rows, states, inputs * size)``."""
        assert self._natural is not None
        return self._natural.eta.detach().transpose(1, 2).flatten(2)

    def _statistics(self) -> tuple[Tensor, Tensor]:
        """Return ``T (rows, inputs, size, batch)`` and ``h (rows, inputs, batch)``, zero where x is missing."""
        assert self._natural is not None
        statistics, measure = self._natural.statistics(self._x)
        if self._missing is not None:
            statistics = statistics.masked_fill(self._missing.unsqueeze(2), 0.0)
            measure = measure.masked_fill(self._missing, 0.0)
        return statistics, measure

    def _seen(self, dtype: torch.dtype) -> Tensor | None:
        return None if self._missing is None else (~self._missing).to(dtype)
