# SPDX-License-Identifier: Apache-2.0
"""Inner products of circuits, and the divergences that follow from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from picirc.engine.contraction import spread
from picirc.engine.schedule import InputStep, MixStep, SumStep
from picirc.errors import ArgumentError, StructureError

if TYPE_CHECKING:
    from picirc.qpc.distribution import QPC

Row = tuple[int, int]  # pool and row
Axes = tuple[int, ...] | None


def log_inner_product(p: QPC, q: QPC) -> Tensor:
    """Return ``log ∫ p(x) q(x) dx`` of two structured-decomposable circuits with compatible decompositions.

    Integrals and mixtures are linear, so they can be taken out of the product on either side. The rest are products of
    products, which factorise over disjoint sets of variables, and pairs of inputs of the same family. The circuits may
    differ in their numbers of states, latents and mixtures.
    """
    _check_compatible(p, q)
    left, right = _Terms(p), _Terms(q)
    found = _solve((left.root, right.root), lambda pair: _product(left, right, *pair))
    return found[0, 0]


def l2_divergence(p: QPC, q: QPC) -> Tensor:
    """Return ``∫ (p(x) − q(x))² dx``."""
    pp, qq, pq = log_inner_product(p, p), log_inner_product(q, q), log_inner_product(p, q)
    top = torch.maximum(pp, qq)
    return top.exp() * ((pp - top).exp() + (qq - top).exp() - 2 * (pq - top).exp()).clamp(min=0.0)


def cauchy_schwarz_divergence(p: QPC, q: QPC) -> Tensor:
    """Return ``−log (∫ p q / √(∫ p² ∫ q²))``, which is zero for equal distributions and does not underflow."""
    return ((log_inner_product(p, p) + log_inner_product(q, q)) / 2 - log_inner_product(p, q)).clamp(min=0.0)


@dataclass(frozen=True)
class _Term:
    """A factor of a row."""

    scope: frozenset[int]  # the columns that it depends on
    axes: Axes  # the positions of its axes among those of the row; None if they are the same
    step: InputStep | SumStep | MixStep  # the step that computes it
    number: int  # the number of the result or of the input


@dataclass(frozen=True)
class _Node:
    """A row, or the product of some of its factors."""

    row: Row
    terms: frozenset[int] | None  # the numbers of the factors; None if the row is a mixture


class _Terms:
    """A circuit as products: the factors of every row."""

    def __init__(self, qpc: QPC) -> None:
        self.compiled, self.parameters = qpc.compiled, qpc.parameters.detach()
        self._terms: dict[Row, list[_Term]] = {}
        self.mixed: dict[Row, tuple[MixStep, int]] = {}
        for step in self.compiled.schedule.steps:
            match step:
                case InputStep():
                    self._inputs(step)
                case MixStep():
                    for i in range(step.results):
                        self.mixed[step.pool, step.start + i] = (step, i)
                    self._send(step)
                case SumStep():
                    self._send(step)
        self.root = self.node(self.compiled.schedule.root)

    def node(self, row: Row) -> _Node:
        """Return the node of a whole row."""
        return _Node(row, None if row in self.mixed else frozenset(range(len(self._terms.get(row, [])))))

    def terms(self, node: _Node) -> dict[int, _Term]:
        """Return the factors of a node by number."""
        return {i: self._terms[node.row][i] for i in sorted(node.terms or ())}

    def sources(self, node: _Node) -> list[tuple[_Node, Tensor]]:
        """Return the parts of a mixture and their log-weights ``(states or 1,)``."""
        step, i = self.mixed[node.row]
        weights = self.parameters.mixtures[step.block][step.first + i].log()  # (arity, states or 1)
        return [(self.node((step.pool, int(row))), w) for row, w in zip(step.sources[i], weights, strict=True)]

    def below(self, term: _Term) -> _Node:
        """Return the row that a factor is the integral of, or the mixture that it is."""
        assert not isinstance(term.step, InputStep)
        return self.node((term.step.pool, term.step.start + term.number // term.step.edges))

    def apply(self, row: Row, term: _Term, values: Tensor) -> Tensor:
        """Return the log-values ``(states, n)`` of a factor, given those ``(states below, n)`` of the row below it."""
        step = term.step
        shape = self.compiled.shapes[step.pool]
        if isinstance(step, SumStep):
            g, o, z, r = self.compiled.dims(step)
            weights = self.parameters.weights[step.block][step.first + term.number].view(g, o, z)
            top = values.amax(0, keepdim=True).clamp(min=torch.finfo(values.dtype).min)
            scaled = (values - top).exp().view(g, z, r, -1)
            values = torch.einsum("goz,gzrn->gorn", weights, scaled).reshape(g * o * r, -1).log() + top
            shape = self.compiled.result_shape(step)
        return self.spread(row, term.axes, shape, values)

    def spread(self, row: Row, axes: Axes, shape: Sequence[int], values: Tensor) -> Tensor:
        """Expand values over some axes of a row to all of them, ``(states, n)``."""
        if axes is None:
            return values
        target = self.compiled.shapes[row[0]]
        return spread(values.unsqueeze(0), axes, shape, target).reshape(-1, values.shape[-1])

    def _inputs(self, step: InputStep) -> None:
        if step.correlation is not None:
            scope = frozenset(map(int, step.columns))
            self._add((step.pool, int(step.rows[0])), _Term(scope, step.axes, step, 0))
            return
        for i, (row, column) in enumerate(zip(step.rows, step.columns, strict=True)):
            self._add((step.pool, int(row)), _Term(frozenset((int(column),)), step.axes, step, i))

    def _send(self, step: SumStep | MixStep) -> None:
        for send in step.sends:
            sources = range(step.results) if send.sources is None else send.sources
            for number, row in zip(sources, send.rows, strict=True):
                scope = self._scope((step.pool, step.start + int(number) // step.edges))
                self._add((send.pool, int(row)), _Term(scope, send.axes, step, int(number)))

    def _scope(self, row: Row) -> frozenset[int]:
        if row in self.mixed:
            step, i = self.mixed[row]
            return self._scope((step.pool, int(step.sources[i][0])))
        return frozenset().union(*(term.scope for term in self._terms.get(row, [])))

    def _add(self, row: Row, term: _Term) -> None:
        self._terms.setdefault(row, []).append(term)


Pair = tuple[_Node, _Node]
Work = Generator[Pair, Tensor, Tensor]


def _solve(first: Pair, work: Callable[[Pair], Work]) -> Tensor:
    """Run generators that ask for the results of other pairs, without recursion because circuits may be deep."""
    done: dict[Pair, Tensor] = {}
    stack: list[tuple[Pair, Work]] = [(first, work(first))]
    answer: Tensor | None = None
    while stack:
        pair, running = stack[-1]
        try:
            asked = running.send(answer)  # type: ignore[arg-type]  # None starts it
        except StopIteration as end:
            done[pair] = answer = end.value
            stack.pop()
            continue
        answer = done.get(asked)
        if answer is None:
            stack.append((asked, work(asked)))
    return done[first]


def _product(left: _Terms, right: _Terms, a: _Node, b: _Node) -> Work:
    """Compute ``log ∫ a(x) b(x) dx`` for all pairs of states of two nodes, ``(states, states)``."""
    if a.terms is None:
        parts = []
        for part, weights in left.sources(a):
            parts.append((yield part, b) + weights.unsqueeze(1))
        return torch.stack(parts).logsumexp(0)
    if b.terms is None:
        parts = []
        for part, weights in right.sources(b):
            parts.append((yield a, part) + weights)
        return torch.stack(parts).logsumexp(0)
    sizes = (math.prod(side.compiled.shapes[node.row[0]]) for side, node in ((left, a), (right, b)))
    total = left.parameters.like.new_zeros(tuple(sizes))
    of_a, of_b = left.terms(a), right.terms(b)
    for mine, theirs in _components(of_a, of_b):
        one, two = [of_a[i] for i in mine], [of_b[i] for i in theirs]
        own, other = _Node(a.row, frozenset(mine)), _Node(b.row, frozenset(theirs))
        if len(one) == 1 and not isinstance(one[0].step, InputStep):
            total = total + left.apply(a.row, one[0], (yield left.below(one[0]), other))
        elif len(two) == 1 and not isinstance(two[0].step, InputStep):
            total = total + right.apply(b.row, two[0], (yield own, right.below(two[0])).T).T
        elif len(one) == len(two) == 1:
            total = total + _inputs(left, right, a.row, b.row, one[0], two[0])
        else:
            raise StructureError(
                "the inner product needs two circuits that split their variables in compatible ways; for example, "
                f"the columns {sorted(frozenset().union(*(t.scope for t in one + two)))} are split differently."
            )
    return total


def _components(a: Mapping[int, _Term], b: Mapping[int, _Term]) -> list[tuple[list[int], list[int]]]:
    """Group the factors of two products that share variables, directly or through others."""
    groups: list[tuple[frozenset[int], list[int], list[int]]] = []
    for side, terms in enumerate((a, b)):
        for number, term in terms.items():
            touched = [group for group in groups if group[0] & term.scope]
            groups = [group for group in groups if not group[0] & term.scope]
            merged = (
                term.scope.union(*(group[0] for group in touched)),
                [i for group in touched for i in group[1]] + ([number] if side == 0 else []),
                [i for group in touched for i in group[2]] + ([number] if side == 1 else []),
            )
            groups.append(merged)
    return [(mine, theirs) for _, mine, theirs in groups]


def _inputs(left: _Terms, right: _Terms, a: Row, b: Row, one: _Term, two: _Term) -> Tensor:
    mine, theirs = one.step, two.step
    assert isinstance(mine, InputStep)
    assert isinstance(theirs, InputStep)
    if mine.family != theirs.family or one.scope != two.scope:
        raise StructureError(
            f"the inner product needs inputs of the same families, but the columns {sorted(one.scope | two.scope)} "
            f"have {mine.family!r} and {theirs.family!r}."
        )
    if mine.correlation is not None:
        first, second = (side.compiled.block(step, side.parameters) for side, step in ((left, mine), (right, theirs)))
        found = first.inner(second)
    else:
        params = []
        for side, step, term in ((left, mine, one), (right, theirs, two)):
            every = side.parameters.inputs[step.params]
            params.append(every[[term.number if len(every) > 1 else 0]])
        found = mine.family.inner(*params)[0].log()
    found = left.spread(a, one.axes, left.compiled.shape(mine.kinds), found)
    return right.spread(b, two.axes, right.compiled.shape(theirs.kinds), found.T).T


def _check_compatible(p: QPC, q: QPC) -> None:
    purpose = "the inner product"
    for circuit in (p, q):
        circuit.properties.require("smooth", "structured_decomposable", purpose=purpose)
    if (p.dtype, p.device) != (q.dtype, q.device):
        raise ArgumentError("q", f"the dtype and device of p, {p.dtype} on {p.device}", f"{q.dtype} on {q.device}")
    if p.variables != q.variables:
        raise StructureError(f"{purpose} needs two circuits of the same variables; these are {p!r} and {q!r}.")
