"""Models that learn: a structure with parameters, which returns its circuit when called."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from picirc.compile.skeleton import Skeleton
from picirc.errors import ArgumentError
from picirc.inputs import Family, as_columns
from picirc.qpc.distribution import QPC
from picirc.qpc.program import Parameters
from picirc.structure.regions import RegionGraph
from picirc.structure.trees import LatentTree


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
        if isinstance(states, bool) or not isinstance(states, int) or states < 1:
            raise ArgumentError("states", "a positive whole number", states)
        self.structure = structure
        self.states = states
        self.product = product
        self.families = as_columns(inputs, structure.n_variables)
        self.skeleton = Skeleton(structure, self.families, product)

        def table(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape, generator=generator, dtype=dtype))

        self.weights = nn.ParameterList(table(*shape) for shape in self.skeleton.weight_shapes(states))
        self.mixtures = nn.ParameterList(table(*shape) for shape in self.skeleton.mixture_shapes(states))
        self.inputs = nn.ParameterList(
            table(len(group.rows), states, group.family.size) for group in self.skeleton.groups
        )

    def parameters_of_circuit(self) -> Parameters:
        """The numbers of the circuit: normalised weights and valid input parameters."""
        weights = tuple(w.softmax(-1) for w in self.weights)
        mixtures = tuple(w.softmax(1) for w in self.mixtures)
        groups = self.skeleton.groups
        inputs = tuple(g.family.constrain(raw) for g, raw in zip(groups, self.inputs, strict=True))
        return Parameters(weights, mixtures, inputs)

    def forward(self) -> QPC:
        """The circuit with the current parameters."""
        return self.skeleton.qpc(self.states, self.parameters_of_circuit(), None, None)

    def extra_repr(self) -> str:
        """The sizes, for printing."""
        return f"{len(self.families)} variables, {self.states} states"
