# SPDX-License-Identifier: Apache-2.0
"""Networks written by hand: what is accepted, and an error that names the offender for what is not."""

from __future__ import annotations

import numpy as np
import pytest

import picirc as pc
from cases import LG, network
from picirc.errors import ArgumentError


def test_variables_keep_the_order_in_which_they_were_added():
    net = network({"b": LG(), "a": LG({"b": 1.0})}, {"y": LG({"a": 1.0}), "x": LG({"b": 1.0})})
    assert tuple(net.latents) == ("b", "a")
    assert tuple(net.variables) == ("y", "x")
    assert repr(net) == "BayesNet(latents: b, a; observed: y, x)"


def test_a_child_may_be_added_before_its_parent():
    net = network({"child": LG({"parent": 1.0}), "parent": LG()}, {"x": LG({"child": 1.0})})
    net.check()
    assert net.children_first == ("child", "parent")


@pytest.mark.parametrize("seed", range(5))
def test_children_come_first(seed):
    rng = np.random.default_rng(seed)
    names = [f"z{i}" for i in rng.permutation(8)]
    net = pc.BayesNet()
    for i in rng.permutation(8):
        parents = [name for name in names[:i] if rng.random() < 0.4]
        net.latent(names[i], LG(dict.fromkeys(parents, 0.5)))
    net.observed("x", LG({names[0]: 1.0}))
    order = net.children_first
    assert sorted(order) == sorted(names)
    for name, function in net.latents.items():
        for parent in function.parents:
            assert order.index(name) < order.index(parent)


def test_what_comes_out_is_a_copy():
    net = network({"z": LG()}, {"x": LG({"z": 1.0})})
    net.latents.clear()  # type: ignore[attr-defined]
    net.variables.clear()  # type: ignore[attr-defined]
    assert (*net.latents, *net.variables) == ("z", "x")


@pytest.mark.parametrize(
    ("latents", "names"),
    [
        ({"a": LG({"a": 1.0})}, "a → a"),
        ({"a": LG({"b": 1.0}), "b": LG({"a": 1.0})}, "a → b → a"),
        ({"r": LG(), "a": LG({"c": 1.0, "r": 1.0}), "b": LG({"a": 1.0}), "c": LG({"b": 1.0})}, "a → b → c → a"),
    ],
)
def test_a_cycle_is_spelled_out(latents, names):
    net = network(latents, {"x": LG({"a": 1.0})})
    with pytest.raises(ArgumentError, match=f"acyclic graph, got the cycle {names}"):
        net.check()
    with pytest.raises(ArgumentError, match=names):
        pc.from_bayesnet(net)


@pytest.mark.parametrize(
    "net",
    [
        network({"z": LG()}, {"x": LG({"zz": 1.0})}),
        network({"z": LG({"zz": 1.0})}, {"x": LG({"z": 1.0})}),
    ],
    ids=["of an observed variable", "of a latent"],
)
def test_an_unknown_parent_is_named(net):
    child = "'x'" if "zz" in net.variables["x"].parents else "'z'"
    with pytest.raises(ArgumentError, match=f"every parent of {child}.*unknown name 'zz'.*latents so far: z"):
        net.check()


def test_the_observed_parent_of_a_latent_is_refused():
    net = network({"z": LG()}, {"x": LG({"z": 1.0})})
    net.latent("w", LG({"x": 1.0}))
    with pytest.raises(
        ArgumentError, match=r"'w' to have latent parents only, got the observed parent 'x'.*weights of a circuit"
    ):
        net.check()


def test_a_cycle_of_observed_variables_is_named():
    net = network({}, {"x": LG({"y": 1.0}), "y": LG({"x": 1.0})})
    with pytest.raises(ArgumentError, match="the cycle x → y → x"):
        net.check()


@pytest.mark.parametrize("first", ["latent", "observed"])
@pytest.mark.parametrize("second", ["latent", "observed"])
def test_a_duplicate_name_is_refused_at_once(first, second):
    net = pc.BayesNet()
    getattr(net, first)("twin", LG())
    with pytest.raises(ArgumentError, match=r"name: expected a name not yet in the network, got twin"):
        getattr(net, second)("twin", LG())
    assert [*net.latents, *net.variables] == ["twin"]


@pytest.mark.parametrize("name", ["", 3, None])
def test_a_name_is_a_non_empty_string(name):
    with pytest.raises(ArgumentError, match="name: expected a non-empty string"):
        pc.BayesNet().latent(name, LG())


@pytest.mark.parametrize("function", [3.0, None, "normal"])
def test_a_function_has_parents(function):
    with pytest.raises(ArgumentError, match="function: expected a conditional density"):
        pc.BayesNet().observed("x", function)


def test_a_network_needs_an_observed_variable():
    with pytest.raises(ArgumentError, match="at least one observed variable"):
        pc.from_bayesnet(network({"z": LG()}, {}))


@pytest.mark.parametrize("std", [0.0, -0.5])
def test_a_standard_deviation_that_is_not_positive_is_refused(std):
    with pytest.raises(ArgumentError, match=rf"std: expected a positive number, got {std}"):
        network({"z": LG(std=std)}, {"x": LG({"z": 1.0})})
