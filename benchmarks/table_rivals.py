"""What a model of a table is compared with: densities, and ways to fill in missing values."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401  # makes the next import possible
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KernelDensity

Numbers = npt.NDArray[np.float64]

COMPONENTS = range(1, 11)
COVARIANCES = ("full", "tied", "diag")
BANDWIDTHS = np.geomspace(0.05, 1.5, 18)
RIDGE = 1e-4  # added to variances of standardised columns, so that no density has a spike


def gaussian_mixture(train: Numbers, test: Numbers) -> float:
    """The mixture of Gaussians with the lowest BIC among all shapes of covariances and numbers of components."""
    best, least = None, np.inf
    for shape in COVARIANCES:
        for components in COMPONENTS:
            model = GaussianMixture(components, covariance_type=shape, reg_covar=RIDGE, max_iter=300, random_state=0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                score = model.fit(train).bic(train)
            if score < least:
                best, least = model, score
    assert best is not None
    return float(best.score(test))


def kernel_density(train: Numbers, test: Numbers) -> float:
    """A Gaussian kernel with the bandwidth that is best in five-fold cross-validation."""
    search = GridSearchCV(KernelDensity(), {"bandwidth": BANDWIDTHS}, cv=5).fit(train)
    return float(search.best_estimator_.score_samples(test).mean())


def chow_liu(train: pd.DataFrame, test: pd.DataFrame) -> float:
    """A Chow–Liu tree with exact conditionals: tables, Gaussians for each category, and linear regressions.

    Categories come first: their tree is the maximum spanning tree of the mutual information. Quantities are then
    attached one after the other to the column of the tree that tells most about them. Without categories this is the
    Chow–Liu tree of a Gaussian; with them no quantity is the parent of a category, whose conditional would not be one
    of the three kinds.
    """
    open_ones = sorted(train.columns, key=lambda name: _is_real(train[name]))
    placed, total = [open_ones.pop(0)], np.zeros(len(test))
    total += _conditional(train, test, placed[0], None)
    while open_ones:
        kind = _is_real(train[open_ones[0]])
        candidates = [name for name in open_ones if _is_real(train[name]) == kind]
        _, child, parent = max(
            (_information(train, child, parent), child, parent) for child in candidates for parent in placed
        )
        total += _conditional(train, test, child, parent)
        open_ones.remove(child)
        placed.append(child)
    return float(total.mean())


def _is_real(column: pd.Series) -> bool:
    return pd.api.types.is_float_dtype(column)


def _information(train: pd.DataFrame, child: str, parent: str) -> float:
    """What a parent adds to the mean log-density of a child, on the data that both are fitted to."""
    given, alone = (_conditional(train, train, child, name) for name in (parent, None))
    return float((given - alone).mean())


def _conditional(train: pd.DataFrame, test: pd.DataFrame, child: str, parent: str | None) -> Numbers:
    """``log p(child | parent)`` of each row, fitted to the training rows."""
    real = _is_real(train[child])
    if parent is None:
        return _normal(train[child], test[child]) if real else _frequencies(train[child], test[child])
    if _is_real(train[parent]):
        slope, offset = np.polyfit(train[parent], train[child], 1)
        residuals = (frame[child] - slope * frame[parent] - offset for frame in (train, test))
        return _normal(*residuals)
    found = np.empty(len(test))
    fit = _normal if real else _frequencies
    for value in test[parent].unique():
        some, rows = train[child][train[parent] == value], (test[parent] == value).to_numpy()
        # A category with a row or none says nothing about a Gaussian.
        enough = some if len(some) > 1 or not real else train[child]
        found[rows] = fit(enough, test[child][rows], *([] if real else [train[child].unique()]))
    return found


def _normal(train: pd.Series, test: pd.Series) -> Numbers:
    variance = train.var(ddof=0) + RIDGE
    found = -0.5 * ((test - train.mean()) ** 2 / variance + np.log(2 * np.pi * variance))
    return np.asarray(found, np.float64)


def _frequencies(train: pd.Series, test: pd.Series, categories: npt.ArrayLike | None = None) -> Numbers:
    known = train.unique() if categories is None else np.asarray(categories)
    counts = train.value_counts().reindex(known, fill_value=0) + 1.0
    return np.log(test.map(counts / counts.sum()).to_numpy(np.float64))


DENSITIES: Mapping[str, Callable[[Numbers, Numbers], float]] = {
    "mixture": gaussian_mixture,
    "kernel": kernel_density,
}

IMPUTERS = {
    "mean": SimpleImputer,
    "neighbours": KNNImputer,
    "iterative": lambda: IterativeImputer(max_iter=50, random_state=0),
}


def impute(name: str, table: pd.DataFrame) -> pd.DataFrame:
    """Fill the missing cells of a table whose quantities are standardised.

    Categories become indicators, one a category; the largest of the filled indicators decides. For ``"mean"`` that is
    the most frequent category.
    """
    real = [column for column in table if _is_real(table[column])]
    coded = [column for column in table if column not in real]
    blocks = {column: pd.get_dummies(table[column], dtype=float) for column in coded}
    for column, block in blocks.items():
        block[table[column].isna()] = np.nan
    whole = np.hstack([table[real].to_numpy(np.float64), *(block.to_numpy() for block in blocks.values())])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        filled = IMPUTERS[name]().fit_transform(whole)
    found = pd.DataFrame(filled[:, : len(real)], columns=real, index=table.index)
    place = len(real)
    for column, block in blocks.items():
        best = filled[:, place : place + block.shape[1]].argmax(1)
        found[column] = block.columns.to_numpy()[best]
        place += block.shape[1]
    return found[list(table)]
