# SPDX-License-Identifier: Apache-2.0
"""Every compiled loop against numpy, for many shapes, with one thread and with two."""

from __future__ import annotations

import ctypes
import functools
import inspect
import itertools
import math
import shutil
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special
from torch import Tensor

from picirc.native import MOST_PARTS, Kernels, library

Array = np.ndarray
TINY = float(np.finfo(np.float32).tiny)
LOWEST = np.finfo(np.float32).min
HEADROOM, LEAST = 8.0, -87.3355
TWO_ULP = 2.5e-7
SERVES_TWO = 2**14  # elements that are shared between threads

BATCHES, STATES = (1, 2, 3, 5, 16, 17, 63, 64, 65, 200), (1, 2, 3, 7, 16, 64)


def every_shape(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test for all numbers of states and batches, as one item."""

    @functools.wraps(test)
    def run(**arguments: object) -> None:
        for states, batch in itertools.product(STATES, BATCHES):
            test(states=states, batch=batch, **arguments)

    signature = inspect.signature(test)
    kept = [p for name, p in signature.parameters.items() if name not in ("states", "batch")]
    run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    return run


def with_threads(compute: Callable[[], Sequence[Tensor]]) -> list[Array]:
    """What comes out with one thread, which has to be what comes out with two."""
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append([tensor.numpy() for tensor in compute()])
    finally:
        torch.set_num_threads(before)
    for one, two in zip(*results, strict=True):
        assert_array_equal(two, one)
    return results[0]


def folds(states: int, batch: int) -> tuple[int, int]:
    """One, and as many as keep two threads busy, which do not divide evenly."""
    return 1, SERVES_TWO // (states * batch) + 3


def logs(generator: torch.Generator, *shape: int) -> Tensor:
    """Log-values ``(fold, states, batch)`` near each other and far apart, with all that is not a finite number."""
    values = torch.randn(shape, generator=generator) * 10.0 ** torch.randint(
        -1, 4, (shape[0], 1, 1), generator=generator
    )
    values[torch.rand(shape, generator=generator) < 0.1] = -math.inf
    odd = torch.randint(40, (shape[0], shape[2]), generator=generator)
    values.masked_fill_((odd == 0).unsqueeze(1), -math.inf)
    state = int(torch.randint(shape[1], (), generator=generator))
    values[:, state][odd == 1] = math.nan
    values[:, state][odd == 2] = math.inf
    values[:, state][odd == 3] = 3e38
    return values


def sums(generator: torch.Generator, *shape: int) -> Tensor:
    """Positive numbers over the whole range, with zeros, denormal numbers, infinite ones and NaN."""
    bits = torch.randint(0x00800000, 0x7F800000, shape, generator=generator, dtype=torch.int32)
    values = bits.view(torch.float32)
    odd = torch.randint(400, shape, generator=generator)
    for number, value in enumerate((0.0, 1e-44, 1e-39, TINY, 1.0, math.inf, math.nan)):
        values[odd == number] = value
    return values


def rows_and_sources(
    generator: torch.Generator, targets: int, results: int, some: bool
) -> tuple[Tensor, Tensor | None]:
    """Where results go, several of them to one row, and which ones do: all, or some of them and some twice."""
    count = results + 2 if some else results
    sources = torch.randint(results, (count,), generator=generator) if some else None
    return torch.randint(targets, (count,), generator=generator), sources


def numbers_of(sources: Tensor | None, count: int) -> Array:
    return np.arange(count) if sources is None else sources.numpy()


@every_shape
def test_scaled_rows(native: Kernels, generator: torch.Generator, states: int, batch: int):
    for fold in folds(states, batch):
        given = logs(generator, fold, states, batch)

        def compute(given: Tensor = given) -> tuple[Tensor, Tensor]:
            rows, shift = given.clone(), torch.full((len(given), 1, batch), 7.0)
            native.scale_rows(rows, shift, HEADROOM, LEAST)
            return rows, shift

        rows, shift = with_threads(compute)
        x = given.numpy()
        with np.errstate(all="ignore"):
            expected = np.maximum(x.max(1, keepdims=True), LOWEST) - np.float32(HEADROOM)
            gap = x - expected
            values = np.where(gap < np.float32(LEAST), 0.0, np.exp(gap.astype(np.float64)))
        assert_array_equal(shift, expected)
        assert_allclose(rows, values, rtol=TWO_ULP, atol=0)


@every_shape
@pytest.mark.parametrize("some", [False, True])
def test_logarithms_are_added(native: Kernels, generator: torch.Generator, states: int, batch: int, some: bool):
    for results in folds(states, batch):
        found, targets = sums(generator, results, states, batch), results // 2 + 2
        rows, sources = rows_and_sources(generator, targets, results, some)
        before = torch.randn(targets, states, batch, generator=generator)

        def compute(
            before: Tensor = before, rows: Tensor = rows, sources: Tensor | None = sources, found: Tensor = found
        ) -> tuple[Tensor]:
            target = before.clone()
            native.add_logs(target, rows, sources, found)
            return (target,)

        (after,) = with_threads(compute)
        with np.errstate(all="ignore"):
            terms = np.log(found.double().numpy())[numbers_of(sources, results)]
            expected, size = before.double().numpy(), before.double().abs().numpy()
            np.add.at(expected, rows.numpy(), terms)
            np.add.at(size, rows.numpy(), np.abs(terms))
            # Each of the additions rounds a number that is not larger than the sum of absolute values.
            bound = (2 + np.bincount(rows.numpy(), minlength=targets)[:, None, None]) * 6e-8 * size
            right = np.abs(after - expected) <= bound
        odd = ~np.isfinite(expected)
        assert_array_equal(after[odd], expected[odd])
        assert right[~odd].all()
        untouched = np.setdiff1d(np.arange(targets), rows.numpy())
        assert_array_equal(after[untouched], before.numpy()[untouched])


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("some", [False, True])
@pytest.mark.parametrize("edges", [1, 3])
def test_scales_are_added(native: Kernels, generator: torch.Generator, batch: int, some: bool, edges: int):
    for fold in (1, SERVES_TWO // batch + 3):
        scales = 1e6 * torch.randn(fold, batch, generator=generator, dtype=torch.float64)
        shift = logs(generator, fold, 1, batch)
        rows, sources = rows_and_sources(generator, fold + 1, fold * edges, some)
        before = torch.randn(fold + 1, batch, generator=generator, dtype=torch.float64)

        def compute(
            before: Tensor = before,
            rows: Tensor = rows,
            sources: Tensor | None = sources,
            scales: Tensor = scales,
            shift: Tensor = shift,
        ) -> tuple[Tensor]:
            target = before.clone()
            native.add_scales(target, rows, sources, scales, shift, edges)
            return (target,)

        (after,) = with_threads(compute)
        with np.errstate(all="ignore"):
            terms = (scales + shift.squeeze(1)).numpy()[numbers_of(sources, fold * edges) // edges]
            expected = before.numpy().copy()
            np.add.at(expected, rows.numpy(), terms)
        assert_array_equal(after, expected)


def mixed(
    native: Kernels, fold: int, rows: Tensor, scales: Tensor, sources: Tensor, weights: Tensor
) -> tuple[Array, Array]:
    """The mixtures and their scales."""

    def compute() -> tuple[Tensor, Tensor]:
        out, out_scales = torch.full((fold, *rows.shape[1:]), 7.0), torch.full((fold, rows.shape[2]), 7.0).double()
        native.mix_up(out, out_scales, rows, scales, sources, weights)
        return out, out_scales

    out, out_scales = with_threads(compute)
    return out, out_scales


def mixture_oracle(rows: Tensor, scales: Tensor, sources: Tensor, weights: Tensor) -> Array:
    """The logarithms of the mixtures in double precision, ``(fold, states, batch)``, scales included."""
    parts = (rows.double() + scales.unsqueeze(1)).numpy()[sources.numpy()]  # (fold, arity, states, batch)
    with np.errstate(all="ignore"):
        return special.logsumexp(parts, axis=1, b=np.broadcast_to(weights.double().numpy()[..., None], parts.shape))


@every_shape
@pytest.mark.parametrize("arity", [1, 2, MOST_PARTS])
def test_mixtures(native: Kernels, generator: torch.Generator, states: int, batch: int, arity: int):
    for number, fold in enumerate(folds(states * arity, batch)):
        count = 2 * arity + 1
        rows = 4 * torch.randn(count, states, batch, generator=generator)
        rows[torch.rand(rows.shape, generator=generator) < 0.2] = -math.inf
        scales = 4 * torch.randn(count, batch, generator=generator, dtype=torch.float64) - 1e5
        sources = torch.rand(fold, count, generator=generator).argsort(1)[:, :arity].contiguous()
        weights = torch.rand(fold, arity, states if number else 1, generator=generator)
        weights[torch.rand(weights.shape, generator=generator) < 0.2] = 0.0
        out, out_scales = mixed(native, fold, rows, scales, sources, weights)
        weighed = weights.numpy().any(2)[:, :, None]
        largest = np.where(weighed, scales.numpy()[sources.numpy()], np.finfo(np.float32).min).max(1)
        assert_array_equal(out_scales, largest)
        expected = mixture_oracle(rows, scales, sources, weights) - out_scales[:, None]
        assert_allclose(out, expected, rtol=1e-6, atol=1e-5)


def test_mixtures_of_parts_far_apart(native: Kernels, generator: torch.Generator):
    """The smaller parts count for nothing, unless the largest is impossible."""
    rows, scales = torch.randn(3, 4, 70, generator=generator), torch.tensor([0.0, -1e6, 1e6]).double()
    scales = scales[:, None].expand(3, 70).contiguous()
    rows[2, :, 60:] = -math.inf
    sources = torch.tensor([[0, 1], [2, 0]]).repeat(90, 1)
    weights = torch.rand(180, 2, 4, generator=generator) + 0.1
    out, out_scales = mixed(native, 180, rows, scales, sources, weights)
    expected = mixture_oracle(rows, scales, sources, weights)
    assert_allclose(out + out_scales[:, None], expected, rtol=0, atol=0.07)  # steps of single precision at 1e6
    plain = np.log(weights[:, :1].double().numpy().swapaxes(1, 2)) + rows.numpy()[sources[:, 0].numpy()]
    assert_allclose(out[:, :, :60], plain[:, :, :60], rtol=1e-6, atol=1e-6)
    assert np.isfinite(out).all()


@pytest.mark.parametrize("where", ["rows", "scales"])
@pytest.mark.parametrize("states", [1, 4])
def test_a_part_without_weight_does_not_hide_the_others(native: Kernels, generator, where: str, states: int):
    rows, scales = torch.randn(2, 4, 70, generator=generator), torch.zeros(2, 70).double()
    (rows if where == "rows" else scales)[0] += 1e6
    weights = torch.tensor([0.0, 0.25])[:, None].expand(180, 2, states).contiguous()
    out, out_scales = mixed(native, 180, rows, scales, torch.tensor([[0, 1]] * 180), weights)
    expected = np.broadcast_to(rows[1].numpy() + math.log(0.25), out.shape)
    assert_allclose(out + out_scales[:, None], expected, rtol=0, atol=1e-6)


def test_mixtures_of_what_is_not_finite(native: Kernels, generator: torch.Generator):
    """NaN stays with its data point, also that of a scale; parts that are impossible make an impossible mixture."""
    rows, scales = torch.randn(2, 3, 40, generator=generator), torch.zeros(2, 40).double()
    rows[:, :, 0], rows[1, :, 1], rows[0, 1, 2] = -math.inf, -math.inf, math.nan
    rows[1, 2, 3], scales[1, 4], scales[:, 5] = math.inf, math.nan, -1e39  # beyond the range of single precision
    sources, weights = torch.tensor([[0, 1]] * 200), torch.full((200, 2, 1), 0.5)
    weights[0] = 0.0
    out, out_scales = mixed(native, 200, rows, scales, sources, weights)
    assert (out[0, :, 6:] == -math.inf).all()
    assert (out[1:, :, 0] == -math.inf).all()
    assert_allclose(out[1:, :, 1], np.broadcast_to(rows[0, :, 1].numpy() + math.log(0.5), (199, 3)), atol=1e-6)
    assert_array_equal(np.isnan(out[1:, :, 2]), np.broadcast_to([False, True, False], (199, 3)))
    assert not np.isfinite(out[1:, 2, 3]).any()
    assert np.isnan(out[1:, :, 4]).all()
    assert not np.isnan(out_scales[:, 5]).any()
    assert not np.isnan(out[1:, :, 5]).any()
    assert np.isfinite(out[1:, :, 6:]).all()


@every_shape
def test_quotients(native: Kernels, generator: torch.Generator, states: int, batch: int):
    for count in folds(states, batch):
        flows = sums(generator, count // 2 + 1, states, batch)
        below, rows = sums(generator, count, states, batch), torch.randint(len(flows), (count,), generator=generator)

        def compute(flows: Tensor = flows, rows: Tensor = rows, below: Tensor = below) -> tuple[Tensor]:
            out = torch.full_like(below, 7.0)
            native.collect_quotients(out, flows, rows, below.flatten())
            return (out,)

        (out,) = with_threads(compute)
        with np.errstate(all="ignore"):
            expected = flows.numpy()[rows.numpy()] / np.maximum(below.numpy(), np.float32(TINY))
        assert_array_equal(out, expected)


@pytest.mark.parametrize("elements", [1, 15, 17, 1000, SERVES_TWO + 5])
@pytest.mark.parametrize("smallest", [0.0, 2.0**-66, math.nan])
def test_products_of_flows(native: Kernels, generator: torch.Generator, elements: int, smallest: float):
    sign = torch.randint(2, (elements,), generator=generator) * 2 - 1
    given, arriving = sums(generator, elements) * sign, sums(generator, elements)

    def compute() -> tuple[Tensor]:
        rows = given.clone()
        native.multiply_flows(rows, arriving, smallest)
        return (rows,)

    (rows,) = with_threads(compute)
    with np.errstate(all="ignore"):
        product = given.numpy() * arriving.numpy()
        assert_array_equal(rows, np.where(np.abs(product) <= np.float32(smallest), 0.0, product))


@every_shape
@pytest.mark.parametrize("results", [1, 3, 16])
def test_products_with_maxima(native: Kernels, generator: torch.Generator, states: int, batch: int, results: int):
    for fold in folds(states * results, batch):
        weights, rows = logs(generator, fold, results, states), logs(generator, fold, states, batch)
        weights[weights.isposinf()] = -math.inf  # which would make NaN of rows that are impossible

        def compute(weights: Tensor = weights, rows: Tensor = rows) -> tuple[Tensor]:
            out = torch.full((len(rows), results, batch), 7.0)
            native.max_product(out, weights, rows)
            return (out,)

        (out,) = with_threads(compute)
        with np.errstate(all="ignore"):
            expected = (weights.numpy()[..., None] + rows.numpy()[:, None]).max(2)
        assert_array_equal(out, expected)


@pytest.mark.parametrize("count", [1, 7, SERVES_TWO])
@pytest.mark.parametrize("entries", [1, 2, 3, 64, 257])
def test_the_first_entry_above_a_value(native: Kernels, generator: torch.Generator, entries: int, count: int):
    """Of cumulative sums with plateaus, for values below, between, at and above the entries."""
    steps = torch.randint(3, (5, entries), generator=generator).float()
    tables, rows = steps.cumsum(1), torch.randint(5, (count,), generator=generator)
    values = (torch.rand(count, generator=generator) * 2 * entries).round() / 2 - 1

    def compute() -> tuple[Tensor]:
        out = torch.full((count,), -7)
        native.bisect(out, tables, rows, values)
        return (out,)

    (out,) = with_threads(compute)
    above = tables[rows].numpy() > values.numpy()[:, None]
    assert_array_equal(out, np.where(above.any(1), above.argmax(1), entries - 1))


@every_shape
@pytest.mark.parametrize("shared", [False, True])
def test_tables_are_looked_up(native: Kernels, generator: torch.Generator, states: int, batch: int, shared: bool):
    for fold in folds(states, batch):
        for values in (1, 2, 5):
            table = logs(generator, 1 if shared else fold, states, values)
            codes = torch.randint(values, (fold, batch), generator=generator, dtype=torch.int32)

            def compute(fold: int = fold, table: Tensor = table, codes: Tensor = codes) -> tuple[Tensor]:
                out = torch.full((fold, states, batch), 7.0)
                native.look_up(table, codes, out)
                return (out,)

            (out,) = with_threads(compute)
            whole = np.broadcast_to(table.numpy(), (fold, states, values))
            assert_array_equal(out, np.take_along_axis(whole, codes.long().numpy()[:, None], 2))


@every_shape
@pytest.mark.parametrize("shared", [False, True])
def test_values_are_counted(native: Kernels, generator: torch.Generator, states: int, batch: int, shared: bool):
    for fold in folds(states, batch):
        for values in (1, 2, 5):
            weights = torch.randint(8, (fold, states, batch), generator=generator).float()  # sums of integers are exact
            codes = torch.randint(values, (fold, batch), generator=generator, dtype=torch.int32)

            def compute(values: int = values, weights: Tensor = weights, codes: Tensor = codes) -> tuple[Tensor]:
                out = torch.full((1 if shared else len(weights), states, values), 7.0)
                native.count_values(out, weights, codes)
                return (out,)

            (out,) = with_threads(compute)
            marked = codes.numpy()[:, :, None] == np.arange(values)  # (fold, batch, values)
            expected = np.einsum("fsb,fbv->fsv", weights.numpy(), marked)
            assert_array_equal(out, expected.sum(0, keepdims=True) if shared else expected)


def test_exponentials_over_the_whole_range(native: Kernels):
    exponents = torch.linspace(LEAST - 1, HEADROOM, 2**19).view(1, -1, 1).repeat(1, 1, 2)
    rows, shift = (exponents - HEADROOM).contiguous(), torch.empty(1, 1, 2)
    gap = (rows - torch.tensor(-HEADROOM)).double().numpy()
    native.scale_rows(rows, shift, HEADROOM, LEAST)
    expected = np.where(gap < np.float32(LEAST), 0.0, np.exp(gap))
    assert_allclose(rows.numpy(), expected, rtol=TWO_ULP, atol=0)
    assert not ((rows > 0) & (rows < TINY)).any()  # no denormal number


@pytest.mark.parametrize("first", [0x00800000, 0x3F000000, 0x3F7FF000])  # all, those around 1, and those close to it
def test_logarithms_over_the_whole_range(native: Kernels, generator: torch.Generator, first: int):
    last = 0x7F800000 if first == 0x00800000 else 2 * 0x3F800000 - first
    bits = torch.randint(first, last, (1, 1, 2**19), generator=generator, dtype=torch.int32)
    numbers, target = bits.view(torch.float32), torch.zeros(1, 1, 2**19)
    native.add_logs(target, torch.tensor([0]), None, numbers)
    assert_allclose(target.numpy(), np.log(numbers.double().numpy()), rtol=TWO_ULP, atol=0)


Fork = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
Work = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@pytest.mark.parametrize("arriving", [1, 3])
def test_a_team_of_another_size_does_all_of_the_work(
    native: Kernels, generator: torch.Generator, tmp_path, arriving: int
):
    """Threads are asked for where there is much to do, and nothing is left out or done twice if others come."""
    loaded = library()
    assert loaded is not None
    apart = ctypes.CDLL(str(shutil.copy(loaded._name, tmp_path / "kernels.so")))  # with threads of its own
    asked = []

    def fork(work: int, data: int, threads: int, flags: int) -> None:
        asked.append(threads)
        for _ in range(arriving):
            Work(work)(data)

    callback, before = Fork(fork), torch.get_num_threads()
    apart.picirc_use_threads(callback)
    for elements, expected in ((2**14 - 1, []), (2**14 + 1, [2])):
        rows, arriving_flows = (torch.rand(elements, generator=generator) for _ in range(2))
        product = rows * arriving_flows
        try:
            torch.set_num_threads(2)
            Kernels(apart).multiply_flows(rows, arriving_flows, 0.0)
        finally:
            torch.set_num_threads(before)
        assert torch.equal(rows, product)
        assert asked == expected
