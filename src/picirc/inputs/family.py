# SPDX-License-Identifier: Apache-2.0
"""The interface of the univariate distributions at the bottom of a circuit.

The parameters of a group of variables of one family are one tensor ``(F, K, P)``: F variables (folds), K
states of the latent above each, P parameters per state. If ``F = 1`` and the data have more variables, all of
them share the parameters, without a copy. Data are ``(F, B)``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as nnf
from torch import Tensor

from picirc.autograd import first_order
from picirc.checks import is_number
from picirc.errors import ArgumentError
from picirc.memory import empty, has_values
from picirc.native import kernels_for


@dataclass(frozen=True)
class Natural:
    """Parameters in natural form: ``log p(x) = T(x)·eta − base + h(x)``."""

    eta: Tensor  # (..., K, S) for S sufficient statistics
    base: Tensor  # (..., K)
    statistics: Callable[[Tensor], tuple[Tensor, Tensor]]  # maps x (..., B) to T (..., S, B) and h (..., B)


class Family(ABC):
    """A family of univariate distributions; an instance is a value without parameters.

    A subclass is a frozen dataclass, so that equal families compare equal and are evaluated together. It must
    define ``size``, ``constrain``, ``check``, ``log_prob``, ``sample``, ``mean`` and ``variance``. All other methods
    use these, or raise ``NotImplementedError`` with the name of the method to add.

    Parameters are always in *valid* form, as ``constrain`` returns them. Results have their dtype and device.
    """

    correlates: ClassVar[bool] = False
    """Whether variables of the family can be correlated given a state, as in ``inputs.correlated``."""

    softmax: ClassVar[bool] = False
    """Whether the parameters are the log-probabilities of all values, and ``constrain`` a softmax."""

    discrete: ClassVar[bool] = False
    """Whether the values are integers, so that probabilities are sums and intervals include their ends."""

    neutral: ClassVar[float] = 0.0
    """A value inside the support that callers of ``log_prob`` put in place of missing data.

    The caller must replace the result there by log 1, so that a missing category is never read as category 0.
    """

    @property
    def learnable(self) -> tuple[Tensor, ...]:
        """The learnable parameters of the family itself, besides those of its states."""
        return ()

    @property
    @abstractmethod
    def size(self) -> int:
        """P, the number of parameters per state."""

    @abstractmethod
    def constrain(self, raw: Tensor) -> Tensor:
        """Map any finite real tensor ``(..., P)`` to valid parameters ``(..., P)``, differentiably."""

    def accept(self, params: Tensor) -> Tensor:
        """Check parameters ``(..., P)`` that were given by a user, and return them in valid form.

        This default is for families whose parameters may be any numbers, such as logits.
        """
        return self.constrain(params)

    @abstractmethod
    def check(self, x: Tensor, variable: str | int) -> None:
        """Raise ``ArgumentError`` if one of the values ``(B,)`` is outside the support; NaN is missing."""

    @abstractmethod
    def log_prob(self, params: Tensor, x: Tensor) -> Tensor:
        """Log-density, or log-probability, of every value in every state.

        Parameters are ``(F or 1, K, P)``, values ``(F, B)`` inside the support and without NaN, results ``(F, K, B)``.
        """

    @abstractmethod
    def sample(self, params: Tensor, generator: torch.Generator) -> Tensor:
        """Draw one value for each parameter vector: ``(..., P)`` to ``(...)``."""

    @abstractmethod
    def mean(self, params: Tensor) -> Tensor:
        """Expectation, ``(..., P)`` to ``(...)``."""

    @abstractmethod
    def variance(self, params: Tensor) -> Tensor:
        """Variance, ``(..., P)`` to ``(...)``."""

    def unconstrain(self, params: Tensor) -> Tensor:
        """Return raw values that ``constrain`` maps to ``params``, to start gradient training from."""
        raise self._absent("unconstrain(params)", "gradient training from given parameters")

    def cdf(self, params: Tensor, x: Tensor) -> Tensor:
        """P(X <= x), x of shape ``(F, B)`` with ±inf allowed: ``(F, K, B)``. It may lack a gradient."""
        raise self._absent("cdf(params, x)", "interval queries")

    def log_interval(self, params: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """Log of P(low <= X <= high), ends ``(F, B)`` included and possibly infinite: ``(F, K, B)``.

        An empty interval has log-probability -inf. This default subtracts two values of ``cdf``, which loses digits far
        out in the upper tail.
        """
        below = low.ceil() - 1 if self.discrete else low
        return (self.cdf(params, high) - self.cdf(params, below)).clamp(min=0).log()

    def mode(self, params: Tensor) -> Tensor:
        """Return the most probable value, ``(..., P)`` to ``(...)``."""
        raise self._absent("mode(params)", "max-product decoding")

    def mode_log_prob(self, params: Tensor) -> Tensor:
        """``log_prob`` at the mode, ``(..., P)`` to ``(...)``."""
        flat = params.reshape(-1, 1, params.shape[-1])  # every parameter vector a variable with one state
        return self.log_prob(flat, self.mode(flat)).reshape(params.shape[:-1])

    def inner(self, a: Tensor, b: Tensor) -> Tensor:
        """∫ p(x) q(x) dx, or Σ p(x) q(x): ``(F or 1, K, P)`` and ``(F or 1, L, P)`` to ``(F or 1, K, L)``."""
        raise self._absent("inner(a, b)", "inner products of circuits")

    def table(self, params: Tensor) -> Tensor | None:
        """Log-probabilities ``(..., C)`` of the values 0 … C-1 if the family is finite, else None."""
        return None

    def natural(self, params: Tensor) -> Natural | None:
        """The natural form of an exponential family; None for others, and where it would not be faster."""
        return None

    def expected_statistics(self, params: Tensor, x: Tensor, flows: Tensor) -> Tensor:
        """The statistics of one EM step, Σ_b flow · T(x), of shape ``(F or 1, K, S)``.

        Results for several batches with the same ``params`` can be added. For shared parameters, statistics are summed
        over the variables.

        Args:
            params: The parameters that the flows were computed with, ``(F or 1, K, P)``.
            x: The data ``(F, B)``, inside the support.
            flows: The posterior probability of each state for each row, ``(F, K, B)``; 0 where ``x`` is missing.
        """
        raise self._absent("expected_statistics(params, x, flows)", "EM")

    def from_statistics(self, params: Tensor, statistics: Tensor, smoothing: float = 0.0) -> Tensor:
        """The new parameters ``(F or 1, K, P)`` of an EM step; a state without weight keeps its parameters.

        For exponential families they maximise the weighted likelihood; for others they increase it.

        Args:
            params: The parameters given to ``expected_statistics``.
            statistics: Its result, ``(F or 1, K, S)``.
            smoothing: The number of pseudo-observations added to every state. They are spread evenly over the values of
                a finite family; for other families they follow the old parameters.
        """
        raise self._absent("from_statistics(params, statistics, smoothing)", "EM")

    def move(self, raw: Tensor, old: Tensor, statistics: Tensor, smoothing: float, step: float | Tensor) -> None:
        """Write the raw values after a step of mini-batch EM: the ``mix`` of the old ones and ``from_statistics``."""
        raw.copy_(self.unconstrain(self.mix(old, self.from_statistics(old, statistics, smoothing), step)))

    def mix(self, old: Tensor, new: Tensor, step: float | Tensor) -> Tensor:
        """Move from ``old`` to ``new`` by ``step`` in [0, 1]: the average of mini-batch EM.

        A family with mean parameters averages these, (1 - step)·old + step·new, as if averaging statistics of equal
        weight. For weights n (old) and w (batch) of a state, averaging statistics with the rate η is the step
        ``η w / ((1 - η) n + η w)``. This default averages the parameters ``(F, K, P)`` themselves, whose set must be
        convex. ``step`` is a number, or ``(F or 1, K)``.
        """
        weight = torch.as_tensor(step, dtype=old.dtype, device=old.device)
        return torch.lerp(old, new, weight.unsqueeze(-1))

    def initial(self, x: Tensor, states: int, generator: torch.Generator) -> Tensor:
        """Random initial parameters ``(F, K, P)`` for data ``(F, B)``, which this default ignores; NaN is missing."""
        dtype = x.dtype if x.is_floating_point() else torch.float32
        shape = (x.shape[0], states, self.size)
        return self.constrain(torch.randn(shape, generator=generator, dtype=dtype, device=x.device))

    def raw_start(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Raw parameters that fit whole columns, and the change of each that a unit step of training should make.

        The data are ``(F, B)``, NaN where missing. Both results are ``(F, P)``.
        """
        typical = self._typical(x)
        return typical, torch.ones_like(typical)

    def _typical(self, x: Tensor) -> Tensor:
        """Raw parameters that fit whole columns, ``(F, B)`` to ``(F, P)``."""
        return x.new_zeros(x.shape[0], self.size)

    def __repr__(self) -> str:
        parts = []
        for field in getattr(self, "__dataclass_fields__", {}).values():
            value = getattr(self, field.name)
            if field.default is MISSING:
                parts.append(repr(value))
            elif value != field.default:
                parts.append(f"{field.name}={value!r}")
        return f"{type(self).__name__}({', '.join(parts)})"

    def _absent(self, method: str, purpose: str) -> NotImplementedError:
        name = type(self).__name__
        return NotImplementedError(f"{name} cannot be used for {purpose}: add the method {method} to it.")


def require_support(
    x: Tensor, valid: Tensor, variable: str | int, expected: str, remedy: str = "", family: Family | None = None
) -> None:
    """Raise ``ArgumentError`` for the first value of ``x`` ``(B,)`` that is not ``valid`` ``(B,)``; NaN is missing.

    Args:
        x: The values of one variable.
        valid: Whether each is inside the support.
        variable: The name or number of the variable.
        expected: The support, in words.
        remedy: What to do about it.
        family: The family of the variable, if the error should name it.
    """
    if not has_values(valid) or bool(valid.all()):
        return
    wrong = (~valid & ~x.isnan()).nonzero()
    if len(wrong):
        row = int(wrong[0, 0])
        expected = f"{expected} for {family!r}" if family else expected
        raise ArgumentError(f"variable {variable}", expected, f"{x[row].item()} in row {row}", remedy)


def require_parameters(params: Tensor, valid: Tensor, expected: str) -> None:
    """Raise ``ArgumentError`` unless all parameters ``(..., P)`` that a link returned are ``valid`` ``(...)``."""
    if has_values(valid) and not bool(valid.all()):
        wrong = params[~valid][0].tolist()
        remedy = "declare a link that returns any real numbers with unconstrained=True"
        raise ArgumentError("link", expected, wrong, remedy)


def require_above(argument: str, value: float, bound: float) -> None:
    """Raise ``ArgumentError`` unless ``bound < value < inf``."""
    if not is_number(value) or not bound < float(value) < math.inf:
        raise ArgumentError(argument, f"a finite number above {bound}", value)


def as_columns(inputs: Family | Sequence[Family], n: int) -> tuple[Family, ...]:
    """Return one family per variable.

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
            raise ArgumentError(f"inputs[{column}]", "a family", repr(family), "for example Gaussian()")
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
    if len(set(map(id, families))) == 1:
        return [(families[0], list(range(len(families))))]  # the usual case, without hashing each of them
    groups: dict[Family, list[int]] = {}
    for column, family in enumerate(families):
        groups.setdefault(family, []).append(column)
    return list(groups.items())


_PIECE_ELEMENTS = 2**18  # elements that are normalised at a time; they stay in the processor's cache


class _LogProbabilities(torch.autograd.Function):
    """``log_softmax`` over the last axis of values clamped to ±limit."""

    @staticmethod
    def forward(ctx: Any, raw: Tensor, limit: float) -> Tensor:
        logs = empty(raw.shape, raw)
        if native := kernels_for(raw, logs):
            native.log_softmax(logs, raw, limit)
        else:
            for some, out in zip(_pieces(raw), _pieces(logs), strict=True):
                torch.log_softmax(_within(some, limit), -1, out=out)
        ctx.save_for_backward(raw, logs)
        ctx.limit = limit
        return logs

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor, None]:
        raw, logs = ctx.saved_tensors
        found = empty(raw.shape, raw)
        if native := kernels_for(raw, logs, gradient[0]):
            native.log_softmax_down(found, raw, logs, gradient[0], ctx.limit)
            return found, None
        for some, log, flow, out in zip(*map(_pieces, (raw, logs, gradient[0], found)), strict=True):
            torch.mul(log.exp(), flow.sum(-1, keepdim=True), out=out)
            torch.sub(flow, out, out=out)
            out.masked_fill_(some.abs() > ctx.limit, 0.0)
        return found, None


class _Probabilities(torch.autograd.Function):
    """``softmax`` over the last axis."""

    @staticmethod
    def forward(ctx: Any, raw: Tensor) -> Tensor:
        found = empty(raw.shape, raw)
        torch.softmax(raw, -1, out=found)
        ctx.save_for_backward(found)
        return found

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor]:
        (found,) = ctx.saved_tensors
        raw = empty(found.shape, found)
        for p, flow, out in zip(*map(_pieces, (found, gradient[0], raw)), strict=True):
            torch.sub(flow, (flow * p).sum(-1, keepdim=True), out=out)
            out.mul_(p)
        return (raw,)


log_probabilities: Callable[[Tensor, float], Tensor] = _LogProbabilities.apply
probabilities: Callable[[Tensor], Tensor] = _Probabilities.apply


def _within(raw: Tensor, limit: float) -> Tensor:
    """The values clamped to ±limit; on a CPU without a copy if none exceeds it, because the test is cheaper."""
    if raw.device.type == "cpu" and has_values(raw):
        low, high = torch.aminmax(raw)
        if -limit <= float(low) and float(high) <= limit:
            return raw
    return raw.clamp(-limit, limit)


def _pieces(table: Tensor) -> tuple[Tensor, ...]:
    """A table ``(..., C)`` as pieces ``(rows, C)``, views where it is contiguous."""
    size = max(1, _PIECE_ELEMENTS // table.shape[-1])
    pieces: tuple[Tensor, ...] = table.reshape(-1, table.shape[-1]).split(size)
    return pieces


def positive(raw: Tensor, floor: float) -> Tensor:
    """``softplus(raw) + floor``: a positive number bounded away from zero."""
    return nnf.softplus(raw) + floor


def inverse_positive(value: Tensor, floor: float) -> Tensor:
    """The inverse of ``positive``; a value at the floor, which no raw number reaches, counts as slightly above it."""
    excess = (value - floor).clamp(min=min(1e-6, 1e-3 * floor) if floor > 0 else 1e-6)
    return excess + torch.log(-torch.expm1(-excess))


def log1mexp(x: Tensor) -> Tensor:
    """log(1 - exp(x)) for x <= 0, accurate at both ends."""
    return torch.where(x > -math.log(2), torch.log(-torch.expm1(x)), torch.log1p(-torch.exp(x)))


def log_difference(larger: Tensor, smaller: Tensor) -> Tensor:
    """log(exp(larger) - exp(smaller)); -inf where that is not positive."""
    difference = larger + log1mexp((smaller - larger).clamp(max=0))
    return torch.where(smaller < larger, difference, -torch.inf)


def log_mix(old: Tensor, new: Tensor, step: float | Tensor) -> Tensor:
    """log((1 - step) exp(old) + step exp(new)); ``step`` is a number or lacks the last axis."""
    weight = torch.as_tensor(step, dtype=old.dtype, device=old.device).unsqueeze(-1)
    return torch.logaddexp(old + torch.log1p(-weight), new + torch.log(weight))


def log_frequencies(counts: Tensor, old: Tensor) -> Tensor:
    """Log of the counts over their sum along the last axis, and finite for zeros; ``old`` where there are no counts."""
    total, tiny = counts.sum(-1, keepdim=True), torch.finfo(counts.dtype).tiny
    return torch.where(total > tiny, (counts / total.clamp(min=tiny)).clamp(min=tiny).log(), old)


def pooled(statistics: Tensor, params: Tensor) -> Tensor:
    """Sum statistics ``(F, K, S)`` over the variables if these share their parameters."""
    return statistics.sum(0, keepdim=True) if params.shape[0] == 1 else statistics


def as_float(x: Tensor) -> Tensor:
    """``x`` if it is of a floating dtype, else ``x`` in float32."""
    return x if x.is_floating_point() else x.to(torch.float32)


def observed_values(x: Tensor, states: int, generator: torch.Generator) -> Tensor:
    """Draw K observed values from each row of x, ``(F, B)`` to ``(F, K)``; 0 if all are missing."""
    ordered = nnf.pad(x, (0, 1), value=torch.nan).sort(-1).values  # NaN sorts last, and no row is empty
    count = (~ordered.isnan()).sum(-1, keepdim=True)  # (F, 1)
    u = torch.rand((x.shape[0], states), generator=generator, dtype=torch.float64, device=x.device)
    index = (u * count).long().clamp(max=ordered.shape[-1] - 1)
    return ordered.gather(-1, index).nan_to_num(0.0)  # (F, K)


def observed_mean(x: Tensor, default: float) -> Tensor:
    """Mean of the observed values of each row, ``(F, 1)``; ``default`` where nothing is observed."""
    return x.nanmean(-1, keepdim=True).nan_to_num(default)


def observed_std(x: Tensor) -> Tensor:
    """Standard deviation of each row, ``(F, 1)``; 1 where the values do not vary or are all missing."""
    mean = observed_mean(x, 0.0)
    std = (x - mean).square().nanmean(-1, keepdim=True).sqrt()
    rounding = 32 * torch.finfo(x.dtype).eps * mean.abs()  # the deviation of a constant row by rounding errors
    return torch.where(std > rounding, std, 1.0)
