# SPDX-License-Identifier: Apache-2.0
"""Series that come with Python packages, so that nothing has to be fetched, and some that are drawn."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import statsmodels.api as sm

Numbers = npt.NDArray[np.float64]

_TRAIN = 0.7


def load(name: str) -> tuple[Numbers, Numbers]:
    """The first 70 % of a series, to learn from, and the rest, both in units of the first part."""
    rows = np.asarray({**CHOSEN_ON, **HELD_OUT}[name](), np.float64)
    rows = rows.reshape(len(rows), -1)
    cut = int(_TRAIN * len(rows))
    mean, std = rows[:cut].mean(0), rows[:cut].std(0)
    return (rows[:cut] - mean) / std, (rows[cut:] - mean) / std


def _data(name: str) -> pd.DataFrame:
    frame: pd.DataFrame = getattr(sm.datasets, name).load_pandas().data
    return frame


def _growth(values: Any) -> Numbers:
    return 100 * np.diff(np.log(np.asarray(values, np.float64)), axis=0)


def _macro() -> Numbers:
    frame = _data("macrodata")
    growth = _growth(frame[["realgdp", "realcons"]])
    return np.column_stack([growth, frame["infl"].to_numpy()[1:], np.diff(frame["unemp"])])


def _co2() -> Numbers:
    """Changes from four weeks to the next."""
    weekly = _data("co2")["co2"].interpolate().to_numpy()
    return np.diff(weekly[: len(weekly) // 4 * 4].reshape(-1, 4).mean(1))


def _volatility() -> Numbers:
    rng = np.random.default_rng(5)
    level = np.zeros(1000)
    for t in range(1, 1000):
        level[t] = 0.97 * level[t - 1] + 0.25 * rng.normal()
    return np.exp(level / 2) * rng.normal(size=1000)


def _linear() -> Numbers:
    """An AR(1) process seen through noise: the Kalman filter is exact."""
    rng = np.random.default_rng(6)
    level = np.zeros(600)
    for t in range(1, 600):
        level[t] = 0.9 * level[t - 1] + 0.44 * rng.normal()
    return level + 0.6 * rng.normal(size=600)


def _elnino() -> Numbers:
    return _data("elnino").iloc[:, 1:].to_numpy(np.float64).ravel()


def _danish() -> Numbers:
    frame = _data("danish_data")
    return np.diff(frame[["lrm", "lry", "lpy", "ibo", "ide"]].to_numpy(np.float64), axis=0)


def _interest() -> Numbers:
    return np.diff(_data("interest_inflation")[["Dp", "R"]].to_numpy(np.float64), axis=0)


def _islp(name: str, *columns: str) -> Numbers:
    with files("ISLP").joinpath("data", f"{name}.csv").open() as file:
        return pd.read_csv(file)[list(columns)].to_numpy(np.float64)


# The defaults of fit_sequences were chosen by these (but for the drawn volatility),
CHOSEN_ON: dict[str, Callable[[], Numbers]] = {
    "sunspots": lambda: np.sqrt(_data("sunspots")["SUNACTIVITY"].to_numpy()),
    "nile": lambda: _data("nile")["volume"].to_numpy(),
    "macro": _macro,
    "co2": _co2,
    "volatility (drawn)": _volatility,
    "linear (drawn)": _linear,
}
# and not by these.
HELD_OUT: dict[str, Callable[[], Numbers]] = {
    "elnino": _elnino,
    "danish": _danish,
    "interest": _interest,
    "smarket": lambda: _islp("Smarket", "Today"),
    "weekly": lambda: _islp("Weekly", "Today"),
    "nyse": lambda: _islp("NYSE", "DJ_return", "log_volume", "log_volatility")[-2000:],
}
