# SPDX-License-Identifier: Apache-2.0
"""The integral circuit for users: the symbolic circuit together with the ways to integrate it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from picirc.compile.adaptive import Adaptive, adaptive_log_prob
from picirc.compile.integrate import LARGEST, edge_mass, integrate, locate_posterior, reach_of
from picirc.compile.place import AnyRule, Domain, place, rules_of, stated_domain
from picirc.errors import ArgumentError
from picirc.exact import ExactGaussian, integrate_exactly
from picirc.functions.conditional import modules_of
from picirc.qpc.distribution import QPC
from picirc.quadrature import Rule, gauss_legendre
from picirc.structure.bayesnet import BayesNet
from picirc.structure.trees import LatentTree
from picirc.symbolic import build
from picirc.symbolic.circuit import SymbolicCircuit
from picirc.symbolic.units import Input, Integral

_FIRST_POINTS, _MOST_POINTS, _MOST_SIGMAS = 8, 2048, 500.0


class Circuit(SymbolicCircuit):
    """An integral circuit: units below one root, their structural properties, and three ways to integrate it.

    Args:
        root: The unit whose function the circuit represents.
        variables: The observed variables in the order of the columns of the data.

    Example:
        >>> import picirc as pc
        >>> x = pc.Input("x", pc.LinearGaussian({"z": 2.0}, std=0.5))
        >>> circuit = pc.Circuit(pc.Integral("z", x, pc.LinearGaussian(std=1.0)))
        >>> print(circuit)
        ∫z  p(z)
          p(x | z)
        >>> circuit.exact().covariance
        tensor([[4.2500]], dtype=torch.float64)
    """

    def exact(self) -> ExactGaussian:
        """Return the closed form, which exists if all functions are linear-Gaussian and there are no sum units."""
        return integrate_exactly(self)

    def integrate(
        self,
        rule: AnyRule | Mapping[str, AnyRule] | None = None,
        *,
        nested: bool = False,
        domain: Domain = "marginal",
        sigmas: float | None = None,
        tol: float | None = None,
        on: Tensor | None = None,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
        limit: int = LARGEST,
    ) -> QPC:
        """Integrate by quadrature.

        Args:
            rule: A rule for all latents, or one for each; with ``tol``, where the search starts.
            nested: Let the points follow each conditional (Algorithm A.2) instead of fixing them (Algorithm 1).
            domain: Where static rules are placed: ``"marginal"`` (the marginal of each latent), ``"worst"`` (Appendix
                C.2 of the paper), ``"posterior"`` (the posterior of each latent given the data ``on``), or intervals
                for some latents. Use ``"posterior"`` for sharp likelihoods: it needs few points, but they are useless
                for data far from ``on``.
            sigmas: How many standard deviations a derived interval reaches; with ``tol``, at first.
            tol: Choose the number of points and the reach of derived intervals so that the estimated error of the
                log-likelihood of ``on`` is below this value.
            on: The data for ``tol`` or ``domain="posterior"``.
            dtype: The floating-point type of the result.
            device: The device of the result.
            limit: The largest number of elements of a tensor; a larger circuit raises a ``SizeError``.
        """
        posterior = domain == "posterior"
        if (tol is None) != (on is None) and not (posterior and on is not None):
            raise ArgumentError("tol, on", "both or neither", "one of them", "integrate(tol=1e-4, on=x)")
        if posterior and on is None:
            raise ArgumentError("on", 'the data for domain="posterior"', on)
        if not dtype.is_floating_point:
            raise ArgumentError("dtype", "a floating-point type such as torch.float64", dtype)
        like = torch.zeros((), dtype=dtype, device=device)
        quadrature = partial(integrate, self, nested=nested, domain=domain, like=like, limit=limit, on=on)
        if tol is not None and on is not None:
            return self._integrate_to(tol, on, quadrature, rule, nested, domain, sigmas, limit)
        if rule is None:
            raise ArgumentError("rule", "a quadrature rule such as pc.trapezoidal(64)", rule, "or give tol and on")
        return quadrature(rule, sigmas)

    def log_prob(self, x: Tensor, tol: float = 1e-6, *, domain: Domain = "marginal") -> Tensor:
        """Return ``log p(x)`` of every row by adaptive quadrature, the values of ``adaptive_log_prob``."""
        return self.adaptive_log_prob(x, tol, domain=domain).value

    def adaptive_log_prob(self, x: Tensor, tol: float = 1e-6, *, domain: Domain = "marginal") -> Adaptive:
        """Refine the grids for each data point until the estimated error is below ``tol``.

        The grids depend on the data point, so nothing is reused between data points and there is no circuit for other
        queries. Use it as a reference, or for a few important data points.

        Args:
            x: ``(..., variables)``; NaN is missing.
            tol: The desired absolute error of the log-likelihood.
            domain: Where the latents are integrated, as in ``integrate``.

        Returns:
            The ``value`` and the estimated ``error`` of each data point. An error above ``tol`` means that the
            tolerance was not reached.
        """
        return adaptive_log_prob(self, x, tol, domain)

    @property
    def functions(self) -> nn.ModuleList:
        """The modules among the functions of the units, each once.

        A function has learnable parameters if it is a module, or a ``pc.Density`` or ``pc.Conditional`` computed by a
        module. ``integrate`` evaluates it with a gradient, so that
        ``circuit.integrate(rule).log_prob(x).sum().backward()`` reaches ``circuit.functions.parameters()``.

        Example:
            >>> import picirc as pc
            >>> link = nn.Sequential(nn.Unflatten(-1, (-1, 1)), nn.Linear(1, 1, dtype=torch.float64))
            >>> x = pc.Input("x", pc.Conditional(pc.Bernoulli(), link, ["z"]))
            >>> circuit = pc.Circuit(pc.Integral("z", x, pc.LinearGaussian()))
            >>> circuit.integrate(pc.midpoint(20)).log_prob(torch.tensor([[1.0]])).sum().backward()
            >>> [bool(p.grad.isfinite().all()) for p in circuit.functions.parameters()]
            [True, True]
        """
        found: dict[nn.Module, None] = {}
        for unit in self.units:
            carried = [unit] if isinstance(unit, Input) else unit.factors if isinstance(unit, Integral) else ()
            for carrier in carried:
                found |= dict.fromkeys(modules_of(carrier.function))
        return nn.ModuleList(found)

    def __deepcopy__(self, memo: dict[int, Any]) -> Circuit:
        """Return the circuit itself, unless it has parameters, which can change."""
        if not len(self.functions):
            return self
        make, parts = self.__reduce__()
        found: Circuit = make(*copy.deepcopy(parts, memo))
        return found

    def _integrate_to(
        self,
        tol: float,
        on: Tensor,
        quadrature: Callable[[AnyRule | Mapping[str, AnyRule], float | None], QPC],
        rule: AnyRule | Mapping[str, AnyRule] | None,
        nested: bool,
        domain: Domain,
        sigmas: float | None,
        limit: int,
    ) -> QPC:
        """Widen intervals whose ends carry mass, take as many points as the posterior needs, and refine."""
        if not tol > 0:
            raise ArgumentError("tol", "a positive number", tol)
        rules = rules_of(self, gauss_legendre(_FIRST_POINTS) if rule is None else rule)
        reach, resolved = sigmas or reach_of(domain), nested or domain == "posterior" or bool(self.dims)
        while True:
            qpc = quadrature(rules, reach)
            errors = qpc.error(on)
            error = float(errors.max())
            if error <= tol:
                return qpc
            worst = on.reshape(-1, on.shape[-1])[errors.argmax()].unsqueeze(0)
            if reach < _MOST_SIGMAS and self._cut_off(qpc, rules, domain, worst, tol):
                reach, counts = 1.5 * reach, {z: int(1.5 * len(rule)) + 1 for z, rule in rules.items()}
            else:
                counts = {z: int((1.5 if resolved else 2) * len(rule)) + 1 for z, rule in rules.items()}
                if not resolved:
                    counts, resolved = self._resolved(rules, counts, domain, reach, worst), True
            self._check_affordable(counts, tol, error, nested, limit)
            rules = {z: rule.resize(counts[z]) for z, rule in rules.items()}

    def _cut_off(self, qpc: QPC, rules: Mapping[str, AnyRule], domain: Domain, x: Tensor, tol: float) -> bool:
        """Return whether the posterior of a data point reaches the end of a derived interval."""
        given = domain if isinstance(domain, Mapping) else {}
        posteriors = qpc.latents(x)
        return any(
            max(edge_mass(posteriors[z])) > max(tol, 1e-9)
            for z, rule in rules.items()
            if z not in given and isinstance(rule, Rule) and math.isfinite(rule.domain[1])
            if z not in self.discrete and stated_domain(self, z) is None
        )

    def _resolved(
        self, rules: Mapping[str, AnyRule], counts: Mapping[str, int], domain: Domain, reach: float, x: Tensor
    ) -> dict[str, int]:
        """Return at least ``counts`` points, and as many as the posterior of a data point needs."""
        grids, found = place(self, rules, domain, reach), dict(counts)
        for z, located in locate_posterior(self, x, domain).items():
            rule = rules[z]
            if isinstance(rule, Rule) and math.isfinite(rule.domain[1]):
                cells = float(grids[z].weights.sum()) / float(located.std.min())
                found[z] = max(counts[z], int(0.8 * cells) + 1)
        return found

    def _check_affordable(self, counts: Mapping[str, int], tol: float, error: float, nested: bool, limit: int) -> None:
        """Raise if the refinement that estimates the error would be too large."""
        most = max(counts.values(), default=0)
        refined = {z: range(int(2.5 * n) + 1) for z, n in counts.items()}
        if most > _MOST_POINTS or self.cost(refined, nested).largest > limit:
            sharp = max(counts, key=lambda z: counts[z])
            raise ArgumentError(
                "tol",
                f"a tolerance that {_MOST_POINTS:,} points a latent and tables of {limit:,} numbers can reach",
                f"{tol:g}, for which {sharp!r} needs at least {most:,} points; the error is {error:.2g} so far",
                'place points at the posterior with domain="posterior", use circuit.log_prob(x), or take a larger tol',
            )


def from_bayesnet(net: BayesNet, order: Sequence[str] | None = None, prune: bool = True) -> Circuit:
    """Return the circuit that eliminates the latents of ``net`` one after another (Algorithm A.1).

    Args:
        net: The network.
        order: The latents in the order of elimination; by default an order that keeps intermediate functions small.
            ``net.children_first`` gives every integral unit one conditional density, as in the paper.
        prune: Leave out barren latents, those without an observed descendant.
    """
    circuit = build.from_bayesnet(net, order, prune)
    return Circuit(circuit.root, circuit.variables)


def from_tree(tree: LatentTree, latent: build.FunctionOf, observed: build.FunctionOf) -> Circuit:
    """Return the circuit of a latent tree: an integral unit for each latent, over its inputs and its children.

    Args:
        tree: The tree. Latent ``i`` is called ``z{i}`` and variable ``j`` is called ``x{j}``.
        latent: ``latent(i, parent)`` returns the density of latent ``i`` given the latent ``parent``, which is None at
            the root.
        observed: ``observed(j, parent)`` returns the density of variable ``j`` given its latent.
    """
    circuit = build.from_tree(tree, latent, observed)
    return Circuit(circuit.root, circuit.variables)
