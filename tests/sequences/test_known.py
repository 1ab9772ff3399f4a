# SPDX-License-Identifier: Apache-2.0
"""Known chains: linear-Gaussian ones are a Kalman filter, others agree with dense references."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import kstest, norm, poisson
from sequence_oracles import dense_log_likelihood, kalman

import picirc as pc

A, Q, H, C, R = 0.9, 0.4, 1.5, 0.3, 0.6


def level_model(**options):
    net = pc.BayesNet()
    net.latent("z", pc.LinearGaussian(bias=0.2, std=1.0))
    net.observed("x", pc.LinearGaussian({"z": H}, bias=C, std=R))
    return pc.state_space(net, {"z": pc.LinearGaussian({"z": A}, bias=0.05, std=Q)}, **options)


def level_kalman(x):
    one = np.eye(1)
    return kalman(
        x[:, None], A * one, np.array([0.05]), Q**2 * one, H * one, np.array([C]), R**2 * one, np.array([0.2]), one
    )


def noise(n, seed=0, missing=True):
    x = 2 * np.random.default_rng(seed).normal(size=n)
    if missing:
        x[n // 3 : n // 2] = np.nan
    return x


def test_a_linear_gaussian_chain_is_a_kalman_filter_and_smoother():
    model, x = level_model(), noise(120)
    total, filtered, smoothed, ahead = level_kalman(x)
    assert model.log_prob(x)[0] == pytest.approx(total, abs=1e-8)
    for found, expected in ((model.filter(x), filtered), (model.smooth(x), smoothed)):
        np.testing.assert_allclose(found.mean[:, 0], [m[0] for m, _ in expected], atol=1e-8)
        np.testing.assert_allclose(found.std[:, 0], [math.sqrt(p[0, 0]) for _, p in expected], atol=1e-8)
    predicted = model.predict(x, quantiles=[0.1, 0.9])
    means, stds = np.array([m[0] for m, _ in ahead]), np.sqrt([v[0] for _, v in ahead])
    np.testing.assert_allclose(predicted.mean["x"], means, atol=1e-8)
    np.testing.assert_allclose(predicted.quantiles["x"][:, 1], means + norm.ppf(0.9) * stds, atol=1e-7)
    assert model.error(x)[0] < 1e-8


def test_surprises_and_probabilities_of_parts_add_up():
    model, x = level_model(), noise(50)
    assert -model.surprise(x).sum() == pytest.approx(model.log_prob(x)[0], abs=1e-10)
    np.testing.assert_allclose(
        model.log_prob([x, x[:7], x[:20]]), [model.log_prob(part)[0] for part in (x, x[:7], x[:20])], atol=1e-10
    )
    assert model.log_prob(np.full(9, np.nan))[0] == pytest.approx(0.0, abs=1e-12)


def test_a_forecast_is_what_missing_steps_would_be():
    model, x = level_model(), noise(40)
    longer = np.concatenate([x, [np.nan] * 6])
    _, filtered, _, _ = level_kalman(longer)
    found = model.forecast(x, steps=6, quantiles=[0.25, 0.75])
    np.testing.assert_allclose(found.mean["x"], [H * m[0] + C for m, _ in filtered[-6:]], atol=1e-8)
    stds = [math.sqrt(H**2 * p[0, 0] + R**2) for _, p in filtered[-6:]]
    np.testing.assert_allclose(np.ptp(found.quantiles["x"], 1), 2 * norm.ppf(0.75) * np.array(stds), atol=1e-7)
    np.testing.assert_array_equal(found.times, np.arange(40, 46))


def test_two_latents_are_a_kalman_filter_too():
    net = pc.BayesNet()
    net.latent("a", pc.LinearGaussian(std=0.7))
    net.latent("b", pc.LinearGaussian({"a": 0.5}, std=0.7))
    net.observed("x", pc.LinearGaussian({"a": 1.0, "b": -0.5}, std=0.9))
    net.observed("y", pc.LinearGaussian({"b": 1.0}, std=0.9))
    then = {
        "a": pc.LinearGaussian({"a": 0.6, "b": 0.4}, std=0.6),
        "b": pc.LinearGaussian({"a": -0.4, "b": 0.6}, std=0.6),
    }
    model = pc.state_space(net, then, rule=pc.trapezoidal(33))
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(25, 2))
    rows[rng.random((25, 2)) < 0.3] = np.nan
    cov = np.array([[0.49, 0.245], [0.245, 0.1225 + 0.49]])
    step = np.array([[0.6, 0.4], [-0.4, 0.6]])
    emission = np.array([[1.0, -0.5], [0.0, 1.0]])
    zeros = np.zeros(2)
    total, _, smoothed, _ = kalman(rows, step, zeros, 0.36 * np.eye(2), emission, zeros, 0.81 * np.eye(2), zeros, cov)
    assert model.log_prob({"x": rows[:, 0], "y": rows[:, 1]})[0] == pytest.approx(total, abs=1e-8)
    np.testing.assert_allclose(model.smooth(rows).mean, [m for m, _ in smoothed], atol=1e-8)


def ornstein_uhlenbeck():
    net = pc.BayesNet()
    net.latent("z", pc.LinearGaussian(std=1.0))
    net.observed("x", pc.LinearGaussian({"z": 1.0}, std=0.5))

    def log_density(value, z, dt):
        decay = torch.exp(-0.7 * dt)
        variance = 1 - decay**2
        return -0.5 * (value - decay * z) ** 2 / variance - 0.5 * torch.log(2 * torch.pi * variance)

    return pc.state_space(net, {"z": pc.Density(log_density, ["z", "dt"], domain=(-9, 9))})


def test_irregular_times_are_an_input_of_the_transition():
    rng = np.random.default_rng(2)
    times = np.cumsum(rng.uniform(0.2, 3.0, size=30))
    x = rng.normal(size=30)
    one, zero = np.eye(1), np.zeros(1)
    total, filtered, _, _ = kalman(
        x[:, None],
        lambda dt: math.exp(-0.7 * dt) * one,
        zero,
        lambda dt: (1 - math.exp(-1.4 * dt)) * one,
        one,
        zero,
        0.25 * one,
        zero,
        one,
        np.concatenate([[1.0], np.diff(times)]),
    )
    shuffled = rng.permutation(30)
    model, data = ornstein_uhlenbeck(), {"time": times[shuffled], "x": x[shuffled]}
    assert model.log_prob(data)[0] == pytest.approx(total, abs=1e-8)
    np.testing.assert_allclose(model.filter(data).mean[:, 0], [m[0] for m, _ in filtered], atol=1e-8)
    online = model.online()
    surprises = [online.update([value], time) for time, value in zip(times, x, strict=True)]
    assert -sum(surprises) == pytest.approx(total, abs=1e-8)


def test_a_long_step_is_several_steps_with_nothing_seen():
    model, x = level_model(), noise(12, missing=False)
    kept = np.array([0, 1, 2, 5, 6, 11])
    gappy = np.full(12, np.nan)
    gappy[kept] = x[kept]
    assert model.log_prob({"time": kept, "x": x[kept]})[0] == pytest.approx(model.log_prob(gappy)[0], abs=1e-9)


SV = (0.95, 0.3)


def volatility_model(**options):
    a, q = SV
    net = pc.BayesNet()
    net.latent("h", pc.LinearGaussian(std=q / math.sqrt(1 - a * a)))

    def log_density(value, h):
        return -0.5 * (value**2 * torch.exp(-h) + h + math.log(2 * math.pi))

    net.observed("r", pc.Density(log_density, ["h"], domain=(-40, 40)))
    return pc.state_space(net, {"h": pc.LinearGaussian({"h": a}, std=q)}, **options)


def draw_volatility(n, seed):
    a, q = SV
    rng = np.random.default_rng(seed)
    h = rng.normal() * q / math.sqrt(1 - a * a)
    found = []
    for _ in range(n):
        found.append(math.exp(h / 2) * rng.normal())
        h = a * h + q * rng.normal()
    return np.array(found)


def test_stochastic_volatility_agrees_with_a_dense_reference():
    x = draw_volatility(20, 3)
    expected = dense_log_likelihood(x, *SV, lambda v, z: norm.logpdf(v, 0, np.exp(z / 2)), n=1000)
    assert volatility_model().log_prob(x)[0] == pytest.approx(expected, abs=1e-8)
    assert volatility_model(rule=pc.trapezoidal(65)).log_prob(x)[0] == pytest.approx(expected, abs=1e-5)


def test_counts_agree_with_a_dense_reference():
    net = pc.BayesNet()
    net.latent("z", pc.LinearGaussian(std=0.5 / math.sqrt(1 - 0.64)))
    net.observed("n", pc.Conditional(pc.Poisson(), lambda z: 1.0 + z, ["z"]))
    model = pc.state_space(net, {"z": pc.LinearGaussian({"z": 0.8}, std=0.5)})
    x = np.random.default_rng(4).poisson(3.0, size=20)
    expected = dense_log_likelihood(x, 0.8, 0.5, lambda v, z: poisson.logpmf(v, np.exp(1 + z)), n=1000)
    assert model.log_prob(x)[0] == pytest.approx(expected, abs=1e-8)
    ahead = model.forecast(x, steps=1, quantiles=[0.5])
    assert ahead.quantiles["n"][0, 0] == round(ahead.quantiles["n"][0, 0])


def test_forecasts_are_calibrated():
    model = volatility_model(rule=pc.trapezoidal(65))
    shares = model.pit(draw_volatility(800, 5))[:, 0]
    assert kstest(shares, "uniform").pvalue > 0.01
    wrong = model.pit(draw_volatility(800, 5) + 0.5)[:, 0]
    assert kstest(wrong, "uniform").pvalue < 0.001


def test_samples_go_on_where_the_prefix_ends():
    model = level_model(rule=pc.trapezoidal(129))
    x = noise(15, missing=False)
    drawn = np.array([part["x"] for part in model.sample(3, n=4000, given=x, seed=1)])
    ahead = model.forecast(x, steps=3)
    np.testing.assert_allclose(drawn.mean(0), ahead.mean["x"], atol=0.1)
    inside = (drawn > ahead.quantiles["x"][:, 0]) & (drawn < ahead.quantiles["x"][:, 2])
    np.testing.assert_allclose(inside.mean(0), 0.9, atol=0.02)
    free = np.array([part["x"] for part in model.sample(2, n=4000, seed=2)])
    np.testing.assert_allclose(free.mean(0), [H * 0.2 + C, H * (A * 0.2 + 0.05) + C], atol=0.1)


SERIES = {
    "array": np.array,
    "tensor": torch.tensor,
    "series": lambda x: pd.Series(x, name="x"),
    "mapping": lambda x: {"x": x},
    "lists": lambda x: [x],
    "arrays": lambda x: [np.array(x)],
}


@pytest.mark.parametrize("kind", SERIES)
def test_a_series_may_be_of_any_kind(kind):
    model, x = level_model(), [0.1, math.nan, 0.5, 1.0]
    data = SERIES[kind](x)
    expected = model.log_prob({"x": np.array(x)})
    assert model.log_prob(data) == pytest.approx(expected)
    filled = model.impute(data)
    found = filled[0] if isinstance(filled, list) else filled["x"] if isinstance(filled, dict) else filled
    assert np.asarray(found, float).ravel()[[0, 2, 3]] == pytest.approx([0.1, 0.5, 1.0])
    assert not np.isnan(np.asarray(found, float)).any()


def test_gaps_are_filled_given_both_sides():
    model, x = level_model(rule=pc.trapezoidal(129)), noise(30)
    _, _, smoothed, _ = level_kalman(x)
    gaps = np.isnan(x)
    for how in ("mean", "median"):
        filled = model.impute(x, how=how)
        np.testing.assert_array_equal(filled[~gaps], x[~gaps])
        np.testing.assert_allclose(
            filled[gaps], [H * m[0] + C for (m, _), g in zip(smoothed, gaps, strict=True) if g], atol=1e-6
        )
    draws = np.array([model.impute(x, how="sample", seed=seed)[gaps] for seed in range(100)])
    stds = np.array([math.sqrt(H**2 * p[0, 0] + R**2) for (_, p), g in zip(smoothed, gaps, strict=True) if g])
    np.testing.assert_allclose(draws.std(0), stds, rtol=0.3)


def test_an_online_filter_agrees_with_the_filter():
    model, x = level_model(), noise(20)
    online = model.online()
    surprises = [online.update({"x": value}) for value in x]
    np.testing.assert_allclose(surprises, model.surprise(x), atol=1e-10)
    np.testing.assert_allclose(online.state.mean[0], model.filter(x).mean[-1], atol=1e-12)
    np.testing.assert_allclose(online.forecast(3).mean["x"], model.forecast(x, 3).mean["x"], atol=1e-12)


def simple_net():
    net = pc.BayesNet()
    net.latent("z", pc.LinearGaussian(std=1.0))
    net.observed("x", pc.LinearGaussian({"z": 1.0}, std=0.5))
    return net


@pytest.mark.parametrize(
    ("then", "options", "message"),
    [
        ({}, {}, "then: expected a density for each latent"),
        ({"z": pc.LinearGaussian({"w": 0.5})}, {}, "parents among the latents"),
        ({"z": pc.LinearGaussian({"z": 1.0})}, {}, "not stationary"),
        ({"z": pc.LinearGaussian({"z": 0.5})}, {"on": {"w": (0, 1)}}, "on: expected intervals of z"),
        ({"z": pc.LinearGaussian({"z": 0.5})}, {"on": {"z": (1, 0)}}, "low < high"),
        ({"z": pc.LinearGaussian({"z": 0.9}, std=0.001)}, {"on": {"z": (-5, 5)}}, "closer together"),
        ({"z": 3.0}, {}, "pc.LinearGaussian or pc.Density"),
    ],
)
def test_mistakes_are_named(then, options, message):
    with pytest.raises(pc.ArgumentError, match=message):
        pc.state_space(simple_net(), then, **options)


def test_a_random_walk_needs_an_interval():
    model = pc.state_space(simple_net(), {"z": pc.LinearGaussian({"z": 1.0}, std=0.5)}, on={"z": (-20, 20)})
    x, one, zero = np.linspace(0, 4, 20), np.eye(1), np.zeros(1)
    total, *_ = kalman(x[:, None], one, zero, 0.25 * one, one, zero, 0.25 * one, zero, one)
    assert model.log_prob(x)[0] == pytest.approx(total, abs=1e-8)


def test_a_known_model_is_not_saved(tmp_path):
    with pytest.raises(pc.ArgumentError, match="a learned model"):
        level_model().save(tmp_path / "m")
