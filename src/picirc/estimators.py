# SPDX-License-Identifier: Apache-2.0
"""Estimators for scikit-learn, of mixed tables with missing cells and of sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, DensityMixin, TransformerMixin  # type: ignore[import-untyped]
from sklearn.utils import check_random_state  # type: ignore[import-untyped]
from sklearn.utils.multiclass import check_classification_targets  # type: ignore[import-untyped]
from sklearn.utils.validation import (  # type: ignore[import-untyped]
    _check_feature_names_in,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from picirc.checks import check_choice, check_integer, is_number
from picirc.data.frames import Array, Cells, Frame, as_narwhals, is_missing, read_frame
from picirc.errors import ArgumentError
from picirc.inputs import Family
from picirc.io.describe import only, take
from picirc.io.files import refusing
from picirc.sequences.fit import fit_sequences
from picirc.sequences.model import QUANTILES, SequenceModel
from picirc.tables.column import EMPTY, Declared, Numbers
from picirc.tables.fitting import fit_table
from picirc.tables.inference import declarations
from picirc.tables.model import HOW, TableModel

__all__ = ["ConditionalDensity", "PICClassifier", "PICDensity", "PICImputer", "PICSequences"]

_PLAIN = (bool, int, float, str, type(None))  # the types of parameters that are saved


class TableEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no annotations
    """The common part of the estimators of tables: parameters, validation, fitting, saving."""

    model_: TableModel
    n_features_in_: int

    def __init__(
        self,
        columns: Declared | Mapping[Any, Declared] | None = None,
        points: int | None = None,
        width: int | None = None,
        steps: int | None = None,
        settings: Mapping[str, Any] | None = None,
        unseen: str = "error",
        random_state: Any = 0,
        missingness: bool = False,
    ) -> None:
        self.columns = columns
        self.points = points
        self.width = width
        self.steps = steps
        self.settings = settings
        self.unseen = unseen
        self.random_state = random_state
        self.missingness = missingness

    def save(self, path: str | PathLike[str]) -> None:
        """Save the fitted estimator to a folder, which ``TableModel.load`` and ``pc.load`` can read, too."""
        check_is_fitted(self)
        parameters = {name: value for name, value in self.get_params().items() if isinstance(value, _PLAIN)}
        about = {"name": type(self).__name__, "parameters": parameters, "fitted": self._fitted()}
        known = self.model_
        TableModel(known.schema, known.pic, known.points, known.summary | {"estimator": about}).save(path)

    @classmethod
    def load(cls, path: str | PathLike[str], families: tuple[type[Family], ...] = ()) -> Self:
        """Load an estimator that ``save`` wrote. This runs no code from the file.

        The parameters ``columns`` and ``settings`` are not restored if they are not a number or a string; they are part
        of the model.

        Args:
            path: The folder or the file.
            families: Custom classes of families of the columns.
        """
        model = TableModel.load(path, families)
        with refusing(Path(path)):
            about = take(model.summary, "estimator", dict)
            only(about, {"name", "parameters", "fitted"}, "estimator")
            if about.get("name") != cls.__name__:
                raise ArgumentError("estimator", cls.__name__, repr(about.get("name"))[:80])
            found = cls()
            parameters = take(about, "parameters", dict)
            only(parameters, set(found.get_params()), "parameters")
            for name, value in parameters.items():
                if not isinstance(value, _PLAIN):
                    raise ArgumentError(name, "a number or a string", repr(value)[:80])
            found.set_params(**parameters)
            model.summary.pop("estimator")
            found.model_ = model
            found._restore(take(about, "fitted", dict))
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        # Strings are accepted, but an estimator with this tag must accept any object as a cell.
        tags.input_tags.string = False
        return tags

    def _fitted(self) -> dict[str, Any]:
        """The fitted attributes besides the model, as plain JSON values."""
        return {}

    def _restore(self, fitted: Mapping[str, Any]) -> None:
        """Restore the attributes that ``_fitted`` returned, from an untrusted file."""
        only(fitted, set(self._fitted()), "fitted")
        self._restore_names(self.model_.schema.names)

    def _restore_names(self, names: tuple[str, ...]) -> None:
        self.n_features_in_ = len(names)
        if self.model_.schema.container != "numpy":
            self.feature_names_in_ = np.array(names, dtype=object)

    def _fit_model(
        self, frame: Frame, columns: Declared | Mapping[Any, Declared] | None, target: str | None = None
    ) -> None:
        self.model_ = fit_table(
            frame,
            columns,
            seed=as_seed(self.random_state),
            unseen=self.unseen,
            missingness=self.missingness,
            points=self.points,
            width=self.width,
            steps=self.steps,
            settings=self.settings,
            target=target,
        )

    def _table(self, X: Any, *, reset: bool) -> Frame:
        """The data, validated as scikit-learn requires."""
        if as_narwhals(X) is not None:
            return read_frame(validate_data(self, X, reset=reset, skip_check_array=True))
        if isinstance(X, list | tuple) and np.asarray(X, dtype=object).ndim == 2:
            X = read_frame(X).native  # NumPy would turn numbers among strings into strings
        X = validate_data(self, X, reset=reset, dtype=None, ensure_all_finite="allow-nan")
        if X.dtype == object:
            with suppress(ValueError):  # strings; a cell that is neither a string nor a number raises a TypeError
                X = X.astype(np.float64)
        return read_frame(X)


class PICDensity(DensityMixin, TableEstimator):  # type: ignore[misc]
    """The joint density of the columns of a table, with missing cells integrated out exactly.

    Args:
        columns: The kinds of some columns, by name or, for arrays, by number: ``"gaussian"``, ``"student"``,
            ``"laplace"``, ``"categorical"``, ``"bernoulli"``, ``"poisson"``, ``"binomial"``, or a family. A single
            string holds for all columns. All other kinds are inferred.
        points: The number of quadrature points, by default chosen from the size of the data, like the next two.
        width: The width of the nets, an even number.
        steps: The largest number of training steps.
        settings: Other attributes of :class:`picirc.tables.Defaults`, by name.
        unseen: What to do with a category that did not occur in ``fit``: ``"error"``, or ``"missing"`` to treat it as
            missing.
        quantile: The fraction of the training rows that ``anomaly`` calls anomalous.
        random_state: The seed, or a random state of NumPy. By default, fitting twice gives the same model.
        missingness: Whether to model which cells are missing. A missing cell is then evidence on the other columns.

    Attributes:
        model_: The fitted :class:`picirc.tables.TableModel`.
        n_features_in_: The number of columns.
        feature_names_in_: Their names, if ``fit`` saw a data frame.
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
        missingness: bool = False,
    ) -> None:
        super().__init__(columns, points, width, steps, settings, unseen, random_state, missingness)
        self.quantile = quantile

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the density to a table; ``y`` is ignored."""
        if not is_number(self.quantile) or not 0 <= (quantile := float(self.quantile)) <= 1:
            raise ArgumentError("quantile", "a number from 0 to 1", self.quantile)
        frame = self._table(X, reset=True)
        self._fit_model(frame, self.columns)
        self.threshold_ = float(np.quantile(self.model_.log_density(frame), quantile))
        return self

    def score_samples(self, X: Any, given: Any = None) -> Numbers:
        """``log p(x)``, or ``log p(x | given)``, of every row, in the units of the table.

        Args:
            X: The rows; missing cells are integrated out.
            given: Evidence: a mapping from some names to values, one row, or as many rows as ``X``.
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
            random_state: Determines the draws.
            given: Evidence; these cells come back as they are.
        """
        check_is_fitted(self)
        return self.model_.sample(n_samples, given, as_seed(random_state))

    def conditional(self, given: Any) -> ConditionalDensity:
        """The density of the other columns given some values.

        Args:
            given: A mapping from some names to values, or a row with missing cells.
        """
        check_is_fitted(self)
        return ConditionalDensity(self.model_, given)

    def anomaly(self, X: Any) -> npt.NDArray[np.bool_]:
        """Whether the density of each row is below the ``quantile`` of the training rows.

        A row with missing cells has a density over fewer columns. Compare it only with rows that have the same cells
        missing.
        """
        return np.asarray(self.score_samples(X) < self.threshold_)

    def _fitted(self) -> dict[str, Any]:
        return {"threshold": getattr(self, "threshold_", 0.0)}

    def _restore(self, fitted: Mapping[str, Any]) -> None:
        super()._restore(fitted)
        self.threshold_ = take(fitted, "threshold", float)


@dataclass(frozen=True)
class ConditionalDensity:
    """The density of the columns of a table given some values.

    Attributes:
        model: The model of the table.
        given: The known values.
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


class PICImputer(TransformerMixin, TableEstimator):  # type: ignore[misc]
    """Fill the missing cells of a table from the joint density of its columns.

    Observed cells do not change. The result is a table of the kind of the input, unless ``set_output`` says otherwise.
    Columns without any value in ``fit`` are dropped, as by other imputers. Parameters not listed here are those of
    :class:`PICDensity`.

    Args:
        how: ``"mean"``: the expectation of real columns and counts given the row's other cells, and the most probable
            category of all other columns. ``"mode"``: values that are probable together (approximate). ``"sample"``: a
            draw from the joint distribution of the missing cells.
        unseen: What to do with a category that did not occur in ``fit``: ``"error"``, or ``"missing"`` to ignore it
            like a missing value, without changing its cell.
        random_state: The seed of the training, and of the draws of ``"sample"``.

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
        missingness: bool = False,
    ) -> None:
        super().__init__(columns, points, width, steps, settings, unseen, random_state, missingness)
        self.how = how

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the density that missing cells are filled from; ``y`` is ignored."""
        check_choice("how", self.how, HOW)
        self._fit_model(self._table(X, reset=True), self.columns)
        return self

    def transform(self, X: Any) -> Any:
        """The table with its missing cells filled."""
        check_is_fitted(self)
        return self._filled(self._table(X, reset=False), self.how, as_seed(self.random_state))

    def impute(self, X: Any, n_imputations: int = 5) -> list[Any]:
        """Multiple imputation: several tables, each with its own draws of the missing cells.

        Args:
            X: The table.
            n_imputations: The number of tables.
        """
        check_is_fitted(self)
        count = check_integer("n_imputations", n_imputations)
        frame = self._table(X, reset=False)
        seeds = np.random.SeedSequence(as_seed(self.random_state)).generate_state(count)
        return [self._filled(frame, "sample", int(seed)) for seed in seeds]

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """The names of the columns that are not dropped."""
        check_is_fitted(self)
        names: npt.NDArray[np.object_] = _check_feature_names_in(self, input_features)
        return names[self._kept()]

    def _kept(self) -> npt.NDArray[np.intp]:
        """The positions of the columns that are not dropped."""
        return np.flatnonzero([column.kind != EMPTY or column.left_out for column in self.model_.schema.columns])

    def _filled(self, frame: Frame, how: str, seed: int) -> Any:
        filled = self.model_.impute(frame, how, seed)
        kept = self._kept()
        if len(kept) == self.n_features_in_:
            return filled
        native = as_narwhals(filled)
        return filled[:, kept] if native is None else native[:, kept.tolist()].to_native()


class PICClassifier(ClassifierMixin, TableEstimator):  # type: ignore[misc]
    """A classifier that models the joint density of the features and the label.

    Any features may be missing, in ``fit`` and in ``predict_proba``. Labels may be missing, too: rows without one
    (None, NaN, or the value ``unlabelled``) contribute to the density of the features. Parameters not listed here are
    those of :class:`PICDensity`.

    Args:
        unlabelled: A value of ``y`` that stands for a missing label besides None and NaN, such as -1. By default -1 is
            a class like any other.

    Attributes:
        model_: The fitted :class:`picirc.tables.TableModel` of the features and the label.
        classes_: The classes.
        label_: The name of the label among the columns of the model.

    Example:
        >>> X = np.r_[np.zeros((30, 1)), np.ones((30, 1))] + np.random.default_rng(0).normal(0, 0.1, (60, 1))
        >>> y = ["no"] * 20 + [None] * 20 + ["yes"] * 20
        >>> PICClassifier(steps=50).fit(X, y).predict([[0.0], [1.0]])
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
        missingness: bool = False,
    ) -> None:
        super().__init__(columns, points, width, steps, settings, unseen, random_state, missingness)
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
            raise ArgumentError("y", "a label for each row", got, "use PICDensity if there are no labels")
        name = str(getattr(y, "name", None) or "label")
        while name in frame.names:
            name += "_"
        check_consistent_length(X, y)
        label, self.classes_ = self._labels(name, y)
        self.label_ = name
        declared = declarations(self.columns, frame.names)
        self._fit_model(frame.joined(label), {**declared, name: "categorical"}, target=name)
        return self

    def predict_proba(self, X: Any) -> Numbers:
        """``p(class | features)``, ``(rows, classes)``, with missing features integrated out."""
        check_is_fitted(self)
        return self.model_.predict(self._table(X, reset=False), self.label_)

    def predict(self, X: Any) -> Array:
        """The most probable class of each row."""
        best = self.predict_proba(X).argmax(1)
        return np.asarray(self.classes_[best])

    def _labels(self, name: str, y: Any) -> tuple[Cells, Array]:
        """The column of labels, and the classes."""
        given = column_or_1d(y, warn=True)
        known = np.array([not is_missing(label) for label in given.tolist()], dtype=bool)
        if self.unlabelled is not None:
            known &= np.array([label != self.unlabelled for label in given.tolist()], dtype=bool)
        if not known.any():
            raise ArgumentError("y", "a label for at least one row", "none", "use PICDensity to fit without labels")
        labels = np.array(given[known].tolist())  # the type of the values, not object
        if labels.dtype.kind == "f" and np.isinf(labels).any():
            raise ArgumentError("y", "finite numbers or strings as labels", "inf", "put NaN where a label is missing")
        check_classification_targets(labels)
        classes: Array = np.unique(labels)
        dtype = {"U": "text", "b": "boolean", "f": "float"}.get(classes.dtype.kind, "integer")
        values = np.full(len(given), None, dtype=object) if dtype == "text" else np.full(len(given), np.nan)
        values[known] = labels.tolist()
        return Cells(name, dtype, values, tuple(classes.tolist())), classes

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


def as_seed(random_state: Any) -> int:
    """A seed from a random state in the sense of scikit-learn."""
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        return check_integer("random_state", random_state, 0)
    return int(check_random_state(random_state).randint(2**31 - 1))


class PICSequences(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no annotations
    """A homogeneous chain with continuous latents, fitted to sequences of any lengths.

    It follows scikit-learn's conventions for parameters, cloning and search. Its data are sequences, not independent
    rows, so scikit-learn's checks for tables do not apply.

    Args:
        by: The column of a long table that identifies the sequences.
        time: The column of the times.
        columns: Declarations of some columns, as for ``pc.fit_sequences``.
        dims: The number of dimensions of the latent; by default chosen on held-out data.
        points: The number of points of the grids.
        steps: The largest number of training steps.
        settings: Other attributes of ``picirc.sequences.Settings``, by name.
        random_state: The seed.

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
