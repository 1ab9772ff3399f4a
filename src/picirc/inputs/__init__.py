# SPDX-License-Identifier: Apache-2.0
"""Input distributions: the univariate families at the bottom of a circuit."""

from __future__ import annotations

from picirc.inputs.continuous import Gaussian, Laplace, Spiked, StudentT
from picirc.inputs.discrete import Bernoulli, Binomial, Categorical, Poisson
from picirc.inputs.family import Family, Natural, as_columns, group_columns, require_support

__all__ = [
    "Bernoulli",
    "Binomial",
    "Categorical",
    "Family",
    "Gaussian",
    "Laplace",
    "Natural",
    "Poisson",
    "Spiked",
    "StudentT",
    "as_columns",
    "group_columns",
    "require_support",
]
