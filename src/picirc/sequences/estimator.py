# SPDX-License-Identifier: Apache-2.0
"""Chains behind the interface of scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator  # type: ignore[import-untyped]
from sklearn.utils.validation import check_is_fitted  # type: ignore[import-untyped]

from picirc.sequences.fit import fit_sequences
from picirc.sequences.model import QUANTILES, SequenceModel


class PICSequences(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no annotations
    """A homogeneous chain with continuous latents, fitted to sequences of any lengths.

    It follows scikit-learn's conventions for parameters, cloning and search. Its data are sequences and not
    independent rows, so the checks of scikit-learn for tables do not apply.

    Args:
        by: The column of a long table that tells the sequences apart.
        time: The column of the times.
        columns: What is known of some columns.
        dims: The number of dimensions of the latent; by default chosen by what is held out.
        points: The number of points of the grids.
        steps: The largest number of training steps.
        settings: Other attributes of ``picirc.sequences.Settings``, by name.
        random_state: Decides everything that is random.

    Attributes:
        model_: The fitted ``SequenceModel``.

    Example:
        >>> series = [np.sin(np.arange(n) / 3) for n in (30, 40)]
        >>> chain = PICSequences(dims=1, points=16, steps=10).fit(series)
        >>> chain.score_samples(series).shape, chain.transform(series)[1].shape
        ((2,), (40, 1))
    """

    model_: SequenceModel

    def __init__(
        self,
        by: str | None = None,
        time: str | None = None,
        columns: Any = None,
        dims: int | None = None,
        points: int | None = None,
        steps: int | None = None,
        settings: Mapping[str, Any] | None = None,
        random_state: int = 0,
    ) -> None:
        self.by = by
        self.time = time
        self.columns = columns
        self.dims = dims
        self.points = points
        self.steps = steps
        self.settings = settings
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the chain to sequences; ``y`` is ignored."""
        self.model_ = fit_sequences(
            X, self.by, self.time, self.columns, seed=self.random_state, dims=self.dims, points=self.points,
            steps=self.steps, settings=self.settings,
        )  # fmt: skip
        return self

    def score_samples(self, X: Any) -> npt.NDArray[np.float64]:
        """The log-likelihood of each sequence."""
        check_is_fitted(self)
        return self.model_.log_prob(X)

    def score(self, X: Any, y: Any = None) -> float:
        """The mean log-density of a row given those before it; ``y`` is ignored."""
        check_is_fitted(self)
        return -float(np.concatenate(_each(self.model_.surprise(X))).mean())

    def transform(self, X: Any) -> Any:
        """The mean of the filtered latent at every step, ``(T, d)`` for each sequence."""
        check_is_fitted(self)
        found = self.model_.filter(X)
        if isinstance(found, dict):
            return {key: state.mean for key, state in found.items()}
        return [state.mean for state in found] if isinstance(found, list) else found.mean

    def forecast(self, X: Any, steps: int, quantiles: Sequence[float] = QUANTILES) -> Any:
        """The distribution of every column at the next steps, a ``Forecast`` for each sequence."""
        check_is_fitted(self)
        return self.model_.forecast(X, steps, quantiles)


def _each(results: Any) -> list[Any]:
    if isinstance(results, dict):
        return list(results.values())
    return results if isinstance(results, list) else [results]
