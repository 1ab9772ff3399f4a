# SPDX-License-Identifier: Apache-2.0
"""Slow and obvious twins: enumeration of paths, the Kalman filter and smoother, dense grids in log space."""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy.special import logsumexp
from scipy.stats import norm


def enumerate_paths(start, transitions, emissions):
    """The log-likelihood and the smoothed probabilities of one sequence, by the sum over all paths.

    ``transitions[t]`` leads to step t; ``emissions`` is (T, N).
    """
    steps, states = emissions.shape
    smoothed = np.zeros((steps, states))
    for path in product(range(states), repeat=steps):
        weight = start[path[0]] * emissions[0, path[0]]
        for t in range(1, steps):
            weight *= transitions[t][path[t - 1], path[t]] * emissions[t, path[t]]
        for t, state in enumerate(path):
            smoothed[t, state] += weight
    total = smoothed[0].sum()
    return np.log(total), smoothed / total


def kalman(x, a, b, q, h, c, r, mean, cov, gaps=None):
    """Filter and smoother of z' = a z + b + N(0, q), x = h z + c + N(0, r), with missing cells.

    ``a``, ``b``, ``q`` may be functions of the gap. Returns the log-likelihood, filtered and smoothed means and
    covariances, and the means and variances of x one step ahead.
    """

    def at(value, gap):
        return value(gap) if callable(value) else value

    gaps = np.ones(len(x)) if gaps is None else gaps
    total, filtered, predicted, ahead = 0.0, [], [], []
    for t, row in enumerate(x):
        if t:
            step = at(a, gaps[t])
            mean, cov = step @ mean + at(b, gaps[t]), step @ cov @ step.T + at(q, gaps[t])
        predicted.append((mean, cov))
        ahead.append((h @ mean + c, np.diag(h @ cov @ h.T + r)))
        seen = ~np.isnan(row)
        if seen.any():
            hs, rs = h[seen], r[np.ix_(seen, seen)]
            s = hs @ cov @ hs.T + rs
            error = row[seen] - hs @ mean - c[seen]
            total += -0.5 * (error @ np.linalg.solve(s, error) + np.linalg.slogdet(2 * np.pi * s)[1])
            gain = cov @ hs.T @ np.linalg.inv(s)
            mean, cov = mean + gain @ error, cov - gain @ hs @ cov
        filtered.append((mean, cov))
    smoothed = [filtered[-1]]
    for t in range(len(x) - 2, -1, -1):
        m, p = filtered[t]
        next_mean, next_cov = predicted[t + 1]
        gain = p @ at(a, gaps[t + 1]).T @ np.linalg.inv(next_cov)
        later_mean, later_cov = smoothed[0]
        smoothed.insert(0, (m + gain @ (later_mean - next_mean), p + gain @ (later_cov - next_cov) @ gain.T))
    return total, filtered, smoothed, ahead


def dense_log_likelihood(x, a, q, emission, n=4001, width=10.0):
    """A stationary AR(1) latent with any emission, by the midpoint rule on a very fine grid, in log space."""
    std = q / np.sqrt(1 - a * a)
    edges = np.linspace(-width * std, width * std, n + 1)
    z, step = (edges[1:] + edges[:-1]) / 2, edges[1] - edges[0]
    log_transition = norm.logpdf(z[None], a * z[:, None], q) + np.log(step)
    state = norm.logpdf(z, 0, std) + np.log(step) + emission(x[0], z)
    for value in x[1:]:
        top = state.max()
        state = np.log(np.exp(state - top) @ np.exp(log_transition)) + top + emission(value, z)
    return logsumexp(state)
