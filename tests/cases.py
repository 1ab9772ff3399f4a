# SPDX-License-Identifier: Apache-2.0
"""Named small circuits, one for each thing that can be different about a circuit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

import picirc as pc
from oracles import normal_log_prob, observed_normal, static_log_prob
from picirc.compile.integrate import place, rules_of
from picirc.quadrature import Grid, Rule

LG = pc.LinearGaussian
Intervals = dict[str, tuple[float, float]]
Rules = Rule | Mapping[str, Rule]

REAL = "real"
ANGLE = "angle"
"""Columns of real numbers, and of numbers in (−π, π); a number C is a column of the integers 0 … C−1."""


@dataclass(frozen=True)
class Case:
    """A circuit with what a test needs to know of it.

    Attributes:
        build: Makes the circuit, or the network that it is built from.
        columns: What the observed variables are: real, angles, or how many values.
        rule: A rule that integrates it to about seven digits on the default domain.
        domain: Intervals for latents that the circuit does not say enough of.
        order: The order of elimination for a network.
        nested: Whether nested quadrature applies: one conditional density for each latent.
        once: Whether the name of a latent stands for one variable, which then has a posterior.
        gaussian: Whether it is a linear-Gaussian network, which has a closed form.
    """

    build: Callable[[], pc.BayesNet | pc.Circuit]
    columns: tuple[str | int, ...]
    rule: Rule = field(default_factory=lambda: pc.gauss_legendre(64))
    domain: Intervals | None = None
    order: tuple[str, ...] | None = None
    nested: bool = True
    once: bool = True
    gaussian: bool = False

    @property
    def circuit(self) -> pc.Circuit:
        made = self.build()
        return made if isinstance(made, pc.Circuit) else pc.from_bayesnet(made, self.order)

    @property
    def net(self) -> pc.BayesNet:
        made = self.build()
        assert isinstance(made, pc.BayesNet)
        return made

    def integrate(self, rule: Rules | None = None, **options: object) -> pc.QPC:
        domain = "marginal" if self.domain is None else self.domain
        return self.circuit.integrate(self.rule if rule is None else rule, domain=domain, **options)  # type: ignore[arg-type]

    def grids(self, rule: Rules, sigmas: float = 6.0) -> dict[str, Grid]:
        """The grids of static quadrature, for an oracle that has to use the same points."""
        circuit = self.circuit
        domain = "marginal" if self.domain is None else self.domain
        return place(circuit, rules_of(circuit, rule), domain, sigmas)

    def truth(self, x: Tensor) -> np.ndarray:
        """The log-likelihood to about twelve digits, by an oracle."""
        if self.gaussian:
            return normal_log_prob(*observed_normal(self.net), x.numpy())
        rule = pc.gauss_legendre(140 if len(self.circuit.latents) < 3 else 100)
        return static_log_prob(self.circuit, self.grids(rule, sigmas=8.5), x.numpy())

    def complete(self, rows: int = 5, seed: int = 0) -> Tensor:
        """Data without missing values, ``(rows, variables)``."""
        rng = np.random.default_rng(seed)
        draw = {REAL: lambda: rng.normal(0, 1.2, rows), ANGLE: lambda: rng.uniform(-math.pi, math.pi, rows)}
        values = [draw[c]() if isinstance(c, str) else rng.integers(0, c, rows) for c in self.columns]
        return torch.tensor(np.stack(values, 1), dtype=torch.float64)

    def data(self, seed: int = 0) -> Tensor:
        """Complete rows, rows with one value missing, rows with about half missing, and one with nothing."""
        count = len(self.columns)
        rng = np.random.default_rng(seed + 1)
        one = self.complete(count, seed + 1).masked_fill(torch.eye(count, dtype=torch.bool), math.nan)
        half = self.complete(4, seed + 2).masked_fill(torch.tensor(rng.random((4, count)) < 0.5), math.nan)
        nothing = torch.full((1, count), math.nan, dtype=torch.float64)
        return torch.cat([self.complete(4, seed), one, half, nothing])


def network(latents: dict[str, object], observed: dict[str, object]) -> pc.BayesNet:
    net = pc.BayesNet()
    for name, function in latents.items():
        net.latent(name, function)  # type: ignore[arg-type]
    for name, function in observed.items():
        net.observed(name, function)  # type: ignore[arg-type]
    return net


def lg_tree() -> pc.BayesNet:
    return network(
        {"z1": LG(bias=0.2), "z2": LG({"z1": 0.8}, 0.1, 0.7), "z3": LG({"z1": -1.1}, -0.3, 0.6)},
        {"x1": LG({"z1": 1.0}, std=0.8), "x2": LG({"z2": 0.7}, 0.4, 0.9), "x3": LG({"z3": 1.3}, std=0.9)},
    )


def lg_dag() -> pc.BayesNet:
    return network(
        {
            "z1": LG(bias=0.3),
            "z2": LG(std=0.8),
            "z3": LG({"z1": 0.7, "z2": -0.5}, 0.1, 0.9),
            "z4": LG({"z3": 0.6, "z2": 0.4}, std=0.8),
        },
        {
            "x1": LG({"z1": 0.9}, std=1.0),
            "x2": LG({"z4": 0.8, "z3": -0.6}, 0.2, 1.0),
            "x3": LG({"z4": 1.1}, std=0.9),
            "x4": LG({"z2": 1.2, "z1": 0.3}, -0.2, 0.9),
        },
    )


def lg_chain() -> pc.BayesNet:
    latents = {"z0": LG()} | {f"z{i}": LG({f"z{i - 1}": 0.9}, 0.1, 0.6) for i in range(1, 5)}
    return network(latents, {f"x{i}": LG({f"z{i}": 1.1}, std=0.8) for i in range(5)})


def paper_ltm() -> pc.BayesNet:
    """The latent tree of the paper's Appendix C.1."""
    return network(
        {
            "z1": LG(bias=0.4, std=1.1),
            "z2": LG({"z1": 0.9}, -0.2, 0.8),
            "z3": LG({"z1": -0.7}, 0.5, 0.9),
            "z4": LG({"z2": 1.2}, 0.3, 0.7),
        },
        {
            "x1": LG({"z1": 0.8}, 0.1, 0.9),
            "x2": LG({"z2": -1.1}, 0.2, 0.8),
            "x3": LG({"z3": 0.6}, -0.4, 0.7),
            "x4": LG({"z4": 1.3}, 0.6, 1.0),
        },
    )


def explaining_away() -> pc.BayesNet:
    """Two independent causes of one effect, of which one has an effect of its own."""
    return network(
        {"z1": LG(), "z2": LG(std=0.8)},
        {"x1": LG({"z2": 1.0}, std=0.7), "x2": LG({"z1": 0.9, "z2": -1.2}, std=0.8)},
    )


def bernoulli() -> pc.BayesNet:
    def logistic(slope: float, shift: float, parent: str) -> pc.Conditional:
        return pc.Conditional(pc.Bernoulli(), lambda z: slope * z + shift, [parent])

    return network(
        {"z1": LG(), "z2": LG({"z1": 0.9}, 0.2, 0.7)},
        {"x1": logistic(1.5, 0.2, "z1"), "x2": logistic(-2.0, 0.5, "z2"), "x3": logistic(0.8, -1.0, "z2")},
    )


def two_bumps(v: Tensor) -> Tensor:
    bumps = torch.stack([-0.5 * ((v - 1.2) / 0.5) ** 2, -0.5 * ((v + 1.2) / 0.5) ** 2 + math.log(0.5)])
    return bumps.logsumexp(0) - math.log(1.5 * 0.5 * math.sqrt(2 * math.pi))


def bimodal() -> pc.BayesNet:
    return network(
        {"z1": pc.Density(two_bumps, domain=(-5.2, 5.2)), "z2": LG({"z1": 0.8}, std=0.6)},
        {"x1": LG({"z2": 1.0}, std=0.7), "x2": pc.Conditional(pc.Bernoulli(), lambda z: 1.5 * z, ["z1"])},
    )


def mixed_columns() -> pc.BayesNet:
    def logits(a: Tensor, b: Tensor) -> Tensor:
        return torch.stack(torch.broadcast_tensors(0.5 * a, a * b - 0.3, -b), -1)

    return network(
        {"a": LG(), "b": LG({"a": 0.6}, std=0.8)},
        {
            "counts": pc.Conditional(pc.Poisson(), lambda a, b: 0.4 * a - 0.3 * b + 0.5, ["a", "b"]),
            "kind": pc.Conditional(pc.Categorical(3), logits, ["a", "b"]),
            "wins": pc.Conditional(pc.Binomial(4), lambda b: 0.7 * b, ["b"]),
            "size": LG({"a": 0.9, "b": 0.5}, std=0.8),
        },
    )


def many_inputs() -> pc.BayesNet:
    """Several inputs of several families on one latent, next to one that hangs on two."""
    return network(
        {"z1": LG(), "z2": LG({"z1": 0.5}, std=0.9)},
        {
            "x1": LG({"z1": 1.0}, std=0.9),
            "x2": LG({"z1": -0.4}, 0.3, 0.8),
            "x3": pc.Conditional(pc.Bernoulli(), lambda z: z + 0.3, ["z1"]),
            "x4": LG({"z2": 0.7, "z1": 0.2}, std=0.9),
            "x5": pc.Conditional(pc.Bernoulli(), lambda z: 1 - z, ["z2"]),
        },
    )


def bare_latent() -> pc.BayesNet:
    """A latent without inputs in the middle, and a barren one at the bottom."""
    return network(
        {"z1": LG(std=0.9), "z2": LG({"z1": 1.1}, std=0.7), "z3": LG({"z2": 0.9}, std=0.8), "z4": LG({"z2": 2.0})},
        {"x1": LG({"z1": 0.8}, std=0.9), "x2": LG({"z3": 1.0}, std=0.9)},
    )


def input_without_latents() -> pc.BayesNet:
    coin = pc.Conditional(pc.Bernoulli(), lambda: torch.tensor(0.4), [])
    return network({"z": LG()}, {"x1": LG(bias=0.5, std=1.2), "x2": LG({"z": 0.9}, std=0.8), "x3": coin})


def disconnected() -> pc.BayesNet:
    return network(
        {"z1": LG(), "z2": LG({"z1": 0.7}, std=0.8), "z3": LG(bias=0.5, std=0.9)},
        {"x1": LG({"z2": 1.1}, std=0.8), "x2": LG({"z3": 1.0}, std=0.9), "x3": LG({"z1": 0.5}, std=0.9)},
    )


def bounded_input() -> pc.BayesNet:
    """An observed variable with a density of its own, a wrapped exponential of a cosine."""

    def log_density(x: Tensor, z: Tensor) -> Tensor:
        return 1.5 * torch.cos(x - z) - math.log(2 * math.pi * float(np.i0(1.5)))

    angle = pc.Density(log_density, ["z1"], domain=(-math.pi, math.pi))
    return network({"z1": LG(), "z2": LG({"z1": 0.7}, std=0.8)}, {"x1": angle, "x2": LG({"z2": 0.9}, std=0.8)})


def hybrid() -> pc.BayesNet:
    """A discrete latent above a continuous one, which is above another discrete one."""
    means, stds = torch.tensor([-1.2, 0.3, 1.5], dtype=torch.float64), torch.tensor([0.7, 1.0, 0.8]).double()

    def normal(k: Tensor) -> Tensor:
        return torch.stack([means[k.long()], stds[k.long()]], -1).to(k.dtype)

    def split(z: Tensor) -> Tensor:
        return torch.stack([torch.sigmoid(z), torch.sigmoid(-z)], -1)

    return network(
        {
            "k": pc.Discrete(3, [0.2, 0.3, 0.5]),
            "z": pc.Conditional(pc.Gaussian(), normal, ["k"]),
            "j": pc.Discrete(2, split, ["z"]),
        },
        {
            "x1": LG({"z": 1.0, "k": 0.3}, std=0.8),
            "x2": pc.Conditional(pc.Bernoulli(), lambda j, k: 1.5 * j - k, ["j", "k"]),
            "x3": LG({"j": -1.1}, std=0.9),
        },
    )


def sums() -> pc.Circuit:
    """Mixtures at the root, under an integral, and inside a product."""
    low, high = pc.Input("x1", LG({"z": 1.0}, std=0.9)), pc.Input("x1", LG({"z": -0.5}, 0.6, 0.8))
    inner = pc.Product(pc.Sum([low, high], [0.3, 0.7]), pc.Input("x2", LG({"z": 0.8}, std=0.9)))
    wide = pc.Product(pc.Input("x1", LG({"z": 0.7})), pc.Input("x2", LG({"z": -0.7})))
    first = pc.Integral("z", pc.Sum([inner, wide], [0.6, 0.4]), PRIOR)
    second = pc.Product(pc.Input("x1", LG(std=1.5)), pc.Input("x2", LG(bias=-0.5, std=1.4)))
    return pc.Circuit(pc.Sum([first, second], [0.75, 0.25]), ["x1", "x2"])


PRIOR = LG(std=0.9)  # one value, so that circuits which use it twice have one density for the latent


def shared_by_integrals() -> pc.Circuit:
    """One sub-circuit under two integral units."""
    below = pc.Product(pc.Input("x1", LG({"z": 1.0}, std=0.8)), pc.Input("x2", LG({"z": -0.6}, 0.2, 0.9)))
    parts = [pc.Integral("z", below, LG(bias=b, std=s)) for b, s in ((0.5, 0.8), (-1.0, 0.6), (0.0, 1.0))]
    return pc.Circuit(pc.Sum(parts, [0.5, 0.3, 0.2]))


def shared_by_sums() -> pc.Circuit:
    """One sub-circuit under two sum units, and one of these under two others."""
    shared = pc.Integral("z", pc.Input("x1", LG({"z": 0.9}, std=0.8)), PRIOR)
    other = pc.Input("x1", LG(bias=1.0, std=1.2))
    first, second = pc.Sum([shared, other], [0.4, 0.6]), pc.Sum([other, shared], [0.1, 0.9])
    third = pc.Sum([first, second, shared], [0.5, 0.2, 0.3])
    left, right = pc.Input("x2", LG(bias=-0.4)), pc.Input("x2", LG(bias=0.9, std=0.7))
    parts = [pc.Product(first, left), pc.Product(second, right), pc.Product(third, left)]
    return pc.Circuit(pc.Sum(parts, [0.3, 0.3, 0.4]))


def sums_below_sums() -> pc.Circuit:
    """A mixture inside a mixture, next to one of the same shape inside a product."""

    def x(i: int, a: float) -> pc.Input:
        return pc.Input(f"x{i}", LG({"z": a}, std=0.9))

    inner = pc.Sum([pc.Product(x(1, 0.5), x(2, 0.8)), pc.Product(x(1, -0.6), x(2, 0.3))], [0.2, 0.8])
    beside = pc.Product(pc.Sum([x(1, 1.0), x(1, -1.0)], [0.6, 0.4]), x(2, 0.7))
    return pc.Circuit(pc.Integral("z", pc.Sum([inner, beside], [0.5, 0.5]), PRIOR))


def two_structures() -> pc.Circuit:
    """A mixture of {x1, x2}{x3} and {x1}{x2, x3}: decomposable, but not structured."""

    def pair(a: str, b: str, z: str) -> pc.Integral:
        below = pc.Product(pc.Input(a, LG({z: 0.9}, std=0.9)), pc.Input(b, LG({z: -0.8}, std=0.8)))
        return pc.Integral(z, below, LG(std=0.9))

    left = pc.Product(pair("x1", "x2", "z1"), pc.Input("x3", LG(std=1.3)))
    right = pc.Product(pc.Input("x1", LG(std=1.2)), pair("x2", "x3", "z2"))
    return pc.Circuit(pc.Sum([left, right], [0.45, 0.55]), ["x1", "x2", "x3"])


def opposite_directions() -> pc.Circuit:
    """A mixture of z1 → z2 and z2 → z1."""

    def component(a: str, b: str) -> pc.Integral:
        below = pc.Integral(b, pc.Input(f"x{b[1]}", LG({b: 1.0}, std=0.9)), LG({a: 0.5}, std=0.8))
        return pc.Integral(a, pc.Product(pc.Input(f"x{a[1]}", LG({a: 0.8}, std=0.9)), below), LG(std=0.9))

    return pc.Circuit(pc.Sum([component("z1", "z2"), component("z2", "z1")], [0.4, 0.6]), ["x1", "x2"])


def same_name() -> pc.Circuit:
    """Two integral units over latents of one name, one below the other."""
    below = pc.Integral("z", pc.Input("x2", LG({"z": 0.7}, std=0.9)), PRIOR)
    return pc.Circuit(pc.Integral("z", pc.Product(pc.Input("x1", LG({"z": 1.1}, std=0.8)), below), PRIOR))


def correlated(a: Tensor, b: Tensor) -> Tensor:
    """A standard normal pair with correlation 0.6."""
    square = (a * a - 1.2 * a * b + b * b) / (1 - 0.36)
    return -0.5 * square - math.log(2 * math.pi) - 0.5 * math.log(1 - 0.36)


def tucker() -> pc.Circuit:
    """Two latents integrated out together under a joint density, on top of an ordinary integral."""
    joint = pc.Density(correlated, domain=(-7.0, 7.0))
    left = pc.Integral("z0", pc.Input("x1", LG({"z0": 1.0}, std=0.8)), LG({"z1": 0.7}, std=0.8))
    below = pc.Product(left, pc.Input("x2", LG({"z2": 0.8}, std=0.9)))
    return pc.Circuit(pc.Integral(("z1", "z2"), below, joint))


def shared_bounded_input() -> pc.Circuit:
    """One input unit with a density of its own in two products."""
    angle = pc.Input("x1", pc.Density(lambda x, z: torch.log1p(0.8 * torch.cos(x - z)) - math.log(2 * math.pi),
                                      ["z"], domain=(-math.pi, math.pi)))  # fmt: skip
    parts = [pc.Product(angle, pc.Input("x2", LG({"z": a}, std=0.9))) for a in (0.8, -0.5)]
    return pc.Circuit(pc.Integral("z", pc.Sum(parts, [0.5, 0.5]), PRIOR))


CASES: dict[str, Case] = {
    "lg_tree": Case(lg_tree, (REAL,) * 3, gaussian=True),
    "lg_dag": Case(lg_dag, (REAL,) * 4, pc.gauss_legendre(48), gaussian=True),
    "lg_dag_parents_first": Case(
        lg_dag, (REAL,) * 4, pc.gauss_legendre(32), order=("z2", "z1", "z3", "z4"), nested=False, gaussian=True
    ),
    "lg_chain": Case(lg_chain, (REAL,) * 5, gaussian=True),
    "paper_ltm": Case(paper_ltm, (REAL,) * 4, order=("z4", "z2", "z3", "z1"), gaussian=True),
    "explaining_away": Case(explaining_away, (REAL,) * 2, order=("z2", "z1"), gaussian=True),
    "bernoulli": Case(bernoulli, (2, 2, 2)),
    "bimodal": Case(bimodal, (REAL, 2), pc.gauss_legendre(96)),
    "mixed_columns": Case(mixed_columns, (6, 3, 5, REAL)),
    "many_inputs": Case(many_inputs, (REAL, REAL, 2, REAL, 2)),
    "bare_latent": Case(bare_latent, (REAL,) * 2, gaussian=True),
    "input_without_latents": Case(input_without_latents, (REAL, REAL, 2)),
    "disconnected": Case(disconnected, (REAL,) * 3, gaussian=True),
    "bounded_input": Case(bounded_input, (ANGLE, REAL)),
    "hybrid": Case(hybrid, (REAL, 2, REAL)),
    "sums": Case(sums, (REAL,) * 2),
    "shared_by_integrals": Case(shared_by_integrals, (REAL,) * 2, domain={"z": (-7.0, 7.0)}, nested=False),
    "shared_by_sums": Case(shared_by_sums, (REAL,) * 2),
    "sums_below_sums": Case(sums_below_sums, (REAL,) * 2),
    "two_structures": Case(two_structures, (REAL,) * 3),
    "opposite_directions": Case(
        opposite_directions, (REAL,) * 2, domain={"z1": (-7.0, 7.0), "z2": (-7.0, 7.0)}, nested=False
    ),
    "same_name": Case(same_name, (REAL,) * 2, once=False),
    "tucker": Case(tucker, (REAL,) * 2, domain={"z1": (-7.0, 7.0), "z2": (-7.0, 7.0)}, nested=False),
    "shared_bounded_input": Case(shared_bounded_input, (ANGLE, REAL)),
}

LINEAR_GAUSSIAN_NETS = tuple(name for name, case in CASES.items() if case.gaussian)
"""The cases with a closed form that follows from a network."""
