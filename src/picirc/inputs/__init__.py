"""Input distributions: the univariate families at the bottom of a circuit."""

from __future__ import annotations

from picirc.inputs.bernoulli import Bernoulli
from picirc.inputs.binomial import Binomial
from picirc.inputs.categorical import Categorical
from picirc.inputs.columns import as_columns, group_columns
from picirc.inputs.family import Family, require_support
from picirc.inputs.function import FunctionFamily
from picirc.inputs.gaussian import Gaussian
from picirc.inputs.laplace import Laplace
from picirc.inputs.poisson import Poisson
from picirc.inputs.student import StudentT

__all__ = [
    "Bernoulli",
    "Binomial",
    "Categorical",
    "Family",
    "FunctionFamily",
    "Gaussian",
    "Laplace",
    "Poisson",
    "StudentT",
    "as_columns",
    "group_columns",
    "require_support",
]
