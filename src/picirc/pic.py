"""Models that learn: a structure with parameters, which returns its circuit when called."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from picirc.checks import check_boolean, check_choice, check_integer, check_positive
from picirc.compile.integrate import quadrature_of
from picirc.compile.plan import plan_structure
from picirc.engine.compiled import Parameters
from picirc.errors import ArgumentError
from picirc.functions.energy import ENERGIES
from picirc.functions.nets import SHARING, Bank
from picirc.inputs import Family, as_columns
from picirc.inputs.correlated import correlation
from picirc.inputs.numerics import probabilities
from picirc.qpc.distribution import QPC
from picirc.quadrature import RandomRule, Rule
from picirc.structure.regions import RegionGraph
from picirc.structure.trees import LatentTree
from picirc.symbolic.build import check_structure


class HCLT(nn.Module):
    """A latent tree or region graph with tables: categorical latents, one free number for each sum weight.

    On the tree of ``hidden_chow_liu`` this is the hidden Chow–Liu tree of the literature, the baseline for PICs: the
    same circuit, without a continuum behind its states.

    Args:
        structure: A latent tree or a region graph.
        inputs: The family of all variables, or one for each.
        states: The number of states of each latent.
        product: For region graphs ``"cp"`` or ``"tucker"``.
        generator: The source of the random initial parameters.
        dtype: Their floating-point type.

    Example:
        >>> import picirc as pc
        >>> model = pc.HCLT(pc.chain(3), inputs=pc.Bernoulli(), states=4)
        >>> model()
        QPC(3 variables, 36 weights, float32)
    """

    # The arguments that a saved model keeps, and the values of those that were added after models had been saved.
    STORED: ClassVar[tuple[str, ...]] = ("states", "product")
    FORMER: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        structure: LatentTree | RegionGraph,
        inputs: Family | Sequence[Family],
        states: int,
        product: str = "cp",
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        states = check_integer("states", states)
        check_structure(structure)
        self.structure = structure
        self.states = states
        self.product = product
        self.families = as_columns(inputs, structure.n_variables)
        self.plan = plan_structure(structure, self.families, product)

        def table(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape, generator=generator, dtype=dtype))

        self.weights = nn.ParameterList(table(*shape) for shape in self.plan.weight_shapes(states))
        self.mixtures = nn.ParameterList(table(*shape) for shape in self.plan.mixture_shapes(states))
        self.inputs = nn.ParameterList(table(len(group.rows), states, group.family.size) for group in self.plan.inputs)

    def parameters_of_circuit(self) -> Parameters:
        """The numbers of the circuit: normalised weights and valid input parameters."""
        weights = tuple(probabilities(w) for w in self.weights)
        mixtures = tuple(w.softmax(1) for w in self.mixtures)
        groups = self.plan.inputs
        inputs = tuple(g.family.constrain(raw) for g, raw in zip(groups, self.inputs, strict=True))
        return Parameters(weights, mixtures, inputs)

    def forward(self) -> QPC:
        """The circuit with the current parameters."""
        return quadrature_of(self.plan, self.states, self.parameters_of_circuit())

    def extra_repr(self) -> str:
        """The sizes, for printing."""
        return f"{len(self.families)} variables, {self.states} states"


class PIC(nn.Module):
    """A probabilistic integral circuit with neural functions; called with a rule it returns its quadrature, a QPC.

    Every latent lives on [-1, 1]. An integral unit carries an energy-based density ``p(z | z') ∝ exp(−E(z, z'))``,
    normalised by the same rule that integrates it; an input unit has a net that gives the parameters of its
    distribution. Both begin with Fourier features. The nets do not know the rule, so a trained model can be integrated
    with any.

    Args:
        structure: A latent tree or a region graph.
        inputs: The family of all variables, or one for each.
        width: The width of the nets.
        sharing: What integral units share: ``"none"``, ``"composite"`` (one hidden layer, a head each) or ``"full"``.
        input_sharing: The same for input units of one family. With ``"full"`` all of them have the same distribution
            given their latent, and one table serves them all.
        energy: ``"unbounded"``, E = 3 net(z, z'), or the paper's ``"softplus"``, E = softplus(net(z, z')), which cannot
            make a density more peaked than its grid and learns more slowly.
        product: For region graphs ``"cp"`` or ``"tucker"``.
        fourier: Whether the nets begin with Fourier features.
        sigma: The standard deviation of their frequencies; the paper has 1, images learn faster with 2.
        learnable: Whether the frequencies are trained.
        correlated: Whether the Gaussian variables of one family that hang on one latent are correlated given its value:
            one matrix of correlations (of at most 0.9999) for each latent, the same for all values. Otherwise they are
            independent given the latent.
        generator: The source of the random initial parameters.

    Example:
        >>> import picirc as pc
        >>> pic = pc.PIC(pc.chain(3), inputs=pc.Bernoulli(), width=8)
        >>> pic(pc.trapezoidal(16)), pic(pc.gauss_legendre(40))
        (QPC(3 variables, 528 weights, float32), QPC(3 variables, 3,240 weights, float32))
    """

    STORED: ClassVar[tuple[str, ...]] = (
        *("width", "sharing", "input_sharing", "energy", "product", "fourier", "learnable", "correlated"),
    )
    FORMER: ClassVar[dict[str, Any]] = {"correlated": False, "energy": "softplus"}

    def __init__(
        self,
        structure: LatentTree | RegionGraph,
        inputs: Family | Sequence[Family],
        width: int = 256,
        sharing: str = "composite",
        input_sharing: str = "composite",
        energy: str = "unbounded",
        product: str = "cp",
        fourier: bool = True,
        sigma: float = 2.0,
        learnable: bool = False,
        correlated: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_choice("sharing", sharing, SHARING)
        check_choice("input_sharing", input_sharing, SHARING)
        check_choice("energy", energy, list(ENERGIES))
        width = check_integer("width", width, 2)
        if width % 2:
            raise ArgumentError("width", "an even integer", width)
        check_positive("sigma", sigma)
        check_boolean("correlated", correlated)
        if correlated and product == "tucker":
            raise ArgumentError("correlated", "False with product='tucker'", correlated, "use product='cp'")
        check_structure(structure)
        self.structure = structure
        self.product = product
        self.width = width
        self.sharing, self.input_sharing = sharing, input_sharing
        self.energy = energy
        self.families = as_columns(inputs, structure.n_variables)
        self.fourier, self.learnable = check_boolean("fourier", fourier), check_boolean("learnable", learnable)
        self.correlated = correlated
        self.plan = plan_structure(structure, self.families, product, correlated)
        options = (fourier, sigma, learnable, generator)
        self.integrals = nn.ModuleList(
            Bank(len(b.integrals), len(b.new) + len(b.integrated), 1, width, sharing, *options)
            for b in self.plan.blocks
        )
        self.inputs = nn.ModuleList(
            Bank(len(g.rows), 1, g.family.size, width, input_sharing, *options) for g in self.plan.inputs
        )
        self.mixtures = nn.ParameterList(torch.zeros(fold, arity, 1) for fold, arity, _ in self.plan.mixture_shapes(1))
        self.blocks = [len(g.columns) for g in self.plan.inputs if g.correlation is not None]
        self.correlations = nn.ParameterList(torch.zeros(size * (size - 1) // 2) for size in self.blocks)

    def forward(self, rule: Rule | RandomRule) -> QPC:
        """Integrate with a rule on [-1, 1]; of a random rule its middle draw is taken."""
        if isinstance(rule, RandomRule):
            rule = rule.rule
        if not isinstance(rule, Rule) or not np.isfinite(rule.domain).all():
            raise ArgumentError("rule", "a rule on an interval, such as pc.trapezoidal(64)", rule)
        if np.any(rule.weights <= 0):
            raise ArgumentError("rule", "positive weights, which become probabilities", f"{rule} with others")
        grid = rule.on(-1.0, 1.0)
        like = next(self.parameters())
        points = torch.as_tensor(grid.points, dtype=like.dtype, device=like.device)
        weights = torch.as_tensor(grid.weights, dtype=like.dtype, device=like.device)
        parameters = Parameters(
            tuple(self._sum_weights(i, points, weights.log()) for i in range(len(self.integrals))),
            tuple(w.softmax(1) for w in self.mixtures),
            tuple(self._input_parameters(i, points) for i in range(len(self.inputs))),
            tuple(correlation(raw, size) for raw, size in zip(self.correlations, self.blocks, strict=True)),
        )
        return quadrature_of(self.plan, len(rule), parameters, points, weights, partial(_refined, self, rule))

    def _sum_weights(self, block: int, points: Tensor, log_weights: Tensor) -> Tensor:
        """The sum weights of a block ``(rows, 1, o, z)``."""
        plan = self.plan.blocks[block]
        new, integrated = len(plan.new), len(plan.integrated)
        axes = torch.meshgrid(*[points] * (new + integrated), indexing="ij")
        z = torch.stack([axis.flatten() for axis in axes], 1)  # (points, arguments)
        total = log_weights
        for _ in range(integrated - 1):
            total = (total.unsqueeze(1) + log_weights).flatten()
        bank = self.integrals[block]
        assert isinstance(bank, Bank)
        found = bank.sum_weights(z, total, ENERGIES[self.energy])
        return found.expand(len(plan.integrals), -1, -1, -1)

    def _input_parameters(self, group: int, points: Tensor) -> Tensor:
        """The parameters of a group of inputs, ``(fold or 1, states, P)``."""
        family = self.plan.inputs[group].family
        found: Tensor = self.inputs[group](points.unsqueeze(1), lambda raw: family.constrain(raw.mT))
        return found

    def extra_repr(self) -> str:
        """The sizes, for printing."""
        numbers = sum(p.numel() for p in self.parameters())
        return f"{len(self.families)} variables, {numbers:,} parameters"


def _refined(model: PIC, rule: Rule) -> QPC:
    """The same circuit on a finer grid."""
    found: QPC = model(rule.refine())
    return found
