# SPDX-License-Identifier: Apache-2.0
"""The compiled loops, for the tests that need them."""

from __future__ import annotations

import pytest
import torch

from picirc.native import Kernels, kernels_for


@pytest.fixture
def native() -> Kernels:
    found = kernels_for(torch.empty(1))
    if found is None:
        pytest.skip("needs the compiled loops, hence a C compiler (CC, or cc) and not PICIRC_NATIVE=0")
    return found
