# SPDX-License-Identifier: Apache-2.0
"""The functions that units carry: conditional densities of latents and of observed variables."""

from picirc.functions.conditional import (
    Conditional,
    Density,
    Discrete,
    FunctionFamily,
    LinearGaussian,
    MultivariateNormal,
    Parametric,
)

__all__ = [
    "Conditional",
    "Density",
    "Discrete",
    "FunctionFamily",
    "LinearGaussian",
    "MultivariateNormal",
    "Parametric",
]
