# SPDX-License-Identifier: Apache-2.0
"""Multivariate normals given some of their variables: the closed form that linear-Gaussian circuits must agree with."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from cases import LINEAR_GAUSSIAN_NETS

each_net = pytest.mark.parametrize("name", LINEAR_GAUSSIAN_NETS)


def given(mean: Tensor, cov: Tensor, evidence: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance of all variables given the known ones; those have the variance zero."""
    seen = ~evidence.isnan()
    if not seen.any():
        return mean, cov
    gain = torch.linalg.solve(cov[seen][:, seen], cov[seen]).T  # (all, seen)
    found = mean + gain @ (evidence - mean)[seen]
    rest = cov - gain @ cov[seen]
    found[seen] = evidence[seen]
    rest[seen] = 0.0
    rest[:, seen] = 0.0
    return found, rest
