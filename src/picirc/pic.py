# SPDX-License-Identifier: Apache-2.0
"""Probabilistic integral circuits with neural functions, and mixtures of several."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar, final

import numpy as np
import torch
from torch import Tensor, nn

from picirc.checks import check_boolean, check_choice, check_even, check_integer, check_positive
from picirc.clusters import Clusters
from picirc.compile.integrate import mixture_of, quadrature_of, sizes_of, sum_of
from picirc.compile.plan import STATES, Plan, kind_of, plan_structure
from picirc.engine.compiled import Parameters
from picirc.errors import ArgumentError
from picirc.functions.energy import ENERGIES
from picirc.functions.nets import SHARING, Bank
from picirc.inputs import Family, as_columns
from picirc.inputs.correlated import correlation
from picirc.inputs.discrete import FiniteFamily
from picirc.model import AnyRule, Model, ParameterGroup, refined
from picirc.qpc.distribution import QPC
from picirc.quadrature import Grid, RandomRule, Rule, Rules, VectorRule, shifted, sobol
from picirc.structure.regions import RegionGraph
from picirc.structure.trees import LatentTree
from picirc.symbolic.build import SHARED, check_structure

_CORRELATION_SPEED = 4.0
# What the members of an ensemble have in common.
_ALIKE = ("families", "width", "sharing", "input_sharing", "energy", "affinity", "dims", "correlated")
_MOST_TURNS = 16  # features of a shared latent that heads are linear in
# Of the frequencies of a vector's components, times √dims: normal vectors are longer than numbers in [-1, 1].
_VECTOR_SIGMA = 0.7
_AFFINITY = 8.0  # of the latents of region graphs; of 0, 2, 8 and 30 the best on MNIST with N = 16 after 300 steps
_SPREAD = 16  # values begin alike over one part in so many of their range
_ORDERED = 64  # values from which on a table is taken as one of an ordered quantity, such as the brightness of pixels
_Grids = dict[Hashable, tuple[Tensor, Tensor]]


@final
class PIC(Model):
    """A probabilistic integral circuit with neural functions. Called with a rule, it returns its quadrature, a QPC.

    A latent lives on [-1, 1]. With ``dims`` above 1 it is a vector, normal unless its energy says otherwise. An
    integral unit carries a density ``p(z | z') ∝ exp(−E(z, z'))``, normalised by the rule that integrates it. An input
    unit has a net that returns the parameters of its distribution. The nets do not depend on the rule, so a trained
    model can be integrated with any rule.

    Args:
        structure: A latent tree or a region graph.
        inputs: The family of all variables, or one for each.
        width: The width of the nets.
        sharing: What integral units share: ``"none"``, ``"composite"`` (one hidden layer, a head each) or ``"full"``.
        input_sharing: The same for the input units of a family. With ``"full"`` one table serves all of them. The
            default is ``"full"`` if all variables have one finite family with at least 16 values, as pixels do, else
            ``"composite"``.
        energy: ``"unbounded"``, E = 3 net(z, z'), or the paper's ``"softplus"``, E = softplus(net(z, z')), which cannot
            make a density more peaked than its grid and learns more slowly.
        product: ``"cp"`` or ``"tucker"``, for region graphs.
        affinity: How close a latent is to its parent before training. Densities are relative to
            ``exp(−affinity·|z − z'|²)``, so that regions without variables of their own depend on the regions below.
            The default is 8 for region graphs whose latents are numbers, else 0.
        dims: The number of dimensions of every latent. Above 1 the model takes a rule for vectors, such as
            ``pc.sobol``; ``PIC(pc.star(n), …, dims=16)`` is a continuous mixture. For a tree, a sequence gives the
            dimensions of each latent, a mapping those that are not 1. Such a model takes one rule for each number of
            dimensions: ``pic([pc.midpoint(32), pc.sobol(512, dims=8)])``.
        shared: The number of points of one more latent, ``g``, that all functions of a tree depend on; None for no such
            latent. The PIC is then a mixture of trees that share their nets, and whose weights are trained. The cost of
            a query grows with the number of trees, the memory of training does not.
        shared_dims: The number of dimensions of ``g``, a normal vector whose points are those of ``pc.sobol``.
        fourier: Whether the nets start with Fourier features. By default those of latents with one dimension do.
        sigma: The standard deviation of their frequencies. The paper uses 1; images learn faster with 2.
        learnable: Whether the frequencies are trained. By default they are, except with the paper's energy.
        correlated: Whether the Gaussian variables of a family on one latent are correlated given its value, with one
            matrix of correlations (at most 0.9999) for all values. Otherwise they are independent given the latent.
        nets: Makes your own functions instead of energy nets. ``nets(rows, arguments)`` returns a module that maps
            points ``(points, arguments)`` to values ``(rows, points)``: a row for each integral unit, an argument for
            each latent that it depends on, given latents before integrated ones. Such a model cannot be saved.
        generator: The source of the random initial parameters.
        dtype: Their floating-point type.

    Example:
        >>> import picirc as pc
        >>> pic = pc.PIC(pc.chain(3), inputs=pc.Bernoulli(), width=8)
        >>> pic(pc.trapezoidal(16)), pic(pc.gauss_legendre(40))
        (QPC(3 variables, 528 weights, float32), QPC(3 variables, 3,240 weights, float32))
    """

    STORED: ClassVar[tuple[str, ...]] = (
        *("width", "sharing", "input_sharing", "energy", "product", "affinity", "dims", "shared", "shared_dims"),
        *("fourier", "learnable", "correlated"),
    )
    FORMER: ClassVar[dict[str, Any]] = {
        "correlated": False,
        "energy": "softplus",
        "affinity": 0.0,
        "dims": 1,
        "shared": None,
        "shared_dims": 2,
    }
    ADDED: ClassVar[tuple[str, ...]] = ("shares",)

    def __init__(
        self,
        structure: LatentTree | RegionGraph,
        inputs: Family | Sequence[Family],
        width: int = 256,
        sharing: str = "composite",
        input_sharing: str | None = None,
        energy: str = "unbounded",
        product: str = "cp",
        affinity: float | None = None,
        dims: int | Sequence[int] | Mapping[int, int] = 1,
        shared: int | None = None,
        shared_dims: int = 2,
        fourier: bool | None = None,
        sigma: float = 2.0,
        learnable: bool | None = None,
        correlated: bool = False,
        nets: Callable[[int, int], nn.Module] | None = None,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        _check_options(structure, sharing, input_sharing, energy, sigma, shared, nets)
        self.structure, self.families = structure, as_columns(inputs, structure.n_variables)
        self.dims = _check_dims(dims, structure)
        self.plan = plan_structure(structure, self.families, product, correlated, kinds=self._each_dims)
        self.product, self.correlated, self.energy = product, correlated, energy
        self.sharing, self.input_sharing = sharing, input_sharing or _input_sharing(self.families)
        self.width, self.affinity = check_even("width", width), self._check_affinity(affinity)
        self.shared = None if shared is None else check_integer("shared", shared, 2)
        self.shared_dims = check_integer("shared_dims", shared_dims)
        if fourier is None and isinstance(self.dims, int):
            fourier = self.dims == 1
        self.fourier = fourier if fourier is None else check_boolean("fourier", fourier)
        self.learnable = energy != "softplus" if learnable is None else check_boolean("learnable", learnable)
        self.step_size = 7e-3 if set(self._kinds.values()) == {1} else 3e-3
        self.custom = nets is not None
        self.clusters: Clusters | None = None  # of the rows, while a fresh model with a shared latent is trained
        turns = None if self.shared is None else (self.shared_dims, min(_MOST_TURNS, 2 * ((self.shared + 1) // 2)))

        def bank(rows: int, kinds: Sequence[Hashable], outputs: int, sharing: str) -> Bank:
            each = [self._kinds[kind] for kind in kinds]
            features = 1 in each if self.fourier is None else self.fourier
            scales = [s for d in each for s in [sigma if d == 1 else _VECTOR_SIGMA / math.sqrt(d)] * d]
            own = sigma if len(set(each)) == 1 else scales
            return Bank(rows, sum(each), outputs, self.width, sharing, features, own, self.learnable, generator, turns)

        def functions(rows: int, kinds: Sequence[Hashable]) -> nn.Module:
            if nets is not None:
                return nets(rows, sum(self._kinds[kind] for kind in kinds))
            return bank(rows, kinds, 1, sharing)

        self.integrals = nn.ModuleList(
            functions(len(block.integrals), block.new + block.integrated) for block in self.plan.blocks
        )
        self.inputs = nn.ModuleList(
            bank(len(step.rows), step.kinds, step.family.size, self.input_sharing) for step in self.plan.inputs
        )
        self.mixtures = nn.ParameterList(torch.zeros(fold, arity, 1) for fold, arity, _ in self.plan.mixture_shapes(1))
        self.blocks = [len(g.columns) for g in self.plan.inputs if g.correlation is not None]
        self.correlations = nn.ParameterList(torch.zeros(size * (size - 1) // 2) for size in self.blocks)
        self.shares = nn.ParameterList([torch.zeros(self.shared)] if self.shared else [])
        self.to(dtype)

    def forward(self, rule: AnyRule | None = None) -> QPC:
        """Integrate with a rule; a random rule is taken without its shift."""
        rule = self.fixed_rule(rule)
        if self.shared is None:
            return self._at(rule, None)
        parts = [self._at(rule, g).parameters for g in self._shared_grid[0]]
        grids = {**self.grids(rule), SHARED: self._shared_grid}
        return mixture_of(self.shared_plan, parts, self.log_shares().exp(), grids, partial(refined, self, rule))

    @cached_property
    def shared_plan(self) -> Plan:
        """The plan of the circuit with a shared latent."""
        return plan_structure(self.structure, self.families, self.product, self.correlated, True, self._each_dims)

    def slices(self, rule: AnyRule | None) -> list[Callable[[], QPC]]:
        """One tree for each point of the shared latent."""
        if self.shared is None:
            return super().slices(rule)
        fixed = self.fixed_rule(rule)
        return [partial(self._at, fixed, g) for g in self._shared_grid[0]]

    def log_shares(self) -> Tensor:
        """The weights of the trees."""
        return self.shares[0].log_softmax(0) if self.shared else super().log_shares()

    @property
    def _shared_grid(self) -> tuple[Tensor, Tensor]:
        assert self.shared is not None
        return self._grid(sobol(self.shared, self.shared_dims))

    @property
    def _each_dims(self) -> tuple[int, ...] | None:
        """The dimensions of each latent, if they differ."""
        return self.dims if isinstance(self.dims, tuple) else None

    @property
    def _kinds(self) -> dict[Hashable, int]:
        """For each kind of latents their dimensions, ascending."""
        if isinstance(self.dims, int):
            return {STATES: self.dims}
        return {kind_of(dims): dims for dims in sorted(set(self.dims))}

    def _check_affinity(self, affinity: float | None) -> float:
        if affinity is None:
            return _AFFINITY if isinstance(self.structure, RegionGraph) and self.dims == 1 else 0.0
        if affinity and self._each_dims:
            raise ArgumentError("affinity", "0 for latents that differ in their dimensions", affinity)
        return float(affinity) if affinity == 0 else check_positive("affinity", affinity)

    def fixed_rule(self, rule: object) -> Rule | VectorRule | Rules:
        """The rule, without its shift if it is random."""
        found = self._check_rule(rule)
        return found.map(_unmoved) if isinstance(found, Rules) else _unmoved(found)

    def grids(self, rule: Rule | VectorRule | Rules) -> _Grids:
        """The points, ``(N,)`` or ``(N, dims)``, and weights of each kind of latent."""
        rules = rule.rules if isinstance(rule, Rules) else [rule]
        return dict(zip(self._kinds, map(self._grid, map(_unmoved, rules)), strict=True))

    def _grid(self, rule: Rule | VectorRule) -> tuple[Tensor, Tensor]:
        grid: Grid | Rule | VectorRule = rule
        if isinstance(rule, Rule) and rule.domain != (-1.0, 1.0):
            grid = rule.on(-1.0, 1.0)
        like = next(self.parameters()).detach()
        return like.new_tensor(grid.points), like.new_tensor(grid.weights)

    def _at(self, rule: Rule | VectorRule | Rules, g: Tensor | None) -> QPC:
        """The circuit at a value of the shared latent, if there is one."""
        grids = self.grids(rule)
        # Points as rows `(N, dims)`, and the logarithms of their weights.
        rows = {kind: (points.view(len(points), -1), weights.log()) for kind, (points, weights) in grids.items()}
        parameters = Parameters(
            self._sum_weights(rows, g),
            tuple(w.softmax(1) for w in self.mixtures),
            self._input_parameters(rows, g),
            tuple(correlation(raw, size) for raw, size in zip(self.correlations, self.blocks, strict=True)),
        )
        return quadrature_of(self.plan, sizes_of(grids), parameters, grids, partial(refined, self, rule))

    @property
    def copies(self) -> int:
        """The number of trees: one for each point of the shared latent."""
        return self.shared or 1

    def training_rule(self, rule: object = None) -> AnyRule:
        """The given rule, or randomly shifted points, which teach the nets the integral instead of one grid."""
        return self.usual_rule() if rule is None else self._check_rule(rule)

    def usual_rule(self, points: int = 32, vectors: int = 1024) -> RandomRule | Rules:
        """Shifted points that settle for latents that are numbers, shifted Sobol points for vectors."""
        rules = [
            shifted(points, settle=True) if dims == 1 else shifted(sobol(vectors, dims))
            for dims in self._kinds.values()
        ]
        return rules[0] if len(rules) == 1 else Rules(tuple(rules))

    def weight_decay(self, rows: int) -> float:
        """Decay pulls latents towards independence, and the trees of a mixture, which see fewer rows, to each other.

        Chosen on six binary data sets with 1,600 to 16,000 rows.
        """
        return min(5.0, 8000 / rows) * math.sqrt(self.copies)

    def parameter_groups(self) -> list[ParameterGroup]:
        """Integral nets decay, which makes their latents independent; input nets do only if no latent has a parent.

        Frequencies of Fourier features do not decay: small ones would make a net smooth, not columns independent.
        Correlations start at zero and seldom stay small, so they do not decay either, and take longer steps.
        """
        banks = [bank for bank in (*self.integrals, *self.inputs) if isinstance(bank, Bank)]
        frequencies = [p for bank in banks if bank.features.fourier for p in bank.features.parameters()]
        free = {*frequencies, *self.shares}
        if any(block.new for block in self.plan.blocks):
            free.update(self.inputs.parameters())
        own = free.union(self.correlations)
        groups = [g._replace(parameters=[p for p in g.parameters if p not in own]) for g in super().parameter_groups()]
        correlations = ParameterGroup(list(self.correlations), decay=False, speed=_CORRELATION_SPEED)
        return [*groups, ParameterGroup([p for p in self.parameters() if p in free], decay=False), correlations]

    def begin_training(self, x: Tensor, generator: torch.Generator) -> None:
        """Start the input nets from the distribution of each column, in the units of that column."""
        for step, bank in zip(self.plan.inputs, self.inputs, strict=True):
            assert isinstance(bank, Bank)
            if bank.sharing == "full" and step.family.softmax:
                # States separate sooner from nearly uniform tables than from pooled frequencies.
                if self.fresh and bank.outputs >= _ORDERED:
                    bank.blend(_likeness(bank.head[0]))
                continue
            columns = x[:, torch.as_tensor(step.columns, device=x.device)].T  # (inputs, rows)
            if bank.sharing == "full":
                columns = columns.reshape(1, -1)
            bank.standardise(*step.family.raw_start(columns.to(bank.head.dtype)), keep=not self.fresh)
        if self.shared is not None and self.fresh:
            self.clusters = Clusters.find(x.to(torch.float32), self.families, self.shared, generator)

    def start_labels(self, x: Tensor) -> Tensor | None:
        """Trees that start alike stay alike for long, so each tree first learns one cluster of the rows."""
        return None if self.clusters is None else self.clusters.of(x)

    def end_training(self) -> None:
        """Fold the units of the columns into the heads of the input nets."""
        super().end_training()
        self.clusters = None
        for bank in self.inputs:
            assert isinstance(bank, Bank)
            bank.absorb()

    def _check_rule(self, rule: object) -> AnyRule:
        wanted = list(self._kinds.values())
        if len(wanted) == 1:
            return self._check_dims_of(rule, wanted[0])
        given = rule.rules if isinstance(rule, Rules) else rule
        if not isinstance(given, Sequence) or len(given) != len(wanted):
            expected = f"a list with a rule for each number of dimensions, {', '.join(map(str, wanted))}"
            raise ArgumentError("rule", expected, rule)
        ordered = sorted(given, key=lambda one: getattr(one, "dims", 1))
        return Rules(tuple(map(self._check_dims_of, ordered, wanted)))

    def _check_dims_of(self, rule: object, dims: int) -> Rule | VectorRule | RandomRule:
        if isinstance(rule, VectorRule | RandomRule) and rule.dims == dims:
            return rule
        if dims > 1:
            expected = f"a rule for vectors of {dims} dimensions, such as pc.sobol(1024, dims={dims})"
            raise ArgumentError("rule", expected, rule)
        if not isinstance(rule, Rule) or not np.isfinite(rule.domain).all():
            raise ArgumentError("rule", "a quadrature rule on an interval, such as pc.trapezoidal(64)", rule)
        if np.any(rule.weights <= 0):
            raise ArgumentError("rule", "positive weights, which become probabilities", f"{rule} with others")
        return rule

    def _sum_weights(self, rows: _Grids, g: Tensor | None) -> tuple[Tensor, ...]:
        """The sum weights of each block, ``(rows, 1, o, z)``, from points ``(N, dims)`` and logarithms of weights."""
        energy, weights = ENERGIES[self.energy], []
        for block, functions in zip(self.plan.blocks, self.integrals, strict=True):
            points = [rows[kind][0] for kind in block.new + block.integrated]
            axes = torch.meshgrid(*(torch.arange(len(own), device=own.device) for own in points), indexing="ij")
            chosen = [own[axis.flatten()] for own, axis in zip(points, axes, strict=True)]
            z = torch.cat(chosen, 1)  # (o · z, arguments)
            total, *more = (rows[kind][1] for kind in block.integrated)
            for log_weights in more:
                total = (total.unsqueeze(1) + log_weights).flatten()
            if self.affinity and block.new:
                given, *others = chosen
                apart = torch.cat([given - own for own in others], 1).square().sum(1)  # (o · z,)
                total = total - self.affinity * apart.view(-1, len(total))  # (o, z)
            if isinstance(functions, Bank):
                found = functions.sum_weights(z, total, energy, g)
            else:
                states = total.shape[-1]
                found = energy.normalise(functions(z).view(-1, 1, len(z) // states, states), total)
            weights.append(found.expand(len(block.integrals), -1, -1, -1))
        return tuple(weights)

    def _input_parameters(self, rows: _Grids, g: Tensor | None) -> tuple[Tensor, ...]:
        """The parameters of each input step, ``(inputs or 1, states, P)``, from points ``(N, dims)``."""
        found: list[Tensor] = []
        for step, bank in zip(self.plan.inputs, self.inputs, strict=True):
            assert isinstance(bank, Bank)
            points, _ = rows[step.kinds[0]]
            if step.family.softmax and bank.sharing != "none":
                found.append(bank.log_softmax(points, g))
            else:
                found.append(bank(points, step.family.constrain, g))
        return tuple(found)

    def extra_repr(self) -> str:
        """The sizes, for printing."""
        numbers = sum(p.numel() for p in self.parameters())
        return f"{len(self.families)} variables, {numbers:,} parameters"


@final
class Ensemble(Model):
    """A mixture of several PICs on latent trees, ``p(x) = Σ w_m p_m(x)``, as one model and one circuit.

    So every query of a circuit is an exact query of the mixture, at the cost of querying every member. Members with the
    same tree are the states of one more latent, ``g``, that all functions depend on. The posterior mean of another
    latent is then meaningless, because the members use that latent in different ways. Members with different trees are
    mixed by a sum unit. Their latents are numbered one after another, and the ``presence`` of a latent is the
    posterior probability of its member.

    Args:
        members: PICs of the same families and settings, trained from different seeds or on different rows.
        weights: Positive numbers to weigh the members by, such as their numbers of rows, up to a factor. By default all
            members have the same weight.

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

    def __init__(self, members: Sequence[PIC], weights: Sequence[float] | None = None) -> None:
        super().__init__()
        if not isinstance(members, Sequence) or not members or not all(type(member) is PIC for member in members):
            raise ArgumentError("members", "one PIC or more, in a list", members)
        first = members[0]
        for member in members:
            if not isinstance(member.structure, LatentTree):
                raise ArgumentError("members", "PICs on latent trees", f"one on a {type(member.structure).__name__}")
        if first.shared is not None:
            raise ArgumentError("members", "PICs without a shared latent", f"shared={first.shared}")
        for name in (*_ALIKE, "shared"):
            if any(getattr(member, name) != getattr(first, name) for member in members):
                raise ArgumentError("members", f"PICs of the same {name}", "different ones")
            setattr(self, name, getattr(first, name))
        if len({parameter.dtype for member in members for parameter in member.parameters()}) > 1:
            raise ArgumentError("members", "PICs of the same dtype", "different ones", "use member.double() for all")
        self.product, self.step_size, self.weights = first.product, first.step_size, _check_weights(weights, members)
        self.members = nn.ModuleList(members)
        if len(self.structures) == 1:
            self.structure = first.structure

    @property
    def parts(self) -> Sequence[PIC]:
        """The members."""
        return [member for member in self.members if isinstance(member, PIC)]

    @property
    def structures(self) -> Sequence[LatentTree]:
        """The tree of each member, or the one tree of all."""
        trees = [part.structure for part in self.parts if isinstance(part.structure, LatentTree)]
        return trees[:1] if len(set(trees)) == 1 else trees

    @cached_property
    def plan(self) -> Plan:  # type: ignore[override]  # made on demand
        """The plan of the common tree, or of the sum of all trees."""
        first = self.parts[0]
        if len(self.structures) == 1:
            return first.plan
        kinds = first._each_dims and first._each_dims * len(self.parts)
        return plan_structure(tuple(self.structures), first.families, first.product, first.correlated, kinds=kinds)

    @property
    def copies(self) -> int:
        """The number of members, if they have the same tree."""
        return len(self.members) if len(self.structures) == 1 else 1

    def log_shares(self) -> Tensor:
        """The weights of the members, which training does not change."""
        weights = self.weights or (1.0,) * len(self.members)
        return next(self.parameters()).new_tensor([weight / sum(weights) for weight in weights]).log()

    def training_rule(self, rule: object = None) -> AnyRule:
        """The rule of every member."""
        return self.parts[0].training_rule(rule)

    def usual_rule(self, points: int = 32, vectors: int = 1024) -> RandomRule | Rules:
        """The usual rule of every member."""
        return self.parts[0].usual_rule(points, vectors)

    def weight_decay(self, rows: int) -> float:
        """That of a member, which learns from its share of the rows."""
        return self.parts[0].weight_decay(max(1, rows // len(self.members)))

    def begin_training(self, x: Tensor, generator: torch.Generator) -> None:
        """Begin the training of every member."""
        for member in self.parts:
            member.begin_training(x, generator)

    def end_training(self) -> None:
        """End the training of every member."""
        super().end_training()
        for member in self.parts:
            member.end_training()

    def parameter_groups(self) -> list[ParameterGroup]:
        """Those of the members."""
        return [group for member in self.parts for group in member.parameter_groups()]

    def forward(self, rule: AnyRule | None = None) -> QPC:
        """Integrate all members with one rule."""
        first = self.parts[0]
        rule = first.fixed_rule(self.training_rule(rule))
        grids, parts = first.grids(rule), [member(rule).parameters for member in self.members]
        weights, refine = self.log_shares().exp(), partial(refined, self, rule)
        if len(self.structures) == 1:
            return mixture_of(first.shared_plan, parts, weights, {**grids, SHARED: (None, weights)}, refine)
        plans = [member.plan for member in self.parts]
        return sum_of(self.plan, list(zip(plans, parts, strict=True)), weights, grids, refine)

    def slices(self, rule: AnyRule | None) -> list[Callable[[], QPC]]:
        """The members."""
        return [partial(member, rule) for member in self.members]


def _check_weights(weights: object, members: Sequence[PIC]) -> tuple[float, ...] | None:
    if weights is None:
        return None
    if isinstance(weights, Tensor | np.ndarray):
        weights = weights.tolist()
    if not isinstance(weights, Sequence) or len(weights) != len(members):
        raise ArgumentError("weights", f"a positive number for each of {len(members)} members, or None", weights)
    return tuple(check_positive("weights", weight) for weight in weights)


def _check_options(
    structure: object,
    sharing: str,
    input_sharing: str | None,
    energy: str,
    sigma: float,
    shared: int | None,
    nets: object,
) -> None:
    """Raise if an argument of a PIC is invalid or does not go with another."""
    check_structure(structure)
    check_choice("sharing", sharing, SHARING)
    if input_sharing is not None:
        check_choice("input_sharing", input_sharing, SHARING)
    check_choice("energy", energy, list(ENERGIES))
    check_positive("sigma", sigma)
    if shared is not None and not isinstance(structure, LatentTree):
        raise ArgumentError("shared", "None for a region graph", shared, "use a latent tree")
    if shared is not None and nets is not None:
        raise ArgumentError("shared", "None with nets of your own", shared)


def _check_dims(dims: object, structure: LatentTree | RegionGraph) -> int | tuple[int, ...]:
    """The dimensions of all latents as one number, or of each latent of a tree if they differ."""
    if not isinstance(dims, Sequence | Mapping):
        return check_integer("dims", dims)
    if not isinstance(structure, LatentTree):
        raise ArgumentError("dims", "one number of dimensions for all latents of a region graph", dims)
    latents = structure.n_latents
    if isinstance(dims, Mapping):
        if unknown := [latent for latent in dims if latent not in range(latents)]:
            raise ArgumentError("dims", f"latents from 0 to {latents - 1}", unknown[0])
        dims = [dims.get(latent, 1) for latent in range(latents)]
    if len(dims) != latents:
        raise ArgumentError("dims", f"a number of dimensions for each of {latents} latents", f"{len(dims)} numbers")
    each = tuple(check_integer("dims", number) for number in dims)
    return each if len(set(each)) > 1 else each[0]


def _unmoved(rule: Rule | VectorRule | RandomRule) -> Rule | VectorRule:
    return rule.rule if isinstance(rule, RandomRule) else rule


def _likeness(heads: Tensor) -> Tensor:
    """How alike values begin, ``(values, values)``: weights of the heads of random functions, each row of length one.

    If neighbouring values begin alike, the states divide the values in a similar way with every seed. The value 0 stays
    apart: in images it is the background.
    """
    value = torch.arange(len(heads), dtype=heads.dtype, device=heads.device)
    near = torch.exp(-0.5 * ((value - value.unsqueeze(1)) * _SPREAD / len(heads)).square())
    near[0, 1:] = near[1:, 0] = 0
    return nn.functional.normalize(near, dim=1)


def _input_sharing(families: Sequence[Family]) -> str:
    """One table for all variables if they are alike and have many values, as pixels do."""
    first = families[0]
    alike = isinstance(first, FiniteFamily) and first.values >= 16 and all(family == first for family in families)
    return "full" if alike and len(families) > 1 else "composite"
