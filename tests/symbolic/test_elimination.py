# SPDX-License-Identifier: Apache-2.0
"""The default order of elimination against all orders."""

from __future__ import annotations

import numpy as np
import pytest

import picirc as pc
from cases import LG, network
from oracles import all_orders
from picirc.symbolic.build import default_order, widths


def random_dag(seed: int, latents: int, density: float) -> pc.BayesNet:
    rng = np.random.default_rng(seed)
    names = [f"z{i}" for i in rng.permutation(latents)]
    chosen = {name: [p for p in names[:i] if rng.random() < density] for i, name in enumerate(names)}
    observed = {
        f"x{i}": rng.choice(names, min(latents, int(rng.integers(1, 3))), replace=False) for i in range(latents)
    }
    return network(
        {name: LG(dict.fromkeys(chosen[name], 1.0)) for name in sorted(names)},
        {name: LG(dict.fromkeys(map(str, parents), 1.0)) for name, parents in observed.items()},
    )


def largest(net: pc.BayesNet, order: tuple[str, ...] | None) -> int:
    return pc.from_bayesnet(net, order).cost(range(10)).largest


@pytest.mark.parametrize("density", [0.2, 0.35, 0.5])
@pytest.mark.parametrize(("latents", "nets"), [(3, 8), (4, 8), (5, 8), (6, 2)])
def test_the_default_order_is_hardly_ever_worse_than_the_best(latents, nets, density):
    """Never by more than one axis, and for most networks not at all."""
    worse = 0
    for seed in range(nets):
        net = random_dag(seed, latents, density)
        best = min(largest(net, order) for order in all_orders(net))
        assert largest(net, None) <= 10 * best
        worse += largest(net, None) > best
    assert worse <= nets / 6


def test_a_tree_is_never_wider_than_two():
    rng = np.random.default_rng(0)
    parents = {f"z{i}": f"z{rng.integers(i)}" for i in range(1, 60)}
    latents = {"z0": LG()} | {z: LG({p: 1.0}) for z, p in parents.items()}
    net = network(latents, {f"x{i}": LG({f"z{i}": 1.0}) for i in range(60)})
    assert largest(net, None) == 100


def test_a_star_of_causes_is_eliminated_from_its_points():
    """With the common child first, the function would depend on all causes at once."""
    causes = {f"c{i}": LG() for i in range(6)}
    effects = {f"e{i}": LG({f"c{i}": 1.0, "hub": 1.0}) for i in range(6)}
    net = network({"hub": LG()} | causes | effects, {f"x{i}": LG({f"e{i}": 1.0}) for i in range(6)})
    assert largest(net, None) == 1000
    assert largest(net, ("hub", *causes, *effects)) == 10**13


def test_children_before_parents_win_ties():
    net = network({"a": LG(), "b": LG({"a": 1.0}), "c": LG({"b": 1.0})}, {"x": LG({"c": 1.0})})
    circuit = pc.from_bayesnet(net)
    assert circuit.latents == net.children_first == ("c", "b", "a")


@pytest.mark.parametrize("seed", range(4))
def test_widths_are_those_of_the_tensors(seed):
    net = random_dag(seed, 4, 0.5)
    densities = [frozenset((name, *function.parents)) for name, function in net.latents.items()]
    inputs = [frozenset(function.parents) for function in net.variables.values()]
    for order in all_orders(net):
        circuit = pc.from_bayesnet(net, order, prune=False)
        assert 10 ** max(widths(order, densities, inputs)) == circuit.cost(range(10)).largest


def test_widths_of_a_chain():
    densities = [frozenset("a"), frozenset("ab"), frozenset("bc"), frozenset("cd")]
    inputs = [frozenset("d")]
    assert widths("dcba", densities, inputs) == [2, 2, 2, 1]
    assert widths("bacd", densities, inputs) == [3, 2, 2, 1]
    assert default_order("abcd", densities, inputs, "dcba") == tuple("dcba")


def test_a_wide_network_is_ordered_quickly():
    """A grid of 12 by 12 latents: the order is found without a search over all."""
    side = 12
    latents = {}
    for i in range(side):
        for j in range(side):
            above = [f"z{i - 1}_{j}"] if i else []
            left = [f"z{i}_{j - 1}"] if j else []
            latents[f"z{i}_{j}"] = LG(dict.fromkeys(above + left, 0.4))
    net = network(latents, {f"x{name}": LG({name: 1.0}) for name in latents})
    assert largest(net, None) <= 10 ** (side + 3)
