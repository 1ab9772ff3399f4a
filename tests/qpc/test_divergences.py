# SPDX-License-Identifier: Apache-2.0
"""Inner products of two circuits and the divergences made of them."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import MultivariateNormal
from torch.testing import assert_close

import picirc as pc
from cases import CASES, LG, network
from picirc.inputs import Gaussian, Laplace, Poisson, StudentT
from table_circuits import TABLES, Table, line, near

STRUCTURED = (
    "tree",
    "several_a_latent",
    "chain_mixed",
    "one_variable",
    "one_state",
    "quad_tree",
    "one_region",
    "three_parts",
    "quad_tree_tucker",
    "three_parts_tucker",
)
each_structured = pytest.mark.parametrize("name", STRUCTURED)


@each_structured
@pytest.mark.parametrize("states", [1, 2, 5])
def test_enumeration(name, states):
    """Both circuits may have their own number of states."""
    table = TABLES[name]
    p, q = table.joint().p, table.joint(seed=1, states=states).p
    left, right = table.qpc(), table.qpc(seed=1, states=states)
    assert_close(pc.log_inner_product(left, right), (p * q).sum().log(), **near())
    assert_close(pc.log_inner_product(right, left), (p * q).sum().log(), **near())
    assert_close(pc.l2_divergence(left, right), (p - q).square().sum(), **near())
    cosine = (p * q).sum() / ((p * p).sum() * (q * q).sum()).sqrt()
    assert_close(pc.cauchy_schwarz_divergence(left, right), -cosine.log(), **near())


@each_structured
def test_a_circuit_and_itself(name):
    qpc = TABLES[name].qpc()
    assert_close(pc.log_inner_product(qpc, qpc), TABLES[name].joint().p.square().sum().log(), **near())
    assert float(pc.l2_divergence(qpc, qpc)) == pytest.approx(0.0, abs=1e-14)
    assert float(pc.cauchy_schwarz_divergence(qpc, qpc)) == pytest.approx(0.0, abs=1e-12)


def tree_net(scale: float) -> pc.BayesNet:
    """A linear-Gaussian tree whose numbers depend on the scale."""
    return network(
        {
            "z1": LG(bias=0.2 * scale),
            "z2": LG({"z1": 0.8 * scale}, 0.1, 0.7),
            "z3": LG({"z1": -1.1}, -0.3, 0.6 * scale),
        },
        {
            "x1": LG({"z1": scale}, std=0.8),
            "x2": LG({"z2": 0.7}, 0.4, 0.9 * scale),
            "x3": LG({"z3": 1.3}, std=0.9),
            "x4": LG({"z3": -0.4 * scale}, std=1.1),
        },
    )


@pytest.mark.parametrize(("points", "other"), [(48, 48), (48, 60)])
def test_gaussian_integrals(points, other):
    """``∫ N(x; m, A) N(x; n, B) dx = N(m; n, A + B)``."""
    p, q = (pc.from_bayesnet(tree_net(scale)) for scale in (1.0, 1.2))
    left, right = p.integrate(pc.gauss_legendre(points)), q.integrate(pc.gauss_legendre(other))

    def inner(a: pc.ExactGaussian, b: pc.ExactGaussian) -> torch.Tensor:
        return MultivariateNormal(b.mean, a.covariance + b.covariance).log_prob(a.mean)

    pq, pp, qq = inner(p.exact(), q.exact()), inner(p.exact(), p.exact()), inner(q.exact(), q.exact())
    assert_close(pc.log_inner_product(left, right), pq, rtol=1e-6, atol=1e-6)
    assert_close(pc.l2_divergence(left, right), pp.exp() + qq.exp() - 2 * pq.exp(), rtol=1e-5, atol=1e-8)
    assert_close(pc.cauchy_schwarz_divergence(left, right), (pp + qq) / 2 - pq, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("families", [(Gaussian(min_std=0.3), Laplace(min_scale=0.5)), (StudentT(0.5, 3.0), Poisson())])
def test_columns_of_other_families(families):
    """By integration in two dimensions."""
    table = Table(pc.chain(2), families, 3)
    p, q = table.qpc(), table.qpc(seed=1, states=2)
    points, weights = line(5.0, 601)
    second, masses = (points, weights) if not families[1].discrete else (torch.arange(80.0), torch.ones(80))
    left, right = torch.meshgrid(points, second.double(), indexing="ij")
    x = torch.stack([left.flatten(), right.flatten()], 1)
    mass = torch.outer(weights, masses.double()).flatten()
    expected = ((p.log_prob(x) + q.log_prob(x)).exp() * mass).sum().log()
    assert_close(pc.log_inner_product(p, q), expected, rtol=1e-4, atol=1e-4)


def test_hundreds_of_variables_do_not_underflow():
    table = Table(pc.random_tree(400, 0), pc.Categorical(10), 4)
    p, q = table.qpc(dtype=torch.float32), table.qpc(seed=1, dtype=torch.float32)
    exact = pc.log_inner_product(table.qpc(), table.qpc(seed=1))
    assert float(exact) < -500
    assert_close(pc.log_inner_product(p, q).double(), exact, rtol=1e-5, atol=1e-3)
    assert float(pc.cauchy_schwarz_divergence(p, q)) > 0


@pytest.mark.parametrize("name", ["quad_graph", "random_regions", "hand_made", "quad_graph_tucker"])
def test_circuits_that_split_in_several_ways_are_refused(name):
    qpc = TABLES[name].qpc()
    with pytest.raises(
        pc.StructureError, match=r"the inner product needs a structured-decomposable circuit, but the pro"
    ):
        pc.log_inner_product(qpc, qpc)
    with pytest.raises(pc.StructureError, match="differently"):
        pc.l2_divergence(qpc, qpc)


def two_dimensional(p: pc.QPC, q: pc.QPC) -> torch.Tensor:
    """``log ∫ p q`` on a dense grid."""
    points, weights = line(9.0, 121)
    x = torch.cartesian_prod(points, points)
    return ((p.log_prob(x) + q.log_prob(x)).exp() * torch.outer(weights, weights).flatten()).sum().log()


MIXTURES = ("sums", "shared_by_integrals", "shared_by_sums", "sums_below_sums", "opposite_directions", "same_name")


@pytest.mark.parametrize("name", MIXTURES)
def test_mixtures_and_shared_units(name):
    """What the properties promise: these are structured-decomposable."""
    case = CASES[name]
    assert case.circuit.properties.structured_decomposable
    p, q = case.integrate(pc.gauss_legendre(24)), CASES["explaining_away"].integrate(pc.gauss_legendre(20))
    assert_close(pc.log_inner_product(p, p), two_dimensional(p, p), rtol=1e-6, atol=1e-6)
    q = pc.QPC(q.compiled, q.parameters, p.variables, q.families, q.grids, q.properties)
    assert_close(pc.log_inner_product(p, q), two_dimensional(p, q), rtol=1e-6, atol=1e-6)
    assert_close(pc.log_inner_product(q, p), two_dimensional(p, q), rtol=1e-6, atol=1e-6)


def test_functions_of_several_latents():
    """A network that is no tree, against the closed form."""
    case = CASES["lg_dag"]
    p, q = case.integrate(pc.gauss_legendre(24)), case.integrate(pc.gauss_legendre(20))
    exact = case.circuit.exact()
    expected = MultivariateNormal(exact.mean, 2 * exact.covariance).log_prob(exact.mean)
    assert_close(pc.log_inner_product(p, q), expected, rtol=0, atol=2e-3)


def test_hybrid_networks_and_joint_normals():
    def net(shift: float) -> pc.Circuit:
        built = network({"k": pc.Discrete(2, [0.4, 0.6]), "z": LG({"k": 2.0}, shift, 0.7)}, {})
        mean = [shift, -shift]
        built.observed(
            ["a", "b"],
            pc.MultivariateNormal(
                lambda z: torch.stack([z, 0 * z], -1) + torch.tensor(mean), [[1.0, 0.5], [0.5, 1.0]], ["z"]
            ),
        )
        return pc.from_bayesnet(built)

    p, q = (net(shift).integrate(pc.gauss_legendre(30)) for shift in (0.0, 0.5))
    assert_close(pc.log_inner_product(p, q), two_dimensional(p, q), rtol=1e-5, atol=1e-5)


def test_trees_that_differ_but_are_compatible():
    """One latent for two variables, or one each: both split them in the same way."""
    joint = network({"z": LG()}, {"x": LG({"z": 1.0}, std=0.7), "y": LG({"z": -0.5}, std=0.9)})
    apart = network({"v": LG(), "w": LG({"v": 0.6})}, {"x": LG({"v": 1.0}, std=0.7), "y": LG({"w": 0.5}, std=0.9)})
    p, q = (pc.from_bayesnet(net).integrate(pc.gauss_legendre(40)) for net in (joint, apart))
    assert_close(pc.log_inner_product(p, q), two_dimensional(p, q), rtol=1e-6, atol=1e-6)


def test_circuits_of_different_structure_are_refused():
    def split(*pairs: str) -> pc.QPC:
        parts = []
        for pair in pairs:
            inputs = [pc.Input(name, LG({f"z{pair}": 1.0})) for name in pair]
            parts.append(pc.Integral(f"z{pair}", pc.Product(*inputs), LG()))
        return pc.Circuit(pc.Product(*parts), list("abcd")).integrate(pc.gauss_legendre(8))

    with pytest.raises(pc.StructureError, match=r"the columns \[0, 1, 2, 3\] are split differently"):
        pc.log_inner_product(split("ab", "cd"), split("ac", "bd"))
    tree = TABLES["tree"].qpc()
    with pytest.raises(pc.StructureError, match="two circuits of the same variables"):
        pc.log_inner_product(tree, CASES["lg_tree"].integrate())
    families = Table(TABLES["tree"].structure, pc.Categorical(4), 4).qpc()
    with pytest.raises(pc.StructureError, match="needs inputs of the same families"):
        pc.log_inner_product(tree, families)


def test_circuits_of_different_dtype_are_refused():
    table = TABLES["tree"]
    with pytest.raises(pc.ArgumentError, match=r"q: expected the dtype and device of p, torch.float64 on cpu, got"):
        pc.log_inner_product(table.qpc(), table.qpc(dtype=torch.float32))
