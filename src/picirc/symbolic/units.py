# SPDX-License-Identifier: Apache-2.0
"""The four units of an integral circuit, as immutable objects.

A unit represents a function of observed variables (its *scope*) and of *free* latents, which are not yet integrated
out. Units are compared by identity: an object that is used twice is a shared sub-circuit, and the circuit is a DAG.

    >>> import picirc as pc
    >>> x = pc.Input("x", pc.LinearGaussian({"z": 2.0}, std=0.5))  # p(x | z)
    >>> pc.Integral("z", x, pc.LinearGaussian(std=1.0)).inputs == (x,)  # ∫ p(z) p(x | z) dz
    True
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from picirc.errors import ArgumentError
from picirc.structure.bayesnet import Function, check_function, variable_names


@dataclass(frozen=True, eq=False, init=False)
class Input:
    """``p(X | Z)``: the density of one observed variable, or of several, given the parents of its function.

    Args:
        variables: The observed variable; several if the function is a joint density, such as ``pc.MultivariateNormal``.
        function: The density.
    """

    variables: tuple[str, ...]
    function: Function

    def __init__(self, variables: str | Sequence[str], function: Function) -> None:
        check_function(function)
        object.__setattr__(self, "variables", variable_names(variables, function))
        object.__setattr__(self, "function", function)

    @property
    def variable(self) -> str:
        """The observed variable; the first of several."""
        return self.variables[0]

    @property
    def inputs(self) -> tuple[Unit, ...]:
        """An input unit has no units below it."""
        return ()


@dataclass(frozen=True, eq=False)
class Factor:
    """One conditional density ``p(variables | parents)`` of the product that an integral unit carries."""

    variables: tuple[str, ...]
    function: Function

    def __post_init__(self) -> None:
        check_function(self.function)

    @property
    def latents(self) -> tuple[str, ...]:
        """The latents that the factor depends on, in the order of the function's arguments."""
        return (*self.variables, *self.function.parents)


@dataclass(frozen=True, eq=False, init=False)
class Integral:
    """``∫ f(Z, z) · child(X, Z, z) dz``, where ``f`` is the product of the factors.

    The paper attaches one density ``p(z | Z')`` to a unit. If a latent is eliminated before its children, several
    conditional densities depend on it, and the unit carries their product.

    Args:
        variables: The latent to integrate out, or several latents.
        child: The unit below.
        functions: The density ``p(variables | parents)``, or a sequence of factors.
    """

    variables: tuple[str, ...]
    child: Unit
    factors: tuple[Factor, ...]

    def __init__(self, variables: str | Sequence[str], child: Unit, functions: Function | Sequence[Factor]) -> None:
        names = (variables,) if isinstance(variables, str) else tuple(variables)
        if not names or len(set(names)) != len(names):
            raise ArgumentError("variables", "one latent or several different ones", names)
        _check_unit("child", child)
        factors = tuple(functions) if isinstance(functions, Sequence) else (Factor(names, functions),)
        if not all(isinstance(factor, Factor) for factor in factors):
            raise ArgumentError("functions", "one density, or a sequence of pc.Factor", functions)
        object.__setattr__(self, "variables", names)
        object.__setattr__(self, "child", child)
        object.__setattr__(self, "factors", factors)

    @property
    def inputs(self) -> tuple[Unit, ...]:
        """The child."""
        return (self.child,)


@dataclass(frozen=True, eq=False, init=False)
class Sum:
    """``Σ_d θ_d · d(X)``: a mixture with constant, non-negative weights that sum to one."""

    inputs: tuple[Unit, ...]
    weights: tuple[float, ...]

    def __init__(self, inputs: Sequence[Unit], weights: Sequence[float]) -> None:
        if not inputs:
            raise ArgumentError("inputs", "at least one unit", "none", "an empty sum is not a density")
        for unit in inputs:
            _check_unit("inputs", unit)
        theta = tuple(float(w) for w in weights)
        if len(theta) != len(inputs):
            raise ArgumentError("weights", f"one weight per input ({len(inputs)})", f"{len(theta)} weights")
        if any(not math.isfinite(w) or w < 0 for w in theta):
            raise ArgumentError("weights", "finite numbers that are not negative", theta)
        if abs(sum(theta) - 1) > 1e-6:
            raise ArgumentError("weights", "weights that add to 1", f"a total of {sum(theta):g}", "divide by it")
        object.__setattr__(self, "inputs", tuple(inputs))
        object.__setattr__(self, "weights", theta)


@dataclass(frozen=True, eq=False, init=False)
class Product:
    """``∏_d d(X)``; without inputs, the constant one."""

    inputs: tuple[Unit, ...]

    def __init__(self, *inputs: Unit) -> None:
        for unit in inputs:
            _check_unit("inputs", unit)
        object.__setattr__(self, "inputs", tuple(inputs))


Unit = Input | Integral | Sum | Product


def _check_unit(argument: str, unit: object) -> None:
    if not isinstance(unit, Input | Integral | Sum | Product):
        raise ArgumentError(argument, "units (Input, Integral, Sum, Product)", type(unit).__name__)
