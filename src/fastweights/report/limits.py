"""The limits of an axis, without outliers that would compress the other lines, and whether it is logarithmic."""

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from statistics import median
from typing import NamedTuple

DECADES = 1.5
"""Range, in powers of ten, from which the axis of errors and losses is logarithmic."""
STRETCH = 5
"""Factor by which outliers must stretch an axis to be left out."""
LEAST, MOST = -307.0, 308.0
"""Powers of ten of normal floats. Smaller numbers, like 0, have no place on a logarithmic axis."""


class Limits(NamedTuple):
    """The lowest and the highest number on an axis, and whether its steps are factors."""

    low: float
    high: float
    logarithmic: bool

    def place(self, value: float) -> float:
        """Relative height of a number on the axis: 0 at its lower end, 1 at its upper end."""
        low, high, scaled = (self._scaled(number) for number in (self.low, self.high, value))
        return (scaled - low) / (high - low)

    def _scaled(self, value: float) -> float:
        return _logarithm(value) if self.logarithmic else value


def find_limits(lines: Sequence[Sequence[float]], logarithmic: bool, errors: bool) -> Limits:
    """The limits of an axis for a set of lines.

    Up to a third of the lines, and then up to a twentieth of the numbers, are left out as outliers at either end. They
    must stretch the axis by a factor of at least `STRETCH`.

    Args:
        lines: The values of every line; values that are not finite are ignored.
        logarithmic: Whether the axis must be logarithmic, if any number is above 0.
        errors: Whether lower values are better. The axis is then logarithmic if the values span `DECADES` or more.
    """
    finite = [[value for value in line if math.isfinite(value)] for line in lines]
    above = [[_logarithm(value) for value in line if _has_logarithm(value)] for line in finite]
    low, high = _ends(above)
    losses = errors and list(map(len, above)) == list(map(len, finite))
    if any(above) and (logarithmic or (losses and high - low >= DECADES)):
        margin = 0.05 * (high - low) or 0.1
        return Limits(10 ** max(low - margin, LEAST), 10 ** min(high + margin, MOST), logarithmic=True)
    low, high = _ends(finite)
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
    return Limits(low - margin, high + margin, logarithmic=False)


def _ends(lines: Iterable[Sequence[float]]) -> tuple[float, float]:
    """The lowest and the highest of the numbers to show."""
    lines = [line for line in lines if line]
    if not lines:
        return 0.0, 1.0
    typical = _without_outliers(lines, len(lines) // 3)
    values = [[value] for line in typical for value in line]
    numbers = [value for (value,) in _without_outliers(values, len(values) // 20)]
    return min(numbers), max(numbers)


def _without_outliers(groups: Sequence[Sequence[float]], max_outliers: int) -> list[Sequence[float]]:
    """The groups without outliers: at most `max_outliers` groups that stretch the range by a factor of `STRETCH`."""
    centre = median(chain.from_iterable(groups))
    inwards = sorted(groups, key=lambda group: max(abs(max(group) - centre), abs(min(group) - centre)))
    highs, lows = accumulate(map(max, inwards), max), accumulate(map(min, inwards), min)
    ranges = [high - low for high, low in zip(highs, lows, strict=True)]
    counts = range(len(groups) - 1, len(groups) - max_outliers - 1, -1)
    count = next((n for n in counts if ranges[n - 1] * STRETCH <= ranges[-1] > 0), len(groups))
    return inwards[:count]


def _logarithm(value: float) -> float:
    return math.log10(value) if _has_logarithm(value) else -math.inf


def _has_logarithm(value: float) -> bool:
    return value >= 10**LEAST
