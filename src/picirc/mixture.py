# SPDX-License-Identifier: Apache-2.0
"""Continuous mixtures of trees: given one vector latent, the discrete variables of a table form a tree."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from picirc.checks import check_even, check_integer
from picirc.compile.integrate import quadrature_of, sizes_of
from picirc.compile.plan import Plan, kind_of, plan_structure
from picirc.engine.compiled import CompiledCircuit, Parameters
from picirc.engine.evidence import Evidence, Points
from picirc.errors import ArgumentError
from picirc.functions.nets import Bank
from picirc.inputs import Bernoulli, Categorical, Family, as_columns
from picirc.inputs.discrete import LARGEST_LOGIT
from picirc.model import AnyRule, Model, refined
from picirc.qpc.distribution import QPC
from picirc.quadrature import RandomRule, VectorRule, shifted, sobol
from picirc.structure.trees import LatentTree
from picirc.symbolic.build import SHARED

_MOST_VALUES = 16
_PIECE = 2**24  # elements of a matrix (points, data points)


@final
class TreeMixture(Model):
    """A continuous mixture of trees, ``p(x) = ∫ p(z) ∏ p(x_i | x_parent(i), z) dz`` with a normal vector z.

    With variables that are independent given z it would be the star ``PIC(pc.star(n), …, dims=d)``. In the circuit
    each latent of the tree is a copy of its variable, and all functions depend on z, so every query is exact. The
    likelihood of complete rows is one matrix product.

    Args:
        structure: A latent tree with one variable for each latent, such as ``pc.hidden_chow_liu(data)``.
        inputs: ``pc.Bernoulli()`` or ``pc.Categorical(k)``, one for all variables or one for each.
        width: The width of the nets from z to the tables of the tree.
        dims: The number of dimensions of z.
        generator: The source of the random initial parameters.
        dtype: Their floating-point type.

    Example:
        >>> import picirc as pc
        >>> mixture = pc.TreeMixture(pc.chain(3), inputs=pc.Bernoulli(), width=8, dims=4)
        >>> mixture(pc.sobol(64, dims=4))
        QPC(3 variables, 704 weights, float32)
    """

    STORED: ClassVar[tuple[str, ...]] = ("width", "dims")

    def __init__(
        self,
        structure: LatentTree,
        inputs: Family | Sequence[Family],
        width: int = 256,
        dims: int = 8,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(structure, LatentTree) or any(len(own) != 1 for own in structure.variables):
            raise ArgumentError("structure", "a latent tree with one variable for each latent", structure)
        self.structure, self.families, self.product = structure, as_columns(inputs, structure.n_variables), "cp"
        values = []
        for family in self.families:
            if not isinstance(family, Bernoulli | Categorical) or family.values > _MOST_VALUES:
                expected = f"pc.Bernoulli() or pc.Categorical(k) with at most {_MOST_VALUES} values"
                raise ArgumentError("inputs", expected, family)
            values.append(family.values)
        self.width, self.dims, self.step_size = check_even("width", width), check_integer("dims", dims), 3e-3
        self._columns = [own[0] for own in structure.variables]
        self._values = tuple(values[column] for column in self._columns)
        options = (structure, self.families, self.product, False)
        self.plan = plan_structure(*options, shared=False, kinds=self._values)
        self._whole = plan_structure(*options, shared=True, kinds=self._values)
        net = partial(Bank, arguments=dims, width=width, sharing="composite", fourier=False, generator=generator)
        self.integrals = nn.ModuleList(
            net(len(block.integrals), outputs=self._size(block.new + block.integrated)) for block in self.plan.blocks
        )
        self.to(dtype)

    def forward(self, rule: AnyRule | None = None) -> QPC:
        """Integrate z with a rule; a random rule is taken without its shift."""
        own = self.training_rule(rule)
        fixed = own.rule if isinstance(own, RandomRule) else own
        assert isinstance(fixed, VectorRule)
        like = next(self.parameters())
        points, weights = (torch.tensor(v, dtype=like.dtype, device=like.device) for v in (fixed.points, fixed.weights))
        parameters = Parameters(
            (*(self._tables(number, points) for number in range(len(self.integrals))), weights.view(1, 1, 1, -1)),
            (),
            tuple(self._copies(step.family, len(step.columns), len(points)) for step in self._whole.inputs),
        )
        grids: dict[Hashable, tuple[Tensor | None, Tensor]] = {
            kind_of(values): (None, like.new_ones(values)) for values in self._values
        }
        grids[SHARED] = (points, weights)
        sizes = sizes_of(grids)
        compiled = _Trees(self._whole, sizes, self._columns)
        return quadrature_of(self._whole, sizes, parameters, grids, partial(refined, self, fixed), compiled)

    def usual_rule(self, points: int = 32, vectors: int = 1024) -> RandomRule:
        """Randomly shifted Sobol points."""
        return shifted(sobol(vectors, self.dims))

    def training_rule(self, rule: object = None) -> RandomRule | VectorRule:
        """The given rule, or the usual one."""
        if rule is None:
            return self.usual_rule()
        if not isinstance(rule, VectorRule | RandomRule) or rule.dims != self.dims:
            expected = f"a rule for vectors of {self.dims} dimensions, such as pc.sobol(1024, dims={self.dims})"
            raise ArgumentError("rule", expected, rule)
        return rule

    def weight_decay(self, rows: int) -> float:
        """As for a PIC; decay pulls towards one tree."""
        return min(5.0, 8000 / rows)

    def begin_training(self, x: Tensor, generator: torch.Generator) -> None:
        """Start all trees from the smoothed tables of the data."""
        if not self.fresh:
            return
        for bank, block in zip(self.integrals, self.plan.blocks, strict=True):
            assert isinstance(bank, Bank)
            for row, (unit, _, new) in enumerate(block.integrals):
                own, *above = (int(name[1:]) for name in (*unit.variables, *new))
                codes = x[:, [self._columns[latent] for latent in (*above, own)]]
                codes = codes[~codes.isnan().any(1)].long()
                counts = torch.full([self._values[latent] for latent in (*above, own)], 0.5, dtype=torch.float64)
                counts.index_put_(tuple(codes.cpu().T), torch.ones(len(codes), dtype=torch.float64), accumulate=True)
                logs = counts.log() - counts.sum(-1, keepdim=True).log()
                with torch.no_grad():
                    bank.head_bias[row] = logs.flatten().to(bank.head_bias)

    def _size(self, kinds: Sequence[Hashable]) -> int:
        """The number of cells of a table with these axes."""
        sizes = {kind_of(values): values for values in self._values}
        return math.prod(sizes[str(kind)] for kind in kinds)

    def _tables(self, number: int, points: Tensor) -> Tensor:
        """The tables of a block at the points of z, ``(rows, points, parent's values, own values)``."""
        own = self._size(self.plan.blocks[number].integrated)
        found: Tensor = self.integrals[number](points, lambda raw: raw.unflatten(-1, (-1, own)).softmax(-1))
        return found

    def _copies(self, family: Family, inputs: int, points: int) -> Tensor:
        """Inputs that equal their latents, ``(inputs, points · values, P)``."""
        like = next(self.parameters())
        assert isinstance(family, Bernoulli | Categorical)
        raw = LARGEST_LOGIT * (2 * torch.eye(family.values, dtype=like.dtype, device=like.device) - 1)
        certain = family.constrain(raw[:, -family.size :])
        return certain.repeat(points, 1).expand(inputs, -1, -1)


class _Trees(CompiledCircuit):
    """The compiled circuit of such a mixture, with a faster path for complete rows."""

    def __init__(self, plan: Plan, sizes: Mapping[Hashable, int], columns: Sequence[int]) -> None:
        super().__init__(plan.schedule, sizes)
        self._plan, self._variables = plan, columns

    def __reduce__(self) -> Any:
        return _Trees, (self._plan, self.sizes, self._variables)

    def log_prob(self, evidence: Evidence, parameters: Parameters) -> Tensor:
        """Indicators of pairs of values times the logarithms of the tables: one matrix product."""
        if type(evidence) is not Points or evidence.missing is not None:
            return super().log_prob(evidence, parameters)
        *tables, weights = parameters.weights
        base = weights.flatten().log()  # (points,)
        parts = []
        for table in tables:
            logs = table.clamp(min=torch.finfo(table.dtype).tiny).log().flatten(2)  # (rows, points, cells)
            base = base + logs[..., 0].sum(0)
            parts.append((logs[..., 1:] - logs[..., :1]).transpose(0, 1).flatten(1))
        matrix = torch.cat(parts, 1)  # (points, rows · cells but the first)
        pieces = evidence.values.split(max(1, _PIECE // len(matrix)), 1)
        return torch.cat([(matrix @ self._cells(x.long(), tables) + base.unsqueeze(1)).logsumexp(0) for x in pieces])

    def _cells(self, codes: Tensor, tables: Sequence[Tensor]) -> Tensor:
        """Indicators of the cells that the values fall into, ``(rows · cells but the first, batch)``."""
        found = []
        for block, table in zip(self._plan.blocks, tables, strict=False):  # the last block is that of z itself
            place = codes[self._columns_of([unit.variables for unit, _, _ in block.integrals])]
            if block.new:
                place = place + table.shape[-1] * codes[self._columns_of([new for _, _, new in block.integrals])]
            cells = one_hot(place, table[0, 0].numel())[..., 1:]  # (rows, batch, cells but the first)
            found.append(cells.transpose(1, 2).flatten(0, 1))
        return torch.cat(found).to(tables[0].dtype)

    def _columns_of(self, latents: Sequence[Sequence[str]]) -> list[int]:
        return [self._variables[int(name[1:])] for (name,) in latents]
