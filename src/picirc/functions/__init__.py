# SPDX-License-Identifier: Apache-2.0
"""What units carry: conditional densities of latents and of observed variables."""

from picirc.functions.conditional import Conditional
from picirc.functions.density import Density
from picirc.functions.linear_gaussian import LinearGaussian

__all__ = ["Conditional", "Density", "LinearGaussian"]
