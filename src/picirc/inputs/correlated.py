# SPDX-License-Identifier: Apache-2.0
"""Gaussian columns that are correlated given the state of their latent.

In state k the columns of a block have the density ``N(x; μ_k, S_k C S_k)``: means and standard deviations of the state,
and one correlation matrix C for all states. Scores ``r = (x − μ_k) / s_k`` then have the correlation C whatever the
state, so that what an observed part says about the rest is a matrix for each *pattern* of missing columns.

Values are ``(m, batch)`` with NaN where they are missing; results for all states are ``(states, batch)``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from picirc.autograd import full_precision
from picirc.errors import StructureError
from picirc.inputs.location import HALF_LOG_TWO_PI, Gaussian

# A correlation matrix is mixed with this much of the identity, so that it can be factorised in single precision.
_RIDGE = 1e-4


def correlation(raw: Tensor, columns: int) -> Tensor:
    """A correlation matrix ``(m, m)`` from any numbers ``(m (m − 1) / 2,)``, differentiably; zeros give the identity.

    The numbers are the part below the diagonal of a matrix with ones on it, whose rows are then brought to length one.
    """
    rows, places = torch.tril_indices(columns, columns, -1, device=raw.device)
    unit = torch.eye(columns, dtype=raw.dtype, device=raw.device)
    lower = torch.nn.functional.normalize(unit.index_put((rows, places), raw), dim=1)
    with full_precision(raw.device):  # in lower precision it would not be positive definite
        return torch.lerp(lower @ lower.T, unit, _RIDGE)


@dataclass(frozen=True, eq=False)
class Block:
    """Correlated columns.

    Attributes:
        family: What they are when they stand alone.
        params: Means and standard deviations ``(m, states, 2)``.
        matrix: The correlation matrix ``(m, m)``; or several ``(parts, m, m)``, each for an equal part of the states.
    """

    family: Gaussian
    params: Tensor
    matrix: Tensor

    def log_prob(self, x: Tensor) -> Tensor:
        """The log-density of what is observed, ``(states, batch)``."""
        return torch.cat([part.log_prob(x) for part in self._parts()])

    def gradients(self, x: Tensor, flow: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``Σ flow · d log p`` with respect to parameters, matrix and values; flows are ``(states, batch)``."""
        with torch.enable_grad():
            params, matrix, values = (tensor.detach().requires_grad_() for tensor in (self.params, self.matrix, x))
            found = Block(self.family, params, matrix).log_prob(values)
        to_params, to_matrix, to_values = torch.autograd.grad(found, (params, matrix, values), flow)
        return to_params, to_matrix, to_values.masked_fill(x.isnan(), 0.0)

    def at_mode(self, x: Tensor) -> Tensor:
        """The log-density with the most probable value in place of each that is missing, ``(states, batch)``."""
        return torch.cat([part.at_mode(x) for part in self._parts()])

    def given(self, x: Tensor) -> Tensor:
        """Parameters of each missing column given the observed ones, ``(m, states, batch, 2)``.

        Those of an observed column are what it has without evidence.
        """
        return torch.cat([part.given(x) for part in self._parts()], 1)

    def given_others(self, x: Tensor) -> Tensor:
        """Parameters of every column given all other observed ones, ``(m, states, batch, 2)``."""
        return torch.cat([part.given_others(x) for part in self._parts()], 1)

    def covariance(self, x: Tensor, weights: Tensor) -> Tensor:
        """The mean over the states of the covariance of the missing columns, zero for observed ones: ``(batch, m, m)``.

        Args:
            x: ``(m, batch)``.
            weights: The probabilities of the states, ``(states, batch)``.
        """
        parts = self._parts()
        shares = weights.chunk(len(parts))
        return torch.stack([part.covariance(x, own) for part, own in zip(parts, shares, strict=True)]).sum(0)

    def log_interval(self, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """``log p(observed, low ≤ X_i ≤ high)`` with at most one such i in a row, ``(states, batch)``."""
        return torch.cat([part.log_interval(x, low, high) for part in self._parts()])

    def complete(self, x: Tensor, state: Tensor, noise: Tensor | None) -> Tensor:
        """Values for what is missing in known states: means without noise, draws with it.

        Args:
            x: ``(m, batch)``.
            state: ``(batch,)``.
            noise: Standard normal numbers ``(m, batch)``.
        """
        parts = self._parts()
        size = self.params.shape[1] // len(parts)
        found = torch.empty_like(x)
        for number, part in enumerate(parts):
            own = (state // size == number).nonzero().flatten()
            shocks = None if noise is None else noise[:, own]
            found[:, own] = part.complete(x[:, own], state[own] - number * size, shocks)
        return found

    def inner(self, other: Block) -> Tensor:
        """``log ∫ p_k(x) q_l(x) dx`` of all pairs of states, ``(states, states)``."""
        return torch.cat([torch.cat([a.inner(b) for b in other._parts()], 1) for a in self._parts()])

    def _parts(self) -> list[_Normals]:
        matrices = self.matrix.view(-1, *self.matrix.shape[-2:])
        params = self.params.chunk(len(matrices), 1)
        return [_Normals(self.family, p, matrix) for p, matrix in zip(params, matrices, strict=True)]


@dataclass(frozen=True, eq=False)
class _Normals:
    """Correlated columns in states with one matrix; the attributes and methods are those of ``Block``."""

    family: Gaussian
    params: Tensor
    matrix: Tensor

    def log_prob(self, x: Tensor) -> Tensor:
        patterns = _Patterns.of(x, self.matrix)
        return self._log_density(patterns, self._scores(x))

    def at_mode(self, x: Tensor) -> Tensor:
        scores = self._scores(x)
        scores = scores + _Patterns.of(x, self.matrix).regress(scores)
        return self._log_density(_Patterns.of(torch.zeros_like(x), self.matrix), scores)

    def given(self, x: Tensor) -> Tensor:
        patterns = _Patterns.of(x, self.matrix)
        spread = torch.where(patterns.seen, 1.0, patterns.covariance().diagonal(dim1=1, dim2=2))
        return self._params(patterns.regress(self._scores(x)), spread.sqrt()[patterns.which])

    def given_others(self, x: Tensor) -> Tensor:
        patterns = _Patterns.of(x, self.matrix)
        scores = self._scores(x)
        precision = patterns.precision()
        weight = torch.where(patterns.seen, precision.diagonal(dim1=1, dim2=2), 1.0)
        alone = scores - (precision / weight.unsqueeze(2))[patterns.which] @ scores
        spread = torch.where(patterns.seen, 1 / weight, patterns.covariance().diagonal(dim1=1, dim2=2))
        mean = torch.where(x.isnan().T.unsqueeze(2), patterns.regress(scores), alone)
        return self._params(mean, spread.sqrt()[patterns.which])

    def covariance(self, x: Tensor, weights: Tensor) -> Tensor:
        patterns = _Patterns.of(x, self.matrix)
        std = self.params[..., 1]  # (m, states)
        return torch.einsum("kb,ik,jk->bij", weights, std, std) * patterns.covariance()[patterns.which]

    def log_interval(self, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
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
        mean, std = self.params[:, state].unbind(-1)  # (m, batch)
        patterns = _Patterns.of(x, self.matrix)
        found = patterns.regress(((x - mean) / std).nan_to_num(0.0).T.unsqueeze(2))  # (batch, m, 1)
        if noise is not None:
            unit = torch.diag_embed(patterns.seen.to(x.dtype))
            factor = torch.linalg.cholesky(patterns.covariance() + unit)
            found = found + factor[patterns.which] @ noise.T.unsqueeze(2)
        return torch.where(x.isnan(), mean + std * found.squeeze(2).T, x)

    def inner(self, other: _Normals) -> Tensor:
        (mean, std), (means, stds) = (block.params.mT.unbind(1) for block in (self, other))  # (m, states)
        spread = std.T.unsqueeze(2) * self.matrix * std.T.unsqueeze(1)  # (states, m, m)
        spreads = stds.T.unsqueeze(2) * other.matrix * stds.T.unsqueeze(1)
        factor = torch.linalg.cholesky(spread.unsqueeze(1) + spreads)
        difference = (mean.T.unsqueeze(1) - means.T).unsqueeze(-1)
        scores = torch.linalg.solve_triangular(factor, difference, upper=False).squeeze(-1)
        logs = factor.diagonal(dim1=-2, dim2=-1).log() + HALF_LOG_TWO_PI
        found: Tensor = -(0.5 * scores.square() + logs).sum(-1)
        return found

    def _scores(self, x: Tensor) -> Tensor:
        """Standardised values ``(batch, m, states)``, zero where they are missing."""
        mean, std = self.params.unbind(-1)
        seen = ~x.isnan().T.unsqueeze(2)
        # Not the quotient with NaN in it: its derivative would be NaN too.
        return torch.where(seen, x.nan_to_num(0.0).T.unsqueeze(2) - mean, 0.0) / std

    def _log_density(self, patterns: _Patterns, scores: Tensor) -> Tensor:
        white = patterns.whiten(scores)
        logs = self.params[..., 1].log() + HALF_LOG_TWO_PI  # (m, states)
        constant = (patterns.seen.to(logs.dtype) @ logs + patterns.half_log_det().unsqueeze(1))[patterns.which]
        return -(0.5 * white.square().sum(1) + constant).T

    def _params(self, scores: Tensor, spread: Tensor) -> Tensor:
        """From scores ``(batch, m, states)`` and their standard deviations ``(batch, m)`` to parameters."""
        mean, std = self.params.unsqueeze(2).unbind(-1)  # (m, states, 1)
        located = mean + std * scores.permute(1, 2, 0)
        return torch.stack((located, (std * spread.T.unsqueeze(1)).expand_as(located)), -1)


@dataclass(frozen=True, eq=False)
class _Patterns:
    """The different sets of observed columns in a batch, with what follows from each.

    Attributes:
        matrix: The correlation matrix ``(m, m)``.
        seen: ``(patterns, m)``, true where a column is observed.
        which: The pattern of each data point ``(batch,)``.
        factor: The Cholesky factor of the observed part of the matrix, with ones for the rest, ``(patterns, m, m)``.
    """

    matrix: Tensor
    seen: Tensor
    which: Tensor
    factor: Tensor

    @staticmethod
    def of(x: Tensor, matrix: Tensor) -> _Patterns:
        observed = ~x.isnan().T
        if bool(observed.all()):
            seen, which = observed[:1], observed.new_zeros(len(observed), dtype=torch.long)
        else:
            seen, which = torch.unique(observed, dim=0, return_inverse=True)
        both = seen.unsqueeze(2) & seen.unsqueeze(1)
        unit = torch.diag_embed((~seen).to(matrix.dtype))
        return _Patterns(matrix, seen, which, torch.linalg.cholesky(torch.where(both, matrix, 0.0) + unit))

    def whiten(self, scores: Tensor) -> Tensor:
        """Observed scores ``(batch, m, states)`` as independent ones."""
        unit = torch.eye(len(self.matrix), dtype=self.matrix.dtype, device=self.matrix.device)
        inverse = torch.linalg.solve_triangular(self.factor, unit, upper=False)
        return self._each(inverse) @ scores

    def half_log_det(self) -> Tensor:
        """Half the log-determinant of the observed part, ``(patterns,)``."""
        return self.factor.diagonal(dim1=1, dim2=2).log().sum(1)

    def precision(self) -> Tensor:
        """The inverse of the observed part, with zeros for the rest, ``(patterns, m, m)``."""
        both = self.seen.unsqueeze(2) & self.seen.unsqueeze(1)
        return torch.where(both, torch.cholesky_inverse(self.factor), 0.0)

    def regress(self, scores: Tensor) -> Tensor:
        """Expected scores of missing columns given observed ones, zero for the latter: ``(batch, m, states)``."""
        return self._each(self._white_cross().mT) @ self.whiten(scores)

    def covariance(self) -> Tensor:
        """The covariance of the missing scores given the observed ones, zero for the latter: ``(patterns, m, m)``."""
        # Not with the inverse of the observed part, which for strong correlations has no digits left to subtract.
        cross = self._white_cross()
        neither = ~self.seen.unsqueeze(2) & ~self.seen.unsqueeze(1)
        return torch.where(neither, self.matrix - cross.mT @ cross, 0.0)

    def _white_cross(self) -> Tensor:
        """Correlations of observed columns, made independent (rows), with missing ones."""
        cross = torch.where(self.seen.unsqueeze(2) & ~self.seen.unsqueeze(1), self.matrix, 0.0)
        found: Tensor = torch.linalg.solve_triangular(self.factor, cross, upper=False)
        return found

    def _each(self, matrices: Tensor) -> Tensor:
        """The matrix of each data point's pattern; one for all if there is only one."""
        return matrices if len(matrices) == 1 else matrices[self.which]
