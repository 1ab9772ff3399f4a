"""Small public tables that come with Python packages, so that nothing has to be fetched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

Numbers = npt.NDArray[np.float64]

# Numbers with at most so many different values are categories, as the library takes them.
MOST_CATEGORIES = 10


def names() -> list[str]:
    """The tables, smallest first."""
    return list(_TABLES)


def load(name: str) -> pd.DataFrame:
    """A table: floats for quantities, texts for categories, and missing values where there are some."""
    frame = _TABLES[name]()
    frame.columns = [str(column) for column in frame.columns]
    return pd.DataFrame({column: _typed(frame[column]) for column in frame if frame[column].nunique() > 1})


def quantities(frame: pd.DataFrame) -> Numbers:
    """The columns of quantities of the complete rows."""
    return frame.select_dtypes("float").dropna().to_numpy(np.float64)


def dequantised(values: Numbers, source: np.random.Generator) -> Numbers:
    """Spread every value evenly over the step that its column is recorded in.

    A density of rounded values can be made as large as one likes by narrow peaks at the values themselves; of values
    spread over their steps it cannot. The step is the least difference between two values of the column.
    """
    return values + (source.random(values.shape) - 0.5) * np.array([_step(column) for column in values.T])


def _step(column: Numbers) -> float:
    gaps = np.diff(np.unique(column))
    return float(gaps[gaps > 1e-9 * np.abs(column).max()].min())


def _typed(column: pd.Series[Any]) -> pd.Series[Any]:
    numeric = pd.api.types.is_numeric_dtype(column)
    if numeric and column.nunique() > MOST_CATEGORIES:
        return column.astype(np.float64)
    return column.map(lambda value: None if pd.isna(value) else str(value)).astype(object)


def _bundled(name: str) -> pd.DataFrame:
    """A table of scikit-learn, without what is to be predicted."""
    from sklearn import datasets

    options = {"scaled": False} if name == "diabetes" else {}
    return getattr(datasets, f"load_{name}")(as_frame=True, **options).data


def _penguins() -> pd.DataFrame:
    from palmerpenguins import load_penguins

    return load_penguins()


_TABLES: dict[str, Callable[[], pd.DataFrame]] = {
    "iris": lambda: _bundled("iris"),
    "wine": lambda: _bundled("wine"),
    "penguins": _penguins,
    "diabetes": lambda: _bundled("diabetes"),
    "breast cancer": lambda: _bundled("breast_cancer"),
}
