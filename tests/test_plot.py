# SPDX-License-Identifier: Apache-2.0
"""Plots: axes in, axes out, and what is drawn is what the model says."""

from __future__ import annotations

import sys

import matplotlib as mpl
import numpy as np
import pytest
import torch

import picirc as pc

mpl.use("Agg")
import matplotlib.pyplot as plt


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 2, 80)
    columns = {
        "kind": np.array(["ash", "birch"], dtype=object)[kind],
        "length": rng.normal(10 + 3 * kind, 1.0),
        "rings": rng.poisson(4 + 3 * kind),
    }
    return pc.fit_table(columns, {"rings": "poisson"}, steps=4, points=4, width=4, settings={"members": 1}), columns


@pytest.fixture(scope="module")
def circuit():
    net = pc.BayesNet()
    net.latent("z", pc.LinearGaussian(std=1.0))
    net.observed("x", pc.LinearGaussian({"z": 0.8}, std=0.5))
    return pc.from_bayesnet(net)


def one() -> plt.Axes:
    return plt.figure().add_subplot()


def test_axes_come_back_and_new_ones_are_made(table, circuit):
    model, _ = table
    qpc = circuit.integrate(pc.trapezoidal(16))
    x = torch.tensor([[0.5], [1.0]], dtype=torch.float64)
    records = [{"step": 1.0, "train": -3.0, "valid": -4.0}, {"step": 2.0, "train": -2.0, "valid": -2.5}]
    for draw in (
        lambda ax: pc.plot.tree(model, ax=ax),
        lambda ax: pc.plot.sum_region(model.qpc, ax=ax),
        lambda ax: pc.plot.latents(qpc, x, ax=ax),
        lambda ax: pc.plot.training(records, ax=ax),
        lambda ax: pc.plot.quadrature(circuit, x, points=(4, 8), ax=ax),
    ):
        mine = one()
        assert draw(mine) is mine
        assert mine.has_data() or mine.images
        assert draw(None) is not mine


def test_marginals_are_those_of_the_model(table):
    model, columns = table
    panels = pc.plot.marginals(model, {"kind": "ash"}, columns)
    assert [panel.get_title() for panel in panels] == ["length", "rings"]
    x, y = panels[0].lines[-1].get_data()
    step, column = x[1] - x[0], model.schema["length"]
    ends = torch.full((2, 1, 3), torch.inf, dtype=torch.float64)
    ends[:, 0, 1] = (torch.tensor([x[0] - step / 2, x[-1] + step / 2]) - column.location) / column.scale
    ends[0, 0, [0, 2]] = -torch.inf
    inside = model.qpc.log_interval(*ends, given=torch.tensor([[0, torch.nan, torch.nan]]))
    assert np.sum(y) * step == pytest.approx(inside.exp().item(), abs=1e-3)
    (bars,) = pc.plot.marginals(model, columns=["kind"])
    wanted = model.predict({"kind": [None], "length": [None], "rings": [None]}, "kind")[0]
    np.testing.assert_allclose([bar.get_width() for bar in bars.patches], wanted, atol=1e-6)


def test_single_values_have_bars_of_their_probability():
    rng = np.random.default_rng(4)
    table = {"rain": np.where(rng.random(300) < 0.6, 0.0, np.exp(rng.normal(size=300)))}
    model = pc.fit_table(table, steps=2, points=4, width=4, settings={"members": 1})
    (panel,) = pc.plot.marginals(model, data=table)
    share = model.probability({"rain": pc.one_of([0.0])})
    assert panel.texts[0].get_text() == f" {share:.0%}"
    tops = [lines.get_segments()[0][1, 1] for lines in panel.collections if hasattr(lines, "get_segments")]
    np.testing.assert_allclose(tops[-2:], [np.mean(table["rain"] == 0), share])


def test_pairs_are_a_square_of_axes(table):
    model, columns = table
    panels = pc.plot.pairs(model, ["kind", "length"], columns, n=50)
    assert panels.shape == (2, 2)
    assert len(panels[1, 0].collections[0].get_offsets()) == 50  # drawn from the model
    assert len(panels[0, 1].collections[0].get_offsets()) == 80  # the data
    again = pc.plot.pairs(model, ["kind", "length"], axes=plt.figure().subplots(2, 2))
    assert again.shape == (2, 2)


def test_the_tree_names_every_column(table):
    axes = pc.plot.tree(table[0])
    assert {name for text in axes.texts for name in text.get_text().split("\n")} == {"kind", "length", "rings"}
    assert len(pc.plot.tree(pc.chain(5)).texts) == 5


def test_the_posterior_of_a_latent_is_a_density(circuit):
    axes = pc.plot.latents(circuit.integrate(pc.trapezoidal(64)), torch.tensor([0.5], dtype=torch.float64), "z")
    x, y = axes.lines[0].get_data()
    assert np.trapezoid(y, x) == pytest.approx(1.0, abs=1e-6)
    assert axes.get_xlabel() == "z"


def test_states_without_values_are_drawn_too():
    qpc = pc.HCLT(pc.chain(3), inputs=pc.Bernoulli(), states=4)()
    axes = pc.plot.latents(qpc, torch.tensor([0.0, 1.0, 1.0]))
    assert axes.get_xlabel().startswith("state of")


def test_the_error_falls_with_the_number_of_points(circuit):
    axes = pc.plot.quadrature(circuit, torch.tensor([[0.5]], dtype=torch.float64), points=(4, 64))
    assert len(axes.lines) == 6  # three rules, each with an estimate and the truth
    for line in axes.lines:
        first, last = line.get_ydata()
        assert last < first


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda model: pc.plot.tree(3), "model: expected a latent tree"),
        (lambda model: pc.plot.marginals(model, {"kind": "ash"}, columns=["kind"]), "columns without evidence"),
        (lambda model: pc.plot.marginals(model, axes=[one()]), "axes: expected 3 axes, got 1"),
        (lambda model: pc.plot.pairs(model, ["kind"]), "two columns or more"),
        (lambda model: pc.plot.sum_region(model.qpc, 10**6), "region: expected an integer"),
        (lambda model: pc.plot.training([]), "history: expected at least one record"),
    ],
)
def test_mistakes_are_named(table, ask, words):
    with pytest.raises(pc.ArgumentError) as error:
        ask(table[0])
    assert words in str(error.value)


def test_without_matplotlib_the_extra_is_named(table, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"picirc\[viz\]"):
        pc.plot.tree(table[0])
