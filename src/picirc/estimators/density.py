"""Densities of tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import DensityMixin  # type: ignore[import-untyped]
from sklearn.utils.validation import check_is_fitted  # type: ignore[import-untyped]

from picirc.errors import ArgumentError
from picirc.estimators.base import TableEstimator, as_seed
from picirc.io.describe import take
from picirc.tables.columns import Numbers
from picirc.tables.inference import Declared
from picirc.tables.model import TableModel


class PICDensity(DensityMixin, TableEstimator):  # type: ignore[misc]  # scikit-learn has no annotations
    """The joint density of the columns of a table, with missing cells integrated out exactly.

    Args:
        columns: What is known of some columns; see :class:`picirc.tables.Schema` for the words.
        points: The number of quadrature points, chosen from the size of the data by default, like the next two.
        width: The width of the nets, an even number.
        steps: The largest number of training steps.
        settings: Other attributes of :class:`picirc.tables.Defaults`, by name.
        unseen: What to do with a category that was not there in ``fit``: ``"error"`` or ``"missing"``.
        quantile: The part of the training rows that ``anomaly`` calls anomalous.
        random_state: Decides everything that is random.

    Attributes:
        model_: The fitted :class:`picirc.tables.TableModel`.
        threshold_: The log-density below which a row is an anomaly.

    Example:
        >>> X = np.random.default_rng(0).normal(size=(60, 2))
        >>> density = PICDensity(steps=20).fit(X)
        >>> density.score_samples(X).shape, density.anomaly([[0.0, 0.1], [40.0, -30.0]])
        ((60,), array([False,  True]))
    """

    threshold_: float

    def __init__(
        self,
        columns: Declared | Mapping[Any, Declared] | None = None,
        points: int | None = None,
        width: int | None = None,
        steps: int | None = None,
        settings: Mapping[str, Any] | None = None,
        unseen: str = "error",
        quantile: float = 0.01,
        random_state: Any = 0,
    ) -> None:
        super().__init__(columns, points, width, steps, settings, unseen, random_state)
        self.quantile = quantile

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the density to a table; ``y`` is ignored."""
        if isinstance(self.quantile, bool) or not isinstance(self.quantile, int | float) or not 0 <= self.quantile <= 1:
            raise ArgumentError("quantile", "a number from 0 to 1", self.quantile)
        frame = self._table(X, reset=True)
        self._fit_model(frame, self.columns)
        self.threshold_ = float(np.quantile(self.model_.log_density(frame), self.quantile))
        return self

    def score_samples(self, X: Any, given: Any = None) -> Numbers:
        """``log p(x)``, or ``log p(x | given)``, of every row, in the units of the table.

        Args:
            X: The rows; missing cells are integrated out.
            given: What is known: a mapping from some names to values, one row, or as many rows as ``X``.
        """
        check_is_fitted(self)
        return self.model_.log_density(self._table(X, reset=False), given)

    def score(self, X: Any, y: Any = None) -> float:
        """The mean of ``score_samples``; ``y`` is ignored."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, random_state: Any = 0, given: Any = None) -> Any:
        """Draw rows, as a table of the kind that was fitted.

        Args:
            n_samples: The number of rows, or of rows for each row of the evidence.
            random_state: Decides the draws.
            given: What is known; these cells come back as they are.
        """
        check_is_fitted(self)
        return self.model_.sample(n_samples, given, as_seed(random_state))

    def conditional(self, given: Any) -> ConditionalDensity:
        """The density of the other columns when some values are known.

        Args:
            given: A mapping from some names to values, or a row with missing cells.
        """
        check_is_fitted(self)
        return ConditionalDensity(self.model_, given)

    def anomaly(self, X: Any) -> npt.NDArray[np.bool_]:
        """Whether each row is less probable than the ``quantile`` of the training rows.

        Rows are compared as they are: a row with missing cells has a density over fewer columns. Compare such rows only
        with others that miss the same.
        """
        return np.asarray(self.score_samples(X) < self.threshold_)

    def _fitted(self) -> dict[str, Any]:
        return {"threshold": getattr(self, "threshold_", 0.0)}

    def _restore(self, fitted: Mapping[str, Any]) -> None:
        super()._restore(fitted)
        self.threshold_ = take(fitted, "threshold", float)


@dataclass(frozen=True)
class ConditionalDensity:
    """The density of the columns of a table when some values are known.

    Attributes:
        model: The model of the table.
        given: What is known.
    """

    model: TableModel
    given: Any

    def score_samples(self, X: Any) -> Numbers:
        """``log p(x | given)`` of every row; a known value must be the same in ``X``, or missing or absent there."""
        return self.model.log_density(X, self.given)

    def score(self, X: Any) -> float:
        """The mean of ``score_samples``."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, random_state: Any = 0) -> Any:
        """Draw rows that have the known values."""
        return self.model.sample(n_samples, self.given, as_seed(random_state))
