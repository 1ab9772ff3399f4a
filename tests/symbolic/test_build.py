# SPDX-License-Identifier: Apache-2.0
"""From networks and trees to circuits: every order gives the same function, and nothing superfluous is built."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import picirc as pc
from cases import CASES, LG, lg_chain, lg_dag, mixed_columns, network
from oracles import all_orders, dense_log_prob, filtered_log_prob, observed_normal
from picirc.errors import ArgumentError


def moments(circuit: pc.Circuit) -> tuple[np.ndarray, np.ndarray]:
    exact = circuit.exact()
    return exact.mean.numpy(), exact.covariance.numpy()


def random_net(seed: int, latents: int, density: float = 0.5, scale: float = 1.0) -> pc.BayesNet:
    """A linear-Gaussian network with every variable declared at a random place."""
    rng = np.random.default_rng(seed)
    functions: dict[str, object] = {}
    for i in range(latents):
        parents = [f"z{j}" for j in range(i) if rng.random() < density]
        functions[f"z{i}"] = LG({p: scale * rng.normal() for p in parents}, rng.normal(), rng.uniform(0.3, 1.5))
    net = pc.BayesNet()
    for i in rng.permutation(latents):
        net.latent(f"z{i}", functions[f"z{i}"])  # type: ignore[arg-type]
    for j in rng.permutation(latents):
        parents = [f"z{i}" for i in rng.choice(latents, min(latents, int(rng.integers(1, 4))), replace=False)]
        net.observed(f"x{j}", LG({p: rng.normal() for p in parents}, rng.normal(), rng.uniform(0.3, 1.5)))
    return net


@pytest.mark.parametrize("seed", range(4))
def test_every_order_of_elimination_gives_the_same_function(seed):
    net = random_net(seed, latents=4)
    mean, cov = observed_normal(net)
    for order in all_orders(net):
        circuit = pc.from_bayesnet(net, order)
        assert set(circuit.latents) <= set(net.latents)
        found = moments(circuit)
        np.testing.assert_allclose(found[0], mean, atol=1e-10)
        np.testing.assert_allclose(found[1], cov, atol=1e-10)


def test_every_order_gives_the_same_quadrature():
    """With the same points, exchanging finite sums changes nothing but rounding."""
    net = network(
        {"z1": LG(), "z2": LG({"z1": 0.8}, std=0.7), "z3": LG({"z1": -0.4, "z2": 0.5}, std=0.8)},
        {"x1": LG({"z1": 1.0}, std=0.8), "x2": LG({"z3": 1.0, "z2": 0.3}, std=0.9)},
    )
    x = torch.tensor([[0.3, -1.0], [math.nan, 0.4]])
    values = [pc.from_bayesnet(net, order).integrate(pc.gauss_legendre(9)).log_prob(x) for order in all_orders(net)]
    for other in values[1:]:
        torch.testing.assert_close(other, values[0], rtol=0, atol=1e-12)


def test_orders_of_a_network_that_is_not_gaussian():
    x = np.array([[2.0, 1.0, 3.0, 0.4], [0.0, 2.0, math.nan, -1.0]])
    expected = dense_log_prob(mixed_columns(), x, {"a": (-8, 8), "b": (-8, 8)})
    for order in all_orders(mixed_columns()):
        circuit = pc.from_bayesnet(mixed_columns(), order)
        result = circuit.integrate(pc.gauss_legendre(64), sigmas=8).log_prob(torch.tensor(x))
        np.testing.assert_allclose(result, expected, atol=1e-8)


def test_children_first_gives_one_conditional_to_each_integral():
    """The circuits of the paper's Algorithm A.1."""
    circuit = pc.from_bayesnet(lg_dag(), lg_dag().children_first)
    for unit in circuit.units:
        if isinstance(unit, pc.Integral):
            assert [factor.variables for factor in unit.factors] == [unit.variables]


@pytest.mark.parametrize("order", [["z1"], ["z1", "z2", "z3", "z4", "z4"], ["z1", "z2", "z3", "w"]])
def test_an_order_has_every_latent_once(order):
    with pytest.raises(ArgumentError, match=r"order: expected each latent of the network once \(z1, z2, z3, z4\)"):
        pc.from_bayesnet(lg_dag(), order)


def barren_net() -> pc.BayesNet:
    return network(
        {
            "z1": LG(bias=0.2),
            "b1": LG({"z1": 1.0}),
            "b2": LG({"b1": 1.0, "b3": 0.5}),
            "b3": LG(),
            "z2": LG({"z1": 0.7}, std=0.5),
        },
        {"x1": LG({"z2": 1.0}, std=0.5), "x2": LG({"z1": 0.3}, std=0.9)},
    )


def test_barren_latents_are_left_out():
    assert set(pc.from_bayesnet(barren_net()).latents) == {"z1", "z2"}
    assert set(pc.from_bayesnet(barren_net(), ["b3", "z1", "b2", "z2", "b1"]).latents) == {"z1", "z2"}


@pytest.mark.parametrize("order", [None, ["b3", "b2", "z1", "b1", "z2"], ["b2", "b3", "b1", "z2", "z1"]])
def test_without_pruning_the_function_is_the_same(order):
    circuit = pc.from_bayesnet(barren_net(), order, prune=False)
    assert set(circuit.latents) == set(barren_net().latents)
    mean, cov = observed_normal(barren_net())
    found = moments(circuit)
    np.testing.assert_allclose(found[0], mean, atol=1e-10)
    np.testing.assert_allclose(found[1], cov, atol=1e-10)
    x = torch.tensor([[0.3, -1.0], [math.nan, 0.4], [math.nan, math.nan]])
    pruned = pc.from_bayesnet(barren_net()).exact().log_prob(x)
    result = circuit.integrate(pc.gauss_legendre(50), sigmas=7).log_prob(x)
    torch.testing.assert_close(result, pruned, rtol=0, atol=1e-8)


def test_a_disconnected_network_has_a_product_at_its_root():
    circuit = CASES["disconnected"].circuit
    assert isinstance(circuit.root, pc.Product)
    assert [sorted(circuit.scope(unit)) for unit in circuit.root.inputs] == [["x2"], ["x1", "x3"]]


def test_columns_follow_the_declaration():
    assert pc.from_bayesnet(random_net(3, 5)).variables == tuple(random_net(3, 5).variables)


def lg_of_tree(i: int, parent: str | None) -> pc.LinearGaussian:
    return LG({parent: 0.5 + 0.1 * (i % 5)} if parent else None, 0.1 * i, 0.6 + 0.05 * (i % 4))


def net_of_tree(tree: pc.LatentTree) -> pc.BayesNet:
    return network(
        {f"z{i}": lg_of_tree(i, f"z{p}" if p >= 0 else None) for i, p in enumerate(tree.parents)},
        {
            f"x{j}": lg_of_tree(j, f"z{i}")
            for j, i in sorted((j, i) for i, own in enumerate(tree.variables) for j in own)
        },
    )


TREES = {
    "chain": pc.chain(6),
    "random": pc.random_tree(9, seed=0),
    "several and none": pc.LatentTree((-1, 0, 0, 1, 1), ((), (2,), (0, 1, 5), (3,), (4,))),
    "one latent": pc.LatentTree((-1,), ((0, 1, 2),)),
    "parents later": pc.LatentTree((2, 0, -1), ((0,), (1,), ())),
}


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_a_tree_is_its_network(tree):
    circuit = pc.from_tree(tree, lg_of_tree, lg_of_tree)
    assert circuit.variables == tuple(f"x{j}" for j in range(tree.n_variables))
    assert set(circuit.latents) == {f"z{i}" for i in range(tree.n_latents)}
    assert circuit.properties == pc.Properties(True, True, True, True)
    mean, cov = observed_normal(net_of_tree(tree))
    found = moments(circuit)
    np.testing.assert_allclose(found[0], mean, atol=1e-10)
    np.testing.assert_allclose(found[1], cov, atol=1e-10)


@pytest.mark.parametrize(
    ("latent", "observed", "message"),
    [
        (lambda i, p: LG({"z7": 1.0}), lg_of_tree, "latent: expected a function with the parent 'z0', got parents z7"),
        (lambda i, p: LG({"z1": 1.0}), lg_of_tree, "latent: expected a function with the parent 'z0', got parents z1"),
        (lambda i, p: LG({p or "z0": 1.0}), lg_of_tree, "latent: expected a function without parents at the root"),
        (lg_of_tree, lambda j, p: LG({"x0": 1.0}), "observed: expected a function with the parent 'z0'"),
    ],
)
def test_functions_of_a_tree_hang_on_their_parents(latent, observed, message):
    with pytest.raises(ArgumentError, match=message):
        pc.from_tree(pc.chain(2), latent, observed)


def test_a_long_chain():
    """Deeper than Python recurses, against Kalman's filter."""
    n, a, q, c, r = 1100, 0.9, 0.6, 1.1, 0.8
    circuit = pc.from_tree(
        pc.chain(n),
        lambda i, parent: LG({parent: a} if parent else None, std=q),
        lambda j, parent: LG({parent: c}, std=r),
    )
    x = np.random.default_rng(0).normal(0, 1.2, (2, n))
    expected = [filtered_log_prob(a, q, c, r, row) for row in x]
    qpc = circuit.integrate(pc.trapezoidal(48))
    np.testing.assert_allclose(qpc.log_prob(torch.tensor(x)), expected, rtol=1e-9)
    assert abs(float(qpc.log_prob(torch.full((1, n), math.nan)))) < 1e-4


def test_a_chain_of_a_network_is_the_chain_of_a_tree():
    chain = pc.from_tree(
        pc.chain(5), lambda i, p: LG({p: 0.9}, 0.1, 0.6) if p else LG(), lambda j, p: LG({p: 1.1}, std=0.8)
    )
    x = CASES["lg_chain"].data()
    torch.testing.assert_close(
        chain.integrate(pc.midpoint(9)).log_prob(x),
        pc.from_bayesnet(lg_chain()).integrate(pc.midpoint(9)).log_prob(x),
        rtol=0,
        atol=1e-13,
    )
