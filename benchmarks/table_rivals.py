# SPDX-License-Identifier: Apache-2.0
"""What a model of a table is compared with.

Tables are data frames of floats (quantities) and strings (categories).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import logsumexp
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.experimental import enable_iterative_imputer  # noqa: F401  # makes the next import possible
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

Numbers = npt.NDArray[np.float64]
Frame = pd.DataFrame
Drawn = tuple[Frame, int]  # rows, and the number of parameters

COMPONENTS = (1, 2, 3, 4, 6, 8, 12, 16)
BANDWIDTHS = np.geomspace(0.05, 1.5, 12)
RIDGE = 1e-4  # added to variances of standardised columns, so that no density has a spike
FLOW_STEPS, FLOW_BATCH = 3000, 256
FOREST_ROUNDS, TREES = 5, 100


def reals(frame: Frame) -> list[str]:
    """The columns of quantities."""
    return list(frame.select_dtypes("float"))


def categories(frame: Frame) -> list[str]:
    """The other columns."""
    return [column for column in frame if column not in reals(frame)]


def _codes(train: Frame, test: Frame) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], list[int]]:
    """Codes of the categories, with the last one for those that do not occur in the training rows."""
    names = categories(train)
    levels = [sorted(train[name].unique()) for name in names]
    parts = [
        np.column_stack([pd.Categorical(f[n], known).codes for n, known in zip(names, levels, strict=True)])
        if names
        else np.zeros((len(f), 0), int)
        for f in (train, test)
    ]
    sizes = [len(known) + 1 for known in levels]
    return *(np.where(part < 0, np.array(sizes, int) - 1, part) for part in parts), sizes  # type: ignore[return-value]


class _Mixture:
    """Full-covariance Gaussians times independent categories in each component, by EM."""

    def __init__(self, components: int, x: Numbers, codes: npt.NDArray[np.intp], sizes: list[int]) -> None:
        source = np.random.default_rng(0)
        self.hot = [np.eye(size)[codes[:, j]] for j, size in enumerate(sizes)]
        owners = _nearest(np.hstack([x, *self.hot]), components, source)
        self._maximise(x, np.eye(components)[owners])
        last = -np.inf
        for _ in range(200):
            logs = self._joint(x, codes)
            total = logsumexp(logs, 1, keepdims=True)
            self._maximise(x, np.exp(logs - total))
            if total.mean() - last < 1e-5:
                break
            last = total.mean()
        shape = x.shape[1] * (x.shape[1] + 3) / 2 + sum(size - 1 for size in sizes) + 1
        self.bic = -2 * total.sum() + components * shape * np.log(len(x))

    def _maximise(self, x: Numbers, shares: Numbers) -> None:
        weight = shares.sum(0) + 1e-9
        self.weight = weight / weight.sum()
        self.mean = shares.T @ x / weight[:, None]
        self.factor = []
        for k in range(len(weight)):
            y = x - self.mean[k]
            cov = (shares[:, k, None] * y).T @ y / weight[k] + RIDGE * np.eye(x.shape[1])
            self.factor.append(np.linalg.cholesky(cov) if x.shape[1] else cov)
        self.tables = [(shares.T @ hot + 1 / hot.shape[1]) for hot in self.hot]
        self.tables = [np.log(table / table.sum(1, keepdims=True)) for table in self.tables]

    def _joint(self, x: Numbers, codes: npt.NDArray[np.intp]) -> Numbers:
        found = np.tile(np.log(self.weight), (len(x), 1))
        for k in range(len(self.weight)):
            if x.shape[1]:
                z = np.linalg.solve(self.factor[k], (x - self.mean[k]).T)
                found[:, k] -= 0.5 * (z**2).sum(0) + np.log(np.diag(self.factor[k])).sum()
                found[:, k] -= 0.5 * x.shape[1] * np.log(2 * np.pi)
            found[:, k] += sum(table[k][codes[:, j]] for j, table in enumerate(self.tables))
        return found

    def score(self, x: Numbers, codes: npt.NDArray[np.intp]) -> float:
        return float(logsumexp(self._joint(x, codes), 1).mean())


def _nearest(rows: Numbers, count: int, source: np.random.Generator) -> npt.NDArray[np.intp]:
    from sklearn.cluster import KMeans

    seed = int(source.integers(2**31))
    return KMeans(count, n_init=1, random_state=seed).fit_predict(rows)


def gaussian_mixture(train: Frame, test: Frame) -> float:
    """The mixture with the lowest BIC."""
    a, b, sizes = _codes(train, test)
    x, y = (frame[reals(train)].to_numpy(np.float64) for frame in (train, test))
    found = [_Mixture(components, x, a, sizes) for components in COMPONENTS if 10 * components <= len(x)]
    return min(found, key=lambda model: model.bic).score(y, b)


def kernel_density(train: Frame, test: Frame) -> float:
    """Gaussian kernels times kernels that leave a category with a fixed probability; chosen on a fifth of the rows."""
    train = train.sample(min(len(train), 10_000), random_state=0)
    cut = len(train) // 5
    best = max(
        ((width, leave) for width in BANDWIDTHS for leave in (0.02, 0.1, 0.3)),
        key=lambda pair: _kernels(train[cut:], train[:cut][:500], *pair),
    )
    return _kernels(train, test, *best)


def _kernels(train: Frame, test: Frame, width: float, leave: float) -> float:
    a, b, sizes = _codes(train, test)
    x, y = (frame[reals(train)].to_numpy(np.float64) for frame in (train, test))
    constant = -len(reals(train)) * (np.log(width) + 0.5 * np.log(2 * np.pi)) - np.log(len(x))
    total = 0.0
    for start in range(0, len(y), 200):
        some, codes = y[start : start + 200], b[start : start + 200]
        logs = -0.5 * ((some[:, None] - x) ** 2).sum(2) / width**2 if x.shape[1] else np.zeros((len(some), len(x)))
        for j, size in enumerate(sizes):
            same = codes[:, j, None] == a[:, j]
            logs += np.where(same, np.log(1 - leave), np.log(leave / max(1, size - 1)))
        total += logsumexp(logs, 1).sum()
    return float(total / len(y) + constant)


def flow(train: Frame, test: Frame) -> float:
    """A neural spline flow of the quantities given the categories, times the Chow–Liu tree of the categories."""
    import torch
    import zuko

    total = chow_liu(train[categories(train)], test[categories(train)]) if categories(train) else 0.0
    if not reals(train):
        return total
    a, b, sizes = _codes(train, test)
    context = [
        np.hstack([np.zeros((len(codes), 0)), *(np.eye(size)[codes[:, j]] for j, size in enumerate(sizes))])
        for codes in (a, b)
    ]
    x, y, c, d = (
        torch.tensor(part, dtype=torch.float32)
        for part in (train[reals(train)].to_numpy(), test[reals(train)].to_numpy(), *context)
    )
    torch.manual_seed(0)
    model = zuko.flows.NSF(x.shape[1], c.shape[1], transforms=3, hidden_features=(64, 64))
    solver = torch.optim.Adam(model.parameters(), 1e-3)
    held = max(20, len(x) // 10)
    best, state = -np.inf, None
    for step in range(FLOW_STEPS):
        rows = torch.randint(held, len(x), (FLOW_BATCH,))
        loss = -model(c[rows]).log_prob(x[rows]).mean()
        solver.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        solver.step()
        if step % 100 == 99:
            with torch.no_grad():
                score = float(model(c[:held]).log_prob(x[:held]).mean())
            if score > best:
                best, state, since = score, {k: v.clone() for k, v in model.state_dict().items()}, step
            elif step - since >= 500:
                break
    assert state is not None
    model.load_state_dict(state)
    with torch.no_grad():
        return total + float(model(d).log_prob(y).mean())


def chow_liu(train: Frame, test: Frame) -> float:
    """A Chow–Liu tree with exact conditionals: tables, Gaussians for each category, and linear regressions.

    Categories come first: their tree is the maximum spanning tree of the mutual information. Quantities are then
    attached one after the other to the column of the tree that tells most about them. Without categories this is the
    Chow–Liu tree of a Gaussian; with them no quantity is the parent of a category, whose conditional would not be one
    of the three kinds.
    """
    open_ones = [*categories(train), *reals(train)]
    placed, total = [open_ones.pop(0)], np.zeros(len(test))
    total += _conditional(train, test, placed[0], None)
    gains: dict[tuple[str, str], float] = {}
    while open_ones:
        kind = _is_real(train[open_ones[0]])
        candidates = [name for name in open_ones if _is_real(train[name]) == kind]
        for child in candidates:
            if (child, placed[-1]) not in gains:
                gains.update({(child, parent): _information(train, child, parent) for parent in placed})
        child, parent = max(((c, p) for c in candidates for p in placed), key=lambda pair: gains[pair])
        total += _conditional(train, test, child, parent)
        open_ones.remove(child)
        placed.append(child)
    return float(total.mean())


def _is_real(column: pd.Series) -> bool:
    return pd.api.types.is_float_dtype(column)


def _information(train: Frame, child: str, parent: str) -> float:
    """What a parent adds to the mean log-density of a child, on the data that both are fitted to."""
    given, alone = (_conditional(train, train, child, name) for name in (parent, None))
    return float((given - alone).mean())


def _conditional(train: Frame, test: Frame, child: str, parent: str | None) -> Numbers:
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


def _frequencies(train: pd.Series, test: pd.Series, known: npt.ArrayLike | None = None) -> Numbers:
    every = np.asarray(train.unique() if known is None else known)
    counts = train.value_counts().reindex(every, fill_value=0) + 1.0
    # A category that never occurred has half a row.
    return np.log(test.map(counts / counts.sum()).fillna(0.5 / counts.sum()).to_numpy(np.float64))


DENSITIES: Mapping[str, Callable[[Frame, Frame], float]] = {
    "mixture": gaussian_mixture,
    "Chow–Liu": chow_liu,
    "kernel": kernel_density,
    "flow": flow,
}


def miss_forest(table: Frame) -> Frame:
    """Chained forests: every column is filled from all others, in rounds."""
    gone, filled = table.isna(), table.copy()
    for column in table:
        usual = table[column].mean() if _is_real(table[column]) else table[column].mode().iloc[0]
        filled[column] = table[column].fillna(usual)
    order = gone.sum().sort_values().index
    for _ in range(FOREST_ROUNDS):
        for column in order[gone[order].any()]:
            rows = gone[column].to_numpy()
            others = pd.get_dummies(filled.drop(columns=column), dtype=float)
            kind = RandomForestRegressor if _is_real(table[column]) else RandomForestClassifier
            forest = kind(TREES, random_state=0, max_features="sqrt", max_samples=min(1.0, 10_000 / len(table)))
            forest.fit(others[~rows], filled[column][~rows])
            filled.loc[rows, column] = forest.predict(others[rows])
    return filled


def mice_forest(table: Frame) -> Frame:
    """Chained boosted trees with predictive mean matching."""
    import miceforest

    coded = table.astype(dict.fromkeys(categories(table), "category"))
    kernel = miceforest.ImputationKernel(coded, num_datasets=1, random_state=0, mean_match_strategy="fast")
    kernel.mice(4, verbose=False)
    found = kernel.complete_data(0)
    return found.astype(dict.fromkeys(categories(table), object))


def by_indicators(imputer: Any) -> Callable[[Frame], Frame]:
    """Fill a table with an imputer of numbers: categories become indicators, the largest of which decides."""

    def fill(table: Frame) -> Frame:
        blocks = {column: pd.get_dummies(table[column], dtype=float) for column in categories(table)}
        for column, block in blocks.items():
            block[table[column].isna()] = np.nan
        whole = np.hstack([table[reals(table)].to_numpy(np.float64), *(block.to_numpy() for block in blocks.values())])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            filled = imputer().fit_transform(whole)
        found = pd.DataFrame(filled[:, : len(reals(table))], columns=reals(table), index=table.index)
        place = len(reals(table))
        for column, block in blocks.items():
            found[column] = block.columns.to_numpy()[filled[:, place : place + block.shape[1]].argmax(1)]
            place += block.shape[1]
        return found[list(table)]

    return fill


IMPUTERS: Mapping[str, Callable[[Frame], Frame]] = {
    "mean": by_indicators(SimpleImputer),
    "neighbours": by_indicators(KNNImputer),
    "iterative": by_indicators(lambda: IterativeImputer(max_iter=20, random_state=0)),
    "MissForest": miss_forest,
    "miceforest": mice_forest,
}


def _encoded(model: Any, fill: bool) -> Any:
    """A classifier of mixed features, with missing ones filled first if it cannot have them."""

    def columns(wanted: str) -> Any:
        return lambda frame: reals(frame) if wanted == "reals" else categories(frame)

    numbers = [SimpleImputer(), StandardScaler()] if fill else ["passthrough"]
    unknown: Any = (
        OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        if fill
        else OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan, encoded_missing_value=np.nan)
    )
    prepared = ColumnTransformer([("n", make_pipeline(*numbers), columns("reals")), ("c", unknown, columns("rest"))])
    return make_pipeline(prepared, model)


CLASSIFIERS: Mapping[str, Callable[[], Any]] = {
    "boosting": lambda: _encoded(HistGradientBoostingClassifier(random_state=0), fill=False),
    "forest": lambda: _encoded(RandomForestClassifier(300, random_state=0), fill=True),
    "logistic": lambda: _encoded(LogisticRegression(max_iter=2000), fill=True),
}


def forest_rows(train: Frame, count: int) -> Drawn:
    """Rows of an adversarial random forest, whose leaves have a mean, a spread or a table for every column."""
    from arfpy import arf

    vars(np).setdefault("in1d", np.isin)  # which arfpy calls, and NumPy 2.4 no longer has
    coded = train.astype(dict.fromkeys(categories(train), "category"))
    model = arf.arf(x=coded, verbose=False, random_state=0)
    model.forde()
    leaves = sum(int(tree.get_n_leaves()) for tree in model.clf.estimators_)
    sizes = sum(2 if _is_real(train[column]) else train[column].nunique() - 1 for column in train)
    return model.forge(n=count).astype(dict.fromkeys(categories(train), object)), leaves * sizes


def copula_rows(train: Frame, count: int) -> Drawn:
    """Rows of a Gaussian copula; categories are cut from the quantiles of a uniform number.

    Its parameters are the values of the table and the correlations.
    """
    from scipy import stats

    source = np.random.default_rng(0)
    scores = np.column_stack([stats.norm.ppf(_ranks(train[column], source)) for column in train])
    drawn = source.multivariate_normal(np.zeros(len(train.columns)), np.corrcoef(scores.T), count)
    found = {}
    for place, column in enumerate(train):
        ordered = (
            np.sort(train[column].to_numpy()) if _is_real(train[column]) else train[column].sort_values().to_numpy()
        )
        found[column] = ordered[(stats.norm.cdf(drawn[:, place]) * len(ordered)).astype(int).clip(0, len(ordered) - 1)]
    return pd.DataFrame(found), train.size + scores.shape[1] * (scores.shape[1] - 1) // 2


def autoencoder_rows(train: Frame, count: int) -> Drawn:
    """Rows of a variational autoencoder, with the settings of its authors."""
    import torch
    from ctgan import TVAE

    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002, which the package draws from
    model = TVAE(enable_gpu=False)
    model.fit(train, categories(train))
    # The package keeps the decoder only; the encoder has as many parameters but for the width of its ends.
    return model.sample(count), 2 * sum(part.numel() for part in model.decoder.parameters())


def _ranks(column: pd.Series, source: np.random.Generator) -> Numbers:
    order = np.lexsort((source.random(len(column)), column.to_numpy()))
    found = np.empty(len(column))
    found[order] = (np.arange(len(column)) + 0.5) / len(column)
    return found


SYNTHESISERS: Mapping[str, Callable[[Frame, int], Drawn]] = {
    "ARF": forest_rows,
    "copula": copula_rows,
    "TVAE": autoencoder_rows,
}
