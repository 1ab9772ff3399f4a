# SPDX-License-Identifier: Apache-2.0
"""Chains of known functions: a Bayesian network for the first step, and a transition for each latent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy.linalg import solve_discrete_lyapunov
from torch import Tensor

from picirc.errors import ArgumentError
from picirc.exact import Conditional, NetworkGaussian
from picirc.functions import Density, FunctionFamily, LinearGaussian, Parametric
from picirc.inputs import Family
from picirc.quadrature import Rule, trapezoidal
from picirc.sequences.chain import Chain, repeated
from picirc.structure.bayesnet import BayesNet

GAP = "dt"  # the parent that stands for the time since the step before
DEFAULT_RULE = trapezoidal(257)
_SIGMAS = 8.0
_MOST_STATES = 4096
_LEAST_MASS = 0.99


class StateSpace:
    """A homogeneous chain of known functions, which can be evaluated on any grid.

    Args:
        net: The first step: its latents with their densities, and the observed variables given the latents.
        then: For each latent its density given latents one step before, and given ``"dt"`` if it depends on the time
            between the steps.
        on: The interval over which each latent is integrated; by default the domain of a ``pc.Density``, or ±8
            standard deviations of the stationary distribution of a linear-Gaussian chain.
    """

    def __init__(self, net: BayesNet, then: Mapping[str, Any], on: Mapping[str, tuple[float, float]] | None) -> None:
        net.check()
        self.names = tuple(net.latents)
        self.net, self.then = net, dict(then)
        self._check()
        self.timed = any(GAP in function.parents for function in self.then.values())
        self.domains = _domains(net, self.then, dict(on or {}))

    def chain(self, rule: Rule, widen: float = 1.0) -> Chain:
        """The chain on the product of one rule for each latent; ``widen`` multiplies the lengths of the intervals."""
        grids = []
        for low, high in (self.domains[z] for z in self.names):
            middle, half = (low + high) / 2, (high - low) / 2 * widen
            grids.append(rule.on(middle - half, middle + half))
        if len(rule) ** len(self.names) > _MOST_STATES:
            size = f"{len(rule)} points for each of {len(self.names)} latents"
            raise ArgumentError("rule", f"at most {_MOST_STATES:,} states", size, "take fewer points")
        points = np.stack([p.ravel() for p in np.meshgrid(*(g.points for g in grids), indexing="ij")], 1)
        weights = np.prod([w.ravel() for w in np.meshgrid(*(g.weights for g in grids), indexing="ij")], 0)
        nodes, log_weights = torch.from_numpy(points), torch.from_numpy(np.log(weights))
        values = {z: nodes[:, i] for i, z in enumerate(self.names)}
        start = log_weights.clone()
        for z, function in self.net.latents.items():
            start = start + function.log_density(values[z], *(values[p] for p in function.parents))  # type: ignore[attr-defined]

        def table(gap: Tensor) -> Tensor:
            given = {z: v.unsqueeze(1) for z, v in values.items()} | {GAP: gap.double()}
            logs = log_weights
            for z, function in self.then.items():
                logs = logs + function.log_density(values[z], *(given[p] for p in function.parents))
            return _checked(logs.expand(len(nodes), -1), rule)

        single = None if self.timed else table(torch.ones(()))

        def transition(gaps: Tensor) -> Tensor:
            return torch.stack([table(gap) for gap in gaps]) if single is None else repeated(single, gaps)

        inputs = []
        for function in self.net.variables.values():
            family, params = _distribution(function, [values[p] for p in function.parents], torch.zeros_like(start))
            inputs.append((family, params.unsqueeze(0)))
        return Chain(nodes, start.softmax(0), transition, tuple(inputs))

    def _check(self) -> None:
        if set(self.then) != set(self.names):
            expected = f"a density for each latent of the network ({', '.join(self.names) or 'none'})"
            raise ArgumentError("then", expected, ", ".join(map(str, self.then)) or "nothing")
        for z, function in self.then.items():
            if not callable(getattr(function, "log_density", None)):
                raise ArgumentError(f"then[{z!r}]", "pc.LinearGaussian or pc.Density", function)
            for parent in function.parents:
                if parent not in (*self.names, GAP):
                    expected = f"parents among the latents of the step before and {GAP!r}"
                    raise ArgumentError(f"then[{z!r}]", expected, repr(parent))


def _checked(logs: Tensor, rule: Rule) -> Tensor:
    """Transition probabilities: rows divided by their mass, which must be near 1 in the middle of the grid."""
    middle = float(logs[len(logs) // 2].logsumexp(0).exp())
    if not _LEAST_MASS < middle < 2 - _LEAST_MASS:
        remedy = "take more points, or a shorter interval on="
        got = f"{len(rule)} points, on which a transition has the mass {middle:.3g}"
        raise ArgumentError("rule", "points that are closer together than the width of a step", got, remedy)
    return logs.softmax(1)


def _domains(
    net: BayesNet, then: Mapping[str, Any], on: Mapping[str, tuple[float, float]]
) -> dict[str, tuple[float, float]]:
    latents = tuple(net.latents)
    if unknown := [z for z in on if z not in latents]:
        raise ArgumentError("on", f"intervals of {', '.join(latents)}", repr(unknown[0]))
    found = {}
    for z, (low, high) in on.items():
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ArgumentError(f"on[{z!r}]", "(low, high) with low < high", (low, high))
        found[z] = (float(low), float(high))
    for z in latents:
        domain = getattr(then[z], "domain", None)
        if z not in found and domain is not None and all(map(math.isfinite, domain)):
            found[z] = domain
    if len(found) < len(latents):
        found = _stationary(net, then) | found
    return {z: found[z] for z in latents}


def _stationary(net: BayesNet, then: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """±8 standard deviations of a stationary linear-Gaussian chain, and of its first step."""
    latents = list(net.latents)
    remedy = "give the interval of each latent, as in on={" + repr(latents[0]) + ": (-5, 5)}"
    functions = [*then.values(), *net.latents.values()]
    if not all(isinstance(f, LinearGaussian) and GAP not in f.parents for f in functions):
        raise ArgumentError("on", "an interval for each latent that is not linear-Gaussian", "none", remedy)
    a = np.array([[then[z].weights.get(p, 0.0) for p in latents] for z in latents])
    if np.abs(np.linalg.eigvals(a)).max() >= 1 - 1e-9:
        raise ArgumentError("on", "an interval for each latent of a chain that is not stationary", "none", remedy)
    noise = np.diag([then[z].std ** 2 for z in latents])
    mean = np.linalg.solve(np.eye(len(a)) - a, [then[z].bias for z in latents])
    std = np.sqrt(np.diag(solve_discrete_lyapunov(a, noise)))
    first: dict[str, Any] = {z: net.latents[z] for z in reversed(net.children_first)}
    nodes = {z: Conditional(z, f.weights, f.bias, f.std) for z, f in first.items()}
    start = NetworkGaussian(latents, nodes, ())
    first_mean, first_std = start.mean.numpy(), start.covariance.diagonal().sqrt().numpy()
    low = np.minimum(mean - _SIGMAS * std, first_mean - _SIGMAS * first_std)
    high = np.maximum(mean + _SIGMAS * std, first_mean + _SIGMAS * first_std)
    return {z: (float(low[i]), float(high[i])) for i, z in enumerate(latents)}


def _distribution(function: object, points: Sequence[Tensor], blank: Tensor) -> tuple[Family, Tensor]:
    """The family of an observed variable and its parameters ``(N, P)`` at the points of its parents."""
    match function:
        case Parametric():
            return function.family, function.parameters(*points).expand(len(blank), -1).to(blank.dtype)
        case Density():
            return FunctionFamily(function, (0,) * len(points)), torch.stack(list(points) or [blank], -1)
    remedy = "each observed variable of a chain has one density given latents of the same step"
    raise ArgumentError("function", "pc.LinearGaussian, pc.Conditional or pc.Density", function, remedy)
