# SPDX-License-Identifier: Apache-2.0
"""Chains on a grid: the passes agree with sums over all paths, alone and in batches of different lengths."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from sequence_oracles import enumerate_paths

from picirc.inputs import Bernoulli, Categorical
from picirc.sequences.chain import Batch, Chain, _Forward, repeated

LENGTHS = (3, 5, 1, 4, 5)


def random_chain(states=3, seed=0):
    source = torch.Generator().manual_seed(seed)

    def table(*shape):
        return torch.randn(*shape, generator=source, dtype=torch.float64)

    single = table(states, states).softmax(1)
    inputs = (
        (Categorical(4), Categorical(4).constrain(table(1, states, 4))),
        (Bernoulli(), Bernoulli().constrain(table(1, states, 1))),
    )
    nodes = torch.arange(states, dtype=torch.float64).unsqueeze(1)
    return Chain(nodes, table(states).softmax(0), lambda gaps: repeated(single, gaps), inputs)


def random_data(seed=1):
    source = torch.Generator().manual_seed(seed)
    found = []
    for length in LENGTHS:
        x = torch.stack(
            [torch.randint(0, 4, (length,), generator=source), torch.randint(0, 2, (length,), generator=source)], 1
        ).double()
        x[torch.rand(length, 2, generator=source) < 0.3] = torch.nan
        found.append(x)
    gaps = [torch.randint(1, 4, (length,), generator=source).double() for length in LENGTHS]
    return found, gaps


def oracle(chain, x, gaps):
    emissions = chain.log_emission(x).exp().numpy()
    transitions = chain.transition(gaps).numpy()
    return enumerate_paths(chain.start.numpy(), transitions, emissions)


def test_a_batch_keeps_every_sequence():
    xs, gaps = random_data()
    batch = Batch.of(xs, gaps)
    for own, found in zip(xs, batch.split(batch.x), strict=True):
        assert torch.equal(own.nan_to_num(-1), found.nan_to_num(-1))
    assert sum(batch.running) == sum(LENGTHS)


@pytest.mark.parametrize("regular", [True, False])
def test_likelihood_and_smoothing_are_sums_over_paths(regular):
    chain = random_chain()
    xs, gaps = random_data()
    if regular:
        gaps = [torch.ones_like(gap) for gap in gaps]
    batch = Batch.of(xs, gaps)
    steps, filtered, smoothed = chain.passes(batch, smooth=True)
    parts = zip(xs, gaps, batch.split(steps), batch.split(filtered), batch.split(smoothed), strict=True)
    for x, gap, step, forward, both in parts:
        total, expected = oracle(chain, x, gap)
        assert step.sum().item() == pytest.approx(total, abs=1e-12)
        np.testing.assert_allclose(both.numpy(), expected, atol=1e-12)
        np.testing.assert_allclose(forward[-1].numpy(), expected[-1], atol=1e-12)
        np.testing.assert_allclose(forward[0].numpy(), oracle(chain, x[:1], gap[:1])[1][0], atol=1e-12)


def test_gradients_agree_with_finite_differences():
    xs, gaps = random_data()
    batch = Batch.of(xs, gaps)
    source = torch.Generator().manual_seed(2)
    start, tables, emission = (
        torch.rand(shape, generator=source, dtype=torch.float64).requires_grad_()
        for shape in [(3,), (2, 3, 3), (len(batch.x), 3)]
    )
    index = torch.randint(0, 2, (len(batch.x),), generator=source)
    per_sequence = torch.rand(len(xs), generator=source, dtype=torch.float64)

    def weighted(start, tables, emission):
        steps = _Forward.apply(start, tables, emission, index, batch.running)
        return sum(w * part.sum() for w, part in zip(per_sequence, batch.split(steps), strict=True))

    assert torch.autograd.gradcheck(weighted, (start, tables, emission))


def test_a_gradient_of_single_steps_is_refused():
    batch = Batch.of(*random_data())
    emission = torch.zeros(len(batch.x), 3, requires_grad=True)
    index = torch.zeros(len(batch.x), dtype=torch.long)
    steps = _Forward.apply(torch.ones(3) / 3, torch.ones(1, 3, 3) / 3, emission, index, batch.running)
    with pytest.raises(RuntimeError, match="whole sequences"):
        steps[-1].backward()


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_second_derivative_is_refused(place):
    batch = Batch.of(*random_data())
    numbers = [torch.ones(3) / 3, torch.ones(1, 3, 3) / 3, torch.zeros(len(batch.x), 3)]
    numbers[place].requires_grad_()
    index = torch.zeros(len(batch.x), dtype=torch.long)
    steps = _Forward.apply(*numbers, index, batch.running)
    (gradient,) = torch.autograd.grad(steps.sum(), numbers[place], create_graph=True)
    with pytest.raises(NotImplementedError, match="first derivatives only"):
        gradient.sum().backward()


def test_an_impossible_surprise_stays_finite():
    chain = random_chain()
    far = Chain(
        chain.nodes, torch.tensor([1.0, 0, 0]).double(), lambda g: torch.eye(3).double().expand(len(g), 3, 3), ()
    )
    emission = torch.tensor([[0.0, -50.0, -50.0], [-5000.0, 0.0, -5000.0]]).double()
    steps = _Forward.apply(far.start, far.transition(torch.ones(1)), emission, torch.zeros(2, dtype=torch.long), (1, 1))
    assert bool(steps.isfinite().all())


def test_single_precision_does_not_underflow():
    chain = random_chain()
    x = random_data()[0][1].repeat(400, 1)
    batch = Batch.of([x], [torch.ones(len(x))])
    exact = chain.passes(batch)[0].sum()
    emission = chain.log_emission(x).float()
    index = torch.zeros(len(x), dtype=torch.long)
    single = _Forward.apply(
        chain.start.float(), chain.transition(torch.ones(1)).float(), emission, index, (1,) * len(x)
    )
    assert single.double().sum().item() == pytest.approx(exact.item(), rel=1e-5)


def test_paths_are_drawn_from_the_posterior():
    chain = random_chain()
    xs, gaps = random_data()
    x, gap = xs[3], gaps[3]
    _, filtered, smoothed = chain.passes(Batch.of([x], [gap]), smooth=True)
    drawn = chain.draw_states(filtered, gap, torch.Generator().manual_seed(3), 4000)
    for t in range(len(x)):
        counts = torch.bincount(drawn[:, t], minlength=3).numpy()
        assert chisquare(counts, 4000 * smoothed[t].numpy()).pvalue > 1e-3
