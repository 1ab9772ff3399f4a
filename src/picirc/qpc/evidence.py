"""What is known about a batch of data points, and what it makes of the input distributions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from picirc.errors import ArgumentError
from picirc.inputs import Family, group_columns
from picirc.inputs.finite import count_values
from picirc.native import kernels_for
from picirc.qpc.blocks import Block

# Values are computed a few variables at a time, so that temporaries stay in the processor's cache.
_CHUNK_ELEMENTS = 2**19


@dataclass(frozen=True)
class Points:
    """Observed values.

    Attributes:
        values: ``(variables, batch)``; where a value is missing it is NaN.
        missing: ``(variables, batch)``, or None when nothing is missing.
    """

    values: Tensor
    missing: Tensor | None

    @property
    def batch(self) -> int:
        """The number of data points."""
        return self.values.shape[1]

    def part(self, start: int, stop: int) -> Points:
        """A part of the batch."""
        missing = None if self.missing is None else self.missing[:, start:stop].contiguous()
        return Points(self.values[:, start:stop].contiguous(), missing)

    def write(self, family: Family, params: Tensor, columns: Tensor, out: Tensor) -> None:
        """Put the log-probabilities of the values into ``out``, ``(fold, states, batch)``; missing is log 1.

        Parameters are ``(fold or 1, states, P)``, or ``(fold, states, batch, P)`` if each data point has its own.
        """
        x, missing = self._columns(family, columns)
        table = family.table(params) if params.ndim == 3 else None
        if params.ndim == 4:  # parameters of each data point, as if it were a variable of its own
            alone = params.transpose(1, 2).expand(-1, x.shape[1], -1, -1).flatten(0, 1)  # (fold * batch, states, P)
            out.copy_(family.log_prob(alone, x.reshape(-1, 1)).view(*x.shape, -1).mT)
        elif table is not None:
            look_up(table, x, out)
        else:
            for part in chunks(out):
                out[part] = family.log_prob(_fold(params, part), x[part])
        if missing is not None:
            out.masked_fill_(missing.unsqueeze(1), 0.0)

    def joint(self, block: Block, columns: Tensor) -> Tensor:
        """The log-density of correlated columns, ``(states, batch)``."""
        return block.log_prob(self.values[columns])

    def conditionals(self, block: Block, columns: Tensor) -> Tensor:
        """Parameters of each of some correlated columns given what is known, ``(m, states, batch, 2)``."""
        return block.given(self.values[columns])

    def joint_gradient(self, block: Block, columns: Tensor, flow: Tensor) -> tuple[Tensor, Tensor]:
        """``Σ flow · d log p`` with respect to a block's parameters and its matrix; flows are ``(states, batch)``."""
        with torch.enable_grad():
            leaves = tuple(tensor.detach().requires_grad_() for tensor in (block.params, block.matrix))
            values = self.joint(Block(block.family, *leaves), columns)
        params, matrix = torch.autograd.grad(values, leaves, flow)
        return params, matrix

    def gradient(self, family: Family, params: Tensor, columns: Tensor, flows: Tensor) -> Tensor:
        """``Σ flow · d log p / d params`` over the batch, like ``params``; flows are ``(fold, states, batch)``."""
        x, missing = self._columns(family, columns)
        if missing is not None:
            flows = flows.masked_fill(missing.unsqueeze(1), 0.0)
        with torch.enable_grad():
            leaf = params.detach().requires_grad_()
            table = family.table(leaf)
        if table is not None:
            counts = count_values(flows, x.long(), table.shape[-1], shared=len(params) == 1)
            return counts if table is leaf else torch.autograd.grad(table, leaf, counts)[0]
        total = torch.zeros_like(params)
        for part in chunks(flows):
            with torch.enable_grad():
                leaf = _fold(params, part).detach().requires_grad_()
                values = family.log_prob(leaf, x[part])
            if values.requires_grad:  # a density may ignore its parameters
                (found,) = torch.autograd.grad(values, leaf, flows[part])
                _fold(total, part).add_(found)
        return total

    def statistics(self, family: Family, params: Tensor, columns: Tensor, flows: Tensor) -> Tensor:
        """The sufficient statistics of the columns for EM, weighted by their flows ``(fold, states, batch)``."""
        x, missing = self._columns(family, columns)
        if missing is not None:
            flows = flows.masked_fill(missing.unsqueeze(1), 0.0)
        return family.expected_statistics(params, x, flows)

    def _columns(self, family: Family, columns: Tensor) -> tuple[Tensor, Tensor | None]:
        """The values of some columns with something harmless where they are missing, and where that is."""
        x = self.values.index_select(0, columns)
        if self.missing is None:
            return x, None
        missing = self.missing.index_select(0, columns)
        return x.masked_fill_(missing, family.neutral), missing


@dataclass(frozen=True)
class Intervals:
    """Values known exactly, and values known to lie in intervals; a value known exactly lies inside or it does not.

    Attributes:
        points: The values known exactly.
        low: ``(variables, batch)``, −inf where there is no lower bound.
        high: ``(variables, batch)``, +inf where there is no upper bound.
    """

    points: Points
    low: Tensor
    high: Tensor

    @property
    def batch(self) -> int:
        """The number of data points."""
        return self.points.batch

    def part(self, start: int, stop: int) -> Intervals:
        """A part of the batch."""
        low, high = (bound[:, start:stop].contiguous() for bound in (self.low, self.high))
        return Intervals(self.points.part(start, stop), low, high)

    def write(self, family: Family, params: Tensor, columns: Tensor, out: Tensor) -> None:
        """Put the log-probabilities of values and intervals into ``out``, ``(fold, states, batch)``."""
        self.points.write(family, params, columns, out)
        low, high, x = (values.index_select(0, columns) for values in (self.low, self.high, self.points.values))
        outside = ((x < low) | (x > high)).unsqueeze(1)  # false where a value is missing
        certain = (~x.isnan() | (torch.isneginf(low) & torch.isposinf(high))).unsqueeze(1)
        for part in chunks(out):
            inside = family.log_interval(_fold(params, part), low[part], high[part])
            out[part] += inside.masked_fill_(certain[part], 0.0)
        out.masked_fill_(outside, -torch.inf)

    def joint(self, block: Block, columns: Tensor) -> Tensor:
        """The log-probability of correlated columns, ``(states, batch)``; an interval for one of them at most."""
        return block.log_interval(*(values[columns] for values in (self.points.values, self.low, self.high)))


@dataclass(frozen=True)
class Modes:
    """Observed values; in place of a missing one each state puts its most probable value."""

    points: Points

    @property
    def batch(self) -> int:
        """The number of data points."""
        return self.points.batch

    def part(self, start: int, stop: int) -> Modes:
        """A part of the batch."""
        return Modes(self.points.part(start, stop))

    def write(self, family: Family, params: Tensor, columns: Tensor, out: Tensor) -> None:
        """Put the log-probabilities into ``out``, ``(fold, states, batch)``."""
        self.points.write(family, params, columns, out)
        if self.points.missing is not None:
            missing = self.points.missing.index_select(0, columns).unsqueeze(1)
            best = family.mode_log_prob(params).unsqueeze(-1)  # (fold or 1, states, 1)
            torch.where(missing, best, out, out=out)

    def joint(self, block: Block, columns: Tensor) -> Tensor:
        """The log-density of correlated columns, ``(states, batch)``."""
        return block.at_mode(self.points.values[columns])


@dataclass(frozen=True)
class Tilted:
    """Observed values, with one variable of each data point weighted by the mean of its state.

    The root's value is then ``p(e) · E[X_t − c_t | e]`` with a constant ``c_t`` below all means of states, and the
    flows are those of the distribution proportional to ``p(x, e) (x_t − c_t)``.

    Attributes:
        points: The values known exactly.
        variable: ``(batch,)``, the variable t of each data point.
        offset: ``(variables,)``, the constants.
    """

    points: Points
    variable: Tensor
    offset: Tensor

    @property
    def batch(self) -> int:
        """The number of data points."""
        return self.points.batch

    def part(self, start: int, stop: int) -> Tilted:
        """A part of the batch."""
        return Tilted(self.points.part(start, stop), self.variable[start:stop], self.offset)

    def write(self, family: Family, params: Tensor, columns: Tensor, out: Tensor) -> None:
        """Put the log-probabilities, and the logarithms of the weights, into ``out``, ``(fold, states, batch)``."""
        self.points.write(family, params, columns, out)
        tilt = (family.mean(params) - self.offset[columns].unsqueeze(1)).log()  # (fold, states)
        slots, rows = (columns.unsqueeze(1) == self.variable.unsqueeze(0)).nonzero(as_tuple=True)
        out[slots, :, rows] += tilt[slots]

    def joint(self, block: Block, columns: Tensor) -> Tensor:
        """The log-density of correlated columns with the logarithms of the weights, ``(states, batch)``."""
        values = self.points.values[columns]
        mean = block.family.mean(block.given(values))  # (m, states, batch)
        tilt = (mean - self.offset[columns].view(-1, 1, 1)).log()
        tilted = (columns.unsqueeze(1) == self.variable).unsqueeze(1)  # (m, 1, batch)
        return block.log_prob(values) + torch.where(tilted, tilt, 0.0).sum(0)

    def conditionals(self, block: Block, columns: Tensor) -> Tensor:
        """Parameters of each of some correlated columns given what is known, ``(m, states, batch, 2)``."""
        return self.points.conditionals(block, columns)


Evidence = Points | Intervals | Modes | Tilted


def look_up(table: Tensor, x: Tensor, out: Tensor) -> None:
    """``out[f, s, b] = table[f, s, x[f, b]]``; tables are ``(fold or 1, states, values)``."""
    codes = x.long()
    native = kernels_for(table, out)
    # A compiled loop would read beyond the table, where PyTorch raises an error.
    if native and int(codes.min()) >= 0 and int(codes.max()) < table.shape[2]:
        native.look_up(table, codes.int(), out)
        return
    chosen = codes.unsqueeze(1).expand(-1, table.shape[1], -1)
    torch.gather(table.expand(len(x), -1, -1), 2, chosen, out=out)


def chunks(values: Tensor, most: int = _CHUNK_ELEMENTS) -> list[slice]:
    """Slices of the first axis that hold a moderate number of elements each."""
    return pieces(len(values), values[:1].numel(), most)


def pieces(fold: int, each: int, most: int) -> list[slice]:
    """Slices of an axis whose entries have ``each`` elements, with ``most`` elements in a slice, or with one entry."""
    size = max(1, most // max(1, each))
    return [slice(start, min(start + size, fold)) for start in range(0, fold, size)]


def _fold(params: Tensor, part: slice) -> Tensor:
    """The parameters of some variables; shared ones serve all."""
    return params if params.shape[0] == 1 else params[part]


def as_rows(x: Tensor, argument: str, variables: int, single: bool = False) -> Tensor:
    """Check the shape ``(batch, variables)`` of something from a user.

    Args:
        x: What the user gave.
        argument: What the user calls it.
        variables: The number of columns.
        single: Accept one row ``(variables,)`` as well.
    """
    try:
        x = torch.as_tensor(x)
    except (TypeError, ValueError, RuntimeError):
        raise ArgumentError(argument, "a tensor, or an array of numbers", type(x).__name__) from None
    one_row = x.shape == (variables,)
    if x.ndim != 2 or x.shape[1] != variables:
        if single and one_row:
            return as_rows(x.unsqueeze(0), argument, variables)
        shapes = f"(batch, {variables}) or ({variables},)" if single else f"(batch, {variables})"
        remedy = f"a single data point is {argument}[None]" if one_row else ""
        expected = f"a tensor {shapes}, one column per variable"
        raise ArgumentError(argument, expected, f"shape {tuple(x.shape)}", remedy)
    if len(x) == 0:
        raise ArgumentError(argument, "at least one data point", "an empty batch")
    if x.is_complex():
        raise ArgumentError(argument, "real numbers", str(x.dtype))
    if x.requires_grad and torch.is_grad_enabled():
        remedy = f"gradients reach the parameters only, use {argument}.detach()"
        raise ArgumentError(argument, "data that need no gradient", "a tensor that requires one", remedy)
    return x


def as_bounds(low: Tensor, high: Tensor, variables: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Check bounds from a user, ``(batch, variables)`` each, and bring them into the layout of the program."""
    below, above = (as_rows(bound, name, variables).to(like) for bound, name in ((low, "low"), (high, "high")))
    if below.shape != above.shape:
        raise ArgumentError("low", f"as many rows as high ({len(above)})", f"{len(below)} rows")
    for name, bound in (("low", below), ("high", above)):
        if bound.isnan().any():
            raise ArgumentError(name, "numbers", "NaN", "an infinite bound leaves a variable unrestricted")
    wrong = (below > above).nonzero()
    if len(wrong):
        row, column = wrong[0].tolist()
        got = f"{below[row, column]:g} above {above[row, column]:g} in row {row}, column {column}"
        raise ArgumentError("low", "bounds with low ≤ high", got)
    return below.T.contiguous(), above.T.contiguous()


def as_points(
    x: Tensor,
    mask: Tensor | None,
    families: Sequence[Family],
    names: Sequence[str],
    like: Tensor,
    argument: str = "x",
    single: bool = False,
) -> Points:
    """Check data from a user, ``(batch, variables)``, and bring them into the layout of the program.

    Args:
        x: The data; NaN is missing.
        mask: True where a value is missing, in addition.
        families: The family of each variable.
        names: What the user calls the variables.
        like: A tensor of the program's dtype and device.
        argument: What the user calls the data.
        single: Accept one row ``(variables,)`` as well.
    """
    values = as_rows(x, argument, len(families), single).to(like).T.contiguous()
    missing = _missing(values, mask)
    if mask is not None and missing is not None:
        values = values.masked_fill(missing, torch.nan)
    check_values(values, families, names)
    return Points(values, missing)


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


def _missing(values: Tensor, mask: Tensor | None) -> Tensor | None:
    missing = values.isnan()
    if mask is not None:
        mask = torch.as_tensor(mask, device=values.device)
        if mask.dtype != torch.bool or mask.shape != values.T.shape:
            expected = f"a boolean tensor of x's shape {tuple(values.T.shape)}, True where a value is missing"
            raise ArgumentError("mask", expected, f"{mask.dtype} of shape {tuple(mask.shape)}")
        missing |= mask.T
    return missing if bool(missing.any()) else None
