# SPDX-License-Identifier: Apache-2.0
"""Dates and times as numbers, days since 1970 in UTC, and back.

The *calendar* of a column describes its type: ``"date"``, ``"datetime[us]"`` with a unit, or
``"datetime[us, Europe/Paris]"`` with a time zone.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Numbers = npt.NDArray[np.float64]

DATED = ("date", "datetime")  # the dtypes of such columns
CALENDAR = re.compile(r"date|datetime\[(s|ms|us|ns)(, [\w/+:-]{1,40})?\]")

_ISO = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}(:?\d{2})?)?)?")
_DAY, _SECOND = 86_400e6, 1e6  # microseconds
_FIRST, _LAST = -719_162, 2_932_896  # the days that Python's dates can hold: the years 1 to 9999


def is_date(cell: object) -> bool:
    """Whether a value is a date, or a date with a time."""
    return isinstance(cell, datetime.date | np.datetime64)


def is_iso(text: str) -> bool:
    """Whether a string is a date, or a date with a time, in the format of ISO 8601."""
    if not _ISO.fullmatch(text):
        return False
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def days_of(moments: Array) -> Numbers:
    """Days since 1970 of an array of datetime64; NaN for NaT."""
    found = moments.astype("datetime64[us]")
    return np.where(np.isnat(found), np.nan, found.astype(np.int64) / _DAY)


def moments_of(days: Numbers, dtype: str, seconds: bool = False) -> Array:
    """Dates (``datetime64[D]``) or times (``datetime64[us]``, rounded to seconds if asked) from days since 1970."""
    known = np.clip(np.nan_to_num(days), _FIRST, _LAST)
    step = _DAY if dtype == "date" else _SECOND if seconds else 1.0
    found = (np.rint(known * (_DAY / step)) * step).astype(np.int64).astype("datetime64[us]")
    found[np.isnan(days)] = np.datetime64("NaT")
    return found.astype("datetime64[D]") if dtype == "date" else found


def dtype_of(days: Numbers) -> str:
    """The dtype of a column: ``"date"`` if all values are whole days, else ``"datetime"``."""
    known = days[~np.isnan(days)]
    return "date" if bool((known == np.floor(known)).all()) else "datetime"


def read_dates(cells: Sequence[Any]) -> tuple[Numbers, str]:
    """Days since 1970, and the calendar, of dates, times, and strings in the format of ISO 8601; None is missing.

    Raises:
        ValueError: Some times have a time zone and others have none.
    """
    found = [_moment(cell) for cell in cells]
    present = [cell for cell in found if cell is not None]
    timed = [cell for cell in present if isinstance(cell, datetime.datetime)]
    aware = [cell for cell in timed if cell.tzinfo is not None]
    if aware and len(aware) < len(present):
        raise ValueError("times with a zone and without one")
    if not timed:
        return days_of(np.array(found, "datetime64[D]")), "date"
    if not aware:
        return days_of(np.array(found, "datetime64[us]")), "datetime[us]"
    utc = [
        cell.astimezone(datetime.UTC).replace(tzinfo=None) if isinstance(cell, datetime.datetime) else None
        for cell in found
    ]
    zone = getattr(aware[0].tzinfo, "key", None) or getattr(aware[0].tzinfo, "zone", None) or "UTC"
    return days_of(np.array(utc, "datetime64[us]")), f"datetime[us, {zone}]"


def zone_of(calendar: str) -> str:
    """The zone of a calendar; empty if it has none."""
    return calendar.partition(", ")[2].rstrip("]")


def unit_of(calendar: str) -> str:
    """The unit of a calendar; empty for dates."""
    return calendar.partition("[")[2].partition(",")[0].rstrip("]")


def objects_of(moments: Array, calendar: str) -> list[Any]:
    """Python dates and times, in the time zone of the calendar; None for NaT."""
    found: list[Any] = moments.astype("datetime64[D]" if calendar == "date" else "datetime64[us]").tolist()
    if not (zone := zone_of(calendar)):
        return found
    try:
        there: datetime.tzinfo = ZoneInfo(zone)
    except (KeyError, ValueError, OSError):  # this machine does not know the zone
        there = datetime.UTC
    return [None if cell is None else cell.replace(tzinfo=datetime.UTC).astimezone(there) for cell in found]


def _moment(cell: Any) -> datetime.date | None:
    if cell is None or isinstance(cell, datetime.date):
        return cell
    if isinstance(cell, str):
        timed = datetime.datetime.fromisoformat(cell.strip())
        return timed if len(cell.strip()) > len("2000-01-01") else timed.date()
    found: datetime.datetime = np.datetime64(cell, "us").tolist()
    return found if np.datetime_data(cell.dtype)[0] not in ("Y", "M", "W", "D") else found.date()
