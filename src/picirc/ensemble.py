# SPDX-License-Identifier: Apache-2.0
"""Several models as one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import final

import torch
from torch import Tensor, nn

from picirc.compile.integrate import quadrature_of
from picirc.engine.compiled import Parameters
from picirc.errors import ArgumentError
from picirc.model import AnyRule, Model
from picirc.pic import PIC
from picirc.qpc.distribution import QPC
from picirc.quadrature import RandomRule, Rule, VectorRule
from picirc.structure.trees import LatentTree

_ALIKE = ("structure", "families", "width", "sharing", "input_sharing", "energy", "dims", "correlated")


@final
class Ensemble(Model):
    """The average of several PICs on one latent tree, ``p(x) = (1/M) Σ p_m(x)``, as one model.

    Every latent has the states of all members, those of one after those of the other. The root chooses a member, and
    below it the states of different members never meet, because all other weights are block-diagonal. So every query
    of a circuit is a query of the average, and just as exact. A circuit of M members is M times as large as one in its
    inputs and M² times in its weights. A latent means something else in every member: its posterior over all states is
    right, its mean over the members says nothing.

    Args:
        members: PICs of the same tree, families and settings, trained from different seeds or on different rows.

    Example:
        >>> import picirc as pc
        >>> members = [pc.PIC(pc.chain(3), inputs=pc.Bernoulli(), width=8) for _ in range(2)]
        >>> both = Ensemble(members)(pc.midpoint(16))
        >>> x = torch.tensor([[0.0, 1.0, 1.0]])
        >>> mean = sum(member(pc.midpoint(16)).log_prob(x).exp() for member in members) / 2
        >>> torch.allclose(both.log_prob(x).exp(), mean)
        True
    """

    def __init__(self, members: Sequence[PIC]) -> None:
        super().__init__()
        if not isinstance(members, Sequence) or not members or not all(type(member) is PIC for member in members):
            raise ArgumentError("members", "one PIC or more, in a list", members)
        first = members[0]
        if not isinstance(first.structure, LatentTree):
            raise ArgumentError("members", "PICs on a latent tree", f"one on a {type(first.structure).__name__}")
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

    def states_of(self, points: int) -> int:
        """The states of all members, side by side."""
        return len(self.members) * points

    def member(self, number: int) -> PIC:
        """One of the members."""
        found = self.members[number]
        assert isinstance(found, PIC)
        return found

    def forward(self, rule: AnyRule | None = None) -> QPC:
        """Integrate all members with one rule."""
        rule = self.member(0).training_rule(rule)
        if isinstance(rule, RandomRule):
            rule = rule.rule
        parts: list[QPC] = [member(rule) for member in self.members]
        count = len(parts)
        states = count * len(rule)
        every = list(zip(*(part.parameters.weights for part in parts), strict=True))
        parameters = Parameters(
            tuple(_joined(own, bool(block.new)) for own, block in zip(every, self.plan.blocks, strict=True)),
            (),
            tuple(torch.cat(inputs, 1) for inputs in zip(*(part.parameters.inputs for part in parts), strict=True)),
            tuple(torch.stack(c) for c in zip(*(part.parameters.correlations for part in parts), strict=True)),
        )
        grid = rule.on(-1.0, 1.0) if isinstance(rule, Rule) else rule
        like = parameters.like
        points, weights = (
            torch.cat([torch.tensor(values, dtype=like.dtype, device=like.device)] * count)
            for values in (grid.points, grid.weights / count)
        )
        return quadrature_of(self.plan, states, parameters, points, weights, partial(_refined, self, rule))


def _refined(model: Ensemble, rule: Rule | VectorRule) -> QPC:
    """The same circuit on a finer grid."""
    found: QPC = model(rule.refine())
    return found


def _joined(weights: Sequence[Tensor], inner: bool) -> Tensor:
    """Sum weights ``(rows, 1, o, z)`` of all members: side by side at the root, block-diagonal inside."""
    rows, _, o, z = weights[0].shape
    count = len(weights)
    if not inner:
        return torch.cat(list(weights), 3) / count
    joined = weights[0].new_zeros(rows, 1, count, o, count, z)
    for number, own in enumerate(weights):
        joined[:, :, number, :, number] = own
    return joined.view(rows, 1, count * o, count * z)
