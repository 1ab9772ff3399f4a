# SPDX-License-Identifier: Apache-2.0
"""The integral circuit as users hold it: the symbolic value, and the ways to integrate it."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from picirc.compile.adaptive import Adaptive, adaptive_log_prob
from picirc.compile.integrate import (
    LARGEST,
    edge_mass,
    integrate_nested,
    integrate_static,
    locate_posterior,
    reach_of,
)
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
        root: The unit whose function the circuit stands for.
        variables: The observed variables in the order of the data's columns.

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
        """The closed form, which exists when every function is linear-Gaussian and there are no sum units."""
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
        """Integrate by quadrature: the circuit that results is a QPC.

        Args:
            rule: A rule for all latents, or one for each; with ``tol``, where the search starts.
            nested: Points that follow each conditional (Algorithm A.2) instead of fixed ones (Algorithm 1).
            domain: Where static rules are placed: ``"marginal"`` (each latent's own marginal), ``"worst"`` (the paper's
                Appendix C.2), ``"posterior"`` (each latent's posterior given the data ``on``), or intervals for some
                latents. Points at the posterior are for sharp likelihoods: they are few, and useless far from ``on``.
            sigmas: How many standard deviations a derived interval reaches; with ``tol``, at first.
            tol: Choose the number of points, and the reach of derived intervals, so that the estimated error of the
                log-likelihood of ``on`` is below this.
            on: The data for ``tol`` or ``domain="posterior"``.
            dtype: The floating-point type of the result.
            device: Where the result lives.
            limit: The largest number of elements that one tensor may have; a larger circuit is refused.
        """
        posterior = domain == "posterior"
        if (tol is None) != (on is None) and not (posterior and on is not None):
            raise ArgumentError("tol, on", "both or neither", "one of them", "integrate(tol=1e-4, on=x)")
        if posterior and on is None:
            raise ArgumentError("on", 'the data for domain="posterior"', on)
        if not dtype.is_floating_point:
            raise ArgumentError("dtype", "a floating-point type such as torch.float64", dtype)
        like = torch.zeros((), dtype=dtype, device=device)
        if tol is not None and on is not None:
            return self._integrate_to(tol, on, rule, nested, domain, sigmas, like, limit)
        if rule is None:
            raise ArgumentError("rule", "a quadrature rule such as pc.trapezoidal(64)", rule, "or give tol and on")
        return self._integrate(rule, nested, domain, sigmas, like, limit, on)

    def log_prob(self, x: Tensor, tol: float = 1e-6, *, domain: Domain = "marginal") -> Tensor:
        """``log p(x)`` of every row by adaptive quadrature: the values of ``adaptive_log_prob``."""
        return self.adaptive_log_prob(x, tol, domain=domain).value

    def adaptive_log_prob(self, x: Tensor, tol: float = 1e-6, *, domain: Domain = "marginal") -> Adaptive:
        """Adaptive quadrature: refine the grids for each data point until its error is below ``tol``.

        There is no circuit behind this: the points depend on the data point, so nothing can be re-used between data
        points, and no other query is possible. Use it as a reference, or for a few points that matter.

        Args:
            x: ``(..., variables)``; NaN is missing.
            tol: The wanted absolute error of the log-likelihood.
            domain: Where the latents are integrated, as in ``integrate``.

        Returns:
            ``value`` and estimated ``error`` of each data point; an error above ``tol`` means that it was not reached.
        """
        return adaptive_log_prob(self, x, tol, domain)

    @property
    def functions(self) -> nn.ModuleList:
        """The functions of the units that have parameters to learn, each once.

        A unit's function has parameters when it is a module, or a ``pc.Density`` or ``pc.Conditional`` that a module
        computes. ``integrate`` evaluates them with a gradient, so that
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
        """Itself, unless it has parameters, which can change."""
        if not len(self.functions):
            return self
        make, parts = self.__reduce__()
        found: Circuit = make(*copy.deepcopy(parts, memo))
        return found

    def _integrate(
        self,
        rule: AnyRule | Mapping[str, AnyRule],
        nested: bool,
        domain: Domain,
        sigmas: float | None,
        like: Tensor,
        limit: int,
        on: Tensor | None,
    ) -> QPC:
        if not nested:
            return integrate_static(self, rule, domain, sigmas, like, limit, on)
        if domain != "marginal":
            raise ArgumentError("domain", "no domain with nested=True", domain, "points follow the conditionals")
        return integrate_nested(self, rule, 6.0 if sigmas is None else sigmas, like, limit)

    def _integrate_to(
        self,
        tol: float,
        on: Tensor,
        rule: AnyRule | Mapping[str, AnyRule] | None,
        nested: bool,
        domain: Domain,
        sigmas: float | None,
        like: Tensor,
        limit: int,
    ) -> QPC:
        """Widen intervals whose ends carry mass, take the points that the posterior needs, and refine."""
        if not tol > 0:
            raise ArgumentError("tol", "a positive number", tol)
        rules = rules_of(self, gauss_legendre(_FIRST_POINTS) if rule is None else rule)
        reach, resolved = sigmas or reach_of(domain), nested or domain == "posterior" or bool(self.dims)
        while True:
            qpc = self._integrate(rules, nested, domain, reach, like, limit, on)
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
        """Whether the posterior of a data point reaches the end of an interval that was derived."""
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
        """The numbers of points, or as many as the posterior of a data point needs: about one for each deviation."""
        grids, found = place(self, rules, domain, reach), dict(counts)
        for z, located in locate_posterior(self, x, domain).items():
            rule = rules[z]
            if isinstance(rule, Rule) and math.isfinite(rule.domain[1]):
                cells = float(grids[z].weights.sum()) / float(located.std.min())
                found[z] = max(counts[z], int(0.8 * cells) + 1)
        return found

    def _check_affordable(self, counts: Mapping[str, int], tol: float, error: float, nested: bool, limit: int) -> None:
        """Refuse to go on with grids whose refinement, which estimates the error, would be too large."""
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
    """The circuit that eliminates the latents of ``net`` one after the other (Algorithm A.1).

    Args:
        net: The network.
        order: The latents in the order of elimination, any order; by default one that keeps intermediate functions
            small. ``net.children_first`` gives every integral unit one conditional density, as in the paper.
        prune: Leave out barren latents, those without an observed descendant.
    """
    circuit = build.from_bayesnet(net, order, prune)
    return Circuit(circuit.root, circuit.variables)


def from_tree(tree: LatentTree, latent: build.FunctionOf, observed: build.FunctionOf) -> Circuit:
    """The circuit of a latent tree: one integral unit a latent, over its inputs and its children's integrals.

    Args:
        tree: The tree. Latent ``i`` is called ``z{i}`` and variable ``j`` is called ``x{j}``.
        latent: ``latent(i, parent)`` gives the density of latent ``i`` given the latent called ``parent`` (None at
            the root).
        observed: ``observed(j, parent)`` gives the density of variable ``j`` given its latent.
    """
    circuit = build.from_tree(tree, latent, observed)
    return Circuit(circuit.root, circuit.variables)
