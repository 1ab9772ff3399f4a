"""Imputation of tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import TransformerMixin  # type: ignore[import-untyped]
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted  # type: ignore[import-untyped]

from picirc.checks import check_integer
from picirc.errors import ArgumentError
from picirc.estimators.base import TableEstimator, as_seed
from picirc.tables.columns import EMPTY
from picirc.tables.frames import Frame, as_narwhals
from picirc.tables.inference import Declared
from picirc.tables.model import HOW


class PICImputer(TransformerMixin, TableEstimator):  # type: ignore[misc]  # scikit-learn has no annotations
    """Fill the missing cells of a table from the joint density of its columns.

    Observed cells stay as they are, bit for bit. The result is a table of the kind that came in, unless ``set_output``
    says otherwise. Columns that had no value at all in ``fit`` are dropped, as other imputers do.

    Args:
        how: ``"mean"``: the expectation of real columns and counts given the row's other cells, the most probable
            category of the others. ``"mode"``: values that are probable together (approximate). ``"sample"``: a draw
            from the joint distribution of the missing cells.
        columns: What is known of some columns; see :class:`picirc.tables.Schema` for the words.
        points: The number of quadrature points, chosen from the size of the data by default, like the next two.
        width: The width of the nets, an even number.
        steps: The largest number of training steps.
        settings: Other attributes of :class:`picirc.tables.Defaults`, by name.
        unseen: What to do with a category that was not there in ``fit``: ``"error"``, or ``"missing"`` to take it into
            account no more than a missing value (it stays in its cell).
        random_state: Decides everything that is random, the draws of ``"sample"`` included.

    Attributes:
        model_: The fitted :class:`picirc.tables.TableModel`.

    Example:
        >>> X = np.repeat(np.arange(30.0)[:, None], 2, axis=1)
        >>> X[3, 1] = np.nan
        >>> PICImputer(steps=50).fit_transform(X)[3].round(0)[0]
        np.float64(3.0)
    """

    def __init__(
        self,
        how: str = "mean",
        columns: Declared | Mapping[Any, Declared] | None = None,
        points: int | None = None,
        width: int | None = None,
        steps: int | None = None,
        settings: Mapping[str, Any] | None = None,
        unseen: str = "error",
        random_state: Any = 0,
    ) -> None:
        super().__init__(columns, points, width, steps, settings, unseen, random_state)
        self.how = how

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the density that missing cells are filled from; ``y`` is ignored."""
        if self.how not in HOW:
            raise ArgumentError("how", " or ".join(map(repr, HOW)), self.how)
        self._fit_model(self._table(X, reset=True), self.columns)
        return self

    def transform(self, X: Any) -> Any:
        """The table with its missing cells filled."""
        check_is_fitted(self)
        return self._filled(self._table(X, reset=False), self.how, as_seed(self.random_state))

    def impute(self, X: Any, n_imputations: int = 5) -> list[Any]:
        """Several tables, each with other draws from the joint distribution of the missing cells (multiple imputation).

        Args:
            X: The table.
            n_imputations: How many.
        """
        check_is_fitted(self)
        check_integer("n_imputations", n_imputations)
        frame = self._table(X, reset=False)
        seeds = np.random.SeedSequence(as_seed(self.random_state)).generate_state(n_imputations)
        return [self._filled(frame, "sample", int(seed)) for seed in seeds]

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """The names of the columns that are left."""
        check_is_fitted(self)
        names: npt.NDArray[np.object_] = _check_feature_names_in(self, input_features)
        return names[self._kept()]

    def _kept(self) -> npt.NDArray[np.intp]:
        """The places of the columns that had a value."""
        return np.flatnonzero([column.kind != EMPTY for column in self.model_.schema.columns])

    def _filled(self, frame: Frame, how: str, seed: int) -> Any:
        filled = self.model_.impute(frame, how, seed)
        kept = self._kept()
        if len(kept) == self.n_features_in_:
            return filled
        native = as_narwhals(filled)
        return filled[:, kept] if native is None else native[:, kept.tolist()].to_native()
