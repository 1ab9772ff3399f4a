"""Bins of numbers, the same for the data and for what was drawn from the model."""

from __future__ import annotations

import math

import numpy as np

from picirc.report.material import Array, Field

_MOST_UNIT_BINS = 40  # counts that span fewer values than this have a bin for each


def edges_of(field: Field, most: int) -> Array:
    """Where the bins of a column of numbers end; counts are in the middle of theirs."""
    low, high = field.limits()
    values = field.observed if not field.empty else field.drawn
    if field.whole:
        first, last = math.floor(low), math.ceil(high)
        width = max(1, math.ceil((last - first + 1) / min(most, _MOST_UNIT_BINS)))
        return np.arange(first, last + width + 1, width, dtype=np.float64) - 0.5
    count = int(np.clip(2 * round(len(values) ** (1 / 3)), 8, most))
    return np.linspace(low, high, count + 1)


def densities(values: Array, edges: Array) -> Array:
    """The share of the values in each bin divided by its width; values outside count for the total."""
    counts = np.histogram(values, edges)[0]
    return counts / (max(len(values), 1) * np.diff(edges))
