# SPDX-License-Identifier: Apache-2.0
"""Inner products of circuits, and the divergences that follow from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from picirc.engine.contraction import spread
from picirc.engine.schedule import InputStep, MixStep, PassStep, SumStep
from picirc.errors import ArgumentError, StructureError

if TYPE_CHECKING:
    from picirc.qpc.distribution import QPC

Row = tuple[int, int]  # pool and row
Axes = tuple[int, ...] | None


def log_inner_product(p: QPC, q: QPC) -> Tensor:
    """``log ∫ p(x) q(x) dx`` of two structured-decomposable circuits that split their variables in compatible ways.

    Integrals and mixtures are linear, so they can be taken out of the product on either side. What is left are products
    of products, which factorise over disjoint sets of variables, and pairs of inputs of the same family. Numbers of
    states, latents and mixtures may differ.
    """
    _check_compatible(p, q)
    left, right = _Terms(p), _Terms(q)
    found = _solve((left.root, right.root), lambda pair: _product(left, right, *pair))
    return found[0, 0]


def l2_divergence(p: QPC, q: QPC) -> Tensor:
    """``∫ (p(x) − q(x))² dx``."""
    pp, qq, pq = log_inner_product(p, p), log_inner_product(q, q), log_inner_product(p, q)
    top = torch.maximum(pp, qq)
    return top.exp() * ((pp - top).exp() + (qq - top).exp() - 2 * (pq - top).exp()).clamp(min=0.0)


def cauchy_schwarz_divergence(p: QPC, q: QPC) -> Tensor:
    """``−log (∫ p q / √(∫ p² ∫ q²))``: zero for equal distributions, and finite where the L2 divergence underflows."""
    return ((log_inner_product(p, p) + log_inner_product(q, q)) / 2 - log_inner_product(p, q)).clamp(min=0.0)


@dataclass(frozen=True)
class _Term:
    """A factor of a row, and how its axes lie among the row's."""

    scope: frozenset[int]  # the columns it depends on
    axes: Axes  # its axes as positions among the row's; None when they are the same
    step: InputStep | SumStep | PassStep  # the step that makes it
    number: int  # which result of the step, which input, or which row of its pool


@dataclass(frozen=True)
class _Node:
    """Some of the factors of a row; None for the mixture that a row is."""

    row: Row
    terms: frozenset[int] | None


class _Terms:
    """A circuit as products: the factors of every row, collected from the steps that send them there."""

    def __init__(self, qpc: QPC) -> None:
        self.compiled, self.parameters = qpc.compiled, qpc.parameters.detach()
        self._terms: dict[Row, list[_Term]] = {}
        self.mixed: dict[Row, tuple[MixStep, int]] = {}
        for step in self.compiled.schedule.steps:
            match step:
                case InputStep():
                    self._inputs(step)
                case MixStep():
                    for i in range(step.stop - step.start):
                        self.mixed[step.pool, step.start + i] = (step, i)
                case SumStep() | PassStep():
                    self._send(step)
        self.root = self.node(self.compiled.schedule.root)

    def node(self, row: Row) -> _Node:
        """The whole of a row."""
        return _Node(row, None if row in self.mixed else frozenset(range(len(self._terms.get(row, [])))))

    def terms(self, node: _Node) -> list[tuple[int, _Term]]:
        """The numbered factors of a node."""
        return [(i, self._terms[node.row][i]) for i in sorted(node.terms or ())]

    def sources(self, node: _Node) -> list[tuple[_Node, Tensor]]:
        """The parts of a mixture with the logarithms of their weights, ``(states or 1,)``."""
        step, i = self.mixed[node.row]
        weights = self.parameters.mixtures[step.block][step.first + i].log()  # (arity, states or 1)
        return [(self.node((step.pool, int(row))), w) for row, w in zip(step.sources[i], weights, strict=True)]

    def below(self, term: _Term) -> _Node:
        """What a factor is an integral of, or the mixture that it is."""
        assert not isinstance(term.step, InputStep)
        edges = term.step.edges if isinstance(term.step, SumStep) else 1
        return self.node((term.step.pool, term.step.start + term.number // edges))

    def apply(self, row: Row, term: _Term, values: Tensor) -> Tensor:
        """Logarithms over what is below a factor ``(states below, n)`` as those over its row, ``(states, n)``."""
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
        """Values over some axes of a row as values over all of them, ``(states, n)``."""
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

    def _send(self, step: SumStep | PassStep) -> None:
        edges = step.edges if isinstance(step, SumStep) else 1
        for send in step.sends:
            sources = range((step.stop - step.start) * edges) if send.sources is None else send.sources
            for number, row in zip(sources, send.rows, strict=True):
                scope = self._scope((step.pool, step.start + int(number) // edges))
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
    """Run work that asks for the results of other pairs, each once, without recursion: circuits are deep."""
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
    """``log ∫ a(x) b(x) dx`` for all pairs of states of two nodes, ``(states, states)``."""
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
    sizes = (_states(left, a.row), _states(right, b.row))
    total = left.parameters.like.new_zeros(sizes)
    for mine, theirs in _components(left.terms(a), right.terms(b)):
        one, two = [left.terms(a)[i][1] for i in mine], [right.terms(b)[i][1] for i in theirs]
        own = _Node(a.row, frozenset(left.terms(a)[i][0] for i in mine))
        other = _Node(b.row, frozenset(right.terms(b)[i][0] for i in theirs))
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


def _components(a: list[tuple[int, _Term]], b: list[tuple[int, _Term]]) -> list[tuple[list[int], list[int]]]:
    """Factors of two products, as positions, that share variables directly or through others."""
    groups: list[tuple[frozenset[int], list[int], list[int]]] = []
    for side, terms in enumerate((a, b)):
        for place, (_, term) in enumerate(terms):
            touched = [group for group in groups if group[0] & term.scope]
            groups = [group for group in groups if not group[0] & term.scope]
            merged = (
                term.scope.union(*(group[0] for group in touched)),
                [i for group in touched for i in group[1]] + ([place] if side == 0 else []),
                [i for group in touched for i in group[2]] + ([place] if side == 1 else []),
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
        blocks = (side.compiled.block(step, side.parameters) for side, step in ((left, mine), (right, theirs)))
        first, second = blocks
        found = first.inner(second)
    else:
        params = [
            side.parameters.inputs[step.params][term.number if len(side.parameters.inputs[step.params]) > 1 else 0]
            for side, step, term in ((left, mine, one), (right, theirs, two))
        ]
        found = mine.family.inner(params[0].unsqueeze(0), params[1].unsqueeze(0))[0].log()
    found = left.spread(a, one.axes, left.compiled.shape(mine.kinds), found)
    return right.spread(b, two.axes, right.compiled.shape(theirs.kinds), found.T).T


def _states(side: _Terms, row: Row) -> int:
    return math.prod(side.compiled.shapes[row[0]])


def _check_compatible(p: QPC, q: QPC) -> None:
    purpose = "the inner product"
    for circuit in (p, q):
        circuit.properties.require("smooth", "structured_decomposable", purpose=purpose)
    if (p.dtype, p.device) != (q.dtype, q.device):
        raise ArgumentError("q", f"the dtype and device of p, {p.dtype} on {p.device}", f"{q.dtype} on {q.device}")
    if p.variables != q.variables:
        raise StructureError(f"{purpose} needs two circuits of the same variables; these are {p!r} and {q!r}.")
