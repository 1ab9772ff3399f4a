"""What all families with finitely many values 0 … C-1 share: everything can be read from a table."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor

from picirc.errors import ArgumentError
from picirc.inputs.family import Family, require_support
from picirc.inputs.numerics import as_float
from picirc.recycling import recycled

LARGEST_LOGIT = 1e3  # beyond any probability of interest, yet sums of such logits are far from overflow


_FOLDS = 16


class FiniteFamily(Family):
    """A family with the values 0 … C-1, defined by the ``table`` of their log-probabilities.

    The values are treated as ordered by their integer codes in ``cdf``, ``log_interval``, ``mean`` and
    ``variance``, also where the order means nothing.
    """

    discrete: ClassVar[bool] = True

    @property
    @abstractmethod
    def values(self) -> int:
        """C, the number of values."""

    @abstractmethod
    def table(self, params: Tensor) -> Tensor:
        """Log-probabilities of all values, ``(..., P)`` to ``(..., C)``."""

    def check(self, x: Tensor, variable: str | int) -> None:
        """Accept the integers 0 … C-1 and NaN."""
        nearest = x.clamp(0, self.values - 1)
        valid = x == (nearest.round_() if x.is_floating_point() else nearest)
        expected = f"integers from 0 to {self.values - 1} for {self!r}"
        require_support(x, valid, variable, expected, "recode the values, or give the variable another family")

    def log_prob(self, params: Tensor, x: Tensor) -> Tensor:
        """Read from the table: ``(F or 1, K, P)`` and ``(F, B)`` to ``(F, K, B)``."""
        return read_table(self.table(params), _codes(x))

    def sample(self, params: Tensor, generator: torch.Generator) -> Tensor:
        """Draw from the table, ``(..., P)`` to ``(...)``."""
        probabilities = self.table(params).exp().reshape(-1, self.values)
        draws = torch.multinomial(probabilities, 1, replacement=True, generator=generator)
        return draws.reshape(params.shape[:-1]).to(params.dtype)

    def mean(self, params: Tensor) -> Tensor:
        """Σ_c c p_c."""
        return self.table(params).exp() @ self._values(params)

    def variance(self, params: Tensor) -> Tensor:
        """Σ_c (c - mean)² p_c."""
        deviation = self._values(params) - self.mean(params).unsqueeze(-1)
        return (self.table(params).exp() * deviation.square()).sum(-1)

    def cdf(self, params: Tensor, x: Tensor) -> Tensor:
        """P(X <= x) in the order of the integer codes, ``(F, K, B)``."""
        return self.log_interval(params, torch.zeros_like(x), x).exp()

    def log_interval(self, params: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """Log of Σ p_c over the integers in [low, high]; a sum of positive terms, so that no tail cancels."""
        first = _codes(as_float(low).ceil().clamp(0, self.values))
        last = _codes(as_float(high).floor().clamp(-1, self.values - 1))
        return sum_table(self.table(params), first, last)

    def mode(self, params: Tensor) -> Tensor:
        """Return the most probable value, the smallest one of several."""
        return self.table(params).argmax(-1).to(params.dtype)

    def mode_log_prob(self, params: Tensor) -> Tensor:
        """Return the largest entry of the table."""
        return self.table(params).amax(-1)

    def inner(self, a: Tensor, b: Tensor) -> Tensor:
        """Σ_c p_c q_c, exactly."""
        return self.table(a).exp() @ self.table(b).exp().mT

    @torch.no_grad()
    def expected_statistics(self, params: Tensor, x: Tensor, flows: Tensor) -> Tensor:
        """Total flow of each value, ``(F or 1, K, C)``; no one-hot array is built."""
        return count_values(flows, _codes(x), self.values, shared=params.shape[0] == 1)

    def _values(self, params: Tensor) -> Tensor:
        return torch.arange(self.values, dtype=params.dtype, device=params.device)


def _codes(x: Tensor) -> Tensor:
    """``x`` as indices. A NaN has no code, and converting it would give 0 on some processors."""
    if x.is_floating_point() and bool(x.isnan().any()):
        raise ArgumentError("x", "values without NaN", "NaN", "put the family's neutral value there, then mask")
    return x.long()


class _Read(torch.autograd.Function):
    """``out[f, k, b] = table[f or 0, k, codes[f, b]]``.

    Autograd's own gradient of this would expand a shared table to all variables; this one never does.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor, codes: Tensor) -> Tensor:
        ctx.save_for_backward(codes)
        ctx.values, ctx.shared = table.shape[-1], table.shape[0] == 1
        return table.expand(codes.shape[0], -1, -1).gather(2, _each_state(codes, table.shape[1]))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (codes,) = ctx.saved_tensors
        return count_values(gradients[0], codes, ctx.values, shared=ctx.shared), None


def read_table(table: Tensor, codes: Tensor) -> Tensor:
    """Look codes ``(F, B)`` up in tables ``(F or 1, K, C)``: ``(F, K, B)``."""
    looked_up: Tensor = _Read.apply(table, codes)  # type: ignore[no-untyped-call]
    return looked_up


def count_values(weights: Tensor, codes: Tensor, values: int, *, shared: bool) -> Tensor:
    """Sum weights ``(F, K, B)`` by the codes ``(F, B)``: ``(F, K, C)``, or ``(1, K, C)`` if shared."""
    folds, states, _ = weights.shape
    if not shared:
        counts = recycled((folds, states, values), weights).zero_()
        return counts.scatter_add_(2, _each_state(codes, states), weights)
    total = weights.new_zeros(states, values)
    # A few variables at a time are brought into the order (state, variable, row), within the cache.
    for some, part in zip(codes.split(_FOLDS), weights.split(_FOLDS), strict=True):
        by_state = part.transpose(0, 1).reshape(states, -1)
        total.scatter_add_(1, some.flatten().expand(states, -1), by_state)
    return total.unsqueeze(0)


def sum_table(table: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """Log-sum-exp of the entries first … last ``(F, B)`` of tables ``(F or 1, K, C)``: ``(F, K, B)``.

    The range is cut into blocks whose lengths are powers of two, by the binary digits of its own length, and
    the tables of all blocks of one length follow from those of half the length.
    """
    length = (last - first + 1).clamp(min=0)  # (F, B)
    total = torch.full((first.shape[0], table.shape[1], first.shape[1]), -torch.inf).to(table)
    width, blocks = 1, table
    while True:
        used = (length & width) > 0
        part = read_table(blocks, first.clamp(max=blocks.shape[-1] - 1))
        total = torch.where(used.unsqueeze(1), torch.logaddexp(total, part), total)
        first = first + width * used
        if 2 * width > table.shape[-1]:
            return total
        blocks = torch.logaddexp(blocks[..., :-width], blocks[..., width:])
        width *= 2


def _each_state(codes: Tensor, states: int) -> Tensor:
    return codes.unsqueeze(1).expand(-1, states, -1)
