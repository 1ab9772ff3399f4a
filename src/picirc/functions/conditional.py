# SPDX-License-Identifier: Apache-2.0
"""Conditional distributions of latents and observed variables: by a formula, by a family and a link, or by code."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from picirc.checks import check_integer
from picirc.errors import ArgumentError
from picirc.inputs import Categorical, Family, Gaussian, require_support
from picirc.quadrature import midpoint, whole_line

_CELLS, _FINE_CELLS = 1024, 4096  # of the grids for moments of a density, and for other queries
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)

Numbers = Sequence[Any] | Tensor
Link = Callable[..., Tensor]


class Density:
    """Any conditional density ``p(v | parents)``, given by its logarithm.

    Args:
        log_density: ``log_density(value, *parents)``, written with torch so that its arguments broadcast.
        parents: The names of the latents it is conditioned on, in the order of the arguments.
        domain: The interval outside which the density is zero or negligible, by default the real line. A latent is
            integrated over its domain.
        moments: ``moments(*parents)`` gives mean and standard deviation of ``v``, which place the points of nested
            quadrature and of latents on an infinite domain. By default they are computed numerically.

    Example:
        >>> bump = Density(lambda v, z: torch.cos(v - z) - 1.266, parents=["z"], domain=(-torch.pi, torch.pi))
        >>> bump.parents, bump.domain
        (('z',), (-3.141592653589793, 3.141592653589793))
    """

    def __init__(
        self,
        log_density: Callable[..., Tensor],
        parents: Sequence[str] = (),
        *,
        domain: tuple[float, float] = (-math.inf, math.inf),
        moments: Callable[..., tuple[Tensor, Tensor]] | None = None,
    ) -> None:
        if not callable(log_density):
            raise ArgumentError("log_density", "a function of tensors", log_density)
        self._log_density = log_density
        self.parents = parent_names(parents)
        low, high = (float(end) for end in domain)
        if math.isnan(low) or math.isnan(high) or low >= high:
            raise ArgumentError("domain", "an interval (low, high) with low < high", domain)
        self.domain = (low, high)
        self._moments = moments

    def log_density(self, value: Tensor, *parents: Tensor) -> Tensor:
        """``log p(value | parents)``, broadcasting; −inf outside the domain."""
        low, high = self.domain
        inside = (value >= low) & (value <= high)
        # The function may be undefined outside the domain, so it gets a point inside instead.
        safe = torch.where(inside, value, _inner_point(low, high))
        result = torch.as_tensor(self._log_density(safe, *parents), dtype=value.dtype)
        if torch.isnan(result).any() or torch.isposinf(result).any():
            expected, remedy = "a logarithm that is finite or -inf", f"check it on the domain [{low:g}, {high:g}]"
            raise ArgumentError("log_density", expected, "NaN or +inf", remedy)
        return torch.where(inside, result, -math.inf)

    def moments(self, *parents: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation given the parents: as declared, or computed on a grid over the domain."""
        if self._moments is not None:
            return self._moments(*parents)
        low, high = self.domain
        finite = math.isfinite(high - low)
        grid = midpoint(_CELLS).on(low, high) if finite else whole_line(_CELLS).at(0.0, 1.0)
        points, weights = torch.as_tensor(grid.points), torch.as_tensor(grid.weights)
        logs = self.log_density(points, *(parent.unsqueeze(-1) for parent in parents)) + weights.log()
        if not finite and bool((logs.logsumexp(-1).abs() > 0.1).any()):
            mass = float(logs.logsumexp(-1).exp().flatten()[0])
            remedy = "normalise it, or give its mean and standard deviation as moments="
            raise ArgumentError("log_density", "a density with the mass 1", f"{mass:.3g} found near 0", remedy)
        masses = logs.softmax(-1)
        # Heavy tails may have no moments, so the outer hundredths are cut off.
        total = masses.cumsum(-1)
        masses = torch.where((total > 0.01) & (total - masses < 0.99), masses, 0.0)
        masses = masses / masses.sum(-1, keepdim=True)
        mean = masses @ points
        return mean, 1.1 * (masses * (points - mean.unsqueeze(-1)).square()).sum(-1).sqrt()

    @property
    def stated(self) -> bool:
        """Whether mean and standard deviation were declared."""
        return self._moments is not None

    def __repr__(self) -> str:
        return f"Density(·{_given(self.parents)} on [{self.domain[0]:g}, {self.domain[1]:g}])"


def parent_names(parents: Sequence[str]) -> tuple[str, ...]:
    """The names as a tuple of different non-empty strings."""
    names = (parents,) if isinstance(parents, str) else tuple(parents)
    if len(set(names)) != len(names) or not all(isinstance(name, str) and name for name in names):
        raise ArgumentError("parents", "different names of latents", parents)
    return names


def _given(parents: Sequence[str]) -> str:
    return f" | {', '.join(parents)}" if parents else ""


def _inner_point(low: float, high: float) -> float:
    if math.isfinite(low) and math.isfinite(high):
        return (low + high) / 2
    return low + 1 if math.isfinite(low) else high - 1 if math.isfinite(high) else 0.0


def modules_of(function: object) -> list[nn.Module]:
    """The modules with learnable parameters that a function is, or that compute it."""
    found = [function] if isinstance(function, nn.Module) else list(vars(function).values())
    return [module for module in found if isinstance(module, nn.Module) and any(True for _ in module.parameters())]


class Parametric(ABC):
    """A conditional distribution of a known family, for latents and for observed variables."""

    family: Family

    @property
    @abstractmethod
    def parents(self) -> tuple[str, ...]:
        """The names of the variables it is conditioned on."""

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
        # Every value counts as a variable with one state.
        params, x = params.expand(*shape, -1).reshape(-1, 1, params.shape[-1]), value.expand(shape).reshape(-1, 1)
        return self.family.log_prob(params, x).reshape(shape)

    def moments(self, *parents: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation given the parents; the scale in place of an infinite standard deviation."""
        params = self.parameters(*parents)
        std = self.family.variance(params).sqrt()
        return self.family.mean(params), torch.where(std.isinf(), params[..., min(1, params.shape[-1] - 1)], std)


class Conditional(Parametric):
    """``p(v | z) = family(v; link(z))``: a variable of a known family.

    The link returns the parameters of the family: mean and standard deviation of a ``Gaussian``, location and scale of
    a ``Laplace``, these and the degrees of freedom of a ``StudentT``, the logit of a ``Bernoulli`` or ``Binomial``,
    logits of a ``Categorical``, the log-rate of a ``Poisson``.

    Args:
        family: The family, for example ``pc.Gaussian()``.
        link: ``link(*parents)`` returns the ``P`` parameters: a tuple of tensors or numbers, or one tensor
            ``(..., P)``, or ``(...)`` if ``P`` is one.
        parents: The names of the parents, in the order of the arguments.
        unconstrained: Whether the link returns any real numbers, as a neural net does. The parameters are then
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
        """The parameters ``(..., P)`` in valid form at the given values of the parents."""
        raw = self.link(*parents)
        if isinstance(raw, tuple) and any(isinstance(part, Tensor) for part in raw):
            like = next(part for part in raw if isinstance(part, Tensor))
            parts = [torch.as_tensor(part, dtype=like.dtype, device=like.device) for part in raw]
            raw = torch.stack(torch.broadcast_tensors(*parts), -1)
        raw = torch.as_tensor(raw)
        if self.family.size == 1 and raw.ndim <= max((parent.ndim for parent in parents), default=0):
            raw = raw.unsqueeze(-1)
        if raw.ndim == 0 or raw.shape[-1] != self.family.size:
            expected = f"{self.family.size} parameters of {self.family!r} in the last dimension"
            raise ArgumentError("link", expected, f"a tensor of shape {tuple(raw.shape)}")
        return self.family.constrain(raw) if self.unconstrained else self.family.accept(raw)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """In objects pickled before ``unconstrained`` existed, links return unconstrained numbers."""
        former = {} if "unconstrained" in state else {"unconstrained": True, "_parents": state.get("parents", ())}
        self.__dict__.update(state | former)
        self.__dict__.pop("parents", None)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.family!r}{_given(self.parents)})"


class Discrete(Conditional):
    """A variable with the values 0 … k − 1; as a latent it is summed out instead of integrated.

    Args:
        values: k, the number of values.
        probabilities: ``k`` probabilities, a table ``(k_1, …, k_n, k)`` for ``n`` discrete parents, or a function of
            the parents that returns ``(..., k)``. By default all values are equally probable.
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
            self._table = _as_table(probabilities, family.categories, len(parent_names(parents)))
        super().__init__(family, probabilities if callable(probabilities) else self._look_up, parents)

    def parameters(self, *parents: Tensor) -> Tensor:
        """The log-probabilities ``(..., k)`` at the given values of the parents."""
        found = torch.as_tensor(self.link(*parents))
        expected = f"{self.values} probabilities in the last dimension, which add up to 1"
        if found.ndim == 0 or found.shape[-1] != self.values:
            raise ArgumentError("probabilities", expected, f"a tensor of shape {tuple(found.shape)}")
        total = found.detach().sum(-1)
        negative = bool((found < 0).any())
        if negative or not bool(((total - 1).abs() < 1e-4).all()):
            worst = total.flatten()[(total - 1).abs().argmax()]
            got = "negative numbers" if negative else f"a total of {float(worst):g}"
            raise ArgumentError("probabilities", expected, got, "for logits take torch.softmax(logits, -1)")
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


class LinearGaussian(Parametric):
    """``p(v | z_1, …, z_k) = N(v; Σ_i a_i z_i + b, σ²)``.

    Args:
        weights: The coefficient ``a_i`` of each parent, by name.
        bias: ``b``.
        std: ``σ``, the standard deviation (not the variance).

    Example:
        >>> LinearGaussian({"z1": 0.8}, bias=0.1, std=0.5)
        LinearGaussian(0.8·z1 + 0.1, std=0.5)
    """

    family = Gaussian()

    def __init__(self, weights: Mapping[str, float] | None = None, bias: float = 0.0, std: float = 1.0) -> None:
        if not isinstance(weights, Mapping | None):
            raise ArgumentError("weights", "a coefficient for each parent by name", weights, 'for example {"z1": 0.8}')
        self.weights = {name: _finite("weights", a) for name, a in (weights or {}).items()}
        self.bias = _finite("bias", bias)
        self.std = _finite("std", std)
        if self.std <= 0:
            raise ArgumentError("std", "a positive number", std, "it is the standard deviation of the noise")

    @property
    def parents(self) -> tuple[str, ...]:
        """The variables with a coefficient."""
        return tuple(self.weights)

    def parameters(self, *parents: Tensor) -> Tensor:
        """Mean and standard deviation, ``(..., 2)``."""
        mean = torch.as_tensor(self.mean(*parents), dtype=None if parents else torch.float64)
        return torch.stack([mean, torch.full_like(mean, self.std)], -1)

    def mean(self, *parents: Tensor) -> Tensor | float:
        """``Σ_i a_i z_i + b``; the parents broadcast against each other."""
        total: Tensor | float = self.bias
        for a, z in zip(self.weights.values(), parents, strict=True):
            total = total + a * z
        return total

    def log_density(self, value: Tensor, *parents: Tensor) -> Tensor:
        """``log p(value | parents)``, broadcasting."""
        standard = (value - self.mean(*parents)) / self.std
        return -0.5 * standard * standard - math.log(self.std) - _HALF_LOG_2PI

    def __repr__(self) -> str:
        terms = [f"{a:g}·{name}" for name, a in self.weights.items()]
        if self.bias or not terms:
            terms.append(f"{self.bias:g}")
        return f"LinearGaussian({' + '.join(terms)}, std={self.std:g})"


def _finite(argument: str, value: float) -> float:
    if getattr(value, "requires_grad", False):
        remedy = "use pc.Density or pc.Conditional for a density with learnable parameters"
        raise ArgumentError(argument, "a plain number", "a tensor that requires a gradient", remedy)
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ArgumentError(argument, "a finite number", value)
    return number


class MultivariateNormal:
    """``p(v_1, …, v_m | parents) = N(v; mean, covariance)``.

    It may be the joint density of observed variables, ``net.observed(["a", "b"], pc.MultivariateNormal(...))``. All
    queries are then exact. A latent with this density, ``net.latent("z", pc.MultivariateNormal(dims=3))``, is a vector,
    whose values ``(..., 3)`` are the arguments of links. It needs a rule for vectors, such as
    ``pc.sobol(1024, dims=3)``.

    Args:
        mean: m numbers, or a function of the parents that returns ``(..., m)``; zeros by default.
        covariance: A matrix ``(m, m)``, or a function of the parents that returns ``(..., m, m)``; the identity by
            default.
        parents: The names of the parents, in the order of the functions' arguments.
        dims: m, if it does not follow from the others.

    Example:
        >>> pair = MultivariateNormal(lambda z: torch.stack([z, -z], -1), [[1.0, 0.5], [0.5, 1.0]], ["z"])
        >>> pair.log_density(torch.tensor([1.0, -1.0]), torch.tensor(1.0))
        tensor(-1.6940)
    """

    def __init__(
        self,
        mean: Numbers | Link | None = None,
        covariance: Numbers | Link | None = None,
        parents: Sequence[str] = (),
        *,
        dims: int | None = None,
    ) -> None:
        self.parents = parent_names(parents)
        self.mean, self.covariance = _numbers(mean), _numbers(covariance)
        known = [t.shape[0] for t in (self.mean, self.covariance) if isinstance(t, Tensor) and t.ndim]
        if dims is None and not known:
            raise ArgumentError("dims", "the number of variables", "none", "for example dims=3")
        self.dims = check_integer("dims", dims if dims is not None else known[0], least=2)
        for name, part, shape in (("mean", self.mean, (self.dims,)), ("covariance", self.covariance, (self.dims,) * 2)):
            if isinstance(part, Tensor) and part.shape != shape:
                raise ArgumentError(name, f"numbers of shape {shape}", f"shape {tuple(part.shape)}")
        if isinstance(self.covariance, Tensor):
            self._check(self.covariance)

    @property
    def family(self) -> Gaussian:
        """The family of each variable by itself."""
        return Gaussian()

    def moments(self, *parents: Tensor) -> tuple[Tensor, Tensor]:
        """Mean ``(..., m)`` and covariance ``(..., m, m)`` given the parents."""
        like = parents[0] if parents else torch.zeros((), dtype=torch.float64)
        unit = torch.eye(self.dims, dtype=like.dtype, device=like.device)
        mean = self._part("mean", self.mean, unit.new_zeros(self.dims), parents)
        covariance = self._part("covariance", self.covariance, unit, parents)
        if not isinstance(self.covariance, Tensor | None):
            self._check(covariance)
        return mean, covariance

    def log_density(self, value: Tensor, *parents: Tensor) -> Tensor:
        """``log p(value | parents)`` of vectors ``(..., m)``, broadcasting."""
        mean, covariance = self.moments(*(parent.to(value.dtype) for parent in parents))
        factor = torch.linalg.cholesky(covariance.to(value.dtype))
        difference = value - mean.to(value.dtype)
        white = torch.linalg.solve_triangular(factor, difference.unsqueeze(-1), upper=False).squeeze(-1)
        logs = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        found: Tensor = -0.5 * white.square().sum(-1) - logs - self.dims * _HALF_LOG_2PI
        return found

    def _part(self, name: str, part: Link | Tensor | None, default: Tensor, parents: Sequence[Tensor]) -> Tensor:
        if part is None:
            return default
        found = part.to(default) if isinstance(part, Tensor) else torch.as_tensor(part(*parents))
        if found.shape[-default.ndim :] != default.shape:
            expected = f"a tensor (..., {', '.join(map(str, default.shape))})"
            raise ArgumentError(name, expected, f"shape {tuple(found.shape)}")
        return found

    def _check(self, covariance: Tensor) -> None:
        symmetric = torch.allclose(covariance, covariance.mT, rtol=1e-6, atol=0)
        _, failed = torch.linalg.cholesky_ex(covariance.detach())
        if not symmetric or bool(failed.any()):
            got = "one that is not positive definite" if symmetric else "one that is not symmetric"
            raise ArgumentError("covariance", "symmetric positive definite matrices", got)

    def __repr__(self) -> str:
        return f"MultivariateNormal(dims={self.dims}{_given(self.parents)})"


def _numbers(part: Numbers | Link | None) -> Tensor | Link | None:
    if part is None or (callable(part) and not isinstance(part, Tensor)):
        return part
    return torch.as_tensor(part, dtype=torch.float64)


@final
@dataclass(frozen=True, repr=False)
class FunctionFamily(Family):
    """A conditional distribution ``p(x | parents)`` with the values of the parents as its parameters.

    The function is evaluated for each data point. This is necessary for a density given by code and for functions of
    observed variables; other functions are evaluated once, at the points of their latents.

    The log-density is exact. Samples, moments and probabilities of intervals are those of the function's family. For a
    ``pc.Density`` they are computed on a fine grid over its domain, which must be finite.

    Args:
        function: The conditional distribution.
        dims: The number of components of each parent, 0 for a number.
    """

    function: Density | Parametric
    dims: tuple[int, ...]

    @property
    def learnable(self) -> tuple[Tensor, ...]:
        """The parameters of the modules that compute the function."""
        return tuple(parameter for module in modules_of(self.function) for parameter in module.parameters())

    @property
    def discrete(self) -> bool:  # type: ignore[override]
        """Whether the function's family is discrete."""
        return isinstance(self.function, Parametric) and self.function.family.discrete

    @property
    def size(self) -> int:
        """One parameter for each component of each parent; one unused parameter if there are none."""
        return max(1, sum(max(1, d) for d in self.dims))

    def constrain(self, raw: Tensor) -> Tensor:
        """The values themselves."""
        return raw

    def check(self, x: Tensor, variable: str | int) -> None:
        """Accept the support of the function's family; for a density, finite numbers and NaN."""
        if isinstance(self.function, Parametric):
            return self.function.family.check(x, variable)
        # Values outside the domain have density zero.
        return require_support(x, ~x.isinf(), variable, "finite numbers")

    @property
    def neutral(self) -> float:  # type: ignore[override]
        """A point of the support."""
        if isinstance(self.function, Parametric):
            return self.function.family.neutral
        low, high = (max(-1e6, self.function.domain[0]), min(1e6, self.function.domain[1]))
        return (low + high) / 2

    def log_prob(self, params: Tensor, x: Tensor) -> Tensor:
        """The log-density of the function, ``(F, K, B)``."""
        if isinstance(self.function, Parametric) and not self.function.family.discrete:
            return self.function.family.log_prob(self._resolve(params)[1], x)  # all data points of a state at once
        values = x.unsqueeze(1)  # (F, 1, B)
        return self.function.log_density(values, *self._parents(params, 1)).expand(len(x), params.shape[1], -1)

    def sample(self, params: Tensor, generator: torch.Generator) -> Tensor:
        """Draw from the function's family, or from the histogram of a density."""
        family, own = self._resolve(params)
        return family.sample(own, generator)

    def mean(self, params: Tensor) -> Tensor:
        """Expectation, ``(..., P)`` to ``(...)``."""
        family, own = self._resolve(params)
        return family.mean(own)

    def variance(self, params: Tensor) -> Tensor:
        """Variance, ``(..., P)`` to ``(...)``."""
        family, own = self._resolve(params)
        return family.variance(own)

    def cdf(self, params: Tensor, x: Tensor) -> Tensor:
        """P(X <= x), ``(F, K, B)``."""
        family, own = self._resolve(params)
        return family.cdf(own, x)

    def mode(self, params: Tensor) -> Tensor:
        """The most probable value; for a density, the best point of the grid."""
        family, own = self._resolve(params)
        return family.mode(own)

    def table(self, params: Tensor) -> Tensor | None:
        """Log-probabilities of all values of a finite family, else None."""
        if not isinstance(self.function, Parametric) or self.function.values is None:
            return None
        return self.function.family.table(self._resolve(params)[1])

    def _resolve(self, params: Tensor) -> tuple[Family | _Histogram, Tensor]:
        """The function's family and its parameters ``(..., P)``; for a density, its histogram on a fine grid."""
        if isinstance(self.function, Parametric):
            found = self.function.parameters(*self._parents(params))
            return self.function.family, found.expand(*params.shape[:-1], -1).to(params.dtype)
        histogram = _Histogram(self.function.domain, params)
        logs = self.function.log_density(histogram.points, *self._parents(params, 1))
        return histogram, logs.expand(*params.shape[:-1], -1).softmax(-1)

    def _parents(self, params: Tensor, axes: int = 0) -> list[Tensor]:
        """The values of the parents ``(...)``, of vectors ``(..., d)``, with ``axes`` axes of length one inserted."""
        parts = params.split([max(1, d) for d in self.dims], -1) if self.dims else ()
        shape = (*params.shape[:-1], *(1,) * axes)
        return [part.reshape(*shape, *((d,) if d else ())) for part, d in zip(parts, self.dims, strict=True)]


class _Histogram:
    """A density that is constant in each of many cells of an interval, given by the masses of the cells."""

    def __init__(self, domain: tuple[float, float], like: Tensor) -> None:
        low, high = domain
        if math.isinf(low) or math.isinf(high):
            expected = "a finite domain for sampling, moments and intervals"
            raise ArgumentError("domain", expected, domain, "state the interval that carries the density")
        self.width = (high - low) / _FINE_CELLS
        cells = torch.arange(_FINE_CELLS, dtype=like.dtype, device=like.device)
        self.points = low + self.width * (cells + 0.5)

    def sample(self, masses: Tensor, generator: torch.Generator) -> Tensor:
        draws = torch.multinomial(masses.flatten(0, -2), 1, replacement=True, generator=generator)
        jitter = torch.rand(draws.shape, generator=generator, dtype=masses.dtype, device=masses.device) - 0.5
        return (self.points[draws] + jitter * self.width).reshape(masses.shape[:-1])

    def mean(self, masses: Tensor) -> Tensor:
        return masses @ self.points

    def variance(self, masses: Tensor) -> Tensor:
        return masses @ self.points.square() - self.mean(masses).square()

    def cdf(self, masses: Tensor, x: Tensor) -> Tensor:
        share = ((x.unsqueeze(-1) - self.points) / self.width + 0.5).clamp(0, 1)  # (F, B, cells)
        return masses @ share.mT

    def mode(self, masses: Tensor) -> Tensor:
        return self.points[masses.argmax(-1)]
