# SPDX-License-Identifier: Apache-2.0
"""What holds for the quadrature of every circuit, whatever the rule."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

import picirc as pc
from cases import ANGLE, CASES, REAL, Case
from oracles import enumerate_values, integrate_out
from picirc.inputs import Spiked
from picirc.io.describe import from_file, to_file

each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
NETWORKS = {name: case for name, case in CASES.items() if isinstance(case.build(), pc.BayesNet)}
COARSE = pc.gauss_legendre(6)


@each_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nothing_observed_is_log_one(case: Case, dtype: torch.dtype):
    nothing = torch.full((1, len(case.columns)), math.nan)
    value = float(case.integrate(dtype=dtype).log_prob(nothing))
    assert abs(value) < (1e-5 if dtype == torch.float32 else 1e-6)


@each_case
def test_a_marginal_is_the_integral_of_the_joint(case: Case):
    """Exactly so for the circuit that quadrature makes, because inputs are normalised; the rule may be coarse."""
    qpc, x = case.integrate(COARSE), case.data()[:-1:2]
    for column, kind in enumerate(case.columns):
        missing = x.clone()
        missing[:, column] = math.nan
        if isinstance(kind, str):
            reach = {REAL: 14.0, ANGLE: math.pi}[kind]
            total = integrate_out(qpc.log_prob, x, column, reach)
        else:
            counts = range(60 if case is CASES["mixed_columns"] and column == 0 else kind)  # Poisson has no end
            values = [x.clone().index_fill_(1, torch.tensor(column), float(v)) for v in counts]
            total = logsumexp([qpc.log_prob(v).numpy() for v in values], axis=0)
        np.testing.assert_allclose(total, qpc.log_prob(missing), atol=1e-8)


@each_case
def test_rows_do_not_influence_each_other(case: Case):
    qpc, x = case.integrate(COARSE), case.data()
    alone = torch.cat([qpc.log_prob(row[None]) for row in x])
    torch.testing.assert_close(alone, qpc.log_prob(x), rtol=0, atol=1e-13)
    turned = qpc.log_prob(x.flip(0)).flip(0)
    torch.testing.assert_close(turned, qpc.log_prob(x), rtol=0, atol=1e-13)


@each_case
def test_asking_twice_gives_the_same_bits(case: Case):
    """Buffers are used again; nothing of the last pass may shine through."""
    qpc, x = case.integrate(COARSE), case.data()
    first = qpc.log_prob(x)
    qpc.log_prob(case.complete(7, seed=5))
    assert torch.equal(qpc.log_prob(x), first)
    assert torch.equal(case.integrate(COARSE).log_prob(x), first)


@each_case
def test_the_order_of_the_columns_is_a_matter_of_labels(case: Case):
    circuit, x = case.circuit, case.data()
    turned = pc.Circuit(circuit.root, circuit.variables[::-1])
    domain = "marginal" if case.domain is None else case.domain
    result = turned.integrate(COARSE, domain=domain).log_prob(x.flip(1))
    torch.testing.assert_close(result, case.integrate(COARSE).log_prob(x), rtol=0, atol=1e-13)


def renamed(function: object, names: dict[str, str]) -> object:
    """The same function with other names for its parents."""
    parents = [names[p] for p in function.parents]  # type: ignore[attr-defined]
    match function:
        case pc.LinearGaussian():
            weights = dict(zip(parents, function.weights.values(), strict=True))
            return pc.LinearGaussian(weights, function.bias, function.std)
        case pc.Discrete():
            return pc.Discrete(function.values, function.link, parents)
        case pc.Conditional():
            return pc.Conditional(function.family, function.link, parents)
        case pc.Density():
            return pc.Density(function.log_density, parents, domain=function.domain)
    raise AssertionError(function)


@pytest.mark.parametrize("case", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("seed", [0, 1])
def test_names_and_the_order_of_declaration_change_nothing(case: Case, seed: int):
    net, rng = case.net, np.random.default_rng(seed)
    everything = [*net.latents, *net.variables]
    names = dict(zip(everything, (f"v{i}" for i in rng.permutation(len(everything))), strict=True))
    other = pc.BayesNet()
    for name in rng.permutation(everything):
        if name in net.latents:
            other.latent(names[name], renamed(net.latents[name], names))  # type: ignore[arg-type]
        else:
            other.observed(names[name], renamed(net.variables[name], names))  # type: ignore[arg-type]
    x = case.data()
    back = {new: old for old, new in names.items()}
    columns = [list(net.variables).index(back[name]) for name in other.variables]
    result = pc.from_bayesnet(other).integrate(COARSE).log_prob(x[:, columns])
    expected = pc.from_bayesnet(net).integrate(COARSE).log_prob(x)
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_discrete_circuit_adds_to_one(dtype: torch.dtype):
    case = CASES["bernoulli"]
    qpc = case.integrate(dtype=dtype)
    everything = enumerate_values([2, 2, 2])
    log_prob = qpc.log_prob(everything)
    assert float(log_prob.double().logsumexp(0)) == pytest.approx(0.0, abs=1e-5 if dtype == torch.float32 else 1e-7)
    for column in range(3):
        for value in (0.0, 1.0):
            known = torch.full((1, 3), math.nan)
            known[0, column] = value
            matching = log_prob[everything[:, column] == value].logsumexp(0)
            torch.testing.assert_close(
                qpc.log_prob(known)[0], matching, rtol=0, atol=1e-5 if dtype == torch.float32 else 1e-12
            )


# Models of random structures, families, sizes and types

FINITE = (pc.Bernoulli(), pc.Categorical(2), pc.Categorical(4), pc.Binomial(3))
OTHERS = (pc.Gaussian(), pc.Laplace(), pc.Poisson(), pc.StudentT(), Spiked((-0.5, 1.0)))
quick = settings(max_examples=20, deadline=None, derandomize=True, database=None)


@st.composite
def structures(draw: st.DrawFn) -> pc.LatentTree | pc.RegionGraph:
    n, seed = draw(st.integers(1, 5)), draw(st.integers(0, 99))
    makers = [
        lambda: pc.chain(n),
        lambda: pc.random_tree(n, seed=seed),
        lambda: pc.LatentTree((-1, 0, 0), ((), tuple(range(n)), (n,))),
        lambda: pc.random_regions(n + 1, seed=seed, repetitions=draw(st.integers(1, 3))),
        lambda: pc.quad_graph(2, draw(st.integers(1, 2))),
    ]
    return draw(st.sampled_from(makers))()


@st.composite
def circuits(
    draw: st.DrawFn, families: tuple[pc.Family, ...] = FINITE + OTHERS, dtype: torch.dtype | None = None
) -> pc.QPC:
    structure = draw(structures())
    columns = [draw(st.sampled_from(families)) for _ in range(structure.n_variables)]
    product = draw(st.sampled_from(["cp", "tucker"]))
    source = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    size = draw(st.integers(1, 6))
    dtype = dtype or draw(st.sampled_from([torch.float32, torch.float64]))
    mixtures = ["average", "trees"] if isinstance(structure, pc.LatentTree) else []
    kind = draw(st.sampled_from(["tables", "nets", "vectors", "correlated", *mixtures]))
    if kind == "tables":
        return pc.HCLT(structure, columns, states=size, product=product, generator=source, dtype=dtype)()
    options = {"dims": 2} if kind == "vectors" else {"correlated": True} if kind == "correlated" else {}
    product = "cp" if kind == "correlated" else product
    sharing = [draw(st.sampled_from(["none", "composite", "full"])) for _ in range(2)]
    others = {"average": [structure], "trees": [pc.star(structure.n_variables)]}.get(kind, [])
    pics = [
        pc.PIC(tree, columns, 4, *sharing, product=product, generator=source, **options)
        for tree in (structure, *others)
    ]
    model = pics[0] if len(pics) == 1 else pc.Ensemble(pics)
    return model.to(dtype)(pc.sobol(size + 1, 2) if kind == "vectors" else pc.shifted(size))


def rows_of(qpc: pc.QPC, count: int = 6) -> torch.Tensor:
    """Rows that the circuit finds possible."""
    return qpc.sample((count,), generator=torch.Generator().manual_seed(0))


def tolerance(qpc: pc.QPC) -> float:
    return 1e-11 if qpc.parameters.like.dtype == torch.float64 else 2e-4


@quick
@given(circuits(FINITE))
def test_all_values_have_mass_one(qpc: pc.QPC):
    everything = enumerate_values([family.values for family in qpc.families])
    total = qpc.log_prob(everything).detach().double().logsumexp(0)
    assert float(total) == pytest.approx(0.0, abs=tolerance(qpc))


@quick
@given(circuits(), st.randoms(use_true_random=False))
def test_a_marginal_is_the_sum_of_the_joint(qpc: pc.QPC, chance: random.Random):
    """Over all values of a finite variable; over many of a Poisson one; over a dense grid of a Gaussian, with atoms."""
    x = rows_of(qpc)
    column = chance.randrange(len(qpc.families))
    family = qpc.families[column]
    values = [float(v) for v in range(getattr(family, "values", 80))]
    missing = x.index_fill(1, torch.tensor(column), math.nan)
    parts, slack = [], tolerance(qpc)
    if isinstance(family, pc.Gaussian | Spiked):
        dense = integrate_out(lambda rows: qpc.log_prob(rows).detach().double(), x.double(), column, 30.0)
        parts, values, slack = [torch.as_tensor(dense)], list(getattr(family, "atoms", ())), max(slack, 1e-6)
    elif isinstance(family, pc.Laplace | pc.StudentT):
        return  # kinks and tails that no small grid integrates
    parts += [qpc.log_prob(x.index_fill(1, torch.tensor(column), v)).double() for v in values]
    torch.testing.assert_close(torch.stack(parts).logsumexp(0), qpc.log_prob(missing).double(), rtol=0, atol=slack)


@quick
@given(circuits(), st.randoms(use_true_random=False))
def test_nan_is_integrated_out(qpc: pc.QPC, chance: random.Random):
    """As with ``mask=``, whatever stands in the masked cells; and joint = conditional × marginal."""
    x = rows_of(qpc)
    hidden = torch.tensor([[chance.random() < 0.5 for _ in qpc.families] for _ in x])
    partial = x.masked_fill(hidden, math.nan)
    found = qpc.log_prob(partial)
    assert torch.equal(found, qpc.log_prob(x, mask=hidden))
    assert not found.isnan().any()
    everything = qpc.log_prob(torch.full_like(x, math.nan)).double()
    torch.testing.assert_close(everything, torch.zeros(len(x)).double(), rtol=0, atol=tolerance(qpc))
    conditional = qpc.log_prob(x.masked_fill(~hidden, math.nan), given=partial)
    torch.testing.assert_close(conditional + found, qpc.log_prob(x), rtol=1e-6, atol=10 * tolerance(qpc))


@quick
@given(
    st.integers(1, 6),
    st.integers(0, 99),
    st.sampled_from(FINITE + OTHERS),
    st.sampled_from([torch.float32, torch.float64]),
    st.randoms(use_true_random=False),
)
def test_variables_may_be_numbered_in_any_order(
    n: int, seed: int, family: pc.Family, dtype: torch.dtype, chance: random.Random
):
    tree = pc.random_tree(n, seed=seed)
    order = chance.sample(range(n), n)
    other = pc.LatentTree(tree.parents, tuple(tuple(order[v] for v in own) for own in tree.variables))
    one = pc.HCLT(tree, family, states=3, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    two = pc.HCLT(other, family, states=3, dtype=dtype)
    stored = to_file(one)
    stored["inputs.0"] = stored["inputs.0"][torch.tensor(order).argsort()]
    two.load_state_dict(from_file(two, stored))
    x = rows_of(one())
    x[0, 0] = math.nan
    turned = torch.empty_like(x)
    turned[:, order] = x
    torch.testing.assert_close(one().log_prob(x), two().log_prob(turned), rtol=0, atol=tolerance(one()))


@quick
@given(circuits(dtype=torch.float32), st.integers(1, 70))
def test_compiled_loops_and_pytorch_agree(qpc: pc.QPC, batch: int):
    x = rows_of(qpc, batch)
    x[:, 0] = x[:, 0].where(torch.arange(batch) % 3 > 0, math.nan)

    def answers() -> list[torch.Tensor]:
        weights = [table for table in qpc.parameters.weights if table.requires_grad]  # not those of an average
        value = qpc.log_prob(x)
        return [value.detach(), *torch.autograd.grad(value.sum(), weights, allow_unused=True), qpc.mpe(given=x)]

    compiled = answers()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("picirc.native._kernels", lambda: None)
        plain = answers()
    for a, b in zip(compiled[:-1], plain[:-1], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
    same = qpc.log_prob(compiled[-1]), qpc.log_prob(plain[-1])  # ties may be broken either way
    torch.testing.assert_close(*same, rtol=1e-3, atol=1e-3)
