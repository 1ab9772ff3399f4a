# SPDX-License-Identifier: Apache-2.0
"""A parametric family whose parameters are a function of the parents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from picirc.errors import ArgumentError
from picirc.functions.density import parent_names
from picirc.inputs import Categorical, Family


class Parametric(ABC):
    """A conditional distribution of a known family, for latents and for observed variables."""

    family: Family

    @property
    @abstractmethod
    def parents(self) -> tuple[str, ...]:
        """The names of what it is conditioned on."""

    @abstractmethod
    def parameters(self, *parents: Tensor) -> Tensor:
        """The parameters ``(..., P)`` at the given values of the parents."""

    @property
    def values(self) -> int | None:
        """The number of values of a finite family, which are 0, 1, …; None for the others."""
        return getattr(self.family, "values", None)

    def log_density(self, value: Tensor, *parents: Tensor) -> Tensor:
        """``log p(value | parents)``, broadcasting."""
        params = self.parameters(*parents).to(value.dtype)
        shape = torch.broadcast_shapes(value.shape, params.shape[:-1])
        # Every value is a variable of its own with one state.
        params, x = params.expand(*shape, -1).reshape(-1, 1, params.shape[-1]), value.expand(shape).reshape(-1, 1)
        return self.family.log_prob(params, x).reshape(shape)

    def moments(self, *parents: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation given the parents; the scale of a family without a finite deviation."""
        params = self.parameters(*parents)
        std = self.family.variance(params).sqrt()
        return self.family.mean(params), torch.where(std.isinf(), params[..., min(1, params.shape[-1] - 1)], std)


class Conditional(Parametric):
    """``p(v | z) = family(v; link(z))``: a variable of a known family.

    The link returns the parameters that the family documents: mean and standard deviation of a ``Gaussian``, location
    and scale of a ``Laplace``, these and the degrees of freedom of a ``StudentT``, the logit of a ``Bernoulli`` or
    ``Binomial``, logits of a ``Categorical``, the log-rate of a ``Poisson``.

    Args:
        family: The family, for example ``pc.Gaussian()``.
        link: ``link(*parents)`` gives the parameters: a tuple of ``P`` tensors or numbers for a family with ``P`` of
            them, or one tensor ``(..., P)``, or ``(...)`` when ``P`` is one.
        parents: The names of the parents, in the order of the arguments.
        unconstrained: The link returns any real numbers, as a neural net does, and the family makes them valid:
            ``family.constrain(link(z))``.

    Example:
        >>> import picirc as pc
        >>> shock = Conditional(pc.Gaussian(), lambda z: (0.0, (z / 2).exp()), ["z"])
        >>> mean, std = shock.moments(torch.tensor([0.0, 2.0]))
        >>> std
        tensor([1.0000, 2.7183])
    """

    def __init__(
        self,
        family: Family,
        link: Callable[..., Any],
        parents: Sequence[str] = (),
        *,
        unconstrained: bool = False,
    ) -> None:
        if not isinstance(family, Family):
            raise ArgumentError("family", "a family of distributions, such as pc.Bernoulli()", family)
        if not callable(link):
            raise ArgumentError("link", "a function of tensors", link)
        self.family = family
        self.link = link
        self.unconstrained = unconstrained
        self._parents = parent_names(parents)

    @property
    def parents(self) -> tuple[str, ...]:
        """The names of the parents, in the order of the link's arguments."""
        return self._parents

    def parameters(self, *parents: Tensor) -> Tensor:
        """The valid parameters ``(..., P)`` at the given values of the parents."""
        raw = _stacked(self.link(*parents))
        if self.family.size == 1 and raw.ndim <= max((parent.ndim for parent in parents), default=0):
            raw = raw.unsqueeze(-1)
        if raw.ndim == 0 or raw.shape[-1] != self.family.size:
            raise ArgumentError(
                "link",
                f"{self.family.size} parameters of {self.family!r} in the last dimension",
                f"a tensor of shape {tuple(raw.shape)}",
            )
        return self.family.constrain(raw) if self.unconstrained else self.family.accept(raw)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Links that were stored before ``unconstrained`` existed return unconstrained numbers."""
        former = {} if "unconstrained" in state else {"unconstrained": True, "_parents": state.get("parents", ())}
        self.__dict__.update(state | former)
        self.__dict__.pop("parents", None)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.family!r}{_given(self.parents)})"


def _stacked(found: Any) -> Tensor:
    """What a link returned as one tensor; the parts of a tuple are put side by side."""
    if isinstance(found, tuple) and any(isinstance(part, Tensor) for part in found):
        like = next(part for part in found if isinstance(part, Tensor))
        parts = [torch.as_tensor(part, dtype=like.dtype, device=like.device) for part in found]
        return torch.stack(torch.broadcast_tensors(*parts), -1)
    return torch.as_tensor(found)


class Discrete(Conditional):
    """A variable with the values 0 … k − 1; as a latent it is summed out instead of integrated.

    Args:
        values: k, the number of values.
        probabilities: ``k`` probabilities; or a table ``(k_1, …, k_n, k)`` of them for ``n`` discrete parents; or a
            function of the parents that returns ``(..., k)``. All values are equally probable by default.
        parents: The names of the parents.

    Example:
        >>> regime = Discrete(2, [[0.9, 0.1], [0.2, 0.8]], ["before"])
        >>> regime.log_density(torch.tensor([0.0, 1.0]), torch.tensor(1.0)).exp()
        tensor([0.2000, 0.8000])
    """

    def __init__(
        self,
        values: int,
        probabilities: Sequence[Any] | Tensor | Callable[..., Tensor] | None = None,
        parents: Sequence[str] = (),
    ) -> None:
        family = Categorical(values)
        self._table: Tensor | None = None
        if not callable(probabilities):
            probabilities = self._table = _as_table(probabilities, family.categories, len(parent_names(parents)))
            super().__init__(family, self._look_up, parents)
        else:
            super().__init__(family, probabilities, parents)

    def parameters(self, *parents: Tensor) -> Tensor:
        """The log-probabilities ``(..., k)`` at the given values of the parents."""
        found = torch.as_tensor(self.link(*parents))
        self._check(found)
        return found.log()

    def _look_up(self, *parents: Tensor) -> Tensor:
        assert self._table is not None
        sizes = self._table.shape[:-1]
        for name, value, size in zip(self.parents, parents, sizes, strict=True):
            if bool(((value < 0) | (value >= size) | (value != value.round())).any()):
                expected = f"rows for all values of the parent {name!r}, which must be discrete"
                raise ArgumentError("probabilities", expected, f"a table of {size} rows for it")
        dtype = parents[0].dtype if parents else self._table.dtype
        return self._table[tuple(value.long() for value in parents)].to(dtype)

    def _check(self, found: Tensor) -> None:
        expected = f"{self.values} probabilities in the last dimension, which add up to 1"
        if found.ndim == 0 or found.shape[-1] != self.values:
            raise ArgumentError("probabilities", expected, f"a tensor of shape {tuple(found.shape)}")
        total = found.detach().sum(-1)
        if bool((found < 0).any()) or not bool(((total - 1).abs() < 1e-4).all()):
            worst = total.flatten()[(total - 1).abs().argmax()]
            got = "negative numbers" if bool((found < 0).any()) else f"a total of {float(worst):g}"
            raise ArgumentError("probabilities", expected, got, "for logits take torch.softmax(logits, -1)")

    def __repr__(self) -> str:
        return f"Discrete({self.values}{_given(self.parents)})"


def _as_table(probabilities: Sequence[Any] | Tensor | None, values: int, parents: int) -> Tensor:
    if probabilities is None:
        if parents:
            remedy = "give a table with one axis for each parent, or a function of them"
            raise ArgumentError("probabilities", "probabilities for each value of the parents", "none", remedy)
        return torch.full((values,), 1 / values, dtype=torch.float64)
    if isinstance(probabilities, nn.Parameter) or getattr(probabilities, "requires_grad", False):
        remedy = "let a torch.nn.Module return them"
        raise ArgumentError("probabilities", "plain numbers", "a tensor that requires a gradient", remedy)
    table = torch.as_tensor(probabilities, dtype=torch.float64)
    if table.ndim != parents + 1 or table.shape[-1] != values:
        axes = ", ".join([*(f"k_{i + 1}" for i in range(parents)), str(values)])
        expected = f"a table of shape ({axes})"
        raise ArgumentError("probabilities", expected, f"shape {tuple(table.shape)}")
    return table


def _given(parents: Sequence[str]) -> str:
    return f" | {', '.join(parents)}" if parents else ""
