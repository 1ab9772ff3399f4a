# SPDX-License-Identifier: Apache-2.0
"""Inner loops in C, compiled on the first use where a compiler is at hand; PyTorch computes the same without them."""

from picirc.native.kernels import MOST_PARTS, Kernels, kernels_for

__all__ = ["MOST_PARTS", "Kernels", "kernels_for"]
