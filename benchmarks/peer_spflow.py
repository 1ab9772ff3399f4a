# SPDX-License-Identifier: Apache-2.0
"""The same hidden Chow–Liu tree in SPFlow and in picirc: SPFlow takes the numbers of picirc."""

from __future__ import annotations

import torch
from spflow.meta import Scope
from spflow.modules.leaves import Categorical
from spflow.modules.module import Module
from spflow.modules.products import ElementwiseProduct
from spflow.modules.sums import Sum
from torch import Tensor

import picirc as pc
from pair import Pair
from places import Places


def pair(tree: pc.LatentTree, states: int, categories: int, seed: int = 0) -> Pair:
    """The circuit of a latent tree with categorical inputs, twice."""
    ours = pc.HCLT(tree, pc.Categorical(categories), states, generator=torch.Generator().manual_seed(seed))
    theirs = _module(tree, Places(ours))

    def log_prob(x: Tensor) -> Tensor:
        values: Tensor = theirs.log_likelihood(x)
        return values.flatten()

    def sample(n: int) -> Tensor:
        drawn: Tensor = theirs.sample(num_samples=n)
        return drawn

    return Pair(ours, theirs, log_prob, sample)


def _module(tree: pc.LatentTree, places: Places) -> Module:
    """One sum module a latent, over the product of its inputs and its children's sums."""
    sums: dict[int, Module] = {}
    for latent in tree.order:
        parent = tree.parents[latent]
        leaves = [
            Categorical(scope=Scope([variable]), out_channels=logits.shape[0], logits=logits[None, :, None])
            for variable in tree.variables[latent]
            for logits in (places.inputs[variable].log_softmax(-1),)
        ]
        parts = [*leaves, *(sums.pop(child) for child in tree.children[latent])]
        weights = places.weights[latent, None if parent < 0 else parent].softmax(-1)  # (states of the parent, states)
        below = parts[0] if len(parts) == 1 else ElementwiseProduct(inputs=parts)
        sums[latent] = Sum(inputs=below, weights=weights.T[None, :, :, None])
    return sums[tree.root]
