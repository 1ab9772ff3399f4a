# SPDX-License-Identifier: Apache-2.0
"""Latent trees and region graphs with tables instead of nets: the baseline of PICs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from picirc.checks import check_integer
from picirc.clusters import Clusters
from picirc.compile.integrate import quadrature_of
from picirc.compile.plan import STATES, plan_structure
from picirc.engine.compiled import Parameters
from picirc.inputs import Family, Gaussian, as_columns
from picirc.inputs.correlated import Block, correlation, raw_correlation
from picirc.inputs.discrete import FiniteFamily
from picirc.inputs.family import probabilities
from picirc.model import AnyRule, Model
from picirc.qpc.distribution import QPC
from picirc.structure.regions import RegionGraph
from picirc.structure.trees import LatentTree
from picirc.symbolic.build import check_structure


@final
class HCLT(Model):
    """A latent tree or region graph with tables: categorical latents, and one free parameter for each sum weight.

    On the tree of ``hidden_chow_liu`` this is the hidden Chow–Liu tree of the literature, the baseline for PICs: the
    same circuit without continuous latents behind its states.

    Args:
        structure: A latent tree or a region graph.
        inputs: The family of all variables, or one for each.
        states: The number of states of each latent.
        product: ``"cp"`` or ``"tucker"``, for region graphs.
        generator: The source of the random initial parameters.
        dtype: Their floating-point type.
        correlated: Whether the Gaussian variables of a family on one latent are correlated given its state, with a
            matrix for each state. On ``pc.star(n)`` this is a mixture of normal distributions with full covariances.

    Example:
        >>> import picirc as pc
        >>> model = pc.HCLT(pc.chain(3), inputs=pc.Bernoulli(), states=4)
        >>> model()
        QPC(3 variables, 36 weights, float32)
    """

    STORED: ClassVar[tuple[str, ...]] = ("states", "product", "correlated")
    FORMER: ClassVar[dict[str, Any]] = {"correlated": False}
    has_rule: ClassVar[bool] = False

    def __init__(
        self,
        structure: LatentTree | RegionGraph,
        inputs: Family | Sequence[Family],
        states: int,
        product: str = "cp",
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
        correlated: bool = False,
    ) -> None:
        super().__init__()
        check_structure(structure)
        self.structure, self.families = structure, as_columns(inputs, structure.n_variables)
        self.states = states = check_integer("states", states)
        self.product, self.correlated, self.step_size = product, correlated, 0.2
        self.plan = plan_structure(structure, self.families, product, correlated)

        def table(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape, generator=generator, dtype=dtype))

        self.weights = nn.ParameterList(table(*shape) for shape in self.plan.weight_shapes(states))
        self.mixtures = nn.ParameterList(table(*shape) for shape in self.plan.mixture_shapes(states))
        self.inputs = nn.ParameterList(table(len(group.rows), states, group.family.size) for group in self.plan.inputs)
        self.blocks = [len(group.columns) for group in self.plan.inputs if group.correlation is not None]
        self.correlations = nn.ParameterList(
            torch.zeros(states, size * (size - 1) // 2, dtype=dtype) for size in self.blocks
        )

    def states_of(self, points: int) -> int:
        """The number of states, which does not depend on a rule."""
        return self.states

    def begin_training(self, x: Tensor, generator: torch.Generator) -> None:
        """Start the states of variables with infinitely many values from values of the data."""
        if not self.fresh:
            return
        with torch.no_grad():
            for step, raw in zip(self.plan.inputs, self.inputs, strict=True):
                if not isinstance(step.family, FiniteFamily):
                    columns = torch.as_tensor(step.columns, device=x.device)
                    start = step.family.initial(x[:, columns].T.double(), self.states, generator)
                    raw.copy_(step.family.unconstrain(start))
            if self.blocks and isinstance(self.structure, LatentTree) and len(x) > 1:
                self._begin_with_clusters(x.double(), self.structure, generator)

    def _begin_with_clusters(self, x: Tensor, tree: LatentTree, generator: torch.Generator) -> None:
        """Fit the states of each latent to clusters of its own columns, and the edges to how often these meet."""
        flows = []  # for each latent (states, rows)
        for own in map(list, tree.variables):
            families = [self.families[v] for v in own]
            clusters = Clusters.find(x[:, own], families, self.states, generator, starts=1)  # EM moves them anyway
            flows.append(one_hot(clusters.of(x[:, own]), self.states).T.to(x.dtype))
        for block, weights in zip(self.plan.blocks, self.weights, strict=True):
            for row, (unit, _, _) in enumerate(block.integrals):
                latent = int(unit.variables[0].removeprefix("z"))
                parent = tree.parents[latent]
                above = flows[parent] if parent >= 0 else x.new_ones(1, len(x))
                counts = above @ flows[latent].T  # (o, z)
                weights[row, 0] = (counts + 1 / len(above)).log()
        latent_of = {v: latent for latent, own in enumerate(tree.variables) for v in own}
        for step, raw in zip(self.plan.inputs, self.inputs, strict=True):
            columns = x[:, torch.as_tensor(step.columns, device=x.device)].T  # (inputs, rows)
            flow = torch.stack([flows[latent_of[int(v)]] for v in step.columns])  # (inputs, states, rows)
            old = step.family.constrain(raw.double())
            if step.correlation is None:
                missing = columns.isnan()
                seen = flow.masked_fill(missing.unsqueeze(1), 0.0)
                statistics = step.family.expected_statistics(
                    old, columns.masked_fill(missing, step.family.neutral), seen
                )
                raw.copy_(step.family.unconstrain(step.family.from_statistics(old, statistics, 1.0)))
            else:
                table = self.correlations[step.correlation]
                assert isinstance(step.family, Gaussian)
                joint = Block(step.family, old, correlation(table.double(), len(columns)))
                begun = joint.from_statistics(joint.statistics(columns, flow[0]), len(columns), 1.0)
                raw.copy_(step.family.unconstrain(begun.params))
                table.copy_(raw_correlation(begun.matrix))

    def parameters_of_circuit(self) -> Parameters:
        """The parameters of the circuit: normalised weights and valid input parameters."""
        weights = tuple(probabilities(w) for w in self.weights)
        mixtures = tuple(w.softmax(1) for w in self.mixtures)
        groups = self.plan.inputs
        inputs = tuple(g.family.constrain(raw) for g, raw in zip(groups, self.inputs, strict=True))
        matrices = tuple(correlation(raw, size) for raw, size in zip(self.correlations, self.blocks, strict=True))
        return Parameters(weights, mixtures, inputs, matrices)

    def forward(self, rule: AnyRule | None = None) -> QPC:
        """The circuit with the current parameters. There is no rule."""
        self.training_rule(rule)
        return quadrature_of(self.plan, {STATES: self.states}, self.parameters_of_circuit())

    def extra_repr(self) -> str:
        """The sizes, for printing."""
        return f"{len(self.families)} variables, {self.states} states"
