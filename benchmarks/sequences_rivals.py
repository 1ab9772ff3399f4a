# SPDX-License-Identifier: Apache-2.0
"""What people use for sequences: each learns from one part of a series and forecasts the rest one step ahead.

A forecast is a mixture of normals for each column and the log-density of the row, so that all are scored alike.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import statsmodels.api as sm
import torch
from hmmlearn.hmm import GaussianHMM
from scipy.special import logsumexp, ndtr
from scipy.stats import multivariate_normal

import picirc as pc

Numbers = npt.NDArray[np.float64]

STATES = (2, 3, 4, 6, 8, 12)
_HELD_OUT = 0.15
_STARTS = 3


class Score(NamedTuple):
    """Nats a held-out row, continuous ranked probability score a cell, and seconds to learn."""

    nats: float
    crps: float
    seconds: float
    note: str = ""


def ours(train: Numbers, test: Numbers) -> Score:
    started = time.perf_counter()
    model = pc.fit_sequences(train)
    seconds = time.perf_counter() - started
    whole = np.concatenate([train, test])
    nats = -model.surprise(whole)[len(train) :].mean()
    weights = _predicted(model, whole)[len(train) :]
    columns = [
        crps(weights, model.columns.in_units(c, p[0, :, 0].numpy()), _scales(model, c, p[0, :, 1].numpy()), test[:, c])
        for c, (_, p) in enumerate(model.chain.inputs)
    ]
    used = model.summary["settings"]
    return Score(float(nats), float(np.mean(columns)), seconds, f"d={used['dims']}")


def _predicted(model: pc.SequenceModel, whole: Numbers) -> Numbers:
    """The weights of the states one step ahead."""
    filtered = torch.from_numpy(model.filter(whole).probabilities)
    ahead = filtered[:-1] @ model.chain.transition(torch.ones(1))[0]
    return torch.cat((model.chain.start[None], ahead)).numpy()


def _scales(model: pc.SequenceModel, column: int, values: Numbers) -> Numbers:
    return model.columns.in_units(column, values) - model.columns.in_units(column, 0 * values)


def hmm(train: Numbers, test: Numbers) -> Score:
    """Hmmlearn with full covariances; the number of states by the end of the training part."""
    started = time.perf_counter()
    cut = len(train) - max(10, int(_HELD_OUT * len(train)))

    def fitted(rows: Numbers, states: int) -> GaussianHMM:
        """The best of several starts; some collapse."""
        tries = []
        for seed in range(_STARTS):
            with suppress(ValueError):
                model = GaussianHMM(states, "full", min_covar=1e-3, n_iter=200, random_state=seed).fit(rows)
                tries.append((model.score(rows), seed, model))
        return max(tries)[2]

    scores = {}
    for states in STATES:
        with suppress(ValueError):
            model = fitted(train[:cut], states)
            scores[states] = model.score(train) - model.score(train[:cut])
    states = max(scores, key=lambda k: scores[k])
    model = fitted(train, states)
    seconds = time.perf_counter() - started
    whole = np.concatenate([train, test])
    nats = (model.score(whole) - model.score(train)) / len(test)
    weights = _hmm_ahead(model, whole)[len(train) :]
    columns = [
        crps(weights, model.means_[:, c], np.sqrt(model.covars_[:, c, c]), test[:, c]) for c in range(test.shape[1])
    ]
    return Score(float(nats), float(np.mean(columns)), seconds, f"K={states}")


def _hmm_ahead(model: GaussianHMM, rows: Numbers) -> Numbers:
    logs = np.stack(
        [multivariate_normal(m, c).logpdf(rows) for m, c in zip(model.means_, model.covars_, strict=True)], 1
    )
    state, found = model.startprob_, []
    for row in logs.reshape(len(rows), -1):
        found.append(state)
        joint = np.log(np.maximum(state, 1e-300)) + row
        state = np.exp(joint - logsumexp(joint)) @ model.transmat_
    return np.array(found)


def pomegranate(train: Numbers, test: Numbers) -> Score:
    """The same model in pomegranate, with diagonal covariances and fewer numbers of states, as it takes longer."""
    from pomegranate.distributions import Normal
    from pomegranate.hmm import DenseHMM

    started = time.perf_counter()
    cut = len(train) - max(10, int(_HELD_OUT * len(train)))

    def nats(model: DenseHMM, rows: Numbers) -> float:
        return float(model.log_probability(torch.tensor(rows[None], dtype=torch.float32))[0])

    def fitted(rows: Numbers, states: int) -> DenseHMM:
        model = DenseHMM([Normal(covariance_type="diag") for _ in range(states)], max_iter=100, random_state=0)
        return model.fit(torch.tensor(rows[None], dtype=torch.float32))

    scores = {}
    for states in STATES[::2]:
        model = fitted(train[:cut], states)
        found = nats(model, train) - nats(model, train[:cut])
        scores[states] = found if np.isfinite(found) else -np.inf
    states = max(scores, key=lambda k: scores[k])
    model = fitted(train, states)
    seconds = time.perf_counter() - started
    found = (nats(model, np.concatenate([train, test])) - nats(model, train)) / len(test)
    return Score(found, float("nan"), seconds, f"K={states}")


def linear(train: Numbers, test: Numbers) -> Score:
    """statsmodels: an ARMA by BIC in state-space form for one column, a vector autoregression for several."""
    started = time.perf_counter()
    whole = np.concatenate([train, test])
    if train.shape[1] == 1:
        fits = [sm.tsa.SARIMAX(train[:, 0], order=(p, 0, 1), trend="c").fit(disp=0) for p in (1, 2, 3, 4)]
        best = min(fits, key=lambda fit: fit.bic)
        seconds = time.perf_counter() - started
        longer = best.append(test[:, 0])
        nats = longer.llf_obs[len(train) :].mean()
        ahead = longer.get_prediction(len(train), len(whole) - 1)
        means, stds, note = ahead.predicted_mean[:, None], ahead.se_mean[:, None], f"p={best.model.order[0]}"
    else:
        best = sm.tsa.VAR(train).fit(maxlags=min(4, len(train) // (5 * train.shape[1])), ic="bic", trend="c")
        seconds, lags = time.perf_counter() - started, best.k_ar
        means = np.array([best.forecast(whole[t - lags : t], 1)[0] for t in range(len(train), len(whole))])
        if not lags:
            means = np.repeat(train.mean(0)[None], len(test), 0)
        cov = np.asarray(best.sigma_u)
        nats = multivariate_normal(np.zeros(len(cov)), cov).logpdf(test - means).mean()
        stds, note = np.broadcast_to(np.sqrt(np.diag(cov)), means.shape), f"p={lags}"
    columns = [_normal_crps(means[:, c], stds[:, c], test[:, c]) for c in range(test.shape[1])]
    return Score(float(nats), float(np.mean(columns)), seconds, note)


def crps(weights: Numbers, means: Numbers, stds: Numbers, values: Numbers) -> float:
    """The mean continuous ranked probability score of mixtures ``(T, N)`` of the same normals, in closed form."""
    pairs = _distance(means[:, None] - means[None], np.hypot(stds[:, None], stds[None]))  # (N, N)
    between = np.einsum("tn,nm,tm->t", weights, pairs, weights)
    own = (weights * _distance(values[:, None] - means, stds)).sum(1)
    return float((own - 0.5 * between).mean())


def _normal_crps(means: Numbers, stds: Numbers, values: Numbers) -> float:
    return float((_distance(values - means, stds) - stds / np.sqrt(np.pi)).mean())


def _distance(gap: Numbers, std: Numbers) -> Numbers:
    """E |X| for X normal with mean ``gap``."""
    z = gap / std
    return gap * (2 * ndtr(z) - 1) + 2 * std * np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)


METHODS: dict[str, Callable[[Numbers, Numbers], Score]] = {
    "picirc": ours,
    "hmmlearn": hmm,
    "pomegranate": pomegranate,
    "statsmodels": linear,
}


def scored(name: str, train: Numbers, test: Numbers) -> Score | str:
    """The score of a method, or why there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return METHODS[name](train, test)
        except ImportError as error:
            return f"not installed: {error}"
        except (ArithmeticError, AttributeError, IndexError, RuntimeError, ValueError) as error:
            return f"failed: {error}"
