"""Numbers along an axis: where they lie, and how they are written."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """A linear map from numbers to places.

    Attributes:
        low: The number at ``start``.
        high: The number at ``stop``; above ``low``.
        start: The first place.
        stop: The last place; it may lie before the first, as on an axis that points up.
    """

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        """The place of a number."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.stop - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """About so many round numbers on the axis.

        Example:
            >>> Scale(0, 1, 0, 100).ticks(4)
            [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
        """
        step = nice_step(self.high - self.low, count)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [round(i * step, 12 - exponent(step)) for i in range(first, last + 1)]


def span(low: float, high: float) -> tuple[float, float]:
    """A range that is not empty; a single number gets room on both sides."""
    if high > low:
        return low, high
    room = max(abs(low), 1.0) / 2
    return low - room, high + room


def exponent(value: float) -> int:
    """The power of ten of the first digit."""
    return math.floor(math.log10(abs(value))) if value else 0


def nice_step(extent: float, count: int) -> float:
    """The step of 1, 2 or 5 times a power of ten that cuts an extent into about so many parts."""
    rough = extent / max(count, 1)
    power = 10.0 ** exponent(rough)
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= 0.75 * rough)


def label(value: float, step: float | None = None, digits: int = 3) -> str:
    """A number for people: as many digits as the step between neighbours needs, or some significant ones.

    Example:
        >>> label(0.30000000000000004, 0.1), label(12345.0), label(0.000123), label(2.5e9), label(-1.0)
        ('0.3', '12,345', '1.23e-4', '2.5e9', '−1')
    """
    if not math.isfinite(value):
        return str(value)
    places = -exponent(step) if step else digits - 1 - exponent(value)
    if value and not -4 < exponent(value) < 6:
        text = f"{value:.{digits - 1}e}" if step is None else f"{value:.{max(0, exponent(value) + places)}e}"
        mantissa, power = text.split("e")
        text = f"{_trim(mantissa)}e{int(power)}"
    else:
        text = f"{value + 0.0:,.{max(0, places)}f}"
        text = _trim(text) if step is None else text
    return "0" if text in ("-0", "−0") else text.replace("-", "−", 1) if text.startswith("-") else text


def _trim(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(part: float) -> str:
    """A share; what is more than nothing never reads as nothing, and what is less than all never as all.

    Example:
        >>> percent(0.25), percent(0.05), percent(0.0003), percent(1.0), percent(0.9999), percent(0.0)
        ('25 %', '5.0 %', '< 0.1 %', '100 %', '> 99.9 %', '0 %')
    """
    if 0 < part < 0.001:
        return "< 0.1 %"
    if 0.999 < part < 1:
        return "> 99.9 %"
    return f"{100 * part:.1f} %" if 0 < part < 0.0995 else f"{100 * part:.0f} %"
