# SPDX-License-Identifier: Apache-2.0
"""Every family with valid parameters, values of its support, and the same distribution from scipy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import Tensor

from picirc.inputs import Bernoulli, Binomial, Categorical, Family, Gaussian, Laplace, Poisson, StudentT


def categorical(row: np.ndarray) -> Any:
    p = np.exp(row)
    return stats.rv_discrete(values=(np.arange(len(p)), p / p.sum()))


@dataclass(frozen=True)
class Case:
    family: Family
    states: list[list[float]]  # valid parameters, (K, P)
    values: list[float]
    scipy: Callable[[np.ndarray], Any]  # the distribution with one row of parameters

    def params(self, folds: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
        """Parameters (F, K, P); the variables have the same states in a different order."""
        states = torch.tensor(self.states, dtype=torch.float64)
        return torch.stack([states.roll(fold, 0) for fold in range(folds)]).to(dtype)

    def x(self, folds: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
        """Values (F, B), in a different order for each variable."""
        values = torch.tensor(self.values, dtype=dtype)
        return torch.stack([values.roll(fold) for fold in range(folds)])

    def oracle(self, method: str, params: Tensor, *x: Tensor) -> np.ndarray:
        """A method of scipy's distribution in every state: (F, K, B) if there are data, else (F, K)."""
        folds = max([len(params), *(len(v) for v in x)])
        rows = params.double().numpy()
        return np.array(
            [
                [
                    getattr(self.scipy(row), method)(*(v[fold].double().numpy() for v in x))
                    for row in rows[fold % len(rows)]
                ]
                for fold in range(folds)
            ]
        )

    def log_prob(self, params: Tensor, x: Tensor) -> np.ndarray:
        return self.oracle("logpmf" if self.family.discrete else "logpdf", params, x)


def log(*p: float) -> list[float]:
    return np.log(p).tolist()


COUNTS = [0.0, 1.0, 2.0, 3.0, 5.0, 17.0]
REALS = [-30.0, -2.5, -0.1, 0.0, 0.7, 1.5, 4.0, 100.0]

CASES = [
    Case(Bernoulli(), [[0.0], [-2.0], [5.0]], [0.0, 1.0], lambda row: stats.bernoulli(special.expit(row[0]))),
    Case(
        Categorical(4),
        [log(0.1, 0.2, 0.3, 0.4), log(0.7, 0.1, 0.1, 0.1), log(1e-9, 0.5, 0.25, 0.25 - 1e-9)],
        [0.0, 1.0, 2.0, 3.0],
        categorical,
    ),
    Case(Binomial(17), [[0.3], [-3.0], [4.0]], COUNTS, lambda row: stats.binom(17, special.expit(row[0]))),
    Case(Gaussian(), [[0.0, 1.0], [1.5, 0.3], [-20.0, 40.0]], REALS, lambda row: stats.norm(row[0], row[1])),
    Case(Poisson(), [[0.0], [-3.0], [2.3]], COUNTS, lambda row: stats.poisson(np.exp(row[0]))),
    Case(Laplace(), [[0.0, 1.0], [1.5, 0.3], [-20.0, 40.0]], REALS, lambda row: stats.laplace(row[0], row[1])),
    Case(
        StudentT(),
        [[0.0, 1.0, 3.0], [1.5, 0.3, 30.0], [-20.0, 40.0, 2.5]],
        REALS,
        lambda row: stats.t(row[2], row[0], row[1]),
    ),
]
FINITE = [case for case in CASES if case.family.table(case.params()) is not None]
EXPONENTIAL = [case for case in CASES if not isinstance(case.family, Laplace | StudentT)]

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case.family))
each_finite = pytest.mark.parametrize("case", FINITE, ids=lambda case: repr(case.family))
each_exponential = pytest.mark.parametrize("case", EXPONENTIAL, ids=lambda case: repr(case.family))
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def near(dtype: torch.dtype) -> dict[str, float]:
    """Tolerances for results of one dtype."""
    return {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-9, "atol": 1e-10}
