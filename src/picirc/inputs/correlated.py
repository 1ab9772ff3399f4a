# SPDX-License-Identifier: Apache-2.0
"""Gaussian columns that are correlated given the state of their latent.

In state k the columns of a block have the density ``N(x; μ_k, S_k C S_k)``: means and standard deviations of the state,
and a correlation matrix C: one for all states, or one for each of several parts of them. Scores ``r = (x − μ_k) / s_k``
then have the correlation C, so that what an observed part says about the rest is a matrix for each *pattern* of missing
columns.

Values are ``(m, batch)`` with NaN where they are missing; results for all states are ``(states, batch)``. Inside,
scores are ``(parts, m, states of a part, batch)`` and matrices ``(parts, patterns, m, m)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from picirc.autograd import full_precision
from picirc.errors import StructureError
from picirc.inputs.location import HALF_LOG_TWO_PI, Gaussian

# A correlation matrix is mixed with this much of the identity, so that it can be factorised in single precision.
_RIDGE = 1e-4
_LARGEST_PIECE = 2**22  # elements of temporaries; larger batches are processed in pieces


def correlation(raw: Tensor, columns: int) -> Tensor:
    """Correlation matrices ``(..., m, m)`` from any numbers ``(..., m (m − 1) / 2)``, differentiably.

    The numbers are the part below the diagonal of a matrix with ones on it, whose rows are then brought to length one.
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
    """Numbers that ``correlation`` makes a matrix of; its smallest eigenvalue must be above 10⁻⁴."""
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
        """The log-density of what is observed, ``(states, batch)``."""

        def found(x: Tensor) -> Tensor:
            return self._log_density(_Patterns.of(x, self.matrices), self._scores(x))

        return self._in_pieces(found, x, 1)

    def gradients(self, x: Tensor, flow: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``Σ flow · d log p`` with respect to parameters, matrix and values; flows are ``(states, batch)``."""
        with torch.enable_grad():
            params, matrix, values = (tensor.detach().requires_grad_() for tensor in (self.params, self.matrix, x))
            found = Block(self.family, params, matrix).log_prob(values)
        to_params, to_matrix, to_values = torch.autograd.grad(found, (params, matrix, values), flow)
        return to_params, to_matrix, to_values.masked_fill(x.isnan(), 0.0)

    def at_mode(self, x: Tensor) -> Tensor:
        """The log-density with the most probable value in place of each that is missing, ``(states, batch)``."""

        def found(x: Tensor) -> Tensor:
            scores = self._scores(x)
            scores = scores + _Patterns.of(x, self.matrices).regress(scores)
            return self._log_density(_Patterns.of(torch.zeros_like(x), self.matrices), scores)

        return self._in_pieces(found, x, 1)

    def given(self, x: Tensor) -> Tensor:
        """Parameters of each missing column given the observed ones, ``(m, states, batch, 2)``.

        Those of an observed column are what it has without evidence.
        """

        def found(x: Tensor) -> Tensor:
            patterns = _Patterns.of(x, self.matrices)
            spread = torch.where(patterns.seen, 1.0, patterns.covariance().diagonal(dim1=2, dim2=3))
            return self._located(patterns.regress(self._scores(x)), spread.sqrt()[:, patterns.which])

        return self._in_pieces(found, x, 2)

    def given_others(self, x: Tensor) -> Tensor:
        """Parameters of every column given all other observed ones, ``(m, states, batch, 2)``."""

        def found(x: Tensor) -> Tensor:
            patterns = _Patterns.of(x, self.matrices)
            scores = self._scores(x)
            precision = patterns.precision()
            weight = torch.where(patterns.seen, precision.diagonal(dim1=2, dim2=3), 1.0)
            alone = scores - patterns.apply(precision / weight.unsqueeze(3), scores)
            spread = torch.where(patterns.seen, 1 / weight, patterns.covariance().diagonal(dim1=2, dim2=3))
            mean = torch.where(x.isnan().unsqueeze(1), patterns.regress(scores), alone)
            return self._located(mean, spread.sqrt()[:, patterns.which])

        return self._in_pieces(found, x, 2)

    def covariance(self, x: Tensor, weights: Tensor) -> Tensor:
        """The mean over the states of the covariance of the missing columns, zero for observed ones: ``(batch, m, m)``.

        Args:
            x: ``(m, batch)``.
            weights: The probabilities of the states, ``(states, batch)``.
        """
        std = self._own_params()[..., 1]  # (parts, m, states)
        shares = weights.unflatten(0, (len(std), -1))
        found = []
        for some, share in zip(x.split(self._piece(x), 1), shares.split(self._piece(x), 2), strict=True):
            patterns = _Patterns.of(some, self.matrices)
            scale = torch.einsum("gkb,gik,gjk->gbij", share, std, std)
            found.append((scale * patterns.covariance()[:, patterns.which]).sum(0))
        return torch.cat(found)

    def log_interval(self, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """``log p(observed, low ≤ X_i ≤ high)`` with at most one such i in a row, ``(states, batch)``."""
        bounded = x.isnan() & ~(torch.isneginf(low) & torch.isposinf(high))  # (m, batch)
        if bool((bounded.sum(0) > 1).any()):
            raise StructureError(
                "intervals for several correlated columns at once have no closed form; restrict one column of a block "
                "in a row, or use a model without correlations."
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
        """Values for what is missing in known states: means without noise, draws with it.

        Args:
            x: ``(m, batch)``.
            state: ``(batch,)``.
            noise: Standard normal numbers ``(m, batch)``.
        """
        part = state // (self.params.shape[1] // len(self.matrices))
        found = torch.empty_like(x)
        for number in part.unique().tolist():
            own = (part == number).nonzero().flatten()
            shocks = None if noise is None else noise[:, own]
            found[:, own] = self._completed(self.matrices[number : number + 1], x[:, own], state[own], shocks)
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
        """What EM needs of the data: the moments ``Σ flow · E[(1, r) (1, r)ᵀ]`` of the scores, ``(states, m+1, m+1)``.

        Every state must have a matrix of its own. Missing scores have their conditional distribution.

        Args:
            x: ``(m, batch)``.
            flow: The posterior probabilities of the states, ``(states, batch)``.
        """
        states, size = self.params.shape[1], len(x) + 1
        total = self.params.new_zeros(states, size, size)
        for some, own in zip(x.split(self._piece(x), 1), flow.split(self._piece(x), 1), strict=True):
            patterns = _Patterns.of(some, self.matrices)
            scores = self._scores(some)
            if not bool(patterns.seen.all()):
                scores = scores + patterns.regress(scores)
                counts = own.new_zeros(states, len(patterns.seen)).index_add(1, patterns.which, own)
                total[:, 1:, 1:] += torch.einsum("kp,kpij->kij", counts, patterns.covariance())
            moments = torch.nn.functional.pad(scores.squeeze(2), (0, 0, 1, 0), value=1.0)  # (states, m + 1, batch)
            total += (moments * own.unsqueeze(1)) @ moments.mT
        return total

    def from_statistics(self, statistics: Tensor, smoothing: float, rate: float | Tensor) -> Block:
        """A step of EM towards the parameters that fit the statistics best.

        Args:
            statistics: What ``statistics`` returned, with the parameters of this block.
            smoothing: The number of pseudo-observations in each state, which have the covariance of all states pooled.
                That one has as many pseudo-observations whose columns are independent.
            rate: The size of the step, 1 for a full one; or one for each state, ``(1, states)``.
        """
        mean, std = (values.T for values in self.params.unbind(-1))  # (states, m)
        weight = statistics[:, 0, :1]
        shift = statistics[:, 0, 1:] / weight.clamp(min=torch.finfo(weight.dtype).tiny)
        scatter = statistics[:, 1:, 1:] - weight.unsqueeze(2) * _square(shift)
        scatter = scatter * std.unsqueeze(2) * std.unsqueeze(1)
        lasting = smoothing + torch.finfo(weight.dtype).eps
        pooled = scatter.sum(0) / weight.sum()
        pooled = torch.lerp(pooled, pooled.diag().diag(), lasting / (weight.sum() + lasting))
        covariance = (scatter + lasting * pooled) / (weight + lasting).unsqueeze(2)
        step = torch.as_tensor(rate, dtype=mean.dtype, device=mean.device).reshape(-1, 1)
        move = shift * std
        # Moments are averaged, not parameters: hence the distance between the old mean and the new one.
        between = (step * (1 - step)).unsqueeze(2) * _square(move)
        covariance = torch.lerp(self._covariances(), covariance, step.unsqueeze(2)) + between
        return Block(self.family, *_normal_form(self.family, mean + step * move, covariance))

    @property
    def matrices(self) -> Tensor:
        """The correlation matrices of all parts, ``(parts, m, m)``."""
        return self.matrix.view(-1, *self.matrix.shape[-2:])

    def _completed(self, matrices: Tensor, x: Tensor, state: Tensor, noise: Tensor | None) -> Tensor:
        mean, std = self.params[:, state].unbind(-1)  # (m, batch)
        patterns = _Patterns.of(x, matrices)
        found = patterns.regress(((x - mean) / std).nan_to_num(0.0)[None, :, None])  # (1, m, 1, batch)
        if noise is not None:
            unit = torch.diag_embed(patterns.seen.to(x.dtype))
            factor = torch.linalg.cholesky(patterns.covariance() + unit)
            found = found + patterns.apply(factor, noise[None, :, None])
        return torch.where(x.isnan(), mean + std * found[0, :, 0], x)

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
        mean, std = self._own_params().unsqueeze(3).unbind(-1)
        values = x.unsqueeze(1)  # (m, 1, batch)
        # Not the quotient with NaN in it: its derivative would be NaN too.
        return torch.where(values.isnan(), 0.0, values.nan_to_num(0.0) - mean) / std

    def _log_density(self, patterns: _Patterns, scores: Tensor) -> Tensor:
        white = patterns.whiten(scores)
        logs = self._own_params()[..., 1].log() + HALF_LOG_TWO_PI  # (parts, m, states)
        constant = patterns.seen.to(logs.dtype) @ logs + patterns.half_log_det().unsqueeze(2)  # (parts, patterns, …)
        return -(0.5 * white.square().sum(1) + constant[:, patterns.which].mT).flatten(0, 1)

    def _located(self, scores: Tensor, spread: Tensor) -> Tensor:
        """From scores ``(parts, m, states, batch)`` and standard deviations ``(parts, batch, m)`` to parameters."""
        mean, std = self._own_params().unsqueeze(3).unbind(-1)  # (parts, m, states, 1)
        located = mean + std * scores
        spreads = (std * spread.mT.unsqueeze(2)).expand_as(located)
        return torch.stack((located, spreads), -1).movedim(1, 0).flatten(1, 2)

    def _in_pieces(self, query: Callable[[Tensor], Tensor], x: Tensor, axis: int) -> Tensor:
        parts = x.split(self._piece(x), 1)
        return query(x) if len(parts) == 1 else torch.cat([query(part) for part in parts], axis)

    def _piece(self, x: Tensor) -> int:
        """The number of data points that a query processes at once."""
        columns, batch = x.shape
        each = columns * max(self.params.shape[1], columns * len(self.matrices) if bool(x.isnan().any()) else 1)
        return max(1, min(batch, _LARGEST_PIECE // each))


def _square(vectors: Tensor) -> Tensor:
    """``v vᵀ`` for each of some vectors, ``(states, m)`` to ``(states, m, m)``."""
    return vectors.unsqueeze(2) * vectors.unsqueeze(1)


def _normal_form(family: Gaussian, mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Parameters ``(m, states, 2)`` and correlations from means ``(states, m)`` and covariances."""
    variance = covariance.diagonal(dim1=1, dim2=2)
    std = variance.clamp(min=family.min_std**2).sqrt()
    unit = torch.eye(std.shape[1], dtype=std.dtype, device=std.device)
    matrix = covariance / (std.unsqueeze(2) * std.unsqueeze(1))
    # What the least standard deviation adds to a column is noise of its own. Twice the ridge leaves room to invert it.
    matrix = torch.where(unit > 0, 1.0, (1 - 2 * _RIDGE) * matrix)
    return torch.stack((mean.T, std.T), -1), matrix


@dataclass(frozen=True, eq=False)
class _Patterns:
    """The different sets of observed columns in a batch, with what follows from each."""

    matrices: Tensor  # the correlation matrices `(parts, m, m)`
    seen: Tensor  # `(patterns, m)`, true where a column is observed
    which: Tensor  # the pattern of each data point `(batch,)`
    # The Cholesky factors of the observed parts of the matrices, with ones for the rest, `(parts, patterns, m, m)`.
    factor: Tensor

    @staticmethod
    def of(x: Tensor, matrices: Tensor) -> _Patterns:
        observed = ~x.isnan().T
        if bool(observed.all()):
            seen, which = observed[:1], observed.new_zeros(len(observed), dtype=torch.long)
        else:
            seen, which = torch.unique(observed, dim=0, return_inverse=True)
        both = seen.unsqueeze(2) & seen.unsqueeze(1)
        unit = torch.diag_embed((~seen).to(matrices.dtype))
        part = torch.where(both, matrices.unsqueeze(1), 0.0) + unit
        return _Patterns(matrices, seen, which, torch.linalg.cholesky(part))

    def whiten(self, scores: Tensor) -> Tensor:
        """Observed scores ``(parts, m, states, batch)`` as independent ones."""
        unit = torch.eye(self.seen.shape[1], dtype=self.factor.dtype, device=self.factor.device)
        return self.apply(torch.linalg.solve_triangular(self.factor, unit, upper=False), scores)

    def half_log_det(self) -> Tensor:
        """Half the log-determinants of the observed parts, ``(parts, patterns)``."""
        return self.factor.diagonal(dim1=2, dim2=3).log().sum(2)

    def precision(self) -> Tensor:
        """The inverses of the observed parts, with zeros for the rest, ``(parts, patterns, m, m)``."""
        both = self.seen.unsqueeze(2) & self.seen.unsqueeze(1)
        return torch.where(both, torch.cholesky_inverse(self.factor), 0.0)

    def regress(self, scores: Tensor) -> Tensor:
        """Expected scores of missing columns given observed ones, zero for the latter: like the scores."""
        return self.apply(self._white_cross().mT, self.whiten(scores))

    def covariance(self) -> Tensor:
        """The covariances of the missing scores given the observed ones, zero for the latter."""
        # Not with the inverse of the observed part, which for strong correlations has no digits left to subtract.
        cross = self._white_cross()
        neither = ~self.seen.unsqueeze(2) & ~self.seen.unsqueeze(1)
        return torch.where(neither, self.matrices.unsqueeze(1) - cross.mT @ cross, 0.0)

    def apply(self, matrices: Tensor, scores: Tensor) -> Tensor:
        """The matrix of each data point's part and pattern times its scores ``(parts, m, states, batch)``."""
        if matrices.shape[1] == 1:
            return (matrices[:, 0] @ scores.flatten(2)).view_as(scores)
        return torch.einsum("gbij,gjsb->gisb", matrices[:, self.which], scores)

    def _white_cross(self) -> Tensor:
        """Correlations of observed columns, made independent (rows), with missing ones."""
        cross = torch.where(self.seen.unsqueeze(2) & ~self.seen.unsqueeze(1), self.matrices.unsqueeze(1), 0.0)
        found: Tensor = torch.linalg.solve_triangular(self.factor, cross, upper=False)
        return found
