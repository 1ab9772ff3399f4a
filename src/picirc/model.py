# SPDX-License-Identifier: Apache-2.0
"""The protocol of models: a structure with parameters that returns its circuit when called."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple, final

import torch
from torch import Tensor, nn

from picirc.autograd import uncompiled
from picirc.circuit import Circuit
from picirc.compile.plan import Plan
from picirc.errors import ArgumentError
from picirc.inputs import Family
from picirc.qpc.distribution import QPC
from picirc.quadrature import RandomRule, Rule, Rules, VectorRule, trapezoidal
from picirc.structure.regions import RegionGraph
from picirc.structure.trees import LatentTree

AnyRule = Rule | VectorRule | RandomRule | Rules
_CIRCUIT_POINTS = 64  # of the default rule of a circuit


class ParameterGroup(NamedTuple):
    """Parameters with the same options in training."""

    parameters: Sequence[nn.Parameter]
    decay: bool = True  # whether weight decay applies
    speed: float = 1.0  # their step size, relative to that of the training


class Model(nn.Module):
    """A distribution with parameters. ``model(rule)`` returns its circuit, a QPC; models with tables take no rule.

    Training and saving use only this interface, so ``pc.fit`` can train custom subclasses.

    Attributes:
        structure: The latent tree or region graph. A mixture of different trees has ``structures`` instead.
        families: The family of each variable.
        product: How the partitions of a region graph are combined.
        plan: The plan of the structure.
        step_size: The initial step size of gradient training.
        has_rule: Whether the latents are continuous, so that a rule integrates them.
        fresh: Whether the parameters are still random; training then starts from values that fit the data.
        custom: Whether it has user-defined functions, which cannot be saved.
    """

    STORED: ClassVar[tuple[str, ...]] = ()  # the arguments that are saved
    FORMER: ClassVar[dict[str, Any]] = {}  # the values of arguments that older files lack
    ADDED: ClassVar[tuple[str, ...]] = ()  # the lists of parameters that older files lack, where they were zero
    MEMBER: ClassVar[type[Model] | None] = None  # the class of the members of an ensemble
    has_rule: ClassVar[bool] = True

    structure: LatentTree | RegionGraph
    families: tuple[Family, ...]
    product: str
    plan: Plan
    step_size: float = 5e-3
    fresh: bool = True
    custom: bool = False

    @uncompiled
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the circuit; see ``forward``."""
        return super().__call__(*args, **kwargs)

    @abstractmethod
    def forward(self, rule: AnyRule | None = None) -> QPC:
        """Return the circuit with the current parameters."""

    @property
    def variables(self) -> Sequence[str]:
        """The names of the variables."""
        return self.plan.circuit.variables

    @property
    def structures(self) -> Sequence[LatentTree | RegionGraph]:
        """The different structures that the circuit mixes, usually one."""
        return (self.structure,)

    @property
    def parts(self) -> Sequence[Model]:
        """The members of an ensemble; for any other model only the model itself."""
        return (self,)

    @property
    def copies(self) -> int:
        """The number of circuits of this structure that the model's circuit mixes."""
        return 1

    def slices(self, rule: AnyRule | None) -> list[Callable[[], QPC]]:
        """Return functions that return the circuits that the model mixes.

        Training visits them one after another, so that only one of them is in memory.
        """
        return [partial(self, rule)]

    def log_shares(self) -> Tensor:
        """Return the logarithms of the weights of the slices, ``(slices,)``, which training may change."""
        return next(self.parameters()).new_zeros(1)

    def states_of(self, points: int) -> int:
        """Return the number of states of each latent with a rule of ``points`` points."""
        return points

    def usual_rule(self, points: int = 32, vectors: int = 1024) -> AnyRule | None:
        """Return a rule with so many points for numbers and for vectors; None for a model without a rule."""
        return None

    def training_rule(self, rule: object = None) -> AnyRule | None:
        """Check the rule for training, or return the default; None for a model without a rule."""
        if rule is not None:
            raise ArgumentError("rule", f"no rule for an {type(self).__name__}, whose states are not points", rule)
        return None

    def weight_decay(self, rows: int) -> float:
        """Return the default weight decay for data with this many rows."""
        return 0.0

    def parameter_groups(self) -> list[ParameterGroup]:
        """Return all parameters in groups.

        Weight decay does not apply to biases, which describe the distribution of a column and not its dependence on a
        latent.
        """
        named = list(self.named_parameters())
        biases, others = ([p for name, p in named if name.endswith("bias") is bias] for bias in (True, False))
        return [ParameterGroup(others), ParameterGroup(biases, decay=False)]

    def begin_training(self, x: Tensor, generator: torch.Generator) -> None:
        """Choose initial values that fit some rows ``x`` of the data, if the parameters are still random."""

    def start_labels(self, x: Tensor) -> Tensor | None:
        """Return the slice that each row ``(rows,)`` is assigned to when training starts; None for no assignment."""
        return None

    def end_training(self) -> None:
        """Undo what ``begin_training`` did for the optimiser; the distribution stays the same."""
        self.fresh = False


def refined(model: Model, rule: Rule | VectorRule | Rules) -> QPC:
    """Return the circuit of a model on a finer grid."""
    found: QPC = model(rule.refine())
    return found


@final
class CircuitModel(Model):
    """A model of a circuit with PyTorch modules among its functions.

    ``pc.fit`` converts a ``Circuit`` to a ``CircuitModel`` and back.
    """

    def __init__(self, circuit: Circuit) -> None:
        super().__init__()
        self.functions = circuit.functions
        if not any(parameter.requires_grad for parameter in self.functions.parameters()):
            remedy = "let a torch.nn.Module compute one of its functions, as in pc.Conditional(family, module, parents)"
            raise ArgumentError("model", "a circuit with parameters to learn", "one without any", remedy)
        self.circuit = circuit
        self.fresh = False  # the user has chosen the initial values
        self.families = tuple(self(trapezoidal(2)).families)

    @property
    def variables(self) -> Sequence[str]:
        """The names of the variables."""
        return self.circuit.variables

    def training_rule(self, rule: object = None) -> Rule:
        """Check the rule, or return the trapezoidal rule with 64 points."""
        if rule is not None and not isinstance(rule, Rule):
            raise ArgumentError("rule", "a quadrature rule such as pc.trapezoidal(64)", rule)
        return rule or trapezoidal(_CIRCUIT_POINTS)

    def forward(self, rule: AnyRule | None = None) -> QPC:
        """Integrate the circuit in the precision of its parameters."""
        like = next(self.functions.parameters())
        return self.circuit.integrate(self.training_rule(rule), dtype=like.dtype, device=like.device)
