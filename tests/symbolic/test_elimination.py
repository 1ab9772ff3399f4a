"""The default order of elimination against all orders."""

from __future__ import annotations

import numpy as np
import pytest
from cases import LG, network
from oracles import all_orders

import picirc as pc
from picirc.symbolic.elimination import default_order, widths


def random_dag(seed: int, latents: int, density: float) -> pc.BayesNet:
    rng = np.random.default_rng(seed)
    names = [f"z{i}" for i in rng.permutation(latents)]
    chosen = {name: [p for p in names[:i] if rng.random() < density] for i, name in enumerate(names)}
    observed = {f"x{i}": rng.choice(names, min(latents, int(rng.integers(1, 3))), replace=False) for i in range(latents)}
    return network(
        {name: LG(dict.fromkeys(chosen[name], 1.0)) for name in sorted(names)},
        {name: LG(dict.fromkeys(map(str, parents), 1.0)) for name, parents in observed.items()},
    )


def largest(net: pc.BayesNet, order: tuple[str, ...] | None) -> int:
    return pc.from_bayesnet(net, order).cost(range(10)).largest


@pytest.mark.parametrize("density", [0.2, 0.5])
@pytest.mark.parametrize("latents", [3, 4, 5])
def test_the_default_order_is_the_best(latents, density):
    for seed in range(6):
        net = random_dag(seed, latents, density)
        assert largest(net, None) == min(largest(net, order) for order in all_orders(net))


@pytest.mark.parametrize("seed", range(4))
def test_the_default_order_is_the_best_of_six(seed):
    net = random_dag(100 + seed, 6, 0.35)
    assert largest(net, None) == min(largest(net, order) for order in all_orders(net))


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
    assert largest(net, ("hub", *causes, *effects)) == 10**7 * 10**6 // 10  # twelve others at once


def test_children_before_parents_win_ties():
    net = network({"a": LG(), "b": LG({"a": 1.0}), "c": LG({"b": 1.0})}, {"x": LG({"c": 1.0})})
    circuit = pc.from_bayesnet(net)
    assert circuit.latents == net.children_first == ("c", "b", "a")


def test_widths_count_what_stands_together():
    cliques = [frozenset("ab"), frozenset("bc"), frozenset("cd")]
    assert widths("abcd", cliques) == [2, 2, 2, 1]
    assert widths("bacd", cliques) == [3, 2, 2, 1]
    assert default_order("abcd", cliques, "abcd") == tuple("abcd")


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
