"""A warm start: a PIC that begins with the nets of another one on a different tree."""

from __future__ import annotations

import torch

import picirc as pc


@torch.no_grad()
def begin_with(model: pc.PIC, source: pc.PIC) -> None:
    """Copy the nets of a PIC of the same kind into another, whose tree may differ.

    The hidden layers are shared by all units and are copied as they are. A latent takes the head of its namesake, whose
    parent may be another one; the trees of similar images differ little. Where there is no namesake, as for a latent
    that is the root of one tree only, the new model keeps the head that it has.

    Args:
        model: The PIC that is changed.
        source: The PIC that has been trained.
    """
    for own, theirs in zip(model.inputs, source.inputs, strict=True):
        own.load_state_dict(theirs.state_dict())
    heads = {
        (len(block.new), integral.variables): (bank.head[row], bank.head_bias[row])
        for block, bank in zip(source.plan.blocks, source.integrals, strict=True)
        for row, (integral, *_) in enumerate(block.integrals)
    }
    for block, own, theirs in zip(model.plan.blocks, model.integrals, source.integrals, strict=True):
        own.features.load_state_dict(theirs.features.state_dict())
        own.hidden.copy_(theirs.hidden)
        own.hidden_bias.copy_(theirs.hidden_bias)
        for row, (integral, *_) in enumerate(block.integrals):
            if found := heads.get((len(block.new), integral.variables)):
                own.head[row], own.head_bias[row] = found
