"""Recipes for the best model: what to try, to be compared on the validation images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Stage:
    """A part of a training, with a grid and a cosine of step sizes of its own.

    Attributes:
        states: The number of points, shifted at random in every step.
        steps: The number of steps.
        high: The step size at the start; it falls to a hundredth of that.
    """

    states: int
    steps: int
    high: float = 2e-2


@dataclass(frozen=True)
class Recipe:
    """How to make a model.

    The nets of a PIC do not depend on the grid, so a training may begin with few points and end with many.

    Attributes:
        structure: ``"chow-liu"``, ``"quad-graph"`` or ``"quad-tree"``.
        components: The number of PICs in a mixture, each for a cluster of the images; a tree is learned for each.
        start: The training of one PIC on all images, whose nets the components begin with; none for a random start.
        stages: The training of each component.
        points: The number of points of the test.
        width: Of the nets.
        sigma: The standard deviation of the Fourier frequencies.
        sharing: What integral units share.
        input_sharing: What input units share.
        decay: The part of the averaged weights that every step keeps; 0 for no average.
        batch: Rows of a batch.
        optimizer: ``"adam"`` or ``"adamw"``.
        weight_decay: Of the optimizer.
        validate_every: Steps between validations.
        patience: Steps without improvement after which a stage ends.
        seed: Of everything random.
        after: The recipe whose mixture this one goes on from: its components are split by the types of the images.
        types: The number of types.
        rows: Training images that a part needs at least; a type with few of them has fewer parts.
        reach: By how many pixels an image may be moved, for the mixture that goes on.
    """

    structure: str = "chow-liu"
    components: int = 1
    start: tuple[Stage, ...] = ()
    stages: tuple[Stage, ...] = (Stage(64, 900),)
    points: int = 128
    width: int = 256
    sigma: float = 2.0
    sharing: str = "composite"
    input_sharing: str = "full"
    decay: float = 0.99
    batch: int = 128
    optimizer: str = "adam"
    weight_decay: float = 0.0
    validate_every: int = 100
    patience: int = 1200
    seed: int = 0
    after: str = ""
    types: int = 1
    rows: int = 0
    reach: int = 0

    def settings(self) -> dict[str, Any]:
        """The recipe as plain values, without those of a mixture that goes on where it does not."""
        own = asdict(self) | {name: [asdict(stage) for stage in getattr(self, name)] for name in ("start", "stages")}
        return own if self.after else {name: own[name] for name in own if name not in GOING_ON}

    @staticmethod
    def read(settings: Mapping[str, Any]) -> Recipe:
        """The recipe that these are the settings of; whatever else they have is left out."""
        own = {name: settings[name] for name in asdict(Recipe()) if name in settings}
        stages = {name: tuple(Stage(**stage) for stage in own[name]) for name in ("start", "stages")}
        return Recipe(**own | stages)


GOING_ON = ("after", "types", "rows", "reach")

SHORT = Recipe(components=4, start=(Stage(32, 800),), stages=(Stage(64, 250, 1e-2),))
MIXTURE = Recipe(components=8, start=(Stage(32, 1500),), stages=(Stage(64, 700, 1e-2),))
TYPES = Recipe(
    after="mixture", types=16, rows=450, reach=1, stages=(Stage(64, 160, 5e-3),), validate_every=80, patience=160
)
TREE = Recipe(stages=(Stage(32, 800),), points=64)
QUAD = Recipe(structure="quad-graph", stages=(Stage(16, 300),), points=32)

# What is compared, by the names of the tests: each chooses among its recipes by validation, and tests that one.
RECIPES = {
    "mnist": {
        "short-test": {"short": SHORT},
        "test": {"tree": TREE, "quad": QUAD, "mixture": MIXTURE},
        "types-test": {"types": TYPES},
    },
    "fashion-mnist": {"short-test": {"short": SHORT}},
}


def quick(recipe: Recipe) -> Recipe:
    """The same with little of everything."""
    small: dict[str, Any] = {
        name: tuple(Stage(4 + number, 6, stage.high) for number, stage in enumerate(getattr(recipe, name)))
        for name in ("start", "stages")
    }
    small |= {"components": min(2, recipe.components), "points": 8, "validate_every": 3, "patience": 6}
    small |= {"types": min(2, recipe.types), "rows": min(90, recipe.rows)}
    return replace(recipe, **small, width=8, batch=32, decay=0.5)
