"""What all estimators share: parameters, the check of data, fitting, saving."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator  # type: ignore[import-untyped]
from sklearn.utils import check_random_state  # type: ignore[import-untyped]
from sklearn.utils.validation import check_is_fitted, validate_data  # type: ignore[import-untyped]

from picirc.errors import ArgumentError
from picirc.inputs import Family
from picirc.io.describe import only, take
from picirc.io.files import refusing
from picirc.tables.fitting import fit_table
from picirc.tables.frames import Frame, as_narwhals, read_frame
from picirc.tables.inference import Declared
from picirc.tables.model import TableModel

_PLAIN = (bool, int, float, str, type(None))  # the values of parameters that a file keeps


class TableEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no annotations
    """A circuit of a table behind the interface of scikit-learn.

    Args:
        columns: What is known of some columns, by name or, for arrays, by number: ``"gaussian"``, ``"student"``,
            ``"laplace"``, ``"categorical"``, ``"bernoulli"``, ``"poisson"``, ``"binomial"``, or a family. One word
            alone holds for all columns. The others are inferred.
        points: The number of quadrature points; chosen from the size of the data by default, like the next two.
        width: The width of the nets, an even number.
        steps: The largest number of training steps.
        settings: Other attributes of :class:`picirc.tables.Defaults`, by name.
        unseen: What to do with a category that was not there in ``fit``: ``"error"``, or ``"missing"`` to count it as
            missing.
        random_state: Decides everything that is random. The default is a fixed number: fitting twice gives the same.

    Attributes:
        model_: The fitted :class:`picirc.tables.TableModel`.
        n_features_in_: The number of columns.
        feature_names_in_: Their names, if ``fit`` saw a data frame.
    """

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
    ) -> None:
        self.columns = columns
        self.points = points
        self.width = width
        self.steps = steps
        self.settings = settings
        self.unseen = unseen
        self.random_state = random_state

    def save(self, path: str | PathLike[str]) -> None:
        """Save the fitted estimator: a folder that ``TableModel.load`` and ``pc.load`` can read, too."""
        check_is_fitted(self)
        parameters = {name: value for name, value in self.get_params().items() if isinstance(value, _PLAIN)}
        about = {"name": type(self).__name__, "parameters": parameters, "fitted": self._fitted()}
        known = self.model_
        TableModel(known.schema, known.pic, known.points, known.summary | {"estimator": about}).save(path)

    @classmethod
    def load(cls, path: str | PathLike[str], families: tuple[type[Family], ...] = ()) -> Self:
        """Load an estimator that ``save`` wrote; this runs no code from the file.

        Parameters that are neither numbers nor texts (``columns``, ``settings``) are not kept: they are part of the
        model.

        Args:
            path: The folder or the file.
            families: The classes of families of one's own that the columns have.
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
            for name in parameters:
                if not isinstance(parameters[name], _PLAIN):
                    raise ArgumentError(name, "a number or a text", repr(parameters[name])[:80])
            found.set_params(**parameters)
            model.summary.pop("estimator")
            found.model_ = model
            found._restore(take(about, "fitted", dict))
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        # Texts are accepted; but what declares so must take any object as a cell, and that is refused here.
        tags.input_tags.string = False
        return tags

    def _fitted(self) -> dict[str, Any]:
        """What a fitted estimator has besides its model, as plain JSON values."""
        return {}

    def _restore(self, fitted: Mapping[str, Any]) -> None:
        """Take over what ``_fitted`` gave, from a file that may say anything."""
        only(fitted, set(self._fitted()), "fitted")
        self._restore_names(self.model_.schema.names)

    def _restore_names(self, names: tuple[str, ...]) -> None:
        self.n_features_in_ = len(names)
        if self.model_.schema.container != "numpy":
            self.feature_names_in_ = np.array(names, dtype=object)

    def _fit_model(self, frame: Any, columns: Declared | Mapping[Any, Declared] | None) -> None:
        self.model_ = fit_table(
            frame,
            columns,
            seed=as_seed(self.random_state),
            unseen=self.unseen,
            points=self.points,
            width=self.width,
            steps=self.steps,
            settings=self.settings,
        )

    def _table(self, X: Any, *, reset: bool) -> Frame:
        """The data, checked as scikit-learn demands it."""
        if as_narwhals(X) is not None:
            return read_frame(validate_data(self, X, reset=reset, skip_check_array=True))
        if isinstance(X, list | tuple) and np.asarray(X, dtype=object).ndim == 2:
            X = read_frame(X).native  # among texts numpy would turn numbers into texts
        X = validate_data(self, X, reset=reset, dtype=None, ensure_all_finite="allow-nan")
        if X.dtype == object:
            with suppress(ValueError):  # texts; a cell that is neither a text nor a number is a TypeError
                X = X.astype(np.float64)
        return read_frame(X)


def as_seed(random_state: Any) -> int:
    """A seed from what scikit-learn calls a random state."""
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        if random_state < 0:
            raise ArgumentError("random_state", "a whole number that is not negative", random_state)
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
