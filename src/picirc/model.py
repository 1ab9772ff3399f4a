# SPDX-License-Identifier: Apache-2.0
"""What every model is: a structure with parameters, which returns its circuit when called."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple, final

import torch
from torch import Tensor, nn

from picirc.circuit import Circuit
from picirc.compile.plan import Plan
from picirc.errors import ArgumentError
from picirc.inputs import Family
from picirc.qpc.distribution import QPC
from picirc.quadrature import RandomRule, Rule, Rules, VectorRule, trapezoidal
from picirc.structure.regions import RegionGraph
from picirc.structure.trees import LatentTree

AnyRule = Rule | VectorRule | RandomRule | Rules
_CIRCUIT_POINTS = 64  # of a circuit whose rule is not given


class ParameterGroup(NamedTuple):
    """Parameters that training treats alike.

    Attributes:
        parameters: The parameters.
        decay: Whether the weight decay applies to them.
        speed: Their step size, in units of that of the training.
    """

    parameters: Sequence[nn.Parameter]
    decay: bool = True
    speed: float = 1.0


class Model(nn.Module):
    """A distribution with parameters. ``model(rule)`` is its circuit, a QPC; a model with tables takes no rule.

    Training and saving use what stands here and nothing else, so a class of one's own can be trained with ``pc.fit``.

    Attributes:
        structure: The latent tree or region graph.
        families: The family of each variable.
        product: How partitions of a region graph combine.
        plan: The structure folded into a schedule.
        step_size: The step size that gradient training begins with.
        has_rule: Whether its latents are continuous, so that a rule integrates them.
        fresh: Whether the parameters are still the random ones; training then begins with ones that fit the data.
        custom: Whether it has functions of its user's own, which no file can hold.
    """

    # The arguments that a saved model keeps, the values of those that were added after models had been saved, and the
    # class of the members of an ensemble.
    STORED: ClassVar[tuple[str, ...]] = ()
    FORMER: ClassVar[dict[str, Any]] = {}
    MEMBER: ClassVar[type[Model] | None] = None
    has_rule: ClassVar[bool] = True

    structure: LatentTree | RegionGraph
    families: tuple[Family, ...]
    product: str
    plan: Plan
    step_size: float = 5e-3
    fresh: bool = True
    custom: bool = False

    @abstractmethod
    def forward(self, rule: AnyRule | None = None) -> QPC:
        """The circuit with the current parameters."""

    @property
    def variables(self) -> Sequence[str]:
        """The names of the variables."""
        return self.plan.circuit.variables

    @property
    def parts(self) -> Sequence[Model]:
        """The members of an ensemble; of any other model itself alone."""
        return (self,)

    @property
    def copies(self) -> int:
        """The number of circuits of this structure that the model's circuit mixes."""
        return 1

    def slices(self, rule: AnyRule | None) -> list[tuple[float, Callable[[], QPC]]]:
        """The circuits that the model's circuit mixes, with their weights, each made when it is called for.

        Training visits one after the other, so that it takes the memory of one only.
        """
        return [(1.0, partial(self, rule))]

    def states_of(self, points: int) -> int:
        """The number of states of each latent with a rule of ``points`` points."""
        return points

    def training_rule(self, rule: object = None) -> AnyRule | None:
        """The rule to train with: the one given, checked, or the default; None for a model that takes none."""
        if rule is not None:
            raise ArgumentError("rule", f"no rule for an {type(self).__name__}, whose states are not points", rule)
        return None

    def weight_decay(self, rows: int) -> float:
        """The weight decay that suits data with this many rows."""
        return 0.0

    def parameter_groups(self) -> list[ParameterGroup]:
        """All parameters, by how training treats them.

        Biases say how columns are distributed, not how they depend on a latent. Weight decay leaves them alone.
        """
        named = list(self.named_parameters())
        biases, others = ([p for name, p in named if name.endswith("bias") is bias] for bias in (True, False))
        return [ParameterGroup(others), ParameterGroup(biases, decay=False)]

    def begin_training(self, x: Tensor, generator: torch.Generator) -> None:
        """Choose start values that fit the data, if the parameters are still random.

        Args:
            x: ``(rows, variables)``, some rows of the data; NaN is missing.
            generator: The source of randomness.
        """

    def start_labels(self, x: Tensor) -> Tensor | None:
        """The slice that learns each row ``(rows,)`` when training begins; None where the slices find that out.

        Args:
            x: ``(rows, variables)``; NaN is missing.
        """
        return None

    def end_training(self) -> None:
        """Undo what ``begin_training`` did for the sake of the optimiser; the distribution stays the same."""
        self.fresh = False


def refined(model: Model, rule: Rule | VectorRule | Rules) -> QPC:
    """The circuit of a model on a finer grid."""
    found: QPC = model(rule.refine())
    return found


@final
class CircuitModel(Model):
    """A circuit whose functions have parameters, written by hand in PyTorch, as a model that can be trained.

    ``pc.fit`` makes one of a ``Circuit`` and returns a ``Circuit`` again.

    Args:
        circuit: A circuit with modules among its functions.
    """

    def __init__(self, circuit: Circuit) -> None:
        super().__init__()
        self.functions = circuit.functions
        if not any(parameter.requires_grad for parameter in self.functions.parameters()):
            remedy = "let a torch.nn.Module compute one of its functions, as in pc.Conditional(family, module, parents)"
            raise ArgumentError("model", "a circuit with parameters to learn", "one without any", remedy)
        self.circuit = circuit
        self.fresh = False  # the functions are what their author wants to begin with
        self.families = tuple(self(trapezoidal(2)).families)

    @property
    def variables(self) -> Sequence[str]:
        """The names of the variables."""
        return self.circuit.variables

    def training_rule(self, rule: object = None) -> Rule:
        """The trapezoidal rule with 64 points by default."""
        if rule is not None and not isinstance(rule, Rule):
            raise ArgumentError("rule", "a quadrature rule such as pc.trapezoidal(64)", rule)
        return rule or trapezoidal(_CIRCUIT_POINTS)

    def forward(self, rule: AnyRule | None = None) -> QPC:
        """The circuit, integrated in the precision of its parameters."""
        like = next(self.functions.parameters())
        return self.circuit.integrate(self.training_rule(rule), dtype=like.dtype, device=like.device)
