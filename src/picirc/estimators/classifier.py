"""Classification of tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin  # type: ignore[import-untyped]
from sklearn.utils.multiclass import check_classification_targets  # type: ignore[import-untyped]
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d  # type: ignore[import-untyped]

from picirc.errors import ArgumentError
from picirc.estimators.base import TableEstimator
from picirc.io.describe import take
from picirc.tables.columns import Numbers
from picirc.tables.frames import Array, Cells, Frame, is_missing
from picirc.tables.inference import Declared
from picirc.tables.schema import declarations


class PICClassifier(ClassifierMixin, TableEstimator):  # type: ignore[misc]  # scikit-learn has no annotations
    """A classifier by the joint density of the features and the label, which is one more column of the table.

    Any features may be missing, in ``fit`` as in ``predict_proba``. So may labels: rows without one (None, NaN, or the
    value ``unlabelled``) take part in fitting the density of the features.

    Args:
        columns: What is known of some features; see :class:`picirc.tables.Schema` for the words.
        points: The number of quadrature points, chosen from the size of the data by default, like the next two.
        width: The width of the nets, an even number.
        steps: The largest number of training steps.
        settings: Other attributes of :class:`picirc.tables.Defaults`, by name.
        unseen: What to do with a category that was not there in ``fit``: ``"error"`` or ``"missing"``.
        unlabelled: A value of ``y`` that stands for a missing label besides None and NaN, such as -1. Without it -1 is
            a class like any other.
        random_state: Decides everything that is random.

    Attributes:
        model_: The fitted :class:`picirc.tables.TableModel` of the features and the label.
        classes_: The classes.
        label_: The name of the label among the columns of the model.

    Example:
        >>> X = np.r_[np.zeros((30, 1)), np.ones((30, 1))] + np.random.default_rng(0).normal(0, 0.1, (60, 1))
        >>> y = ["no"] * 20 + [None] * 20 + ["yes"] * 20
        >>> PICClassifier().fit(X, y).predict([[0.0], [1.0]])
        array(['no', 'yes'], dtype='<U3')
    """

    classes_: Array
    label_: str

    def __init__(
        self,
        columns: Declared | Mapping[Any, Declared] | None = None,
        points: int | None = None,
        width: int | None = None,
        steps: int | None = None,
        settings: Mapping[str, Any] | None = None,
        unseen: str = "error",
        unlabelled: Any = None,
        random_state: Any = 0,
    ) -> None:
        super().__init__(columns, points, width, steps, settings, unseen, random_state)
        self.unlabelled = unlabelled

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the joint density of features and label.

        Args:
            X: The features.
            y: The labels; None, NaN or ``unlabelled`` where there is none.
        """
        frame = self._table(X, reset=True)
        if y is None:
            got = "None (PICClassifier requires y to be passed, but the target y is None)"
            raise ArgumentError("y", "a label for each row", got, "use PICDensity where there are no labels at all")
        name = str(getattr(y, "name", None) or "label")
        while name in frame.names:
            name += "_"
        check_consistent_length(X, y)
        label, self.classes_ = self._labels(name, y)
        self.label_ = name
        declared = declarations(self.columns, frame)
        joint = Frame((*frame.columns, label), frame.rows, frame.container, None)
        self._fit_model(joint, {**declared, name: "categorical"})
        return self

    def predict_proba(self, X: Any) -> Numbers:
        """``p(class | features)``, ``(rows, classes)``, with missing features integrated out."""
        check_is_fitted(self)
        return self.model_.predict(self._table(X, reset=False), self.label_)

    def predict(self, X: Any) -> Array:
        """The most probable class of each row."""
        best = self.predict_proba(X).argmax(1)
        found: Array = self.classes_[best]
        return found

    def _labels(self, name: str, y: Any) -> tuple[Cells, Array]:
        """The column of labels, and the classes."""
        given = column_or_1d(y, warn=True)
        known = ~self._unlabelled(given)
        if not known.any():
            raise ArgumentError("y", "a label for at least one row", "none", "use PICDensity to fit without labels")
        labels = np.array(given[known].tolist())  # objects become what they are
        if labels.dtype.kind == "f" and np.isinf(labels).any():
            raise ArgumentError("y", "finite numbers or texts as labels", "inf", "put NaN where a label is missing")
        check_classification_targets(labels)
        classes: Array = np.unique(labels)
        if classes.dtype.kind == "U":
            values = np.full(len(given), None, dtype=object)
            values[known] = labels.tolist()
            return Cells(name, "text", values, tuple(classes.tolist())), classes
        numbers = np.full(len(given), np.nan)
        numbers[known] = labels
        dtype = {"b": "boolean", "f": "float"}.get(classes.dtype.kind, "integer")
        return Cells(name, dtype, numbers, tuple(classes.tolist())), classes

    def _unlabelled(self, y: Array) -> npt.NDArray[np.bool_]:
        gone = np.array([is_missing(label) for label in y.tolist()], dtype=bool)
        if self.unlabelled is not None:
            gone |= np.array([label == self.unlabelled for label in y.tolist()], dtype=bool)
        return gone

    def _fitted(self) -> dict[str, Any]:
        return {"label": getattr(self, "label_", "")}

    def _restore(self, fitted: Mapping[str, Any]) -> None:
        super()._restore(fitted)
        schema = self.model_.schema
        self.label_ = take(fitted, "label", str)
        categories = schema[self.label_].categories
        if not categories:
            raise ArgumentError("label", "a column of categories", self.label_)
        self.classes_ = np.array(categories)
        self._restore_names(tuple(name for name in schema.names if name != self.label_))
