# SPDX-License-Identifier: Apache-2.0
"""What units carry: conditional densities of latents and of observed variables."""

from picirc.functions.conditional import Conditional, Discrete, Parametric
from picirc.functions.density import Density
from picirc.functions.family import FunctionFamily
from picirc.functions.linear_gaussian import LinearGaussian
from picirc.functions.multivariate import MultivariateNormal

__all__ = [
    "Conditional",
    "Density",
    "Discrete",
    "FunctionFamily",
    "LinearGaussian",
    "MultivariateNormal",
    "Parametric",
]
