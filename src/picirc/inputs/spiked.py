# SPDX-License-Identifier: Apache-2.0
"""Gaussians with spikes: single values that occur often in an otherwise continuous column."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from picirc.checks import is_number
from picirc.errors import ArgumentError
from picirc.inputs.family import (
    Family,
    as_float,
    log_frequencies,
    log_mix,
    log_probabilities,
    pooled,
    require_above,
    require_support,
)
from picirc.inputs.location import Gaussian

_LARGEST_LOGIT = 30.0


@final
@dataclass(frozen=True, repr=False)
class Spiked(Family):
    """A mixture of a Gaussian and of single values (atoms), ``p(x) = p_0 N(x; μ, σ²) + Σ_i p_i [x = a_i]``.

    Atoms have log-probabilities; all other values have log-densities. The parameters are the log-probabilities of the
    Gaussian and of each atom, then mean and standard deviation.

    Args:
        atoms: The values, ascending. They are rounded to single precision, so that data of any precision match.
        min_std: The smallest standard deviation.

    Example:
        >>> params = torch.tensor([[[0.5, 0.5, 2.0, 1.0]]])  # half of the values are 0, the others N(2, 1)
        >>> params[..., :2] = params[..., :2].log()
        >>> Spiked((0.0,)).log_prob(params, torch.tensor([[0.0, 2.0]])).exp().squeeze()
        tensor([0.5000, 0.1995])
    """

    atoms: tuple[float, ...]
    min_std: float = 1e-3

    def __post_init__(self) -> None:
        require_above("min_std", self.min_std, 0)
        if not isinstance(self.atoms, list | tuple) or not self.atoms:
            raise ArgumentError("atoms", "a list of at least one number", repr(self.atoms)[:80])
        if not all(is_number(a) and math.isfinite(a) for a in self.atoms):
            raise ArgumentError("atoms", "finite numbers", repr(self.atoms)[:80])
        rounded = tuple(torch.tensor(self.atoms, dtype=torch.float32).double().tolist())
        if any(a >= b for a, b in itertools.pairwise(rounded)) or not all(map(math.isfinite, rounded)):
            raise ArgumentError("atoms", "ascending numbers that differ in single precision", repr(self.atoms)[:80])
        object.__setattr__(self, "atoms", rounded)

    @property
    def size(self) -> int:
        """The probabilities, mean and standard deviation."""
        return len(self.atoms) + 3

    def constrain(self, raw: Tensor) -> Tensor:
        """Log-probabilities, then the parameters of the Gaussian."""
        logs = log_probabilities(raw[..., :-2], _LARGEST_LOGIT)
        return torch.cat((logs, self._gaussian.constrain(raw[..., -2:])), -1)

    def accept(self, params: Tensor) -> Tensor:
        """Logits, then mean and standard deviation, which are not changed."""
        logs = log_probabilities(params[..., :-2], _LARGEST_LOGIT)
        return torch.cat((logs, self._gaussian.accept(params[..., -2:])), -1)

    def unconstrain(self, params: Tensor) -> Tensor:
        """The inverse of ``constrain``."""
        return torch.cat((params[..., :-2], self._gaussian.unconstrain(params[..., -2:])), -1)

    def check(self, x: Tensor, variable: str | int) -> None:
        """Accept all finite numbers."""
        require_support(x, x.isfinite(), variable, "finite numbers")

    def log_prob(self, params: Tensor, x: Tensor) -> Tensor:
        """Log-probability of atoms, log-density of other values, ``(F, K, B)``."""
        hits = x.unsqueeze(1) == self._atoms(x).unsqueeze(1)  # (F, atoms, B)
        other = ~hits.any(1, keepdim=True)
        # A product with zeros and ones selects the probability, in the time of a single `where`.
        share = params[..., :-2] @ torch.cat((other, hits), 1).to(params.dtype)
        return share + torch.where(other, self._gaussian.log_prob(params[..., -2:], x), 0.0)

    def sample(self, params: Tensor, generator: torch.Generator) -> Tensor:
        """An atom, or a Gaussian draw."""
        logs = params[..., :-2]
        chosen = torch.multinomial(logs.reshape(-1, logs.shape[-1]).exp(), 1, generator=generator).view(logs.shape[:-1])
        drawn = self._gaussian.sample(params[..., -2:], generator)
        values = torch.cat((drawn.unsqueeze(-1), self._atoms(params).expand(*drawn.shape, -1)), -1)
        return values.gather(-1, chosen.unsqueeze(-1)).squeeze(-1)

    def mean(self, params: Tensor) -> Tensor:
        """Expectation."""
        shares = params[..., :-2].exp()
        return shares[..., 0] * params[..., -2] + (shares[..., 1:] * self._atoms(params)).sum(-1)

    def variance(self, params: Tensor) -> Tensor:
        """Variance within the Gaussian and between it and the atoms."""
        shares, mean = params[..., :-2].exp(), self.mean(params)
        own = params[..., -1].square() + (params[..., -2] - mean).square()
        others = (self._atoms(params) - mean.unsqueeze(-1)).square()
        return shares[..., 0] * own + (shares[..., 1:] * others).sum(-1)

    def cdf(self, params: Tensor, x: Tensor) -> Tensor:
        """The probability of the Gaussian and of the atoms up to x."""
        found = params[..., :1].exp() * self._gaussian.cdf(params[..., -2:], x)
        for place, atom in enumerate(self.atoms, 1):
            found = found + params[..., place, None].exp() * (x >= atom).unsqueeze(1)
        return found

    def log_interval(self, params: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """The probability of the Gaussian and of the atoms between the ends."""
        found = params[..., :1] + self._gaussian.log_interval(params[..., -2:], low, high)
        for place, atom in enumerate(self.atoms, 1):
            inside = ((low <= atom) & (atom <= high)).unsqueeze(1)
            found = torch.where(inside, torch.logaddexp(found, params[..., place, None].expand_as(found)), found)
        return found

    def mode(self, params: Tensor) -> Tensor:
        """The most probable atom, or the mean if the Gaussian is more probable than any."""
        values = torch.cat((params[..., -2:-1], self._atoms(params).expand(*params.shape[:-1], -1)), -1)
        return values.gather(-1, params[..., :-2].argmax(-1, keepdim=True)).squeeze(-1)

    def raw_start(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The shares of the atoms in the columns, and mean and scale of all other values."""
        hits = torch.stack([(x == atom).sum(-1) for atom in self.atoms], -1).to(x.dtype)  # (F, atoms)
        rest = (~x.isnan()).sum(-1, keepdim=True) - hits.sum(-1, keepdim=True)
        logits = (torch.cat((rest, hits), -1) + 1.0).log()
        centre, gain = self._gaussian.raw_start(self._without_atoms(x))
        logits = logits - logits.mean(-1, keepdim=True)
        return torch.cat((logits, centre), -1), torch.cat((torch.ones_like(logits), gain), -1)

    def smooth(self, params: Tensor) -> tuple[Gaussian, Tensor]:
        """The Gaussian alone, and its parameters."""
        return self._gaussian, params[..., -2:]

    @torch.no_grad()
    def expected_statistics(self, params: Tensor, x: Tensor, flows: Tensor) -> Tensor:
        """The weights of the Gaussian and of each atom, then the statistics of the Gaussian, ``(F or 1, K, S)``."""
        atoms = x.unsqueeze(-1) == self._atoms(x)  # (F, B, atoms)
        rest = flows.masked_fill(atoms.any(-1).unsqueeze(1), 0.0)
        shares = torch.cat((rest.sum(-1, keepdim=True), flows @ atoms.to(flows.dtype)), -1)
        gaussian = params[..., -2:].expand(len(x), -1, -1)
        found = torch.cat((shares, self._gaussian.expected_statistics(gaussian, x, rest)), -1)
        return pooled(found, params)

    @torch.no_grad()
    def from_statistics(self, params: Tensor, statistics: Tensor, smoothing: float = 0.0) -> Tensor:
        """Frequencies as for categories, mean and standard deviation as for a Gaussian."""
        logs = log_frequencies(statistics[..., :-3] + smoothing / (len(self.atoms) + 1), params[..., :-2])
        gaussian = self._gaussian.from_statistics(params[..., -2:], statistics[..., -3:], smoothing)
        return torch.cat((logs, gaussian), -1)

    def mix(self, old: Tensor, new: Tensor, step: float | Tensor) -> Tensor:
        """Average the probabilities, and the moments of the Gaussian."""
        gaussian = self._gaussian.mix(old[..., -2:], new[..., -2:], step)
        return torch.cat((log_mix(old[..., :-2], new[..., :-2], step), gaussian), -1)

    def initial(self, x: Tensor, states: int, generator: torch.Generator) -> Tensor:
        """The shares of the atoms with noise for each state; other values of the column as means of the Gaussian."""
        x = as_float(x)
        shares = self.raw_start(x)[0][..., :-2].unsqueeze(1)
        noise = torch.randn((len(x), states, len(self.atoms) + 1), generator=generator, dtype=x.dtype, device=x.device)
        gaussian = self._gaussian.initial(self._without_atoms(x), states, generator)
        return torch.cat(((shares + noise).log_softmax(-1), gaussian), -1)

    @property
    def _gaussian(self) -> Gaussian:
        return Gaussian(min_std=self.min_std)

    def _without_atoms(self, x: Tensor) -> Tensor:
        return x.masked_fill((x.unsqueeze(-1) == self._atoms(x)).any(-1), torch.nan)

    def _atoms(self, like: Tensor) -> Tensor:
        return torch.tensor(self.atoms, dtype=like.dtype, device=like.device)
