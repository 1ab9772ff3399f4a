# SPDX-License-Identifier: Apache-2.0
"""The circuit that is measured: a hidden Chow–Liu tree as large as MNIST, its queries, and the bare products in it."""

from __future__ import annotations

import gzip
import math
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import picirc as pc
from measure import Run, peak
from picirc.engine.compiled import CompiledCircuit, Values
from picirc.engine.schedule import InputStep, SumStep
from picirc.memory import empty
from picirc.qpc.validation import as_points

BARE = ("up", "up+down")  # the cases that find the inputs in place
PIXELS = 784
CATEGORIES = 256
_IMAGES = 10_000  # as many images give the same kind of tree as all of them, in a fraction of the time
_HEADER = 16  # bytes before the pixels


def mnist_tree() -> tuple[pc.LatentTree, str]:
    """The hidden Chow–Liu tree of MNIST, or a random one of its size and depth where ``PICIRC_DATA`` is not set."""
    folder = os.environ.get("PICIRC_DATA")
    if not folder:
        return pc.random_tree(PIXELS, seed=0, depth=50), "random tree"
    with gzip.open(Path(folder) / "mnist" / "train-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(_HEADER + _IMAGES * PIXELS), np.uint8, offset=_HEADER)
    return pc.hidden_chow_liu(pixels.reshape(-1, PIXELS)), f"hidden Chow–Liu tree of {_IMAGES} MNIST images"


class Workload:
    """A tree circuit with random parameters, a batch of random data, and runs of everything that is measured.

    Args:
        tree: The structure.
        states: The number N of states of each latent.
        batch: The number B of data points.
        categories: The number of values of each variable.
    """

    def __init__(self, tree: pc.LatentTree, states: int, batch: int, categories: int = CATEGORIES) -> None:
        self.batch = batch
        self._generator = torch.Generator().manual_seed(0)
        model = pc.HCLT(tree, pc.Categorical(categories), states, generator=self._generator)
        with torch.no_grad():
            self.qpc: pc.QPC = model()
        for tensor in self.qpc.parameters.tensors:
            tensor.requires_grad_()
        self._parameters = self.qpc.parameters.detach()
        self._compiled: CompiledCircuit = self.qpc.compiled
        self._steps = [step for step in self._compiled.schedule.steps if isinstance(step, SumStep)]
        self.x = torch.randint(categories, (batch, tree.n_variables), generator=self._generator).float()
        names = [str(variable) for variable in range(tree.n_variables)]
        self._points = as_points(self.x, None, model.families, names, self._parameters.like)
        self.half = self.x.clone()
        self.half[:, tree.n_variables // 2 :] = torch.nan

    @property
    def array_bytes(self) -> int:
        """The size of one array (fold, state, batch)."""
        pools = zip(self._compiled.schedule.pools, self._compiled.shapes, strict=True)
        return sum(pool.rows * math.prod(shape) for pool, shape in pools) * self.x.element_size() * self.batch

    @property
    def gradient_bytes(self) -> int:
        """The size of the gradient of the sum weights."""
        return sum(w.numel() * w.element_size() for w in self.qpc.parameters.weights)

    @property
    def flops(self) -> int:
        """The floating-point operations of one pass of products."""
        dims = [(step.stop - step.start, *self._compiled.dims(step)) for step in self._steps]
        return sum(2 * fold * g * o * z * r * self.batch for fold, g, o, z, r in dims)

    @property
    def cases(self) -> Mapping[str, Run]:
        """Everything that is measured, by name."""
        return {
            "up": self._up,
            "up+down": self._up_down,
            "log-likelihood": torch.no_grad()(lambda: self.qpc.log_prob(self.x)),
            "likelihood+gradient": self._gradient,
            "sample": lambda: self.qpc.sample(self.batch, generator=self._generator),
            "sample, half given": lambda: self.qpc.sample(1, given=self.half, generator=self._generator),
            "marginals": lambda: self.qpc.marginals(self.half),
            "mpe": lambda: self.qpc.mpe(self.half),
        }

    def limits(self) -> Mapping[str, Run]:
        """The bare matrix products of one pass up, and the three of up and down, into buffers that exist."""
        weights = torch.cat([self._matrices(step) for step in self._steps[:-1]])  # (fold, N, N); the root has N×1
        fold, states = weights.shape[:2]
        values = torch.rand(fold, states, self.batch, generator=self._generator)
        out, gradient = torch.empty_like(values), torch.empty_like(weights)
        levels = [slice(step.start, step.stop) for step in self._steps[:-1]]

        def limit() -> None:
            for level in levels:
                torch.bmm(weights[level], values[level], out=out[level])

        def limit3() -> None:
            limit()
            for level in levels:
                torch.bmm(values[level], out[level].transpose(1, 2), out=gradient[level])
                torch.bmm(weights[level].transpose(1, 2), values[level], out=out[level])

        return {"limit": limit, "limit3": limit3}

    def fill(self) -> None:
        """Begin a pass: put the log-probabilities of the data into its rows, which is not part of ``up``."""
        self._values = Values([], [])  # releases those of the previous run, whose memory this one takes
        self._values = self._compiled.start(self._parameters.like, self.batch)
        for ready in self._compiled.steps(self._parameters.like, self.batch)[0]:
            if isinstance(ready.step, InputStep):
                self._compiled.input_up(ready, self._values, self._points, self._parameters)

    def _up(self, keep: bool = False) -> None:
        """Run the other steps, which are sums in a tree."""
        like = self._parameters.like
        steps, most = self._compiled.steps(like, self.batch)
        scratch = empty((most * self.batch,), like)
        self._values.sums = empty((self._compiled.results * self.batch,), like) if keep else None
        for ready in steps:
            if isinstance(ready.step, SumStep):
                self._compiled.sum_up(ready, self._values, self._parameters.weights[ready.step.block], scratch)

    def _up_down(self) -> None:
        self._up(keep=True)
        self._compiled.down(self._values, self._parameters, torch.ones(self.batch), gradient=True)

    def _gradient(self) -> None:
        for tensor in self.qpc.parameters.tensors:
            tensor.grad = None
        self.qpc.log_prob(self.x).sum().backward()

    def _matrices(self, step: SumStep) -> Tensor:
        return self._parameters.weights[step.block][step.first : step.first + step.stop - step.start, 0]


def peak_of(case: str, parents: tuple[int, ...], states: int, batch: int) -> int:
    """The peak memory of a case in bytes beyond parameters and data; for a process of its own."""
    small = Workload(pc.chain(20), states, batch, categories=4)
    small.fill()
    small.cases[case]()  # loads the code for these shapes and starts the threads, which are not what is measured
    del small
    variables = tuple((i,) for i in range(len(parents)))
    workload = Workload(pc.LatentTree(parents, variables), states, batch)
    run = workload.cases[case]

    def whole() -> None:
        if case in BARE:
            workload.fill()
        run()

    return peak(whole)
