"""Recipes for the best model: what to try, to be compared on the validation images."""

from __future__ import annotations

from dataclasses import dataclass, replace

DATA = ("mnist", "fashion-mnist")


@dataclass(frozen=True)
class Recipe:
    """How to make a model.

    Attributes:
        structure: ``"chow-liu"``, ``"quad-graph"`` or ``"quad-tree"``.
        components: The number of PICs in a mixture, each for a cluster of the images; a tree is learned for each.
        states: The number of points of the training, shifted at random in every step.
        finer: How many times more points are used to test.
        width: Of the nets.
        sigma: The standard deviation of the Fourier frequencies.
        sharing: What integral units share.
        input_sharing: What input units share.
        decay: The part of the averaged weights that every step keeps; 0 for no average.
        steps: Of the training of each component.
        batch: Rows of a batch.
        high: The step size at the start.
        low: The step size at the end.
        optimizer: ``"adam"`` or ``"adamw"``.
        weight_decay: Of the optimizer.
        validate_every: Steps between validations.
        patience: Steps without improvement after which training stops.
        seed: Of everything random.
    """

    structure: str = "chow-liu"
    components: int = 1
    states: int = 64
    finer: int = 2
    width: int = 256
    sigma: float = 2.0
    sharing: str = "composite"
    input_sharing: str = "full"
    decay: float = 0.99
    steps: int = 4000
    batch: int = 256
    high: float = 2e-2
    low: float = 2e-4
    optimizer: str = "adam"
    weight_decay: float = 0.0
    validate_every: int = 200
    patience: int = 1200
    seed: int = 0


RECIPES = {
    "tree": Recipe(),
    "quad": Recipe(structure="quad-graph", states=32, steps=3000),
    "mixture": Recipe(components=4, states=32, steps=2500),
}

QUICK = {
    name: replace(
        recipe,
        components=min(2, recipe.components),
        states=4,
        width=8,
        steps=6,
        batch=32,
        validate_every=3,
        patience=6,
        decay=0.5,
    )
    for name, recipe in RECIPES.items()
}
