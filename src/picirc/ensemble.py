# SPDX-License-Identifier: Apache-2.0
"""Several models as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, final

from torch import nn

from picirc.compile.integrate import mixture_of
from picirc.errors import ArgumentError
from picirc.model import AnyRule, Model, ParameterGroup
from picirc.pic import PIC
from picirc.qpc.distribution import QPC
from picirc.quadrature import Rule, VectorRule
from picirc.structure.trees import LatentTree

_ALIKE = ("structure", "families", "width", "sharing", "input_sharing", "energy", "dims", "correlated", "shared")


@final
class Ensemble(Model):
    """The average of several PICs on one latent tree, ``p(x) = (1/M) Σ p_m(x)``, as one model.

    The members are the states of one more latent, ``g``, which all functions depend on. So every query of a circuit is
    a query of the average, and just as exact. It costs as much as the queries of all members together. A latent means
    something else in every member: its posterior mean over all of them says nothing.

    Args:
        members: PICs of the same tree, families and settings, trained from different seeds or on different rows.

    Example:
        >>> import picirc as pc, torch
        >>> members = [pc.PIC(pc.chain(3), inputs=pc.Bernoulli(), width=8) for _ in range(2)]
        >>> both = Ensemble(members)(pc.midpoint(16))
        >>> x = torch.tensor([[0.0, 1.0, 1.0]])
        >>> mean = sum(member(pc.midpoint(16)).log_prob(x).exp() for member in members) / 2
        >>> torch.allclose(both.log_prob(x).exp(), mean)
        True
    """

    MEMBER: ClassVar[type[Model]] = PIC

    def __init__(self, members: Sequence[PIC]) -> None:
        super().__init__()
        if not isinstance(members, Sequence) or not members or not all(type(member) is PIC for member in members):
            raise ArgumentError("members", "one PIC or more, in a list", members)
        first = members[0]
        if not isinstance(first.structure, LatentTree):
            raise ArgumentError("members", "PICs on a latent tree", f"one on a {type(first.structure).__name__}")
        if first.shared is not None:
            raise ArgumentError("members", "PICs without a shared latent", f"shared={first.shared}")
        for name in _ALIKE:
            if any(getattr(member, name) != getattr(first, name) for member in members):
                raise ArgumentError("members", f"PICs of the same {name}", "different ones")
            setattr(self, name, getattr(first, name))
        if len({parameter.dtype for member in members for parameter in member.parameters()}) > 1:
            raise ArgumentError("members", "PICs of the same dtype", "different ones", "use member.double() for all")
        self.product, self.plan = first.product, first.plan
        self.members = nn.ModuleList(members)

    @property
    def parts(self) -> Sequence[PIC]:
        """The members."""
        return [self.member(number) for number in range(len(self.members))]

    @property
    def copies(self) -> int:
        """The number of members."""
        return len(self.members)

    def member(self, number: int) -> PIC:
        """One of the members."""
        found = self.members[number]
        assert isinstance(found, PIC)
        return found

    def parameter_groups(self) -> list[ParameterGroup]:
        """Those of the members."""
        return [group for member in self.parts for group in member.parameter_groups()]

    def forward(self, rule: AnyRule | None = None) -> QPC:
        """Integrate all members with one rule."""
        first = self.member(0)
        rule = first.fixed_rule(first.training_rule(rule))
        parts = [member(rule).parameters for member in self.members]
        weights = parts[0].like.new_full((len(parts),), 1 / len(parts))
        refine = partial(_refined, self, rule)
        return mixture_of(first.shared_plan, parts, first.grid(rule), (None, weights), refine)

    def slices(self, rule: AnyRule | None) -> list[tuple[float, Callable[[], QPC]]]:
        """The members."""
        return [(1 / len(self.members), partial(member, rule)) for member in self.members]


def _refined(model: Ensemble, rule: Rule | VectorRule) -> QPC:
    """The same circuit on a finer grid."""
    found: QPC = model(rule.refine())
    return found
