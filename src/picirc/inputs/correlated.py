# SPDX-License-Identifier: Apache-2.0
"""Gaussian columns that are correlated given the state of their latent.

In state k the columns of a block have the density ``N(x; μ_k, S_k C S_k)``. Means and standard deviations belong to the
state. The correlation matrix C belongs to all states, or to one of several equal parts of them. The scores
``r = (x − μ_k) / s_k`` have the correlation C, so that conditioning on the observed columns needs one matrix for each
*pattern* of missing columns, not for each state.

Values are ``(m, batch)``, NaN where they are missing. Results for all states are ``(states, batch)``. Inside, scores
are ``(parts, m, states of a part, batch)`` and matrices ``(parts, patterns, m, m)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from picirc.autograd import full_precision
from picirc.errors import StructureError
from picirc.inputs.continuous import HALF_LOG_TWO_PI, Gaussian
from picirc.memory import has_values

_RIDGE = 1e-4  # the share of the identity in a correlation matrix, so that it can be factorised in single precision
_LARGEST_PIECE = 2**20  # elements of temporaries, so that they stay in the cache; larger batches are split
_GAPS = 4  # data points are grouped by their number of missing columns: up to 4, up to 8, and so on


def correlation(raw: Tensor, columns: int) -> Tensor:
    """Correlation matrices ``(..., m, m)`` from any numbers ``(..., m (m − 1) / 2)``, differentiably.

    The numbers are the entries of L below its diagonal of ones. With the rows of L normalised, the matrix is L Lᵀ.
    Zeros give the identity.
    """
    rows, places = torch.tril_indices(columns, columns, -1, device=raw.device)
    unit = torch.eye(columns, dtype=raw.dtype, device=raw.device)
    lower = unit.repeat(*raw.shape[:-1], 1, 1)
    lower[..., rows, places] = raw
    lower = torch.nn.functional.normalize(lower, dim=-1)
    with full_precision(raw.device):  # in lower precision it would not be positive definite
        return torch.lerp(lower @ lower.mT, unit, _RIDGE)


def raw_correlation(matrix: Tensor) -> Tensor:
    """The inverse of ``correlation``, for matrices whose smallest eigenvalue is above 10⁻⁴."""
    size = matrix.shape[-1]
    unit = torch.eye(size, dtype=matrix.dtype, device=matrix.device)
    factor = torch.linalg.cholesky((matrix - _RIDGE * unit) / (1 - _RIDGE))
    rows, places = torch.tril_indices(size, size, -1, device=matrix.device)
    found: Tensor = (factor / factor.diagonal(dim1=-2, dim2=-1).unsqueeze(-1))[..., rows, places]
    return found


@dataclass(frozen=True, eq=False)
class Block:
    """Correlated columns."""

    family: Gaussian  # the family of each column by itself
    params: Tensor  # means and standard deviations `(m, states, 2)`
    # The correlation matrix `(m, m)`; or several `(parts, m, m)`, each for an equal part of the states.
    matrix: Tensor

    def log_prob(self, x: Tensor) -> Tensor:
        """The log-density of the observed columns, ``(states, batch)``."""
        once = _without_repetition(x)
        found = self._in_pieces(self._log_density, 1, once)
        return found if once is x else found.repeat(1, 2)

    def gradients(self, x: Tensor, flow: Tensor) -> tuple[Tensor, Tensor]:
        """``Σ flow · d log p`` with respect to parameters and matrix; flows are ``(states, batch)``.

        The derivatives for an observed part are the expected derivatives for a complete row, so they follow from
        moments of completed scores. Those of white scores lose no digits where correlations are strong.
        """
        once = _without_repetition(x)
        if once is not x:
            x, flow = once, flow.unflatten(1, (2, -1)).sum(1)
        std = self._own_params()[..., 1].transpose(1, 2)  # (parts, states, m)
        parts, states, size = std.shape
        moments = torch.zeros(parts, states, size + 1, size + 1, dtype=torch.float64, device=x.device)
        spread, seen = moments.new_zeros(parts, size, size), moments.new_zeros(parts, states, size)
        for own in self._pieces(x):
            some, flows = x[:, own], flow[:, own].unflatten(0, (parts, -1))  # (parts, states, batch)
            patterns, scores = self._patterns(some), self._scores(some)
            seen += flows @ (~some.isnan()).to(flows.dtype).T
            if patterns.gaps:
                scores = scores + patterns.regress(scores)
                spread += patterns.covariance_of_all(patterns.counts(flows.sum(1)))
            moments += _moments(patterns.whiten(scores), flows)
        root, factor = self._factored.root, self._factored.factor
        to_mean = moments[..., 0, 1:] @ root
        to_std = ((factor.unsqueeze(1) @ moments[..., 1:, 1:]) * root.mT.unsqueeze(1)).sum(3) - seen
        total, precision = moments.sum(1), self._factored.precision
        unit = torch.eye(size, dtype=root.dtype, device=root.device)
        to_matrix = root.mT @ (total[:, 1:, 1:] - total[:, :1, :1] * unit) @ root + precision @ spread @ precision
        to_params = (torch.stack((to_mean, to_std), -1) / std.unsqueeze(3)).flatten(0, 1).transpose(0, 1)
        return to_params.to(x.dtype), (to_matrix / 2).view_as(self.matrix).to(x.dtype)

    def value_gradient(self, x: Tensor, flow: Tensor) -> Tensor:
        """``Σ flow · d log p / dx`` over the states, ``(m, batch)``; zero where a value is missing."""
        std = self._own_params()[..., 1].unsqueeze(3)  # (parts, m, states, 1)

        def found(patterns: _Patterns, scores: Tensor, flows: Tensor) -> Tensor:
            pulls = patterns.explain(scores + patterns.regress(scores)) / std
            own: Tensor = flows.unflatten(0, (len(std), -1)).unsqueeze(1)
            return -(pulls * own).sum((0, 2))

        return self._in_pieces(found, 1, x, flow).masked_fill(x.isnan(), 0.0)

    def at_mode(self, x: Tensor) -> Tensor:
        """The log-density with each missing value replaced by its mode, ``(states, batch)``."""

        def found(patterns: _Patterns, scores: Tensor) -> Tensor:
            complete = self._patterns(scores.new_zeros(scores.shape[1], scores.shape[3]))
            return self._log_density(complete, scores + patterns.regress(scores))

        return self._in_pieces(found, 1, x)

    def given(self, x: Tensor) -> Tensor:
        """Parameters of each missing column given the observed ones, ``(m, states, batch, 2)``.

        Observed columns have their parameters without evidence.
        """

        def found(patterns: _Patterns, scores: Tensor) -> Tensor:
            return self._located(patterns.regress(scores), patterns.variance().sqrt()[:, patterns.which])

        return self._in_pieces(found, 2, x)

    def given_others(self, x: Tensor) -> Tensor:
        """Parameters of every column given all other observed ones, ``(m, states, batch, 2)``."""

        def found(patterns: _Patterns, scores: Tensor) -> Tensor:
            expected = patterns.regress(scores)
            variance = torch.where(patterns.seen, 1 / patterns.precision_given_others(), patterns.variance())
            variance = variance[:, patterns.which]  # (parts, batch, m)
            # The inverse of the observed part times the observed scores is P times the completed ones.
            alone = scores - patterns.explain(scores + expected) * variance.mT.unsqueeze(2)
            seen = patterns.seen[patterns.which].T.unsqueeze(1)  # (m, 1, batch)
            return self._located(torch.where(seen, alone, expected), variance.sqrt())

        return self._in_pieces(found, 2, x)

    def covariance(self, x: Tensor, weights: Tensor) -> Tensor:
        """The covariance ``(batch, m, m)`` of the missing columns, averaged over the states; zero for observed ones.

        ``weights`` ``(states, batch)`` are the probabilities of the states.
        """
        std = self._own_params()[..., 1]  # (parts, m, states)

        def found(patterns: _Patterns, _: Tensor, shares: Tensor) -> Tensor:
            shares = shares.unflatten(0, (len(std), -1))
            scale = torch.einsum("gkb,gik,gjk->gbij", shares, std, std)
            return (scale * patterns.covariances()[:, patterns.which]).sum(0)

        return self._in_pieces(found, 0, x, weights)

    def log_interval(self, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """``log p(observed, low ≤ X_i ≤ high)``, ``(states, batch)``, with at most one such i in each data point."""
        bounded = x.isnan() & ~(torch.isneginf(low) & torch.isposinf(high))  # (m, batch)
        if bool((bounded.sum(0) > 1).any()):
            raise StructureError(
                "intervals for several correlated columns at once have no closed form; restrict only one column of a "
                "block in each row, or use a model without correlations."
            )
        total = self.log_prob(x)
        column, row = bounded.nonzero(as_tuple=True)
        if len(row):
            params = self.given(x)[column, :, row]  # (rows, states, 2)
            ends = (bound[column, row].unsqueeze(1) for bound in (low, high))
            total = total.index_add(1, row, self.family.log_interval(params, *ends).squeeze(2).T)
        outside = ((x < low) | (x > high)).any(0)  # false where a value is missing
        return total.masked_fill(outside, -torch.inf)

    def complete(self, x: Tensor, state: Tensor, noise: Tensor | None) -> Tensor:
        """The data with missing values filled in, given the states ``(batch,)``.

        They are means without noise, and draws with standard normal ``noise`` ``(m, batch)``.
        """
        part = state // (self.params.shape[1] // len(self.matrices))
        found = torch.empty_like(x)
        for number in part.unique().tolist():
            own = (part == number).nonzero().flatten()
            mean, std = self.params[:, state[own]].unbind(-1)  # (m, batch)
            some = x[:, own]
            patterns = _Patterns.of(some, _Factored(self.matrices[number : number + 1]))
            scores = patterns.regress(((some - mean) / std).nan_to_num(0.0)[None, :, None])  # (1, m, 1, batch)
            if noise is not None:
                scores = scores + patterns.shocks(noise[:, own][None, :, None])
            found[:, own] = torch.where(some.isnan(), mean + std * scores[0, :, 0], some)
        return found

    def inner(self, other: Block) -> Tensor:
        """``log ∫ p_k(x) q_l(x) dx`` of all pairs of states, ``(states, states)``."""
        factor = torch.linalg.cholesky(self._covariances().unsqueeze(1) + other._covariances())
        difference = (self.params[..., 0].T.unsqueeze(1) - other.params[..., 0].T).unsqueeze(-1)
        scores = torch.linalg.solve_triangular(factor, difference, upper=False).squeeze(-1)
        logs = factor.diagonal(dim1=-2, dim2=-1).log() + HALF_LOG_TWO_PI
        found: Tensor = -(0.5 * scores.square() + logs).sum(-1)
        return found

    def statistics(self, x: Tensor, flow: Tensor) -> Tensor:
        """The statistics of EM: moments ``Σ flow · E[(1, r) (1, r)ᵀ]`` of the scores, ``(states, m + 1, m + 1)``.

        Every state must have a matrix of its own. The expectation is over the missing scores given the observed ones.
        ``flow`` ``(states, batch)`` are the posterior probabilities of the states.
        """
        states, size = self.params.shape[1], len(x) + 1
        total = self.params.new_zeros(states, size, size)
        for own in self._pieces(x):
            some, flows = x[:, own], flow[:, own]
            patterns = self._patterns(some)
            scores = self._scores(some)
            if patterns.gaps:
                scores = scores + patterns.regress(scores)
                total[:, 1:, 1:] += patterns.covariance_of_all(patterns.counts(flows))
            total += _moments(scores, flows.unsqueeze(1)).squeeze(1)
        return total

    def from_statistics(self, statistics: Tensor, smoothing: float, rate: float | Tensor) -> Block:
        """Return the block after a step of EM.

        Args:
            statistics: The result of ``statistics`` of this block.
            smoothing: The number of pseudo-observations per column in each state. They have the pooled covariance of
                all states, which is itself smoothed by as many pseudo-observations with independent columns.
            rate: The size of the step, 1 for a full one; or one for each state, ``(1, states)``.
        """
        mean, std = (values.T for values in self.params.unbind(-1))  # (states, m)
        weight = statistics[:, 0, :1]
        shift = statistics[:, 0, 1:] / weight.clamp(min=torch.finfo(weight.dtype).tiny)
        scatter = statistics[:, 1:, 1:] - weight.unsqueeze(2) * _square(shift)
        scatter = scatter * std.unsqueeze(2) * std.unsqueeze(1)
        lasting = smoothing * mean.shape[1] + torch.finfo(weight.dtype).eps
        pooled = scatter.sum(0) / weight.sum()
        pooled = torch.lerp(pooled, pooled.diag().diag(), lasting / (weight.sum() + lasting))
        covariance = (scatter + lasting * pooled) / (weight + lasting).unsqueeze(2)
        step = torch.as_tensor(rate, dtype=mean.dtype, device=mean.device).reshape(-1, 1)
        move = shift * std
        # Moments are averaged, not parameters, so the distance between the old and the new mean counts.
        between = (step * (1 - step)).unsqueeze(2) * _square(move)
        covariance = torch.lerp(self._covariances(), covariance, step.unsqueeze(2)) + between
        std = covariance.diagonal(dim1=1, dim2=2).clamp(min=self.family.min_std**2).sqrt()
        matrix = covariance / (std.unsqueeze(2) * std.unsqueeze(1))
        # The variance that `min_std` adds to a column is independent noise. Twice the ridge keeps matrices invertible.
        unit = torch.eye(std.shape[1], dtype=std.dtype, device=std.device)
        matrix = torch.where(unit > 0, 1.0, (1 - 2 * _RIDGE) * matrix)
        return Block(self.family, torch.stack(((mean + step * move).T, std.T), -1), matrix)

    @property
    def matrices(self) -> Tensor:
        """The correlation matrices of all parts, ``(parts, m, m)``."""
        return self.matrix.view(-1, *self.matrix.shape[-2:])

    @cached_property
    def _factored(self) -> _Factored:
        return _Factored(self.matrices)

    def _patterns(self, x: Tensor) -> _Patterns:
        return _Patterns.of(x, self._factored)

    def _own_params(self) -> Tensor:
        """The parameters by part, ``(parts, m, states of a part, 2)``."""
        found: Tensor = self.params.unflatten(1, (len(self.matrices), -1)).movedim(1, 0)
        return found

    def _covariances(self) -> Tensor:
        """The covariance matrix of every state, ``(states, m, m)``."""
        std = self._own_params()[..., 1].mT  # (parts, states, m)
        found: Tensor = (std.unsqueeze(3) * self.matrices.unsqueeze(1) * std.unsqueeze(2)).flatten(0, 1)
        return found

    def _scores(self, x: Tensor) -> Tensor:
        """Standardised values ``(parts, m, states, batch)``, zero where they are missing."""
        mean, std = self._own_params().unsqueeze(3).unbind(-1)  # (parts, m, states, 1)
        values, missing = x.unsqueeze(1), x.isnan()  # (m, 1, batch)
        if has_values(x) and not bool(missing.any()):
            return (values - mean) / std
        # A quotient with NaN would have a NaN derivative.
        return ((values.nan_to_num(0.0) - mean) / std).masked_fill(missing.unsqueeze(1), 0.0)

    def _log_density(self, patterns: _Patterns, scores: Tensor) -> Tensor:
        white = patterns.whiten(scores + patterns.regress(scores) if patterns.gaps else scores)
        logs = self._own_params()[..., 1].log() + HALF_LOG_TWO_PI  # (parts, m, states)
        constant = patterns.seen.to(logs.dtype) @ logs + patterns.half_log_det().unsqueeze(2)  # (parts, patterns, …)
        return -(0.5 * white.square().sum(1) + constant[:, patterns.which].mT).flatten(0, 1)

    def _located(self, scores: Tensor, spread: Tensor) -> Tensor:
        """From scores ``(parts, m, states, batch)`` and standard deviations ``(parts, batch, m)`` to parameters."""
        mean, std = self._own_params().unsqueeze(3).unbind(-1)  # (parts, m, states, 1)
        located = mean + std * scores
        spreads = (std * spread.mT.unsqueeze(2)).expand_as(located)
        return torch.stack((located, spreads), -1).movedim(1, 0).flatten(1, 2)

    def _in_pieces(self, query: Callable[..., Tensor], axis: int, x: Tensor, *others: Tensor) -> Tensor:
        """The results of ``query(patterns, scores, *others)`` for pieces of the batch, joined along ``axis``."""
        pieces = self._pieces(x)
        found = []
        for own in pieces:
            some = x[:, own]
            found.append(query(self._patterns(some), self._scores(some), *(other[:, own] for other in others)))
        if len(found) == 1:
            return found[0]
        return torch.cat(found, axis).index_select(axis, torch.cat(pieces).argsort())

    def _pieces(self, x: Tensor) -> list[Tensor]:
        """The indices of data points to process at once: not too many, with similar numbers of missing columns.

        The matrices of a piece have the size of its longest pattern. That matters if there are many matrices.
        """
        columns, batch = x.shape
        gaps = _GAPS if len(self.matrices) > 1 else columns
        found: list[Tensor] = []
        kinds = (x.isnan().sum(0) + gaps - 1) // gaps
        if not has_values(x):
            return [torch.arange(batch, device=x.device)]
        for kind in kinds.unique().tolist() or [0]:
            own = (kinds == kind).nonzero().flatten()
            longest = min(columns, kind * gaps)
            each = max(columns * self.params.shape[1], longest**2 * len(self.matrices))
            found += own.split(max(1, min(batch, _LARGEST_PIECE // each)))
        return found


def _without_repetition(x: Tensor) -> Tensor:
    """The first half of the data points if the second is the same, as in training for a column of another input."""
    first, second = x.tensor_split(2, 1)
    if not has_values(x) or x.shape[1] < 2 or x.shape[1] % 2 or not bool(_same(first[:, 0], second[:, 0]).all()):
        return x
    return first if bool(_same(first, second).all()) else x


def _same(x: Tensor, y: Tensor) -> Tensor:
    return (x == y) | (x.isnan() & y.isnan())


def _moments(scores: Tensor, flow: Tensor) -> Tensor:
    """``Σ flow · (1, r) (1, r)ᵀ`` of scores ``(parts, m, states, batch)``: ``(parts, states, m + 1, m + 1)``."""
    weighted = scores.transpose(1, 2) * flow.unsqueeze(2)
    first = weighted.sum(3, keepdim=True)  # (parts, states, m, 1)
    second = weighted @ scores.permute(0, 2, 3, 1)
    total = flow.sum(2)[..., None, None]
    return torch.cat((torch.cat((total, first.mT), 3), torch.cat((first, second), 3)), 2)


def _square(vectors: Tensor) -> Tensor:
    """``v vᵀ`` for each of some vectors, ``(states, m)`` to ``(states, m, m)``."""
    return vectors.unsqueeze(2) * vectors.unsqueeze(1)


@dataclass(frozen=True, eq=False)
class _Factored:
    """Correlation matrices ``(parts, m, m)`` and their inverses, computed once, when first needed.

    The inverses are in double precision, because strong correlations cost digits.
    """

    matrices: Tensor

    @cached_property
    def factor(self) -> Tensor:
        """The Cholesky factors."""
        found: Tensor = torch.linalg.cholesky(self.matrices.double())
        return found

    @cached_property
    def root(self) -> Tensor:
        """The inverses of the Cholesky factors."""
        unit = torch.eye(self.matrices.shape[-1], dtype=torch.float64, device=self.matrices.device)
        found: Tensor = torch.linalg.solve_triangular(self.factor, unit, upper=False)
        return found

    @cached_property
    def precision(self) -> Tensor:
        """The inverses of the matrices."""
        return self.root.mT @ self.root


@dataclass(frozen=True, eq=False)
class _Patterns:
    """The distinct sets of missing columns in a batch, and the conditional distributions for each.

    With P the inverse of the correlation matrix, missing scores given observed ones have the covariance ``V = P_mm⁻¹``
    and the mean ``−V P_mo r_o``. So for each pattern only a matrix of the size of the missing part is inverted. The
    matrices of shorter patterns are padded.
    """

    factored: _Factored
    seen: Tensor  # `(patterns, m)`, true where a column is observed
    which: Tensor  # the pattern of each data point `(batch,)`
    places: Tensor  # the missing columns `(patterns, k)`, zero for padding
    filled: Tensor  # `(patterns, k)`, false for padding
    small: Tensor  # the Cholesky factors of P_mm, with ones for padding, `(parts, patterns, k, k)`
    spread: Tensor  # the covariances V, likewise

    @staticmethod
    def of(x: Tensor, factored: _Factored) -> _Patterns:
        missing = x.isnan().T
        gone, which, longest = missing[:1], missing.new_zeros(len(missing), dtype=torch.long), 0
        if has_values(x) and bool(missing.any()):
            gone, which = torch.unique(missing, dim=0, return_inverse=True)
            longest = int(gone.sum(1).max())
        # A stable sort brings the missing columns to the front, in their order.
        places = gone.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :longest]
        filled = gone.gather(1, places)
        places = places.masked_fill(~filled, 0)
        small = spread = factored.matrices.new_empty(len(factored.matrices), len(gone), 0, 0)
        if longest:
            both = filled.unsqueeze(2) & filled.unsqueeze(1)
            part = factored.precision[:, places.unsqueeze(2), places.unsqueeze(1)]
            small = torch.linalg.cholesky(torch.where(both, part, torch.diag_embed((~filled).double())))
            small, spread = (tensor.to(factored.matrices.dtype) for tensor in (small, torch.cholesky_inverse(small)))
        return _Patterns(factored, ~gone, which, places, filled, small, spread)

    @property
    def inverse(self) -> Tensor:
        return self.factored.root.to(self.factored.matrices.dtype)

    @property
    def precision(self) -> Tensor:
        return self.factored.precision.to(self.factored.matrices.dtype)

    @property
    def gaps(self) -> bool:
        """Whether anything is missing."""
        return self.places.shape[1] > 0

    def whiten(self, scores: Tensor) -> Tensor:
        """Complete scores ``(parts, m, states, batch)``, transformed to independent ones."""
        return (self.inverse @ scores.flatten(2)).view_as(scores)

    def half_log_det(self) -> Tensor:
        """Half the log-determinants of the observed parts of the matrices, ``(parts, patterns)``."""
        logs = self.small.diagonal(dim1=2, dim2=3).log().sum(2)
        logs = logs - self.inverse.diagonal(dim1=1, dim2=2).log().sum(1, keepdim=True)
        return torch.where(self.seen.any(1), logs, 0.0)  # exactly zero where nothing is observed

    def explain(self, scores: Tensor) -> Tensor:
        """``P r``, like the scores r."""
        return (self.precision @ scores.flatten(2)).view_as(scores)

    def regress(self, scores: Tensor) -> Tensor:
        """Expected scores of the missing columns given the observed ones, in the shape of the scores; else zero."""
        if not self.gaps:
            return torch.zeros_like(scores)
        part = self._of_missing(self.explain(scores))
        return self._to_columns(-torch.einsum("gbij,gjsb->gisb", self.spread[:, self.which], part), scores)

    def shocks(self, noise: Tensor) -> Tensor:
        """Deviations of the missing scores from their means, from standard normal noise of the same shape."""
        part = self._of_missing(noise).permute(0, 3, 1, 2)  # (parts, batch, k, states)
        factor = self.small[:, self.which].mT
        return self._to_columns(torch.linalg.solve_triangular(factor, part, upper=True).permute(0, 2, 3, 1), noise)

    def variance(self) -> Tensor:
        """The variances ``(parts, patterns, m)`` of the missing scores given the observed ones; one for the latter."""
        own = self.spread.diagonal(dim1=2, dim2=3) * self.filled
        found = own.new_zeros(len(own), *self.seen.shape)
        found = found.scatter_add(2, self.places.expand_as(own), own)
        return torch.where(self.seen, 1.0, found)

    def precision_given_others(self) -> Tensor:
        """The diagonals of the inverses of the observed parts of the matrices: ``(parts, patterns, m)``."""
        rows = torch.where(self.filled.unsqueeze(2), self.precision[:, self.places], 0.0)  # (parts, patterns, k, m)
        lost = (rows * (self.spread @ rows)).sum(2)
        return self.precision.diagonal(dim1=1, dim2=2).unsqueeze(1) - lost

    def covariances(self) -> Tensor:
        """The covariances of all scores given the observed ones, ``(parts, patterns, m, m)``."""
        own, size = self._own_covariances(), self.seen.shape[1]
        found = own.new_zeros(*own.shape[:2], size * size)
        found = found.scatter_add(2, self._cells().expand(*own.shape[:2], -1), own.flatten(2))
        return found.view(*own.shape[:2], size, size)

    def counts(self, flow: Tensor) -> Tensor:
        """The sum of flows ``(parts, batch)`` over the data points of each pattern, ``(parts, patterns)``."""
        return flow.new_zeros(len(flow), len(self.seen)).index_add(1, self.which, flow)

    def covariance_of_all(self, counts: Tensor) -> Tensor:
        """The sum of the covariances, each ``counts`` ``(parts, patterns)`` times: ``(parts, m, m)``."""
        own, size = self._own_covariances() * counts[..., None, None], self.seen.shape[1]
        found = own.new_zeros(len(own), size * size)
        return found.index_add(1, self._cells().flatten(), own.flatten(1)).view(-1, size, size)

    def _own_covariances(self) -> Tensor:
        return torch.where(self.filled.unsqueeze(2) & self.filled.unsqueeze(1), self.spread, 0.0)

    def _cells(self) -> Tensor:
        """The indices of the elements of a small matrix in the flattened large one, ``(patterns, k · k)``."""
        return (self.places.unsqueeze(2) * self.seen.shape[1] + self.places.unsqueeze(1)).flatten(1)

    def _of_missing(self, scores: Tensor) -> Tensor:
        """The scores ``(parts, k, states, batch)`` of missing columns, zero for padding."""
        places, filled = (tensor[self.which].T.unsqueeze(1) for tensor in (self.places, self.filled))
        index = places.expand(len(scores), -1, scores.shape[2], -1)
        return torch.where(filled, scores.gather(1, index), 0.0)

    def _to_columns(self, part: Tensor, like: Tensor) -> Tensor:
        """The inverse of ``_of_missing``, with zeros for observed columns."""
        index = self.places[self.which].T.unsqueeze(1).expand_as(part)
        filled = self.filled[self.which].T.unsqueeze(1)
        return torch.zeros_like(like).scatter_add(1, index, torch.where(filled, part, 0.0))
