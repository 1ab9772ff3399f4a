"""Handwritten digits of 8×8 pixels with 17 grey levels: small enough to come with the package."""

from __future__ import annotations

from importlib.resources import files

import numpy as np

from picirc.data.dataset import Dataset, Provenance, hold_out
from picirc.data.images import split_images

GREY_LEVELS = 17
TEST_FRACTION = 300 / 1797
TEST_SEED = 0  # the test images never depend on the user's seed
SOURCE = (
    "Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, 1998, "
    "doi:10.24432/C50P49, CC BY 4.0; its test part, as scikit-learn distributes it; embedded in this package"
)


def read_digits(seed: int, valid_fraction: float) -> Dataset:
    """Return the 1,797 digits: 300 for testing, always the same, some for validation, the rest for training."""
    with files("picirc.data").joinpath("embedded", "digits.npz").open("rb") as file, np.load(file) as arrays:
        images, labels = arrays["images"], arrays["labels"]
    rest, test = hold_out(len(images), TEST_FRACTION, TEST_SEED)
    return split_images(
        "digits",
        (images[rest], labels[rest]),
        (images[test], labels[test]),
        categories=GREY_LEVELS,
        provenance=Provenance(SOURCE),
        seed=seed,
        valid_fraction=valid_fraction,
    )
