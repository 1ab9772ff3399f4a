"""Algorithm A.2: points that follow the integrand, at the price of exponential size.

The points of a latent depend on the values of its parents, so a function of it is tabulated over the axes of all its
ancestors. That is an ordinary program in which the weights share those axes with the rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from picirc.compile.materialise import LARGEST, assemble, check_size, make_axes
from picirc.compile.static import rules_of
from picirc.errors import ArgumentError, StructureError
from picirc.functions import Density, LinearGaussian
from picirc.qpc.distribution import QPC
from picirc.quadrature import Grid, Rule
from picirc.symbolic.circuit import SymbolicCircuit
from picirc.symbolic.units import Integral


def integrate_nested(
    circuit: SymbolicCircuit,
    rule: Rule | Mapping[str, Rule],
    sigmas: float = 6.0,
    like: Tensor | None = None,
    limit: int = LARGEST,
) -> QPC:
    """Nested quadrature of a circuit whose integral units carry one conditional density each.

    Args:
        circuit: The circuit.
        rule: A rule for all latents, or one for each. Gauss–Hermite is placed at each conditional's mean and standard
            deviation, the others on mean ± ``sigmas`` standard deviations.
        sigmas: The reach of intervals.
        like: A tensor of the wanted dtype and device; float64 on the CPU by default.
        limit: The largest number of elements that a tensor may have.
    """
    rules = rules_of(circuit, rule)
    _check_conditionals(circuit)
    check_size(
        circuit.cost(rules, nested=True),
        limit,
        "nested quadrature grows exponentially with depth: use fewer points, or leave out nested=True",
    )
    if not sigmas > 0:
        raise ArgumentError("sigmas", "a positive number", sigmas)
    rank = {z: i for i, z in enumerate(circuit.parents_first)}
    lineage = {z: tuple(sorted(circuit.lineage[z], key=rank.__getitem__)) for z in circuit.latents}
    like = torch.zeros((), dtype=torch.float64) if like is None else like
    grids: dict[str, Grid] = {}
    for z in circuit.parents_first:
        grids[z] = _place(circuit, z, rules[z], sigmas, grids, lineage)
    axes = make_axes(grids, lineage.__getitem__, like.dtype, like.device)

    def refine() -> QPC:
        finer = {z: one.resize(5 * len(one) // 2 + 1) for z, one in rules.items()}
        return integrate_nested(circuit, finer, 1.25 * sigmas, like, limit)

    return assemble(circuit, axes, like, refine)


def _check_conditionals(circuit: SymbolicCircuit) -> None:
    for unit in circuit.units:
        if isinstance(unit, Integral) and [f.variables for f in unit.factors] != [unit.variables]:
            carried = " · ".join(f"p({', '.join(f.variables)} | …)" for f in unit.factors) or "nothing"
            raise StructureError(
                f"nested quadrature places points at the conditional density of each latent, but the unit "
                f"{circuit.names[id(unit)]} carries {carried}; eliminate children before parents: "
                "from_bayesnet(net, order=net.children_first)."
            )
    for z, functions in circuit.densities.items():
        if len(functions) != 1:
            carried = "several densities" if functions else "a joint density with others only"
            raise StructureError(
                f"nested quadrature places points at the conditional density of each latent, but {z!r} has {carried}; "
                "leave out nested=True, or give different latents different names."
            )


def _place(
    circuit: SymbolicCircuit,
    z: str,
    rule: Rule,
    sigmas: float,
    grids: Mapping[str, Grid],
    lineage: Mapping[str, tuple[str, ...]],
) -> Grid:
    """The rule at every combination of the ancestors' points, over the axes ``lineage[z]``."""
    (function,) = circuit.densities[z]
    above = lineage[z][:-1]
    parents = [torch.as_tensor(_over(grids[p].points, lineage[p], above)) for p in function.parents]
    shape = np.broadcast_shapes(*(p.shape for p in parents)) if parents else ()
    if isinstance(function, LinearGaussian):
        mean, std = function.mean(*parents), torch.tensor(function.std, dtype=torch.float64)
    elif isinstance(function, Density) and function.moments is not None:
        mean, std = function.moments(*parents)
    elif isinstance(function, Density) and not math.isinf(function.domain[1] - function.domain[0]):
        low, high = (np.full(shape, end) for end in function.domain)
        return rule.on(low, high)
    else:
        raise ArgumentError("function", f"moments or a finite domain for the latent {z!r}", function)
    centre, reach = (np.broadcast_to(np.asarray(v, dtype=np.float64), shape) for v in (mean, std))
    if math.isinf(rule.domain[1]):
        return rule.at(centre, reach)
    return rule.on(centre - sigmas * reach, centre + sigmas * reach)


def _over(points: np.ndarray, indices: tuple[str, ...], order: tuple[str, ...]) -> np.ndarray:
    """Points over ``indices`` as a view over ``order``, of which ``indices`` is a subsequence."""
    return points[tuple(slice(None) if index in indices else None for index in order)]
